/* flytunectl import */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/output/answers.h"
#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/file.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"

enum { NOTES_SHOWN = 20 };

/* What this library finds in a row names the row as the daemon does. */
static bool take_row(void *data, size_t number, const struct flytune_row *row, struct flytune_error *error)
{
	flytune_import *import = data;
	char message[sizeof error->message];

	if (flytune_import_add(import, row, error) == FLYTUNE_OK)
		return true;
	if (strncmp(error->message, "row ", 4) != 0 && error->code != FLYTUNE_E_AWAY &&
	        error->code != FLYTUNE_E_TIMEOUT) {
		snprintf(message, sizeof message, "row %zu: %.280s", number, error->message);
		memcpy(error->message, message, sizeof message);
	}
	return false;
}

static void print_json(const flytune_import *import, const struct flytune_import_report *report, bool dry)
{
	struct flytune_import_note note;
	struct document json = {0};
	char token[64] = "";

	if (report->store[0] != '\0')
		snprintf(token, sizeof token, "%s:%" PRIu64, report->store, report->generation);
	document_object(&json, NULL);
	document_count(&json, "rows", report->rows);
	document_count(&json, "usable", report->usable);
	document_count(&json, "kept", report->kept);
	document_bool(&json, "dry_run", dry);
	json_text(&json, "token", token);
	document_array(&json, "notes");
	flytune_import_note_init(&note);
	for (size_t i = 0; flytune_import_get_note(import, i, &note); i++) {
		document_object(&json, NULL);
		document_count(&json, "row", note.row);
		document_text(&json, "field", note.field);
		document_bool(&json, "usable", note.usable);
		document_text(&json, "reason", note.reason);
		document_end(&json);
	}
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

/* What made rows unusable, each field once, with how many: "device in 3, kernel in 1". */
static const char *count_fields(const flytune_import *import, char text[FORMAT_SIZE])
{
	static const char *const fields[] = {"kernel", "device", "config", "pin", "identity"};
	struct flytune_import_note note;
	size_t length = 0;

	text[0] = '\0';
	flytune_import_note_init(&note);
	for (size_t k = 0; k < sizeof fields / sizeof *fields && length < FORMAT_SIZE; k++) {
		size_t count = 0;

		for (size_t i = 0; flytune_import_get_note(import, i, &note); i++)
			count += !note.usable && strcmp(note.field, fields[k]) == 0;
		if (count > 0)
			length += (size_t)snprintf(text + length, FORMAT_SIZE - length, "%s%s differs in %zu",
			        length > 0 ? ", " : "", fields[k], count);
	}
	return text;
}

static void print_text(const flytune_import *import, const struct flytune_import_report *report, bool dry)
{
	struct flytune_import_note note;
	char fields[FORMAT_SIZE];
	size_t shown = 0;

	flytune_import_note_init(&note);
	for (; shown < NOTES_SHOWN && flytune_import_get_note(import, shown, &note); shown++)
		printf("row %" PRIu64 ": %s differs%s: %s\n", note.row, note.field,
		        note.usable ? ", served all the same" : "", note.reason);
	if (report->notes > shown)
		printf("… and %" PRIu64 " rows more\n", report->notes - shown);
	count_fields(import, fields);
	printf("%" PRIu64 " row%s, %" PRIu64 " usable here%s%s%s", report->rows, report->rows == 1 ? "" : "s",
	        report->usable, fields[0] != '\0' ? " (" : "", fields, fields[0] != '\0' ? ")" : "");
	if (dry)
		puts("; nothing was changed");
	else
		printf(", %" PRIu64 " kept, generation %s:%" PRIu64 "\n", report->kept, report->store,
		        report->generation);
}

static enum ctl_exit import_text(struct ctl *ctl, const char *path, const char *text, size_t length, bool dry)
{
	struct flytune_import_report report;
	flytune_import *import;
	struct flytune_error error;
	enum ctl_exit status = CTL_DONE;
	enum flytune_result code;
	bool checked = false;

	flytune_import_report_init(&report);
	if (flytune_import_begin(ctl->client, &import, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (!answers_read(text, length, take_row, import, &error))
		code = error.code;
	else
		code = flytune_import_check(import, &report, &error);
	if (code == FLYTUNE_OK && !dry) {
		checked = true;
		code = flytune_import_commit(import, &report, &error);
	}
	if (code != FLYTUNE_OK) {
		/* Of a large import that failed at the last, the message says how much is there. */
		fprintf(stderr, "flytunectl: %s %s:\n",
		        checked ? "could not import" : "nothing is imported of",
		        strcmp(path, "-") == 0 ? "standard input" : path);
		status = ctl_fail(ctl, &error);
	} else if (ctl->json) {
		print_json(import, &report, dry);
	} else {
		print_text(import, &report, dry);
	}
	flytune_import_free(import);
	return status;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *path = NULL;
	enum ctl_exit status;
	char problem[FILE_PROBLEM_SIZE];
	bool dry = false;
	size_t length;
	char *text;

	for (int i = 0; i < count; i++) {
		if (strcmp(words[i], "--dry-run") == 0)
			dry = true;
		else if (path == NULL && (words[i][0] != '-' || words[i][1] == '\0'))
			path = words[i];
		else
			return stray_word(&command_import, words[i]);
	}
	if (path == NULL || *path == '\0')
		return ctl_usage(&command_import, "import needs the name of a file, or - for standard input");
	text = file_read(path, &length, problem);
	if (text == NULL)
		return ctl_refused("%s", problem);
	status = import_text(ctl, path, text, length, dry);
	free(text);
	return status;
}

static void explain(void)
{
	puts("Takes a file that `export` wrote. All of it is checked first: one bad row, and nothing is "
	     "changed.\n"
	     "Rows keep the identity and origin that they came with. Administrators only.\n\n"
	     "  --dry-run          check and report, change nothing");
}

const struct command command_import = {
        .name = "import",
        .words = "FILE [--dry-run]",
        .help = "Take answers from a file",
        .options = "dry-run",
        .run = run,
        .explain = explain,
};
