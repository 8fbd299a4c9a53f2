#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/cancel.h"
#include "client/lib/list.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"
#include "client/lib/values.h"

struct flytune_miss_list {
	struct flytune_miss *miss;
	size_t count;
	struct flytune_misses_info info;
};

static int read_miss(struct ft_view data, void *element, struct ft_error *error)
{
	struct flytune_miss *shown = element;
	struct ft_miss miss;

	if (ft_decode(&ft_miss_message, data, &miss, error) != 0)
		return -1;
	flytune_miss_init(shown);
	snprintf(shown->kernel, sizeof shown->kernel, "%s", miss.kernel);
	snprintf(shown->device, sizeof shown->device, "%s", miss.device);
	shown->count = miss.count;
	shown->first_ago_ns = miss.first_ago_ns;
	shown->last_ago_ns = miss.last_ago_ns;
	shown->field_count = values_show(&miss.problem, shown->field);
	return 0;
}

static int read_misses(struct ft_view body, flytune_miss_list *list, struct ft_error *error)
{
	struct ft_misses_reply misses;
	void *array = NULL;

	if (ft_decode(&ft_misses_reply_message, body, &misses, error) != 0 ||
	        list_read(misses.misses, sizeof *list->miss, read_miss, &array, &list->count, error) != 0)
		return -1;
	list->miss = array;
	flytune_misses_info_init(&list->info);
	list->info.asked = misses.asked;
	list->info.forgotten = misses.forgotten;
	return 0;
}

enum flytune_result flytune_misses(
        flytune_client *client, size_t most, flytune_miss_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_misses_request request = {.most = most};
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	flytune_miss_list *made;
	enum flytune_result code;

	REQUIRE(list, out);
	code = client_ask(client, "misses", &ft_misses_request_message, &request, &connection, &reply, out);
	if (code != FLYTUNE_OK)
		return code;
	made = calloc(1, sizeof *made);
	if (made == NULL)
		ft_fail(&error, FT_E_MEMORY, "out of memory");
	if (made == NULL || read_misses(reply.body, made, &error) != 0) {
		free(made);
		client_drop(client, connection, NULL);
		return outcome(out, &error);
	}
	client_give(client, connection);
	*list = made;
	return FLYTUNE_OK;
}

size_t flytune_miss_list_count(const flytune_miss_list *list)
{
	return list != NULL ? list->count : 0;
}

int flytune_miss_list_get(const flytune_miss_list *list, size_t index, struct flytune_miss *miss)
{
	return list != NULL && index < list->count &&
	        sized_out(miss, &list->miss[index], sizeof list->miss[index]);
}

int flytune_miss_list_info(const flytune_miss_list *list, struct flytune_misses_info *info)
{
	return list != NULL && sized_out(info, &list->info, sizeof list->info);
}

void flytune_miss_list_free(flytune_miss_list *list)
{
	UNCANCELLED;

	if (list != NULL)
		free(list->miss);
	free(list);
}
