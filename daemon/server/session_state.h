/* How far a session has come. It only goes forward, so that what holds "from here on" is a comparison. */
#ifndef FLYTUNE_DAEMON_SESSION_STATE_H
#define FLYTUNE_DAEMON_SESSION_STATE_H

#include <stdbool.h>

enum session_state {
	SESSION_OPEN,     /* it may be read from and written to */
	SESSION_FINISHED, /* the client asks nothing more, and may still read */
	SESSION_ENDING,   /* closes when what is owed is written */
	SESSION_CLOSING,  /* its descriptor is closed; it is freed when libuv has let go of its handle */
	SESSION_STATES
};

static inline const char *session_state_word(enum session_state state)
{
	static const char *const words[SESSION_STATES] = {"open", "finished", "ending", "closing"};

	return words[state];
}

static inline bool session_may_go(enum session_state from, enum session_state to)
{
	static const bool may[SESSION_STATES][SESSION_STATES] = {
	        [SESSION_OPEN] =
	                {[SESSION_FINISHED] = true, [SESSION_ENDING] = true, [SESSION_CLOSING] = true},
	        [SESSION_FINISHED] = {[SESSION_ENDING] = true, [SESSION_CLOSING] = true},
	        [SESSION_ENDING] = {[SESSION_CLOSING] = true},
	};

	return may[from][to];
}

#endif
