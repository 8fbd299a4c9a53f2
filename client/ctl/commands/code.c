/* flytunectl code */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/file.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"

static void json_step(struct document *json, const struct flytune_code_step *step)
{
	document_object(json, NULL);
	document_text(json, "symbol", step->symbol);
	document_count(json, "block", step->block);
	document_count(json, "rows_a_block", step->rows);
	document_count(json, "blocks_at_most", step->blocks_max);
	document_count(json, "dynamic_shared_bytes", step->dynamic_shared);
	document_text(json, "arguments", step->arguments);
	document_end(json);
}

static void print_json(const flytune_problem *problem, const flytune_code_object *code,
        const struct flytune_code_info *info, size_t length)
{
	struct flytune_code_step step;
	struct document json = {0};

	document_object(&json, NULL);
	document_text(&json, "kernel", flytune_problem_kernel(problem));
	json_problem(&json, "problem", problem);
	json_text(&json, "device", info->device);
	json_config(&json, "config", info->knob, info->knob_count);
	document_text(&json, "hash", info->hash);
	document_text(&json, "target", info->target);
	document_count(&json, "object_version", info->object_version);
	json_text(&json, "builder", info->builder);
	document_count(&json, "bytes", length);
	json_text(&json, "identity", info->identity);
	document_count(&json, "max_threads", info->max_threads);
	document_count(&json, "registers", info->registers);
	document_count(&json, "spills", info->spills);
	document_count(&json, "shared", info->shared);
	document_count(&json, "wave", info->wave);
	flytune_code_step_init(&step);
	document_array(&json, "steps");
	for (size_t i = 0; flytune_code_get_step(code, i, &step); i++)
		json_step(&json, &step);
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

static void print_facts(const flytune_problem *problem, const flytune_code_object *code,
        const struct flytune_code_info *info, size_t length, const char *path)
{
	struct flytune_code_step step;
	struct table table;
	char text[FORMAT_LONG_SIZE];

	table_init(&table, NULL, 2);
	table_fact(&table, flytune_problem_kernel(problem), "%s", format_problem(problem, text));
	table_fact(&table, "device", "%s", info->device);
	table_fact(&table, "config", "%s", format_config(info->knob, info->knob_count, text));
	table_fact(&table, "target", "%s", info->target);
	if (info->object_version != 0)
		table_fact(&table, "code object", "version %" PRIu64, info->object_version);
	table_fact(&table, "builder", "%s", info->builder);
	flytune_code_step_init(&step);
	for (size_t i = 0; flytune_code_get_step(code, i, &step); i++) {
		table_fact(&table, "symbol", "%s", step.symbol);
		table_fact(
		        &table, "block", "%" PRIu32 " threads, for %" PRIu32 " rows", step.block, step.rows);
		table_fact(&table, "grid", "a block for each %" PRIu32 " rows, at most %" PRIu32, step.rows,
		        step.blocks_max);
		table_fact(&table, "arguments", "%s", step.arguments);
	}
	table_fact(&table, "registers", "%" PRIu64 ", %" PRIu64 " spilled", info->registers, info->spills);
	table_fact(&table, "hash", "%s", info->hash);
	table_fact(&table, "bytes", path != NULL ? "%zu, in %s" : "%zu", length, path);
	table_print(&table);
}

struct object {
	const void *data;
	size_t length;
};

static int write_object(void *data, FILE *file)
{
	const struct object *object = data;

	return fwrite(object->data, 1, object->length, file) == object->length ? 0 : -1;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *device = NULL, *path = NULL;
	struct own_options own = {.device = &device, .out = &path};
	struct problems problems;
	struct flytune_code_info info;
	struct flytune_error error;
	flytune_code_object *code;
	struct object object;
	char problem[FILE_PROBLEM_SIZE];
	enum ctl_exit status = problems_read(ctl, &command_code, count, words, &own, false, &problems);

	if (status != CTL_DONE)
		return status;
	if (flytune_code(ctl->client, problems.problem[0], device, &code, &error) != FLYTUNE_OK) {
		problems_free(&problems);
		return ctl_fail(ctl, &error);
	}
	object.data = flytune_code_data(code, &object.length);
	flytune_code_info_init(&info);
	flytune_code_describe(code, &info);
	if (path != NULL && !file_write(path, write_object, &object, problem))
		status = ctl_refused("%s", problem);
	else if (ctl->json)
		print_json(problems.problem[0], code, &info, object.length);
	else
		print_facts(problems.problem[0], code, &info, object.length, path);
	flytune_code_free(code);
	problems_free(&problems);
	return status;
}

static void explain(void)
{
	puts("The object can be loaded by the device's driver and launched as shown, without a compiler.\n\n"
	     "  --out FILE, -o FILE  write the code object there\n"
	     "  --device ID          which device, as `devices` lists them; else the first");
}

const struct command command_code = {
        .name = "code",
        .words = "KERNEL --FIELD VALUE... [-o FILE] [--device ID]",
        .help = "Get the machine code that won for a problem, and how it is launched",
        .options = "device out",
        .run = run,
        .explain = explain,
        .takes_kernel = true,
};
