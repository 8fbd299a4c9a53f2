/* The client library against a daemon that behaves, misbehaves, dies and comes back. */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/clock.h"
#include "client/include/flytune/client.h"
#include "client_help.h"
#include "fake_daemon.h"

enum { SHORT_MS = 50, WAIT_MS = 500, PATIENT_MS = 30000 };

static struct fake fake;

static int set_up(void **state)
{
	(void)state;
	fake_init(&fake);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fake_free(&fake);
	return 0;
}

/* `timeout_ms` of everything but forced sweeps. */
static flytune_client *open_client(int64_t timeout_ms)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = timeout_ms;
	options.call_timeout_ms = timeout_ms;
	return fake_client(&fake, &options);
}

static enum flytune_code look_up(
        flytune_client *client, int64_t m, struct flytune_answer *answer, struct flytune_error *error)
{
	flytune_problem *problem = rmsnorm(m);
	enum flytune_code code;

	flytune_answer_init(answer);
	code = flytune_lookup(client, problem, NULL, answer, error);
	flytune_problem_free(problem);
	return code;
}

/* What the fake daemon says, and nothing else. */
static void assert_served(const struct flytune_answer *answer, int64_t m)
{
	assert_int_equal(answer->source, FLYTUNE_SOURCE_TUNED);
	assert_int_equal(answer->flags, 0);
	assert_int_equal(flytune_answer_get(answer, "M", -2), m);
}

static void assert_alone(const struct flytune_answer *answer)
{
	assert_int_equal(answer->source, FLYTUNE_SOURCE_DEFAULT);
	assert_int_equal(answer->flags, FLYTUNE_ANSWER_AWAY);
	assert_true(answer->knob_count > 0);
	assert_int_equal(answer->revision, 1);
	assert_string_not_equal(answer->reason, "");
}

/* Asks until the daemon answers again: what the breaker's pause allows. */
static void await_daemon(flytune_client *client, int64_t m, struct flytune_answer *answer)
{
	uint64_t deadline = clock_after(PATIENT_MS);

	do {
		assert_true(clock_now() < deadline);
		poll(NULL, 0, 2);
		assert_int_equal(look_up(client, m, answer, NULL), FLYTUNE_OK);
	} while ((answer->flags & FLYTUNE_ANSWER_AWAY) != 0);
}

static int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

/* ---- a daemon that is there ---- */

static void an_answer_is_the_daemons(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int64_t m = 1; m <= 100; m++) {
		assert_int_equal(look_up(client, m, &answer, &error), FLYTUNE_OK);
		assert_served(&answer, m);
	}
	assert_int_equal(answer.time_ns, 81200);
	assert_int_equal(answer.default_time_ns, 95000);
	assert_int_equal(answer.generation, 7);
	assert_string_equal(answer.store, "01234567-89ab-cdef-0123-456789abcdef");
	assert_string_equal(answer.device, "cpu:0");
	assert_int_equal(flytune_answer_get(&answer, "no_such_knob", 5), 5);
	assert_int_equal(atomic_load(&fake.accepted), 1);
	assert_int_equal(atomic_load(&fake.lookups), 100);
	assert_int_equal(flytune_ping(client, &error), FLYTUNE_OK);
	flytune_close(client);
}

static void lists_and_status_are_read_whole(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);
	flytune_job_list *jobs;
	flytune_trial_list *trials;
	flytune_device_list *devices;
	struct flytune_job job;
	struct flytune_trial trial;
	struct flytune_device device;
	struct flytune_status status;
	struct flytune_trials_info info;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_job_init(&job);
	flytune_trial_init(&trial);
	flytune_device_init(&device);
	flytune_status_init(&status);
	flytune_trials_info_init(&info);
	assert_int_equal(flytune_jobs(client, 0, &jobs, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_job_list_count(jobs), 3);
	assert_true(flytune_job_list_get(jobs, 2, &job));
	assert_false(flytune_job_list_get(jobs, 3, &job));
	assert_int_equal(job.job, 42);
	assert_int_equal(job.state, FLYTUNE_STATE_RUNNING);
	assert_int_equal(job.field_count, 2);
	assert_string_equal(job.field[1].text, "bf16");
	flytune_job_list_free(jobs);
	assert_int_equal(flytune_trials(client, problem, NULL, &trials, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_trial_list_count(trials), 12);
	assert_true(flytune_trial_list_get(trials, 11, &trial));
	assert_string_equal(trial.status, "same_code_as");
	assert_int_equal(trial.same_as[0].value, 512);
	flytune_trial_list_info(trials, &info);
	assert_int_equal(info.rounds, 9);
	flytune_trial_list_free(trials);
	assert_int_equal(flytune_devices(client, &devices, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_device_list_count(devices), 1);
	flytune_device_list_free(devices);
	assert_int_equal(flytune_status(client, &status, &devices, NULL), FLYTUNE_OK);
	assert_int_equal(status.tuned, 5);
	assert_int_equal(status.answers, 3);
	assert_true(flytune_device_list_get(devices, 0, &device));
	assert_string_equal(device.id, "cpu:0");
	flytune_device_list_free(devices);
	assert_int_equal(flytune_status(client, &status, NULL, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_cancel(client, 42, NULL), FLYTUNE_OK);
	flytune_job_list_free(NULL);
	flytune_trial_list_free(NULL);
	flytune_device_list_free(NULL);
	flytune_problem_free(problem);
	flytune_close(client);
}

static enum fake_act refuse(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	if (strcmp(request->method, "hello") == 0)
		return FAKE_USUAL;
	fake_refuse(session, request->id, data, "n");
	return FAKE_DONE;
}

static void a_refusal_comes_through_whole_and_costs_no_connection(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	fake.data = (void *)(uintptr_t) "bad_value";
	fake.hook = refuse;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(look_up(client, 64, &answer, &error), FLYTUNE_E_BAD_VALUE);
		assert_string_equal(error.word, "bad_value");
		assert_string_equal(error.field, "n");
		assert_string_equal(error.value, "this");
		assert_string_equal(error.bound, "that");
	}
	assert_int_equal(flytune_cancel(client, 1, &error), FLYTUNE_E_BAD_VALUE);
	assert_int_equal(flytune_ping(client, &error), FLYTUNE_OK);
	assert_int_equal(atomic_load(&fake.accepted), 1);
	flytune_close(client);
}

static void a_daemon_that_cannot_serve_counts_as_away(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	fake.data = (void *)(uintptr_t) "unavailable";
	fake.hook = refuse;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 64, &answer, &error), FLYTUNE_OK);
	assert_alone(&answer);
	assert_string_equal(answer.reason, "unavailable");
	flytune_close(client);
}

/* ---- a daemon that is not there ---- */

static int compare_times(const void *a, const void *b)
{
	const uint64_t *first = a, *second = b;

	return (*first > *second) - (*first < *second);
}

static void an_absent_socket_costs_less_than_a_millisecond(void **state)
{
	enum { CLIENTS = 51 };
	uint64_t times[CLIENTS];
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	for (int i = 0; i < CLIENTS; i++) {
		flytune_client *client = open_client(PATIENT_MS);
		uint64_t began = clock_now();

		assert_int_equal(look_up(client, 64, &answer, &error), FLYTUNE_OK);
		times[i] = clock_now() - began;
		assert_alone(&answer);
		assert_string_equal(answer.reason, "daemon_away");
		flytune_close(client);
	}
	qsort(times, CLIENTS, sizeof *times, compare_times);
	assert_true(times[CLIENTS / 2] < CLOCK_MS);
}

static void a_path_that_nobody_serves_is_named(void **state)
{
	flytune_client *client = open_client(PATIENT_MS);
	struct flytune_error error;

	(void)state;
	assert_int_equal(flytune_ping(client, &error), FLYTUNE_E_AWAY);
	assert_non_null(strstr(error.message, fake.path));
	/* While the pause lasts it is the same reason, at once. */
	assert_int_equal(flytune_ping(client, &error), FLYTUNE_E_AWAY);
	assert_non_null(strstr(error.message, fake.path));
	flytune_close(client);
}

static void a_problem_is_refused_by_its_kernel_without_a_daemon(void **state)
{
	flytune_client *client = open_client(PATIENT_MS);
	flytune_problem *problem;
	struct flytune_answer answer;
	struct flytune_error error;

	(void)state;
	assert_int_equal(look_up(client, 0, &answer, &error), FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, "m");
	problem = flytune_problem_new("softmax", NULL, 0, NULL);
	assert_int_equal(flytune_lookup(client, problem, NULL, &answer, &error), FLYTUNE_E_AWAY);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void answers_given_before_stay_valid(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(look_up(client, FAKE_M_MISS, &answer, NULL), FLYTUNE_OK);
	fake_stop(&fake);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		assert_int_equal(answer.source, FLYTUNE_SOURCE_TUNED);
		assert_int_equal(answer.flags, FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
		assert_int_equal(flytune_answer_get(&answer, "M", -2), 64);
		assert_int_equal(look_up(client, FAKE_M_MISS, &answer, NULL), FLYTUNE_OK);
		assert_int_equal(answer.source, FLYTUNE_SOURCE_DEFAULT);
		assert_int_equal(answer.flags, FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
	}
	assert_int_equal(look_up(client, 65, &answer, NULL), FLYTUNE_OK);
	assert_alone(&answer);
	/* The daemon is told how often it was missed. */
	fake_listen(&fake);
	await_daemon(client, 65, &answer);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_served(&answer, 64);
	assert_int_equal(atomic_load(&fake.repeats), 0);
	assert_int_equal(look_up(client, FAKE_M_MISS, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.flags, 0);
	assert_true(atomic_load(&fake.repeats) >= 5);
	flytune_close(client);
}

static void a_restart_between_two_calls_is_not_noticed(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	client = open_client(PATIENT_MS);
	for (int64_t m = 1; m < 20; m++) {
		fake_listen(&fake);
		if (m == 1)
			assert_int_equal(look_up(client, 1000, &answer, NULL), FLYTUNE_OK);
		assert_int_equal(look_up(client, m, &answer, NULL), FLYTUNE_OK);
		assert_served(&answer, m);
		assert_int_equal(flytune_cancel(client, 1, NULL), FLYTUNE_OK);
		fake_stop(&fake);
	}
	flytune_close(client);
}

struct said {
	int warnings, infos;
};

static void note(void *data, enum flytune_log_level level, const char *message)
{
	struct said *said = data;

	assert_non_null(strstr(message, "flytuned"));
	if (level == FLYTUNE_LOG_WARNING)
		said->warnings++;
	else
		said->infos++;
}

static void going_away_and_coming_back_are_said_once(void **state)
{
	struct said said = {0};
	struct flytune_options options;
	struct flytune_answer answer;
	flytune_client *client;

	(void)state;
	flytune_options_init(&options);
	options.log = note;
	options.log_data = &said;
	client = fake_client(&fake, &options);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
		poll(NULL, 0, 4);
	}
	assert_int_equal(said.warnings, 1);
	assert_int_equal(said.infos, 0);
	fake_listen(&fake);
	await_daemon(client, 64, &answer);
	assert_int_equal(said.warnings, 1);
	assert_int_equal(said.infos, 1);
	flytune_close(client);
}

/* ---- a daemon that misbehaves ---- */

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
	client = open_client(200);
	began = clock_now();
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	took = clock_now() - began;
	assert_alone(&answer);
	assert_string_equal(answer.reason, "timeout");
	assert_true(took >= 200 * CLOCK_MS && took < 2000 * CLOCK_MS);
	began = clock_now();
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < 150 * CLOCK_MS);
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

static enum fake_act be_late(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup") == 0 && fake_m(request) == 1)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
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
	struct flytune_status status;
	struct flytune_error error;
	uint64_t job;

	(void)state;
	fake.hook = answer_empty;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_status_init(&status);
	assert_int_not_equal(flytune_status(client, &status, &devices, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_devices(client, &devices, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_trials(client, problem, NULL, &trials, &error), FLYTUNE_OK);
	assert_int_not_equal(flytune_jobs(client, 0, &jobs, &error), FLYTUNE_OK);
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
		enum flytune_code code;
		const char *word;
	} cases[] = {
	        {close_at_hello, FLYTUNE_E_AWAY, "hello"},
	        {refuse_hello, FLYTUNE_E_BUSY, "clients"},
	        {speak_another_version, FLYTUNE_E_PROTOCOL, "version 99"},
	        {speak_another_version, FLYTUNE_E_PROTOCOL, "upgrade the library"},
	        {refuse_the_version, FLYTUNE_E_PROTOCOL, "upgrade the daemon"},
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
		assert_true(atomic_load(&fake.accepted) - before <= 2);
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
	assert_true(clock_now() - began < 2000 * CLOCK_MS);
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

/* Ends a child without the parent's clean-up. */
static void end_child(int status)
{
	_exit(status);
}

static void await_child(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
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

/* ---- fork and threads ---- */

static void a_child_makes_a_connection_of_its_own(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	pid_t child;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 1, &answer, NULL), FLYTUNE_OK);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = 0;

		for (int64_t m = 1000; m < 1100; m++) {
			if (look_up(client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
			        flytune_answer_get(&answer, "M", -2) != m)
				wrong = 1;
		}
		flytune_close(client);
		end_child(wrong);
	}
	for (int64_t m = 2; m < 100; m++) {
		assert_int_equal(look_up(client, m, &answer, NULL), FLYTUNE_OK);
		assert_served(&answer, m);
	}
	await_child(child);
	assert_int_equal(look_up(client, 101, &answer, NULL), FLYTUNE_OK);
	assert_served(&answer, 101);
	assert_int_equal(atomic_load(&fake.accepted), 2);
	flytune_close(client);
}

static void a_child_that_no_handler_knows_of_makes_its_own_as_well(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	pid_t child;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* it has to see a fork to follow it */
#endif
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 1, &answer, NULL), FLYTUNE_OK);
	child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = look_up(client, 1000, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
		        flytune_answer_get(&answer, "M", -2) != 1000;

		flytune_close(client);
		end_child(wrong);
	}
	await_child(child);
	assert_int_equal(look_up(client, 2, &answer, NULL), FLYTUNE_OK);
	assert_served(&answer, 2);
	assert_int_equal(atomic_load(&fake.accepted), 2);
	flytune_close(client);
}

struct asker {
	flytune_client *client;
	pthread_t thread;
	int64_t first;
	int count;
	atomic_bool *stop; /* NULL: after `count` lookups */
	int wrong;
};

static void *ask_many(void *data)
{
	struct asker *asker = data;
	struct flytune_answer answer;

	for (int i = 0; asker->stop == NULL ? i < asker->count : !atomic_load(asker->stop); i++) {
		int64_t m = asker->first + i % asker->count;

		if (look_up(asker->client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
		        flytune_answer_get(&answer, "M", -2) != m)
			asker->wrong++;
	}
	return NULL;
}

static void threads_get_their_own_answers_over_a_bounded_pool(void **state)
{
	enum { THREADS = 16 };
	struct asker asker[THREADS];
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] = (struct asker){.client = client, .first = 1 + i * 1000, .count = 300};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	assert_true(atomic_load(&fake.accepted) <= 8);
	flytune_close(client);
}

static void a_fork_while_threads_ask_leaves_both_sides_whole(void **state)
{
	enum { THREADS = 4, FORKS = 20 };
	struct asker asker[THREADS];
	atomic_bool stop = false;
	flytune_client *client;
	struct flytune_answer answer;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] =
		        (struct asker){.client = client, .first = 1 + i * 1000, .count = 300, .stop = &stop};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();

		assert_true(child >= 0);
		if (child == 0) {
			int wrong = 0;

			for (int64_t m = 100000; m < 100020; m++) {
				if (look_up(client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
				        flytune_answer_get(&answer, "M", -2) != m)
					wrong = 1;
			}
			flytune_close(client);
			end_child(wrong);
		}
		await_child(child);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	flytune_close(client);
}

static enum fake_act hold_1(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	return be_late(session, request, data);
}

static void a_slow_call_does_not_hold_the_others_up(void **state)
{
	struct asker slow, quick;
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = hold_1;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	slow = (struct asker){.client = client, .first = 1, .count = 1};
	quick = (struct asker){.client = client, .first = 1000, .count = 100};
	assert_int_equal(pthread_create(&slow.thread, NULL, ask_many, &slow), 0);
	fake_await_arrivals(&fake, 1);
	began = clock_now();
	ask_many(&quick);
	assert_int_equal(quick.wrong, 0);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	fake_open_gate(&fake);
	pthread_join(slow.thread, NULL);
	assert_int_equal(slow.wrong, 0);
	flytune_close(client);
}

static enum fake_act hold_all(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup") == 0 && fake_m(request) < 1000)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void a_pool_that_is_all_in_use_does_not_outlast_the_deadline(void **state)
{
	enum { THREADS = 8 };
	struct flytune_lookup_options options;
	struct flytune_answer answer;
	struct asker asker[THREADS];
	flytune_problem *problem = rmsnorm(1000);
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = hold_all;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] = (struct asker){.client = client, .first = 1 + i, .count = 1};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	fake_await_arrivals(&fake, THREADS);
	flytune_lookup_options_init(&options);
	options.timeout_ms = SHORT_MS;
	flytune_answer_init(&answer);
	began = clock_now();
	assert_int_equal(flytune_lookup(client, problem, &options, &answer, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < 2000 * CLOCK_MS);
	assert_alone(&answer);
	fake_open_gate(&fake);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	flytune_problem_free(problem);
	flytune_close(client);
}

/* ---- generations and FLYTUNE_AUTOTUNE ---- */

#define TOKEN "01234567-89ab-cdef-0123-456789abcdef:7"

static void a_named_generation_travels_and_never_falls_back(void **state)
{
	struct flytune_options options;
	struct flytune_answer answer;
	struct flytune_error error;
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	setenv("FLYTUNE_GENERATION", TOKEN, 1);
	flytune_options_init(&options);
	client = fake_client(&fake, &options);
	unsetenv("FLYTUNE_GENERATION");
	assert_int_equal(look_up(client, 64, &answer, &error), FLYTUNE_OK);
	assert_string_equal(answer.reason, TOKEN);
	fake_stop(&fake);
	assert_int_equal(look_up(client, 65, &answer, &error), FLYTUNE_E_GENERATION);
	assert_non_null(strstr(error.message, TOKEN));
	/* This very answer was given for this very generation. */
	assert_int_equal(look_up(client, 64, &answer, &error), FLYTUNE_OK);
	assert_int_equal(answer.flags, FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
	flytune_close(client);
	/* "" wins over the environment. */
	setenv("FLYTUNE_GENERATION", TOKEN, 1);
	options.generation = "";
	client = fake_client(&fake, &options);
	assert_int_equal(look_up(client, 65, &answer, &error), FLYTUNE_OK);
	flytune_close(client);
}

static void autotune_0_asks_nobody(void **state)
{
	struct flytune_options options;
	struct flytune_answer answer;
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	setenv("FLYTUNE_AUTOTUNE", "0", 1);
	flytune_options_init(&options);
	client = fake_client(&fake, &options);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.source, FLYTUNE_SOURCE_DEFAULT);
	assert_int_equal(answer.flags, 0);
	assert_int_equal(atomic_load(&fake.accepted), 0);
	flytune_close(client);
}

static flytune_client *open_forced(int64_t timeout_ms)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.autotune = FLYTUNE_AUTOTUNE_FORCE;
	options.autotune_timeout_ms = timeout_ms;
	options.lookup_timeout_ms = PATIENT_MS;
	return fake_client(&fake, &options);
}

static void autotune_1_sweeps_a_problem_once_however_many_ask(void **state)
{
	enum { THREADS = 6 };
	struct asker asker[THREADS];
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_forced(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] = (struct asker){.client = client, .first = 1, .count = 5};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	assert_int_equal(atomic_load(&fake.tunes), 5);
	assert_int_equal(atomic_load(&fake.waits), 5);
	flytune_close(client);
}

static enum fake_act hold_wait(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)session;
	(void)data;
	return strcmp(request->method, "wait") == 0 ? FAKE_DONE : FAKE_USUAL;
}

static void a_forced_sweep_that_takes_too_long_is_marked(void **state)
{
	struct flytune_answer answer;
	flytune_client *client;

	(void)state;
	fake.hook = hold_wait;
	fake_listen(&fake);
	client = open_forced(SHORT_MS);
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.source, FLYTUNE_SOURCE_TUNED);
	assert_int_equal(answer.flags, FLYTUNE_ANSWER_UNSWEPT);
	/* Once is enough: it goes on by itself. */
	assert_int_equal(look_up(client, 64, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(atomic_load(&fake.tunes), 1);
	flytune_close(client);
}

/* ---- jobs ---- */

struct seen {
	int trials;
	int watching;
	int stop_after;
};

static int see(void *data, const struct flytune_event *event)
{
	struct seen *seen = data;

	if (strcmp(event->event, "watching") == 0)
		seen->watching++;
	if (strcmp(event->event, "trial") == 0) {
		assert_int_equal(event->job, 42);
		assert_int_equal(event->time_ps, 81200000);
		assert_int_equal(event->knob[0].value, 256);
		seen->trials++;
	}
	return seen->stop_after != 0 && seen->trials >= seen->stop_after;
}

static void a_wait_tells_of_events_and_of_the_end(void **state)
{
	struct seen seen = {0};
	struct flytune_answer answer;
	struct flytune_job job;
	flytune_problem *problem = rmsnorm(64);
	flytune_client *client;
	uint64_t number = 99;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_answer_init(&answer);
	flytune_job_init(&job);
	assert_int_equal(flytune_tune(client, problem, NULL, &number, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(number, 0);
	assert_served(&answer, 64);
	flytune_answer_init(&answer);
	assert_int_equal(flytune_wait(client, 42, PATIENT_MS, see, &seen, &job, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(seen.trials, 1);
	assert_int_equal(job.state, FLYTUNE_STATE_DONE);
	assert_int_equal(job.trials, 12);
	assert_served(&answer, 64);
	assert_int_equal(flytune_wait(client, 42, FLYTUNE_FOREVER, NULL, NULL, NULL, NULL, NULL), FLYTUNE_OK);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void a_wait_ends_when_its_time_is_over_or_its_callback_says_so(void **state)
{
	struct seen seen = {.stop_after = 1};
	struct flytune_error error;
	flytune_client *client;

	(void)state;
	fake.hook = hold_wait;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(
	        flytune_wait(client, 42, WAIT_MS, NULL, NULL, NULL, NULL, &error), FLYTUNE_E_TIMEOUT);
	assert_int_equal(flytune_wait(client, 42, FLYTUNE_FOREVER, see, &seen, NULL, NULL, &error),
	        FLYTUNE_E_CANCELLED);
	seen = (struct seen){.stop_after = 1};
	assert_int_equal(flytune_watch(client, 0, FLYTUNE_FOREVER, see, &seen, &error), FLYTUNE_OK);
	assert_int_equal(seen.watching, 1);
	assert_int_equal(
	        flytune_watch(client, 0, WAIT_MS, see, &(struct seen){0}, &error), FLYTUNE_E_TIMEOUT);
	/* That a wait ran out says nothing of the daemon. */
	assert_int_equal(flytune_ping(client, &error), FLYTUNE_OK);
	flytune_close(client);
}

static enum fake_act gate_wait(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "wait") != 0)
		return FAKE_USUAL;
	fake_wait_gate(session->fake);
	return FAKE_DONE;
}

struct waiter {
	flytune_client *client;
	enum flytune_code code;
};

static void *wait_for_job(void *data)
{
	struct waiter *waiter = data;

	waiter->code = flytune_wait(waiter->client, 42, PATIENT_MS, NULL, NULL, NULL, NULL, NULL);
	return NULL;
}

static void a_wait_survives_a_restart_of_the_daemon(void **state)
{
	const fake_hook nothing = NULL; /* clang makes no atomic function pointer of NULL itself */
	struct waiter waiter;
	pthread_t thread;

	(void)state;
	fake.hook = gate_wait;
	fake_listen(&fake);
	waiter.client = open_client(PATIENT_MS);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_job, &waiter), 0);
	fake_await_arrivals(&fake, 1);
	fake_stop(&fake);
	fake.hook = nothing;
	fake_listen(&fake);
	pthread_join(thread, NULL);
	assert_int_equal(waiter.code, FLYTUNE_OK);
	flytune_close(waiter.client);
}

struct forker {
	flytune_client *client;
	pid_t child;
};

/* An event's callback that forks, and asks on both sides. */
static int fork_in_callback(void *data, const struct flytune_event *event)
{
	struct forker *forker = data;
	struct flytune_answer answer;

	(void)event;
	if (forker->child != -1)
		return 0;
	forker->child = fork();
	if (look_up(forker->client, 64, &answer, NULL) != FLYTUNE_OK || answer.flags != 0)
		end_child(1);
	return 0;
}

static void a_fork_within_a_wait_leaves_both_sides_waiting(void **state)
{
	struct forker forker = {.child = -1};
	enum flytune_code code;

	(void)state;
	fake_listen(&fake);
	forker.client = open_client(PATIENT_MS);
	code = flytune_wait(forker.client, 42, PATIENT_MS, fork_in_callback, &forker, NULL, NULL, NULL);
	if (forker.child == 0) {
		flytune_close(forker.client);
		end_child(code == FLYTUNE_OK ? 0 : 2);
	}
	assert_int_equal(code, FLYTUNE_OK);
	await_child(forker.child);
	flytune_close(forker.client);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(an_answer_is_the_daemons),
	        ROW(lists_and_status_are_read_whole),
	        ROW(a_refusal_comes_through_whole_and_costs_no_connection),
	        ROW(a_daemon_that_cannot_serve_counts_as_away),
	        ROW(an_absent_socket_costs_less_than_a_millisecond),
	        ROW(a_path_that_nobody_serves_is_named),
	        ROW(a_problem_is_refused_by_its_kernel_without_a_daemon),
	        ROW(answers_given_before_stay_valid),
	        ROW(a_restart_between_two_calls_is_not_noticed),
	        ROW(going_away_and_coming_back_are_said_once),
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
	        ROW(a_child_makes_a_connection_of_its_own),
	        ROW(a_child_that_no_handler_knows_of_makes_its_own_as_well),
	        ROW(threads_get_their_own_answers_over_a_bounded_pool),
	        ROW(a_fork_while_threads_ask_leaves_both_sides_whole),
	        ROW(a_slow_call_does_not_hold_the_others_up),
	        ROW(a_pool_that_is_all_in_use_does_not_outlast_the_deadline),
	        ROW(a_named_generation_travels_and_never_falls_back),
	        ROW(autotune_0_asks_nobody),
	        ROW(autotune_1_sweeps_a_problem_once_however_many_ask),
	        ROW(a_forced_sweep_that_takes_too_long_is_marked),
	        ROW(a_wait_tells_of_events_and_of_the_end),
	        ROW(a_wait_ends_when_its_time_is_over_or_its_callback_says_so),
	        ROW(a_wait_survives_a_restart_of_the_daemon),
	        ROW(a_fork_within_a_wait_leaves_both_sides_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
