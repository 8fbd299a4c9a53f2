/* flytunectl jobs, flytunectl cancel */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"

static void print_json(const flytune_job_list *list)
{
	struct document json = {0};
	struct flytune_job job;

	flytune_job_init(&job);
	document_object(&json, NULL);
	document_array(&json, "jobs");
	for (size_t i = 0; flytune_job_list_get(list, i, &job); i++)
		json_job(&json, NULL, &job);
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

static void print_table(const flytune_job_list *list)
{
	static const char *const head[] = {">JOB", "STATE", "STAGE", "KERNEL", "PROBLEM", "DEVICE", ">TRIALS",
	        ">ROUNDS", ">SWEEP", "CAUSE", ">PRIORITY", "CREATED", "REASON"};
	struct flytune_job job;
	struct table table;
	char text[FORMAT_LONG_SIZE], date[FORMAT_SIZE], sweep[FORMAT_SIZE];

	table_init(&table, head, sizeof head / sizeof *head);
	flytune_job_init(&job);
	for (size_t i = 0; flytune_job_list_get(list, i, &job); i++) {
		table_add(&table, "%" PRIu64, job.job);
		table_add(&table, "%s", flytune_state_word(job.state));
		table_add(&table, "%s", job.stage);
		table_add(&table, "%s", job.kernel);
		table_add(&table, "%s", format_values(job.field, job.field_count, text));
		table_add(&table, "%s", job.device);
		if (job.space > 0)
			table_add(&table, "%" PRIu64 "/%" PRIu64 " of %" PRIu64, job.settled, job.trials,
			        job.space);
		else
			table_add(&table, "%" PRIu64 "/%" PRIu64, job.settled, job.trials);
		table_add(&table, "%" PRIu64, job.rounds);
		table_add(&table, "%s", job.sweep_ns == 0 ? "" : format_duration(job.sweep_ns, sweep));
		table_add(&table, "%s", job.cause);
		table_add(&table, "%" PRId32, job.priority);
		table_add(&table, "%s", format_date(job.created_at_ns, date));
		table_add(&table, "%s", job.reason);
	}
	if (flytune_job_list_count(list) == 0)
		puts("no job");
	else
		table_print(&table);
}

static enum ctl_exit run_jobs(struct ctl *ctl, int count, char **words)
{
	flytune_job_list *list;
	struct flytune_error error;
	struct flytune_job job;

	if (count > 1)
		return stray_word(&command_jobs, words[1]);
	flytune_job_init(&job);
	if (count == 1 && !job_number_read(words[0], &job.job))
		return refuse_number(&command_jobs, "the job", words[0]);
	if (flytune_jobs(ctl->client, count == 1 ? &job : NULL, &list, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_json(list);
	else
		print_table(list);
	flytune_job_list_free(list);
	return CTL_DONE;
}

const struct command command_jobs = {
        .name = "jobs",
        .words = "[ID]",
        .help = "List the jobs, or one",
        .run = run_jobs,
};

/* How a job ended that was to be cancelled: it may have been over before. */
static enum flytune_result ended_as(
        struct ctl *ctl, const struct flytune_job *cancelled, const char **word, struct flytune_error *error)
{
	struct flytune_job job;
	flytune_job_list *list;
	enum flytune_result code = flytune_jobs(ctl->client, cancelled, &list, error);

	*word = flytune_state_word(FLYTUNE_STATE_CANCELLED);
	if (code == FLYTUNE_E_UNKNOWN_JOB)
		return FLYTUNE_OK; /* forgotten meanwhile */
	if (code != FLYTUNE_OK)
		return code;
	flytune_job_init(&job);
	if (flytune_job_list_get(list, 0, &job))
		*word = flytune_state_word(job.state);
	flytune_job_list_free(list);
	return FLYTUNE_OK;
}

static void print_cancelled(uint64_t number, const char *state, bool was)
{
	struct document json = {0};

	document_object(&json, NULL);
	document_count(&json, "job", number);
	document_text(&json, "state", state);
	if (was)
		document_count(&json, "cancelled", number);
	else
		document_null(&json, "cancelled");
	document_end(&json);
	document_print(&json);
}

static enum ctl_exit run_cancel(struct ctl *ctl, int count, char **words)
{
	struct flytune_error error;
	struct flytune_job job;
	const char *state;
	bool was;

	if (count != 1)
		return ctl_usage(&command_cancel, "cancel needs the number of one job");
	flytune_job_init(&job);
	if (!job_number_read(words[0], &job.job))
		return refuse_number(&command_cancel, "the job", words[0]);
	if (flytune_cancel(ctl->client, &job, &error) != FLYTUNE_OK ||
	        ended_as(ctl, &job, &state, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	was = strcmp(state, flytune_state_word(FLYTUNE_STATE_CANCELLED)) == 0;
	if (ctl->json)
		print_cancelled(job.job, state, was);
	else if (was)
		printf("job %" PRIu64 " is cancelled; what it measured is kept\n", job.job);
	else
		printf("job %" PRIu64 " had ended already: %s\n", job.job, state);
	return CTL_DONE;
}

const struct command command_cancel = {
        .name = "cancel",
        .words = "ID",
        .help = "End a job; what it measured is kept",
        .run = run_cancel,
};
