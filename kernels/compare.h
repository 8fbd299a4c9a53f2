/* Holds results against a float64 reference, whatever kernel gave them.
 *
 * The error of an element is what |got - want| has beyond the tensor's `absolute`, over max(|got|, |want|, s), with
 * `want` in float64 *before* rounding and `s` the smallest normal number of the type.
 * - Before rounding, since a right result that fell on the other side of a tie is a whole step away from the
 *   rounded reference and only half a step from the exact one.
 * - The larger of the two magnitudes, and s: below s steps have one size, u * s being half of it, where u is
 *   half a step at 1 (2^-8 for bf16, 2^-11 for f16). So rounding an exact value costs u at most.
 *
 * A kernel's bound is one rounding and the f32 arithmetic before it. The sum is needed: rounding alone comes as
 * near to u as one likes, at the lowest tie of a binade and at every tie of the subnormals, and an f32 value that
 * lies a hair beyond such a tie is rounded to the other side, right by f32's means and off by more than u. 1e-6 is
 * 0.2 % of f16's u and 0.03 % of bf16's: nothing that is wrong hides in it. f32's own rounding is a seventeenth of
 * it; the rest is for the order of sums and products. `absolute` is for kernels that add numbers of either sign,
 * where f32 arithmetic may lose any part of a result that is small beside them.
 *
 * A result of infinity is right for what lies beyond the first power of two that the type lacks, and else
 * taken as that power, so that one just over the largest number is judged like any other. NaN is right only
 * where the reference is NaN. Inputs whose squares leave f32's range are outside of what f32 arithmetic
 * promises, and of this comparison. */
#ifndef FLYTUNE_KERNELS_COMPARE_H
#define FLYTUNE_KERNELS_COMPARE_H

#include "kernels/kernel.h"

/* The first tensor of that role, or the count if there is none. */
uint32_t ft_tensors_find(const struct ft_tensors *tensors, enum ft_role role);

/* Whether it is a kernel over rows: one output and one input of its rows, of the same type, rows, length and stride, and
 * shared inputs. */
bool ft_tensors_are_rows(const struct ft_tensors *tensors);

/* Rows [first, first + rows) of the reference, packed. Pure: rows may be shared out to threads. */
void ft_reference_rows(const struct ft_reference *reference, const struct ft_tensors *tensors,
        const void *const *data, uint64_t first, uint64_t rows, double *want);

struct ft_worst {
	double error; /* the largest; 0 before anything was compared */
	uint64_t row, column;
	double got, want;
};

/* Raises `worst` (zeroed before the first call) to the largest error of these rows of the output. Holds no row in
 * float64. */
void ft_compare_rows(const struct ft_reference *reference, const struct ft_tensors *tensors,
        const void *const *data, uint64_t first, uint64_t rows, struct ft_worst *worst);
/* The same of one output of any kernel: `want` has these rows, packed. */
void ft_compare_values(const struct ft_tensor *output, const void *data, uint64_t first, uint64_t rows,
        const double *want, struct ft_worst *worst);
/* Raises `worst` to `other`, as threads come together; on a tie the element that comes first stays. */
void ft_worst_merge(struct ft_worst *worst, const struct ft_worst *other);
/* 0 if within the output's bound; else -1 and an error that names the element, both values and the bound. */
int ft_worst_check(const struct ft_worst *worst, const struct ft_tensor *output, struct ft_error *error);

#endif
