#include "kernels/kernel.h"

#include <string.h>

const struct ft_kernel *ft_kernel_find(const char *name)
{
	static const struct {
		const char *name;
		const struct ft_kernel *kernel;
	} known[] = {{"rmsnorm", &ft_kernel_rmsnorm}};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (strcmp(known[i].name, name) == 0)
			return known[i].kernel;
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
