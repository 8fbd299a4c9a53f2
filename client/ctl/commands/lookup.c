/* flytunectl lookup */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"
#include "kernels/kernel.h"

/* Along which field "nearest" looks. Only this daemon may know the kernel. */
static const char *scale_field(const flytune_problem *problem)
{
	const struct ft_kernel *kernel = ft_kernel_find(flytune_problem_kernel(problem));

	return kernel == NULL ? "scale" : kernel->schema(kernel, "cpu")->scale;
}

static void print_answer(const flytune_problem *problem, const struct flytune_answer *answer)
{
	struct table table;
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE], default_time[FORMAT_SIZE], gain[FORMAT_SIZE];
	char tuned_at[FT_NAME_SIZE + 16];

	table_init(&table, NULL, 2);
	table_fact(&table, flytune_problem_kernel(problem), "%s", format_problem(problem, text));
	table_fact(&table, "device", "%s", answer->device);
	table_fact(&table, "config", "%s", format_config(answer->knob, answer->knob_count, text));
	table_fact(&table, "source", "%s%s%s%s", flytune_source_word(answer->source),
	        answer->reason[0] == '\0' ? "" : " (", answer->reason, answer->reason[0] == '\0' ? "" : ")");
	snprintf(tuned_at, sizeof tuned_at, "tuned at %s", scale_field(problem));
	if (answer->source == FLYTUNE_SOURCE_NEAREST)
		table_fact(&table, tuned_at, "%" PRIu64, answer->tuned_scale);
	if (answer->time_ns != 0 && answer->default_time_ns != 0)
		table_fact(&table, "time", "%s; the default takes %s: %s",
		        format_time(answer->time_ns * 1000, time),
		        format_time(answer->default_time_ns * 1000, default_time),
		        format_gain(
		                1000000, answer->gain_ppm, answer->gain_least_ppm, answer->unsettled, gain));
	else
		table_fact(&table, "time", "%s", format_time(answer->time_ns * 1000, time));
	table_fact(&table, answer->source == FLYTUNE_SOURCE_PINNED ? "pinned" : "tuned", "%s",
	        format_date(answer->tuned_at_ns, time));
	if (answer->store[0] != '\0')
		table_fact(&table, "generation", "%s:%" PRIu64, answer->store, answer->generation);
	table_print(&table);
}

/* Why there is no daemon behind the answer. */
static void say_away(const struct ctl *ctl, const struct flytune_answer *answer)
{
	struct flytune_error error;

	if (flytune_ping(ctl->client, &error) != FLYTUNE_OK)
		fprintf(stderr, "flytunectl: the daemon cannot be asked: %s\n", error.message);
	else
		fprintf(stderr, "flytunectl: the daemon did not answer: %s\n", answer->reason);
	fputs("flytunectl: the answer is what a program would use meanwhile\n", stderr);
}

struct looked_up {
	const struct problems *problems;
	struct flytune_answer *answer;
};

static void print_table(const struct looked_up *all)
{
	static const char *const head[] = {"PROBLEM", "CONFIG", ">TIME", ">GAIN", "SOURCE", "NOTE"};
	struct table table;
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];

	table_init(&table, head, sizeof head / sizeof *head);
	for (size_t i = 0; i < all->problems->count; i++) {
		const struct flytune_answer *answer = &all->answer[i];

		table_add(&table, "%s", format_problem(all->problems->problem[i], text));
		table_add(&table, "%s", format_config(answer->knob, answer->knob_count, text));
		table_add(&table, "%s", format_time(answer->time_ns * 1000, time));
		table_add(&table, "%s",
		        format_gain(
		                1000000, answer->gain_ppm, answer->gain_least_ppm, answer->unsettled, time));
		table_add(&table, "%s", flytune_source_word(answer->source));
		if (answer->source == FLYTUNE_SOURCE_NEAREST)
			table_add(&table, "tuned at %s=%" PRIu64, scale_field(all->problems->problem[i]),
			        answer->tuned_scale);
		else
			table_add(&table, "%s", answer->reason);
	}
	table_print(&table);
}

static void print_json(const struct looked_up *all)
{
	struct document json = {0};

	if (all->problems->count > 1)
		document_array(&json, NULL);
	for (size_t i = 0; i < all->problems->count; i++) {
		document_object(&json, NULL);
		json_answer_members(&json, all->problems->problem[i], &all->answer[i]);
		document_end(&json);
	}
	if (all->problems->count > 1)
		document_end(&json);
	document_print(&json);
}

static enum ctl_exit print(const struct ctl *ctl, const struct looked_up *all)
{
	const struct flytune_answer *away = NULL;
	bool unswept = false;

	for (size_t i = 0; i < all->problems->count; i++) {
		if ((all->answer[i].flags & FLYTUNE_ANSWER_AWAY) != 0 && away == NULL)
			away = &all->answer[i];
		unswept = unswept || (all->answer[i].flags & FLYTUNE_ANSWER_UNSWEPT) != 0;
	}
	if (away != NULL)
		say_away(ctl, away);
	if (unswept)
		fprintf(stderr, "flytunectl: %s; this is what is known so far\n",
		        all->problems->count > 1 ? "not all sweeps have ended" : "the sweep has not ended");
	if (ctl->json)
		print_json(all);
	else if (all->problems->count > 1)
		print_table(all);
	else
		print_answer(all->problems->problem[0], &all->answer[0]);
	return away != NULL ? CTL_AWAY : CTL_DONE;
}

static enum ctl_exit look_up(struct ctl *ctl, const struct problems *problems, const char *device)
{
	struct looked_up all = {.problems = problems};
	struct flytune_lookup_options options;
	struct flytune_error error;
	enum ctl_exit status;
	enum flytune_result code;

	flytune_lookup_options_init(&options);
	options.device = device;
	all.answer = malloc(problems->count * sizeof *all.answer);
	if (all.answer == NULL)
		return ctl_short();
	for (size_t i = 0; i < problems->count; i++)
		flytune_answer_init(&all.answer[i]);
	if (problems->count > 1)
		code = flytune_lookup_many(
		        ctl->client, problems->problem, problems->count, &options, all.answer, NULL, &error);
	else
		code = flytune_lookup(ctl->client, problems->problem[0], &options, &all.answer[0], &error);
	status = code == FLYTUNE_OK ? print(ctl, &all) : ctl_fail(ctl, &error);
	free(all.answer);
	return status;
}

static void explain(void)
{
	puts("Never waits for a search. While the daemon is away it shows the default, and exits 3.\n"
	     "Fields take lists, --m 64,512 --n 4096,8192, and every combination is looked up, in one "
	     "request;\n"
	     "with --json, a list of answers is an array.\n\n"
	     "  --device ID        which device, as `devices` lists them; else the first");
}

const struct command command_lookup = {
        .name = "lookup",
        .words = "KERNEL --FIELD VALUE[,VALUE]... [--device ID]",
        .help = "Show the best configuration known for a problem, or for each of a list",
        .options = "device",
        .run_on = look_up,
        .takes_lists = true,
        .explain = explain,
        .takes_kernel = true,
};
