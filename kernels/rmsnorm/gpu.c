/* rmsnorm on a GPU, as the runner sees it: what the compiler is told for a config, and how the code is launched. */
#include "kernels/rmsnorm/gpu.h"

#include <stdio.h>
#include <string.h>

#include "rmsnorm_gpu_source.h"

static void define(struct ft_defines *defines, const char *name, uint64_t value)
{
	snprintf(defines->text[defines->count++], FT_DEFINE_SIZE, "-D%s=%llu", name,
	        (unsigned long long)value);
}

static uint64_t knob(const struct ft_config *config, unsigned index)
{
	return (uint64_t)config->knob[index].value;
}

/* Blocks that must fit on a unit so that its four schedulers have as many waves each; 0: not said. Any number that
 * leaves a thread all the registers that it can name says no more than 1 does: so equal kernels have equal
 * options. */
static uint64_t min_blocks(const struct ft_traits *traits, const struct ft_config *config)
{
	enum { SCHEDULERS = 4, REGISTERS = 65536, REGISTERS_A_THREAD = 255 };
	uint64_t block = knob(config, RMSNORM_BLOCK_THREADS);
	uint64_t threads = knob(config, RMSNORM_WAVES_PER_EU) * SCHEDULERS * traits->wave;
	uint64_t blocks = (threads + block - 1) / block;

	return blocks > 1 && REGISTERS / (blocks * block) >= REGISTERS_A_THREAD ? 1 : blocks;
}

static void defines_of(const struct ft_problem *given, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_defines *defines)
{
	const struct rmsnorm_problem problem = rmsnorm_unpack(given);

	memset(defines, 0, sizeof *defines);
	define(defines, "RN_N", problem.n);
	define(defines, "RN_X", problem.dtype);
	define(defines, "RN_W", problem.weight);
	define(defines, "RN_WAVE", traits->wave);
	define(defines, "RN_BLOCK_THREADS", knob(config, RMSNORM_BLOCK_THREADS));
	define(defines, "RN_ROW_THREADS", knob(config, RMSNORM_ROW_THREADS));
	if (strcmp(traits->kind, "cuda") == 0) {
		define(defines, "RN_MIN_BLOCKS", min_blocks(traits, config));
	} else {
		define(defines, "RN_WAVES_PER_EU", knob(config, RMSNORM_WAVES_PER_EU));
		define(defines, "RN_WAVES_EXACT", knob(config, RMSNORM_WAVES_EXACT));
	}
	define(defines, "RN_PASSES", knob(config, RMSNORM_PASSES));
	define(defines, "RN_NONTEMPORAL", knob(config, RMSNORM_NONTEMPORAL));
	define(defines, "RN_WEIGHT", knob(config, RMSNORM_WEIGHT));
	define(defines, "RN_PREFETCH", knob(config, RMSNORM_PREFETCH));
	define(defines, "RN_WALK", knob(config, RMSNORM_BLOCKS_PER_UNIT) != 0);
}

static void launch_of(const struct ft_problem *given, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_launch *launch)
{
	const struct rmsnorm_problem problem = rmsnorm_unpack(given);
	uint64_t each = knob(config, RMSNORM_BLOCKS_PER_UNIT);
	uint64_t grid;

	launch->block = (unsigned)knob(config, RMSNORM_BLOCK_THREADS);
	launch->rows = launch->block / (unsigned)knob(config, RMSNORM_ROW_THREADS);
	/* HIP counts the threads of a whole grid in 32 bits, CUDA the blocks in 31; a block walks on, so fewer
	 * blocks do as well. */
	if (each)
		launch->blocks_limit = (unsigned)(each * traits->units);
	else
		launch->blocks_limit =
		        strcmp(traits->kind, "cuda") == 0 ? INT32_MAX : (1u << 31) / launch->block;
	grid = (problem.m + launch->rows - 1) / launch->rows;
	launch->grid = grid < launch->blocks_limit ? (unsigned)grid : launch->blocks_limit;
	launch->count = 6;
	for (uint32_t i = 0; i < RMSNORM_TENSORS; i++)
		launch->argument[i] = (struct ft_argument){.kind = FT_ARGUMENT_TENSOR, .tensor = i};
	launch->argument[3] = (struct ft_argument){.kind = FT_ARGUMENT_INT64, .int64 = (int64_t)problem.m};
	launch->argument[4] =
	        (struct ft_argument){.kind = FT_ARGUMENT_INT64, .int64 = (int64_t)problem.row_stride};
	launch->argument[5] = (struct ft_argument){.kind = FT_ARGUMENT_FLOAT, .float32 = (float)RMSNORM_EPS};
}

extern const struct ft_kernel_gpu ft_kernel_gpu_rmsnorm;
const struct ft_kernel_gpu ft_kernel_gpu_rmsnorm = {
        .name = "rmsnorm",
        .reference = &rmsnorm_reference,
        .source = source,
        .check = check,
        .symbol = "flytune_rmsnorm",
        /* LAUNCH.md says more. */
        .arguments = "y: pointer, x: pointer, weight: pointer, m: int64, row_stride: int64 in elements, eps: "
                     "float",
        .defines = defines_of,
        .launch = launch_of,
};
