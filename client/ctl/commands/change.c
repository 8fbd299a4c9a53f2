/* flytunectl pin, unpin, forget, pause, resume */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"

/* Says what was done to a problem, or writes it into `json`. */
static void put_change(const struct ctl *ctl, struct document *json, const flytune_problem *problem,
        const char *done, const char *undone, const struct flytune_change *change)
{
	char text[FORMAT_LONG_SIZE], token[64];

	snprintf(token, sizeof token, "%s:%" PRIu64, change->store, change->generation);
	if (!ctl->json) {
		printf("%s %s: %s, generation %s\n", flytune_problem_kernel(problem),
		        format_problem(problem, text), change->was_set || undone == NULL ? done : undone,
		        token);
		return;
	}
	document_object(json, NULL);
	document_text(json, "kernel", flytune_problem_kernel(problem));
	json_problem(json, "problem", problem);
	document_bool(json, "was_set", change->was_set);
	document_count(json, "generation", change->generation);
	document_text(json, "token", token);
	document_end(json);
}

static enum ctl_exit run_pin(struct ctl *ctl, int count, char **words)
{
	const char *device = NULL, *config = NULL;
	struct own_options own = {.device = &device, .config = &config};
	struct flytune_knob knobs[FLYTUNE_KNOBS_MAX];
	struct flytune_change change;
	struct flytune_error error;
	struct document json = {0};
	struct problems problems;
	size_t knob_count = 0;
	enum ctl_exit status = problems_read(ctl, &command_pin, count, words, &own, false, &problems);

	if (status != CTL_DONE)
		return status;
	flytune_change_init(&change);
	if (config == NULL)
		status = ctl_usage(&command_pin, "pin needs --config KNOB=VALUE[,KNOB=VALUE]...");
	else
		status = config_read_words(&command_pin, config, knobs, &knob_count);
	if (status == CTL_DONE &&
	        flytune_pin(ctl->client, problems.problem[0], device, knobs, knob_count, &change, &error) !=
	                FLYTUNE_OK)
		status = ctl_fail(ctl, &error);
	if (status == CTL_DONE)
		put_change(ctl, &json, problems.problem[0], "pinned", NULL, &change);
	if (status == CTL_DONE && ctl->json)
		document_print(&json);
	problems_free(&problems);
	return status;
}

typedef enum flytune_result change_call(flytune_client *client, const flytune_problem *problem,
        const char *device, struct flytune_change *change, struct flytune_error *error);

static enum ctl_exit run_change(struct ctl *ctl, const struct command *command, int count, char **words,
        change_call *call, const char *done, const char *undone)
{
	const char *device = NULL;
	struct own_options own = {.device = &device};
	struct flytune_change change;
	struct flytune_error error;
	struct document json = {0};
	struct problems problems;
	enum ctl_exit status = problems_read(ctl, command, count, words, &own, true, &problems);

	if (status != CTL_DONE)
		return status;
	if (problems.count > 1)
		document_array(&json, NULL);
	for (size_t i = 0; i < problems.count && status == CTL_DONE; i++) {
		flytune_change_init(&change);
		if (call(ctl->client, problems.problem[i], device, &change, &error) == FLYTUNE_OK)
			put_change(ctl, &json, problems.problem[i], done, undone, &change);
		else
			status = ctl_fail(ctl, &error);
	}
	if (problems.count > 1)
		document_end(&json);
	if (ctl->json && status == CTL_DONE)
		document_print(&json);
	else
		free(document_take(&json));
	problems_free(&problems);
	return status;
}

static enum ctl_exit run_unpin(struct ctl *ctl, int count, char **words)
{
	return run_change(
	        ctl, &command_unpin, count, words, flytune_unpin, "no longer pinned", "was not pinned");
}

static enum ctl_exit run_forget(struct ctl *ctl, int count, char **words)
{
	return run_change(
	        ctl, &command_forget, count, words, flytune_forget, "forgotten", "nothing was known");
}

static void explain_pin(void)
{
	puts("The answer of every lookup of that problem, until it is unpinned. Administrators only.\n\n"
	     "  --config KNOB=VALUE[,KNOB=VALUE]...   every knob of the kernel, as `lookup` shows them\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

static void explain_change(void)
{
	puts("Administrators only. Fields may be lists, as for `tune`. Lookups that name an earlier "
	     "generation\n"
	     "still get the answers of that time.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

const struct command command_pin = {
        .name = "pin",
        .words = "KERNEL --FIELD VALUE... --config KNOB=VALUE,... [--device ID]",
        .help = "Decide the configuration of a problem by hand",
        .options = "device config",
        .run = run_pin,
        .explain = explain_pin,
        .takes_kernel = true,
};

const struct command command_unpin = {
        .name = "unpin",
        .words = "KERNEL --FIELD VALUE... [--device ID]",
        .help = "Take a pin away",
        .options = "device",
        .run = run_unpin,
        .explain = explain_change,
        .takes_kernel = true,
};

const struct command command_forget = {
        .name = "forget",
        .words = "KERNEL --FIELD VALUE... [--device ID]",
        .help = "Forget pin, winner, import and trials of a problem",
        .options = "device",
        .run = run_forget,
        .explain = explain_change,
        .takes_kernel = true,
};

/* ---- the queue ---- */

static void print_paused(bool paused)
{
	struct document json = {0};

	document_object(&json, NULL);
	document_bool(&json, "paused", paused);
	document_end(&json);
	document_print(&json);
}

static enum ctl_exit run_pause(struct ctl *ctl, int count, char **words)
{
	struct flytune_error error;

	if (count > 0)
		return stray_word(&command_pause, words[0]);
	if (flytune_pause(ctl->client, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_paused(true);
	else
		puts("paused: no job runs until `flytunectl resume`");
	return CTL_DONE;
}

static enum ctl_exit run_resume(struct ctl *ctl, int count, char **words)
{
	struct flytune_error error;

	if (count > 0)
		return stray_word(&command_resume, words[0]);
	if (flytune_resume(ctl->client, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_paused(false);
	else
		puts("resumed");
	return CTL_DONE;
}

static void explain_pause(void)
{
	puts("Returns once nothing runs. The job that ran keeps what it measured, waits, and goes on after\n"
	     "`resume`. A pause outlives a restart of the daemon. Administrators only.");
}

const struct command command_pause = {
        .name = "pause",
        .words = "",
        .help = "Stop working the queue",
        .run = run_pause,
        .explain = explain_pause,
};

const struct command command_resume = {
        .name = "resume",
        .words = "",
        .help = "Go on working the queue",
        .run = run_resume,
};
