#include "daemon/host/settings.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/host/config_file.h"
#include "daemon/host/log.h"

const char *const settings_kinds[SETTINGS_KINDS] = {"hip", "cuda", "cpu"};

static const char *const stage_words[STAGES] = {
        [STAGE_HELLO] = "hello",
        [STAGE_SPACE] = "space",
        [STAGE_START] = "start",
        [STAGE_BUILD] = "build",
        [STAGE_VERIFY] = "verify",
        [STAGE_MEASURE] = "measure",
        [STAGE_STOP] = "stop",
};

enum { SECOND_NS = 1000000000 };

static const char usage[] =
        "Usage: flytuned [OPTION]...\n"
        "Tunes GPU kernels in the background and serves the best configs over a Unix socket.\n"
        "Stays in the foreground; logs to standard error.\n"
        "\n"
        "  --config FILE          settings, that options override (" FLYTUNE_CONFIG ", if it is there)\n"
        "  --socket PATH          where clients connect (/run/flytuned/flytuned.sock)\n"
        "  --state-dir DIR        where results are kept (/var/lib/flytuned)\n"
        "  --group NAME           whose members may look up and tune (flytune)\n"
        "  --admin-group NAME     and pin, forget, import, pause, cancel others' jobs (flytune-admin)\n"
        "  --max-clients N        connections at once (4096)\n"
        "  --clients-per-user N   of these, by one user who is no administrator (2048)\n"
        "  --log-level LEVEL      error, warning, notice, info or debug (info)\n"
        "  --device DEVICE        auto, cpu, hip, cuda, or one such as cuda:1; may be given again (auto)\n"
        "  --device-memory BYTES  that a sweep may take of a device; 0: the runner decides (0)\n"
        "  --kernels FOLDER       with a folder for each kernel of yours (/etc/flytuned/kernels.d)\n"
        "  --runner KIND=PATH     the runner program of a kind of device\n"
        "  --runner-idle SECONDS  let a runner go when it had no work for so long (10)\n"
        "  --deadline STAGE=SECONDS  for hello, space, start, build, verify, measure or stop\n"
        "  --budget SECONDS       of sweeping one problem, all included (30)\n"
        "  --background WHEN      work that nobody waits for is done: off, idle or always (idle)\n"
        "  --background-queue N   problems that may wait for it (256)\n"
        "  --background-load N    percent of a device that others may use meanwhile (20)\n"
        "  --background-wait SECONDS  before a busy device is looked at again (30)\n"
        "  --jobs-per-user N      queued or running jobs of one user; 0: any number (1024)\n"
        "  --map-size BYTES       address space of the store (17179869184)\n"
        "  --history-days N       for which answers that were replaced can still be asked for (90)\n"
        "  --history-answers N    of each problem that are kept longer than that (64)\n"
        "  --check-config         read the configuration, say what is wrong with it or missing, and end\n"
        "  --check-store          check the store in --state-dir, say what was found, and end\n"
        "  --help, --version\n";

int settings_kind(const char *word)
{
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (strcmp(word, settings_kinds[kind]) == 0)
			return kind;
	}
	return -1;
}

const char *settings_stage_word(enum settings_stage stage)
{
	return stage_words[stage];
}

bool settings_wants(const struct settings *settings, const char *device_id)
{
	if (settings->device_count == 0)
		return true;
	for (uint32_t i = 0; i < settings->device_count; i++) {
		const char *wanted = settings->device[i];

		if (strcmp(wanted, device_id) == 0 ||
		        (strchr(wanted, ':') == NULL && settings_id_is_of(device_id, wanted)))
			return true;
	}
	return false;
}

bool settings_wants_kind(const struct settings *settings, const char *kind)
{
	if (settings->device_count == 0)
		return true;
	for (uint32_t i = 0; i < settings->device_count; i++) {
		const char *wanted = settings->device[i];

		if (strcmp(wanted, kind) == 0 || settings_id_is_of(wanted, kind))
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
	if (errno != 0 || end == text || *end != '\0' || !isdigit((unsigned char)*text) || value < low ||
	        value > high)
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
	*ns = (uint64_t)(value * (double)SECOND_NS);
	return 0;
}

static int copy_text(const char *option, const char *text, const char *what, char *into, size_t size,
        struct ft_error *error)
{
	char bound[64];
	char value[64];

	if (*text != '\0' && strlen(text) < size) {
		(void)snprintf(into, size, "%s", text);
		return 0;
	}
	(void)snprintf(bound, sizeof(bound), "%s of 1 to %zu bytes", what, size - 1);
	(void)snprintf(value, sizeof(value), "%zu bytes long (%.20s…)", strlen(text), text);
	return ft_fail_field(error, FT_E_BAD_VALUE, option, value, bound);
}

static int add_device(struct settings *settings, const char *option, const char *text, struct ft_error *error)
{
	const char *colon = strchr(text, ':');
	size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
	char kind[16] = "";
	uint64_t number;

	if (strcmp(text, "auto") == 0)
		return 0;
	if (length < sizeof(kind))
		(void)snprintf(kind, sizeof(kind), "%.*s", (int)length, text);
	if (settings_kind(kind) < 0)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, option, text, "auto, cpu, hip, cuda, or KIND:NUMBER");
	if (colon != NULL && parse_number(option, colon + 1, 0, 255, &number, error) != 0)
		return -1;
	if (settings->device_count == SETTINGS_DEVICES_MAX)
		return ft_fail_field(error, FT_E_BAD_VALUE, option, text, "given at most 16 times");
	(void)snprintf(settings->device[settings->device_count++], FT_DEVICE_ID_SIZE, "%s", text);
	return 0;
}

/* A list, parted by commas or spaces, that takes the place of what was there. */
static int set_devices(
        struct settings *settings, const char *option, const char *text, struct ft_error *error)
{
	static const char separators[] = ", \t";
	char word[FT_DEVICE_ID_SIZE];

	settings->device_count = 0;
	text += strspn(text, separators);
	if (*text == '\0')
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, option, "empty", "auto, cpu, hip, cuda, or KIND:NUMBER");
	while (*text != '\0') {
		size_t length = strcspn(text, separators);

		if (length >= sizeof(word))
			return ft_fail_field(
			        error, FT_E_BAD_VALUE, option, text, "auto, cpu, hip, cuda, or KIND:NUMBER");
		(void)snprintf(word, sizeof(word), "%.*s", (int)length, text);
		if (add_device(settings, option, word, error) != 0)
			return -1;
		text += length;
		text += strspn(text, separators);
	}
	return 0;
}

/* ---- the table ---- */

static const char *const background_words[] = {
        [SETTINGS_BACKGROUND_OFF] = "off",
        [SETTINGS_BACKGROUND_IDLE] = "idle",
        [SETTINGS_BACKGROUND_ALWAYS] = "always",
};

enum type {
	TYPE_PATH,
	TYPE_WORD, /* a group's name */
	TYPE_NUMBER,
	TYPE_SECONDS,
	TYPE_DEVICES,
	TYPE_LEVEL,
	TYPE_BACKGROUND,
};

struct setting {
	const char *section, *key;
	const char *flag; /* NULL: --runner and --deadline, which take KEY=VALUE */
	enum type type;
	bool live; /* can change while the daemon runs */
	size_t offset, size;
	uint64_t low, high; /* of a number */
};

#define FIELD(member) offsetof(struct settings, member), sizeof(((struct settings *)NULL)->member)

static const struct setting table[] = {
        {"daemon", "socket", "socket", TYPE_PATH, false, FIELD(socket), 0, 0},
        {"daemon", "state_dir", "state-dir", TYPE_PATH, false, FIELD(state_dir), 0, 0},
        {"daemon", "group", "group", TYPE_WORD, true, FIELD(group), 0, 0},
        {"daemon", "admin_group", "admin-group", TYPE_WORD, true, FIELD(admin_group), 0, 0},
        {"daemon", "max_clients", "max-clients", TYPE_NUMBER, false, FIELD(clients_max), 1, 1 << 20},
        {"daemon", "clients_per_user", "clients-per-user", TYPE_NUMBER, true, FIELD(clients_per_user), 1,
                1 << 20},
        {"daemon", "log_level", "log-level", TYPE_LEVEL, true, FIELD(log_level), 0, 0},
        {"store", "map_size", "map-size", TYPE_NUMBER, false, FIELD(map_bytes), 1 << 20, 1ULL << 46},
        {"store", "history_days", "history-days", TYPE_NUMBER, false, FIELD(history_days), 0, 36500},
        {"store", "history_answers", "history-answers", TYPE_NUMBER, false, FIELD(history_answers), 1,
                1 << 20},
        {"devices", "device", "device", TYPE_DEVICES, false, FIELD(device), 0, 0},
        {"devices", "memory", "device-memory", TYPE_NUMBER, false, FIELD(memory_cap), 0, 1ULL << 50},
        {"kernels", "folder", "kernels", TYPE_PATH, false, FIELD(kernels), 0, 0},
        {"runner", "cpu", NULL, TYPE_PATH, false, FIELD(runner[2]), 0, 0},
        {"runner", "hip", NULL, TYPE_PATH, false, FIELD(runner[0]), 0, 0},
        {"runner", "cuda", NULL, TYPE_PATH, false, FIELD(runner[1]), 0, 0},
        {"runner", "idle", "runner-idle", TYPE_SECONDS, true, FIELD(runner_idle_ns), 0, 0},
        {"deadline", "hello", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_HELLO]), 0, 0},
        {"deadline", "space", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_SPACE]), 0, 0},
        {"deadline", "start", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_START]), 0, 0},
        {"deadline", "build", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_BUILD]), 0, 0},
        {"deadline", "verify", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_VERIFY]), 0, 0},
        {"deadline", "measure", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_MEASURE]), 0, 0},
        {"deadline", "stop", NULL, TYPE_SECONDS, true, FIELD(deadline_ns[STAGE_STOP]), 0, 0},
        {"queue", "budget", "budget", TYPE_SECONDS, true, FIELD(budget_ns), 0, 0},
        {"queue", "jobs_per_user", "jobs-per-user", TYPE_NUMBER, true, FIELD(jobs_per_user), 0, 1 << 20},
        {"background", "when", "background", TYPE_BACKGROUND, true, FIELD(background), 0, 0},
        {"background", "queue", "background-queue", TYPE_NUMBER, false, FIELD(background_queue), 1, 1 << 16},
        {"background", "load", "background-load", TYPE_NUMBER, true, FIELD(background_load), 0, 100},
        {"background", "wait", "background-wait", TYPE_SECONDS, true, FIELD(background_wait_ns), 0, 0},
};

enum { SETTINGS = sizeof(table) / sizeof(table[0]) };
_Static_assert(SETTINGS <= 64, "settings.given has a bit for each");

static uint64_t bit_of(const struct setting *setting)
{
	return UINT64_C(1) << (setting - table);
}

/* `option` is what the operator called it. */
static int apply(struct settings *settings, const struct setting *setting, const char *option,
        const char *value, struct ft_error *error)
{
	void *at = (char *)settings + setting->offset;

	settings->given |= bit_of(setting);
	switch (setting->type) {
	case TYPE_PATH:
		return copy_text(option, value, "a path", at, setting->size, error);
	case TYPE_WORD:
		return copy_text(option, value, "a group's name", at, setting->size, error);
	case TYPE_NUMBER:
		return parse_number(option, value, setting->low, setting->high, at, error);
	case TYPE_SECONDS:
		return parse_seconds(option, value, at, error);
	case TYPE_DEVICES:
		return set_devices(settings, option, value, error);
	case TYPE_BACKGROUND:
		for (unsigned word = 0; word < sizeof(background_words) / sizeof(background_words[0]);
		        word++) {
			if (strcmp(value, background_words[word]) != 0)
				continue;
			*(enum settings_background *)at = (enum settings_background)word;
			return 0;
		}
		return ft_fail_field(error, FT_E_BAD_VALUE, option, value, "off, idle or always");
	case TYPE_LEVEL:
		*(int *)at = log_level_parse(value);
		if (*(int *)at < 0)
			return ft_fail_field(error, FT_E_BAD_VALUE, option, value,
			        "error, warning, notice, info or debug");
		return 0;
	}
	return 0;
}

static const struct setting *find_setting(const char *section, const char *key)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		if (strcmp(table[i].section, section) == 0 && strcmp(table[i].key, key) == 0)
			return &table[i];
	}
	return NULL;
}

int settings_set(struct settings *settings, const char *section, const char *key, const char *value,
        struct ft_error *error)
{
	const struct setting *setting = find_setting(section, key);
	const char *elsewhere = NULL;

	if (setting != NULL && (settings->given & bit_of(setting)) != 0)
		return ft_fail(error, FT_E_BAD_VALUE, "%s is given twice in section [%s]", key, section);
	if (setting != NULL)
		return apply(settings, setting, key, value, error);
	for (size_t i = 0; i < SETTINGS && elsewhere == NULL; i++) {
		if (strcmp(table[i].key, key) == 0)
			elsewhere = table[i].section;
	}
	return ft_fail(error, FT_E_BAD_VALUE, "unknown key %.60s in section [%.60s]%s%s%s", key, section,
	        elsewhere != NULL ? "; it belongs into [" : "", elsewhere != NULL ? elsewhere : "",
	        elsewhere != NULL ? "]" : "");
}

bool settings_given(const struct settings *settings, const char *section, const char *key)
{
	const struct setting *setting = find_setting(section, key);

	return setting != NULL && (settings->given & bit_of(setting)) != 0;
}

const char *settings_name(size_t index, const char **section)
{
	if (index >= SETTINGS)
		return NULL;
	*section = table[index].section;
	return table[index].key;
}

void settings_reload(struct settings *settings, const struct settings *fresh, char *rest, size_t size)
{
	size_t length = 0;

	rest[0] = '\0';
	for (size_t i = 0; i < SETTINGS; i++) {
		void *now = (char *)settings + table[i].offset;
		const void *then = (const char *)fresh + table[i].offset;
		bool differs = memcmp(now, then, table[i].size) != 0 ||
		        (table[i].type == TYPE_DEVICES && settings->device_count != fresh->device_count);

		if (table[i].live)
			settings->given =
			        (settings->given & ~bit_of(&table[i])) | (fresh->given & bit_of(&table[i]));
		if (!differs)
			continue;
		if (table[i].live)
			memcpy(now, then, table[i].size);
		else if (length < size)
			length += (size_t)snprintf(rest + length, size - length, "%s%s.%s",
			        length > 0 ? ", " : "", table[i].section, table[i].key);
	}
}

/* "KEY=VALUE" of a flag that serves a whole section. */
static int set_keyed(struct settings *settings, const char *flag, const char *section, const char *text,
        const char *bound, struct ft_error *error)
{
	const struct setting *setting = NULL;
	const char *equals = strchr(text, '=');
	char key[16];

	if (equals != NULL && (size_t)(equals - text) < sizeof(key)) {
		(void)snprintf(key, sizeof(key), "%.*s", (int)(equals - text), text);
		setting = find_setting(section, key);
	}
	if (setting == NULL || setting->flag != NULL)
		return ft_fail_field(error, FT_E_BAD_VALUE, flag, text, bound);
	if (setting->type == TYPE_SECONDS && apply(settings, setting, flag, equals + 1, NULL) != 0)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, flag, text, "STAGE=SECONDS, above 0 and at most 86400");
	return apply(settings, setting, flag, equals + 1, error);
}

/* Runners stand in libexec when installed; beside the build's own folders when run from a build tree. */
static void find_runners(struct settings *settings)
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
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		char beside[512];

		(void)snprintf(beside, sizeof(beside), "%s/../kernels/runner/flytune-runner-%s", self,
		        settings_kinds[kind]);
		if (slash == NULL || strlen(beside) >= sizeof(settings->runner[kind]) ||
		        access(beside, X_OK) != 0)
			(void)snprintf(beside, sizeof(beside), "%s/flytune-runner-%s", FLYTUNE_LIBEXECDIR,
			        settings_kinds[kind]);
		(void)snprintf(settings->runner[kind], sizeof(settings->runner[kind]), "%.*s",
		        (int)sizeof(settings->runner[kind]) - 1, beside);
	}
}

void settings_init(struct settings *settings)
{
	memset(settings, 0, sizeof(*settings)); /* all of it: texts are compared as bytes */
	(void)snprintf(settings->socket, sizeof(settings->socket), "/run/flytuned/flytuned.sock");
	(void)snprintf(settings->state_dir, sizeof(settings->state_dir), "/var/lib/flytuned");
	(void)snprintf(settings->group, sizeof(settings->group), "flytune");
	(void)snprintf(settings->admin_group, sizeof(settings->admin_group), "flytune-admin");
	settings->runner_idle_ns = 10ULL * SECOND_NS;
	settings->budget_ns = 30ULL * SECOND_NS;
	settings->band_ppm = 5000;
	settings->map_bytes = 16ULL << 30;
	settings->history_days = 90;
	settings->history_answers = 64;
	settings->clients_max = 4096;
	settings->clients_per_user = 2048;
	settings->jobs_per_user = 1024;
	settings->background = SETTINGS_BACKGROUND_IDLE;
	settings->background_queue = 256;
	settings->background_load = 20;
	settings->background_wait_ns = 30ULL * SECOND_NS;
	settings->log_level = LOG_LEVEL_INFO;
	settings->deadline_ns[STAGE_HELLO] = 30ULL * SECOND_NS;
	settings->deadline_ns[STAGE_SPACE] = 10ULL * SECOND_NS;
	settings->deadline_ns[STAGE_START] = 60ULL * SECOND_NS;
	settings->deadline_ns[STAGE_BUILD] = 60ULL * SECOND_NS;
	settings->deadline_ns[STAGE_VERIFY] = 120ULL * SECOND_NS;
	settings->deadline_ns[STAGE_MEASURE] = 60ULL * SECOND_NS;
	settings->deadline_ns[STAGE_STOP] = 5ULL * SECOND_NS;
	(void)snprintf(settings->kernels, sizeof(settings->kernels), "/etc/flytuned/kernels.d");
	find_runners(settings);
}

/* ---- the command line ---- */

enum flag {
	FLAG_RUNNER = SETTINGS,
	FLAG_DEADLINE,
	FLAG_CONFIG,
	FLAG_CHECK_CONFIG,
	FLAG_CHECK_STORE,
	FLAG_HELP,
	FLAG_VERSION,
	FLAGS,
	FLAG_FIRST = 256, /* getopt's own values stand below */
};

static void list_flags(struct option *list)
{
	static const struct option others[] = {
	        {"runner", required_argument, NULL, FLAG_FIRST + FLAG_RUNNER},
	        {"deadline", required_argument, NULL, FLAG_FIRST + FLAG_DEADLINE},
	        {"config", required_argument, NULL, FLAG_FIRST + FLAG_CONFIG},
	        {"check-config", no_argument, NULL, FLAG_FIRST + FLAG_CHECK_CONFIG},
	        {"check-store", no_argument, NULL, FLAG_FIRST + FLAG_CHECK_STORE},
	        {"help", no_argument, NULL, FLAG_FIRST + FLAG_HELP},
	        {"version", no_argument, NULL, FLAG_FIRST + FLAG_VERSION},
	};
	size_t count = 0;

	for (size_t i = 0; i < SETTINGS; i++) {
		if (table[i].flag != NULL)
			list[count++] = (struct option){
			        table[i].flag, required_argument, NULL, (int)(FLAG_FIRST + i)};
	}
	memcpy(list + count, others, sizeof(others));
	count += sizeof(others) / sizeof(others[0]);
	list[count] = (struct option){NULL, 0, NULL, 0};
}

static int apply_flag(
        struct settings *settings, int flag, const char *value, bool *devices, struct ft_error *error)
{
	char option[40];

	if (flag == FLAG_RUNNER)
		return set_keyed(
		        settings, "--runner", "runner", value, "cpu=PATH, hip=PATH or cuda=PATH", error);
	if (flag == FLAG_DEADLINE)
		return set_keyed(settings, "--deadline", "deadline", value,
		        "STAGE=SECONDS for hello, space, start, build, verify, measure or stop", error);
	(void)snprintf(option, sizeof(option), "--%s", table[flag].flag);
	if (table[flag].type == TYPE_DEVICES) {
		/* The first replaces what the file says, each further one adds. */
		if (!*devices)
			settings->device_count = 0;
		*devices = true;
		settings->given |= bit_of(&table[flag]);
		return add_device(settings, option, value, error);
	}
	return apply(settings, &table[flag], option, value, error);
}

/* One walk over the flags: to find those that decide what is read first, then to apply the others. */
static enum settings_outcome walk_flags(struct settings *settings, int argc, char **argv, bool applies,
        const char **config, enum settings_outcome *asked, struct ft_error *error)
{
	struct option list[FLAGS + 1];
	bool devices = false;
	int option;

	list_flags(list);
	opterr = 0;
	optind = 0; /* getopt starts anew */
	while ((option = getopt_long(argc, argv, ":", list, NULL)) != -1) {
		int flag = option - FLAG_FIRST;
		int failed = 0;

		if (option == ':')
			failed = ft_fail(error, FT_E_BAD_VALUE, "%s needs a value", argv[optind - 1]);
		else if (option < FLAG_FIRST)
			failed = ft_fail(error, FT_E_BAD_VALUE, "unknown option %s; see flytuned --help",
			        argv[optind - 1]);
		else if (flag == FLAG_HELP || flag == FLAG_VERSION)
			return flag == FLAG_HELP ? (void)fputs(usage, stdout),
			       SETTINGS_DONE     : ((void)puts("flytuned " FLYTUNE_VERSION), SETTINGS_DONE);
		else if (flag == FLAG_CONFIG)
			*config = optarg;
		else if (flag == FLAG_CHECK_CONFIG || flag == FLAG_CHECK_STORE)
			*asked = flag == FLAG_CHECK_CONFIG ? SETTINGS_CHECK_CONFIG : SETTINGS_CHECK_STORE;
		else if (applies)
			failed = apply_flag(settings, flag, optarg, &devices, error);
		if (failed != 0)
			return SETTINGS_BAD;
	}
	if (optind < argc) {
		(void)ft_fail(
		        error, FT_E_BAD_VALUE, "unexpected argument %s; see flytuned --help", argv[optind]);
		return SETTINGS_BAD;
	}
	return SETTINGS_RUN;
}

static int set_read(
        void *data, const char *section, const char *key, const char *value, struct ft_error *error)
{
	return settings_set(data, section, key, value, error);
}

int settings_read(struct settings *settings, const char *path, struct ft_error *error)
{
	if (config_file_read(&path, set_read, settings, error) != 0)
		return -1;
	if (path != NULL)
		(void)snprintf(settings->config, sizeof(settings->config), "%s", path);
	return 0;
}

enum settings_outcome settings_parse(struct settings *settings, int argc, char **argv, struct ft_error *error)
{
	enum settings_outcome asked = SETTINGS_RUN;
	enum settings_outcome outcome;
	const char *config = NULL;

	settings_init(settings);
	outcome = walk_flags(settings, argc, argv, false, &config, &asked, error);
	if (outcome != SETTINGS_RUN)
		return outcome;
	if (settings_read(settings, config, error) != 0)
		return SETTINGS_BAD;
	outcome = walk_flags(settings, argc, argv, true, &config, &asked, error);
	return outcome == SETTINGS_RUN ? asked : outcome;
}
