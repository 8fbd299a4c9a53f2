/* The client library against a daemon that behaves, dies and comes back. */
#include "client_case.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
	struct flytune_status_info status;
	struct flytune_trials_info info;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_job_init(&job);
	flytune_trial_init(&trial);
	flytune_device_init(&device);
	flytune_status_info_init(&status);
	flytune_trials_info_init(&info);
	assert_int_equal(flytune_jobs(client, NULL, &jobs, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_job_list_count(jobs), 3);
	assert_true(flytune_job_list_get(jobs, 2, &job));
	assert_false(flytune_job_list_get(jobs, 3, &job));
	assert_int_equal(job.job, 42);
	assert_string_equal(job.store, FAKE_STORE);
	assert_int_equal(job.state, FLYTUNE_STATE_RUNNING);
	assert_int_equal(job.field_count, 5);
	assert_string_equal(job.field[4].name, "dtype");
	assert_string_equal(job.field[4].text, "bf16");
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
	assert_int_equal(status.lookups[FLYTUNE_SOURCE_TUNED], 5);
	assert_int_equal(status.answers, 3);
	assert_true(flytune_device_list_get(devices, 0, &device));
	assert_string_equal(device.id, "cpu:0");
	flytune_device_list_free(devices);
	assert_int_equal(flytune_status(client, &status, NULL, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_cancel(client, &job, NULL), FLYTUNE_OK);
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
	struct flytune_job job = {.size = sizeof job, .job = 1};
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
	assert_int_equal(flytune_cancel(client, &job, &error), FLYTUNE_E_BAD_VALUE);
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
	struct flytune_job job = {.size = sizeof job, .job = 1};
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
		assert_int_equal(flytune_cancel(client, &job, NULL), FLYTUNE_OK);
		fake_stop(&fake);
	}
	flytune_close(client);
}

/* A call that is made while the daemon stops: it took the connection, and goes before it says hello. */
struct first_call {
	flytune_client *client;
	flytune_problem *problem;
	enum flytune_result (*make)(const struct first_call *call, struct flytune_error *error);
	enum flytune_result code;
	struct flytune_error error;
	pthread_t thread;
	atomic_bool told; /* that the daemon is away */
};

static enum flytune_result first_status(const struct first_call *call, struct flytune_error *error)
{
	struct flytune_status_info status;

	flytune_status_info_init(&status);
	return flytune_status(call->client, &status, NULL, error);
}

static enum flytune_result first_tune(const struct first_call *call, struct flytune_error *error)
{
	struct flytune_job job;

	flytune_job_init(&job);
	return flytune_tune(call->client, call->problem, NULL, &job, NULL, error);
}

static enum flytune_result first_wait(const struct first_call *call, struct flytune_error *error)
{
	struct flytune_job job = {.size = sizeof job, .job = 42};

	return flytune_wait(call->client, &job, PATIENT_MS, NULL, NULL, NULL, error);
}

static int stop_at_once(void *data, const struct flytune_event *event)
{
	(void)data;
	(void)event;
	return 1;
}

static enum flytune_result first_watch(const struct first_call *call, struct flytune_error *error)
{
	return flytune_watch(call->client, NULL, PATIENT_MS, stop_at_once, NULL, error);
}

static void *make_call(void *data)
{
	struct first_call *call = data;

	call->code = call->make(call, &call->error);
	return NULL;
}

static void note_away(void *data, enum flytune_log_level level, const char *message)
{
	struct first_call *call = data;

	(void)message;
	if (level == FLYTUNE_LOG_WARNING)
		atomic_store(&call->told, true);
}

static enum fake_act leave_at_hello(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	(void)request;
	fake_wait_gate(session->fake);
	return FAKE_CLOSE;
}

static void a_first_call_that_meets_a_restart_before_the_hello_is_not_lost(void **state)
{
	static enum flytune_result (*const calls[])(const struct first_call *, struct flytune_error *) = {
	        first_status, first_tune, first_wait, first_watch};
	const fake_hook nothing = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct first_call call = {.make = calls[i], .problem = rmsnorm(64)};
		struct flytune_options options;
		uint64_t deadline = clock_after(PATIENT_MS);

		flytune_options_init(&options);
		options.call_timeout_ms = PATIENT_MS;
		options.log = note_away;
		options.log_data = &call;
		fake.hook = leave_at_hello;
		fake_listen(&fake);
		call.client = fake_client(&fake, &options);
		assert_int_equal(pthread_create(&call.thread, NULL, make_call, &call), 0);
		fake_await_arrivals(&fake, 1);
		fake_stop(&fake);
		/* It has found nobody there by now; the next daemon takes its time. */
		while (!atomic_load(&call.told)) {
			assert_true(clock_now() < deadline);
			poll(NULL, 0, 1);
		}
		fake.hook = nothing;
		fake_listen(&fake);
		pthread_join(call.thread, NULL);
		if (call.code != FLYTUNE_OK)
			print_error("call %zu: %s\n", i, call.error.message);
		assert_int_equal(call.code, FLYTUNE_OK);
		flytune_close(call.client);
		flytune_problem_free(call.problem);
		fake_stop(&fake);
	}
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
	options.lookup_timeout_ms = PATIENT_MS; /* a busy machine is no reason to have no answer */
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

/* ---- a caller that stood still ---- */

static enum fake_act hold_lookup(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup") == 0)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void what_was_answered_while_the_caller_stood_still_is_read(void **state)
{
	struct flytune_answer answer;
	int status;
	pid_t child;

	(void)state;
	fake.hook = hold_lookup;
	fake_listen(&fake);
	child = fork();
	if (child == 0) {
		flytune_client *client = open_client(WAIT_MS);

		_exit(look_up(client, 7, &answer, NULL) == FLYTUNE_OK && answer.flags == 0 ? 0 : 1);
	}
	fake_await_arrivals(&fake, 1);
	assert_int_equal(kill(child, SIGSTOP), 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	if (!WIFSTOPPED(status)) /* a machine so busy that its time was over by now: nothing is shown */
		return;
	fake_open_gate(&fake);
	poll(NULL, 0, 2 * WAIT_MS); /* past the caller's deadline */
	assert_int_equal(kill(child, SIGCONT), 0);
	await_child(child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(what_was_answered_while_the_caller_stood_still_is_read),
	        ROW(an_answer_is_the_daemons),
	        ROW(lists_and_status_are_read_whole),
	        ROW(a_refusal_comes_through_whole_and_costs_no_connection),
	        ROW(a_daemon_that_cannot_serve_counts_as_away),
	        ROW(an_absent_socket_costs_less_than_a_millisecond),
	        ROW(a_path_that_nobody_serves_is_named),
	        ROW(a_problem_is_refused_by_its_kernel_without_a_daemon),
	        ROW(answers_given_before_stay_valid),
	        ROW(a_restart_between_two_calls_is_not_noticed),
	        ROW(a_first_call_that_meets_a_restart_before_the_hello_is_not_lost),
	        ROW(going_away_and_coming_back_are_said_once),
	        ROW(a_named_generation_travels_and_never_falls_back),
	        ROW(autotune_0_asks_nobody),
	        ROW(autotune_1_sweeps_a_problem_once_however_many_ask),
	        ROW(a_forced_sweep_that_takes_too_long_is_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
