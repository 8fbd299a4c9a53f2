#include <stdlib.h>
#include <string.h>

#include "client/lib/cancel.h"
#include "client/lib/handle.h"
#include "client/lib/outcome.h"

enum flytune_result flytune_metrics(
        flytune_client *client, char **page, size_t *length, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct ft_metrics_reply metrics;
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	char *copy = NULL;
	enum flytune_result code;

	REQUIRE(page, out);
	code = client_ask(client, "metrics", &ft_empty_message, &request, &connection, &reply, out);
	if (code != FLYTUNE_OK)
		return code;
	if (ft_decode(&ft_metrics_reply_message, reply.body, &metrics, &error) == 0) {
		copy = calloc(1, metrics.page.length + 1);
		if (copy == NULL)
			ft_fail(&error, FT_E_MEMORY, "out of memory");
	}
	if (copy == NULL) {
		client_drop(client, connection, NULL);
		return outcome(out, &error);
	}
	memcpy(copy, metrics.page.data, metrics.page.length);
	client_give(client, connection);
	*page = copy;
	if (length != NULL)
		*length = metrics.page.length;
	return FLYTUNE_OK;
}

void flytune_text_free(char *text)
{
	UNCANCELLED;

	free(text);
}
