#include "kernels/runner/manual.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "kernels/runner/sweep.h"

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, BUDGET_S = 60 };

static void usage(FILE *to, const struct ft_backend *backend)
{
	fprintf(to,
	        "flytune-runner-%s devices\n"
	        "flytune-runner-%s sweep KERNEL --FIELD VALUE ...\n"
	        "    [--device ID] [--seed N] [--budget SECONDS] [--max-rounds N] [--band PPM] [--all]\n"
	        "    [--code-dir FOLDER]\n\n"
	        "Measures every config of a problem, without the daemon, and stores nothing but code in "
	        "FOLDER.\n"
	        "--all lists pruned configs too.\n",
	        backend->kind, backend->kind);
	for (const struct ft_kernel *const *kernel = ft_kernels; *kernel; kernel++) {
		const struct ft_schema *schema = (*kernel)->schema(backend->kind);
		fprintf(to, "\nFields of %s:\n", schema->kernel);
		for (uint32_t i = 0; i < schema->field_count; i++)
			fprintf(to, "  %-14s %s\n", schema->field[i].name, schema->field[i].help);
		fprintf(to, "Knobs:\n");
		for (uint32_t i = 0; i < schema->knob_count; i++)
			fprintf(to, "  %-14s %s\n", schema->knob[i].name, schema->knob[i].help);
	}
}

static int complain(const struct ft_backend *backend, const struct ft_error *error, int status)
{
	fprintf(stderr, "flytune-runner-%s: %s\n", backend->kind, error->message);
	return status;
}

static int list_devices(struct ft_backend *backend)
{
	if (backend->device_count == 0) {
		printf("no device: %s\n", backend->reason);
		return 0;
	}
	for (size_t i = 0; i < backend->device_count; i++) {
		const struct ft_runner_device *device = &backend->device[i].shown;
		printf("%s  %s\n", device->id, device->name);
		printf("  arch %s, %" PRIu64 " units, %.1f GiB memory, %.1f MiB last-level cache\n",
		        device->arch, device->units, (double)device->memory / (1 << 30),
		        (double)device->cache / (1 << 20));
		printf("  identity: %s\n", device->identity);
	}
	printf("runner: %s\n", backend->identity);
	return 0;
}

struct candidate {
	const struct ft_kernel *kernel;
	struct ft_problem given;
	size_t device;
	uint64_t seed;
	uint64_t budget_ns;
	uint64_t max_rounds;
	uint64_t band_ppm;
	const char *code_dir;
	bool all;
};

static int parse_whole(const char *text, int64_t *number)
{
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0')
		return -1;
	*number = value;
	return 0;
}

static int set_field(const struct ft_schema *schema, struct ft_problem *problem, const char *name,
        const char *value, struct ft_error *error)
{
	for (uint32_t i = 0; i < schema->field_count; i++) {
		int64_t number;
		if (strcmp(schema->field[i].name, name) != 0)
			continue;
		if (schema->field[i].is_text)
			return ft_problem_set_text(problem, name, value, error);
		if (parse_whole(value, &number) < 0)
			return ft_fail_field(error, FT_E_BAD_VALUE, name, value, "a whole number");
		return ft_problem_set_number(problem, name, number, error);
	}
	return ft_fail(error, FT_E_UNKNOWN_FIELD, "%s has no field %s", schema->kernel, name);
}

static int set_option(struct candidate *candidate, const struct ft_backend *backend, const char *name,
        const char *value, struct ft_error *error)
{
	int64_t number = 0;
	if (strcmp(name, "device") == 0) {
		for (size_t i = 0; i < backend->device_count; i++) {
			if (strcmp(backend->device[i].shown.id, value) == 0) {
				candidate->device = i;
				return 1;
			}
		}
		return ft_fail(error, FT_E_UNKNOWN_DEVICE, "no device is called %s", value);
	}
	if (strcmp(name, "code_dir") == 0) {
		candidate->code_dir = value;
		return 1;
	}
	if (strcmp(name, "seed") != 0 && strcmp(name, "budget") != 0 && strcmp(name, "max_rounds") != 0 &&
	        strcmp(name, "band") != 0)
		return 0;
	if (parse_whole(value, &number) < 0 || number < 0)
		return ft_fail_field(error, FT_E_BAD_VALUE, name, value, "a whole number of 0 or more");
	if (strcmp(name, "seed") == 0)
		candidate->seed = (uint64_t)number;
	else if (strcmp(name, "budget") == 0)
		candidate->budget_ns = (uint64_t)number * 1000000000U;
	else if (strcmp(name, "max_rounds") == 0)
		candidate->max_rounds = number > FT_ROUNDS_MAX ? FT_ROUNDS_MAX : (uint64_t)number;
	else
		candidate->band_ppm = number > 1000000 ? 1000000 : (uint64_t)number;
	return 1;
}

static int parse(int argc, char **argv, const struct ft_backend *backend, struct candidate *candidate,
        struct ft_error *error)
{
	candidate->kernel = ft_kernel_find(argv[2]);
	if (!candidate->kernel)
		return ft_fail(error, FT_E_UNKNOWN_KERNEL, "no kernel is called %s", argv[2]);
	for (int i = 3; i < argc; i++) {
		char name[FT_NAME_SIZE];
		if (strncmp(argv[i], "--", 2) != 0)
			return ft_fail(error, FT_E_BAD_REQUEST, "%s is no option", argv[i]);
		snprintf(name, sizeof(name), "%s", argv[i] + 2);
		for (char *c = name; *c; c++) {
			if (*c == '-')
				*c = '_';
		}
		if (strcmp(name, "all") == 0) {
			candidate->all = true;
			continue;
		}
		if (i + 1 == argc)
			return ft_fail(error, FT_E_BAD_REQUEST, "%s needs a value", argv[i]);
		int known = set_option(candidate, backend, name, argv[++i], error);
		if (known < 0 ||
		        (known == 0 &&
		                set_field(candidate->kernel->schema(backend->kind), &candidate->given, name,
		                        argv[i], error) < 0))
			return -1;
	}
	return 0;
}

/* ---- progress, on a terminal ---- */

struct progress {
	bool shown;
	size_t count;
	size_t built;
	uint64_t rounds;
	char stage[16];
};

static void on_event(void *context, const struct ft_runner_event *event)
{
	struct progress *progress = context;
	if (strcmp(event->event, "stage") == 0)
		snprintf(progress->stage, sizeof(progress->stage), "%s", event->stage);
	else if (strcmp(event->event, "built") == 0)
		progress->built++;
	else if (strcmp(event->event, "round") == 0)
		progress->rounds = event->round + 1;
	if (progress->shown)
		fprintf(stderr, "\r\033[K%s  %zu built, %" PRIu64 " rounds", progress->stage, progress->built,
		        progress->rounds);
}

static bool on_cancelled(void *context)
{
	(void)context;
	return false;
}

static void on_measure_begins(void *context, size_t trial)
{
	(void)context;
	(void)trial;
}

static void on_measure_ends(void *context)
{
	(void)context;
}

/* ---- the report ---- */

/* Trials that were timed, the fastest first; then the rest as they stand. */
static void sort_trials(const struct ft_sweep *sweep, size_t *order)
{
	for (size_t i = 0; i < sweep->count; i++)
		order[i] = i;
	for (size_t i = 1; i < sweep->count; i++) {
		size_t moving = order[i];
		uint64_t time = sweep->standing[moving].median_ps;
		size_t j = i;
		for (; j > 0; j--) {
			uint64_t before = sweep->standing[order[j - 1]].median_ps;
			if (time == 0 || (before != 0 && before <= time))
				break;
			order[j] = order[j - 1];
		}
		order[j] = moving;
	}
}

static void print_trial(const struct ft_sweep *sweep, size_t index, size_t winner, uint64_t bytes)
{
	const struct ft_sweep_trial *trial = &sweep->trial[index];
	const struct ft_standing *standing = &sweep->standing[index];
	char config[FT_CONFIG_TEXT_SIZE];
	const char *verdict = trial->out ? trial->status : "ok";
	const char *mark = index == winner ? "winner" : standing->tied && !trial->out ? "tied" : "";
	ft_config_format(&trial->config, ' ', config, sizeof(config));
	printf("%-70s %-12s", config, verdict);
	if (standing->median_ps)
		printf(" %11.3f ±%8.3f %8.1f %7.3f %6" PRIu32, (double)standing->median_ps / 1e6,
		        (double)standing->ci_ps / 1e6, (double)bytes * 1e3 / (double)standing->median_ps,
		        standing->ratio, standing->rounds);
	else
		printf(" %11s  %8s %8s %7s %6s", "", "", "", "", "");
	printf("  %s%s%s\n", mark, index == sweep->default_index ? " default" : "",
	        trial->reason[0]         ? trial->reason
	                : trial->dropped ? " dropped"
	                                 : "");
}

static int report(const struct ft_sweep *sweep, const struct ft_sweep_reply *reply, bool all, double seconds)
{
	bool decided = strcmp(reply->outcome, "decided") == 0;
	size_t winner = decided ? (size_t)reply->winner : sweep->count;
	size_t *order = calloc(sweep->count ? sweep->count : 1, sizeof(*order));
	char text[FT_CONFIG_TEXT_SIZE];
	size_t tried = 0;
	if (!order)
		return STATUS_FAILED;
	sort_trials(sweep, order);
	printf("%-70s %-12s %11s  %8s %8s %7s %6s\n", "config", "status", "µs", "ci", "GB/s", "ratio",
	        "rounds");
	for (size_t i = 0; i < sweep->count; i++) {
		bool pruned = strcmp(sweep->trial[order[i]].status, "pruned") == 0;
		tried += !pruned;
		if (all || !pruned)
			print_trial(sweep, order[i], winner, sweep->kernel->bytes(&sweep->problem));
	}
	free(order);
	printf("\n%zu configs tried of %zu, %" PRIu64 " rounds, %.2f s, seed %" PRIu64 "\nmethod: %s\n",
	        tried, sweep->count, reply->rounds, seconds, sweep->seed, reply->method);
	if (!decided) {
		printf("no winner: %s\n", reply->reason);
		return STATUS_FAILED;
	}
	ft_config_format(&sweep->trial[winner].config, ' ', text, sizeof(text));
	printf("winner: %s\n%s%s\n", text, reply->reason, reply->conclusive ? "" : " (not conclusive)");
	return 0;
}

static int run(struct ft_backend *backend, const struct candidate *candidate, struct ft_error *error)
{
	const struct ft_schema *schema = candidate->kernel->schema(backend->kind);
	struct ft_space *space = calloc(1, sizeof(*space));
	struct ft_sweep sweep = {.kernel = candidate->kernel,
	        .device = candidate->device,
	        .seed = candidate->seed,
	        .code_dir = candidate->code_dir,
	        .budget_ns = candidate->budget_ns,
	        .rule = ft_rule_usual};
	int status = -1;
	if (!space)
		return ft_fail(error, FT_E_MEMORY, "no memory for a space");
	if (candidate->max_rounds)
		sweep.rule.max_rounds = (uint32_t)candidate->max_rounds;
	if (candidate->band_ppm)
		sweep.rule.band_ppm = (uint32_t)candidate->band_ppm;
	if (ft_problem_admit(candidate->kernel, schema, &candidate->given, &sweep.problem, error) < 0 ||
	        candidate->kernel->space(
	                &sweep.problem, &backend->device[candidate->device].traits, space, error) < 0 ||
	        ft_sweep_init(&sweep, space->count, error) < 0)
		goto out;
	sweep.default_index = space->default_index;
	for (size_t i = 0; i < space->count; i++) {
		struct ft_sweep_trial *trial = &sweep.trial[i];
		trial->config = space->config[i];
		trial->out = space->pruned[i][0] != '\0';
		snprintf(trial->status, sizeof(trial->status), "%s", trial->out ? "pruned" : "");
		snprintf(trial->reason, sizeof(trial->reason), "%s", space->pruned[i]);
	}
	struct progress progress = {.shown = isatty(STDERR_FILENO) == 1, .count = space->count};
	struct ft_sweep_listener listener = {
	        .context = &progress,
	        .event = on_event,
	        .cancelled = on_cancelled,
	        .measure_begins = on_measure_begins,
	        .measure_ends = on_measure_ends,
	};
	struct ft_sweep_reply reply;
	struct timespec begin;
	struct timespec end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	status = ft_sweep_run(&sweep, backend, &listener, &reply, error);
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (progress.shown)
		fprintf(stderr, "\r\033[K");
	if (status == 0) {
		double seconds =
		        (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
		status = report(&sweep, &reply, candidate->all, seconds);
	} else if (status == FT_BACKEND_LOST) {
		ft_fail(error, FT_E_RUNNER, "the device was lost");
	}
out:
	ft_sweep_free(&sweep);
	free(space);
	return status;
}

int ft_runner_by_hand(int argc, char **argv, struct ft_backend *backend)
{
	struct ft_error error = {0};
	struct candidate candidate = {.budget_ns = (uint64_t)BUDGET_S * 1000000000U};
	if (strcmp(argv[1], "devices") == 0 && argc == 2)
		return list_devices(backend);
	if (strcmp(argv[1], "--version") == 0) {
		printf("flytune-runner-%s %s\n", backend->kind, FLYTUNE_VERSION);
		return 0;
	}
	if (strcmp(argv[1], "sweep") != 0 || argc < 3 || strncmp(argv[2], "--", 2) == 0) {
		bool asked = strcmp(argv[1], "--help") == 0 || (argc > 2 && strcmp(argv[2], "--help") == 0);
		usage(asked ? stdout : stderr, backend);
		return asked ? 0 : STATUS_USAGE;
	}
	if (backend->device_count == 0) {
		fprintf(stderr, "flytune-runner-%s: no device: %s\n", backend->kind, backend->reason);
		return STATUS_FAILED;
	}
	if (getrandom(&candidate.seed, sizeof(candidate.seed), 0) != (ssize_t)sizeof(candidate.seed))
		candidate.seed = 1;
	candidate.seed &= INT64_MAX;
	if (parse(argc, argv, backend, &candidate, &error) < 0)
		return complain(backend, &error, STATUS_USAGE);
	int status = run(backend, &candidate, &error);
	return status < 0 ? complain(backend, &error, STATUS_FAILED) : status;
}
