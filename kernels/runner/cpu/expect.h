/* What a folder's reference says that outputs have to be: compiled by cc, computed on the host's threads from the inputs as they
 * are filled, in float64, or in int64 of integers. One text for all kinds of devices. */
#ifndef FLYTUNE_KERNELS_RUNNER_EXPECT_H
#define FLYTUNE_KERNELS_RUNNER_EXPECT_H

#include "kernels/folder/folder.h"
#include "kernels/pool.h"
#include "kernels/runner/cpu/cpu_build.h"

/* What an argument is that is no buffer. */
union ft_cell {
	int32_t i32;
	uint32_t u32;
	int64_t i64;
	uint64_t u64;
	float f32;
	double f64;
};

void ft_cell_set(union ft_cell *cell, const struct ft_folder_argument *argument);

/* A shared object; NULL and an error. Closed by dlclose. */
void *ft_expect_load(const char *path, struct ft_error *error);

/* `data[i]` is row 0 of tensor i as a launch finds it; of outputs and of scratch that is not filled it is not looked at. want[i] gets
 * what output i has to be, packed, the caller's to free, and NULL of others and after a failure. 0, -1, or FT_BACKEND_ENDED after
 * `until_ns`, monotonic; 0: never. The folder's reference is a function: one that is a config fails. */
int ft_expect(struct cpu_build *build, const struct ft_problem *problem, const struct ft_tensors *tensors,
        const void *const *data, struct ft_pool *pool, uint64_t until_ns, double *want[FT_TENSORS_MAX],
        struct ft_error *error);

#endif
