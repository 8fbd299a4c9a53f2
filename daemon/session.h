/* A session: one client's connection, from accept to close.
 *
 * Replies are collected in one buffer and written together, after all that one read brought was handled. A
 * client that does not read its replies is not read from either, past a mark, and is let go past another.
 *
 * What is read into and written from is lent by the server to the session at work. One at rest has no buffer, so that a
 * thousand of them take little, and those who ask by turns use the same memory, which is in the cache. */
#ifndef FLYTUNE_DAEMON_SESSION_H
#define FLYTUNE_DAEMON_SESSION_H

#include <uv.h>

#include "daemon/access.h"
#include "daemon/log.h"
#include "proto/inbox.h"
#include "proto/messages.h"

struct session;
struct subscriber;
struct transfer;

/* Replies that one session may be owed at once; one more request is busy. */
enum { SESSION_PENDING_MAX = 4096 };

struct session_events {
	/* All that one read brought. True if it was a question whose answer is known, which is in `out` then; the batch
	 * is at its end with that. */
	bool (*at_once)(void *data, struct session *session, struct ft_view bytes);
	/* A whole message; never after the session began to close. */
	void (*message)(void *data, struct session *session, const struct ft_envelope *envelope);
	void (*batch_end)(void *data, struct session *session); /* all that one read brought was handled */
	void (*finished)(void *data, struct session *session); /* from now on nothing tells that it hung up */
	void (*emptied)(
	        void *data, struct session *session);        /* all it was owed is written; of a subscriber */
	void (*closed)(void *data, struct session *session); /* forget it; freed when this returns */
};

/* What the sessions of a server share. Starts as zeros. */
struct session_common {
	struct log_limit framing, slow; /* what they may bring into the log as often as they like */
	struct ft_inbox_spare in;
	struct ft_inbox_spare out;
};

void session_common_free(struct session_common *common);

/* A reply that is owed: outlives the session if need be. */
struct pending {
	struct pending *next, *previous;
	struct session *session; /* NULL once the client is gone */
	uint64_t id;
	struct wait *wait; /* for the end of a job, NULL if it waits for something else */
};

struct session {
	struct session *next, *previous; /* of the server's list */
	const struct log *log;
	struct session_common *common;
	const struct session_events *events;
	void *data;
	uint64_t number;
	uint32_t user, group;
	int64_t process;
	enum access_level level;
	char name[64];

	uv_pipe_t pipe;
	int descriptor; /* of the pipe, once it was started */
	uv_write_t write;
	struct ft_inbox inbox;
	struct ft_writer out;    /* replies to be written */
	struct ft_writer flying; /* being written */
	bool writing;
	bool reading;
	bool handling; /* inside a read: the write comes at its end */
	bool ending;   /* closes when what is owed is written */
	bool finished; /* the client asks nothing more, and may still read */
	bool closing;
	bool greeted; /* said hello */
	bool keeps;   /* keeps answers, or is told of changed ones: it need not ask to rely on them */
	bool placed;  /* has one of the places of its user; the server's */
	bool watching;
	bool subscribed;      /* stays for what it is told of */
	uint64_t watched_job; /* 0: all */
	unsigned partial;     /* looks at half a message that waits for its rest, plus one; 0: none waits */
	struct pending *pending;
	struct transfer *transfer;     /* an import under way; the requests' to free */
	struct subscriber *subscriber; /* NULL: it subscribed to nothing; the requests' to free */
	uint32_t pending_count;
};

/* Takes over an accepted pipe's slot: call with a session whose pipe is initialised and accepted. */
struct session *session_new(uv_loop_t *loop, const struct log *log, struct session_common *common,
        const struct session_events *events, void *data);
/* After uv_accept. */
int session_start(struct session *session, const struct access *access, struct ft_error *error);
/* Takes no more than what is in the socket by now, answers it, and closes. */
void session_finish(struct session *session);
/* Closes now; `closed` follows. */
void session_close(struct session *session);
/* Tells why, writes what is owed, closes. */
void session_refuse(struct session *session, uint64_t id, const struct ft_error *why);

void session_reply(struct session *session, uint64_t id, const struct ft_message *message, const void *body);
/* A whole reply was appended to `out` by other hands. */
void session_appended(struct session *session);
/* As session_reply, with a descriptor that travels with it; only as the first reply of a session. */
void session_hand_over(struct session *session, uint64_t id, const struct ft_message *message,
        const void *body, int descriptor);
void session_fail(struct session *session, uint64_t id, const struct ft_error *failure);
void session_notice(
        struct session *session, const char *method, const struct ft_message *message, const void *body);
/* Whether a subscriber has taken all that it was sent before. If not, `emptied` says when it has. */
bool session_may_be_told(const struct session *session);
/* Of one that asks nothing more: whether it hung up since. */
bool session_gone(const struct session *session);
/* Writes what was collected; called by itself at the end of a read. */
void session_flush(struct session *session);

/* Owes a reply. NULL when out of memory, or when too many are owed. */
struct pending *pending_new(struct session *session, uint64_t id, struct ft_error *error);
/* It was given, or is not owed any more. */
void pending_free(struct pending *pending);

#endif
