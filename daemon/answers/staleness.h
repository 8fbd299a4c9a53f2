/* Which stored winners hold today, and which are stale.
 *
 * A winner was measured under an identity: kernel source, compiler, runtime and driver with their versions, the way of timing.
 * Where today's is another, as after an upgrade of the driver, it is stale: kept, not served, and swept again when the device is
 * idle. One of today's identity may still be outside of today's space, or the best of less than all of it. */
#ifndef FLYTUNE_DAEMON_STALENESS_H
#define FLYTUNE_DAEMON_STALENESS_H

#include "daemon/answers/target.h"

/* Whether there is a winner of today's identity; `kernel` is the one of its device, NULL if that is not here. */
static inline bool winner_is_current(const struct device_kernel *kernel, const struct store_winner *winner)
{
	return winner->set && kernel != NULL && winner->identity == kernel->identity && winner->identity != 0;
}
/* And served: it is in today's space. Puts its knobs in the schema's order. */
bool winner_serves(const struct target *target, struct store_winner *winner);
/* And by today's rule the best of all of today's space: there is nothing to sweep. */
bool winner_is_settled(const struct target *target, struct store_winner *winner);

#endif
