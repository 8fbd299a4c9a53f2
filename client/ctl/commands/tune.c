/* flytunectl tune */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/commands/explain.h"
#include "client/ctl/commands/tune.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/model/model.h"
#include "client/ctl/output/output.h"
#include "client/ctl/output/progress.h"
#include "client/ctl/output/table.h"

/* One problem on its way. */
struct tuned {
	const flytune_problem *problem;
	bool ended;                   /* else only queued */
	struct flytune_job job;       /* its number is 0: there was a winner already */
	struct flytune_answer answer; /* once there is a winner */
	uint64_t trials;
};

struct tuning {
	struct ctl *ctl;
	struct flytune_tune_options options;
	bool wait, explains;
	struct tuned *tuned;
	size_t count;
	struct progress progress;
	enum ctl_exit status; /* to end with, once all is printed */
};

static bool has_answer(const struct tuned *tuned)
{
	return tuned->job.job == 0 || (tuned->ended && tuned->job.state == FLYTUNE_STATE_DONE);
}

static bool has_failed(const struct tuned *tuned)
{
	return tuned->ended && tuned->job.state != FLYTUNE_STATE_DONE;
}

/* ---- JSON ---- */

static void json_tuned(struct document *json, const char *name, const struct tuned *tuned)
{
	document_object(json, name);
	if (has_answer(tuned))
		json_answer_members(json, tuned->problem, &tuned->answer);
	else
		json_no_answer_members(json, tuned->problem, tuned->job.device, tuned->job.reason);
	if (tuned->job.job == 0) {
		document_null(json, "job");
		document_text(json, "state", flytune_state_word(FLYTUNE_STATE_DONE));
	} else {
		document_count(json, "job", tuned->job.job);
		document_text(json, "state", tuned->ended ? flytune_state_word(tuned->job.state) : "queued");
	}
	document_count(json, "trials", tuned->trials);
	document_real(json, "sweep_s", (double)tuned->job.sweep_ns / 1e9);
	document_real(json, "waited_s", (double)tuned->job.waited_ns / 1e9);
	document_end(json);
}

static enum ctl_exit json_explained(
        const struct tuning *tuning, struct document *json, const struct tuned *tuned)
{
	enum ctl_exit status;

	document_object(json, NULL);
	json_tuned(json, "tuned", tuned);
	status = explain_problem(tuning->ctl, tuned->problem, tuning->options.device, json, "explained");
	document_end(json);
	return status;
}

static enum ctl_exit print_json(const struct tuning *tuning)
{
	struct document json = {0};
	enum ctl_exit status = CTL_DONE;

	document_array(&json, NULL);
	for (size_t i = 0; i < tuning->count && status == CTL_DONE; i++) {
		if (tuning->explains)
			status = json_explained(tuning, &json, &tuning->tuned[i]);
		else
			json_tuned(&json, NULL, &tuning->tuned[i]);
	}
	document_end(&json);
	if (status == CTL_DONE)
		document_print(&json);
	else
		free(document_take(&json));
	return status;
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
		table_add(table, "job %" PRIu64 "%s%s", tuned->job.job,
		        tuned->job.reason[0] == '\0' ? "" : ": ", tuned->job.reason);
		return;
	}
	table_add(table, "%s", format_config(answer->knob, answer->knob_count, text));
	table_add(table, "%s", format_time(answer->time_ns * 1000, time));
	table_add(table, "%s",
	        format_gain(1000000, answer->gain_ppm, answer->gain_least_ppm, answer->unsettled, time));
	table_add(table, "%s", flytune_source_word(answer->source));
	table_add(table, "%s", tuned->job.sweep_ns == 0 ? "" : format_duration(tuned->job.sweep_ns, time));
	if (tuned->job.job == 0)
		table_add(table, "%s", "known already");
	else
		table_add(table, "job %" PRIu64, tuned->job.job);
}

static enum ctl_exit print_table(const struct tuning *tuning)
{
	static const char *const head[] = {"PROBLEM", "CONFIG", ">TIME", ">GAIN", "SOURCE", ">SWEEP", "NOTE"};
	struct table table;

	table_init(&table, head, sizeof head / sizeof *head);
	for (size_t i = 0; i < tuning->count; i++)
		print_row(&table, &tuning->tuned[i]);
	table_print(&table);
	for (size_t i = 0; i < tuning->count && tuning->explains; i++) {
		enum ctl_exit status;

		puts("");
		status = explain_problem(
		        tuning->ctl, tuning->tuned[i].problem, tuning->options.device, NULL, NULL);
		if (status != CTL_DONE)
			return status;
	}
	return CTL_DONE;
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
	struct flytune_error error;

	if (flytune_trials(tuning->ctl->client, tuned->problem, tuning->options.device, &list, &error) !=
	        FLYTUNE_OK) {
		/* The winner is known all the same, and is shown. */
		fprintf(stderr, "flytunectl: the trials cannot be counted: %s\n", error.message);
		tuning->status = CTL_FAILED;
		return;
	}
	if (tuned->job.job != 0)
		progress_complete(&tuning->progress, list);
	if (tuned->trials == 0)
		tuned->trials = flytune_trial_list_count(list);
	flytune_trial_list_free(list);
}

static enum ctl_exit await(struct tuning *tuning, struct tuned *tuned)
{
	struct flytune_error error;
	enum flytune_result code;
	char text[FORMAT_LONG_SIZE];

	if (!tuning->ctl->json)
		printf("%s %s: job %" PRIu64 "\n", flytune_problem_kernel(tuned->problem),
		        format_problem(tuned->problem, text), tuned->job.job);
	(void)output_flush();
	progress_begin(&tuning->progress, tuning->ctl->json);
	code = flytune_wait(tuning->ctl->client, &tuned->job, FLYTUNE_FOREVER,
	        tuning->ctl->json ? NULL : on_event, &tuning->progress, &tuned->answer, &error);
	if (code == FLYTUNE_OK) {
		tuned->ended = true;
		tuned->trials = tuned->job.trials;
		count_trials(tuning, tuned);
	}
	progress_end(&tuning->progress);
	if (code != FLYTUNE_OK)
		return ctl_fail(tuning->ctl, &error);
	if (has_failed(tuned))
		fprintf(stderr, "flytunectl: job %" PRIu64 " %s%s%s\n", tuned->job.job,
		        tuned->job.state == FLYTUNE_STATE_CANCELLED ? "was cancelled" : "failed",
		        tuned->job.reason[0] == '\0' ? "" : ": ", tuned->job.reason);
	return CTL_DONE;
}

/* All are queued before the first is waited for, so that the daemon can order them. */
static enum ctl_exit tune_all(struct tuning *tuning)
{
	struct flytune_error error;
	enum ctl_exit printed;

	for (size_t i = 0; i < tuning->count; i++) {
		struct tuned *tuned = &tuning->tuned[i];

		flytune_job_init(&tuned->job);
		flytune_answer_init(&tuned->answer);
		if (flytune_tune(tuning->ctl->client, tuned->problem, &tuning->options, &tuned->job,
		            &tuned->answer, &error) != FLYTUNE_OK)
			return ctl_fail(tuning->ctl, &error);
	}
	for (size_t i = 0; i < tuning->count; i++) {
		struct tuned *tuned = &tuning->tuned[i];

		enum ctl_exit one = CTL_DONE;

		if (tuned->job.job == 0)
			count_trials(tuning, tuned);
		else if (tuning->wait)
			one = await(tuning, tuned);
		if (one != CTL_DONE)
			return one;
		if (has_failed(tuned))
			tuning->status = CTL_JOB_FAILED;
	}
	printed = tuning->ctl->json ? print_json(tuning) : print_table(tuning);
	return printed != CTL_DONE ? printed : tuning->status;
}

/* ---- the problems of a model ---- */

enum { MODEL_WORDS_MAX = 64 };

/* What decoding and prefilling ask for, unless --m says otherwise. */
static const char model_tokens[] = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192";

static bool is_named(const char *name, const char *word)
{
	size_t length = strlen(name);

	return strncmp(word, name, length) == 0 && (word[length] == '\0' || word[length] == '=');
}

/* Takes "--name value" or "--name=value" out of the words; the value is "" where there is none. */
static const char *take_option(const char *name, int *count, char **words)
{
	const char *value = NULL;
	size_t length = strlen(name);
	int kept = 0;

	for (int i = 0; i < *count; i++) {
		if (is_named(name, words[i]) && words[i][length] == '=') {
			value = words[i] + length + 1;
		} else if (is_named(name, words[i])) {
			value = i + 1 < *count && strncmp(words[i + 1], "--", 2) != 0 ? words[++i] : "";
		} else {
			words[kept++] = words[i];
		}
	}
	*count = kept;
	return value;
}

static bool is_among(const struct problems *all, const flytune_problem *problem)
{
	char text[FORMAT_LONG_SIZE], other[FORMAT_LONG_SIZE];

	format_problem(problem, text);
	for (size_t i = 0; i < all->count; i++) {
		if (strcmp(format_problem(all->problem[i], other), text) == 0)
			return true;
	}
	return false;
}

/* Adds to `all`, which takes the problems over. */
static bool join_problems(struct problems *all, struct problems *more)
{
	flytune_problem **grown =
	        realloc(all->problem, (all->count + more->count + 1) * sizeof(flytune_problem *));

	if (grown == NULL)
		return false;
	all->problem = grown;
	/* 4 tokens of 8 heads are 1 token of 32. */
	for (size_t i = 0; i < more->count; i++) {
		if (is_among(all, more->problem[i]))
			flytune_problem_free(more->problem[i]);
		else
			all->problem[all->count++] = more->problem[i];
	}
	free(more->problem);
	*more = (struct problems){0};
	return true;
}

/* With the words of the command line behind those that the model gives. */
static enum ctl_exit add_norm(const struct ctl *ctl, struct model_norm *norm, int count, char **words,
        const struct own_options *own, struct problems *all)
{
	char *line[MODEL_WORDS_MAX] = {norm->kernel};
	int length = 1;
	struct problems problems;
	enum ctl_exit status;

	for (size_t i = 0; i < norm->field_count; i++) {
		struct model_field *field = &norm->field[i];

		/* It would be obeyed, with a value that is gone before it is used. */
		if (is_option_of(&command_tune, field->option))
			return ctl_usage(&command_tune,
			        "the model table's norm %s has a field %s; it must be a field of kernel %s, "
			        "not an option of tune",
			        norm->name, field->option + 2, norm->kernel);
		for (int k = 0; k < count; k++) {
			if (is_named(field->option, words[k]))
				return ctl_usage(&command_tune,
				        "%s comes from the model's file: with --model only --m, --dtype and "
				        "what the model table leaves out can be given",
				        field->option);
		}
		line[length++] = field->option;
		line[length++] = field->values;
	}
	for (int i = 0; i < count && length < MODEL_WORDS_MAX; i++)
		line[length++] = words[i];
	status = problems_read(ctl, &command_tune, length, line, own, true, &problems);
	if (status == CTL_DONE && !join_problems(all, &problems)) {
		problems_free(&problems);
		return ctl_short();
	}
	return status;
}

static void print_norm(const struct model *model, const struct model_norm *norm)
{
	printf("%s%s%s norm: %s", model->type, model->type[0] != '\0' ? ", " : "", norm->name, norm->kernel);
	for (size_t i = 0; i < norm->field_count; i++)
		printf(" %s %s", norm->field[i].option, norm->field[i].values);
	puts("");
}

static enum ctl_exit model_problems(const struct ctl *ctl, const char *path, int count, char **words,
        const struct own_options *own, struct problems *all)
{
	struct model_wanted wanted = {
	        .tokens = take_option("--m", &count, words), .dtype = take_option("--dtype", &count, words)};
	struct families families = {0};
	struct model model;
	char problem[FILE_PROBLEM_SIZE];
	enum ctl_exit status = CTL_DONE;

	*all = (struct problems){0};
	if (*path == '\0')
		return ctl_usage(&command_tune, "--model needs the name of a file: a model's config.json");
	if (wanted.tokens == NULL)
		wanted.tokens = model_tokens;
	if (!families_read(&families, problem)) {
		families_free(&families);
		return ctl_refused("%s", problem);
	}
	if (!model_read(&families, path, &wanted, &model, problem))
		status = ctl_usage(&command_tune, "%s", problem);
	for (size_t i = 0; i < model.count && status == CTL_DONE; i++) {
		status = add_norm(ctl, &model.norm[i], count, words, own, all);
		if (status == CTL_DONE && !ctl->json)
			print_norm(&model, &model.norm[i]);
	}
	if (status != CTL_DONE)
		problems_free(all);
	model_free(&model);
	families_free(&families);
	return status;
}

enum ctl_exit tune_problems(struct ctl *ctl, const struct problems *problems,
        const struct flytune_tune_options *options, bool waits, bool explains)
{
	struct tuning tuning = {.ctl = ctl,
	        .options = *options,
	        .wait = waits,
	        .explains = explains,
	        .count = problems->count};
	enum ctl_exit status;

	tuning.tuned = calloc(problems->count > 0 ? problems->count : 1, sizeof *tuning.tuned);
	if (tuning.tuned == NULL)
		return ctl_short();
	for (size_t i = 0; i < problems->count; i++)
		tuning.tuned[i].problem = problems->problem[i];
	status = tune_all(&tuning);
	free(tuning.tuned);
	return status;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct flytune_tune_options options;
	bool force = false, no_wait = false;
	int64_t priority = 0, budget_s = 0;
	const char *device = NULL;
	struct own_options own = {.device = &device,
	        .force = &force,
	        .no_wait = &no_wait,
	        .priority = &priority,
	        .budget_s = &budget_s};
	struct problems problems;
	const char *model = take_option("--model", &count, words);
	enum ctl_exit status = model != NULL
	        ? model_problems(ctl, model, count, words, &own, &problems)
	        : problems_read(ctl, &command_tune, count, words, &own, true, &problems);

	if (status != CTL_DONE)
		return status;
	flytune_tune_options_init(&options);
	options.device = device;
	options.force = force;
	options.priority = (int32_t)priority;
	options.budget_ms = budget_s * 1000;
	status = tune_problems(ctl, &problems, &options, !no_wait, false);
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
	     "  --budget SECONDS   of sweeping, a problem, all included; else as the daemon is set\n"
	     "  --model FILE       instead of KERNEL and fields: the norms of a model, as its config.json "
	     "and the\n"
	     "                     model table describe it (MODELS.md); --m then lists tokens, else powers "
	     "of two\n"
	     "                     up to 8192");
}

const struct command command_tune = {
        .name = "tune",
        .words = "{KERNEL --FIELD VALUE[,VALUE]... | --model FILE [--m LIST]} [OPTION]...",
        .help = "Find the best configuration of problems, and wait for it",
        .options = "device force no-wait priority budget model",
        .run = run,
        .explain = explain,
        .takes_kernel = true,
};
