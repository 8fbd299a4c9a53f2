/* A sweep: one job being worked by a runner, from asking for the space to a winner.
 *
 * One at a time on a host, so that no measurement disturbs another. What the runner says becomes trials;
 * trials are stored as they come; events go out after their commit. The daemon decides from its own samples
 * with the same pure function that the runner races with. A runner that errs is killed; the config that it
 * was busy with is out, and the sweep goes on with the rest in a new runner. */
#ifndef FLYTUNE_DAEMON_SWEEP_H
#define FLYTUNE_DAEMON_SWEEP_H

#include "daemon/answers/target.h"

enum sweep_outcome {
	SWEEP_DECIDED,
	SWEEP_FAILED,
	SWEEP_CANCELLED,
	SWEEP_MOVED, /* the device's identity changed under it: to be queued again */
	SWEEP_HELD,  /* a check found that the stored winner still holds: nothing new is to be kept */
};

/* What a sweep found. */
struct sweep_end {
	enum sweep_outcome outcome;
	struct subject subject;
	/* With SWEEP_DECIDED and SWEEP_CANCELLED, to be committed together with the job and then freed, else NULL. */
	struct trials *trials;
	uint64_t space_hash;      /* of the configs that were tried; 0 for a kernel that is not built in */
	struct store_winner held; /* with SWEEP_HELD: the winner, and what it takes now */
	struct ft_error why;      /* of a failure; with SWEEP_HELD what is to be told */
};

struct sweep_events {
	/* Progress, after the commit of what it tells. */
	void (*event)(void *data, struct ft_event *event);
	/* The end; but for sweep_stored, nothing of this sweep calls back after it. */
	void (*ended)(void *data, const struct sweep_end *end);
};

enum sweep_phase { SWEEP_OFF, SWEEP_WAITS_RUNNER, SWEEP_WAITS_SPACE, SWEEP_RUNS, SWEEP_ENDS };

struct sweep_note; /* an event that waits for its commit */

struct sweep {
	struct devices *devices;
	struct store *store;
	const struct log *log;
	const struct options *options;
	const struct sweep_events *events;
	void *data;

	enum sweep_phase phase;
	struct ft_job *job; /* the queue's; live while the sweep is on */
	struct runner_slot *slot;
	struct subject subject;
	uint32_t identity; /* under which it was begun; 0: not yet */
	struct trials *trials;
	uint32_t members; /* of today's space: the first trials; what follows is kept from a larger space */
	struct ft_standing *standing;
	int64_t busy; /* the trial that the runner began last, -1 if none */
	enum options_stage busy_stage;
	bool force;    /* not yet applied */
	bool lets_go;  /* it is, and the store is not told yet */
	bool check;    /* only the stored winner and the default are timed, and nothing is stored */
	bool checking; /* its times are in memory, and go on after a runner failed */
	bool few;      /* only those that were best before are tried */
	bool wider;    /* and not the winner alone */
	bool *picked;  /* with check and few: the members that are tried */
	struct store_winner held;    /* what a check or an upgrade is about */
	uint64_t space_hash;         /* of the members that are tried; 0 for a kernel that is not built in */
	uint64_t samples, disturbed; /* of this start */
	uint32_t cuts;               /* starts that did not end within the budget */
	bool rejected;               /* in this start one was found wrong that had been timed */
	bool cancelled;
	unsigned unblamed; /* runner failures in a row that no config can be blamed for */
	unsigned let_go;   /* ends of the runner since the last round that the daemon asked for */
	uint64_t
	        began_ns; /* since when the clock runs, monotonic: from the start of the runner; 0: it does not */
	uint64_t wait_ns;    /* since when the runner waits for others, monotonic; 0: it does not */
	uint64_t spent_ns;   /* of the budget, before began_ns */
	uint64_t given_ns;   /* of it, to the runner that works now */
	struct deadline cut; /* past the budget the runner is not waited for */

	/* Trials on their way to the store: one batch in flight, later changes wait for the next. */
	bool dirty;
	bool storing;
	struct log_limit unstored;
	struct sweep_note *waiting; /* newest first */
	struct sweep_note *storing_notes;
	struct sweep_note *last_notes; /* of a sweep that has decided: stored with its job */
	enum sweep_outcome outcome;    /* when it ends */
	struct ft_error why;
};

int sweep_init(struct sweep *sweep, uv_loop_t *loop, struct devices *devices, struct store *store,
        const struct log *log, const struct options *options, const struct sweep_events *events, void *data);
/* Begins a job; its device must be ready. Ends with `ended`, maybe before this returns. */
void sweep_start(struct sweep *sweep, struct ft_job *job);
void sweep_cancel(struct sweep *sweep);
/* What a sweep that ended with SWEEP_DECIDED handed over is stored: its last events go out. */
void sweep_stored(struct sweep *sweep);
/* Drops everything at once without calling back, for good: the daemon is stopping. Stored trials stay. */
void sweep_abandon(struct sweep *sweep);
/* Whether something else uses the device so much that a background sweep should make way. */
bool sweep_is_disturbed(const struct sweep *sweep);

/* What the devices tell; ignored unless it is about this sweep's runner. */
void sweep_settled(struct sweep *sweep, struct runner_slot *slot);
void sweep_runner_event(struct sweep *sweep, struct runner_slot *slot, const struct ft_runner_event *event);
void sweep_runner_gone(
        struct sweep *sweep, struct runner_slot *slot, enum runner_cause cause, const struct ft_error *why);

#endif
