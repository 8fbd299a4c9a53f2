#include "daemon/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	DESCRIPTORS_RESERVED = 64, /* for the store, the loop, a runner, and to tell the one too many why */
	PARTIAL_MAX_MS = 30000,    /* from the first bytes of a message to its last */
	SWEEP_MS = 5000,
};

static void session_closed(void *data, struct session *session)
{
	struct server *server = data;

	server->events->closed(server->data, session);
	if (session->previous != NULL)
		session->previous->next = session->next;
	else
		server->first = session->next;
	if (session->next != NULL)
		session->next->previous = session->previous;
	server->count--;
	log_line(server->log, LOG_LEVEL_DEBUG, "session closed session=%" PRIu64, session->number);
}

static void session_message(void *data, struct session *session, const struct ft_envelope *envelope)
{
	struct server *server = data;

	server->events->message(server->data, session, envelope);
}

/* What no event tells: a message that stays half, and the end of a client that closed its sending half before. */
static void look_around(uv_timer_t *timer)
{
	struct server *server = timer->data;
	uint64_t now = uv_now(server->loop);
	bool any = false;
	struct session *next;

	for (struct session *session = server->first; session != NULL; session = next) {
		struct ft_error error;

		next = session->next;
		if (session->closing)
			continue;
		if (session->finished) {
			if (session_gone(session))
				session_close(session);
			any = true;
			continue;
		}
		if (session->partial_since_ms == 0)
			continue;
		if (now > session->partial_since_ms + PARTIAL_MAX_MS) {
			(void)ft_fail(&error, FT_E_TIMEOUT, "a message was not whole after %d s",
			        PARTIAL_MAX_MS / 1000);
			session_refuse(session, 0, &error);
		} else {
			any = true;
		}
	}
	if (!any)
		(void)uv_timer_stop(timer);
}

static void start_sweeper(struct server *server)
{
	if (!server->stopping && !uv_is_active((uv_handle_t *)&server->sweeper))
		(void)uv_timer_start(&server->sweeper, look_around, SWEEP_MS, SWEEP_MS);
}

static void session_batch_end(void *data, struct session *session)
{
	struct server *server = data;

	server->events->batch_end(server->data, session);
	if (session->partial_since_ms != 0)
		start_sweeper(server);
}

static void session_finished(void *data, struct session *session)
{
	(void)session;
	start_sweeper(data);
}

static const struct session_events session_events = {
        .message = session_message,
        .batch_end = session_batch_end,
        .finished = session_finished,
        .closed = session_closed,
};

static void connected(uv_stream_t *listener, int status)
{
	struct server *server = listener->data;
	struct session *session;
	struct ft_error error;

	if (status != 0) {
		log_limited(server->log, &server->accept_limit, LOG_LEVEL_WARNING, "cannot accept: %s",
		        uv_strerror(status));
		return;
	}
	session = session_new(server->loop, server->log, &server->limits, &session_events, server);
	if (session == NULL) {
		log_limited(server->log, &server->accept_limit, LOG_LEVEL_WARNING, "no memory for a client");
		return; /* the listener stops polling until uv_accept: it is the brake */
	}
	session->number = ++server->accepted;
	session->next = server->first;
	if (server->first != NULL)
		server->first->previous = session;
	server->first = session;
	server->count++;
	if (uv_accept(listener, (uv_stream_t *)&session->pipe) != 0) {
		session_close(session);
		return;
	}
	if (session_start(session, server->access, &error) != 0) {
		log_limited(server->log, &server->accept_limit, LOG_LEVEL_WARNING, "%s", error.message);
		session_close(session);
		return;
	}
	if (server->count > server->clients_max) {
		server->refused++;
		log_limited(server->log, &server->full_limit, LOG_LEVEL_WARNING, "too many clients max=%u",
		        server->clients_max);
		(void)ft_fail(
		        &error, FT_E_BUSY, "the daemon serves %u clients, and no more", server->clients_max);
		session_refuse(session, 0, &error);
		return;
	}
	log_line(server->log, LOG_LEVEL_DEBUG, "session opened session=%" PRIu64 " uid=%u pid=%" PRId64,
	        session->number, session->user, session->process);
}

/* Removes the socket file that a dead daemon left. A live one keeps its own. */
static int clear_stale(const char *path, struct ft_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);
	struct stat facts;
	int probe;
	int failure;

	if (lstat(path, &facts) != 0)
		return errno == ENOENT ? 0 : ft_fail_errno(error, errno, "cannot look at socket %s", path);
	if (!S_ISSOCK(facts.st_mode))
		return ft_fail(
		        error, FT_E_BAD_VALUE, "%s exists and is no socket: it is left as it is", path);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return ft_fail_errno(error, errno, "cannot make a socket");
	failure = connect(probe, (struct sockaddr *)&address, sizeof(address)) != 0 ? errno : 0;
	if (failure == 0)
		(void)getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	(void)close(probe);
	if (failure == 0 || failure == EAGAIN)
		return ft_fail(error, FT_E_UNAVAILABLE, "socket %s is already served by process %d", path,
		        (int)peer.pid);
	if (failure != ECONNREFUSED)
		return ft_fail_errno(error, failure, "cannot tell whether socket %s is served", path);
	if (unlink(path) != 0)
		return ft_fail_errno(error, errno, "cannot remove the stale socket %s", path);
	return 0;
}

static int bind_socket(struct server *server, struct ft_error *error)
{
	const char *path = server->options->socket;
	char directory[108];
	char *slash;
	struct stat facts;
	int status;

	if (clear_stale(path, error) != 0)
		return -1;
	(void)snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash != NULL && slash != directory) {
		*slash = '\0';
		/* libuv tells a missing directory as a lack of permission. */
		if (stat(directory, &facts) != 0)
			return ft_fail_errno(error, errno, "the directory of socket %s", path);
	}
	status = uv_pipe_bind(&server->listener, path);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make socket %s: %s", path, uv_strerror(status));
	if (chmod(path, 0660) != 0)
		return ft_fail_errno(error, errno, "cannot set the mode of socket %s", path);
	/* Root may give it to any group, others to one that they are in. */
	if (server->access->members.known && chown(path, (uid_t)-1, server->access->members.id) != 0)
		log_line(server->log, LOG_LEVEL_NOTICE, "socket stays with its group, not %s: %s",
		        server->access->members.name, strerror(errno));
	return 0;
}

int server_init(struct server *server, uv_loop_t *loop, const struct log *log, const struct options *options,
        const struct access *access, int descriptor, const struct server_events *events, void *data,
        struct ft_error *error)
{
	struct rlimit limit;
	int status;

	*server = (struct server){
	        .loop = loop,
	        .log = log,
	        .options = options,
	        .access = access,
	        .events = events,
	        .data = data,
	        .clients_max = (uint32_t)options->clients_max,
	};
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		uint64_t room = limit.rlim_cur > 2UL * DESCRIPTORS_RESERVED
		        ? limit.rlim_cur - DESCRIPTORS_RESERVED
		        : DESCRIPTORS_RESERVED / 2;

		if (server->clients_max > room)
			server->clients_max = (uint32_t)room;
	}
	(void)uv_timer_init(loop, &server->sweeper);
	server->sweeper.data = server;
	(void)uv_pipe_init(loop, &server->listener, 0);
	server->listener.data = server;
	if (descriptor >= 0) {
		status = uv_pipe_open(&server->listener, descriptor);
		if (status != 0)
			return ft_fail(error, FT_E_SYSTEM, "cannot use the socket that was handed over: %s",
			        uv_strerror(status));
	} else if (bind_socket(server, error) != 0) {
		return -1;
	}
	status = uv_listen((uv_stream_t *)&server->listener, SOMAXCONN, connected);
	if (status != 0)
		return ft_fail(
		        error, FT_E_SYSTEM, "cannot listen on %s: %s", options->socket, uv_strerror(status));
	server->listening = true;
	return 0;
}

void server_broadcast(struct server *server, uint64_t job, const struct ft_message *message, const void *body)
{
	struct session *next;

	for (struct session *session = server->first; session != NULL; session = next) {
		next = session->next;
		if (session->watching && (session->watched_job == 0 || session->watched_job == job))
			session_notice(session, "event", message, body);
	}
}

void server_stop(struct server *server)
{
	server->stopping = true;
	server->listening = false;
	if (server->listener.loop != NULL && !uv_is_closing((uv_handle_t *)&server->listener))
		uv_close((uv_handle_t *)&server->listener, NULL);
	if (server->sweeper.loop != NULL && !uv_is_closing((uv_handle_t *)&server->sweeper))
		uv_close((uv_handle_t *)&server->sweeper, NULL);
	for (struct session *session = server->first; session != NULL; session = session->next) {
		/* One that does not read must not hold up the end. */
		if (session->writing || session->out.length > 0)
			session_flush(session);
		session_close(session);
	}
}
