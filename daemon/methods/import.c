#include "daemon/methods/import.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { IMPORT_BATCH = 16384 /* rows of one transaction: that many are applied together or not at all */ };

static const uint64_t time_max_ps = UINT64_C(3600) * 1000000000000;
static const uint64_t gain_max_ppm = UINT64_C(1000000000) * 1000000;
static const uint64_t date_max_ns = UINT64_C(253402300799) * 1000000000; /* the end of the year 9999 */

/* ---- what is staged ---- */

struct staged {
	struct store_key key;
	uint32_t row; /* 0: the place is free */
};

struct incoming_batch {
	struct incoming_batch *next;
	struct store_batch *batch;
	uint32_t rows;
};

struct transfer {
	struct context *context;
	uint32_t user;
	uint32_t rows, usable, kept;
	char device[2 * FT_IDENTITY_SIZE]; /* of the row before, with its id: they come in runs */
	uint32_t device_id;
	struct staged *seen; /* by hash of the key, for duplicates */
	size_t capacity;
	struct incoming_batch *first, *last;
	struct pending *pending; /* while it is being committed */
	uint32_t committed;
	char who[96]; /* for the audit */
};

void transfer_free(struct transfer *transfer)
{
	if (transfer == NULL)
		return;
	while (transfer->first != NULL) {
		struct incoming_batch *one = transfer->first;

		transfer->first = one->next;
		store_batch_drop(one->batch);
		free(one);
	}
	free(transfer->seen);
	free(transfer);
}

static size_t place_of_key(const struct staged *seen, size_t capacity, const struct store_key *key)
{
	size_t place = XXH3_64bits(key, sizeof(*key)) & (capacity - 1);

	while (seen[place].row != 0 && memcmp(&seen[place].key, key, sizeof(*key)) != 0)
		place = (place + 1) & (capacity - 1);
	return place;
}

/* The row that had this key before; 0 if none had, and now this one has; -1 when out of memory. */
static int64_t note_key(struct transfer *transfer, const struct store_key *key, uint32_t row)
{
	size_t place;

	if (transfer->capacity < 2 * ((size_t)transfer->kept + 1)) {
		size_t capacity = transfer->capacity == 0 ? 256 : 2 * transfer->capacity;
		struct staged *seen = calloc(capacity, sizeof(*seen));

		if (seen == NULL)
			return -1;
		for (size_t i = 0; i < transfer->capacity; i++) {
			if (transfer->seen[i].row != 0)
				seen[place_of_key(seen, capacity, &transfer->seen[i].key)] =
				        transfer->seen[i];
		}
		free(transfer->seen);
		transfer->seen = seen;
		transfer->capacity = capacity;
	}
	place = place_of_key(transfer->seen, transfer->capacity, key);
	if (transfer->seen[place].row != 0)
		return transfer->seen[place].row;
	transfer->seen[place] = (struct staged){.key = *key, .row = row};
	return 0;
}

static struct store_batch *batch_with_room(struct transfer *transfer)
{
	struct incoming_batch *one;

	if (transfer->last != NULL && transfer->last->rows < IMPORT_BATCH)
		return transfer->last->batch;
	one = calloc(1, sizeof(*one));
	if (one == NULL)
		return NULL;
	one->batch = store_batch_new(transfer->context->store);
	if (one->batch == NULL) {
		free(one);
		return NULL;
	}
	if (transfer->last != NULL)
		transfer->last->next = one;
	else
		transfer->first = one;
	transfer->last = one;
	return one->batch;
}

/* ---- one row ---- */

/* A row, as its checks see it. */
struct incoming {
	struct transfer *transfer;
	struct ft_row row;
	const struct device *device; /* NULL: not on this host */
	const struct device_kernel *kernel;
	const struct ft_kernel *known;
	const struct ft_schema *schema; /* NULL: no kernel of that name is known here */
	struct ft_problem whole;
	bool usable;
	struct ft_import_note note; /* field "": nothing to be said */
};

/* Texts that are no names: they are compared, shown and logged, and never leave the daemon as anything else.
 * Still nothing is let in that a shell, a terminal or a log could take for more than a text. */
static bool plain_text(const char *text, const char *more)
{
	for (const char *at = text; *at != '\0'; at++) {
		bool word = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
		        (*at >= '0' && *at <= '9');

		if (!word && strchr(more, *at) == NULL)
			return false;
	}
	return true;
}

static int check_text(
        const char *field, const char *text, size_t size, const char *more, struct ft_error *error)
{
	char bound[64];

	if (text[0] != '\0' && strlen(text) < size && plain_text(text, more))
		return 0;
	(void)snprintf(bound, sizeof(bound), "1 to %zu letters, digits and plain signs", size - 1);
	return ft_fail_field(error, FT_E_BAD_VALUE, field, text[0] != '\0' ? text : "empty", bound);
}

static int check_number(const char *field, uint64_t value, uint64_t least, uint64_t most, const char *meaning,
        struct ft_error *error)
{
	char text[24], bound[64];

	if (value >= least && value <= most)
		return 0;
	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	(void)snprintf(bound, sizeof(bound), "from %" PRIu64 " to %" PRIu64 "%s", least, most, meaning);
	return ft_fail_field(error, FT_E_BAD_VALUE, field, text, bound);
}

static int check_texts(const struct ft_row *row, struct ft_error *error)
{
	static const char signs[] = " =.,:;+-_/()[]{}@#%*?~^";

	if (check_text("device", row->device, FT_IDENTITY_SIZE, signs, error) != 0)
		return -1;
	if (ft_config_empty(&row->config)) {
		if (ft_config_empty(&row->pin))
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, "config", "missing", "given, or else a pin");
		if (row->identity[0] != '\0' || row->origin[0] != '\0' || row->time_ps != 0 ||
		        row->default_time_ps != 0 || row->gain_least_ppm != 0 || row->seen_ppm != 0 ||
		        row->order_class != 0 || row->unsettled || row->tuned_at_ns != 0)
			return ft_fail_field(error, FT_E_BAD_REQUEST, "config", "missing",
			        "given, since the row says how it was measured");
	} else if (check_text("identity", row->identity, FT_IDENTITY_SIZE, signs, error) != 0 ||
	        check_text("origin", row->origin, sizeof(row->origin), "._:-", error) != 0) {
		return -1;
	}
	if (ft_config_empty(&row->pin) && row->pinned_at_ns != 0)
		return ft_fail_field(error, FT_E_BAD_REQUEST, "pin", "missing", "given, since it has a date");
	if (row->time_ps > 0 &&
	        check_number("time_ps", row->time_ps, FT_SAMPLE_LEAST_PS, time_max_ps, "", error) != 0)
		return -1;
	if (check_number("default_time_ps", row->default_time_ps, 0, time_max_ps, ", an hour", error) != 0 ||
	        check_number("gain_least_ppm", row->gain_least_ppm, 0, gain_max_ppm, "", error) != 0 ||
	        check_number("seen_ppm", row->seen_ppm, 0, 1000000, ", all of it", error) != 0 ||
	        check_number("tuned_at_ns", row->tuned_at_ns, 0, date_max_ns, ", in the year 9999", error) !=
	                0)
		return -1;
	return check_number("pinned_at_ns", row->pinned_at_ns, 0, date_max_ns, ", in the year 9999", error);
}

static void say(struct incoming *in, const char *field, bool usable, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

static void say(struct incoming *in, const char *field, bool usable, const char *format, ...)
{
	va_list arguments;

	in->usable = usable;
	in->note.row = in->transfer->rows;
	in->note.usable = usable;
	(void)snprintf(in->note.field, sizeof(in->note.field), "%s", field);
	va_start(arguments, format);
	(void)vsnprintf(in->note.reason, sizeof(in->note.reason), format, arguments);
	va_end(arguments);
}

/* The device and the kernel that a row is for, as far as this host has them. */
static void find_kernel(struct incoming *in)
{
	const struct devices *devices = in->transfer->context->devices;

	in->known = kernels_find(&devices->kernels, in->row.kernel);
	in->schema = in->known != NULL ? in->known->schema(in->known, "cpu") : NULL;
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = devices->device[i];
		const struct device_kernel *kernel;

		if (device->key == 0)
			continue;
		kernel = device_kernel_find(device, in->row.kernel, NULL);
		if (kernel == NULL)
			continue;
		/* Fields are the same for every kind of device. */
		if (in->schema == NULL)
			in->schema = &kernel->schema;
		if (strcmp(device->shown.identity, in->row.device) == 0) {
			in->device = device;
			in->kernel = kernel;
			in->schema = &kernel->schema;
			return;
		}
	}
}

static int prefix_field(const char *prefix, struct ft_error *error)
{
	char field[sizeof(error->field)];

	if (error->field[0] != '\0') {
		(void)snprintf(field, sizeof(field), "%s.%.36s", prefix, error->field);
		memcpy(error->field, field, sizeof(field));
	} else {
		(void)snprintf(error->field, sizeof(error->field), "%s", prefix);
	}
	return -1;
}

static int check_problem(struct incoming *in, struct ft_error *error)
{
	int failed = in->known != NULL
	        ? ft_problem_admit(in->known, in->schema, &in->row.problem, &in->whole, error)
	        : ft_schema_complete(in->schema, &in->row.problem, &in->whole, error);

	return failed == 0 ? 0 : prefix_field("problem", error);
}

/* Of a device that is not here the kind is not known: the knobs must be those of one of the kinds. */
static int check_foreign_config(const struct incoming *in, const struct ft_config *given,
        struct ft_config *ordered, struct ft_error *error)
{
	struct ft_error first = {0};

	if (in->known == NULL)
		return ft_schema_check_config(in->schema, given, ordered, error);
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		const struct ft_schema *schema = in->known->schema(in->known, settings_kinds[kind]);

		if (schema == NULL)
			continue;
		if (ft_schema_check_config(schema, given, ordered, error) == 0)
			return 0;
		/* What is wrong with a value says more than that another kind has other knobs. */
		if (first.code[0] == '\0' || strcmp(first.code, FT_E_UNKNOWN_KNOB) == 0)
			first = *error;
	}
	*error = first;
	return -1;
}

/* Refuses what no problem of this kernel can have; reports what this problem cannot have here. */
static int check_config(
        struct incoming *in, const char *field, struct ft_config *config, struct ft_error *error)
{
	struct ft_config ordered;
	struct ft_error why;

	if (ft_config_empty(config))
		return 0;
	if (in->kernel == NULL) {
		if (check_foreign_config(in, config, &ordered, error) != 0)
			return prefix_field(field, error);
	} else {
		if (ft_schema_check_config(&in->kernel->schema, config, &ordered, error) != 0)
			return prefix_field(field, error);
		if (in->known != NULL &&
		        in->known->check_config(in->known, &in->whole, &in->device->traits, &ordered, &why) !=
		                0)
			say(in, field, false, "%s", why.message);
	}
	*config = ordered;
	return 0;
}

static int device_id(struct transfer *transfer, const char *device, uint32_t *id, struct ft_error *error)
{
	if (transfer->device_id == 0 || strcmp(transfer->device, device) != 0) {
		if (store_intern(
		            transfer->context->store, STORE_DEVICE, device, &transfer->device_id, error) != 0)
			return -1;
		(void)snprintf(transfer->device, sizeof(transfer->device), "%s", device);
	}
	*id = transfer->device_id;
	return 0;
}

static int add_slots(struct transfer *transfer, struct store_batch *batch, const struct store_key *key,
        const struct incoming *in)
{
	const struct ft_row *row = &in->row;
	struct store_import *import = calloc(1, sizeof(*import));
	int failed = import == NULL ? -1 : 0;

	if (failed == 0 && !ft_config_empty(&row->config)) {
		import->set = true;
		import->config = row->config;
		import->time_ps = row->time_ps;
		import->default_time_ps = row->default_time_ps;
		import->gain_least_ppm = row->gain_least_ppm;
		import->seen_ppm = row->seen_ppm;
		import->order_class = row->order_class;
		import->unsettled = row->unsettled;
		import->at_ns = row->tuned_at_ns;
		(void)snprintf(import->origin, sizeof(import->origin), "%s", row->origin);
		(void)snprintf(import->identity, sizeof(import->identity), "%s", row->identity);
		failed = store_batch_import(batch, key, &in->whole, import);
	}
	if (failed == 0 && !ft_config_empty(&row->pin)) {
		struct store_pin pin = {
		        .set = true, .config = row->pin, .user = transfer->user, .at_ns = row->pinned_at_ns};

		failed = store_batch_pin(batch, key, &in->whole, &pin);
	}
	free(import);
	return failed;
}

static int stage(struct incoming *in, struct ft_error *error)
{
	struct transfer *transfer = in->transfer;
	struct store_batch *batch;
	struct store_key key;
	int64_t before;

	memset(&key, 0, sizeof(key));
	if (store_intern(transfer->context->store, STORE_KERNEL, in->row.kernel, &key.kernel, error) != 0 ||
	        device_id(transfer, in->row.device, &key.device, error) != 0)
		return -1;
	ft_schema_key(in->schema, &in->whole, &key.problem);
	before = note_key(transfer, &key, transfer->rows);
	if (before > 0)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "the same problem and device as row %" PRId64 "; a problem must stand there once",
		        before);
	batch = before == 0 ? batch_with_room(transfer) : NULL;
	if (batch == NULL || add_slots(transfer, batch, &key, in) != 0)
		return ft_fail(error, FT_E_MEMORY, "no memory for an import");
	transfer->last->rows++;
	transfer->kept++;
	return 0;
}

static int take_row(struct incoming *in, struct ft_view view, struct ft_error *error)
{
	struct transfer *transfer = in->transfer;

	transfer->rows++;
	memset(&in->note, 0, sizeof(in->note));
	in->device = NULL;
	in->kernel = NULL;
	in->usable = true;
	if (ft_decode(&ft_row_message, view, &in->row, error) != 0)
		return -1;
	if (!ft_kernel_name_valid(in->row.kernel))
		return ft_fail_field(error, FT_E_BAD_VALUE, "kernel", in->row.kernel, "a kernel's name");
	if (check_texts(&in->row, error) != 0)
		return -1;
	find_kernel(in);
	if (in->schema == NULL) {
		/* Without its schema a problem has no key, so the row cannot be kept. */
		say(in, "kernel", false, "no kernel %s is known here", in->row.kernel);
		return 0;
	}
	if (in->kernel == NULL)
		say(in, "device", false, "no device here is \"%.180s\"", in->row.device);
	if (check_problem(in, error) != 0 || check_config(in, "config", &in->row.config, error) != 0 ||
	        check_config(in, "pin", &in->row.pin, error) != 0)
		return -1;
	if (in->kernel != NULL && in->note.field[0] == '\0' && !ft_config_empty(&in->row.config) &&
	        strcmp(in->row.identity, in->kernel->identity_text) != 0)
		say(in, "identity", true, "measured under another compiler, driver or kernel source");
	transfer->usable += in->usable;
	return stage(in, error);
}

/* ---- the methods ---- */

void method_import_begin(void *group, struct session *session, const struct ft_envelope *envelope)
{
	const struct imports *imports = group;
	struct ft_empty reply = {.ok = true};
	struct transfer *transfer;
	struct ft_error error;

	/* What is usable here depends on the devices. */
	if (devices_probing(imports->context->devices)) {
		if (parked_add(imports->parked, session, envelope, method_import_begin, group, &error) != 0)
			session_fail(session, envelope->id, &error);
		return;
	}
	transfer = calloc(1, sizeof(*transfer));
	if (transfer == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for an import");
		session_fail(session, envelope->id, &error);
		return;
	}
	transfer->context = imports->context;
	transfer->user = session->user;
	(void)snprintf(transfer->who, sizeof(transfer->who), "import uid=%u gid=%u pid=%" PRId64,
	        session->user, session->group, session->process);
	transfer_free(session->transfer);
	session->transfer = transfer;
	session_reply(session, envelope->id, &ft_empty_message, &reply);
}

static struct transfer *transfer_of(const struct session *session, struct ft_error *error)
{
	if (session->transfer == NULL)
		(void)ft_fail(error, FT_E_BAD_REQUEST,
		        "no import is under way on this connection: begin one with import_begin");
	return session->transfer;
}

/* Says which row it is, and the field by its whole name. */
static void name_row(const struct incoming *in, struct ft_error *error)
{
	struct ft_error inner = *error;
	const char *field = inner.field;
	bool named = field[0] == '\0' || strncmp(inner.message, field, strlen(field)) == 0;

	(void)snprintf(error->message, sizeof(error->message), "row %u: %s%s%.230s", in->transfer->rows,
	        named ? "" : field, named ? "" : ": ", inner.message);
}

/* Rows on their way into an import, some in each turn. */
struct taking {
	struct work work;
	struct incoming in;
	struct ft_cursor rows;
	uint32_t left, note_count;
	struct ft_writer notes;
};

static void drop_taking(struct work *work)
{
	struct taking *taking = (struct taking *)work;

	ft_writer_free(&taking->notes);
	free(taking);
}

/* One bad row spoils them all. */
static void end_import(struct session *session)
{
	transfer_free(session->transfer);
	session->transfer = NULL;
}

static int take_next(struct taking *taking, struct ft_error *error)
{
	struct incoming *in = &taking->in;
	struct ft_view view;

	if (!ft_read_view(&taking->rows, &view))
		return ft_fail_field(error, FT_E_BAD_REQUEST, "rows", "cut short", "a list");
	if (take_row(in, view, error) != 0) {
		name_row(in, error);
		return -1;
	}
	if (in->note.field[0] != '\0') {
		ft_encode(&taking->notes, &ft_import_note_message, &in->note);
		taking->note_count++;
	}
	taking->left--;
	return 0;
}

static bool take_rows(struct work *work, struct session *session)
{
	struct taking *taking = (struct taking *)work;
	struct ft_writer *writer = &work->answer;
	struct ft_error error;

	while (taking->left > 0) {
		if (take_next(taking, &error) != 0)
			goto fail;
		work->bytes = sizeof(*taking) + taking->notes.capacity;
		if (session_spent(session, SESSION_HEAVY / 2))
			return false;
	}
	ft_begin_response(writer, work->id);
	ft_write_map(writer, 3); /* as ft_import_reply */
	ft_write_text(writer, "rows");
	ft_write_uint(writer, taking->in.transfer->rows);
	ft_write_text(writer, "usable");
	ft_write_uint(writer, taking->in.transfer->usable);
	ft_write_text(writer, "notes");
	ft_write_array(writer, taking->note_count);
	ft_write_raw(writer, taking->notes.data, taking->notes.length);
	if (ft_writer_ok(&taking->notes) && ft_writer_ok(writer))
		return true;
	ft_writer_reset(writer);
	(void)ft_fail(&error, FT_E_MEMORY, "no memory for an import");
fail:
	end_import(session);
	ft_write_failure(writer, work->id, &error);
	return true;
}

void method_import_rows(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct taking *taking = calloc(1, sizeof(*taking));
	struct ft_import_request request;
	struct ft_error error;

	(void)group;
	if (taking == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for an import");
		goto fail;
	}
	taking->in.transfer = transfer_of(session, &error);
	if (taking->in.transfer == NULL ||
	        ft_decode(&ft_import_request_message, envelope->body, &request, &error) != 0)
		goto fail;
	taking->rows = ft_cursor_of(request.rows.data, request.rows.length);
	if (!ft_read_array(&taking->rows, &taking->left)) {
		(void)ft_fail_field(&error, FT_E_BAD_REQUEST, "rows", "no list", "a list");
		goto fail;
	}
	taking->work.step = take_rows;
	taking->work.free = drop_taking;
	taking->work.id = envelope->id;
	ft_writer_init_growing(&taking->notes, ft_bounds_large.bytes);
	ft_writer_init_growing(&taking->work.answer, ft_bounds_large.bytes);
	session_begin(session, &taking->work);
	return;
fail:
	free(taking);
	end_import(session);
	session_fail(session, envelope->id, &error);
}

static void commit_next(struct transfer *transfer);

static void end_commit(struct transfer *transfer, uint64_t generation, const struct ft_error *error)
{
	const struct log *log = transfer->context->log;
	struct session *session = transfer->pending->session;
	struct ft_import_reply reply = {.rows = transfer->rows,
	        .usable = transfer->usable,
	        .kept = transfer->committed,
	        .generation = generation};
	struct ft_error told;

	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(transfer->context->store));
	if (error == NULL) {
		log_line(log, LOG_LEVEL_NOTICE, "audit %s rows=%u usable=%u kept=%u generation=%" PRIu64,
		        transfer->who, transfer->rows, transfer->usable, transfer->committed, generation);
	} else {
		told = *error;
		if (transfer->committed > 0)
			(void)ft_fail(&told, error->code, "%u of %u rows are in the store, then: %.200s",
			        transfer->committed, transfer->kept, error->message);
		log_line(log, LOG_LEVEL_WARNING, "audit %s rows=%u kept=%u failed: %s", transfer->who,
		        transfer->rows, transfer->committed, error->message);
	}
	if (session != NULL && error == NULL)
		session_reply(session, transfer->pending->id, &ft_import_reply_message, &reply);
	else if (session != NULL)
		session_fail(session, transfer->pending->id, &told);
	pending_free(transfer->pending);
	transfer_free(transfer);
}

static void batch_committed(void *data, uint64_t generation, const struct ft_error *error)
{
	struct transfer *transfer = data;
	struct incoming_batch *one = transfer->first;

	/* The batch itself is the store's by now. */
	transfer->first = one->next;
	if (error == NULL)
		transfer->committed += one->rows;
	free(one);
	if (error != NULL || transfer->first == NULL)
		end_commit(transfer, generation, error);
	else
		commit_next(transfer);
}

/* One after the other, so that nothing follows a batch that failed. */
static void commit_next(struct transfer *transfer)
{
	struct store_batch *batch = transfer->first->batch;

	transfer->first->batch = NULL;
	store_submit(batch, batch_committed, transfer);
}

void method_import_commit(void *group, struct session *session, const struct ft_envelope *envelope)
{
	const struct imports *imports = group;
	struct ft_error error;
	struct transfer *transfer = transfer_of(session, &error);

	if (transfer == NULL) {
		session_fail(session, envelope->id, &error);
		return;
	}
	transfer->pending = pending_new(session, envelope->id, &error);
	if (transfer->pending == NULL) {
		session_fail(session, envelope->id, &error);
		return;
	}
	/* From here on it is its own: a client that hangs up changes nothing any more. */
	session->transfer = NULL;
	if (transfer->first != NULL)
		commit_next(transfer);
	else
		end_commit(transfer, store_generation(imports->context->store), NULL);
}
