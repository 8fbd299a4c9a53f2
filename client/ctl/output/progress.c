#include "client/ctl/output/progress.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/output/format.h"
#include "client/ctl/output/output.h"

enum { BAR_WIDTH = 30 };

void progress_begin(struct progress *progress, bool silent)
{
	*progress = (struct progress){.silent = silent, .terminal = progress_terminal()};
	if (progress->terminal && !silent)
		progress_leave_by_signal();
}

bool progress_terminal(void)
{
	const char *term = secure_getenv("TERM");

	return isatty(STDOUT_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
}

static void leave(int number)
{
	static const char end[] = "\033[?7h\n";

	(void)!write(STDOUT_FILENO, end, sizeof end - 1);
	(void)raise(number); /* the handler was reset when it was entered */
}

void progress_leave_by_signal(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT};
	struct sigaction action = {.sa_handler = leave, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
	struct sigaction before;

	(void)sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		/* What whoever started this chose to ignore stays ignored. */
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
			(void)sigaction(numbers[i], &action, NULL);
	}
}

void progress_bar(const char *before, uint64_t settled, uint64_t trials, const char *stage, uint64_t round)
{
	uint64_t filled = trials == 0 ? 0 : settled * BAR_WIDTH / trials;

	/* Cut at the edge: what wraps cannot be taken back. */
	printf("\033[?7l%s[", before);
	for (uint64_t i = 0; i < BAR_WIDTH; i++)
		putchar(i < filled ? '#' : '.');
	printf("] %" PRIu64 " of %" PRIu64 " settled", settled, trials);
	if (*stage != '\0')
		printf(", %s", stage);
	if (round > 0)
		printf(", round %" PRIu64, round);
	fputs("\033[?7h", stdout);
	(void)output_flush();
}

void progress_take_back(void)
{
	fputs("\r\033[K", stdout);
}

static void clear_bar(struct progress *progress)
{
	if (progress->drawn)
		progress_take_back();
	progress->drawn = false;
}

static void draw_bar(struct progress *progress)
{
	if (!progress->terminal)
		return;
	clear_bar(progress);
	progress_bar("", progress->settled, progress->trials, progress->stage, progress->round);
	progress->drawn = true;
}

static bool was_shown(const struct progress *progress, const char *config)
{
	for (size_t i = 0; i < progress->count; i++) {
		if (strcmp(progress->shown[i], config) == 0)
			return true;
	}
	return false;
}

/* Out of memory a line may come twice. */
static void remember(struct progress *progress, const char *config)
{
	if (progress->count == progress->capacity) {
		size_t capacity = progress->capacity == 0 ? 32 : progress->capacity * 2;
		char **shown = realloc(progress->shown, capacity * sizeof *shown);

		if (shown == NULL) {
			output_short();
			return;
		}
		progress->shown = shown;
		progress->capacity = capacity;
	}
	progress->shown[progress->count] = strdup(config);
	if (progress->shown[progress->count] != NULL)
		progress->count++;
	else
		output_short();
}

static void show_trial(struct progress *progress, const char *config, const char *status, uint64_t time_ps,
        uint64_t ci_ps, const char *reason)
{
	char time[FORMAT_SIZE];
	bool fine = strcmp(status, "ok") == 0 || *status == '\0';

	/* Of a suspect there is more to come: it is tried once more. */
	if (strcmp(status, "suspect") == 0 || was_shown(progress, config))
		return;
	remember(progress, config);
	clear_bar(progress);
	printf("[%zu/%" PRIu64 "] %s  %s", progress->count,
	        progress->trials > progress->count ? progress->trials : progress->count, config,
	        format_spread(time_ps, ci_ps, time));
	if (!fine)
		printf("%s%s", time_ps == 0 ? "" : "  ", status);
	if (*reason != '\0')
		printf("%s%s", fine ? "  " : ": ", reason);
	puts("");
}

void progress_event(struct progress *progress, const struct flytune_event *event)
{
	char config[FORMAT_LONG_SIZE];

	if (progress->silent)
		return;
	if (event->trials != 0) {
		progress->trials = event->trials;
		progress->settled = event->settled;
	}
	if (event->round != 0)
		progress->round = event->round;
	if (event->stage[0] != '\0')
		memcpy(progress->stage, event->stage, sizeof progress->stage);
	if (strcmp(event->event, "trial") == 0) {
		format_config(event->knob, event->knob_count, config);
		show_trial(progress, config, event->status, event->time_ps, event->ci_ps, event->reason);
	} else if (strcmp(event->event, "restarted") == 0) {
		clear_bar(progress);
		printf("the runner was started again%s%s\n", event->reason[0] == '\0' ? "" : ": ",
		        event->reason);
	}
	draw_bar(progress);
	(void)output_flush();
}

void progress_complete(struct progress *progress, const flytune_trial_list *list)
{
	struct flytune_trial trial;
	char config[FORMAT_LONG_SIZE];

	if (progress->silent)
		return;
	flytune_trial_init(&trial);
	for (size_t i = 0; flytune_trial_list_get(list, i, &trial); i++) {
		if (strcmp(trial.status, "pruned") == 0 || strcmp(trial.status, "waiting") == 0)
			continue;
		format_config(trial.knob, trial.knob_count, config);
		show_trial(progress, config, trial.status, trial.time_ps, trial.ci_ps, trial.reason);
	}
}

void progress_end(struct progress *progress)
{
	clear_bar(progress);
	(void)output_flush();
	for (size_t i = 0; i < progress->count; i++)
		free(progress->shown[i]);
	free(progress->shown);
	*progress = (struct progress){0};
}
