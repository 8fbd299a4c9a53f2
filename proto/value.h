/* Problems and configs: named values that travel unchanged through every part, whatever the kernel.
 *
 * Plain data, copied by assignment, owned by whoever holds it; but for a config that is a document, which points to it where
 * it was read: such a config lives no longer than that. */
#ifndef FLYTUNE_PROTO_VALUE_H
#define FLYTUNE_PROTO_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/error.h"

enum {
	FT_NAME_SIZE = 32,      /* of a field's or knob's name, with its NUL: [A-Za-z_][A-Za-z0-9_]* */
	FT_KERNEL_SIZE = 64,    /* of a kernel's name, with its NUL */
	FT_TEXT_SIZE = 129,     /* of a text value in a problem, with its NUL */
	FT_FIELDS_MAX = 32,     /* fields of a problem */
	FT_WORD_SIZE = 32,      /* of a knob's word, with its NUL */
	FT_KNOBS_MAX = 16,      /* knobs of a config */
	FT_DOCUMENT_MAX = 4096, /* bytes of a config that is a document */
	FT_CONFIG_TEXT_SIZE =
	        FT_KNOBS_MAX * (FT_NAME_SIZE + FT_WORD_SIZE), /* holds any formatted config of knobs */
	FT_PROBLEM_TEXT_SIZE =
	        FT_FIELDS_MAX * (FT_NAME_SIZE + FT_TEXT_SIZE), /* holds any formatted problem */
};

/* One field of a problem: an integer or a word such as "bf16". */
struct ft_field {
	char name[FT_NAME_SIZE];
	bool is_text;
	char text[FT_TEXT_SIZE];
	int64_t number; /* if !is_text */
};

/* What a caller has, in the words of the kernel's schema. */
struct ft_problem {
	uint32_t count;
	struct ft_field field[FT_FIELDS_MAX];
};

struct ft_knob_value {
	char name[FT_NAME_SIZE];
	int64_t value;
	char word[FT_WORD_SIZE]; /* "": it is `value`, else that is 0 */
};

/* One member of a kernel's space: named integers and words in the schema's order. Or, of a kernel of others, one JSON document,
 * which nothing here looks into: UTF-8 without NULs. */
struct ft_config {
	uint32_t count;           /* 0 of a document */
	uint32_t document_length; /* 0 of knobs */
	const char *document;     /* no NUL behind it */
	struct ft_knob_value knob[FT_KNOBS_MAX];
};

/* strcmp is called only where the first byte does not tell: names are compared by the dozen on the road of a lookup. */
static inline bool ft_name_same(const char *a, const char *b)
{
	return a[0] == b[0] && strcmp(a, b) == 0;
}

/* As snprintf of "%s", which takes five times as long. */
static inline void ft_text_copy(char *to, size_t size, const char *from)
{
	size_t length = strlen(from);

	if (length >= size)
		length = size - 1;
	memcpy(to, from, length);
	to[length] = '\0';
}

/* Nothing of it is copied but the fields that it has: a problem is large, and most are small. */
static inline void ft_problem_copy(struct ft_problem *to, const struct ft_problem *from)
{
	to->count = from->count;
	memcpy(to->field, from->field, from->count * sizeof(from->field[0]));
}

static inline void ft_config_copy(struct ft_config *to, const struct ft_config *from)
{
	memcpy(to, from, offsetof(struct ft_config, knob) + from->count * sizeof(from->knob[0]));
}

static inline void ft_config_clear(struct ft_config *config)
{
	config->count = 0;
	config->document_length = 0;
	config->document = NULL;
}

static inline bool ft_config_empty(const struct ft_config *config)
{
	return config->count == 0 && config->document_length == 0;
}

static inline bool ft_knob_same(const struct ft_knob_value *a, const struct ft_knob_value *b)
{
	return a->value == b->value &&
	        (a->word[0] == '\0' ? b->word[0] == '\0' : strcmp(a->word, b->word) == 0);
}

bool ft_name_valid(const char *name);
/* A kernel's: letters, digits and _ . / - , a letter or _ first. One that flytune has or finds in a folder has a plain name; a dot
 * or slash tells kernels of others, of which results are only recorded. */
bool ft_kernel_name_valid(const char *name);
/* The same for bytes without a NUL behind them; and whether they may be the text of a field. */
bool ft_name_valid_n(const char *name, size_t length);
bool ft_text_valid_n(const char *text, size_t length);
/* Of a knob: as a text of up to 31 bytes, but that a letter is first, so that no word looks like a number. */
bool ft_word_valid_n(const char *word, size_t length);
/* The one of `count` names that was meant by a word that is none of them; NULL if it is like none. */
const char *ft_meant_word(const char *word, const char *const *names, size_t count);

/* Sets a field, adding it if it is new. Fails on a bad name, too many fields, or a text that is not 1 to 128
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

/* Sets a knob, adding it if it is new. */
int ft_config_set(struct ft_config *config, const char *name, int64_t value, struct ft_error *error);
int ft_config_set_word(struct ft_config *config, const char *name, const char *word, struct ft_error *error);
const struct ft_knob_value *ft_config_find(const struct ft_config *config, const char *name);
bool ft_config_equal(const struct ft_config *a,
        const struct ft_config *b); /* same knobs in any order; or the same document */
/* "BLOCK_THREADS=256 layout=rows"; of a document its text */
int ft_config_format(const struct ft_config *config, char separator, char *text, size_t size);
/* The value of a knob as text, in `number` where it is one. */
const char *ft_knob_format(const struct ft_knob_value *knob, char number[24]);
/* Reads NAME=VALUE pairs parted by commas or spaces; a value is an integer or a word. */
int ft_config_parse(const char *text, struct ft_config *config, struct ft_error *error);

#endif
