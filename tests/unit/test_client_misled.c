/* The client library against a daemon that misbehaves: late, half, wrong or silent. */
#include "client_case.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static enum fake_act be_silent(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)session;
	(void)data;
	return strcmp(request->method, "hello") == 0 ? FAKE_USUAL : FAKE_DONE;
}

static enum fake_act be_silent_at_once(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)session;
	(void)request;
	(void)data;
	return FAKE_DONE;
}

static void assert_one_time_out(fake_hook hook)
{
	flytune_client *client;
	struct flytune_answer answer;
	uint64_t began, took;

	fake.hook = hook;
	fake_listen(&fake);
	client = open_client(WAIT_MS);
	began = clock_now();
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	took = clock_now() - began;
	assert_alone(&answer);
	assert_string_equal(answer.reason, "timeout");
	assert_true(took >= WAIT_MS * CLOCK_MS && took < PATIENT_MS / 2 * CLOCK_MS);
	began = clock_now();
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < WAIT_MS * CLOCK_MS);
	assert_alone(&answer);
	flytune_close(client);
}

static void a_stopped_daemon_costs_one_time_out(void **state)
{
	(void)state;
	assert_one_time_out(be_silent);
}

static void a_daemon_that_says_no_hello_costs_one_time_out(void **state)
{
	(void)state;
	assert_one_time_out(be_silent_at_once);
}

static void lookups_do_not_wait_for_a_daemon_that_stays_silent(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	uint64_t began, end, longest = 0;

	(void)state;
	fake.hook = be_silent_at_once;
	fake_listen(&fake);
	client = open_client(1000);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	end = clock_after(2500);
	while ((began = clock_now()) < end) {
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		assert_alone(&answer);
		if (clock_now() - began > longest)
			longest = clock_now() - began;
		poll(NULL, 0, 1);
	}
	/* The 20 ms that a probe is granted, and what a busy machine adds. */
	assert_true(longest < 500 * CLOCK_MS);
	assert_true(atomic_load(&fake.accepted) < 10);
	flytune_close(client);
}

static void a_late_reply_never_answers_the_next_question(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	fake.hook = be_late;
	fake_listen(&fake);
	client = open_client(SHORT_MS);
	assert_int_equal(look_up(client, 1, &answer, NULL), FLYTUNE_OK);
	assert_alone(&answer);
	fake_open_gate(&fake);
	await_daemon(client, 2, &answer);
	assert_served(&answer, 2);
	for (int64_t m = 3; m < 20; m++) {
		await_daemon(client, m, &answer);
		assert_served(&answer, m);
	}
	assert_true(atomic_load(&fake.accepted) >= 2);
	flytune_close(client);
}

static enum fake_act answer_another(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct ft_envelope other = *request;
	struct ft_lookup_request lookup;
	struct ft_answer answer;

	(void)data;
	if (strcmp(request->method, "lookup") != 0)
		return FAKE_USUAL;
	assert_int_equal(ft_decode(&ft_lookup_request_message, request->body, &lookup, NULL), 0);
	fake_answer(&lookup.problem, "", &answer);
	fake_reply(session, other.id + 1, &ft_answer_message, &answer);
	return FAKE_DONE;
}

static void a_reply_with_another_id_is_no_answer(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	fake.hook = answer_another;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_alone(&answer);
	assert_string_equal(answer.reason, "bad_frame");
	flytune_close(client);
}

static enum fake_act send_half(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	static const uint8_t half[] = {0x94, 0x01, 0x02};
	struct ft_writer writer = {.data = (uint8_t *)(uintptr_t)half, .length = sizeof half};

	if (strcmp(request->method, "hello") == 0)
		return FAKE_USUAL;
	fake_send(session, &writer);
	return data != NULL ? FAKE_CLOSE : FAKE_DONE;
}

static void half_a_message_does_not_outlast_the_deadline(void **state)
{
	(void)state;
	assert_one_time_out(send_half);
}

static void half_a_message_and_then_the_end_is_away(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	fake.hook = send_half;
	fake.data = &fake;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_alone(&answer);
	flytune_close(client);
}

static enum fake_act send_rubbish(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	uint64_t seed = (uint64_t)fake_m(request);
	uint8_t bytes[64];
	struct ft_writer writer = {.data = bytes, .length = sizeof bytes};

	(void)data;
	if (strcmp(request->method, "hello") == 0)
		return FAKE_USUAL;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)check_random(&seed);
	fake_send(session, &writer);
	return FAKE_CLOSE;
}

static void rubbish_is_away(void **state)
{
	struct flytune_answer answer;

	(void)state;
	fake.hook = send_rubbish;
	fake_listen(&fake);
	for (int64_t m = 1; m < 200; m++) {
		flytune_client *client = open_client(PATIENT_MS);

		assert_int_equal(look_up(client, m, &answer, NULL), FLYTUNE_OK);
		assert_alone(&answer);
		flytune_close(client);
	}
}

static enum fake_act answer_empty(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct ft_empty empty = {0};

	(void)data;
	if (strcmp(request->method, "hello") == 0)
		return FAKE_USUAL;
	fake_reply(session, request->id, &ft_empty_message, &empty);
	return FAKE_DONE;
}

static void a_reply_without_its_members_is_an_error(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);
	flytune_device_list *devices;
	flytune_trial_list *trials;
	flytune_job_list *jobs;
	struct flytune_answer answer;
	struct flytune_status_info status;
	struct flytune_error error;
	struct flytune_job job;

	(void)state;
	fake.hook = answer_empty;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_job_init(&job);
	flytune_status_info_init(&status);
	assert_int_not_equal(flytune_status(client, &status, &devices, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_devices(client, &devices, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_trials(client, problem, NULL, &trials, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_jobs(client, NULL, &jobs, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_tune(client, problem, NULL, &job, NULL, &error), FLYTUNE_OK);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_alone(&answer);
	flytune_problem_free(problem);
	flytune_close(client);
}

static enum fake_act close_at_hello(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)session;
	(void)request;
	(void)data;
	return FAKE_CLOSE;
}

static enum fake_act refuse_hello(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	fake_refuse(session, request->id, "busy", "clients");
	return FAKE_CLOSE;
}

static enum fake_act speak_another_version(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct ft_hello_reply hello = {.protocol = 99, .server = "flytuned 9", .store = "x"};

	(void)data;
	fake_reply(session, request->id, &ft_hello_reply_message, &hello);
	return FAKE_DONE;
}

/* As a daemon does whose newest version is older than the library's oldest. */
static enum fake_act refuse_the_version(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	fake_refuse(session, request->id, "protocol", "this daemon speaks 0 to 0: upgrade the daemon");
	return FAKE_CLOSE;
}

static void a_daemon_that_turns_us_away_says_why(void **state)
{
	static const struct {
		fake_hook hook;
		enum flytune_result code;
		const char *word;
		int most; /* connections */
	} cases[] = {
	        {close_at_hello, FLYTUNE_E_AWAY, "hello",
	                20}, /* it may be restarting: for 5 s, with growing pauses */
	        {refuse_hello, FLYTUNE_E_BUSY, "clients", 2},
	        {speak_another_version, FLYTUNE_E_PROTOCOL, "version 99", 2},
	        {speak_another_version, FLYTUNE_E_PROTOCOL, "upgrade the library", 2},
	        {refuse_the_version, FLYTUNE_E_PROTOCOL, "upgrade the daemon", 2},
	};
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	fake_listen(&fake);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		flytune_client *client = open_client(PATIENT_MS);
		int before = atomic_load(&fake.accepted);

		fake.hook = cases[i].hook;
		assert_int_equal(flytune_ping(client, &error), cases[i].code);
		assert_non_null(strstr(error.message, cases[i].word));
		/* No spinning. */
		for (int k = 0; k < 20; k++) {
			assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
			assert_alone(&answer);
		}
		assert_true(atomic_load(&fake.accepted) - before <= cases[i].most);
		flytune_close(client);
	}
}

static void a_full_queue_does_not_outlast_the_deadline(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int waiting[16];
	int count = 0;
	struct flytune_answer answer;
	flytune_client *client;
	uint64_t began;

	(void)state;
	memcpy(address.sun_path, fake.path, sizeof fake.path);
	assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(listener, 0), 0);
	while (count < 16) {
		waiting[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (connect(waiting[count++], (const struct sockaddr *)&address, sizeof address) != 0)
			break;
	}
	assert_int_equal(errno, EAGAIN);
	client = open_client(200);
	began = clock_now();
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	assert_alone(&answer);
	assert_string_equal(answer.reason, "timeout");
	while (count > 0)
		close(waiting[--count]);
	close(listener);
	unlink(fake.path);
	flytune_close(client);
}

static enum fake_act close_after_hello(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	if (strcmp(request->method, "hello") != 0)
		return FAKE_CLOSE;
	(void)data;
	(void)session;
	return FAKE_USUAL;
}

static void a_daemon_that_hangs_up_raises_no_signal(void **state)
{
	struct flytune_answer answer;

	(void)state;
	fake_listen(&fake);
	for (int i = 0; i < 50; i++) {
		flytune_client *client = open_client(PATIENT_MS);

		fake.hook = i % 2 ? close_after_hello : NULL;
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		/* Now the other end is closed, and the client writes into it. */
		fake_stop(&fake);
		assert_int_equal(look_up(client, 65, &answer, NULL), FLYTUNE_OK);
		assert_alone(&answer);
		flytune_close(client);
		fake_listen(&fake);
	}
}

static void every_descriptor_is_closed(void **state)
{
	int before = count_descriptors();
	struct flytune_answer answer;
	int own;

	(void)state;
	fake_listen(&fake);
	fake_stop(&fake);
	for (int i = 0; i < 20; i++) {
		flytune_client *client;

		fake_listen(&fake);
		client = open_client(PATIENT_MS);
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		fake_stop(&fake);
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		flytune_close(client);
	}
	own = count_descriptors();
	assert_int_equal(own, before);
}

/* In a child, with the standard descriptors closed: they are a program's to open again. */
static int child_checks_descriptors(void)
{
	flytune_client *client = open_client(PATIENT_MS);
	struct flytune_answer answer;
	int status = 0;

	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	look_up(client, 64, &answer, NULL);
	if (answer.flags != 0)
		status = 2;
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) != -1)
			status = 3;
	}
	for (int fd = STDERR_FILENO + 1; fd < 64; fd++) {
		struct sockaddr_un peer;
		socklen_t length = sizeof peer;
		int flags = fcntl(fd, F_GETFD);

		if (flags != -1 && getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
		        (flags & FD_CLOEXEC) == 0)
			status = 4;
	}
	flytune_close(client);
	return status;
}

static void descriptors_are_close_on_exec_and_none_of_the_standard_ones(void **state)
{
	pid_t child;

	(void)state;
	fake_listen(&fake);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		end_child(child_checks_descriptors());
	await_child(child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(a_stopped_daemon_costs_one_time_out),
	        ROW(a_daemon_that_says_no_hello_costs_one_time_out),
	        ROW(lookups_do_not_wait_for_a_daemon_that_stays_silent),
	        ROW(a_late_reply_never_answers_the_next_question),
	        ROW(a_reply_with_another_id_is_no_answer),
	        ROW(half_a_message_does_not_outlast_the_deadline),
	        ROW(half_a_message_and_then_the_end_is_away),
	        ROW(rubbish_is_away),
	        ROW(a_reply_without_its_members_is_an_error),
	        ROW(a_daemon_that_turns_us_away_says_why),
	        ROW(a_full_queue_does_not_outlast_the_deadline),
	        ROW(a_daemon_that_hangs_up_raises_no_signal),
	        ROW(every_descriptor_is_closed),
	        ROW(descriptors_are_close_on_exec_and_none_of_the_standard_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
