/* Requests that wait until a device was probed, and are then tried again. */
#ifndef FLYTUNE_DAEMON_PARKED_H
#define FLYTUNE_DAEMON_PARKED_H

#include "daemon/methods/context.h"

struct parked {
	struct context *context;
	struct list requests;
	unsigned count;
	size_t bytes;
};

/* Keeps a request until a device was probed, then has `call` called with it anew. */
int parked_add(struct parked *parked, struct session *session, const struct ft_envelope *envelope,
        method_call *call, void *group, struct ft_error *error);

/* Checks what a request is about, for methods that need a device that was probed: fills `target`, or keeps the request and
 * has `call` called with it anew once a device was probed, or fails. */
enum target_state { TARGET_READY, TARGET_PARKED, TARGET_REFUSED };
enum target_state parked_target(struct parked *parked, struct session *session,
        const struct ft_envelope *envelope, method_call *call, void *group, const char *kernel,
        const char *device, const struct ft_problem *problem, struct target *target, struct ft_error *error);

/* A device was probed: what waits is tried again, each in a turn of its session. */
void parked_settled(struct parked *parked);
/* Calls those of a session whose device was probed. True if there are more. */
bool parked_call_again(struct parked *parked, struct session *session);
/* The session is gone. */
void parked_left(struct parked *parked, struct session *session);
/* Answers all with an error. */
void parked_stop(struct parked *parked);

#endif
