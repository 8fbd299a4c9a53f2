/* What the files of this room share: a folder as it was read. folder.c opens and frees it and is the kernel; fields.c,
 * config.c, space.c, buffers.c, arguments.c and launch.c read a part of kernel.json each, and evaluate it; uses.c looks for names in
 * them; files.c has the bytes. */
#ifndef FLYTUNE_KERNELS_FOLDER_INTERNAL_H
#define FLYTUNE_KERNELS_FOLDER_INTERNAL_H

#include "kernels/expression.h"
#include "kernels/folder/folder.h"
#include "kernels/folder/read_json.h"

enum {
	CHECKS_MAX = 32,
	ORDER_MAX = 8,
	SENTENCE_MAX = 200, /* bytes of a rule's why */
	PRUNE_MAX = 63,     /* of one that travels with each config */
	SYMBOL_MAX = 127,
	AXES = 3,
};

enum kind { KIND_CPU, KIND_HIP, KIND_CUDA, KINDS };
extern const char *const kind_names[KINDS];
enum kind kind_named(const char *name); /* what is none of them is taken for a cuda device */

/* Their slots follow those of the fields. */
enum trait {
	TRAIT_KIND,
	TRAIT_ARCH,
	TRAIT_UNITS,
	TRAIT_WAVE,
	TRAIT_CACHE,
	TRAIT_SHARED_BLOCK,
	TRAIT_THREADS_BLOCK,
	TRAIT_REGISTERS,
	TRAIT_MEMORY,
	TRAITS,
};

/* ---- expressions, with where they stand ---- */

/* Which names one may use; each has all of those before. */
enum reach { REACH_FIELDS, REACH_TRAITS, REACH_ALL };

struct values {
	union ft_expression_value slot[FT_SCOPE_MAX];
};

struct formula {
	struct ft_expression *expression; /* NULL: there is none */
	char place[PLACE_SIZE];
};

int formula_read(struct formula *formula, const struct ft_folder *folder, enum reach reach,
        const struct place *place, const json_t *value, enum ft_expression_type wanted,
        struct ft_error *error);
/* The member `name` of an object, if it has one. */
int formula_read_member(struct formula *formula, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, const char *name, struct ft_error *error);
void formula_free(struct formula *formula);
/* A number within bounds. */
int formula_number(const struct formula *formula, const struct values *values, int64_t least, int64_t most,
        int64_t *result, struct ft_error *error);
/* The number, or `otherwise` where there is no expression. */
int formula_number_or(const struct formula *formula, const struct values *values, int64_t otherwise,
        int64_t least, int64_t most, uint64_t *result, struct ft_error *error);
int formula_holds(
        const struct formula *formula, const struct values *values, bool *holds, struct ft_error *error);
int formula_text(const struct formula *formula, const struct values *values, const char **text,
        struct ft_error *error);
/* Whether devices of this kind have all knobs in it; the other fails and names the one that they do not have. */
bool formula_applies(const struct ft_folder *folder, const struct formula *formula, enum kind kind);
int formula_check_kind(const struct formula *formula, const struct ft_folder *folder, enum kind kind,
        struct ft_error *error);

struct rule {
	struct formula formula;
	const char *text, *why; /* the document's */
	bool prunes;
};

/* ---- the folder ---- */

struct knob {
	unsigned kinds; /* bit 1 << kind: such devices have it */
	struct ft_knob_def def;
	struct formula usual, reference; /* its value in the default, and in a reference that is a config */
};

struct buffer {
	char name[FT_NAME_SIZE];
	enum ft_folder_role role;
	enum ft_folder_fill fill;
	enum ft_dtype type;  /* unless it is a field's */
	uint32_t type_field; /* FT_FIELDS_MAX: none */
	bool has_alias;
	uint32_t alias;
	struct formula rows, length, stride;
};

struct argument {
	bool is_buffer, is_real;
	uint32_t buffer;
	enum ft_scalar type;
	double real; /* of a JSON number */
	struct formula formula;
};

struct arguments {
	uint32_t count;
	struct argument argument[FT_FOLDER_ARGUMENTS_MAX];
};

struct step {
	const char *symbol;
	struct formula grid[AXES], block[AXES], cluster[AXES], shared;
	struct arguments arguments;
};

struct define {
	char name[FT_NAME_SIZE];
	bool is_text;
	struct formula formula;
};

struct target {
	struct ft_folder_source source; /* of a kind that the kernel is not for all is 0 */
	uint32_t define_count;
	struct define define[FT_DEFINES_MAX];
	uint32_t step_count;
	struct step step[FT_FOLDER_STEPS_MAX];
};

struct tolerance {
	bool is_given;
	double relative, absolute;
};

struct ft_folder {
	struct ft_kernel kernel;
	char name[FT_NAME_SIZE];
	char help[128];
	json_t *document; /* texts point into it */

	/* A name's slot in expressions: fields first, then traits, then knobs. */
	struct ft_scope scope;
	uint32_t field_count, knob_slot;
	struct ft_schema schema[KINDS];
	uint32_t knob_count;
	struct knob knob[FT_KNOBS_MAX];
	uint64_t absent[KINDS]; /* slots of the knobs that such devices do not have */

	uint32_t check_count, rule_count, order_count;
	struct rule check[CHECKS_MAX], rule[FT_FOLDER_RULES_MAX];
	struct formula order[ORDER_MAX];

	uint32_t buffer_count;
	struct buffer buffer[FT_TENSORS_MAX];
	struct tolerance tolerance[FT_DTYPES];
	struct formula bytes, flops;

	struct target target[KINDS];
	const char *reference_file, *reference_symbol; /* NULL: it is a config */
	struct arguments reference_arguments;

	uint32_t file_count;
	struct ft_folder_file file[FT_FOLDER_FILES_MAX];
	uint32_t includes[FT_FOLDER_FILES_MAX]; /* bit i: file i */
	char hash[FT_HASH_SIZE];
};

/* ---- parts of the document ---- */

int fields_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
int knobs_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
/* Puts what the kinds of devices have into their schemas. */
void schemas_make(struct ft_folder *folder);
/* Checks, space, default and order. */
int rules_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
/* An expression a knob: the default, or what a reference is. */
int knob_values_read(struct ft_folder *folder, const struct place *place, const json_t *object,
        bool is_reference, struct ft_error *error);
int buffers_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
int reference_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
/* Sources and launch. */
int targets_read(struct ft_folder *folder, const json_t *document, struct ft_error *error);
int arguments_read(struct arguments *arguments, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, struct ft_error *error);
void arguments_free(struct arguments *arguments);
/* The member "symbol" of an object: the name of a function, kept by the document. */
int symbol_read(const char **symbol, const struct place *in, const json_t *object, struct ft_error *error);
/* The member "file", likewise: one of the folder. */
int file_name_read(const char **file, const struct place *in, const json_t *object, struct ft_error *error);

/* ---- evaluation ---- */

void values_of_problem(
        const struct ft_folder *folder, const struct ft_problem *problem, struct values *values);
void values_of_traits(const struct ft_folder *folder, const struct ft_traits *traits, struct values *values);
/* The config has the schema's knobs, in its order. */
void values_of_config(const struct ft_folder *folder, enum kind kind, const struct ft_config *config,
        struct values *values);

int arguments_evaluate(const struct arguments *arguments, const struct values *values,
        struct ft_folder_arguments *evaluated, struct ft_error *error);
/* The knob at or behind *at that devices of this kind have, and *at is behind it then; NULL if there is none. */
const struct knob *config_knob(const struct ft_folder *folder, enum kind kind, uint32_t *at);
void config_set_knob(struct ft_knob_value *value, const struct ft_knob_def *def, uint32_t index);
int config_check(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error);
/* The same of one in the schema's order, where `values` has problem and traits. */
int config_check_rules(const struct ft_folder *folder, enum kind kind, struct values *values,
        const struct ft_config *config, struct ft_error *error);
int space_make(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error);
int space_members(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_members *rows, struct ft_error *error);
bool space_tries(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config);
uint32_t buffer_find(const struct ft_folder *folder, uint32_t count, const char *name);
void buffers_tensors(const struct ft_folder_buffers *buffers, struct ft_tensors *tensors);
int buffers_bytes(const struct ft_folder *folder, const struct ft_problem *problem, uint64_t *bytes,
        struct ft_error *error);

/* ---- files ---- */

/* A folder's descriptor, or -1. */
int files_open(const char *path, const struct ft_folder_trust *trust, struct ft_error *error);
/* A folder's kernel.json is read first, then, when it says which, its sources. */
int files_read_document(
        struct ft_folder *folder, int directory, const struct ft_folder_trust *trust, struct ft_error *error);
int files_read_sources(
        struct ft_folder *folder, int directory, const struct ft_folder_trust *trust, struct ft_error *error);
/* A copy of what is in memory. */
int files_add_document(struct ft_folder *folder, const char *text, size_t length, struct ft_error *error);
void files_free(struct ft_folder *folder);
/* All hashes: of the folder, and of what is built for each kind of device. */
void files_hash(struct ft_folder *folder);

#endif
