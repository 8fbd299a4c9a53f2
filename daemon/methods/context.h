/* What the methods of the client road work with: the parts of the daemon, and what a batch of requests shares.
 *
 * A group of methods is a struct of its own, with a file of its own, that knows the context and those groups that it needs;
 * methods.c has all of them, and the table. proto/PROTOCOL.md is the methods' documentation. */
#ifndef FLYTUNE_DAEMON_CONTEXT_H
#define FLYTUNE_DAEMON_CONTEXT_H

#include "daemon/answers/board.h"
#include "daemon/host/access.h"
#include "daemon/jobs/background.h"
#include "daemon/jobs/queue.h"
#include "daemon/server/server.h"

/* What one of the methods does; `group` is that which it belongs to. */
typedef void method_call(void *group, struct session *session, const struct ft_envelope *envelope);

struct context {
	const struct log *log;
	const struct settings *settings;
	const struct access *access;
	struct store *store;
	struct devices *devices;
	struct queue *queue;
	struct background *background;
	struct server *server;
	struct board *board;

	uint64_t started_ns; /* monotonic */
	bool reading;        /* the store's read transaction is open for this batch of requests */
	bool stopping;       /* what cannot be answered at once is not answered any more */
	uint32_t keepers;    /* sessions that rely on answers without asking */
	uint64_t denied;     /* requests of users who may not */
	struct log_limit denials;
};

/* Opens the store's read transaction for this batch, unless it is. */
int context_read(struct context *context, struct ft_error *error);
/* Whether the session's user may; counts and logs who may not. */
bool context_allows(struct context *context, const struct session *session, const char *what,
        enum access_level needs, struct ft_error *error);
/* From now on the session relies on answers without asking: what they depend on is looked at without being asked. And no
 * more. */
void context_keeps(struct context *context, struct session *session);
void context_keeps_no_more(struct context *context, struct session *session);

#endif
