#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/alike.h"
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
	struct flytune_miss *to = element;
	struct ft_miss miss, *from = &miss;

	if (ft_decode(&ft_miss_message, data, &miss, error) != 0)
		return -1;
	flytune_miss_init(to);
	FT_MISS(COPY_ALIKE);
	to->field_count = values_show(&miss.problem, to->field);
	return 0;
}

static int read_misses(void *to, const struct client_reply *reply, struct ft_error *error)
{
	flytune_miss_list **list = to;
	flytune_miss_list *made = calloc(1, sizeof *made);
	struct ft_misses_reply misses;
	void *array = NULL;

	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	if (ft_decode(&ft_misses_reply_message, reply->body, &misses, error) != 0 ||
	        list_read(misses.misses, sizeof *made->miss, read_miss, &array, &made->count, error) != 0) {
		free(made);
		return -1;
	}
	made->miss = array;
	flytune_misses_info_init(&made->info);
	made->info.asked = misses.asked;
	made->info.forgotten = misses.forgotten;
	*list = made;
	return 0;
}

enum flytune_result flytune_misses(
        flytune_client *client, size_t most, flytune_miss_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_misses_request request = {.most = most};

	REQUIRE(list, out);
	return client_ask(client, "misses", &ft_misses_request_message, &request, read_misses, list, out);
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
