/* NULL where something must be given: an error that names the argument, from every function, and never a crash. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_help.h"
#include "fake_case.h"

static struct flytune_error error;

/* How a call failed, that is to fail for want of one argument. */
static void assert_named(enum flytune_result code, const char *argument)
{
	char start[40];

	snprintf(start, sizeof start, "%s is NULL", argument);
	assert_int_equal(code, FLYTUNE_E_BAD_VALUE);
	assert_int_equal(error.code, FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, argument);
	assert_memory_equal(error.message, start, strlen(start));
}

#define REFUSED(argument, call)                  \
	do {                                     \
		memset(&error, 0, sizeof error); \
		assert_named(call, argument);    \
	} while (0)

#define NOT_MADE(argument, call)                    \
	do {                                        \
		memset(&error, 0, sizeof error);    \
		assert_null(call);                  \
		assert_named(error.code, argument); \
	} while (0)

static void changed(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *why)
{
	(void)data;
	(void)index;
	(void)answer;
	(void)why;
}

static int on_event(void *data, const struct flytune_event *event)
{
	(void)data;
	return event == NULL;
}

static int on_row(void *data, const struct flytune_row *row)
{
	(void)data;
	return row == NULL;
}

static flytune_client *fresh_client(void)
{
	struct flytune_options options;

	flytune_options_init(&options);
	fake_listen(&fake);
	return fake_client(&fake, &options);
}

static void problems_want_all_that_makes_them(void **state)
{
	const struct flytune_field fields[] = {{"m", NULL, 64}};
	struct flytune_field field;
	flytune_problem *problem = rmsnorm(64);

	(void)state;
	NOT_MADE("kernel", flytune_problem_new(NULL, fields, 1, &error));
	NOT_MADE("fields", flytune_problem_new("rmsnorm", NULL, 1, &error));
	NOT_MADE("shape", flytune_problem_rmsnorm(NULL, &error));
	assert_null(flytune_problem_kernel(NULL));
	assert_int_equal(flytune_problem_field(NULL, 0, &field), 0);
	assert_null(flytune_answer_word(NULL, "layout"));
	assert_int_equal(flytune_problem_field(problem, 0, NULL), 0);
	flytune_problem_free(problem);
	flytune_problem_free(NULL);
}

static void lookups_want_client_problem_and_answer(void **state)
{
	flytune_client *client = fresh_client();
	flytune_problem *problem = rmsnorm(64), *problems[] = {problem, NULL};
	flytune_subscription *subscription = NULL;
	struct flytune_lookup_options options;
	struct flytune_answer answers[2];

	(void)state;
	flytune_lookup_options_init(&options);
	flytune_answer_init(&answers[0]);
	flytune_answer_init(&answers[1]);
	REFUSED("client", flytune_lookup(NULL, problem, NULL, answers, &error));
	REFUSED("problem", flytune_lookup(client, NULL, NULL, answers, &error));
	REFUSED("answer", flytune_lookup(client, problem, NULL, NULL, &error));
	REFUSED("answer", flytune_lookup(client, problem, &options, NULL, &error));
	REFUSED("client", flytune_lookup_many(NULL, problems, 1, NULL, answers, NULL, &error));
	REFUSED("problems", flytune_lookup_many(client, NULL, 1, NULL, answers, NULL, &error));
	REFUSED("answers", flytune_lookup_many(client, problems, 1, NULL, NULL, NULL, &error));
	REFUSED("problems[1]", flytune_lookup_many(client, problems, 2, NULL, answers, NULL, &error));
	assert_int_equal(flytune_lookup_many(client, NULL, 0, NULL, NULL, NULL, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_answer_get(NULL, "BLOCK_THREADS", 7), 7);
	assert_int_equal(flytune_answer_get(answers, NULL, 7), 7);
	REFUSED("client", flytune_subscribe(NULL, problems, 1, NULL, changed, NULL, &subscription, &error));
	REFUSED("problems", flytune_subscribe(client, NULL, 1, NULL, changed, NULL, &subscription, &error));
	REFUSED("problems[1]",
	        flytune_subscribe(client, problems, 2, NULL, changed, NULL, &subscription, &error));
	REFUSED("changed", flytune_subscribe(client, problems, 1, NULL, NULL, NULL, &subscription, &error));
	REFUSED("subscription", flytune_subscribe(client, problems, 1, NULL, changed, NULL, NULL, &error));
	REFUSED("subscription", flytune_dispatch(NULL, &error));
	assert_int_equal(flytune_subscription_fd(NULL), -1);
	flytune_unsubscribe(NULL);
	/* None of that asked anybody anything. */
	assert_int_equal(fake.hellos, 0);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void jobs_want_to_be_named(void **state)
{
	flytune_client *client = fresh_client();
	flytune_problem *problem = rmsnorm(64);
	flytune_job_list *list = NULL;
	struct flytune_job job;

	(void)state;
	flytune_job_init(&job);
	REFUSED("client", flytune_tune(NULL, problem, NULL, &job, NULL, &error));
	REFUSED("problem", flytune_tune(client, NULL, NULL, &job, NULL, &error));
	REFUSED("job", flytune_tune(client, problem, NULL, NULL, NULL, &error));
	REFUSED("client", flytune_wait(NULL, &job, 0, NULL, NULL, NULL, &error));
	REFUSED("job", flytune_wait(client, NULL, 0, NULL, NULL, NULL, &error));
	REFUSED("client", flytune_watch(NULL, &job, 0, on_event, NULL, &error));
	REFUSED("events", flytune_watch(client, NULL, 0, NULL, NULL, &error));
	REFUSED("client", flytune_cancel(NULL, &job, &error));
	REFUSED("job", flytune_cancel(client, NULL, &error));
	REFUSED("client", flytune_jobs(NULL, NULL, &list, &error));
	REFUSED("list", flytune_jobs(client, NULL, NULL, &error));
	assert_int_equal(fake.hellos, 0);
	assert_int_equal(flytune_jobs(client, NULL, &list, NULL), FLYTUNE_OK);
	assert_true(flytune_job_list_count(list) > 0);
	assert_int_equal(flytune_job_list_get(list, 0, NULL), 0);
	assert_int_equal(flytune_job_list_get(NULL, 0, &job), 0);
	assert_int_equal(flytune_job_list_count(NULL), 0);
	flytune_job_list_free(list);
	flytune_job_list_free(NULL);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void trials_and_code_want_a_problem_and_a_place(void **state)
{
	flytune_client *client = fresh_client();
	flytune_problem *problem = rmsnorm(64);
	flytune_trial_list *list = NULL;
	flytune_code_object *object = NULL;
	struct flytune_code_info code;
	struct flytune_code_step step;
	struct flytune_effect effect;
	struct flytune_trial trial;
	struct flytune_trials_info info;
	size_t length = 1;

	(void)state;
	flytune_code_info_init(&code);
	flytune_effect_init(&effect);
	flytune_trial_init(&trial);
	flytune_trials_info_init(&info);
	REFUSED("client", flytune_trials(NULL, problem, NULL, &list, &error));
	REFUSED("problem", flytune_trials(client, NULL, NULL, &list, &error));
	REFUSED("list", flytune_trials(client, problem, NULL, NULL, &error));
	REFUSED("client", flytune_code(NULL, problem, NULL, &object, &error));
	REFUSED("problem", flytune_code(client, NULL, NULL, &object, &error));
	REFUSED("object", flytune_code(client, problem, NULL, NULL, &error));
	assert_int_equal(fake.hellos, 0);
	assert_null(flytune_code_data(NULL, &length));
	assert_int_equal(length, 0);
	assert_null(flytune_code_data(NULL, NULL));
	assert_int_equal(flytune_code_describe(NULL, &code), 0);
	assert_int_equal(flytune_code_get_step(NULL, 0, &step), 0);
	assert_int_equal(flytune_code_blocks(NULL, 64), 0);
	flytune_code_free(NULL);
	assert_int_equal(flytune_trials(client, problem, NULL, &list, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_trial_list_get(list, 0, NULL), 0);
	assert_int_equal(flytune_trial_list_get(NULL, 0, &trial), 0);
	assert_int_equal(flytune_trial_list_effect(list, 0, NULL), 0);
	assert_int_equal(flytune_trial_list_effect(NULL, 0, &effect), 0);
	assert_int_equal(flytune_trial_list_info(list, NULL), 0);
	assert_int_equal(flytune_trial_list_info(NULL, &info), 0);
	assert_int_equal(flytune_trial_list_count(NULL), 0);
	flytune_trial_list_free(list);
	flytune_trial_list_free(NULL);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void changes_want_a_client_and_what_to_change(void **state)
{
	const struct flytune_knob knob = {"BLOCK_THREADS", NULL, 256};
	flytune_client *client = fresh_client();
	flytune_problem *problem = rmsnorm(64);

	(void)state;
	REFUSED("client", flytune_pin(NULL, problem, NULL, &knob, 1, NULL, &error));
	REFUSED("problem", flytune_pin(client, NULL, NULL, &knob, 1, NULL, &error));
	REFUSED("knobs", flytune_pin(client, problem, NULL, NULL, 1, NULL, &error));
	REFUSED("client", flytune_unpin(NULL, problem, NULL, NULL, &error));
	REFUSED("problem", flytune_unpin(client, NULL, NULL, NULL, &error));
	REFUSED("client", flytune_forget(NULL, problem, NULL, NULL, &error));
	REFUSED("problem", flytune_forget(client, NULL, NULL, NULL, &error));
	REFUSED("client", flytune_pause(NULL, &error));
	REFUSED("client", flytune_resume(NULL, &error));
	assert_int_equal(fake.hellos, 0);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void transfers_want_rows(void **state)
{
	flytune_client *client = fresh_client();
	flytune_import *import = NULL;
	struct flytune_import_note note;
	struct flytune_row row;

	(void)state;
	flytune_import_note_init(&note);
	flytune_row_init(&row);
	REFUSED("client", flytune_export(NULL, on_row, NULL, NULL, &error));
	REFUSED("rows", flytune_export(client, NULL, NULL, NULL, &error));
	REFUSED("client", flytune_import_begin(NULL, &import, &error));
	REFUSED("import", flytune_import_begin(client, NULL, &error));
	REFUSED("import", flytune_import_add(NULL, &row, &error));
	REFUSED("import", flytune_import_check(NULL, NULL, &error));
	REFUSED("import", flytune_import_commit(NULL, NULL, &error));
	assert_int_equal(fake.hellos, 0);
	assert_int_equal(flytune_import_begin(client, &import, NULL), FLYTUNE_OK);
	REFUSED("row", flytune_import_add(import, NULL, &error));
	assert_int_equal(flytune_import_get_note(import, 0, NULL), 0);
	assert_int_equal(flytune_import_get_note(NULL, 0, &note), 0);
	flytune_import_free(import);
	flytune_import_free(NULL);
	flytune_close(client);
}

static void the_daemons_state_wants_a_place(void **state)
{
	flytune_client *client = fresh_client();
	flytune_device_list *devices = NULL;
	flytune_kernel_list *kernels = NULL;
	struct flytune_kernel kernel = {.size = sizeof kernel};
	struct flytune_kernel_field field = {.size = sizeof field};
	struct flytune_kernel_knob knob = {.size = sizeof knob};
	flytune_miss_list *misses = NULL;
	struct flytune_status_info status;
	struct flytune_misses_info info;
	struct flytune_device device;
	struct flytune_miss miss;
	char *page = NULL;

	(void)state;
	flytune_status_info_init(&status);
	flytune_misses_info_init(&info);
	flytune_device_init(&device);
	flytune_miss_init(&miss);
	REFUSED("client", flytune_ping(NULL, &error));
	REFUSED("client", flytune_status(NULL, &status, NULL, &error));
	REFUSED("status", flytune_status(client, NULL, NULL, &error));
	REFUSED("client", flytune_metrics(NULL, &page, NULL, &error));
	REFUSED("page", flytune_metrics(client, NULL, NULL, &error));
	REFUSED("client", flytune_devices(NULL, &devices, &error));
	REFUSED("list", flytune_devices(client, NULL, &error));
	assert_int_equal(flytune_kernels(client,
	                         "a name of more than 63 bytes, which no kernel has, nor ever could have",
	                         &kernels, NULL),
	        FLYTUNE_E_BAD_VALUE);
	assert_int_equal(flytune_kernel_list_get(NULL, 0, &kernel), 0);
	assert_int_equal(flytune_kernel_list_get_field(NULL, 0, 0, &field), 0);
	assert_int_equal(flytune_kernel_list_get_knob(NULL, 0, 0, &knob), 0);
	assert_int_equal(flytune_kernel_list_count(NULL), 0);
	flytune_kernel_list_free(NULL);
	REFUSED("client", flytune_kernels(NULL, NULL, &kernels, &error));
	REFUSED("list", flytune_kernels(client, NULL, NULL, &error));
	REFUSED("client", flytune_misses(NULL, 0, &misses, &error));
	REFUSED("list", flytune_misses(client, 0, NULL, &error));
	assert_int_equal(fake.hellos, 0);
	assert_int_equal(flytune_devices(client, &devices, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_device_list_get(devices, 0, NULL), 0);
	assert_int_equal(flytune_device_list_get(NULL, 0, &device), 0);
	assert_int_equal(flytune_device_list_count(NULL), 0);
	flytune_device_list_free(devices);
	flytune_device_list_free(NULL);
	assert_int_equal(flytune_miss_list_get(NULL, 0, &miss), 0);
	assert_int_equal(flytune_miss_list_info(NULL, &info), 0);
	assert_int_equal(flytune_miss_list_count(NULL), 0);
	flytune_miss_list_free(NULL);
	flytune_text_free(NULL);
	flytune_close(client);
	flytune_close(NULL);
}

static void what_sets_a_size_takes_null(void **state)
{
	(void)state;
	flytune_options_init(NULL);
	flytune_answer_init(NULL);
	flytune_rmsnorm_init(NULL);
}

static char *read_source(const char *name)
{
	char path[1024], *text = calloc(1, 1 << 20);
	const char *top = getenv("FLYTUNE_SOURCE");
	FILE *file;

	assert_non_null(top);
	assert_non_null(text);
	snprintf(path, sizeof path, "%s/%s", top, name);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	return text;
}

/* Every function that the library gives is called above, but for those that take no pointer, and the one that needs none. */
static void no_function_is_left_out(void **state)
{
	static const char *const exempt[] = {"flytune_open", "flytune_result_word", "flytune_source_word",
	        "flytune_source_rank", "flytune_state_word", "flytune_version"};
	char *map = read_source("client/lib/flytune-client.map"),
	     *calls = read_source("tests/unit/test_client_null.c");
	unsigned functions = 0;

	(void)state;
	for (char *at = strstr(map, "\tflytune_"); at != NULL; at = strstr(at, "\tflytune_")) {
		char call[64];
		bool is_exempt = false;

		snprintf(call, sizeof call, "%.*s(", (int)strcspn(at + 1, ";"), at + 1);
		for (size_t i = 0; i < sizeof exempt / sizeof *exempt; i++)
			is_exempt = is_exempt || strncmp(exempt[i], call, strlen(exempt[i])) == 0;
		if (!is_exempt && strstr(calls, call) == NULL)
			fail_msg("nobody calls %s...) with NULL", call);
		functions++;
		at++;
	}
	assert_true(functions > 50);
	free(map);
	free(calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(problems_want_all_that_makes_them),
	        ROW(lookups_want_client_problem_and_answer),
	        ROW(jobs_want_to_be_named),
	        ROW(trials_and_code_want_a_problem_and_a_place),
	        ROW(changes_want_a_client_and_what_to_change),
	        ROW(transfers_want_rows),
	        ROW(the_daemons_state_wants_a_place),
	        ROW(what_sets_a_size_takes_null),
	        cmocka_unit_test(no_function_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
