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
#include "kernels/runner/gpu/gpu_folder.h"
#include "kernels/runner/gpu/hip.h"
#include "proto/clock.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };

/* ---- arguments ---- */

struct request {
	const struct ft_kernel *kernel;
	const struct ft_kernel_gpu *code; /* that one's */
	struct ft_folder *folder;         /* that it is of; NULL: it is built in */
	struct ft_kernel_gpu *made;       /* of that one */
	struct ft_problem problem;        /* whole */
	const char *arch, *out;
	const char *config[FT_SPACE_MAX];
	unsigned configs;
	bool options, list;
};

static int complain(const struct ft_error *error)
{
	fprintf(stderr, "flytune-runner-%s: %s\n", hip_kind, error->message);
	return EXIT_FAILED;
}

int gpu_set_field(struct ft_problem *given, const struct ft_schema *schema, const char *option,
        const char *value, struct ft_error *error)
{
	char field[FT_NAME_SIZE];
	uint32_t i = 0;
	char *end;

	snprintf(field, sizeof field, "%s", strncmp(option, "--", 2) == 0 ? option + 2 : "");
	for (char *c = field; *c; c++)
		if (*c == '-')
			*c = '_';
	while (i < schema->field_count && strcmp(schema->field[i].name, field) != 0)
		i++;
	if (i == schema->field_count)
		return ft_fail(error, FT_E_UNKNOWN_FIELD, "there is no option %s", option);
	if (schema->field[i].is_text)
		return ft_problem_set_text(given, field, value, error);
	errno = 0;
	long long number = strtoll(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0')
		return ft_fail_field(error, FT_E_BAD_VALUE, field, value, "a number");
	return ft_problem_set_number(given, field, number, error);
}

/* A built-in kernel's name, or the path of a folder, which has a slash. */
static int find_kernel(const char *name, struct request *request, struct ft_error *error)
{
	char builder[192], path[256] = "", headers[128];

	if (!strchr(name, '/')) {
		request->kernel = ft_kernel_find(name);
		request->code = gpu_find_built_in(name);
		return request->kernel && request->code
		        ? 0
		        : ft_fail(error, FT_E_UNKNOWN_KERNEL, "no kernel is called %s",
		                  name[0] ? name : "\"\"");
	}
	request->folder = ft_folder_open(name, NULL, error);
	if (!request->folder)
		return -1;
	(void)gpu_builder(builder, sizeof builder, path, sizeof path, NULL);
	gpu_headers(path, headers, sizeof headers);
	request->kernel = ft_folder_kernel(request->folder);
	request->code = request->made = gpu_folder_code(request->folder, headers, error);
	return request->code ? 0 : -1;
}

static int parse(int argc, char **argv, struct request *request, struct ft_error *error)
{
	struct ft_problem given = {0};

	if (find_kernel(argc < 3 ? "" : argv[2], request, error) < 0)
		return -1;
	const struct ft_kernel *kernel = request->kernel;
	const struct ft_schema *schema = kernel->schema(kernel, hip_kind);

	for (int i = 3; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(name, "--options") == 0) {
			request->options = true;
			continue;
		}
		if (strcmp(name, "--list") == 0) {
			request->list = true;
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
		else if (gpu_set_field(&given, schema, name, value, error) < 0)
			return -1;
	}
	/* A code object serves every value of that field; the default that fills in may depend on it. */
	if (schema->scale[0] && !ft_problem_find(&given, schema->scale) &&
	        ft_problem_set_number(&given, schema->scale, 4096, error) < 0)
		return -1;
	return ft_problem_admit(kernel, schema, &given, &request->problem, error);
}

/* The default, with what `text` names in its place. */
static int fill_in(const struct request *request, const struct ft_traits *traits, const char *text,
        struct ft_config *config, struct ft_error *error)
{
	struct ft_config given = {0};

	request->kernel->default_config(request->kernel, &request->problem, traits, config);
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
	return request->kernel->check_config(request->kernel, &request->problem, traits, config, error);
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
static int take(
        const char *symbol, struct gpu_compiled *compiled, struct gpu_code *code, struct ft_error *error)
{
	int result = -1;

	if (compiled->failed) {
		*error = compiled->error;
	} else {
		code->data = compiled->data;
		code->size = compiled->size;
		code->build_ns = compiled->build_ns;
		compiled->data = NULL;
		result = gpu_code_inspect(code, symbol, compiled->log, "", error);
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

	if (gpu_kernel_options(request->code, &request->problem, traits, config, &options, error) < 0)
		return -1;
	for (unsigned i = 0; i < options.count; i++)
		text[i] = options.text[i];
	return gpu_pool_submit(
	        pool, config, &request->code->source, traits->arch, text, options.count, error);
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

/* Of any number of rows, where that can be said. */
static json_t *rows_launch_json(const struct request *request, const struct ft_launch *launch)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:o, s:s}", "block", (json_int_t)launch->step[0].block[0],
	        "rows_a_block", (json_int_t)launch->rows, "blocks_at_most", (json_int_t)launch->blocks_limit,
	        "dynamic_shared_bytes", (json_int_t)launch->step[0].shared, "grid",
	        json_sprintf("min(ceil(%s / rows_a_block), blocks_at_most)",
	                request->kernel->schema(request->kernel, hip_kind)->scale),
	        "arguments", request->code->arguments);
}

/* Of this problem alone. */
static json_t *steps_json(const struct ft_launch *launch)
{
	json_t *steps = json_array();

	for (uint32_t i = 0; i < launch->count; i++) {
		const struct ft_step *step = &launch->step[i];

		json_array_append_new(steps,
		        json_pack("{s:s, s:[I, I, I], s:[I, I, I], s:I}", "symbol", step->symbol, "grid",
		                (json_int_t)step->grid[0], (json_int_t)step->grid[1],
		                (json_int_t)step->grid[2], "block", (json_int_t)step->block[0],
		                (json_int_t)step->block[1], (json_int_t)step->block[2],
		                "dynamic_shared_bytes", (json_int_t)step->shared));
	}
	return json_pack("{s:o}", "steps", steps);
}

static void print_built(const struct request *request, const struct ft_traits *traits,
        const struct ft_config *config, const struct gpu_code *code, const struct ft_launch *launch,
        const char *builder)
{
	const char *scale = request->kernel->schema(request->kernel, hip_kind)->scale;
	struct ft_config default_config;
	json_t *all = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f}",
	        "kernel", request->kernel->name, "symbol", code->symbol, "target",
	        code->target[0] ? code->target : traits->arch, "builder", builder, "code_object_version",
	        (json_int_t)code->version, "max_threads", (json_int_t)code->max_threads, "registers",
	        (json_int_t)code->registers, "spills", (json_int_t)code->spills, "shared",
	        (json_int_t)code->shared, "local", (json_int_t)code->local, "wave", (json_int_t)traits->wave,
	        "size", (json_int_t)code->size, "code", code->hash, "build_ms", (double)code->build_ns / 1e6);

	/* It serves every value of the field that `nearest` walks along. */
	for (uint32_t i = 0; i < request->problem.count; i++) {
		const struct ft_field *field = &request->problem.field[i];

		if (strcmp(field->name, scale) != 0)
			json_object_set_new(all, field->name,
			        field->is_text ? json_string(field->text) : json_integer(field->number));
	}
	json_object_set_new(all, "config", config_json(config));
	json_object_set_new(
	        all, "launch", launch->rows > 0 ? rows_launch_json(request, launch) : steps_json(launch));
	request->kernel->default_config(request->kernel, &request->problem, traits, &default_config);
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
	struct ft_launch launch;
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

		if (request->code->launch(
		            request->code, &request->problem, traits, built, &launch, &compiled.error) < 0)
			compiled.failed = true;
		if (take(launch.step[0].symbol, &compiled, &code, &error) < 0) {
			gpu_code_free(&code);
			status = complain(&error);
			continue;
		}
		snprintf(path, sizeof path, count > 1 ? "%s/%s" : "%s", request->out ? request->out : "",
		        code.hash);
		if (request->out && write_out(path, code.data, code.size, &error) < 0)
			status = complain(&error);
		else
			print_built(request, traits, built, &code, &launch, builder);
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
	struct ft_error error;

	if (gpu_kernel_options(request->code, &request->problem, traits, config, &options, &error) < 0)
		return complain(&error);
	for (unsigned i = 0; i < options.count; i++)
		puts(options.text[i]);
	return EXIT_OK;
}

/* The space, a line each, in JSON. */
static int print_space(const struct request *request, const struct ft_traits *traits)
{
	struct ft_space *space = calloc(1, sizeof *space);
	struct ft_error error = {0};

	if (!space || request->kernel->space(request->kernel, &request->problem, traits, space, &error) < 0) {
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
	bool good = config && parse(argc, argv, &request, &error) == 0 &&
	        traits_of(request.arch, &traits, &error) == 0;
	const unsigned count = request.configs ? request.configs : 1;

	for (unsigned i = 0; i < count && good; i++)
		good = fill_in(&request, &traits, request.config[i], &config[i], &error) == 0;
	if (!good) {
		complain(&error);
		fprintf(stderr,
		        "usage: flytune-runner-%s build KERNEL|FOLDER/ --arch ARCH --FIELD VALUE ... "
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
	free(request.made);
	ft_folder_free(request.folder);
	return status;
}
