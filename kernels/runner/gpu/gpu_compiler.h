/* Compiles in processes of its own: this program started again, with a hidden word for an argument.
 *
 * A run-time compiler may hold one lock for a whole process, and may abort it; so there are as many processes
 * as cores, each with one compiler, and one that dies costs what it was compiling and nothing else. Used from
 * one thread. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_COMPILER_H
#define FLYTUNE_KERNELS_RUNNER_GPU_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel.h"

enum { GPU_WORKERS_MAX = 32, GPU_OPTIONS_MAX = 48 };

struct gpu_compiled {
	void *tag; /* of gpu_pool_submit */
	bool failed;
	struct ft_error error;
	uint8_t *data; /* the code object, the receiver's to free */
	size_t size;
	char *log; /* the receiver's to free; may be NULL */
	uint64_t build_ns;
};

struct gpu_pool;

/* At most `workers` processes (0: as many as this process may use cores, at most 16). They start when there
 * is work for them. */
int gpu_pool_open(struct gpu_pool **pool, unsigned workers, struct ft_error *error);
/* Ends what is being compiled, too. */
void gpu_pool_close(struct gpu_pool *pool);
/* Queues one; the source is the caller's until it was waited for or dropped, the rest is copied. `target` is for words in an error:
 * "this compiler does not know gfx1201". */
int gpu_pool_submit(struct gpu_pool *pool, void *tag, const struct ft_gpu_source *source, const char *target,
        const char *const *option, unsigned options, struct ft_error *error);
/* Waits for one: 1 and it, 0 if nothing is pending, -1 if no process can be started, FT_BACKEND_ENDED when `until_ns` has
 * come, monotonic; 0: never. */
int gpu_pool_wait(
        struct gpu_pool *pool, uint64_t until_ns, struct gpu_compiled *compiled, struct ft_error *error);

/* Forgets what was submitted and not yet waited for. */
void gpu_pool_drop(struct gpu_pool *pool);

#define GPU_WORKER_WORD "compile-for-parent"
/* The whole life of a helper process. */
int gpu_worker_main(void);

/* Takes out of the environment what would add options to a compiler or falsify its times. To be called first
 * thing by each process. */
void gpu_clear_environment(void);

#endif
