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

int ft_problem_admit(const struct ft_kernel *kernel, const struct ft_schema *schema,
        const struct ft_problem *given, struct ft_problem *whole, struct ft_error *error)
{
	if (ft_schema_complete(schema, given, whole, error) < 0)
		return -1;
	return kernel && kernel->check ? kernel->check(whole, error) : 0;
}
