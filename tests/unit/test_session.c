#include "daemon/server/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/check.h"

/* All connections but the last are one user's. */
enum { PERSON = 1000, NEIGHBOUR = 1001, CONNECTIONS = 8, NEIGHBOURS = CONNECTIONS - 1 };

/* Answers, and how long they are. A little more than a socket takes; more than a user may have while memory is scarce; and
 * more than one ever may. */
static const struct {
	const char *method;
	size_t bytes;
} answers[] = {{"unread", 330000}, {"some", SESSION_USER_BYTES / 4 + 1}, {"all", SESSION_USER_BYTES + 1}};

static uint32_t peer;

int __wrap_getsockopt(int descriptor, int level, int option, void *value, socklen_t *size);
int __wrap_getsockopt(int descriptor, int level, int option, void *value, socklen_t *size)
{
	struct ucred who = {.uid = peer, .gid = peer, .pid = 1};

	(void)descriptor;
	assert_int_equal(level, SOL_SOCKET);
	assert_int_equal(option, SO_PEERCRED);
	memcpy(value, &who, sizeof(who));
	*size = sizeof(who);
	return 0;
}

struct scene {
	uv_loop_t loop;
	struct fair_turns turns;
	struct session_common common;
	struct log log;
	struct access access;
	struct session *session[CONNECTIONS];
	int client[CONNECTIONS];
	unsigned closed;
};

/* What is asked for with "work" is done once it may be; with "endless", never; for the answer of "much" there is no memory. */
static bool may_be_done;
static unsigned done, owed;

enum { WORK_LIMIT = 1024, WORK_BYTES = 12345 };

static bool do_some(struct work *work, struct session *session)
{
	(void)session;
	if (!may_be_done)
		return false;
	ft_write_nil(&work->answer);
	done++;
	return true;
}

static bool answer_much(struct work *work, struct session *session)
{
	static const uint8_t much[WORK_LIMIT];

	(void)session;
	ft_write_bytes(&work->answer, much, sizeof(much));
	return true;
}

static bool go_on_for_ever(struct work *work, struct session *session)
{
	(void)work;
	(void)session;
	return false;
}

static bool none_at_once(void *data, struct session *session, struct ft_view bytes)
{
	(void)data;
	(void)session;
	(void)bytes;
	return false;
}

static void take(void *data, struct session *session, const struct ft_envelope *envelope)
{
	static const uint8_t zeros[SESSION_USER_BYTES + 1];
	struct work *work;

	(void)data;
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (strcmp(envelope->method, answers[i].method) == 0) {
			ft_begin_response(&session->out, envelope->id);
			ft_write_bytes(&session->out, zeros, answers[i].bytes);
			session_appended(session);
			return;
		}
	}
	work = calloc(1, sizeof(*work));
	assert_non_null(work);
	work->id = envelope->id;
	work->bytes = WORK_BYTES;
	work->step = strcmp(envelope->method, "work") == 0 ? do_some
	        : strcmp(envelope->method, "much") == 0    ? answer_much
	                                                   : go_on_for_ever;
	ft_writer_init_growing(&work->answer, WORK_LIMIT);
	ft_begin_response(&work->answer, envelope->id);
	session_begin(session, work);
}

static bool owe_nothing(void *data, struct session *session)
{
	(void)data;
	(void)session;
	owed++;
	return false;
}

static void nothing(void *data, struct session *session)
{
	(void)data;
	(void)session;
}

static void count_closed(void *data, struct session *session)
{
	struct scene *scene = data;

	scene->closed++;
	for (int i = 0; i < CONNECTIONS; i++) {
		if (scene->session[i] == session)
			scene->session[i] = NULL;
	}
}

static const struct session_events events = {none_at_once, take, owe_nothing, nothing, nothing, count_closed};

/* Until nothing more happens. */
static void settle(struct scene *scene)
{
	for (int i = 0; i < 100; i++)
		(void)uv_run(&scene->loop, UV_RUN_NOWAIT);
}

static struct scene *begin(void)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	struct ft_error error;

	assert_non_null(scene);
	assert_int_equal(uv_loop_init(&scene->loop), 0);
	fair_turns_init(&scene->turns, &scene->loop, session_turn);
	scene->common.turns = &scene->turns;
	log_init(&scene->log, LOG_LEVEL_ERROR, NULL, NULL);
	may_be_done = false;
	done = owed = 0;
	for (int i = 0; i < CONNECTIONS; i++) {
		int pair[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
		peer = i < NEIGHBOURS ? PERSON : NEIGHBOUR;
		scene->client[i] = pair[1];
		scene->session[i] = session_new(&scene->loop, &scene->log, &scene->common, &scene->access,
		        &events, scene, pair[0], &error);
		assert_non_null(scene->session[i]);
	}
	return scene;
}

static void hang_up(struct scene *scene, int which)
{
	(void)close(scene->client[which]);
	scene->client[which] = -1;
	if (scene->session[which] != NULL)
		session_close(scene->session[which]);
	settle(scene);
}

static void end(struct scene *scene)
{
	for (int i = 0; i < CONNECTIONS; i++) {
		if (scene->client[i] >= 0)
			hang_up(scene, i);
	}
	assert_int_equal(scene->closed, CONNECTIONS);
	assert_int_equal(scene->turns.waiting, 0);
	assert_int_equal(scene->turns.bytes, 0);
	assert_null(scene->turns.users.first);
	session_common_free(&scene->common);
	fair_turns_stop(&scene->turns);
	settle(scene);
	assert_int_equal(uv_loop_close(&scene->loop), 0);
	log_free(&scene->log);
	free(scene);
}

/* Of a question the bytes from one on, but for some at its end. */
static size_t send_part(struct scene *scene, int which, const char *method, size_t from, size_t but)
{
	char padding[2 * SESSION_SMALL] = "";
	struct ft_writer writer;
	size_t length;

	memset(padding, 'x', sizeof(padding) - 1);
	ft_writer_init_growing(&writer, 8192);
	ft_begin_request(&writer, 7, method);
	ft_write_map(&writer, 1);
	ft_write_text(&writer, "padding");
	ft_write_text(&writer, padding);
	length = writer.length - from - but;
	assert_int_equal(write(scene->client[which], writer.data + from, length), length);
	ft_writer_free(&writer);
	settle(scene);
	return length;
}

static void ask(struct scene *scene, int which, const char *method)
{
	(void)send_part(scene, which, method, 0, 0);
}

static size_t read_all(struct scene *scene, int which)
{
	static char bytes[1 << 18];
	size_t sum = 0;
	ssize_t got;

	while ((got = read(scene->client[which], bytes, sizeof(bytes))) > 0) {
		sum += (size_t)got;
		for (int i = 0; i < 3; i++)
			(void)uv_run(&scene->loop, UV_RUN_NOWAIT);
	}
	settle(scene);
	return sum;
}

static void works_that_cannot_go_on_leave_their_places_and_go_on_when_there_is_memory(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 0; i < 4; i++) {
		ask(scene, i, "unread");
		ask(scene, i, "work");
		assert_true(scene->session[i]->begun);
	}
	ask(scene, 4, "all");
	may_be_done = true;
	ask(scene, 5, "work");
	assert_int_equal(done, 1);
	assert_true(read_all(scene, 5) > 0);
	assert_int_equal(scene->turns.waiting, 0); /* they do not turn in vain either */
	/* None of the four reads, but another of their user's. */
	assert_true(read_all(scene, 4) > SESSION_USER_BYTES);
	assert_int_equal(done, 5);
	end(scene);
}

static void a_place_goes_to_the_next_who_can_begin(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 0; i < 3; i++)
		ask(scene, i, "endless");
	ask(scene, 3, "work");
	ask(scene, 4, "unread");
	ask(scene, 4, "work");
	ask(scene, 5, "work");
	ask(scene, 6, "all"); /* from now on the fourth cannot */
	may_be_done = true;
	settle(scene);
	assert_true(read_all(scene, 3) > 0);
	assert_true(read_all(scene, 5) > 0);
	assert_int_equal(done, 2);
	assert_true(read_all(scene, 6) > SESSION_USER_BYTES);
	assert_int_equal(done, 3);
	end(scene);
}

static void who_waits_to_begin_is_not_overtaken(void **state)
{
	struct scene *scene = begin();

	(void)state;
	for (int i = 0; i < 3; i++)
		ask(scene, i, "endless");
	ask(scene, 3, "work");
	ask(scene, 4, "endless");
	ask(scene, 3, "endless"); /* behind its first */
	may_be_done = true;
	settle(scene);
	assert_true(scene->session[4]->begun);
	assert_false(scene->session[3]->begun);
	hang_up(scene, 0);
	assert_true(scene->session[3]->begun);
	end(scene);
}

static void who_was_held_for_all_goes_on_when_another_user_leaves_memory(void **state)
{
	struct scene *scene = begin();
	const size_t others = SESSION_BYTES - SESSION_USER_BYTES; /* that have the most, and are not there */
	size_t sent;

	(void)state;
	ask(scene, 1, "some");
	ask(scene, NEIGHBOURS, "all");
	scene->turns.bytes += others;
	sent = send_part(scene, 0, "work", 0, 3);
	assert_non_null(scene->session[0]->held.list);
	scene->session[0]->partial = 17;
	may_be_done = true;
	(void)send_part(scene, 0, "work", sent, 0);
	assert_int_equal(done, 0);
	assert_true(read_all(scene, NEIGHBOURS) > SESSION_USER_BYTES);
	assert_null(scene->session[0]->held.list);
	assert_int_equal(done, 1);
	assert_true(read_all(scene, 0) > 0);
	scene->turns.bytes -= others;
	end(scene);
}

static void half_a_message_does_not_age_by_having_been_held(void **state)
{
	struct scene *scene = begin();

	(void)state;
	ask(scene, 1, "all");
	(void)send_part(scene, 0, "work", 0, 3);
	assert_non_null(scene->session[0]->held.list);
	scene->session[0]->partial = 17;
	assert_true(read_all(scene, 1) > SESSION_USER_BYTES);
	assert_null(scene->session[0]->held.list);
	assert_int_equal(scene->session[0]->partial, 1);
	end(scene);
}

static void a_small_question_is_read_on_whatever_its_user_has_unread(void **state)
{
	struct scene *scene = begin();
	static const uint8_t some[] = {0x94, 0x00, 0x07, 0xa4, 'w', 'o'};
	static const uint8_t rest[] = {'r', 'k', 0x80};

	(void)state;
	ask(scene, 1, "all");
	may_be_done = true;
	assert_int_equal(write(scene->client[0], some, sizeof(some)), sizeof(some));
	settle(scene);
	assert_null(scene->session[0]->held.list);
	assert_int_equal(write(scene->client[0], rest, sizeof(rest)), sizeof(rest));
	settle(scene);
	assert_int_equal(done, 1);
	assert_true(read_all(scene, 0) > 0);
	end(scene);
}

static void assert_failure_for_memory(int client)
{
	char bytes[1024];
	ssize_t got = read(client, bytes, sizeof(bytes));
	struct ft_envelope envelope;
	struct ft_error error;

	assert_true(got > 0);
	assert_int_equal(
	        ft_open_envelope((struct ft_view){(const uint8_t *)bytes, (size_t)got}, &envelope, &error),
	        0);
	assert_int_equal(envelope.type, FT_RESPONSE);
	assert_int_equal(envelope.id, 7);
	assert_non_null(envelope.error.data);
	ft_read_failure(envelope.error, &error);
	assert_string_equal(error.code, FT_E_MEMORY);
}

static void an_answer_that_there_is_no_memory_for_is_a_failure_and_the_session_stays(void **state)
{
	struct scene *scene = begin();

	(void)state;
	ask(scene, 0, "much");
	assert_failure_for_memory(scene->client[0]);
	/* Behind another that waits to be sent as well. */
	ask(scene, 1, "unread");
	ask(scene, 1, "much");
	assert_true(read_all(scene, 1) > 330000 + 16);
	may_be_done = true;
	ask(scene, 0, "work");
	ask(scene, 1, "work");
	assert_int_equal(done, 2);
	end(scene);
}

static void what_a_work_has_is_its_users(void **state)
{
	struct scene *scene = begin();

	(void)state;
	ask(scene, 0, "endless");
	assert_true(scene->session[0]->turn.user->bytes >= WORK_BYTES);
	assert_int_equal(scene->session[NEIGHBOURS]->turn.user->bytes, 0);
	end(scene);
}

static void who_hung_up_is_not_asked_what_it_is_owed(void **state)
{
	struct scene *scene = begin();

	(void)state;
	scene->session[0]->due = true;
	(void)close(scene->client[0]);
	scene->client[0] = -1;
	settle(scene);
	assert_int_equal(owed, 0);
	assert_null(scene->session[0]);
	scene->session[1]->due = true;
	session_wake(scene->session[1]);
	settle(scene);
	assert_int_equal(owed, 1);
	end(scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(works_that_cannot_go_on_leave_their_places_and_go_on_when_there_is_memory),
	        cmocka_unit_test(a_place_goes_to_the_next_who_can_begin),
	        cmocka_unit_test(who_waits_to_begin_is_not_overtaken),
	        cmocka_unit_test(who_was_held_for_all_goes_on_when_another_user_leaves_memory),
	        cmocka_unit_test(an_answer_that_there_is_no_memory_for_is_a_failure_and_the_session_stays),
	        cmocka_unit_test(what_a_work_has_is_its_users),
	        cmocka_unit_test(who_hung_up_is_not_asked_what_it_is_owed),
	        cmocka_unit_test(half_a_message_does_not_age_by_having_been_held),
	        cmocka_unit_test(a_small_question_is_read_on_whatever_its_user_has_unread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
