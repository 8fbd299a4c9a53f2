/* Reads a published model configuration (a Hugging Face config.json) for the RMS norms that the model will ask
 * for. */
#ifndef FLYTUNE_CTL_MODEL_H
#define FLYTUNE_CTL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "client/ctl/output/file.h"

enum { MODEL_NORMS_MAX = 8, MODEL_TYPE_SIZE = 64 };

/* One norm: rows of n elements, `rows` of them a token, `row_stride` elements apart. */
struct norm {
	const char *what; /* "hidden", "query heads", … */
	int64_t n, rows, row_stride;
};

struct model {
	char type[MODEL_TYPE_SIZE]; /* as its file names it; "": it does not */
	char dtype[8];              /* f32, f16 or bf16; "": the file does not say */
	size_t count;
	struct norm norm[MODEL_NORMS_MAX];
};

/* -1 with what is wrong with the file in `problem`, a sentence for people. */
int model_read(const char *path, struct model *model, char problem[FILE_PROBLEM_SIZE]);

#endif
