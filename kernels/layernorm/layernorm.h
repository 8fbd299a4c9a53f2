/* layernorm: y = (x - mean) / sqrt(var + eps) * weight + bias, for each of m rows of n elements; mean and var are the row's, var
 * the mean of (x - mean)^2.
 *
 * Semantics, which no config changes: f32 arithmetic (or better), one rounding at the end, to nearest even. The order of a row's
 * sums may vary with the config. eps is an argument of the launch and no part of the problem. What it shares with other kernels
 * over rows is kernels/rows/.
 *
 * The variance is that of elements less a number near their mean, never the difference of the two great numbers mean(x * x) and
 * mean^2. Each way through a row takes three numbers of it: a rough mean in f32, the mean of what is left of the elements when
 * that is taken off, and the mean of the squares of that. The second corrects the rough mean's own rounding, which would else
 * stand in every element: of elements about 1000 that are all alike by 0.02.
 *
 * A GPU's knobs, space and default stand in space_gpu.c; every kind that is not "cpu" is a GPU's. */
#ifndef FLYTUNE_KERNELS_LAYERNORM_H
#define FLYTUNE_KERNELS_LAYERNORM_H

#include "kernels/rows/rows.h"

#define LAYERNORM_EPS 1e-5
/* What an element may be off by, beyond the relative bound of its type: where (x - mean) / sqrt(var + eps) * weight and bias cancel,
 * each being about 1, what is left has the rounding of both. Some thirty roundings of f32 at 1; a thousandth of one of bf16. */
#define LAYERNORM_ABSOLUTE 4e-6

enum {
	LAYERNORM_REVISION = 1, /* of fields, spaces and defaults together */
	LAYERNORM_BIAS = FT_ROWS_WEIGHT + 1,
	LAYERNORM_WEIGHTS = 2,
};

extern const struct ft_rows_kernel layernorm_rows;
extern const struct ft_reference layernorm_reference;
extern const struct ft_kernel ft_kernel_layernorm;

extern const struct ft_schema layernorm_gpu_schema;
void layernorm_gpu_default(
        const struct ft_rows *problem, const struct ft_traits *traits, struct ft_config *config);
int layernorm_gpu_space(const struct ft_rows *problem, const struct ft_traits *traits, struct ft_space *space,
        struct ft_error *error);
int layernorm_gpu_check_config(const struct ft_rows *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error);

#endif
