/* layernorm on a GPU, as the runner sees it: what the compiler is told for a config, and how the code is launched. */
#include "kernels/layernorm/gpu.h"

#include "layernorm_gpu_source.h"

static uint64_t knob(const struct ft_config *config, unsigned index)
{
	return (uint64_t)config->knob[index].value;
}

static struct ft_rows_shape shape_of(const struct ft_config *config)
{
	return (struct ft_rows_shape){
	        .block = knob(config, LAYERNORM_BLOCK_THREADS), .row = knob(config, LAYERNORM_ROW_THREADS)};
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
	ft_rows_define(defines, "RN_PASSES", knob(config, LAYERNORM_PASSES));
	ft_rows_define(defines, "RN_NONTEMPORAL", knob(config, LAYERNORM_NONTEMPORAL));
	ft_rows_define(defines, "RN_WEIGHT", knob(config, LAYERNORM_WEIGHT));
	return 0;
}

static int launch_of(const struct ft_kernel_gpu *code, const struct ft_problem *given,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_launch *launch,
        struct ft_error *error)
{
	const struct ft_rows problem = ft_rows_unpack(given);
	const struct ft_rows_shape shape = shape_of(config);

	(void)error;
	ft_rows_launch(code, &layernorm_rows, &problem, traits, &shape, (float)LAYERNORM_EPS, launch);
	return 0;
}

extern const struct ft_kernel_gpu ft_kernel_gpu_layernorm;
const struct ft_kernel_gpu ft_kernel_gpu_layernorm = {
        .name = "layernorm",
        .reference = &layernorm_reference,
        .source = {.name = "kernel.hip", .text = source},
        .check = check,
        /* kernels/rows/LAUNCH.md says more. */
        .arguments = "y: pointer, x: pointer, weight: pointer, bias: pointer, m: int64, row_stride: int64 in "
                     "elements, eps: float",
        .defines = defines_of,
        .launch = launch_of,
};
