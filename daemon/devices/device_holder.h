/* Who has a device: what is done on it is done alone. */
#ifndef FLYTUNE_DAEMON_DEVICE_HOLDER_H
#define FLYTUNE_DAEMON_DEVICE_HOLDER_H

#include <stdbool.h>

enum device_holder {
	HOLDER_NONE,
	HOLDER_LOAD,       /* its runner is asked how much others use it */
	HOLDER_BACKGROUND, /* a sweep that nobody asked for by hand */
	HOLDER_CHECK,
	HOLDER_SWEEP,
	HOLDERS
};

static inline const char *device_holder_word(enum device_holder holder)
{
	static const char *const words[HOLDERS] = {"", "load", "background", "check", "sweep"};

	return words[holder];
}

static inline bool device_holder_may_go(enum device_holder from, enum device_holder to)
{
	static const bool may[HOLDERS][HOLDERS] = {
	        [HOLDER_NONE] = {[HOLDER_LOAD] = true,
	                [HOLDER_BACKGROUND] = true,
	                [HOLDER_CHECK] = true,
	                [HOLDER_SWEEP] = true},
	        [HOLDER_LOAD] = {[HOLDER_NONE] = true},
	        [HOLDER_BACKGROUND] =
	                {[HOLDER_NONE] = true, [HOLDER_SWEEP] = true /* someone joined it by hand */},
	        [HOLDER_CHECK] =
	                {[HOLDER_NONE] = true, [HOLDER_SWEEP] = true /* the winner holds no longer */},
	        [HOLDER_SWEEP] = {[HOLDER_NONE] = true,
	                [HOLDER_BACKGROUND] = true /* the store refused who joined it by hand */,
	                [HOLDER_CHECK] = true /* likewise */},
	};

	return may[from][to];
}

#endif
