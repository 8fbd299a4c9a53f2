/* Where a job stands in the queue, and where it may go from there. */
#ifndef FLYTUNE_DAEMON_JOB_STATE_H
#define FLYTUNE_DAEMON_JOB_STATE_H

#include <stdbool.h>

enum job_state {
	JOB_WAITS, /* for its turn */
	JOB_RUNS,  /* its sweep is on; from here to JOB_ENDS it has a device */
	JOB_STOPS, /* its sweep is to make way: it waits again */
	JOB_ENDS,  /* its sweep is over, and its end on the way to the store */
	JOB_DROPS, /* cancelled before it ran, and that is on the way to the store */
	JOB_OVER,  /* stored as it ended */
	JOB_STATES
};

static inline const char *job_state_word(enum job_state state)
{
	static const char *const words[JOB_STATES] = {"waits", "runs", "stops", "ends", "drops", "over"};

	return words[state];
}

static inline bool job_may_go(enum job_state from, enum job_state to)
{
	static const bool may[JOB_STATES][JOB_STATES] = {
	        [JOB_WAITS] = {[JOB_RUNS] = true, [JOB_DROPS] = true},
	        [JOB_RUNS] =
	                {[JOB_STOPS] = true, [JOB_WAITS] = true /* its device moved */, [JOB_ENDS] = true},
	        [JOB_STOPS] = {[JOB_WAITS] = true, [JOB_ENDS] = true /* it had ended, or was cancelled */},
	        [JOB_ENDS] = {[JOB_OVER] = true},
	        [JOB_DROPS] = {[JOB_OVER] = true, [JOB_WAITS] = true /* the store refused it */},
	};

	return may[from][to];
}

/* Whether its sweep, or the end of it, has the device. */
static inline bool job_has_device(enum job_state state)
{
	return state == JOB_RUNS || state == JOB_STOPS || state == JOB_ENDS;
}

#endif
