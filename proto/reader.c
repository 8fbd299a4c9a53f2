/* Reads values out of a whole message (reader.h). */
#include "proto/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/internal.h"

struct ft_cursor ft_cursor_of(const void *data, size_t length)
{
	const uint8_t *at = data;
	return (struct ft_cursor){.at = at, .end = length > 0 ? at + length : at};
}

static inline size_t have(const struct ft_cursor *cursor)
{
	return (size_t)(cursor->end - cursor->at);
}

/* The head of the next value if it is whole, of that kind, and what it announces can be there. */
static inline bool expect(const struct ft_cursor *cursor, enum ft_kind kind, struct head *head)
{
	if (cursor->at == cursor->end || !read_head(cursor->at, have(cursor), head) || head->kind != kind)
		return false;
	return head->follows <= have(cursor) - head->size && head->children <= have(cursor) - head->size;
}

enum ft_kind ft_peek(const struct ft_cursor *cursor)
{
	if (cursor->at == cursor->end)
		return FT_KIND_END;
	struct head head;
	return read_head(cursor->at, have(cursor), &head) ? head.kind : FT_KIND_END;
}

bool ft_read_map(struct ft_cursor *cursor, uint32_t *pairs)
{
	struct head head;

	if (cursor->at != cursor->end && (cursor->at[0] & 0xf0) == 0x80 &&
	        small_children(cursor->at[0]) < have(cursor)) {
		*pairs = *cursor->at++ & 0x0fu;
		return true;
	}
	if (!expect(cursor, FT_KIND_MAP, &head))
		return false;
	*pairs = (uint32_t)(head.children / 2);
	cursor->at += head.size;
	return true;
}

bool ft_read_array(struct ft_cursor *cursor, uint32_t *elements)
{
	struct head head;

	if (cursor->at != cursor->end && (cursor->at[0] & 0xf0) == 0x90 &&
	        (cursor->at[0] & 0x0fu) < have(cursor)) {
		*elements = *cursor->at++ & 0x0fu;
		return true;
	}
	if (!expect(cursor, FT_KIND_ARRAY, &head))
		return false;
	*elements = (uint32_t)head.children;
	cursor->at += head.size;
	return true;
}

bool ft_read_nil(struct ft_cursor *cursor)
{
	if (cursor->at == cursor->end || *cursor->at != 0xc0)
		return false;
	cursor->at++;
	return true;
}

bool ft_read_bool(struct ft_cursor *cursor, bool *value)
{
	if (cursor->at == cursor->end || (*cursor->at != 0xc2 && *cursor->at != 0xc3))
		return false;
	*value = *cursor->at == 0xc3;
	cursor->at++;
	return true;
}

/* An integer as sign and 64 bits: `negative` ones as two's complement. */
static inline bool read_integer(
        const struct ft_cursor *cursor, struct head *head, uint64_t *bits, bool *negative)
{
	if (!expect(cursor, FT_KIND_INT, head))
		return false;
	uint8_t first = *cursor->at;
	if (head->size == 1) {
		*bits = (uint64_t)(int64_t)(int8_t)first;
		*negative = first >= 0xe0;
		return true;
	}
	uint32_t width = head->size - 1;
	*bits = load(cursor->at + 1, width);
	*negative = first >= 0xd0 && (cursor->at[1] & 0x80) != 0;
	if (*negative && width < 8)
		*bits |= UINT64_MAX << (8 * width);
	return true;
}

bool ft_read_int(struct ft_cursor *cursor, int64_t *value)
{
	struct head head;
	uint64_t bits = 0;
	bool negative = false;
	if (!read_integer(cursor, &head, &bits, &negative) || (!negative && bits > INT64_MAX))
		return false;
	*value = (int64_t)bits;
	cursor->at += head.size;
	return true;
}

bool ft_read_uint(struct ft_cursor *cursor, uint64_t *value)
{
	struct head head;
	uint64_t bits = 0;
	bool negative = false;

	if (cursor->at != cursor->end && cursor->at[0] < 0x80) {
		*value = *cursor->at++;
		return true;
	}
	if (!read_integer(cursor, &head, &bits, &negative) || negative)
		return false;
	*value = bits;
	cursor->at += head.size;
	return true;
}

bool ft_read_real(struct ft_cursor *cursor, double *value)
{
	struct head head;
	uint64_t bits = 0;
	bool negative = false;
	double real = 0;
	if (read_integer(cursor, &head, &bits, &negative)) {
		real = negative ? (double)(int64_t)bits : (double)bits;
	} else if (!expect(cursor, FT_KIND_REAL, &head)) {
		return false;
	} else if (head.size == 5) {
		uint32_t single_bits = (uint32_t)load(cursor->at + 1, 4);
		float single = 0;
		memcpy(&single, &single_bits, sizeof(single));
		real = single;
	} else {
		bits = load(cursor->at + 1, 8);
		memcpy(&real, &bits, sizeof(real));
	}
	if (!isfinite(real))
		return false;
	*value = real;
	cursor->at += head.size;
	return true;
}

bool ft_read_text(struct ft_cursor *cursor, const char **text, size_t *length)
{
	struct head head;
	size_t plain = cursor->at == cursor->end ? 0 : (size_t)cursor->at[0] - 0xa0;

	if (cursor->at != cursor->end && plain < 0x20 && plain < have(cursor)) {
		*text = (const char *)cursor->at + 1;
		*length = plain;
		cursor->at += 1 + plain;
		return true;
	}
	if (!expect(cursor, FT_KIND_TEXT, &head))
		return false;
	*text = (const char *)cursor->at + head.size;
	*length = (size_t)head.follows;
	cursor->at += head.size + head.follows;
	return true;
}

bool ft_read_bytes(struct ft_cursor *cursor, const uint8_t **data, size_t *length)
{
	struct head head;
	if (!expect(cursor, FT_KIND_BYTES, &head))
		return false;
	*data = cursor->at + head.size;
	*length = (size_t)head.follows;
	cursor->at += head.size + head.follows;
	return true;
}

bool ft_read_view(struct ft_cursor *cursor, struct ft_view *view)
{
	const uint8_t *at = cursor->at;

	/* Values still to come; never more than there are bytes, so the walk is bounded without a depth. */
	uint64_t pending = 1;
	while (pending > 0) {
		size_t left = (size_t)(cursor->end - at);
		struct head head;

		if (left == 0)
			return false;
		if (plain_size[*at] != 0) {
			if (plain_size[*at] > left)
				return false;
			at += plain_size[*at];
			pending--;
			continue;
		}
		if (is_small_container(*at)) {
			pending += small_children(*at);
			pending--;
			at++;
			if (pending >= left)
				return false;
			continue;
		}
		if (!read_head(at, left, &head) || head.kind == FT_KIND_END)
			return false;
		pending += head.children - 1;
		if (head.follows > left - head.size || pending > left - head.size - head.follows)
			return false;
		at += head.size + head.follows;
	}
	*view = (struct ft_view){.data = cursor->at, .length = (size_t)(at - cursor->at)};
	cursor->at = at;
	return true;
}

bool ft_read_text_into(struct ft_cursor *cursor, char *text, size_t size)
{
	struct ft_cursor ahead = *cursor;
	const char *from = NULL;
	size_t length = 0;
	if (!ft_read_text(&ahead, &from, &length) || length >= size || memchr(from, '\0', length) != NULL)
		return false;
	memcpy(text, from, length);
	text[length] = '\0';
	*cursor = ahead;
	return true;
}

/* ---- problems and configs ---- */

/* Copies what a peer sent for an error to show; a NUL inside must not cut it into something that looks right.
 */
static void copy_shown(char *to, size_t size, const char *from, size_t length)
{
	size_t kept = length < size ? length : size - 1;
	for (size_t i = 0; i < kept; i++)
		to[i] = (char)(from[i] == '\0' ? '?' : from[i]);
	to[kept] = '\0';
}

static int refuse_name(const struct ft_cursor *cursor, const char *what, const char *text, size_t length,
        struct ft_error *error)
{
	char shown[FT_NAME_SIZE + 1] = "no text";
	char bound[64];
	char field[48];
	if (text != NULL)
		copy_shown(shown, sizeof(shown), text, length);
	else if (ft_peek(cursor) == FT_KIND_END)
		snprintf(shown, sizeof(shown), "cut short");
	snprintf(bound, sizeof(bound), "letters, digits and _, at most %d of them", FT_NAME_SIZE - 1);
	snprintf(field, sizeof(field), "a name in %s", what);
	return ft_fail_field(error, FT_E_BAD_VALUE, field, shown, bound);
}

/* Reads the name of a field or knob, terminated. `what` is "problem" or "config". */
static inline int read_name(
        struct ft_cursor *cursor, const char *what, char name[FT_NAME_SIZE], struct ft_error *error)
{
	const char *text = NULL;
	size_t length = 0;
	if (!ft_read_text(cursor, &text, &length) || !ft_name_valid_n(text, length))
		return refuse_name(cursor, what, text, length, error);
	memcpy(name, text, length);
	name[length] = '\0';
	return 0;
}

static int read_pairs(
        struct ft_cursor *cursor, const char *what, uint32_t most, uint32_t *pairs, struct ft_error *error)
{
	if (!ft_read_map(cursor, pairs))
		return ft_fail_field(error, FT_E_BAD_REQUEST, what, "no map", "a map");
	if (*pairs > most) {
		char value[32];
		char bound[32];
		snprintf(value, sizeof(value), "a map of %" PRIu32, *pairs);
		snprintf(bound, sizeof(bound), "a map of at most %" PRIu32, most);
		return ft_fail_field(error, FT_E_BAD_VALUE, what, value, bound);
	}
	return 0;
}

static int refuse_number(const struct ft_cursor *cursor, const char *name, struct ft_error *error)
{
	struct ft_cursor ahead = *cursor;
	uint64_t large = 0;
	char value[24];
	if (!ft_read_uint(&ahead, &large))
		return ft_fail_field(error, FT_E_BAD_REQUEST, name, "neither", "an integer or a text");
	snprintf(value, sizeof(value), "%" PRIu64, large);
	return ft_fail_field(error, FT_E_BAD_VALUE, name, value, "an integer of at most 63 bits");
}

static int refuse_text(const char *name, const char *text, size_t length, struct ft_error *error)
{
	char shown[FT_TEXT_SIZE + 1];
	char bound[64];
	copy_shown(shown, sizeof(shown), text, length);
	snprintf(bound, sizeof(bound), "1 to %d letters, digits and . _ : + -", FT_TEXT_SIZE - 1);
	return ft_fail_field(error, FT_E_BAD_VALUE, name, shown, bound);
}

/* Both of these fill in place: they are on the road of every lookup. */
int ft_read_problem(struct ft_cursor *cursor, struct ft_problem *problem, struct ft_error *error)
{
	uint32_t pairs = 0;
	problem->count = 0;
	if (read_pairs(cursor, "problem", FT_FIELDS_MAX, &pairs, error) != 0)
		return -1;
	for (uint32_t i = 0; i < pairs; i++) {
		struct ft_field *field = &problem->field[i];
		const char *text = NULL;
		size_t length = 0;
		if (read_name(cursor, "problem", field->name, error) != 0)
			return -1;
		for (uint32_t earlier = 0; earlier < i; earlier++)
			if (ft_name_same(problem->field[earlier].name, field->name))
				return ft_fail_field(
				        error, FT_E_BAD_REQUEST, field->name, "given twice", "given once");
		field->is_text = false;
		field->text[0] = '\0';
		if (!ft_read_int(cursor, &field->number)) {
			if (!ft_read_text(cursor, &text, &length))
				return refuse_number(cursor, field->name, error);
			if (!ft_text_valid_n(text, length))
				return refuse_text(field->name, text, length, error);
			field->is_text = true;
			field->number = 0;
			memcpy(field->text, text, length);
			field->text[length] = '\0';
		}
		problem->count = i + 1;
	}
	return 0;
}

size_t ft_utf8_length(const uint8_t *at, size_t have)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t size = 0;
	uint32_t code = 0;
	if (at[0] < 0x80)
		return 1;
	if (at[0] >= 0xc2 && at[0] < 0xe0) {
		size = 2;
		code = at[0] & 0x1fu;
	} else if (at[0] >= 0xe0 && at[0] < 0xf0) {
		size = 3;
		code = at[0] & 0x0fu;
	} else if (at[0] >= 0xf0 && at[0] < 0xf5) {
		size = 4;
		code = at[0] & 0x07u;
	}
	if (size == 0 || size > have)
		return 0;
	for (size_t i = 1; i < size; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3fu);
	}
	bool surrogate = code >= 0xd800 && code < 0xe000;
	return code < least[size] || code > 0x10ffff || surrogate ? 0 : size;
}

/* Whatever is in it, it goes out again as it is. */
static int read_document(struct ft_cursor *cursor, struct ft_config *config, struct ft_error *error)
{
	size_t length = 0;
	size_t at = 0;
	if (!ft_read_text(cursor, &config->document, &length) || length == 0 || length > FT_DOCUMENT_MAX)
		return ft_fail_field(error, FT_E_BAD_VALUE, "config",
		        length == 0 ? "no document" : "too long", "a document of 1 to 4096 bytes");
	while (at < length && config->document[at] != '\0') {
		size_t size = ft_utf8_length((const uint8_t *)config->document + at, length - at);
		if (size == 0)
			break;
		at += size;
	}
	if (at < length)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, "config", "no text", "a document in UTF-8, without NULs");
	config->document_length = (uint32_t)length;
	return 0;
}

int ft_read_config(struct ft_cursor *cursor, struct ft_config *config, struct ft_error *error)
{
	uint32_t pairs = 0;
	ft_config_clear(config);
	if (ft_peek(cursor) == FT_KIND_TEXT)
		return read_document(cursor, config, error);
	if (read_pairs(cursor, "config", FT_KNOBS_MAX, &pairs, error) != 0)
		return -1;
	for (uint32_t i = 0; i < pairs; i++) {
		struct ft_knob_value *knob = &config->knob[i];
		if (read_name(cursor, "config", knob->name, error) != 0)
			return -1;
		for (uint32_t earlier = 0; earlier < i; earlier++)
			if (ft_name_same(config->knob[earlier].name, knob->name))
				return ft_fail_field(
				        error, FT_E_BAD_REQUEST, knob->name, "given twice", "given once");
		knob->word[0] = '\0';
		if (!ft_read_int(cursor, &knob->value)) {
			const char *word = NULL;
			size_t length = 0;
			if (!ft_read_text(cursor, &word, &length) || !ft_word_valid_n(word, length))
				return ft_fail_field(error, FT_E_BAD_REQUEST, knob->name,
				        "neither an integer nor a word", "an integer of 64 bits, or a word");
			knob->value = 0;
			memcpy(knob->word, word, length);
			knob->word[length] = '\0';
		}
		config->count = i + 1;
	}
	return 0;
}
