/* Tests client/lib/effect.c: what is said of each knob. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/lib/effect.h"

/* A trial of two knobs, timed with `ratio`. */
static void fill(struct flytune_trial *trial, int64_t a, int64_t b, double ratio, const char *code)
{
	flytune_trial_init(trial);
	snprintf(trial->status, sizeof trial->status, "ok");
	snprintf(trial->code, sizeof trial->code, "%s", code);
	trial->knob_count = 2;
	snprintf(trial->knob[0].name, sizeof trial->knob[0].name, "a");
	snprintf(trial->knob[1].name, sizeof trial->knob[1].name, "b");
	trial->knob[0].value = a;
	trial->knob[1].value = b;
	trial->ratio = ratio;
	trial->ratio_low = ratio == 1.0 ? 1.0 : ratio - 0.125;
}

static void stand_for(struct flytune_trial *trial, const struct flytune_trial *other)
{
	snprintf(trial->status, sizeof trial->status, "same_code_as");
	trial->ratio = 0;
	trial->same_as_count = other->knob_count;
	trial->same_as[0] = other->knob[0];
	trial->same_as[1] = other->knob[1];
}

static struct flytune_effect measure(const char *name, const struct flytune_trial *trial, size_t count)
{
	struct flytune_effect effect;

	flytune_effect_init(&effect);
	snprintf(effect.name, sizeof effect.name, "%s", name);
	effect_measure(&effect, trial, count);
	return effect;
}

static void a_knob_without_effect_is_told_by_its_code(void **state)
{
	struct flytune_trial trial[4];
	struct flytune_effect effect;

	(void)state;
	fill(&trial[0], 256, 0, 1.25, "x");
	fill(&trial[1], 256, 1, 0, "x");
	fill(&trial[2], 128, 0, 1.0, "y");
	fill(&trial[3], 128, 1, 0, "y");
	stand_for(&trial[1], &trial[0]);
	stand_for(&trial[3], &trial[2]);
	trial[0].is_default = 1;
	trial[2].is_winner = 1;
	effect = measure("b", trial, 4);
	assert_int_equal(effect.pairs, 2);
	assert_int_equal(effect.same_pairs, 2);
	assert_true(effect.loss == 0);
	effect = measure("a", trial, 4);
	assert_int_equal(effect.pairs, 2);
	assert_int_equal(effect.same_pairs, 0);
	assert_int_equal(effect.value_count, 2);
	assert_int_equal(effect.value[0].value, 128);
	assert_int_equal(effect.winner_knob.value, 128);
	assert_int_equal(effect.default_knob.value, 256);
	assert_true(effect.timed);
	assert_true(effect.loss == 0.25);
	assert_true(effect.loss_least == 0.125);
	assert_true(effect.default_loss == 0.25);
}

static void a_config_that_was_wrong_says_nothing_of_times(void **state)
{
	struct flytune_trial trial[2];
	struct flytune_effect effect;

	(void)state;
	fill(&trial[0], 1, 0, 1.0, "x");
	fill(&trial[1], 2, 0, 0.5, "y");
	snprintf(trial[1].status, sizeof trial[1].status, "wrong");
	trial[0].is_winner = trial[0].is_default = 1;
	effect = measure("a", trial, 2);
	assert_false(effect.timed);
	assert_true(effect.loss == 0);
	assert_int_equal(effect.value_count, 2);
	assert_true(effect.ratio[1] == 0);
	effect = measure("unknown", trial, 2);
	assert_int_equal(effect.value_count, 0);
	assert_false(effect.timed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_knob_without_effect_is_told_by_its_code),
	        cmocka_unit_test(a_config_that_was_wrong_says_nothing_of_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
