#include "daemon/server/session.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/host/bug.h"
#include "daemon/host/ready.h"
#include "daemon/server/internal.h"
#include "proto/clock.h"

enum {
	OUT_LIMIT = 80 << 20,  /* a session that owes more is let go */
	OUT_PAUSE = 256 << 10, /* above, nothing more is read from it */
	OUT_LENT = 64 << 10,   /* a larger buffer is not lent on when it is empty */
	OUT_OWN = 4 << 10,     /* nor is a larger one kept, where another is there to be lent */
	READ_MOST = 64 << 10,  /* in one turn */
	REPORTED_MOST = 64,    /* sessions that are polled while they wait for their turn */
};

static void work_free(struct work *work)
{
	ft_writer_free(&work->answer);
	free(work->message);
	if (work->free != NULL)
		work->free(work);
	else
		free(work);
}

static void count_memory(struct session *session)
{
	size_t bytes = session->inbox.capacity + session->out.capacity;

	if (session->work != NULL)
		bytes += session->work->answer.capacity + session->work->bytes;
	if (bytes != session->bytes)
		session_charge(session, bytes);
}

/* It is given, or its session is gone. */
static void end_work(struct session *session)
{
	work_free(session->work);
	session->work = NULL;
	session_leave_work(session);
}

static void handle_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;

	if (session->work != NULL)
		end_work(session);
	session->events->closed(session->data, session);
	while (session->pending != NULL) {
		struct pending *pending = session->pending;

		session->pending = pending->next;
		pending->next = pending->previous = NULL;
		pending->session = NULL;
	}
	session->turn.user->waits -= session->pending_count;
	session_charge(session, 0);
	fair_turns_leave(session->common->turns, session->turn.user);
	ft_inbox_free(&session->inbox);
	ft_writer_free(&session->out);
	free(session);
}

static void go(struct session *session, enum session_state next)
{
	if (bug_unless(session->log, session_may_go(session->state, next),
	            "session %" PRIu64 " cannot go from %s to %s", session->number,
	            session_state_word(session->state), session_state_word(next)))
		session->state = next;
}

void session_close(struct session *session)
{
	if (session->state == SESSION_CLOSING)
		return;
	go(session, SESSION_CLOSING);
	fair_turns_remove(session->common->turns, &session->turn);
	list_leave(&session->held);
	list_leave(&session->later);
	uv_close((uv_handle_t *)&session->poll, handle_closed);
	/* Now, since it takes long where much was not read, and this turn is its user's. */
	(void)close(session->descriptor);
	session->descriptor = -1;
}

void session_finish(struct session *session)
{
	session->subscribed = false;
	/* What the client sends from now on is answered as not taken; what it sent before is read to its end. */
	if (shutdown(session->descriptor, SHUT_RD) != 0) {
		session_close(session);
		return;
	}
	session->readable = true;
	session_wake(session);
}

/* ---- turns ---- */

/* What is owed, in bytes. */
static size_t owed(const struct session *session)
{
	return session->out.length - session->sent;
}

/* Whether anything may be done that makes it owed more. */
static bool may_answer(const struct session *session)
{
	return session->state < SESSION_ENDING &&
	        (owed(session) == 0 || (owed(session) <= OUT_PAUSE && !session_is_over(session)));
}

/* Whether what it has of a message is worth to be held back for. A small one is not: who is in the middle of a question
 * would pay for what the same user's other connections leave unread. */
static bool has_half(const struct session *session)
{
	return session->inbox.length - session->inbox.start > SESSION_SMALL;
}

static bool may_read(const struct session *session)
{
	return may_answer(session) && session->state < SESSION_FINISHED && session->work == NULL &&
	        !session->unparsed && (!has_half(session) || !session_is_over(session));
}

static bool has_work(const struct session *session)
{
	if (!may_answer(session))
		return false;
	if (session->work != NULL)
		return session->later.list == NULL;
	return session->unparsed || (session->due && owed(session) == 0) ||
	        (session->readable && may_read(session));
}

static void reported(uv_poll_t *poll, int status, int events);

static void poll_for(struct session *session, int events)
{
	if (events == session->polled)
		return;
	session->polled = events;
	if (events == 0)
		(void)uv_poll_stop(&session->poll);
	else if (poll_start(&session->poll, events, reported) != 0)
		session_close(session);
}

static void poll_again(struct session *session)
{
	poll_for(session,
	        (session->blocked ? UV_WRITABLE : 0) |
	                (may_read(session) && !session->readable ? UV_READABLE : 0));
}

/* There is nothing that it may do, until it is reported, woken or let go on. */
static void rest(struct session *session)
{
	if (!may_answer(session))
		session_leave_work(session);
	session_hold(session, session_is_over(session) && (owed(session) > 0 || has_half(session)));
	poll_again(session);
}

static void reported(uv_poll_t *poll, int status, int events)
{
	struct session *session = poll->data;

	if (status < 0)
		session->polled = 0; /* libuv has stopped: a read or a write will give the error */
	if (status < 0 || (events & UV_READABLE) != 0)
		session->readable = true;
	if (status < 0 || (events & UV_WRITABLE) != 0)
		session->blocked = false;
	/* Those that wait for their turn are reported each time, which costs more than to stop that where they are many. */
	if (session->turn.waiting.list != NULL && session->reported &&
	        session->common->turns->waiting > REPORTED_MOST)
		poll_for(session, 0);
	session->reported = true;
	fair_turns_add(session->common->turns, &session->turn);
}

void session_wake(struct session *session)
{
	if (session->state != SESSION_CLOSING && !session->handling)
		fair_turns_wake(session->common->turns, &session->turn);
}

bool session_look(struct session *session)
{
	uint64_t now_ns;

	session->weight = 0;
	now_ns = ft_monotonic_ns();
	if (session->until_ns == 0)
		session->until_ns = now_ns + fair_turns_quantum_ns(session->common->turns);
	return now_ns >= session->until_ns;
}

/* ---- writing ---- */

/* Into what it answers. What comes between turns has to make do with what the session has. */
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

/* Nothing is left that it was kept for. */
static bool is_over_with(const struct session *session)
{
	return session->state >= SESSION_ENDING ||
	        (session->state >= SESSION_FINISHED && session->pending_count == 0 && !session->unparsed &&
	                session->work == NULL && session->watching.list == NULL && !session->subscribed);
}

static void flush(struct session *session)
{
	ssize_t sent;

	if (session->state == SESSION_CLOSING || session->blocked)
		return;
	if (!ft_writer_ok(&session->out)) {
		log_limited(session->log, &session->common->slow, LOG_LEVEL_NOTICE,
		        "session let go: %s session=%" PRIu64,
		        owed(session) > OUT_PAUSE ? "it does not read" : "no memory for its answers",
		        session->number);
		session_close(session);
		return;
	}
	if (owed(session) > 0) {
		sent = send(session->descriptor, session->out.data + session->sent, owed(session),
		        MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN && errno != EINTR) {
			session_close(session);
			return;
		}
		session->sent += sent > 0 ? (size_t)sent : 0;
		if (owed(session) > 0) {
			session->blocked = true;
			/* Each byte is moved once at most. */
			if (session->sent > session->out.length / 2) {
				session->out.length = owed(session);
				memcpy(session->out.data, session->out.data + session->sent,
				        session->out.length);
				session->sent = 0;
			}
			return;
		}
	}
	session->sent = 0;
	give_back(session, &session->out);
	if (is_over_with(session))
		session_close(session);
}

void session_flush_between(struct session *session)
{
	flush(session);
	if (session->state == SESSION_CLOSING)
		return;
	count_memory(session);
	if (has_work(session))
		session_wake(session);
	else if (session->turn.waiting.list == NULL)
		rest(session);
}

void session_appended(struct session *session)
{
	if (!session->handling)
		session_flush_between(session);
}

void session_reply(struct session *session, uint64_t id, const struct ft_message *message, const void *body)
{
	if (session->state == SESSION_CLOSING)
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

	if (session->state == SESSION_CLOSING)
		return;
	ft_begin_response(&session->out, id);
	ft_encode(&session->out, message, body);
	/* The socket's buffer is empty still: the first reply fits. */
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
	if (ft_writer_ok(&session->out) && session->sent == 0) {
		part = (struct iovec){session->out.data, session->out.length};
		sent = sendmsg(session->descriptor, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
		session->sent = sent > 0 ? (size_t)sent : 0;
	}
	session_appended(session);
}

void session_fail(struct session *session, uint64_t id, const struct ft_error *failure)
{
	if (session->state == SESSION_CLOSING)
		return;
	ft_write_failure(&session->out, id, failure);
	session_appended(session);
}

void session_refuse(struct session *session, uint64_t id, const struct ft_error *why)
{
	if (session->state >= SESSION_ENDING)
		return;
	go(session, SESSION_ENDING);
	session_fail(session, id, why);
}

bool session_gone(const struct session *session)
{
	struct pollfd state = {.fd = session->descriptor};

	/* Hung up is what the kernel calls it when both directions are shut. */
	return poll(&state, 1, 0) < 0 || (state.revents & (POLLHUP | POLLERR)) != 0;
}

/* ---- work ---- */

/* Appends the answer; one that there is no memory for is a failure, and no more than that. */
static void give_answer(struct session *session, struct work *work)
{
	struct ft_writer *out = &session->out;
	size_t length = out->length;
	struct ft_error error;

	if (!ft_writer_ok(out))
		return;
	if (length == 0 && ft_writer_ok(&work->answer)) {
		struct ft_writer swap = *out;

		*out = work->answer;
		out->limit = OUT_LIMIT;
		work->answer = swap;
		return;
	}
	if (ft_writer_ok(&work->answer))
		ft_write_raw(out, work->answer.data, work->answer.length);
	if (ft_writer_ok(&work->answer) && ft_writer_ok(out))
		return;
	out->failed = false;
	out->length = length;
	(void)ft_fail(&error, FT_E_MEMORY, "no memory for an answer");
	ft_write_failure(out, work->id, &error);
}

static void go_on(struct session *session)
{
	struct work *work = session->work;

	if (!session_begin_work(session) || !work->step(work, session))
		return;
	give_answer(session, work);
	end_work(session);
}

void session_begin(struct session *session, struct work *work)
{
	session->work = work;
	/* In a turn of its own where this one is over: nothing that a method does first is to make it longer. */
	if (session->handling && !session_spent(session, SESSION_HEAVY))
		go_on(session);
}

/* ---- reading ---- */

static void end_of_input(struct session *session, ssize_t length)
{
	if (length < 0 || session_gone(session)) { /* the client is gone; what it is owed goes with it */
		session_close(session);
		return;
	}
	/* It only asks nothing more, as a script that pipes its requests in: it gets its answers. */
	go(session, SESSION_FINISHED);
	session->events->finished(session->data, session);
}

/* What is there to be read; 0 if it is nothing. */
static size_t read_into(struct session *session, uint8_t *room, size_t size)
{
	ssize_t length;

	do {
		length = recv(session->descriptor, room, size, MSG_DONTWAIT);
	} while (length < 0 && errno == EINTR);
	session->readable = length == (ssize_t)size;
	if (length > 0)
		return (size_t)length;
	if (length == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
		end_of_input(session, length);
	return 0;
}

/* As much as one turn takes. */
static size_t receive(struct session *session)
{
	uint8_t *room;
	size_t size, length;

	ft_inbox_borrow(&session->inbox, &session->common->in);
	if (ft_inbox_room(&session->inbox, &room, &size, NULL) != 0) {
		session_close(session);
		return 0;
	}
	length = read_into(session, room, size > READ_MOST ? READ_MOST : size);
	ft_inbox_received(&session->inbox, length);
	return length;
}

static bool take_message(struct session *session)
{
	struct ft_envelope envelope;
	struct ft_view message;
	struct ft_error error;
	int found = ft_inbox_next(&session->inbox, &message, &error);

	if (found == 0)
		return false;
	if (found < 0 || ft_open_envelope(message, &envelope, &error) != 0) {
		log_limited(session->log, &session->common->framing, LOG_LEVEL_NOTICE,
		        "session broke the framing session=%" PRIu64 " uid=%u: %s", session->number,
		        session->user, error.message);
		session_refuse(session, 0, &error);
		return false;
	}
	session->events->message(session->data, session, &envelope);
	return true;
}

static void take_messages(struct session *session)
{
	bool more = true;
	unsigned handled = 0;

	session->unparsed = false;
	while (may_answer(session) && session->work == NULL && !ft_inbox_idle(&session->inbox) &&
	        (handled == 0 || !session_spent(session, 1))) {
		more = take_message(session);
		if (!more)
			break;
		handled++;
	}
	session->unparsed = more && !ft_inbox_idle(&session->inbox);
	/* The age of half a message counts from its first bytes, so that one sent drop by drop has an end
	 * too. */
	if (session->unparsed || session->work != NULL || ft_inbox_idle(&session->inbox))
		session->partial = 0;
	else if (session->partial == 0 || handled > 0)
		session->partial = 1;
}

/* A turn's part of what is to be done. */
static void take_turn(struct session *session)
{
	size_t length = 0;

	borrow_out(session);
	if (may_read(session) && session->readable)
		length = receive(session);
	if (session->due && owed(session) == 0 && session->state != SESSION_CLOSING) {
		session->due = false; /* before: it may become so meanwhile */
		if (session->events->owed(session->data, session))
			session->due = true;
	}
	if (session->work != NULL && session->state != SESSION_CLOSING)
		go_on(session);
	if (session->work == NULL && (length > 0 || session->unparsed))
		take_messages(session);
	session->events->batch_end(session->data, session);
}

/* Most turns are one read that brings one question that was asked before: its bytes show that it is whole, and what answers
 * it. True if there is nothing more to do. Taken apart as all others are, such a lookup takes 2,830 instructions, and 1,460 so,
 * which is all that it is for: one client alone does not feel it, with p50 1.13 and 1.14 of a ping-pong's. */
static bool take_question(struct session *session)
{
	struct ft_inbox_spare *spare = &session->common->in;
	size_t length;

	if (!session->readable || session->due || session->unparsed || session->work != NULL ||
	        session->out.length > 0 || session->inbox.data != NULL || spare->data == NULL ||
	        session->state >= SESSION_FINISHED)
		return false;
	borrow_out(session);
	length = read_into(session, spare->data, spare->capacity);
	if (length == 0 ||
	        session->events->at_once(session->data, session, (struct ft_view){spare->data, length}))
		return true;
	ft_inbox_borrow(&session->inbox, spare);
	ft_inbox_received(&session->inbox, length);
	session->unparsed = true;
	return false;
}

bool session_turn(void *data)
{
	struct session *session = data;

	session->reported = false;
	session->until_ns = 0;
	session->weight = 0;
	session->handling = true;
	if (!take_question(session) && has_work(session))
		take_turn(session);
	session->handling = false;
	flush(session);
	if (session->state == SESSION_CLOSING)
		return false;
	if (session->inbox.data != NULL && session->work == NULL)
		ft_inbox_return(&session->inbox, &session->common->in);
	count_memory(session);
	if (session->polled == UV_READABLE && !session->readable && !session->unparsed && !session->due &&
	        session->work == NULL && session->bytes == 0)
		return false; /* as most are then: at rest */
	if (has_work(session))
		return true;
	rest(session);
	return false;
}

/* ---- life ---- */

void session_common_free(struct session_common *common)
{
	ft_inbox_spare_free(&common->in);
	ft_inbox_spare_free(&common->out);
}

struct session *session_new(uv_loop_t *loop, const struct log *log, struct session_common *common,
        const struct access *access, const struct session_events *events, void *data, int descriptor,
        struct ft_error *error)
{
	struct session *session = calloc(1, sizeof(*session));
	struct ucred peer;
	socklen_t size = sizeof(peer);
	int status;

	if (session == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a client");
		goto fail;
	}
	if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
		(void)ft_fail_errno(error, errno, "cannot tell who a client is");
		goto fail;
	}
	session->log = log;
	session->common = common;
	session->events = events;
	session->data = data;
	session->descriptor = descriptor;
	session->user = peer.uid;
	session->group = peer.gid;
	session->process = peer.pid;
	session->level = access_of(access, descriptor, peer.uid, peer.gid);
	session->turn.waiting.data = session->held.data = session->later.data = session;
	session->turn.user = fair_turns_join(common->turns, peer.uid);
	if (session->turn.user == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a client");
		goto fail;
	}
	status = uv_poll_init(loop, &session->poll, descriptor);
	if (status != 0) {
		fair_turns_leave(common->turns, session->turn.user);
		(void)ft_fail(error, FT_E_SYSTEM, "cannot read from a client: %s", uv_strerror(status));
		goto fail;
	}
	session->poll.data = session;
	ft_inbox_init(&session->inbox, &ft_bounds_request);
	ft_writer_init_growing(&session->out, OUT_LIMIT);
	poll_again(session);
	return session;
fail:
	free(session);
	(void)close(descriptor);
	return NULL;
}
