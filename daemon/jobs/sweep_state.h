/* How far a sweep is, how much of the space it tries, and where either may go from there. */
#ifndef FLYTUNE_DAEMON_SWEEP_STATE_H
#define FLYTUNE_DAEMON_SWEEP_STATE_H

#include <stdbool.h>

enum sweep_phase {
	SWEEP_OFF,
	SWEEP_WAITS_RUNNER,
	SWEEP_WAITS_SPACE,
	SWEEP_RUNS,
	SWEEP_STOPS, /* it was cancelled, and its runner is to end */
	SWEEP_ENDS,  /* what it has is on the way to the store */
	SWEEP_PHASES
};

static inline const char *sweep_phase_word(enum sweep_phase phase)
{
	static const char *const words[SWEEP_PHASES] = {
	        "is off", "waits for a runner", "waits for a space", "runs", "stops", "ends"};

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
	                [SWEEP_STOPS] = true,
	                [SWEEP_ENDS] = true},
	        [SWEEP_STOPS] = {[SWEEP_OFF] = true, [SWEEP_ENDS] = true},
	        [SWEEP_ENDS] = {[SWEEP_OFF] = true},
	};

	return may[from][to];
}

/* Whether its runner is at it. */
static inline bool sweep_is_on(enum sweep_phase phase)
{
	return phase == SWEEP_RUNS || phase == SWEEP_STOPS;
}

enum sweep_scope {
	SCOPE_WHOLE,
	SCOPE_CHECK,    /* the stored winner and the default, and nothing is stored */
	SCOPE_CHECKING, /* likewise: its times are in memory, and go on after a runner failed */
	SCOPE_SUBSET,   /* those that were best before */
	SCOPE_EXTENDED, /* and not the winner alone */
	SCOPES
};

static inline const char *sweep_scope_word(enum sweep_scope scope)
{
	static const char *const words[SCOPES] = {"whole", "check", "checking", "subset", "extended"};

	return words[scope];
}

/* It begins as it was asked for, and may turn out to need all of the space. */
static inline bool sweep_scope_may_go(enum sweep_scope from, enum sweep_scope to)
{
	static const bool may[SCOPES][SCOPES] = {
	        [SCOPE_CHECK] = {[SCOPE_CHECKING] = true, [SCOPE_WHOLE] = true},
	        [SCOPE_CHECKING] = {[SCOPE_WHOLE] = true},
	        [SCOPE_SUBSET] = {[SCOPE_EXTENDED] = true, [SCOPE_WHOLE] = true},
	        [SCOPE_EXTENDED] = {[SCOPE_SUBSET] = true /* its runner failed */, [SCOPE_WHOLE] = true},
	};

	return may[from][to];
}

static inline bool sweep_is_check(enum sweep_scope scope)
{
	return scope == SCOPE_CHECK || scope == SCOPE_CHECKING;
}

static inline bool sweep_is_of_part(enum sweep_scope scope)
{
	return scope == SCOPE_SUBSET || scope == SCOPE_EXTENDED;
}

#endif
