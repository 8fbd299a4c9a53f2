#include "kernels/rows/rows.h"

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

struct ft_rows ft_rows_unpack(const struct ft_problem *problem)
{
	return (struct ft_rows){
	        .m = number_of(problem, "m"),
	        .n = number_of(problem, "n"),
	        .row_stride = number_of(problem, "row_stride"),
	        .dtype = type_of(problem, "dtype"),
	        .weight = type_of(problem, "weight_dtype"),
	};
}

static const struct ft_rows_kernel *rows_of(const struct ft_kernel *kernel)
{
	return kernel->own;
}

void ft_rows_tensors(
        const struct ft_rows_kernel *kernel, const struct ft_rows *problem, struct ft_tensors *tensors)
{
	struct ft_tensor rows = {.name = "input",
	        .role = FT_INPUT_ROWS,
	        .type = problem->dtype,
	        .fill = FT_FILL_ROWS,
	        .rows = problem->m,
	        .length = problem->n,
	        .stride = problem->row_stride};

	*tensors = (struct ft_tensors){.count = FT_ROWS_WEIGHT + kernel->weights,
	        .tensor = {[FT_ROWS_OUTPUT] = rows, [FT_ROWS_INPUT] = rows}};
	tensors->tensor[FT_ROWS_OUTPUT].name = "output";
	tensors->tensor[FT_ROWS_OUTPUT].role = FT_OUTPUT;
	tensors->tensor[FT_ROWS_OUTPUT].in_place = true;
	tensors->tensor[FT_ROWS_OUTPUT].alias = FT_ROWS_INPUT;
	tensors->tensor[FT_ROWS_OUTPUT].relative = ft_dtype_error(problem->dtype);
	tensors->tensor[FT_ROWS_OUTPUT].absolute = kernel->absolute;
	for (uint32_t i = 0; i < kernel->weights; i++)
		tensors->tensor[FT_ROWS_WEIGHT + i] = (struct ft_tensor){.name = kernel->weight_name[i],
		        .role = FT_INPUT_SHARED,
		        .type = problem->weight,
		        .fill = FT_FILL_NUMBERS,
		        .rows = 1,
		        .length = problem->n,
		        .stride = problem->n};
}

void ft_rows_problem_tensors(
        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_tensors *tensors)
{
	const struct ft_rows unpacked = ft_rows_unpack(problem);

	ft_rows_tensors(rows_of(kernel), &unpacked, tensors);
}

static uint64_t weight_bytes(const struct ft_rows_kernel *kernel, const struct ft_rows *problem)
{
	return kernel->weights * problem->n * ft_dtype_size(problem->weight);
}

uint64_t ft_rows_bytes(const struct ft_kernel *kernel, const struct ft_problem *given)
{
	const struct ft_rows problem = ft_rows_unpack(given);

	return 2 * problem.m * problem.n * ft_dtype_size(problem.dtype) +
	        weight_bytes(rows_of(kernel), &problem);
}

/* The most rows whose input, output and weights span no more than the limit. Never 0: one row of the longest
 * kind spans 8 MiB and 4 MiB a weight. */
static uint64_t rows_within_limit(const struct ft_rows_kernel *kernel, const struct ft_rows *problem)
{
	uint64_t limit = UINT64_C(1) << FT_ROWS_BYTES_LOG2;
	uint64_t element = ft_dtype_size(problem->dtype);
	uint64_t one_row = 2 * problem->n * element + weight_bytes(kernel, problem);

	return 1 + (limit - one_row) / (2 * problem->row_stride * element);
}

static int check_numbers(
        const struct ft_schema *schema, const struct ft_problem *given, struct ft_error *error)
{
	for (uint32_t i = 0; i < schema->field_count; i++) {
		const struct ft_schema_field_def *def = &schema->field[i];
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

int ft_rows_check(const struct ft_kernel *kernel, const struct ft_problem *given, struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);
	char value[32], bound[64];

	if (check_numbers(rows_of(kernel)->cpu, given, error) < 0)
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
	uint64_t most = rows_within_limit(rows_of(kernel), &problem);

	if (problem.m > most) {
		snprintf(value, sizeof value, "%" PRIu64, problem.m);
		snprintf(bound, sizeof bound, "at most %" PRIu64 " here, for 2^%d bytes in all", most,
		        FT_ROWS_BYTES_LOG2);
		return ft_fail_field(error, FT_E_BAD_VALUE, "m", value, bound);
	}
	return 0;
}

static bool is_cpu(const char *device_kind)
{
	return strcmp(device_kind, "cpu") == 0;
}

const struct ft_schema *ft_rows_schema(const struct ft_kernel *kernel, const char *device_kind)
{
	return is_cpu(device_kind) ? rows_of(kernel)->cpu : rows_of(kernel)->gpu;
}

void ft_rows_default(const struct ft_kernel *kernel, const struct ft_problem *given,
        const struct ft_traits *traits, struct ft_config *config)
{
	const struct ft_rows problem = ft_rows_unpack(given);

	if (is_cpu(traits->kind))
		ft_rows_cpu_default(
		        rows_of(kernel)->cpu, &problem, ft_rows_bytes(kernel, given), traits, config);
	else
		rows_of(kernel)->gpu_default(&problem, traits, config);
}

int ft_rows_space(const struct ft_kernel *kernel, const struct ft_problem *given,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);

	space->count = 0;
	space->default_index = 0;
	return is_cpu(traits->kind) ? ft_rows_cpu_space(rows_of(kernel)->cpu, &problem,
	                                      ft_rows_bytes(kernel, given), traits, space, error)
	                            : rows_of(kernel)->gpu_space(&problem, traits, space, error);
}

int ft_rows_check_config(const struct ft_kernel *kernel, const struct ft_problem *given,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);
	struct ft_config ordered;

	if (ft_schema_check_config(ft_rows_schema(kernel, traits->kind), config, &ordered, error) < 0)
		return -1;
	return is_cpu(traits->kind) ? ft_rows_cpu_check_config(rows_of(kernel)->cpu, traits, &ordered, error)
	                            : rows_of(kernel)->gpu_check_config(&problem, traits, &ordered, error);
}

void ft_rows_config(const struct ft_schema *schema, const int64_t *value, struct ft_config *config)
{
	memset(config, 0, sizeof *config);
	config->count = schema->knob_count;
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		memcpy(config->knob[i].name, schema->knob[i].name, sizeof config->knob[i].name);
		config->knob[i].value = value[i];
	}
}

int ft_rows_add(struct ft_space *space, const struct ft_config *config,
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

int ft_rows_refuse(const struct ft_config *config, uint32_t knob, const char *bound, struct ft_error *error)
{
	char value[24];

	snprintf(value, sizeof value, "%" PRId64, config->knob[knob].value);
	return ft_fail_field(error, FT_E_BAD_VALUE, config->knob[knob].name, value, bound);
}
