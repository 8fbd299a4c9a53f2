/* Tests kernels/folder/: what a kernel.json comes to for a problem, a device and a config. */
#include "tests/unit/kernel_json.h"

/* The last field that is set may be one that is there. */
static struct ft_problem problem_of(const struct ft_kernel *kernel, int64_t m, int64_t n, const char *dtype)
{
	struct ft_problem given = {.count = 0}, whole;
	struct ft_error error;

	assert_int_equal(ft_problem_set_number(&given, "m", m, &error), 0);
	assert_int_equal(ft_problem_set_number(&given, "n", n, &error), 0);
	assert_int_equal(ft_problem_set_text(&given, "dtype", dtype, &error), 0);
	if (ft_problem_admit(kernel, kernel->schema(kernel, "cpu"), &given, &whole, &error) < 0)
		fail_msg("%s", error.message);
	return whole;
}

static const struct ft_traits cpu = {.kind = "cpu", .arch = "x86_64", .units = 2, .cache = 1 << 20},
                              cuda = {.kind = "cuda",
                                      .arch = "sm_90",
                                      .units = 132,
                                      .wave = 32,
                                      .threads_block = 1024,
                                      .shared_block = 4096};

static void assert_config(const struct ft_config *config, const char *text)
{
	char formatted[FT_CONFIG_TEXT_SIZE];

	ft_config_format(config, ' ', formatted, sizeof(formatted));
	assert_string_equal(formatted, text);
}

static void test_schema(void **state)
{
	struct ft_folder *folder = parse(good);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	const struct ft_schema *schema = kernel->schema(kernel, "cpu"),
	                       *other = kernel->schema(kernel, "cuda");

	(void)state;
	assert_string_equal(kernel->name, "scale");
	assert_string_equal(ft_folder_kernel(folder)->help, "y = a x");
	assert_string_equal(schema->kernel, "scale");
	assert_string_equal(schema->scale, "m");
	assert_int_equal(schema->field_count, 4);
	assert_string_equal(schema->field[3].same_as, "n");
	assert_int_equal(schema->field[1].default_number, 64);
	assert_string_equal(schema->field[2].default_text, "bf16");
	assert_int_equal(schema->knob_count, 3);
	assert_string_equal(schema->knob[1].word[1], "columns");
	assert_true(schema->knob[1].changes_bits);
	assert_int_equal(other->knob_count, 2);
	assert_int_equal(schema->revision, other->revision);
	ft_folder_free(folder);
}

static void test_check(void **state)
{
	struct ft_folder *folder = parse(good);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_problem problem = problem_of(kernel, 3, 100, "f32");
	struct ft_error error;

	(void)state;
	assert_int_equal(kernel->bytes(kernel, &problem), 2 * 3 * 100 * 4);
	assert_int_equal(ft_folder_flops(folder, &problem), 300);
	problem.field[3].number = 99;
	assert_int_equal(kernel->check(kernel, &problem, &error), -1);
	assert_string_equal(
	        error.message, "rows may not overlap: stride >= n does not hold for n=100 stride=99");
	assert_string_equal(error.field, "n");
	assert_string_equal(error.value, "100");
	/* A size that overflows, and one that does not. */
	problem.field[3].number = INT64_MAX;
	assert_int_equal(kernel->check(kernel, &problem, &error), -1);
	assert_string_equal(error.message,
	        "kernel.json: buffers[0].stride: it is 9223372036854775807; it must be between 100 and "
	        "70368744177664");
	problem.field[3].number = INT64_C(1) << 46;
	assert_int_equal(kernel->check(kernel, &problem, &error), -1);
	assert_string_equal(
	        error.message, "kernel.json: buffers: they are more than 2^46 bytes for this problem");
	problem.field[3].number = INT64_C(1) << 40;
	assert_int_equal(kernel->check(kernel, &problem, &error), 0);
	ft_folder_free(folder);
}

static void test_evaluation_fails(void **state)
{
	static const struct {
		const char *from, *to, *message;
	} row[] = {
	        {"\"stride >= n\"", "\"n / (m - 3) > 0\"", "kernel.json: checks[0].rule: "},
	        {"2 * m * n * sizeof(dtype)", "m * n * 9223372036854775807", "kernel.json: bytes: "},
	        {"2 * m * n * sizeof(dtype)", "0 - m", "kernel.json: bytes: it is -3; it must be at least 0"},
	        {"\"rows\": \"m\"", "\"rows\": \"m - 3\"",
	                "kernel.json: buffers[0].rows: it is 0; it must be between 1 and"},
	        {"\"rows\": \"m\"", "\"rows\": \"m + 1\"",
	                "kernel.json: buffers[1].alias: y has another type or shape than x"},
	        {"{\"i64\": \"n\"}", "{\"i32\": \"n * 99999999\"}",
	                "kernel.json: reference.arguments[2].i32: it is 9999999900; it must be between "
	                "-2147483648 and 2147483647"},
	};
	struct ft_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		char *text = replaced(row[i].from, row[i].to);
		struct ft_folder *folder = parse(text), *plain = parse(good);
		const struct ft_kernel *kernel = ft_folder_kernel(folder);
		struct ft_problem problem = problem_of(ft_folder_kernel(plain), 3, 100, "f32");

		assert_int_equal(kernel->check(kernel, &problem, &error), -1);
		if (strstr(error.message, row[i].message) == NULL)
			fail_msg("not \"%s\", but \"%s\"", row[i].message, error.message);
		ft_folder_free(plain);
		ft_folder_free(folder);
		free(text);
	}
}

static void test_space(void **state)
{
	struct ft_folder *folder = parse(good);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_space *space = malloc(sizeof(*space));
	struct ft_problem problem = problem_of(kernel, 1, 100, "f32");
	struct ft_folder_count count;
	struct ft_config config;
	struct ft_error error;

	(void)state;
	assert_non_null(space);
	assert_int_equal(kernel->space(kernel, &problem, &cpu, space, &error), 0);
	/* Threads first, then longer blocks, then the values' order. */
	assert_int_equal(space->count, 8);
	assert_config(&space->config[0], "BLOCK=128 WALK=rows threads=1");
	assert_config(&space->config[1], "BLOCK=128 WALK=columns threads=1");
	assert_config(&space->config[2], "BLOCK=64 WALK=rows threads=1");
	assert_config(&space->config[7], "BLOCK=64 WALK=columns threads=2");
	assert_int_equal(space->default_index, 2);
	assert_string_equal(space->pruned[0], "");
	assert_string_equal(space->pruned[1], "there is one row");
	assert_int_equal(ft_folder_count(folder, &problem, &cpu, FT_FOLDER_WORK, &count, &error), 0);
	assert_int_equal(count.members, 8);
	assert_int_equal(count.excluded[0], 8); /* two blocks, two walks, two numbers of threads */
	assert_int_equal(count.excluded[1], 0);
	assert_int_equal(count.excluded[2], 4);
	assert_true(count.prunes[2]);
	/* A rule of a knob that is not there is none. */
	assert_int_equal(kernel->space(kernel, &problem, &cuda, space, &error), 0);
	assert_int_equal(space->count, 4);
	assert_config(&space->config[space->default_index], "BLOCK=64 WALK=rows");
	kernel->default_config(kernel, &problem, &cpu, &config);
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), 0);
	config.knob[0].value = 256;
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), -1);
	assert_string_equal(error.message,
	        "BLOCK=256 WALK=rows threads=1 is no config of this problem of scale: a block is too long "
	        "(BLOCK <= 2 * n)");
	config.knob[0].value = 100;
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), -1);
	free(space);
	ft_folder_free(folder);
}

static void test_space_fails(void **state)
{
	static const struct {
		const char *from, *to, *message;
	} row[] = {
	        {"n >= 128 ? 128 : 64", "n",
	                "kernel.json: default.BLOCK: it is 100; it must be 64, 128, 256 or 2048"},
	        {"n >= 128 ? 128 : 64", "256",
	                "kernel.json: default: BLOCK=256 WALK=rows threads=1 is no config of this problem of "
	                "scale: a block is too long"},
	        {"n >= 128 ? 128 : 64", "64 / (m - 1)", "kernel.json: default.BLOCK: "},
	        {"BLOCK <= 2 * n", "BLOCK > 9999",
	                "kernel.json: space[0].rule: this problem has no config on this device: a block is "
	                "too long (BLOCK > 9999)"},
	        {"BLOCK <= 2 * n", "m > 1",
	                "kernel.json: space[0].rule: this problem has no config on this device: a block is "
	                "too long (m > 1)"},
	        {"BLOCK <= 2 * n", "BLOCK % (m - 1) == 0", "kernel.json: space[0].rule: "},
	        {"\"-BLOCK\"", "\"BLOCK / (m - 1)\"", "kernel.json: order[1]: "},
	};
	struct ft_space *space = malloc(sizeof(*space));
	struct ft_error error;

	(void)state;
	assert_non_null(space);
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		char *text = replaced(row[i].from, row[i].to);
		struct ft_folder *folder = parse(text);
		const struct ft_kernel *kernel = ft_folder_kernel(folder);
		struct ft_problem problem = problem_of(kernel, 1, 100, "f32");
		struct ft_config config;

		assert_int_equal(kernel->space(kernel, &problem, &cpu, space, &error), -1);
		if (strstr(error.message, row[i].message) == NULL)
			fail_msg("not \"%s\", but \"%s\"", row[i].message, error.message);
		/* It never fails: where an expression does, the first value stands for it. */
		kernel->default_config(kernel, &problem, &cpu, &config);
		assert_int_equal(config.count, 3);
		ft_folder_free(folder);
		free(text);
	}
	free(space);
}

/* A thousand million products, of which rules leave few; and as many that nothing holds back. */
static void test_large_space(void **state)
{
	char knobs[1024] = "", usual[256] = "", rules[1024] = "", to[2048];
	struct ft_space *space = malloc(sizeof(*space));
	struct ft_error error;

	(void)state;
	assert_non_null(space);
	for (int i = 0; i < 10; i++) {
		append(knobs, sizeof(knobs), "{\"name\": \"K%d\", \"values\": [1, 2, 3, 4, 5, 6, 7, 8]},", i);
		append(usual, sizeof(usual), "\"K%d\": 1,", i);
		append(rules, sizeof(rules), "{\"rule\": \"K%d == K%d\", \"why\": \"they differ\"},", i,
		        (i + 3) % 10);
	}
	for (int with_rules = 1; with_rules >= 0; with_rules--) {
		char *text, *at;
		struct ft_folder *folder;

		snprintf(to, sizeof(to), "%s{\"name\": \"BLOCK\"", knobs);
		text = replaced("{\"name\": \"BLOCK\"", to);
		at = strstr(text, "\"default\": {\"BLOCK\"");
		assert_non_null(at);
		size_t size = strlen(text) + sizeof(usual) + sizeof(rules);
		char *whole = malloc(size);

		assert_non_null(whole);
		snprintf(whole, size, "%.*s\"default\": {%s%s", (int)(at - text), text, usual,
		        at + strlen("\"default\": {"));
		if (with_rules) {
			at = strstr(whole, "{\"rule\": \"BLOCK");
			assert_non_null(at);
			memmove(at + strlen(rules), at, strlen(at) + 1);
			memcpy(at, rules, strlen(rules));
		}
		folder = parse(whole);
		const struct ft_kernel *kernel = ft_folder_kernel(folder);
		struct ft_problem problem = problem_of(kernel, 1, 100, "f32");

		if (with_rules) {
			assert_int_equal(kernel->space(kernel, &problem, &cpu, space, &error), 0);
			assert_int_equal(space->count, 8 * 8);
		} else {
			struct ft_folder_count count;

			assert_int_equal(kernel->space(kernel, &problem, &cpu, space, &error), -1);
			assert_string_equal(error.message,
			        "kernel.json: space: the space of this problem has more than 65536 configs");
			assert_int_equal(
			        ft_folder_count(folder, &problem, &cpu, FT_FOLDER_WORK, &count, &error), -1);
			assert_string_equal(error.message,
			        "kernel.json: space: there is too much to try; rules of fewer knobs, or "
			        "fewer values, make it less");
		}
		ft_folder_free(folder);
		free(whole);
		free(text);
	}
	free(space);
}

/* Too large to be listed: its size, and each member of it once that can win. */
static void test_unlisted_space(void **state)
{
	char *text = replaced("{\"name\": \"BLOCK\"",
	        "{\"name\": \"K\", \"values\": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]},{\"name\": \"L\", \"values\": "
	        "[0, 1, "
	        "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]},{\"name\": \"BLOCK\"");
	char *whole = NULL, *at = strstr(text, "\"default\": {");
	struct ft_space *space = malloc(sizeof(*space));
	struct ft_members members;
	struct ft_config config, before = {0}, usual;
	struct ft_error error;

	(void)state;
	assert_non_null(space);
	assert_non_null(at);
	assert_true(asprintf(&whole, "%.*s\"default\": {\"K\": 7, \"L\": 3, %s", (int)(at - text), text,
	                    at + strlen("\"default\": {")) > 0);
	struct ft_folder *folder = parse(whole);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_problem problem = problem_of(kernel, 1, 100, "f32");

	/* Of 8 times 130, half are pruned; but the default is not. */
	kernel->default_config(kernel, &problem, &cpu, &usual);
	assert_int_equal(kernel->space(kernel, &problem, &cpu, space, &error), 0);
	assert_int_equal(space->count, 1);
	assert_int_equal(space->unlisted, 4 * 130);
	assert_true(ft_config_equal(&space->config[0], &usual));
	assert_int_equal(kernel->members(kernel, &problem, &cpu, &members, &error), 0);
	assert_int_equal(members.count, space->unlisted);
	for (uint32_t i = 0; i < members.count; i++) {
		ft_schema_member(
		        kernel->schema(kernel, "cpu"), members.row + (size_t)i * members.knobs, &config);
		assert_true(kernel->tries(kernel, &problem, &cpu, &config));
		assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), 0);
		assert_int_equal(i == members.default_index, ft_config_equal(&config, &usual));
		assert_false(ft_config_equal(&config, &before));
		before = config;
	}
	free(members.row);
	ft_folder_free(folder);
	free(space);
	free(whole);
	free(text);
}

static void test_launch(void **state)
{
	struct ft_folder *folder = parse(good);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_problem problem = problem_of(kernel, 5, 1000, "bf16");
	const struct ft_folder_source *source = ft_folder_source(folder, "cuda");
	struct ft_folder_launch launch;
	struct ft_defines defines;
	struct ft_config config;
	struct ft_error error;

	(void)state;
	assert_non_null(source);
	assert_string_equal(source->file, "scale.cu");
	assert_int_equal(source->option_count, 1);
	assert_string_equal(source->option[0], "--fmad=false");
	assert_string_equal(ft_folder_source(folder, "hip")->option[0], "-ffp-contract=off");
	assert_int_equal(source->symbol_count, 2);
	assert_string_equal(source->symbol[1], "scale");
	assert_null(ft_folder_source(folder, "tpu"));
	kernel->default_config(kernel, &problem, &cuda, &config);
	assert_int_equal(ft_folder_defines(folder, &problem, &cuda, &config, &defines, &error), 0);
	assert_int_equal(defines.count, 2);
	assert_string_equal(defines.text[0], "-DBLOCK=128");
	assert_string_equal(defines.text[1], "-DT=bf16");
	assert_int_equal(ft_folder_launch(folder, &problem, &cuda, &config, &launch, &error), 0);
	assert_int_equal(launch.count, 2);
	assert_string_equal(launch.step[0].symbol, "fill");
	assert_int_equal(launch.step[0].block[0], 32);
	const struct ft_folder_step *step = &launch.step[1];

	assert_int_equal(step->grid[0], 5);
	assert_int_equal(step->grid[1], 1);
	assert_int_equal(step->grid[2], 8);
	assert_int_equal(step->block[0] * step->block[1] * step->block[2], 128);
	assert_int_equal(step->cluster[0], 1);
	assert_int_equal(step->shared, 512);
	assert_int_equal(step->arguments.count, 6);
	assert_true(step->arguments.argument[2].is_buffer);
	assert_int_equal(step->arguments.argument[2].buffer, 2);
	assert_int_equal(step->arguments.argument[3].type, FT_SCALAR_I32);
	assert_int_equal(step->arguments.argument[3].number, 5000);
	assert_true(step->arguments.argument[4].real == 1.5);
	assert_true(step->arguments.argument[5].real == 1000);
	assert_string_equal(ft_scalar_name(step->arguments.argument[5].type), "f64");
	/* More than the device has. */
	config.knob[0].value = 2048;
	assert_int_equal(ft_folder_launch(folder, &problem, &cuda, &config, &launch, &error), -1);
	assert_string_equal(error.message,
	        "kernel.json: launch.cuda[1].block[0]: it is 2048; it must be between 1 and 1024");
	config.knob[0].value = 256;
	struct ft_traits small = cuda;

	small.shared_block = 1000;
	assert_int_equal(ft_folder_launch(folder, &problem, &small, &config, &launch, &error), -1);
	assert_string_equal(error.message,
	        "kernel.json: launch.cuda[1].shared: the bytes of shared memory are 1024; there may be 1000 "
	        "at the most");
	small.threads_block = 128;
	assert_int_equal(ft_folder_launch(folder, &problem, &small, &config, &launch, &error), -1);
	assert_string_equal(error.message,
	        "kernel.json: launch.cuda[1].block[0]: the threads of a block are 256; there may be 128 at "
	        "the most");
	/* A CPU's has blocks alone. */
	kernel->default_config(kernel, &problem, &cpu, &config);
	assert_int_equal(ft_folder_launch(folder, &problem, &cpu, &config, &launch, &error), 0);
	assert_int_equal(launch.count, 1);
	assert_int_equal(launch.step[0].grid[0], 5);
	assert_int_equal(launch.step[0].block[0], 1);
	ft_folder_free(folder);
	/* As many as no number says. */
	char *text = replaced("\"grid\": [\"m\", \"threads\"]", "\"grid\": [2147483647, 2147483647, 3]");

	folder = parse(text);
	assert_int_equal(ft_folder_launch(folder, &problem, &cpu, &config, &launch, &error), -1);
	assert_string_equal(error.message,
	        "kernel.json: launch.cpu[0].grid[0]: the blocks of the grid are more than can be counted");
	ft_folder_free(folder);
	free(text);
}

static void test_buffers(void **state)
{
	struct ft_folder *folder = parse(good);
	const struct ft_kernel *kernel = ft_folder_kernel(folder);
	struct ft_problem problem = problem_of(kernel, 5, 1000, "f32");
	struct ft_folder_reference reference;
	struct ft_folder_buffers buffers;
	struct ft_tensors tensors;
	struct ft_config config;
	struct ft_error error;

	(void)state;
	problem.field[3].number = 1024;
	assert_int_equal(ft_folder_buffers(folder, &problem, &buffers, &error), 0);
	assert_int_equal(buffers.count, 3);
	assert_string_equal(buffers.buffer[0].name, "x");
	assert_int_equal(buffers.buffer[0].role, FT_FOLDER_IN);
	assert_int_equal(buffers.buffer[0].fill, FT_FOLDER_UNIFORM);
	assert_int_equal(buffers.buffer[0].rows, 5);
	assert_int_equal(buffers.buffer[0].stride, 1024);
	assert_int_equal(buffers.buffer[1].fill, FT_FOLDER_UNFILLED);
	assert_true(buffers.buffer[1].has_alias);
	assert_int_equal(buffers.buffer[1].alias, 0);
	assert_true(buffers.buffer[1].relative == 1e-5 && buffers.buffer[1].absolute == 1);
	assert_int_equal(buffers.buffer[2].fill, FT_FOLDER_ZEROS);
	assert_int_equal(buffers.buffer[2].rows, 1);
	assert_int_equal(buffers.buffer[2].stride, 16);
	kernel->tensors(kernel, &problem, &tensors);
	assert_int_equal(tensors.count, 3);
	assert_int_equal(tensors.tensor[0].role, FT_INPUT);
	assert_int_equal(tensors.tensor[0].fill, FT_FILL_UNIFORM);
	assert_int_equal(tensors.tensor[1].role, FT_OUTPUT);
	assert_true(tensors.tensor[1].in_place);
	assert_int_equal(tensors.tensor[2].role, FT_SCRATCH);
	assert_true(tensors.tensor[2].is_filled);
	assert_int_equal(tensors.tensor[1].length, 1000);
	assert_int_equal(ft_folder_reference(folder, &problem, &reference, &error), 0);
	assert_string_equal(reference.file, "reference.c");
	assert_int_equal(reference.rows, 5);
	assert_int_equal(reference.arguments.argument[2].number, 1000);
	assert_int_equal(ft_folder_reference_config(folder, &problem, &cpu, &config, &error), -1);
	/* A weight beside many rows. */
	char *text = replaced("\"type\": \"f32\", \"length\": 16, \"fill\": \"zeros\"}",
	        "\"type\": \"f32\", \"length\": 16}, {\"name\": \"w\", \"role\": \"in\", \"type\": \"i32\", "
	        "\"length\": \"n\"}");
	struct ft_folder *other = parse(text);

	problem = problem_of(kernel, 15, 1000, "f32");
	ft_folder_kernel(other)->tensors(ft_folder_kernel(other), &problem, &tensors);
	assert_int_equal(tensors.tensor[3].role, FT_INPUT);
	problem = problem_of(kernel, 16, 1000, "f32");
	ft_folder_kernel(other)->tensors(ft_folder_kernel(other), &problem, &tensors);
	assert_int_equal(tensors.tensor[3].role, FT_INPUT_SHARED);
	assert_false(tensors.tensor[2].is_filled);
	ft_folder_free(other);
	free(text);
	/* What is not said of a type, elements say. */
	problem = problem_of(kernel, 5, 1000, "bf16");
	assert_int_equal(ft_folder_buffers(folder, &problem, &buffers, &error), 0);
	assert_true(buffers.buffer[1].relative == ft_dtype_error(FT_BF16));
	ft_folder_free(folder);
}

static void test_reference_config(void **state)
{
	char *text = replaced("{\"file\": \"reference.c\", \"symbol\": \"scale_reference\","
	                      "  \"arguments\": [\"x\", \"y\", {\"i64\": \"n\"}]}",
	        "{\"config\": {\"BLOCK\": 64, \"WALK\": \"m > 1 ? 'columns' : 'rows'\", \"threads\": 2}}");
	struct ft_folder *folder = parse(text);
	struct ft_problem problem = problem_of(ft_folder_kernel(folder), 5, 1000, "f32");
	struct ft_folder_reference reference;
	struct ft_traits one = cpu;
	struct ft_config config;
	struct ft_error error;

	(void)state;
	assert_int_equal(ft_folder_reference(folder, &problem, &reference, &error), 0);
	assert_null(reference.file);
	assert_int_equal(ft_folder_reference_config(folder, &problem, &cpu, &config, &error), 0);
	assert_config(&config, "BLOCK=64 WALK=columns threads=2");
	one.units = 1;
	assert_int_equal(ft_folder_reference_config(folder, &problem, &one, &config, &error), -1);
	ft_folder_free(folder);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_schema),
	        cmocka_unit_test(test_check),
	        cmocka_unit_test(test_evaluation_fails),
	        cmocka_unit_test(test_space),
	        cmocka_unit_test(test_space_fails),
	        cmocka_unit_test(test_large_space),
	        cmocka_unit_test(test_unlisted_space),
	        cmocka_unit_test(test_launch),
	        cmocka_unit_test(test_buffers),
	        cmocka_unit_test(test_reference_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
