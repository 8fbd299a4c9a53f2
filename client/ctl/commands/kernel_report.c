/* What `flytunectl kernel check` prints. */
#include "client/ctl/commands/kernel.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/output/json.h"

static const char *const levels[] = {
        [FINDING_ERROR] = "error", [FINDING_WARNING] = "warning", [FINDING_NOTE] = "note"};

static const char *name_of(const struct report *report)
{
	return report->folder != NULL ? ft_folder_kernel(report->folder)->name : "";
}

/* ---- for people ---- */

static const char *many(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void print_problem(const struct ft_problem *problem)
{
	char text[256];

	if (ft_problem_format(problem, ' ', text, sizeof(text)) >= (int)sizeof(text))
		printf(" (%.250s…)", text);
	else
		printf(" (%s)", text);
}

static void print_device(const struct checked_device *device)
{
	if (device->problems == 0) {
		printf("%s: no space was counted\n", device->kind);
		return;
	}
	printf("%s: %" PRIu64, device->kind, device->least);
	print_problem(device->of[0]);
	if (device->most != device->least) {
		printf(" to %" PRIu64, device->most);
		print_problem(device->of[1]);
	}
	printf(" configs, in %" PRIu32 " problem%s\n", device->problems, many(device->problems));
	for (uint32_t i = 0; i < device->count.rule_count; i++) {
		if (device->count.excluded[i] > 0)
			printf("  %8" PRIu64 " %s  %s: %s\n", device->count.excluded[i],
			        device->count.prunes[i] ? "not tried" : "left out ", device->count.rule[i],
			        device->count.why[i]);
	}
}

static void print_finding(const struct finding *finding)
{
	printf("%s: ", levels[finding->level]);
	if (finding->device != NULL)
		printf("%s: ", finding->device);
	printf("%s", finding->message);
	if (finding->problem != NULL && finding->problem->count > 0)
		print_problem(finding->problem);
	if (finding->problems > 1)
		printf(", and for %" PRIu32 " problem%s more", finding->problems - 1,
		        many(finding->problems - 1));
	puts("");
}

void report_print(const struct report *report)
{
	const struct spread *spread = &report->spread;

	if (report->folder != NULL)
		printf("%s: %" PRIu32 " problem%s tried, %" PRIu32 " refused by the checks\n",
		        name_of(report), spread->count, many(spread->count), spread->refused);
	for (uint32_t i = 0; i < report->devices; i++)
		print_device(&report->device[i]);
	for (enum finding_level level = FINDING_ERROR; level < FINDING_LEVELS; level++) {
		for (uint32_t i = 0; i < report->findings; i++) {
			if (report->finding[i].level == level)
				print_finding(&report->finding[i]);
		}
	}
	if (report->left > 0)
		printf("… and %" PRIu32 " more\n", report->left);
	printf("%" PRIu32 " error%s, %" PRIu32 " warning%s\n", report->level[FINDING_ERROR],
	        many(report->level[FINDING_ERROR]), report->level[FINDING_WARNING],
	        many(report->level[FINDING_WARNING]));
}

/* ---- for programs ---- */

static void write_problem(struct document *json, const char *name, const struct ft_problem *problem)
{
	if (problem == NULL || problem->count == 0) {
		document_null(json, name);
		return;
	}
	document_object(json, name);
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];

		if (field->is_text)
			document_text(json, field->name, field->text);
		else
			document_integer(json, field->name, field->number);
	}
	document_end(json);
}

static void write_device(struct document *json, const struct checked_device *device)
{
	document_object(json, NULL);
	document_text(json, "kind", device->kind);
	document_count(json, "problems", device->problems);
	document_count(json, "configs_least", device->least);
	write_problem(json, "least_of", device->of[0]);
	document_count(json, "configs_most", device->most);
	write_problem(json, "most_of", device->of[1]);
	document_array(json, "rules");
	for (uint32_t i = 0; i < device->count.rule_count; i++) {
		document_object(json, NULL);
		document_text(json, "rule", device->count.rule[i]);
		document_text(json, "why", device->count.why[i]);
		document_bool(json, "prunes", device->count.prunes[i]);
		document_count(json, "excluded", device->count.excluded[i]);
		document_end(json);
	}
	document_end(json);
	document_end(json);
}

static void write_finding(struct document *json, const struct finding *finding)
{
	document_object(json, NULL);
	document_text(json, "level", levels[finding->level]);
	json_text(json, "device", finding->device != NULL ? finding->device : "");
	document_text(json, "message", finding->message);
	write_problem(json, "problem", finding->problem);
	document_count(json, "problems", finding->problems);
	document_end(json);
}

void report_print_json(const struct report *report)
{
	struct document json = {0};

	document_object(&json, NULL);
	json_text(&json, "kernel", name_of(report));
	document_text(&json, "folder", report->path);
	json_text(&json, "hash", report->folder != NULL ? ft_folder_hash(report->folder) : "");
	document_count(&json, "errors", report->level[FINDING_ERROR]);
	document_count(&json, "warnings", report->level[FINDING_WARNING]);
	document_count(&json, "problems", report->spread.count);
	document_count(&json, "refused", report->spread.refused);
	document_bool(&json, "compiled", report->is_compiled);
	document_array(&json, "devices");
	for (uint32_t i = 0; i < report->devices; i++)
		write_device(&json, &report->device[i]);
	document_end(&json);
	document_array(&json, "findings");
	for (uint32_t i = 0; i < report->findings; i++)
		write_finding(&json, &report->finding[i]);
	document_end(&json);
	document_count(&json, "findings_left", report->left);
	document_end(&json);
	document_print(&json);
}
