/* The kernel contract: what a kernel says of itself for all else to need nothing of it by name.
 *
 * A built-in kernel is a folder kernels/NAME/ with a file reference.c, which is how the build finds it (it looks when it is
 * configured: `meson setup --reconfigure build` after the folder was made). Of the folder only the three structs below are
 * seen, under these names:
 *
 *   const struct ft_kernel ft_kernel_NAME            what every program knows of it
 *   const struct ft_kernel_cpu ft_kernel_cpu_NAME    its code on a CPU, linked by that runner alone
 *   const struct ft_kernel_gpu ft_kernel_gpu_NAME    its code on a GPU, linked by those runners alone
 *
 * and its meson.build sets what they are made of:
 *
 *   host_files         pure functions and constant data of struct ft_kernel
 *   reference_files    struct ft_reference, that the two runners' structs point to, compiled for speed in any build
 *   cpu_files          struct ft_kernel_cpu and its launch; the generated header NAME_cpu_source defines FT_CPU_SOURCE, their hash
 *   cpu_rows_files     inner loops, compiled once for each instruction set: kernels/isa.h
 *   gpu_files          struct ft_kernel_gpu; the generated header NAME_gpu_source has `source` and `check`, the texts of the two below
 *   gpu_source         the device source, for hiprtc, clang's HIP and nvrtc alike; several files are one behind the other
 *   gpu_reference      its reference on the device: runner/gpu/gpu_check.hip says what that has to define
 *
 * What several kernels share is in a folder that has no reference.c, as kernels/rows/.
 *
 * A kernel computes one output from inputs, row by row; a config chooses how, and never what. What a runner then
 * does with it is its own: it fills the inputs, looks that each config gives the right output and nothing but that, in
 * place too where that is allowed, compiles or resolves each, drops those that come to the same, and times the rest.
 *
 * Pure functions and constant data but for what runs a kernel; nothing else here touches a device. A kernel that only a
 * foreign runner knows is described by a schema that came with that runner's hello; it has no functions, and `fallback` for
 * a default. */
#ifndef FLYTUNE_KERNELS_KERNEL_H
#define FLYTUNE_KERNELS_KERNEL_H

#include "kernels/element.h"
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
	bool is_word;                      /* its values are words, else numbers */
	int64_t value[FT_KNOB_VALUES_MAX]; /* all that any problem may use */
	char word[FT_KNOB_VALUES_MAX][FT_WORD_SIZE];
	bool changes_bits; /* it can change a result's bits */
	char help[128];
};

struct ft_schema {
	char kernel[FT_KERNEL_SIZE];
	uint64_t revision;        /* raised when schema, space or default change */
	char scale[FT_NAME_SIZE]; /* the number field that `nearest` walks along; "": none */
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
	/* What bounds a launch; 0: not known. */
	uint64_t shared_block;  /* bytes of shared memory that a block may have */
	uint64_t threads_block; /* threads of a block */
	uint64_t registers;     /* of a block */
	uint64_t memory;        /* bytes of the device's */
};

struct ft_space {
	uint32_t count;
	uint32_t default_index; /* index of the default, which is never pruned */
	/* In the order of the tie rule: a config that uses less of the machine first. */
	struct ft_config config[FT_SPACE_MAX];
	char pruned[FT_SPACE_MAX][64]; /* why it cannot win; "": it is tried */
	/* Not 0: there are more members than fit. The default alone is listed, and so many can win; ft_kernel.members has them. */
	uint32_t unlisted;
};

/* The members of a space that can win, however many, in the order of the tie rule. */
struct ft_members {
	uint32_t count, knobs;
	uint32_t default_index;
	uint8_t *
	        row; /* `count` times `knobs`: a member's values, as indices into the knobs of the schema; free() it */
};

/* ---- the data of a launch ---- */

enum { FT_TENSORS_MAX = 8, FT_ROW_KNOWN = 4 };

enum ft_role {
	FT_INPUT_ROWS,   /* an input of which a row of the output needs the same row alone; timed cold */
	FT_INPUT,        /* any other that is as large as an output; timed cold */
	FT_INPUT_SHARED, /* a small one that every launch needs, as a weight; timed as warm as it stays */
	FT_OUTPUT,
	FT_INOUT,   /* an output that is filled as an input is before each launch, outside of what is timed */
	FT_SCRATCH, /* room to work in, of which nothing is kept; timed as warm as it stays */
};

/* What inputs are filled with, at random but alike for a seed where numbers are drawn. */
enum ft_fill {
	FT_FILL_NUMBERS, /* of one magnitude, either sign, never 0 */
	FT_FILL_ROWS, /* rows of different magnitudes, some of them large, tiny, wide, sparse, far from 0, or 0 */
	FT_FILL_NORMAL,  /* normally distributed, mean 0, deviation 1 */
	FT_FILL_UNIFORM, /* in [0, 1) */
	FT_FILL_ZEROS,
	FT_FILL_INDEX, /* an element's place in its row */
	FT_FILL_BITS,  /* any bits at all */
};

struct ft_tensor {
	const char *name; /* as people read it: "weight" */
	enum ft_role role;
	enum ft_dtype type;
	enum ft_fill fill;
	uint64_t rows, length; /* elements of a row */
	uint64_t stride; /* elements from row to row, at least `length`; what lies between is nobody's */

	/* Of an output. An element may be off from the reference by `absolute` and, beyond that, by `relative`
	 * as compare.h counts it. */
	double relative, absolute;
	bool in_place;  /* the output may be the input `alias`, which has the same shape and type then */
	uint32_t alias; /* which */
	bool is_filled; /* scratch: with `fill` before each launch, outside of what is timed; else with anything */
};

/* A kernel over rows has one output and one input of its rows, of the same shape, and any number of shared inputs (compare.h:
 * ft_tensors_are_rows). */
struct ft_tensors {
	uint32_t count;
	struct ft_tensor tensor[FT_TENSORS_MAX];
};

/* Bytes from the first to behind the last element, what lies between rows in it; UINT64_MAX if they are more than can be
 * counted. */
uint64_t ft_tensor_span(const struct ft_tensor *tensor);
/* Of all of them: what a launch takes of memory. */
uint64_t ft_tensors_span(const struct ft_tensors *tensors);

/* The output in float64, before any rounding, by plain loops. data[i] points at row 0 of tensor i, of which only the row that
 * is asked for is read. The tensors say the shape: fewer rows than the problem has, or packed ones, are as good. From any
 * thread. */
struct ft_reference {
	/* What all elements of a row need to know, as its sum. */
	void (*row)(const struct ft_tensors *tensors, const void *const *data, uint64_t row,
	        double known[FT_ROW_KNOWN]);
	/* Elements [first, first + count) of that row. */
	void (*values)(const struct ft_tensors *tensors, const void *const *data, uint64_t row,
	        const double known[FT_ROW_KNOWN], uint64_t first, uint64_t count, double *want);
};

/* ---- the kernel ---- */

struct ft_kernel {
	const char *name;
	const char *help; /* a line for people; "": none */
	const void *own;  /* what its functions know of it */
	/* Knobs differ by kind of device; fields never do. */
	const struct ft_schema *(*schema)(const struct ft_kernel *kernel, const char *device_kind);
	/* Relations between fields that a schema cannot say. The problem is whole and each field within its
	 * bounds. */
	int (*check)(
	        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_error *error);
	/* Bytes that one launch reads and writes, for bandwidths; what lies between rows is not in it. */
	uint64_t (*bytes)(const struct ft_kernel *kernel, const struct ft_problem *problem);
	/* The analytic default. Never fails for a checked problem. */
	void (*default_config)(const struct ft_kernel *kernel, const struct ft_problem *problem,
	        const struct ft_traits *traits, struct ft_config *config);
	/* All configs for a problem, the default among them; or no more than that one: ft_space.unlisted. */
	int (*space)(const struct ft_kernel *kernel, const struct ft_problem *problem,
	        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error);
	/* Whether a config that came from elsewhere is a member of this problem's space (pruned ones are). */
	int (*check_config)(const struct ft_kernel *kernel, const struct ft_problem *problem,
	        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error);
	/* Of a kernel whose spaces may be large; NULL of others. Two spaces of one problem on one device are alike where these
	 * texts are. */
	const char *space_text;
	/* Whether a config, its knobs in the schema's order, is a member that can win. */
	bool (*tries)(const struct ft_kernel *kernel, const struct ft_problem *problem,
	        const struct ft_traits *traits, const struct ft_config *config);
	int (*members)(const struct ft_kernel *kernel, const struct ft_problem *problem,
	        const struct ft_traits *traits, struct ft_members *rows, struct ft_error *error);
	/* Of a checked problem. */
	void (*tensors)(
	        const struct ft_kernel *kernel, const struct ft_problem *problem, struct ft_tensors *tensors);
};

/* ---- on a CPU ---- */

struct ft_pool;

struct ft_kernel_cpu {
	const char *name;
	const char *source;                   /* hash of all that it was compiled from */
	const void *own;                      /* what its functions know of it */
	const struct ft_reference *reference; /* of a kernel over rows */
	size_t plan_size;                     /* bytes */
	/* A config resolved for a problem on that device: what is really done. `plan` comes zeroed. */
	void (*resolve)(const struct ft_kernel_cpu *code, const struct ft_problem *problem,
	        const struct ft_config *config, const struct ft_traits *traits, void *plan);
	/* The plan in words: two with the same ones do the same work, so only one of them is timed. */
	void (*describe)(const void *plan, char *text, size_t size);
	/* The first `rows` rows, of a kernel that is not over rows all; on a pool of as many threads as cores; data[i] is row 0
	 * of tensor i. Returns when all is written. The only call in a window that is timed. */
	void (*run)(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows);
};

/* ---- on a GPU ---- */

enum { FT_DEFINES_MAX = 24, FT_DEFINE_SIZE = 48, FT_ARGUMENTS_MAX = 32, FT_STEPS_MAX = 4 };

/* Options of the form -DNAME=VALUE. */
struct ft_defines {
	uint32_t count;
	char text[FT_DEFINES_MAX][FT_DEFINE_SIZE];
};

struct ft_argument {
	enum {
		FT_ARGUMENT_TENSOR,
		FT_ARGUMENT_INT32,
		FT_ARGUMENT_INT64,
		FT_ARGUMENT_FLOAT,
		FT_ARGUMENT_DOUBLE
	} kind;
	union {
		uint32_t tensor; /* which: a pointer to its row 0 */
		int32_t int32;
		int64_t int64;
		float float32;
		double float64;
	};
};

struct ft_step {
	char symbol[64]; /* of the function */
	unsigned grid[3], block[3];
	unsigned shared; /* bytes of dynamic shared memory */
	uint32_t count;
	struct ft_argument argument[FT_ARGUMENTS_MAX]; /* in order */
};

/* One step after the other. */
struct ft_launch {
	uint32_t count;
	struct ft_step step[FT_STEPS_MAX];
	/* How the grid of a kernel over rows was chosen, which has one step, and both in x alone: rows that a block takes at once,
	 * and what the blocks were cut to. So its code serves any number of rows. 0 of any other. */
	unsigned rows, blocks_limit;
};

/* What a run-time compiler is given. All texts end with NUL. */
struct ft_gpu_source {
	const char *name; /* as the compiler calls it in its messages */
	const char *text;
	uint32_t include_count; /* files that it may include by quotes; no others are there */
	const char *const *include_name, *const *include;
};

struct ft_kernel_gpu {
	const char *name;
	const void *own; /* what its functions know of it */
	/* NULL: it is not over rows, and its outputs are held on the host against what they have to be. */
	const struct ft_reference *reference;
	struct ft_gpu_source source;
	const char *check; /* source of what verifies it on the device, and times it */
	const char *hash;  /* of all that it is built from; NULL: of the source alone */
	const char *
	        arguments; /* in words, for who launches it without flytune: "y: pointer, m: int64"; NULL: nobody */
	uint32_t option_count; /* of the compiler, besides those that all have */
	const char *const *option;
	/* What makes a config's code: all of the problem that is fixed when it is built, and all knobs that are. FT_FAULT, which
	 * tests define beside them, makes it wrong: see a device source. */
	int (*defines)(const struct ft_kernel_gpu *code, const struct ft_problem *problem,
	        const struct ft_traits *traits, const struct ft_config *config, struct ft_defines *defines,
	        struct ft_error *error);
	/* Fails where the device could not launch it. */
	int (*launch)(const struct ft_kernel_gpu *code, const struct ft_problem *problem,
	        const struct ft_traits *traits, const struct ft_config *config, struct ft_launch *launch,
	        struct ft_error *error);
};

/* ---- the built-in kernels ---- */

/* Generated from the folders; each ends with NULL. */
extern const struct ft_kernel *const ft_kernels[];
extern const struct ft_kernel_cpu *const ft_kernels_cpu[];
extern const struct ft_kernel_gpu *const ft_kernels_gpu[];

/* The built-in kernel of that name, or NULL. */
const struct ft_kernel *ft_kernel_find(const char *name);

/* ---- what any schema gives ---- */

/* Checks every field against the schema, fills in defaults, and puts the fields in the schema's order. Errors
 * name the field, the value and the bound. Relations are left to ft_kernel.check. */
int ft_schema_complete(const struct ft_schema *schema, const struct ft_problem *given,
        struct ft_problem *whole, struct ft_error *error);

/* A problem's canonical form: fields at their default and the scale field left out, the rest by name in byte
 * order, "dtype=bf16 n=4096". Its XXH3 128-bit hash and the scale field's value are the problem's key. */
struct ft_problem_key {
	uint8_t hash[16]; /* big-endian canonical XXH128 */
	uint64_t scale;   /* 0 if the kernel has none */
};
/* Returns the length as snprintf does. */
int ft_schema_canonical(
        const struct ft_schema *schema, const struct ft_problem *whole, char *text, size_t size);
void ft_schema_key(
        const struct ft_schema *schema, const struct ft_problem *whole, struct ft_problem_key *key);

/* Knob names and values are the schema's, all present, none twice; puts them in the schema's order. `ordered` is another
 * than `given`, and in pieces after a failure. */
int ft_schema_check_config(const struct ft_schema *schema, const struct ft_config *given,
        struct ft_config *ordered, struct ft_error *error);

/* The config of a row of struct ft_members. */
void ft_schema_member(const struct ft_schema *schema, const uint8_t *row, struct ft_config *config);

/* The schema as a runner's hello carries it, and back. */
void ft_schema_write(struct ft_writer *writer, const struct ft_schema *schema, const char *source_hash,
        const struct ft_config *fallback);
/* These parts of it alone. */
void ft_schema_write_fields(struct ft_writer *writer, const struct ft_schema *schema);
void ft_schema_write_knobs(struct ft_writer *writer, const struct ft_schema *schema);
int ft_schema_read(const struct ft_runner_kernel *message, struct ft_schema *schema, struct ft_error *error);

/* The whole road from what a caller gave: completes, checks relations and limits. `schema` is the device
 * kind's. */
int ft_problem_admit(const struct ft_kernel *kernel, const struct ft_schema *schema,
        const struct ft_problem *given, struct ft_problem *whole, struct ft_error *error);

#endif
