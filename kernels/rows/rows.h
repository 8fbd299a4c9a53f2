/* What kernels share that make each row of an output from the same row of an input and from weights, which all rows share, as
 * norms do: the problem and what it must hold to, its tensors, and a CPU's space. How
 * such a kernel runs on a CPU is launch_cpu.h; what its spaces on a GPU are made of, gpu.h, and its device source, rows.hip.
 *
 * Rows start `row_stride` elements apart in input and output alike; the output may be the input. Weights are packed. */
#ifndef FLYTUNE_KERNELS_ROWS_ROWS_H
#define FLYTUNE_KERNELS_ROWS_ROWS_H

#include "kernels/kernel.h"

enum {
	FT_ROWS_N_MAX = 1048576,
	FT_ROWS_BYTES_LOG2 = 46, /* the memory that one launch spans: 2^46 bytes at most */
};

/* The tensors of such a kernel, in the order of a device launch's pointers; behind them what other weights it has. */
enum { FT_ROWS_OUTPUT, FT_ROWS_INPUT, FT_ROWS_WEIGHT };

/* A checked problem, unpacked. */
struct ft_rows {
	uint64_t m, n, row_stride; /* in elements */
	enum ft_dtype dtype;       /* of input and output */
	enum ft_dtype weight;      /* of all weights: the same, or f32 */
};

/* The part of a schema that is the same for all of them. */
#define FT_ROWS_FIELDS                                                                           \
	.scale = "m", .field_count = 5,                                                          \
	.field = {                                                                               \
	        {.name = "m", .min = 1, .max = INT64_C(1) << 40, .help = "rows"},                \
	        {.name = "n", .min = 1, .max = FT_ROWS_N_MAX, .help = "elements of a row"},      \
	        {.name = "dtype",                                                                \
	                .is_text = true,                                                         \
	                .choice = {"f32", "f16", "bf16"},                                        \
	                .help = "type of input and output"},                                     \
	        {.name = "weight_dtype",                                                         \
	                .is_text = true,                                                         \
	                .choice = {"f32", "f16", "bf16"},                                        \
	                .same_as = "dtype",                                                      \
	                .help = "type of the weight: as dtype, or f32"},                         \
	        {.name = "row_stride",                                                           \
	                .min = 1,                                                                \
	                .max = INT64_C(1) << 40,                                                 \
	                .same_as = "n",                                                          \
	                .help = "elements from one row to the next, in input and output alike"}, \
	}

/* Unpacks a problem that is whole and checked. */
struct ft_rows ft_rows_unpack(const struct ft_problem *problem);

/* What a kernel of this kind says of itself. */
struct ft_rows_kernel {
	uint32_t weights;
	const char *weight_name[FT_TENSORS_MAX - FT_ROWS_WEIGHT]; /* as people read it */
	double absolute;                                          /* of the output's tolerance */
	const struct ft_schema *cpu, *gpu; /* FT_ROWS_FIELDS; the first with FT_ROWS_CPU_KNOBS */
	void (*gpu_default)(
	        const struct ft_rows *problem, const struct ft_traits *traits, struct ft_config *config);
	int (*gpu_space)(const struct ft_rows *problem, const struct ft_traits *traits,
	        struct ft_space *space, struct ft_error *error);
	/* `config` has the schema's knobs, each of a value that the schema knows, in the schema's order. */
	int (*gpu_check_config)(const struct ft_rows *problem, const struct ft_traits *traits,
	        const struct ft_config *config, struct ft_error *error);
};

void ft_rows_tensors(
        const struct ft_rows_kernel *kernel, const struct ft_rows *problem, struct ft_tensors *tensors);

/* The functions of a struct ft_kernel whose `own` is a struct ft_rows_kernel. */
const struct ft_schema *ft_rows_schema(const struct ft_kernel *kernel, const char *device_kind);
/* Holds each number to its bounds once more: the schema that admitted the problem may be one that a runner sent, and what
 * follows must neither overflow nor divide by zero. */
int ft_rows_check(const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_error *error);
uint64_t ft_rows_bytes(const struct ft_kernel *kernel, const struct ft_problem *problem);
void ft_rows_default(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config);
int ft_rows_space(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error);
int ft_rows_check_config(const struct ft_kernel *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error);
void ft_rows_problem_tensors(
        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_tensors *tensors);

/* The members of a struct ft_kernel that is one of `rows`. */
#define FT_ROWS_KERNEL(rows)                                                                             \
	.own = &(rows), .schema = ft_rows_schema, .check = ft_rows_check, .bytes = ft_rows_bytes,        \
	.default_config = ft_rows_default, .space = ft_rows_space, .check_config = ft_rows_check_config, \
	.tensors = ft_rows_problem_tensors

/* ---- spaces ---- */

/* Fills a config with values in the order of a schema's knobs. */
void ft_rows_config(const struct ft_schema *schema, const int64_t *value, struct ft_config *config);
/* Appends a member; `pruned` is why it cannot win, NULL or "" if it may. The default, once it comes by, is
 * never pruned and becomes space->default_index. */
int ft_rows_add(struct ft_space *space, const struct ft_config *config,
        const struct ft_config *default_config, const char *pruned, struct ft_error *error);
/* Fails with the knob, its value and a bound. */
int ft_rows_refuse(const struct ft_config *config, uint32_t knob, const char *bound, struct ft_error *error);

/* ---- on a CPU ---- */

enum {
	FT_ROWS_THREADS,
	FT_ROWS_TAKEN,
	FT_ROWS_UNROLL,
	FT_ROWS_STREAM,
	FT_ROWS_PREFETCH,
	FT_ROWS_SPLIT,
	FT_ROWS_KNOBS
};

/* The part of a CPU's schema behind the fields. */
#define FT_ROWS_CPU_KNOBS                                                                                \
	.knob_count = FT_ROWS_KNOBS,                                                                     \
	.knob = {                                                                                        \
	        [FT_ROWS_THREADS] = {.name = "threads",                                                  \
	                .count = 11,                                                                     \
	                .value = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512},                             \
	                .changes_bits = true, /* where they share a row */                               \
	                .help = "threads that work; 0 is one for every usable core"},                    \
	        [FT_ROWS_TAKEN] = {.name = "rows",                                                       \
	                .count = 3,                                                                      \
	                .value = {1, 8, 64},                                                             \
	                .help = "rows that a thread takes at a time"},                                   \
	        [FT_ROWS_UNROLL] = {.name = "unroll",                                                    \
	                .count = 2,                                                                      \
	                .value = {2, 8},                                                                 \
	                .changes_bits = true,                                                            \
	                .help = "vectors that a step of the inner loops takes"},                         \
	        [FT_ROWS_STREAM] = {.name = "stream",                                                    \
	                .count = 2,                                                                      \
	                .value = {0, 1},                                                                 \
	                .help = "1: output goes past the caches"},                                       \
	        [FT_ROWS_PREFETCH] = {.name = "prefetch",                                                \
	                .count = 2,                                                                      \
	                .value = {0, 1},                                                                 \
	                .help = "1: the next row's input, and output that is not streamed, are fetched " \
	                        "early"},                                                                \
	        [FT_ROWS_SPLIT] = {.name = "split",                                                      \
	                .count = 2,                                                                      \
	                .value = {0, 1},                                                                 \
	                .changes_bits = true,                                                            \
	                .help = "1: the threads share each row"},                                        \
	}

/* `schema` has FT_ROWS_CPU_KNOBS; `bytes` is what a launch of the problem reads and writes. */
void ft_rows_cpu_default(const struct ft_schema *schema, const struct ft_rows *problem, uint64_t bytes,
        const struct ft_traits *traits, struct ft_config *config);
int ft_rows_cpu_space(const struct ft_schema *schema, const struct ft_rows *problem, uint64_t bytes,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error);
/* `config` has the schema's knobs, each of a value that the schema knows, in the schema's order. */
int ft_rows_cpu_check_config(const struct ft_schema *schema, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error);

#endif
