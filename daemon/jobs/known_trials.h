/* What is known of a problem's configs, brought into today's space, and how much of it stands. */
#ifndef FLYTUNE_DAEMON_KNOWN_TRIALS_H
#define FLYTUNE_DAEMON_KNOWN_TRIALS_H

#include "daemon/answers/target.h"
#include "daemon/store/trials.h"

/* Puts what is known of each config into the order of today's space; what left the space is kept behind it. `known` may
 * be NULL; its samples are taken out of it. The caller frees what comes back, NULL when out of memory. */
struct trials *trials_merge(const struct target *target, struct trials *known, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count, uint32_t default_index);
/* Of a space that is not listed: all that is known, which may be NULL and is taken, and the default. NULL when out of memory;
 * then nothing is left. */
struct trials *trials_of_unlisted(
        const struct target *target, struct trials *known, const struct ft_config *usual, uint64_t unlisted);
/* Whether they have a winner, and none of the first `members` is still to be tried. */
bool trials_complete(const struct trials *trials, uint32_t members);
/* A forced sweep times everything again, and with `retry` tries again what failed. What was built stays built, and what was
 * wrong, be it once, stays wrong. */
void trials_forget_times(struct trials *trials, bool retry);

#endif
