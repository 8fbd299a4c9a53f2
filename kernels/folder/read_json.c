#include "kernels/folder/read_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/value.h"

enum { SHOWN_SIZE = 64, LIST_SIZE = 192 };

void place_write(const struct place *place, char text[PLACE_SIZE])
{
	size_t length;

	text[0] = '\0';
	if (place == NULL || (place->in == NULL && place->member == NULL))
		return;
	place_write(place->in, text);
	length = strlen(text);
	if (place->member == NULL)
		snprintf(text + length, PLACE_SIZE - length, "[%zu]", place->index);
	else
		snprintf(text + length, PLACE_SIZE - length, "%s%.40s", length > 0 ? "." : "", place->member);
}

static int blame(struct ft_error *error, const char *place, const char *value, const char *bound)
{
	if (error == NULL)
		return -1;
	ft_text_copy(error->field, sizeof(error->field), place);
	ft_text_copy(error->value, sizeof(error->value), value);
	ft_text_copy(error->bound, sizeof(error->bound), bound);
	ft_make_plain(error->field);
	ft_make_plain(error->value);
	ft_make_plain(error->bound);
	return -1;
}

int place_fail(const struct place *place, struct ft_error *error, const char *format, ...)
{
	char where[PLACE_SIZE], what[sizeof(error->message)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	place_write(place, where);
	(void)ft_fail(
	        error, FT_E_BAD_VALUE, "kernel.json: %s%s%s", where, where[0] != '\0' ? ": " : "", what);
	return blame(error, where, "", "");
}

/* A value as an error shows it; never all of one that is large. */
static void show(const json_t *value, char text[SHOWN_SIZE])
{
	switch (value == NULL ? JSON_NULL : json_typeof(value)) {
	case JSON_OBJECT:
		snprintf(text, SHOWN_SIZE, "an object of %zu", json_object_size(value));
		break;
	case JSON_ARRAY:
		snprintf(text, SHOWN_SIZE, "an array of %zu", json_array_size(value));
		break;
	case JSON_STRING:
		snprintf(text, SHOWN_SIZE, "\"%.40s\"%s", json_string_value(value),
		        json_string_length(value) > 40 ? "..." : "");
		break;
	case JSON_INTEGER:
		snprintf(text, SHOWN_SIZE, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		break;
	case JSON_REAL:
		snprintf(text, SHOWN_SIZE, "%g", json_real_value(value));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		snprintf(text, SHOWN_SIZE, "%s", json_is_true(value) ? "true" : "false");
		break;
	case JSON_NULL:
	default:
		snprintf(text, SHOWN_SIZE, "%s", value == NULL ? "missing" : "null");
	}
}

int place_refuse(const struct place *place, const json_t *value, const char *bound, struct ft_error *error)
{
	char where[PLACE_SIZE], shown[SHOWN_SIZE];

	place_write(place, where);
	show(value, shown);
	(void)ft_fail(error, FT_E_BAD_VALUE, "kernel.json: %s is %s; it must be %s",
	        where[0] != '\0' ? where : "the document", shown, bound);
	return blame(error, where, shown, bound);
}

int place_blame(const char *place, struct ft_error *error)
{
	char code[sizeof(error->code)], value[sizeof(error->value)], bound[sizeof(error->bound)];

	if (error == NULL)
		return -1;
	memcpy(code, error->code, sizeof(code));
	memcpy(value, error->value, sizeof(value));
	memcpy(bound, error->bound, sizeof(bound));
	(void)ft_fail(error, code, "kernel.json: %s: %s", place, error->message);
	return blame(error, place, value, bound);
}

/* ---- objects ---- */

static int refuse_member(const struct place *place, const char *name, const struct member *member,
        size_t count, struct ft_error *error)
{
	const char *names[16];
	char list[LIST_SIZE] = "";

	for (size_t i = 0, length = 0; i < count && length < sizeof(list); i++) {
		names[i] = member[i].name;
		length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
		        i == 0                  ? ""
		                : i + 1 < count ? ", "
		                                : " and ",
		        member[i].name);
	}
	const char *meant = ft_meant_word(name, names, count);

	if (meant != NULL)
		return place_fail(&(struct place){place, name, 0}, error,
		        "there is no such member; is %s meant?", meant);
	return place_fail(
	        &(struct place){place, name, 0}, error, "there is no such member; there are %s", list);
}

int read_members(const struct place *place, const json_t *object, const struct member *member, size_t count,
        struct ft_error *error)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return place_refuse(place, object, "an object", error);
	/* jansson changes nothing of the object while it walks over it. */
	json_object_foreach((json_t *)(uintptr_t)object, name, value)
	{
		size_t i = 0;

		while (i < count && strcmp(member[i].name, name) != 0)
			i++;
		if (i == count)
			return refuse_member(place, name, member, count, error);
	}
	for (size_t i = 0; i < count; i++) {
		if (member[i].required && json_object_get(object, member[i].name) == NULL)
			return place_refuse(&(struct place){place, member[i].name, 0}, NULL, "given", error);
	}
	return 0;
}

int read_array(const struct place *in, const json_t *object, const char *name, size_t least, size_t most,
        json_t **array, struct ft_error *error)
{
	char bound[SHOWN_SIZE];

	*array = json_object_get(object, name);
	if (*array == NULL)
		return 0;
	if (json_is_array(*array) && json_array_size(*array) >= least && json_array_size(*array) <= most)
		return 0;
	snprintf(bound, sizeof(bound), "an array of %zu to %zu", least, most);
	return place_refuse(&(struct place){in, name, 0}, *array, bound, error);
}

int read_sentence(const struct place *in, const json_t *object, const char *name, size_t most,
        const char **sentence, struct ft_error *error)
{
	const json_t *value = json_object_get(object, name);
	const char *text = json_string_value(value);
	char bound[SHOWN_SIZE];
	bool is_plain = text != NULL && json_string_length(value) <= most && text[0] != '\0';

	*sentence = text;
	if (value == NULL)
		return 0;
	for (const unsigned char *at = (const unsigned char *)text; is_plain && *at != '\0'; at++)
		is_plain = *at >= 0x20 && *at != 0x7f && !(at[0] == 0xc2 && at[1] < 0xa0);
	if (is_plain)
		return 0;
	snprintf(bound, sizeof(bound), "a text of 1 to %zu bytes in one line", most);
	return place_refuse(&(struct place){in, name, 0}, value, bound, error);
}

int read_text(const struct place *in, const json_t *object, const char *name, char *text, size_t size,
        struct ft_error *error)
{
	const char *read;

	if (read_sentence(in, object, name, size - 1, &read, error) < 0)
		return -1;
	if (read != NULL)
		ft_text_copy(text, size, read);
	return 0;
}

int read_integer(const struct place *in, const json_t *object, const char *name, int64_t *number,
        struct ft_error *error)
{
	const json_t *value = json_object_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is_integer(value))
		return place_refuse(&(struct place){in, name, 0}, value, "a whole number", error);
	*number = json_integer_value(value);
	return 0;
}

int read_flag(
        const struct place *in, const json_t *object, const char *name, bool *flag, struct ft_error *error)
{
	const json_t *value = json_object_get(object, name);

	if (value == NULL)
		return 0;
	if (!json_is_boolean(value))
		return place_refuse(&(struct place){in, name, 0}, value, "true or false", error);
	*flag = json_is_true(value);
	return 0;
}

int read_word(const struct place *place, const json_t *value, const char *const *word, size_t count,
        struct ft_error *error)
{
	const char *text = json_string_value(value);
	char list[LIST_SIZE] = "";
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		if (text != NULL && strcmp(word[i], text) == 0)
			return (int)i;
		if (length < sizeof(list))
			length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
			        i == 0                  ? ""
			                : i + 1 < count ? ", "
			                                : " or ",
			        word[i]);
	}
	return place_refuse(place, value, list, error);
}
