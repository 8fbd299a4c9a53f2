#include <stdio.h>
#include <string.h>

#include "client/lib/alike.h"
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

struct wanted {
	struct flytune_status_info status;
	flytune_device_list **devices; /* NULL: none of them */
};

static int read_status(void *data, const struct client_reply *reply, struct ft_error *error)
{
	struct wanted *wanted = data;
	struct flytune_status_info *to = &wanted->status;
	struct ft_status_reply status, *from = &status;

	if (ft_decode(&ft_status_reply_message, reply->body, &status, error) != 0)
		return -1;
	flytune_status_info_init(to);
	FT_STATUS_REPLY(COPY_ALIKE);
	if (read_lookups(status.lookups, to, error) != 0)
		return -1;
	if (wanted->devices == NULL)
		return 0;
	*wanted->devices = device_list_read(status.devices, error);
	return *wanted->devices != NULL ? 0 : -1;
}

enum flytune_result flytune_status(flytune_client *client, struct flytune_status_info *status,
        flytune_device_list **devices, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct wanted wanted = {.devices = devices};
	enum flytune_result code;

	REQUIRE(status, out);
	if (sized_length(status) < sizeof status->size)
		return outcome_unsized(out, "flytune_status");
	code = client_ask(client, "status", &ft_empty_message, &request, read_status, &wanted, out);
	if (code == FLYTUNE_OK)
		sized_out(status, &wanted.status, sizeof wanted.status);
	return code;
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
