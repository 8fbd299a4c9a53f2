#include "daemon/jobs/job_state.h"

#include "check.h"

/* What hung the daemon once: a job that waited for its commit and for its turn at the same time. */
static void one_whose_end_is_on_the_way_waits_for_no_turn(void **state)
{
	(void)state;
	for (int to = 0; to < JOB_STATES; to++)
		assert_int_equal(job_may_go(JOB_ENDS, (enum job_state)to), to == JOB_OVER);
	assert_false(job_may_go(JOB_DROPS, JOB_RUNS));
}

static void one_that_is_over_stays_so_and_every_other_can_get_there(void **state)
{
	bool reaches[JOB_STATES] = {[JOB_OVER] = true};

	(void)state;
	for (int turn = 0; turn < JOB_STATES; turn++) {
		for (int from = 0; from < JOB_STATES; from++) {
			assert_false(job_may_go(JOB_OVER, (enum job_state)from));
			for (int to = 0; to < JOB_STATES; to++)
				reaches[from] = reaches[from] ||
				        (reaches[to] && job_may_go((enum job_state)from, (enum job_state)to));
		}
	}
	for (int from = 0; from < JOB_STATES; from++) {
		assert_true(reaches[from]);
		assert_non_null(job_state_word((enum job_state)from));
	}
}

static void a_device_is_had_from_the_start_of_a_sweep_to_its_end(void **state)
{
	(void)state;
	for (int from = 0; from < JOB_STATES; from++) {
		for (int to = 0; to < JOB_STATES; to++) {
			bool had = job_has_device((enum job_state)from),
			     has = job_has_device((enum job_state)to);

			if (job_may_go((enum job_state)from, (enum job_state)to) && has && !had)
				assert_true(from == JOB_WAITS && to == JOB_RUNS);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(one_whose_end_is_on_the_way_waits_for_no_turn),
	        cmocka_unit_test(one_that_is_over_stays_so_and_every_other_can_get_there),
	        cmocka_unit_test(a_device_is_had_from_the_start_of_a_sweep_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
