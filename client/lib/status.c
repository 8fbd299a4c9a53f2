#include <stdio.h>
#include <string.h>

#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/device.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

static int read_lookups(struct ft_view data, struct flytune_status_info *status, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t pairs;

	if (!ft_read_map(&cursor, &pairs))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent counts of lookups that are no map");
	for (uint32_t i = 0; i < pairs; i++) {
		char source[16];
		uint64_t count;

		if (!ft_read_text_into(&cursor, source, sizeof source) || !ft_read_uint(&cursor, &count))
			return ft_fail(
			        error, FT_E_BAD_FRAME, "flytuned sent counts of lookups that are no numbers");
		status->lookups[answer_source(source)] += count;
	}
	return 0;
}

static int read_status(struct ft_view body, struct flytune_status_info *status, struct ft_view *devices,
        struct ft_error *error)
{
	struct ft_status_reply reply;

	if (ft_decode(&ft_status_reply_message, body, &reply, error) != 0)
		return -1;
	flytune_status_info_init(status);
	snprintf(status->server, sizeof status->server, "%s", reply.server);
	snprintf(status->store, sizeof status->store, "%s", reply.store);
	snprintf(status->state_dir, sizeof status->state_dir, "%s", reply.state_dir);
	snprintf(status->degraded, sizeof status->degraded, "%s", reply.degraded);
	snprintf(status->access, sizeof status->access, "%s", reply.access);
	snprintf(status->background, sizeof status->background, "%s", reply.background);
	status->background_waiting = reply.background_waiting;
	status->background_dropped = reply.background_dropped;
	snprintf(status->config, sizeof status->config, "%s", reply.config);
	status->stale_known = reply.stale_known;
	status->stale = reply.stale;
	status->misses = reply.misses;
	status->protocol = reply.protocol;
	status->pid = reply.pid;
	status->uptime_ns = reply.uptime_ns;
	status->generation = reply.generation;
	status->store_bytes = reply.store_bytes;
	status->store_limit = reply.store_limit;
	status->answers = reply.answers;
	status->damaged = reply.damaged;
	status->sessions = reply.sessions;
	status->sessions_limit = reply.sessions_limit;
	status->user_sessions_limit = reply.user_sessions_limit;
	status->sessions_refused = reply.sessions_refused;
	status->busiest_user = reply.busiest_user;
	status->busiest_sessions = reply.busiest_sessions;
	status->jobs_queued = reply.jobs_queued;
	status->jobs_running = reply.jobs_running;
	status->runner_restarts = reply.runner_restarts;
	status->paused = reply.paused;
	*devices = reply.devices;
	return read_lookups(reply.lookups, status, error);
}

enum flytune_result flytune_status(flytune_client *client, struct flytune_status_info *status,
        flytune_device_list **devices, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct flytune_status_info read;
	struct connection *connection;
	struct ft_view listed;
	struct ft_envelope reply;
	struct ft_error error;
	enum flytune_result code;
	int failed;

	REQUIRE(status, out);
	if (sized_length(status) < sizeof status->size)
		return outcome_unsized(out, "flytune_status");
	code = client_ask(client, "status", &ft_empty_message, &request, &connection, &reply, out);
	if (code != FLYTUNE_OK)
		return code;
	failed = read_status(reply.body, &read, &listed, &error);
	if (failed == 0 && devices != NULL) {
		*devices = device_list_read(listed, &error);
		failed = *devices == NULL ? -1 : 0;
	}
	if (failed != 0) {
		client_drop(client, connection, NULL);
		return outcome(out, &error);
	}
	client_give(client, connection);
	sized_out(status, &read, sizeof read);
	return FLYTUNE_OK;
}

enum flytune_result flytune_ping(flytune_client *client, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	enum call_result result;

	REQUIRE(client, out);
	client_enter(client);
	/* That it refuses is a sign of life as well. */
	result = client_call(client, "status", &ft_empty_message, &request,
	        clock_after(client->call_timeout_ms), true, &connection, &reply, &error);
	if (result == CALL_DONE)
		client_give(client, connection);
	return result == CALL_DONE || result == CALL_REFUSED ? FLYTUNE_OK : outcome(out, &error);
}
