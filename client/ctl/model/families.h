/* The model table: families of models, and the norms that each computes. models.json says it, as MODELS.md describes: the one
 * that flytune brings, then the host's and the user's own, whose families come first and replace those of the same name. */
#ifndef FLYTUNE_CTL_FAMILIES_H
#define FLYTUNE_CTL_FAMILIES_H

#include <jansson.h>
#include <stdbool.h>

#include "client/ctl/output/file.h"

enum { FAMILIES_MAX = 1024, FAMILIES_NORMS_MAX = 16, FAMILIES_TEXT_SIZE = 128 };

/* What was read, all of it valid. Begins as {0}. */
struct families {
	json_t *parts;    /* names of the parts of a file that may describe the language model */
	json_t *dtypes;   /* our name of an element's type by theirs */
	json_t *families; /* in the order in which they are tried */
};

/* All files that there are. False with what is wrong, by file, place in it, value and bound. */
bool families_read(struct families *families, char problem[FILE_PROBLEM_SIZE]);
/* One more file, which goes before what was read already. */
bool families_add(struct families *families, const char *path, char problem[FILE_PROBLEM_SIZE]);
void families_free(struct families *families);

#endif
