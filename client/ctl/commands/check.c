/* flytunectl check: whether a stored winner still holds */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"

/* Any sweep but one that found the winner to hold has set it anew. */
static bool holds(const struct flytune_job *job)
{
	return strncmp(job->reason, "the winner holds", 16) == 0;
}

static void print_json(
        const flytune_problem *problem, const struct flytune_job *job, const struct flytune_answer *answer)
{
	struct document json = {0};

	document_object(&json, NULL);
	if (job->state == FLYTUNE_STATE_DONE)
		json_answer_members(&json, problem, answer);
	else
		json_no_answer_members(&json, problem, job->device, job->reason);
	document_count(&json, "job", job->job);
	document_text(&json, "state", flytune_state_word(job->state));
	document_bool(&json, "holds", holds(job));
	document_text(&json, "said", job->reason);
	document_real(&json, "sweep_s", (double)job->sweep_ns / 1e9);
	document_end(&json);
	document_print(&json);
}

static void print_text(
        const flytune_problem *problem, const struct flytune_job *job, const struct flytune_answer *answer)
{
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];

	printf("%s %s on %s: ", flytune_problem_kernel(problem), format_problem(problem, text), job->device);
	if (job->state != FLYTUNE_STATE_DONE)
		printf("%s: %s\n", flytune_state_word(job->state), job->reason);
	else
		printf("%s%s\n  %s  %s now\n", holds(job) ? "" : "swept anew: ", job->reason,
		        format_config(answer->knob, answer->knob_count, text),
		        format_time(answer->time_ns * 1000, time));
}

static enum ctl_exit check(struct ctl *ctl, const struct problems *problems, const char *device)
{
	const flytune_problem *problem = problems->problem[0];
	struct flytune_tune_options options;
	struct flytune_answer answer;
	struct flytune_error error;
	struct flytune_job job;

	flytune_tune_options_init(&options);
	flytune_answer_init(&answer);
	flytune_job_init(&job);
	options.device = device;
	options.check = 1;
	if (flytune_tune(ctl->client, problem, &options, &job, NULL, &error) != FLYTUNE_OK ||
	        flytune_wait(ctl->client, &job, FLYTUNE_FOREVER, NULL, NULL, &answer, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (!ctl->json)
		print_text(problem, &job, &answer);
	else
		print_json(problem, &job, &answer);
	return job.state == FLYTUNE_STATE_DONE ? CTL_DONE : CTL_JOB_FAILED;
}

static void explain(void)
{
	puts("The winner is timed beside the default alone, which takes a moment. If it no longer beats it, "
	     "or\n"
	     "there is none, the whole space is swept.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

const struct command command_check = {
        .name = "check",
        .words = "KERNEL --FIELD VALUE... [--device ID]",
        .help = "Time a winner beside the default, and sweep again if it no longer holds",
        .options = "device",
        .run_on = check,
        .explain = explain,
        .takes_kernel = true,
};
