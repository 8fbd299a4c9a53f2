/* A sweep: one job being worked by a device's runner, from asking for the space to a winner.
 *
 * One at a time on a device, so that no measurement disturbs another. What the runner says becomes trials;
 * trials are stored as they come; events go out after their commit. The daemon decides from its own samples
 * with the same pure function that the runner races with. A runner that errs is killed; the config that it
 * was busy with is suspected, and the sweep goes on with the rest in a new runner. */
#ifndef FLYTUNE_DAEMON_SWEEP_H
#define FLYTUNE_DAEMON_SWEEP_H

#include "daemon/answers/target.h"

enum sweep_outcome {
	SWEEP_DECIDED,
	SWEEP_FAILED,
	SWEEP_LOST, /* its runner cannot be had, or failed without a config at fault: an equal device may do better */
	SWEEP_CANCELLED,
	SWEEP_MOVED, /* the device's identity changed under it: to be queued again */
	SWEEP_HELD,  /* a check found that the stored winner still holds: nothing new is to be kept */
};

/* What a sweep found. */
struct sweep_end {
	enum sweep_outcome outcome;
	struct target target; /* whose device the hearer has to leave; NULL: none was found */
	/* With SWEEP_DECIDED and SWEEP_CANCELLED, to be committed together with the job and then freed, else NULL. */
	struct trials *trials;
	uint64_t space_hash;      /* of the configs that were tried; 0 for a kernel that is not built in */
	struct store_winner held; /* with SWEEP_HELD: the winner, and what it takes now */
	struct ft_error why;      /* of a failure; with SWEEP_HELD what is to be reported */
};

struct sweep_events {
	/* Progress, after the commit of what it reports. */
	void (*event)(void *data, struct ft_event *event);
	/* The store refused what a sweep measured that ends without having decided: sweep_store_again, once it may take it. */
	void (*refused)(void *data);
	/* The end; but for sweep_stored, nothing of this sweep calls back after it. */
	void (*ended)(void *data, const struct sweep_end *end);
};

struct sweep;

/* NULL with an error for want of memory or of a timer. */
struct sweep *sweep_new(uv_loop_t *loop, struct devices *devices, struct store *store, const struct log *log,
        const struct settings *settings, const struct sweep_events *events, void *data,
        struct ft_error *error);
/* After sweep_abandon, once the loop has closed its handles. NULL is fine. */
void sweep_free(struct sweep *sweep);
/* Begins a job; its device must be ready. Ends with `ended`, maybe before this returns. */
void sweep_start(struct sweep *sweep, struct ft_job *job);
void sweep_cancel(struct sweep *sweep);
/* Tries once more to store what was refused at its end. */
void sweep_store_again(struct sweep *sweep);
/* What a sweep that ended with SWEEP_DECIDED handed over is stored: its last events go out. */
void sweep_stored(struct sweep *sweep);
/* Drops everything at once without calling back, for good: the daemon is stopping. Stored trials stay. */
void sweep_abandon(struct sweep *sweep);
/* Whether something else uses the device so much that a background sweep should make way. */
bool sweep_is_disturbed(const struct sweep *sweep);

/* What the devices report; ignored unless it is about this sweep's runner. */
void sweep_settled(struct sweep *sweep, const struct runner_slot *slot);
void sweep_runner_event(
        struct sweep *sweep, const struct worker *worker, const struct ft_runner_event *event);
void sweep_runner_gone(struct sweep *sweep, const struct worker *worker, enum runner_cause cause,
        const struct ft_error *why);

#endif
