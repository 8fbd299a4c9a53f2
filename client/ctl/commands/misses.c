/* flytunectl misses */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"

static void print_json(const flytune_miss_list *list)
{
	struct flytune_misses_info info;
	struct document json = {0};
	struct flytune_miss miss;

	flytune_misses_info_init(&info);
	flytune_miss_list_info(list, &info);
	flytune_miss_init(&miss);
	document_object(&json, NULL);
	document_array(&json, "misses");
	for (size_t i = 0; flytune_miss_list_get(list, i, &miss); i++) {
		document_object(&json, NULL);
		document_text(&json, "kernel", miss.kernel);
		json_values(&json, "problem", miss.field, miss.field_count);
		document_text(&json, "device", miss.device);
		document_count(&json, "count", miss.count);
		document_real(&json, "first_ago_s", (double)miss.first_ago_ns / 1e9);
		document_real(&json, "last_ago_s", (double)miss.last_ago_ns / 1e9);
		document_end(&json);
	}
	document_end(&json);
	document_count(&json, "asked", info.asked);
	document_count(&json, "forgotten", info.forgotten);
	document_end(&json);
	document_print(&json);
}

/* The words that `tune` takes, and a remark that it passes over. */
static void print_line(const struct flytune_miss *miss)
{
	printf("%s", miss->kernel);
	for (uint32_t i = 0; i < miss->field_count; i++) {
		const struct flytune_value *field = &miss->field[i];

		fputs(" --", stdout);
		for (const char *at = field->name; *at != '\0'; at++)
			putchar(*at == '_' ? '-' : *at);
		if (field->text[0] != '\0')
			printf(" %s", field->text);
		else
			printf(" %" PRId64, field->number);
	}
	printf(" --device %s # asked %" PRIu64 " time%s\n", miss->device, miss->count,
	        miss->count == 1 ? "" : "s");
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct flytune_misses_info info;
	flytune_miss_list *list;
	struct flytune_miss miss;
	struct flytune_error error;
	uint64_t most = 0;

	if (count > 1)
		return stray_word(&command_misses, words[1]);
	if (count == 1 && !job_number_read(words[0], &most))
		return refuse_number(&command_misses, "the number of lines", words[0]);
	if (flytune_misses(ctl->client, most, &list, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	flytune_miss_init(&miss);
	if (ctl->json)
		print_json(list);
	else
		for (size_t i = 0; flytune_miss_list_get(list, i, &miss); i++)
			print_line(&miss);
	flytune_misses_info_init(&info);
	flytune_miss_list_info(list, &info);
	if (info.forgotten > 0)
		fprintf(stderr, "flytunectl: %" PRIu64 " more were asked too seldom to be kept\n",
		        info.forgotten);
	flytune_miss_list_free(list);
	return CTL_DONE;
}

static void explain(void)
{
	puts("Problems that were looked up since the daemon's start and have no result of their own, the "
	     "most\n"
	     "asked first. What follows # is a remark: `tune` passes over it, so that its lines can be fed "
	     "to\n"
	     "it:  flytunectl misses 10 | xargs -L1 flytunectl tune --no-wait");
}

const struct command command_misses = {
        .name = "misses",
        .words = "[COUNT]",
        .help = "List what was looked up and is not tuned",
        .run = run,
        .explain = explain,
};
