/* The float64 layernorm: the mean first, then what is left of each element. */
#include "kernels/layernorm/layernorm.h"
#include "kernels/rows/reference.h"

#include <math.h>

/* The sum of x - shift, or of its square. */
FT_INLINE double sum_as(enum ft_dtype type, const void *x, uint64_t n, double shift, bool squared)
{
	double sum[4] = {0};

	for (uint64_t i = 0; i < n; i++) {
		double value = ft_load(type, x, i) - shift;

		sum[i % 4] += squared ? value * value : value;
	}
	return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The mean of a row, and 1 / sqrt(var + eps). */
FT_INLINE void moments_as(enum ft_dtype type, const void *x, uint64_t n, double known[FT_ROW_KNOWN])
{
	known[0] = sum_as(type, x, n, 0, false) / (double)n;
	known[1] = 1.0 / sqrt(sum_as(type, x, n, known[0], true) / (double)n + LAYERNORM_EPS);
}

FT_INLINE void moments_any(
        const struct ft_tensors *tensors, const void *const *data, uint64_t row, double known[FT_ROW_KNOWN])
{
	const struct ft_tensor *x = &tensors->tensor[FT_ROWS_INPUT];

	FT_ROWS_AS(x->type, moments_as, ft_rows_input(tensors, data, row, 0), x->length, known);
}

FT_WIDE(moments,
        (const struct ft_tensors *tensors, const void *const *data, uint64_t row, double known[FT_ROW_KNOWN]),
        (tensors, data, row, known))

FT_INLINE void values_as(enum ft_dtype type, enum ft_dtype weight_type, const void *x, const void *weight,
        const void *bias, const double *known, uint64_t count, double *want)
{
	for (uint64_t i = 0; i < count; i++)
		want[i] = (ft_load(type, x, i) - known[0]) * known[1] * ft_load(weight_type, weight, i) +
		        ft_load(weight_type, bias, i);
}

FT_INLINE void values_any(const struct ft_tensors *tensors, const void *const *data, uint64_t row,
        const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want)
{
	FT_ROWS_AS_BOTH(tensors->tensor[FT_ROWS_INPUT].type, tensors->tensor[FT_ROWS_WEIGHT].type, values_as,
	        ft_rows_input(tensors, data, row, first),
	        ft_rows_weight(tensors, data, FT_ROWS_WEIGHT, first),
	        ft_rows_weight(tensors, data, LAYERNORM_BIAS, first), known, count, want);
}

FT_WIDE(values,
        (const struct ft_tensors *tensors, const void *const *data, uint64_t row,
                const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want),
        (tensors, data, row, known, first, count, want))

const struct ft_reference layernorm_reference = {.row = moments, .values = values};
