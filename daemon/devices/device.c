#include "daemon/devices/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/devices/internal.h"
#include "daemon/host/bug.h"
#include "daemon/host/timer.h"
#include "kernels/host.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
	PROBES_MAX = 2,
	LOOK_MS = 250,   /* between two looks of those who ask */
	WATCH_MS = 1000, /* of nobody */
	PAUSE_FIRST_MS = 1000,
	PAUSE_LAST_MS = 300000,
};

void device_hash_text(const char *text, char hash[FT_HASH_SIZE])
{
	XXH128_hash_t value = XXH3_128bits(text, strlen(text));

	(void)snprintf(hash, FT_HASH_SIZE, "%016llx%016llx", (unsigned long long)value.high64,
	        (unsigned long long)value.low64);
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
	bool runs = access(slot->path, X_OK) == 0;
	bool driven = true;
	char stamp[STAMP_SIZE];
	uint64_t sum;

	hello_stamp_file(slot->path, stamp);
	sum = XXH3_64bits(stamp, strlen(stamp)) + runs;
	for (size_t kind = 0; kind < sizeof(sign_paths) / sizeof(sign_paths[0]); kind++) {
		if (strcmp(slot->kind, sign_paths[kind].kind) != 0)
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

static void slot_go(struct runner_slot *slot, enum slot_state next)
{
	(void)bug_unless(slot->devices->log, slot_may_go(slot->state, next),
	        "kind %s cannot go from \"%s\" to \"%s\"", slot->kind, slot_state_word(slot->state),
	        slot_state_word(next));
	slot->state = next;
}

/* What a slot knows is final for now. */
static void conclude(struct runner_slot *slot, enum slot_state state)
{
	struct devices *devices = slot->devices;

	slot_go(slot, state);
	if (has_device(slot, false)) {
		slot->pause_ms = 0;
		return;
	}
	slot->asked_at_ms = uv_now(devices->loop);
	slot->pause_ms = slot->pause_ms == 0         ? PAUSE_FIRST_MS
	        : 2 * slot->pause_ms < PAUSE_LAST_MS ? 2 * slot->pause_ms
	                                             : PAUSE_LAST_MS;
	if (slot->wanted && !has_device(slot, true))
		(void)devices_add_stand_in(
		        slot, DEVICE_ABSENT, NULL); /* else there is one default less to be had */
}

static void settle(struct runner_slot *slot, enum slot_state state, bool changed)
{
	conclude(slot, state);
	slot->devices->events->settled(slot->devices->data, slot, changed);
}

/* Has a runner say hello: those that run may have been started under other facts. */
static void ask_runner(struct runner_slot *slot, const char *why)
{
	bool any;

	slot->probe_failures = 0;
	slot->signs = look_for_signs(slot, &any);
	slot_kill_runners(slot, why);
	runner_start(&slot->first->runner); /* or when it is gone */
}

/* Its devices are known no more, until the runner has said hello anew: nothing is served as tuned meanwhile, and what is
 * being measured belongs to no device. */
static void doubt(struct runner_slot *slot)
{
	static const char why[] = "what it may use, or what it depends on, changed";
	struct devices *devices = slot->devices;

	log_line(devices->log, LOG_LEVEL_NOTICE, "device in doubt kind=%s: %s", slot->kind, why);
	slot_go(slot, SLOT_PROBING);
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = devices->device[i];

		if (device->slot != slot)
			continue;
		device_go(device, DEVICE_PROBING);
		device->key = 0;
		if (strcmp(slot->kind, "cpu") == 0)
			ft_traits_guess("cpu", &device->traits);
	}
	devices->events->doubted(devices->data, slot);
	ask_runner(slot, why);
}

/* Runners that said otherwise of their device work one that is no more, or is another's now. Those that have yet to say hello
 * are judged by that. */
static void let_go_of_others(struct worker *heard, const struct ft_runner_hello_reply *hello)
{
	struct devices *devices = heard->slot->devices;

	for (uint32_t i = 0; i < devices->worker_count; i++) {
		struct worker *worker = devices->worker[i];

		if (worker != heard && worker->slot == heard->slot && worker->said != 0 &&
		        worker->said != hello_of_device(hello, worker->device))
			runner_kill(&worker->runner, RUNNER_ASKED, "its device is not what it said");
	}
}

static void said_hello(void *data, struct ft_view reply)
{
	struct worker *worker = data;
	struct runner_slot *slot = worker->slot;
	struct devices *devices = slot->devices;
	struct ft_runner_hello_reply *hello = malloc(sizeof(*hello));
	struct store_batch *batch = store_batch_new(devices->store);
	struct ft_view before = hello_of_note(&slot->note);
	struct ft_writer note = {0};
	struct ft_error error;
	char facts[STAMP_SIZE];
	char name[64];
	bool same;

	hello_facts(slot, facts);
	if (strcmp(facts, worker->under) != 0) {
		doubt(slot); /* it does not know yet */
		goto drop;
	}
	if (hello == NULL || batch == NULL) {
		runner_kill(&worker->runner, RUNNER_UNSTARTED, "no memory for its hello");
		goto drop;
	}
	/* One that failed has lost its devices: whatever it says, they are to be made again. */
	same = (slot->state == SLOT_KNOWN || slot->state == SLOT_KNOWN_ASKED) &&
	        before.length == reply.length && before.length > 0 &&
	        memcmp(before.data, reply.data, reply.length) == 0;
	if (hello_read(reply, hello, &error) != 0 ||
	        (!same && devices_adopt(slot, hello, batch, &error) != 0)) {
		runner_kill(&worker->runner, RUNNER_PROTOCOL_ERROR, "its hello makes no sense: %s",
		        error.message);
		goto drop;
	}
	hello_write_note(worker, reply, hello, &note);
	hello_note_name(slot, name);
	if (note.length > 0 &&
	        (note.length != slot->note.length || memcmp(note.data, slot->note.data, note.length) != 0))
		(void)store_batch_note(batch, name, note.data, note.length);
	store_submit(batch, NULL, NULL);
	ft_writer_free(&slot->note);
	slot->note = note;
	for (uint32_t i = 0; i < devices->count && !same; i++) {
		if (devices->device[i]->slot == slot)
			log_line(devices->log, LOG_LEVEL_INFO,
			        "device ready id=%s name=\"%s\" arch=%s units=%llu",
			        devices->device[i]->shown.id, devices->device[i]->shown.name,
			        devices->device[i]->shown.arch,
			        (unsigned long long)devices->device[i]->shown.units);
	}
	if (hello->unconfined[0] != '\0' && !same)
		log_line(devices->log, LOG_LEVEL_WARNING, "not confined kind=%s: %s", slot->kind,
		        hello->unconfined);
	if (slot->reason[0] != '\0' && !same && !has_device(slot, false))
		log_line(devices->log, LOG_LEVEL_INFO, "no device kind=%s: %s", slot->kind, slot->reason);
	worker->said = hello_of_device(hello, worker->device);
	if (!same)
		let_go_of_others(worker, hello);
	free(hello);
	/* Before the events: they may give it work. */
	if (worker->said != 0 && has_device(slot, false))
		runner_rest(&worker->runner);
	else
		runner_release(&worker->runner);
	settle(slot, SLOT_KNOWN, !same);
	return;
drop:
	store_batch_drop(batch);
	free(hello);
}

static void said_event(void *data, const struct ft_runner_event *event)
{
	struct worker *worker = data;
	struct devices *devices = worker->slot->devices;

	devices_look(devices);
	if (!slot_is_asked(worker->slot->state)) /* else it measured who knows what */
		devices->events->runner_event(devices->data, worker, event);
}

static void went(void *data, enum runner_cause cause, const struct ft_error *why)
{
	struct worker *worker = data;
	struct runner_slot *slot = worker->slot;
	struct devices *devices = slot->devices;

	worker->said = 0;
	if (slot_is_asked(slot->state) && worker == slot->first && !devices->closing) {
		if (cause == RUNNER_ASKED ||
		        (++slot->probe_failures < PROBES_MAX && cause != RUNNER_UNSTARTED)) {
			runner_start(&worker->runner);
		} else {
			bool changed = has_device(slot, false);

			devices_drop(devices, slot);
			(void)snprintf(slot->reason, sizeof(slot->reason), "%.*s",
			        (int)sizeof(slot->reason) - 1, why->message);
			settle(slot, SLOT_FAILED, changed);
		}
	}
	devices->events->runner_gone(devices->data, worker, cause, why);
}

static const struct runner_events runner_events = {
        .starts = hello_note_begins,
        .hello = said_hello,
        .event = said_event,
        .gone = went,
};

/* Adopts what the store still knows of it; *known: that is enough. */
static int recall(struct runner_slot *slot, bool *known, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct ft_runner_hello_reply *hello = malloc(sizeof(*hello));
	char name[64];
	bool any;

	hello_note_name(slot, name);
	if (hello == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a hello");
	if (store_begin(devices->store, error) != 0) {
		free(hello);
		return -1;
	}
	/* That there is no device is no fact to rely on, unless there can be none. */
	if (store_get_note(devices->store, name, &slot->note, NULL) == 1 &&
	        hello_note_holds(slot, &slot->note, false) &&
	        hello_read(hello_of_note(&slot->note), hello, NULL) == 0 &&
	        devices_adopt(slot, hello, NULL, NULL) == 0)
		*known = has_device(slot, false) || (look_for_signs(slot, &any), !any);
	store_end(devices->store);
	free(hello);
	if (!*known) {
		ft_writer_reset(&slot->note);
		slot->reason[0] = '\0';
	}
	return 0;
}

static bool has_program(struct runner_slot *slot)
{
	if (access(slot->path, X_OK) == 0)
		return true;
	(void)snprintf(slot->reason, sizeof(slot->reason), "no runner program %.200s", slot->path);
	return false;
}

static int slot_init(struct runner_slot *slot, struct devices *devices, int kind, struct ft_error *error)
{
	bool known = false;
	bool any;

	slot->devices = devices;
	ft_writer_init_growing(&slot->note, ft_bounds_large.bytes);
	slot->kind = settings_kinds[kind];
	slot->path = devices->settings->runner[kind];
	slot->first = worker_new(slot, &runner_events, error);
	if (slot->first == NULL)
		return -1;
	slot->wanted = settings_wants_kind(devices->settings, settings_kinds[kind]);
	slot->signs = look_for_signs(slot, &any);
	if (slot->wanted && !has_program(slot))
		log_line(devices->log, LOG_LEVEL_NOTICE, "no device kind=%s: %s", slot->kind, slot->reason);
	else if (slot->wanted && recall(slot, &known, error) != 0)
		return -1;
	if (!slot->wanted || slot->reason[0] != '\0' || known) {
		conclude(slot, SLOT_KNOWN);
		return 0;
	}
	slot_go(slot, SLOT_PROBING);
	return devices_add_stand_in(slot, DEVICE_PROBING, error);
}

int devices_init(struct devices *devices, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, struct store *store, const struct devices_events *events, void *data,
        struct ft_error *error)
{
	*devices = (struct devices){
	        .loop = loop,
	        .log = log,
	        .settings = settings,
	        .store = store,
	        .events = events,
	        .data = data,
	        .fixed = hello_fixed_facts(),
	};
	kernels_read(&devices->kernels, log, settings);
	devices->fixed += kernels_hash(&devices->kernels);
	(void)uv_timer_init(loop, &devices->watch);
	devices->watch.data = devices;
	devices->has_watch = true;
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (slot_init(&devices->slot[kind], devices, kind, error) != 0)
			return -1;
	}
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (devices->slot[kind].state == SLOT_PROBING)
			runner_start(&devices->slot[kind].first->runner);
	}
	return 0;
}

/* ---- looking ---- */

static void ask_for_absent(struct runner_slot *slot)
{
	bool any;

	if (!has_program(slot)) {
		slot->signs = look_for_signs(slot, &any);
		return;
	}
	slot_go(slot, slot->state == SLOT_FAILED ? SLOT_FAILED_ASKED : SLOT_KNOWN_ASKED);
	ask_runner(slot, "it found no device");
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
	for (int kind = 0; kind < SETTINGS_KINDS && !devices->closing; kind++) {
		struct runner_slot *slot = &devices->slot[kind];
		bool any;

		if (!slot->wanted || slot_is_asked(slot->state))
			continue;
		if (has_device(slot, false)) {
			if (!hello_note_holds(slot, &slot->note, true))
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

void devices_read_kernels(struct devices *devices)
{
	const uint64_t before = kernels_hash(&devices->kernels);

	kernels_read(&devices->kernels, devices->log, devices->settings);
	devices->fixed += kernels_hash(&devices->kernels) - before;
}

void devices_ask_again(struct devices *devices)
{
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		struct runner_slot *slot = &devices->slot[kind];

		if (!slot->wanted || slot_is_asked(slot->state) || has_device(slot, false))
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
	for (uint32_t i = 0; i < devices->worker_count; i++) {
		if (hurry)
			runner_kill(&devices->worker[i]->runner, RUNNER_ASKED, "the daemon is stopping");
		else
			runner_release(&devices->worker[i]->runner);
	}
}

bool devices_idle(const struct devices *devices)
{
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (slot_runs(&devices->slot[kind]))
			return false;
	}
	return true;
}

void devices_free(struct devices *devices)
{
	for (int kind = 0; kind < SETTINGS_KINDS; kind++)
		ft_writer_free(&devices->slot[kind].note);
	workers_close(devices);
	for (uint32_t i = 0; i < devices->count; i++)
		device_retire(devices->device[i]);
	devices->count = 0;
	kernels_free(&devices->kernels);
}

bool devices_probing(const struct devices *devices)
{
	for (int kind = 0; kind < SETTINGS_KINDS; kind++) {
		if (slot_is_asked(devices->slot[kind].state))
			return true;
	}
	return false;
}

/* Of a kind of which nobody knows what there is, any id stands for the kind. */
static struct device *find_stand_in(const struct devices *devices, const char *id)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		struct device *device = devices->device[i];

		if (device->state != DEVICE_READY && settings_id_is_of(id, device->shown.kind))
			return device;
	}
	return NULL;
}

struct device *devices_find(struct devices *devices, const char *id, struct ft_error *error)
{
	struct device *stand_in;
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
	stand_in = find_stand_in(devices, id);
	if (stand_in != NULL)
		return stand_in;
	(void)ft_fail_field(error, FT_E_UNKNOWN_DEVICE, "device", id,
	        known[0] != '\0' ? known : "a device (there is none)");
	return NULL;
}

struct device_kernel *device_kernel_known(struct device *device, const char *name)
{
	for (uint32_t i = 0; i < device->kernel_count; i++) {
		if (strcmp(device->kernel[i].schema.kernel, name) == 0)
			return &device->kernel[i];
	}
	return NULL;
}

struct device_kernel *device_kernel_find(struct device *device, const char *name, struct ft_error *error)
{
	struct device_kernel *found = device_kernel_known(device, name);
	char bound[64];
	size_t length;

	if (found != NULL)
		return found;
	if (device->state != DEVICE_READY && device->kernel_count < DEVICE_KERNELS_MAX) {
		const struct ft_kernel *known = kernels_find(&device->slot->devices->kernels, name);
		const struct ft_schema *schema =
		        known != NULL ? known->schema(known, device->shown.kind) : NULL;

		if (schema != NULL) {
			struct device_kernel *kernel = &device->kernel[device->kernel_count++];

			kernel->known = known;
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
	enum slot_state of_kind = device->slot->state;

	if (device->state == DEVICE_ABSENT && (of_kind == SLOT_FAILED || of_kind == SLOT_FAILED_ASKED))
		return "failed";
	return device_state_word(device->state);
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
			device_hash_text(shown->identity, state->identity);
		}
		if (device->state == DEVICE_READY || device->state == DEVICE_ABSENT)
			(void)snprintf(state->reason, sizeof(state->reason), "%s", device->slot->reason);
		state->runner_pid = runner_pid(&device->worker->runner);
		(void)snprintf(state->holder, sizeof(state->holder), "%s",
		        device_holder_word(device->worker->holder));
		state->job = device->worker->job;
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
