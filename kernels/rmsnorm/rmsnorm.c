#include "kernels/rmsnorm/rmsnorm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t number_of(const struct ft_problem *problem, const char *name)
{
	const struct ft_field *field = ft_problem_find(problem, name);

	return field ? (uint64_t)field->number : 0;
}

static enum ft_dtype type_of(const struct ft_problem *problem, const char *name)
{
	const struct ft_field *field = ft_problem_find(problem, name);

	return ft_dtype_named(field ? field->text : "");
}

struct rmsnorm_problem rmsnorm_unpack(const struct ft_problem *problem)
{
	return (struct rmsnorm_problem){
	        .m = number_of(problem, "m"),
	        .n = number_of(problem, "n"),
	        .row_stride = number_of(problem, "row_stride"),
	        .dtype = type_of(problem, "dtype"),
	        .weight = type_of(problem, "weight_dtype"),
	};
}

struct ft_tensors rmsnorm_tensors(const struct rmsnorm_problem *problem)
{
	struct ft_tensor rows = {.name = "input",
	        .role = FT_INPUT_ROWS,
	        .type = problem->dtype,
	        .fill = FT_FILL_ROWS,
	        .rows = problem->m,
	        .length = problem->n,
	        .stride = problem->row_stride};
	struct ft_tensors tensors = {.count = RMSNORM_TENSORS,
	        .tensor = {[RMSNORM_OUTPUT] = rows,
	                [RMSNORM_INPUT] = rows,
	                [RMSNORM_WEIGHT_INPUT] = {.name = "weight",
	                        .role = FT_INPUT_SHARED,
	                        .type = problem->weight,
	                        .fill = FT_FILL_NUMBERS,
	                        .rows = 1,
	                        .length = problem->n,
	                        .stride = problem->n}}};

	tensors.tensor[RMSNORM_OUTPUT].name = "output";
	tensors.tensor[RMSNORM_OUTPUT].role = FT_OUTPUT;
	tensors.tensor[RMSNORM_OUTPUT].in_place = true;
	tensors.tensor[RMSNORM_OUTPUT].relative = ft_dtype_error(problem->dtype);
	return tensors;
}

uint64_t rmsnorm_bytes(const struct rmsnorm_problem *problem)
{
	return 2 * problem->m * problem->n * ft_dtype_size(problem->dtype) +
	        problem->n * ft_dtype_size(problem->weight);
}

/* The most rows whose input, output and weight span no more than the limit. Never 0: one row of the longest
 * kind spans 12 MiB. */
static uint64_t rows_within_limit(const struct rmsnorm_problem *problem)
{
	uint64_t limit = UINT64_C(1) << RMSNORM_BYTES_LOG2;
	uint64_t element = ft_dtype_size(problem->dtype);
	uint64_t one_row = 2 * problem->n * element + problem->n * ft_dtype_size(problem->weight);

	return 1 + (limit - one_row) / (2 * problem->row_stride * element);
}

/* Each number within its bounds once more: the schema that admitted the problem may be one that a runner
 * sent, and what follows must neither overflow nor divide by zero. */
static int check_numbers(const struct ft_problem *given, struct ft_error *error)
{
	for (uint32_t i = 0; i < rmsnorm_cpu_schema.field_count; i++) {
		const struct ft_schema_field_def *def = &rmsnorm_cpu_schema.field[i];
		int64_t number = (int64_t)number_of(given, def->name);
		char value[32], bound[64];

		if (def->is_text || (number >= def->min && number <= def->max))
			continue;
		snprintf(value, sizeof value, "%" PRId64, number);
		snprintf(bound, sizeof bound, "between %" PRId64 " and %" PRId64, def->min, def->max);
		return ft_fail_field(error, FT_E_BAD_VALUE, def->name, value, bound);
	}
	return 0;
}

static int check(const struct ft_problem *given, struct ft_error *error)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);
	char value[32], bound[64];

	if (check_numbers(given, error) < 0)
		return -1;
	if (problem.weight != problem.dtype && problem.weight != FT_F32) {
		snprintf(bound, sizeof bound, "the dtype, %s, or f32", ft_dtype_name(problem.dtype));
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, "weight_dtype", ft_dtype_name(problem.weight), bound);
	}
	/* Rows lie apart at least by their length, which also keeps the stride above 0. */
	if (problem.row_stride < problem.n || problem.row_stride == 0) {
		snprintf(value, sizeof value, "%" PRIu64, problem.row_stride);
		snprintf(bound, sizeof bound, "at least n, %" PRIu64, problem.n);
		return ft_fail_field(error, FT_E_BAD_VALUE, "row_stride", value, bound);
	}
	uint64_t most = rows_within_limit(&problem);

	if (problem.m > most) {
		snprintf(value, sizeof value, "%" PRIu64, problem.m);
		snprintf(bound, sizeof bound, "at most %" PRIu64 " here, for 2^%d bytes in all", most,
		        RMSNORM_BYTES_LOG2);
		return ft_fail_field(error, FT_E_BAD_VALUE, "m", value, bound);
	}
	return 0;
}

static uint64_t bytes(const struct ft_problem *given)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);

	return rmsnorm_bytes(&problem);
}

static bool is_cpu(const char *kind)
{
	return strcmp(kind, "cpu") == 0;
}

static const struct ft_schema *schema_for(const char *kind)
{
	return is_cpu(kind) ? &rmsnorm_cpu_schema : &rmsnorm_gpu_schema;
}

static void default_config(
        const struct ft_problem *given, const struct ft_traits *traits, struct ft_config *config)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);

	if (is_cpu(traits->kind))
		rmsnorm_cpu_default(&problem, traits, config);
	else
		rmsnorm_gpu_default(&problem, traits, config);
}

static int space_of(const struct ft_problem *given, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);

	space->count = 0;
	space->default_index = 0;
	return is_cpu(traits->kind) ? rmsnorm_cpu_space(&problem, traits, space, error)
	                            : rmsnorm_gpu_space(&problem, traits, space, error);
}

static int check_config(const struct ft_problem *given, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);
	struct ft_config ordered;

	if (ft_schema_check_config(schema_for(traits->kind), config, &ordered, error) < 0)
		return -1;
	return is_cpu(traits->kind) ? rmsnorm_cpu_check_config(&problem, traits, &ordered, error)
	                            : rmsnorm_gpu_check_config(&problem, traits, &ordered, error);
}

static void tensors_of(const struct ft_problem *given, struct ft_tensors *tensors)
{
	struct rmsnorm_problem problem = rmsnorm_unpack(given);

	*tensors = rmsnorm_tensors(&problem);
}

void rmsnorm_config_of(const struct ft_schema *schema, const int64_t *value, struct ft_config *config)
{
	memset(config, 0, sizeof *config);
	config->count = schema->knob_count;
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		memcpy(config->knob[i].name, schema->knob[i].name, sizeof config->knob[i].name);
		config->knob[i].value = value[i];
	}
}

int rmsnorm_space_add(struct ft_space *space, const struct ft_config *config,
        const struct ft_config *default_config, const char *pruned, struct ft_error *error)
{
	if (space->count == FT_SPACE_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "the space has more than %d configs", FT_SPACE_MAX);
	uint32_t index = space->count++;

	space->config[index] = *config;
	space->pruned[index][0] = '\0';
	if (ft_config_equal(config, default_config))
		space->default_index = index;
	else if (pruned)
		snprintf(space->pruned[index], sizeof space->pruned[index], "%s", pruned);
	return 0;
}

const struct ft_kernel ft_kernel_rmsnorm = {
        .name = "rmsnorm",
        .schema = schema_for,
        .check = check,
        .bytes = bytes,
        .default_config = default_config,
        .space = space_of,
        .check_config = check_config,
        .tensors = tensors_of,
};
