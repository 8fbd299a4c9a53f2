#include "daemon/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/host/lock.h"
#include "daemon/host/ready.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

enum {
	DESCRIPTORS_RESERVED = 64, /* for the store, the loop, a runner, and to refuse the one too many */
	PARTIAL_MAX_MS = 30000,    /* from the first bytes of a message to its last */
	SWEEP_MS = 5000,
	ACCEPT_PAUSE_MS = 500, /* after nothing could be accepted */
	LEAVE_MS = 3000,       /* for the last answers to be read */
	CROWD = 64,            /* sessions, before it matters what they leave behind */
	GIVE_BACK_MS = 200,    /* after the last of those who leave together */
	LOCK_SIZE = sizeof(((struct settings *)NULL)->socket) + sizeof(".lock"),
};

static void drained(struct server *server)
{
	deadline_close(&server->leaving);
	if (!uv_is_closing((uv_handle_t *)&server->sweeper))
		uv_close((uv_handle_t *)&server->sweeper, NULL);
	fair_turns_stop(&server->turns);
	job_events_forget(&server->watched);
	session_common_free(&server->common);
	server->events->drained(server->data);
}

/* What a crowd had is free, but in pieces between what stays, so that the allocator keeps it. */
static void give_memory_back(uv_timer_t *timer)
{
	struct server *server = timer->data;

	server->most = server->count;
	(void)malloc_trim(0);
}

static void give_back_soon(struct server *server)
{
	if (!server->stopping && server->most >= CROWD && server->count <= server->most / 2)
		timer_start(&server->give_back, give_memory_back, GIVE_BACK_MS);
}

static void session_closed(void *data, struct session *session)
{
	struct server *server = data;

	server->events->closed(server->data, session);
	job_events_leave(&server->watched, session);
	if (session->previous != NULL)
		session->previous->next = session->next;
	else
		server->first = session->next;
	if (session->next != NULL)
		session->next->previous = session->previous;
	server->count--;
	give_back_soon(server);
	if (session->placed)
		connection_limits_leave(&server->limits, session->user);
	log_line(server->log, LOG_LEVEL_DEBUG, "session closed session=%" PRIu64, session->number);
	if (server->stopping && server->count == 0)
		drained(server);
}

static bool session_at_once(void *data, struct session *session, struct ft_view bytes)
{
	struct server *server = data;

	return server->events->at_once(server->data, session, bytes);
}

static void session_message(void *data, struct session *session, const struct ft_envelope *envelope)
{
	struct server *server = data;

	server->events->message(server->data, session, envelope);
}

/* What no event reports: a message that stays half, and the end of a client that closed its sending half before. */
static void look_around(uv_timer_t *timer)
{
	struct server *server = timer->data;
	bool any = false;
	struct session *next;

	for (struct session *session = server->first; session != NULL; session = next) {
		struct ft_error error;

		next = session->next;
		if (session->state == SESSION_CLOSING)
			continue;
		if (session->state >= SESSION_FINISHED) {
			if (session_gone(session))
				session_close(session);
			any = true;
			continue;
		}
		if (session->partial == 0)
			continue;
		/* Counted in looks, which a loop that stood still does not catch up on: what came meanwhile is read
		 * before the next. */
		if (session->partial++ <= PARTIAL_MAX_MS / SWEEP_MS) {
			any = true;
			continue;
		}
		/* Many halves that wait for each other's memory have an end too. */
		if (session->held.list != NULL)
			(void)ft_fail(&error, FT_E_BUSY,
			        "the rest of a message was not read for %d s: user %u leaves %zu bytes of "
			        "questions half asked and answers unread",
			        PARTIAL_MAX_MS / 1000, session->user, session->turn.user->bytes);
		else
			(void)ft_fail(&error, FT_E_TIMEOUT, "a message was not whole after %d s",
			        PARTIAL_MAX_MS / 1000);
		session_refuse(session, 0, &error);
	}
	if (!any)
		(void)uv_timer_stop(timer);
}

static void start_sweeper(struct server *server)
{
	if (!server->stopping && !uv_is_active((uv_handle_t *)&server->sweeper))
		timer_repeat(&server->sweeper, look_around, SWEEP_MS, SWEEP_MS);
}

static void session_batch_end(void *data, struct session *session)
{
	struct server *server = data;

	server->events->batch_end(server->data, session);
	if (session->partial != 0)
		start_sweeper(server);
}

static void session_finished(void *data, struct session *session)
{
	(void)session;
	start_sweeper(data);
}

static bool session_owed(void *data, struct session *session)
{
	struct server *server = data;

	if (job_events_tell(&server->watched, session))
		return true;
	return server->events->owed(server->data, session);
}

static const struct session_events session_events = {
        .at_once = session_at_once,
        .message = session_message,
        .batch_end = session_batch_end,
        .finished = session_finished,
        .owed = session_owed,
        .closed = session_closed,
};

/* ---- accepting ---- */

static int accept_one(const struct server *server)
{
	int descriptor;

	do {
		descriptor = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (descriptor < 0 && (errno == EINTR || errno == ECONNABORTED));
	return descriptor;
}

static void begin_session(struct server *server, int descriptor)
{
	struct ft_error error;
	struct session *session = session_new(server->loop, server->log, &server->common, server->access,
	        &session_events, server, descriptor, &error);

	if (session == NULL) {
		log_limited(server->log, &server->accept_limit, LOG_LEVEL_WARNING, "client lost: %s",
		        error.message);
		return;
	}
	session->number = ++server->accepted;
	session->next = server->first;
	if (server->first != NULL)
		server->first->previous = session;
	server->first = session;
	server->count++;
	if (server->count > server->most)
		server->most = server->count;
	if (connection_limits_take(&server->limits, session->user, session->level == ACCESS_ADMIN, &error) !=
	        0) {
		log_limited(server->log, &server->full_limit, LOG_LEVEL_WARNING,
		        "client refused uid=%u pid=%" PRId64 ": %s", session->user, session->process,
		        error.message);
		session_refuse(session, 0, &error);
		return;
	}
	session->placed = true;
	log_line(server->log, LOG_LEVEL_DEBUG, "session opened session=%" PRIu64 " uid=%u pid=%" PRId64,
	        session->number, session->user, session->process);
}

static void tell_and_close(int descriptor, const struct ft_error *why)
{
	uint8_t room[1024];
	struct ft_writer writer;

	ft_writer_init_fixed(&writer, room, sizeof(room));
	ft_write_failure(&writer, 0, why);
	/* A fresh socket takes it, and who has left needs it no more. */
	if (ft_writer_ok(&writer))
		(void)send(descriptor, room, writer.length, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)close(descriptor);
}

static void ready_to_accept(uv_poll_t *poll, int status, int events);

static void accept_again(uv_timer_t *timer)
{
	struct server *server = timer->data;

	if (poll_start(&server->poll, UV_READABLE, ready_to_accept) != 0)
		timer_start(timer, accept_again, ACCEPT_PAUSE_MS);
}

/* One is let in on the reserve and refused; where even that does not help, nothing is accepted for a while. Those who are
 * in notice neither. True if someone was. */
static bool refuse_one(struct server *server, int failure)
{
	struct ft_error error;
	int descriptor;

	log_limited(server->log, &server->accept_limit, LOG_LEVEL_WARNING, "cannot accept: %s clients=%u",
	        strerror(failure), server->count);
	if (server->reserve >= 0)
		(void)close(server->reserve);
	descriptor = accept_one(server);
	if (descriptor >= 0) {
		server->undescribed++;
		(void)ft_fail(&error, FT_E_BUSY, "the daemon has no descriptor left for another client: %s",
		        strerror(failure));
		tell_and_close(descriptor, &error);
	}
	server->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return descriptor >= 0;
}

static void ready_to_accept(uv_poll_t *poll, int status, int events)
{
	struct server *server = poll->data;
	uint64_t until_ns = ft_monotonic_ns() + fair_turns_quantum_ns(&server->turns);

	(void)status;
	(void)events;
	do {
		int descriptor = accept_one(server);

		if (descriptor >= 0) {
			begin_session(server, descriptor);
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		} else if (!refuse_one(server, errno)) {
			(void)uv_poll_stop(poll);
			timer_start(&server->accept_pause, accept_again, ACCEPT_PAUSE_MS);
			return;
		}
	} while (ft_monotonic_ns() < until_ns);
}

/* ---- the socket ---- */

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

static void lock_name(const struct server *server, char name[LOCK_SIZE])
{
	(void)snprintf(name, LOCK_SIZE, "%s.lock", server->settings->socket);
}

/* Of two daemons that find the same stale socket, one would remove what the other has just made. */
static int lock_socket(struct server *server, struct ft_error *error)
{
	char name[LOCK_SIZE];
	uint32_t holder;

	lock_name(server, name);
	server->lock = lock_take(AT_FDCWD, name, O_RDWR | O_CREAT, &holder);
	if (server->lock >= 0) {
		lock_sign(server->lock);
		return 0;
	}
	if (errno != EWOULDBLOCK)
		return ft_fail_errno(
		        error, errno, "cannot make %s, which keeps the socket to one daemon", name);
	if (holder == 0)
		return ft_fail(error, FT_E_UNAVAILABLE, "socket %s is already served by another process",
		        server->settings->socket);
	return ft_fail(error, FT_E_UNAVAILABLE, "socket %s is already served by process %u",
	        server->settings->socket, (unsigned)holder);
}

/* The directory of a path, "." if it names none. */
static void directory_of(const char *path, char directory[LOCK_SIZE])
{
	char *slash;

	(void)snprintf(directory, LOCK_SIZE, "%s", path);
	slash = strrchr(directory, '/');
	if (slash == NULL)
		(void)snprintf(directory, LOCK_SIZE, ".");
	else
		slash[slash == directory] = '\0';
}

/* Gives *listener a name of its own; the caller closes it, whatever happens. */
static int bind_socket(struct server *server, int *listener, struct ft_error *error)
{
	const char *path = server->settings->socket;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[LOCK_SIZE];
	struct stat facts;

	directory_of(path, directory);
	if (stat(directory, &facts) != 0)
		return ft_fail_errno(error, errno, "the directory of socket %s", path);
	if ((server->lock < 0 && lock_socket(server, error) != 0) || clear_stale(path, error) != 0)
		return -1;
	*listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*listener < 0)
		return ft_fail_errno(error, errno, "cannot make a socket");
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (bind(*listener, (struct sockaddr *)&address, sizeof(address)) != 0 || lstat(path, &facts) != 0)
		return ft_fail_errno(error, errno, "cannot make socket %s", path);
	server->named = true;
	server->device = facts.st_dev;
	server->inode = facts.st_ino;
	if (chmod(path, 0660) != 0)
		return ft_fail_errno(error, errno, "cannot set the mode of socket %s", path);
	/* Root may give it to any group, others to one that they are in. */
	if (server->access->members.known && chown(path, (uid_t)-1, server->access->members.id) != 0)
		log_line(server->log, LOG_LEVEL_NOTICE, "socket stays with its group, not %s: %s",
		        server->access->members.name, strerror(errno));
	return 0;
}

static bool name_stands(const struct server *server)
{
	struct stat facts;

	return lstat(server->settings->socket, &facts) == 0 && facts.st_dev == server->device &&
	        facts.st_ino == server->inode;
}

/* Those who wait at the old name are let in; a socket that is bound takes no second name, so the next is another. */
static int bring_back(struct server *server, struct ft_error *error)
{
	int fresh = -1, descriptor;
	int status = bind_socket(server, &fresh, error);

	if (status == 0 && listen(fresh, SOMAXCONN) != 0)
		status = ft_fail_errno(error, errno, "cannot listen on %s", server->settings->socket);
	if (status == 0) {
		while ((descriptor = accept_one(server)) >= 0)
			begin_session(server, descriptor);
		(void)uv_poll_stop(&server->poll);
		if (dup3(fresh, server->listener, O_CLOEXEC) < 0)
			status = ft_fail_errno(error, errno, "cannot use the socket");
		if (!uv_is_active((uv_handle_t *)&server->accept_pause))
			accept_again(&server->accept_pause);
	}
	if (status != 0 && fresh >= 0 && name_stands(server)) {
		(void)unlink(server->settings->socket);
		server->inode = 0;
	}
	if (fresh >= 0)
		(void)close(fresh);
	return status;
}

/* True if the socket has its name. */
static bool look_for_name(void *data)
{
	struct server *server = data;
	struct ft_error error;
	char name[LOCK_SIZE];

	if (server->stopping)
		return true;
	lock_name(server, name);
	if (server->lock >= 0 && !lock_stands(server->lock, AT_FDCWD, name)) {
		(void)close(server->lock);
		server->lock = -1;
	}
	if (name_stands(server)) {
		if (server->lock < 0)
			(void)lock_socket(server, &error);
		return true;
	}
	if (bring_back(server, &error) == 0) {
		log_line(server->log, LOG_LEVEL_WARNING,
		        "the file of socket %s was removed or replaced: it was made anew",
		        server->settings->socket);
		server->missed = false;
		return true;
	}
	if (!server->missed)
		log_line(server->log, LOG_LEVEL_ERROR,
		        "the file of socket %s was removed or replaced, and cannot be made anew yet: %s",
		        server->settings->socket, error.message);
	server->missed = true;
	return false;
}

/* A socket that was handed over has a name of its maker's, who alone can make it again. */
static void look_for_foreign_name(const struct server *server)
{
	struct sockaddr_un address = {0};
	socklen_t size = sizeof(address) - 1;
	struct stat facts;

	if (getsockname(server->listener, (struct sockaddr *)&address, &size) == 0 &&
	        address.sun_path[0] == '/' && lstat(address.sun_path, &facts) != 0)
		log_line(server->log, LOG_LEVEL_ERROR,
		        "the file of socket %s, which was handed over, is gone (%s): whoever made it must "
		        "make "
		        "it again (systemctl restart flytuned.socket)",
		        address.sun_path, strerror(errno));
}

void server_look(struct server *server)
{
	if (server->stopping || !server->polled)
		return;
	if (server->watch.started)
		watch_look(&server->watch);
	else
		look_for_foreign_name(server);
}

static void remove_name(struct server *server)
{
	/* Whoever has put another in its place keeps that. */
	if (server->named && name_stands(server))
		(void)unlink(server->settings->socket);
	server->named = false;
	if (server->lock >= 0) {
		char name[LOCK_SIZE];

		lock_name(server, name);
		lock_remove(server->lock, AT_FDCWD, name);
	}
	server->lock = -1;
}

/* A quarter where there are so few that the reserve would leave none. */
static uint32_t clients_that_fit(const struct settings *settings)
{
	struct rlimit limit;
	uint64_t room;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return (uint32_t)settings->clients_max;
	room = limit.rlim_cur > 2UL * DESCRIPTORS_RESERVED ? limit.rlim_cur - DESCRIPTORS_RESERVED
	                                                   : limit.rlim_cur / 4;
	return (uint32_t)(settings->clients_max < room ? settings->clients_max : room);
}

static void leave(void *data);

/* Beyond all descriptors that there will be: libuv's table of what it watches reaches to the highest one, and libuv ends the
 * program where that cannot grow. So it does before anybody is served. */
static void move_listener(struct server *server)
{
	int moved = fcntl(server->listener, F_DUPFD_CLOEXEC,
	        (int)clients_that_fit(server->settings) + DESCRIPTORS_RESERVED - 1);

	if (moved < 0)
		return;
	(void)close(server->listener);
	server->listener = moved;
}

int server_init(struct server *server, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, const struct access *access, int descriptor,
        const struct server_events *events, void *data, struct ft_error *error)
{
	char directory[LOCK_SIZE];
	int status;

	*server = (struct server){
	        .loop = loop,
	        .log = log,
	        .settings = settings,
	        .access = access,
	        .events = events,
	        .data = data,
	        .listener = descriptor,
	        .lock = -1,
	        .reserve = open("/dev/null", O_RDONLY | O_CLOEXEC),
	};
	server->common.turns = &server->turns;
	connection_limits_init(&server->limits, clients_that_fit(settings), &settings->clients_per_user);
	if (descriptor < 0 && bind_socket(server, &server->listener, error) != 0)
		return -1;
	if (listen(server->listener, SOMAXCONN) != 0)
		return ft_fail_errno(error, errno, "cannot listen on %s", settings->socket);
	move_listener(server);
	status = uv_poll_init(loop, &server->poll, server->listener);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot use the socket: %s", uv_strerror(status));
	fair_turns_init(&server->turns, loop, session_turn);
	(void)uv_timer_init(loop, &server->sweeper);
	(void)deadline_init(&server->leaving, loop, leave, server);
	(void)uv_timer_init(loop, &server->accept_pause);
	(void)uv_timer_init(loop, &server->give_back);
	server->polled = true;
	server->poll.data = server;
	server->sweeper.data = server;
	server->accept_pause.data = server;
	server->give_back.data = server;
	status = poll_start(&server->poll, UV_READABLE, ready_to_accept);
	if (status != 0)
		return ft_fail(
		        error, FT_E_SYSTEM, "cannot listen on %s: %s", settings->socket, uv_strerror(status));
	if (server->named) {
		directory_of(settings->socket, directory);
		watch_start(&server->watch, loop, directory, look_for_name, server);
	}
	return 0;
}

static void close_listener(struct server *server)
{
	remove_name(server);
	if (server->listener >= 0)
		(void)close(server->listener);
	if (server->reserve >= 0)
		(void)close(server->reserve);
	server->listener = server->reserve = -1;
}

/* One that does not read must not hold up the end. */
static void leave(void *data)
{
	struct server *server = data;

	for (struct session *session = server->first; session != NULL; session = session->next)
		session_close(session);
}

void server_stop(struct server *server)
{
	bool named = server->named;
	int descriptor;

	server->stopping = true;
	if (!server->polled) {
		close_listener(server);
		return;
	}
	watch_stop(&server->watch);
	/* First the name: from then on nobody comes to wait. */
	remove_name(server);
	while (named && (descriptor = accept_one(server)) >= 0)
		begin_session(server, descriptor);
	uv_close((uv_handle_t *)&server->poll, NULL);
	uv_close((uv_handle_t *)&server->accept_pause, NULL);
	uv_close((uv_handle_t *)&server->give_back, NULL);
	close_listener(server);
	for (struct session *session = server->first; session != NULL; session = session->next) {
		job_events_leave(&server->watched, session);
		session_finish(session);
	}
	if (server->count == 0)
		drained(server);
	else
		deadline_start(&server->leaving, LEAVE_MS);
}

void server_free(struct server *server)
{
	connection_limits_free(&server->limits);
}

uint64_t server_refused(const struct server *server)
{
	return server->undescribed + server->limits.refused[CONNECTION_LIMITS_FULL] +
	        server->limits.refused[CONNECTION_LIMITS_USER];
}

bool server_idle(const struct server *server)
{
	return server->count == 0;
}
