#include "client/lib/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/clock.h"
#include "client/lib/descriptor.h"

enum {
	REQUEST_LIMIT = 1 << 20, /* what the daemon would refuse anyway */
	TIMEOUT_SLACK_NS = 1000000,
	OVERTIME_READS =
	        64, /* of what is there when a deadline has passed: this process may have stood still */
};

struct connection *connection_new(void)
{
	struct connection *connection = calloc(1, sizeof *connection);

	if (connection == NULL)
		return NULL;
	connection->fd = -1;
	connection->board_fd = -1;
	ft_inbox_init(&connection->inbox, &ft_bounds_large);
	ft_writer_init_growing(&connection->outbox, REQUEST_LIMIT);
	return connection;
}

void connection_reset(struct connection *connection)
{
	if (connection->fd >= 0)
		close(connection->fd);
	connection->fd = -1;
	connection->receive_timeout = 0;
	connection->send_timeout = 0;
	ft_inbox_free(&connection->inbox);
	ft_inbox_init(&connection->inbox, &ft_bounds_large);
}

void connection_free(struct connection *connection)
{
	if (connection == NULL)
		return;
	if (connection->fd >= 0)
		close(connection->fd);
	if (connection->board_fd >= 0)
		close(connection->board_fd);
	ft_inbox_free(&connection->inbox);
	ft_writer_free(&connection->outbox);
	free(connection);
}

/* Lets the socket's own time-out end where the deadline does. Told to the kernel only when it differs, so
 * that a series of equal calls costs nothing. False: the deadline has passed. */
static bool arm_timeout(int fd, int option, uint64_t *armed, uint64_t deadline)
{
	struct timeval value = {0};
	uint64_t left = 0;

	if (deadline != CLOCK_NEVER) {
		uint64_t now = clock_now();

		if (now >= deadline)
			return false;
		left = deadline - now;
		if (*armed != 0 && *armed <= left + TIMEOUT_SLACK_NS && *armed + TIMEOUT_SLACK_NS >= left)
			return true;
		value.tv_sec = (time_t)(left / (1000 * CLOCK_MS));
		value.tv_usec = (suseconds_t)(left % (1000 * CLOCK_MS) / 1000) + 1;
		if (value.tv_usec >= 1000000)
			value.tv_usec = 999999;
	} else if (*armed == 0) {
		return true;
	}
	if (setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) == 0)
		*armed = left;
	return true;
}

static enum call_result lost(struct ft_error *error, const char *code, const char *what)
{
	ft_fail(error, code, "%s", what);
	return CALL_LOST;
}

static enum call_result late(struct ft_error *error)
{
	ft_fail(error, FT_E_TIMEOUT, "flytuned did not answer in time");
	return CALL_LATE;
}

static enum call_result connect_failed(struct ft_error *error, int number, const char *path)
{
	struct stat file;

	switch (number) {
	case ENOENT:
	case ENOTDIR:
		ft_fail(error, FT_E_AWAY, "flytuned is not running: there is no socket %s", path);
		return CALL_LOST;
	case ECONNREFUSED:
		ft_fail(error, FT_E_AWAY, "flytuned is not running: nobody serves the socket %s", path);
		return CALL_LOST;
	case EACCES:
	case EPERM:
		if (stat(path, &file) == 0)
			ft_fail(error, FT_E_AWAY,
			        "user %u may not use the socket %s: it is of user %u and group %u, mode %04o",
			        (unsigned)geteuid(), path, (unsigned)file.st_uid, (unsigned)file.st_gid,
			        (unsigned)file.st_mode & 07777);
		else
			ft_fail(error, FT_E_AWAY, "user %u may not enter the folder of the socket %s",
			        (unsigned)geteuid(), path);
		return CALL_LOST;
	case EAGAIN:
		ft_fail(error, FT_E_TIMEOUT, "flytuned took no connection in time on the socket %s", path);
		return CALL_LATE;
	default:
		ft_fail_errno(error, number, "connecting to %s", path);
		return CALL_LOST;
	}
}

/* A blocking connect waits for a place in the daemon's queue as long as the send time-out allows. */
static enum call_result connect_to(
        struct connection *connection, const char *path, uint64_t deadline, struct ft_error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat status;
	int fd = connection->fd;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (deadline == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
		ft_fail_errno(error, errno, "preparing a socket");
		return CALL_LOCAL;
	}
	for (;;) {
		if (deadline != 0 && !arm_timeout(fd, SO_SNDTIMEO, &connection->send_timeout, deadline))
			return connect_failed(error, EAGAIN, path);
		if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
			break;
		if (errno != EINTR) {
			connection->absent = errno == ENOENT || errno == ECONNREFUSED;
			return connect_failed(error, errno, path);
		}
	}
	if (deadline == 0 && fcntl(fd, F_SETFL, 0) != 0) {
		ft_fail_errno(error, errno, "preparing a socket");
		return CALL_LOCAL;
	}
	if (fstat(fd, &status) == 0) {
		connection->device = status.st_dev;
		connection->inode = status.st_ino;
	}
	return CALL_DONE;
}

static enum call_result send_outbox(struct connection *connection, uint64_t deadline, struct ft_error *error)
{
	size_t sent = 0;

	if (!ft_writer_ok(&connection->outbox)) {
		ft_fail(error, FT_E_MEMORY, "out of memory, or a request of more than 1 MiB");
		return CALL_LOCAL;
	}
	while (sent < connection->outbox.length) {
		ssize_t count;

		if (!arm_timeout(connection->fd, SO_SNDTIMEO, &connection->send_timeout, deadline))
			return late(error);
		count = send(connection->fd, connection->outbox.data + sent, connection->outbox.length - sent,
		        MSG_NOSIGNAL);
		if (count >= 0) {
			sent += (size_t)count;
		} else if (errno == EPIPE || errno == ECONNRESET) {
			/* What the daemon said before it closed may say why: let the reader see. */
			return CALL_DONE;
		} else if (errno != EINTR && errno != EAGAIN) {
			ft_fail_errno(error, errno, "writing to flytuned");
			return CALL_LOST;
		}
	}
	return CALL_DONE;
}

/* As recv, for the time of the hello: a descriptor comes along if one was asked for. */
static ssize_t receive_with_board(struct connection *connection, uint8_t *data, size_t size, int flags)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec part = {data, size};
	struct msghdr packet = {
	        .msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = control.space,
	        .msg_controllen = sizeof control.space,
	};
	ssize_t count = recvmsg(connection->fd, &packet, flags | MSG_CMSG_CLOEXEC);

	for (struct cmsghdr *header = count < 0 ? NULL : CMSG_FIRSTHDR(&packet); header != NULL;
	        header = CMSG_NXTHDR(&packet, header)) {
		size_t bytes = header->cmsg_len - CMSG_LEN(0);

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
			if (connection->board_fd < 0)
				connection->board_fd = fd;
			else
				close(fd);
		}
	}
	return count;
}

/* The next whole message. With deadline 0: CALL_LATE unless it is there. After a deadline, as long as `overtime`, a count of
 * reads, lasts: it is 0 at first. */
static enum call_result receive(struct connection *connection, uint64_t deadline, unsigned *overtime,
        struct ft_view *message, struct ft_error *error)
{
	for (;;) {
		uint8_t *data;
		size_t size;
		ssize_t count;
		bool last;
		int whole = ft_inbox_next(&connection->inbox, message, error);

		if (whole < 0)
			return CALL_LOST;
		if (whole > 0)
			return CALL_DONE;
		if (ft_inbox_room(&connection->inbox, &data, &size, error) != 0)
			return CALL_LOST;
		last = deadline == 0 ||
		        !arm_timeout(connection->fd, SO_RCVTIMEO, &connection->receive_timeout, deadline);
		if (deadline != 0 && last && ++*overtime > OVERTIME_READS)
			return late(error);
		count = connection->boards != NULL && connection->hello.protocol == 0
		        ? receive_with_board(connection, data, size, last ? MSG_DONTWAIT : 0)
		        : recv(connection->fd, data, size, last ? MSG_DONTWAIT : 0);
		if (count > 0) {
			ft_inbox_received(&connection->inbox, (size_t)count);
		} else if (count == 0 || errno == ECONNRESET) {
			return lost(error, FT_E_AWAY, "flytuned closed the connection");
		} else if (errno == EAGAIN) {
			if (last)
				return late(error);
		} else if (errno != EINTR) {
			ft_fail_errno(error, errno, "reading from flytuned");
			return CALL_LOST;
		}
	}
}

/* Waits for the reply to `id`; 0: for notices alone. */
static enum call_result await_reply(struct connection *connection, uint64_t id, uint64_t deadline,
        connection_notice notice, void *data, struct ft_envelope *reply, struct ft_error *error)
{
	unsigned overtime = 0;

	for (;;) {
		struct ft_view message;
		enum call_result result = receive(connection, deadline, &overtime, &message, error);

		if (result != CALL_DONE)
			return result;
		if (ft_open_envelope(message, reply, error) != 0)
			return CALL_LOST;
		if (reply->type == FT_NOTICE) {
			if (notice != NULL && notice(data, reply) != 0)
				return CALL_STOPPED;
			continue;
		}
		if (reply->type == FT_RESPONSE && reply->error.data != NULL) {
			ft_read_failure(reply->error, error);
			if (strcmp(error->code, FT_E_STOPPING) == 0)
				return lost(error, FT_E_AWAY, "flytuned is stopping");
			/* A daemon that closes on us says why under the id 0. */
			if (reply->id == 0)
				return CALL_LOST;
			if (reply->id == id)
				return CALL_REFUSED;
		}
		if (reply->type != FT_RESPONSE || reply->id != id || id == 0)
			return lost(error, FT_E_BAD_FRAME, "flytuned answered what was not asked");
		return CALL_DONE;
	}
}

enum call_result connection_start(struct connection *connection, const char *path, const char *name,
        uint64_t deadline, struct ft_error *error)
{
	struct ft_hello_request hello = {.min = FT_PROTOCOL_MIN, .max = FT_PROTOCOL_MAX};
	enum call_result result;

	hello.board = connection->boards != NULL;
	snprintf(hello.name, sizeof hello.name, "%s", name);
	connection->started_at = clock_now();
	connection->fd = descriptor_above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (connection->fd < 0) {
		ft_fail_errno(error, errno, "making a socket");
		return CALL_LOCAL;
	}
	result = connect_to(connection, path, deadline, error);
	if (result != CALL_DONE)
		return result;
	ft_writer_reset(&connection->outbox);
	connection->hello_id = ++connection->last_id;
	ft_begin_request(&connection->outbox, connection->hello_id, "hello");
	ft_encode(&connection->outbox, &ft_hello_request_message, &hello);
	/* The hello fits any socket's empty buffer, so this does not wait. */
	return send_outbox(connection, deadline == 0 ? CLOCK_NEVER : deadline, error);
}

enum call_result connection_finish(struct connection *connection, uint64_t deadline, struct ft_error *error)
{
	struct ft_envelope reply;
	struct ft_error unused;
	enum call_result result =
	        await_reply(connection, connection->hello_id, deadline, NULL, NULL, &reply, error);

	switch (result) {
	case CALL_DONE:
		break;
	case CALL_REFUSED:
		return CALL_LOST;
	case CALL_LOST:
		if (strcmp(error->code, FT_E_AWAY) == 0)
			ft_fail(error, FT_E_AWAY,
			        "flytuned closed the connection before it said hello: it is "
			        "full, stopping, or of another protocol version");
		return CALL_LOST;
	default:
		return result;
	}
	if (ft_decode(&ft_hello_reply_message, reply.body, &connection->hello, error) != 0)
		return CALL_LOST;
	if (connection->hello.protocol < FT_PROTOCOL_MIN || connection->hello.protocol > FT_PROTOCOL_MAX) {
		ft_fail(error, FT_E_PROTOCOL,
		        "%s speaks protocol version %llu; this library speaks %d to %d: upgrade the %s",
		        connection->hello.server, (unsigned long long)connection->hello.protocol,
		        FT_PROTOCOL_MIN, FT_PROTOCOL_MAX,
		        connection->hello.protocol < FT_PROTOCOL_MIN ? "daemon" : "library");
		return CALL_LOST;
	}
	if (connection->board_fd >= 0) {
		/* Without one every lookup asks: slower, and no less true. */
		(void)boards_adopt(connection->boards, connection->board_fd, &connection->board, &unused);
		close(connection->board_fd);
		connection->board_fd = -1;
	}
	return CALL_DONE;
}

enum call_result connection_call(struct connection *connection, const char *method,
        const struct ft_message *message, const void *body, uint64_t deadline, connection_notice notice,
        void *data, struct ft_envelope *reply, struct ft_error *error)
{
	enum call_result result;

	if (++connection->last_id == 0)
		connection->last_id = 1;
	ft_writer_reset(&connection->outbox);
	ft_begin_request(&connection->outbox, connection->last_id, method);
	ft_encode(&connection->outbox, message, body);
	result = send_outbox(connection, deadline, error);
	if (result != CALL_DONE)
		return result;
	result = await_reply(connection, connection->last_id, deadline, notice, data, reply, error);
	if (result == CALL_DONE || result == CALL_REFUSED)
		connection->used = true;
	return result;
}

void connection_compose(struct connection *connection, const char *method)
{
	if (++connection->last_id == 0)
		connection->last_id = 1;
	ft_writer_reset(&connection->outbox);
	connection->pushed = 0;
	ft_begin_request(&connection->outbox, connection->last_id, method);
}

enum call_result connection_push(struct connection *connection, struct ft_error *error)
{
	const struct ft_writer *outbox = &connection->outbox;

	if (!ft_writer_ok(outbox)) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		return CALL_LOCAL;
	}
	while (connection->pushed < outbox->length) {
		ssize_t count = send(connection->fd, outbox->data + connection->pushed,
		        outbox->length - connection->pushed, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (count >= 0)
			connection->pushed += (size_t)count;
		else if (errno == EAGAIN)
			return late(error);
		else if (errno == EPIPE || errno == ECONNRESET)
			/* What the daemon said before it closed may say why: let the reader see. */
			return CALL_DONE;
		else if (errno != EINTR) {
			ft_fail_errno(error, errno, "writing to flytuned");
			return CALL_LOST;
		}
	}
	return CALL_DONE;
}

enum call_result connection_next(
        struct connection *connection, bool receives, struct ft_envelope *envelope, struct ft_error *error)
{
	struct ft_view message;
	enum call_result result = CALL_DONE;
	unsigned unused = 0;
	int whole = 1;

	if (receives)
		result = receive(connection, 0, &unused, &message, error);
	else
		whole = ft_inbox_next(&connection->inbox, &message, error);
	if (result == CALL_DONE && whole > 0)
		return ft_open_envelope(message, envelope, error) == 0 ? CALL_DONE : CALL_LOST;
	if (whole == 0)
		return late(error);
	return whole < 0 ? CALL_LOST : result;
}

enum call_result connection_listen(struct connection *connection, uint64_t deadline, connection_notice notice,
        void *data, struct ft_error *error)
{
	struct ft_envelope unused;

	return await_reply(connection, 0, deadline, notice, data, &unused, error);
}
