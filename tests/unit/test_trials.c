/* A set of trials in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/store/trials.h"

static void a_new_set_has_decided_nothing(void **state)
{
	struct trials *trials = trials_new(4);

	(void)state;
	assert_non_null(trials);
	assert_int_equal(trials->count, 4);
	assert_int_equal(trials->winner, -1);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(trials->trial[i].status, TRIAL_WAITING);
		assert_null(trials->trial[i].sample_ps);
	}
	trials_free(trials);
	trials = trials_new(0);
	assert_non_null(trials);
	trials_free(trials);
	trials_free(NULL);
}

static void samples_are_made_once_and_empty(void **state)
{
	struct trials *trials = trials_new(2);
	uint64_t *samples = trials_samples(trials, 1);

	(void)state;
	assert_non_null(samples);
	for (int i = 0; i < FT_ROUNDS_MAX; i++)
		assert_int_equal(samples[i], 0);
	samples[3] = 5;
	assert_ptr_equal(trials_samples(trials, 1), samples);
	assert_int_equal(trials->trial[1].sample_ps[3], 5);
	assert_null(trials->trial[0].sample_ps);
	trials_free(trials);
}

static void a_config_is_found_in_whatever_order_its_knobs_stand(void **state)
{
	struct trials *trials = trials_new(2);
	struct ft_config config = {0};

	(void)state;
	ft_config_set(&trials->trial[0].config, "a", 1, NULL);
	ft_config_set(&trials->trial[1].config, "a", 2, NULL);
	ft_config_set(&trials->trial[1].config, "b", 3, NULL);
	ft_config_set(&config, "b", 3, NULL);
	ft_config_set(&config, "a", 2, NULL);
	assert_int_equal(trials_find(trials, &config), 1);
	ft_config_set(&config, "a", 4, NULL);
	assert_int_equal(trials_find(trials, &config), -1);
	trials_free(trials);
}

static void every_status_has_a_word_of_its_own(void **state)
{
	(void)state;
	for (int i = TRIAL_WAITING; i <= TRIAL_SUSPECT; i++) {
		enum trial_status status = TRIAL_WAITING;

		assert_int_equal(trial_status_parse(trial_status_word((enum trial_status)i), &status), 0);
		assert_int_equal(status, i);
	}
	enum trial_status status;
	assert_int_equal(trial_status_parse("ok", &status), -1);
	assert_int_equal(trial_status_parse("", &status), -1);
	assert_string_equal(trial_status_word(TRIAL_SAME_CODE), "same_code_as");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_new_set_has_decided_nothing),
	        cmocka_unit_test(samples_are_made_once_and_empty),
	        cmocka_unit_test(a_config_is_found_in_whatever_order_its_knobs_stand),
	        cmocka_unit_test(every_status_has_a_word_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
