/* rmsnorm on a GPU: its knobs by index, what the compiler is told for a config, and how the code is launched.
 *
 * Pure functions. The device source stands in rmsnorm.hip, the launch contract in LAUNCH.md. */
#ifndef FLYTUNE_KERNELS_RMSNORM_GPU_H
#define FLYTUNE_KERNELS_RMSNORM_GPU_H

#include "kernels/rmsnorm/rmsnorm.h"

enum {
	RMSNORM_BLOCK_THREADS,
	RMSNORM_WAVES_PER_EU,
	RMSNORM_ROW_THREADS,
	RMSNORM_WAVES_EXACT,
	RMSNORM_PASSES,
	RMSNORM_NONTEMPORAL,
	RMSNORM_WEIGHT,
	RMSNORM_PREFETCH,
	RMSNORM_BLOCKS_PER_UNIT,
	RMSNORM_KNOBS
};

/* In order; LAUNCH.md says more. */
#define RMSNORM_ARGUMENTS \
	"y: pointer, x: pointer, weight: pointer, m: int64, row_stride: int64 in elements, eps: float"
#define RMSNORM_KERNEL_NAME "flytune_rmsnorm"

enum { RMSNORM_DEFINES_MAX = 16, RMSNORM_DEFINE_SIZE = 48 };

/* Options of the form -DNAME=VALUE that make a config's code; all of a problem but m and row_stride is in
 * them. */
struct rmsnorm_defines {
	unsigned count;
	char text[RMSNORM_DEFINES_MAX][RMSNORM_DEFINE_SIZE];
};

struct rmsnorm_launch {
	unsigned grid, block;  /* both in x alone; no dynamic shared memory */
	unsigned rows;         /* that a block takes at once */
	unsigned blocks_limit; /* what the grid was cut to */
};

/* `config` is a member of the space, with all knobs in the schema's order. */
void rmsnorm_gpu_defines(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct rmsnorm_defines *defines);
void rmsnorm_gpu_launch(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct rmsnorm_launch *launch);

#endif
