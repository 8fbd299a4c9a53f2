/* layernorm's knobs on a GPU, by index. The device source stands in layernorm.hip, the launch contract in kernels/rows/LAUNCH.md. */
#ifndef FLYTUNE_KERNELS_LAYERNORM_GPU_H
#define FLYTUNE_KERNELS_LAYERNORM_GPU_H

#include "kernels/layernorm/layernorm.h"
#include "kernels/rows/gpu.h"

enum {
	LAYERNORM_BLOCK_THREADS = FT_ROWS_BLOCK_THREADS,
	LAYERNORM_ROW_THREADS,
	LAYERNORM_PASSES,
	LAYERNORM_NONTEMPORAL,
	LAYERNORM_WEIGHT,
	LAYERNORM_KNOBS
};

#endif
