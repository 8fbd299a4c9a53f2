/* Reads MessagePack that a peer sent, believing none of it.
 *
 * Two steps. A `ft_scan` walks the bytes as they come, without recursion or allocation, and says where a
 * whole message ends; it keeps its place between calls, so that a message sent byte by byte costs no more
 * than one sent whole. It bounds bytes, depth, elements in all, and asks that a container's count fits in the
 * bytes that the message may still have. Only then a `ft_cursor` reads values out of the whole message; it
 * need not check for truncation of what was scanned, but it does, since it also reads stored records.
 *
 * Text that a cursor gives out points into the message and is not terminated. */
#ifndef FLYTUNE_PROTO_READER_H
#define FLYTUNE_PROTO_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/value.h"

struct ft_bounds {
	size_t bytes;    /* of one message */
	uint32_t depth;  /* of nested containers, the message itself being 1; at most FT_DEPTH_MAX */
	uint32_t values; /* scalars and containers in one message, keys counted */
};

enum { FT_DEPTH_MAX = 16 };

extern const struct ft_bounds ft_bounds_request; /* 1 MiB, depth 8, 65,536 values: what a client may send */
extern const struct ft_bounds
        ft_bounds_large; /* 64 MiB, depth 12, 4,194,304 values: replies, runners, imports */

struct ft_scan {
	struct ft_bounds bounds;
	size_t offset;    /* bytes of the message walked so far */
	uint64_t skip;    /* bytes of a text or binary still to pass over */
	uint64_t pending; /* values announced and still to come, of all open containers */
	uint32_t values;  /* announced so far, the message itself among them */
	uint32_t depth;
	uint64_t left[FT_DEPTH_MAX]; /* values still to come in each open container */
};

void ft_scan_init(struct ft_scan *scan, const struct ft_bounds *bounds);
/* `data` is the whole message so far, from its first byte, `length` of it. Returns 1 when a message is whole
 * (its length is scan->offset; call ft_scan_init before the next), 0 if more is needed, -1 with an error that
 * cannot be recovered from. */
int ft_scan_walk(struct ft_scan *scan, const uint8_t *data, size_t length, struct ft_error *error);

struct ft_view {
	const uint8_t *data; /* NULL if absent */
	size_t length;
};

struct ft_cursor {
	const uint8_t *at;
	const uint8_t *end;
};

enum ft_kind {
	FT_KIND_END, /* nothing left, or not MessagePack */
	FT_KIND_NIL,
	FT_KIND_BOOL,
	FT_KIND_INT, /* any integer */
	FT_KIND_REAL,
	FT_KIND_TEXT,
	FT_KIND_BYTES,
	FT_KIND_ARRAY,
	FT_KIND_MAP,
	FT_KIND_OTHER, /* extension types */
};

struct ft_cursor ft_cursor_of(const void *data, size_t length);
enum ft_kind ft_peek(const struct ft_cursor *cursor);

/* Each returns true and moves past the value if it is of that kind and in range; else false, not moving. */
bool ft_read_map(struct ft_cursor *cursor, uint32_t *pairs);
bool ft_read_array(struct ft_cursor *cursor, uint32_t *elements);
bool ft_read_nil(struct ft_cursor *cursor);
bool ft_read_bool(struct ft_cursor *cursor, bool *value);
bool ft_read_int(struct ft_cursor *cursor, int64_t *value);
bool ft_read_uint(struct ft_cursor *cursor, uint64_t *value);
bool ft_read_real(struct ft_cursor *cursor, double *value); /* integers too; finite ones only */
bool ft_read_text(struct ft_cursor *cursor, const char **text, size_t *length);
bool ft_read_bytes(struct ft_cursor *cursor, const uint8_t **data, size_t *length);
bool ft_read_view(struct ft_cursor *cursor, struct ft_view *view); /* any one value, passed over whole */
/* Copies a text of at most size - 1 bytes without NULs, terminated. */
bool ft_read_text_into(struct ft_cursor *cursor, char *text, size_t size);

/* Bytes of the UTF-8 character at `at`, of which `have` may be read; 0 if it is none. */
size_t ft_utf8_length(const uint8_t *at, size_t have);
/* A map of names to integers and texts / to integers and words, or a text: a document, which stays where it is. Errors name the
 * field. Repeated names are refused. */
int ft_read_problem(struct ft_cursor *cursor, struct ft_problem *problem, struct ft_error *error);
int ft_read_config(struct ft_cursor *cursor, struct ft_config *config, struct ft_error *error);

#endif
