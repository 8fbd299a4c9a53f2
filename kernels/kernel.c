#include "kernels/kernel.h"

#include <stdio.h>
#include <string.h>

#include "kernels/host.h"

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

void ft_traits_guess(const char *kind, struct ft_traits *traits)
{
	struct ft_allowance allowance;
	const char *arch;

	memset(traits, 0, sizeof *traits);
	snprintf(traits->kind, sizeof traits->kind, "%s", kind);
	if (strcmp(kind, "cpu") == 0) {
		ft_allowance_read("", &allowance);
		ft_host_traits(&allowance, traits);
		return;
	}
	if (strcmp(kind, "cuda") == 0) {
		arch = "sm_90"; /* as an H100 or H200 */
		traits->units = 132;
		traits->wave = 32;
		traits->cache = 50 << 20;
	} else {
		arch = "gfx942"; /* as an MI300X */
		traits->units = 304;
		traits->wave = 64;
		traits->cache = 256 << 20;
	}
	snprintf(traits->arch, sizeof traits->arch, "%s", arch);
}
