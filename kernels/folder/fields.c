/* Fields and knobs, and the schemas that are made of them, one for each kind of device. */
#include "kernels/folder/internal.h"

#include <stdio.h>
#include <string.h>

const char *const kind_names[KINDS] = {[KIND_CPU] = "cpu", [KIND_HIP] = "hip", [KIND_CUDA] = "cuda"};

static const char *const trait_names[TRAITS] = {
        "kind", "arch", "units", "wave", "cache", "shared_block", "threads_block", "registers", "memory"};

enum kind kind_named(const char *name)
{
	return strcmp(name, "cpu") == 0 ? KIND_CPU : strcmp(name, "hip") == 0 ? KIND_HIP : KIND_CUDA;
}

static int add_name(struct ft_folder *folder, const struct place *in, const char *name, bool is_text,
        struct ft_error *error)
{
	char where[PLACE_SIZE];

	if (ft_scope_add(&folder->scope, name, is_text, error) == 0)
		return 0;
	place_write(&(struct place){in, "name", 0}, where);
	return place_blame(where, error);
}

/* ---- fields ---- */

static int read_choices(
        struct ft_schema_field_def *def, const struct place *in, const json_t *object, struct ft_error *error)
{
	json_t *choices;

	if (read_array(in, object, "choices", 1, FT_CHOICES_MAX, &choices, error) < 0)
		return -1;
	def->is_text = choices != NULL;
	for (size_t i = 0; i < json_array_size(choices); i++) {
		const struct place array = {in, "choices", 0}, here = {&array, NULL, i};
		const json_t *value = json_array_get(choices, i);
		const char *text = json_string_value(value);

		if (text == NULL || !ft_text_valid_n(text, json_string_length(value)))
			return place_refuse(&here, value, "a word of letters, digits and . _ : + -", error);
		for (size_t j = 0; j < i; j++) {
			if (strcmp(def->choice[j], text) == 0)
				return place_refuse(&here, value, "another than those before it", error);
		}
		ft_text_copy(def->choice[i], sizeof(def->choice[i]), text);
	}
	return 0;
}

static int read_bounds(
        struct ft_schema_field_def *def, const struct place *in, const json_t *object, struct ft_error *error)
{
	static const char *const names[] = {"min", "max"};

	for (int i = 0; i < 2; i++) {
		const json_t *value = json_object_get(object, names[i]);

		if (def->is_text != (value == NULL))
			return place_refuse(&(struct place){in, names[i], 0}, value,
			        def->is_text ? "left out beside choices" : "given, or choices", error);
	}
	if (read_integer(in, object, "min", &def->min, error) < 0 ||
	        read_integer(in, object, "max", &def->max, error) < 0)
		return -1;
	if (!def->is_text && def->min > def->max)
		return place_refuse(&(struct place){in, "max", 0}, json_object_get(object, "max"),
		        "at least as great as min", error);
	return 0;
}

static int read_usual(
        struct ft_schema_field_def *def, const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "default", 0};
	const json_t *value = json_object_get(object, "default");
	const char *choice[FT_CHOICES_MAX];
	size_t count = 0;
	int which;

	if (value == NULL)
		return 0;
	if (def->same_as[0] != '\0')
		return place_refuse(&here, value, "left out beside same_as", error);
	def->has_default = true;
	if (!def->is_text) {
		if (read_integer(in, object, "default", &def->default_number, error) < 0)
			return -1;
		if (def->default_number < def->min || def->default_number > def->max)
			return place_refuse(&here, value, "within min and max", error);
		return 0;
	}
	while (count < FT_CHOICES_MAX && def->choice[count][0] != '\0') {
		choice[count] = def->choice[count];
		count++;
	}
	which = read_word(&here, value, choice, count, error);
	if (which < 0)
		return -1;
	memcpy(def->default_text, def->choice[which], sizeof(def->default_text));
	return 0;
}

/* A field before it: so that none can lead back to itself. */
static int read_same_as(struct ft_schema_field_def *def, const struct ft_schema *schema,
        const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place here = {in, "same_as", 0};
	const json_t *value = json_object_get(object, "same_as");

	if (read_text(in, object, "same_as", def->same_as, sizeof(def->same_as), error) < 0)
		return -1;
	if (value == NULL)
		return 0;
	for (uint32_t i = 0; i < schema->field_count; i++) {
		const struct ft_schema_field_def *other = &schema->field[i];

		if (strcmp(other->name, def->same_as) != 0)
			continue;
		if (other->is_text == def->is_text)
			return 0;
		return place_refuse(
		        &here, value, def->is_text ? "a field of words" : "a field of numbers", error);
	}
	return place_refuse(&here, value, "the name of a field before this one", error);
}

static int read_field(
        struct ft_folder *folder, const struct place *in, const json_t *object, struct ft_error *error)
{
	static const struct member members[] = {{"name", true}, {"help", false}, {"min", false},
	        {"max", false}, {"choices", false}, {"default", false}, {"same_as", false}, {"scale", false}};
	struct ft_schema *schema = &folder->schema[0];
	struct ft_schema_field_def *def = &schema->field[schema->field_count];
	const struct place scale = {in, "scale", 0};
	bool is_scale = false;

	if (read_members(in, object, members, sizeof(members) / sizeof(members[0]), error) < 0 ||
	        read_text(in, object, "name", def->name, sizeof(def->name), error) < 0 ||
	        read_text(in, object, "help", def->help, sizeof(def->help), error) < 0 ||
	        read_choices(def, in, object, error) < 0 || read_bounds(def, in, object, error) < 0 ||
	        read_same_as(def, schema, in, object, error) < 0 || read_usual(def, in, object, error) < 0 ||
	        read_flag(in, object, "scale", &is_scale, error) < 0)
		return -1;
	if (add_name(folder, in, def->name, def->is_text, error) < 0)
		return -1;
	if (is_scale && (def->is_text || def->min < 0))
		return place_fail(&scale, error, "the scale field must be one of numbers from 0 up");
	if (is_scale && schema->scale[0] != '\0')
		return place_fail(&scale, error, "%s is the scale field already", schema->scale);
	if (is_scale)
		memcpy(schema->scale, def->name, sizeof(schema->scale));
	schema->field_count++;
	return 0;
}

int fields_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	const struct place array = {NULL, "fields", 0};
	json_t *fields;

	if (read_array(NULL, document, "fields", 1, FT_FIELDS_MAX, &fields, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(fields); i++) {
		if (read_field(folder, &(struct place){&array, NULL, i}, json_array_get(fields, i), error) <
		        0)
			return -1;
	}
	folder->field_count = folder->scope.count;
	for (int i = 0; i < TRAITS; i++) {
		/* A field of that name comes first, and is told so. */
		for (size_t j = 0; j < folder->field_count; j++) {
			const struct place field = {&array, NULL, j}, name = {&field, "name", 0};

			if (strcmp(folder->scope.name[j], trait_names[i]) == 0)
				return place_fail(
				        &name, error, "%s is the name of a device trait", trait_names[i]);
		}
		if (ft_scope_add(&folder->scope, trait_names[i], i <= TRAIT_ARCH, error) < 0)
			return -1;
	}
	folder->knob_slot = folder->scope.count;
	return 0;
}

/* ---- knobs ---- */

static int read_values(
        struct ft_knob_def *def, const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place array = {in, "values", 0};
	json_t *values;

	if (read_array(in, object, "values", 1, FT_KNOB_VALUES_MAX, &values, error) < 0)
		return -1;
	def->count = (uint32_t)json_array_size(values);
	def->is_word = json_is_string(json_array_get(values, 0));
	for (uint32_t i = 0; i < def->count; i++) {
		const struct place here = {&array, NULL, i};
		const json_t *value = json_array_get(values, i);
		const char *word = json_string_value(value);

		if (def->is_word && (word == NULL || !ft_word_valid_n(word, json_string_length(value))))
			return place_refuse(&here, value, "a word of up to 31 bytes, a letter first", error);
		if (!def->is_word && !json_is_integer(value))
			return place_refuse(&here, value, "a whole number", error);
		if (def->is_word)
			ft_text_copy(def->word[i], sizeof(def->word[i]), word);
		else
			def->value[i] = json_integer_value(value);
		for (uint32_t j = 0; j < i; j++) {
			if (def->value[j] == def->value[i] && strcmp(def->word[j], def->word[i]) == 0)
				return place_refuse(&here, value, "another than those before it", error);
		}
	}
	return 0;
}

static int read_kinds(struct knob *knob, const struct place *in, const json_t *object, struct ft_error *error)
{
	const struct place array = {in, "kinds", 0};
	json_t *kinds;

	if (read_array(in, object, "kinds", 1, KINDS, &kinds, error) < 0)
		return -1;
	knob->kinds = kinds == NULL ? (1U << KINDS) - 1 : 0;
	for (size_t i = 0; i < json_array_size(kinds); i++) {
		int kind = read_word(
		        &(struct place){&array, NULL, i}, json_array_get(kinds, i), kind_names, KINDS, error);

		if (kind < 0)
			return -1;
		knob->kinds |= 1U << kind;
	}
	return 0;
}

int knobs_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	static const struct member members[] = {
	        {"name", true}, {"help", false}, {"values", true}, {"kinds", false}, {"changes_bits", false}};
	const struct place array = {NULL, "knobs", 0};
	json_t *knobs;

	if (read_array(NULL, document, "knobs", 0, FT_KNOBS_MAX, &knobs, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(knobs); i++) {
		const struct place in = {&array, NULL, i};
		const json_t *object = json_array_get(knobs, i);
		struct knob *knob = &folder->knob[i];

		if (read_members(&in, object, members, sizeof(members) / sizeof(members[0]), error) < 0 ||
		        read_text(&in, object, "name", knob->def.name, sizeof(knob->def.name), error) < 0 ||
		        read_text(&in, object, "help", knob->def.help, sizeof(knob->def.help), error) < 0 ||
		        read_flag(&in, object, "changes_bits", &knob->def.changes_bits, error) < 0 ||
		        read_values(&knob->def, &in, object, error) < 0 ||
		        read_kinds(knob, &in, object, error) < 0 ||
		        add_name(folder, &in, knob->def.name, knob->def.is_word, error) < 0)
			return -1;
		folder->knob_count++;
	}
	return 0;
}

void schemas_make(struct ft_folder *folder)
{
	struct ft_schema *first = &folder->schema[0];

	memcpy(first->kernel, folder->name, sizeof(folder->name));
	for (int kind = 0; kind < KINDS; kind++) {
		struct ft_schema *schema = &folder->schema[kind];

		if (schema != first)
			*schema = *first;
		schema->knob_count = 0;
		for (uint32_t i = 0; i < folder->knob_count; i++) {
			if ((folder->knob[i].kinds >> kind & 1) != 0)
				schema->knob[schema->knob_count++] = folder->knob[i].def;
			else
				folder->absent[kind] |= UINT64_C(1) << (folder->knob_slot + i);
		}
	}
}
