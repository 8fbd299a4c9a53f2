/* How far a sweep is, and where it may go from there. */
#ifndef FLYTUNE_DAEMON_SWEEP_STATE_H
#define FLYTUNE_DAEMON_SWEEP_STATE_H

#include <stdbool.h>

enum sweep_phase {
	SWEEP_OFF,
	SWEEP_WAITS_RUNNER,
	SWEEP_WAITS_SPACE,
	SWEEP_RUNS,
	SWEEP_ENDS, /* what it has is on the way to the store */
	SWEEP_PHASES
};

static inline const char *sweep_phase_word(enum sweep_phase phase)
{
	static const char *const words[SWEEP_PHASES] = {
	        "is off", "waits for a runner", "waits for a space", "runs", "ends"};

	return words[phase];
}

static inline bool sweep_may_go(enum sweep_phase from, enum sweep_phase to)
{
	/* Off from anywhere: the daemon may be stopping. */
	static const bool may[SWEEP_PHASES][SWEEP_PHASES] = {
	        [SWEEP_OFF] = {[SWEEP_WAITS_RUNNER] = true},
	        [SWEEP_WAITS_RUNNER] = {[SWEEP_OFF] = true,
	                [SWEEP_WAITS_RUNNER] = true /* that went as well */,
	                [SWEEP_WAITS_SPACE] = true,
	                [SWEEP_ENDS] = true},
	        [SWEEP_WAITS_SPACE] = {[SWEEP_OFF] = true,
	                [SWEEP_WAITS_RUNNER] = true,
	                [SWEEP_RUNS] = true,
	                [SWEEP_ENDS] = true},
	        [SWEEP_RUNS] = {[SWEEP_OFF] = true,
	                [SWEEP_WAITS_RUNNER] = true,
	                [SWEEP_WAITS_SPACE] = true /* a checked winner holds no longer */,
	                [SWEEP_RUNS] = true /* of more than a few */,
	                [SWEEP_ENDS] = true},
	        [SWEEP_ENDS] = {[SWEEP_OFF] = true},
	};

	return may[from][to];
}

#endif
