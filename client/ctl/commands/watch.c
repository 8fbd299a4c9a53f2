/* flytunectl watch */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/output.h"
#include "client/ctl/output/progress.h"

enum { PAUSE_FIRST_MS = 50, PAUSE_LAST_MS = 1000 };

struct watch {
	struct ctl *ctl;
	struct flytune_job only;   /* number 0: all */
	bool once;                 /* ends with the daemon */
	bool here;                 /* the daemon is watched */
	struct flytune_error lost; /* why it has to be met anew; code FLYTUNE_OK: it need not */
	bool was_here;
	enum ctl_exit ended; /* of the one job */
	bool terminal;       /* the job that runs has a line of its own under the others, redrawn in place */
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
	enum flytune_result code;

	text[0] = '\0';
	flytune_job_init(&job);
	job.job = number;
	code = flytune_jobs(watch->ctl->client, &job, &list, NULL);
	if (code == FLYTUNE_E_MEMORY)
		output_short();
	if (code != FLYTUNE_OK)
		return text;
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
	if (strcmp(event->event, "away") == 0 || strcmp(event->event, "back") == 0) {
		printf("-- flytuned %s: %s\n", strcmp(event->event, "away") == 0 ? "went away" : "is back",
		        reason);
		return;
	}
	if (strcmp(event->event, "missed") == 0) {
		printf("-- %s\n", reason);
		return;
	}
	printf("job %" PRIu64 "  ", event->job);
	if (strcmp(event->event, "trial") == 0) {
		printf("[%" PRIu64 "/%" PRIu64 "] %s  %s", event->settled, event->trials,
		        format_config(event->knob, event->knob_count, text),
		        format_spread(event->time_ps, event->ci_ps, time));
		if (strcmp(event->status, "ok") != 0)
			printf("%s%s", event->time_ps == 0 ? "" : "  ", event->status);
	} else if (strcmp(event->event, "stage") == 0) {
		printf("%s", event->stage);
		if (event->space > 0)
			printf(", %" PRIu64 " of %" PRIu64 " configs tried", event->trials, event->space);
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
	if (event->job == 0 || strcmp(event->event, "queued") == 0 || strcmp(event->event, "missed") == 0)
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

static void print_json(const struct flytune_event *event)
{
	struct document json = {.style = DOCUMENT_DENSE};

	json_event(&json, NULL, event);
	document_print(&json);
}

/* Non-zero: nobody reads any more. */
static int show(struct watch *watch, const struct flytune_event *event)
{
	if (watch->ctl->json)
		print_json(event);
	else if (watch->terminal)
		show_on_terminal(watch, event);
	else
		print_event(watch, event);
	return output_flush() ? 0 : -1;
}

static enum ctl_exit exit_of_job(enum flytune_state state)
{
	return state == FLYTUNE_STATE_FAILED || state == FLYTUNE_STATE_CANCELLED ? CTL_JOB_FAILED : CTL_DONE;
}

static int show_back(struct watch *watch)
{
	struct flytune_event event = {.size = sizeof event, .event = "back"};
	struct flytune_status_info status;

	flytune_status_info_init(&status);
	if (flytune_status(watch->ctl->client, &status, NULL, NULL) == FLYTUNE_OK)
		snprintf(event.reason, sizeof event.reason,
		        "pid %" PRIu64 ", up %" PRIu64 ".%03" PRIu64
		        " s; what happened meanwhile is not shown",
		        status.pid, status.uptime_ns / 1000000000, status.uptime_ns / 1000000 % 1000);
	else
		snprintf(event.reason, sizeof event.reason, "what happened meanwhile is not shown");
	return show(watch, &event);
}

/* What may be over when the next daemon is there. */
static bool passes(enum flytune_result code)
{
	return code == FLYTUNE_E_AWAY || code == FLYTUNE_E_TIMEOUT || code == FLYTUNE_E_BUSY ||
	        code == FLYTUNE_E_UNAVAILABLE || code == FLYTUNE_E_SYSTEM;
}

/* One job may have ended before the events that come from here on: then none will say so. */
static int look(struct watch *watch)
{
	struct flytune_event end = {.size = sizeof end, .job = watch->only.job, .event = "ended"};
	flytune_job_list *list;
	struct flytune_job job;
	struct flytune_error error;

	if (watch->only.job == 0)
		return 0;
	if (flytune_jobs(watch->ctl->client, &watch->only, &list, &error) != FLYTUNE_OK) {
		/* The job may be over already: an event that says so is not to be counted on. */
		if (passes(error.code))
			watch->lost = error;
		else
			watch->ended = ctl_fail(watch->ctl, &error);
		return 1;
	}
	flytune_job_init(&job);
	(void)flytune_job_list_get(list, 0, &job);
	flytune_job_list_free(list);
	/* From now on it is the job of this store: the daemon that comes next may have another. */
	watch->only = job;
	if (job.state < FLYTUNE_STATE_DONE)
		return 0;
	end.state = job.state;
	end.trials = job.trials;
	end.settled = job.settled;
	end.round = job.rounds;
	snprintf(end.reason, sizeof end.reason, "%s", job.reason);
	watch->ended = exit_of_job(job.state);
	(void)show(watch, &end);
	return 1;
}

static int begin(struct watch *watch)
{
	if (watch->was_here && show_back(watch) != 0)
		return 1;
	watch->here = watch->was_here = true;
	return look(watch);
}

static int on_event(void *data, const struct flytune_event *event)
{
	struct watch *watch = data;

	/* A reader that is gone ends the watch. */
	if (show(watch, event) != 0)
		return 1;
	if (strcmp(event->event, "watching") == 0)
		return begin(watch);
	if (strcmp(event->event, "missed") == 0)
		return look(watch);
	if (watch->only.job == 0 || strcmp(event->event, "ended") != 0)
		return 0;
	watch->ended = exit_of_job(event->state);
	return 1;
}

/* Waits for the next try; false if nobody reads any more. */
static bool pause_before(int *pause_ms)
{
	struct pollfd output = {.fd = STDOUT_FILENO};

	if (poll(&output, 1, *pause_ms) > 0)
		return false;
	*pause_ms = 2 * *pause_ms < PAUSE_LAST_MS ? 2 * *pause_ms : PAUSE_LAST_MS;
	return true;
}

/* Goes on with the daemon that comes after one that went away. */
static enum flytune_result watch_all(struct watch *watch, struct flytune_error *error)
{
	struct flytune_event away = {.size = sizeof away, .event = "away"};
	int pause_ms = PAUSE_FIRST_MS;

	for (;;) {
		enum flytune_result code = flytune_watch(watch->ctl->client,
		        watch->only.job != 0 ? &watch->only : NULL, FLYTUNE_FOREVER, on_event, watch, error);

		/* What was asked beside the watch had no answer. */
		if (watch->lost.code != FLYTUNE_OK) {
			*error = watch->lost;
			code = error->code;
			watch->lost.code = FLYTUNE_OK;
		}
		if (code == FLYTUNE_OK || !watch->was_here || watch->once || !passes(code))
			return code;
		if (watch->here) {
			snprintf(away.reason, sizeof away.reason, "%.300s; waiting for it", error->message);
			if (show(watch, &away) != 0)
				return FLYTUNE_OK;
			watch->here = false;
			pause_ms = PAUSE_FIRST_MS;
		}
		if (!pause_before(&pause_ms))
			return FLYTUNE_OK;
	}
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct watch watch = {.ctl = ctl};
	struct flytune_error error;
	enum flytune_result code;

	flytune_job_init(&watch.only);
	for (int i = 0; i < count; i++) {
		if (strcmp(words[i], "--once") == 0)
			watch.once = true;
		else if (watch.only.job != 0)
			return stray_word(&command_watch, words[i]);
		else if (!job_number_read(words[i], &watch.only.job))
			return refuse_number(&command_watch, "the job", words[i]);
	}
	watch.terminal = !ctl->json && progress_terminal();
	if (watch.terminal)
		progress_leave_by_signal();
	code = watch_all(&watch, &error);
	if (watch.drawn)
		puts("");
	return code == FLYTUNE_OK ? watch.ended : ctl_fail(ctl, &error);
}

static void explain(void)
{
	puts("Prints what happens until it is interrupted, or until job ID has ended: then it exits as "
	     "`tune` "
	     "does.\n"
	     "When the daemon goes away it waits for the next one and goes on, with a line for each. On a\n"
	     "terminal the last line shows how far the job is that runs. With --json: an object a line.\n\n"
	     "  --once             end, with status 3, when the daemon goes away");
}

const struct command command_watch = {
        .name = "watch",
        .words = "[ID] [--once]",
        .help = "Follow the jobs as they run",
        .options = "once",
        .run = run,
        .is_stream = true,
        .explain = explain,
};
