/* A hello: what a runner says of its devices and kernels, checked, and taken over where it makes sense. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/devices/internal.h"
#include "daemon/host/bug.h"
#include "kernels/host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FILES_MAX = 64 };
_Static_assert(DEVICES_MAX == 64 && DEVICE_KERNELS_MAX == 64, "as messages say below");

/* Takes a slot's devices out, to be put back or freed; gives their number. */
static uint32_t take_devices(
        struct devices *devices, const struct runner_slot *slot, struct device *taken[DEVICES_MAX])
{
	uint32_t kept = 0, count = 0;

	for (uint32_t i = 0; i < devices->count; i++) {
		if (devices->device[i]->slot == slot)
			taken[count++] = devices->device[i];
		else
			devices->device[kept++] = devices->device[i];
	}
	devices->count = kept;
	return count;
}

void device_go(struct device *device, enum device_state next)
{
	(void)bug_unless(device->slot->devices->log, device_may_go(device->state, next),
	        "device %s cannot go from \"%s\" to \"%s\"", device->shown.id,
	        device_state_word(device->state), device_state_word(next));
	device->state = next;
}

void device_use(struct device *device)
{
	if (device != NULL)
		device->users++;
}

void device_leave(struct device *device)
{
	if (device != NULL && --device->users == 0 && device->state == DEVICE_RETIRED)
		free(device);
}

void device_retire(struct device *device)
{
	device_go(device, DEVICE_RETIRED);
	if (device->users == 0)
		free(device);
}

void devices_drop(struct devices *devices, const struct runner_slot *slot)
{
	struct device *dropped[DEVICES_MAX];
	uint32_t count = take_devices(devices, slot, dropped);

	for (uint32_t i = 0; i < count; i++)
		device_retire(dropped[i]);
}

/* Keeps the order of kinds. */
static int insert_device(struct devices *devices, struct device *device, struct ft_error *error)
{
	uint32_t at = devices->count;

	if (devices->count == DEVICES_MAX)
		return ft_fail_field(error, FT_E_BAD_VALUE, "device", device->shown.id,
		        "one of 64 at most: choose some by the setting `device`");
	while (at > 0 && devices->device[at - 1]->slot > device->slot) {
		devices->device[at] = devices->device[at - 1];
		at--;
	}
	devices->device[at] = device;
	devices->count++;
	return 0;
}

static int adopt_kernel(struct runner_slot *slot, struct device *device,
        const struct ft_runner_hello_reply *hello, const struct ft_runner_kernel *said,
        struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct device_kernel *kernel = &device->kernel[device->kernel_count];
	char target[FT_IDENTITY_SIZE + FT_KERNEL_SIZE + 2];

	if (device->kernel_count == DEVICE_KERNELS_MAX)
		return ft_fail_field(
		        error, FT_E_BAD_VALUE, "kernel", said->name, "one of 64 at most on a device");
	memset(kernel, 0, sizeof(*kernel)); /* too large to be made on the stack */
	kernel->fallback = said->fallback;
	if (ft_schema_read(said, &kernel->schema, error) != 0)
		return -1;
	kernel->known = kernels_find(&devices->kernels, said->name);
	if (kernel->known != NULL) {
		const struct ft_schema *own = kernel->known->schema(kernel->known, slot->kind);

		if (own == NULL || own->revision != kernel->schema.revision)
			return ft_fail(error, FT_E_PROTOCOL,
			        "the runner has revision %llu of kernel %s, the daemon %llu: upgrade both "
			        "together",
			        (unsigned long long)kernel->schema.revision, said->name,
			        own != NULL ? (unsigned long long)own->revision : 0);
	}
	(void)snprintf(kernel->identity_text, sizeof(kernel->identity_text), "%s source=%s", hello->identity,
	        said->source);
	device_hash_text(kernel->identity_text, kernel->identity_hash);
	(void)snprintf(target, sizeof(target), "%s@%s", said->name, device->shown.identity);
	if (store_intern(devices->store, STORE_KERNEL, said->name, &kernel->id, error) != 0 ||
	        store_intern(devices->store, STORE_IDENTITY, kernel->identity_text, &kernel->identity,
	                error) != 0 ||
	        store_intern(devices->store, STORE_DEVICE, target, &kernel->target, error) != 0)
		return -1;
	if (batch != NULL && store_batch_identity(batch, kernel->target, kernel->identity) != 0)
		return ft_fail(error, FT_E_MEMORY, "no memory for an identity");
	device->kernel_count++;
	return 0;
}

static int adopt_device(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        const struct ft_runner_device *said, struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct ft_cursor kernels = ft_cursor_of(hello->kernels.data, hello->kernels.length);
	struct ft_runner_kernel *kernel = NULL;
	struct device *device;
	uint32_t count;

	if (!settings_wants(devices->settings, said->id))
		return 0;
	if (strcmp(said->kind, slot->kind) != 0)
		return ft_fail_field(error, FT_E_BAD_VALUE, "kind", said->kind, slot->kind);
	device = calloc(1, sizeof(*device));
	if (device == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a device");
	device->shown = *said;
	device->slot = slot;
	device_go(device, DEVICE_READY);
	device->worker = worker_of(slot, said->id, error);
	if (device->worker == NULL)
		goto fail;
	ft_traits_of(said, &device->traits);
	if (store_intern(devices->store, STORE_DEVICE, said->identity, &device->key, error) != 0 ||
	        store_intern(devices->store, STORE_DEVICE, said->id, &device->place, error) != 0 ||
	        store_intern(devices->store, STORE_IDENTITY, said->identity, &device->occupant, error) != 0)
		goto fail;
	if (batch != NULL && store_batch_identity(batch, device->place, device->occupant) != 0) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for an identity");
		goto fail;
	}
	if (!ft_read_array(&kernels, &count)) {
		(void)ft_fail_field(error, FT_E_BAD_REQUEST, "kernels", "no list", "a list");
		goto fail;
	}
	kernel = malloc(sizeof(*kernel));
	if (kernel == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a kernel");
		goto fail;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct ft_view view;

		if (!ft_read_view(&kernels, &view)) {
			(void)ft_fail_field(error, FT_E_BAD_REQUEST, "kernels", "cut short", "a list");
			goto fail;
		}
		if (ft_decode(&ft_runner_kernel_message, view, kernel, error) != 0 ||
		        adopt_kernel(slot, device, hello, kernel, batch, error) != 0)
			goto fail;
	}
	if (insert_device(devices, device, error) == 0) {
		free(kernel);
		return 0;
	}
fail:
	free(kernel);
	free(device);
	return -1;
}

/* What the operator wants of this kind and is not among `known`. With no other device that is the reason why there is none. */
static void note_missing(struct runner_slot *slot, const char *known)
{
	const struct devices *devices = slot->devices;
	bool has_any = false;

	for (uint32_t i = 0; i < devices->count; i++)
		has_any = has_any || devices->device[i]->slot == slot;
	for (uint32_t i = 0; i < devices->settings->device_count && known[0] != '\0'; i++) {
		const char *wanted = devices->settings->device[i];
		bool found = !settings_id_is_of(wanted, slot->kind);
		struct ft_error error;

		for (uint32_t k = 0; k < devices->count && !found; k++)
			found = strcmp(devices->device[k]->shown.id, wanted) == 0;
		if (found)
			continue;
		(void)ft_fail_field(&error, FT_E_UNKNOWN_DEVICE, "device", wanted, known);
		log_line(devices->log, LOG_LEVEL_WARNING, "%s", error.message);
		if (!has_any)
			(void)snprintf(slot->reason, sizeof(slot->reason), "%.*s",
			        (int)sizeof(slot->reason) - 1, error.message);
	}
}

/* `known` gets the ids of all, wanted or not. */
static int adopt_devices(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        struct store_batch *batch, char known[200], struct ft_error *error)
{
	size_t length = 0;
	struct ft_runner_device *device = malloc(sizeof(*device));
	struct ft_cursor list = ft_cursor_of(hello->devices.data, hello->devices.length);
	struct ft_view view;
	uint32_t count;
	int result = 0;

	if (device == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a hello");
	if (!ft_read_array(&list, &count)) {
		count = 0;
		result = ft_fail_field(error, FT_E_BAD_REQUEST, "devices", "no list", "a list");
	}
	for (uint32_t i = 0; i < count && result == 0; i++) {
		if (!ft_read_view(&list, &view))
			result = ft_fail_field(error, FT_E_BAD_REQUEST, "devices", "cut short", "a list");
		else if (ft_decode(&ft_runner_device_message, view, device, error) != 0 ||
		        adopt_device(slot, hello, device, batch, error) != 0)
			result = -1;
		else if (length < 200)
			length += (size_t)snprintf(
			        known + length, 200 - length, "%s%s", length > 0 ? ", " : "", device->id);
	}
	free(device);
	return result;
}

uint64_t hello_of_device(const struct ft_runner_hello_reply *hello, const char *id)
{
	struct ft_runner_device *device = malloc(sizeof(*device));
	struct ft_cursor list = ft_cursor_of(hello->devices.data, hello->devices.length);
	uint64_t sum = 0;
	struct ft_view view;
	uint32_t count;

	if (device == NULL || !ft_read_array(&list, &count))
		count = 0;
	for (uint32_t i = 0; i < count && sum == 0 && ft_read_view(&list, &view); i++) {
		if (ft_decode(&ft_runner_device_message, view, device, NULL) == 0 &&
		        strcmp(device->id, id) == 0)
			sum = 1 + XXH3_64bits(view.data, view.length) +
			        XXH3_64bits(hello->kernels.data, hello->kernels.length) +
			        XXH3_64bits(hello->identity, strlen(hello->identity));
	}
	free(device);
	return sum;
}

/* Whatever the daemon could not look at would make a hello that holds though it may not. */
static int check_files(const struct ft_runner_hello_reply *hello, struct ft_error *error)
{
	struct ft_cursor files = ft_cursor_of(hello->files.data, hello->files.length);
	char path[FILE_PATH_SIZE];
	char value[32];
	uint32_t count = 0;

	if (hello->files.data == NULL)
		return 0;
	if (!ft_read_array(&files, &count) || count > FILES_MAX) {
		(void)snprintf(value, sizeof(value), "a list of %u", count);
		return ft_fail_field(error, FT_E_BAD_VALUE, "files", value, "at most 64 paths");
	}
	for (uint32_t i = 0; i < count; i++) {
		(void)snprintf(value, sizeof(value), "no such path at %u", i);
		if (!ft_read_text_into(&files, path, sizeof(path)))
			return ft_fail_field(
			        error, FT_E_BAD_VALUE, "files", value, "paths of at most 255 bytes");
	}
	return 0;
}

int hello_read(struct ft_view reply, struct ft_runner_hello_reply *hello, struct ft_error *error)
{
	if (ft_decode(&ft_runner_hello_reply_message, reply, hello, error) != 0)
		return -1;
	if (hello->protocol < FT_RUNNER_PROTOCOL_MIN || hello->protocol > FT_RUNNER_PROTOCOL_MAX)
		return ft_fail(error, FT_E_PROTOCOL, "it speaks protocol %llu; this daemon speaks %d to %d",
		        (unsigned long long)hello->protocol, FT_RUNNER_PROTOCOL_MIN, FT_RUNNER_PROTOCOL_MAX);
	return check_files(hello, error);
}

int devices_adopt(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct device *before[DEVICES_MAX];
	uint32_t count = take_devices(devices, slot, before);
	char known[200] = "";

	if (adopt_devices(slot, hello, batch, known, error) != 0) {
		devices_drop(devices, slot);
		for (uint32_t i = 0; i < count; i++)
			(void)insert_device(devices, before[i], NULL); /* it had a place before */
		return -1;
	}
	for (uint32_t i = 0; i < count; i++)
		device_retire(before[i]);
	(void)snprintf(slot->name, sizeof(slot->name), "%s", hello->runner);
	(void)snprintf(slot->reason, sizeof(slot->reason), "%s",
	        hello->reason[0] != '\0' ? hello->reason : hello->unconfined);
	note_missing(slot, known);
	return 0;
}

int devices_add_stand_in(struct runner_slot *slot, enum device_state state, struct ft_error *error)
{
	const struct settings *settings = slot->devices->settings;
	struct device *device = calloc(1, sizeof(*device));

	if (device == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a device");
	device->slot = slot;
	device_go(device, state);
	device->worker = slot->first;
	(void)snprintf(device->shown.id, sizeof(device->shown.id), "%s:0", slot->kind);
	for (uint32_t i = settings->device_count; i-- > 0;) { /* by the first of it that is wanted */
		if (settings_id_is_of(settings->device[i], slot->kind))
			memcpy(device->shown.id, settings->device[i], sizeof(device->shown.id));
	}
	(void)snprintf(device->shown.kind, sizeof(device->shown.kind), "%s", slot->kind);
	ft_traits_guess(slot->kind, &device->traits);
	if (insert_device(slot->devices, device, error) != 0) {
		free(device);
		return -1;
	}
	return 0;
}
