/* The lookup of a list: what travels, what is kept, and whose failure is whose. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/clock.h"
#include <flytune/client.h>
#include "client_help.h"
#include "fake_case.h"

#define TOKEN "01234567-89ab-cdef-0123-456789abcdef:7"

enum { PATIENT_MS = 30000, SHORT_MS = 100, MOST = 3000 };

/* A list and all that is said of it. */
struct list {
	size_t count;
	flytune_problem *problem[MOST];
	struct flytune_answer *answer;
	struct flytune_error *errors;
	struct flytune_error error;
};

static struct list *new_list(const int64_t *m, size_t count)
{
	struct list *list = calloc(1, sizeof *list);

	assert_non_null(list);
	list->count = count;
	list->answer = calloc(count, sizeof *list->answer);
	list->errors = calloc(count, sizeof *list->errors);
	assert_true(list->answer != NULL && list->errors != NULL);
	for (size_t i = 0; i < count; i++)
		list->problem[i] = rmsnorm(m != NULL ? m[i] : (int64_t)i + 1);
	return list;
}

static void free_list(struct list *list)
{
	for (size_t i = 0; i < list->count; i++)
		flytune_problem_free(list->problem[i]);
	free(list->answer);
	free(list->errors);
	free(list);
}

static enum flytune_result look_up(flytune_client *client, struct list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		memset(&list->answer[i], 0x55, sizeof list->answer[i]);
		flytune_answer_init(&list->answer[i]);
		list->errors[i].code = FLYTUNE_E_OTHER;
	}
	return flytune_lookup_many(
	        client, list->problem, list->count, NULL, list->answer, list->errors, &list->error);
}

static flytune_client *open_client(int64_t timeout_ms)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = timeout_ms;
	options.cache_entries = 2 * MOST;
	return fake_client(&fake, &options);
}

static void assert_served(const struct list *list, size_t place, uint32_t flags, int64_t m)
{
	assert_int_equal(list->errors[place].code, FLYTUNE_OK);
	assert_int_equal(list->answer[place].source, FLYTUNE_SOURCE_TUNED);
	assert_int_equal(list->answer[place].flags, flags);
	assert_int_equal(flytune_answer_get(&list->answer[place], "M", -2), m);
}

static void assert_alone(const struct list *list, size_t place)
{
	assert_int_equal(list->errors[place].code, FLYTUNE_OK);
	assert_int_equal(list->answer[place].source, FLYTUNE_SOURCE_DEFAULT);
	assert_int_equal(list->answer[place].flags, FLYTUNE_ANSWER_AWAY);
	assert_true(list->answer[place].knob_count > 0);
}

static void a_list_travels_in_one_message_and_is_kept(void **state)
{
	struct list *list = new_list(NULL, 700), *more = new_list(NULL, 900);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_served(list, i, 0, (int64_t)i + 1);
	assert_int_equal(atomic_load(&fake.many), 1);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_served(list, i, FLYTUNE_ANSWER_KEPT, (int64_t)i + 1);
	assert_int_equal(atomic_load(&fake.many), 1);
	/* Of a longer list only the rest is asked for. */
	assert_int_equal(look_up(client, more), FLYTUNE_OK);
	for (size_t i = 0; i < more->count; i++)
		assert_served(more, i, i < 700 ? FLYTUNE_ANSWER_KEPT : 0, (int64_t)i + 1);
	assert_int_equal(atomic_load(&fake.lookups), 900);
	/* And a single lookup finds what a list brought. */
	assert_int_equal(
	        flytune_lookup(client, more->problem[899], NULL, &more->answer[0], NULL), FLYTUNE_OK);
	assert_int_equal(more->answer[0].flags, FLYTUNE_ANSWER_KEPT);
	assert_int_equal(atomic_load(&fake.repeats), 0);
	fake_board_changes(&fake);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_served(list, i, 0, (int64_t)i + 1);
	assert_int_equal(atomic_load(&fake.repeats), 0);
	free_list(list);
	free_list(more);
	flytune_close(client);
}

static void a_list_tells_how_often_its_misses_were_asked_for(void **state)
{
	struct list *list = new_list(NULL, 3);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_problem_free(list->problem[1]);
	list->problem[1] = rmsnorm(FAKE_M_MISS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(look_up(client, list), FLYTUNE_OK);
	fake_board_changes(&fake);
	assert_int_equal(atomic_load(&fake.repeats), 0);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	assert_int_equal(atomic_load(&fake.repeats), 2);
	free_list(list);
	flytune_close(client);
}

static void a_long_list_takes_several_messages(void **state)
{
	struct list *list = new_list(NULL, 2500);
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_served(list, i, 0, (int64_t)i + 1);
	assert_int_equal(atomic_load(&fake.many), 3);
	assert_int_equal(atomic_load(&fake.accepted), 1);
	free_list(list);
	flytune_close(client);
}

static void large_problems_share_messages_that_the_daemon_still_takes(void **state)
{
	enum { COUNT = 1024 };
	static flytune_problem *problem[COUNT];
	static struct flytune_answer answer[COUNT];
	struct flytune_field field[FLYTUNE_FIELDS_MAX];
	char name[FLYTUNE_FIELDS_MAX][FLYTUNE_NAME_SIZE], text[32];
	struct flytune_lookup_options options;
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	flytune_lookup_options_init(&options);
	options.device = text;
	for (int i = 0; i < FLYTUNE_FIELDS_MAX; i++) {
		snprintf(name[i], sizeof name[i], "field_%025d", i);
		field[i] = (struct flytune_field){.name = name[i], .text = text};
	}
	for (int i = 0; i < COUNT; i++) {
		field[0] = (struct flytune_field){.name = "m", .number = i + 1};
		problem[i] = flytune_problem_new("a_kernel_of_a_runner", field, FLYTUNE_FIELDS_MAX, NULL);
		assert_non_null(problem[i]);
		flytune_answer_init(&answer[i]);
	}
	assert_int_equal(
	        flytune_lookup_many(client, problem, COUNT, &options, answer, NULL, NULL), FLYTUNE_OK);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(flytune_answer_get(&answer[i], "M", -2), i + 1);
	assert_int_equal(atomic_load(&fake.many), 3);
	for (int i = 0; i < COUNT; i++)
		flytune_problem_free(problem[i]);
	flytune_close(client);
}

static void each_failure_is_its_own(void **state)
{
	static const int64_t m[] = {1, FAKE_M_REFUSED, 3, FAKE_M_UNAVAILABLE, 5, FAKE_M_REFUSED};
	struct list *list = new_list(m, 6);
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_E_BAD_VALUE);
	assert_string_equal(list->error.field, "m");
	for (size_t i = 0; i < 6; i += 2)
		assert_served(list, i, 0, m[i]);
	/* As a single lookup of it would be: what the daemon cannot do now, the library does by itself. */
	assert_alone(list, 3);
	assert_string_equal(list->answer[3].reason, "unavailable");
	for (size_t i = 1; i < 6; i += 4) {
		assert_int_equal(list->errors[i].code, FLYTUNE_E_BAD_VALUE);
		assert_string_equal(list->errors[i].bound, "another");
		assert_int_equal(list->answer[i].source, FLYTUNE_SOURCE_UNKNOWN);
		assert_int_equal(list->answer[i].flags, 0);
		assert_int_equal(list->answer[i].knob_count, 0);
	}
	assert_int_equal(atomic_load(&fake.accepted), 1);
	free_list(list);
	flytune_close(client);
}

static void without_a_daemon_all_get_what_one_would(void **state)
{
	struct list *known = new_list(NULL, 10), *list = new_list(NULL, 2000);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, known), FLYTUNE_OK);
	fake_stop(&fake);
	fake_board_dies(&fake);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < 10; i++)
		assert_served(list, i, FLYTUNE_ANSWER_KEPT | FLYTUNE_ANSWER_AWAY, (int64_t)i + 1);
	for (size_t i = 10; i < list->count; i++)
		assert_alone(list, i);
	free_list(known);
	free_list(list);
	flytune_close(client);
}

static enum fake_act hold(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup_many") == 0)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void a_daemon_that_hangs_costs_one_time_out_for_the_whole_list(void **state)
{
	struct list *list = new_list(NULL, 2500);
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = hold;
	fake_listen(&fake);
	client = open_client(SHORT_MS);
	began = clock_now();
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_alone(list, i);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	assert_int_equal(atomic_load(&fake.many), 0);
	free_list(list);
	flytune_close(client);
}

static enum fake_act know_no_lists(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup_many") != 0)
		return FAKE_USUAL;
	fake_refuse(session, request->id, FT_E_UNKNOWN_METHOD, "method");
	return FAKE_DONE;
}

static void a_daemon_that_knows_no_lists_is_asked_one_by_one(void **state)
{
	static const int64_t m[] = {1, FAKE_M_REFUSED, 3};
	struct list *list = new_list(m, 3);
	flytune_client *client;

	(void)state;
	fake.hook = know_no_lists;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_E_BAD_VALUE);
	assert_served(list, 0, 0, 1);
	assert_served(list, 2, 0, 3);
	assert_int_equal(list->errors[1].code, FLYTUNE_E_BAD_VALUE);
	assert_int_equal(atomic_load(&fake.lookups), 3);
	free_list(list);
	flytune_close(client);
}

static enum fake_act deny(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup_many") != 0)
		return FAKE_USUAL;
	fake_refuse(session, request->id, FT_E_DENIED, "");
	return FAKE_DONE;
}

static void who_may_not_ask_gets_no_defaults(void **state)
{
	struct list *list = new_list(NULL, 3);
	flytune_client *client;

	(void)state;
	fake.hook = deny;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_E_DENIED);
	for (size_t i = 0; i < list->count; i++)
		assert_int_equal(list->errors[i].code, FLYTUNE_E_DENIED);
	free_list(list);
	flytune_close(client);
}

/* Answers of `data`'s kind. */
static enum fake_act babble(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct ft_lookup_many_reply reply;
	struct ft_answer answer;
	struct ft_writer writer;
	int kind = *(int *)data;

	if (strcmp(request->method, "lookup_many") != 0)
		return FAKE_USUAL;
	fake_answer(&(struct ft_problem){0}, "", &answer);
	ft_config_set(&answer.config, "M", 1, NULL);
	ft_writer_init_growing(&writer, 1 << 20);
	if (kind == 0) { /* fewer than were asked for */
		ft_write_array(&writer, 2);
		ft_encode(&writer, &ft_answer_message, &answer);
		ft_encode(&writer, &ft_answer_message, &answer);
	} else if (kind == 1) { /* one, and then something else */
		ft_write_array(&writer, 3);
		ft_encode(&writer, &ft_answer_message, &answer);
		ft_write_uint(&writer, 7);
		ft_write_nil(&writer);
	} else { /* no list */
		ft_write_uint(&writer, 3);
	}
	reply.answers = (struct ft_view){writer.data, writer.length};
	fake_reply(session, request->id, &ft_lookup_many_reply_message, &reply);
	ft_writer_free(&writer);
	return FAKE_DONE;
}

static void a_reply_of_rubbish_is_not_taken_for_answers(void **state)
{
	struct list *list = new_list(NULL, 3);
	int kind;

	(void)state;
	fake.hook = babble;
	fake.data = &kind;
	fake_listen(&fake);
	for (kind = 0; kind < 3; kind++) {
		flytune_client *client = open_client(PATIENT_MS);

		assert_int_equal(look_up(client, list), FLYTUNE_OK);
		if (kind == 1)
			assert_served(list, 0, 0, 1);
		else
			assert_alone(list, 0);
		assert_alone(list, 1);
		assert_alone(list, 2);
		assert_string_equal(list->answer[2].reason, "bad_frame");
		flytune_close(client);
	}
	free_list(list);
}

static void a_list_of_a_generation_never_falls_back(void **state)
{
	struct list *list = new_list(NULL, 3), *more = new_list(NULL, 4);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	setenv("FLYTUNE_GENERATION", TOKEN, 1);
	client = open_client(SHORT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(list->answer[i].reason, TOKEN);
	fake_stop(&fake);
	fake_board_dies(&fake);
	assert_int_equal(look_up(client, more), FLYTUNE_E_GENERATION);
	assert_int_equal(more->errors[3].code, FLYTUNE_E_GENERATION);
	for (size_t i = 0; i < 3; i++)
		assert_served(more, i, FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT, (int64_t)i + 1);
	free_list(list);
	free_list(more);
	flytune_close(client);
}

static void autotune_decides_over_a_list_as_over_one(void **state)
{
	static const int64_t m[] = {1, 2, 1, 3, 2};
	struct list *list = new_list(m, 5);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	setenv("FLYTUNE_AUTOTUNE", "0", 1);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	assert_int_equal(list->answer[4].source, FLYTUNE_SOURCE_DEFAULT);
	assert_int_equal(list->answer[4].flags, 0);
	assert_int_equal(atomic_load(&fake.accepted), 0);
	flytune_close(client);
	/* Each problem is swept once, also where it stands twice. */
	setenv("FLYTUNE_AUTOTUNE", "1", 1);
	client = open_client(PATIENT_MS);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(look_up(client, list), FLYTUNE_OK);
		for (size_t i = 0; i < 5; i++)
			assert_served(list, i, round == 0 ? 0 : FLYTUNE_ANSWER_KEPT, m[i]);
		assert_int_equal(atomic_load(&fake.tunes), 3);
		assert_int_equal(atomic_load(&fake.waits), 3);
		assert_int_equal(atomic_load(&fake.many), 1);
	}
	flytune_close(client);
	free_list(list);
}

static enum fake_act never_end(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "wait") == 0)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void a_sweep_that_does_not_end_holds_a_list_up_once(void **state)
{
	struct list *list = new_list(NULL, 20);
	struct flytune_options options;
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = never_end;
	fake_listen(&fake);
	flytune_options_init(&options);
	options.socket = fake.path;
	options.autotune = FLYTUNE_AUTOTUNE_FORCE;
	options.autotune_timeout_ms = SHORT_MS;
	options.lookup_timeout_ms = PATIENT_MS;
	client = flytune_open(&options, NULL);
	assert_non_null(client);
	began = clock_now();
	assert_int_equal(look_up(client, list), FLYTUNE_OK);
	for (size_t i = 0; i < list->count; i++)
		assert_served(list, i, FLYTUNE_ANSWER_UNSWEPT, (int64_t)i + 1);
	assert_true(clock_now() - began < PATIENT_MS * CLOCK_MS);
	assert_int_equal(atomic_load(&fake.tunes), 20);
	free_list(list);
	flytune_close(client);
}

static void lists_that_make_no_sense_are_refused(void **state)
{
	struct flytune_lookup_options unsized = {0};
	struct list *list = new_list(NULL, 3);
	flytune_problem *const *problems = list->problem;
	struct flytune_error error;
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(flytune_lookup_many(client, NULL, 0, NULL, NULL, NULL, &error), FLYTUNE_OK);
	for (size_t i = 0; i < 3; i++)
		flytune_answer_init(&list->answer[i]);
	assert_int_equal(flytune_lookup_many(
	                         client, problems, FLYTUNE_LOOKUPS_MAX + 1, NULL, list->answer, NULL, &error),
	        FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, "count");
	assert_string_equal(error.value, "65537");
	assert_string_equal(error.bound, "at most 65536");
	list->answer[2].size = 8;
	assert_int_equal(flytune_lookup_many(client, problems, 3, NULL, list->answer, NULL, &error),
	        FLYTUNE_E_BAD_REQUEST);
	assert_non_null(strstr(error.message, "answer 2"));
	list->answer[0].size = 0;
	assert_int_equal(flytune_lookup_many(client, problems, 1, NULL, list->answer, NULL, &error),
	        FLYTUNE_E_BAD_REQUEST);
	flytune_answer_init(&list->answer[0]);
	assert_int_equal(flytune_lookup_many(client, problems, 1, &unsized, list->answer, NULL, &error),
	        FLYTUNE_E_BAD_REQUEST);
	flytune_lookup_options_init(&unsized);
	unsized.device = "a device with a name that is far too long for one";
	assert_int_equal(flytune_lookup_many(client, problems, 1, &unsized, list->answer, NULL, &error),
	        FLYTUNE_E_UNKNOWN_DEVICE);
	assert_int_equal(atomic_load(&fake.accepted), 0);
	free_list(list);
	flytune_close(client);
}

static void a_program_of_another_release_walks_in_its_own_steps(void **state)
{
	struct {
		struct flytune_answer answer;
		uint64_t newer;
	} large[3];
	struct list *list = new_list(NULL, 3);
	flytune_client *client;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++) {
			large[i].answer.size = sizeof large[i];
			large[i].newer = 5;
		}
		assert_int_equal(
		        flytune_lookup_many(client, list->problem, 3, NULL, &large[0].answer, NULL, NULL),
		        FLYTUNE_OK);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(large[i].newer, 0);
			assert_int_equal(flytune_answer_get(&large[i].answer, "M", -2), i + 1);
		}
	}
	free_list(list);
	flytune_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(a_list_tells_how_often_its_misses_were_asked_for),
	        ROW(a_list_travels_in_one_message_and_is_kept),
	        ROW(a_long_list_takes_several_messages),
	        ROW(large_problems_share_messages_that_the_daemon_still_takes),
	        ROW(each_failure_is_its_own),
	        ROW(without_a_daemon_all_get_what_one_would),
	        ROW(a_daemon_that_hangs_costs_one_time_out_for_the_whole_list),
	        ROW(a_daemon_that_knows_no_lists_is_asked_one_by_one),
	        ROW(who_may_not_ask_gets_no_defaults),
	        ROW(a_reply_of_rubbish_is_not_taken_for_answers),
	        ROW(a_list_of_a_generation_never_falls_back),
	        ROW(autotune_decides_over_a_list_as_over_one),
	        ROW(a_sweep_that_does_not_end_holds_a_list_up_once),
	        ROW(lists_that_make_no_sense_are_refused),
	        ROW(a_program_of_another_release_walks_in_its_own_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
