/* A kernel as the host knows it: the schema of its problems, its knobs, its space and its default.
 *
 * Pure functions and constant data, linked by daemon, client and runners alike; nothing here touches a
 * device. A kernel that only a foreign runner knows is described by a schema that came with that runner's
 * hello; it has no functions, and `fallback` for a default. */
#ifndef FLYTUNE_KERNELS_KERNEL_H
#define FLYTUNE_KERNELS_KERNEL_H

#include "proto/messages.h"
#include "proto/value.h"

enum { FT_CHOICES_MAX = 8, FT_KNOB_VALUES_MAX = 32 };

struct ft_schema_field_def {
	char name[FT_NAME_SIZE];
	bool is_text;
	int64_t min, max;                          /* of a number */
	char choice[FT_CHOICES_MAX][FT_TEXT_SIZE]; /* of a text; ends at the first empty one */
	char same_as[FT_NAME_SIZE]; /* its default is the value of this earlier field; "": none */
	bool has_default;           /* its default is default_number or default_text */
	int64_t default_number;
	char default_text[FT_TEXT_SIZE];
	char help[128];
};

struct ft_knob_def {
	char name[FT_NAME_SIZE];
	uint32_t count;
	int64_t value[FT_KNOB_VALUES_MAX]; /* all that any problem may use */
	bool changes_bits;                 /* it can change a result's bits */
	char help[128];
};

struct ft_schema {
	char kernel[FT_NAME_SIZE];
	uint64_t revision;         /* raised when schema, space or default change */
	char ladder[FT_NAME_SIZE]; /* the number field that `nearest` walks along; "": none */
	uint32_t field_count;
	struct ft_schema_field_def field[FT_FIELDS_MAX];
	uint32_t knob_count;
	struct ft_knob_def knob[FT_KNOBS_MAX];
};

/* What the host-side rules need to know of a device. A runner's hello says it; ft_traits_guess (host.h) stands in
 * before. */
struct ft_traits {
	char kind[16]; /* cpu, hip, cuda */
	char arch[64];
	uint64_t units;
	uint64_t wave;
	uint64_t cache;
};

struct ft_space {
	uint32_t count;
	uint32_t standard; /* index of the default, which is never pruned */
	/* In the order of the tie rule: a config that uses less of the machine first. */
	struct ft_config config[FT_SPACE_MAX];
	char pruned[FT_SPACE_MAX][64]; /* why it cannot win; "": it is tried */
};

struct ft_kernel {
	const struct ft_schema *(*schema)(
	        const char *device_kind); /* knobs differ by kind; fields never do */
	/* Relations between fields that a schema cannot say. The problem is whole and each field within its
	 * bounds. */
	int (*check)(const struct ft_problem *problem, struct ft_error *error);
	/* Bytes that one launch reads and writes, for limits and bandwidths. */
	uint64_t (*bytes)(const struct ft_problem *problem);
	/* The analytic default. Never fails for a checked problem. */
	void (*standard)(
	        const struct ft_problem *problem, const struct ft_traits *traits, struct ft_config *config);
	/* All configs for a problem, the default among them. */
	int (*space)(const struct ft_problem *problem, const struct ft_traits *traits, struct ft_space *space,
	        struct ft_error *error);
	/* Whether a config that came from elsewhere is a member of this problem's space (pruned ones are). */
	int (*check_config)(const struct ft_problem *problem, const struct ft_traits *traits,
	        const struct ft_config *config, struct ft_error *error);
};

extern const struct ft_kernel ft_kernel_rmsnorm;

/* The built-in kernel of that name, or NULL. */
const struct ft_kernel *ft_kernel_find(const char *name);

/* ---- what any schema gives ---- */

/* Checks every field against the schema, fills in defaults, and puts the fields in the schema's order. Errors
 * name the field, the value and the bound. Relations are left to ft_kernel.check. */
int ft_schema_complete(const struct ft_schema *schema, const struct ft_problem *given,
        struct ft_problem *whole, struct ft_error *error);

/* A problem's canonical form: fields at their default and the ladder left out, the rest by name in byte
 * order, "dtype=bf16 n=4096". Its XXH3 128-bit hash and the ladder's value are the problem's key. */
struct ft_problem_key {
	uint8_t hash[16]; /* big-endian canonical XXH128 */
	uint64_t ladder;  /* 0 if the kernel has none */
};
/* Returns the length as snprintf does. */
int ft_schema_canonical(
        const struct ft_schema *schema, const struct ft_problem *whole, char *text, size_t size);
void ft_schema_key(
        const struct ft_schema *schema, const struct ft_problem *whole, struct ft_problem_key *key);

/* Knob names and values are the schema's, all present, none twice; puts them in the schema's order. */
int ft_schema_check_config(const struct ft_schema *schema, const struct ft_config *given,
        struct ft_config *ordered, struct ft_error *error);

/* The schema as a runner's hello carries it, and back. */
void ft_schema_write(struct ft_writer *writer, const struct ft_schema *schema, const char *source_hash,
        const struct ft_config *fallback);
void ft_schema_write_knobs(
        struct ft_writer *writer, const struct ft_schema *schema); /* that part of it alone */
int ft_schema_read(const struct ft_runner_kernel *message, struct ft_schema *schema, struct ft_error *error);

/* The whole road from what a caller gave: completes, checks relations and limits. `schema` is the device
 * kind's. */
int ft_problem_admit(const struct ft_kernel *kernel, const struct ft_schema *schema,
        const struct ft_problem *given, struct ft_problem *whole, struct ft_error *error);

#endif
