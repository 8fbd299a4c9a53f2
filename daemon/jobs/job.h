/* A job in memory: what is asked for, where it stands, and who waits for it. */
#ifndef FLYTUNE_DAEMON_JOB_H
#define FLYTUNE_DAEMON_JOB_H

#include "daemon/answers/target.h"
#include "daemon/jobs/job_state.h"

struct queue;
struct active;

/* Called once; `job` is NULL with an error, when the job could not be kept. */
typedef void (*job_done)(void *data, const struct ft_job *job, const struct ft_error *error);

enum job_outcome { JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_OUTCOMES };
extern const char *const job_outcome_words[JOB_OUTCOMES];

/* Someone who waits for a job's end, or for its cancellation. */
struct wait {
	struct wait *next;
	struct wait **link; /* what points at it */
	uint32_t *waiters;  /* what it is counted in */
	job_done done;
	void *data;
};

/* What whoever joins a job may change of it. */
struct job_terms {
	int64_t priority;
	uint64_t owner, budget_ns;
	bool force, begun, check, subset, named;
	char cause[sizeof(((struct ft_job *)0)->cause)];
	char home[FT_DEVICE_ID_SIZE];
};

/* Someone who waits for a job to be in the store. */
struct arrival {
	struct arrival *next;
	void (*done)(void *data, const struct ft_job *job, bool joined, const struct ft_error *error);
	void *data;
	bool joined;
	/* Of a job that was joined: what to put back if the store refuses that, and in place of what. */
	struct job_terms before, made;
};

/* On so many devices a job is tried whose runners fail. */
enum { LOST_MAX = 3 };

struct job {
	struct job *next;
	struct ft_job info; /* its answer is a view of `answer` */
	struct ft_writer answer;
	struct store_winner winner; /* once the sweep has decided */
	struct store_key key;
	bool keyed;     /* key is of today's devices */
	bool was_keyed; /* since the daemon's start it was */
	bool looked;    /* since a device was probed last: it has a key or can have none */
	bool stored;    /* the store knows of it */
	enum job_state state;
	enum job_outcome outcome; /* from JOB_ENDS or JOB_DROPS on */
	bool cancelled;           /* someone did, whether or not they still wait for it */
	bool away;                /* it failed for want of its device or runner */
	uint64_t dropped_with;    /* the job with whose end this one, which is over, leaves the store */
	unsigned commits;         /* on their way to the store: it stays in memory until they are through */
	struct wait *waits;
	struct wait *cancels;
	uint32_t waiters, cancellers;
	struct arrival *arrivals; /* one for each of their commits, in their order */
	struct queue *queue;
	char home
	        [FT_DEVICE_ID_SIZE]; /* the device that it was asked for; an equal one may work it unless it was named */
	const struct worker *lost[LOST_MAX]; /* whose runners failed at it; what is not full ends with NULL */
	struct active *active;               /* what works it */
	struct active *way;                  /* what makes way for it */
};

struct job *job_new(struct queue *queue);
void job_free(struct job *job);
/* Checks the move and makes it. Whoever gets false leaves the job where it is. */
bool job_go(struct job *job, enum job_state next, bool has_device, const struct log *log);
void job_set_state(struct job *job, const char *state);
void job_set_outcome(struct job *job, enum job_outcome outcome, const char *reason);
bool job_is_background(const struct job *job);
void job_write(const struct job *job, struct ft_writer *writer);

void job_link_wait(struct wait **list, uint32_t *waiters, struct wait *wait, job_done done, void *data);
void job_unlink_wait(struct wait *wait);
/* Calls and frees all of a list. */
void job_call_waits(struct wait **waits, const struct ft_job *job, const struct ft_error *error);

#endif
