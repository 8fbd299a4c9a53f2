#include "proto/codec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <msgpack.h>

/* ---- encoding ---- */

static bool is_empty(const struct ft_member *member, const void *at)
{
	switch (member->type) {
	case FT_TYPE_BOOL:
		return !*(const bool *)at;
	case FT_TYPE_INT:
		return *(const int64_t *)at == 0;
	case FT_TYPE_UINT:
		return *(const uint64_t *)at == 0;
	case FT_TYPE_REAL:
		return *(const double *)at == 0 || !isfinite(*(const double *)at);
	case FT_TYPE_TEXT:
		return *(const char *)at == '\0';
	case FT_TYPE_BYTES:
	case FT_TYPE_RAW:
		return ((const struct ft_view *)at)->length == 0;
	case FT_TYPE_PROBLEM:
	case FT_TYPE_PROBLEMS:
		return ((const struct ft_problem *)at)->count == 0;
	case FT_TYPE_CONFIG:
		return ft_config_empty(at);
	}
	return true;
}

static void write_member(struct ft_writer *writer, const struct ft_member *member, const void *at)
{
	const struct ft_view *view = at;
	ft_write_text_n(writer, member->name, member->name_length);
	switch (member->type) {
	case FT_TYPE_BOOL:
		ft_write_bool(writer, *(const bool *)at);
		break;
	case FT_TYPE_INT:
		ft_write_int(writer, *(const int64_t *)at);
		break;
	case FT_TYPE_UINT:
		ft_write_uint(writer, *(const uint64_t *)at);
		break;
	case FT_TYPE_REAL:
		ft_write_real(writer, *(const double *)at);
		break;
	case FT_TYPE_TEXT:
		ft_write_text_n(writer, at, strnlen(at, member->size));
		break;
	case FT_TYPE_BYTES:
		ft_write_bytes(writer, view->data, view->length);
		break;
	case FT_TYPE_RAW:
		/* A name without a value would make the whole message unreadable. */
		if (view->length == 0)
			writer->failed = true;
		else
			ft_write_raw(writer, view->data, view->length);
		break;
	case FT_TYPE_PROBLEMS:
		ft_write_array(writer, 1);
		ft_write_problem(writer, at);
		break;
	case FT_TYPE_PROBLEM:
		ft_write_problem(writer, at);
		break;
	case FT_TYPE_CONFIG:
		ft_write_config(writer, at);
		break;
	}
}

void ft_encode(struct ft_writer *writer, const struct ft_message *message, const void *body)
{
	const uint8_t *bytes = body;
	uint64_t present = 0;
	uint32_t pairs = 0;
	for (size_t i = 0; i < message->count; i++) {
		const struct ft_member *member = &message->member[i];
		if (member->required || !is_empty(member, bytes + member->offset)) {
			present |= UINT64_C(1) << i;
			pairs++;
		}
	}
	ft_write_map(writer, pairs);
	for (size_t i = 0; i < message->count; i++)
		if (present & UINT64_C(1) << i)
			write_member(writer, &message->member[i], bytes + message->member[i].offset);
}

/* ---- decoding ---- */

/* Copies `length` bytes and a NUL, with '?' for each byte that is no UTF-8. A reason that someone cut in the
 * middle of a character must not cost its message, nor reach a JSON encoder as it is. */
static void copy_text(char *to, const char *from, size_t length)
{
	uint8_t seen = 0;
	for (size_t i = 0; i < length; i++)
		seen |= (uint8_t)from[i];
	memcpy(to, from, length);
	to[length] = '\0';
	if (seen < 0x80)
		return;
	for (size_t i = 0; i < length;) {
		size_t size = ft_utf8_length((const uint8_t *)to + i, length - i);
		if (size == 0)
			to[i] = '?';
		i += size > 0 ? size : 1;
	}
}

static const char *kind_words(enum ft_kind kind)
{
	switch (kind) {
	case FT_KIND_END:
		return "cut short";
	case FT_KIND_NIL:
		return "nil";
	case FT_KIND_BOOL:
		return "a boolean";
	case FT_KIND_INT:
		return "an integer";
	case FT_KIND_REAL:
		return "a real number";
	case FT_KIND_TEXT:
		return "a text";
	case FT_KIND_BYTES:
		return "binary data";
	case FT_KIND_ARRAY:
		return "an array";
	case FT_KIND_MAP:
		return "a map";
	case FT_KIND_OTHER:
		break;
	}
	return "an extension type";
}

static const char *type_words(enum ft_type type)
{
	switch (type) {
	case FT_TYPE_BOOL:
		return "a boolean";
	case FT_TYPE_INT:
		return "an integer of 64 bits";
	case FT_TYPE_UINT:
		return "an integer of 64 bits, at least 0";
	case FT_TYPE_REAL:
		return "a finite number";
	case FT_TYPE_TEXT:
		return "a text";
	case FT_TYPE_BYTES:
		return "binary data";
	case FT_TYPE_PROBLEM:
		return "a map";
	case FT_TYPE_PROBLEMS:
		return "a list of one map";
	case FT_TYPE_CONFIG:
		return "a map or a text";
	case FT_TYPE_RAW:
		break;
	}
	return "a value";
}

static int refuse_type(const struct ft_cursor *cursor, const struct ft_member *member, struct ft_error *error)
{
	enum ft_kind kind = ft_peek(cursor);
	if (kind != FT_KIND_INT)
		return ft_fail_field(
		        error, FT_E_BAD_REQUEST, member->name, kind_words(kind), type_words(member->type));
	struct ft_cursor ahead = *cursor;
	char value[24] = "an integer";
	int64_t number = 0;
	uint64_t large = 0;
	if (ft_read_int(&ahead, &number))
		snprintf(value, sizeof(value), "%" PRId64, number);
	else if (ft_read_uint(&ahead, &large))
		snprintf(value, sizeof(value), "%" PRIu64, large);
	bool integer = member->type == FT_TYPE_INT || member->type == FT_TYPE_UINT;
	return ft_fail_field(error, integer ? FT_E_BAD_VALUE : FT_E_BAD_REQUEST, member->name, value,
	        type_words(member->type));
}

static int read_text_member(
        struct ft_cursor *cursor, const struct ft_member *member, char *to, struct ft_error *error)
{
	const char *text = NULL;
	size_t length = 0;
	if (!ft_read_text(cursor, &text, &length))
		return refuse_type(cursor, member, error);
	if (length >= member->size) {
		char value[48];
		char bound[48];
		snprintf(value, sizeof(value), "a text of %zu bytes", length);
		snprintf(bound, sizeof(bound), "a text of at most %zu bytes", member->size - 1);
		return ft_fail_field(error, FT_E_BAD_VALUE, member->name, value, bound);
	}
	if (memchr(text, '\0', length) != NULL)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, member->name, "a text with a NUL", "a text without NULs");
	copy_text(to, text, length);
	/* Whoever shows it, on a terminal or in a log, shows a text and no more. */
	ft_make_plain(to);
	return 0;
}

static int read_member(
        struct ft_cursor *cursor, const struct ft_member *member, void *at, struct ft_error *error)
{
	struct ft_view *view = at;
	struct ft_view rest;
	uint32_t elements = 0;
	bool read = false;

	switch (member->type) {
	case FT_TYPE_BOOL:
		read = ft_read_bool(cursor, at);
		break;
	case FT_TYPE_INT:
		read = ft_read_int(cursor, at);
		break;
	case FT_TYPE_UINT:
		read = ft_read_uint(cursor, at);
		break;
	case FT_TYPE_REAL:
		read = ft_read_real(cursor, at);
		break;
	case FT_TYPE_TEXT:
		return read_text_member(cursor, member, at, error);
	case FT_TYPE_BYTES:
		read = ft_read_bytes(cursor, &view->data, &view->length);
		break;
	case FT_TYPE_RAW:
		read = ft_read_view(cursor, view);
		break;
	case FT_TYPE_PROBLEMS:
		if (!ft_read_array(cursor, &elements))
			break;
		if (elements == 0)
			return ft_fail_field(error, FT_E_BAD_VALUE, member->name, "an empty list",
			        "a list of one or more");
		if (ft_read_problem(cursor, at, error) != 0)
			return -1;
		/* Who sends several is newer than this. */
		for (read = true; read && elements > 1; elements--)
			read = ft_read_view(cursor, &rest);
		break;
	case FT_TYPE_PROBLEM:
		if (ft_peek(cursor) == FT_KIND_MAP)
			return ft_read_problem(cursor, at, error);
		break;
	case FT_TYPE_CONFIG:
		if (ft_peek(cursor) == FT_KIND_MAP || ft_peek(cursor) == FT_KIND_TEXT)
			return ft_read_config(cursor, at, error);
		break;
	}
	return read ? 0 : refuse_type(cursor, member, error);
}

/* The member of that name, tried from `next` on, since members mostly come in the table's order;
 * message->count if there is none. */
static size_t find_member(const struct ft_message *message, size_t next, const char *name, size_t length)
{
	for (size_t tried = 0; tried < message->count; tried++) {
		size_t i = next + tried < message->count ? next + tried : next + tried - message->count;
		const struct ft_member *member = &message->member[i];
		if (member->name_length == length && memcmp(member->name, name, length) == 0)
			return i;
	}
	return message->count;
}

static int check_required(const struct ft_message *message, uint64_t seen, struct ft_error *error)
{
	for (size_t i = 0; i < message->count; i++)
		if (message->member[i].required && !(seen & UINT64_C(1) << i))
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, message->member[i].name, "missing", "given");
	return 0;
}

void ft_clear(const struct ft_message *message, void *body)
{
	uint8_t *bytes = body;
	size_t from = 0;

	for (size_t i = 0; i < message->count; i++) {
		const struct ft_member *member = &message->member[i];
		size_t next;

		if (member->type == FT_TYPE_PROBLEM || member->type == FT_TYPE_PROBLEMS) {
			((struct ft_problem *)(void *)(bytes + member->offset))->count = 0;
			next = member->offset + sizeof(struct ft_problem);
		} else if (member->type == FT_TYPE_CONFIG) {
			ft_config_clear((struct ft_config *)(void *)(bytes + member->offset));
			next = member->offset + sizeof(struct ft_config);
		} else {
			continue;
		}
		memset(bytes + from, 0, member->offset - from);
		from = next;
	}
	memset(bytes + from, 0, message->size - from);
}

int ft_decode(const struct ft_message *message, struct ft_view data, void *body, struct ft_error *error)
{
	ft_clear(message, body);
	if (data.length == 0)
		return check_required(message, 0, error);
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint64_t seen = 0;
	uint64_t given = 0; /* seen, and not nil */
	size_t next = 0;
	uint32_t pairs = 0;
	if (!ft_read_map(&cursor, &pairs))
		return ft_fail(error, FT_E_BAD_REQUEST, "the body of the message is %s; it must be a map",
		        kind_words(ft_peek(&cursor)));
	for (uint32_t pair = 0; pair < pairs; pair++) {
		const char *name = NULL;
		size_t length = 0;
		if (!ft_read_text(&cursor, &name, &length))
			return ft_fail(error, FT_E_BAD_REQUEST, "a member's name is %s; it must be a text",
			        kind_words(ft_peek(&cursor)));
		size_t found = find_member(message, next, name, length);
		if (found == message->count) {
			struct ft_view unknown;
			if (!ft_read_view(&cursor, &unknown))
				return ft_fail(
				        error, FT_E_BAD_REQUEST, "the body of the message is cut short");
			continue;
		}
		const struct ft_member *member = &message->member[found];
		uint64_t bit = UINT64_C(1) << found;
		if (seen & bit)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, member->name, "given twice", "given once");
		seen |= bit;
		next = found + 1 < message->count ? found + 1 : 0;
		if (ft_read_nil(&cursor))
			continue;
		if (read_member(&cursor, member, (uint8_t *)body + member->offset, error) != 0)
			return -1;
		given |= bit;
	}
	if (cursor.at != cursor.end)
		return ft_fail(error, FT_E_BAD_REQUEST, "bytes follow the body of the message");
	return check_required(message, given, error);
}

/* ---- the envelope ---- */

static void read_method(const char *text, size_t length, char method[FT_NAME_SIZE])
{
	size_t kept = length < FT_NAME_SIZE ? length : FT_NAME_SIZE - 1;
	for (size_t i = 0; i < kept; i++)
		method[i] = (char)(text[i] > 0x20 && text[i] < 0x7f ? text[i] : '?');
	method[kept] = '\0';
}

/* A map, or nil for an empty one: the rest of the message, since the scan found where that ends. ft_decode
 * would see bytes that follow. */
static bool read_body(struct ft_cursor *cursor, struct ft_view *body)
{
	*body = (struct ft_view){0};
	if (ft_read_nil(cursor))
		return true;
	if (ft_peek(cursor) != FT_KIND_MAP)
		return false;
	*body = (struct ft_view){.data = cursor->at, .length = (size_t)(cursor->end - cursor->at)};
	cursor->at = cursor->end;
	return true;
}

/* A response's error: nil, or a map. */
static bool read_error(struct ft_cursor *cursor, struct ft_view *view)
{
	return ft_read_nil(cursor) || (ft_peek(cursor) == FT_KIND_MAP && ft_read_view(cursor, view));
}

int ft_open_envelope(struct ft_view message, struct ft_envelope *envelope, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(message.data, message.length);
	uint32_t elements = 0;
	uint64_t type = 0;
	envelope->id = 0;
	envelope->method[0] = '\0';
	envelope->body = (struct ft_view){0};
	envelope->error = (struct ft_view){0};
	if (!ft_read_array(&cursor, &elements) || elements == 0 || !ft_read_uint(&cursor, &type) ||
	        type > FT_NOTICE || elements != (type == FT_NOTICE ? 3 : 4))
		return ft_fail(error, FT_E_BAD_FRAME,
		        "the message is none of [0, id, method, params], [1, id, error, result] and "
		        "[2, method, params]");
	envelope->type = (enum ft_envelope_type)type;
	if (type != FT_NOTICE && (!ft_read_uint(&cursor, &envelope->id) || envelope->id > UINT32_MAX))
		return ft_fail(error, FT_E_BAD_FRAME, "the message's id is no unsigned integer of 32 bits");
	if (type == FT_RESPONSE) {
		if (!read_error(&cursor, &envelope->error))
			return ft_fail(error, FT_E_BAD_FRAME, "a response's error is neither nil nor a map");
		if (envelope->error.data != NULL && !ft_read_nil(&cursor))
			return ft_fail(error, FT_E_BAD_FRAME, "a response has an error and a result");
	} else {
		const char *method = NULL;
		size_t length = 0;
		if (!ft_read_text(&cursor, &method, &length))
			return ft_fail(error, FT_E_BAD_FRAME, "the message's method is no text");
		read_method(method, length, envelope->method);
	}
	if (envelope->error.data == NULL && !read_body(&cursor, &envelope->body))
		return ft_fail(error, FT_E_BAD_FRAME, "the message's %s is neither a map nor nil",
		        type == FT_RESPONSE ? "result" : "params");
	if (cursor.at != cursor.end)
		return ft_fail(error, FT_E_BAD_FRAME, "bytes follow the message");
	return 0;
}

/* msgpack_packer_write, where there is room. */
static inline __attribute__((always_inline)) int put(void *data, const char *bytes, size_t length)
{
	uint8_t **at = data;

	memcpy(*at, bytes, length);
	*at += length;
	return 0;
}

void ft_begin_request(struct ft_writer *writer, uint64_t id, const char *method)
{
	ft_write_array(writer, 4);
	ft_write_uint(writer, FT_REQUEST);
	ft_write_uint(writer, id);
	ft_write_text(writer, method);
}

void ft_begin_response(struct ft_writer *writer, uint64_t id)
{
	ft_write_array(writer, 4);
	ft_write_uint(writer, FT_RESPONSE);
	ft_write_uint(writer, id);
	ft_write_nil(writer);
}

void ft_write_response_around(
        struct ft_writer *writer, uint64_t id, struct ft_view before, uint64_t number, struct ft_view after)
{
	enum { HEAD = 1 + 1 + 9 + 1, NUMBER = 9 };
	uint8_t *start = ft_write_room(writer, HEAD + before.length + NUMBER + after.length);
	uint8_t *at = start;
	msgpack_packer packer = {.data = &at, .callback = put};

	if (start == NULL)
		return;
	msgpack_pack_array(&packer, 4);
	msgpack_pack_uint64(&packer, FT_RESPONSE);
	msgpack_pack_uint64(&packer, id);
	msgpack_pack_nil(&packer);
	put(&at, (const char *)before.data, before.length);
	msgpack_pack_uint64(&packer, number);
	put(&at, (const char *)after.data, after.length);
	writer->length += (size_t)(at - start);
}

void ft_begin_notice(struct ft_writer *writer, const char *method)
{
	ft_write_array(writer, 3);
	ft_write_uint(writer, FT_NOTICE);
	ft_write_text(writer, method);
}

/* ---- errors on the wire ---- */

#define FT_ERROR(F)                                                               \
	F(TEXT, code, sizeof(((struct ft_error *)NULL)->code), FT_REQUIRED)       \
	F(TEXT, message, sizeof(((struct ft_error *)NULL)->message), FT_REQUIRED) \
	F(TEXT, field, sizeof(((struct ft_error *)NULL)->field), FT_OPTIONAL)     \
	F(TEXT, value, sizeof(((struct ft_error *)NULL)->value), FT_OPTIONAL)     \
	F(TEXT, bound, sizeof(((struct ft_error *)NULL)->bound), FT_OPTIONAL)
FT_DEFINE_MESSAGE(error, FT_ERROR)

void ft_write_error(struct ft_writer *writer, const struct ft_error *failure)
{
	ft_encode(writer, &ft_error_message, failure);
}

void ft_write_failure(struct ft_writer *writer, uint64_t id, const struct ft_error *failure)
{
	ft_write_array(writer, 4);
	ft_write_uint(writer, FT_RESPONSE);
	ft_write_uint(writer, id);
	ft_encode(writer, &ft_error_message, failure);
	ft_write_nil(writer);
}

void ft_read_failure(struct ft_view data, struct ft_error *failure)
{
	struct ft_error fault;
	if (ft_decode(&ft_error_message, data, failure, &fault) != 0)
		ft_fail(failure, FT_E_PROTOCOL, "the peer answered with an error that cannot be read: %s",
		        fault.message);
}
