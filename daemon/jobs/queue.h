/* The queue: every job that is waiting, running or lately ended, kept in the store, worked one at a time on
 * each device. Equal devices share the queue: a job that names none of them goes to the first that is free.
 * One whose runner failed then rests, each time for longer, while another can work; what it failed at goes to another.
 *
 * One sweep serves all who asked for the same problem on equal devices. Nothing is reported before its commit:
 * a job exists for its owner once the store has it, and has ended once the store says so. */
#ifndef FLYTUNE_DAEMON_QUEUE_H
#define FLYTUNE_DAEMON_QUEUE_H

#include "daemon/host/histogram.h"
#include "daemon/jobs/job_index.h"
#include "daemon/jobs/sweep.h"

enum {
	QUEUE_ACTIVE_MAX = 4096,
	QUEUE_ENDED_KEPT = 256,
	QUEUE_BACKGROUND = -1000, /* the priority of background work: below all that is asked for by hand */
};

struct pause;

struct queue_events {
	void (*event)(
	        void *data, const struct ft_event *event); /* progress of any job, for those who watch */
	/* Nothing runs on a device, and nothing that was asked for by hand could. `disturbed`: a background
	 * sweep has just made way for someone else on it. */
	void (*idle)(void *data, struct device *device, bool disturbed);
	/* A sweep has ended and its job is stored; `busy`: it was disturbed; `away`: it could not be begun, since its device or
	 * runner was not to be had then. */
	void (*swept)(
	        void *data, const struct target *target, const struct ft_job *job, bool busy, bool away);
};

struct queue {
	struct devices *devices;
	struct store *store;
	const struct log *log;
	const struct settings *settings;
	const struct queue_events *events;
	void *data;
	uv_loop_t *loop;
	struct active *active[WORKERS_MAX]; /* of each worker that had work, by its number */
	uint32_t running;                   /* jobs that have a device */
	struct job_index jobs;
	/* Figures, since the start. */
	uint64_t restarts; /* of runners */
	uint64_t gone[RUNNER_UNSTARTED + 1];
	uint64_t ends[JOB_OUTCOMES];
	struct histogram sweeps;
	const struct worker *let; /* on which one background job may start */
	bool paused;
	struct pause *pauses; /* who waits until nothing runs */
	uv_timer_t rested;    /* until a device whose runner failed is tried again */
	uv_timer_t retry;     /* of a final commit that the store refused */
	uint32_t retry_ms;    /* until the next attempt: twice the one before */
	bool retry_waits;
	bool stopping;
};

/* Reads the jobs that the store has; those that were running wait again. */
int queue_init(struct queue *queue, uv_loop_t *loop, struct devices *devices, struct store *store,
        const struct log *log, const struct settings *settings, const struct queue_events *events, void *data,
        struct ft_error *error);
/* Stops what runs without ending its job: it goes on after the next start. */
void queue_stop(struct queue *queue);
/* The store takes writes again: what it refused is tried at once. */
void queue_store_mended(struct queue *queue);
void queue_free(struct queue *queue);

struct queue_ask {
	bool force;
	bool check;        /* only whether the stored winner still holds */
	bool subset;       /* only those that were best before */
	bool named;        /* the device was: it runs there, and on no equal one */
	const char *cause; /* of background work, a word; NULL: it was asked for by hand */
	int64_t priority;
	uint64_t budget_ns;
	uint32_t user;
	uint64_t most; /* jobs that this user may have queued or running; 0: any number */
};

/* Queues a job for a target on a ready device, or joins the one that is there; `done` is called after the
 * commit. */
void queue_add(struct queue *queue, const struct target *target, const struct queue_ask *ask,
        void (*done)(void *data, const struct ft_job *job, bool joined, const struct ft_error *error),
        void *data);
/* `done` when the job has ended, at once if it has. -1 if there is no such job. `wait` is set, before any call
 * of `done`, to what queue_leave takes; it is gone once `done` was called. */
int queue_wait(struct queue *queue, uint64_t job, job_done done, void *data, struct wait **wait,
        struct ft_error *error);
/* Drops a wait without calling it. */
void queue_leave(struct wait *wait);
/* Ends a job; `done` after the commit. A job that has ended already is given as it ended. */
int queue_cancel(struct queue *queue, uint64_t job, job_done done, void *data, struct wait **wait,
        struct ft_error *error);
/* Whose job it is; -1 if there is no such job. */
int64_t queue_owner(const struct queue *queue, uint64_t job);
/* Pauses, or goes on. What runs is stopped, keeps what it has, and waits again. `done` is called once that is
 * durable and, for a pause, nothing runs any more. */
void queue_pause(struct queue *queue, bool pause,
        void (*done)(void *data, bool paused, const struct ft_error *error), void *data);
/* Writes one job. */
int queue_write(const struct queue *queue, uint64_t job, struct ft_writer *writer, struct ft_error *error);
/* Writes the first job behind *job, which is that one then. False if there is none. */
bool queue_write_next(const struct queue *queue, uint64_t *job, struct ft_writer *writer);
uint32_t queue_waiting(const struct queue *queue);

/* ---- background work: jobs with a cause, which run only when let, and make way ---- */

/* Whether anything runs on a device, or anything asked for by hand could. */
bool queue_is_busy(struct queue *queue, struct device *device);
/* Whether any device works on this key. */
bool queue_works_on(const struct queue *queue, const struct store_key *key);
/* The background job that would be next on a device; NULL if none waits. */
const struct ft_job *queue_background(struct queue *queue, struct device *device);
/* Lets that one start. */
void queue_let(struct queue *queue, const struct device *device);
/* Keeps jobs from being started on it for a moment; its end starts what waits. */
void queue_hold(struct queue *queue, struct worker *worker, bool hold);

/* Hooks for what the devices report. */
void queue_settled(struct queue *queue, const struct runner_slot *slot);
void queue_runner_event(
        struct queue *queue, const struct worker *worker, const struct ft_runner_event *event);
void queue_runner_gone(struct queue *queue, const struct worker *worker, enum runner_cause cause,
        const struct ft_error *why);

#endif
