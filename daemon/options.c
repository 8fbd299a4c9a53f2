#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/log.h"

const char *const options_kinds[OPTIONS_KINDS] = {"hip", "cuda", "cpu"};

static const char *const stage_words[STAGES] = {
        [STAGE_HELLO] = "hello",
        [STAGE_SPACE] = "space",
        [STAGE_START] = "start",
        [STAGE_BUILD] = "build",
        [STAGE_VERIFY] = "verify",
        [STAGE_MEASURE] = "measure",
        [STAGE_STOP] = "stop",
};

static const uint64_t second_ns = 1000000000;

static const char usage[] =
        "usage: flytuned [OPTION]...\n"
        "Tunes GPU kernels in the background and serves the best configs over a Unix socket.\n"
        "Stays in the foreground; logs to standard error.\n"
        "\n"
        "  --socket PATH          where clients connect (/run/flytuned/flytuned.sock)\n"
        "  --state-dir DIR        where results are kept (/var/lib/flytuned)\n"
        "  --device DEVICE        auto, cpu, hip, cuda, or one such as cuda:1; may be given again (auto)\n"
        "  --runner KIND=PATH     the runner program of a kind of device\n"
        "  --runner-idle SECONDS  let a runner go when it had no work for so long (10)\n"
        "  --deadline STAGE=SECONDS  for hello, space, start, build, verify, measure or stop\n"
        "  --budget SECONDS       of measuring one problem (30)\n"
        "  --device-memory BYTES  that a sweep may take of a device; 0: the runner decides (0)\n"
        "  --map-size BYTES       address space of the store (17179869184)\n"
        "  --max-clients N        connections at once (4096)\n"
        "  --log-level LEVEL      error, warning, notice, info or debug (info)\n"
        "  --check-store          check the store in --state-dir, say what was found, and end\n"
        "  --help, --version\n";

int options_kind(const char *word)
{
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (strcmp(word, options_kinds[kind]) == 0)
			return kind;
	}
	return -1;
}

const char *options_stage_word(enum options_stage stage)
{
	return stage_words[stage];
}

bool options_wants(const struct options *options, const char *device_id)
{
	if (options->device_count == 0)
		return true;
	for (uint32_t i = 0; i < options->device_count; i++) {
		const char *wanted = options->device[i];
		size_t length = strlen(wanted);

		if (strcmp(wanted, device_id) == 0)
			return true;
		if (strchr(wanted, ':') == NULL && strncmp(wanted, device_id, length) == 0 &&
		        device_id[length] == ':')
			return true;
	}
	return false;
}

bool options_wants_kind(const struct options *options, const char *kind)
{
	size_t length = strlen(kind);

	if (options->device_count == 0)
		return true;
	for (uint32_t i = 0; i < options->device_count; i++) {
		const char *wanted = options->device[i];

		if (strncmp(wanted, kind, length) == 0 && (wanted[length] == '\0' || wanted[length] == ':'))
			return true;
	}
	return false;
}

static int parse_number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *number,
        struct ft_error *error)
{
	char bound[64];
	char *end;
	unsigned long long value;

	(void)snprintf(bound, sizeof(bound), "a whole number from %llu to %llu", (unsigned long long)low,
	        (unsigned long long)high);
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || *text == '-' || value < low || value > high)
		return ft_fail_field(error, FT_E_BAD_VALUE, option, text, bound);
	*number = value;
	return 0;
}

static int parse_seconds(const char *option, const char *text, uint64_t *ns, struct ft_error *error)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno != 0 || end == text || *end != '\0' || !(value > 0 && value <= 86400))
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, option, text, "seconds, above 0 and at most 86400");
	*ns = (uint64_t)(value * (double)second_ns);
	return 0;
}

static int copy_path(const char *option, const char *text, char *into, size_t size, struct ft_error *error)
{
	char bound[64];
	char value[64];

	if (*text != '\0' && strlen(text) < size) {
		(void)snprintf(into, size, "%s", text);
		return 0;
	}
	(void)snprintf(bound, sizeof(bound), "a path of 1 to %zu bytes", size - 1);
	(void)snprintf(value, sizeof(value), "%zu bytes long (%.20s…)", strlen(text), text);
	return ft_fail_field(error, FT_E_BAD_VALUE, option, value, bound);
}

static int add_device(struct options *options, const char *text, struct ft_error *error)
{
	const char *colon = strchr(text, ':');
	size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
	char kind[16] = "";
	uint64_t number;

	if (strcmp(text, "auto") == 0)
		return 0;
	if (length < sizeof(kind))
		(void)snprintf(kind, sizeof(kind), "%.*s", (int)length, text);
	if (options_kind(kind) < 0)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, "--device", text, "auto, cpu, hip, cuda, or KIND:NUMBER");
	if (colon != NULL && parse_number("--device", colon + 1, 0, 255, &number, error) != 0)
		return -1;
	if (options->device_count == OPTIONS_DEVICES_MAX)
		return ft_fail_field(error, FT_E_BAD_VALUE, "--device", text, "given at most 16 times");
	(void)snprintf(options->device[options->device_count++], FT_DEVICE_ID_SIZE, "%s", text);
	return 0;
}

/* "KEY=VALUE": copies KEY, points at VALUE. */
static const char *split(const char *text, char *key, size_t size)
{
	const char *equals = strchr(text, '=');

	if (equals == NULL || (size_t)(equals - text) >= size)
		return NULL;
	(void)snprintf(key, size, "%.*s", (int)(equals - text), text);
	return equals + 1;
}

static int set_runner(struct options *options, const char *text, struct ft_error *error)
{
	char key[16];
	const char *path = split(text, key, sizeof(key));
	int kind = path != NULL ? options_kind(key) : -1;

	if (kind < 0)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, "--runner", text, "cpu=PATH, hip=PATH or cuda=PATH");
	return copy_path("--runner", path, options->runner[kind], sizeof(options->runner[kind]), error);
}

static int set_deadline(struct options *options, const char *text, struct ft_error *error)
{
	char key[16];
	const char *seconds = split(text, key, sizeof(key));

	for (int stage = 0; seconds != NULL && stage < STAGES; stage++) {
		if (strcmp(key, stage_words[stage]) == 0) {
			if (parse_seconds("--deadline", seconds, &options->deadline_ns[stage], NULL) == 0)
				return 0;
			return ft_fail_field(error, FT_E_BAD_VALUE, "--deadline", text,
			        "STAGE=SECONDS, above 0 and at most 86400");
		}
	}
	return ft_fail_field(error, FT_E_BAD_VALUE, "--deadline", text,
	        "STAGE=SECONDS for hello, space, start, build, verify, measure or stop");
}

/* Runners stand in libexec when installed; beside the build's own folders when run from a build tree. */
static void find_runners(struct options *options)
{
	char self[256];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (length < 0)
		length = 0;
	self[length] = '\0';
	slash = strrchr(self, '/');
	if (slash != NULL)
		*slash = '\0';
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		char beside[512];

		(void)snprintf(beside, sizeof(beside), "%s/../kernels/runner/flytune-runner-%s", self,
		        options_kinds[kind]);
		if (slash == NULL || strlen(beside) >= sizeof(options->runner[kind]) ||
		        access(beside, X_OK) != 0)
			(void)snprintf(beside, sizeof(beside), "%s/flytune-runner-%s", FLYTUNE_LIBEXECDIR,
			        options_kinds[kind]);
		(void)snprintf(options->runner[kind], sizeof(options->runner[kind]), "%.*s",
		        (int)sizeof(options->runner[kind]) - 1, beside);
	}
}

enum options_outcome options_parse(struct options *options, int argc, char **argv, struct ft_error *error)
{
	enum {
		OPT_SOCKET = 256,
		OPT_STATE_DIR,
		OPT_DEVICE,
		OPT_RUNNER,
		OPT_RUNNER_IDLE,
		OPT_DEADLINE,
		OPT_BUDGET,
		OPT_DEVICE_MEMORY,
		OPT_MAP_SIZE,
		OPT_MAX_CLIENTS,
		OPT_LOG_LEVEL,
		OPT_CHECK_STORE,
		OPT_HELP,
		OPT_VERSION,
	};
	static const struct option long_options[] = {
	        {"socket", required_argument, NULL, OPT_SOCKET},
	        {"state-dir", required_argument, NULL, OPT_STATE_DIR},
	        {"device", required_argument, NULL, OPT_DEVICE},
	        {"runner", required_argument, NULL, OPT_RUNNER},
	        {"runner-idle", required_argument, NULL, OPT_RUNNER_IDLE},
	        {"deadline", required_argument, NULL, OPT_DEADLINE},
	        {"budget", required_argument, NULL, OPT_BUDGET},
	        {"device-memory", required_argument, NULL, OPT_DEVICE_MEMORY},
	        {"map-size", required_argument, NULL, OPT_MAP_SIZE},
	        {"max-clients", required_argument, NULL, OPT_MAX_CLIENTS},
	        {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
	        {"check-store", no_argument, NULL, OPT_CHECK_STORE},
	        {"help", no_argument, NULL, OPT_HELP},
	        {"version", no_argument, NULL, OPT_VERSION},
	        {NULL, 0, NULL, 0},
	};
	bool check_store = false;
	uint64_t number = 0;
	int option;

	*options = (struct options){
	        .socket = "/run/flytuned/flytuned.sock",
	        .state_dir = "/var/lib/flytuned",
	        .runner_idle_ns = 10 * second_ns,
	        .budget_ns = 30 * second_ns,
	        .band_ppm = 5000,
	        .map_bytes = 16ULL << 30,
	        .clients_max = 4096,
	        .log_level = LOG_LEVEL_INFO,
	        .deadline_ns =
	                {
	                        [STAGE_HELLO] = 30 * second_ns,
	                        [STAGE_SPACE] = 10 * second_ns,
	                        [STAGE_START] = 60 * second_ns,
	                        [STAGE_BUILD] = 60 * second_ns,
	                        [STAGE_VERIFY] = 120 * second_ns,
	                        [STAGE_MEASURE] = 60 * second_ns,
	                        [STAGE_STOP] = 5 * second_ns,
	                },
	};
	find_runners(options);
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		int failed = 0;

		switch (option) {
		case OPT_SOCKET:
			failed = copy_path(
			        "--socket", optarg, options->socket, sizeof(options->socket), error);
			break;
		case OPT_STATE_DIR:
			failed = copy_path(
			        "--state-dir", optarg, options->state_dir, sizeof(options->state_dir), error);
			break;
		case OPT_DEVICE:
			failed = add_device(options, optarg, error);
			break;
		case OPT_RUNNER:
			failed = set_runner(options, optarg, error);
			break;
		case OPT_RUNNER_IDLE:
			failed = parse_seconds("--runner-idle", optarg, &options->runner_idle_ns, error);
			break;
		case OPT_DEADLINE:
			failed = set_deadline(options, optarg, error);
			break;
		case OPT_BUDGET:
			failed = parse_seconds("--budget", optarg, &options->budget_ns, error);
			break;
		case OPT_DEVICE_MEMORY:
			failed = parse_number(
			        "--device-memory", optarg, 0, 1ULL << 50, &options->memory_cap, error);
			break;
		case OPT_MAP_SIZE:
			failed = parse_number(
			        "--map-size", optarg, 1 << 20, 1ULL << 46, &options->map_bytes, error);
			break;
		case OPT_MAX_CLIENTS:
			failed = parse_number("--max-clients", optarg, 1, 1 << 20, &number, error);
			if (failed == 0)
				options->clients_max = (uint32_t)number;
			break;
		case OPT_LOG_LEVEL:
			options->log_level = log_level_parse(optarg);
			if (options->log_level < 0)
				failed = ft_fail_field(error, FT_E_BAD_VALUE, "--log-level", optarg,
				        "error, warning, notice, info or debug");
			break;
		case OPT_CHECK_STORE:
			check_store = true;
			break;
		case OPT_HELP:
			(void)fputs(usage, stdout);
			return OPTIONS_DONE;
		case OPT_VERSION:
			(void)puts("flytuned " FLYTUNE_VERSION);
			return OPTIONS_DONE;
		case ':':
			failed = ft_fail(error, FT_E_BAD_VALUE, "%s needs a value", argv[optind - 1]);
			break;
		default:
			failed = ft_fail(error, FT_E_BAD_VALUE, "unknown option %s; see flytuned --help",
			        argv[optind - 1]);
			break;
		}
		if (failed != 0)
			return OPTIONS_BAD;
	}
	if (optind < argc) {
		(void)ft_fail(
		        error, FT_E_BAD_VALUE, "unexpected argument %s; see flytuned --help", argv[optind]);
		return OPTIONS_BAD;
	}
	return check_store ? OPTIONS_CHECK_STORE : OPTIONS_RUN;
}
