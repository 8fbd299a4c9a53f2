/* flytunectl code */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/table.h"

static int print_json(const flytune_problem *problem, const struct flytune_code_info *info, size_t length)
{
	return json_print(json_pack(
	        "{s:s, s:o, s:o, s:o, s:s, s:s, s:s, s:I, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:I, "
	        "s:{s:I, s:I, s:I, s:I, s:s}}",
	        "kernel", flytune_problem_kernel(problem), "problem", json_problem(problem), "device",
	        json_text(info->device), "config", json_config(info->knob, info->knob_count), "hash",
	        info->hash, "symbol", info->symbol, "target", info->target, "object_version",
	        (json_int_t)info->object_version, "builder", json_text(info->builder), "bytes",
	        (json_int_t)length, "identity", json_text(info->identity), "max_threads",
	        (json_int_t)info->max_threads, "registers", (json_int_t)info->registers, "spills",
	        (json_int_t)info->spills, "shared", (json_int_t)info->shared, "wave", (json_int_t)info->wave,
	        "launch", "block", (json_int_t)info->block, "rows_a_block", (json_int_t)info->rows,
	        "blocks_at_most", (json_int_t)info->blocks_max, "dynamic_shared_bytes",
	        (json_int_t)info->dynamic_shared, "arguments", info->arguments));
}

static void print_facts(
        const flytune_problem *problem, const struct flytune_code_info *info, size_t length, const char *path)
{
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
	table_fact(&table, "symbol", "%s", info->symbol);
	table_fact(&table, "block", "%" PRIu32 " threads, for %" PRIu32 " rows", info->block, info->rows);
	table_fact(&table, "grid", "a block for each %" PRIu32 " rows, at most %" PRIu32, info->rows,
	        info->blocks_max);
	table_fact(&table, "arguments", "%s", info->arguments);
	table_fact(&table, "registers", "%" PRIu64 ", %" PRIu64 " spilled", info->registers, info->spills);
	table_fact(&table, "hash", "%s", info->hash);
	table_fact(&table, "bytes", path != NULL ? "%zu, in %s" : "%zu", length, path);
	table_print(&table);
}

static enum ctl_exit write_out(const char *path, const void *data, size_t length)
{
	FILE *file = fopen(path, "we");
	int failed;

	if (file == NULL) {
		fprintf(stderr, "flytunectl: cannot write %s: %s\n", path, strerror(errno));
		return CTL_FAILED;
	}
	failed = fwrite(data, 1, length, file) != length;
	if (fclose(file) != 0 || failed) {
		fprintf(stderr, "flytunectl: cannot write %s: %s\n", path, strerror(errno));
		return CTL_FAILED;
	}
	return CTL_DONE;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *device = NULL, *path = NULL;
	struct own_options own = {.device = &device, .out = &path};
	struct problems problems;
	struct flytune_code_info info;
	struct flytune_error error;
	flytune_code_object *object;
	const void *data;
	size_t length;
	enum ctl_exit status = problems_read(ctl, &command_code, count, words, &own, false, &problems);

	if (status != CTL_DONE)
		return status;
	if (flytune_code(ctl->client, problems.problem[0], device, &object, &error) != FLYTUNE_OK) {
		problems_free(&problems);
		return ctl_fail(ctl, &error);
	}
	data = flytune_code_data(object, &length);
	flytune_code_info_init(&info);
	flytune_code_describe(object, &info);
	if (path != NULL)
		status = write_out(path, data, length);
	if (status == CTL_DONE && ctl->json)
		status = print_json(problems.problem[0], &info, length) != 0 ? CTL_FAILED : CTL_DONE;
	else if (status == CTL_DONE)
		print_facts(problems.problem[0], &info, length, path);
	flytune_code_free(object);
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
        .run = run,
        .explain = explain,
        .takes_kernel = true,
};
