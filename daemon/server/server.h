/* The server: the listening socket and the sessions of all clients.
 *
 * The socket is polled and accepted from here, not by libuv's listener, which accepts until nobody waits and never comes
 * back once no descriptor is left. */
#ifndef FLYTUNE_DAEMON_SERVER_H
#define FLYTUNE_DAEMON_SERVER_H

#include "daemon/host/settings.h"
#include "daemon/host/deadline.h"
#include "daemon/server/connection_limits.h"
#include "daemon/server/session.h"
#include "daemon/server/job_events.h"
#include "daemon/host/watch.h"

struct server_events {
	bool (*at_once)(void *data, struct session *session, struct ft_view bytes); /* as session_events' */
	void (*message)(void *data, struct session *session, const struct ft_envelope *envelope);
	void (*batch_end)(void *data, struct session *session);
	bool (*owed)(void *data, struct session *session);   /* as session_events' */
	void (*closed)(void *data, struct session *session); /* the session still has its pending replies */
	void (*drained)(void *data); /* after server_stop: the last session is closed */
};

struct server {
	uv_loop_t *loop;
	const struct log *log;
	const struct settings *settings;
	const struct access *access;
	const struct server_events *events;
	void *data;
	int listener; /* -1 if there is none */
	int lock;     /* of the socket's name, held as long as this process may make or remove it; else -1 */
	bool named;   /* the socket has a file that this process made */
	bool missed;  /* that the file has gone was logged */
	uint64_t device, inode; /* of that file */
	struct watch watch;     /* of the directory that it is in */
	int reserve;            /* a descriptor to be given up, so that the one too many can be refused */
	uv_poll_t poll;
	uv_timer_t accept_pause; /* runs while nothing can be accepted */
	uv_timer_t give_back;    /* runs once after many have left */
	uv_timer_t sweeper;      /* runs only while a session has half a message, or asks nothing more */
	struct deadline leaving;
	bool polled; /* the handles above are open */
	bool stopping;
	struct session *first;
	uint32_t count;
	uint32_t most; /* since memory was given back */
	struct connection_limits limits;
	struct fair_turns turns;
	struct job_events watched;
	uint64_t accepted;
	uint64_t undescribed; /* were refused for want of a descriptor */
	struct session_common common;
	struct log_limit accept_limit, full_limit;
};

/* Listens on `descriptor` if it is not -1, else on settings->socket, whose stale file it removes. A socket that another
 * process serves, or is about to, is an error: the lock beside it says whose it is. A socket that was handed over is its
 * maker's, and so is its name. */
int server_init(struct server *server, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, const struct access *access, int descriptor,
        const struct server_events *events, void *data, struct ft_error *error);
/* Looks soon whether the socket's file is still there, and makes it anew if it is not; the watch on its directory sees most
 * of that by itself. */
void server_look(struct server *server);
/* Takes nothing new: whoever asked until now, or waits to be let in, is answered and closed, and `drained` follows. Who
 * does not read the answers in time goes without. Where the socket was handed over, those who wait in its queue are left
 * to the next daemon. */
void server_stop(struct server *server);
/* After `drained`, or where server_init failed. */
void server_free(struct server *server);
/* Connections that were one too many, whatever was short. */
uint64_t server_refused(const struct server *server);
/* No session is open. */
bool server_idle(const struct server *server);

#endif
