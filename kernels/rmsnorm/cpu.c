/* rmsnorm on a CPU, as the runner sees it. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/rmsnorm/rmsnorm_cpu.h"
#include "rmsnorm_cpu_source.h"

struct plan {
	const struct ft_rmsnorm_cpu_rows *set;
	struct rmsnorm_problem problem;
	struct ft_rmsnorm_cpu_plan how;
};

static void resolve(
        const struct ft_problem *problem, const struct ft_config *config, uint32_t cores, void *to)
{
	struct plan *plan = to;
	const struct ft_rmsnorm_cpu_rows *sets[FT_ISAS];
	ft_rmsnorm_cpu_sets(sets);
	plan->set = sets[0];
	plan->problem = rmsnorm_unpack(problem);
	ft_rmsnorm_cpu_resolve(plan->set, &plan->problem, config, cores, &plan->how);
}

static void describe(const void *of, char *text, size_t size)
{
	const struct ft_rmsnorm_cpu_plan *how = &((const struct plan *)of)->how;
	snprintf(text, size, "types=%d threads=%u unroll=%u stream=%d next=%d own=%d split=%d rows=%" PRIu64,
	        (int)how->types, how->threads, how->unroll, how->stream, how->next_input, how->own_output,
	        how->split, how->rows);
}

static void run(struct ft_pool *pool, const void *of, void *const *data, uint64_t rows)
{
	const struct plan *plan = of;
	const struct ft_rmsnorm_cpu_call call = {
	        .in = data[RMSNORM_INPUT],
	        .out = data[RMSNORM_OUTPUT],
	        .weight = data[RMSNORM_WEIGHT_INPUT],
	        .m = rows,
	        .n = plan->problem.n,
	        .stride = plan->problem.row_stride,
	        .eps = (float)RMSNORM_EPS,
	};
	ft_rmsnorm_cpu_run(pool, plan->set, &plan->how, &call);
}

extern const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm;
const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm = {
        .name = "rmsnorm",
        .source = FT_CPU_SOURCE,
        .reference = &rmsnorm_reference,
        .plan_size = sizeof(struct plan),
        .resolve = resolve,
        .describe = describe,
        .run = run,
};
