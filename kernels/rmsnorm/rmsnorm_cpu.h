/* rmsnorm on the CPU: the row kernels of each instruction set, and the launch that spreads rows over threads.
 */
#ifndef FLYTUNE_KERNELS_RMSNORM_RMSNORM_CPU_H
#define FLYTUNE_KERNELS_RMSNORM_RMSNORM_CPU_H

#include "kernels/isa.h"
#include "kernels/pool.h"
#include "kernels/rmsnorm/rmsnorm.h"

/* Element type and weight type. */
enum ft_rmsnorm_cpu_types {
	FT_RMSNORM_F32,
	FT_RMSNORM_F16,
	FT_RMSNORM_F16_W32,
	FT_RMSNORM_BF16,
	FT_RMSNORM_BF16_W32,
	FT_RMSNORM_TYPES
};

enum { FT_RMSNORM_UNROLLS = 3 /* 2, 4 and 8 vectors in flight */ };

/* The sum of the squares of n elements. Prefetches `own_out` for writing along the way unless it is NULL. */
typedef double ft_rmsnorm_cpu_sum(const void *in, size_t n, const void *own_out);
/* out = in * scale * weight, rounded once. Prefetches `next_in` along the way unless it is NULL. `out` may be
 * `in`. */
typedef void ft_rmsnorm_cpu_scale(
        const void *in, void *out, const void *weight, size_t n, float scale, const void *next_in);

struct ft_rmsnorm_cpu_rows {
	enum ft_isa isa;
	uint32_t lanes; /* f32 elements a vector */
	bool streams;   /* streaming stores are other stores */
	ft_rmsnorm_cpu_sum *sum[FT_RMSNORM_TYPES][FT_RMSNORM_UNROLLS];
	ft_rmsnorm_cpu_scale *scale[FT_RMSNORM_TYPES][FT_RMSNORM_UNROLLS][2]; /* [types][unroll][stream] */
};

/* Those of ft_isa_usable, in its order. */
size_t ft_rmsnorm_cpu_sets(const struct ft_rmsnorm_cpu_rows *sets[FT_ISAS]);

/* A config resolved for one problem: what is really done. Two equal plans do the same work. */
struct ft_rmsnorm_cpu_plan {
	enum ft_rmsnorm_cpu_types types;
	uint32_t threads;
	uint32_t unroll; /* 0, 1, 2 for 2, 4, 8 vectors */
	bool stream;
	bool next_input; /* prefetch the next row's input while this one is written */
	bool own_output; /* prefetch this row's output, for writing, while its squares are summed */
	bool split;      /* the threads share each row */
	uint64_t rows;   /* that a thread takes at a time */
};

/* A member of the CPU's space for a machine of `cores`, clipped to what can have an effect: no more threads
 * than tasks, no loop unrolled past a row, no next row to prefetch where there is one row. */
void ft_rmsnorm_cpu_resolve(const struct ft_rmsnorm_cpu_rows *set, const struct rmsnorm_problem *problem,
        const struct ft_config *config, uint32_t cores, struct ft_rmsnorm_cpu_plan *plan);

struct ft_rmsnorm_cpu_call {
	const void *in;
	void *out; /* may be `in` */
	const void *weight;
	size_t m, n;
	size_t stride; /* elements from row to row, in input and output alike */
	float eps;
};

/* Runs the whole problem on `pool`, which has at least plan->threads threads; returns when it is done. */
void ft_rmsnorm_cpu_run(struct ft_pool *pool, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_rmsnorm_cpu_plan *plan, const struct ft_rmsnorm_cpu_call *call);

#endif
