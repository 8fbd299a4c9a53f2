#include "kernels/rmsnorm/rmsnorm_cpu.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

extern const struct ft_rmsnorm_cpu_rows ft_rmsnorm_cpu_rows_base;
#if defined(__x86_64__)
extern const struct ft_rmsnorm_cpu_rows ft_rmsnorm_cpu_rows_v3;
extern const struct ft_rmsnorm_cpu_rows ft_rmsnorm_cpu_rows_v4;
#endif

size_t ft_rmsnorm_cpu_sets(const struct ft_rmsnorm_cpu_rows *sets[FT_ISAS])
{
	static const struct ft_rmsnorm_cpu_rows *const all[FT_ISAS] = {
		[FT_ISA_BASE] = &ft_rmsnorm_cpu_rows_base,
#if defined(__x86_64__)
		[FT_ISA_V3] = &ft_rmsnorm_cpu_rows_v3,
		[FT_ISA_V4] = &ft_rmsnorm_cpu_rows_v4,
#endif
	};
	enum ft_isa isa[FT_ISAS];
	size_t count = ft_isa_usable(isa);
	for (size_t i = 0; i < count; i++)
		sets[i] = all[isa[i]];
	return count;
}

static int64_t knob(const struct ft_config *config, const char *name, int64_t absent)
{
	const struct ft_knob_value *found = ft_config_find(config, name);
	return found ? found->value : absent;
}

static enum ft_rmsnorm_cpu_types types_of(const struct rmsnorm_problem *problem)
{
	bool wide = problem->weight == FT_F32;
	switch (problem->dtype) {
	case FT_F16:
		return wide ? FT_RMSNORM_F16_W32 : FT_RMSNORM_F16;
	case FT_BF16:
		return wide ? FT_RMSNORM_BF16_W32 : FT_RMSNORM_BF16;
	case FT_F32:
	default:
		return FT_RMSNORM_F32;
	}
}

void ft_rmsnorm_cpu_resolve(const struct ft_rmsnorm_cpu_rows *set, const struct rmsnorm_problem *problem,
        const struct ft_config *config, uint32_t cores, struct ft_rmsnorm_cpu_plan *plan)
{
	const int64_t unroll = knob(config, "unroll", 2);
	const int64_t threads = knob(config, "threads", 0);
	const int64_t rows = knob(config, "rows", 1);
	const bool prefetch = knob(config, "prefetch", 0) != 0;

	*plan = (struct ft_rmsnorm_cpu_plan){.types = types_of(problem)};
	plan->unroll = unroll >= 8 ? 2 : unroll >= 4 ? 1 : 0;
	while (plan->unroll > 0 && ((uint64_t)set->lanes * 2 << plan->unroll) > problem->n)
		plan->unroll--;
	plan->stream = set->streams && knob(config, "stream", 0) != 0;
	plan->next_input = prefetch && problem->m > 1;
	plan->own_output = prefetch && !plan->stream; /* streaming stores want no line in the cache */

	plan->threads = threads <= 0 || threads > cores ? cores : (uint32_t)threads;
	plan->split = knob(config, "split", 0) != 0 && plan->threads > 1;
	if (plan->split) {
		plan->rows = problem->m;
		return;
	}
	plan->rows = rows > 0 && (uint64_t)rows < problem->m ? (uint64_t)rows : rows > 0 ? problem->m : 1;
	uint64_t tasks = plan->rows > 0 ? (problem->m + plan->rows - 1) / plan->rows : 1;
	if (plan->threads > tasks)
		plan->threads = (uint32_t)tasks;
	if (plan->threads == 1)
		plan->rows = problem->m; /* one thread takes the rows in order, however they are cut */
}

enum { CACHE_LINE = 64, MAX_SPLIT = 512, SPINS_BEFORE_YIELD = 1000 };

struct share {
	_Alignas(CACHE_LINE) double sum[2]; /* of the squares, for rows of even and odd number */
};

struct launch {
	_Alignas(CACHE_LINE) _Atomic size_t next; /* row that the next task begins with */
	_Alignas(CACHE_LINE) _Atomic uint64_t
	        arrived; /* split: threads that summed their part, over all rows */
	_Alignas(CACHE_LINE) const struct ft_rmsnorm_cpu_plan *plan;
	const struct ft_rmsnorm_cpu_call *call;
	ft_rmsnorm_cpu_sum *sum;
	ft_rmsnorm_cpu_scale *scale;
	size_t element;   /* bytes */
	size_t weight;    /* bytes a weight */
	size_t row_bytes; /* from row to row */
	struct share *share;
};

static float row_scale(const struct ft_rmsnorm_cpu_call *call, double squares)
{
	return (float)(1.0 / sqrt(squares / (double)call->n + (double)call->eps));
}

/* Each row is some thread's. A task is taken before the one at hand is done, so that the row to prefetch is
 * this thread's own. */
static void run_rows(void *context, uint32_t worker)
{
	(void)worker;
	struct launch *launch = context;
	const struct ft_rmsnorm_cpu_call *call = launch->call;
	const struct ft_rmsnorm_cpu_plan *plan = launch->plan;
	const size_t task = (size_t)plan->rows;

	size_t first = atomic_fetch_add_explicit(&launch->next, task, memory_order_relaxed);
	while (first < call->m) {
		size_t upcoming = atomic_fetch_add_explicit(&launch->next, task, memory_order_relaxed);
		size_t end = call->m - first > task ? first + task : call->m;
		for (size_t at = first; at < end; at++) {
			const char *in = (const char *)call->in + at * launch->row_bytes;
			char *out = (char *)call->out + at * launch->row_bytes;
			size_t after = at + 1 < end ? at + 1 : upcoming;
			const char *next = NULL;
			if (plan->next_input && after < call->m)
				next = (const char *)call->in + after * launch->row_bytes;
			double squares = launch->sum(in, call->n, plan->own_output ? out : NULL);
			launch->scale(in, out, call->weight, call->n, row_scale(call, squares), next);
		}
		first = upcoming;
	}
}

static void wait_arrived(_Atomic uint64_t *arrived, uint64_t target)
{
	for (unsigned spins = 0; atomic_load_explicit(arrived, memory_order_acquire) < target; spins++) {
		if (spins >= SPINS_BEFORE_YIELD)
			sched_yield();
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
	}
}

/* Every thread has its columns of every row. The sums of row r are read by all after all arrived for the r-th
 * time, and overwritten only at row r + 2, which nobody begins before all arrived at r + 1. */
static void run_columns(void *context, uint32_t worker)
{
	struct launch *launch = context;
	const struct ft_rmsnorm_cpu_call *call = launch->call;
	const struct ft_rmsnorm_cpu_plan *plan = launch->plan;
	/* Whole cache lines of a 16-bit row each, so that no two threads write to one line. */
	const size_t grain = CACHE_LINE / 2;
	size_t width = (call->n + plan->threads - 1) / plan->threads;
	width = (width + grain - 1) / grain * grain;
	size_t first = width * worker < call->n ? width * worker : call->n;
	size_t count = call->n - first < width ? call->n - first : width;

	for (size_t at = 0; at < call->m; at++) {
		size_t offset = at * launch->row_bytes + first * launch->element;
		const char *in = (const char *)call->in + offset;
		char *out = (char *)call->out + offset;
		const char *next = plan->next_input && at + 1 < call->m ? in + launch->row_bytes : NULL;

		launch->share[worker].sum[at % 2] = launch->sum(in, count, plan->own_output ? out : NULL);
		atomic_fetch_add_explicit(&launch->arrived, 1, memory_order_acq_rel);
		wait_arrived(&launch->arrived, (uint64_t)plan->threads * (at + 1));
		double squares = 0;
		for (uint32_t i = 0; i < plan->threads; i++)
			squares += launch->share[i].sum[at % 2];
		launch->scale(in, out, (const char *)call->weight + first * launch->weight, count,
		        row_scale(call, squares), next);
	}
}

void ft_rmsnorm_cpu_run(struct ft_pool *pool, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_rmsnorm_cpu_plan *plan, const struct ft_rmsnorm_cpu_call *call)
{
	const bool narrow = plan->types != FT_RMSNORM_F32;
	const bool narrow_weight = plan->types == FT_RMSNORM_F16 || plan->types == FT_RMSNORM_BF16;
	struct launch launch = {
	        .plan = plan,
	        .call = call,
	        .sum = set->sum[plan->types][plan->unroll],
	        .scale = set->scale[plan->types][plan->unroll][plan->stream],
	        .element = narrow ? 2 : 4,
	        .weight = narrow_weight ? 2 : 4,
	};
	launch.row_bytes = call->stride * launch.element;
	atomic_init(&launch.next, 0);
	atomic_init(&launch.arrived, 0);
	if (plan->split && plan->threads <= MAX_SPLIT) {
		static struct share share[MAX_SPLIT]; /* one launch at a time; too large for a stack */
		launch.share = share;
		ft_pool_run(pool, plan->threads, run_columns, &launch);
	} else {
		ft_pool_run(pool, plan->threads, run_rows, &launch);
	}
}
