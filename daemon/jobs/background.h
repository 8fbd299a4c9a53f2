/* Background work: problems to be swept when nobody needs their device.
 *
 * Candidates come from lookups that missed (and asked for it), from results that another compiler, driver or space
 * made stale, and from sweeps that were disturbed. They are kept in a table of bounded size, the most asked
 * first, and become jobs one at a time: only when nothing by hand waits, and when the runner says that others
 * hardly use the device. Where a device's runner cannot be started nothing is tried for growing pauses, nor is a problem
 * whose sweep failed: what it failed of may pass, such as other work that left it too little of its budget. What is asked for for a
 * device that is away waits for it, as long as nothing else needs its place in the table. A background sweep makes way
 * for whoever comes. While there is no candidate there is no timer either. They outlive the daemon: a list of them is stored some seconds after a change, and when it stops. */
#ifndef FLYTUNE_DAEMON_BACKGROUND_H
#define FLYTUNE_DAEMON_BACKGROUND_H

#include "daemon/jobs/queue.h"
#include "daemon/jobs/candidate.h"

/* What it knows of one device's worker. */
struct pace {
	struct background *background;
	struct worker *worker;
	bool wanted;             /* its load is: the runner is being started for that, or asked */
	bool asking;             /* it was asked */
	uint64_t calm_ns;        /* monotonic: until when it is believed to be idle */
	uint64_t rest_ns;        /* and until when it is left alone */
	struct backoff pause;    /* its runner could not be had */
	struct store_key family; /* of the last job: those near it go on before others */
};

struct background {
	struct devices *devices;
	struct queue *queue;
	struct store *store;
	const struct log *log;
	const struct settings *settings;
	struct candidate *candidate; /* room for settings->background_queue */
	uint32_t *tag;               /* of each candidate, from its key: a lookup looks through these */
	struct candidate *least;     /* the one that has to go first; NULL: not known just now */
	uint32_t count;
	struct candidate *kept; /* from before a restart, until the devices were probed; NULL: none */
	uint32_t kept_count;
	bool unsaved; /* the list in the store is not today's */
	uv_timer_t saver;
	uint64_t dropped;    /* candidates that had no room */
	uv_timer_t timer;    /* until a busy device is looked at again, or what failed is tried again */
	struct pace *adding; /* for whom a candidate is on its way to be a job; NULL: none is */
	struct pace pace[WORKERS_MAX]; /* by the worker's number */
	uint32_t next;                 /* numbers candidates, in the order of their coming */
	/* The walk through stored answers for those that are stale. */
	bool scanning;
	struct store_place scan;
	uv_idle_t scanner;
	bool stopping;
};

int background_init(struct background *background, uv_loop_t *loop, struct devices *devices,
        struct queue *queue, struct store *store, const struct log *log, const struct settings *settings,
        struct ft_error *error);
void background_stop(struct background *background);
void background_free(struct background *background);

/* Candidates for a sweep of a target on a ready device; `asked` is how often it was asked for so far. */
void background_want(struct background *background, const struct target *target, enum candidate_cause cause,
        uint64_t asked);
/* Looks for the next thing to do on a device that is idle. */
void background_idle(struct background *background, struct device *device, bool disturbed);
/* A sweep has ended: its candidate is granted, or another follows; where it failed, or its device was away, it is tried again after
 * a pause. */
void background_swept(struct background *background, const struct target *target, const struct ft_job *job,
        bool busy, bool away);
/* A device was probed: what is stale under its identity is looked for. */
void background_settled(struct background *background, const struct runner_slot *slot);
void background_runner_gone(struct background *background, struct worker *worker, enum runner_cause cause);
/* What it waits for, in words; "" when it has nothing to do. */
const char *background_state(const struct background *background);

#endif
