/* Formulas of whole numbers, as the model table writes them: names and numbers, + * / and parentheses, and |, which takes the
 * first alternative whose names are all known. A division must come out even. */
#ifndef FLYTUNE_CTL_FORMULA_H
#define FLYTUNE_CTL_FORMULA_H

#include <stdbool.h>
#include <stdint.h>

enum { FORMULA_NAME_SIZE = 64, FORMULA_PROBLEM_SIZE = 256 };

enum formula_status {
	FORMULA_DONE,
	FORMULA_UNKNOWN, /* `problem` is the name that is not known */
	FORMULA_WRONG,   /* `problem` is a sentence for people */
};

/* What the names stand for. `find` may fail as the formula itself does. */
struct formula_names {
	enum formula_status (*find)(
	        void *data, const char *name, int64_t *number, char problem[FORMULA_PROBLEM_SIZE]);
	void *data;
};

enum formula_status formula_evaluate(const char *text, const struct formula_names *names, int64_t *number,
        char problem[FORMULA_PROBLEM_SIZE]);
/* Whether a text is a formula at all; else why not. */
bool formula_is_valid(const char *text, char problem[FORMULA_PROBLEM_SIZE]);
/* Whether a formula has the name in it. */
bool formula_has(const char *text, const char *name);

#endif
