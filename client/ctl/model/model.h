/* Reads a published model configuration (a Hugging Face config.json) for the problems that the model's norms will pose, by
 * the model table. */
#ifndef FLYTUNE_CTL_MODEL_H
#define FLYTUNE_CTL_MODEL_H

#include <stddef.h>

#include "client/ctl/model/families.h"
#include "proto/value.h"

enum { MODEL_TYPE_SIZE = 64 };

/* A field as the command line has it. */
struct model_field {
	char option[FT_NAME_SIZE + 2]; /* "--n" */
	char *values;                  /* "4096", or a list */
};

struct model_norm {
	const char *name; /* "hidden" */
	char kernel[FAMILIES_TEXT_SIZE];
	size_t field_count;
	struct model_field field[FT_FIELDS_MAX];
};

struct model {
	char type[MODEL_TYPE_SIZE]; /* as its file names it; "": it does not */
	size_t count;
	struct model_norm *norm;
};

/* What the command line says of the problems. */
struct model_wanted {
	const char *tokens; /* a list of numbers */
	const char *dtype;  /* in place of the file's own; NULL: that one */
};

/* False with what is wrong with the file in `problem`, a sentence for people. The model points into the table, and is to be
 * freed either way. */
bool model_read(const struct families *families, const char *path, const struct model_wanted *wanted,
        struct model *model, char problem[FILE_PROBLEM_SIZE]);
void model_free(struct model *model);

#endif
