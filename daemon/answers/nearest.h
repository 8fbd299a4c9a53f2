/* What a problem without a result of its own is served from its neighbours: the same problem but for the scale field, known
 * within a factor of two. */
#ifndef FLYTUNE_DAEMON_NEAREST_H
#define FLYTUNE_DAEMON_NEAREST_H

#include "daemon/answers/target.h"

/* Fills in what the nearest neighbour says whose config is valid, and would be tried, here as well; *found: there is one. As of
 * now, or of a generation (0: now). 0, or -1. Call between store_begin and store_end. */
int nearest_answer(struct store *store, const struct target *target, uint64_t generation,
        struct ft_answer *answer, bool *found, struct ft_error *error);

#endif
