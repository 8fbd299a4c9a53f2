/* Subscriptions: who is notified when an answer changes.
 *
 * A *place* is one lookup that a client subscribed to, with the digest of what it was last sent and the version of its
 * board's stripe at that time. A change makes its subscribers due; in its turns a subscriber's places whose version is
 * another one by then are answered anew, and sent if the digest differs. A client whose last notices are not on their way
 * yet is left alone until they are, however often its places change meanwhile: what it gets then is the answer of that
 * time. So one that reads slowly, or not at all, costs a fixed amount of memory and misses states in between, never the
 * last one. */
#ifndef FLYTUNE_DAEMON_SUBSCRIPTION_H
#define FLYTUNE_DAEMON_SUBSCRIPTION_H

#include "daemon/methods/lookup.h"

struct place;
struct subscriber;

enum {
	SUBSCRIPTIONS_MAX = 65536, /* places in all; a user who is no administrator has half of that */
	SUBSCRIPTIONS_BYTES_MAX = 16 << 20, /* of memory for them */
	SUBSCRIPTIONS_LATER_MS = 1000,      /* while the store cannot be read */
};

struct subscriptions {
	struct context *context;
	struct lookups *lookups;
	uv_timer_t later;
	struct subscriber *first;
	uint32_t anything; /* changes that may concern any answer */
	bool woken;        /* all were, and none has looked since */
	uint32_t count;    /* places */
	size_t bytes;
	uint64_t told;         /* notices so far */
	struct ft_writer said; /* while one is written */
};

method_call method_subscribe;

int subscriptions_init(struct subscriptions *subscriptions, struct context *context, struct lookups *lookups,
        struct ft_error *error);
/* Closes handles. */
void subscriptions_stop(struct subscriptions *subscriptions);
void subscriptions_free(struct subscriptions *subscriptions);

/* The answer of a key's problem may have changed; NULL: any answer. */
void subscriptions_changed(struct subscriptions *subscriptions, const struct store_key *key);
/* Appends notices to what the session is owed, until its turn is over. True if there are more. */
bool subscriptions_tell(struct subscriptions *subscriptions, struct session *session);
/* The session is gone. */
void subscriptions_left(struct subscriptions *subscriptions, struct session *session);

#endif
