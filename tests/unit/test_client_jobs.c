/* Waiting for jobs with the client library. */
#include "client_case.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_answer_init(&answer);
	flytune_job_init(&job);
	assert_int_equal(flytune_tune(client, problem, NULL, &job, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(job.job, 0);
	assert_served(&answer, 64);
	flytune_answer_init(&answer);
	job.job = 42;
	assert_int_equal(flytune_wait(client, &job, PATIENT_MS, see, &seen, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(seen.trials, 1);
	assert_int_equal(job.state, FLYTUNE_STATE_DONE);
	assert_int_equal(job.trials, 12);
	assert_served(&answer, 64);
	assert_string_equal(job.store, FAKE_STORE);
	assert_int_equal(flytune_wait(client, &job, FLYTUNE_FOREVER, NULL, NULL, NULL, NULL), FLYTUNE_OK);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void a_wait_ends_when_its_time_is_over_or_its_callback_says_so(void **state)
{
	struct flytune_job job = {.size = sizeof job, .job = 42};
	struct seen seen = {.stop_after = 1};
	struct flytune_error error;
	flytune_client *client;

	(void)state;
	fake.hook = hold_wait;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(flytune_wait(client, &job, WAIT_MS, NULL, NULL, NULL, &error), FLYTUNE_E_TIMEOUT);
	assert_int_equal(
	        flytune_wait(client, &job, FLYTUNE_FOREVER, see, &seen, NULL, &error), FLYTUNE_E_CANCELLED);
	seen = (struct seen){.stop_after = 1};
	assert_int_equal(flytune_watch(client, NULL, FLYTUNE_FOREVER, see, &seen, &error), FLYTUNE_OK);
	assert_int_equal(seen.watching, 1);
	assert_int_equal(
	        flytune_watch(client, NULL, WAIT_MS, see, &(struct seen){0}, &error), FLYTUNE_E_TIMEOUT);
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
	struct flytune_job job;
	enum flytune_result code;
};

static void *wait_for_job(void *data)
{
	struct waiter *waiter = data;

	waiter->code = flytune_wait(waiter->client, &waiter->job, PATIENT_MS, NULL, NULL, NULL, NULL);
	return NULL;
}

static void a_wait_survives_a_restart_of_the_daemon(void **state)
{
	const fake_hook nothing = NULL; /* clang makes no atomic function pointer of NULL itself */
	struct waiter waiter = {.job = {.size = sizeof waiter.job, .job = 42}};
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

/* Has another problem under the number that was asked for. */
static enum fake_act tell_of_another(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	const char *flaw = data;
	struct ft_job_request asked;
	struct ft_job job = {.job = FAKE_JOBS + 512, .kernel = "rmsnorm", .device = "cpu:0", .state = "done"};

	if (strcmp(request->method, "wait") != 0)
		return FAKE_USUAL;
	assert_int_equal(ft_decode(&ft_job_request_message, request->body, &asked, NULL), 0);
	assert_int_equal(asked.job, job.job);
	/* Of another store, the daemon would have refused it. */
	assert_string_equal(asked.store, FAKE_STORE);
	ft_problem_set_number(&job.problems, "m", strcmp(flaw, "m") == 0 ? 2 : 512, NULL);
	ft_problem_set_number(&job.problems, "n", 4096, NULL);
	ft_problem_set_text(&job.problems, "dtype", strcmp(flaw, "dtype") == 0 ? "f32" : "bf16", NULL);
	ft_problem_set_text(&job.problems, "weight_dtype", "bf16", NULL);
	if (strcmp(flaw, "field") != 0)
		ft_problem_set_number(&job.problems, "row_stride", 4096, NULL);
	if (strcmp(flaw, "kernel") == 0)
		snprintf(job.kernel, sizeof job.kernel, "softmax");
	fake_reply(session, request->id, &ft_job_message, &job);
	return FAKE_DONE;
}

static void a_job_of_another_problem_is_not_taken_for_the_one_that_was_asked_for(void **state)
{
	static const char *const flaws[] = {"none", "m", "dtype", "field", "kernel"};
	struct flytune_tune_options options;
	struct flytune_answer answer;
	struct flytune_error error;
	struct flytune_job job;
	flytune_problem *problem = rmsnorm(512);
	flytune_client *client;

	(void)state;
	fake.hook = tell_of_another;
	fake.data = (void *)(uintptr_t) "none";
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	flytune_tune_options_init(&options);
	options.force = 1;
	for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
		enum flytune_result code;

		fake.data = (void *)(uintptr_t)flaws[i];
		flytune_job_init(&job);
		flytune_answer_init(&answer);
		assert_int_equal(flytune_tune(client, problem, &options, &job, NULL, NULL), FLYTUNE_OK);
		assert_int_equal(job.job, FAKE_JOBS + 512);
		assert_string_equal(job.store, FAKE_STORE);
		assert_string_equal(job.kernel, "rmsnorm");
		code = flytune_wait(client, &job, PATIENT_MS, NULL, NULL, &answer, &error);
		assert_int_equal(code, i == 0 ? FLYTUNE_OK : FLYTUNE_E_UNKNOWN_JOB);
		assert_int_equal(job.state, i == 0 ? FLYTUNE_STATE_DONE : FLYTUNE_STATE_UNKNOWN);
	}
	flytune_problem_free(problem);
	flytune_close(client);
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
	struct flytune_job job = {.size = sizeof job, .job = 42};
	struct forker forker = {.child = -1};
	enum flytune_result code;

	(void)state;
	fake_listen(&fake);
	forker.client = open_client(PATIENT_MS);
	code = flytune_wait(forker.client, &job, PATIENT_MS, fork_in_callback, &forker, NULL, NULL);
	if (forker.child == 0) {
		flytune_close(forker.client);
		end_child(code == FLYTUNE_OK ? 0 : 2);
	}
	assert_int_equal(code, FLYTUNE_OK);
	await_child(forker.child);
	flytune_close(forker.client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(a_wait_tells_of_events_and_of_the_end),
	        ROW(a_wait_ends_when_its_time_is_over_or_its_callback_says_so),
	        ROW(a_wait_survives_a_restart_of_the_daemon),
	        ROW(a_job_of_another_problem_is_not_taken_for_the_one_that_was_asked_for),
	        ROW(a_fork_within_a_wait_leaves_both_sides_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
