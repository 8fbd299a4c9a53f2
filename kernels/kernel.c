#include "kernels/kernel.h"

#include <string.h>

const struct ft_kernel *ft_kernel_find(const char *name)
{
	for (const struct ft_kernel *const *kernel = ft_kernels; *kernel; kernel++) {
		if (strcmp((*kernel)->name, name) == 0)
			return *kernel;
	}
	return NULL;
}

uint64_t ft_tensor_span(const struct ft_tensor *tensor)
{
	uint64_t span;

	if (__builtin_mul_overflow(tensor->rows - 1, tensor->stride, &span) ||
	        __builtin_add_overflow(span, tensor->length, &span) ||
	        __builtin_mul_overflow(span, ft_dtype_size(tensor->type), &span))
		return UINT64_MAX;
	return span;
}

uint64_t ft_tensors_span(const struct ft_tensors *tensors)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < tensors->count; i++) {
		if (__builtin_add_overflow(sum, ft_tensor_span(&tensors->tensor[i]), &sum))
			return UINT64_MAX;
	}
	return sum;
}

int ft_problem_admit(const struct ft_kernel *kernel, const struct ft_schema *schema,
        const struct ft_problem *given, struct ft_problem *whole, struct ft_error *error)
{
	if (ft_schema_complete(schema, given, whole, error) < 0)
		return -1;
	return kernel && kernel->check ? kernel->check(kernel, whole, error) : 0;
}

void ft_schema_member(const struct ft_schema *schema, const uint8_t *row, struct ft_config *config)
{
	memset(config, 0, sizeof(*config));
	config->count = schema->knob_count;
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		const struct ft_knob_def *def = &schema->knob[i];

		memcpy(config->knob[i].name, def->name, sizeof(def->name));
		memcpy(config->knob[i].word, def->word[row[i]], sizeof(def->word[0]));
		config->knob[i].value = def->value[row[i]];
	}
}
