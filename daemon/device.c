#include "daemon/device.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { STAMP_SIZE = 64, FILES_MAX = 64, PROBES_MAX = 2, PSEUDO_FILE_BYTES = 16384 };

static void hash_text(const char *text, char hash[FT_HASH_SIZE])
{
	XXH128_hash_t value = XXH3_128bits(text, strlen(text));

	(void)snprintf(hash, FT_HASH_SIZE, "%016llx%016llx", (unsigned long long)value.high64,
	        (unsigned long long)value.low64);
}

/* ---- stamps: has a file changed since a runner said hello? ---- */

static bool is_pseudo(const char *path)
{
	return strncmp(path, "/sys/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* Size and time of a file, the content of a pseudo file (which has no such times), "absent" if it is not
 * there. */
static void stamp_file(const char *path, char stamp[STAMP_SIZE])
{
	struct stat facts;

	if (stat(path, &facts) != 0) {
		(void)snprintf(stamp, STAMP_SIZE, "absent");
	} else if (is_pseudo(path) && S_ISREG(facts.st_mode)) {
		char content[PSEUDO_FILE_BYTES];
		int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		ssize_t length = descriptor < 0 ? -1 : read(descriptor, content, sizeof(content));

		if (descriptor >= 0)
			(void)close(descriptor);
		if (length < 0)
			(void)snprintf(stamp, STAMP_SIZE, "unreadable");
		else
			(void)snprintf(stamp, STAMP_SIZE, "content %016llx",
			        (unsigned long long)XXH3_64bits(content, (size_t)length));
	} else if (S_ISREG(facts.st_mode)) {
		(void)snprintf(stamp, STAMP_SIZE, "%lld %lld.%09ld", (long long)facts.st_size,
		        (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
	} else {
		(void)snprintf(stamp, STAMP_SIZE, "node %o %llx", (unsigned)(facts.st_mode & S_IFMT),
		        (unsigned long long)facts.st_rdev);
	}
}

static void note_name(const struct runner_slot *slot, char name[64])
{
	(void)snprintf(name, 64, "hello:%s", slot->runner.kind);
}

/* The note is [hello, [[path, stamp], …]]: the program itself first, then the files that the hello names. */
static void remember_hello(struct runner_slot *slot, struct store_batch *batch, struct ft_view reply,
        const struct ft_runner_hello_reply *hello)
{
	struct ft_cursor files = ft_cursor_of(hello->files.data, hello->files.length);
	struct ft_writer note;
	char stamp[STAMP_SIZE];
	char path[256];
	char name[64];
	uint32_t count = 0;

	if (hello->files.data == NULL || !ft_read_array(&files, &count) || count > FILES_MAX)
		count = 0;
	ft_writer_init_growing(&note, ft_bounds_request.bytes);
	ft_write_array(&note, 2);
	ft_write_bytes(&note, reply.data, reply.length);
	ft_write_array(&note, count + 1);
	stamp_file(slot->runner.path, stamp);
	ft_write_array(&note, 2);
	ft_write_text(&note, slot->runner.path);
	ft_write_text(&note, stamp);
	for (uint32_t i = 0; i < count; i++) {
		if (!ft_read_text_into(&files, path, sizeof(path))) {
			log_line(slot->devices->log, LOG_LEVEL_WARNING,
			        "runner names a file that is no path under 256 bytes kind=%s",
			        slot->runner.kind);
			ft_writer_free(&note);
			return; /* it will be asked anew at each start */
		}
		stamp_file(path, stamp);
		ft_write_array(&note, 2);
		ft_write_text(&note, path);
		ft_write_text(&note, stamp);
	}
	note_name(slot, name);
	if (ft_writer_ok(&note))
		(void)store_batch_note(batch, name, note.data, note.length);
	ft_writer_free(&note);
}

/* Whether the note's hello still holds; then `hello` is a view of it. */
static bool note_holds(const struct runner_slot *slot, const struct ft_writer *note, struct ft_view *hello)
{
	struct ft_cursor cursor = ft_cursor_of(note->data, note->length);
	uint32_t count = 0;

	if (!ft_read_array(&cursor, &count) || count != 2 ||
	        !ft_read_bytes(&cursor, &hello->data, &hello->length) || !ft_read_array(&cursor, &count))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		char path[256];
		char kept[STAMP_SIZE];
		char now[STAMP_SIZE];
		uint32_t two = 0;

		if (!ft_read_array(&cursor, &two) || two != 2 ||
		        !ft_read_text_into(&cursor, path, sizeof(path)) ||
		        !ft_read_text_into(&cursor, kept, sizeof(kept)))
			return false;
		if (i == 0 && strcmp(path, slot->runner.path) != 0)
			return false;
		stamp_file(path, now);
		if (strcmp(kept, now) != 0)
			return false;
	}
	return true;
}

/* ---- adopting a hello ---- */

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

static void drop_devices(struct devices *devices, const struct runner_slot *slot)
{
	struct device *dropped[DEVICES_MAX];
	uint32_t count = take_devices(devices, slot, dropped);

	for (uint32_t i = 0; i < count; i++)
		free(dropped[i]);
}

/* Keeps the order of kinds. */
static int insert_device(struct devices *devices, struct device *device, struct ft_error *error)
{
	uint32_t at = devices->count;

	if (devices->count == DEVICES_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "more than %d devices", DEVICES_MAX);
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
	char subject[FT_IDENTITY_SIZE + FT_NAME_SIZE + 2];

	if (device->kernel_count == DEVICE_KERNELS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "more than %d kernels", DEVICE_KERNELS_MAX);
	*kernel = (struct device_kernel){.fallback = said->fallback};
	if (ft_schema_read(said, &kernel->schema, error) != 0)
		return -1;
	kernel->built_in = ft_kernel_find(said->name);
	if (kernel->built_in != NULL) {
		const struct ft_schema *own = kernel->built_in->schema(slot->runner.kind);

		if (own == NULL || own->revision != kernel->schema.revision)
			return ft_fail(error, FT_E_PROTOCOL,
			        "the runner has revision %llu of kernel %s, the daemon %llu: upgrade both "
			        "together",
			        (unsigned long long)kernel->schema.revision, said->name,
			        own != NULL ? (unsigned long long)own->revision : 0);
	}
	(void)snprintf(kernel->identity_text, sizeof(kernel->identity_text), "%s source=%s", hello->identity,
	        said->source);
	hash_text(kernel->identity_text, kernel->identity_hash);
	(void)snprintf(subject, sizeof(subject), "%s@%s", said->name, device->shown.identity);
	if (store_intern(devices->store, STORE_KERNEL, said->name, &kernel->id, error) != 0 ||
	        store_intern(devices->store, STORE_IDENTITY, kernel->identity_text, &kernel->identity,
	                error) != 0 ||
	        store_intern(devices->store, STORE_DEVICE, subject, &kernel->subject, error) != 0)
		return -1;
	if (batch != NULL && store_batch_identity(batch, kernel->subject, kernel->identity) != 0)
		return ft_fail(error, FT_E_MEMORY, "no memory for an identity");
	device->kernel_count++;
	return 0;
}

static int adopt_device(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        const struct ft_runner_device *said, struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct ft_cursor kernels = ft_cursor_of(hello->kernels.data, hello->kernels.length);
	struct device *device;
	uint32_t count;

	if (!options_wants(devices->options, said->id))
		return 0;
	if (strcmp(said->kind, slot->runner.kind) != 0)
		return ft_fail_field(error, FT_E_BAD_VALUE, "kind", said->kind, slot->runner.kind);
	device = calloc(1, sizeof(*device));
	if (device == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a device");
	device->state = DEVICE_READY;
	device->shown = *said;
	device->slot = slot;
	device->traits.units = said->units;
	device->traits.wave = said->wave;
	device->traits.cache = said->cache;
	(void)snprintf(device->traits.kind, sizeof(device->traits.kind), "%s", said->kind);
	(void)snprintf(device->traits.arch, sizeof(device->traits.arch), "%s", said->arch);
	if (store_intern(devices->store, STORE_DEVICE, said->identity, &device->key, error) != 0)
		goto fail;
	if (!ft_read_array(&kernels, &count)) {
		(void)ft_fail_field(error, FT_E_BAD_REQUEST, "kernels", "no list", "a list");
		goto fail;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct ft_runner_kernel kernel;
		struct ft_view view;

		if (!ft_read_view(&kernels, &view)) {
			(void)ft_fail_field(error, FT_E_BAD_REQUEST, "kernels", "cut short", "a list");
			goto fail;
		}
		if (ft_decode(&ft_runner_kernel_message, view, &kernel, error) != 0 ||
		        adopt_kernel(slot, device, hello, &kernel, batch, error) != 0)
			goto fail;
	}
	if (insert_device(devices, device, error) == 0)
		return 0;
fail:
	free(device);
	return -1;
}

static int adopt_devices(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        struct store_batch *batch, struct ft_error *error)
{
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
	}
	free(device);
	return result;
}

/* Replaces the devices of a kind by what its runner says; a hello that makes no sense changes nothing. With a batch,
 * also records it. */
static int adopt_hello(
        struct runner_slot *slot, struct ft_view reply, struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct ft_runner_hello_reply *hello = malloc(sizeof(*hello));
	struct device *before[DEVICES_MAX];
	uint32_t count;
	int result = -1;

	if (hello == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a hello");
		goto out;
	}
	if (ft_decode(&ft_runner_hello_reply_message, reply, hello, error) != 0)
		goto out;
	if (hello->protocol < FT_RUNNER_PROTOCOL_MIN || hello->protocol > FT_RUNNER_PROTOCOL_MAX) {
		(void)ft_fail(error, FT_E_PROTOCOL, "it speaks protocol %llu; this daemon speaks %d to %d",
		        (unsigned long long)hello->protocol, FT_RUNNER_PROTOCOL_MIN, FT_RUNNER_PROTOCOL_MAX);
		goto out;
	}
	count = take_devices(devices, slot, before);
	if (adopt_devices(slot, hello, batch, error) != 0) {
		drop_devices(devices, slot);
		for (uint32_t i = 0; i < count; i++)
			(void)insert_device(devices, before[i], NULL); /* it had a place before */
		goto out;
	}
	for (uint32_t i = 0; i < count; i++)
		free(before[i]);
	(void)snprintf(slot->name, sizeof(slot->name), "%s", hello->runner);
	(void)snprintf(slot->reason, sizeof(slot->reason), "%s", hello->reason);
	if (batch != NULL)
		remember_hello(slot, batch, reply, hello);
	result = 0;
out:
	free(hello);
	return result;
}

/* A device to compute defaults for, until a runner was heard or where it has none. */
static int add_stand_in(struct runner_slot *slot, enum device_state state, struct ft_error *error)
{
	struct device *device = calloc(1, sizeof(*device));

	if (device == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a device");
	device->state = state;
	device->slot = slot;
	(void)snprintf(device->shown.id, sizeof(device->shown.id), "%s:0", slot->runner.kind);
	(void)snprintf(device->shown.kind, sizeof(device->shown.kind), "%s", slot->runner.kind);
	ft_traits_guess(slot->runner.kind, &device->traits);
	if (insert_device(slot->devices, device, error) != 0) {
		free(device);
		return -1;
	}
	return 0;
}

static bool has_device(const struct devices *devices, const struct runner_slot *slot)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		if (devices->device[i]->slot == slot)
			return true;
	}
	return false;
}

/* What a slot knows is final for now. */
static void conclude(struct runner_slot *slot)
{
	slot->probing = false;
	slot->settled = true;
	if (slot->wanted && !has_device(slot->devices, slot))
		(void)add_stand_in(slot, DEVICE_ABSENT, NULL); /* else there is one default less to be had */
}

static void settle(struct runner_slot *slot)
{
	conclude(slot);
	slot->devices->events->settled(slot->devices->data, slot);
}

static bool same_hello(const struct runner_slot *slot, struct ft_view reply)
{
	return slot->settled && slot->hello.length == reply.length &&
	        memcmp(slot->hello.data, reply.data, reply.length) == 0;
}

static void said_hello(void *data, struct ft_view reply)
{
	struct runner_slot *slot = data;
	struct devices *devices = slot->devices;
	struct store_batch *batch;
	struct ft_error error;

	if (!same_hello(slot, reply)) {
		batch = store_batch_new(devices->store);
		if (batch == NULL) {
			runner_kill(&slot->runner, RUNNER_UNSTARTED, "no memory for its hello");
			return;
		}
		if (adopt_hello(slot, reply, batch, &error) != 0) {
			store_batch_drop(batch);
			runner_kill(
			        &slot->runner, RUNNER_BABBLED, "its hello makes no sense: %s", error.message);
			return;
		}
		/* Without memory for it the next hello is taken for another. */
		ft_writer_reset(&slot->hello);
		ft_write_raw(&slot->hello, reply.data, reply.length);
		store_submit(batch, NULL, NULL);
		for (uint32_t i = 0; i < devices->count; i++) {
			if (devices->device[i]->slot == slot)
				log_line(devices->log, LOG_LEVEL_INFO,
				        "device ready id=%s name=\"%s\" arch=%s units=%llu",
				        devices->device[i]->shown.id, devices->device[i]->shown.name,
				        devices->device[i]->shown.arch,
				        (unsigned long long)devices->device[i]->shown.units);
		}
		if (slot->reason[0] != '\0')
			log_line(devices->log, LOG_LEVEL_INFO, "no device kind=%s: %s", slot->runner.kind,
			        slot->reason);
	}
	runner_rest(&slot->runner); /* before the events: they may give it work */
	settle(slot);
}

static void said_event(void *data, const struct ft_runner_event *event)
{
	struct runner_slot *slot = data;

	slot->devices->events->runner_event(slot->devices->data, slot, event);
}

static void went(void *data, enum runner_cause cause, const struct ft_error *why)
{
	struct runner_slot *slot = data;
	struct devices *devices = slot->devices;

	if (slot->probing && !devices->closing) {
		if (++slot->probe_failures < PROBES_MAX && cause != RUNNER_UNSTARTED) {
			runner_start(&slot->runner);
			return;
		}
		drop_devices(devices, slot);
		(void)snprintf(slot->reason, sizeof(slot->reason), "%.*s", (int)sizeof(slot->reason) - 1,
		        why->message);
		settle(slot);
	}
	devices->events->runner_gone(devices->data, slot, cause, why);
}

static const struct runner_events runner_events = {
        .hello = said_hello,
        .event = said_event,
        .gone = went,
};

static int slot_init(struct runner_slot *slot, struct devices *devices, int kind, struct ft_error *error)
{
	const char *path = devices->options->runner[kind];
	struct ft_writer note;
	struct ft_view hello;
	char name[64];

	slot->devices = devices;
	ft_writer_init_growing(&slot->hello, ft_bounds_large.bytes);
	if (runner_init(&slot->runner, devices->loop, devices->log, devices->options, options_kinds[kind],
	            path, &runner_events, slot, error) != 0)
		return -1;
	slot->wanted = options_wants_kind(devices->options, options_kinds[kind]);
	if (slot->wanted && access(path, X_OK) != 0)
		(void)snprintf(slot->reason, sizeof(slot->reason), "no runner program %.200s", path);
	if (slot->reason[0] != '\0')
		log_line(devices->log, LOG_LEVEL_NOTICE, "no device kind=%s: %s", slot->runner.kind,
		        slot->reason);
	if (!slot->wanted || slot->reason[0] != '\0') {
		conclude(slot);
		return 0;
	}
	ft_writer_init_growing(&note, ft_bounds_request.bytes);
	note_name(slot, name);
	if (store_begin(devices->store, error) != 0)
		return -1;
	if (store_get_note(devices->store, name, &note, NULL) == 1 && note_holds(slot, &note, &hello)) {
		ft_write_raw(&slot->hello, hello.data, hello.length);
		/* The hello's views point into the slot's copy, the note dies here. */
		hello.data = slot->hello.data;
		slot->settled = ft_writer_ok(&slot->hello) && adopt_hello(slot, hello, NULL, NULL) == 0;
	}
	store_end(devices->store);
	ft_writer_free(&note);
	if (slot->settled) {
		conclude(slot);
		return 0;
	}
	ft_writer_reset(&slot->hello);
	slot->probing = true;
	return add_stand_in(slot, DEVICE_PROBING, error);
}

int devices_init(struct devices *devices, uv_loop_t *loop, const struct log *log,
        const struct options *options, struct store *store, const struct devices_events *events, void *data,
        struct ft_error *error)
{
	*devices = (struct devices){
	        .loop = loop,
	        .log = log,
	        .options = options,
	        .store = store,
	        .events = events,
	        .data = data,
	};
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (slot_init(&devices->slot[kind], devices, kind, error) != 0)
			return -1;
	}
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (devices->slot[kind].probing)
			runner_start(&devices->slot[kind].runner);
	}
	return 0;
}

void devices_stop(struct devices *devices, bool hurry)
{
	devices->closing = true;
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (hurry)
			runner_kill(&devices->slot[kind].runner, RUNNER_ASKED, "the daemon is stopping");
		else
			runner_release(&devices->slot[kind].runner);
	}
}

bool devices_idle(const struct devices *devices)
{
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (devices->slot[kind].runner.state != RUNNER_OFF)
			return false;
	}
	return true;
}

void devices_free(struct devices *devices)
{
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		runner_close(&devices->slot[kind].runner);
		ft_writer_free(&devices->slot[kind].hello);
	}
	for (uint32_t i = 0; i < devices->count; i++)
		free(devices->device[i]);
	devices->count = 0;
}

bool devices_probing(const struct devices *devices)
{
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		if (devices->slot[kind].probing)
			return true;
	}
	return false;
}

struct device *devices_find(struct devices *devices, const char *id, struct ft_error *error)
{
	char known[200] = "";
	size_t length = 0;

	if (id == NULL || id[0] == '\0') {
		struct device *first = NULL;

		for (uint32_t i = devices->count; i-- > 0;) {
			if (first == NULL || devices->device[i]->state != DEVICE_ABSENT)
				first = devices->device[i];
		}
		if (first == NULL)
			(void)ft_fail(error, FT_E_UNAVAILABLE,
			        "no device: see `flytunectl devices` for the reasons");
		return first;
	}
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = devices->device[i];

		if (strcmp(device->shown.id, id) == 0 ||
		        (device->shown.pci[0] != '\0' && strcmp(device->shown.pci, id) == 0))
			return device;
		if (device->state != DEVICE_ABSENT && length < sizeof(known))
			length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
			        length > 0 ? ", " : "", device->shown.id);
	}
	(void)ft_fail_field(error, FT_E_UNKNOWN_DEVICE, "device", id,
	        known[0] != '\0' ? known : "a device (there is none)");
	return NULL;
}

struct device_kernel *device_kernel_find(struct device *device, const char *name, struct ft_error *error)
{
	char bound[64];
	size_t length;

	for (uint32_t i = 0; i < device->kernel_count; i++) {
		if (strcmp(device->kernel[i].schema.kernel, name) == 0)
			return &device->kernel[i];
	}
	if (device->state != DEVICE_READY && device->kernel_count < DEVICE_KERNELS_MAX) {
		const struct ft_kernel *built_in = ft_kernel_find(name);
		const struct ft_schema *schema =
		        built_in != NULL ? built_in->schema(device->shown.kind) : NULL;

		if (schema != NULL) {
			struct device_kernel *kernel = &device->kernel[device->kernel_count++];

			kernel->built_in = built_in;
			kernel->schema = *schema;
			return kernel;
		}
	}
	(void)snprintf(bound, sizeof(bound), "a kernel of %s", device->shown.id);
	length = strlen(bound);
	for (uint32_t i = 0; i < device->kernel_count && length < sizeof(bound); i++)
		length += (size_t)snprintf(bound + length, sizeof(bound) - length, "%s%s",
		        i > 0 ? ", " : ": ", device->kernel[i].schema.kernel);
	if (device->kernel_count == 0)
		(void)snprintf(bound + length, sizeof(bound) - length, ", whose runner has none");
	(void)ft_fail_field(error, FT_E_UNKNOWN_KERNEL, "kernel", name, bound);
	return NULL;
}

static const char *state_word(const struct device *device)
{
	switch (device->state) {
	case DEVICE_READY:
		return "ready";
	case DEVICE_PROBING:
		return "probing";
	case DEVICE_ABSENT:
		break;
	}
	return device->slot->probe_failures > 0 ? "failed" : "absent";
}

void devices_write(const struct devices *devices, struct ft_writer *writer)
{
	struct ft_device_state *state = malloc(sizeof(*state));

	if (state == NULL) {
		writer->failed = true;
		return;
	}
	ft_write_array(writer, devices->count);
	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->device[i];
		const struct ft_runner_device *shown = &device->shown;

		memset(state, 0, sizeof(*state));
		(void)snprintf(state->id, sizeof(state->id), "%s", shown->id);
		(void)snprintf(state->kind, sizeof(state->kind), "%s", shown->kind);
		(void)snprintf(state->state, sizeof(state->state), "%s", state_word(device));
		(void)snprintf(state->name, sizeof(state->name), "%s", shown->name);
		(void)snprintf(state->arch, sizeof(state->arch), "%s", shown->arch);
		(void)snprintf(state->pci, sizeof(state->pci), "%s", shown->pci);
		(void)snprintf(state->runner, sizeof(state->runner), "%s", device->slot->name);
		if (device->state == DEVICE_READY) {
			state->units = shown->units;
			state->memory = shown->memory;
			(void)snprintf(
			        state->identity_text, sizeof(state->identity_text), "%s", shown->identity);
			hash_text(shown->identity, state->identity);
		} else if (device->state == DEVICE_ABSENT) {
			(void)snprintf(state->reason, sizeof(state->reason), "%s", device->slot->reason);
		}
		state->runner_pid = runner_pid(&device->slot->runner);
		ft_encode(writer, &ft_device_state_message, state);
	}
	free(state);
}

const struct device_kernel *devices_kernel(
        const struct devices *devices, const struct store_key *key, const struct device **device)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		*device = devices->device[i];
		if ((*device)->key != key->device || key->device == 0)
			continue;
		for (uint32_t k = 0; k < (*device)->kernel_count; k++) {
			if ((*device)->kernel[k].id == key->kernel)
				return &(*device)->kernel[k];
		}
	}
	return NULL;
}
