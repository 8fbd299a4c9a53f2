#include "kernels/rows/launch_cpu.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SPLIT = 512 /* threads that can share a row; more take whole rows */ };

static int64_t knob(const struct ft_config *config, const char *name, int64_t absent)
{
	const struct ft_knob_value *found = ft_config_find(config, name);
	return found ? found->value : absent;
}

static enum ft_rows_types types_of(const struct ft_rows *problem)
{
	bool wide = problem->weight == FT_F32;
	switch (problem->dtype) {
	case FT_F16:
		return wide ? FT_ROWS_F16_W32 : FT_ROWS_F16;
	case FT_BF16:
		return wide ? FT_ROWS_BF16_W32 : FT_ROWS_BF16;
	case FT_F32:
	default:
		return FT_ROWS_F32;
	}
}

void ft_rows_resolve_with(const struct ft_rows_cpu *kernel, const struct ft_rows_loops *loops,
        const struct ft_rows *problem, const struct ft_config *config, uint32_t cores,
        struct ft_rows_plan *plan)
{
	const int64_t unroll = knob(config, "unroll", 2);
	const int64_t threads = knob(config, "threads", 0);
	const int64_t rows = knob(config, "rows", 1);
	const bool prefetch = knob(config, "prefetch", 0) != 0;

	*plan = (struct ft_rows_plan){
	        .kernel = kernel, .loops = loops, .problem = *problem, .types = types_of(problem)};
	plan->unroll = unroll >= 8 ? 2 : unroll >= 4 ? 1 : 0;
	while (plan->unroll > 0 && ((uint64_t)loops->lanes * 2 << plan->unroll) > problem->n)
		plan->unroll--;
	plan->stream = loops->streams && knob(config, "stream", 0) != 0;
	plan->next_input = prefetch && problem->m > 1;
	plan->own_output = prefetch && !plan->stream; /* streaming stores want no line in the cache */

	plan->threads = threads <= 0 || threads > cores ? cores : (uint32_t)threads;
	plan->split = knob(config, "split", 0) != 0 && plan->threads > 1 && plan->threads <= MAX_SPLIT;
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

void ft_rows_resolve(const struct ft_rows_cpu *kernel, const struct ft_problem *problem,
        const struct ft_config *config, uint32_t cores, struct ft_rows_plan *plan)
{
	const struct ft_rows rows = ft_rows_unpack(problem);
	enum ft_isa isa[FT_ISAS];
	ft_isa_usable(isa);
	ft_rows_resolve_with(kernel, kernel->loops[isa[0]], &rows, config, cores, plan);
}

void ft_rows_resolve_code(const struct ft_kernel_cpu *code, const struct ft_problem *problem,
        const struct ft_config *config, const struct ft_traits *traits, void *plan)
{
	ft_rows_resolve(code->own, problem, config, (uint32_t)traits->units, plan);
}

void ft_rows_describe(const void *of, char *text, size_t size)
{
	const struct ft_rows_plan *plan = of;
	snprintf(text, size, "types=%d threads=%u unroll=%u stream=%d next=%d own=%d split=%d rows=%" PRIu64,
	        (int)plan->types, plan->threads, plan->unroll, plan->stream, plan->next_input,
	        plan->own_output, plan->split, plan->rows);
}

enum { CACHE_LINE = 64, SPINS_BEFORE_YIELD = 1000, WEIGHTS_MAX = FT_TENSORS_MAX };

struct share {
	_Alignas(CACHE_LINE) double part[2][FT_ROWS_PARTS]; /* of a piece of rows of even and odd number */
};

struct launch {
	_Alignas(CACHE_LINE) _Atomic size_t next; /* row that the next task begins with */
	_Alignas(CACHE_LINE) _Atomic uint64_t
	        arrived; /* split: threads that gathered their part, over all rows */
	_Alignas(CACHE_LINE) const struct ft_rows_plan *plan;
	const struct ft_rows_cpu *kernel;
	ft_rows_gather *gather;
	ft_rows_map *map;
	const char *in;
	char *out; /* may be `in` */
	const void *weight[WEIGHTS_MAX];
	size_t m, n;
	size_t element;     /* bytes */
	size_t weight_size; /* bytes of a weight's element */
	size_t row_bytes;   /* from row to row */
	struct share *share;
};

/* Each row is some thread's. A task is taken before the one at hand is done, so that the row to prefetch is
 * this thread's own. */
static void run_rows(void *context, uint32_t worker)
{
	(void)worker;
	struct launch *launch = context;
	const struct ft_rows_plan *plan = launch->plan;
	const size_t task = (size_t)plan->rows;

	size_t first = atomic_fetch_add_explicit(&launch->next, task, memory_order_relaxed);
	while (first < launch->m) {
		size_t upcoming = atomic_fetch_add_explicit(&launch->next, task, memory_order_relaxed);
		size_t end = launch->m - first > task ? first + task : launch->m;
		for (size_t at = first; at < end; at++) {
			const char *in = launch->in + at * launch->row_bytes;
			char *out = launch->out + at * launch->row_bytes;
			size_t after = at + 1 < end ? at + 1 : upcoming;
			const char *next = NULL;
			double part[FT_ROWS_PARTS];
			float scalar[FT_ROWS_SCALARS] = {0};
			if (plan->next_input && after < launch->m)
				next = launch->in + after * launch->row_bytes;
			launch->gather(in, launch->n, plan->own_output ? out : NULL, part);
			launch->kernel->settle(part, launch->n, launch->kernel->eps, scalar);
			launch->map(in, out, launch->weight, launch->n, scalar, next);
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

/* Every thread has its columns of every row. The parts of row r are read by all after all arrived for the r-th
 * time, and overwritten only at row r + 2, which nobody begins before all arrived at r + 1. */
static void run_columns(void *context, uint32_t worker)
{
	struct launch *launch = context;
	const struct ft_rows_plan *plan = launch->plan;
	const void *weight[WEIGHTS_MAX];
	/* Whole cache lines of a 16-bit row each, so that no two threads write to one line. */
	const size_t grain = CACHE_LINE / 2;
	size_t width = (launch->n + plan->threads - 1) / plan->threads;
	width = (width + grain - 1) / grain * grain;
	size_t first = width * worker < launch->n ? width * worker : launch->n;
	size_t count = launch->n - first < width ? launch->n - first : width;

	for (uint32_t i = 0; i < launch->kernel->weights; i++)
		weight[i] = (const char *)launch->weight[i] + first * launch->weight_size;
	for (size_t at = 0; at < launch->m; at++) {
		size_t offset = at * launch->row_bytes + first * launch->element;
		const char *in = launch->in + offset;
		char *out = launch->out + offset;
		const char *next = plan->next_input && at + 1 < launch->m ? in + launch->row_bytes : NULL;
		double part[FT_ROWS_PARTS];
		float scalar[FT_ROWS_SCALARS] = {0};

		launch->gather(in, count, plan->own_output ? out : NULL, launch->share[worker].part[at % 2]);
		atomic_fetch_add_explicit(&launch->arrived, 1, memory_order_acq_rel);
		wait_arrived(&launch->arrived, (uint64_t)plan->threads * (at + 1));
		memcpy(part, launch->share[0].part[at % 2], sizeof part);
		for (uint32_t i = 1; i < plan->threads; i++)
			launch->kernel->merge(part, launch->share[i].part[at % 2]);
		launch->kernel->settle(part, launch->n, launch->kernel->eps, scalar);
		launch->map(in, out, weight, count, scalar, next);
	}
}

void ft_rows_run(struct ft_pool *pool, const void *of, void *const *data, uint64_t rows)
{
	const struct ft_rows_plan *plan = of;
	struct launch launch = {
	        .plan = plan,
	        .kernel = plan->kernel,
	        .gather = plan->loops->gather[plan->types][plan->unroll],
	        .map = plan->loops->map[plan->types][plan->unroll][plan->stream],
	        .in = data[FT_ROWS_INPUT],
	        .out = data[FT_ROWS_OUTPUT],
	        .m = rows,
	        .n = plan->problem.n,
	        .element = ft_dtype_size(plan->problem.dtype),
	        .weight_size = ft_dtype_size(plan->problem.weight),
	};
	for (uint32_t i = 0; i < plan->kernel->weights; i++)
		launch.weight[i] = data[FT_ROWS_WEIGHT + i];
	launch.row_bytes = plan->problem.row_stride * launch.element;
	atomic_init(&launch.next, 0);
	atomic_init(&launch.arrived, 0);
	if (plan->split) {
		static struct share share[MAX_SPLIT]; /* one launch at a time; too large for a stack */
		launch.share = share;
		ft_pool_run(pool, plan->threads, run_columns, &launch);
	} else {
		ft_pool_run(pool, plan->threads, run_rows, &launch);
	}
}
