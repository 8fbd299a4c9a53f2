/* Reading kernel.json value by value: each is looked for by its member's name, held to what it must be, and refused by its place
 * in the document: "kernel.json: knobs[2].values[0] is 0.5; it must be a whole number". */
#ifndef FLYTUNE_KERNELS_FOLDER_READ_JSON_H
#define FLYTUNE_KERNELS_FOLDER_READ_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum { PLACE_SIZE = 80 };

/* Where a value stands. One is made on the stack for each step down, and written out only for an error. */
struct place {
	const struct place *in; /* NULL: the document */
	const char *member;     /* NULL: element `index` of an array */
	size_t index;
};

void place_write(const struct place *place, char text[PLACE_SIZE]);
/* "kernel.json: PLACE: ..." */
int place_fail(const struct place *place, struct ft_error *error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* "kernel.json: PLACE is VALUE; it must be BOUND"; NULL for a value that is missing. */
int place_refuse(const struct place *place, const json_t *value, const char *bound, struct ft_error *error);
/* Puts file and place before the message of an error that came from elsewhere. */
int place_blame(const char *place, struct ft_error *error);

struct member {
	const char *name;
	bool required;
};

/* An object that has these members at the most, and those that are required. */
int read_members(const struct place *place, const json_t *object, const struct member *member, size_t count,
        struct ft_error *error);

/* The functions below read the member `name` of an object, whose own place is `in`. One that is not there leaves what it would
 * be read into as it is, or NULL: whether that may be, read_members has said. */

/* An array of `least` to `most` elements; 0 or more if it is not there. */
int read_array(const struct place *in, const json_t *object, const char *name, size_t least, size_t most,
        json_t **array, struct ft_error *error);
/* A text of up to `size` - 1 bytes, in one line. */
int read_text(const struct place *in, const json_t *object, const char *name, char *text, size_t size,
        struct ft_error *error);
int read_integer(const struct place *in, const json_t *object, const char *name, int64_t *number,
        struct ft_error *error);
int read_flag(
        const struct place *in, const json_t *object, const char *name, bool *flag, struct ft_error *error);
/* Kept by the document: a sentence of up to `most` bytes, in one line. */
int read_sentence(const struct place *in, const json_t *object, const char *name, size_t most,
        const char **sentence, struct ft_error *error);

/* Which of `count` words a value is; -1, and the error lists them, if it is none. */
int read_word(const struct place *place, const json_t *value, const char *const *word, size_t count,
        struct ft_error *error);

#endif
