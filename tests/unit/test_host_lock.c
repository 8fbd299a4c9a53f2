#include "kernels/runner/host_lock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "folder_help.h"

#define WORK FT_HOST_WORKED
#define TIMED FT_HOST_TIMED

static void work_is_done_together_and_nothing_is_timed_beside_it(void **state)
{
	struct ft_host_lock lock[3];

	for (int i = 0; i < 3; i++)
		ft_host_lock_open(&lock[i], *state);
	assert_true(ft_host_lock_try(&lock[0], WORK));
	assert_true(ft_host_lock_try(&lock[1], WORK));
	assert_false(ft_host_lock_try(&lock[2], TIMED));
	ft_host_lock_leave(&lock[0]);
	assert_false(ft_host_lock_try(&lock[2], TIMED));
	ft_host_lock_leave(&lock[1]);
	assert_true(ft_host_lock_try(&lock[2], TIMED));
	assert_true(ft_host_lock_try(&lock[2], TIMED));
	assert_false(ft_host_lock_try(&lock[0], WORK));
	ft_host_lock_leave(&lock[2]);
	assert_true(ft_host_lock_try(&lock[0], WORK));
	for (int i = 0; i < 3; i++)
		ft_host_lock_close(&lock[i]);
}

static void who_waits_to_time_keeps_new_work_out(void **state)
{
	struct ft_host_lock working, new, timing;

	ft_host_lock_open(&working, *state);
	ft_host_lock_open(&new, *state);
	ft_host_lock_open(&timing, *state);
	assert_true(ft_host_lock_try(&working, WORK));
	assert_false(ft_host_lock_try(&timing, TIMED));
	assert_false(ft_host_lock_try(&new, WORK));
	ft_host_lock_leave(&working);
	assert_false(ft_host_lock_try(&new, WORK));
	assert_true(ft_host_lock_try(&timing, TIMED));
	ft_host_lock_close(&working);
	ft_host_lock_close(&new);
	ft_host_lock_close(&timing);
}

static void work_that_waited_goes_before_the_next_that_is_timed(void **state)
{
	struct ft_host_lock working, timing;

	ft_host_lock_open(&working, *state);
	ft_host_lock_open(&timing, *state);
	for (int round = 0; round < 3; round++) {
		assert_true(ft_host_lock_try(&timing, TIMED));
		assert_false(ft_host_lock_try(&working, WORK));
		ft_host_lock_leave(&timing);
		assert_false(ft_host_lock_try(&timing, TIMED));
		assert_true(ft_host_lock_try(&working, WORK));
		assert_false(ft_host_lock_try(&timing, TIMED));
		ft_host_lock_leave(&working);
	}
	assert_true(ft_host_lock_try(&timing, TIMED));
	ft_host_lock_close(&working);
	ft_host_lock_close(&timing);
}

static void one_who_gives_up_keeps_nobody_out(void **state)
{
	struct ft_host_lock working, gives_up, other;

	ft_host_lock_open(&working, *state);
	ft_host_lock_open(&gives_up, *state);
	ft_host_lock_open(&other, *state);
	assert_true(ft_host_lock_try(&working, WORK));
	assert_false(ft_host_lock_try(&gives_up, TIMED));
	ft_host_lock_leave(&gives_up);
	assert_true(ft_host_lock_try(&other, WORK));
	ft_host_lock_close(&working);
	ft_host_lock_close(&gives_up);
	ft_host_lock_close(&other);
}

static void a_process_that_is_killed_frees_it(void **state)
{
	struct ft_host_lock mine;
	int ready[2];
	char byte;
	int status;
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct ft_host_lock its;

		ft_host_lock_open(&its, *state);
		byte = ft_host_lock_try(&its, TIMED) ? 'y' : 'n';
		(void)!write(ready[1], &byte, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	ft_host_lock_open(&mine, *state);
	assert_false(ft_host_lock_try(&mine, WORK));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(ft_host_lock_try(&mine, WORK));
	ft_host_lock_close(&mine);
	close(ready[0]);
	close(ready[1]);
}

static void without_a_file_nothing_waits(void **state)
{
	struct ft_host_lock one, other;

	(void)state;
	ft_host_lock_open(&one, "/nowhere/at/all");
	ft_host_lock_open(&other, NULL);
	assert_true(ft_host_lock_try(&one, TIMED));
	assert_true(ft_host_lock_try(&other, TIMED));
	ft_host_lock_leave(&one);
	ft_host_lock_close(&one);
}

static void it_goes_one_step_at_a_time_and_out_from_anywhere(void **state)
{
	(void)state;
	for (int from = 0; from < FT_HOST_LOCK_STATES; from++) {
		for (int to = 0; to < FT_HOST_LOCK_STATES; to++)
			assert_int_equal(ft_host_lock_may_go(
			                         (enum ft_host_lock_state)from, (enum ft_host_lock_state)to),
			        to == FT_HOST_LOCK_OUT || to == from + 1);
	}
}

static int make_folder(void **state)
{
	static char folder[32];

	(void)snprintf(folder, sizeof(folder), "/tmp/ft.XXXXXX");
	*state = mkdtemp(folder);
	return *state != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
	return folder_remove(*state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(work_is_done_together_and_nothing_is_timed_beside_it),
	        cmocka_unit_test(who_waits_to_time_keeps_new_work_out),
	        cmocka_unit_test(work_that_waited_goes_before_the_next_that_is_timed),
	        cmocka_unit_test(one_who_gives_up_keeps_nobody_out),
	        cmocka_unit_test(a_process_that_is_killed_frees_it),
	        cmocka_unit_test(without_a_file_nothing_waits),
	        cmocka_unit_test(it_goes_one_step_at_a_time_and_out_from_anywhere),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
