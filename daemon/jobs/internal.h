/* What the files of the queue share, and those of a sweep.
 *
 *   queue.c             jobs that come and wait
 *   schedule.c          which job a device takes next
 *   queue_end.c         the end of a job
 *   queue_pause.c       pauses
 *   background_scan.c   which stored answers are stale
 *
 * A sweep is one state machine on the loop thread:
 *
 *   sweep.c             its life: from a job to what it found
 *   sweep_space.c       the space, the part of it that is tried, and what the runner is asked
 *   sweep_events.c      what the runner says while it sweeps
 *   sweep_suspects.c    configs that a runner ended with
 *   sweep_conclusion.c  what comes of it when the runner has ended
 *   sweep_progress.c    trials to the store, events after their commit
 *   sweep_budget.c      what of the time counts, and what is left */
#ifndef FLYTUNE_DAEMON_JOBS_INTERNAL_H
#define FLYTUNE_DAEMON_JOBS_INTERNAL_H

#include "daemon/jobs/backoff.h"
#include "daemon/jobs/queue.h"
#include "daemon/jobs/sweep_state.h"

enum { RETRY_FIRST_MS = 2000 }; /* of a final commit that the store refused */

/* What a device is at: the job that has it, its sweep, and what that found. */
struct active {
	struct queue *queue;
	struct worker *worker;
	struct sweep *sweep;
	struct job *running;
	bool disturbed;         /* by whatever else uses the device */
	struct store_key first; /* of a chain of sweeps of one kind, each of which goes before others */
	uint32_t first_owner;
	uint64_t first_created_ns;
	struct backoff rest;    /* its runner failed: equal devices go first */
	struct sweep_end found; /* by the sweep whose job ends, until that is stored */
	bool refused;           /* the store did not take that, or what it measured, and is tried again */
};

static inline bool queue_go(struct job *job, enum job_state next)
{
	return job_go(job, next, job->active != NULL, job->queue->log);
}

/* ---- queue.c ---- */

/* To those who watch. */
void queue_report(struct queue *queue, const struct job *job, const char *word);

/* ---- schedule.c ---- */

/* Begins what can be begun. */
void queue_pump(struct queue *queue);
/* What runs is stopped, keeps what it has, and waits again. */
void queue_make_way(struct active *active);
/* The holder of its device is what the running job is now. */
void queue_show_holder(const struct active *active);
/* A job has its device no more. */
void queue_leave_device(struct job *job);
/* A sweep ended there. Where its runner failed the device rests, as long as an equal one can work; true if one is to try the
 * job. */
bool queue_note_runner(struct active *active, const struct sweep_end *found);

/* ---- queue_end.c ---- */

void queue_commit_end(struct job *job);
void queue_sweep_ended(void *data, const struct sweep_end *found);
void queue_sweep_refused(void *data);

/* ---- queue_pause.c ---- */

/* Notifies those who wait until nothing runs. */
void queue_call_pauses(struct queue *queue, const struct ft_error *error);
int queue_read_pause(struct queue *queue, struct ft_error *error);

/* ---- background_scan.c ---- */

struct background;
/* Once all devices are known: walks, if an answer can have become stale since the last whole walk. */
void background_scan_begin(struct background *background);
/* Goes on with a walk that had to stop for want of room. */
void background_scan_on(struct background *background);

enum {
	OVERRUN_PART =
	        10, /* of a budget, by which it may be passed; as much is left to a runner that has to be started anew */
};

struct sweep_note; /* an event that waits for its commit */

/* What was measured before, of a job that is to measure all anew. */
enum sweep_old {
	OLD_KEPT,
	OLD_GOES, /* once the space is known */
	OLD_GONE, /* and that is not stored yet */
};

/* Of configs that a runner ended with: it only goes forward. */
enum sweep_suspects {
	SUSPECTS_WAIT,
	SUSPECTS_TRIED, /* one after another: all others were timed */
	SUSPECTS_LEFT,  /* out: there is no time for them */
};

/* What a device did right since a runner ended last. */
enum sweep_shown { SWEEP_SHOWN_NOTHING, SWEEP_SHOWN_BUILT, SWEEP_SHOWN_RUN };

struct sweep {
	struct devices *devices;
	struct store *store;
	const struct log *log;
	const struct settings *settings;
	const struct sweep_events *events;
	void *data;

	enum sweep_phase phase;
	enum sweep_scope scope;
	enum sweep_old old;
	enum sweep_suspects suspects;
	struct ft_job *job;    /* the queue's; live while the sweep is on */
	struct worker *worker; /* NULL: it has no device yet */
	struct target target;
	uint32_t identity; /* under which it was begun; 0: not yet */
	struct trials *trials;
	uint32_t members; /* of today's space: the first trials; what follows is kept from a larger space */
	struct ft_standing *standing;
	int64_t busy; /* the trial that the runner began last, -1 if none */
	enum settings_stage busy_stage;
	bool retry;                  /* with force what failed is tried again too: someone asked for it */
	bool *picked;                /* the members that are tried; NULL: all */
	struct store_winner held;    /* what a check or an upgrade is about */
	uint64_t space_hash;         /* of all members; 0 for a kernel that is not built in */
	uint64_t samples, disturbed; /* of this start, whatever was asked in it */
	uint32_t cuts;               /* starts that did not end within the budget */
	bool rejected;               /* in this start one was found wrong that had been timed */
	unsigned unblamed; /* runner failures since the last with a config, that none can be suspected for */
	unsigned strikes;  /* those with a config, one after another, and nothing shown between */
	enum sweep_shown shown;
	int64_t judged;  /* the suspect that is tried once more, -1 if none */
	unsigned let_go; /* ends of the runner since the last round that the daemon asked for */
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

/* ---- sweep.c ---- */

/* On to another phase, or scope; the move is checked. */
void sweep_go(struct sweep *sweep, enum sweep_phase next);
void sweep_go_scope(struct sweep *sweep, enum sweep_scope next);

/* Calls back with what it found, once it ends and nothing of it is on its way to the store. */
void sweep_maybe_end(struct sweep *sweep);
/* Ends it; `why` is copied. */
void sweep_finish(struct sweep *sweep, enum sweep_outcome outcome, const struct ft_error *why);
void sweep_fail(struct sweep *sweep, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sweep_budget.c ---- */

uint64_t sweep_budget(const struct sweep *sweep);
uint64_t sweep_budget_left(const struct sweep *sweep);
void sweep_start_clock(struct sweep *sweep);
/* Books what passed since it was started: all that others had to be waited for in it costs nothing of the budget. */
void sweep_stop_clock(struct sweep *sweep);
/* A runner keeps to the budget by itself, but for what it cannot interrupt. */
void sweep_expect_end(struct sweep *sweep);
void sweep_budget_passed(void *data);
/* While the runner waits for others the clock stands still. */
void sweep_note_waiting(struct sweep *sweep, bool waits);

/* ---- sweep_progress.c ---- */

void sweep_free_notes(struct sweep_note **notes);
/* An event to go out once what it reports is stored. Losing one for want of memory loses a line of progress
 * only. */
struct ft_event *sweep_note_event(struct sweep *sweep, const char *word);
void sweep_note_trial(struct sweep *sweep, uint32_t index);
/* In the order in which they came; frees them. */
void sweep_send_notes(struct sweep *sweep, struct sweep_note **notes);
/* Whether nobody but the sweep keeps what it has by its end. */
bool sweep_ends_by_itself(const struct sweep *sweep);
/* Has the trials stored, now or with the next batch, and events sent after that. */
void sweep_store_trials(struct sweep *sweep);

/* ---- sweep_space.c ---- */

bool sweep_tries(const struct sweep *sweep, uint32_t index);
/* The old winner did not hold after an upgrade: what it was tied with is tried too. False if there is nothing more to
 * try. */
bool sweep_try_extended(struct sweep *sweep, const struct ft_decision *decision);
/* The first that the runner is asked. */
void sweep_ask_space(struct sweep *sweep);

/* Has the runner sweep the members. */
void sweep_ask(struct sweep *sweep);

/* ---- sweep_suspects.c ---- */

/* Its runner ended with a config. False if that is the device's fault, as far as can be told. */
bool sweep_strike(struct sweep *sweep, enum runner_cause cause, const struct ft_error *why);
/* The runner is done with the suspect that was tried once more, and is still there. */
void sweep_leave_suspect(struct sweep *sweep);
/* The others are done: tries the next suspect. False if there is none, or no time. */
bool sweep_try_suspect(struct sweep *sweep);
/* In a new runner, once the others were done. */
void sweep_go_on_with_suspects(struct sweep *sweep);
/* Whether the default is to show once more, before others are tried, that the device works. */
bool sweep_wants_proof(const struct sweep *sweep);
/* The others had no time for so much as the default: asks again with what was kept for suspects. False if nothing was. */
bool sweep_take_suspects_share(struct sweep *sweep);
/* What of the time left is kept for them. */
uint64_t sweep_suspects_share(const struct sweep *sweep, uint64_t left_ns);

/* ---- sweep_events.c ---- */

/* A trial that was timed is out after all. Others may have been dropped for being slower than it: they are
 * compared anew, among themselves. */
void sweep_out_after_timing(struct sweep *sweep, const struct trial *out);

/* ---- sweep_conclusion.c ---- */

/* Of the runner's sweep. */
void sweep_replied(void *data, struct ft_view view, const struct ft_error *failure);

#endif
