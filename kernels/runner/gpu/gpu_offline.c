#include "kernels/runner/gpu/gpu_offline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/host.h"
#include "kernels/runner/gpu/backend_gpu.h"
#include "kernels/runner/gpu/gpu_compiler.h"
#include "kernels/runner/gpu/hip.h"
#include "proto/clock.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };

/* ---- arguments ---- */

struct request {
	const struct ft_kernel *kernel;
	unsigned source;                  /* of ft_kernels_gpu */
	const struct ft_kernel_gpu *code; /* that one */
	struct ft_problem problem;        /* whole */
	const char *arch, *out, *code_dir, *json;
	const char *config[FT_SPACE_MAX];
	unsigned configs;
	const char *knob[FT_KNOBS_MAX];
	unsigned knobs;
	unsigned rounds, device;
	uint64_t seed, memory_cap;
	bool all, verify_only, options, list;
};

static int complain(const struct ft_error *error)
{
	fprintf(stderr, "flytune-runner-%s: %s\n", hip_kind, error->message);
	return EXIT_FAILED;
}

static bool number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

/* "--weight-dtype" names the field weight_dtype. */
static int set_field(struct ft_problem *given, const struct ft_schema *schema, const char *name,
        const char *value, struct ft_error *error)
{
	char field[FT_NAME_SIZE];

	snprintf(field, sizeof field, "%s", name);
	for (char *c = field; *c; c++)
		if (*c == '-')
			*c = '_';
	for (uint32_t i = 0; i < schema->field_count; i++) {
		uint64_t parsed;

		if (strcmp(schema->field[i].name, field) != 0)
			continue;
		if (schema->field[i].is_text)
			return ft_problem_set_text(given, field, value, error);
		if (!number(value, &parsed) || parsed > INT64_MAX)
			return ft_fail_field(error, FT_E_BAD_VALUE, field, value, "a number");
		return ft_problem_set_number(given, field, (int64_t)parsed, error);
	}
	return ft_fail(error, FT_E_UNKNOWN_FIELD, "there is no option --%s", name);
}

static int parse(int argc, char **argv, bool needs_scale, struct request *request, struct ft_error *error)
{
	const struct ft_kernel *kernel = argc < 3 ? NULL : ft_kernel_find(argv[2]);
	struct ft_problem given = {0};

	memset(request, 0, sizeof *request);
	request->rounds = 7;
	request->seed = 1;
	request->source = gpu_find_kernel(kernel ? kernel->name : "");
	request->kernel = kernel;
	request->code = ft_kernels_gpu[request->source];
	if (!kernel || !request->code)
		return ft_fail(
		        error, FT_E_UNKNOWN_KERNEL, "no kernel is called %s", argc < 3 ? "\"\"" : argv[2]);
	const struct ft_schema *schema = kernel->schema(hip_kind);

	for (int i = 3; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		uint64_t parsed;

		if (strcmp(name, "--all") == 0) {
			request->all = true;
			continue;
		}
		if (strcmp(name, "--options") == 0) {
			request->options = true;
			continue;
		}
		if (strcmp(name, "--list") == 0) {
			request->list = true;
			continue;
		}
		if (strcmp(name, "--verify-only") == 0) {
			request->verify_only = true;
			continue;
		}
		if (!value)
			return ft_fail(error, FT_E_BAD_VALUE, "%s wants a value", name);
		i++;
		if (strcmp(name, "--arch") == 0)
			request->arch = value;
		else if (strcmp(name, "--config") == 0 && request->configs < FT_SPACE_MAX)
			request->config[request->configs++] = value;
		else if (strcmp(name, "-o") == 0)
			request->out = value;
		else if (strcmp(name, "--code-dir") == 0)
			request->code_dir = value;
		else if (strcmp(name, "--json") == 0)
			request->json = value;
		else if (strcmp(name, "--knob") == 0 && request->knobs < FT_KNOBS_MAX)
			request->knob[request->knobs++] = value;
		else if (strcmp(name, "--rounds") == 0 && number(value, &parsed) && parsed > 0 &&
		        parsed < 1000)
			request->rounds = (unsigned)parsed;
		else if (strcmp(name, "--device") == 0 && number(value, &parsed) && parsed < 64)
			request->device = (unsigned)parsed;
		else if (strcmp(name, "--seed") == 0 && number(value, &parsed))
			request->seed = parsed;
		else if (strcmp(name, "--memory-cap") == 0 && number(value, &parsed))
			request->memory_cap = parsed;
		else if (strncmp(name, "--", 2) != 0)
			return ft_fail(error, FT_E_BAD_VALUE, "%s is no option", name);
		else if (set_field(&given, schema, name + 2, value, error) < 0)
			return -1;
	}
	/* A code object serves every value of that field; the default that fills in may depend on it. */
	if (!needs_scale && schema->scale[0] && !ft_problem_find(&given, schema->scale) &&
	        ft_problem_set_number(&given, schema->scale, 4096, error) < 0)
		return -1;
	return ft_problem_admit(kernel, schema, &given, &request->problem, error);
}

/* The default, with what `text` names in its place. */
static int fill_in(const struct request *request, const struct ft_traits *traits, const char *text,
        struct ft_config *config, struct ft_error *error)
{
	struct ft_config given = {0};

	request->kernel->default_config(&request->problem, traits, config);
	if (text && text[0] && ft_config_parse(text, &given, error) < 0)
		return -1;
	for (uint32_t i = 0; i < given.count; i++) {
		if (!ft_config_find(config, given.knob[i].name))
			return ft_fail_field(error, FT_E_UNKNOWN_KNOB, given.knob[i].name, "unknown", NULL);
		for (uint32_t k = 0; k < config->count; k++) {
			if (ft_name_same(config->knob[k].name, given.knob[i].name))
				config->knob[k] = given.knob[i];
		}
	}
	return request->kernel->check_config(&request->problem, traits, config, error);
}

/* ---- build ---- */

static int traits_of(const char *arch, struct ft_traits *traits, struct ft_error *error)
{
	bool amd = strcmp(hip_kind, "hip") == 0;

	ft_traits_guess(hip_kind, traits);
	if (!arch || strncmp(arch, amd ? "gfx" : "sm_", 3) != 0 || strlen(arch) >= sizeof traits->arch)
		return ft_fail(error, FT_E_BAD_VALUE, "--arch is %s; it must be %s",
		        arch ? arch : "not given",
		        amd ? "a target such as gfx90a" : "a target such as sm_90");
	snprintf(traits->arch, sizeof traits->arch, "%s", arch);
	traits->wave = amd && strncmp(arch, "gfx9", 4) == 0 ? 64 : 32;
	return 0;
}

static int write_out(const char *path, const void *data, size_t size, struct ft_error *error)
{
	FILE *file = fopen(path, "we");
	bool wrong;

	if (!file)
		return ft_fail_errno(error, errno, "cannot write %s", path);
	wrong = fwrite(data, 1, size, file) != size;
	if (fclose(file) != 0 || wrong)
		return ft_fail_errno(error, errno, "cannot write %s", path);
	return 0;
}

/* Takes what was compiled out of its envelope. */
static int take(const struct request *request, struct gpu_compiled *compiled, struct gpu_code *code,
        struct ft_error *error)
{
	int result = -1;

	if (compiled->failed) {
		*error = compiled->error;
	} else {
		code->data = compiled->data;
		code->size = compiled->size;
		code->build_ns = compiled->build_ns;
		compiled->data = NULL;
		result = gpu_code_inspect(code, request->code->symbol, compiled->log, "", error);
	}
	free(compiled->data);
	free(compiled->log);
	return result;
}

static int submit(struct gpu_pool *pool, const struct request *request, const struct ft_traits *traits,
        struct ft_config *config, struct ft_error *error)
{
	const char *text[GPU_OPTIONS_MAX];
	struct gpu_options options;

	gpu_kernel_options(request->code, &request->problem, traits, config, &options);
	for (unsigned i = 0; i < options.count; i++)
		text[i] = options.text[i];
	return gpu_pool_submit(pool, config, 2 * request->source + GPU_SOURCE_KERNEL, traits->arch, text,
	        options.count, error);
}

static json_t *config_json(const struct ft_config *config)
{
	json_t *knobs = json_object();

	for (uint32_t i = 0; i < config->count; i++) {
		const struct ft_knob_value *knob = &config->knob[i];

		json_object_set_new(knobs, knob->name,
		        knob->word[0] ? json_string(knob->word) : json_integer(knob->value));
	}
	return knobs;
}

static void print_built(const struct request *request, const struct ft_traits *traits,
        const struct ft_config *config, const struct gpu_code *code, const struct ft_code_about *about)
{
	const char *scale = request->kernel->schema(hip_kind)->scale;
	struct ft_config default_config;
	json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f}",
	        "kernel", request->kernel->name, "symbol", code->symbol, "target",
	        code->target[0] ? code->target : traits->arch, "builder", about->builder,
	        "code_object_version", (json_int_t)code->version, "max_threads",
	        (json_int_t)code->max_threads, "registers", (json_int_t)code->registers, "spills",
	        (json_int_t)code->spills, "shared", (json_int_t)code->shared, "local",
	        (json_int_t)code->local, "wave", (json_int_t)traits->wave, "size", (json_int_t)code->size,
	        "code", code->hash, "build_ms", (double)code->build_ns / 1e6);

	/* It serves every value of the field that `nearest` walks along. */
	for (uint32_t i = 0; i < request->problem.count; i++) {
		const struct ft_field *field = &request->problem.field[i];

		if (strcmp(field->name, scale) != 0)
			json_object_set_new(all, field->name,
			        field->is_text ? json_string(field->text) : json_integer(field->number));
	}
	json_object_set_new(all, "config", config_json(config));
	json_object_set_new(all, "launch",
	        json_pack("{s:I, s:I, s:I, s:I, s:o, s:s}", "block", (json_int_t)about->block, "rows_a_block",
	                (json_int_t)about->rows, "blocks_at_most", (json_int_t)about->blocks_max,
	                "dynamic_shared_bytes", (json_int_t)about->dynamic_shared, "grid",
	                json_sprintf("min(ceil(%s / rows_a_block), blocks_at_most)", scale), "arguments",
	                about->arguments));
	request->kernel->default_config(&request->problem, traits, &default_config);
	json_object_set_new(all, "default", json_boolean(ft_config_equal(config, &default_config)));
	json_dumpf(all, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(all);
}

/* Into one file, or a folder's files by their hashes where several are built. */
static int build_all(const struct request *request, const struct ft_traits *traits, struct ft_config *config,
        unsigned count, const char *builder)
{
	struct gpu_pool *pool = NULL;
	struct gpu_compiled compiled;
	struct ft_code_about about;
	struct ft_error error = {0};
	int got = -1, status = EXIT_OK;

	if (gpu_pool_open(&pool, count > 1 ? 0 : 1, &error) < 0)
		return complain(&error);
	for (unsigned i = 0; i < count; i++)
		if (submit(pool, request, traits, &config[i], &error) < 0)
			goto failed;
	while ((got = gpu_pool_wait(pool, 0, &compiled, &error)) == 1) {
		const struct ft_config *built = compiled.tag;
		struct gpu_code code = {0};
		char path[4096];

		if (take(request, &compiled, &code, &error) < 0) {
			gpu_code_free(&code);
			status = complain(&error);
			continue;
		}
		gpu_launch_about(request->code, &request->problem, traits, built, builder, &about);
		snprintf(path, sizeof path, count > 1 ? "%s/%s" : "%s", request->out ? request->out : "",
		        code.hash);
		if (request->out && write_out(path, code.data, code.size, &error) < 0)
			status = complain(&error);
		else
			print_built(request, traits, built, &code, &about);
		gpu_code_free(&code);
	}
failed:
	if (got < 0)
		status = complain(&error);
	gpu_pool_close(pool);
	return status;
}

/* What the compiler would be given, a line each: for compilers that are no library. */
static int print_options(
        const struct request *request, const struct ft_traits *traits, const struct ft_config *config)
{
	struct gpu_options options;

	gpu_kernel_options(request->code, &request->problem, traits, config, &options);
	for (unsigned i = 0; i < options.count; i++)
		puts(options.text[i]);
	return EXIT_OK;
}

/* The space, a line each, in JSON. */
static int print_space(const struct request *request, const struct ft_traits *traits)
{
	struct ft_space *space = calloc(1, sizeof *space);
	struct ft_error error = {0};

	if (!space || request->kernel->space(&request->problem, traits, space, &error) < 0) {
		free(space);
		return complain(&error);
	}
	for (uint32_t i = 0; i < space->count; i++) {
		json_t *config = config_json(&space->config[i]);

		json_dumpf(config, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(config);
	}
	free(space);
	return EXIT_OK;
}

int gpu_build_main(int argc, char **argv)
{
	static struct request request; /* the process does this one thing */
	char builder[192], path[256];
	struct ft_config *config = calloc(FT_SPACE_MAX, sizeof *config);
	struct ft_traits traits;
	struct ft_error error = {0};
	int status = EXIT_USAGE;
	bool good = config && parse(argc, argv, false, &request, &error) == 0 &&
	        traits_of(request.arch, &traits, &error) == 0;
	const unsigned count = request.configs ? request.configs : 1;

	for (unsigned i = 0; i < count && good; i++)
		good = fill_in(&request, &traits, request.config[i], &config[i], &error) == 0;
	if (!good) {
		complain(&error);
		fprintf(stderr,
		        "usage: flytune-runner-%s build KERNEL --arch ARCH --FIELD VALUE ... "
		        "[--config KNOB=VALUE,...] [-o FILE]\n"
		        "   several times --config: -o is a folder; --list: print the space instead, "
		        "--options: what "
		        "the compiler is given\n",
		        hip_kind);
	} else if (request.list) {
		status = print_space(&request, &traits);
	} else if (request.options) {
		status = print_options(&request, &traits, &config[0]);
	} else if (gpu_builder(builder, sizeof builder, path, sizeof path, &error) < 0) {
		status = complain(&error);
	} else {
		status = build_all(&request, &traits, config, count, builder);
	}
	free(config);
	return status;
}

/* ---- explore ---- */

struct trial {
	bool out;
	char code[FT_HASH_SIZE];
	char why[200];
	uint64_t registers, spills, build_ns;
	double worst;
	uint64_t sample[1000];
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
	request->kernel->default_config(&request->problem, traits, &space->config[0]);
	space->count = 1;
	space->default_index = 0;
	for (;;) {
		struct ft_config config;
		unsigned k;

		request->kernel->default_config(&request->problem, traits, &config);
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
		if (request->kernel->check_config(&request->problem, traits, &config, NULL) == 0) {
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

static int write_json(const struct request *request, const struct ft_backend *backend,
        const struct ft_space *space, const struct trial *trial)
{
	char text[FT_PROBLEM_TEXT_SIZE];
	json_t *all, *list = json_array();
	int failed;

	ft_problem_format(&request->problem, ' ', text, sizeof text);
	for (uint32_t i = 0; i < space->count; i++)
		json_array_append_new(list, trial_json(&space->config[i], &trial[i]));
	all = json_pack("{s:s, s:s, s:s, s:f, s:I, s:o}", "problem", text, "device",
	        backend->device[request->device].shown.identity, "method", backend->method, "floor_us",
	        (double)gpu_launch_floor(backend) / 1e6, "default", (json_int_t)space->default_index,
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

static int build_and_verify(struct ft_backend *backend, const struct ft_space *space, struct trial *trial,
        uint64_t *built_at, struct ft_error *error)
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
		*built_at = ft_monotonic_ns();
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

int gpu_explore_main(int argc, char **argv)
{
	uint64_t begin = ft_monotonic_ns(), prepared, built_at = begin, verified, done;
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
	if (parse(argc, argv, true, &request, &error) < 0) {
		complain(&error);
		status = EXIT_USAGE;
		goto done;
	}
	if (backend->open(backend, &error) < 0)
		goto failed;
	if (request.device >= backend->device_count) {
		ft_fail(&error, FT_E_UNKNOWN_DEVICE, "no device %u: %s", request.device, backend->reason);
		goto failed;
	}
	const struct ft_traits *traits = &backend->device[request.device].traits;

	if ((request.knobs ? product(&request, traits, space, &error)
	                   : request.kernel->space(&request.problem, traits, space, &error)) < 0)
		goto failed;
	if (request.all)
		for (uint32_t i = 0; i < space->count; i++)
			space->pruned[i][0] = '\0';
	trial = calloc(space->count > 0 ? space->count : 1, sizeof *trial);
	if (!trial)
		goto failed;
	sweep = (struct ft_backend_sweep){.kernel = request.kernel,
	        .problem = &request.problem,
	        .device = request.device,
	        .seed = request.seed,
	        .memory_cap = request.memory_cap,
	        .code_dir = request.code_dir,
	        .count = space->count,
	        .config = space->config};
	if (backend->prepare(backend, &sweep, &error) < 0)
		goto failed;
	prepared = ft_monotonic_ns();
	if (build_and_verify(backend, space, trial, &built_at, &error) < 0)
		goto failed;
	verified = ft_monotonic_ns();
	for (uint32_t i = 0; i < space->count; i++)
		good += !trial[i].out;
	if (!request.verify_only && good > 0 && race(backend, space, trial, request.rounds, &error) < 0)
		goto failed;
	done = ft_monotonic_ns();

	char text[FT_PROBLEM_TEXT_SIZE];
	uint64_t bytes = request.kernel->bytes(&request.problem);

	ft_problem_format(&request.problem, ' ', text, sizeof text);
	printf("# %s on %s; %s\n", text, backend->device[request.device].shown.name, backend->method);
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
