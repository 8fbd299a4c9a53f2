#include "daemon/server/fair_turns.h"

#include <stdlib.h>
#include <time.h>

#include "tests/unit/check.h"

enum { PERSON = 1000, NEIGHBOUR = 1001, MANY = 50 };

static const uint64_t turn_ns = 60000, long_ns = 20000000, asked_ns = 1000000;

/* The clocks are the test's: the machine may be as busy as it is. */
static uint64_t wall_ns = 1, processor_ns = 1;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? processor_ns : wall_ns;

	*now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	return 0;
}

struct doer {
	struct turn turn;
	unsigned done;
	uint64_t takes_ns; /* by the clock */
	uint64_t has_ns;   /* of the processor */
	bool endless;
};

static struct doer *latest;

static bool do_it(void *data)
{
	struct doer *doer = data;

	wall_ns += doer->takes_ns;
	processor_ns += doer->has_ns;
	doer->done++;
	latest = doer;
	return doer->endless;
}

struct scene {
	uv_loop_t loop;
	struct fair_turns turns;
	struct doer person[MANY];
	struct doer neighbour;
};

static void join(struct scene *scene, struct doer *doer, uint32_t user)
{
	doer->turn.waiting.data = doer;
	doer->takes_ns = doer->has_ns = turn_ns;
	doer->turn.user = fair_turns_join(&scene->turns, user);
	assert_non_null(doer->turn.user);
}

static struct scene *begin(void)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	fair_turns_init(&scene->turns, &scene->loop, do_it);
	for (int i = 0; i < MANY; i++) {
		join(scene, &scene->person[i], PERSON);
		scene->person[i].endless = true;
		fair_turns_add(&scene->turns, &scene->person[i].turn);
	}
	join(scene, &scene->neighbour, NEIGHBOUR);
	return scene;
}

static void leave(struct scene *scene, struct doer *doer)
{
	fair_turns_remove(&scene->turns, &doer->turn);
	fair_turns_leave(&scene->turns, doer->turn.user);
}

static void end(struct scene *scene)
{
	for (int i = 0; i < MANY; i++)
		leave(scene, &scene->person[i]);
	leave(scene, &scene->neighbour);
	assert_int_equal(scene->turns.waiting, 0);
	assert_null(scene->turns.due.first);
	assert_null(scene->turns.users.first);
	fair_turns_stop(&scene->turns);
	(void)uv_run(&scene->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
	free(scene);
}

static void who_asks_once_is_next_however_much_another_has_waiting(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (unsigned i = 1; i <= 10; i++) {
		fair_turns_serve(&scene->turns);
		assert_int_equal(scene->turns.waiting, MANY);
		fair_turns_add(&scene->turns, &scene->neighbour.turn);
		fair_turns_add(&scene->turns, &scene->neighbour.turn); /* waits once */
		fair_turns_serve(&scene->turns);
		assert_int_equal(scene->neighbour.done, i);
	}
	end(scene);
}

static unsigned done_by_person(const struct scene *scene)
{
	unsigned done = 0;

	for (int i = 0; i < MANY; i++)
		done += scene->person[i].done;
	return done;
}

static void two_who_want_all_have_half_of_the_time_each(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 0; i < 100; i++) /* alone: this does not count against it later */
		fair_turns_serve(&scene->turns);
	for (int i = 0; i < MANY; i++)
		scene->person[i].done = 0;
	scene->neighbour.endless = true;
	fair_turns_add(&scene->turns, &scene->neighbour.turn);
	for (int i = 0; i < 200; i++)
		fair_turns_serve(&scene->turns);
	assert_in_range(scene->neighbour.done, done_by_person(scene) - 2, done_by_person(scene) + 2);
	end(scene);
}

/* How often the neighbour was served while the person was ten times, whose turns take long. */
static unsigned served_beside(uint64_t takes_ns, uint64_t has_ns)
{
	struct scene *scene = begin();
	unsigned done;

	for (int i = 0; i < MANY; i++) {
		scene->person[i].takes_ns = takes_ns;
		scene->person[i].has_ns = has_ns;
	}
	scene->neighbour.endless = true;
	fair_turns_add(&scene->turns, &scene->neighbour.turn);
	while (done_by_person(scene) < 10)
		fair_turns_serve(&scene->turns);
	done = scene->neighbour.done;
	end(scene);
	return done;
}

static void a_turn_that_takes_long_is_charged_what_it_had_of_the_processor(void **state)
{
	unsigned whole = 9 * long_ns / turn_ns;

	(void)state;
	assert_in_range(served_beside(long_ns, long_ns), whole, 10 * whole / 9 + 10);
	assert_in_range(served_beside(long_ns, long_ns / 2), whole / 2, 10 * whole / 18 + 10);
	/* That it was away all the time, it is not to be charged with. */
	assert_in_range(served_beside(long_ns, 0), 9 * asked_ns / turn_ns, 10 * asked_ns / turn_ns + 10);
}

static void those_of_one_user_are_served_one_after_the_other(void **state)
{
	struct scene *scene = begin();

	(void)state;
	while (done_by_person(scene) < 3 * MANY)
		fair_turns_serve(&scene->turns);
	for (int i = 0; i < MANY; i++)
		assert_in_range(scene->person[i].done, 3, 4);
	end(scene);
}

static void nothing_is_served_that_left_the_queue(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 1; i < MANY; i++)
		fair_turns_remove(&scene->turns, &scene->person[i].turn);
	assert_int_equal(scene->turns.waiting, 1);
	for (int i = 0; i < 5; i++)
		fair_turns_serve(&scene->turns);
	assert_ptr_equal(latest, &scene->person[0]);
	assert_int_equal(done_by_person(scene), scene->person[0].done);
	end(scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(who_asks_once_is_next_however_much_another_has_waiting),
	        cmocka_unit_test(two_who_want_all_have_half_of_the_time_each),
	        cmocka_unit_test(a_turn_that_takes_long_is_charged_what_it_had_of_the_processor),
	        cmocka_unit_test(those_of_one_user_are_served_one_after_the_other),
	        cmocka_unit_test(nothing_is_served_that_left_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
