/* What a client's subscriptions are to the rest of the library: something that a forked child must not share. */
#ifndef FLYTUNE_CLIENT_SUBSCRIPTION_H
#define FLYTUNE_CLIENT_SUBSCRIPTION_H

#include "client/lib/handle.h"

/* In a forked child, with the lock held: each of the list lets go of the parent's connection and descriptors, and begins
 * anew on the same numbers. */
void subscriptions_forked(struct flytune_subscription *first);

#endif
