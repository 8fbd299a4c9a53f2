#include "daemon/session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	OUT_LIMIT = 80 << 20,   /* a session that owes more is let go */
	OUT_PAUSE = 256 << 10,  /* above, nothing more is read from it */
	OUT_LENT = 64 << 10,    /* a larger buffer is not lent on when it is empty */
	OUT_OWN = 4 << 10,      /* nor is a larger one kept, where another is there to be lent */
	NOTICE_LIMIT = 4 << 20, /* a watcher that does not read loses its connection sooner */
};

static void handle_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;

	session->events->closed(session->data, session);
	while (session->pending != NULL) {
		struct pending *pending = session->pending;

		session->pending = pending->next;
		pending->next = pending->previous = NULL;
		pending->session = NULL;
	}
	ft_inbox_free(&session->inbox);
	ft_writer_free(&session->out);
	ft_writer_free(&session->flying);
	free(session);
}

void session_close(struct session *session)
{
	if (session->closing)
		return;
	session->closing = true;
	session->reading = false;
	uv_close((uv_handle_t *)&session->pipe, handle_closed);
}

void session_finish(struct session *session)
{
	uv_os_fd_t descriptor;

	session->watching = false;
	session->subscribed = false;
	/* What the client sends from now on it is told was not taken; what it sent before is read to its end. */
	if (uv_fileno((uv_handle_t *)&session->pipe, &descriptor) != 0 || shutdown(descriptor, SHUT_RD) != 0)
		session_close(session);
	else if (session->finished)
		session_flush(session);
}

/* ---- writing ---- */

static size_t owed(const struct session *session)
{
	return session->out.length + session->flying.length;
}

static void written(uv_write_t *request, int status);

/* Into what it answers. Notices, which come between, have to make do with what the session has. */
static void borrow_out(struct session *session)
{
	struct ft_inbox_spare *spare = &session->common->out;

	if (session->out.data != NULL || spare->data == NULL)
		return;
	session->out.data = spare->data;
	session->out.capacity = spare->capacity;
	*spare = (struct ft_inbox_spare){0};
}

/* A buffer that was written. */
static void give_back(struct session *session, struct ft_writer *writer)
{
	struct ft_inbox_spare *spare = &session->common->out;

	ft_writer_reset(writer);
	if (writer->data != NULL && spare->data == NULL && writer->capacity <= OUT_LENT) {
		*spare = (struct ft_inbox_spare){.data = writer->data, .capacity = writer->capacity};
		writer->data = NULL;
		writer->capacity = 0;
	} else if (writer->capacity > OUT_OWN) {
		ft_writer_free(writer);
		ft_writer_init_growing(writer, OUT_LIMIT);
	}
}

static void resume_reading(struct session *session);

void session_flush(struct session *session)
{
	uv_buf_t buffer;
	ssize_t sent;

	if (session->closing || session->writing)
		return;
	if (!ft_writer_ok(&session->out)) {
		log_limited(session->log, &session->common->slow, LOG_LEVEL_NOTICE,
		        "session let go: it does not read session=%" PRIu64, session->number);
		session_close(session);
		return;
	}
	if (session->out.length > 0) {
		/* Nothing of it waits in libuv, so there is no order to keep but the socket's own. */
		sent = send(session->descriptor, session->out.data, session->out.length,
		        MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN && errno != EINTR) {
			session_close(session);
			return;
		}
		if (sent < 0)
			sent = 0;
		if ((size_t)sent < session->out.length) {
			struct ft_writer swap = session->flying;

			session->flying = session->out;
			session->out = swap;
			session->writing = true;
			buffer = uv_buf_init((char *)session->flying.data + sent,
			        (unsigned)(session->flying.length - (size_t)sent));
			if (uv_write(&session->write, (uv_stream_t *)&session->pipe, &buffer, 1, written) !=
			        0) {
				session->writing = false;
				session_close(session);
			}
			return;
		}
	}
	give_back(session, &session->out);
	if (session->ending ||
	        (session->finished && session->pending == NULL && !session->watching &&
	                !session->subscribed)) {
		session_close(session);
		return;
	}
	if (session->subscriber != NULL)
		session->events->emptied(session->data, session);
	if (!session->reading && !session->finished)
		resume_reading(session);
}

static void written(uv_write_t *request, int status)
{
	struct session *session = request->data;

	session->writing = false;
	give_back(session, &session->flying);
	if (status != 0)
		session_close(session);
	else
		session_flush(session);
}

void session_appended(struct session *session)
{
	if (session->reading && owed(session) > OUT_PAUSE) {
		session->reading = false;
		(void)uv_read_stop((uv_stream_t *)&session->pipe);
	}
	if (!session->handling)
		session_flush(session);
}

void session_reply(struct session *session, uint64_t id, const struct ft_message *message, const void *body)
{
	if (session->closing)
		return;
	ft_begin_response(&session->out, id);
	ft_encode(&session->out, message, body);
	session_appended(session);
}

void session_hand_over(struct session *session, uint64_t id, const struct ft_message *message,
        const void *body, int descriptor)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.space = {0}};
	struct iovec part;
	struct msghdr packet = {
	        .msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = control.space,
	        .msg_controllen = sizeof(control.space),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
	ssize_t sent;

	if (session->closing)
		return;
	ft_begin_response(&session->out, id);
	ft_encode(&session->out, message, body);
	/* libuv passes on only its own handles. The socket's buffer is empty still: the first reply fits. */
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	if (ft_writer_ok(&session->out) && !session->writing) {
		part = (struct iovec){session->out.data, session->out.length};
		sent = sendmsg(session->descriptor, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent > 0) {
			memmove(session->out.data, session->out.data + sent,
			        session->out.length - (size_t)sent);
			session->out.length -= (size_t)sent;
		}
	}
	session_appended(session);
}

void session_fail(struct session *session, uint64_t id, const struct ft_error *failure)
{
	if (session->closing)
		return;
	ft_write_failure(&session->out, id, failure);
	session_appended(session);
}

void session_notice(
        struct session *session, const char *method, const struct ft_message *message, const void *body)
{
	if (session->closing || session->ending)
		return;
	if (owed(session) > NOTICE_LIMIT) {
		log_limited(session->log, &session->common->slow, LOG_LEVEL_NOTICE,
		        "watcher let go: it does not read session=%" PRIu64, session->number);
		session_close(session);
		return;
	}
	ft_begin_notice(&session->out, method);
	ft_encode(&session->out, message, body);
	session_appended(session);
}

void session_refuse(struct session *session, uint64_t id, const struct ft_error *why)
{
	if (session->closing || session->ending)
		return;
	session->ending = true;
	if (session->reading) {
		session->reading = false;
		(void)uv_read_stop((uv_stream_t *)&session->pipe);
	}
	session_fail(session, id, why);
}

bool session_may_be_told(const struct session *session)
{
	return !session->closing && !session->ending && owed(session) == 0;
}

bool session_gone(const struct session *session)
{
	uv_os_fd_t descriptor;
	struct pollfd state = {0};

	if (uv_fileno((const uv_handle_t *)&session->pipe, &descriptor) != 0)
		return true;
	state.fd = descriptor;
	/* Hung up is what the kernel calls it when both directions are shut. */
	return poll(&state, 1, 0) < 0 || (state.revents & (POLLHUP | POLLERR)) != 0;
}

/* ---- reading ---- */

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct session *session = handle->data;
	uint8_t *room;
	size_t size;

	(void)suggested;
	*buffer = uv_buf_init(NULL, 0);
	ft_inbox_borrow(&session->inbox, &session->common->in);
	if (ft_inbox_room(&session->inbox, &room, &size, NULL) == 0)
		*buffer = uv_buf_init((char *)room, (unsigned)(size > 1 << 16 ? 1 << 16 : size));
}

static void take_messages(struct session *session)
{
	struct ft_envelope envelope;
	struct ft_view message;
	struct ft_error error;
	unsigned handled = 0;
	int found;

	session->handling = true;
	borrow_out(session);
	/* What came before the pause is handled after it: the buffer is bounded, and nothing more is read
	 * meanwhile. */
	while (!session->closing && !session->ending && owed(session) <= OUT_PAUSE) {
		found = ft_inbox_next(&session->inbox, &message, &error);
		if (found == 0)
			break;
		if (found < 0 || ft_open_envelope(message, &envelope, &error) != 0) {
			log_limited(session->log, &session->common->framing, LOG_LEVEL_NOTICE,
			        "session broke the framing session=%" PRIu64 " uid=%u: %s", session->number,
			        session->user, error.message);
			session_refuse(session, 0, &error);
			break;
		}
		session->events->message(session->data, session, &envelope);
		handled++;
	}
	/* The age of half a message counts from its first bytes, so that one sent drop by drop has an end
	 * too. */
	if (ft_inbox_idle(&session->inbox) || owed(session) > OUT_PAUSE)
		session->partial = 0;
	else if (session->partial == 0 || handled > 0)
		session->partial = 1;
	session->events->batch_end(session->data, session);
	session->handling = false;
	session_flush(session);
}

/* Most reads bring one question that was asked before: its bytes tell that it is whole, and what answers it. */
static bool answer_at_once(struct session *session, size_t length)
{
	struct ft_view bytes = ft_inbox_fresh(&session->inbox);
	bool done;

	if (bytes.length != length || owed(session) > 0)
		return false;
	session->handling = true;
	borrow_out(session);
	done = session->events->at_once(session->data, session, bytes);
	session->handling = false;
	if (!done)
		return false;
	ft_inbox_pass(&session->inbox);
	session_flush(session);
	return true;
}

static void take_what_came(struct session *session, ssize_t length)
{
	uv_stream_t *stream = (uv_stream_t *)&session->pipe;

	if (length == UV_EOF && !session_gone(session)) {
		/* It only asks nothing more, as a script that pipes its requests in: it gets its answers. */
		(void)uv_read_stop(stream);
		session->reading = false;
		session->finished = true;
		session->events->finished(session->data, session);
		session_flush(session);
		return;
	}
	if (length < 0) { /* the client is gone; what it is owed goes with it */
		session_close(session);
		return;
	}
	if (length == 0)
		return;
	ft_inbox_received(&session->inbox, (size_t)length);
	if (!answer_at_once(session, (size_t)length))
		take_messages(session);
}

static void received(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
	struct session *session = stream->data;

	(void)buffer;
	take_what_came(session, length);
	ft_inbox_return(&session->inbox, &session->common->in);
}

static void resume_reading(struct session *session)
{
	session->reading = true;
	if (uv_read_start((uv_stream_t *)&session->pipe, give_room, received) != 0) {
		session_close(session);
		return;
	}
	if (!ft_inbox_idle(&session->inbox) && !session->handling)
		take_messages(session);
}

/* ---- life ---- */

void session_common_free(struct session_common *common)
{
	ft_inbox_spare_free(&common->in);
	ft_inbox_spare_free(&common->out);
}

struct session *session_new(uv_loop_t *loop, const struct log *log, struct session_common *common,
        const struct session_events *events, void *data)
{
	struct session *session = calloc(1, sizeof(*session));

	if (session == NULL)
		return NULL;
	session->log = log;
	session->common = common;
	session->events = events;
	session->data = data;
	(void)uv_pipe_init(loop, &session->pipe, 0);
	session->pipe.data = session;
	session->write.data = session;
	ft_inbox_init(&session->inbox, &ft_bounds_request);
	ft_writer_init_growing(&session->out, OUT_LIMIT);
	ft_writer_init_growing(&session->flying, OUT_LIMIT);
	return session;
}

int session_start(struct session *session, const struct access *access, struct ft_error *error)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	uv_os_fd_t descriptor;
	int status;

	if (uv_fileno((uv_handle_t *)&session->pipe, &descriptor) != 0 ||
	        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return ft_fail_errno(error, errno, "cannot tell who a client is");
	session->user = peer.uid;
	session->group = peer.gid;
	session->process = peer.pid;
	session->descriptor = descriptor;
	session->level = access_of(access, descriptor, peer.uid, peer.gid);
	status = uv_read_start((uv_stream_t *)&session->pipe, give_room, received);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot read from a client: %s", uv_strerror(status));
	session->reading = true;
	return 0;
}

struct pending *pending_new(struct session *session, uint64_t id, struct ft_error *error)
{
	struct pending *pending;

	if (session->pending_count >= SESSION_PENDING_MAX) {
		(void)ft_fail(error, FT_E_BUSY, "%d requests of this connection are not answered yet",
		        SESSION_PENDING_MAX);
		return NULL;
	}
	pending = calloc(1, sizeof(*pending));
	if (pending == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a request");
		return NULL;
	}
	*pending = (struct pending){.next = session->pending, .session = session, .id = id};
	if (session->pending != NULL)
		session->pending->previous = pending;
	session->pending = pending;
	session->pending_count++;
	return pending;
}

void pending_free(struct pending *pending)
{
	struct session *session = pending->session;

	if (session != NULL) {
		if (pending->previous != NULL)
			pending->previous->next = pending->next;
		else
			session->pending = pending->next;
		if (pending->next != NULL)
			pending->next->previous = pending->previous;
		session->pending_count--;
	}
	free(pending);
	/* The last answer may have been all that it was kept for. */
	if (session != NULL && session->finished && !session->handling)
		session_flush(session);
}
