/* The float64 rmsnorm. */
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rows/reference.h"

#include <math.h>

FT_INLINE void scale_as(enum ft_dtype type, const void *x, uint64_t n, double known[FT_ROW_KNOWN])
{
	double sum[4] = {0};
	uint64_t i = 0;

	for (; i + 4 <= n; i += 4) {
		for (uint64_t j = 0; j < 4; j++) {
			double value = ft_load(type, x, i + j);

			sum[j] += value * value;
		}
	}
	for (; i < n; i++) {
		double value = ft_load(type, x, i);

		sum[0] += value * value;
	}
	known[0] = 1.0 / sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) / (double)n + RMSNORM_EPS);
}

/* rsqrt(mean(x * x) + eps) of one row. */
FT_INLINE void row_scale_any(
        const struct ft_tensors *tensors, const void *const *data, uint64_t row, double known[FT_ROW_KNOWN])
{
	const struct ft_tensor *x = &tensors->tensor[FT_ROWS_INPUT];

	FT_ROWS_AS(x->type, scale_as, ft_rows_input(tensors, data, row, 0), x->length, known);
}

FT_WIDE(row_scale,
        (const struct ft_tensors *tensors, const void *const *data, uint64_t row, double known[FT_ROW_KNOWN]),
        (tensors, data, row, known))

FT_INLINE void values_as(enum ft_dtype type, enum ft_dtype weight_type, const void *x, const void *weight,
        double scale, uint64_t count, double *want)
{
	for (uint64_t i = 0; i < count; i++)
		want[i] = ft_load(type, x, i) * scale * ft_load(weight_type, weight, i);
}

FT_INLINE void values_any(const struct ft_tensors *tensors, const void *const *data, uint64_t row,
        const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want)
{
	const void *x = ft_rows_input(tensors, data, row, first);
	const void *weight = ft_rows_weight(tensors, data, FT_ROWS_WEIGHT, first);

	FT_ROWS_AS_BOTH(tensors->tensor[FT_ROWS_INPUT].type, tensors->tensor[FT_ROWS_WEIGHT].type, values_as,
	        x, weight, known[0], count, want);
}

FT_WIDE(values,
        (const struct ft_tensors *tensors, const void *const *data, uint64_t row,
                const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want),
        (tensors, data, row, known, first, count, want))

const struct ft_reference rmsnorm_reference = {.row = row_scale, .values = values};
