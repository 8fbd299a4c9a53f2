/* The server: the listening socket and the sessions of all clients. */
#ifndef FLYTUNE_DAEMON_SERVER_H
#define FLYTUNE_DAEMON_SERVER_H

#include "daemon/options.h"
#include "daemon/session.h"

struct server_events {
	void (*message)(void *data, struct session *session, const struct ft_envelope *envelope);
	void (*batch_end)(void *data, struct session *session);
	void (*closed)(void *data, struct session *session); /* the session still has its pending replies */
};

struct server {
	uv_loop_t *loop;
	const struct log *log;
	const struct options *options;
	const struct access *access;
	const struct server_events *events;
	void *data;
	uv_pipe_t listener;
	uv_timer_t sweeper; /* runs only while a session has half a message, or asks nothing more */
	bool listening;
	bool stopping;
	struct session *first;
	uint32_t count;
	uint32_t clients_max;
	uint64_t accepted;
	uint64_t refused;
	struct session_limits limits;
	struct log_limit accept_limit, full_limit;
};

/* Listens on `descriptor` if it is not -1, else on options->socket, whose stale file it removes; a socket
 * that another process serves is an error. Call with the state directory's lock held: whoever holds it owns
 * the socket file. */
int server_init(struct server *server, uv_loop_t *loop, const struct log *log, const struct options *options,
        const struct access *access, int descriptor, const struct server_events *events, void *data,
        struct ft_error *error);
/* To every session that watches this job, or all. */
void server_broadcast(
        struct server *server, uint64_t job, const struct ft_message *message, const void *body);
/* Stops listening and closes every session once what it is owed is written. */
void server_stop(struct server *server);

#endif
