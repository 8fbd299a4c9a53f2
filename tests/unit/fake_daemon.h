/* A daemon of the tests' own, in a thread a connection: it answers every request sensibly, unless a hook of
 * the test's comes first and misbehaves. */
#ifndef FLYTUNE_TESTS_FAKE_DAEMON_H
#define FLYTUNE_TESTS_FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>

#include <flytune/client.h>
#include "proto/board.h"
#include "proto/inbox.h"
#include "proto/messages.h"

enum {
	FAKE_CONNECTIONS_MAX = 4096,
	FAKE_M_REFUSED = 131313,     /* a lookup of such an m is a bad_value */
	FAKE_M_UNAVAILABLE = 141414, /* and of this one unavailable */
	FAKE_M_MISS = 151515,        /* this one has the default for its answer */
	FAKE_JOBS = 1000             /* the job of an m is this + m; one of a lesser number is of m=64 */
};

#define FAKE_STORE "01234567-89ab-cdef-0123-456789abcdef"

struct fake;

struct fake_session {
	struct fake *fake;
	int fd;
	pthread_t thread;
	struct ft_inbox inbox;
	atomic_uint places; /* that it subscribed to */
};

enum fake_act {
	FAKE_USUAL, /* answer as a good daemon does */
	FAKE_DONE,  /* the hook has answered, or wants no answer */
	FAKE_CLOSE,
};

/* Called for each request before it is answered, in the session's thread. */
typedef enum fake_act (*fake_hook)(
        struct fake_session *session, const struct ft_envelope *request, void *data);

struct fake {
	char directory[32];
	char path[64];
	int listener;
	pthread_t acceptor;
	bool running;
	_Atomic(fake_hook) hook;
	void *data;
	atomic_int accepted, hellos, lookups, many, tunes, waits, subscribes;
	atomic_uint_fast64_t repeats; /* of the last lookup that brought any */
	struct ft_board *board;       /* of the next listening; NULL: it has none */
	int board_fd;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool gate; /* what fake_wait_gate waits for */
	int at_gate;
	struct fake_session *session[FAKE_CONNECTIONS_MAX];
	atomic_int sessions;
};

enum fake_flaw {
	FAKE_SOUND,
	FAKE_UNSEALED,
	FAKE_SHRINKABLE,
	FAKE_SHORT,
	FAKE_LONG,
	FAKE_HOLES,
	FAKE_GARBAGE,
	FAKE_FAR_OWNER
};

/* A fresh board for whoever connects from now on, alive until it is closed or fake_board_dies. All answers are of its
 * stripe 1 (counted from 1). Maps of older boards stay. */
void fake_board(struct fake *fake, enum fake_flaw flaw);
void fake_board_changes(struct fake *fake);
void fake_board_dies(struct fake *fake);
/* A place for a socket, and nobody there; and an environment that leads the library nowhere else. */
void fake_init(struct fake *fake);
/* A client of it. */
flytune_client *fake_client(const struct fake *fake, struct flytune_options *options);
void fake_listen(struct fake *fake);
/* Closes everything, as a daemon that is killed does. It may listen again. */
void fake_stop(struct fake *fake);
void fake_free(struct fake *fake);

/* Holds a hook up until fake_open_gate, or fake_stop. */
void fake_wait_gate(struct fake *fake);
void fake_open_gate(struct fake *fake);
/* Until so many hooks are at the gate. */
void fake_await_arrivals(struct fake *fake, int count);

/* Tells a session of a place's answer: the knob M is `mark`, and so is the digest. */
void fake_tell(struct fake_session *session, uint64_t place, uint64_t mark);
/* Tells all sessions that are there. */
void fake_tell_all(struct fake *fake, uint64_t place, uint64_t mark);
/* Answers a request: writes the whole message. */
void fake_send(struct fake_session *session, const struct ft_writer *writer);
void fake_reply(
        struct fake_session *session, uint64_t id, const struct ft_message *message, const void *body);
void fake_refuse(struct fake_session *session, uint64_t id, const char *code, const char *field);
/* What it says to a lookup: the knob M is the problem's m. */
void fake_answer(const struct ft_problem *problem, const char *generation, struct ft_answer *answer);
int64_t fake_m(const struct ft_envelope *request);

#endif
