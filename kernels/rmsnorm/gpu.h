/* rmsnorm's knobs on a GPU, by index. The device source stands in rmsnorm.hip, the launch contract in LAUNCH.md. */
#ifndef FLYTUNE_KERNELS_RMSNORM_GPU_H
#define FLYTUNE_KERNELS_RMSNORM_GPU_H

#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rows/gpu.h"

enum {
	RMSNORM_BLOCK_THREADS = FT_ROWS_BLOCK_THREADS,
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

#endif
