#include "daemon/methods/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"
#include "daemon/answers/staleness.h"

enum {
	EXPORT_PAGE = 128, /* records looked at in one request */
	EXPORT_STEP = 4,   /* before it is looked whether the turn is over */
};

/* A page of an export, some of it in each turn. */
struct outgoing {
	struct work work;
	struct context *context;
	size_t count_at; /* in the answer, where the number of rows stands */
	uint64_t generation, hidden;
	uint32_t looked_at, rows;
	struct store_place place;
	struct ft_row row;
};

static bool copy_name(const char *name, char *into, size_t size)
{
	return name != NULL && (size_t)snprintf(into, size, "%s", name) < size;
}

/* What a lookup would serve but for the pin: the winner, unless it is stale and there is an import. */
static bool fill_row(struct outgoing *out, const struct store_key *key, const struct store_answer *answer)
{
	struct store *store = out->context->store;
	struct ft_row *row = &out->row;
	const struct device *device;
	const struct device_kernel *kernel = devices_kernel(out->context->devices, key, &device);
	bool current = winner_is_current(kernel, &answer->winner);

	memset(row, 0, sizeof(*row));
	row->problem = answer->problem;
	if (!copy_name(store_name_text(store, STORE_KERNEL, key->kernel), row->kernel, sizeof(row->kernel)) ||
	        !copy_name(
	                store_name_text(store, STORE_DEVICE, key->device), row->device, sizeof(row->device)))
		return false;
	if (answer->pin.set) {
		row->pin = answer->pin.config;
		row->pinned_at_ns = answer->pin.at_ns;
	}
	if (current || (answer->winner.set && !answer->import.set)) {
		if (!copy_name(store_name_text(store, STORE_IDENTITY, answer->winner.identity), row->identity,
		            sizeof(row->identity)))
			return false;
		row->config = answer->winner.config;
		(void)snprintf(row->origin, sizeof(row->origin), "%s", store_uuid(store));
		row->time_ps = answer->winner.time_ps;
		row->default_time_ps = answer->winner.default_time_ps;
		row->gain_least_ppm = answer->winner.gain_least_ppm;
		row->seen_ppm = answer->winner.seen_ppm;
		row->order_class = answer->winner.order_class;
		row->unsettled = !answer->winner.conclusive;
		row->tuned_at_ns = answer->winner.tuned_at_ns;
	} else if (answer->import.set) {
		row->config = answer->import.config;
		(void)snprintf(row->identity, sizeof(row->identity), "%s", answer->import.identity);
		(void)snprintf(row->origin, sizeof(row->origin), "%s", answer->import.origin);
		row->time_ps = answer->import.time_ps;
		row->default_time_ps = answer->import.default_time_ps;
		row->gain_least_ppm = answer->import.gain_least_ppm;
		row->seen_ppm = answer->import.seen_ppm;
		row->order_class = answer->import.order_class;
		row->unsettled = answer->import.unsettled;
		row->tuned_at_ns = answer->import.at_ns;
	}
	return !ft_config_empty(&row->config) || !ft_config_empty(&row->pin);
}

static bool export_answer(void *data, const struct store_key *key, const struct store_answer *answer)
{
	struct outgoing *out = data;

	if (fill_row(out, key, answer)) {
		ft_encode(&out->work.answer, &ft_row_message, &out->row);
		out->rows++;
	}
	return true;
}

static bool export_step(struct work *work, struct session *session)
{
	struct outgoing *out = (struct outgoing *)work;
	struct ft_writer *writer = &work->answer;
	struct ft_error error;
	uint64_t hidden;

	do {
		if (context_read(out->context, &error) != 0 ||
		        store_each_answer(out->context->store, out->generation, EXPORT_STEP, &out->place,
		                export_answer, out, &hidden, &error) != 0) {
			ft_writer_reset(writer);
			ft_write_failure(writer, work->id, &error);
			return true;
		}
		out->hidden += hidden;
		out->looked_at += EXPORT_STEP;
		if (out->place.length == 0 || out->looked_at >= EXPORT_PAGE)
			break;
	} while (!session_spent(session, SESSION_HEAVY));
	if (out->place.length != 0 && out->looked_at < EXPORT_PAGE)
		return false;
	/* The rest of ft_export_reply, behind its rows. */
	ft_write_count(writer, out->count_at, out->rows);
	ft_write_text(writer, "place");
	ft_write_bytes(writer, out->place.at, out->place.length);
	ft_write_text(writer, "hidden");
	ft_write_uint(writer, out->hidden);
	return true;
}

static int begin_export(struct outgoing *out, const struct ft_export_request *request, struct ft_error *error)
{
	struct store *store = out->context->store;

	out->generation = store_generation(store);
	if (request->generation[0] != '\0' &&
	        lookup_token(store, request->generation, &out->generation, error) != 0)
		return -1;
	if (request->place.length != 0 && request->place.length != sizeof(out->place.at))
		return ft_fail_field(error, FT_E_BAD_VALUE, "place", "of another length", "one of a reply");
	if (request->place.length != 0) {
		memcpy(out->place.at, request->place.data, sizeof(out->place.at));
		out->place.length = sizeof(out->place.at);
	}
	return 0;
}

void method_export(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct context *context = group;
	struct outgoing *out = calloc(1, sizeof(*out));
	struct ft_writer *writer;
	struct ft_export_request request;
	struct ft_error error;

	if (out == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for an export");
		goto fail;
	}
	out->context = context;
	if (ft_decode(&ft_export_request_message, envelope->body, &request, &error) != 0 ||
	        begin_export(out, &request, &error) != 0)
		goto fail;
	out->work.step = export_step;
	out->work.id = envelope->id;
	out->work.bytes = sizeof(*out);
	writer = &out->work.answer;
	ft_writer_init_growing(writer, ft_bounds_large.bytes);
	ft_begin_response(writer, envelope->id);
	ft_write_map(writer, 5); /* as ft_export_reply */
	ft_write_text(writer, "store");
	ft_write_text(writer, store_uuid(context->store));
	ft_write_text(writer, "generation");
	ft_write_uint(writer, out->generation);
	ft_write_text(writer, "rows");
	out->count_at = ft_write_open_array(writer);
	session_begin(session, &out->work);
	return;
fail:
	free(out);
	session_fail(session, envelope->id, &error);
}
