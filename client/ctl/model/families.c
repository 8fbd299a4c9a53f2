#include "client/ctl/model/families.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/model/formula.h"
#include "proto/error.h"
#include "proto/value.h"

enum { VERSION = 1, PLACE_SIZE = 160 };

/* ---- what a file must be ---- */

struct reading {
	const char *path;
	char *problem;
};

/* Of one value: its place in the file is `place`. */
typedef bool check(const struct reading *reading, const char *place, json_t *value);

struct member {
	const char *name;
	check *check;
	bool optional;
};

static bool refuse(const struct reading *reading, const char *place, const char *value, const char *bound)
{
	snprintf(reading->problem, FILE_PROBLEM_SIZE, "%.160s: %.100s is %.60s; it must be %.160s",
	        reading->path, *place != '\0' ? place : "the file", value, bound);
	ft_make_plain(reading->problem);
	return false;
}

static bool refuse_value(
        const struct reading *reading, const char *place, const json_t *value, const char *bound)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	refuse(reading, place, text != NULL ? text : "a value", bound);
	free(text);
	return false;
}

static bool check_members(const struct reading *reading, const char *place, json_t *object,
        const struct member *members, size_t count)
{
	const char *dot = *place != '\0' ? "." : "";
	char inside[PLACE_SIZE], bound[PLACE_SIZE] = "";
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return refuse_value(reading, place, object, "an object");
	for (size_t i = 0, length = 0; i < count; i++)
		length += (size_t)snprintf(bound + length, sizeof bound - length, "%s%s",
		        i > 0 ? ", " : "one of ", members[i].name);
	json_object_foreach(object, name, value)
	{
		size_t i = 0;

		while (i < count && strcmp(members[i].name, name) != 0)
			i++;
		snprintf(inside, sizeof inside, "%s%s%.40s", place, dot, name);
		if (i == count)
			return refuse(reading, inside, "unknown", bound);
		if (!members[i].check(reading, inside, value))
			return false;
	}
	for (size_t i = 0; i < count; i++) {
		snprintf(inside, sizeof inside, "%s%s%s", place, dot, members[i].name);
		if (!members[i].optional && json_object_get(object, members[i].name) == NULL)
			return refuse(reading, inside, "missing", "given");
	}
	return true;
}

static bool check_each(
        const struct reading *reading, const char *place, json_t *array, size_t most, check *one)
{
	char inside[PLACE_SIZE], bound[PLACE_SIZE];

	if (json_array_size(array) == 0 || json_array_size(array) > most) {
		snprintf(bound, sizeof bound, "an array of 1 to %zu", most);
		return refuse_value(reading, place, array, bound);
	}
	for (size_t i = 0; i < json_array_size(array); i++) {
		snprintf(inside, sizeof inside, "%s[%zu]", place, i);
		if (!one(reading, inside, json_array_get(array, i)))
			return false;
	}
	return true;
}

static bool check_text(const struct reading *reading, const char *place, json_t *value)
{
	const char *text = json_string_value(value);
	char bound[80], plain[FAMILIES_TEXT_SIZE];

	snprintf(bound, sizeof bound, "a text of 1 to %d bytes, without control characters",
	        FAMILIES_TEXT_SIZE - 1);
	if (text == NULL || *text == '\0' || json_string_length(value) >= sizeof plain)
		return refuse_value(reading, place, value, bound);
	snprintf(plain, sizeof plain, "%s", text);
	ft_make_plain(plain);
	return strcmp(plain, text) == 0 || refuse_value(reading, place, value, bound);
}

static bool check_kind(const struct reading *reading, const char *place, json_t *value)
{
	return (json_is_string(value) && strcmp(json_string_value(value), "models") == 0) ||
	        refuse_value(reading, place, value, "\"models\"");
}

static bool check_version(const struct reading *reading, const char *place, json_t *value)
{
	return json_integer_value(value) == VERSION ||
	        refuse_value(reading, place, value, "1, which is all that this flytunectl reads");
}

static bool check_texts(const struct reading *reading, const char *place, json_t *value)
{
	return check_each(reading, place, value, INT_MAX, check_text);
}

static bool check_dtypes(const struct reading *reading, const char *place, json_t *object)
{
	char inside[PLACE_SIZE];
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return refuse_value(reading, place, object, "an object of texts");
	json_object_foreach(object, name, value)
	{
		snprintf(inside, sizeof inside, "%s.%.40s", place, name);
		if (!check_text(reading, inside, value))
			return false;
	}
	return true;
}

/* `text` is the formula in a value. */
static bool check_formula_in(
        const struct reading *reading, const char *place, const json_t *value, const char *text)
{
	char problem[FORMULA_PROBLEM_SIZE], bound[PLACE_SIZE];

	if (formula_is_valid(text, problem))
		return true;
	snprintf(bound, sizeof bound, "a formula: %.140s", problem);
	return refuse_value(reading, place, value, bound);
}

static bool check_formula(const struct reading *reading, const char *place, json_t *value)
{
	return check_text(reading, place, value) &&
	        check_formula_in(reading, place, value, json_string_value(value));
}

static bool check_kernel(const struct reading *reading, const char *place, json_t *value)
{
	return check_text(reading, place, value) &&
	        (json_string_value(value)[0] != '-' ||
	                refuse_value(reading, place, value, "the name of a kernel"));
}

/* A number, a text, or behind = a formula. The number of tokens may be in one: its list is the problems' one list. */
static bool check_fields(const struct reading *reading, const char *place, json_t *object)
{
	char inside[PLACE_SIZE];
	const char *name;
	json_t *value;
	int lists = 0;

	if (!json_is_object(object) || json_object_size(object) == 0 ||
	        json_object_size(object) > FT_FIELDS_MAX)
		return refuse_value(reading, place, object, "an object of 1 to 16 fields");
	json_object_foreach(object, name, value)
	{
		const char *text = json_string_value(value);

		snprintf(inside, sizeof inside, "%s.%.40s", place, name);
		if (!ft_name_valid(name))
			return refuse(reading, inside, "no name",
			        "a name of 1 to 31 letters, digits and underscores");
		if (json_is_integer(value))
			continue;
		if (!check_text(reading, inside, value))
			return false;
		if (*text != '=')
			continue;
		lists += formula_has(text, "tokens");
		if (lists > 1)
			return refuse_value(reading, inside, value, "the only field that has tokens in it");
		if (!check_formula_in(reading, inside, value, text + 1))
			return false;
	}
	return true;
}

static bool check_norm(const struct reading *reading, const char *place, json_t *norm)
{
	static const struct member members[] = {
	        {"name", check_text, false},
	        {"kernel", check_kernel, false},
	        {"when", check_formula, true},
	        {"fields", check_fields, false},
	};

	return check_members(reading, place, norm, members, sizeof members / sizeof *members);
}

static bool check_norms(const struct reading *reading, const char *place, json_t *value)
{
	return check_each(reading, place, value, FAMILIES_NORMS_MAX, check_norm);
}

static bool check_family(const struct reading *reading, const char *place, json_t *family)
{
	static const struct member members[] = {
	        {"name", check_text, false},
	        {"types", check_texts, true},
	        {"when", check_formula, true},
	        {"norms", check_norms, true},
	        {"refuse", check_text, true},
	};
	char inside[PLACE_SIZE];

	if (!check_members(reading, place, family, members, sizeof members / sizeof *members))
		return false;
	if ((json_object_get(family, "norms") == NULL) != (json_object_get(family, "refuse") == NULL))
		return true;
	snprintf(inside, sizeof inside, "%s.norms", place);
	return refuse(reading, inside, json_object_get(family, "norms") == NULL ? "missing" : "given",
	        "given, or else refuse");
}

/* Where in a list the family of that name is; at its end if it is not there. */
static size_t find_family(const json_t *list, const json_t *name)
{
	size_t at = 0;

	while (at < json_array_size(list) &&
	        !json_equal(json_object_get(json_array_get(list, at), "name"), name))
		at++;
	return at;
}

static bool check_families(const struct reading *reading, const char *place, json_t *value)
{
	char inside[PLACE_SIZE];

	if (!check_each(reading, place, value, FAMILIES_MAX, check_family))
		return false;
	for (size_t i = 0; i < json_array_size(value); i++) {
		const json_t *name = json_object_get(json_array_get(value, i), "name");

		snprintf(inside, sizeof inside, "%s[%zu].name", place, i);
		if (find_family(value, name) != i)
			return refuse_value(reading, inside, name, "another than those before it");
	}
	return true;
}

static bool check_file(const struct reading *reading, json_t *file)
{
	static const struct member members[] = {
	        {"flytune", check_kind, false},
	        {"version", check_version, false},
	        {"parts", check_texts, true},
	        {"dtypes", check_dtypes, true},
	        {"families", check_families, false},
	};

	return check_members(reading, "", file, members, sizeof members / sizeof *members);
}

/* ---- several files ---- */

static bool merge(struct families *families, const json_t *file)
{
	const json_t *more = json_object_get(file, "families"), *parts = json_object_get(file, "parts");
	bool merged = true;
	size_t first = 0;

	for (size_t i = 0; i < json_array_size(more); i++) {
		json_t *family = json_array_get(more, i);
		size_t at = find_family(families->families, json_object_get(family, "name"));

		merged = merged &&
		        (at < json_array_size(families->families)
		                        ? json_array_set(families->families, at, family)
		                        : json_array_insert(families->families, first++, family)) == 0;
	}
	for (size_t i = 0; i < json_array_size(parts); i++)
		merged = merged && json_array_insert(families->parts, i, json_array_get(parts, i)) == 0;
	return merged &&
	        (json_object_get(file, "dtypes") == NULL ||
	                json_object_update(families->dtypes, json_object_get(file, "dtypes")) == 0);
}

bool families_add(struct families *families, const char *path, char problem[FILE_PROBLEM_SIZE])
{
	const struct reading reading = {.path = path, .problem = problem};
	json_t *file = file_read_json(path, problem);
	bool added = false;

	if (file == NULL)
		return false;
	if (families->families == NULL)
		*families = (struct families){json_array(), json_object(), json_array()};
	if (check_file(&reading, file)) {
		added = merge(families, file);
		if (!added)
			snprintf(problem, FILE_PROBLEM_SIZE, "%.160s: out of memory", path);
	}
	json_decref(file);
	return added;
}

/* One that need not be there. */
static bool add_if_there(struct families *families, const char *path, char problem[FILE_PROBLEM_SIZE])
{
	if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
		return true;
	return families_add(families, path, problem);
}

/* It stands beside the program in a build tree. */
static const char *shipped(char beside[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", beside, PATH_MAX - sizeof "models.json");

	while (length > 0 && beside[length - 1] != '/')
		length--;
	if (length <= 0)
		return FLYTUNE_DATA "/models.json";
	memcpy(beside + length, "models.json", sizeof "models.json");
	return access(beside, R_OK) == 0 ? beside : FLYTUNE_DATA "/models.json";
}

bool families_read(struct families *families, char problem[FILE_PROBLEM_SIZE])
{
	const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
	char path[PATH_MAX];

	if (!families_add(families, shipped(path), problem) ||
	        !add_if_there(families, FLYTUNE_ETC "/models.json", problem))
		return false;
	if (config != NULL && config[0] == '/')
		snprintf(path, sizeof path, "%s/flytune/models.json", config);
	else if (home != NULL && home[0] == '/')
		snprintf(path, sizeof path, "%s/.config/flytune/models.json", home);
	else
		return true;
	return add_if_there(families, path, problem);
}

void families_free(struct families *families)
{
	json_decref(families->parts);
	json_decref(families->dtypes);
	json_decref(families->families);
	*families = (struct families){0};
}
