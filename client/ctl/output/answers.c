#include "client/ctl/output/answers.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/ctl/output/file.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "proto/error.h"
#include "proto/value.h"

enum { ORDER_SIZE = 4096 };

static void hash_text(const char *text, char hash[ANSWERS_HASH_SIZE])
{
	XXH128_hash_t value = XXH3_128bits(text, strlen(text));

	snprintf(hash, ANSWERS_HASH_SIZE, "%016" PRIx64 "%016" PRIx64, (uint64_t)value.high64,
	        (uint64_t)value.low64);
}

/* ---- writing ---- */

/* The hash of a text, which is in the table from now on; NULL when out of memory. */
static const char *keep_text(struct answers_texts *texts, const char *text)
{
	struct answers_text *entry;

	for (size_t i = 0; i < texts->count; i++) {
		if (strcmp(texts->list[i].text, text) == 0)
			return texts->list[i].hash;
	}
	if (texts->count == texts->capacity) {
		size_t capacity = texts->capacity == 0 ? 8 : 2 * texts->capacity;
		struct answers_text *grown = realloc(texts->list, capacity * sizeof *grown);

		if (grown == NULL)
			return NULL;
		texts->list = grown;
		texts->capacity = capacity;
	}
	entry = &texts->list[texts->count];
	entry->text = strdup(text);
	if (entry->text == NULL)
		return NULL;
	hash_text(text, entry->hash);
	texts->count++;
	return entry->hash;
}

static void free_texts(struct answers_texts *texts)
{
	for (size_t i = 0; i < texts->count; i++)
		free(texts->list[i].text);
	free(texts->list);
}

/* Texts before numbers, numbers by size: as people look for a shape. */
static void make_order(const struct flytune_row *row, const char *device, char order[ORDER_SIZE])
{
	size_t length = (size_t)snprintf(order, ORDER_SIZE, "%s %s", row->kernel, device);

	for (uint32_t i = 0; i < row->field_count && length < ORDER_SIZE; i++) {
		const struct flytune_value *field = &row->field[i];

		if (field->text[0] != '\0')
			length += (size_t)snprintf(
			        order + length, ORDER_SIZE - length, " %s=%s", field->name, field->text);
		else
			/* Shifted, so that the digits of negative numbers sort as well. */
			length += (size_t)snprintf(order + length, ORDER_SIZE - length, " %s=%020" PRIu64,
			        field->name, (uint64_t)field->number ^ UINT64_C(0x8000000000000000));
	}
}

static void set_date(struct document *json, const char *name, uint64_t at_ns)
{
	if (at_ns != 0)
		json_date(json, name, at_ns);
}

/* An object of knobs, or a text: a document. */
static void write_config(struct document *json, const char *name, const struct flytune_knob *knob,
        uint32_t count, const char *document)
{
	if (document != NULL)
		document_text(json, name, document);
	else
		json_config(json, name, knob, count);
}

/* NULL when out of memory. */
static char *row_json(const struct flytune_row *row, const char *device, const char *identity)
{
	struct document json = {.style = DOCUMENT_SPACED};

	document_object(&json, NULL);
	document_text(&json, "kernel", row->kernel);
	json_values(&json, "problem", row->field, row->field_count);
	document_text(&json, "device", device);
	if (row->knob_count > 0 || row->document != NULL) {
		write_config(&json, "config", row->knob, row->knob_count, row->document);
		document_text(&json, "identity", identity);
		document_text(&json, "origin", row->origin);
		document_count(&json, "time_ps", row->time_ps);
		document_count(&json, "default_time_ps", row->default_time_ps);
		if (row->gain_least_ppm != 0)
			document_count(&json, "gain_least_ppm", row->gain_least_ppm);
		if (row->seen_ppm != 0)
			document_count(&json, "seen_ppm", row->seen_ppm);
		if (row->order_class != 0)
			document_count(&json, "order_class", row->order_class);
		if (row->unsettled)
			document_bool(&json, "unsettled", true);
		set_date(&json, "tuned_at", row->tuned_at_ns);
	}
	if (row->pin_count > 0 || row->pin_document != NULL) {
		write_config(&json, "pin", row->pin, row->pin_count, row->pin_document);
		set_date(&json, "pinned_at", row->pinned_at_ns);
	}
	document_end(&json);
	return document_take(&json);
}

int answers_add(struct answers *answers, const struct flytune_row *row)
{
	const char *identity = "";
	const char *device = keep_text(&answers->devices, row->device);
	char order[ORDER_SIZE];
	struct answers_line line;

	if (device != NULL && (row->knob_count > 0 || row->document != NULL))
		identity = keep_text(&answers->identities, row->identity);
	if (device == NULL || identity == NULL)
		return -1;
	if (answers->count == answers->capacity) {
		size_t capacity = answers->capacity == 0 ? 256 : 2 * answers->capacity;
		struct answers_line *grown = realloc(answers->line, capacity * sizeof *grown);

		if (grown == NULL)
			return -1;
		answers->line = grown;
		answers->capacity = capacity;
	}
	make_order(row, device, order);
	line.json = row_json(row, device, identity);
	line.order = strdup(order);
	if (line.json == NULL || line.order == NULL) {
		free(line.json);
		free(line.order);
		return -1;
	}
	answers->line[answers->count++] = line;
	return 0;
}

static int by_order(const void *a, const void *b)
{
	const struct answers_line *left = a, *right = b;

	return strcmp(left->order, right->order);
}

static int by_hash(const void *a, const void *b)
{
	const struct answers_text *left = a, *right = b;

	return strcmp(left->hash, right->hash);
}

static int write_texts(const char *name, struct answers_texts *texts, FILE *file)
{
	if (texts->count > 0)
		qsort(texts->list, texts->count, sizeof *texts->list, by_hash);
	fprintf(file, "\"%s\": {", name);
	for (size_t i = 0; i < texts->count; i++) {
		struct document json = {0};
		char *quoted;

		document_text(&json, NULL, texts->list[i].text);
		quoted = document_take(&json);
		if (quoted == NULL)
			return -1;
		fprintf(file, "%s\n\"%s\": %s", i > 0 ? "," : "", texts->list[i].hash, quoted);
		free(quoted);
	}
	fprintf(file, "%s},\n", texts->count > 0 ? "\n" : "");
	return 0;
}

int answers_write(struct answers *answers, const struct flytune_export_info *info, FILE *file)
{
	char date[FORMAT_SIZE];

	if (answers->count > 0)
		qsort(answers->line, answers->count, sizeof *answers->line, by_order);
	fprintf(file, "{\n\"flytune\": \"answers\",\n\"version\": %d,\n", ANSWERS_VERSION);
	fprintf(file, "\"from\": {\"store\": \"%s\", \"generation\": %" PRIu64 ", \"at\": \"%s\"},\n",
	        info->store, info->generation, format_date((uint64_t)time(NULL) * 1000000000, date));
	if (write_texts("devices", &answers->devices, file) != 0 ||
	        write_texts("identities", &answers->identities, file) != 0)
		return -1;
	fprintf(file, "\"answers\": [");
	for (size_t i = 0; i < answers->count; i++)
		fprintf(file, "%s\n%s", i > 0 ? "," : "", answers->line[i].json);
	fprintf(file, "%s]\n}\n", answers->count > 0 ? "\n" : "");
	return ferror(file) ? -1 : 0;
}

void answers_free(struct answers *answers)
{
	free_texts(&answers->devices);
	free_texts(&answers->identities);
	for (size_t i = 0; i < answers->count; i++) {
		free(answers->line[i].order);
		free(answers->line[i].json);
	}
	free(answers->line);
}

/* ---- reading ---- */

struct reading {
	size_t number; /* of the row; 0: before the rows */
	json_t *devices, *identities;
	struct flytune_error *error;
};

static bool refuse(const struct reading *reading, const char *field, const char *value, const char *bound)
{
	struct flytune_error *error = reading->error;
	char row[32] = "";

	memset(error, 0, sizeof *error);
	error->code = FLYTUNE_E_BAD_VALUE;
	snprintf(error->word, sizeof error->word, "%s", flytune_result_word(error->code));
	snprintf(error->field, sizeof error->field, "%s", field);
	snprintf(error->value, sizeof error->value, "%s", value);
	snprintf(error->bound, sizeof error->bound, "%s", bound);
	if (reading->number > 0)
		snprintf(row, sizeof row, "row %zu: ", reading->number);
	/* A file that came from elsewhere must not steer the terminal. */
	ft_make_plain(error->field);
	ft_make_plain(error->value);
	snprintf(error->message, sizeof error->message, "%s%.60s is %.80s; it must be %.120s", row, field,
	        value, bound);
	ft_make_plain(error->message);
	return false;
}

static const char *kind_of(const json_t *value)
{
	static const char *const words[] = {[JSON_OBJECT] = "an object",
	        [JSON_ARRAY] = "an array",
	        [JSON_STRING] = "a text",
	        [JSON_INTEGER] = "an integer",
	        [JSON_REAL] = "a real number",
	        [JSON_TRUE] = "true",
	        [JSON_FALSE] = "false",
	        [JSON_NULL] = "null"};

	return value == NULL ? "missing" : words[json_typeof(value)];
}

/* Every member's name must be one of these. */
static bool known_names(
        const struct reading *reading, const char *where, json_t *object, const char *const *names)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value)
	{
		const char *const *known = names;
		char field[80];

		while (*known != NULL && strcmp(*known, name) != 0)
			known++;
		if (*known == NULL) {
			snprintf(field, sizeof field, "%s%s%.40s", where, *where != '\0' ? "." : "", name);
			return refuse(reading, field, "unknown", "one of the members that EXPORT.md lists");
		}
	}
	return true;
}

static bool read_text(const struct reading *reading, json_t *row, const char *name, char *text, size_t size)
{
	json_t *value = json_object_get(row, name);
	char bound[64];

	snprintf(bound, sizeof bound, "a text of 1 to %zu bytes", size - 1);
	if (!json_is_string(value))
		return refuse(reading, name, kind_of(value), bound);
	if (json_string_length(value) == 0 || json_string_length(value) >= size)
		return refuse(reading, name,
		        json_string_length(value) == 0 ? "empty" : "a text that is too long", bound);
	memcpy(text, json_string_value(value), json_string_length(value) + 1);
	return true;
}

static bool read_count(const struct reading *reading, json_t *row, const char *name, uint64_t *number)
{
	json_t *value = json_object_get(row, name);

	if (!json_is_integer(value))
		return refuse(reading, name, kind_of(value), "an integer, 0 or more");
	if (json_integer_value(value) < 0)
		return refuse(reading, name, "negative", "an integer, 0 or more");
	*number = (uint64_t)json_integer_value(value);
	return true;
}

/* One that is left out is 0. */
static bool read_optional(const struct reading *reading, json_t *row, const char *name, uint64_t *number)
{
	return json_object_get(row, name) == NULL || read_count(reading, row, name, number);
}

/* "2025-06-01T12:00:00Z"; a date that is left out is 0. */
static bool read_date(const struct reading *reading, json_t *row, const char *name, uint64_t *at_ns)
{
	json_t *value = json_object_get(row, name);
	char text[FORMAT_SIZE];
	struct tm parts = {0};
	const char *end;
	time_t at;

	*at_ns = 0;
	if (value == NULL)
		return true;
	if (!json_is_string(value))
		return refuse(reading, name, kind_of(value), "a date such as 2025-06-01T12:00:00Z");
	end = strptime(json_string_value(value), "%Y-%m-%dT%H:%M:%SZ", &parts);
	at = end != NULL && *end == '\0' ? timegm(&parts) : -1;
	/* Written as we would write it: no 31st of February, no blanks. */
	if (at <= 0 || strcmp(format_date((uint64_t)at * 1000000000, text), json_string_value(value)) != 0)
		return refuse(reading, name, json_string_value(value), "a date such as 2025-06-01T12:00:00Z");
	*at_ns = (uint64_t)at * 1000000000;
	return true;
}

static bool read_name(
        const struct reading *reading, const char *where, const char *given, char *name, size_t size)
{
	char field[80];

	if (strlen(given) < size && ft_name_valid(given)) {
		memcpy(name, given, strlen(given) + 1);
		return true;
	}
	snprintf(field, sizeof field, "%s.%.40s", where, given);
	return refuse(reading, field, "no name", "a name of 1 to 31 letters, digits and underscores");
}

static bool read_config(const struct reading *reading, json_t *row, const char *where,
        struct flytune_knob knob[FLYTUNE_KNOBS_MAX], uint32_t *count, const char **document)
{
	json_t *object = json_object_get(row, where);
	const char *name;
	json_t *value;
	char field[80];

	*count = 0;
	if (object == NULL)
		return true;
	if (json_is_string(object)) {
		if (json_string_length(object) == 0 || json_string_length(object) >= FLYTUNE_DOCUMENT_SIZE)
			return refuse(
			        reading, where, "a text of another length", "a document of 1 to 4096 bytes");
		*document = json_string_value(object);
		return true;
	}
	if (!json_is_object(object) || json_object_size(object) == 0)
		return refuse(reading, where, json_is_object(object) ? "empty" : kind_of(object),
		        "an object of integers and words, or a text: a document");
	json_object_foreach(object, name, value)
	{
		if (*count == FLYTUNE_KNOBS_MAX)
			return refuse(reading, where, "longer", "an object of at most 16 integers and words");
		snprintf(field, sizeof field, "%s.%.40s", where, name);
		if (!json_is_integer(value) &&
		        (!json_is_string(value) ||
		                !ft_word_valid_n(json_string_value(value), json_string_length(value))))
			return refuse(
			        reading, field, kind_of(value), "an integer, or a word of at most 31 bytes");
		if (!read_name(reading, where, name, knob[*count].name, sizeof knob[*count].name))
			return false;
		knob[*count].word = json_string_value(value); /* NULL of an integer */
		knob[(*count)++].value = json_integer_value(value);
	}
	return true;
}

static bool read_problem(const struct reading *reading, json_t *row, struct flytune_row *read)
{
	json_t *object = json_object_get(row, "problem");
	const char *name;
	json_t *value;
	char field[80];

	if (!json_is_object(object))
		return refuse(reading, "problem", kind_of(object), "an object of integers and texts");
	json_object_foreach(object, name, value)
	{
		struct flytune_value *shown = &read->field[read->field_count];

		if (read->field_count == FLYTUNE_FIELDS_MAX)
			return refuse(reading, "problem", "longer", "an object of at most 32 members");
		snprintf(field, sizeof field, "problem.%.40s", name);
		if (!read_name(reading, "problem", name, shown->name, sizeof shown->name))
			return false;
		if (json_is_integer(value)) {
			shown->number = json_integer_value(value);
		} else if (!json_is_string(value)) {
			return refuse(reading, field, kind_of(value), "an integer or a text");
		} else if (json_string_length(value) == 0 ||
		        json_string_length(value) >= sizeof shown->text) {
			return refuse(reading, field,
			        json_string_length(value) == 0 ? "empty" : "a text that is too long",
			        "a text of 1 to 128 bytes");
		} else {
			memcpy(shown->text, json_string_value(value), json_string_length(value) + 1);
		}
		read->field_count++;
	}
	return true;
}

/* Replaces a hash by the text that it stands for. */
static bool read_hashed(
        const struct reading *reading, json_t *row, const char *name, json_t *table, char *text, size_t size)
{
	char hash[ANSWERS_HASH_SIZE], bound[64];
	json_t *found;

	if (!read_text(reading, row, name, hash, sizeof hash))
		return false;
	found = json_object_get(table, hash);
	snprintf(bound, sizeof bound, "one of the hashes that the file lists");
	if (found == NULL)
		return refuse(reading, name, hash, bound);
	snprintf(text, size, "%s", json_string_value(found));
	return true;
}

static bool read_unsettled(const struct reading *reading, json_t *row, struct flytune_row *read)
{
	json_t *value = json_object_get(row, "unsettled");

	if (value != NULL && !json_is_boolean(value))
		return refuse(reading, "unsettled", kind_of(value), "true or false");
	read->unsettled = json_is_true(value);
	return true;
}

static bool read_row(const struct reading *reading, json_t *row, struct flytune_row *read)
{
	static const char *const names[] = {"kernel", "problem", "device", "config", "identity", "origin",
	        "time_ps", "default_time_ps", "gain_least_ppm", "seen_ppm", "order_class", "unsettled",
	        "tuned_at", "pin", "pinned_at", NULL};

	if (!json_is_object(row))
		return refuse(reading, "the row", kind_of(row), "an object");
	if (!known_names(reading, "", row, names) ||
	        !read_text(reading, row, "kernel", read->kernel, sizeof read->kernel) ||
	        !read_problem(reading, row, read) ||
	        !read_hashed(reading, row, "device", reading->devices, read->device, sizeof read->device) ||
	        !read_config(reading, row, "config", read->knob, &read->knob_count, &read->document) ||
	        !read_config(reading, row, "pin", read->pin, &read->pin_count, &read->pin_document) ||
	        !read_date(reading, row, "tuned_at", &read->tuned_at_ns) ||
	        !read_date(reading, row, "pinned_at", &read->pinned_at_ns))
		return false;
	if (read->knob_count == 0 && read->document == NULL && read->pin_count == 0 &&
	        read->pin_document == NULL)
		return refuse(reading, "config", "missing", "given, or else a pin");
	if (read->knob_count == 0 && read->document == NULL) {
		for (const char *const *name = names + 4; name < names + 12; name++) {
			if (json_object_get(row, *name) != NULL)
				return refuse(reading, *name, "given", "left out where there is no config");
		}
		return true;
	}
	return read_hashed(reading, row, "identity", reading->identities, read->identity,
	               sizeof read->identity) &&
	        read_text(reading, row, "origin", read->origin, sizeof read->origin) &&
	        read_count(reading, row, "time_ps", &read->time_ps) &&
	        read_count(reading, row, "default_time_ps", &read->default_time_ps) &&
	        read_optional(reading, row, "gain_least_ppm", &read->gain_least_ppm) &&
	        read_optional(reading, row, "seen_ppm", &read->seen_ppm) &&
	        read_optional(reading, row, "order_class", &read->order_class) &&
	        read_unsettled(reading, row, read);
}

/* A table of long texts: each must be what its hash says. */
static bool check_texts(const struct reading *reading, json_t *root, const char *where, json_t **table)
{
	const char *hash;
	json_t *value;
	char field[80], own[ANSWERS_HASH_SIZE];

	*table = json_object_get(root, where);
	if (!json_is_object(*table))
		return refuse(reading, where, kind_of(*table), "an object of texts");
	json_object_foreach(*table, hash, value)
	{
		snprintf(field, sizeof field, "%s.%.40s", where, hash);
		if (!json_is_string(value))
			return refuse(reading, field, kind_of(value), "a text");
		if (json_string_length(value) == 0 || json_string_length(value) >= ANSWERS_TEXT_SIZE)
			return refuse(reading, field,
			        json_string_length(value) == 0 ? "empty" : "a text that is too long",
			        "a text of 1 to 2047 bytes");
		hash_text(json_string_value(value), own);
		if (strcmp(hash, own) != 0)
			return refuse(reading, field, "another text than the hash was made of",
			        "left as it was exported");
	}
	return true;
}

static bool check_head(struct reading *reading, json_t *root)
{
	static const char *const names[] = {
	        "flytune", "version", "from", "devices", "identities", "answers", NULL};
	json_t *version = json_object_get(root, "version");
	json_t *kind = json_object_get(root, "flytune");
	char number[32];

	if (!json_is_object(root))
		return refuse(
		        reading, "the file", kind_of(root), "an object, as `flytunectl export` writes it");
	if (!json_is_string(kind) || strcmp(json_string_value(kind), "answers") != 0)
		return refuse(reading, "flytune",
		        json_is_string(kind) ? json_string_value(kind) : kind_of(kind),
		        "\"answers\": the file is no export");
	if (!json_is_integer(version))
		return refuse(reading, "version", kind_of(version), "an integer");
	snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(version));
	if (json_integer_value(version) != ANSWERS_VERSION)
		return refuse(reading, "version", number, "1, which is all that this flytunectl reads");
	if (!known_names(reading, "", root, names))
		return false;
	if (!json_is_object(json_object_get(root, "from")))
		return refuse(reading, "from", kind_of(json_object_get(root, "from")), "an object");
	if (!json_is_array(json_object_get(root, "answers")))
		return refuse(reading, "answers", kind_of(json_object_get(root, "answers")), "an array");
	return check_texts(reading, root, "devices", &reading->devices) &&
	        check_texts(reading, root, "identities", &reading->identities);
}

static bool refuse_whole(struct flytune_error *error, enum flytune_result code, const char *message)
{
	memset(error, 0, sizeof *error);
	error->code = code;
	snprintf(error->word, sizeof error->word, "%s", flytune_result_word(code));
	snprintf(error->message, sizeof error->message, "%s", message);
	ft_make_plain(error->message);
	return false;
}

static bool refuse_syntax(struct flytune_error *error, const json_error_t *fault)
{
	char message[sizeof error->message];

	if (fault->line == 0)
		return refuse_whole(error, FLYTUNE_E_MEMORY, fault->text);
	snprintf(message, sizeof message, "line %d, column %d: %.200s", fault->line, fault->column,
	        fault->text);
	return refuse_whole(error, FLYTUNE_E_BAD_VALUE, message);
}

bool answers_read(const char *text, size_t length,
        bool (*take)(void *data, size_t number, const struct flytune_row *row, struct flytune_error *error),
        void *data, struct flytune_error *error)
{
	struct flytune_row *read = malloc(sizeof *read);
	struct reading reading = {.error = error};
	json_error_t fault;
	json_t *root, *rows;
	bool taken = false;

	root = file_parse(text, length, &fault);
	if (root == NULL) {
		free(read);
		return refuse_syntax(error, &fault);
	}
	taken = read != NULL ? check_head(&reading, root)
	                     : refuse_whole(error, FLYTUNE_E_MEMORY, "out of memory");
	rows = json_object_get(root, "answers");
	for (size_t i = 0; taken && i < json_array_size(rows); i++) {
		reading.number = i + 1;
		flytune_row_init(read);
		taken = read_row(&reading, json_array_get(rows, i), read) &&
		        take(data, reading.number, read, error);
	}
	json_decref(root);
	free(read);
	return taken;
}
