/* rmsnorm: y = x * rsqrt(mean(x * x) + eps) * weight, for each of m rows of n elements.
 *
 * Semantics, which no config changes: f32 arithmetic (or better), one rounding at the end, to nearest even.
 * The order of a row's sum may vary with the config. Rows start `row_stride` elements apart in input and
 * output alike; y may be x. eps is an argument of the launch and no part of the problem.
 *
 * A CPU's knobs, space and default stand in space_cpu.c, a GPU's in space_gpu.c; every kind that is not "cpu"
 * is a GPU's. */
#ifndef FLYTUNE_KERNELS_RMSNORM_H
#define FLYTUNE_KERNELS_RMSNORM_H

#include "kernels/kernel.h"

#define RMSNORM_EPS 1e-5

enum {
	RMSNORM_REVISION = 1, /* of fields, spaces and defaults together */
	RMSNORM_N_MAX = 1048576,
	RMSNORM_BYTES_LOG2 = 46, /* the memory that one launch spans: 2^46 bytes at most */
};

/* Its tensors, in the order of a device launch's pointers. */
enum { RMSNORM_OUTPUT, RMSNORM_INPUT, RMSNORM_WEIGHT_INPUT, RMSNORM_TENSORS };

/* A checked problem, unpacked. */
struct rmsnorm_problem {
	uint64_t m, n, row_stride; /* in elements */
	enum ft_dtype dtype;       /* of x and y */
	enum ft_dtype weight;      /* the same, or f32 */
};

/* Unpacks a problem that is whole and checked. */
struct rmsnorm_problem rmsnorm_unpack(const struct ft_problem *problem);
struct ft_tensors rmsnorm_tensors(const struct rmsnorm_problem *problem);
extern const struct ft_reference rmsnorm_reference;
extern const struct ft_kernel ft_kernel_rmsnorm;

/* Bytes that one launch reads and writes: x and y once, the weight once. */
uint64_t rmsnorm_bytes(const struct rmsnorm_problem *problem);

/* ---- what differs by kind of device ---- */

/* The part of a schema that every kind shares. */
#define RMSNORM_SCHEMA_FIELDS                                                                    \
	.kernel = "rmsnorm", .revision = RMSNORM_REVISION, .scale = "m", .field_count = 5,       \
	.field = {                                                                               \
	        {.name = "m", .min = 1, .max = INT64_C(1) << 40, .help = "rows"},                \
	        {.name = "n", .min = 1, .max = RMSNORM_N_MAX, .help = "elements of a row"},      \
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

extern const struct ft_schema rmsnorm_cpu_schema;
void rmsnorm_cpu_default(
        const struct rmsnorm_problem *problem, const struct ft_traits *traits, struct ft_config *config);
int rmsnorm_cpu_space(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        struct ft_space *space, struct ft_error *error);
/* `config` has the schema's knobs, each of a value that the schema knows, in the schema's order. */
int rmsnorm_cpu_check_config(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error);

extern const struct ft_schema rmsnorm_gpu_schema;
void rmsnorm_gpu_default(
        const struct rmsnorm_problem *problem, const struct ft_traits *traits, struct ft_config *config);
int rmsnorm_gpu_space(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        struct ft_space *space, struct ft_error *error);
int rmsnorm_gpu_check_config(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error);

/* Fills a config with values in the order of a schema's knobs. */
void rmsnorm_config_of(const struct ft_schema *schema, const int64_t *value, struct ft_config *config);
/* Appends a member; `pruned` is why it cannot win, NULL or "" if it may. The default, once it comes by, is
 * never pruned and becomes space->default_index. */
int rmsnorm_space_add(struct ft_space *space, const struct ft_config *config,
        const struct ft_config *default_config, const char *pruned, struct ft_error *error);

#endif
