/* Where a runner's process is in its life, and where it may go from there. */
#ifndef FLYTUNE_DAEMON_RUNNER_STATE_H
#define FLYTUNE_DAEMON_RUNNER_STATE_H

#include <stdbool.h>

enum runner_state { RUNNER_OFF, RUNNER_STARTING, RUNNER_READY, RUNNER_ENDING, RUNNER_STATES };

static inline const char *runner_state_word(enum runner_state state)
{
	static const char *const words[RUNNER_STATES] = {"is off", "starts", "is ready", "ends"};

	return words[state];
}

static inline bool runner_may_go(enum runner_state from, enum runner_state to)
{
	static const bool may[RUNNER_STATES][RUNNER_STATES] = {
	        [RUNNER_OFF] = {[RUNNER_STARTING] = true},
	        [RUNNER_STARTING] = {[RUNNER_READY] = true, [RUNNER_ENDING] = true},
	        [RUNNER_READY] = {[RUNNER_ENDING] = true},
	        [RUNNER_ENDING] = {[RUNNER_ENDING] = true /* let go, and then killed */, [RUNNER_OFF] = true},
	};

	return may[from][to];
}

#endif
