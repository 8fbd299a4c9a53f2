/* Problems and configs: named values that travel unchanged through every part, whatever the kernel.
 *
 * Plain data without pointers: copied by assignment, owned by whoever holds it. */
#ifndef FLYTUNE_PROTO_VALUE_H
#define FLYTUNE_PROTO_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/error.h"

enum {
	FT_NAME_SIZE = 32,  /* of a kernel's, field's or knob's name, with its NUL: [A-Za-z_][A-Za-z0-9_]* */
	FT_TEXT_SIZE = 32,  /* of a text value in a problem, with its NUL */
	FT_FIELDS_MAX = 16, /* fields of a problem */
	FT_KNOBS_MAX = 16,  /* knobs of a config */
	FT_CONFIG_TEXT_SIZE = FT_KNOBS_MAX * (FT_NAME_SIZE + 21), /* holds any formatted config */
	FT_PROBLEM_TEXT_SIZE =
	        FT_FIELDS_MAX * (FT_NAME_SIZE + FT_TEXT_SIZE), /* holds any formatted problem */
};

/* One field of a problem: an integer or a word such as "bf16". */
struct ft_field {
	char name[FT_NAME_SIZE];
	bool is_text;
	int64_t number; /* if !is_text */
	char text[FT_TEXT_SIZE];
};

/* What a caller has, in the words of the kernel's schema. */
struct ft_problem {
	uint32_t count;
	struct ft_field field[FT_FIELDS_MAX];
};

struct ft_knob_value {
	char name[FT_NAME_SIZE];
	int64_t value;
};

/* One member of a kernel's space: named integers in the schema's order. */
struct ft_config {
	uint32_t count;
	struct ft_knob_value knob[FT_KNOBS_MAX];
};

/* strcmp is called only where the first byte does not tell: names are compared by the dozen on the road of a lookup. */
static inline bool ft_name_same(const char *a, const char *b)
{
	return a[0] == b[0] && strcmp(a, b) == 0;
}

bool ft_name_valid(const char *name);
/* The same for bytes without a NUL behind them; and whether they may be the text of a field. */
bool ft_name_valid_n(const char *name, size_t length);
bool ft_text_valid_n(const char *text, size_t length);

/* Sets a field, adding it if it is new. Fails on a bad name, too many fields, or a text that is not 1 to 31
 * letters, digits and . _ : + - (so that "name=text name=text" can be taken apart again). */
int ft_problem_set_number(
        struct ft_problem *problem, const char *name, int64_t number, struct ft_error *error);
int ft_problem_set_text(
        struct ft_problem *problem, const char *name, const char *text, struct ft_error *error);
/* NULL if there is no such field. */
const struct ft_field *ft_problem_find(const struct ft_problem *problem, const char *name);
bool ft_problem_equal(const struct ft_problem *a, const struct ft_problem *b); /* same fields in any order */
/* "m=64 n=4096 dtype=bf16", fields parted by `separator`; cut to fit; returns the length as snprintf does. */
int ft_problem_format(const struct ft_problem *problem, char separator, char *text, size_t size);

int ft_config_set(struct ft_config *config, const char *name, int64_t value, struct ft_error *error);
const struct ft_knob_value *ft_config_find(const struct ft_config *config, const char *name);
bool ft_config_equal(const struct ft_config *a, const struct ft_config *b); /* same knobs in any order */
/* "BLOCK_THREADS=256 waves_per_eu=0" */
int ft_config_format(const struct ft_config *config, char separator, char *text, size_t size);
/* Reads NAME=INTEGER pairs parted by commas or spaces. */
int ft_config_parse(const char *text, struct ft_config *config, struct ft_error *error);

#endif
