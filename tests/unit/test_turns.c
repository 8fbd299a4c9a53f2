#include "daemon/turns.h"

#include <stdlib.h>

#include "proto/clock.h"
#include "tests/unit/check.h"

enum { PERSON = 1000, NEIGHBOUR = 1001, MANY = 50 };

static const uint64_t long_ns = 60000;

struct doer {
	struct turn turn;
	unsigned done;
	bool endless;
};

static struct doer *latest;

static bool do_it(void *data)
{
	struct doer *doer = data;
	uint64_t until_ns = ft_monotonic_ns() + long_ns;

	while (ft_monotonic_ns() < until_ns)
		continue;
	doer->done++;
	latest = doer;
	return doer->endless;
}

struct scene {
	uv_loop_t loop;
	struct turns turns;
	struct doer person[MANY];
	struct doer neighbour;
};

static void join(struct scene *scene, struct doer *doer, uint32_t user)
{
	doer->turn.data = doer;
	doer->turn.user = turns_join(&scene->turns, user);
	assert_non_null(doer->turn.user);
}

static struct scene *begin(void)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	turns_init(&scene->turns, &scene->loop, do_it);
	for (int i = 0; i < MANY; i++) {
		join(scene, &scene->person[i], PERSON);
		scene->person[i].endless = true;
		turns_add(&scene->turns, &scene->person[i].turn);
	}
	join(scene, &scene->neighbour, NEIGHBOUR);
	return scene;
}

static void leave(struct scene *scene, struct doer *doer)
{
	turns_remove(&scene->turns, &doer->turn);
	turns_leave(&scene->turns, doer->turn.user);
}

static void end(struct scene *scene)
{
	for (int i = 0; i < MANY; i++)
		leave(scene, &scene->person[i]);
	leave(scene, &scene->neighbour);
	assert_int_equal(scene->turns.waiting, 0);
	assert_null(scene->turns.due);
	assert_null(scene->turns.users);
	turns_stop(&scene->turns);
	(void)uv_run(&scene->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
	free(scene);
}

static void who_asks_once_is_next_however_much_another_has_waiting(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (unsigned i = 1; i <= 10; i++) {
		turns_serve(&scene->turns);
		assert_int_equal(scene->turns.waiting, MANY);
		turns_add(&scene->turns, &scene->neighbour.turn);
		turns_add(&scene->turns, &scene->neighbour.turn); /* waits once */
		turns_serve(&scene->turns);
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
		turns_serve(&scene->turns);
	for (int i = 0; i < MANY; i++)
		scene->person[i].done = 0;
	scene->neighbour.endless = true;
	turns_add(&scene->turns, &scene->neighbour.turn);
	for (int i = 0; i < 200; i++)
		turns_serve(&scene->turns);
	assert_in_range(scene->neighbour.done, done_by_person(scene) / 2, 2 * done_by_person(scene));
	end(scene);
}

static void those_of_one_user_are_served_one_after_the_other(void **state)
{
	struct scene *scene = begin();

	(void)state;
	while (done_by_person(scene) < 3 * MANY)
		turns_serve(&scene->turns);
	for (int i = 0; i < MANY; i++)
		assert_in_range(scene->person[i].done, 3, 4);
	end(scene);
}

static void nothing_is_served_that_left_the_queue(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 1; i < MANY; i++)
		turns_remove(&scene->turns, &scene->person[i].turn);
	assert_int_equal(scene->turns.waiting, 1);
	for (int i = 0; i < 5; i++)
		turns_serve(&scene->turns);
	assert_ptr_equal(latest, &scene->person[0]);
	assert_int_equal(done_by_person(scene), scene->person[0].done);
	end(scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(who_asks_once_is_next_however_much_another_has_waiting),
	        cmocka_unit_test(two_who_want_all_have_half_of_the_time_each),
	        cmocka_unit_test(those_of_one_user_are_served_one_after_the_other),
	        cmocka_unit_test(nothing_is_served_that_left_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
