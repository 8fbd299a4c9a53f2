/* A session: one client's connection, from accept to close.
 *
 * That its socket can be read is no more than a reason for a turn (fair_turns.h); all that it asks for is done in its turns: a
 * read, messages for a moment, steps of what takes longer, and what it is owed by now. Replies are collected in one
 * buffer and written together at the end of the turn. A client that does not read its replies is not read from either,
 * past a mark; nor is one whose user has more memory than a user may.
 *
 * What is read into and written from is lent by the server to the session at work. One at rest has no buffer, so that a
 * thousand of them take little, and those who ask by turns use the same memory, which is in the cache. */
#ifndef FLYTUNE_DAEMON_SESSION_H
#define FLYTUNE_DAEMON_SESSION_H

#include <uv.h>

#include "daemon/host/access.h"
#include "daemon/host/log.h"
#include "daemon/server/session_state.h"
#include "daemon/server/fair_turns.h"
#include "proto/inbox.h"
#include "proto/messages.h"

struct session;
struct subscriber;
struct transfer;

enum {
	SESSION_TOLD = 64 << 10, /* bytes of what it is owed, before they are sent */
	SESSION_PENDING_MAX =
	        4096, /* replies that one session may be owed at once; one more request is busy */
	SESSION_USER_WAITS = 65536,    /* and all sessions of a user */
	SESSION_USER_BYTES = 32 << 20, /* of buffers, before a user is held back */
	SESSION_SMALL = 2 << 10,       /* of half a message, which is read on all the same */
	SESSION_BYTES = 256 << 20,     /* of all; above, each user is held back at a quarter of that */
};

struct session_events {
	/* All that one read brought. True if it was a question whose answer is known, which is in `out` then; the batch
	 * is at its end with that. */
	bool (*at_once)(void *data, struct session *session, struct ft_view bytes);
	/* A whole message; never after the session began to close. */
	void (*message)(void *data, struct session *session, const struct ft_envelope *envelope);
	/* Appends some of what it is owed by now, until the turn is over. True if there is more. */
	bool (*owed)(void *data, struct session *session);
	void (*batch_end)(void *data, struct session *session); /* the turn is over */
	void (*finished)(void *data, struct session *session); /* from now on nothing shows that it hung up */
	void (*closed)(void *data, struct session *session);   /* forget it; freed when this returns */
};

/* What the sessions of a server share. Starts as zeros, but for `turns`. */
struct session_common {
	struct fair_turns *turns;
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
};

/* An answer that takes more than one turn. Nothing else that the session sent is taken up before it is given; the
 * message stays where it is meanwhile. First member of what it needs for that. */
struct work {
	/* Goes on until session_spent. True when it is done, with the whole answer in `answer`, or an error sent. */
	bool (*step)(struct work *work, struct session *session);
	void (*free)(
	        struct work *work); /* all but `answer` and `message`; NULL: the work is one allocation */
	struct ft_writer answer;    /* appended to what is owed, once it is done */
	void *message;              /* freed with it */
	uint64_t id;                /* of the request */
	size_t bytes;               /* that it has beside `answer`, for its user to be charged with */
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

	struct turn turn;
	struct node held;  /* among those of its user that are left alone until there is memory */
	struct node later; /* among those whose work is still to be begun: too many are under way */
	uint64_t until_ns; /* of this turn, monotonic; 0: nobody has asked yet */
	unsigned weight;   /* of what was done in it since the clock was looked at */
	uv_poll_t poll;
	int descriptor;
	enum session_state state;
	int polled;    /* what of it is polled for */
	bool reported; /* a second time, while it waits for its turn: then it is not polled any more */
	bool readable; /* something may be there to be read */
	bool unparsed; /* a whole message may be in the inbox */
	bool blocked;  /* its socket takes no more for now */
	struct ft_inbox inbox;
	struct ft_writer out; /* replies to be written */
	size_t sent;          /* of them */
	size_t bytes;         /* of its buffers, as its user was charged */
	struct work *work;
	bool begun;           /* it has, and counts among its user's */
	bool due;             /* `owed` has something to append */
	bool handling;        /* inside a turn: the write comes at its end */
	bool greeted;         /* said hello */
	bool keeps;           /* keeps answers, or is sent changed ones: it need not ask to rely on them */
	bool placed;          /* has one of the places of its user; the server's */
	struct node watching; /* among those who watch */
	bool subscribed;      /* stays for its notices */
	uint64_t watched_job; /* 0: all */
	uint64_t watched_to;  /* events before this one were sent, or lost */
	uint64_t missed;      /* of the lost ones, those that it watches and that are not reported yet */
	unsigned partial;     /* looks at half a message that waits for its rest, plus one; 0: none waits */
	struct pending *pending;
	struct list again;             /* requests whose device was probed; the methods' to free */
	struct list awaited;           /* jobs whose end it waits for; the methods' to free */
	struct list ended;             /* those of them that have */
	struct transfer *transfer;     /* an import under way; the methods' to free */
	struct subscriber *subscriber; /* NULL: it subscribed to nothing; the methods' to free */
	uint32_t pending_count;
};

/* Of a connected descriptor, which is the session's then. NULL with an error, and it is closed. */
struct session *session_new(uv_loop_t *loop, const struct log *log, struct session_common *common,
        const struct access *access, const struct session_events *events, void *data, int descriptor,
        struct ft_error *error);
/* Serves it, as fair_turns.h has it. */
bool session_turn(void *session);
/* It has something to do: `due`, or what was held back. */
void session_wake(struct session *session);
/* Whether the turn is over, looking at the clock after some weight was done. A weight is about a third of a microsecond: a
 * lookup whose answer was kept has 1, one that is looked up in the store 16, and what is not known SESSION_HEAVY. */
enum { SESSION_LOOKED_UP = 16, SESSION_HEAVY = 64 };
bool session_look(struct session *session);
static inline bool session_spent(struct session *session, unsigned weight)
{
	session->weight += weight;
	return session->weight >= SESSION_HEAVY && session_look(session);
}
/* Has the work done, now and in later turns. It is freed at its end, or with the session. */
void session_begin(struct session *session, struct work *work);
/* Whether the user has so much memory that no large answer is to be made; fails as busy. */
int session_check_room(const struct session *session, struct ft_error *error);
/* Takes no more than what is in the socket by now, answers it, and closes. */
void session_finish(struct session *session);
/* Closes now; `closed` follows. */
void session_close(struct session *session);
/* Sends the reason, writes what is owed, closes. */
void session_refuse(struct session *session, uint64_t id, const struct ft_error *why);

void session_reply(struct session *session, uint64_t id, const struct ft_message *message, const void *body);
/* A whole reply was appended to `out` by other hands. */
void session_appended(struct session *session);
/* As session_reply, with a descriptor that travels with it; only as the first reply of a session. */
void session_hand_over(struct session *session, uint64_t id, const struct ft_message *message,
        const void *body, int descriptor);
void session_fail(struct session *session, uint64_t id, const struct ft_error *failure);
/* Of one that asks nothing more: whether it hung up since. */
bool session_gone(const struct session *session);

/* Owes one reply more, or fails as busy: too many are owed to this connection or its user. And so many less. */
int session_owe(struct session *session, struct ft_error *error);
void session_owe_less(struct session *session, uint32_t count);
/* Owes a reply. NULL when out of memory, or when too many are owed. */
struct pending *pending_new(struct session *session, uint64_t id, struct ft_error *error);
/* It was given, or is not owed any more. */
void pending_free(struct pending *pending);

#endif
