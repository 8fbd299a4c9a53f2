/* One connection to the daemon, used by one thread at a time.
 *
 * Every step has a deadline. After CALL_LOST and CALL_LATE the connection must be closed: what may still
 * arrive on it would answer the wrong question. */
#ifndef FLYTUNE_CLIENT_CONNECTION_H
#define FLYTUNE_CLIENT_CONNECTION_H

#include <stdatomic.h>
#include <sys/types.h>

#include "client/lib/board.h"
#include "proto/inbox.h"
#include "proto/messages.h"

enum call_result {
	CALL_DONE,    /* the daemon answered */
	CALL_REFUSED, /* the daemon answered with an error */
	CALL_STOPPED, /* the caller's own callback wanted no more; what is under way is lost */
	CALL_LOCAL,   /* nothing was sent: no memory, no descriptor */
	CALL_LOST,    /* broken, closed, or nobody there */
	CALL_LATE,    /* the deadline passed */
};

/* Called for each notice that comes while a reply is waited for. Non-zero: CALL_STOPPED. */
typedef int (*connection_notice)(void *data, const struct ft_envelope *notice);

struct connection {
	struct connection *next; /* the owner's list */
	int fd;                  /* -1: closed */
	dev_t device;            /* with inode: what the descriptor was when it was made */
	ino_t inode;
	bool busy;                              /* some thread uses it */
	bool pooled;                            /* else made for one wait */
	bool used;                              /* a call has succeeded on it */
	bool orphan;                            /* the owner's list has it no more: a fork came between */
	uint64_t started_at;                    /* when it was connected */
	uint64_t receive_timeout, send_timeout; /* as set on the socket; 0: none */
	uint32_t last_id;                       /* of the last request */
	uint32_t hello_id;
	struct ft_inbox inbox;       /* what came */
	struct ft_writer outbox;     /* the request being sent */
	size_t pushed;               /* bytes of it that are sent, by connection_push */
	struct ft_hello_reply hello; /* what the daemon is */
	struct boards *boards;       /* wants the daemon's board, to put it here; may be NULL */
	int board_fd;                /* the board's, from the hello's reply until it is taken; -1 */
	uint64_t board;              /* serial of the daemon's board; 0: it gave none of use */
	bool absent; /* connecting failed since nobody serves the socket, which cost next to nothing to find out */
};

/* NULL when out of memory. */
struct connection *connection_new(void);
/* Connects and sends the hello. With `deadline` 0 it does not wait for a place in the daemon's queue. */
enum call_result connection_start(struct connection *connection, const char *path, const char *name,
        uint64_t deadline, struct ft_error *error);
/* Waits for the answer to the hello. After CALL_LATE it may be called again. With `deadline` 0 it only looks.
 */
enum call_result connection_finish(struct connection *connection, uint64_t deadline, struct ft_error *error);
/* Sends a request and waits for its reply, whose views live until the connection is used again. */
enum call_result connection_call(struct connection *connection, const char *method,
        const struct ft_message *message, const void *body, uint64_t deadline, connection_notice notice,
        void *data, struct ft_envelope *reply, struct ft_error *error);
/* Waits for notices only. Never CALL_DONE. */
enum call_result connection_listen(struct connection *connection, uint64_t deadline, connection_notice notice,
        void *data, struct ft_error *error);
/* For who never waits. Begins a request, whose params the caller writes to `outbox`; once the one before is sent. */
void connection_compose(struct connection *connection, const char *method);
/* Sends as much of it as goes at once. CALL_LATE: not all. */
enum call_result connection_push(struct connection *connection, struct ft_error *error);
/* The next message that is there; CALL_LATE: none is. Without `receives`, of what was received before. Its views live
 * until the connection is used again. */
enum call_result connection_next(
        struct connection *connection, bool receives, struct ft_envelope *envelope, struct ft_error *error);
/* Closes the descriptor, so that it can be started anew. */
void connection_reset(struct connection *connection);
/* Closes the descriptor and frees all. NULL is fine. */
void connection_free(struct connection *connection);

#endif
