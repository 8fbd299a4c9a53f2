/* Builds, verifies and times the space of a problem, or a product of knob values, with the runner's own backend and without a
 * daemon: what the studies of tests/gpu ask for.
 *
 *     explore KERNEL --FIELD VALUE... [--knob NAME=VALUE,...]... [--all] [--verify-only] [--rounds N] [--memory-cap BYTES]
 *         [--code-dir FOLDER] [--json FILE]
 *
 * --all takes pruned configs too. All are timed in each round: nothing is dropped, and nothing decided. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/runner/gpu/gpu_offline.h"
#include "kernels/runner/gpu/internal.h"
#include "proto/clock.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE, ROUNDS_MAX = 1000 };

struct request {
	const struct ft_kernel *kernel;
	struct ft_problem problem; /* whole */
	const char *code_dir, *json;
	const char *knob[FT_KNOBS_MAX];
	unsigned knobs, rounds;
	uint64_t memory_cap;
	bool all, verify_only;
};

static int complain(const struct ft_error *error)
{
	fprintf(stderr, "explore: %s\n", error->message);
	return EXIT_FAILED;
}

static int parse(int argc, char **argv, struct request *request, struct ft_error *error)
{
	static struct ft_problem given; /* the process does this one thing */

	*request = (struct request){.kernel = argc < 2 ? NULL : ft_kernel_find(argv[1]), .rounds = 7};
	if (!request->kernel)
		return ft_fail(error, FT_E_UNKNOWN_KERNEL, "the first word must be a kernel");
	const struct ft_schema *schema = request->kernel->schema(request->kernel, hip_kind);

	for (int i = 2; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(name, "--all") == 0) {
			request->all = true;
			continue;
		}
		if (strcmp(name, "--verify-only") == 0) {
			request->verify_only = true;
			continue;
		}
		i++;
		if (strcmp(name, "--code-dir") == 0)
			request->code_dir = value;
		else if (strcmp(name, "--json") == 0)
			request->json = value;
		else if (strcmp(name, "--knob") == 0 && request->knobs < FT_KNOBS_MAX)
			request->knob[request->knobs++] = value;
		else if (strcmp(name, "--rounds") == 0)
			request->rounds = (unsigned)strtoul(value, NULL, 10);
		else if (strcmp(name, "--memory-cap") == 0)
			request->memory_cap = strtoull(value, NULL, 10);
		else if (gpu_set_field(&given, schema, name, value, error) < 0)
			return -1;
	}
	if (request->rounds < 1 || request->rounds > ROUNDS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "--rounds must be 1 to %d", ROUNDS_MAX);
	return ft_problem_admit(request->kernel, schema, &given, &request->problem, error);
}

static json_t *config_json(const struct ft_config *config)
{
	json_t *knobs = json_object();

	for (uint32_t i = 0; i < config->count; i++)
		json_object_set_new(knobs, config->knob[i].name, json_integer(config->knob[i].value));
	return knobs;
}

struct trial {
	bool out;
	char code[FT_HASH_SIZE];
	char why[200];
	uint64_t registers, spills, build_ns;
	double worst;
	uint64_t sample[ROUNDS_MAX];
	uint64_t median, least;
};

static int by_size(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* The product of the lists "NAME=1,2,3", with the default's values for the rest; members that the kernel
 * refuses are left out. */
static int product(const struct request *request, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error)
{
	size_t choice[FT_KNOBS_MAX] = {0};

	/* The default is always among them, first. */
	memset(space->pruned, 0, sizeof space->pruned);
	request->kernel->default_config(request->kernel, &request->problem, traits, &space->config[0]);
	space->count = 1;
	space->default_index = 0;
	for (;;) {
		struct ft_config config;
		unsigned k;

		request->kernel->default_config(request->kernel, &request->problem, traits, &config);
		for (k = 0; k < request->knobs; k++) {
			char name[FT_NAME_SIZE];
			const char *list = strchr(request->knob[k], '=');

			if (!list)
				return ft_fail(error, FT_E_BAD_VALUE, "--knob wants NAME=VALUE,...");
			snprintf(name, sizeof name, "%.*s", (int)(list - request->knob[k]), request->knob[k]);
			list++;
			for (size_t i = 0; i < choice[k]; i++)
				list = strchr(list, ',') + 1;
			if (ft_config_set(&config, name, strtoll(list, NULL, 10), error) < 0)
				return -1;
		}
		if (request->kernel->check_config(
		            request->kernel, &request->problem, traits, &config, NULL) == 0) {
			if (space->count == FT_SPACE_MAX)
				return ft_fail(error, FT_E_BAD_VALUE, "more than %d configs", FT_SPACE_MAX);
			space->config[space->count++] = config;
		}
		/* counts on, as an odometer does */
		for (k = 0; k < request->knobs; k++) {
			size_t commas = 0;

			for (const char *c = request->knob[k]; *c; c++)
				commas += *c == ',';
			if (choice[k]++ < commas)
				break;
			choice[k] = 0;
		}
		if (k == request->knobs)
			return 0;
	}
}

static void show(const struct ft_space *space, const struct trial *trial, size_t index, uint64_t bytes)
{
	char text[FT_CONFIG_TEXT_SIZE];

	ft_config_format(&space->config[index], ' ', text, sizeof text);
	if (trial->out)
		printf("%-9s %s: %s\n", "out", text, trial->why);
	else
		printf("%9.3f us  %5.0f GB/s  min %9.3f  regs %3" PRIu64 " spills %3" PRIu64
		       " err %.2e  %.8s  %s\n",
		        (double)trial->median / 1e6,
		        trial->median ? (double)bytes * 1e3 / (double)trial->median : 0.0,
		        (double)trial->least / 1e6, trial->registers, trial->spills, trial->worst,
		        trial->code, text);
}

static json_t *trial_json(const struct ft_config *config, const struct trial *trial)
{
	return json_pack("{s:o, s:b, s:s, s:s, s:f, s:f, s:I, s:I, s:f, s:f}", "config", config_json(config),
	        "ok", !trial->out, "reason", trial->why, "code", trial->code, "median_us",
	        (double)trial->median / 1e6, "min_us", (double)trial->least / 1e6, "registers",
	        (json_int_t)trial->registers, "spills", (json_int_t)trial->spills, "error", trial->worst,
	        "build_ms", (double)trial->build_ns / 1e6);
}

static int write_json(const struct request *request, struct ft_backend *backend, const struct ft_space *space,
        const struct trial *trial)
{
	char text[FT_PROBLEM_TEXT_SIZE];
	json_t *all, *list = json_array();
	int failed;

	ft_problem_format(&request->problem, ' ', text, sizeof text);
	for (uint32_t i = 0; i < space->count; i++)
		json_array_append_new(list, trial_json(&space->config[i], &trial[i]));
	all = json_pack("{s:s, s:s, s:s, s:f, s:I, s:o}", "problem", text, "device",
	        backend->device[0].shown.identity, "method", backend->method, "floor_us",
	        (double)gpu_of(backend)->floor_ps / 1e6, "default", (json_int_t)space->default_index,
	        "trials", list);
	failed = !all || json_dump_file(all, request->json, JSON_COMPACT) < 0;
	json_decref(all);
	return failed ? -1 : 0;
}

static int race(struct ft_backend *backend, const struct ft_space *space, struct trial *trial,
        unsigned rounds, struct ft_error *error)
{
	if (backend->warm(backend, error))
		return -1;
	for (unsigned round = 0; round <= rounds; round++)
		for (size_t i = 0; i < space->count; i++) {
			/* every other round backwards, so that neighbours do not always follow each other */
			size_t index = round & 1 ? space->count - 1 - i : i;
			uint64_t sample;
			int code;

			if (trial[index].out)
				continue;
			code = backend->measure(backend, index, &sample, error);
			if (code == FT_BACKEND_LOST)
				return -1;
			if (code) {
				trial[index].out = true;
				snprintf(trial[index].why, sizeof trial[index].why, "%.199s", error->message);
			} else if (round > 0) {
				trial[index].sample[round - 1] = sample;
			}
		}
	for (size_t i = 0; i < space->count; i++) {
		qsort(trial[i].sample, rounds, sizeof trial[i].sample[0], by_size);
		trial[i].median = trial[i].sample[rounds / 2];
		trial[i].least = trial[i].sample[0];
	}
	return 0;
}

static int build_and_verify(
        struct ft_backend *backend, const struct ft_space *space, struct trial *trial, struct ft_error *error)
{
	struct ft_built built;
	int got;

	for (size_t i = 0; i < space->count; i++) {
		if (space->pruned[i][0]) {
			trial[i].out = true;
			snprintf(trial[i].why, sizeof trial[i].why, "pruned, %.180s", space->pruned[i]);
		} else if (backend->build_start(backend, i, error) < 0) {
			return -1;
		}
	}
	while ((got = backend->build_wait(backend, &built, error)) == 1) {
		struct trial *one = &trial[built.index];
		int code;

		one->registers = built.registers;
		one->spills = built.spills;
		one->build_ns = built.build_ns;
		memcpy(one->code, built.code, sizeof one->code);
		if (built.failed) {
			one->out = true;
			snprintf(one->why, sizeof one->why, "%.199s", built.error.message);
			continue;
		}
		for (size_t i = 0; i < space->count && !one->out; i++)
			if (i != built.index && !trial[i].out && strcmp(trial[i].code, one->code) == 0) {
				char text[FT_CONFIG_TEXT_SIZE];

				ft_config_format(&space->config[i], ' ', text, sizeof text);
				one->out = true;
				snprintf(one->why, sizeof one->why, "same code as %.180s", text);
			}
		if (one->out)
			continue;
		code = backend->verify(backend, built.index, &one->worst, error);
		if (code == FT_BACKEND_LOST)
			return -1;
		if (code) {
			one->out = true;
			snprintf(one->why, sizeof one->why, "%s: %.180s", code > 0 ? "wrong" : "failed",
			        error->message);
		}
	}
	return got;
}

static int explore(int argc, char **argv)
{
	uint64_t begin = ft_monotonic_ns(), prepared, verified, done;
	struct ft_backend *backend = gpu_backend_new();
	struct ft_space *space = calloc(1, sizeof *space);
	struct trial *trial = NULL;
	struct ft_backend_sweep sweep;
	static struct request request; /* the process does this one thing */
	struct ft_error error = {0};
	int status = EXIT_FAILED;
	size_t good = 0;

	if (!backend || !space)
		goto done;
	if (parse(argc, argv, &request, &error) < 0) {
		complain(&error);
		status = EXIT_USAGE;
		goto done;
	}
	if (backend->open(backend, &error) < 0)
		goto failed;
	if (backend->device_count == 0) {
		ft_fail(&error, FT_E_UNKNOWN_DEVICE, "no device: %s", backend->reason);
		goto failed;
	}
	const struct ft_traits *traits = &backend->device[0].traits;

	if ((request.knobs ? product(&request, traits, space, &error)
	                   : request.kernel->space(request.kernel, &request.problem, traits, space, &error)) <
	        0)
		goto failed;
	if (request.all)
		for (uint32_t i = 0; i < space->count; i++)
			space->pruned[i][0] = '\0';
	trial = calloc(space->count > 0 ? space->count : 1, sizeof *trial);
	if (!trial)
		goto failed;
	sweep = (struct ft_backend_sweep){.kernel = request.kernel,
	        .problem = &request.problem,
	        .seed = 1,
	        .memory_cap = request.memory_cap,
	        .code_dir = request.code_dir,
	        .count = space->count,
	        .config = space->config,
	        .default_index = space->default_index};
	if (backend->prepare(backend, &sweep, &error) < 0)
		goto failed;
	prepared = ft_monotonic_ns();
	if (build_and_verify(backend, space, trial, &error) < 0)
		goto failed;
	verified = ft_monotonic_ns();
	for (uint32_t i = 0; i < space->count; i++)
		good += !trial[i].out;
	if (!request.verify_only && good > 0 && race(backend, space, trial, request.rounds, &error) < 0)
		goto failed;
	done = ft_monotonic_ns();

	char text[FT_PROBLEM_TEXT_SIZE];
	uint64_t bytes = request.kernel->bytes(request.kernel, &request.problem);

	ft_problem_format(&request.problem, ' ', text, sizeof text);
	printf("# %s on %s; %s\n", text, backend->device[0].shown.name, backend->method);
	for (uint32_t i = 0; i < space->count; i++)
		show(space, &trial[i], i, bytes);
	printf("# %u configs, %zu good; open+prepare %.0f ms, build+verify %.0f ms, measure %.0f ms, all "
	       "%.0f ms\n",
	        space->count, good, (double)(prepared - begin) / 1e6, (double)(verified - prepared) / 1e6,
	        (double)(done - verified) / 1e6, (double)(done - begin) / 1e6);
	status = request.json && write_json(&request, backend, space, trial) < 0 ? EXIT_FAILED : EXIT_OK;
	goto done;
failed:
	complain(&error);
done:
	if (backend) {
		if (backend->close)
			backend->close(backend);
		gpu_backend_free(backend);
	}
	free(space);
	free(trial);
	return status;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], GPU_WORKER_WORD) == 0)
		return gpu_worker_main();
	gpu_clear_environment();
	return explore(argc, argv);
}
