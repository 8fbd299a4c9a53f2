/* Problems of rmsnorm from its own numbers, for flytune/client.h, whose rules hold here as well. Of the same library.
 *
 * y = x * rsqrt(mean(x*x) + 1e-5) * weight, over m rows of n elements. The scale field is m. The code that flytune_code gives
 * is built for n, dtype and weight_dtype; m, the row stride of y and x, and the epsilon are arguments of its launch, as
 * flytune_code_step.arguments lists them. */
#ifndef FLYTUNE_RMSNORM_H
#define FLYTUNE_RMSNORM_H

#include <flytune/client.h>

#ifdef __cplusplus
extern "C" {
#endif

struct flytune_rmsnorm {
	size_t size;
	int64_t m;                /* rows, 1 or more */
	int64_t n;                /* elements of a row, 1 to 1,048,576 */
	const char *dtype;        /* "f32", "f16", "bf16" */
	const char *weight_dtype; /* as dtype, or "f32"; NULL: as dtype */
	int64_t row_stride;       /* elements between the starts of two rows, n or more; 0: n */
};
FLYTUNE_DEFINE_INIT(flytune_rmsnorm);

/* As flytune_problem_new. */
FLYTUNE_API flytune_problem *flytune_problem_rmsnorm(
        const struct flytune_rmsnorm *shape, struct flytune_error *error);

#ifdef __cplusplus
}
#endif

#endif
