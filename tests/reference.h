/* rmsnorm's float64 reference on plain arrays, for tests. */
#ifndef FLYTUNE_TESTS_REFERENCE_H
#define FLYTUNE_TESTS_REFERENCE_H

#include "kernels/compare.h"
#include "kernels/rmsnorm/rmsnorm.h"

/* `out` gets the rows packed, not rounded. */
static inline void rmsnorm_reference_rows(const struct ft_rows *problem, const void *x, const void *weight,
        uint64_t first, uint64_t rows, double *out)
{
	struct ft_tensors tensors;
	const void *data[] = {[FT_ROWS_OUTPUT] = NULL, [FT_ROWS_INPUT] = x, [FT_ROWS_WEIGHT] = weight};

	ft_rows_tensors(&rmsnorm_rows, problem, &tensors);
	ft_reference_rows(&rmsnorm_reference, &tensors, data, first, rows, out);
}

/* The whole of it, rounded once into `y`, which is strided as `x` is and may be `x`. */
static inline void rmsnorm_reference_store(
        const struct ft_rows *problem, const void *x, const void *weight, void *y)
{
	struct ft_tensors tensors;
	const void *data[] = {[FT_ROWS_OUTPUT] = y, [FT_ROWS_INPUT] = x, [FT_ROWS_WEIGHT] = weight};

	ft_rows_tensors(&rmsnorm_rows, problem, &tensors);
	for (uint64_t row = 0; row < problem->m; row++) {
		double known[FT_ROW_KNOWN], value;

		rmsnorm_reference.row(&tensors, data, row, known);
		for (uint64_t i = 0; i < problem->n; i++) {
			rmsnorm_reference.values(&tensors, data, row, known, i, 1, &value);
			ft_store(problem->dtype, y, row * problem->row_stride + i, value);
		}
	}
}

static inline void rmsnorm_compare_rows(const struct ft_rows *problem, const void *x, const void *weight,
        const void *y, uint64_t first, uint64_t rows, struct ft_worst *worst)
{
	struct ft_tensors tensors;
	const void *data[] = {[FT_ROWS_OUTPUT] = y, [FT_ROWS_INPUT] = x, [FT_ROWS_WEIGHT] = weight};

	ft_rows_tensors(&rmsnorm_rows, problem, &tensors);
	ft_compare_rows(&rmsnorm_reference, &tensors, data, first, rows, worst);
}

static inline int rmsnorm_worst_check(
        const struct ft_worst *worst, enum ft_dtype type, struct ft_error *error)
{
	struct ft_tensor output = {.relative = ft_dtype_error(type)};

	return ft_worst_check(worst, &output, error);
}

#endif
