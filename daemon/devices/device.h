/* The devices of this host as the daemon knows them, each with the worker that has its runner, and the kernels it
 * has.
 *
 * What a runner said in its last hello is kept in the store, with what it depends on: stamps of files, the environment that
 * runners inherit, and for the CPU what affinity and control groups leave of it. While none of that changed, the daemon knows
 * its devices without starting anything. Where something did, at a start or while it runs, the runner is asked anew, and the
 * devices of its kind are `probing` until it has said hello. Every later start says hello again, and a hello that differs
 * replaces what was known.
 *
 * A kind that has no device is asked for again: when something of it appears (its runner, the driver's nodes), and else after
 * growing pauses, as long as there is something that could be one.
 *
 * Nothing notifies of most of these changes, so they are looked for: while the daemon is asked for something, and by a timer
 * while there are clients that keep answers and do not ask. An idle daemon looks at nothing. */
#ifndef FLYTUNE_DAEMON_DEVICE_H
#define FLYTUNE_DAEMON_DEVICE_H

#include "daemon/devices/device_holder.h"
#include "daemon/devices/device_state.h"
#include "daemon/devices/kernels.h"
#include "daemon/devices/runner.h"
#include "daemon/store/store.h"

enum { DEVICE_KERNELS_MAX = 64, DEVICES_MAX = 64, DEVICE_TRIED = 1024, WORKERS_MAX = 2 * DEVICES_MAX };

/* A kernel on one device. */
struct device_kernel {
	const struct ft_kernel *known; /* NULL: only its runner knows it */
	struct ft_schema schema;
	struct ft_config fallback; /* the default of a kernel that only its runner knows; count 0: none */
	uint32_t id;               /* interned name; 0 while probing */
	uint32_t identity;         /* interned: what a trial's result depends on; 0 while probing */
	uint32_t target;           /* interned: this kernel on this device, whose identity has a history */
	char identity_text[2 * FT_IDENTITY_SIZE];
	char identity_hash[FT_HASH_SIZE];
	/* What lookups found of configs that they were to serve as nearest: a hash of problem and config, its last bit
	 * replaced by whether a search would try it. True of this kernel on this device, and gone with them. */
	uint64_t tried[DEVICE_TRIED];
};

struct runner_slot;

struct device {
	enum device_state state;
	struct ft_runner_device shown;
	struct ft_traits traits;
	uint32_t key;      /* interned identity of the device: equal devices share it; 0 while probing */
	uint32_t place;    /* interned: its id, whose device has a history: `cpu:0` may become another */
	uint32_t occupant; /* interned: the device's identity, as that history has it */
	struct runner_slot *slot;
	struct worker *worker;
	uint32_t users; /* who speak of it for longer than a call */
	uint32_t kernel_count;
	struct device_kernel kernel[DEVICE_KERNELS_MAX];
};

enum { STAMP_SIZE = 64 };

/* What works one device: a runner process of its own, so that no fault of another's touches it, and who has it. Lives as long
 * as the daemon's devices do, whatever hellos make of the device. */
struct worker {
	struct runner_slot *slot;
	uint32_t number;                /* in the list of all */
	char device[FT_DEVICE_ID_SIZE]; /* whose; "": no device's yet */
	struct runner runner;
	char under[STAMP_SIZE]; /* the facts under which the runner was started last */
	uint64_t said;          /* a hash of what it said of its device then */
	enum device_holder holder;
	uint64_t job; /* its holder's; 0: none */
};

/* A kind of device: its runner program, and what became of asking it. */
struct runner_slot {
	struct devices *devices;
	const char *kind;
	const char *path;     /* of the program */
	struct worker *first; /* whose runner is asked what devices there are */
	bool wanted;          /* by the operator */
	enum slot_state state;
	char name[128];              /* what the runner calls itself */
	char reason[FT_REASON_SIZE]; /* why it has no device; or what its runner is not kept from */
	struct ft_writer note;       /* the last hello and what it depends on, as stored */
	unsigned probe_failures;
	/* Without a device: */
	uint64_t signs;       /* what there was of one when it was asked for last */
	uint64_t pause_ms;    /* before it is asked for again */
	uint64_t asked_at_ms; /* on the loop's clock */
};

struct devices_events {
	/* A runner said hello and its devices are up to date; or it failed. `changed`: they are not what they were, so that
	 * lookups may be answered otherwise. */
	void (*settled)(void *data, struct runner_slot *slot, bool changed);
	/* What was known of a kind's devices holds no more; `settled` follows. */
	void (*doubted)(void *data, struct runner_slot *slot);
	void (*runner_event)(void *data, struct worker *worker, const struct ft_runner_event *event);
	void (*runner_gone)(
	        void *data, struct worker *worker, enum runner_cause cause, const struct ft_error *why);
};

struct devices {
	uv_loop_t *loop;
	const struct log *log;
	const struct settings *settings;
	struct store *store;
	struct kernels kernels;
	const struct devices_events *events;
	void *data;
	struct runner_slot slot[SETTINGS_KINDS];
	uint32_t count;
	struct device *device[DEVICES_MAX]; /* in the order of settings_kinds */
	uint32_t worker_count;
	struct worker *worker[WORKERS_MAX];
	uint64_t fixed;      /* facts that hold as long as the daemon runs */
	uint64_t look_at_ms; /* when it is time to look again, on the loop's clock */
	uv_timer_t watch;    /* runs while clients keep answers */
	bool has_watch;
	bool closing;
};

/* Adopts what the store still knows; asks the other runners. */
int devices_init(struct devices *devices, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, struct store *store, const struct devices_events *events, void *data,
        struct ft_error *error);
/* Lets runners go (kills them with `hurry`); `devices_idle` says when all are gone. */
void devices_stop(struct devices *devices, bool hurry);
bool devices_idle(const struct devices *devices);
void devices_free(struct devices *devices);

/* Looks now whether what the hellos depend on has changed, and asks the runners anew whose does. */
void devices_look_now(struct devices *devices);
/* The same where it was not done for a while: for whoever is about to use what is known. */
static inline void devices_look(struct devices *devices)
{
	if (uv_now(devices->loop) >= devices->look_at_ms)
		devices_look_now(devices);
}
/* Whether to look without being asked: some client keeps answers. */
void devices_watch(struct devices *devices, bool watch);
/* Reads the installed kernels anew; the next look asks the runners where they changed. */
void devices_read_kernels(struct devices *devices);
/* Asks at once for all kinds that have no device. */
void devices_ask_again(struct devices *devices);
/* A device and its kernels stay in memory until as many have left it, whatever hellos replace it. NULL is fine. */
void device_use(struct device *device);
void device_leave(struct device *device);

/* By id or PCI address; NULL or "": the first that is ready or may become so. Of a kind that has no device here, or whose runner
 * is still being probed, any id gives what stands for the kind. Sets the error if there is none. */
struct device *devices_find(struct devices *devices, const char *id, struct ft_error *error);
/* Whether any runner is still being probed. */
bool devices_probing(const struct devices *devices);
struct device_kernel *device_kernel_find(struct device *device, const char *kernel, struct ft_error *error);
/* The same among those that it has by now; NULL: none. */
struct device_kernel *device_kernel_known(struct device *device, const char *kernel);
/* Whether what is measured on one holds for the other: they are of one kind and share results. */
static inline bool devices_equal(const struct device *a, const struct device *b)
{
	return a->state == DEVICE_READY && b->state == DEVICE_READY && a->slot == b->slot && a->key == b->key;
}
/* Gives a device to someone, or back: the move is checked, and false leaves it where it is. */
bool worker_hold(struct worker *worker, enum device_holder holder, uint64_t job);
/* The kernel of a key, on a device that is here; NULL if it is not. */
const struct device_kernel *devices_kernel(
        const struct devices *devices, const struct store_key *key, const struct device **device);
/* As `status` and `devices` show them. */
void devices_write(const struct devices *devices, struct ft_writer *writer);

#endif
