#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/host.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/rmsnorm/rmsnorm.h"

static const struct kernel {
	const struct ft_kernel *kernel;
	const struct ft_rows_kernel *rows;
	uint32_t least; /* configs of any problem, on any device */
} kernels[] = {{&ft_kernel_rmsnorm, &rmsnorm_rows, 12}, {&ft_kernel_layernorm, &layernorm_rows, 6}};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* The one that is tested. */
static const struct ft_kernel *kernel;
static const struct ft_rows_kernel *rows;
static uint32_t least;

/* 0 in a field leaves it out; so does NULL. */
static struct ft_problem given(
        int64_t m, int64_t n, const char *dtype, const char *weight, int64_t row_stride)
{
	struct ft_problem problem = {.count = 0};

	ft_problem_set_number(&problem, "m", m, NULL);
	ft_problem_set_number(&problem, "n", n, NULL);
	ft_problem_set_text(&problem, "dtype", dtype, NULL);
	if (weight)
		ft_problem_set_text(&problem, "weight_dtype", weight, NULL);
	if (row_stride)
		ft_problem_set_number(&problem, "row_stride", row_stride, NULL);
	return problem;
}

static struct ft_problem whole_of(
        int64_t m, int64_t n, const char *dtype, const char *weight, int64_t row_stride)
{
	struct ft_problem problem = given(m, n, dtype, weight, row_stride), whole;
	struct ft_error error = {.code = ""};

	if (ft_problem_admit(kernel, kernel->schema(kernel, "cpu"), &problem, &whole, &error) < 0)
		fail_msg("%s", error.message);
	return whole;
}

static void refuses(struct ft_problem problem, const char *code, const char *field, const char *bound)
{
	static const char *const kinds[] = {"cpu", "hip", "cuda"};

	for (size_t i = 0; i < 3; i++) {
		struct ft_problem whole;
		struct ft_error error = {.code = ""};

		assert_int_equal(
		        ft_problem_admit(kernel, kernel->schema(kernel, kinds[i]), &problem, &whole, &error),
		        -1);
		assert_string_equal(error.code, code);
		assert_string_equal(error.field, field);
		if (!strstr(error.message, bound) || !strstr(error.message, field))
			fail_msg("\"%s\" does not say \"%s\"", error.message, bound);
	}
}

static void bad_problems_name_field_and_bound(void **state)
{
	struct ft_problem problem = given(1, 1, "f32", NULL, 0);

	(void)state;
	refuses(given(0, 8, "f32", NULL, 0), FT_E_BAD_VALUE, "m", "between 1 and 1099511627776");
	refuses(given(-1, 8, "f32", NULL, 0), FT_E_BAD_VALUE, "m", "m is -1");
	refuses(given(INT64_MAX, 8, "f32", NULL, 0), FT_E_BAD_VALUE, "m", "9223372036854775807");
	refuses(given(8, 0, "f32", NULL, 0), FT_E_BAD_VALUE, "n", "n is 0; it must be between 1 and 1048576");
	refuses(given(8, 2000000, "f32", NULL, 0), FT_E_BAD_VALUE, "n", "2000000");
	refuses(given(8, 1048577, "f32", NULL, 0), FT_E_BAD_VALUE, "n", "between 1 and 1048576");
	refuses(given(8, 8, "f64", NULL, 0), FT_E_BAD_VALUE, "dtype",
	        "dtype is f64; it must be f32, f16 or bf16");
	refuses(given(8, 8, "BF16", NULL, 0), FT_E_BAD_VALUE, "dtype", "f32, f16 or bf16");
	refuses(given(8, 8, "f16", "bf16", 0), FT_E_BAD_VALUE, "weight_dtype", "the dtype, f16, or f32");
	refuses(given(8, 8, "bf16", "f16", 0), FT_E_BAD_VALUE, "weight_dtype", "the dtype, bf16, or f32");
	refuses(given(8, 8, "f32", "f16", 0), FT_E_BAD_VALUE, "weight_dtype", "the dtype, f32, or f32");
	refuses(given(8, 8, "f32", NULL, 7), FT_E_BAD_VALUE, "row_stride", "at least n, 8");
	refuses(given(8, 8, "f32", NULL, -8), FT_E_BAD_VALUE, "row_stride", "between 1 and");
	refuses(given(1, 8, "f32", NULL, INT64_MAX), FT_E_BAD_VALUE, "row_stride", "between 1 and");
	ft_problem_set_number(&problem, "eps", 1, NULL);
	refuses(problem, FT_E_UNKNOWN_FIELD, "eps", "it has m, n, dtype, weight_dtype and row_stride");
}

/* The product of the largest fields passes 2^64: the limit must hold without wrapping. */
static void a_problem_over_2_46_bytes_names_the_most_rows(void **state)
{
	static const struct {
		int64_t n, stride;
		const char *dtype, *weight;
	} shapes[] = {{1048576, 0, "f32", NULL}, {1, 0, "f16", NULL}, {4096, 0, "bf16", "f32"},
	        {1, INT64_C(1) << 40, "f32", NULL}, {1048576, INT64_C(1) << 40, "bf16", NULL},
	        {7, 1000, "f16", "f32"}};

	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		struct ft_problem problem = given(
		        INT64_C(1) << 40, shapes[i].n, shapes[i].dtype, shapes[i].weight, shapes[i].stride);
		struct ft_problem whole;
		struct ft_error error = {.code = ""};
		const struct ft_schema *schema = kernel->schema(kernel, "cpu");

		if (ft_problem_admit(kernel, schema, &problem, &whole, &error) == 0) {
			assert_int_equal(shapes[i].n, 1); /* the only one that fits */
			continue;
		}
		assert_string_equal(error.field, "m");
		assert_non_null(strstr(error.message, "2^46 bytes"));
		int64_t most = strtoll(error.bound + strlen("at most "), NULL, 10);

		assert_true(most >= 1);
		ft_problem_set_number(&problem, "m", most, NULL);
		assert_int_equal(ft_problem_admit(kernel, schema, &problem, &whole, &error), 0);
		assert_true(kernel->bytes(kernel, &whole) <= UINT64_C(1) << 46);
		ft_problem_set_number(&problem, "m", most + 1, NULL);
		assert_int_equal(ft_problem_admit(kernel, schema, &problem, &whole, &error), -1);
	}
}

/* The schema that admits a problem may have come from a runner that lies. */
static void relations_hold_whatever_schema_let_a_problem_pass(void **state)
{
	static const int64_t values[] = {INT64_MIN, -1, 0, 1, 1048577, INT64_C(1) << 41, INT64_MAX};
	struct ft_problem empty = {.count = 0};

	(void)state;
	assert_int_equal(kernel->check(kernel, &empty, NULL), -1);
	for (size_t i = 0; i < 7; i++) {
		for (size_t j = 0; j < 7; j++) {
			for (size_t k = 0; k < 7; k++) {
				struct ft_problem problem = given(values[i], values[j], "f32", "f32", 0);

				ft_problem_set_number(&problem, "row_stride", values[k], NULL);
				bool good = values[i] > 0 && i < 5 && values[j] == 1 && (k == 3 || k == 4);

				assert_int_equal(kernel->check(kernel, &problem, NULL) == 0, good);
			}
		}
	}
}

static void bytes_count_input_output_and_weights_once(void **state)
{
	struct ft_problem problem = whole_of(3, 10, "f32", NULL, 16);

	(void)state;
	assert_int_equal(kernel->bytes(kernel, &problem), 2 * 3 * 10 * 4 + rows->weights * 10 * 4);
	problem = whole_of(3, 10, "bf16", "f32", 0);
	assert_int_equal(kernel->bytes(kernel, &problem), 2 * 3 * 10 * 2 + rows->weights * 10 * 4);
}

static void unpacking_gives_every_field_its_place(void **state)
{
	struct ft_problem problem = whole_of(3, 10, "f16", "f32", 16);
	struct ft_rows unpacked = ft_rows_unpack(&problem);

	(void)state;
	assert_int_equal(unpacked.m, 3);
	assert_int_equal(unpacked.n, 10);
	assert_int_equal(unpacked.row_stride, 16);
	assert_int_equal(unpacked.dtype, FT_F16);
	assert_int_equal(unpacked.weight, FT_F32);
	problem = whole_of(3, 10, "bf16", NULL, 0);
	unpacked = ft_rows_unpack(&problem);
	assert_int_equal(unpacked.dtype, FT_BF16);
	assert_int_equal(unpacked.weight, FT_BF16);
	assert_int_equal(unpacked.row_stride, 10);
}

static void tensors_are_output_input_and_weights(void **state)
{
	struct ft_problem problem = whole_of(3, 10, "bf16", "f32", 16);
	struct ft_tensors tensors;

	(void)state;
	kernel->tensors(kernel, &problem, &tensors);
	assert_int_equal(tensors.count, FT_ROWS_WEIGHT + rows->weights);
	assert_int_equal(tensors.tensor[FT_ROWS_OUTPUT].role, FT_OUTPUT);
	assert_int_equal(tensors.tensor[FT_ROWS_INPUT].role, FT_INPUT_ROWS);
	assert_true(tensors.tensor[FT_ROWS_OUTPUT].relative == ft_dtype_error(FT_BF16));
	for (uint32_t i = FT_ROWS_WEIGHT; i < tensors.count; i++) {
		assert_int_equal(tensors.tensor[i].role, FT_INPUT_SHARED);
		assert_int_equal(tensors.tensor[i].type, FT_F32);
		assert_int_equal(tensors.tensor[i].length, 10);
		assert_string_not_equal(tensors.tensor[i].name, "");
	}
}

/* ---- spaces ---- */

static const int64_t many_m[] = {1, 3, 64, 511, 100000, 16777216};
static const int64_t many_n[] = {1, 7, 16, 63, 128, 1000, 4097, 8192, 65536, 1048576};
static const char *const types[][2] = {
        {"f32", NULL}, {"f16", NULL}, {"bf16", NULL}, {"f16", "f32"}, {"bf16", "f32"}};

static const struct ft_traits many_devices[] = {
        {.kind = "cpu", .arch = "x86-64", .units = 0, .cache = 0},
        {.kind = "cpu", .arch = "x86-64", .units = 1, .cache = 1 << 20},
        {.kind = "cpu", .arch = "x86-64-v3", .units = 2, .cache = 8 << 20},
        {.kind = "cpu", .arch = "x86-64-v4", .units = 3, .cache = 260 << 20},
        {.kind = "cpu", .arch = "x86-64-v4", .units = 64, .cache = 32 << 20},
        {.kind = "cpu", .arch = "aarch64", .units = 192, .cache = 32 << 20},
        {.kind = "cpu", .arch = "x86-64-v4", .units = 4096, .cache = 32 << 20},
        {.kind = "hip", .arch = "gfx942", .units = 304, .wave = 64, .cache = 4 << 20},
        {.kind = "hip", .arch = "gfx1030", .units = 40, .wave = 32, .cache = 4 << 20},
        {.kind = "hip", .arch = "", .units = 0, .wave = 0, .cache = 0},
        {.kind = "cuda", .arch = "sm_90", .units = 132, .wave = 32, .cache = 50 << 20},
};

/* Calls `visit` for every problem and device above: 3,300 spaces. */
static void each_space(void (*visit)(
        const struct ft_problem *problem, const struct ft_traits *traits, const struct ft_space *space))
{
	struct ft_space *space = malloc(sizeof *space);

	assert_non_null(space);
	for (size_t i = 0; i < sizeof many_m / sizeof many_m[0]; i++) {
		for (size_t j = 0; j < sizeof many_n / sizeof many_n[0]; j++) {
			for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
				struct ft_problem problem = whole_of(
				        many_m[i] * many_n[j] > INT64_C(1) << 42 ? 1 : many_m[i], many_n[j],
				        types[k][0], types[k][1], i % 3 == 1 ? many_n[j] + 5 : 0);

				for (size_t l = 0; l < sizeof many_devices / sizeof many_devices[0]; l++) {
					struct ft_error error = {.code = ""};

					if (kernel->space(kernel, &problem, &many_devices[l], space, &error) <
					        0)
						fail_msg("%s", error.message);
					visit(&problem, &many_devices[l], space);
				}
			}
		}
	}
	free(space);
}

/* In the order of the schema, one number of a config tells it from all others: for a quick look for equals.
 */
static uint64_t rank_of(const struct ft_schema *schema, const struct ft_config *config)
{
	uint64_t rank = 0;

	assert_int_equal(config->count, schema->knob_count);
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		uint32_t at = 0;

		assert_string_equal(config->knob[i].name, schema->knob[i].name);
		while (at < schema->knob[i].count && schema->knob[i].value[at] != config->knob[i].value)
			at++;
		assert_true(at < schema->knob[i].count);
		rank = rank * FT_KNOB_VALUES_MAX + at;
	}
	return rank;
}

static void check_members(
        const struct ft_problem *problem, const struct ft_traits *traits, const struct ft_space *space)
{
	const struct ft_schema *schema = kernel->schema(kernel, traits->kind);
	uint64_t rank[FT_SPACE_MAX];

	assert_true(space->count >= least);
	for (uint32_t i = 0; i < space->count; i++) {
		struct ft_error error = {.code = ""};

		if (kernel->check_config(kernel, problem, traits, &space->config[i], &error) < 0)
			fail_msg("%s", error.message);
		rank[i] = rank_of(schema, &space->config[i]);
		for (uint32_t j = 0; j < i; j++)
			assert_true(rank[i] != rank[j]);
	}
}

static void every_member_passes_the_check_and_none_comes_twice(void **state)
{
	(void)state;
	each_space(check_members);
}

static void check_default(
        const struct ft_problem *problem, const struct ft_traits *traits, const struct ft_space *space)
{
	struct ft_config default_config;

	kernel->default_config(kernel, problem, traits, &default_config);
	assert_true(space->default_index < space->count);
	assert_true(ft_config_equal(&space->config[space->default_index], &default_config));
	assert_string_equal(space->pruned[space->default_index], "");
}

static void the_default_is_a_member_and_never_pruned(void **state)
{
	(void)state;
	each_space(check_default);
}

static void check_repeatable(
        const struct ft_problem *problem, const struct ft_traits *traits, const struct ft_space *space)
{
	static struct ft_space again;

	memset(&again, 0xa5, sizeof again);
	assert_int_equal(kernel->space(kernel, problem, traits, &again, NULL), 0);
	assert_int_equal(again.count, space->count);
	assert_int_equal(again.default_index, space->default_index);
	assert_memory_equal(again.config, space->config, space->count * sizeof space->config[0]);
	for (uint32_t i = 0; i < space->count; i++)
		assert_string_equal(again.pruned[i], space->pruned[i]);
}

static void a_space_is_the_same_each_time(void **state)
{
	(void)state;
	each_space(check_repeatable);
}

/* Threads of a CPU or of a block: the first knob of both, 0 being all that there are. */
static uint64_t machine_used(const struct ft_config *config)
{
	return config->knob[0].value == 0 ? UINT64_MAX : (uint64_t)config->knob[0].value;
}

static void check_order(
        const struct ft_problem *problem, const struct ft_traits *traits, const struct ft_space *space)
{
	(void)problem;
	(void)traits;
	for (uint32_t i = 1; i < space->count; i++)
		assert_true(machine_used(&space->config[i - 1]) <= machine_used(&space->config[i]));
}

static void what_uses_less_of_the_machine_comes_first(void **state)
{
	(void)state;
	each_space(check_order);
}

static void usual_problems_have_twelve_configs_to_try(void **state)
{
	static const int64_t m[] = {64, 512, 4096, 16384}, n[] = {1024, 2880, 4096, 8192, 16384};
	static struct ft_space space;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (size_t j = 0; j < 5; j++) {
			for (size_t k = 0; k < 5; k++) {
				struct ft_problem problem = whole_of(m[i], n[j], types[k][0], types[k][1], 0);
				struct ft_traits traits = {.kind = "cpu", .units = 2, .cache = 8 << 20};
				uint32_t tried = 0;

				assert_int_equal(kernel->space(kernel, &problem, &traits, &space, NULL), 0);
				for (uint32_t l = 0; l < space.count; l++)
					tried += space.pruned[l][0] == '\0';
				assert_true(tried >= 12);
			}
		}
	}
}

static void rmsnorms_gpu_space_has_the_twelve_of_the_first_tuner(void **state)
{
	static const int64_t threads[] = {128, 256, 512, 1024};
	struct ft_problem problem = whole_of(4096, 8192, "bf16", NULL, 0);
	struct ft_traits traits;
	static struct ft_space space;

	(void)state;
	ft_traits_guess("hip", &traits);
	assert_int_equal(kernel->space(kernel, &problem, &traits, &space, NULL), 0);
	for (size_t i = 0; i < 4; i++) {
		for (int64_t waves = 0; waves < 3; waves++) {
			bool found = false;

			for (uint32_t j = 0; j < space.count; j++) {
				const struct ft_knob_value *a =
				        ft_config_find(&space.config[j], "BLOCK_THREADS");
				const struct ft_knob_value *b =
				        ft_config_find(&space.config[j], "waves_per_eu");

				found = found || (a && b && a->value == threads[i] && b->value == waves);
			}
			assert_true(found);
		}
	}
}

/* What an H200 showed, for the shapes where the rule for the default takes another turn. */
static void rmsnorms_default_on_nvidia_follows_what_was_measured(void **state)
{
	static const struct {
		int64_t m, n, threads, waves, hint, weight;
	} row[] = {{512, 4096, 256, 0, 0, 3}, {792, 4096, 256, 0, 0, 3}, {1024, 4096, 128, 8, 3, 3},
	        {1056, 4096, 128, 8, 3, 3}, {3000, 4096, 256, 0, 0, 3}, {1024, 8192, 256, 0, 0, 3},
	        {4096, 2880, 192, 0, 0, 3}, {2048, 5120, 160, 0, 0, 3}, {2048, 16384, 256, 0, 0, 0}};
	struct ft_traits cuda;
	struct ft_config config;

	(void)state;
	ft_traits_guess("cuda", &cuda);
	for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
		struct ft_problem problem = whole_of(row[i].m, row[i].n, "bf16", NULL, 0);

		kernel->default_config(kernel, &problem, &cuda, &config);
		assert_int_equal(ft_config_find(&config, "BLOCK_THREADS")->value, row[i].threads);
		assert_int_equal(ft_config_find(&config, "ROW_THREADS")->value, row[i].threads);
		assert_int_equal(ft_config_find(&config, "waves_per_eu")->value, row[i].waves);
		assert_int_equal(ft_config_find(&config, "NONTEMPORAL")->value, row[i].hint);
		assert_int_equal(ft_config_find(&config, "WEIGHT")->value, row[i].weight);
	}
}

static void configs_outside_the_space_are_refused_by_knob(void **state)
{
	struct ft_problem problem = whole_of(64, 4096, "bf16", NULL, 0);
	struct ft_traits cpu = {.kind = "cpu", .units = 8, .cache = 8 << 20}, hip;
	struct ft_config config;
	struct ft_error error = {.code = ""};

	(void)state;
	ft_traits_guess("hip", &hip);
	kernel->default_config(kernel, &problem, &cpu, &config);
	ft_config_set(&config, "threads", 8, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_VALUE);
	assert_string_equal(error.field, "threads");
	assert_non_null(strstr(error.message, "8 usable cores"));
	ft_config_set(&config, "threads", 4, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), 0);
	ft_config_set(&config, "threads", 5, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &cpu, &config, &error), -1);

	/* A CPU's config means nothing to a GPU. */
	kernel->default_config(kernel, &problem, &cpu, &config);
	assert_int_equal(kernel->check_config(kernel, &problem, &hip, &config, &error), -1);
	assert_string_equal(error.code, FT_E_UNKNOWN_KNOB);
	assert_string_equal(error.field, "threads");
	kernel->default_config(kernel, &problem, &hip, &config);
	ft_config_set(&config, "BLOCK_THREADS", 257, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &hip, &config, &error), -1);
	assert_string_equal(error.field, "BLOCK_THREADS");
}

/* A member of the space that does nothing, or nothing else than another, would cost a build each time. */
static void layernorms_gpu_configs_are_each_of_their_own(void **state)
{
	struct ft_problem problem = whole_of(4096, 8192, "bf16", NULL, 0);
	struct ft_traits hip;
	struct ft_config config;
	struct ft_error error = {.code = ""};

	(void)state;
	ft_traits_guess("hip", &hip);
	kernel->default_config(kernel, &problem, &hip, &config);
	ft_config_set(&config, "PASSES", 2, NULL);
	ft_config_set(&config, "WEIGHT", 1, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &hip, &config, &error), -1);
	assert_string_equal(error.field, "WEIGHT");
	ft_config_set(&config, "WEIGHT", 0, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &hip, &config, &error), 0);
	/* 1,024 vectors on 32 threads are 32 each: more than registers hold. */
	ft_config_set(&config, "ROW_THREADS", 32, NULL);
	ft_config_set(&config, "PASSES", 1, NULL);
	assert_int_equal(kernel->check_config(kernel, &problem, &hip, &config, &error), -1);
	assert_string_equal(error.field, "PASSES");
}

/* Of rows that fit into registers nobody loads them twice; of those that do not, the default does. */
static void layernorms_default_reads_only_long_rows_twice(void **state)
{
	static const char *const kinds[] = {"hip", "cuda"};
	struct ft_traits traits;
	struct ft_config config;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		ft_traits_guess(kinds[i], &traits);
		for (int64_t n = 64; n <= 1048576; n *= 4) {
			struct ft_problem problem = whole_of(512, n, "f32", NULL, 0);

			kernel->default_config(kernel, &problem, &traits, &config);
			assert_int_equal(ft_config_find(&config, "PASSES")->value == 2, n > 16384);
		}
	}
}

static int of_each(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(bad_problems_name_field_and_bound),
	        cmocka_unit_test(a_problem_over_2_46_bytes_names_the_most_rows),
	        cmocka_unit_test(relations_hold_whatever_schema_let_a_problem_pass),
	        cmocka_unit_test(bytes_count_input_output_and_weights_once),
	        cmocka_unit_test(tensors_are_output_input_and_weights),
	        cmocka_unit_test(every_member_passes_the_check_and_none_comes_twice),
	        cmocka_unit_test(the_default_is_a_member_and_never_pruned),
	        cmocka_unit_test(a_space_is_the_same_each_time),
	        cmocka_unit_test(what_uses_less_of_the_machine_comes_first),
	        cmocka_unit_test(usual_problems_have_twelve_configs_to_try),
	        cmocka_unit_test(configs_outside_the_space_are_refused_by_knob),
	};

	return cmocka_run_group_tests_name(kernel->name, tests, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest of_rmsnorm[] = {
	        cmocka_unit_test(unpacking_gives_every_field_its_place),
	        cmocka_unit_test(rmsnorms_gpu_space_has_the_twelve_of_the_first_tuner),
	        cmocka_unit_test(rmsnorms_default_on_nvidia_follows_what_was_measured),
	};
	const struct CMUnitTest of_layernorm[] = {
	        cmocka_unit_test(layernorms_gpu_configs_are_each_of_their_own),
	        cmocka_unit_test(layernorms_default_reads_only_long_rows_twice),
	};
	int failed = 0;

	for (size_t i = 0; i < KERNELS; i++) {
		kernel = kernels[i].kernel;
		rows = kernels[i].rows;
		least = kernels[i].least;
		failed += of_each();
		failed += kernel == &ft_kernel_rmsnorm
		        ? cmocka_run_group_tests_name("rmsnorm alone", of_rmsnorm, NULL, NULL)
		        : cmocka_run_group_tests_name("layernorm alone", of_layernorm, NULL, NULL);
	}
	return failed;
}
