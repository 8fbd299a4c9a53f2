/* rmsnorm on a GPU, as the runner sees it: what the compiler is told for a config, and how the code is launched. */
#include "kernels/rmsnorm/gpu.h"

#include "rmsnorm_gpu_source.h"

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

static struct ft_rows_shape shape_of(const struct ft_config *config)
{
	return (struct ft_rows_shape){.block = knob(config, RMSNORM_BLOCK_THREADS),
	        .row = knob(config, RMSNORM_ROW_THREADS),
	        .each = knob(config, RMSNORM_BLOCKS_PER_UNIT)};
}

static int defines_of(const struct ft_kernel_gpu *code, const struct ft_problem *given,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_defines *defines,
        struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);
	const struct ft_rows_shape shape = shape_of(config);

	(void)code;
	(void)error;
	ft_rows_defines(&problem, traits, &shape, defines);
	if (ft_rows_is_amd(traits)) {
		ft_rows_define(defines, "RN_WAVES_PER_EU", knob(config, RMSNORM_WAVES_PER_EU));
		ft_rows_define(defines, "RN_WAVES_EXACT", knob(config, RMSNORM_WAVES_EXACT));
	} else {
		ft_rows_define(defines, "RN_MIN_BLOCKS", min_blocks(traits, config));
	}
	ft_rows_define(defines, "RN_PASSES", knob(config, RMSNORM_PASSES));
	ft_rows_define(defines, "RN_NONTEMPORAL", knob(config, RMSNORM_NONTEMPORAL));
	ft_rows_define(defines, "RN_WEIGHT", knob(config, RMSNORM_WEIGHT));
	ft_rows_define(defines, "RN_PREFETCH", knob(config, RMSNORM_PREFETCH));
	ft_rows_define(defines, "RN_WALK", shape.each != 0);
	return 0;
}

static int launch_of(const struct ft_kernel_gpu *code, const struct ft_problem *given,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_launch *launch,
        struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);
	const struct ft_rows_shape shape = shape_of(config);

	(void)error;
	ft_rows_launch(code, &rmsnorm_rows, &problem, traits, &shape, (float)RMSNORM_EPS, launch);
	return 0;
}

extern const struct ft_kernel_gpu ft_kernel_gpu_rmsnorm;
const struct ft_kernel_gpu ft_kernel_gpu_rmsnorm = {
        .name = "rmsnorm",
        .reference = &rmsnorm_reference,
        .source = {.name = "kernel.hip", .text = source},
        .check = check,
        /* LAUNCH.md says more. */
        .arguments = "y: pointer, x: pointer, weight: pointer, m: int64, row_stride: int64 in elements, eps: "
                     "float",
        .defines = defines_of,
        .launch = launch_of,
};
