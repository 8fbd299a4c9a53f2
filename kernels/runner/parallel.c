#include "kernels/runner/parallel.h"

#include <stdatomic.h>

#include "proto/clock.h"

struct parallel {
	_Atomic size_t next;
	size_t count;
	uint64_t until_ns; /* 0: to the end */
	atomic_bool ended; /* it passed before all was done */
	void (*piece)(void *context, size_t index);
	void *context;
};

static void parallel_work(void *context, uint32_t worker)
{
	(void)worker;
	struct parallel *parallel = context;
	for (;;) {
		size_t index = atomic_fetch_add(&parallel->next, 1);
		if (index >= parallel->count)
			return;
		if (parallel->until_ns != 0 && ft_monotonic_ns() >= parallel->until_ns) {
			atomic_store(&parallel->ended, true);
			return;
		}
		parallel->piece(parallel->context, index);
	}
}

bool ft_parallel(struct ft_pool *pool, uint64_t until_ns, size_t count,
        void (*piece)(void *context, size_t index), void *context)
{
	struct parallel parallel = {.count = count, .until_ns = until_ns, .piece = piece, .context = context};
	atomic_init(&parallel.next, 0);
	if (count > 1)
		ft_pool_run(pool, ft_pool_threads(pool), parallel_work, &parallel);
	else
		parallel_work(&parallel, 0);
	return !atomic_load(&parallel.ended);
}
