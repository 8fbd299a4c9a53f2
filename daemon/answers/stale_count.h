/* How many answers are stale, counted step by step beside the daemon's other work.
 *
 * It runs when someone asks and an answer has changed since the last one, so an idle daemon does nothing. */
#ifndef FLYTUNE_DAEMON_STALE_COUNT_H
#define FLYTUNE_DAEMON_STALE_COUNT_H

#include "daemon/devices/device.h"

struct stale_count {
	struct store *store;
	const struct devices *devices;
	uv_timer_t timer;
	bool running;
	struct store_place place;
	uint64_t generation; /* that is being counted */
	uint64_t counted;
	bool known;     /* there is a last count */
	uint64_t stale; /* of the last one */
	uint64_t at_generation;
};

int stale_count_init(struct stale_count *stale_count, uv_loop_t *loop, struct store *store,
        const struct devices *devices, struct ft_error *error);
void stale_count_stop(struct stale_count *stale_count);
/* Whether *stale is known; counts anew if it may have changed. Small stores are counted at once. */
bool stale_count_get(struct stale_count *stale_count, uint64_t *stale);

#endif
