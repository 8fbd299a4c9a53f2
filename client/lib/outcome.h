/* Turns the errors of the inside into those of the public header. */
#ifndef FLYTUNE_CLIENT_OUTCOME_H
#define FLYTUNE_CLIENT_OUTCOME_H

#include <stdbool.h>

#include <flytune/admin.h>
#include "proto/error.h"

enum flytune_result outcome_code(const char *word);
/* Fills in `out` (may be NULL) and returns the code. */
enum flytune_result outcome(struct flytune_error *out, const struct ft_error *error);
/* For an argument that must be given; REQUIRE ends the call with it. */
enum flytune_result outcome_null(struct flytune_error *out, const char *argument);
#define REQUIRE(argument, out)                               \
	do {                                                 \
		if ((argument) == NULL)                      \
			return outcome_null(out, #argument); \
	} while (0)
/* For a structure whose size was not set. */
enum flytune_result outcome_unsized(struct flytune_error *out, const char *structure);
/* The error is about what the caller asked, so that no answer but an error would do. */
bool outcome_is_callers(const struct ft_error *error);

#endif
