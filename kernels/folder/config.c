/* Rules over problems and configs, and configs that expressions give: the default, and a reference that is one. */
#include "kernels/folder/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what is read ---- */

static int read_rule(struct rule *rule, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, struct ft_error *error)
{
	static const struct member of_check[] = {{"rule", true}, {"why", true}};
	static const struct member of_space[] = {{"rule", true}, {"why", false}, {"prune", false}};
	const bool is_check = reach == REACH_FIELDS;
	const char *prune;

	if (read_members(in, object, is_check ? of_check : of_space, is_check ? 2 : 3, error) < 0 ||
	        read_sentence(in, object, "why", SENTENCE_MAX, &rule->why, error) < 0 ||
	        read_sentence(in, object, "prune", PRUNE_MAX, &prune, error) < 0)
		return -1;
	if ((rule->why == NULL) == (prune == NULL))
		return place_fail(in, error, "a rule has either why or prune");
	rule->prunes = prune != NULL;
	if (rule->prunes)
		rule->why = prune;
	rule->text = json_string_value(json_object_get(object, "rule"));
	return formula_read(&rule->formula, folder, reach, &(struct place){in, "rule", 0},
	        json_object_get(object, "rule"), FT_EXPRESSION_CONDITION, error);
}

static int read_rules(struct rule *rule, uint32_t *count, uint32_t most, const struct ft_folder *folder,
        enum reach reach, const char *name, const json_t *document, struct ft_error *error)
{
	const struct place array = {NULL, name, 0};
	json_t *rules;

	if (read_array(NULL, document, name, 0, most, &rules, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(rules); i++) {
		*count = (uint32_t)i + 1;
		if (read_rule(&rule[i], folder, reach, &(struct place){&array, NULL, i},
		            json_array_get(rules, i), error) < 0)
			return -1;
	}
	return 0;
}

int knob_values_read(struct ft_folder *folder, const struct place *place, const json_t *object,
        bool is_reference, struct ft_error *error)
{
	struct member members[FT_KNOBS_MAX];

	for (uint32_t i = 0; i < folder->knob_count; i++)
		members[i] = (struct member){folder->knob[i].def.name, true};
	if (read_members(place, object, members, folder->knob_count, error) < 0)
		return -1;
	for (uint32_t i = 0; i < folder->knob_count; i++) {
		struct knob *knob = &folder->knob[i];
		const char *name = knob->def.name;

		if (formula_read(is_reference ? &knob->reference : &knob->usual, folder, REACH_TRAITS,
		            &(struct place){place, name, 0}, json_object_get(object, name),
		            knob->def.is_word ? FT_EXPRESSION_TEXT : FT_EXPRESSION_NUMBER, error) < 0)
			return -1;
	}
	return 0;
}

int rules_read(struct ft_folder *folder, const json_t *document, struct ft_error *error)
{
	const struct place array = {NULL, "order", 0}, usual = {NULL, "default", 0};
	json_t *order;

	if (read_rules(folder->check, &folder->check_count, CHECKS_MAX, folder, REACH_FIELDS, "checks",
	            document, error) < 0 ||
	        read_rules(folder->rule, &folder->rule_count, FT_FOLDER_RULES_MAX, folder, REACH_ALL, "space",
	                document, error) < 0 ||
	        knob_values_read(folder, &usual, json_object_get(document, "default"), false, error) < 0 ||
	        read_array(NULL, document, "order", 0, ORDER_MAX, &order, error) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(order); i++) {
		folder->order_count = (uint32_t)i + 1;
		if (formula_read(&folder->order[i], folder, REACH_ALL, &(struct place){&array, NULL, i},
		            json_array_get(order, i), FT_EXPRESSION_NUMBER, error) < 0)
			return -1;
	}
	return 0;
}

/* ---- one config ---- */

const struct knob *config_knob(const struct ft_folder *folder, enum kind kind, uint32_t *at)
{
	while (*at < folder->knob_count && (folder->knob[*at].kinds >> kind & 1) == 0)
		++*at;
	return *at < folder->knob_count ? &folder->knob[(*at)++] : NULL;
}

void config_set_knob(struct ft_knob_value *value, const struct ft_knob_def *def, uint32_t index)
{
	memcpy(value->name, def->name, sizeof(value->name));
	memcpy(value->word, def->word[index], sizeof(value->word));
	value->value = def->value[index];
}

/* Which of a knob's values its expression gives. */
static int evaluate_knob(const struct ft_knob_def *def, const struct formula *formula,
        const struct values *values, uint32_t *index, struct ft_error *error)
{
	const char *word = "";
	char value[24], list[64] = "";
	int64_t number = 0;
	size_t length = 0;

	if (def->is_word ? formula_text(formula, values, &word, error) < 0
	                 : formula_number(formula, values, INT64_MIN, INT64_MAX, &number, error) < 0)
		return -1;
	for (*index = 0; *index < def->count; ++*index) {
		if (def->value[*index] == number && strcmp(def->word[*index], word) == 0)
			return 0;
	}
	for (uint32_t i = 0; i < def->count && length < sizeof(list); i++) {
		const char *parted = i == 0 ? "" : i + 1 < def->count ? ", " : " or ";

		if (def->is_word)
			length += (size_t)snprintf(
			        list + length, sizeof(list) - length, "%s%s", parted, def->word[i]);
		else
			length += (size_t)snprintf(
			        list + length, sizeof(list) - length, "%s%" PRId64, parted, def->value[i]);
	}
	if (!def->is_word)
		snprintf(value, sizeof(value), "%" PRId64, number);
	(void)ft_fail_field(error, FT_E_BAD_VALUE, "it", def->is_word ? word : value, list);
	return place_blame(formula->place, error);
}

/* The first error is kept, and the first value of the knob taken instead. */
static int evaluate_config(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, bool is_reference, struct ft_config *config, struct ft_error *error)
{
	const enum kind kind = kind_named(traits->kind);
	const struct knob *knob;
	struct values values;
	int result = 0;

	values_of_problem(folder, problem, &values);
	values_of_traits(folder, traits, &values);
	memset(config, 0, sizeof(*config));
	for (uint32_t at = 0; (knob = config_knob(folder, kind, &at)) != NULL;) {
		uint32_t index = 0;

		if (evaluate_knob(&knob->def, is_reference ? &knob->reference : &knob->usual, &values, &index,
		            result == 0 ? error : NULL) < 0) {
			index = 0;
			result = -1;
		}
		config_set_knob(&config->knob[config->count++], &knob->def, index);
	}
	return result;
}

int ft_folder_default(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config, struct ft_error *error)
{
	return evaluate_config(folder, problem, traits, false, config, error);
}

int ft_folder_reference_config(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, struct ft_config *config, struct ft_error *error)
{
	if (folder->reference_file != NULL)
		return ft_fail(error, FT_E_BAD_VALUE, "the reference of %s is no config", folder->name);
	return evaluate_config(folder, problem, traits, true, config, error) < 0 ||
	                config_check(folder, problem, traits, config, error) < 0
	        ? -1
	        : 0;
}

bool formula_applies(const struct ft_folder *folder, const struct formula *formula, enum kind kind)
{
	return (ft_expression_slots(formula->expression) & folder->absent[kind]) == 0;
}

static int refuse_config(const struct ft_folder *folder, const struct rule *rule,
        const struct ft_config *config, struct ft_error *error)
{
	char text[FT_CONFIG_TEXT_SIZE];

	ft_config_format(config, ' ', text, sizeof(text));
	(void)ft_fail_field(error, FT_E_BAD_VALUE, "config", text, rule->text);
	if (error != NULL)
		snprintf(error->message, sizeof(error->message),
		        "%.100s is no config of this problem of %s: %s (%.60s)",
		        text[0] != '\0' ? text : "none", folder->name, rule->why, rule->text);
	return -1;
}

/* `values` has problem and traits. */
int config_check_rules(const struct ft_folder *folder, enum kind kind, struct values *values,
        const struct ft_config *config, struct ft_error *error)
{
	bool holds = true;

	values_of_config(folder, kind, config, values);
	for (uint32_t i = 0; i < folder->rule_count; i++) {
		const struct rule *rule = &folder->rule[i];

		if (rule->prunes || !formula_applies(folder, &rule->formula, kind))
			continue;
		if (formula_holds(&rule->formula, values, &holds, error) < 0)
			return -1;
		if (!holds)
			return refuse_config(folder, rule, config, error);
	}
	return 0;
}

int config_check(const struct ft_folder *folder, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct ft_error *error)
{
	const enum kind kind = kind_named(traits->kind);
	struct ft_config ordered;
	struct values values;

	if (ft_schema_check_config(&folder->schema[kind], config, &ordered, error) < 0)
		return -1;
	values_of_problem(folder, problem, &values);
	values_of_traits(folder, traits, &values);
	return config_check_rules(folder, kind, &values, &ordered, error);
}

/* ---- problems ---- */

static int refuse_problem(const struct ft_folder *folder, const struct rule *rule,
        const struct ft_problem *problem, struct ft_error *error)
{
	const uint64_t slots = ft_expression_slots(rule->formula.expression);
	const struct ft_field *field = NULL;
	struct ft_problem named = {.count = 0};
	char value[FT_TEXT_SIZE], text[160];

	for (uint32_t i = 0; i < folder->field_count; i++) {
		const struct ft_field *found =
		        (slots >> i & 1) != 0 ? ft_problem_find(problem, folder->scope.name[i]) : NULL;

		if (found != NULL)
			named.field[named.count++] = *found;
		if (field == NULL)
			field = found;
	}
	if (error == NULL)
		return -1;
	if (field == NULL)
		return ft_fail(error, FT_E_BAD_VALUE, "%s (%.100s)", rule->why, rule->text);
	if (field->is_text)
		ft_text_copy(value, sizeof(value), field->text);
	else
		snprintf(value, sizeof(value), "%" PRId64, field->number);
	(void)ft_fail_field(error, FT_E_BAD_VALUE, field->name, value, rule->text);
	ft_problem_format(&named, ' ', text, sizeof(text));
	snprintf(error->message, sizeof(error->message), "%s: %s does not hold for %s", rule->why, rule->text,
	        text);
	ft_make_plain(error->message);
	return -1;
}

int ft_folder_takes(const struct ft_folder *folder, const struct ft_problem *problem, struct ft_error *error)
{
	struct values values;
	bool holds = true;

	values_of_problem(folder, problem, &values);
	for (uint32_t i = 0; i < folder->check_count; i++) {
		if (formula_holds(&folder->check[i].formula, &values, &holds, error) < 0)
			return -1;
		if (holds)
			continue;
		(void)refuse_problem(folder, &folder->check[i], problem, error);
		return 0;
	}
	return 1;
}
