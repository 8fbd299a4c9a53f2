/* Says when a daemon that failed may be tried again: after a pause that grows and is never the same for two
 * processes, so that a restarting daemon does not meet all of them at once.
 *
 * Plain data, guarded by its owner's lock. */
#ifndef FLYTUNE_CLIENT_BREAKER_H
#define FLYTUNE_CLIENT_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct breaker {
	bool open;             /* the last attempt failed */
	unsigned failures;     /* in a row, since a call last succeeded */
	uint64_t until;        /* while open: no attempt before this */
	uint64_t random;       /* state of the jitter */
	struct ft_error error; /* why it opened */
};

enum {
	BREAKER_FIRST_MS = 100,
	BREAKER_CAP_MS = 5000,
	/* Where nobody listens, which costs microseconds to find out and nothing to a daemon that starts, the pause does not
	 * grow: a successor is seen within 100 ms. */
	BREAKER_ABSENT_MS = 30,
};

void breaker_init(struct breaker *breaker, uint64_t seed);
/* An attempt or call failed. Failures of calls that were under way together count once. */
void breaker_fail(struct breaker *breaker, uint64_t now, const struct ft_error *error);
/* Nobody listened. */
void breaker_absent(struct breaker *breaker, uint64_t now, const struct ft_error *error);
/* There is a connection again; whether calls succeed on it is still to be seen. */
void breaker_connected(struct breaker *breaker);
/* A call succeeded. */
void breaker_succeed(struct breaker *breaker);
bool breaker_paused(const struct breaker *breaker, uint64_t now);

#endif
