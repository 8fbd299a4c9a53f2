#include "client/lib/device.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/lib/alike.h"
#include "client/lib/cancel.h"
#include "client/lib/list.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

struct flytune_device_list {
	struct flytune_device *device;
	size_t count;
};

static int read_device(struct ft_view data, void *element, struct ft_error *error)
{
	struct flytune_device *to = element;
	struct ft_device_state device, *from = &device;

	if (ft_decode(&ft_device_state_message, data, &device, error) != 0)
		return -1;
	flytune_device_init(to);
	FT_DEVICE_STATE(COPY_ALIKE);
	return 0;
}

flytune_device_list *device_list_read(struct ft_view data, struct ft_error *error)
{
	flytune_device_list *list = calloc(1, sizeof *list);
	void *array = NULL;

	if (list == NULL) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		return NULL;
	}
	if (list_read(data, sizeof *list->device, read_device, &array, &list->count, error) != 0) {
		free(list);
		return NULL;
	}
	list->device = array;
	return list;
}

static int read_devices(void *to, const struct client_reply *reply, struct ft_error *error)
{
	struct ft_devices_reply devices;
	flytune_device_list *made;

	if (ft_decode(&ft_devices_reply_message, reply->body, &devices, error) != 0)
		return -1;
	made = device_list_read(devices.devices, error);
	if (made == NULL)
		return -1;
	*(flytune_device_list **)to = made;
	return 0;
}

enum flytune_result flytune_devices(
        flytune_client *client, flytune_device_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};

	REQUIRE(list, out);
	return client_ask(client, "devices", &ft_empty_message, &request, read_devices, list, out);
}

size_t flytune_device_list_count(const flytune_device_list *list)
{
	return list != NULL ? list->count : 0;
}

int flytune_device_list_get(const flytune_device_list *list, size_t index, struct flytune_device *device)
{
	return list != NULL && index < list->count &&
	        sized_out(device, &list->device[index], sizeof list->device[index]);
}

void flytune_device_list_free(flytune_device_list *list)
{
	UNCANCELLED;

	if (list != NULL)
		free(list->device);
	free(list);
}
