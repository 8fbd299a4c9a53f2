/* For float64 references of kernels over rows: a loop over elements once for each type, chosen outside of it. */
#ifndef FLYTUNE_KERNELS_ROWS_REFERENCE_H
#define FLYTUNE_KERNELS_ROWS_REFERENCE_H

#include "kernels/rows/rows.h"

/* as(TYPE, ...), with the type of the rows as a constant. */
#define FT_ROWS_AS(type, as, ...)                 \
	do {                                      \
		if ((type) == FT_F32)             \
			as(FT_F32, __VA_ARGS__);  \
		else if ((type) == FT_F16)        \
			as(FT_F16, __VA_ARGS__);  \
		else                              \
			as(FT_BF16, __VA_ARGS__); \
	} while (0)

/* as(TYPE, WEIGHT_TYPE, ...), with both as constants. */
#define FT_ROWS_AS_BOTH(type, weight, as, ...)                  \
	do {                                                    \
		if ((type) == FT_F32)                           \
			as(FT_F32, FT_F32, __VA_ARGS__);        \
		else if ((type) != (weight))                    \
			FT_ROWS_AS_WIDE(type, as, __VA_ARGS__); \
		else if ((type) == FT_F16)                      \
			as(FT_F16, FT_F16, __VA_ARGS__);        \
		else                                            \
			as(FT_BF16, FT_BF16, __VA_ARGS__);      \
	} while (0)
#define FT_ROWS_AS_WIDE(type, as, ...)                    \
	do {                                              \
		if ((type) == FT_F16)                     \
			as(FT_F16, FT_F32, __VA_ARGS__);  \
		else                                      \
			as(FT_BF16, FT_F32, __VA_ARGS__); \
	} while (0)

/* Row `row` of the input, from element `first` on; and a weight from there, of those behind FT_ROWS_WEIGHT. */
static inline const void *ft_rows_input(
        const struct ft_tensors *tensors, const void *const *data, uint64_t row, uint64_t first)
{
	const struct ft_tensor *x = &tensors->tensor[FT_ROWS_INPUT];

	return (const char *)data[FT_ROWS_INPUT] + (row * x->stride + first) * ft_dtype_size(x->type);
}

static inline const void *ft_rows_weight(
        const struct ft_tensors *tensors, const void *const *data, uint32_t weight, uint64_t first)
{
	return (const char *)data[weight] + first * ft_dtype_size(tensors->tensor[weight].type);
}

#endif
