/* Subscriptions against a daemon that behaves, misbehaves, dies and comes back. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/clock.h"
#include <flytune/client.h>
#include "client_help.h"
#include "fake_case.h"

enum { PATIENT_MS = 30000, MOST = FLYTUNE_SUBSCRIBED_MAX };

/* Somebody who follows some problems. */
struct follower {
	flytune_client *client;
	flytune_subscription *subscription;
	flytune_problem *problem[MOST];
	size_t count;
	_Atomic int64_t mark[MOST]; /* last told; -2: an error */
	atomic_uint calls[MOST];
	atomic_uint told; /* calls in all */
	atomic_int inside;
	bool overlapped;
	void (*also)(struct follower *follower, size_t index); /* done in each call */
	struct flytune_error error;                            /* of the last place that had one */
};

static void on_answer(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error)
{
	struct follower *follower = data;

	if (atomic_fetch_add(&follower->inside, 1) != 0)
		follower->overlapped = true;
	assert_in_range(index, 0, follower->count - 1);
	assert_true((answer == NULL) != (error == NULL));
	if (answer != NULL) {
		assert_int_equal(answer->size, sizeof *answer);
		assert_int_equal(answer->flags, 0);
		assert_string_not_equal(answer->store, "");
		follower->mark[index] = flytune_answer_get(answer, "M", -1);
	} else if (error != NULL) {
		follower->mark[index] = -2;
		follower->error = *error;
	}
	atomic_fetch_add(&follower->calls[index], 1);
	atomic_fetch_add(&follower->told, 1);
	if (follower->also != NULL)
		follower->also(follower, index);
	atomic_fetch_sub(&follower->inside, 1);
}

static flytune_client *open_client(void)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = PATIENT_MS;
	return fake_client(&fake, &options);
}

static struct follower *follow(size_t count)
{
	struct follower *follower = calloc(1, sizeof *follower);

	assert_non_null(follower);
	follower->client = open_client();
	follower->count = count;
	for (size_t i = 0; i < count; i++)
		follower->problem[i] = rmsnorm((int64_t)i + 1);
	assert_int_equal(flytune_subscribe(follower->client, follower->problem, count, NULL, on_answer,
	                         follower, &follower->subscription, NULL),
	        FLYTUNE_OK);
	return follower;
}

static void end(struct follower *follower)
{
	flytune_unsubscribe(follower->subscription);
	flytune_close(follower->client);
	for (size_t i = 0; i < follower->count; i++)
		flytune_problem_free(follower->problem[i]);
	assert_false(follower->overlapped);
	free(follower);
}

static bool readable(const struct follower *follower, int wait_ms)
{
	struct pollfd watched = {flytune_subscription_fd(follower->subscription), POLLIN, 0};

	return poll(&watched, 1, wait_ms) == 1;
}

/* As an event loop does, once. */
static enum flytune_result turn(struct follower *follower)
{
	assert_true(readable(follower, PATIENT_MS));
	return flytune_dispatch(follower->subscription, NULL);
}

static void turn_until_told(struct follower *follower, unsigned count)
{
	while (atomic_load(&follower->told) < count)
		turn(follower);
	assert_int_equal(atomic_load(&follower->told), count);
}

/* Until the daemon is through with so many requests of a subscription. */
static void await_subscribes(int count)
{
	while (atomic_load(&fake.subscribes) < count)
		sched_yield();
}

/* Until the daemon has answered so many requests. */
static void turn_until_subscribed(struct follower *follower, int count)
{
	while (atomic_load(&fake.subscribes) < count) {
		if (readable(follower, 2))
			flytune_dispatch(follower->subscription, NULL);
	}
}

/* ---- the usual ---- */

static void answers_are_told_once_and_when_they_change(void **state)
{
	struct follower *follower;

	(void)state;
	fake_listen(&fake);
	follower = follow(3);
	turn_until_told(follower, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(follower->mark[i], i + 1);
	await_subscribes(1);
	/* With nothing to say it is not readable, and dispatch does no harm. */
	while (readable(follower, 0))
		assert_int_equal(turn(follower), FLYTUNE_OK);
	for (int i = 0; i < 10; i++)
		assert_int_equal(flytune_dispatch(follower->subscription, NULL), FLYTUNE_OK);
	assert_int_equal(atomic_load(&follower->told), 3);
	fake_tell_all(&fake, 2, 77);
	fake_tell_all(&fake, 2, 77); /* the same again is no news */
	fake_tell_all(&fake, 3, 78);
	turn_until_told(follower, 5);
	assert_int_equal(follower->mark[1], 77);
	assert_int_equal(follower->mark[2], 78);
	assert_int_equal(atomic_load(&fake.accepted), 1);
	end(follower);
}

static void as_many_as_there_may_be_are_asked_for_in_pieces(void **state)
{
	struct follower *follower;

	(void)state;
	fake_listen(&fake);
	follower = follow(MOST);
	turn_until_told(follower, MOST);
	for (int64_t i = 0; i < MOST; i++)
		assert_int_equal(follower->mark[i], i + 1);
	await_subscribes(4);
	fake_tell_all(&fake, MOST, 9999);
	turn_until_told(follower, MOST + 1);
	end(follower);
}

static enum fake_act not_yet(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "hello") == 0)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void a_daemon_that_reads_late_is_asked_as_it_reads(void **state)
{
	static struct flytune_field field[FLYTUNE_FIELDS_MAX];
	static char name[FLYTUNE_FIELDS_MAX][FLYTUNE_NAME_SIZE];
	struct follower *follower = calloc(1, sizeof *follower);
	char text[32];
	uint64_t began;

	(void)state;
	assert_non_null(follower);
	fake.hook = not_yet;
	fake_listen(&fake);
	/* Problems so large that their list fills every buffer on the way. */
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	for (int i = 0; i < FLYTUNE_FIELDS_MAX; i++) {
		snprintf(name[i], sizeof name[i], "field_%025d", i);
		field[i] = (struct flytune_field){.name = name[i], .text = text};
	}
	follower->client = open_client();
	follower->count = MOST;
	for (size_t i = 0; i < MOST; i++)
		follower->problem[i] =
		        flytune_problem_new("a_kernel_of_a_runner", field, FLYTUNE_FIELDS_MAX, NULL);
	assert_int_equal(flytune_subscribe(follower->client, follower->problem, MOST, NULL, on_answer,
	                         follower, &follower->subscription, NULL),
	        FLYTUNE_OK);
	began = clock_now();
	assert_int_equal(turn(follower), FLYTUNE_OK);
	/* There is nothing to be done for it now: no loop turns in vain. */
	assert_false(readable(follower, 50));
	for (int i = 0; i < 5; i++)
		assert_int_equal(flytune_dispatch(follower->subscription, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	assert_int_equal(atomic_load(&fake.subscribes), 0);
	fake_open_gate(&fake);
	turn_until_told(follower, MOST);
	assert_int_equal(follower->mark[MOST - 1], MOST);
	end(follower);
}

static void its_descriptors_are_safe_and_go_with_it(void **state)
{
	struct follower *follower;
	int before = count_descriptors();
	int fd;

	(void)state;
	follower = follow(2);
	fd = flytune_subscription_fd(follower->subscription);
	assert_true(fd > STDERR_FILENO);
	assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	assert_int_equal(count_descriptors(), before + 2);
	assert_int_equal(turn(follower), FLYTUNE_E_AWAY);
	assert_int_equal(count_descriptors(), before + 2);
	fake_listen(&fake);
	turn_until_told(follower, 2);
	assert_int_equal(flytune_subscription_fd(follower->subscription), fd);
	end(follower);
	fake_stop(&fake);
	assert_int_equal(count_descriptors(), before);
	flytune_unsubscribe(NULL);
}

static void what_makes_no_sense_is_refused(void **state)
{
	flytune_client *client = open_client();
	flytune_subscription *subscription = NULL;
	struct flytune_error error;
	flytune_problem *problem[2] = {rmsnorm(1), rmsnorm(0)};
	int before = count_descriptors();

	(void)state;
	assert_int_equal(flytune_subscribe(client, problem, 0, NULL, on_answer, NULL, &subscription, &error),
	        FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, "count");
	assert_int_equal(
	        flytune_subscribe(client, problem, MOST + 1, NULL, on_answer, NULL, &subscription, &error),
	        FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.bound, "from 1 to 4096");
	assert_int_equal(flytune_subscribe(client, problem, 2, NULL, on_answer, NULL, &subscription, &error),
	        FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, "m");
	assert_int_equal(flytune_subscribe(client, problem, 1, "a device of far more than thirty-two bytes",
	                         on_answer, NULL, &subscription, &error),
	        FLYTUNE_E_UNKNOWN_DEVICE);
	assert_null(subscription);
	assert_int_equal(count_descriptors(), before);
	flytune_problem_free(problem[0]);
	flytune_problem_free(problem[1]);
	flytune_close(client);
}

static void autotune_0_asks_nobody(void **state)
{
	struct follower *follower;

	(void)state;
	fake_listen(&fake);
	setenv("FLYTUNE_AUTOTUNE", "0", 1);
	follower = follow(2);
	assert_false(readable(follower, 20));
	assert_int_equal(flytune_dispatch(follower->subscription, NULL), FLYTUNE_OK);
	assert_int_equal(atomic_load(&fake.accepted), 0);
	end(follower);
}

/* ---- away and back ---- */

static void changes_while_the_daemon_was_away_are_told_when_it_is_back(void **state)
{
	struct follower *follower;

	(void)state;
	follower = follow(3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(turn(follower), FLYTUNE_E_AWAY);
	fake_listen(&fake);
	turn_until_told(follower, 3);
	await_subscribes(1);
	for (int round = 0; round < 5; round++) {
		unsigned told = atomic_load(&follower->told);

		fake_stop(&fake);
		assert_int_equal(turn(follower), FLYTUNE_E_AWAY);
		fake_listen(&fake);
		turn_until_subscribed(follower, round + 2);
		/* What is as it was is not told again. */
		fake_tell_all(&fake, 2, 100 + (uint64_t)round);
		turn_until_told(follower, told + 1);
		assert_int_equal(follower->mark[1], 100 + round);
	}
	end(follower);
}

static void a_daemon_that_was_replaced_meanwhile_is_found_at_once(void **state)
{
	struct follower *follower;

	(void)state;
	fake_listen(&fake);
	follower = follow(2);
	turn_until_told(follower, 2);
	fake_stop(&fake);
	fake_listen(&fake);
	/* The end of the old connection and the new one take one dispatch. */
	assert_int_equal(turn(follower), FLYTUNE_OK);
	await_subscribes(2);
	end(follower);
}

enum flaw { REFUSES, CLOSES, NO_PLACE, FAR_PLACE, EMPTY, NO_ANSWER, RUBBISH, ODD_ID, FLAWS };

static _Atomic int flawed; /* which flaw the next subscription meets; FLAWS: none */

static void send_notice(struct fake_session *session, struct ft_answer_notice news)
{
	struct ft_writer writer;

	ft_writer_init_growing(&writer, 1 << 20);
	ft_begin_notice(&writer, "answer");
	ft_encode(&writer, &ft_answer_notice_message, &news);
	fake_send(session, &writer);
	ft_writer_free(&writer);
}

static enum fake_act misbehave(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	static const uint8_t nil = 0xc0, broken[] = {0xc1, 0xc1, 0xc1};
	int flaw = atomic_load(&flawed);
	struct ft_empty empty = {.ok = true};
	struct ft_writer rubbish = {.data = (uint8_t *)(uintptr_t)broken, .length = sizeof broken};

	(void)data;
	if (strcmp(request->method, "subscribe") != 0 || flaw == FLAWS)
		return FAKE_USUAL;
	atomic_store(&flawed, FLAWS);
	switch (flaw) {
	case REFUSES:
		fake_refuse(session, request->id, FT_E_DENIED, "");
		return FAKE_DONE;
	case CLOSES:
		return FAKE_CLOSE;
	case NO_PLACE:
		fake_tell(session, 0, 1);
		break;
	case FAR_PLACE:
		fake_tell(session, 3, 1);
		break;
	case EMPTY:
		send_notice(session, (struct ft_answer_notice){.place = 1, .digest = 5});
		break;
	case NO_ANSWER:
		send_notice(session, (struct ft_answer_notice){.place = 1, .digest = 5, .answer = {&nil, 1}});
		break;
	case RUBBISH:
		fake_send(session, &rubbish);
		break;
	default:
		fake_reply(session, 0, &ft_empty_message, &empty);
		break;
	}
	return FAKE_USUAL;
}

static void a_daemon_that_misbehaves_is_left_and_tried_again(void **state)
{
	(void)state;
	fake.hook = misbehave;
	fake_listen(&fake);
	for (int flaw = 0; flaw < FLAWS; flaw++) {
		struct follower *follower;
		enum flytune_result code;

		atomic_store(&flawed, flaw);
		follower = follow(2);
		do {
			code = turn(follower);
		} while (code == FLYTUNE_OK && atomic_load(&follower->told) < 2);
		if (flaw == REFUSES)
			assert_int_equal(code, FLYTUNE_E_DENIED);
		turn_until_told(follower, 2);
		assert_int_equal(follower->mark[0], 1);
		assert_int_equal(follower->mark[1], 2);
		end(follower);
	}
}

static enum fake_act full(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	(void)request;
	fake_refuse(session, 0, FT_E_BUSY, "");
	return FAKE_CLOSE;
}

static void a_daemon_that_is_full_is_not_asked_all_the_time(void **state)
{
	struct follower *follower;
	uint64_t began = clock_now();
	int tries;

	(void)state;
	fake.hook = full;
	fake_listen(&fake);
	follower = follow(1);
	/* Pauses of 0.1, 0.2 and 0.4 s, and up to half as much more. */
	for (tries = 0; tries < 4; tries++) {
		enum flytune_result code;

		do {
			code = turn(follower);
		} while (code == FLYTUNE_OK);
		assert_int_equal(code, FLYTUNE_E_BUSY);
	}
	assert_true(clock_now() - began >= 700 * CLOCK_MS);
	assert_in_range(atomic_load(&fake.accepted), 1, 5);
	end(follower);
}

static enum fake_act tell_an_error(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct ft_answer_notice news = {.place = 2, .digest = 4711};
	struct ft_subscribe_reply reply = {.first = 1, .count = 2};
	struct ft_writer encoded;
	struct ft_error error;

	(void)data;
	if (strcmp(request->method, "subscribe") != 0)
		return FAKE_USUAL;
	fake_reply(session, request->id, &ft_subscribe_reply_message, &reply);
	fake_tell(session, 1, 1);
	ft_fail_field(&error, FT_E_UNKNOWN_FIELD, "colour", "blue", "a field");
	ft_writer_init_growing(&encoded, 1 << 20);
	ft_write_error(&encoded, &error);
	news.error = (struct ft_view){encoded.data, encoded.length};
	send_notice(session, news);
	ft_writer_free(&encoded);
	return FAKE_DONE;
}

static void a_place_that_is_refused_is_told_why(void **state)
{
	struct follower *follower;

	(void)state;
	fake.hook = tell_an_error;
	fake_listen(&fake);
	follower = follow(2);
	turn_until_told(follower, 2);
	assert_int_equal(follower->mark[0], 1);
	assert_int_equal(follower->mark[1], -2);
	assert_int_equal(follower->error.code, FLYTUNE_E_UNKNOWN_FIELD);
	assert_string_equal(follower->error.field, "colour");
	end(follower);
}

/* ---- threads ---- */

enum { THREADS = 4, CHANGES = 2000 };

static void *dispatch_on(void *data)
{
	struct follower *follower = data;

	while (follower->mark[0] != CHANGES) {
		if (readable(follower, 20))
			flytune_dispatch(follower->subscription, NULL);
	}
	return NULL;
}

static void threads_that_dispatch_at_once_never_overlap(void **state)
{
	struct follower *follower;
	pthread_t thread[THREADS];

	(void)state;
	fake_listen(&fake);
	follower = follow(1);
	turn_until_told(follower, 1);
	await_subscribes(1);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, dispatch_on, follower), 0);
	for (uint64_t mark = 2; mark <= CHANGES; mark++)
		fake_tell_all(&fake, 1, mark);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&follower->calls[0]), CHANGES);
	end(follower);
}

static void look_up_and_dispatch(struct follower *follower, size_t index)
{
	struct flytune_answer answer;

	flytune_answer_init(&answer);
	assert_int_equal(
	        flytune_lookup(follower->client, follower->problem[index], NULL, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.flags, 0);
	assert_int_equal(flytune_dispatch(follower->subscription, NULL), FLYTUNE_OK);
}

static void a_callback_may_use_client_and_subscription(void **state)
{
	struct follower *follower;

	(void)state;
	fake_listen(&fake);
	follower = follow(3);
	follower->also = look_up_and_dispatch;
	turn_until_told(follower, 3);
	end(follower);
}

/* ---- fork ---- */

/* Without a word to sanitizers, which would miss the threads that the parent has. */
static void finish_child(bool good)
{
	syscall(SYS_exit_group, good ? 0 : 1);
}

static void expect_good_child(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void a_child_follows_by_itself(void **state)
{
	struct follower *follower;
	pid_t child;

	(void)state;
	fake_listen(&fake);
	follower = follow(3);
	turn_until_told(follower, 3);
	while (readable(follower, 0))
		turn(follower);
	child = fork();
	if (child == 0) {
		/* All is told anew, on the same number. */
		while (atomic_load(&follower->told) < 6)
			flytune_dispatch(follower->subscription, NULL);
		while (follower->mark[1] != 50)
			flytune_dispatch(follower->subscription, NULL);
		finish_child(!readable(follower, 0) && atomic_load(&follower->calls[0]) == 2);
	}
	await_subscribes(2);
	/* The parent hears of nothing that the child asked for. */
	assert_false(readable(follower, 0));
	fake_tell_all(&fake, 2, 50);
	turn_until_told(follower, 4);
	expect_good_child(child);
	fake_tell_all(&fake, 3, 51);
	turn_until_told(follower, 5);
	end(follower);
}

static void a_child_that_does_not_care_disturbs_nobody(void **state)
{
	struct follower *follower;
	int ready[2];
	char byte;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	fake_listen(&fake);
	follower = follow(2);
	turn_until_told(follower, 2);
	await_subscribes(1);
	child = fork();
	if (child == 0) {
		close(ready[1]);
		finish_child(read(ready[0], &byte, 1) == 0);
	}
	/* Were it still on the parent's connection, the parent's end would not be noticed. */
	fake_stop(&fake);
	assert_int_equal(turn(follower), FLYTUNE_E_AWAY);
	fake_listen(&fake);
	turn_until_subscribed(follower, 2);
	fake_tell_all(&fake, 1, 60);
	turn_until_told(follower, 3);
	close(ready[1]);
	close(ready[0]);
	expect_good_child(child);
	end(follower);
}

static pid_t forked;

static void fork_once(struct follower *follower, size_t index)
{
	if (index == 1 && forked == 0) {
		forked = fork();
		if (forked == 0)
			forked = -1; /* this is the child */
	}
	(void)follower;
}

static void clone_once(struct follower *follower, size_t index)
{
	if (index == 1 && forked == 0) {
		forked = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
		if (forked == 0)
			forked = -1;
	}
	(void)follower;
}

static void a_fork_in_a_callback_parts_the_two(void **state)
{
	static void (*const ways[])(struct follower *, size_t) = {fork_once, clone_once};

	(void)state;
	fake_listen(&fake);
	for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
		struct follower *follower = follow(3);

		forked = 0;
		follower->also = ways[way];
		while (atomic_load(&follower->calls[1]) < 1)
			turn(follower);
		if (forked < 0) {
			unsigned before = atomic_load(&follower->told);

			while (atomic_load(&follower->told) < before + 3)
				flytune_dispatch(follower->subscription, NULL);
			finish_child(follower->mark[0] == 1 && follower->mark[2] == 3);
		}
		turn_until_told(follower, 3);
		assert_int_equal(follower->mark[2], 3);
		expect_good_child(forked);
		end(follower);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(answers_are_told_once_and_when_they_change),
	        ROW(as_many_as_there_may_be_are_asked_for_in_pieces),
	        ROW(a_daemon_that_reads_late_is_asked_as_it_reads),
	        ROW(its_descriptors_are_safe_and_go_with_it),
	        ROW(what_makes_no_sense_is_refused),
	        ROW(autotune_0_asks_nobody),
	        ROW(changes_while_the_daemon_was_away_are_told_when_it_is_back),
	        ROW(a_daemon_that_was_replaced_meanwhile_is_found_at_once),
	        ROW(a_daemon_that_misbehaves_is_left_and_tried_again),
	        ROW(a_daemon_that_is_full_is_not_asked_all_the_time),
	        ROW(a_place_that_is_refused_is_told_why),
	        ROW(threads_that_dispatch_at_once_never_overlap),
	        ROW(a_callback_may_use_client_and_subscription),
	        ROW(a_child_follows_by_itself),
	        ROW(a_child_that_does_not_care_disturbs_nobody),
	        ROW(a_fork_in_a_callback_parts_the_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
