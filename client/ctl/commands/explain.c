/* flytunectl explain: why a problem's winner won, in plain words */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/commands/explain.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"

/* The trials of one problem, sorted out. */
struct story {
	const flytune_problem *problem;
	const flytune_trial_list *list;
	struct flytune_trials_info info;
	struct flytune_trial *trial;
	size_t count;
	const struct flytune_trial *winner, *default_trial; /* NULL: there is none */
	const struct flytune_trial *closest;                /* of those that were dropped, the fastest */
	uint64_t first_drop;                                /* the least rounds after which one was dropped */
	size_t tied, dropped, same_code, failed, pruned, waiting, timed;
	double band;               /* 0.005 for half a percent */
	struct flytune_answer pin; /* where its source is that */
};

static bool is(const struct flytune_trial *trial, const char *status)
{
	return strcmp(trial->status, status) == 0;
}

static bool is_out(const struct flytune_trial *trial)
{
	return is(trial, "wrong") || is(trial, "failed") || is(trial, "timeout") || is(trial, "suspect");
}

static void sort_out(struct story *story, const struct flytune_trial *trial)
{
	if (trial->is_winner)
		story->winner = trial;
	if (trial->is_default)
		story->default_trial = trial;
	if (is(trial, "same_code_as"))
		story->same_code++;
	else if (is(trial, "pruned"))
		story->pruned++;
	else if (is_out(trial) && !is(trial, "suspect"))
		story->failed++;
	else if (trial->time_ps == 0 || is(trial, "suspect"))
		story->waiting++;
	if (!is(trial, "ok") || trial->time_ps == 0)
		return;
	story->timed++;
	story->tied += trial->tied && !trial->is_winner;
	if (trial->dropped_round == 0)
		return;
	story->dropped++;
	if (story->first_drop == 0 || trial->dropped_round < story->first_drop)
		story->first_drop = trial->dropped_round;
	if (trial->ratio > 1 && (story->closest == NULL || trial->ratio < story->closest->ratio))
		story->closest = trial;
}

static bool story_begin(struct story *story, const flytune_problem *problem, const flytune_trial_list *list)
{
	*story = (struct story){.problem = problem, .list = list, .count = flytune_trial_list_count(list)};
	flytune_trials_info_init(&story->info);
	flytune_trial_list_info(list, &story->info);
	story->band = (double)story->info.band_ppm / 1e6;
	story->trial = calloc(story->count + 1, sizeof *story->trial);
	for (size_t i = 0; i < story->count && story->trial != NULL; i++) {
		flytune_trial_init(&story->trial[i]);
		flytune_trial_list_get(list, i, &story->trial[i]);
		sort_out(story, &story->trial[i]);
	}
	return story->trial != NULL;
}

/* How much longer the default takes than the winner, as the decision has it; and at least. 0 if that is not known. */
static double gain_of(const struct story *story, double *least)
{
	const struct flytune_trials_info *info = &story->info;

	*least = info->gain_least_ppm > 0 ? (double)info->gain_least_ppm / 1e6 - 1 : 0;
	return info->gain_ppm > 0 && story->winner != story->default_trial ? (double)info->gain_ppm / 1e6 - 1
	                                                                   : 0;
}

/* Trials know nothing of pins: what is served is asked for as a program would, but never with a sweep first. */
static enum ctl_exit find_pin(struct story *story, const struct ctl *ctl)
{
	struct flytune_options options;
	struct flytune_error error;
	flytune_client *client;
	enum ctl_exit status = CTL_DONE;

	ctl_client_options(ctl, &options);
	options.device = story->info.device;
	options.autotune = FLYTUNE_AUTOTUNE_USUAL;
	flytune_answer_init(&story->pin);
	client = flytune_open(&options, &error);
	if (client == NULL || flytune_lookup(client, story->problem, NULL, &story->pin, &error) != FLYTUNE_OK)
		status = ctl_fail(ctl, &error);
	else if ((story->pin.flags & FLYTUNE_ANSWER_AWAY) != 0)
		status = ctl_refused("whether it is pinned is not known: the daemon did not answer: %s",
		        story->pin.reason);
	flytune_close(client);
	return status;
}

enum role { ROLE_ONE_VALUE, ROLE_SAME_CODE, ROLE_UNTIMED, ROLE_LITTLE, ROLE_MATTERED };

static enum role role_of(const struct story *story, const struct flytune_effect *effect)
{
	if (effect->value_count < 2)
		return ROLE_ONE_VALUE;
	if (effect->pairs > 0 && effect->same_pairs == effect->pairs)
		return ROLE_SAME_CODE;
	if (!effect->timed)
		return ROLE_UNTIMED;
	return effect->loss_least > story->band ? ROLE_MATTERED : ROLE_LITTLE;
}

static const char *const role_words[] = {
        [ROLE_ONE_VALUE] = "one value",
        [ROLE_SAME_CODE] = "same code",
        [ROLE_UNTIMED] = "not timed",
        [ROLE_LITTLE] = "no difference",
        [ROLE_MATTERED] = "mattered",
};

/* ---- text ---- */

static const char *config_text(const struct flytune_trial *trial, char text[FORMAT_LONG_SIZE])
{
	return format_config(trial->knob, trial->knob_count, text);
}

static void print_winner(const struct story *story)
{
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];
	double least, gain = gain_of(story, &least);

	if (story->winner == NULL) {
		puts("No config has won yet: the sweep is not over, or none could be used.");
		return;
	}
	printf("%s wins with %s.\n", config_text(story->winner, text),
	        format_spread(story->winner->time_ps, story->winner->ci_ps, time));
	if (story->winner == story->default_trial)
		printf("It is the default%s.\n",
		        story->timed > 1 ? ": nothing was found that beats it clearly"
		                         : ", and the only one that could be timed");
	else if (gain != 0)
		printf("It is %.1f %% faster than the default, %s; at least %.1f %%, by the rounds that both "
		       "were "
		       "in%s.\n",
		        gain * 100, config_text(story->default_trial, text), (least > 0 ? least : 0) * 100,
		        story->info.conclusive ? "" : " (unsettled)");
	else if (story->default_trial != NULL)
		printf("What it gains over the default, %s, is not known: no round had both (%s).\n",
		        config_text(story->default_trial, text), story->default_trial->status);
	if (story->info.reason[0] != '\0')
		printf("Why: %s.\n", story->info.reason);
}

static void print_ties(const struct story *story)
{
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];

	if (story->winner == NULL || story->tied == 0)
		return;
	printf("\nTied with it, within %.2g %% of the best as far as is known (the rule takes the default "
	       "first,\nthen the config that uses less of the machine):\n",
	        story->band * 100);
	for (size_t i = 0; i < story->count; i++) {
		const struct flytune_trial *trial = &story->trial[i];

		if (trial->tied && !trial->is_winner)
			printf("  %s  %s\n", config_text(trial, text),
			        format_spread(trial->time_ps, trial->ci_ps, time));
	}
}

static void print_count(bool *first, size_t count, const char *what)
{
	if (count > 0)
		printf("%s%zu %s", *first ? " " : ", ", count, what);
	*first = *first && count == 0;
}

static void print_others(const struct story *story)
{
	char text[FORMAT_LONG_SIZE];
	bool first = true;

	if (story->info.space > story->count)
		printf("\nOf %" PRIu64 " configs %.3g %% were tried. Of these %zu:", story->info.space,
		        (double)story->info.seen_ppm / 1e4, story->count);
	else
		printf("\nOf %zu configs:", story->count);
	print_count(&first, story->timed, "were timed");
	print_count(&first, story->dropped, "of these dropped as clearly slower");
	print_count(&first, story->same_code, "had the machine code of another");
	print_count(&first, story->failed, "failed or were wrong");
	print_count(&first, story->pruned, "could not win and were not tried");
	print_count(&first, story->waiting, "were not timed yet");
	puts(".");
	if (story->closest != NULL)
		printf("The first was dropped after %" PRIu64 " rounds; the closest of them, %s, was %.1f %% "
		       "slower than the best.\n",
		        story->first_drop, config_text(story->closest, text),
		        (story->closest->ratio - 1) * 100);
	for (size_t i = 0; i < story->count; i++) {
		const struct flytune_trial *trial = &story->trial[i];

		if (is_out(trial))
			printf("  %s: %s: %s\n", config_text(trial, text), trial->status, trial->reason);
	}
}

static void print_values(const struct flytune_effect *effect)
{
	const char *separator = "";
	char text[FORMAT_SIZE];

	for (uint32_t v = 0; v < effect->value_count; v++) {
		if (effect->ratio[v] == 0)
			continue;
		printf("%s%s +%.1f %%", separator, format_knob(&effect->value[v], text),
		        (effect->ratio[v] - 1) * 100 > 0.05 ? (effect->ratio[v] - 1) * 100 : 0);
		separator = ", ";
	}
}

static void print_effect(const struct story *story, const struct flytune_effect *effect)
{
	enum role role = role_of(story, effect);
	char winner[FORMAT_SIZE], default_knob[FORMAT_SIZE];

	printf("  %s", effect->name);
	switch (role) {
	case ROLE_ONE_VALUE:
		puts(": only one value was tried.");
		return;
	case ROLE_SAME_CODE:
		printf(" did nothing: the machine code is the same in all %" PRIu64
		       " pairs of configs that differ in it alone.\n",
		        effect->pairs);
		return;
	case ROLE_UNTIMED:
		puts(": too little was timed to say.");
		return;
	case ROLE_LITTLE:
		if (effect->loss <= story->band)
			printf(" made no difference that counts, %.1f %%: ", effect->loss * 100);
		else
			printf(" may have mattered, by %.1f %%, but no more than the noise: ",
			        effect->loss * 100);
		break;
	case ROLE_MATTERED:
		printf(" mattered: the wrong value costs %.1f %% (at least %.1f %%)", effect->loss * 100,
		        effect->loss_least * 100);
		if (strcmp(format_knob(&effect->winner_knob, winner),
		            format_knob(&effect->default_knob, default_knob)) != 0 &&
		        effect->default_loss > story->band)
			printf(", the default's %s costs %.1f %%",
			        format_knob(&effect->default_knob, default_knob), effect->default_loss * 100);
		printf(": ");
		break;
	}
	print_values(effect);
	puts(".");
	if (effect->same_pairs > 0)
		printf("    In %" PRIu64 " of %" PRIu64
		       " pairs that differ in it alone it changed nothing in the machine code.\n",
		        effect->same_pairs, effect->pairs);
	if (effect->changes_bits)
		puts("    It can change the last bits of results.");
}

static void print_knobs(const struct story *story)
{
	struct flytune_effect effect;

	flytune_effect_init(&effect);
	if (story->timed == 0 || !flytune_trial_list_effect(story->list, 0, &effect))
		return;
	puts("\nKnobs (the best time with each value, over the best of all):");
	for (size_t i = 0; flytune_trial_list_effect(story->list, i, &effect); i++)
		print_effect(story, &effect);
}

static void print_measuring(const struct story *story)
{
	const struct flytune_trials_info *info = &story->info;
	char time[FORMAT_SIZE];

	printf("\nMeasured in %" PRIu64 " rounds, %s of sweeping in all; ", info->rounds,
	        format_duration(info->sweep_ns, time));
	if (story->winner == NULL)
		puts("not decided.");
	else if (info->conclusive)
		puts("the race was settled: no more rounds would have changed it.");
	else
		puts("the race ended before it was settled: what is tied may be the better choice.");
	if (story->winner != NULL && story->winner->time_ps > 0)
		printf("The winner's time is known to ±%.2f %%.\n",
		        (double)story->winner->ci_ps / (double)story->winner->time_ps * 100);
	if (info->method[0] != '\0')
		printf("How: %s.\n", info->method);
}

/* What lookups get instead of the winner. */
static void print_pin(const struct story *story)
{
	char text[FORMAT_LONG_SIZE], date[FORMAT_SIZE];

	if (story->pin.source != FLYTUNE_SOURCE_PINNED)
		return;
	printf("Pinned by hand to %s", format_config(story->pin.knob, story->pin.knob_count, text));
	if (story->pin.tuned_at_ns != 0)
		printf(", %s", format_date(story->pin.tuned_at_ns, date));
	puts(": every lookup gets that. Without the pin:");
}

static void print_story(const struct story *story)
{
	char text[FORMAT_LONG_SIZE];

	printf("%s %s on %s\n", flytune_problem_kernel(story->problem), format_problem(story->problem, text),
	        story->info.device);
	print_pin(story);
	print_winner(story);
	print_ties(story);
	print_others(story);
	print_knobs(story);
	print_measuring(story);
}

/* ---- JSON ---- */

static void json_known(struct document *json, const char *name, const struct flytune_trial *trial)
{
	if (trial == NULL)
		document_null(json, name);
	else
		json_trial(json, name, trial);
}

static void json_percent(struct document *json, const char *name, bool known, double share)
{
	if (known)
		document_real(json, name, share * 100);
	else
		document_null(json, name);
}

static void json_effect(struct document *json, const struct story *story, const struct flytune_effect *effect)
{
	document_object(json, NULL);
	document_text(json, "name", effect->name);
	document_text(json, "role", role_words[role_of(story, effect)]);
	json_percent(json, "loss_percent", effect->timed, effect->loss);
	json_percent(json, "loss_least_percent", effect->timed, effect->loss_least);
	json_percent(json, "default_loss_percent", effect->timed, effect->default_loss);
	document_bool(json, "changes_bits", effect->changes_bits);
	document_count(json, "pairs", effect->pairs);
	document_count(json, "same_code_pairs", effect->same_pairs);
	document_array(json, "values");
	for (uint32_t v = 0; v < effect->value_count; v++) {
		document_object(json, NULL);
		json_knob(json, "value", &effect->value[v]);
		json_percent(json, "over_best_percent", effect->ratio[v] != 0, effect->ratio[v] - 1);
		document_end(json);
	}
	document_end(json);
	document_end(json);
}

static void json_configs(struct document *json, const struct story *story)
{
	document_object(json, "configs");
	document_count(json, "timed", story->timed);
	document_count(json, "dropped", story->dropped);
	document_count(json, "same_code", story->same_code);
	document_count(json, "failed", story->failed);
	document_count(json, "pruned", story->pruned);
	document_count(json, "waiting", story->waiting);
	document_end(json);
}

static void json_tied(struct document *json, const struct story *story)
{
	document_array(json, "tied");
	for (size_t i = 0; i < story->count; i++) {
		const struct flytune_trial *trial = &story->trial[i];

		if (trial->tied && !trial->is_winner)
			json_config(json, NULL, trial->knob, trial->knob_count);
	}
	document_end(json);
}

static void json_knobs(struct document *json, const struct story *story)
{
	struct flytune_effect effect;

	flytune_effect_init(&effect);
	document_array(json, "knobs");
	for (size_t i = 0; flytune_trial_list_effect(story->list, i, &effect); i++)
		json_effect(json, story, &effect);
	document_end(json);
}

static void json_story(struct document *json, const char *name, const struct story *story)
{
	double least, gain = gain_of(story, &least);

	document_object(json, name);
	document_text(json, "kernel", flytune_problem_kernel(story->problem));
	json_problem(json, "problem", story->problem);
	json_text(json, "device", story->info.device);
	json_text(json, "identity", story->info.identity);
	if (story->pin.source == FLYTUNE_SOURCE_PINNED)
		json_config(json, "pin", story->pin.knob, story->pin.knob_count);
	else
		document_null(json, "pin");
	json_known(json, "winner", story->winner);
	json_known(json, "default", story->default_trial);
	json_percent(json, "gain_percent", gain != 0, gain);
	json_percent(json, "gain_least_percent", gain != 0, least);
	document_text(json, "reason", story->info.reason);
	document_bool(json, "conclusive", story->info.conclusive);
	document_bool(json, "unsettled", story->winner != NULL && !story->info.conclusive);
	json_tied(json, story);
	json_knobs(json, story);
	json_configs(json, story);
	json_percent(json, "band_percent", true, story->band);
	document_count(json, "rounds", story->info.rounds);
	document_count(json, "seed", story->info.seed);
	document_real(json, "sweep_s", (double)story->info.sweep_ns / 1e9);
	json_text(json, "method", story->info.method);
	document_end(json);
}

enum ctl_exit explain_problem(struct ctl *ctl, const flytune_problem *problem, const char *device,
        struct document *json, const char *name)
{
	struct story story;
	flytune_trial_list *list;
	struct flytune_error error;
	enum ctl_exit status = CTL_DONE;

	if (flytune_trials(ctl->client, problem, device, &list, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (!story_begin(&story, problem, list))
		status = ctl_short();
	else if (story.count > 0 || ctl->json)
		status = find_pin(&story, ctl);
	if (status == CTL_DONE && ctl->json)
		json_story(json, name, &story);
	else if (status == CTL_DONE && story.count == 0)
		puts("nothing to explain: the problem has not been tuned");
	else if (status == CTL_DONE)
		print_story(&story);
	free(story.trial);
	flytune_trial_list_free(list);
	return status;
}

static enum ctl_exit run_on(struct ctl *ctl, const struct problems *problems, const char *device)
{
	struct document json = {0};
	enum ctl_exit status = explain_problem(ctl, problems->problem[0], device, &json, NULL);

	if (ctl->json && status == CTL_DONE)
		document_print(&json);
	return status;
}

static void explain(void)
{
	puts("Tells what the winner gains, what it is tied with, which knobs mattered and which did nothing, "
	     "and\n"
	     "how the measuring went. `trials` has the figures.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

const struct command command_explain = {
        .name = "explain",
        .words = "KERNEL --FIELD VALUE... [--device ID]",
        .help = "Say in plain words why the winner of a problem won",
        .options = "device",
        .run_on = run_on,
        .explain = explain,
        .takes_kernel = true,
};
