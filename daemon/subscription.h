/* Subscriptions: who wants to hear when an answer changes.
 *
 * A *place* is one lookup that a client subscribed to, and the digest of what it was last told. Whatever may have
 * changed its answer makes it *due*: it is answered anew, and told if the digest differs. A client whose last notices
 * are not on their way yet is left alone until they are, however often its places become due meanwhile: what it gets
 * then is the answer of that time. So one that reads slowly, or not at all, costs a fixed amount of memory and misses
 * states in between, never the last one.
 *
 * Places are found by the board's stripe of their problem, which is what a change names. */
#ifndef FLYTUNE_DAEMON_SUBSCRIPTION_H
#define FLYTUNE_DAEMON_SUBSCRIPTION_H

#include "daemon/session.h"
#include "daemon/store.h"
#include "proto/board.h"

struct requests;
struct place;
struct subscriber;

enum {
	SUBSCRIPTIONS_MAX = 65536, /* places in all; a user who is no administrator has half of that */
	SUBSCRIPTIONS_BYTES_MAX = 16 << 20, /* of memory for them */
	SUBSCRIPTIONS_LATER_MS = 1000,      /* while the store cannot be read */
};

struct subscriptions {
	struct requests *requests;
	uv_idle_t worker; /* runs while a place is due of someone who can be told */
	uv_timer_t later;
	bool stopped;
	struct place *stripe[FT_BOARD_STRIPES];
	struct subscriber *first;
	struct subscriber *due, **due_end;
	uint32_t count; /* places */
	size_t bytes;
	uint64_t told; /* notices so far */
};

int subscriptions_init(struct subscriptions *subscriptions, struct requests *requests, uv_loop_t *loop,
        struct ft_error *error);
/* Closes handles. */
void subscriptions_stop(struct subscriptions *subscriptions);

/* Adds places to a session, all or none, numbered on from *first. */
int subscriptions_add(struct subscriptions *subscriptions, struct session *session,
        const struct ft_subscribe_request *request, uint64_t *first, uint64_t *count, struct ft_error *error);
/* The answer of a key's problem may have changed; NULL: any answer. */
void subscriptions_changed(struct subscriptions *subscriptions, const struct store_key *key);
/* All that the session was owed is written. */
void subscriptions_emptied(struct subscriptions *subscriptions, struct session *session);
/* The session is gone. */
void subscriptions_left(struct subscriptions *subscriptions, struct session *session);

#endif
