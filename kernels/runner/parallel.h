/* Work in pieces on all threads of a pool: who is done early takes more. */
#ifndef FLYTUNE_KERNELS_RUNNER_PARALLEL_H
#define FLYTUNE_KERNELS_RUNNER_PARALLEL_H

#include <stdbool.h>

#include "kernels/pool.h"

/* Calls piece(context, i) for each i below `count`, each once. None begins after `until_ns`, monotonic (0: all do): false if
 * any was left out for that. */
bool ft_parallel(struct ft_pool *pool, uint64_t until_ns, size_t count,
        void (*piece)(void *context, size_t index), void *context);

#endif
