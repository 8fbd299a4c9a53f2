/* The float64 rmsnorm that results are held against, and the comparison.
 *
 * `x`, `y` and `out` of a call that takes rows: `x` and `y` point at row 0 of the problem's strided arrays,
 * of which only rows first_row to first_row + rows - 1 are touched, and of these only their n elements. Pure
 * functions: rows may be shared out to as many threads as one likes.
 *
 * The error of an element is |got - want| / max(|got|, |want|, s), with `want` in float64 *before* rounding
 * and `s` the smallest normal number of the type.
 * - Before rounding, since a right result that fell on the other side of a tie is a whole step away from the
 *   rounded reference and only half a step from the exact one.
 * - The larger of the two magnitudes, and s: below s steps have one size, u * s being half of it, where u is
 *   half a step at 1 (2^-8 for bf16, 2^-11 for f16). So rounding an exact value costs u at most.
 *
 * The bound is one rounding and the f32 arithmetic before it: u + 1e-6, and 1e-6 alone where the type is f32
 * (its own rounding is a seventeenth of that; the rest is the order of the sum and the products). The sum is
 * needed: rounding alone comes as near to u as one likes, at the lowest tie of a binade and at every tie of the
 * subnormals, and an f32 value that lies a hair beyond such a tie is rounded to the other side, right by
 * f32's means and off by more than u. 1e-6 is 0.2 % of f16's u and 0.03 % of bf16's: nothing that is wrong hides
 * in it.
 *
 * A result of infinity is right for what lies beyond the first power of two that the type lacks, and else
 * taken as that power, so that one just over the largest number is judged like any other. NaN is right only
 * where the reference is NaN. Inputs whose squares leave f32's range are outside of what f32 arithmetic
 * promises, and of this comparison. */
#ifndef FLYTUNE_KERNELS_REFERENCE_H
#define FLYTUNE_KERNELS_REFERENCE_H

#include "kernels/rmsnorm/rmsnorm.h"

/* ---- numbers of 16 bits, exactly ---- */

double rmsnorm_from_f16(uint16_t bits);
double rmsnorm_from_bf16(uint16_t bits);
/* Rounded once, to nearest even; NaN stays NaN, quiet, its sign and leading bits kept. */
uint16_t rmsnorm_to_f16(double value);
uint16_t rmsnorm_to_bf16(double value);

/* Element `index` of an array of that type. */
double rmsnorm_load(enum rmsnorm_dtype dtype, const void *data, uint64_t index);
void rmsnorm_store(enum rmsnorm_dtype dtype, void *data, uint64_t index, double value);

/* ---- the reference ---- */

/* `out` gets rows * n values, packed, not rounded. */
void rmsnorm_reference_rows(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        uint64_t first_row, uint64_t rows, double *out);
/* The same, rounded once into `y`, which is strided as `x` is and may be `x`. */
void rmsnorm_reference_store(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        uint64_t first_row, uint64_t rows, void *y);

/* ---- the comparison ---- */

struct rmsnorm_worst {
	double error; /* the largest; 0 before anything was compared */
	uint64_t row, column;
	double got, want;
};

/* The largest error that a right result may have: 2^-8 + 1e-6 for bf16, 2^-11 + 1e-6 for f16, 1e-6 for f32. */
double rmsnorm_bound(enum rmsnorm_dtype dtype);
/* Raises `worst` (zeroed before the first call) to the largest error of these rows. Holds no row in float64.
 */
void rmsnorm_compare_rows(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        const void *y, uint64_t first_row, uint64_t rows, struct rmsnorm_worst *worst);
/* Raises `worst` to `other`, as threads come together; on a tie the element that comes first stays. */
void rmsnorm_worst_merge(struct rmsnorm_worst *worst, const struct rmsnorm_worst *other);
/* 0 if within the bound; else -1 and an error that names the element, both values and the bound. */
int rmsnorm_worst_check(const struct rmsnorm_worst *worst, enum rmsnorm_dtype dtype, struct ft_error *error);

#endif
