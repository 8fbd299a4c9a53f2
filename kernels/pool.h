/* A pool of pinned threads that start on a task within a microsecond: they spin for a while before they
 * sleep. */
#ifndef FLYTUNE_KERNELS_POOL_H
#define FLYTUNE_KERNELS_POOL_H

#include <stddef.h>
#include <stdint.h>

struct ft_pool;

typedef void ft_pool_work(void *context, uint32_t worker);

/* `threads` workers, the caller of ft_pool_run being number 0. Worker i is pinned to cpu[i] unless `cpu` is
 * NULL; the caller pins itself. NULL when out of memory or threads. */
struct ft_pool *ft_pool_new(uint32_t threads, const int *cpu);
void ft_pool_free(struct ft_pool *pool);
uint32_t ft_pool_threads(const struct ft_pool *pool);
/* Runs work(context, i) for each i below `threads`, 0 on the caller's thread, and returns when all are done.
 * One run at a time. */
void ft_pool_run(struct ft_pool *pool, uint32_t threads, ft_pool_work *work, void *context);

#endif
