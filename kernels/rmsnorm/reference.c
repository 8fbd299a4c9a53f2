/* The float64 rmsnorm. */
#include "kernels/rmsnorm/rmsnorm.h"

#include <math.h>

FT_INLINE double scale_as(enum ft_dtype type, const void *x, uint64_t start, uint64_t n)
{
	double sum[4] = {0};
	uint64_t i = 0;

	for (; i + 4 <= n; i += 4) {
		for (uint64_t j = 0; j < 4; j++) {
			double value = ft_load(type, x, start + i + j);

			sum[j] += value * value;
		}
	}
	for (; i < n; i++) {
		double value = ft_load(type, x, start + i);

		sum[0] += value * value;
	}
	return 1.0 / sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) / (double)n + RMSNORM_EPS);
}

/* rsqrt(mean(x * x) + eps) of one row. */
FT_INLINE void row_scale_any(
        const struct ft_tensors *tensors, const void *const *data, uint64_t row, double known[FT_ROW_KNOWN])
{
	const struct ft_tensor *x = &tensors->tensor[RMSNORM_INPUT];
	const void *from = data[RMSNORM_INPUT];
	uint64_t start = row * x->stride;

	known[0] = x->type == FT_F32 ? scale_as(FT_F32, from, start, x->length)
	        : x->type == FT_F16  ? scale_as(FT_F16, from, start, x->length)
	                             : scale_as(FT_BF16, from, start, x->length);
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
	const struct ft_tensor *x = &tensors->tensor[RMSNORM_INPUT];
	enum ft_dtype own = x->type, other = tensors->tensor[RMSNORM_WEIGHT_INPUT].type;
	const void *from = (const char *)data[RMSNORM_INPUT] + (row * x->stride + first) * ft_dtype_size(own);
	const void *weight = (const char *)data[RMSNORM_WEIGHT_INPUT] + first * ft_dtype_size(other);

	if (own == FT_F32)
		values_as(FT_F32, FT_F32, from, weight, known[0], count, want);
	else if (own == FT_F16 && other != own)
		values_as(FT_F16, FT_F32, from, weight, known[0], count, want);
	else if (own == FT_F16)
		values_as(FT_F16, FT_F16, from, weight, known[0], count, want);
	else if (other != own)
		values_as(FT_BF16, FT_F32, from, weight, known[0], count, want);
	else
		values_as(FT_BF16, FT_BF16, from, weight, known[0], count, want);
}

FT_WIDE(values,
        (const struct ft_tensors *tensors, const void *const *data, uint64_t row,
                const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want),
        (tensors, data, row, known, first, count, want))

const struct ft_reference rmsnorm_reference = {.row = row_scale, .values = values};
