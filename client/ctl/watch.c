/* flytunectl watch */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/progress.h"

struct watch {
	struct ctl *ctl;
	uint64_t only; /* this job's; 0: all */
	bool terminal; /* the job that runs has a line of its own under the others, redrawn in place */
	bool drawn;
	uint64_t running, settled, trials, round;
	char stage[16];
};

/* What a job is about. It is asked for on another connection; a job that is gone meanwhile has no label. */
static const char *label_of(const struct watch *watch, uint64_t number, char text[FORMAT_LONG_SIZE])
{
	flytune_job_list *list;
	struct flytune_job job;
	char problem[FORMAT_LONG_SIZE];

	text[0] = '\0';
	if (flytune_jobs(watch->ctl->client, number, &list, NULL) != FLYTUNE_OK)
		return text;
	flytune_job_init(&job);
	if (flytune_job_list_get(list, 0, &job))
		snprintf(text, FORMAT_LONG_SIZE, "  %s %.900s on %s", job.kernel,
		        format_values(job.field, job.field_count, problem), job.device);
	flytune_job_list_free(list);
	return text;
}

static void print_event(const struct watch *watch, const struct flytune_event *event)
{
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];
	const char *reason = event->reason;

	if (strcmp(event->event, "watching") == 0)
		return;
	printf("job %" PRIu64 "  ", event->job);
	if (strcmp(event->event, "trial") == 0) {
		printf("[%" PRIu64 "/%" PRIu64 "] %s  %s", event->settled, event->trials,
		        format_config(event->knob, event->knob_count, text),
		        format_spread(event->time_ps, event->ci_ps, time));
		if (strcmp(event->status, "ok") != 0)
			printf("%s%s", event->time_ps == 0 ? "" : "  ", event->status);
	} else if (strcmp(event->event, "stage") == 0) {
		printf("%s", event->stage);
	} else if (strcmp(event->event, "round") == 0) {
		printf("round %" PRIu64 ", %" PRIu64 " of %" PRIu64 " settled", event->round, event->settled,
		        event->trials);
	} else if (strcmp(event->event, "ended") == 0) {
		printf("%s", flytune_state_word(event->state));
	} else {
		printf("%s%s", event->event,
		        strcmp(event->event, "restarted") == 0 ? "" : label_of(watch, event->job, text));
	}
	printf("%s%s\n", *reason == '\0' ? "" : ": ", reason);
}

static void follow(struct watch *watch, const struct flytune_event *event)
{
	if (event->job == 0 || strcmp(event->event, "queued") == 0)
		return;
	if (watch->running != event->job)
		watch->settled = watch->trials = watch->round = 0;
	if (watch->running != event->job || event->stage[0] != '\0')
		snprintf(watch->stage, sizeof watch->stage, "%s", event->stage);
	watch->running = strcmp(event->event, "ended") == 0 ? 0 : event->job;
	if (event->trials != 0) {
		watch->settled = event->settled;
		watch->trials = event->trials;
	}
	if (event->round != 0)
		watch->round = event->round;
}

/* Stages and rounds pass by in the last line; what stays has a line of its own. */
static void show_on_terminal(struct watch *watch, const struct flytune_event *event)
{
	bool passes = strcmp(event->event, "stage") == 0 || strcmp(event->event, "round") == 0;
	char before[32];

	if (watch->drawn)
		progress_take_back();
	watch->drawn = false;
	follow(watch, event);
	if (!passes)
		print_event(watch, event);
	if (watch->running == 0)
		return;
	snprintf(before, sizeof before, "job %" PRIu64 "  ", watch->running);
	progress_bar(before, watch->settled, watch->trials, watch->stage, watch->round);
	watch->drawn = true;
}

static int on_event(void *data, const struct flytune_event *event)
{
	struct watch *watch = data;

	if (watch->ctl->json)
		json_print_line(json_event(event));
	else if (watch->terminal)
		show_on_terminal(watch, event);
	else
		print_event(watch, event);
	/* A reader that is gone ends the watch. */
	if (fflush(stdout) != 0)
		return 1;
	return watch->only != 0 && strcmp(event->event, "ended") == 0;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct watch watch = {.ctl = ctl};
	struct flytune_error error;
	enum flytune_code code;

	if (count > 1)
		return ctl_usage(&command_watch, "'%s' is not understood", words[1]);
	if (count == 1 && !job_number_read(words[0], &watch.only))
		return ctl_usage(&command_watch, "'%s' is no job's number", words[0]);
	watch.terminal = !ctl->json && progress_terminal();
	code = flytune_watch(ctl->client, watch.only, FLYTUNE_FOREVER, on_event, &watch, &error);
	if (watch.drawn)
		puts("");
	return code == FLYTUNE_OK ? CTL_DONE : ctl_fail(ctl, &error);
}

static void explain(void)
{
	puts("Prints what happens until it is interrupted, or until job ID has ended. On a terminal the "
	     "last\n"
	     "line shows how far the job is that runs. With --json: an object a line.");
}

const struct command command_watch = {
        .name = "watch",
        .words = "[ID]",
        .help = "Follow the jobs as they run",
        .run = run,
        .explain = explain,
};
