/* What a program gets while the daemon is away: the answer that it was given before, where that stands, else the default of a
 * built-in kernel. Either is marked FLYTUNE_ANSWER_AWAY. */
#ifndef FLYTUNE_CLIENT_AWAY_H
#define FLYTUNE_CLIENT_AWAY_H

#include "client/lib/handle.h"

/* The daemon is away for the reason in `error`, which is the failure if there is no answer. */
int away_answer(flytune_client *client, const struct cache_key *key, struct flytune_answer *answer,
        struct ft_error *error);
/* The analytic default. Fails if this library does not know the kernel, or the kernel refuses the problem. */
int away_default(flytune_client *client, const flytune_problem *problem, const char *device,
        const char *reason, struct flytune_answer *answer, struct ft_error *error);

#endif
