#include "proto/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool is_name_part(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static inline bool is_text_part(char c)
{
	return is_name_part(c) || c == '.' || c == ':' || c == '+' || c == '-';
}

bool ft_name_valid_n(const char *name, size_t length)
{
	if (length == 0 || length >= FT_NAME_SIZE || is_digit(name[0]))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!is_name_part(name[i]))
			return false;
	return true;
}

bool ft_name_valid(const char *name)
{
	return ft_name_valid_n(name, strlen(name));
}

bool ft_kernel_name_valid(const char *name)
{
	size_t length = 0;

	if (!is_name_part(name[0]) || is_digit(name[0]))
		return false;
	while (is_name_part(name[length]) || name[length] == '.' || name[length] == '/' ||
	        name[length] == '-')
		length++;
	return name[length] == '\0' && length < FT_KERNEL_SIZE;
}

bool ft_text_valid_n(const char *text, size_t length)
{
	if (length == 0 || length >= FT_TEXT_SIZE)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!is_text_part(text[i]))
			return false;
	return true;
}

bool ft_word_valid_n(const char *word, size_t length)
{
	return length > 0 && length < FT_WORD_SIZE && is_name_part(word[0]) && !is_digit(word[0]) &&
	        word[0] != '_' && ft_text_valid_n(word, length);
}

/* How many letters must be changed, put in or left out to make one word of the other; many if one of them is too long for a name. */
static size_t distance(const char *one, const char *other)
{
	size_t row[FT_NAME_SIZE], width = strlen(other);

	if (strlen(one) >= FT_NAME_SIZE || width >= FT_NAME_SIZE)
		return FT_NAME_SIZE;
	for (size_t k = 0; k <= width; k++)
		row[k] = k;
	for (size_t i = 0; one[i] != '\0'; i++) {
		size_t before = row[0]++; /* of the row above */

		for (size_t k = 0; k < width; k++) {
			size_t least = before + (one[i] != other[k]);

			before = row[k + 1];
			least = least < before + 1 ? least : before + 1;
			row[k + 1] = least < row[k] + 1 ? least : row[k] + 1;
		}
	}
	return row[width];
}

const char *ft_meant_word(const char *word, const char *const *names, size_t count)
{
	const char *meant = NULL;
	size_t least = 3;

	for (size_t i = 0; i < count; i++) {
		size_t away = distance(word, names[i]);

		if (away < least && away < strlen(names[i])) {
			least = away;
			meant = names[i];
		}
	}
	return meant;
}

static int refuse_name(const char *name, struct ft_error *error)
{
	char bound[64];
	snprintf(bound, sizeof(bound), "letters, digits and _, at most %d of them", FT_NAME_SIZE - 1);
	return ft_fail_field(error, FT_E_BAD_VALUE, "name", name, bound);
}

/* The field of that name, made if there is none; NULL with an error. */
static struct ft_field *field_at(struct ft_problem *problem, const char *name, struct ft_error *error)
{
	for (uint32_t i = 0; i < problem->count; i++)
		if (ft_name_same(problem->field[i].name, name))
			return &problem->field[i];
	if (!ft_name_valid(name)) {
		refuse_name(name, error);
		return NULL;
	}
	if (problem->count >= FT_FIELDS_MAX) {
		ft_fail(error, FT_E_BAD_VALUE, "a problem has at most %d fields; %s is one too many",
		        FT_FIELDS_MAX, name);
		return NULL;
	}
	struct ft_field *field = &problem->field[problem->count++];
	memset(field->name, 0, sizeof(field->name));
	memcpy(field->name, name, strlen(name)); /* a valid name fits */
	return field;
}

int ft_problem_set_number(
        struct ft_problem *problem, const char *name, int64_t number, struct ft_error *error)
{
	struct ft_field *field = field_at(problem, name, error);
	if (field == NULL)
		return -1;
	field->is_text = false;
	field->number = number;
	memset(field->text, 0, sizeof(field->text));
	return 0;
}

int ft_problem_set_text(
        struct ft_problem *problem, const char *name, const char *text, struct ft_error *error)
{
	if (!ft_text_valid_n(text, strlen(text))) {
		char bound[64];
		snprintf(bound, sizeof(bound), "1 to %d letters, digits and . _ : + -", FT_TEXT_SIZE - 1);
		return ft_fail_field(error, FT_E_BAD_VALUE, name, text, bound);
	}
	struct ft_field *field = field_at(problem, name, error);
	if (field == NULL)
		return -1;
	field->is_text = true;
	field->number = 0;
	memset(field->text, 0, sizeof(field->text));
	memcpy(field->text, text, strlen(text)); /* a valid text fits */
	return 0;
}

const struct ft_field *ft_problem_find(const struct ft_problem *problem, const char *name)
{
	for (uint32_t i = 0; i < problem->count; i++)
		if (ft_name_same(problem->field[i].name, name))
			return &problem->field[i];
	return NULL;
}

static bool field_equal(const struct ft_field *a, const struct ft_field *b)
{
	if (a->is_text != b->is_text)
		return false;
	return a->is_text ? strcmp(a->text, b->text) == 0 : a->number == b->number;
}

bool ft_problem_equal(const struct ft_problem *a, const struct ft_problem *b)
{
	if (a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++) {
		/* Nearly always in the same order. */
		const struct ft_field *other = ft_name_same(a->field[i].name, b->field[i].name)
		        ? &b->field[i]
		        : ft_problem_find(b, a->field[i].name);
		if (other == NULL || !field_equal(&a->field[i], other))
			return false;
	}
	return true;
}

/* Appends as much as fits; `length` counts on. */
static void append(char *text, size_t size, size_t *length, const char *part)
{
	size_t partial = strlen(part);
	if (*length < size) {
		size_t fits = size - *length - 1 < partial ? size - *length - 1 : partial;
		memcpy(text + *length, part, fits);
		text[*length + fits] = '\0';
	}
	*length += partial;
}

/* As snprintf does, which takes ten times as long: whole spaces are formatted at the start of a sweep. */
static const char *format_number(int64_t value, char text[24])
{
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	char *at = text + 23;

	*at = '\0';
	do {
		*--at = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (value < 0)
		*--at = '-';
	return at;
}

static void append_pair(
        char *text, size_t size, size_t *length, char separator, const char *name, const char *value)
{
	const char between[2] = {separator, '\0'};
	if (*length > 0)
		append(text, size, length, between);
	append(text, size, length, name);
	append(text, size, length, "=");
	append(text, size, length, value);
}

int ft_problem_format(const struct ft_problem *problem, char separator, char *text, size_t size)
{
	size_t length = 0;
	if (size > 0)
		text[0] = '\0';
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];
		char number[24];
		append_pair(text, size, &length, separator, field->name,
		        field->is_text ? field->text : format_number(field->number, number));
	}
	return (int)length;
}

/* The knob of that name, made if there is none; NULL with an error. */
static struct ft_knob_value *knob_at(struct ft_config *config, const char *name, struct ft_error *error)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (ft_name_same(config->knob[i].name, name))
			return &config->knob[i];
	if (!ft_name_valid(name)) {
		refuse_name(name, error);
		return NULL;
	}
	if (config->count >= FT_KNOBS_MAX) {
		ft_fail(error, FT_E_BAD_VALUE, "a config has at most %d knobs; %s is one too many",
		        FT_KNOBS_MAX, name);
		return NULL;
	}
	struct ft_knob_value *knob = &config->knob[config->count++];
	memset(knob, 0, sizeof(*knob));
	memcpy(knob->name, name, strlen(name)); /* a valid name fits */
	return knob;
}

int ft_config_set(struct ft_config *config, const char *name, int64_t value, struct ft_error *error)
{
	struct ft_knob_value *knob = knob_at(config, name, error);
	if (knob == NULL)
		return -1;
	knob->value = value;
	memset(knob->word, 0, sizeof(knob->word));
	return 0;
}

int ft_config_set_word(struct ft_config *config, const char *name, const char *word, struct ft_error *error)
{
	if (!ft_word_valid_n(word, strlen(word))) {
		char bound[64];
		snprintf(bound, sizeof(bound), "a letter, then up to %d more, digits and . _ : + -",
		        FT_WORD_SIZE - 2);
		return ft_fail_field(error, FT_E_BAD_VALUE, name, word, bound);
	}
	struct ft_knob_value *knob = knob_at(config, name, error);
	if (knob == NULL)
		return -1;
	knob->value = 0;
	memset(knob->word, 0, sizeof(knob->word));
	memcpy(knob->word, word, strlen(word)); /* a valid word fits */
	return 0;
}

const struct ft_knob_value *ft_config_find(const struct ft_config *config, const char *name)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (ft_name_same(config->knob[i].name, name))
			return &config->knob[i];
	return NULL;
}

bool ft_config_equal(const struct ft_config *a, const struct ft_config *b)
{
	if (a->count != b->count || a->document_length != b->document_length)
		return false;
	if (a->document_length > 0)
		return memcmp(a->document, b->document, a->document_length) == 0;
	/* Members of a space have their knobs in one order: mostly a value tells, and no more than one name is looked at. */
	for (uint32_t i = 0; i < a->count; i++) {
		if (ft_knob_same(&a->knob[i], &b->knob[i]))
			continue;
		if (ft_name_same(a->knob[i].name, b->knob[i].name))
			return false;
		break;
	}
	for (uint32_t i = 0; i < a->count; i++) {
		const struct ft_knob_value *other = ft_name_same(a->knob[i].name, b->knob[i].name)
		        ? &b->knob[i]
		        : ft_config_find(b, a->knob[i].name);
		if (other == NULL || !ft_knob_same(&a->knob[i], other))
			return false;
	}
	return true;
}

const char *ft_knob_format(const struct ft_knob_value *knob, char number[24])
{
	return knob->word[0] != '\0' ? knob->word : format_number(knob->value, number);
}

int ft_config_format(const struct ft_config *config, char separator, char *text, size_t size)
{
	size_t length = 0;
	if (size > 0)
		text[0] = '\0';
	if (config->document_length > 0)
		return snprintf(text, size, "%.*s", (int)config->document_length, config->document);
	for (uint32_t i = 0; i < config->count; i++) {
		char number[24];
		append_pair(text, size, &length, separator, config->knob[i].name,
		        ft_knob_format(&config->knob[i], number));
	}
	return (int)length;
}

static bool parse_integer(const char *text, int64_t *value)
{
	/* strtoll alone would take " 1", "+1" and "". */
	if (!is_digit(text[0]) && !(text[0] == '-' && is_digit(text[1])))
		return false;
	char *end = NULL;
	errno = 0;
	long long parsed = strtoll(text, &end, 10);
	if (errno != 0 || *end != '\0')
		return false;
	*value = parsed;
	return true;
}

int ft_config_parse(const char *text, struct ft_config *config, struct ft_error *error)
{
	memset(config, 0, sizeof(*config));
	for (;;) {
		text += strspn(text, ", ");
		if (*text == '\0')
			return 0;
		char pair[FT_NAME_SIZE + FT_WORD_SIZE];
		size_t length = strcspn(text, ", ");
		snprintf(pair, sizeof(pair), "%.*s", (int)(length < sizeof(pair) ? length : sizeof(pair)),
		        text);
		char *equals = strchr(pair, '=');
		if (length >= sizeof(pair) || equals == NULL)
			return ft_fail_field(error, FT_E_BAD_VALUE, "config", pair, "NAME=VALUE pairs");
		*equals = '\0';
		int64_t value = 0;
		bool number = parse_integer(equals + 1, &value);
		if (!number && !ft_word_valid_n(equals + 1, strlen(equals + 1)))
			return ft_fail_field(
			        error, FT_E_BAD_VALUE, pair, equals + 1, "an integer of 64 bits, or a word");
		if (ft_config_find(config, pair) != NULL)
			return ft_fail_field(error, FT_E_BAD_VALUE, pair, "given twice", "given once");
		if ((number ? ft_config_set(config, pair, value, error)
		            : ft_config_set_word(config, pair, equals + 1, error)) != 0)
			return -1;
		text += length;
	}
}
