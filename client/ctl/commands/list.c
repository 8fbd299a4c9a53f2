/* flytunectl list */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"

/* What is shown of an answer: rows carry long texts, and there may be a million. */
struct shown {
	char kernel[FLYTUNE_KERNEL_SIZE];
	char device[FLYTUNE_DEVICE_SIZE]; /* "": one that is not on this host */
	const char *source;
	uint32_t field_count, knob_count;
	struct flytune_value *field;
	struct flytune_knob *knob;
	char *document; /* of a config that is one */
	uint64_t time_ps, default_time_ps, gain_least_ppm, at_ns;
	int unsettled;
};

struct listing {
	const char *kernel; /* only its answers; NULL: all */
	const char *store;
	flytune_device_list *devices;
	struct shown *shown;
	size_t count, capacity;
};

static void find_device(const struct listing *listing, const char *identity, char id[FLYTUNE_DEVICE_SIZE])
{
	struct flytune_device device;

	flytune_device_init(&device);
	id[0] = '\0';
	for (size_t i = 0; flytune_device_list_get(listing->devices, i, &device); i++) {
		if (strcmp(device.identity_text, identity) == 0) {
			snprintf(id, FLYTUNE_DEVICE_SIZE, "%s", device.id);
			break;
		}
	}
}

static void *copy(const void *array, size_t bytes)
{
	void *made = malloc(bytes + 1);

	return made != NULL ? memcpy(made, array, bytes) : NULL;
}

/* What varies in length. -1 when out of memory. */
static int copy_lists(const struct flytune_row *row, bool pinned, struct shown *shown)
{
	const struct flytune_knob *knob = pinned ? row->pin : row->knob;
	const char *document = pinned ? row->pin_document : row->document;

	shown->field_count = row->field_count;
	shown->knob_count = pinned ? row->pin_count : row->knob_count;
	shown->field = copy(row->field, row->field_count * sizeof *row->field);
	shown->knob = copy(knob, shown->knob_count * sizeof *knob);
	shown->document = document != NULL ? strdup(document) : NULL;
	return shown->field == NULL || shown->knob == NULL || (document != NULL && shown->document == NULL)
	        ? -1
	        : 0;
}

static int add(void *data, const struct flytune_row *row)
{
	struct listing *listing = data;
	struct shown *shown;
	bool pinned = row->pin_count > 0 || row->pin_document != NULL;

	if (listing->kernel != NULL && strcmp(listing->kernel, row->kernel) != 0)
		return 0;
	if (listing->count == listing->capacity) {
		size_t capacity = listing->capacity == 0 ? 64 : 2 * listing->capacity;

		shown = realloc(listing->shown, capacity * sizeof *shown);
		if (shown == NULL)
			return 1;
		listing->shown = shown;
		listing->capacity = capacity;
	}
	shown = &listing->shown[listing->count++];
	memset(shown, 0, sizeof *shown);
	snprintf(shown->kernel, sizeof shown->kernel, "%s", row->kernel);
	find_device(listing, row->device, shown->device);
	if (copy_lists(row, pinned, shown) != 0)
		return 1;
	if (pinned) { /* the times are another config's */
		shown->source = flytune_source_word(FLYTUNE_SOURCE_PINNED);
		shown->at_ns = row->pinned_at_ns;
		return 0;
	}
	shown->source = flytune_source_word(
	        strcmp(row->origin, listing->store) == 0 ? FLYTUNE_SOURCE_TUNED : FLYTUNE_SOURCE_IMPORTED);
	shown->time_ps = row->time_ps;
	shown->default_time_ps = row->default_time_ps;
	shown->gain_least_ppm = row->gain_least_ppm;
	shown->unsettled = row->unsettled;
	shown->at_ns = row->tuned_at_ns;
	return 0;
}

/* From the last field to the first: problems that differ in m alone stand together, and numbers go by size. */
static int compare_fields(const struct shown *a, const struct shown *b)
{
	for (uint32_t i = a->field_count; a->field_count == b->field_count && i-- > 0;) {
		const struct flytune_value *one = &a->field[i], *other = &b->field[i];
		int order = strcmp(one->text, other->text);

		if (order == 0)
			order = (one->number > other->number) - (one->number < other->number);
		if (order != 0)
			return order;
	}
	return (a->field_count > b->field_count) - (a->field_count < b->field_count);
}

static int compare(const void *left, const void *right)
{
	const struct shown *a = left, *b = right;
	int order = strcmp(a->kernel, b->kernel);

	if (order == 0)
		order = strcmp(a->device, b->device);
	return order != 0 ? order : compare_fields(a, b);
}

static void print_json(const struct listing *listing, const struct flytune_export_info *info)
{
	struct document json = {0};

	document_object(&json, NULL);
	document_array(&json, "answers");
	for (size_t i = 0; i < listing->count; i++) {
		const struct shown *shown = &listing->shown[i];

		document_object(&json, NULL);
		document_text(&json, "kernel", shown->kernel);
		json_values(&json, "problem", shown->field, shown->field_count);
		json_text(&json, "device", shown->device);
		if (shown->document != NULL)
			document_text(&json, "config", shown->document);
		else
			json_config(&json, "config", shown->knob, shown->knob_count);
		document_text(&json, "source", shown->source);
		json_us(&json, "time_us", shown->time_ps);
		json_us(&json, "default_time_us", shown->default_time_ps);
		json_gain(&json, shown->time_ps, shown->default_time_ps, shown->gain_least_ppm,
		        shown->unsettled);
		json_date(&json, "since", shown->at_ns);
		document_end(&json);
	}
	document_end(&json);
	document_text(&json, "store", info->store);
	document_count(&json, "generation", info->generation);
	document_end(&json);
	document_print(&json);
}

static void print_table(const struct listing *listing)
{
	static const char *const head[] = {
	        "KERNEL", "PROBLEM", "DEVICE", "CONFIG", ">TIME", ">GAIN", "SOURCE", "SINCE"};
	struct table table;
	char text[FORMAT_LONG_SIZE], time[FORMAT_SIZE];

	table_init(&table, head, sizeof head / sizeof *head);
	for (size_t i = 0; i < listing->count; i++) {
		const struct shown *shown = &listing->shown[i];

		table_add(&table, "%s", shown->kernel);
		table_add(&table, "%s", format_values(shown->field, shown->field_count, text));
		table_add(&table, "%s", shown->device[0] != '\0' ? shown->device : "another");
		table_add(&table, "%s",
		        shown->document != NULL ? shown->document
		                                : format_config(shown->knob, shown->knob_count, text));
		table_add(&table, "%s", format_time(shown->time_ps, time));
		table_add(&table, "%s",
		        format_gain(shown->time_ps, shown->default_time_ps, shown->gain_least_ppm,
		                shown->unsettled, time));
		table_add(&table, "%s", shown->source);
		table_add(&table, "%s", format_date(shown->at_ns, time));
	}
	if (listing->count == 0)
		printf("no answer%s%s: nothing has been tuned, pinned or imported\n",
		        listing->kernel != NULL ? " of " : "",
		        listing->kernel != NULL ? listing->kernel : "");
	else
		table_print(&table);
}

/* Of a kernel that there is not there are no trials either, whatever the problem. */
static bool is_known(const struct ctl *ctl, const char *kernel, struct flytune_error *error)
{
	flytune_problem *problem = flytune_problem_new(kernel, NULL, 0, error);
	flytune_trial_list *list = NULL;
	enum flytune_result code;

	if (problem == NULL)
		return false;
	code = flytune_trials(ctl->client, problem, NULL, &list, error);
	if (code == FLYTUNE_OK)
		flytune_trial_list_free(list);
	flytune_problem_free(problem);
	return code == FLYTUNE_OK || code == FLYTUNE_E_BAD_VALUE || code == FLYTUNE_E_BAD_REQUEST;
}

static enum ctl_exit list(struct ctl *ctl, struct listing *listing)
{
	struct flytune_export_info info;
	struct flytune_status_info status;
	struct flytune_error error;
	enum flytune_result code;

	if (listing->kernel != NULL && !is_known(ctl, listing->kernel, &error))
		return ctl_fail(ctl, &error);
	flytune_status_info_init(&status);
	code = flytune_status(ctl->client, &status, &listing->devices, &error);
	if (code != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	listing->store = status.store;
	flytune_export_info_init(&info);
	code = flytune_export(ctl->client, add, listing, &info, &error);
	if (code == FLYTUNE_E_CANCELLED)
		return ctl_short();
	if (code != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (listing->count > 0)
		qsort(listing->shown, listing->count, sizeof *listing->shown, compare);
	if (info.hidden > 0)
		fprintf(stderr, "flytunectl: %" PRIu64 " damaged answers are left out\n", info.hidden);
	if (ctl->json)
		print_json(listing, &info);
	else
		print_table(listing);
	return CTL_DONE;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct listing listing = {.kernel = count > 0 ? words[0] : NULL};
	enum ctl_exit status;

	if (count > 1 || (count == 1 && words[0][0] == '-'))
		return stray_word(&command_list, words[count - 1]);
	status = list(ctl, &listing);
	flytune_device_list_free(listing.devices);
	for (size_t i = 0; i < listing.count; i++) {
		free(listing.shown[i].field);
		free(listing.shown[i].knob);
		free(listing.shown[i].document);
	}
	free(listing.shown);
	return status;
}

static void explain(void)
{
	puts("What was tuned, pinned or imported, for all problems or those of one kernel: as `export` has "
	     "it,\n"
	     "in a table. \"another\" is a device that this host does not have. An answer of another "
	     "compiler or\n"
	     "driver is listed until it is tuned anew, though lookups do not get it.");
}

const struct command command_list = {
        .name = "list",
        .words = "[KERNEL]",
        .help = "List the answers that are kept",
        .run = run,
        .explain = explain,
};
