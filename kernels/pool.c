#include "kernels/pool.h"
#include "proto/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/host.h"

/* Long enough to bridge the gap between two launches of a batch, short enough not to burn a core between
 * sweeps. */
enum { SPIN_NS = 50000, SPINS_PER_LOOK = 64, CACHE_LINE = 64 };

struct worker {
	_Alignas(CACHE_LINE) atomic_uint go; /* counts the runs given to this worker; a futex */
	atomic_uint sleeps;
	struct ft_pool *pool;
	pthread_t thread;
	uint32_t number;
	bool started;
};

struct ft_pool {
	_Alignas(CACHE_LINE) atomic_uint left; /* workers that still run; a futex */
	atomic_uint caller_sleeps;
	_Alignas(CACHE_LINE) ft_pool_work *work;
	void *context;
	bool stop;
	uint32_t threads;
	struct worker *worker;
};

static void futex_wait(atomic_uint *word, unsigned expected)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void breathe(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Returns once *word differs from `value` (or is `value`, with `until`). Spins, then sleeps; `sleeps` tells
 * the one who changes the word that a wake-up is needed. Both sides use sequentially consistent order: either
 * the sleeper sees the change, or the changer sees the sleeper. */
static void wait_word(atomic_uint *word, unsigned value, bool until, atomic_uint *sleeps)
{
	uint64_t end = 0;
	for (;;) {
		for (int i = 0; i < SPINS_PER_LOOK; i++) {
			if ((atomic_load_explicit(word, memory_order_acquire) == value) == until)
				return;
			breathe();
		}
		uint64_t now = ft_monotonic_ns();
		if (end == 0)
			end = now + SPIN_NS;
		else if (now >= end)
			break;
	}
	for (;;) {
		atomic_store(sleeps, 1);
		unsigned seen = atomic_load(word);
		if ((seen == value) == until)
			break;
		futex_wait(word, seen);
	}
	atomic_store(sleeps, 0);
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;
	struct ft_pool *pool = self->pool;
	for (unsigned seen = 0;; seen++) {
		wait_word(&self->go, seen, false, &self->sleeps);
		if (pool->stop)
			return NULL;
		pool->work(pool->context, self->number);
		if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->caller_sleeps))
			futex_wake(&pool->left);
	}
}

static void give(struct worker *worker)
{
	atomic_fetch_add(&worker->go, 1);
	if (atomic_load(&worker->sleeps))
		futex_wake(&worker->go);
}

struct ft_pool *ft_pool_new(uint32_t threads, const int *cpu)
{
	struct ft_pool *pool = aligned_alloc(CACHE_LINE, sizeof(*pool));
	if (!pool)
		return NULL;
	*pool = (struct ft_pool){.threads = threads};
	size_t size = sizeof(struct worker) * threads;
	pool->worker = aligned_alloc(CACHE_LINE, size);
	if (!pool->worker) {
		free(pool);
		return NULL;
	}
	for (uint32_t i = 0; i < threads; i++)
		pool->worker[i] = (struct worker){.pool = pool, .number = i};

	/* Signals are the main thread's business. */
	sigset_t all;
	sigset_t before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool failed = false;
	for (uint32_t i = 1; i < threads && !failed; i++) {
		struct worker *worker = &pool->worker[i];
		failed = pthread_create(&worker->thread, NULL, worker_main, worker) != 0;
		if (failed)
			break;
		worker->started = true;
		if (cpu) {
			struct ft_cpus one;
			ft_cpus_one(&one, cpu[i]);
			/* A core that went away since: the thread floats. */
			(void)pthread_setaffinity_np(worker->thread, sizeof(one), (cpu_set_t *)&one);
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		ft_pool_free(pool);
		return NULL;
	}
	return pool;
}

void ft_pool_free(struct ft_pool *pool)
{
	if (!pool)
		return;
	pool->stop = true;
	for (uint32_t i = 1; i < pool->threads; i++) {
		if (!pool->worker[i].started)
			continue;
		give(&pool->worker[i]);
		pthread_join(pool->worker[i].thread, NULL);
	}
	free(pool->worker);
	free(pool);
}

uint32_t ft_pool_threads(const struct ft_pool *pool)
{
	return pool->threads;
}

void ft_pool_run(struct ft_pool *pool, uint32_t threads, ft_pool_work *work, void *context)
{
	if (threads > 1) {
		pool->work = work;
		pool->context = context;
		atomic_store(&pool->left, threads - 1);
		for (uint32_t i = 1; i < threads; i++)
			give(&pool->worker[i]);
	}
	work(context, 0);
	if (threads > 1)
		wait_word(&pool->left, 0, true, &pool->caller_sleeps);
}
