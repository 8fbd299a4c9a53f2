/* What is known of a device, and of all devices of a kind, and where either may go from there. */
#ifndef FLYTUNE_DAEMON_DEVICE_STATE_H
#define FLYTUNE_DAEMON_DEVICE_STATE_H

#include <stdbool.h>

enum device_state {
	DEVICE_NEW,
	DEVICE_PROBING, /* what was known of it, if anything was, is in doubt: its runner is asked */
	DEVICE_READY,   /* it is as the last hello said */
	DEVICE_ABSENT, /* stands for a kind that the operator wants and that has no device: lookups get its default */
	DEVICE_RETIRED, /* a hello replaced it, or its runner failed: it goes with its last user */
	DEVICE_STATES
};

static inline const char *device_state_word(enum device_state state)
{
	static const char *const words[DEVICE_STATES] = {"new", "probing", "ready", "absent", "retired"};

	return words[state];
}

static inline bool device_may_go(enum device_state from, enum device_state to)
{
	/* What a hello says makes other devices: none becomes ready in place, but one that is in doubt stays, with the sweep
	 * that may be on it. */
	static const bool may[DEVICE_STATES][DEVICE_STATES] = {
	        [DEVICE_NEW] = {[DEVICE_PROBING] = true, [DEVICE_READY] = true, [DEVICE_ABSENT] = true},
	        [DEVICE_PROBING] = {[DEVICE_PROBING] = true /* in doubt again */, [DEVICE_RETIRED] = true},
	        [DEVICE_READY] = {[DEVICE_PROBING] = true, [DEVICE_RETIRED] = true},
	        [DEVICE_ABSENT] = {[DEVICE_PROBING] = true, [DEVICE_RETIRED] = true},
	};

	return may[from][to];
}

/* Of a kind. */
enum slot_state {
	SLOT_NEW,
	SLOT_PROBING,      /* its devices are not known, or in doubt: its runner is asked */
	SLOT_KNOWN,        /* they are as the last hello said, or there can be none */
	SLOT_KNOWN_ASKED,  /* that there is none, and its runner is asked again */
	SLOT_FAILED,       /* its runner was asked in vain: there is none */
	SLOT_FAILED_ASKED, /* and is asked again */
	SLOT_STATES
};

static inline const char *slot_state_word(enum slot_state state)
{
	static const char *const words[SLOT_STATES] = {
	        "new", "probing", "known", "known and asked again", "failed", "failed and asked again"};

	return words[state];
}

static inline bool slot_may_go(enum slot_state from, enum slot_state to)
{
	static const bool may[SLOT_STATES][SLOT_STATES] = {
	        [SLOT_NEW] = {[SLOT_PROBING] = true, [SLOT_KNOWN] = true},
	        [SLOT_PROBING] = {[SLOT_PROBING] = true /* in doubt again */,
	                [SLOT_KNOWN] = true,
	                [SLOT_FAILED] = true},
	        [SLOT_KNOWN] = {[SLOT_KNOWN] = true /* each start of a runner says hello */,
	                [SLOT_PROBING] = true,
	                [SLOT_KNOWN_ASKED] = true},
	        [SLOT_KNOWN_ASKED] = {[SLOT_KNOWN] = true, [SLOT_PROBING] = true, [SLOT_FAILED] = true},
	        /* Known: by the hello of a runner of the kind that was not the one to be asked. */
	        [SLOT_FAILED] = {[SLOT_KNOWN] = true, [SLOT_PROBING] = true, [SLOT_FAILED_ASKED] = true},
	        [SLOT_FAILED_ASKED] = {[SLOT_KNOWN] = true, [SLOT_PROBING] = true, [SLOT_FAILED] = true},
	};

	return may[from][to];
}

/* Whether its runner is asked, so that more is known soon. */
static inline bool slot_is_asked(enum slot_state state)
{
	return state == SLOT_PROBING || state == SLOT_KNOWN_ASKED || state == SLOT_FAILED_ASKED;
}

#endif
