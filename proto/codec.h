/* Encodes and decodes typed messages from one description of each: a struct and a table made from one list.
 *
 * A message travels as a map. Members that are zero or empty are left out, and absent ones (or nil) read as
 * zero or empty, unless they are FT_REQUIRED: those always travel, and a message without them is refused.
 * Unknown members are passed over; a member twice, or of the wrong type, is an error that names it. Text
 * arrives as UTF-8 without NULs: bytes that are none are replaced by '?'. */
#ifndef FLYTUNE_PROTO_CODEC_H
#define FLYTUNE_PROTO_CODEC_H

#include "proto/reader.h"
#include "proto/writer.h"

enum ft_type {
	FT_TYPE_BOOL,
	FT_TYPE_INT,     /* int64_t */
	FT_TYPE_UINT,    /* uint64_t */
	FT_TYPE_REAL,    /* double */
	FT_TYPE_TEXT,    /* char[size], terminated */
	FT_TYPE_BYTES,   /* struct ft_view of binary data, into the message */
	FT_TYPE_PROBLEM, /* struct ft_problem */
	FT_TYPE_PROBLEMS, /* struct ft_problem, as a list: lists of one are written, of others the first is read */
	FT_TYPE_CONFIG, /* struct ft_config */
	FT_TYPE_RAW,    /* struct ft_view of any value: lists and maps read with a cursor */
};

enum { FT_OPTIONAL = 0, FT_REQUIRED = 1 };

struct ft_member {
	const char *name;
	size_t name_length;
	enum ft_type type;
	int required;
	size_t offset;
	size_t size; /* of a text member */
};

struct ft_message {
	const char *name;
	const struct ft_member *member;
	size_t count; /* at most 64 */
	size_t size;  /* of the struct */
};

/* Writes `body` as a map. A required RAW member without data is a fault of the caller: the writer fails. */
void ft_encode(struct ft_writer *writer, const struct ft_message *message, const void *body);
/* Makes all members zero or empty. Of an empty problem or config no more than that is written: they are large. */
void ft_clear(const struct ft_message *message, void *body);
/* Fills `body` from a map. Views in it point into `data`. Empty `data` reads as an empty map. */
int ft_decode(const struct ft_message *message, struct ft_view data, void *body, struct ft_error *error);

/* The struct and the table of a message, from a list of F(TYPE, name, text size, required). */
#define FT_C_BOOL(name, size) bool name;
#define FT_C_INT(name, size) int64_t name;
#define FT_C_UINT(name, size) uint64_t name;
#define FT_C_REAL(name, size) double name;
#define FT_C_TEXT(name, size) char name[size];
#define FT_C_BYTES(name, size) struct ft_view name;
#define FT_C_PROBLEM(name, size) struct ft_problem name;
#define FT_C_PROBLEMS(name, size) struct ft_problem name;
#define FT_C_CONFIG(name, size) struct ft_config name;
#define FT_C_RAW(name, size) struct ft_view name;
#define FT_STRUCT_MEMBER(type, name, size, required) FT_C_##type(name, size)

#define FT_DECLARE_MESSAGE(tag, LIST)  \
	struct ft_##tag {              \
		LIST(FT_STRUCT_MEMBER) \
	};                             \
	extern const struct ft_message ft_##tag##_message;

/* clang-format off */
/* The table itself, once, in a .c file. FT_ROW_OF(tag) leaves its row open and ends in the name of the macro
 * that takes the list's parentheses and closes the row: so a row knows its struct, which the list does not. */
#define FT_ROW_OF(tag) { .offset = __builtin_offsetof(struct ft_##tag, FT_ROW_REST
#define FT_ROW_REST(member_type, member_name, text_size, is_required)                                     \
	member_name), .name = #member_name, .name_length = sizeof(#member_name) - 1,                      \
	.type = FT_TYPE_##member_type, .required = (is_required), .size = (text_size) },
#define FT_DEFINE_MESSAGE(tag, LIST)                                                                      \
	static const struct ft_member tag##_members[] = { LIST(FT_ROW_OF(tag)) };                         \
	_Static_assert(sizeof(tag##_members) / sizeof(tag##_members[0]) <= 64, "one bit a member");       \
	const struct ft_message ft_##tag##_message = {                                                    \
		.name = #tag, .member = tag##_members,                                                    \
		.count = sizeof(tag##_members) / sizeof(tag##_members[0]), .size = sizeof(struct ft_##tag) };
/* clang-format on */

/* A struct ft_error as it travels. */
extern const struct ft_message ft_error_message;

/* ---- the envelope: MessagePack-RPC ---- */

enum ft_envelope_type { FT_REQUEST = 0, FT_RESPONSE = 1, FT_NOTICE = 2 };

struct ft_envelope {
	enum ft_envelope_type type;
	uint64_t id;               /* of a request or response: an unsigned 32-bit integer */
	char method[FT_NAME_SIZE]; /* of a request or notice */
	struct ft_view body;       /* params, or the result of a response that succeeded: a map */
	struct ft_view error;      /* of a response that failed; data NULL otherwise */
};

/* Reads `[0, id, method, params]`, `[1, id, error, result]` or `[2, method, params]`; a body may be nil. A
 * method that is no name or too long a one is cut, with '?' for what is odd in it: no known method is such.
 */
int ft_open_envelope(struct ft_view message, struct ft_envelope *envelope, struct ft_error *error);
/* Begin a message; exactly one value (the body, as ft_encode writes it) must follow. */
void ft_begin_request(struct ft_writer *writer, uint64_t id, const char *method);
void ft_begin_response(struct ft_writer *writer, uint64_t id);
/* A whole response, whose result is an encoded map but for one number within it. In one go: what the calls that the
 * parts would take cost each is more than what they write. */
void ft_write_response_around(
        struct ft_writer *writer, uint64_t id, struct ft_view before, uint64_t number, struct ft_view after);
void ft_begin_notice(struct ft_writer *writer, const char *method);
/* A whole response that carries an error, and reading one back; one that cannot be read becomes "protocol".
 */
void ft_write_error(struct ft_writer *writer, const struct ft_error *failure); /* the error alone, a map */
void ft_write_failure(struct ft_writer *writer, uint64_t id, const struct ft_error *failure);
void ft_read_failure(struct ft_view data, struct ft_error *failure);

#endif
