/* Threads that are cancelled within calls of the client library: each call ends as if they were not, and the thread after it. */
#include "client_case.h"

#include <stdio.h>
#include <string.h>

struct call {
	const char *name;
	void (*make)(flytune_client *client, const flytune_problem *problem);
};

static void ask_lookup(flytune_client *client, const flytune_problem *problem)
{
	struct flytune_answer answer;

	flytune_answer_init(&answer);
	(void)flytune_lookup(client, problem, NULL, &answer, NULL);
}

static void ask_lookup_many(flytune_client *client, const flytune_problem *problem)
{
	flytune_problem *problems[] = {(flytune_problem *)(uintptr_t)problem};
	struct flytune_answer answer;

	flytune_answer_init(&answer);
	(void)flytune_lookup_many(client, problems, 1, NULL, &answer, NULL, NULL);
}

static void never(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error)
{
	(void)data;
	(void)index;
	(void)answer;
	(void)error;
}

static void ask_subscribe(flytune_client *client, const flytune_problem *problem)
{
	flytune_problem *problems[] = {(flytune_problem *)(uintptr_t)problem};
	flytune_subscription *subscription;

	if (flytune_subscribe(client, problems, 1, NULL, never, NULL, &subscription, NULL) != FLYTUNE_OK)
		return;
	(void)flytune_dispatch(subscription, NULL);
	flytune_unsubscribe(subscription);
}

static void ask_open(flytune_client *client, const flytune_problem *problem)
{
	struct flytune_options options;

	(void)client;
	flytune_options_init(&options);
	client = fake_client(&fake, &options);
	ask_lookup(client, problem);
	flytune_close(client);
}

static void ask_ping(flytune_client *client, const flytune_problem *problem)
{
	(void)problem;
	(void)flytune_ping(client, NULL);
}

static void ask_status(flytune_client *client, const flytune_problem *problem)
{
	flytune_device_list *devices = NULL;
	struct flytune_status_info status;

	(void)problem;
	flytune_status_info_init(&status);
	(void)flytune_status(client, &status, &devices, NULL);
	flytune_device_list_free(devices);
}

static void ask_devices(flytune_client *client, const flytune_problem *problem)
{
	flytune_device_list *devices = NULL;

	(void)problem;
	(void)flytune_devices(client, &devices, NULL);
	flytune_device_list_free(devices);
}

static void ask_jobs(flytune_client *client, const flytune_problem *problem)
{
	flytune_job_list *jobs = NULL;

	(void)problem;
	(void)flytune_jobs(client, NULL, &jobs, NULL);
	flytune_job_list_free(jobs);
}

static void ask_trials(flytune_client *client, const flytune_problem *problem)
{
	flytune_trial_list *trials = NULL;

	(void)flytune_trials(client, problem, NULL, &trials, NULL);
	flytune_trial_list_free(trials);
}

static void ask_code(flytune_client *client, const flytune_problem *problem)
{
	flytune_code_object *object = NULL;

	(void)flytune_code(client, problem, NULL, &object, NULL);
	flytune_code_free(object);
}

static void ask_misses(flytune_client *client, const flytune_problem *problem)
{
	flytune_miss_list *misses = NULL;

	(void)problem;
	(void)flytune_misses(client, 0, &misses, NULL);
	flytune_miss_list_free(misses);
}

static void ask_kernels(flytune_client *client, const flytune_problem *problem)
{
	flytune_kernel_list *kernels = NULL;

	(void)problem;
	(void)flytune_kernels(client, NULL, &kernels, NULL);
	flytune_kernel_list_free(kernels);
}

static void ask_metrics(flytune_client *client, const flytune_problem *problem)
{
	char *page = NULL;

	(void)problem;
	(void)flytune_metrics(client, &page, NULL, NULL);
	flytune_text_free(page);
}

static void ask_tune(flytune_client *client, const flytune_problem *problem)
{
	struct flytune_tune_options options;
	struct flytune_job job;

	flytune_job_init(&job);
	flytune_tune_options_init(&options);
	options.force = 1;
	if (flytune_tune(client, problem, &options, &job, NULL, NULL) == FLYTUNE_OK)
		(void)flytune_cancel(client, &job, NULL);
}

static int go_on(void *data, const struct flytune_event *event)
{
	(void)data;
	(void)event;
	return 0;
}

static int stop(void *data, const struct flytune_event *event)
{
	(void)data;
	(void)event;
	return 1;
}

static void ask_wait(flytune_client *client, const flytune_problem *problem)
{
	struct flytune_job job = {.size = sizeof job, .job = 42};

	(void)problem;
	(void)flytune_wait(client, &job, PATIENT_MS, go_on, NULL, NULL, NULL);
}

static void ask_watch(flytune_client *client, const flytune_problem *problem)
{
	(void)problem;
	(void)flytune_watch(client, NULL, PATIENT_MS, stop, NULL, NULL);
}

static void ask_changes(flytune_client *client, const flytune_problem *problem)
{
	struct flytune_knob knob = {.name = "BLOCK_THREADS", .value = 256};

	(void)flytune_pin(client, problem, NULL, &knob, 1, NULL, NULL);
	(void)flytune_unpin(client, problem, NULL, NULL, NULL);
	(void)flytune_forget(client, problem, NULL, NULL, NULL);
	(void)flytune_pause(client, NULL);
	(void)flytune_resume(client, NULL);
}

static int take_row(void *data, const struct flytune_row *row)
{
	(void)data;
	(void)row;
	return 0;
}

static void ask_transfer(flytune_client *client, const flytune_problem *problem)
{
	flytune_import *import = NULL;

	(void)problem;
	(void)flytune_export(client, take_row, NULL, NULL, NULL);
	if (flytune_import_begin(client, &import, NULL) == FLYTUNE_OK)
		flytune_import_free(import);
}

struct victim {
	const struct call *call;
	flytune_client *client;
	flytune_problem *problem;
	pthread_t thread;
	bool returned;
};

static void *make_cancelled(void *data)
{
	struct victim *victim = data;

	/* It takes effect where this thread next could be cancelled. */
	pthread_cancel(pthread_self());
	victim->call->make(victim->client, victim->problem);
	victim->returned = true;
	pthread_testcancel();
	return NULL;
}

static void every_call_that_is_cancelled_ends_first(void **state)
{
	static const struct call calls[] = {
	        {"lookup", ask_lookup},
	        {"lookup_many", ask_lookup_many},
	        {"subscribe", ask_subscribe},
	        {"open", ask_open},
	        {"ping", ask_ping},
	        {"status", ask_status},
	        {"devices", ask_devices},
	        {"jobs", ask_jobs},
	        {"trials", ask_trials},
	        {"code", ask_code},
	        {"misses", ask_misses},
	        {"kernels", ask_kernels},
	        {"metrics", ask_metrics},
	        {"tune", ask_tune},
	        {"wait", ask_wait},
	        {"watch", ask_watch},
	        {"changes", ask_changes},
	        {"transfer", ask_transfer},
	};

	(void)state;
	fake_listen(&fake);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct victim victim = {
		        .call = &calls[i], .client = open_client(PATIENT_MS), .problem = rmsnorm(64)};
		struct flytune_answer answer;
		void *ended;

		assert_int_equal(pthread_create(&victim.thread, NULL, make_cancelled, &victim), 0);
		assert_int_equal(pthread_join(victim.thread, &ended), 0);
		if (!victim.returned)
			print_error("%s was cancelled within\n", calls[i].name);
		assert_true(victim.returned);
		assert_ptr_equal(ended, PTHREAD_CANCELED);
		assert_int_equal(look_up(victim.client, 512, &answer, NULL), FLYTUNE_OK);
		assert_served(&answer, 512);
		flytune_close(victim.client);
		flytune_problem_free(victim.problem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(every_call_that_is_cancelled_ends_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
