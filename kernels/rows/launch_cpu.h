/* Kernels over rows on a CPU: inner loops of each instruction set (loops.h makes them), and the launch that spreads rows over
 * threads.
 *
 * A row is gone over twice: what all of its elements need is gathered, by one thread or in pieces by several, and then each
 * element is mapped. */
#ifndef FLYTUNE_KERNELS_ROWS_LAUNCH_CPU_H
#define FLYTUNE_KERNELS_ROWS_LAUNCH_CPU_H

#include "kernels/isa.h"
#include "kernels/pool.h"
#include "kernels/rows/rows.h"

/* Element type and weight type. */
enum ft_rows_types {
	FT_ROWS_F32,
	FT_ROWS_F16,
	FT_ROWS_F16_W32,
	FT_ROWS_BF16,
	FT_ROWS_BF16_W32,
	FT_ROWS_TYPES
};

enum {
	FT_ROWS_UNROLLS = 3, /* 2, 4 and 8 vectors in flight */
	FT_ROWS_PARTS = 3,
	FT_ROWS_SCALARS = 3,
};

/* Of n elements, what can be merged with that of others; any of its numbers may stay unset. Prefetches `own_out` for writing
 * along the way unless it is NULL. */
typedef void ft_rows_gather(const void *in, size_t n, const void *own_out, double part[FT_ROWS_PARTS]);
/* n elements of the output, rounded once. Prefetches `next_in` along the way unless it is NULL. `out` may be `in`. */
typedef void ft_rows_map(const void *in, void *out, const void *const *weight, size_t n,
        const float scalar[FT_ROWS_SCALARS], const void *next_in);

struct ft_rows_loops {
	enum ft_isa isa;
	uint32_t lanes; /* f32 elements a vector */
	bool streams;   /* streaming stores are other stores */
	ft_rows_gather *gather[FT_ROWS_TYPES][FT_ROWS_UNROLLS];
	ft_rows_map *map[FT_ROWS_TYPES][FT_ROWS_UNROLLS][2]; /* [types][unroll][stream] */
};

struct ft_rows_cpu {
	uint32_t weights;
	float eps;
	const struct ft_rows_loops *loops[FT_ISAS]; /* by instruction set; NULL: not compiled */
	/* Takes a further part of a row into one. */
	void (*merge)(double part[FT_ROWS_PARTS], const double other[FT_ROWS_PARTS]);
	/* What mapping needs to know of a row of n elements. */
	void (*settle)(const double part[FT_ROWS_PARTS], size_t n, float eps, float scalar[FT_ROWS_SCALARS]);
};

/* Declares the loops that a kernel's file makes under that prefix, and lists them. */
#if defined(__x86_64__)
#define FT_ROWS_DECLARE_LOOPS(prefix) \
	extern const struct ft_rows_loops prefix##_base, prefix##_v3, prefix##_v4
#define FT_ROWS_ALL_LOOPS(prefix)                                                                       \
	{                                                                                               \
		[FT_ISA_BASE] = &prefix##_base, [FT_ISA_V3] = &prefix##_v3, [FT_ISA_V4] = &prefix##_v4, \
	}
#else
#define FT_ROWS_DECLARE_LOOPS(prefix) extern const struct ft_rows_loops prefix##_base
#define FT_ROWS_ALL_LOOPS(prefix)               \
	{                                       \
		[FT_ISA_BASE] = &prefix##_base, \
	}
#endif

/* A config resolved for one problem: what is really done. Two that describe alike do the same work. */
struct ft_rows_plan {
	const struct ft_rows_cpu *kernel;
	const struct ft_rows_loops *loops;
	struct ft_rows problem;
	enum ft_rows_types types;
	uint32_t threads;
	uint32_t unroll; /* 0, 1, 2 for 2, 4, 8 vectors */
	bool stream;
	bool next_input; /* prefetch the next row's input while this one is written */
	bool own_output; /* prefetch this row's output, for writing, while it is gathered */
	bool split;      /* the threads share each row */
	uint64_t rows;   /* that a thread takes at a time */
};

/* A member of the CPU's space for a machine of `cores`, clipped to what can have an effect: no more threads
 * than tasks, no loop unrolled past a row, no next row to prefetch where there is one row. With the best loops that this CPU
 * has; or with some of kernel->loops. */
void ft_rows_resolve(const struct ft_rows_cpu *kernel, const struct ft_problem *problem,
        const struct ft_config *config, uint32_t cores, struct ft_rows_plan *plan);
void ft_rows_resolve_with(const struct ft_rows_cpu *kernel, const struct ft_rows_loops *loops,
        const struct ft_rows *problem, const struct ft_config *config, uint32_t cores,
        struct ft_rows_plan *plan);
/* As struct ft_kernel_cpu has them, of one whose `own` is a struct ft_rows_cpu, and of a struct ft_rows_plan. The pool has at least plan->threads threads. */
void ft_rows_resolve_code(const struct ft_kernel_cpu *code, const struct ft_problem *problem,
        const struct ft_config *config, const struct ft_traits *traits, void *plan);
void ft_rows_describe(const void *plan, char *text, size_t size);
void ft_rows_run(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows);

#endif
