/* Turns: whose work the loop does next.
 *
 * All that a client wants done is a turn of its session, and belongs to the user who connected. Users who have turns
 * waiting are served by the least time that they used, the sessions of one user one after the other; a user who had
 * nothing waiting joins at the time of whoever is served then, so that nobody saves up. The loop serves for a bounded
 * time and looks at its sockets again: whatever one user sends, on however many connections, another's question waits
 * for the turn that is under way and no longer.
 *
 * A turn must be short; what takes longer is done in several. Turns are the loop thread's. */
#ifndef FLYTUNE_DAEMON_FAIR_TURNS_H
#define FLYTUNE_DAEMON_FAIR_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/host/list.h"

/* What one turn takes, in which who does several things looks at the clock between them; and for how long turns are served
 * before the sockets are looked at again. Where there are several users, the question of one waits for this much of another's
 * work, and would not wait at all for another process of the same priority. */
enum {
	TURNS_QUANTUM_NS = 20000,
	TURNS_SERVED_NS = 25000,
	TURNS_ALONE_QUANTUM_NS = 50000,
	TURNS_ALONE_SERVED_NS = 100000,
};

/* What one user has, over all connections. There from the first to the last of them. */
struct user {
	struct node known, due; /* in the lists of turns */
	uint32_t id;
	uint32_t sessions;
	uint64_t used_ns; /* on the scale of turns.now_ns */
	size_t bytes;     /* of buffers */
	uint32_t waits;   /* replies that are owed and come later */
	uint32_t parked;  /* of these: requests whose device is still being probed */
	size_t parked_bytes;
	uint32_t places; /* that it subscribes to */
	size_t places_bytes;
	struct list turns; /* that wait */
	/* Their sessions': those that are left alone until there is memory, and those whose work is still to be begun. */
	struct list held, later;
	uint32_t works; /* begun */
};

/* A member of whatever has turns. */
struct turn {
	struct node waiting; /* its data is whose turn it is */
	struct user *user;
};

struct fair_turns {
	struct list users;
	struct list due;           /* users who have turns waiting, in no order */
	uint32_t waiting;          /* turns */
	uint64_t now_ns;           /* time that who is served had used */
	size_t bytes;              /* of all users */
	bool (*serve)(void *data); /* of the turn; true: there is more to do */
	uv_check_t check;
	uv_idle_t idle; /* runs while turns wait, so that the loop does not */
	bool idles;     /* it does */
};

void fair_turns_init(struct fair_turns *turns, uv_loop_t *loop, bool (*serve)(void *data));
/* Closes handles. No turn may wait. */
void fair_turns_stop(struct fair_turns *turns);

/* One session of a user more; NULL for want of memory. And one less. */
struct user *fair_turns_join(struct fair_turns *turns, uint32_t id);
void fair_turns_leave(struct fair_turns *turns, struct user *user);

/* Waits for its turn, at the end of its user's, unless it does already. Within a callback of the loop's polling, serving
 * follows it. */
void fair_turns_add(struct fair_turns *turns, struct turn *turn);
/* The same at any other time. */
void fair_turns_wake(struct fair_turns *turns, struct turn *turn);
void fair_turns_remove(struct fair_turns *turns, struct turn *turn);

/* How long a turn may take now. */
uint64_t fair_turns_quantum_ns(const struct fair_turns *turns);

/* Serves for so long as is fair, or until nothing waits. Called by the loop. */
void fair_turns_serve(struct fair_turns *turns);

#endif
