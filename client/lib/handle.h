/* The client: its settings, its pool of connections to the daemon, and what it keeps.
 *
 * Threads. `lock` guards everything below it in the struct, and is never held across a system call that can
 * wait. A connection that is busy belongs to one thread, but for its place in the list. At most one thread
 * connects at a time, so that a daemon that is away is tried once and not once a thread.
 *
 * A lookup that was answered before comes here for nothing that is written: `boards` and `cache` are read without a lock
 * (client/lib/board.h, client/lib/cache.h). They need no look at the process id either, since a child's copies are as good.
 *
 * fork. The handlers in fork.c hold `lock` across it; the child closes its copies of the descriptors, forgets
 * all connections and goes on with fresh ones. */
#ifndef FLYTUNE_CLIENT_HANDLE_H
#define FLYTUNE_CLIENT_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/lib/breaker.h"
#include "client/lib/cache.h"
#include "client/lib/clock.h"
#include "client/lib/connection.h"
#include "client/lib/forced.h"
#include "client/lib/fork.h"

enum {
	POOL_MAX = 8,       /* connections for calls; waiting for jobs takes others */
	PROBE_WAIT_MS = 20, /* that a lookup grants a daemon that was away to say hello */
};

struct flytune_subscription;

struct flytune_client {
	char *socket;
	char name[64];
	char token[FT_TOKEN_SIZE];      /* the generation to answer from; "": now */
	char device[FT_DEVICE_ID_SIZE]; /* "": the daemon's choice */
	enum flytune_autotune autotune; /* never ENVIRONMENT */
	bool tune_on_miss;
	struct boards boards; /* read by every lookup */
	struct cache cache;
	/* The breaker's, for those who have an answer anyway and would not wait for the lock; 0: it is closed. */
	_Atomic uint64_t paused_until;
	_Atomic uint64_t
	        lost_at; /* when a daemon that had answered closed on this client; 0 once one answers again */
	int64_t lookup_timeout_ms, call_timeout_ms, autotune_timeout_ms;
	char guessed_kind[16]; /* of this host's first device, until the daemon names one */
	flytune_log_fn log;
	void *log_data;
	atomic_int pid; /* of the process that the descriptors belong to */
	struct fork_member fork;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a connection is idle again, or connecting has ended */
	struct flytune_subscription *subscriptions;
	/* In a forked child, with the lock held, of the first: each of the list lets go of the parent's connection and
	 * descriptors, and begins anew on the same numbers. Set while there is any. */
	void (*subscriptions_forked)(struct flytune_subscription *first);
	struct connection *connections;
	unsigned pooled;          /* of these, made for the pool */
	bool connecting;          /* by some thread */
	struct connection *probe; /* its hello is still unanswered */
	struct breaker breaker;
	struct forced forced;
	struct ft_traits traits;             /* guessed last: it takes reading a few files; "" before */
	char last_device[FT_DEVICE_ID_SIZE]; /* that the daemon chose for a call that named none */
};

/* To begin every public call with: notices a fork that the handlers did not. */
void client_enter(flytune_client *client);
/* In a forked child, with the lock held: closes and forgets what belongs to the parent. */
void client_forked(flytune_client *client);

/* In a forked child: closes its copy of a descriptor that belongs to the parent. */
void client_close_inherited(struct connection *connection);

/* A fresh connection outside of the pool, marked busy; it goes back with client_give or client_drop. */
enum call_result client_take_own(
        flytune_client *client, uint64_t deadline, struct connection **connection, struct ft_error *error);
/* After a call that succeeded. A connection of one's own is closed. */
void client_give(flytune_client *client, struct connection *connection);
/* After one that did not. With `error`, the daemon counts as away because of it. */
void client_drop(flytune_client *client, struct connection *connection, const struct ft_error *error);

/* One request and its reply on a pooled connection. Who has an answer of his own is not `patient`: he waits PROBE_WAIT_MS
 * at most for a daemon that was away. A connection that turns out to have died since it was
 * last used is replaced and the request sent again, so it must be one that may be repeated; a patient call then waits
 * for a daemon that is restarted. After CALL_DONE
 * the caller reads the reply and then hands the connection back; otherwise that is done. */
enum call_result client_call(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, uint64_t deadline, bool patient, struct connection **connection,
        struct ft_envelope *reply, struct ft_error *error);

/* The same on a fresh connection outside of the pool, which receives notices as well. */
enum call_result client_call_own(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, uint64_t deadline, connection_notice notice, void *data,
        struct connection **connection, struct ft_envelope *reply, struct ft_error *error);

/* A reply that is being read: what is in it lasts until then. */
struct client_reply {
	struct ft_view body;
	const struct connection *connection; /* it came from */
};

/* For calls other than lookups: client_enter, client_call with the usual deadline, and all that comes after. `read` takes
 * what is wanted out of the reply, and returns 0, or -1 with its error for a reply that cannot be: NULL where nothing is. */
enum flytune_result client_ask(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, int (*read)(void *to, const struct client_reply *reply, struct ft_error *error),
        void *to, struct flytune_error *out);

/* A device that the caller may have named: NULL is the client's. Fails if it is too long. */
int client_device(const flytune_client *client, const char *named, char device[FT_DEVICE_ID_SIZE],
        struct ft_error *error);

#endif
