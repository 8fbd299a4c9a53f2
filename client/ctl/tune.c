/* flytunectl tune */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/progress.h"
#include "client/ctl/table.h"

/* One problem on its way. */
struct tuned {
	const flytune_problem *problem;
	uint64_t number; /* of the job; 0: there was a winner already */
	bool ended;      /* else only queued */
	struct flytune_job job;
	struct flytune_answer answer; /* once there is a winner */
	uint64_t trials;
};

struct tuning {
	struct ctl *ctl;
	struct flytune_tune_options options;
	bool wait;
	struct tuned *tuned;
	size_t count;
	struct progress progress;
};

static bool has_answer(const struct tuned *tuned)
{
	return tuned->number == 0 || (tuned->ended && tuned->job.state == FLYTUNE_STATE_DONE);
}

static bool has_failed(const struct tuned *tuned)
{
	return tuned->ended && tuned->job.state != FLYTUNE_STATE_DONE;
}

/* ---- JSON ---- */

static json_t *json_tuned(const struct tuned *tuned)
{
	json_t *object;

	if (has_answer(tuned)) {
		object = json_answer(tuned->problem, &tuned->answer);
	} else {
		object = json_object();
		json_object_set_new(object, "kernel", json_string(flytune_problem_kernel(tuned->problem)));
		json_object_set_new(object, "problem", json_problem(tuned->problem));
		json_object_set_new(object, "device", json_text(tuned->job.device));
		json_object_set_new(object, "config", json_null());
		json_object_set_new(object, "source", json_null());
		json_object_set_new(object, "reason", json_string(tuned->job.reason));
	}
	json_object_set_new(
	        object, "job", tuned->number == 0 ? json_null() : json_integer((json_int_t)tuned->number));
	json_object_set_new(object, "state",
	        json_string(tuned->ended || tuned->number == 0
	                        ? flytune_state_word(
	                                  tuned->number == 0 ? FLYTUNE_STATE_DONE : tuned->job.state)
	                        : "queued"));
	json_object_set_new(object, "trials", json_integer((json_int_t)tuned->trials));
	json_object_set_new(object, "sweep_s", json_real((double)tuned->job.sweep_ns / 1e9));
	return object;
}

static int print_json(const struct tuning *tuning)
{
	json_t *array = json_array();

	for (size_t i = 0; i < tuning->count; i++)
		json_array_append_new(array, json_tuned(&tuning->tuned[i]));
	return json_print(array);
}

/* ---- text ---- */

static void print_row(struct table *table, const struct tuned *tuned)
{
	const struct flytune_answer *answer = &tuned->answer;
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];

	table_add(table, "%s", format_problem(tuned->problem, text));
	if (!has_answer(tuned)) {
		table_add(table, "%s", "");
		table_add(table, "%s", "");
		table_add(table, "%s", "");
		table_add(table, "%s", tuned->ended ? flytune_state_word(tuned->job.state) : "queued");
		table_add(table, "%s", "");
		table_add(table, "job %" PRIu64 "%s%s", tuned->number,
		        tuned->job.reason[0] == '\0' ? "" : ": ", tuned->job.reason);
		return;
	}
	table_add(table, "%s", format_config(answer->knob, answer->knob_count, text));
	table_add(table, "%s", format_time(answer->time_ns * 1000, time));
	if (answer->time_ns != 0 && answer->default_time_ns != 0)
		table_add(table, "%.2f×", (double)answer->default_time_ns / (double)answer->time_ns);
	else
		table_add(table, "%s", "");
	table_add(table, "%s", flytune_source_word(answer->source));
	table_add(table, "%s", tuned->job.sweep_ns == 0 ? "" : format_duration(tuned->job.sweep_ns, time));
	if (tuned->number == 0)
		table_add(table, "%s", "known already");
	else
		table_add(table, "job %" PRIu64, tuned->number);
}

static void print_table(const struct tuning *tuning)
{
	static const char *const head[] = {"PROBLEM", "CONFIG", ">TIME", ">GAIN", "SOURCE", ">SWEEP", "NOTE"};
	struct table table;

	table_init(&table, head, sizeof head / sizeof *head);
	for (size_t i = 0; i < tuning->count; i++)
		print_row(&table, &tuning->tuned[i]);
	table_print(&table);
}

/* ---- the way of one problem ---- */

static int on_event(void *data, const struct flytune_event *event)
{
	progress_event(data, event);
	return 0;
}

static void count_trials(struct tuning *tuning, struct tuned *tuned)
{
	flytune_trial_list *list;

	if (flytune_trials(tuning->ctl->client, tuned->problem, tuning->options.device, &list, NULL) !=
	        FLYTUNE_OK)
		return;
	if (tuned->number != 0)
		progress_complete(&tuning->progress, list);
	if (tuned->trials == 0)
		tuned->trials = flytune_trial_list_count(list);
	flytune_trial_list_free(list);
}

static enum ctl_exit await(struct tuning *tuning, struct tuned *tuned)
{
	struct flytune_error error;
	enum flytune_code code;
	char text[FORMAT_LONG_SIZE];

	if (!tuning->ctl->json)
		printf("%s %s: job %" PRIu64 "\n", flytune_problem_kernel(tuned->problem),
		        format_problem(tuned->problem, text), tuned->number);
	fflush(stdout);
	progress_begin(&tuning->progress, tuning->ctl->json);
	code = flytune_wait(tuning->ctl->client, tuned->number, FLYTUNE_FOREVER,
	        tuning->ctl->json ? NULL : on_event, &tuning->progress, &tuned->job, &tuned->answer, &error);
	if (code == FLYTUNE_OK) {
		tuned->ended = true;
		tuned->trials = tuned->job.trials;
		count_trials(tuning, tuned);
	}
	progress_end(&tuning->progress);
	if (code != FLYTUNE_OK)
		return ctl_fail(tuning->ctl, &error);
	if (has_failed(tuned))
		fprintf(stderr, "flytunectl: job %" PRIu64 " %s%s%s\n", tuned->number,
		        tuned->job.state == FLYTUNE_STATE_CANCELLED ? "was cancelled" : "failed",
		        tuned->job.reason[0] == '\0' ? "" : ": ", tuned->job.reason);
	return CTL_DONE;
}

/* All are queued before the first is waited for, so that the daemon can order them. */
static enum ctl_exit tune_all(struct tuning *tuning)
{
	enum ctl_exit status = CTL_DONE;
	struct flytune_error error;

	for (size_t i = 0; i < tuning->count; i++) {
		struct tuned *tuned = &tuning->tuned[i];

		flytune_job_init(&tuned->job);
		flytune_answer_init(&tuned->answer);
		if (flytune_tune(tuning->ctl->client, tuned->problem, &tuning->options, &tuned->number,
		            &tuned->answer, &error) != FLYTUNE_OK)
			return ctl_fail(tuning->ctl, &error);
	}
	for (size_t i = 0; i < tuning->count; i++) {
		struct tuned *tuned = &tuning->tuned[i];

		if (tuned->number == 0) {
			count_trials(tuning, tuned);
			continue;
		}
		if (!tuning->wait)
			continue;
		enum ctl_exit one = await(tuning, tuned);

		if (one != CTL_DONE)
			return one;
		if (has_failed(tuned))
			status = CTL_JOB_FAILED;
	}
	if (!tuning->ctl->json)
		print_table(tuning);
	else if (print_json(tuning) != 0)
		return CTL_FAILED;
	return status;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct tuning tuning = {.ctl = ctl};
	bool force = false, no_wait = false;
	int64_t priority = 0, budget_s = 0;
	const char *device = NULL;
	struct own_options own = {.device = &device,
	        .force = &force,
	        .no_wait = &no_wait,
	        .priority = &priority,
	        .budget_s = &budget_s};
	struct problems problems;
	enum ctl_exit status = problems_read(ctl, &command_tune, count, words, &own, true, &problems);

	if (status != CTL_DONE)
		return status;
	flytune_tune_options_init(&tuning.options);
	tuning.options.device = device;
	tuning.options.force = force;
	tuning.options.priority = (int32_t)priority;
	tuning.options.budget_ms = budget_s * 1000;
	tuning.wait = !no_wait;
	tuning.count = problems.count;
	tuning.tuned = calloc(problems.count, sizeof *tuning.tuned);
	if (tuning.tuned == NULL) {
		problems_free(&problems);
		return ctl_usage(&command_tune, "out of memory");
	}
	for (size_t i = 0; i < problems.count; i++)
		tuning.tuned[i].problem = problems.problem[i];
	status = tune_all(&tuning);
	free(tuning.tuned);
	problems_free(&problems);
	return status;
}

static void explain(void)
{
	puts("Fields take lists, --m 64,512 --n 4096,8192, and every combination is tuned. A problem that "
	     "has a\n"
	     "winner is not tuned again without --force. The sweep goes on if this command is "
	     "interrupted.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first\n"
	     "  --force            sweep again although there is a winner\n"
	     "  --no-wait          return once the jobs are queued\n"
	     "  --priority N       -100 to 100, higher first; else 0\n"
	     "  --budget SECONDS   of measuring, a problem; else as the daemon is set");
}

const struct command command_tune = {
        .name = "tune",
        .words = "KERNEL --FIELD VALUE[,VALUE]... [OPTION]...",
        .help = "Find the best configuration of problems, and wait for it",
        .run = run,
        .explain = explain,
        .takes_kernel = true,
};
