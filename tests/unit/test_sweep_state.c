/* The states and scopes of a sweep, and the states of the runner that it waits for. */
#include "daemon/devices/runner_state.h"
#include "daemon/jobs/sweep_state.h"

#include "check.h"

static void a_sweep_can_end_from_wherever_it_is_and_only_then_begin_again(void **state)
{
	(void)state;
	for (int from = SWEEP_WAITS_RUNNER; from < SWEEP_PHASES; from++) {
		assert_true(sweep_may_go((enum sweep_phase)from, SWEEP_OFF));
		assert_int_equal(sweep_may_go((enum sweep_phase)from, SWEEP_ENDS), from != SWEEP_ENDS);
	}
	for (int to = 0; to < SWEEP_PHASES; to++) {
		assert_int_equal(sweep_may_go(SWEEP_OFF, (enum sweep_phase)to), to == SWEEP_WAITS_RUNNER);
		assert_int_equal(sweep_may_go(SWEEP_ENDS, (enum sweep_phase)to), to == SWEEP_OFF);
	}
}

static void no_sweep_runs_before_its_space_is_known(void **state)
{
	(void)state;
	for (int from = 0; from < SWEEP_PHASES; from++) {
		if (sweep_may_go((enum sweep_phase)from, SWEEP_RUNS))
			assert_true(from == SWEEP_WAITS_SPACE || from == SWEEP_RUNS);
		if (sweep_may_go((enum sweep_phase)from, SWEEP_WAITS_RUNNER))
			assert_true(from < SWEEP_STOPS);
	}
}

static void what_was_cancelled_had_a_runner_and_only_ends(void **state)
{
	(void)state;
	for (int other = 0; other < SWEEP_PHASES; other++) {
		assert_int_equal(sweep_may_go((enum sweep_phase)other, SWEEP_STOPS), other == SWEEP_RUNS);
		assert_int_equal(sweep_may_go(SWEEP_STOPS, (enum sweep_phase)other),
		        other == SWEEP_ENDS || other == SWEEP_OFF);
		assert_non_null(sweep_phase_word((enum sweep_phase)other));
	}
}

static void a_part_may_need_the_whole_space_and_nothing_less_than_was_begun(void **state)
{
	(void)state;
	for (int from = 0; from < SCOPES; from++) {
		enum sweep_scope scope = (enum sweep_scope)from;

		assert_int_equal(sweep_scope_may_go(scope, SCOPE_WHOLE), scope != SCOPE_WHOLE);
		assert_false(sweep_scope_may_go(scope, SCOPE_CHECK));
		assert_int_equal(sweep_scope_may_go(scope, SCOPE_CHECKING), scope == SCOPE_CHECK);
		assert_int_equal(sweep_scope_may_go(scope, SCOPE_SUBSET), scope == SCOPE_EXTENDED);
		assert_int_equal(sweep_scope_may_go(scope, SCOPE_EXTENDED), scope == SCOPE_SUBSET);
		assert_true(sweep_is_check(scope) + sweep_is_of_part(scope) == (scope != SCOPE_WHOLE));
		assert_non_null(sweep_scope_word(scope));
	}
}

static void a_runner_is_ready_only_after_its_start_and_off_only_after_its_end(void **state)
{
	(void)state;
	for (int from = 0; from < RUNNER_STATES; from++) {
		assert_int_equal(
		        runner_may_go((enum runner_state)from, RUNNER_READY), from == RUNNER_STARTING);
		assert_int_equal(runner_may_go((enum runner_state)from, RUNNER_STARTING), from == RUNNER_OFF);
		assert_int_equal(runner_may_go((enum runner_state)from, RUNNER_OFF), from == RUNNER_ENDING);
		assert_int_equal(runner_may_go((enum runner_state)from, RUNNER_ENDING), from != RUNNER_OFF);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_sweep_can_end_from_wherever_it_is_and_only_then_begin_again),
	        cmocka_unit_test(no_sweep_runs_before_its_space_is_known),
	        cmocka_unit_test(what_was_cancelled_had_a_runner_and_only_ends),
	        cmocka_unit_test(a_part_may_need_the_whole_space_and_nothing_less_than_was_begun),
	        cmocka_unit_test(a_runner_is_ready_only_after_its_start_and_off_only_after_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
