/* The methods of the client road, all in one table, and what becomes of a client's requests. */
#ifndef FLYTUNE_DAEMON_METHODS_H
#define FLYTUNE_DAEMON_METHODS_H

#include "daemon/methods/control.h"
#include "daemon/methods/import.h"
#include "daemon/methods/jobs.h"
#include "daemon/methods/lookup.h"
#include "daemon/methods/status.h"
#include "daemon/methods/subscription.h"

/* The groups of methods, each with what is its own. */
struct methods {
	struct context context;
	struct parked parked;
	struct lookups lookups;
	struct subscriptions subscriptions;
	struct jobs jobs;
	struct control control;
	struct imports imports;
	struct reports reports;
};

/* `context` has the parts of the daemon; it is copied. */
int methods_init(struct methods *methods, const struct context *context, struct ft_error *error);
void methods_free(struct methods *methods);
void methods_message(struct methods *methods, struct session *session, const struct ft_envelope *envelope);
/* As session_events' owed. */
bool methods_owed(struct methods *methods, struct session *session);
/* The end of what one read brought: lets go of the store's read transaction. */
void methods_batch_end(struct methods *methods);
void methods_session_closed(struct methods *methods, struct session *session);
/* Answers what is parked with an error, and closes handles. */
void methods_stop(struct methods *methods);

#endif
