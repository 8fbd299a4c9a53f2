/* Export and import: answers on their way from store to store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/alike.h"
#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/list.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"
#include "client/lib/values.h"

enum {
	ROWS_AT_ONCE = 256,
	BYTES_AT_ONCE = 512 << 10, /* with one more row it still is within what the daemon takes */
	NOTES_KEPT = 1000,
	COMMIT_PATIENCE = 12, /* times that of another call: a large import takes its time on disk */
	COMMIT_ROWS = 16384,  /* that the daemon commits at once: once more that time for each */
};

/* ---- export ---- */

/* The row that is shown, and what it points to. */
struct shown {
	struct flytune_row row;
	char document[FLYTUNE_DOCUMENT_SIZE], pin_document[FLYTUNE_DOCUMENT_SIZE];
};

static int show_config(const struct ft_config *config, struct flytune_knob knob[FLYTUNE_KNOBS_MAX],
        uint32_t *count, char room[FLYTUNE_DOCUMENT_SIZE], const char **document, struct ft_error *error)
{
	if (config->document_length > 0) {
		memcpy(room, config->document, config->document_length);
		room[config->document_length] = '\0';
		*document = room;
	}
	return answer_knobs(config, knob, count, error);
}

static int show_row(struct ft_view view, struct shown *shown, struct ft_error *error)
{
	struct flytune_row *to = &shown->row;
	struct ft_row row, *from = &row;

	if (ft_decode(&ft_row_message, view, &row, error) != 0)
		return -1;
	flytune_row_init(to);
	FT_ROW(COPY_ALIKE);
	to->field_count = values_show(&row.problem, to->field);
	return show_config(&row.config, to->knob, &to->knob_count, shown->document, &to->document, error) !=
	                        0 ||
	                show_config(&row.pin, to->pin, &to->pin_count, shown->pin_document, &to->pin_document,
	                        error) != 0
	        ? -1
	        : 0;
}

struct export
{
	flytune_row_fn rows;
	void *data;
	struct shown *shown;
	bool stopped;
	char generation[FT_TOKEN_SIZE]; /* the first step says it, and the others go on in it */
	uint8_t place[64];              /* where the next step goes on */
	size_t place_length;            /* 0: nowhere */
	struct flytune_export_info info;
};

static int show_rows(struct export *export, struct ft_view rows, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(rows.data, rows.length);
	struct ft_view view;
	uint32_t count;

	if (!ft_read_array(&cursor, &count))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent something else than a list");
	for (uint32_t i = 0; i < count && !export->stopped; i++) {
		if (!ft_read_view(&cursor, &view))
			return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent a list that ends early");
		if (show_row(view, export->shown, error) != 0)
			return -1;
		export->stopped = export->rows(export->data, &export->shown->row) != 0;
	}
	return 0;
}

static int read_step(void *to, const struct client_reply *answer, struct ft_error *error)
{
	struct export *export = to;
	struct ft_export_reply reply;

	if (ft_decode(&ft_export_reply_message, answer->body, &reply, error) != 0)
		return -1;
	if (reply.place.length > sizeof export->place)
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned gave a place that this library cannot keep");
	export->place_length = reply.place.length;
	if (reply.place.length > 0)
		memcpy(export->place, reply.place.data, reply.place.length);
	snprintf(export->generation, sizeof export->generation, "%.36s:%llu", reply.store,
	        (unsigned long long)reply.generation);
	snprintf(export->info.store, sizeof export->info.store, "%s", reply.store);
	export->info.generation = reply.generation;
	export->info.hidden += reply.hidden;
	return show_rows(export, reply.rows, error);
}

static enum flytune_result export_step(
        flytune_client *client, struct export *export, struct flytune_error *out)
{
	struct ft_export_request request = {0};
	struct ft_error error;
	enum flytune_result code;

	memcpy(request.generation, export->generation, sizeof request.generation);
	if (export->place_length > 0)
		request.place = (struct ft_view){export->place, export->place_length};
	code = client_ask(client, "export", &ft_export_request_message, &request, read_step, export, out);
	if (code != FLYTUNE_OK || !export->stopped)
		return code;
	ft_fail(&error, FT_E_CANCELLED, "the export was ended by the program's own callback");
	return outcome(out, &error);
}

enum flytune_result flytune_export(flytune_client *client, flytune_row_fn rows, void *data,
        struct flytune_export_info *info, struct flytune_error *out)
{
	UNCANCELLED;
	struct export export = {.rows = rows, .data = data};
	enum flytune_result code;
	struct ft_error error;

	REQUIRE(client, out);
	REQUIRE(rows, out);
	if (info != NULL && sized_length(info) < sizeof info->size)
		return outcome_unsized(out, "flytune_export_info");
	export.shown = calloc(1, sizeof *export.shown);
	if (export.shown == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		return outcome(out, &error);
	}
	flytune_export_info_init(&export.info);
	memcpy(export.generation, client->token, sizeof export.generation);
	do {
		code = export_step(client, &export, out);
	} while (code == FLYTUNE_OK && export.place_length > 0);
	free(export.shown);
	if (code == FLYTUNE_OK && info != NULL)
		sized_out(info, &export.info, sizeof export.info);
	return code;
}

/* ---- import ---- */

struct flytune_import {
	flytune_client *client;
	struct connection *connection; /* NULL: after a failure, or the commit */
	struct ft_writer rows;         /* not sent yet */
	uint32_t count;
	struct flytune_import_note *note;
	size_t note_count;
	uint64_t notes; /* all of them, those too that are not kept */
	struct ft_import_reply last;
	struct ft_error error; /* of the failure */
};

static enum flytune_result fail_import(flytune_import *import, struct flytune_error *out)
{
	if (import->connection != NULL)
		client_drop(import->client, import->connection, NULL);
	import->connection = NULL;
	return outcome(out, &import->error);
}

/* Asks on the import's own connection, since the daemon ties rows to it. */
static enum flytune_result ask(flytune_import *import, const char *method, const struct ft_message *message,
        const void *body, int patience, struct ft_envelope *reply, struct flytune_error *out)
{
	flytune_client *client = import->client;

	if (import->connection == NULL)
		return outcome(out, &import->error);
	if (connection_call(import->connection, method, message, body,
	            clock_after(client->call_timeout_ms * patience), NULL, NULL, reply,
	            &import->error) == CALL_DONE)
		return FLYTUNE_OK;
	return fail_import(import, out);
}

enum flytune_result flytune_import_begin(
        flytune_client *client, flytune_import **made, struct flytune_error *out)
{
	UNCANCELLED;
	flytune_import *import;
	struct ft_empty request = {0};
	struct ft_envelope reply = {0};
	struct ft_error error;

	REQUIRE(client, out);
	if (made == NULL)
		return outcome_null(out, "import");
	import = calloc(1, sizeof *import);
	if (import == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		return outcome(out, &error);
	}
	client_enter(client);
	import->client = client;
	ft_writer_init_growing(&import->rows, (size_t)2 * BYTES_AT_ONCE);
	if (client_call_own(client, "import_begin", &ft_empty_message, &request,
	            clock_after(client->call_timeout_ms), NULL, NULL, &import->connection, &reply,
	            &error) != CALL_DONE) {
		import->connection = NULL;
		flytune_import_free(import);
		return outcome(out, &error);
	}
	*made = import;
	return FLYTUNE_OK;
}

static int keep_note(struct ft_view data, void *element, struct ft_error *error)
{
	struct flytune_import_note *to = element;
	struct ft_import_note note, *from = &note;

	if (ft_decode(&ft_import_note_message, data, &note, error) != 0)
		return -1;
	flytune_import_note_init(to);
	FT_IMPORT_NOTE(COPY_ALIKE);
	return 0;
}

static int keep_notes(flytune_import *import, struct ft_view notes)
{
	void *array = NULL;
	size_t count, keep;
	struct flytune_import_note *grown;

	if (notes.data == NULL)
		return 0;
	if (list_read(notes, sizeof *import->note, keep_note, &array, &count, &import->error) != 0)
		return -1;
	import->notes += count;
	keep = NOTES_KEPT - import->note_count < count ? NOTES_KEPT - import->note_count : count;
	if (keep > 0) {
		grown = realloc(import->note, (import->note_count + keep) * sizeof *grown);
		if (grown == NULL) {
			free(array);
			return ft_fail(&import->error, FT_E_MEMORY, "out of memory");
		}
		memcpy(grown + import->note_count, array, keep * sizeof *grown);
		import->note = grown;
		import->note_count += keep;
	}
	free(array);
	return 0;
}

/* Sends what has been gathered. */
static enum flytune_result send_rows(flytune_import *import, struct flytune_error *out)
{
	struct ft_import_request request;
	struct ft_writer list;
	struct ft_envelope reply = {0};
	enum flytune_result code;

	if (import->count == 0)
		return import->connection != NULL ? FLYTUNE_OK : outcome(out, &import->error);
	ft_writer_init_growing(&list, (size_t)4 * BYTES_AT_ONCE);
	ft_write_array(&list, import->count);
	ft_write_raw(&list, import->rows.data, import->rows.length);
	if (!ft_writer_ok(&list) || !ft_writer_ok(&import->rows)) {
		ft_writer_free(&list);
		ft_fail(&import->error, FT_E_MEMORY, "out of memory");
		return fail_import(import, out);
	}
	request.rows = (struct ft_view){list.data, list.length};
	code = ask(import, "import_rows", &ft_import_request_message, &request, 1, &reply, out);
	ft_writer_free(&list);
	ft_writer_reset(&import->rows);
	import->count = 0;
	if (code != FLYTUNE_OK)
		return code;
	if (ft_decode(&ft_import_reply_message, reply.body, &import->last, &import->error) != 0 ||
	        keep_notes(import, import->last.notes) != 0)
		return fail_import(import, out);
	return FLYTUNE_OK;
}

static bool ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static int read_config(const struct flytune_knob *knob, uint32_t count, const char *document,
        struct ft_config *config, struct ft_error *error)
{
	if (document != NULL) {
		if (count > 0 || strnlen(document, FLYTUNE_DOCUMENT_SIZE) == FLYTUNE_DOCUMENT_SIZE ||
		        *document == '\0')
			return ft_fail_field(error, FT_E_BAD_VALUE, "config",
			        count > 0 ? "knobs and a document" : "a document of another length",
			        "knobs, or a document of 1 to 4096 bytes");
		config->document = document;
		config->document_length = (uint32_t)strlen(document);
		return 0;
	}
	if (count > FLYTUNE_KNOBS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "a config has at most %d knobs", FLYTUNE_KNOBS_MAX);
	return answer_config(knob, count, config, error);
}

static int read_fields(const struct flytune_row *given, struct ft_problem *problem, struct ft_error *error)
{
	if (given->field_count > FLYTUNE_FIELDS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "a problem has at most %d fields", FLYTUNE_FIELDS_MAX);
	for (uint32_t i = 0; i < given->field_count; i++) {
		const struct flytune_value *field = &given->field[i];

		if (!ends(field->name, sizeof field->name) || !ends(field->text, sizeof field->text))
			return ft_fail(error, FT_E_BAD_VALUE, "a field's name or text does not end");
		if (ft_problem_find(problem, field->name) != NULL)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, field->name, "given twice", "given once");
		if ((field->text[0] != '\0'
		                    ? ft_problem_set_text(problem, field->name, field->text, error)
		                    : ft_problem_set_number(problem, field->name, field->number, error)) != 0)
			return -1;
	}
	return 0;
}

static int read_row(const struct flytune_row *from, struct ft_row *to, struct ft_error *error)
{
	memset(to, 0, sizeof *to);
	if (!ends(from->kernel, sizeof from->kernel) || !ends(from->device, sizeof from->device) ||
	        !ends(from->identity, sizeof from->identity) || !ends(from->origin, sizeof from->origin))
		return ft_fail(error, FT_E_BAD_VALUE, "a text of the row does not end");
	FT_ROW(COPY_ALIKE);
	if (read_fields(from, &to->problem, error) != 0 ||
	        read_config(from->knob, from->knob_count, from->document, &to->config, error) != 0)
		return -1;
	return read_config(from->pin, from->pin_count, from->pin_document, &to->pin, error);
}

enum flytune_result flytune_import_add(
        flytune_import *import, const struct flytune_row *given, struct flytune_error *out)
{
	UNCANCELLED;
	struct flytune_row *whole;
	struct ft_row *row;
	enum flytune_result code = FLYTUNE_OK;

	REQUIRE(import, out);
	if (given == NULL)
		return outcome_null(out, "row");
	whole = calloc(1, sizeof *whole);
	row = calloc(1, sizeof *row);
	client_enter(import->client);
	if (import->connection == NULL) {
		code = outcome(out, &import->error);
	} else if (whole == NULL || row == NULL) {
		ft_fail(&import->error, FT_E_MEMORY, "out of memory");
		code = fail_import(import, out);
	} else if (!sized_in(whole, sizeof *whole, given)) {
		code = outcome_unsized(out, "flytune_row");
	} else if (read_row(whole, row, &import->error) != 0) {
		code = fail_import(import, out);
	} else {
		ft_encode(&import->rows, &ft_row_message, row);
		import->count++;
		if (import->count == ROWS_AT_ONCE || import->rows.length >= BYTES_AT_ONCE)
			code = send_rows(import, out);
	}
	free(whole);
	free(row);
	return code;
}

static void report(const flytune_import *import, struct flytune_import_report *told)
{
	struct flytune_import_report read;

	flytune_import_report_init(&read);
	read.rows = import->last.rows;
	read.usable = import->last.usable;
	read.kept = import->last.kept;
	read.notes = import->notes;
	read.generation = import->last.generation;
	snprintf(read.store, sizeof read.store, "%s", import->last.store);
	if (told != NULL)
		sized_out(told, &read, sizeof read);
}

enum flytune_result flytune_import_check(
        flytune_import *import, struct flytune_import_report *told, struct flytune_error *out)
{
	UNCANCELLED;
	enum flytune_result code;

	REQUIRE(import, out);
	if (told != NULL && sized_length(told) < sizeof told->size)
		return outcome_unsized(out, "flytune_import_report");
	client_enter(import->client);
	code = send_rows(import, out);
	if (code == FLYTUNE_OK)
		report(import, told);
	return code;
}

enum flytune_result flytune_import_commit(
        flytune_import *import, struct flytune_import_report *told, struct flytune_error *out)
{
	UNCANCELLED;
	enum flytune_result code = flytune_import_check(import, NULL, out);
	struct ft_empty request = {0};
	struct ft_envelope reply = {0};

	if (code != FLYTUNE_OK)
		return code;
	if (told != NULL && sized_length(told) < sizeof told->size)
		return outcome_unsized(out, "flytune_import_report");
	code = ask(import, "import_commit", &ft_empty_message, &request,
	        COMMIT_PATIENCE + (int)(import->last.rows / COMMIT_ROWS), &reply, out);
	if (code != FLYTUNE_OK)
		return code;
	if (ft_decode(&ft_import_reply_message, reply.body, &import->last, &import->error) != 0)
		return fail_import(import, out);
	import->last.notes = (struct ft_view){NULL, 0};
	client_give(import->client, import->connection);
	import->connection = NULL;
	ft_fail(&import->error, FT_E_BAD_REQUEST, "the import was committed already");
	report(import, told);
	return FLYTUNE_OK;
}

int flytune_import_get_note(const flytune_import *import, size_t index, struct flytune_import_note *note)
{
	return import != NULL && index < import->note_count &&
	        sized_out(note, &import->note[index], sizeof import->note[index]);
}

void flytune_import_free(flytune_import *import)
{
	UNCANCELLED;

	if (import == NULL)
		return;
	client_enter(import->client);
	if (import->connection != NULL)
		client_drop(import->client, import->connection, NULL);
	ft_writer_free(&import->rows);
	free(import->note);
	free(import);
}
