/* rmsnorm on a CPU, as the runner sees it. */
#include <math.h>

#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rows/launch_cpu.h"
#include "rmsnorm_cpu_source.h"

FT_ROWS_DECLARE_LOOPS(rmsnorm_loops);

/* A part is the sum of the squares. */
static void merge(double part[FT_ROWS_PARTS], const double other[FT_ROWS_PARTS])
{
	part[0] += other[0];
}

static void settle(const double part[FT_ROWS_PARTS], size_t n, float eps, float scalar[FT_ROWS_SCALARS])
{
	scalar[0] = (float)(1.0 / sqrt(part[0] / (double)n + (double)eps));
}

static const struct ft_rows_cpu rmsnorm_cpu = {
        .weights = RMSNORM_WEIGHTS,
        .eps = (float)RMSNORM_EPS,
        .loops = FT_ROWS_ALL_LOOPS(rmsnorm_loops),
        .merge = merge,
        .settle = settle,
};

extern const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm;
const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm = {
        .name = "rmsnorm",
        .source = FT_CPU_SOURCE,
        .own = &rmsnorm_cpu,
        .reference = &rmsnorm_reference,
        .plan_size = sizeof(struct ft_rows_plan),
        .resolve = ft_rows_resolve_code,
        .describe = ft_rows_describe,
        .run = ft_rows_run,
};
