/* layernorm on a CPU, as the runner sees it. */
#include <math.h>

#include "kernels/layernorm/layernorm.h"
#include "kernels/layernorm/moments.h"
#include "kernels/rows/launch_cpu.h"
#include "layernorm_cpu_source.h"

FT_ROWS_DECLARE_LOOPS(layernorm_loops);

static void settle(const double part[FT_ROWS_PARTS], size_t n, float eps, float scalar[FT_ROWS_SCALARS])
{
	const double variance = part[SQUARED] > 0 ? part[SQUARED] / (double)n : part[SQUARED] * 0;
	const double scale = 1.0 / sqrt(variance + (double)eps);

	scalar[MEAN] = (float)part[CENTER];
	scalar[OFFSET] = (float)(((double)scalar[MEAN] - part[CENTER]) * scale);
	scalar[SCALE] = (float)scale;
}

static const struct ft_rows_cpu layernorm_cpu = {
        .weights = LAYERNORM_WEIGHTS,
        .eps = (float)LAYERNORM_EPS,
        .loops = FT_ROWS_ALL_LOOPS(layernorm_loops),
        .merge = moments_merge,
        .settle = settle,
};

extern const struct ft_kernel_cpu ft_kernel_cpu_layernorm;
const struct ft_kernel_cpu ft_kernel_cpu_layernorm = {
        .name = "layernorm",
        .source = FT_CPU_SOURCE,
        .own = &layernorm_cpu,
        .reference = &layernorm_reference,
        .plan_size = sizeof(struct ft_rows_plan),
        .resolve = ft_rows_resolve_code,
        .describe = ft_rows_describe,
        .run = ft_rows_run,
};
