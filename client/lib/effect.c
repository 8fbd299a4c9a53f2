#include "client/lib/effect.h"

#include <string.h>

static const struct flytune_knob *knob_of(const struct flytune_knob *knob, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++) {
		if (strcmp(knob[i].name, name) == 0)
			return &knob[i];
	}
	return NULL;
}

static int compare_values(const struct flytune_knob *a, const struct flytune_knob *b)
{
	if (a->word != NULL && b->word != NULL)
		return strcmp(a->word, b->word);
	return (a->value > b->value) - (a->value < b->value);
}

static bool same_value(const struct flytune_knob *a, const struct flytune_knob *b)
{
	return (a->word == NULL) == (b->word == NULL) && compare_values(a, b) == 0;
}

static bool same_config(const struct flytune_knob *a, uint32_t a_count, const struct flytune_knob *b,
        uint32_t b_count, const char *but)
{
	if (a_count != b_count)
		return false;
	for (uint32_t i = 0; i < a_count; i++) {
		const struct flytune_knob *other = knob_of(b, b_count, a[i].name);

		if (other == NULL)
			return false;
		if (!same_value(other, &a[i]) && (but == NULL || strcmp(a[i].name, but) != 0))
			return false;
	}
	return true;
}

/* A trial's time to the best's; of one that another was timed for, the other's. 0 if there is none. */
static double ratio_of(
        const struct flytune_trial *trial, const struct flytune_trial *all, size_t count, double *low)
{
	*low = trial->ratio_low;
	if (trial->same_as_count == 0)
		return strcmp(trial->status, "ok") == 0 ? trial->ratio : 0;
	for (size_t i = 0; i < count; i++) {
		if (!same_config(trial->same_as, trial->same_as_count, all[i].knob, all[i].knob_count, NULL))
			continue;
		*low = all[i].ratio_low;
		return strcmp(all[i].status, "ok") == 0 ? all[i].ratio : 0;
	}
	return 0;
}

/* Keeps the values in order and each once. */
static void add_value(struct flytune_effect *effect, const struct flytune_knob *value)
{
	uint32_t at = 0;

	while (at < effect->value_count && compare_values(&effect->value[at], value) < 0)
		at++;
	if (effect->value_count == FLYTUNE_KNOB_VALUES_MAX ||
	        (at < effect->value_count && same_value(&effect->value[at], value)))
		return;
	memmove(&effect->value[at + 1], &effect->value[at],
	        (effect->value_count - at) * sizeof *effect->value);
	effect->value[at] = *value;
	effect->value_count++;
}

static void collect_values(struct flytune_effect *effect, const struct flytune_trial *trial, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct flytune_knob *knob = knob_of(trial[i].knob, trial[i].knob_count, effect->name);

		if (knob != NULL)
			add_value(effect, knob);
	}
}

static void time_values(struct flytune_effect *effect, const struct flytune_trial *trial, size_t count,
        double least[FLYTUNE_KNOB_VALUES_MAX])
{
	for (size_t i = 0; i < count; i++) {
		const struct flytune_knob *knob = knob_of(trial[i].knob, trial[i].knob_count, effect->name);
		double low, ratio = ratio_of(&trial[i], trial, count, &low);

		if (knob == NULL)
			continue;
		if (trial[i].is_winner)
			effect->winner_knob = *knob;
		if (trial[i].is_default)
			effect->default_knob = *knob;
		for (uint32_t v = 0; v < effect->value_count && ratio > 0; v++) {
			if (!same_value(&effect->value[v], knob) ||
			        (effect->ratio[v] != 0 && ratio >= effect->ratio[v]))
				continue;
			effect->ratio[v] = ratio;
			least[v] = low;
		}
	}
}

/* Configs that differ in this knob alone: does the compiler make the same of them? */
static void compare_code(struct flytune_effect *effect, const struct flytune_trial *trial, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t j = i + 1; j < count && trial[i].code[0] != '\0'; j++) {
			if (trial[j].code[0] == '\0' ||
			        !same_config(trial[i].knob, trial[i].knob_count, trial[j].knob,
			                trial[j].knob_count, effect->name))
				continue;
			effect->pairs++;
			effect->same_pairs += strcmp(trial[i].code, trial[j].code) == 0;
		}
	}
}

void effect_measure(struct flytune_effect *effect, const struct flytune_trial *trial, size_t count)
{
	double best = 0, worst = 0, with_default = 0, surely = 0;
	double least[FLYTUNE_KNOB_VALUES_MAX] = {0};
	unsigned timed = 0;

	collect_values(effect, trial, count);
	time_values(effect, trial, count, least);
	compare_code(effect, trial, count);
	for (uint32_t v = 0; v < effect->value_count; v++) {
		double ratio = effect->ratio[v];

		if (ratio == 0)
			continue;
		timed++;
		best = best == 0 || ratio < best ? ratio : best;
		worst = ratio > worst ? ratio : worst;
		surely = least[v] > surely ? least[v] : surely;
		if (same_value(&effect->value[v], &effect->default_knob))
			with_default = ratio;
	}
	effect->timed = timed > 1;
	if (best > 0) {
		effect->loss = worst / best - 1;
		effect->loss_least = surely > best ? surely / best - 1 : 0;
		effect->default_loss = with_default > 0 ? with_default / best - 1 : 0;
	}
}
