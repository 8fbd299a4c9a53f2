#include "client/lib/device.h"

#include <stdio.h>
#include <stdlib.h>

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
	struct flytune_device *shown = element;
	struct ft_device_state device;

	if (ft_decode(&ft_device_state_message, data, &device, error) != 0)
		return -1;
	flytune_device_init(shown);
	snprintf(shown->id, sizeof shown->id, "%s", device.id);
	snprintf(shown->kind, sizeof shown->kind, "%s", device.kind);
	snprintf(shown->state, sizeof shown->state, "%s", device.state);
	snprintf(shown->name, sizeof shown->name, "%s", device.name);
	snprintf(shown->arch, sizeof shown->arch, "%s", device.arch);
	snprintf(shown->pci, sizeof shown->pci, "%s", device.pci);
	snprintf(shown->identity, sizeof shown->identity, "%s", device.identity);
	snprintf(shown->identity_text, sizeof shown->identity_text, "%s", device.identity_text);
	snprintf(shown->runner, sizeof shown->runner, "%s", device.runner);
	snprintf(shown->reason, sizeof shown->reason, "%s", device.reason);
	shown->units = device.units;
	shown->memory = device.memory;
	shown->runner_pid = device.runner_pid;
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

enum flytune_result flytune_devices(
        flytune_client *client, flytune_device_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};
	struct ft_devices_reply devices;
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	flytune_device_list *made = NULL;
	enum flytune_result code;

	REQUIRE(list, out);
	code = client_ask(client, "devices", &ft_empty_message, &request, &connection, &reply, out);
	if (code != FLYTUNE_OK)
		return code;
	if (ft_decode(&ft_devices_reply_message, reply.body, &devices, &error) == 0)
		made = device_list_read(devices.devices, &error);
	if (made == NULL) {
		client_drop(client, connection, NULL);
		return outcome(out, &error);
	}
	client_give(client, connection);
	*list = made;
	return FLYTUNE_OK;
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
