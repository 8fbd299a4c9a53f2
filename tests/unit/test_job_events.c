#include "daemon/server/job_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

enum { WATCHED = 7, OTHER = 8 };

/* Nobody writes to a socket here: what a session is owed is looked at. */
void session_wake(struct session *session)
{
	(void)session;
}

bool session_look(struct session *session)
{
	(void)session;
	return false;
}

struct scene {
	struct job_events events;
	struct session session;
};

static struct scene *scene_new(uint64_t job)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	ft_writer_init_growing(&scene->session.out, ft_bounds_large.bytes);
	job_events_join(&scene->events, &scene->session, job);
	return scene;
}

static void scene_free(struct scene *scene)
{
	job_events_leave(&scene->events, &scene->session);
	ft_writer_free(&scene->session.out);
	free(scene);
}

static void add(struct scene *scene, uint64_t job, unsigned times)
{
	struct ft_event event = {.job = job, .event = "round"};

	for (unsigned i = 0; i < times; i++)
		job_events_add(&scene->events, &event);
}

static unsigned count_told(const struct scene *scene, char missed[FT_REASON_SIZE])
{
	struct ft_cursor cursor = ft_cursor_of(scene->session.out.data, scene->session.out.length);
	struct ft_view message;
	unsigned count = 0;

	while (ft_read_view(&cursor, &message)) {
		struct ft_envelope envelope;
		struct ft_event event;

		assert_int_equal(ft_open_envelope(message, &envelope, NULL), 0);
		assert_int_equal(ft_decode(&ft_event_message, envelope.body, &event, NULL), 0);
		assert_int_equal(event.job, WATCHED);
		if (strcmp(event.event, "missed") == 0)
			(void)snprintf(missed, FT_REASON_SIZE, "%s", event.reason);
		else
			count++;
	}
	return count;
}

/* How many events are told, until there are no more; and what was told to be missed last. */
static unsigned told(struct scene *scene, char missed[FT_REASON_SIZE])
{
	unsigned count = 0;
	bool more;

	missed[0] = '\0';
	do {
		more = job_events_tell(&scene->events, &scene->session);
		count += count_told(scene, missed);
		ft_writer_reset(&scene->session.out);
	} while (more);
	return count;
}

static void events_of_other_jobs_are_not_missed(void **state)
{
	struct scene *scene = scene_new(WATCHED);
	char missed[FT_REASON_SIZE];

	(void)state;
	add(scene, WATCHED, 1);
	add(scene, OTHER, EVENTS_KEPT - 1);
	assert_int_equal(told(scene, missed), 1);
	assert_string_equal(missed, "");
	/* The one is lost, and of the others that are, none is counted. */
	add(scene, WATCHED, 1);
	add(scene, OTHER, 2 * EVENTS_KEPT);
	add(scene, WATCHED, 1);
	assert_int_equal(told(scene, missed), 1);
	assert_non_null(strstr(missed, "1 events "));
	scene_free(scene);
}

static void what_is_lost_is_told_once(void **state)
{
	struct scene *scene = scene_new(WATCHED);
	char missed[FT_REASON_SIZE];

	(void)state;
	add(scene, WATCHED, EVENTS_KEPT + 3);
	assert_int_equal(told(scene, missed), EVENTS_KEPT);
	assert_non_null(strstr(missed, "3 events "));
	add(scene, WATCHED, 1);
	assert_int_equal(told(scene, missed), 1);
	assert_string_equal(missed, "");
	scene_free(scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(events_of_other_jobs_are_not_missed),
	        cmocka_unit_test(what_is_lost_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
