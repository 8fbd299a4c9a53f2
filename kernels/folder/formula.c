/* Expressions of a kernel.json, each with the place where it stands, for errors that come when it is evaluated. */
#include "kernels/folder/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct ft_scope scope_of(const struct ft_folder *folder, enum reach reach)
{
	struct ft_scope scope = folder->scope;

	if (reach == REACH_FIELDS)
		scope.count = folder->field_count;
	if (reach == REACH_TRAITS)
		scope.count = folder->knob_slot;
	if (scope.count < FT_SCOPE_MAX)
		scope.texts &= (UINT64_C(1) << scope.count) - 1;
	return scope;
}

int formula_read(struct formula *formula, const struct ft_folder *folder, enum reach reach,
        const struct place *place, const json_t *value, enum ft_expression_type wanted,
        struct ft_error *error)
{
	const struct ft_scope scope = scope_of(folder, reach);
	const char *text = json_string_value(value);
	char number[32];

	place_write(place, formula->place);
	if (text == NULL && wanted == FT_EXPRESSION_NUMBER && json_is_integer(value)) {
		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		text = number;
	}
	if (text == NULL) {
		static const char *const bounds[] = {
		        [FT_EXPRESSION_NUMBER] = "a whole number, or an expression",
		        [FT_EXPRESSION_CONDITION] = "an expression",
		        [FT_EXPRESSION_TEXT] = "an expression, a word as \"'word'\""};

		return place_refuse(place, value, bounds[wanted], error);
	}
	if (ft_expression_parse(text, &scope, wanted, &formula->expression, error) < 0)
		return place_blame(formula->place, error);
	return 0;
}

int formula_read_member(struct formula *formula, const struct ft_folder *folder, enum reach reach,
        const struct place *in, const json_t *object, const char *name, struct ft_error *error)
{
	const json_t *value = json_object_get(object, name);

	if (value == NULL)
		return 0;
	return formula_read(
	        formula, folder, reach, &(struct place){in, name, 0}, value, FT_EXPRESSION_NUMBER, error);
}

void formula_free(struct formula *formula)
{
	ft_expression_free(formula->expression);
	formula->expression = NULL;
}

int formula_number(const struct formula *formula, const struct values *values, int64_t least, int64_t most,
        int64_t *result, struct ft_error *error)
{
	char value[24], bound[64];

	if (ft_expression_number(formula->expression, values->slot, result, error) < 0)
		return place_blame(formula->place, error);
	if (*result >= least && *result <= most)
		return 0;
	snprintf(value, sizeof(value), "%" PRId64, *result);
	if (most == INT64_MAX)
		snprintf(bound, sizeof(bound), "at least %" PRId64, least);
	else
		snprintf(bound, sizeof(bound), "between %" PRId64 " and %" PRId64, least, most);
	(void)ft_fail_field(error, FT_E_BAD_VALUE, "it", value, bound);
	return place_blame(formula->place, error);
}

int formula_number_or(const struct formula *formula, const struct values *values, int64_t otherwise,
        int64_t least, int64_t most, uint64_t *result, struct ft_error *error)
{
	int64_t number = otherwise;

	if (formula->expression != NULL && formula_number(formula, values, least, most, &number, error) < 0)
		return -1;
	*result = (uint64_t)number;
	return 0;
}

int formula_holds(
        const struct formula *formula, const struct values *values, bool *holds, struct ft_error *error)
{
	if (ft_expression_condition(formula->expression, values->slot, holds, error) < 0)
		return place_blame(formula->place, error);
	return 0;
}

int formula_text(
        const struct formula *formula, const struct values *values, const char **text, struct ft_error *error)
{
	if (ft_expression_text(formula->expression, values->slot, text, error) < 0)
		return place_blame(formula->place, error);
	return 0;
}

int formula_check_kind(
        const struct formula *formula, const struct ft_folder *folder, enum kind kind, struct ft_error *error)
{
	const uint64_t slots = formula->expression != NULL ? ft_expression_slots(formula->expression) : 0;

	for (uint32_t i = 0; i < folder->knob_count; i++) {
		if (((slots & folder->absent[kind]) >> (folder->knob_slot + i) & 1) == 0)
			continue;
		(void)ft_fail(error, FT_E_BAD_VALUE, "%s is no knob of %s devices", folder->knob[i].def.name,
		        kind_names[kind]);
		return place_blame(formula->place, error);
	}
	return 0;
}

/* ---- values of names ---- */

void values_of_problem(
        const struct ft_folder *folder, const struct ft_problem *problem, struct values *values)
{
	for (uint32_t i = 0; i < folder->field_count; i++) {
		const char *name = folder->scope.name[i];
		const struct ft_field *field =
		        i < problem->count && ft_name_same(problem->field[i].name, name)
		        ? &problem->field[i]
		        : ft_problem_find(problem, name);

		/* A whole problem has them all. */
		if ((folder->scope.texts >> i & 1) != 0)
			values->slot[i].text = field != NULL && field->is_text ? field->text : "";
		else
			values->slot[i].number = field != NULL ? field->number : 0;
	}
}

static int64_t known(uint64_t trait, int64_t otherwise)
{
	if (trait == 0)
		return otherwise;
	return trait < INT64_MAX ? (int64_t)trait : INT64_MAX;
}

void values_of_traits(const struct ft_folder *folder, const struct ft_traits *traits, struct values *values)
{
	/* What is not known is taken for what every such device has. */
	const bool is_gpu = kind_named(traits->kind) != KIND_CPU;
	const union ft_expression_value value[TRAITS] = {[TRAIT_KIND] = {.text = traits->kind},
	        [TRAIT_ARCH] = {.text = traits->arch},
	        [TRAIT_UNITS] = {.number = known(traits->units, 1)},
	        [TRAIT_WAVE] = {.number = known(traits->wave, is_gpu ? 32 : 1)},
	        [TRAIT_CACHE] = {.number = known(traits->cache, 1 << 20)},
	        [TRAIT_SHARED_BLOCK] = {.number = known(traits->shared_block, is_gpu ? 48 << 10 : 0)},
	        [TRAIT_THREADS_BLOCK] = {.number = known(traits->threads_block, is_gpu ? 1024 : 1)},
	        [TRAIT_REGISTERS] = {.number = known(traits->registers, is_gpu ? 65536 : 0)},
	        [TRAIT_MEMORY] = {.number = known(traits->memory, INT64_C(1) << 30)}};

	memcpy(&values->slot[folder->field_count], value, sizeof(value));
}

void values_of_config(
        const struct ft_folder *folder, enum kind kind, const struct ft_config *config, struct values *values)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < folder->knob_count; i++) {
		union ft_expression_value *value = &values->slot[folder->knob_slot + i];

		if ((folder->knob[i].kinds >> kind & 1) == 0)
			continue;
		if (folder->knob[i].def.is_word)
			value->text = at < config->count ? config->knob[at].word : "";
		else
			value->number = at < config->count ? config->knob[at].value : 0;
		at++;
	}
}
