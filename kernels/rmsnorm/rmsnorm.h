/* rmsnorm: y = x * rsqrt(mean(x * x) + eps) * weight, for each of m rows of n elements.
 *
 * Semantics, which no config changes: f32 arithmetic (or better), one rounding at the end, to nearest even.
 * The order of a row's sum may vary with the config. eps is an argument of the launch and no part of the problem. What it
 * shares with other kernels over rows is kernels/rows/.
 *
 * A GPU's knobs, space and default stand in space_gpu.c; every kind that is not "cpu" is a GPU's. */
#ifndef FLYTUNE_KERNELS_RMSNORM_H
#define FLYTUNE_KERNELS_RMSNORM_H

#include "kernels/rows/rows.h"

#define RMSNORM_EPS 1e-5

enum {
	RMSNORM_REVISION = 1, /* of fields, spaces and defaults together */
	RMSNORM_WEIGHTS = 1,
};

extern const struct ft_rows_kernel rmsnorm_rows;
extern const struct ft_reference rmsnorm_reference;
extern const struct ft_kernel ft_kernel_rmsnorm;

extern const struct ft_schema rmsnorm_gpu_schema;
void rmsnorm_gpu_default(
        const struct ft_rows *problem, const struct ft_traits *traits, struct ft_config *config);
int rmsnorm_gpu_space(const struct ft_rows *problem, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error);
int rmsnorm_gpu_check_config(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error);

#endif
