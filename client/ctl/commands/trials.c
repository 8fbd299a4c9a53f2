/* flytunectl trials */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/output.h"
#include "client/ctl/output/table.h"

static void print_json(const flytune_problem *problem, const flytune_trial_list *list)
{
	struct flytune_trials_info info;
	struct flytune_trial trial;
	struct document json = {0};

	flytune_trials_info_init(&info);
	flytune_trial_list_info(list, &info);
	flytune_trial_init(&trial);
	document_object(&json, NULL);
	document_text(&json, "kernel", flytune_problem_kernel(problem));
	json_problem(&json, "problem", problem);
	json_text(&json, "device", info.device);
	json_text(&json, "identity", info.identity);
	document_count(&json, "rounds", info.rounds);
	document_count(&json, "seed", info.seed);
	document_bool(&json, "conclusive", info.conclusive);
	json_gain(&json, 1000000, info.gain_ppm, info.gain_least_ppm, info.gain_ppm > 0 && !info.conclusive);
	json_share(&json, "seen", info.seen_ppm);
	document_count(&json, "space", info.space);
	json_text(&json, "method", info.method);
	document_array(&json, "trials");
	for (size_t i = 0; flytune_trial_list_get(list, i, &trial); i++)
		json_trial(&json, NULL, &trial);
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

/* Why a trial is where it is, in a few words. */
static void describe(const struct flytune_trial *trial, char *text, size_t size)
{
	char same[FORMAT_LONG_SIZE], when[FORMAT_SIZE] = "";

	if (trial->dropped_round > 0)
		snprintf(when, sizeof when, "dropped after %" PRIu64 " rounds%s", trial->dropped_round,
		        trial->reason[0] != '\0' ? ": " : "");

	snprintf(text, size, "%s%s%s%s%s%s", trial->is_winner ? "winner" : "",
	        trial->is_winner && trial->is_default ? ", " : "", trial->is_default ? "default" : "",
	        (trial->is_winner || trial->is_default) && (trial->reason[0] != '\0' || when[0] != '\0')
	                ? ": "
	                : "",
	        when, trial->reason);
	if (trial->tied && !trial->is_winner)
		snprintf(text + strlen(text), size - strlen(text), "%stied with the best",
		        text[0] != '\0' ? "; " : "");
	if (trial->same_as_count > 0) {
		size_t length = strlen(text);

		snprintf(text + length, size - length, "%s%s", length > 0 ? "; " : "",
		        format_config(trial->same_as, trial->same_as_count, same));
	}
}

/* The winner, then those that were timed, the fastest first, then the rest as they came. */
static int compare(const void *a, const void *b)
{
	const struct flytune_trial *const *first = a, *const *second = b;
	uint64_t one = (*first)->time_ps == 0 ? UINT64_MAX : (*first)->time_ps;
	uint64_t other = (*second)->time_ps == 0 ? UINT64_MAX : (*second)->time_ps;

	if ((*first)->is_winner != (*second)->is_winner)
		return (*second)->is_winner - (*first)->is_winner;
	if (one != other)
		return one < other ? -1 : 1;
	/* They are elements of one array. */
	return (*first > *second) - (*first < *second);
}

static bool is_pruned(const struct flytune_trial *trial)
{
	return strcmp(trial->status, "pruned") == 0;
}

static void add_row(struct table *table, const struct flytune_trial *trial)
{
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE], note[TABLE_CELL_SIZE];

	describe(trial, note, sizeof note);
	table_add(table, "%s", format_config(trial->knob, trial->knob_count, text));
	table_add(table, "%s", trial->status);
	table_add(table, "%s", format_spread(trial->time_ps, trial->ci_ps, time));
	table_count(table, trial->rounds);
	table_count(table, trial->registers);
	table_count(table, trial->spills);
	table_add(table, "%.12s", trial->code);
	table_add(table, "%s", note);
}

/* Most of a space cannot win on a given problem, and why is said once for all of them. */
static void print_pruned(const struct flytune_trial *const *order, size_t count)
{
	bool *counted = calloc(count + 1, sizeof *counted);

	if (counted == NULL)
		output_short();
	for (size_t i = 0; counted != NULL && i < count; i++) {
		size_t alike = 0;

		if (counted[i] || !is_pruned(order[i]))
			continue;
		for (size_t k = i; k < count; k++) {
			if (is_pruned(order[k]) && strcmp(order[k]->reason, order[i]->reason) == 0) {
				counted[k] = true;
				alike++;
			}
		}
		printf("%zu not tried: %s\n", alike, order[i]->reason);
	}
	free(counted);
}

static enum ctl_exit print_table(const flytune_problem *problem, const flytune_trial_list *list)
{
	static const char *const head[] = {
	        "CONFIG", "STATUS", ">TIME", ">ROUNDS", ">REGISTERS", ">SPILLS", "CODE", "NOTE"};
	size_t count = flytune_trial_list_count(list);
	struct flytune_trial *trial = calloc(count + 1, sizeof *trial);
	const struct flytune_trial **order = calloc(count + 1, sizeof(const struct flytune_trial *));
	struct flytune_trials_info info;
	struct table table;
	char text[FORMAT_LONG_SIZE], gain[FORMAT_SIZE];

	if (trial == NULL || order == NULL) {
		free(trial);
		free(order);
		return ctl_short();
	}
	for (size_t i = 0; i < count; i++) {
		flytune_trial_init(&trial[i]);
		flytune_trial_list_get(list, i, &trial[i]);
		order[i] = &trial[i];
	}
	qsort(order, count, sizeof(const struct flytune_trial *), compare);
	flytune_trials_info_init(&info);
	flytune_trial_list_info(list, &info);
	printf("%s %s on %s: %zu trials, %" PRIu64 " rounds%s\n", flytune_problem_kernel(problem),
	        format_problem(problem, text), info.device, count, info.rounds,
	        info.rounds > 0 && !info.conclusive ? ", not settled" : "");
	if (info.space > count)
		printf("of %" PRIu64 " configs that there are %.3g %% were tried\n", info.space,
		        (double)info.seen_ppm / 1e4);
	if (info.gain_ppm != 0)
		printf("the winner's gain over the default: %s\n",
		        format_gain(1000000, info.gain_ppm, info.gain_least_ppm, !info.conclusive, gain));
	if (info.method[0] != '\0')
		printf("%s\n", info.method);
	table_init(&table, head, sizeof head / sizeof head[0]);
	for (size_t i = 0; i < count; i++) {
		if (!is_pruned(order[i]))
			add_row(&table, order[i]);
	}
	table_print(&table);
	print_pruned(order, count);
	free(trial);
	free(order);
	return CTL_DONE;
}

static enum ctl_exit list_trials(struct ctl *ctl, const struct problems *problems, const char *device)
{
	flytune_trial_list *list;
	struct flytune_error error;
	enum ctl_exit status = CTL_DONE;

	if (flytune_trials(ctl->client, problems->problem[0], device, &list, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_json(problems->problem[0], list);
	else if (flytune_trial_list_count(list) == 0)
		puts("no trial: the problem has not been tuned");
	else
		status = print_table(problems->problem[0], list);
	flytune_trial_list_free(list);
	return status;
}

static void explain(void)
{
	puts("Those that cannot win on this problem are counted by reason; with --json they are listed.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

const struct command command_trials = {
        .name = "trials",
        .words = "KERNEL --FIELD VALUE... [--device ID]",
        .help = "List what is known of every configuration of a problem",
        .options = "device",
        .run_on = list_trials,
        .explain = explain,
        .takes_kernel = true,
};
