#include "client/ctl/model/model.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/model/formula.h"
#include "proto/error.h"

enum { TOKENS_MAX = 256, VALUES_SIZE = TOKENS_MAX * 21 };

struct reading {
	const char *path;
	const struct families *families;
	const struct model_wanted *wanted;
	const json_t *top, *text; /* the file, and the part of it that describes the language model */
	const char *family;
	int64_t tokens; /* that a formula is evaluated for */
	char *problem;
};

static bool refuse(const struct reading *reading, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static bool refuse(const struct reading *reading, const char *format, ...)
{
	char what[FILE_PROBLEM_SIZE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	snprintf(reading->problem, FILE_PROBLEM_SIZE, "%.160s: %.340s", reading->path, what);
	ft_make_plain(reading->problem);
	return false;
}

/* ---- formulas ---- */

/* Whether a model has something: only a number other than 0, and true, say so. */
static enum formula_status find_truth(
        void *data, const char *name, int64_t *number, char problem[FORMULA_PROBLEM_SIZE])
{
	const struct reading *reading = data;
	const json_t *value = json_object_get(reading->text, name);

	(void)problem;
	if (value == NULL || json_is_null(value))
		return FORMULA_UNKNOWN;
	*number = json_is_true(value) || json_number_value(value) != 0;
	return FORMULA_DONE;
}

static enum formula_status find_number(
        void *data, const char *name, int64_t *number, char problem[FORMULA_PROBLEM_SIZE])
{
	const struct reading *reading = data;
	const json_t *value = json_object_get(reading->text, name);

	*number = reading->tokens;
	if (strcmp(name, "tokens") == 0)
		return FORMULA_DONE;
	if (value == NULL || json_is_null(value))
		return FORMULA_UNKNOWN;
	*number = json_integer_value(value);
	if (json_is_integer(value) && *number >= 0 && *number <= INT32_MAX)
		return FORMULA_DONE;
	snprintf(problem, FORMULA_PROBLEM_SIZE, "%s must be a whole number from 0 to %d", name, INT32_MAX);
	return FORMULA_WRONG;
}

static bool is_true(struct reading *reading, const json_t *when)
{
	const struct formula_names names = {.find = find_truth, .data = reading};
	char problem[FORMULA_PROBLEM_SIZE];
	int64_t number;

	return when == NULL ||
	        (formula_evaluate(json_string_value(when), &names, &number, problem) == FORMULA_DONE &&
	                number != 0);
}

static bool evaluate(
        struct reading *reading, const char *norm, const char *field, const char *formula, int64_t *number)
{
	const struct formula_names names = {.find = find_number, .data = reading};
	char problem[FORMULA_PROBLEM_SIZE];

	switch (formula_evaluate(formula, &names, number, problem)) {
	case FORMULA_UNKNOWN:
		return refuse(reading, "it has no %s, of which a model of family %s has %s of its %s norm",
		        problem, reading->family, field, norm);
	case FORMULA_WRONG:
		return refuse(reading, "%s of its %s norm, %s: %s", field, norm, formula, problem);
	case FORMULA_DONE:
		break;
	}
	return *number > 0 ||
	        refuse(reading, "%s of its %s norm, %s, is %" PRId64 "; it must be 1 or more", field, norm,
	                formula, *number);
}

/* ---- fields ---- */

static bool make_numbers(struct reading *reading, const char *norm, const char *field, const char *formula,
        char list[VALUES_SIZE])
{
	const char *at = formula_has(formula, "tokens") ? reading->wanted->tokens : "1";
	size_t length = 0;
	int64_t number;

	for (;; at++) {
		char *end;

		reading->tokens = strtoll(at, &end, 10);
		if (end == at || reading->tokens < 1 || reading->tokens > INT32_MAX ||
		        (*end != ',' && *end != '\0') || length > VALUES_SIZE - 24) {
			snprintf(reading->problem, FILE_PROBLEM_SIZE,
			        "--m is %.200s; it must be at most %d numbers of tokens from 1 to %d, parted "
			        "by commas",
			        reading->wanted->tokens, TOKENS_MAX, INT32_MAX);
			return false;
		}
		if (!evaluate(reading, norm, field, formula, &number))
			return false;
		length += (size_t)snprintf(
		        list + length, VALUES_SIZE - length, "%s%" PRId64, length > 0 ? "," : "", number);
		if (*end == '\0')
			return true;
		at = end;
	}
}

static const char *text_of(const struct reading *reading, const char *key)
{
	const char *text = json_string_value(json_object_get(reading->text, key));

	return text != NULL ? text : json_string_value(json_object_get(reading->top, key));
}

static const char *find_dtype(const struct reading *reading)
{
	const char *name = text_of(reading, "dtype"), *ours, *known;
	char list[FILE_PROBLEM_SIZE] = "";
	size_t length = 0;
	json_t *value;

	if (reading->wanted->dtype != NULL)
		return reading->wanted->dtype;
	if (name == NULL)
		name = text_of(reading, "torch_dtype");
	if (name == NULL || strcmp(name, "auto") == 0) {
		refuse(reading, "it does not say its dtype: say --dtype");
		return NULL;
	}
	if (strncmp(name, "torch.", 6) == 0)
		name += 6;
	ours = json_string_value(json_object_get(reading->families->dtypes, name));
	if (ours != NULL)
		return ours;
	json_object_foreach(reading->families->dtypes, known, value)
	{
		if (length < sizeof list)
			length += (size_t)snprintf(
			        list + length, sizeof list - length, "%s%s", length > 0 ? ", " : "", known);
	}
	refuse(reading, "its dtype is %.40s; it must be one of %.200s, or said by --dtype", name, list);
	return NULL;
}

static bool make_field(struct reading *reading, const char *norm, const char *name, const json_t *value,
        struct model_field *field)
{
	const char *text = json_string_value(value), *values = text;
	char list[VALUES_SIZE];

	snprintf(field->option, sizeof field->option, "--%s", name);
	for (char *at = field->option; *at != '\0'; at++) {
		if (*at == '_')
			*at = '-';
	}
	if (text == NULL) {
		snprintf(list, sizeof list, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		values = list;
	} else if (strcmp(text, "=dtype") == 0) {
		values = find_dtype(reading);
	} else if (*text == '=') {
		values = make_numbers(reading, norm, name, text + 1, list) ? list : NULL;
	}
	if (values == NULL)
		return false;
	field->values = strdup(values);
	return field->values != NULL || refuse(reading, "out of memory");
}

/* ---- norms ---- */

static bool add_norm(struct reading *reading, const json_t *from, struct model *model)
{
	struct model_norm *norm = &model->norm[model->count];
	const char *name;
	json_t *value;

	if (!is_true(reading, json_object_get(from, "when")))
		return true;
	model->count++;
	norm->name = json_string_value(json_object_get(from, "name"));
	snprintf(norm->kernel, sizeof norm->kernel, "%s", json_string_value(json_object_get(from, "kernel")));
	json_object_foreach(json_object_get(from, "fields"), name, value)
	{
		if (!make_field(reading, norm->name, name, value, &norm->field[norm->field_count]))
			return false;
		norm->field_count++;
	}
	return true;
}

static bool is_of(struct reading *reading, const char *type, const json_t *family)
{
	const json_t *types = json_object_get(family, "types");
	bool fits = types == NULL;

	for (size_t i = 0; !fits && i < json_array_size(types); i++)
		fits = fnmatch(json_string_value(json_array_get(types, i)), type, 0) == 0;
	return fits && is_true(reading, json_object_get(family, "when"));
}

static bool add_norms(struct reading *reading, struct model *model)
{
	const json_t *families = reading->families->families, *family, *norms;
	size_t at = 0;

	while (at < json_array_size(families) && !is_of(reading, model->type, json_array_get(families, at)))
		at++;
	if (at == json_array_size(families))
		return refuse(reading,
		        "no family of the model table has models of its model_type, '%s', and what else it "
		        "says: "
		        "is it the configuration of a language model",
		        model->type);
	family = json_array_get(families, at);
	reading->family = json_string_value(json_object_get(family, "name"));
	norms = json_object_get(family, "norms");
	if (norms == NULL)
		return refuse(reading, "it is of family %s: %s", reading->family,
		        json_string_value(json_object_get(family, "refuse")));
	model->norm = calloc(json_array_size(norms), sizeof *model->norm);
	if (model->norm == NULL)
		return refuse(reading, "out of memory");
	for (size_t i = 0; i < json_array_size(norms); i++) {
		if (!add_norm(reading, json_array_get(norms, i), model))
			return false;
	}
	return model->count > 0 || refuse(reading, "a model of family %s has no norm here", reading->family);
}

bool model_read(const struct families *families, const char *path, const struct model_wanted *wanted,
        struct model *model, char problem[FILE_PROBLEM_SIZE])
{
	struct reading reading = {.path = path, .families = families, .wanted = wanted, .problem = problem};
	json_t *top = file_read_json(path, problem);
	const char *type;
	bool done;

	*model = (struct model){0};
	if (top == NULL)
		return false;
	reading.top = reading.text = top;
	/* What also sees or hears describes its language model in a part of its own. */
	for (size_t i = 0; i < json_array_size(families->parts); i++) {
		const char *name = json_string_value(json_array_get(families->parts, i));
		const json_t *part = json_object_get(reading.text, name);

		if (json_is_object(part) && json_object_get(reading.text, "hidden_size") == NULL)
			reading.text = part;
	}
	type = text_of(&reading, "model_type");
	snprintf(model->type, sizeof model->type, "%s", type != NULL ? type : "");
	ft_make_plain(model->type); /* it is printed, and came from elsewhere */
	done = json_is_object(top) ? add_norms(&reading, model) : refuse(&reading, "it is no JSON object");
	json_decref(top);
	return done;
}

void model_free(struct model *model)
{
	for (size_t i = 0; i < model->count; i++) {
		for (size_t k = 0; k < model->norm[i].field_count; k++)
			free(model->norm[i].field[k].values);
	}
	free(model->norm);
	*model = (struct model){0};
}
