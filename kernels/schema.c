#include "kernels/kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
	WORD_SIZE = 32,
	LIST_SIZE = 192,         /* names or values listed for people: cut when there are more */
	PART_LIMIT = 256 * 1024, /* the encoded fields or knobs of one schema */
};

/* ---- words for people ---- */

/* Text built in a buffer of a fixed size; what does not fit is cut. */
struct line {
	char *text;
	size_t size;
	size_t length;
};

static struct line line_of(char *text, size_t size)
{
	struct line line = {.text = text, .size = size};

	if (size > 0)
		text[0] = '\0';
	return line;
}

/* Counts what does not fit too, so that the length is snprintf's. */
static void line_add_n(struct line *line, const char *text, size_t length)
{
	if (line->length + 1 < line->size) {
		size_t room = line->size - line->length - 1;
		size_t part = length < room ? length : room;

		memcpy(line->text + line->length, text, part);
		line->text[line->length + part] = '\0';
	}
	line->length += length;
}

static void line_add(struct line *line, const char *text)
{
	line_add_n(line, text, strlen(text));
}

/* Not snprintf: a lookup's key is made of these. */
static void line_add_number(struct line *line, int64_t number)
{
	char digits[WORD_SIZE];
	size_t at = sizeof digits;
	uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (number < 0)
		digits[--at] = '-';
	line_add_n(line, digits + at, sizeof digits - at);
}

/* ", " between the elements of a list, and `last` before its last one. */
static void line_part(struct line *line, uint32_t index, uint32_t count, const char *last)
{
	if (index == 0)
		return;
	line_add(line, index + 1 == count ? last : ", ");
}

static uint32_t choice_count(const struct ft_schema_field_def *def)
{
	uint32_t count = 0;

	while (count < FT_CHOICES_MAX && def->choice[count][0] != '\0')
		count++;
	return count;
}

static void describe_field(const struct ft_schema_field_def *def, char *text, size_t size)
{
	struct line line = line_of(text, size);

	if (!def->is_text) {
		line_add(&line, "between ");
		line_add_number(&line, def->min);
		line_add(&line, " and ");
		line_add_number(&line, def->max);
		return;
	}
	uint32_t count = choice_count(def);

	if (count == 0)
		line_add(&line, "one word");
	for (uint32_t i = 0; i < count; i++) {
		line_part(&line, i, count, " or ");
		line_add(&line, def->choice[i]);
	}
}

static void describe_knob(const struct ft_knob_def *def, char *text, size_t size)
{
	struct line line = line_of(text, size);

	for (uint32_t i = 0; i < def->count; i++) {
		line_part(&line, i, def->count, " or ");
		if (def->is_word)
			line_add(&line, def->word[i]);
		else
			line_add_number(&line, def->value[i]);
	}
}

static void list_fields(const struct ft_schema *schema, char *text, size_t size)
{
	struct line line = line_of(text, size);

	for (uint32_t i = 0; i < schema->field_count; i++) {
		line_part(&line, i, schema->field_count, " and ");
		line_add(&line, schema->field[i].name);
	}
}

static void list_knobs(const struct ft_schema *schema, char *text, size_t size)
{
	struct line line = line_of(text, size);

	if (schema->knob_count == 0)
		line_add(&line, "none");
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		line_part(&line, i, schema->knob_count, " and ");
		line_add(&line, schema->knob[i].name);
	}
}

static void format_value(const struct ft_field *field, char *text, size_t size)
{
	if (field->is_text)
		snprintf(text, size, "%s", field->text);
	else
		snprintf(text, size, "%" PRId64, field->number);
}

/* Says what was at fault, beside a message that ft_fail has written. Returns -1. */
static int blame(struct ft_error *error, const char *field, const char *value, const char *bound)
{
	if (!error)
		return -1;
	snprintf(error->field, sizeof error->field, "%s", field);
	snprintf(error->value, sizeof error->value, "%s", value);
	snprintf(error->bound, sizeof error->bound, "%s", bound);
	return -1;
}

/* ---- problems ---- */

static const struct ft_schema_field_def *find_field(const struct ft_schema *schema, const char *name)
{
	for (uint32_t i = 0; i < schema->field_count; i++) {
		if (ft_name_same(schema->field[i].name, name))
			return &schema->field[i];
	}
	return NULL;
}

/* As blame, for a field as it was given. */
static int blame_field(struct ft_error *error, const struct ft_field *field, const char *bound)
{
	char value[FT_TEXT_SIZE];

	format_value(field, value, sizeof value);
	return blame(error, field->name, value, bound);
}

static int refuse_type(
        const struct ft_schema_field_def *def, const struct ft_field *field, struct ft_error *error)
{
	char value[FT_TEXT_SIZE], bound[LIST_SIZE];

	format_value(field, value, sizeof value);
	describe_field(def, bound, sizeof bound);
	ft_fail(error, FT_E_BAD_REQUEST, "%s is the %s %s; it must be a %s, %s", field->name,
	        field->is_text ? "text" : "number", value, def->is_text ? "text" : "number", bound);
	return blame(error, field->name, value, bound);
}

static int check_names(const struct ft_schema *schema, const struct ft_problem *given, struct ft_error *error)
{
	if (given->count > FT_FIELDS_MAX)
		return ft_fail(error, FT_E_BAD_REQUEST, "a problem has at most %d fields", FT_FIELDS_MAX);
	for (uint32_t i = 0; i < given->count; i++) {
		const struct ft_field *field = &given->field[i];
		const struct ft_schema_field_def *def = find_field(schema, field->name);

		if (!def) {
			char list[LIST_SIZE];

			list_fields(schema, list, sizeof list);
			ft_fail(error, FT_E_UNKNOWN_FIELD, "%s has no field %s; it has %s", schema->kernel,
			        field->name, list);
			return blame_field(error, field, list);
		}
		if (def->is_text != field->is_text)
			return refuse_type(def, field, error);
		for (uint32_t j = 0; j < i; j++) {
			if (ft_name_same(given->field[j].name, field->name)) {
				ft_fail(error, FT_E_BAD_REQUEST, "%s is given twice", field->name);
				return blame_field(error, field, "given once");
			}
		}
	}
	return 0;
}

/* A text that stands in the canonical form must not be able to look like another field. */
static bool is_word(const char *text)
{
	if (text[0] == '\0')
		return false;
	for (const char *at = text; *at; at++) {
		if (*at <= ' ' || *at >= 0x7f || *at == '=' || *at == ',')
			return false;
	}
	return true;
}

static bool value_allowed(const struct ft_schema_field_def *def, const struct ft_field *field)
{
	if (!def->is_text)
		return field->number >= def->min && field->number <= def->max;
	uint32_t count = choice_count(def);

	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(def->choice[i], field->text) == 0)
			return true;
	}
	return count == 0 && is_word(field->text);
}

/* The value that a field has when it is not given: false if it must be. */
static bool default_of(
        const struct ft_schema_field_def *def, const struct ft_problem *whole, struct ft_field *value)
{
	if (def->same_as[0] != '\0') {
		const struct ft_field *other = ft_problem_find(whole, def->same_as);

		if (!other || other->is_text != def->is_text)
			return false;
		*value = *other;
	} else if (def->has_default) {
		value->is_text = def->is_text;
		value->number = def->default_number;
		memcpy(value->text, def->default_text, sizeof value->text);
	} else {
		return false;
	}
	memcpy(value->name, def->name, sizeof value->name);
	return true;
}

int ft_schema_complete(const struct ft_schema *schema, const struct ft_problem *given,
        struct ft_problem *whole, struct ft_error *error)
{
	struct ft_problem made; /* large: no more of it is written than the fields */

	made.count = 0;
	if (check_names(schema, given, error) < 0)
		return -1;
	for (uint32_t i = 0; i < schema->field_count; i++) {
		const struct ft_schema_field_def *def = &schema->field[i];
		const struct ft_field *field = ft_problem_find(given, def->name);
		struct ft_field *put = &made.field[made.count];
		char bound[LIST_SIZE];

		if (field) {
			*put = *field;
		} else if (!default_of(def, &made, put)) {
			describe_field(def, bound, sizeof bound);
			ft_fail(error, FT_E_BAD_REQUEST, "%s is missing; %s needs it, %s", def->name,
			        schema->kernel, bound);
			return blame(error, def->name, "", bound);
		}
		if (!value_allowed(def, put)) {
			char value[FT_TEXT_SIZE];

			format_value(put, value, sizeof value);
			describe_field(def, bound, sizeof bound);
			return ft_fail_field(error, FT_E_BAD_VALUE, def->name, value, bound);
		}
		made.count++;
	}
	ft_problem_copy(whole, &made);
	return 0;
}

static bool same_value(const struct ft_field *a, const struct ft_field *b)
{
	if (a->is_text != b->is_text)
		return false;
	return a->is_text ? strcmp(a->text, b->text) == 0 : a->number == b->number;
}

/* The indices, by name, of the fields that the canonical form names. */
static uint32_t canonical_fields(const struct ft_schema *schema, const struct ft_problem *whole,
        const struct ft_field *chosen[FT_FIELDS_MAX])
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < schema->field_count; i++) {
		const struct ft_schema_field_def *def = &schema->field[i];
		const struct ft_field *field = ft_problem_find(whole, def->name);
		struct ft_field usual;
		uint32_t at = count;

		if (!field || strcmp(def->name, schema->scale) == 0)
			continue;
		if (default_of(def, whole, &usual) && same_value(field, &usual))
			continue;
		while (at > 0 && strcmp(chosen[at - 1]->name, field->name) > 0) {
			chosen[at] = chosen[at - 1];
			at--;
		}
		chosen[at] = field;
		count++;
	}
	return count;
}

int ft_schema_canonical(
        const struct ft_schema *schema, const struct ft_problem *whole, char *text, size_t size)
{
	const struct ft_field *chosen[FT_FIELDS_MAX];
	uint32_t count = canonical_fields(schema, whole, chosen);
	struct line line = line_of(text, size);

	for (uint32_t i = 0; i < count; i++) {
		if (i > 0)
			line_add(&line, " ");
		line_add(&line, chosen[i]->name);
		line_add(&line, "=");
		if (chosen[i]->is_text)
			line_add(&line, chosen[i]->text);
		else
			line_add_number(&line, chosen[i]->number);
	}
	return (int)line.length;
}

void ft_schema_key(const struct ft_schema *schema, const struct ft_problem *whole, struct ft_problem_key *key)
{
	char text[FT_PROBLEM_TEXT_SIZE];
	int length = ft_schema_canonical(schema, whole, text, sizeof text);
	const struct ft_field *scale = schema->scale[0] ? ft_problem_find(whole, schema->scale) : NULL;
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, (size_t)length));
	memcpy(key->hash, canonical.digest, sizeof key->hash);
	key->scale = scale ? (uint64_t)scale->number : 0;
}

/* ---- configs ---- */

static int check_knob_names(
        const struct ft_schema *schema, const struct ft_config *given, struct ft_error *error)
{
	if (given->document_length > 0)
		return ft_fail_field(
		        error, FT_E_BAD_REQUEST, "config", "a document", "the knobs of this kernel");
	if (given->count > FT_KNOBS_MAX)
		return ft_fail(error, FT_E_BAD_REQUEST, "a config has at most %d knobs", FT_KNOBS_MAX);
	for (uint32_t i = 0; i < given->count; i++) {
		const struct ft_knob_value *knob = &given->knob[i];
		char number[24], list[LIST_SIZE];
		uint32_t at = 0;

		while (at < schema->knob_count && !ft_name_same(schema->knob[at].name, knob->name))
			at++;
		if (at == schema->knob_count) {
			list_knobs(schema, list, sizeof list);
			ft_fail(error, FT_E_UNKNOWN_KNOB, "%s has no knob %s on this device; it has %s",
			        schema->kernel, knob->name, list);
			return blame(error, knob->name, ft_knob_format(knob, number), list);
		}
		for (uint32_t j = 0; j < i; j++) {
			if (ft_name_same(given->knob[j].name, knob->name)) {
				ft_fail(error, FT_E_BAD_REQUEST, "%s is given twice", knob->name);
				return blame(error, knob->name, ft_knob_format(knob, number), "given once");
			}
		}
	}
	return 0;
}

/* All knobs, one by one: so configs nearly always are, for they were made by a schema. */
static bool in_order(const struct ft_schema *schema, const struct ft_config *given)
{
	if (given->document_length > 0 || given->count != schema->knob_count)
		return false;
	for (uint32_t i = 0; i < given->count; i++) {
		if (!ft_name_same(given->knob[i].name, schema->knob[i].name))
			return false;
	}
	return true;
}

int ft_schema_check_config(const struct ft_schema *schema, const struct ft_config *given,
        struct ft_config *ordered, struct ft_error *error)
{
	const bool plain = in_order(schema, given);
	char list[LIST_SIZE];

	ft_config_clear(ordered);
	if (!plain && check_knob_names(schema, given, error) < 0)
		return -1;
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		const struct ft_knob_def *def = &schema->knob[i];
		const struct ft_knob_value *knob = plain ? &given->knob[i] : ft_config_find(given, def->name);
		uint32_t at = 0;

		if (!knob) {
			describe_knob(def, list, sizeof list);
			ft_fail(error, FT_E_BAD_REQUEST, "%s is missing; a config of %s needs it, %s",
			        def->name, schema->kernel, list);
			return blame(error, def->name, "", list);
		}
		while (at < def->count &&
		        (def->is_word ? strcmp(def->word[at], knob->word) != 0
		                      : def->value[at] != knob->value))
			at++;
		if (at == def->count || def->is_word != (knob->word[0] != '\0')) {
			char number[24];

			describe_knob(def, list, sizeof list);
			return ft_fail_field(
			        error, FT_E_BAD_VALUE, def->name, ft_knob_format(knob, number), list);
		}
		ordered->knob[ordered->count++] = *knob;
	}
	return 0;
}

/* ---- as a runner's hello carries it ---- */

static struct ft_view view_of(const struct ft_writer *writer)
{
	return (struct ft_view){.data = writer->data, .length = writer->length};
}

static void write_field(struct ft_writer *writer, const struct ft_schema_field_def *def)
{
	uint8_t room[FT_CHOICES_MAX * (FT_TEXT_SIZE + 4) + 8];
	struct ft_writer choices;
	struct ft_schema_field message = {
	        .min = def->min,
	        .max = def->max,
	        .has_default = def->has_default,
	        .default_number = def->default_number,
	};

	snprintf(message.name, sizeof message.name, "%s", def->name);
	snprintf(message.type, sizeof message.type, "%s", def->is_text ? "text" : "int");
	snprintf(message.same_as, sizeof message.same_as, "%s", def->same_as);
	snprintf(message.default_text, sizeof message.default_text, "%s", def->default_text);
	snprintf(message.help, sizeof message.help, "%s", def->help);
	ft_writer_init_fixed(&choices, room, sizeof room);
	if (def->is_text) {
		uint32_t count = choice_count(def);

		ft_write_array(&choices, count);
		for (uint32_t i = 0; i < count; i++)
			ft_write_text(&choices, def->choice[i]);
		message.choices = view_of(&choices);
	}
	ft_encode(writer, &ft_schema_field_message, &message);
}

static void write_knob(struct ft_writer *writer, const struct ft_knob_def *def)
{
	uint8_t room[FT_KNOB_VALUES_MAX * (FT_WORD_SIZE + 1) + 8];
	struct ft_writer values;
	struct ft_schema_knob message = {.changes_bits = def->changes_bits};

	snprintf(message.name, sizeof message.name, "%s", def->name);
	snprintf(message.help, sizeof message.help, "%s", def->help);
	ft_writer_init_fixed(&values, room, sizeof room);
	ft_write_array(&values, def->count);
	for (uint32_t i = 0; i < def->count; i++) {
		if (def->is_word)
			ft_write_text(&values, def->word[i]);
		else
			ft_write_int(&values, def->value[i]);
	}
	message.values = view_of(&values);
	ft_encode(writer, &ft_schema_knob_message, &message);
}

void ft_schema_write_fields(struct ft_writer *writer, const struct ft_schema *schema)
{
	ft_write_array(writer, schema->field_count);
	for (uint32_t i = 0; i < schema->field_count; i++)
		write_field(writer, &schema->field[i]);
}

void ft_schema_write_knobs(struct ft_writer *writer, const struct ft_schema *schema)
{
	ft_write_array(writer, schema->knob_count);
	for (uint32_t i = 0; i < schema->knob_count; i++)
		write_knob(writer, &schema->knob[i]);
}

void ft_schema_write(struct ft_writer *writer, const struct ft_schema *schema, const char *source_hash,
        const struct ft_config *fallback)
{
	struct ft_runner_kernel message = {.revision = schema->revision};
	struct ft_writer fields, knobs;

	ft_writer_init_growing(&fields, PART_LIMIT);
	ft_writer_init_growing(&knobs, PART_LIMIT);
	ft_schema_write_fields(&fields, schema);
	ft_schema_write_knobs(&knobs, schema);

	snprintf(message.name, sizeof message.name, "%s", schema->kernel);
	snprintf(message.source, sizeof message.source, "%s", source_hash);
	snprintf(message.scale, sizeof message.scale, "%s", schema->scale);
	message.fields = view_of(&fields);
	message.knobs = view_of(&knobs);
	if (fallback)
		message.fallback = *fallback;
	if (ft_writer_ok(&fields) && ft_writer_ok(&knobs))
		ft_encode(writer, &ft_runner_kernel_message, &message);
	else
		writer->failed = true;
	ft_writer_free(&knobs);
	ft_writer_free(&fields);
}

static int refuse(struct ft_error *error, const char *kernel, const char *what, const char *name)
{
	ft_fail(error, FT_E_BAD_VALUE, "the schema of kernel %s is refused: %s %s", kernel, name, what);
	return blame(error, name, "", "");
}

static int read_choices(
        struct ft_view data, struct ft_schema_field_def *def, const char *kernel, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t count = 0;

	if (!data.data)
		return 0;
	if (!ft_read_array(&cursor, &count) || count > FT_CHOICES_MAX)
		return refuse(error, kernel, "has choices that are no list, or too many", def->name);
	for (uint32_t i = 0; i < count; i++) {
		if (!ft_read_text_into(&cursor, def->choice[i], sizeof def->choice[i]) ||
		        !is_word(def->choice[i]))
			return refuse(error, kernel, "has a choice that is no word", def->name);
	}
	return 0;
}

static int check_field(
        const struct ft_schema *schema, const struct ft_schema_field_def *def, struct ft_error *error)
{
	if (!ft_name_valid(def->name))
		return refuse(error, schema->kernel, "is no name for a field", def->name);
	if (find_field(schema, def->name))
		return refuse(error, schema->kernel, "is a field twice", def->name);
	if (!def->is_text && def->min > def->max)
		return refuse(error, schema->kernel, "has a least value above its greatest", def->name);
	if (def->same_as[0] != '\0') {
		const struct ft_schema_field_def *other = find_field(schema, def->same_as);

		if (!other || other->is_text != def->is_text)
			return refuse(error, schema->kernel,
			        "has a default like a field that does not come before it", def->name);
	} else if (def->has_default) {
		struct ft_field usual;

		if (!default_of(def, &(struct ft_problem){.count = 0}, &usual) || !value_allowed(def, &usual))
			return refuse(error, schema->kernel, "has a default outside its bounds", def->name);
	}
	return 0;
}

static int read_fields(struct ft_view data, struct ft_schema *schema, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t count = 0;

	if (!ft_read_array(&cursor, &count) || count > FT_FIELDS_MAX)
		return refuse(error, schema->kernel, "is no list, or too long", "fields");
	for (uint32_t i = 0; i < count; i++) {
		struct ft_schema_field_def *def = &schema->field[i];
		struct ft_schema_field message;
		struct ft_view view;

		if (!ft_read_view(&cursor, &view))
			return refuse(error, schema->kernel, "is cut short", "fields");
		if (ft_decode(&ft_schema_field_message, view, &message, error) < 0)
			return -1;
		memset(def, 0, sizeof *def);
		memcpy(def->name, message.name, sizeof def->name);
		memcpy(def->same_as, message.same_as, sizeof def->same_as);
		memcpy(def->default_text, message.default_text, sizeof def->default_text);
		memcpy(def->help, message.help, sizeof def->help);
		def->min = message.min;
		def->max = message.max;
		def->has_default = message.has_default;
		def->default_number = message.default_number;
		def->is_text = strcmp(message.type, "text") == 0;
		if (!def->is_text && strcmp(message.type, "int") != 0)
			return refuse(error, schema->kernel, "is of no type that is known", def->name);
		if (def->is_text && read_choices(message.choices, def, schema->kernel, error) < 0)
			return -1;
		if (check_field(schema, def, error) < 0)
			return -1;
		schema->field_count = i + 1;
	}
	return 0;
}

static int read_knob(struct ft_view data, struct ft_schema *schema, struct ft_error *error)
{
	struct ft_knob_def *def = &schema->knob[schema->knob_count];
	struct ft_schema_knob message;

	if (ft_decode(&ft_schema_knob_message, data, &message, error) < 0)
		return -1;
	memset(def, 0, sizeof *def);
	memcpy(def->name, message.name, sizeof def->name);
	memcpy(def->help, message.help, sizeof def->help);
	def->changes_bits = message.changes_bits;
	if (!ft_name_valid(def->name))
		return refuse(error, schema->kernel, "is no name for a knob", def->name);
	for (uint32_t i = 0; i < schema->knob_count; i++) {
		if (strcmp(schema->knob[i].name, def->name) == 0)
			return refuse(error, schema->kernel, "is a knob twice", def->name);
	}
	struct ft_cursor cursor = ft_cursor_of(message.values.data, message.values.length);

	if (!ft_read_array(&cursor, &def->count) || def->count == 0 || def->count > FT_KNOB_VALUES_MAX)
		return refuse(
		        error, schema->kernel, "has values that are no list, none, or too many", def->name);
	def->is_word = ft_peek(&cursor) == FT_KIND_TEXT;
	for (uint32_t i = 0; i < def->count; i++) {
		if (def->is_word ? !ft_read_text_into(&cursor, def->word[i], FT_WORD_SIZE) ||
		                        !ft_word_valid_n(def->word[i], strlen(def->word[i]))
		                 : !ft_read_int(&cursor, &def->value[i]))
			return refuse(error, schema->kernel,
			        "has a value that is no integer, or no word beside words", def->name);
		for (uint32_t j = 0; j < i; j++) {
			if (def->value[j] == def->value[i] && strcmp(def->word[j], def->word[i]) == 0)
				return refuse(error, schema->kernel, "has a value twice", def->name);
		}
	}
	schema->knob_count++;
	return 0;
}

static int read_knobs(struct ft_view data, struct ft_schema *schema, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t count = 0;

	if (!ft_read_array(&cursor, &count) || count > FT_KNOBS_MAX)
		return refuse(error, schema->kernel, "is no list, or too long", "knobs");
	for (uint32_t i = 0; i < count; i++) {
		struct ft_view view;

		if (!ft_read_view(&cursor, &view))
			return refuse(error, schema->kernel, "is cut short", "knobs");
		if (read_knob(view, schema, error) < 0)
			return -1;
	}
	return 0;
}

int ft_schema_read(const struct ft_runner_kernel *message, struct ft_schema *schema, struct ft_error *error)
{
	memset(schema, 0, sizeof *schema);
	memcpy(schema->kernel, message->name, sizeof schema->kernel);
	memcpy(schema->scale, message->scale, sizeof schema->scale);
	schema->revision = message->revision;
	if (!ft_name_valid(schema->kernel))
		return ft_fail_field(error, FT_E_BAD_VALUE, "name", schema->kernel, "a kernel's name");
	if (read_fields(message->fields, schema, error) < 0 || read_knobs(message->knobs, schema, error) < 0)
		return -1;
	if (message->fallback.document_length > 0)
		return refuse(error, schema->kernel, "is a document and no config of its knobs", "fallback");
	if (schema->scale[0] != '\0') {
		const struct ft_schema_field_def *scale = find_field(schema, schema->scale);

		if (!scale || scale->is_text || scale->min < 0)
			return refuse(error, schema->kernel,
			        "is no scale field: it must be a field of numbers from 0 up", schema->scale);
	}
	return 0;
}
