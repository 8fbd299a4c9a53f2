#include "daemon/devices/device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/host/timer.h"
#include "kernels/host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
	FILES_MAX = 64,
	FILE_PATH_SIZE = 256,
	PROBES_MAX = 2,
	PSEUDO_FILE_BYTES = 16384,
	LOOK_MS = 250,   /* between two looks of those who ask */
	WATCH_MS = 1000, /* of nobody */
	PAUSE_FIRST_MS = 1000,
	PAUSE_LAST_MS = 300000,
};

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

/* Names in a folder, whatever their order. */
static void stamp_folder(const char *path, char stamp[STAMP_SIZE])
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	unsigned long long sum = 0;

	while (folder != NULL && (entry = readdir(folder)) != NULL)
		sum += XXH3_64bits(entry->d_name, strlen(entry->d_name));
	if (folder != NULL)
		(void)closedir(folder);
	(void)snprintf(stamp, STAMP_SIZE, "folder %016llx", sum);
}

/* Size and time of a file, the content of a pseudo file (which has no such times), what is in a folder, "absent" if it
 * is not there. */
static void stamp_file(const char *path, char stamp[STAMP_SIZE])
{
	struct stat facts;

	if (stat(path, &facts) != 0) {
		(void)snprintf(stamp, STAMP_SIZE, "absent");
	} else if (is_pseudo(path) && S_ISREG(facts.st_mode)) {
		static char
		        content[PSEUDO_FILE_BYTES]; /* of the loop's thread alone; too large for a stack */
		int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		ssize_t length = descriptor < 0 ? -1 : read(descriptor, content, sizeof(content));

		if (descriptor >= 0)
			(void)close(descriptor);
		if (length < 0)
			(void)snprintf(stamp, STAMP_SIZE, "unreadable");
		else
			(void)snprintf(stamp, STAMP_SIZE, "content %016llx",
			        (unsigned long long)XXH3_64bits(content, (size_t)length));
	} else if (S_ISDIR(facts.st_mode)) {
		stamp_folder(path, stamp);
	} else if (S_ISREG(facts.st_mode)) {
		(void)snprintf(stamp, STAMP_SIZE, "%lld %lld.%09ld", (long long)facts.st_size,
		        (long long)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
	} else {
		(void)snprintf(stamp, STAMP_SIZE, "node %o %llx", (unsigned)(facts.st_mode & S_IFMT),
		        (unsigned long long)facts.st_rdev);
	}
}

/* ---- what a hello depends on ---- */

/* All but files: the environment and, for the CPU, the machine and what the process may use of it. Whatever is inherited by
 * the runner holds for it as for the daemon. */
static void look_at_facts(const struct runner_slot *slot, char stamp[STAMP_SIZE])
{
	struct ft_allowance allowance;
	char text[128] = "";

	if (strcmp(slot->runner.kind, "cpu") == 0) {
		ft_allowance_read("", &allowance);
		ft_allowance_print(&allowance, text, sizeof(text));
	}
	(void)snprintf(stamp, STAMP_SIZE, "facts %016llx",
	        (unsigned long long)XXH3_64bits_withSeed(text, strlen(text), slot->devices->fixed));
}

/* The machine itself does not change under a process. */
static uint64_t fixed_facts(void)
{
	struct ft_traits traits = {.kind = "cpu"};
	struct ft_runner_device *shown = calloc(1, sizeof(*shown));
	struct ft_allowance allowance = {.cores = 1, .quota = UINT64_MAX, .memory = UINT64_MAX};
	uint64_t sum = runner_environment();

	if (shown != NULL) {
		ft_host_traits(&allowance, &traits);
		ft_host_describe("", &allowance, &traits, shown);
		sum += XXH3_64bits(shown->identity, strlen(shown->identity)) + shown->memory;
	}
	free(shown);
	return sum;
}

static void starts(void *data)
{
	struct runner_slot *slot = data;

	look_at_facts(slot, slot->under);
}

static void note_name(const struct runner_slot *slot, char name[64])
{
	(void)snprintf(name, 64, "hello:%s", slot->runner.kind);
}

static void write_stamp(struct ft_writer *note, const char *path)
{
	char stamp[STAMP_SIZE];

	stamp_file(path, stamp);
	ft_write_array(note, 2);
	ft_write_text(note, path);
	ft_write_text(note, stamp);
}

/* The note is [hello, facts, [[path, stamp], …]]: the program itself first, then the files that the hello names, which were
 * checked. Without memory it is empty and holds never. */
static void write_note(const struct runner_slot *slot, struct ft_view reply,
        const struct ft_runner_hello_reply *hello, struct ft_writer *note)
{
	struct ft_cursor files = ft_cursor_of(hello->files.data, hello->files.length);
	char path[FILE_PATH_SIZE];
	uint32_t count = 0;

	if (hello->files.data != NULL)
		(void)ft_read_array(&files, &count);
	ft_writer_init_growing(note, ft_bounds_large.bytes);
	ft_write_array(note, 3);
	ft_write_bytes(note, reply.data, reply.length);
	ft_write_text(note, slot->under);
	ft_write_array(note, count + 1);
	write_stamp(note, slot->runner.path);
	for (uint32_t i = 0; i < count; i++) {
		(void)ft_read_text_into(&files, path, sizeof(path));
		write_stamp(note, path);
	}
	if (!ft_writer_ok(note))
		ft_writer_reset(note);
}

/* The hello in a note; empty if there is none. */
static struct ft_view hello_of(const struct ft_writer *note)
{
	struct ft_cursor cursor = ft_cursor_of(note->data, note->length);
	struct ft_view hello = {0};
	uint32_t count = 0;

	if (!ft_read_array(&cursor, &count) || count != 3 ||
	        !ft_read_bytes(&cursor, &hello.data, &hello.length))
		return (struct ft_view){0};
	return hello;
}

/* What a driver answers by itself: it may keep whoever reads it waiting, as long as its device is in trouble. */
static bool is_drivers(const char *path)
{
	return strncmp(path, "/sys/bus/", 9) == 0 || strncmp(path, "/sys/class/", 11) == 0;
}

/* Whether a note's hello still holds. While clients are served, drivers are not asked; and what a running runner has
 * loaded stays as it was, whatever became of the files. */
static bool note_holds(const struct runner_slot *slot, const struct ft_writer *note, bool serving)
{
	struct ft_cursor cursor = ft_cursor_of(note->data, note->length);
	struct ft_view hello;
	char path[FILE_PATH_SIZE];
	char kept[STAMP_SIZE];
	char now[STAMP_SIZE];
	uint32_t count = 0;

	look_at_facts(slot, now);
	if (!ft_read_array(&cursor, &count) || count != 3 ||
	        !ft_read_bytes(&cursor, &hello.data, &hello.length) ||
	        !ft_read_text_into(&cursor, kept, sizeof(kept)) || strcmp(kept, now) != 0 ||
	        !ft_read_array(&cursor, &count))
		return false;
	if (serving && slot->runner.state != RUNNER_OFF)
		return true;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t two = 0;

		if (!ft_read_array(&cursor, &two) || two != 2 ||
		        !ft_read_text_into(&cursor, path, sizeof(path)) ||
		        !ft_read_text_into(&cursor, kept, sizeof(kept)))
			return false;
		if (i == 0 && strcmp(path, slot->runner.path) != 0)
			return false;
		if (serving && is_drivers(path))
			continue;
		stamp_file(path, now);
		if (strcmp(kept, now) != 0)
			return false;
	}
	return true;
}

/* ---- signs of a device ---- */

/* Of a kind: a driver makes these, so that without any there is nothing to ask for. */
static const struct {
	const char *kind;
	const char *paths[4];
} sign_paths[] = {
        {"hip", {"/dev/kfd", "/sys/module/amdgpu", "/dev/dxg", NULL}},
        {"cuda", {"/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg"}},
};

/* A sum that changes when a sign comes or goes. `any`: whether there could be a device, and a runner to find it. */
static uint64_t look_for_signs(const struct runner_slot *slot, bool *any)
{
	bool runs = access(slot->runner.path, X_OK) == 0;
	bool driven = true;
	char stamp[STAMP_SIZE];
	uint64_t sum;

	stamp_file(slot->runner.path, stamp);
	sum = XXH3_64bits(stamp, strlen(stamp)) + runs;
	for (size_t kind = 0; kind < sizeof(sign_paths) / sizeof(sign_paths[0]); kind++) {
		if (strcmp(slot->runner.kind, sign_paths[kind].kind) != 0)
			continue;
		driven = false;
		for (size_t i = 0; i < 4 && sign_paths[kind].paths[i] != NULL; i++) {
			bool there = access(sign_paths[kind].paths[i], F_OK) == 0;

			driven = driven || there;
			sum = sum * 3 + there;
		}
	}
	*any = runs && driven;
	return sum;
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

/* A job's end that is on the way to the store may still speak of it. */
static void retire(struct devices *devices, struct device *device)
{
	device->next_retired = devices->retired;
	devices->retired = device;
}

void devices_bury(struct devices *devices)
{
	while (devices->retired != NULL) {
		struct device *device = devices->retired;

		devices->retired = device->next_retired;
		free(device);
	}
}

static void drop_devices(struct devices *devices, const struct runner_slot *slot)
{
	struct device *dropped[DEVICES_MAX];
	uint32_t count = take_devices(devices, slot, dropped);

	for (uint32_t i = 0; i < count; i++)
		retire(devices, dropped[i]);
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
	memset(kernel, 0, sizeof(*kernel)); /* too large to be made on the stack */
	kernel->fallback = said->fallback;
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
	struct ft_runner_kernel *kernel = NULL;
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

static int read_hello(struct ft_view reply, struct ft_runner_hello_reply *hello, struct ft_error *error)
{
	if (ft_decode(&ft_runner_hello_reply_message, reply, hello, error) != 0)
		return -1;
	if (hello->protocol < FT_RUNNER_PROTOCOL_MIN || hello->protocol > FT_RUNNER_PROTOCOL_MAX)
		return ft_fail(error, FT_E_PROTOCOL, "it speaks protocol %llu; this daemon speaks %d to %d",
		        (unsigned long long)hello->protocol, FT_RUNNER_PROTOCOL_MIN, FT_RUNNER_PROTOCOL_MAX);
	return check_files(hello, error);
}

/* Replaces the devices of a kind by what its runner says; a hello that makes no sense changes nothing. With a batch,
 * also records it. */
static int adopt_hello(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        struct store_batch *batch, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct device *before[DEVICES_MAX];
	uint32_t count = take_devices(devices, slot, before);

	if (adopt_devices(slot, hello, batch, error) != 0) {
		drop_devices(devices, slot);
		for (uint32_t i = 0; i < count; i++)
			(void)insert_device(devices, before[i], NULL); /* it had a place before */
		return -1;
	}
	for (uint32_t i = 0; i < count; i++)
		retire(devices, before[i]);
	(void)snprintf(slot->name, sizeof(slot->name), "%s", hello->runner);
	(void)snprintf(slot->reason, sizeof(slot->reason), "%s", hello->reason);
	return 0;
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

/* A stand-in for what is absent is none. */
static bool has_device(const struct runner_slot *slot, bool stand_in)
{
	const struct devices *devices = slot->devices;

	for (uint32_t i = 0; i < devices->count; i++) {
		if (devices->device[i]->slot == slot &&
		        (stand_in || devices->device[i]->state != DEVICE_ABSENT))
			return true;
	}
	return false;
}

/* What a slot knows is final for now. */
static void conclude(struct runner_slot *slot)
{
	struct devices *devices = slot->devices;

	slot->probing = false;
	slot->settled = true;
	if (has_device(slot, false)) {
		slot->pause_ms = 0;
		return;
	}
	slot->asked_at_ms = uv_now(devices->loop);
	slot->pause_ms = slot->pause_ms == 0         ? PAUSE_FIRST_MS
	        : 2 * slot->pause_ms < PAUSE_LAST_MS ? 2 * slot->pause_ms
	                                             : PAUSE_LAST_MS;
	if (slot->wanted && !has_device(slot, true))
		(void)add_stand_in(slot, DEVICE_ABSENT, NULL); /* else there is one default less to be had */
}

static void settle(struct runner_slot *slot)
{
	conclude(slot);
	slot->devices->events->settled(slot->devices->data, slot);
}

/* Has the runner say hello: the one that runs, if any, may have been started under other facts. */
static void ask_runner(struct runner_slot *slot, const char *why)
{
	bool any;

	slot->probing = true;
	slot->probe_failures = 0;
	slot->signs = look_for_signs(slot, &any);
	if (slot->runner.state == RUNNER_OFF)
		runner_start(&slot->runner);
	else
		runner_kill(&slot->runner, RUNNER_ASKED, "%s", why); /* and starts it when it is gone */
}

/* Its devices are known no more, until the runner has said hello anew: nothing is served as tuned meanwhile, and what is
 * being measured belongs to no device. */
static void doubt(struct runner_slot *slot)
{
	static const char why[] = "what it may use, or what it depends on, changed";
	struct devices *devices = slot->devices;

	log_line(devices->log, LOG_LEVEL_NOTICE, "device in doubt kind=%s: %s", slot->runner.kind, why);
	slot->settled = false;
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = devices->device[i];

		if (device->slot != slot)
			continue;
		/* In place: a sweep may be on it. */
		device->state = DEVICE_PROBING;
		device->key = 0;
		if (strcmp(slot->runner.kind, "cpu") == 0)
			ft_traits_guess("cpu", &device->traits);
	}
	devices->events->doubted(devices->data, slot);
	ask_runner(slot, why);
}

static void said_hello(void *data, struct ft_view reply)
{
	struct runner_slot *slot = data;
	struct devices *devices = slot->devices;
	struct ft_runner_hello_reply *hello = malloc(sizeof(*hello));
	struct store_batch *batch = store_batch_new(devices->store);
	struct ft_view before = hello_of(&slot->note);
	struct ft_writer note = {0};
	struct ft_error error;
	char facts[STAMP_SIZE];
	char name[64];
	bool same;

	look_at_facts(slot, facts);
	if (strcmp(facts, slot->under) != 0) {
		doubt(slot); /* it does not know yet */
		goto drop;
	}
	if (hello == NULL || batch == NULL) {
		runner_kill(&slot->runner, RUNNER_UNSTARTED, "no memory for its hello");
		goto drop;
	}
	same = slot->settled && before.length == reply.length && before.length > 0 &&
	        memcmp(before.data, reply.data, reply.length) == 0;
	if (read_hello(reply, hello, &error) != 0 ||
	        (!same && adopt_hello(slot, hello, batch, &error) != 0)) {
		runner_kill(&slot->runner, RUNNER_BABBLED, "its hello makes no sense: %s", error.message);
		goto drop;
	}
	write_note(slot, reply, hello, &note);
	note_name(slot, name);
	if (note.length > 0 &&
	        (note.length != slot->note.length || memcmp(note.data, slot->note.data, note.length) != 0))
		(void)store_batch_note(batch, name, note.data, note.length);
	store_submit(batch, NULL, NULL);
	ft_writer_free(&slot->note);
	slot->note = note;
	slot->failed = false;
	for (uint32_t i = 0; i < devices->count && !same; i++) {
		if (devices->device[i]->slot == slot)
			log_line(devices->log, LOG_LEVEL_INFO,
			        "device ready id=%s name=\"%s\" arch=%s units=%llu",
			        devices->device[i]->shown.id, devices->device[i]->shown.name,
			        devices->device[i]->shown.arch,
			        (unsigned long long)devices->device[i]->shown.units);
	}
	if (slot->reason[0] != '\0' && !same)
		log_line(devices->log, LOG_LEVEL_INFO, "no device kind=%s: %s", slot->runner.kind,
		        slot->reason);
	free(hello);
	/* Before the events: they may give it work. */
	if (has_device(slot, false))
		runner_rest(&slot->runner);
	else
		runner_release(&slot->runner);
	settle(slot);
	return;
drop:
	store_batch_drop(batch);
	free(hello);
}

static void said_event(void *data, const struct ft_runner_event *event)
{
	struct runner_slot *slot = data;

	devices_look(slot->devices);
	if (!slot->probing) /* else it measured who knows what */
		slot->devices->events->runner_event(slot->devices->data, slot, event);
}

static void went(void *data, enum runner_cause cause, const struct ft_error *why)
{
	struct runner_slot *slot = data;
	struct devices *devices = slot->devices;

	if (slot->probing && !devices->closing) {
		if (cause == RUNNER_ASKED ||
		        (++slot->probe_failures < PROBES_MAX && cause != RUNNER_UNSTARTED)) {
			runner_start(&slot->runner);
		} else {
			drop_devices(devices, slot);
			slot->failed = true;
			(void)snprintf(slot->reason, sizeof(slot->reason), "%.*s",
			        (int)sizeof(slot->reason) - 1, why->message);
			settle(slot);
		}
	}
	devices->events->runner_gone(devices->data, slot, cause, why);
}

static const struct runner_events runner_events = {
        .starts = starts,
        .hello = said_hello,
        .event = said_event,
        .gone = went,
};

/* Adopts what the store still knows of it. */
static int recall(struct runner_slot *slot, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct ft_runner_hello_reply *hello = malloc(sizeof(*hello));
	char name[64];
	bool any;

	note_name(slot, name);
	if (hello == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a hello");
	if (store_begin(devices->store, error) != 0) {
		free(hello);
		return -1;
	}
	/* That there is no device is no fact to rely on, unless there can be none. */
	if (store_get_note(devices->store, name, &slot->note, NULL) == 1 &&
	        note_holds(slot, &slot->note, false) && read_hello(hello_of(&slot->note), hello, NULL) == 0 &&
	        adopt_hello(slot, hello, NULL, NULL) == 0)
		slot->settled = has_device(slot, false) || (look_for_signs(slot, &any), !any);
	store_end(devices->store);
	free(hello);
	if (!slot->settled) {
		ft_writer_reset(&slot->note);
		slot->reason[0] = '\0';
	}
	return 0;
}

static bool has_program(struct runner_slot *slot)
{
	if (access(slot->runner.path, X_OK) == 0)
		return true;
	(void)snprintf(slot->reason, sizeof(slot->reason), "no runner program %.200s", slot->runner.path);
	return false;
}

static int slot_init(struct runner_slot *slot, struct devices *devices, int kind, struct ft_error *error)
{
	bool any;

	slot->devices = devices;
	ft_writer_init_growing(&slot->note, ft_bounds_large.bytes);
	if (runner_init(&slot->runner, devices->loop, devices->log, devices->options, options_kinds[kind],
	            devices->options->runner[kind], &runner_events, slot, error) != 0)
		return -1;
	slot->wanted = options_wants_kind(devices->options, options_kinds[kind]);
	slot->signs = look_for_signs(slot, &any);
	if (slot->wanted && !has_program(slot))
		log_line(devices->log, LOG_LEVEL_NOTICE, "no device kind=%s: %s", slot->runner.kind,
		        slot->reason);
	else if (slot->wanted && recall(slot, error) != 0)
		return -1;
	if (!slot->wanted || slot->reason[0] != '\0' || slot->settled) {
		conclude(slot);
		return 0;
	}
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
	        .fixed = fixed_facts(),
	};
	(void)uv_timer_init(loop, &devices->watch);
	devices->watch.data = devices;
	devices->has_watch = true;
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

/* ---- looking ---- */

static void ask_for_absent(struct runner_slot *slot)
{
	bool any;

	if (has_program(slot))
		ask_runner(slot, "it found no device");
	else
		slot->signs = look_for_signs(slot, &any);
}

/* Without a free descriptor nothing can be read, which is not to be taken for "nothing is there". */
static bool can_look(void)
{
	int descriptor = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

	if (descriptor < 0)
		return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
	(void)close(descriptor);
	return true;
}

void devices_look_now(struct devices *devices)
{
	devices->look_at_ms = uv_now(devices->loop) + LOOK_MS;
	if (!can_look())
		return;
	for (int kind = 0; kind < OPTIONS_KINDS && !devices->closing; kind++) {
		struct runner_slot *slot = &devices->slot[kind];
		bool any;

		if (!slot->wanted || slot->probing)
			continue;
		if (has_device(slot, false)) {
			if (!note_holds(slot, &slot->note, true))
				doubt(slot);
		} else if (look_for_signs(slot, &any) != slot->signs) {
			slot->pause_ms = 0;
			ask_for_absent(slot);
		} else if (any && uv_now(devices->loop) >= slot->asked_at_ms + slot->pause_ms) {
			ask_for_absent(slot);
		}
	}
}

static void watched(uv_timer_t *timer)
{
	devices_look(timer->data);
}

void devices_watch(struct devices *devices, bool watch)
{
	if (devices->closing)
		return;
	if (watch)
		timer_repeat(&devices->watch, watched, WATCH_MS, WATCH_MS);
	else
		(void)uv_timer_stop(&devices->watch);
}

void devices_ask_again(struct devices *devices)
{
	for (int kind = 0; kind < OPTIONS_KINDS; kind++) {
		struct runner_slot *slot = &devices->slot[kind];

		if (!slot->wanted || slot->probing || has_device(slot, false))
			continue;
		slot->pause_ms = 0;
		ask_for_absent(slot);
	}
	devices_look_now(devices);
}

void devices_stop(struct devices *devices, bool hurry)
{
	devices->closing = true;
	if (devices->has_watch)
		uv_close((uv_handle_t *)&devices->watch, NULL);
	devices->has_watch = false;
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
		ft_writer_free(&devices->slot[kind].note);
	}
	devices_bury(devices);
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
		        (device->shown.pci[0] != '\0' && strcasecmp(device->shown.pci, id) == 0))
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
	return device->slot->failed ? "failed" : "absent";
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
