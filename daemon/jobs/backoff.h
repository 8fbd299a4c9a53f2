/* Until when something that failed is not tried again: each time for longer. */
#ifndef FLYTUNE_DAEMON_BACKOFF_H
#define FLYTUNE_DAEMON_BACKOFF_H

#include <stdint.h>

#include "proto/clock.h"

struct backoff {
	uint64_t until_ns;  /* monotonic */
	uint64_t length_ns; /* of the last; the next is twice as long, until it works. 0: it has not failed */
};

static inline void backoff_lengthen(struct backoff *pause, uint64_t first_ns, uint64_t most_ns)
{
	pause->length_ns = pause->length_ns == 0  ? first_ns
	        : 2 * pause->length_ns <= most_ns ? 2 * pause->length_ns
	                                          : most_ns;
	pause->until_ns = ft_monotonic_ns() + pause->length_ns;
}

#endif
