/* Kernel folders: kernels that are made of data, the second implementation of the contract in kernels/kernel.h.
 *
 * A folder has kernel.json, a source for each kind of device that the kernel runs on, and a reference. It is read once, whole, and
 * checked as far as that can be without a problem; what is wrong is said by file and place in it. Nothing here compiles or touches
 * a device: sources, defines and evaluated launches are handed to the runner that does.
 *
 * kernel.json is one object; members that are not listed here are errors, and so are repeated ones. EXPR is an expression
 * (kernels/expression.h) as a text, or a whole number. Expressions may use fields; where it says so device traits, too:
 * kind units wave cache arch shared_block threads_block registers memory; and where it says "all", knobs as well.
 *
 *   "name"       letters, digits and _, a letter or _ first; no built-in kernel has it
 *   "help"       optional; a line for people
 *   "fields"     1 to 32 of {"name", "help", and either "min", "max" or "choices": [up to 8 words]; optional: "default", or
 *                "same_as": an earlier field; "scale": true, for one field of numbers from 0 up, along which neighbours serve}
 *   "checks"     optional; up to 32 of {"rule": EXPR, "why": what a caller reads whose problem is refused}
 *   "knobs"      0 to 16 of {"name", "help", "values": [1 to 32 whole numbers, or words]; optional: "kinds": [of device; else it is
 *                on all], "changes_bits": true, if it can change a result's bits}
 *   "space"      optional; up to 64 rules over all: {"rule": EXPR, "why"} leaves out configs for which it does not hold, and
 *                {"rule": EXPR, "prune": why} keeps them as members that are not tried. What names a knob that a kind of device does
 *                not have is no rule there
 *   "default"    {KNOB: EXPR} of traits and fields, for each knob; a word is written "'row'"
 *   "order"      optional; up to 8 EXPR over all: of tied configs the one wins whose numbers are less, the first first; then
 *                that whose values come first in the knobs' lists
 *   "buffers"    1 to 8 of {"name", "role": "in", "out", "inout" or "scratch", "type": an element type or a field whose choices
 *                are such, "length": EXPR; optional: "rows": EXPR, else 1; "stride": EXPR, elements from row to row, else the
 *                length; "fill": "normal", "uniform", "zeros", "index" or "bits"; of an "out" "alias": an "in" buffer that may be
 *                the same memory}. An "in" or "inout" that has no fill has "normal"; a scratch that has none begins with anything
 *   "sources"    {KIND: {"file"; optional: "defines": {MACRO: EXPR over all}, "options": [of fast-math no-fma flush-denormals
 *                c++20]}, or the name of another kind whose source it is, too}. A text is defined as the word that it is
 *   "launch"     {KIND: [1 to 4 steps], or the name of another kind}, for the same kinds; a step is {"symbol", "grid": [1 to 3 EXPR],
 *                "block": [1 to 3 EXPR], "arguments"; optional: "cluster": [1 to 3 EXPR], "shared": EXPR, bytes}, over all.
 *                Functions for a GPU are extern "C", and no runner launches clusters yet.
 *                On a CPU there is no block, cluster or shared: the function is called once for each block of the grid, with a
 *                `const int64_t *` to that block's three indices before its arguments
 *   "reference"  {"file", "symbol", "arguments"}: a C function that computes rows [first, last) of all outputs: its parameters are
 *                int64_t first, int64_t last, then the arguments. Or {"config": {KNOB: EXPR}} as "default": what other configs
 *                are held to
 *   "tolerance"  optional; {TYPE: {"relative", "absolute"}} of outputs: numbers; else kernels/element.h has them
 *   "bytes", "flops"  optional EXPR, of one launch; else bytes are those of the buffers but scratch
 *
 * Arguments are an array of up to 32: the name of a buffer, or {TYPE: EXPR} with a type of i32 u32 i64 u64 f32 f64; of the last
 * two also a JSON number: {"f32": 1e-5}. Those of the reference have fields only; a buffer is an array of double there, of
 * int64_t if its elements are integers, without gaps between rows.
 *
 * All functions but ft_folder_open and ft_folder_parse are pure: from any thread, and without allocation but in ft_kernel.space.
 * Functions return 0, or -1 with the error filled in. */
#ifndef FLYTUNE_KERNELS_FOLDER_FOLDER_H
#define FLYTUNE_KERNELS_FOLDER_FOLDER_H

#include <sys/types.h>

#include "kernels/kernel.h"

enum {
	FT_FOLDER_JSON_MAX = 1 << 20, /* bytes of kernel.json */
	FT_FOLDER_FILE_MAX = 4 << 20, /* of any other file */
	FT_FOLDER_FILES_MAX = 32,
	FT_FOLDER_TOTAL_MAX = 16 << 20, /* bytes of all files */
	FT_FOLDER_STEPS_MAX = 4,
	FT_FOLDER_ARGUMENTS_MAX = 32,
	FT_FOLDER_OPTIONS_MAX = 4,
	FT_FOLDER_RULES_MAX = 64,
	FT_FOLDER_WORK = 1 << 22, /* rules evaluated, and configs, in the making of a space */
	FT_FOLDER_SPAN_LOG2 = 46, /* bytes of all buffers, at most */
};

struct ft_folder;

/* What a folder is read as. */
struct ft_folder_trust {
	bool wanted; /* refuse a folder, or a file in it, that another than root or `owner` owns or may write to */
	uid_t owner;
};

/* Reads kernel.json in the folder at `path`, the files that it names, and those that these include by quotes. Links are refused, and
 * all that is no regular file; `path` itself may be a link unless trust is wanted. `trust` may be NULL. NULL and an error if
 * anything is wrong. */
struct ft_folder *ft_folder_open(
        const char *path, const struct ft_folder_trust *trust, struct ft_error *error);
/* The same of a kernel.json in memory, of which no file is read: ft_folder_files has kernel.json alone. */
struct ft_folder *ft_folder_parse(const char *text, size_t length, struct ft_error *error);
void ft_folder_free(struct ft_folder *folder); /* NULL: nothing */

/* The kernel: lives as long as the folder. `default_config` gives the first values of the knobs whose expressions fail. */
const struct ft_kernel *ft_folder_kernel(const struct ft_folder *folder);

/* ---- files ---- */

struct ft_folder_file {
	char name[FT_KERNEL_SIZE];
	const char *text; /* `length` bytes, and a NUL behind them */
	size_t length;
};

/* kernel.json comes first. Who builds from these alone builds what the hashes say. */
const struct ft_folder_file *ft_folder_files(const struct ft_folder *folder, uint32_t *count);
/* Writes all of them, for this user alone, into a folder that has none of them. errno says why not, as the error does. */
int ft_folder_write(const struct ft_folder *folder, const char *path, struct ft_error *error);
/* The same of one more file. */
int ft_folder_write_file(
        const char *path, const char *name, const char *text, size_t length, struct ft_error *error);
/* A folder with all that is in it; no link is followed. */
void ft_folder_remove(const char *path);
/* Of names and contents of all files, in hexadecimal. */
const char *ft_folder_hash(const struct ft_folder *folder);

/* What is built for a kind of device. */
struct ft_folder_source {
	const char *file;
	char hash[FT_HASH_SIZE]; /* of this file and what it includes, the reference, and kernel.json */
	uint32_t option_count;
	const char *option[FT_FOLDER_OPTIONS_MAX]; /* as that kind's compiler takes it: nvrtc, hiprtc, cc */
	uint32_t symbol_count;
	const char *symbol[FT_FOLDER_STEPS_MAX]; /* each once */
};

/* NULL: the kernel is not for such devices. */
const struct ft_folder_source *ft_folder_source(const struct ft_folder *folder, const char *device_kind);
/* What is fixed when a config is built for a problem. */
int ft_folder_defines(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_defines *defines,
        struct ft_error *error);

/* ---- problems ---- */

/* What "checks" say of a whole problem: 1 if they take it; 0 if one does not, with what the caller reads; -1 if an expression
 * fails. Whether sizes can be computed is not looked at: ft_kernel.check does both. */
int ft_folder_takes(const struct ft_folder *folder, const struct ft_problem *problem, struct ft_error *error);

/* What the expressions and arguments for a kind of device name, for who wrote them: bit i of the first three is the i-th of the
 * kind's schema, of the last the i-th buffer. */
struct ft_folder_uses {
	uint32_t fields;         /* that anything names */
	uint32_t knobs_of_rules; /* of "space" */
	uint32_t knobs_of_code;  /* of defines and launches */
	uint32_t buffers;        /* that are arguments of a step */
};

void ft_folder_uses(const struct ft_folder *folder, const char *device_kind, struct ft_folder_uses *uses);

/* ---- space ---- */

/* How many configs a problem has on a device, and why no more. */
struct ft_folder_count {
	uint64_t members; /* those that are pruned, too */
	uint64_t work;    /* that it took, also if it failed */
	uint32_t rule_count;
	const char *rule[FT_FOLDER_RULES_MAX]; /* as it is written */
	const char *why[FT_FOLDER_RULES_MAX];
	bool prunes[FT_FOLDER_RULES_MAX];
	/* Configs for which it was the first that did not hold: left out or pruned. UINT64_MAX: that many or more. */
	uint64_t excluded[FT_FOLDER_RULES_MAX];
};

/* Fails if an expression does, or if there is more to be done than `work`, which is at most FT_FOLDER_WORK. */
int ft_folder_count(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, uint64_t work, struct ft_folder_count *count, struct ft_error *error);
/* As ft_kernel.default_config; fails if an expression does, or gives what is no value of the knob. */
int ft_folder_default(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config, struct ft_error *error);

/* ---- what a launch works with ---- */

enum ft_folder_role { FT_FOLDER_IN, FT_FOLDER_OUT, FT_FOLDER_INOUT, FT_FOLDER_SCRATCH };
enum ft_folder_fill {
	FT_FOLDER_NORMAL,
	FT_FOLDER_UNIFORM,
	FT_FOLDER_ZEROS,
	FT_FOLDER_INDEX,
	FT_FOLDER_BITS,
	FT_FOLDER_UNFILLED, /* an output or a scratch that begins with anything */
};

struct ft_folder_buffer {
	const char *name;
	enum ft_folder_role role;
	enum ft_dtype type;
	enum ft_folder_fill fill;
	uint64_t rows, length, stride;
	bool has_alias; /* of an output: it may be the memory of the input `alias` */
	uint32_t alias;
	double relative, absolute; /* of an output, as those of struct ft_tensor */
};

struct ft_folder_buffers {
	uint64_t span; /* bytes of all; more than are allowed fail. 0: an expression failed */
	uint32_t count;
	struct ft_folder_buffer buffer[FT_TENSORS_MAX];
};

int ft_folder_buffers(const struct ft_folder *folder, const struct ft_problem *problem,
        struct ft_folder_buffers *buffers, struct ft_error *error);
/* Operations of one launch; 0 if the folder does not say. */
uint64_t ft_folder_flops(const struct ft_folder *folder, const struct ft_problem *problem);

enum ft_scalar { FT_SCALAR_I32, FT_SCALAR_U32, FT_SCALAR_I64, FT_SCALAR_U64, FT_SCALAR_F32, FT_SCALAR_F64 };
const char *ft_scalar_name(enum ft_scalar type); /* "i32" */

struct ft_folder_argument {
	bool is_buffer;
	uint32_t buffer;     /* which: a pointer to its row 0 */
	enum ft_scalar type; /* of what is no buffer */
	int64_t number;      /* of the first four types; fits */
	double real;         /* of the last two */
};

struct ft_folder_arguments {
	uint32_t count;
	struct ft_folder_argument argument[FT_FOLDER_ARGUMENTS_MAX];
};

struct ft_folder_step {
	const char *symbol;
	uint64_t grid[3];    /* blocks; at least 1 each, as are the next two */
	uint64_t block[3];   /* threads of a block; 1 on a CPU */
	uint64_t cluster[3]; /* blocks of a cluster; 1: there is none */
	uint64_t shared;     /* bytes of dynamic shared memory */
	struct ft_folder_arguments arguments;
};

struct ft_folder_launch {
	uint32_t count;
	struct ft_folder_step step[FT_FOLDER_STEPS_MAX];
};

/* Fails where the device could not launch it: by the traits, and by what all devices of the kind can. */
int ft_folder_launch(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_folder_launch *launch,
        struct ft_error *error);

/* ---- the reference ---- */

struct ft_folder_reference {
	const char *file; /* NULL: it is a config, of ft_folder_reference_config */
	const char *symbol;
	uint64_t rows; /* of which [first, last) is computed: those of the first output */
	struct ft_folder_arguments arguments;
};

int ft_folder_reference(const struct ft_folder *folder, const struct ft_problem *problem,
        struct ft_folder_reference *reference, struct ft_error *error);
int ft_folder_reference_config(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config, struct ft_error *error);

#endif
