/* Subscriptions: a connection that notifies of changed answers, driven by the program's own event loop.
 *
 * The descriptor that the program watches is an epoll instance: it stays the same while connections come and go, and
 * is readable when the connection has something to say, has room for what is still to be sent, or when a timer says that
 * it is time to try the daemon again. Nothing here waits.
 *
 * Threads. At most one thread at a time is inside flytune_dispatch; `dispatching` says so, under the client's lock. What
 * is below it in the struct belongs to that thread. A second thread leaves word and goes: the first looks once more.
 *
 * fork. A child shares the parent's epoll instance, not only its descriptor, so it must not touch it: it puts instances of
 * its own on the same numbers, and is notified of everything anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/descriptor.h"
#include "client/lib/handle.h"
#include "client/lib/outcome.h"

enum {
	MESSAGE_BYTES = (1 << 20) - (1 << 16), /* of lookups, that the daemon still takes in one message */
	TELL_MOST = 1024, /* changes before a dispatch reads no more from the connection */
	QUESTION_MAX = 4096,
};

_Static_assert(
        (int)FLYTUNE_SUBSCRIBED_MAX == (int)FT_SUBSCRIBED_MAX, "the daemon takes what the library does");

struct entry {
	uint32_t at, length; /* of its question */
	uint64_t digest;     /* of the answer of the last notice; 0: none */
};

struct flytune_subscription {
	flytune_client *client;
	flytune_answer_fn changed;
	void *data;
	size_t count;
	struct ft_writer questions; /* params of lookups, one behind the other */

	/* under the client's lock */
	struct flytune_subscription *next, *previous;
	int epoll, timer;
	struct stat epoll_was, timer_was; /* when they were made */
	bool dispatching, again;

	/* of who dispatches */
	struct connection *connection;
	bool greeted;
	size_t asked; /* entries that the connection was asked for */
	bool wants_room;
	struct breaker breaker;
	struct entry *entry;
};

/* ---- descriptors ---- */

static int make_epoll(void)
{
	return descriptor_above_standard(epoll_create1(EPOLL_CLOEXEC));
}

static int make_timer(void)
{
	return descriptor_above_standard(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

static int watch(const struct flytune_subscription *subscription, int operation, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	return epoll_ctl(subscription->epoll, operation, fd, &event);
}

/* Makes the descriptor readable at a time; 0: not by the clock. */
static void ring_at(const struct flytune_subscription *subscription, uint64_t at)
{
	struct itimerspec when = {0};

	if (at != 0)
		when.it_value = clock_timespec(at);
	(void)timerfd_settime(subscription->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void quiet_timer(const struct flytune_subscription *subscription)
{
	uint64_t rung;

	(void)!read(subscription->timer, &rung, sizeof rung);
}

static int make_descriptors(struct flytune_subscription *subscription, struct ft_error *error)
{
	subscription->epoll = make_epoll();
	subscription->timer = subscription->epoll < 0 ? -1 : make_timer();
	if (subscription->timer < 0 || fstat(subscription->epoll, &subscription->epoll_was) != 0 ||
	        fstat(subscription->timer, &subscription->timer_was) != 0 ||
	        watch(subscription, EPOLL_CTL_ADD, subscription->timer, EPOLLIN) != 0)
		return ft_fail_errno(error, errno, "making descriptors for a subscription");
	return 0;
}

static void close_descriptors(struct flytune_subscription *subscription)
{
	if (subscription->epoll >= 0)
		close(subscription->epoll);
	if (subscription->timer >= 0)
		close(subscription->timer);
	subscription->epoll = subscription->timer = -1;
}

/* ---- the connection ---- */

static void disconnect(struct flytune_subscription *subscription)
{
	struct connection *connection = subscription->connection;

	if (connection == NULL)
		return;
	/* Closing it would not do while a forked child still has it open. */
	if (connection->fd >= 0)
		(void)watch(subscription, EPOLL_CTL_DEL, connection->fd, 0);
	connection_free(connection);
	subscription->connection = NULL;
	subscription->greeted = false;
}

/* The daemon counts as away because of `error`, and is tried again after a pause. */
static void give_up(struct flytune_subscription *subscription, const struct ft_error *error)
{
	struct connection *connection = subscription->connection;
	uint64_t now = clock_now();

	if (connection != NULL && connection->absent)
		breaker_absent(&subscription->breaker, now, error);
	else
		breaker_fail(&subscription->breaker, now, error);
	disconnect(subscription);
	ring_at(subscription, subscription->breaker.until);
}

static enum call_result connect_anew(struct flytune_subscription *subscription, struct ft_error *error)
{
	const flytune_client *client = subscription->client;
	struct connection *connection = connection_new();
	enum call_result result;

	if (connection == NULL) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		return CALL_LOCAL;
	}
	subscription->connection = connection;
	subscription->asked = 0;
	subscription->wants_room = false;
	result = connection_start(connection, client->socket, client->name, 0, error);
	if (result != CALL_DONE)
		return result;
	/* The hello is gone; what follows is composed anew. */
	ft_writer_reset(&connection->outbox);
	connection->pushed = 0;
	if (watch(subscription, EPOLL_CTL_ADD, connection->fd, EPOLLIN) != 0) {
		ft_fail_errno(error, errno, "watching a connection");
		return CALL_LOCAL;
	}
	ring_at(subscription, 0);
	return CALL_DONE;
}

/* ---- asking ---- */

/* A request for as many of the entries as a message takes. */
static void compose(struct flytune_subscription *subscription)
{
	const struct entry *first = &subscription->entry[subscription->asked];
	struct ft_writer *outbox = &subscription->connection->outbox;
	size_t left = subscription->count - subscription->asked;
	uint32_t count = 0, bytes = 0;

	while (count < left && count < FT_LOOKUPS_MAX && bytes + first[count].length <= MESSAGE_BYTES)
		bytes += first[count++].length;
	connection_compose(subscription->connection, "subscribe");
	ft_write_map(outbox, 2);
	ft_write_text(outbox, "lookups");
	ft_write_array(outbox, count);
	ft_write_raw(outbox, subscription->questions.data + first->at, bytes);
	ft_write_text(outbox, "seen");
	ft_write_array(outbox, count);
	for (uint32_t i = 0; i < count; i++)
		ft_write_uint(outbox, first[i].digest);
	subscription->asked += count;
}

static enum call_result ask(struct flytune_subscription *subscription, struct ft_error *error)
{
	struct connection *connection = subscription->connection;
	enum call_result result;
	bool wants_room;

	while ((result = connection_push(connection, error)) == CALL_DONE &&
	        subscription->asked < subscription->count)
		compose(subscription);
	if (result != CALL_DONE && result != CALL_LATE)
		return result;
	wants_room = result == CALL_LATE;
	if (wants_room != subscription->wants_room &&
	        watch(subscription, EPOLL_CTL_MOD, connection->fd,
	                wants_room ? EPOLLIN | EPOLLOUT : EPOLLIN) == 0)
		subscription->wants_room = wants_room;
	return CALL_DONE;
}

/* ---- notices ---- */

static int tell(
        struct flytune_subscription *subscription, const struct ft_envelope *notice, struct ft_error *error)
{
	struct ft_answer_notice news;
	struct flytune_answer answer;
	struct flytune_error failure = {0};
	struct ft_error refusal;
	struct entry *entry;

	if (ft_decode(&ft_answer_notice_message, notice->body, &news, error) != 0)
		return -1;
	if (news.place == 0 || news.place > subscription->count ||
	        (news.answer.data == NULL && news.error.data == NULL))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned told of an answer that nobody asked for");
	entry = &subscription->entry[news.place - 1];
	if (news.digest == entry->digest)
		return 0;
	if (news.answer.data != NULL &&
	        answer_read(news.answer, subscription->connection, &answer, NULL, NULL, error) != 0)
		return -1;
	/* Before the call: it may be the last that this process does here. */
	entry->digest = news.digest;
	if (news.answer.data == NULL) {
		ft_read_failure(news.error, &refusal);
		outcome(&failure, &refusal);
		subscription->changed(subscription->data, news.place - 1, NULL, &failure);
	} else {
		subscription->changed(subscription->data, news.place - 1, &answer, NULL);
	}
	return 0;
}

/* What the daemon has said so far. CALL_LATE: all is passed on. CALL_STOPPED: a callback forked, and this is the child. */
static enum call_result listen_in(struct flytune_subscription *subscription, struct ft_error *error)
{
	struct connection *connection = subscription->connection;
	struct ft_envelope envelope;
	enum call_result result;
	unsigned told = 0;

	if (!subscription->greeted) {
		result = connection_finish(connection, 0, error);
		if (result != CALL_DONE)
			return result;
		subscription->greeted = true;
	}
	while ((result = connection_next(connection, told < TELL_MOST, &envelope, error)) == CALL_DONE) {
		if (envelope.type == FT_RESPONSE && envelope.error.data != NULL) {
			ft_read_failure(envelope.error, error);
			return CALL_REFUSED;
		}
		if (envelope.type == FT_RESPONSE)
			breaker_succeed(&subscription->breaker);
		if (envelope.type != FT_NOTICE || strcmp(envelope.method, "answer") != 0)
			continue;
		if (tell(subscription, &envelope, error) != 0)
			return CALL_LOST;
		/* A child of the callback's making, which may have run no handlers, goes no further. */
		client_enter(subscription->client);
		if (connection->orphan) {
			connection_free(connection);
			return CALL_STOPPED;
		}
		told++;
	}
	return result;
}

/* One look at everything. CALL_DONE: connected, and all that came is passed on. */
static enum call_result look(struct flytune_subscription *subscription, struct ft_error *error)
{
	enum call_result result = CALL_DONE;

	if (subscription->connection == NULL) {
		if (breaker_paused(&subscription->breaker, clock_now())) {
			*error = subscription->breaker.error;
			ring_at(subscription, subscription->breaker.until);
			return CALL_LATE;
		}
		result = connect_anew(subscription, error);
	}
	if (result == CALL_DONE)
		result = ask(subscription, error);
	if (result == CALL_DONE)
		result = listen_in(subscription, error);
	if (result == CALL_LATE && subscription->connection != NULL && subscription->connection->fd >= 0 &&
	        subscription->asked > 0)
		return CALL_DONE;
	return result;
}

static enum call_result dispatch(struct flytune_subscription *subscription, struct ft_error *error)
{
	bool was_served = subscription->greeted;
	enum call_result result;

	quiet_timer(subscription);
	result = look(subscription, error);
	if (result == CALL_DONE || result == CALL_STOPPED || subscription->connection == NULL)
		return result;
	if (was_served && result == CALL_LOST && strcmp(error->code, FT_E_AWAY) == 0) {
		/* It was restarted, and where the service manager holds the socket the next one is behind it already. */
		disconnect(subscription);
		result = look(subscription, error);
		if (result == CALL_DONE || result == CALL_STOPPED)
			return result;
	}
	give_up(subscription, error);
	return result;
}

/* ---- fork ---- */

/* Puts a descriptor of our own on a number that is the parent's. */
static int replace(int number, int fresh)
{
	int placed = fresh < 0 ? -1 : dup3(fresh, number, O_CLOEXEC);

	if (fresh >= 0)
		close(fresh);
	return placed;
}

static bool is_still(int fd, const struct stat *was)
{
	struct stat status;

	return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == was->st_dev &&
	        status.st_ino == was->st_ino;
}

static void begin_anew(struct flytune_subscription *subscription)
{
	struct connection *connection = subscription->connection;
	bool whole = is_still(subscription->epoll, &subscription->epoll_was) &&
	        is_still(subscription->timer, &subscription->timer_was);

	if (connection != NULL) {
		client_close_inherited(connection);
		connection->orphan = true;
		/* Else it is left to the thread that forked, if it was that one which dispatched; or was caught in the
		 * middle of a change. */
		if (!subscription->dispatching)
			connection_free(connection);
	}
	subscription->connection = NULL;
	subscription->greeted = false;
	subscription->dispatching = subscription->again = false;
	for (size_t i = 0; i < subscription->count; i++)
		subscription->entry[i].digest = 0;
	breaker_init(&subscription->breaker, clock_now() ^ (uint64_t)getpid() << 32);
	/* The numbers may be something else by now where no handler ran at the fork. */
	if (!whole || replace(subscription->epoll, make_epoll()) < 0 ||
	        replace(subscription->timer, make_timer()) < 0 ||
	        watch(subscription, EPOLL_CTL_ADD, subscription->timer, EPOLLIN) != 0) {
		subscription->epoll = subscription->timer = -1;
		return;
	}
	if (subscription->client->autotune != FLYTUNE_AUTOTUNE_NEVER)
		ring_at(subscription, 1);
}

static void begin_all_anew(struct flytune_subscription *first)
{
	for (; first != NULL; first = first->next)
		begin_anew(first);
}

/* ---- what programs call ---- */

static void release(struct flytune_subscription *subscription)
{
	close_descriptors(subscription);
	ft_writer_free(&subscription->questions);
	free(subscription->entry);
	free(subscription);
}

static int add_question(struct flytune_subscription *subscription, const flytune_problem *problem,
        const char *device, struct entry *entry, struct ft_error *error)
{
	const flytune_client *client = subscription->client;
	struct ft_lookup_request request = {0};

	/* Where the library knows the rules, what they refuse is refused here. */
	if (problem->about->built_in != NULL && !problem->about->admitted) {
		*error = problem->about->refusal;
		return -1;
	}
	memcpy(request.kernel, problem->about->kernel, sizeof request.kernel);
	problem_given(problem, &request.problem);
	memcpy(request.device, device, sizeof request.device);
	memcpy(request.generation, client->token, sizeof request.generation);
	entry->at = (uint32_t)subscription->questions.length;
	ft_encode(&subscription->questions, &ft_lookup_request_message, &request);
	entry->length = (uint32_t)subscription->questions.length - entry->at;
	return ft_writer_ok(&subscription->questions) ? 0 : ft_fail(error, FT_E_MEMORY, "out of memory");
}

static int fill(struct flytune_subscription *subscription, flytune_problem *const *problems,
        const char *named, struct ft_error *error)
{
	char device[FT_DEVICE_ID_SIZE], name[24];

	ft_writer_init_growing(&subscription->questions, (size_t)FLYTUNE_SUBSCRIBED_MAX * QUESTION_MAX);
	if (client_device(subscription->client, named, device, error) != 0)
		return -1;
	subscription->entry = calloc(subscription->count, sizeof *subscription->entry);
	if (subscription->entry == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	for (size_t i = 0; i < subscription->count; i++) {
		if (problems[i] == NULL) {
			snprintf(name, sizeof name, "problems[%zu]", i);
			return ft_fail_field(error, FT_E_BAD_VALUE, name, "NULL", "given");
		}
		if (add_question(subscription, problems[i], device, &subscription->entry[i], error) != 0)
			return -1;
	}
	return make_descriptors(subscription, error);
}

static struct flytune_subscription *make(flytune_client *client, flytune_problem *const *problems,
        size_t count, const char *device, struct ft_error *error)
{
	struct flytune_subscription *subscription;
	char value[24], bound[32];

	if (count == 0 || count > FLYTUNE_SUBSCRIBED_MAX) {
		snprintf(value, sizeof value, "%zu", count);
		snprintf(bound, sizeof bound, "from 1 to %d", FLYTUNE_SUBSCRIBED_MAX);
		ft_fail_field(error, FT_E_BAD_VALUE, "count", value, bound);
		return NULL;
	}
	subscription = calloc(1, sizeof *subscription);
	if (subscription == NULL) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		return NULL;
	}
	subscription->client = client;
	subscription->count = count;
	subscription->epoll = subscription->timer = -1;
	breaker_init(&subscription->breaker, clock_now() ^ (uint64_t)(uintptr_t)subscription);
	if (fill(subscription, problems, device, error) != 0) {
		release(subscription);
		return NULL;
	}
	return subscription;
}

enum flytune_result flytune_subscribe(flytune_client *client, flytune_problem *const *problems, size_t count,
        const char *device, flytune_answer_fn changed, void *data, flytune_subscription **out_subscription,
        struct flytune_error *out)
{
	UNCANCELLED;
	struct flytune_subscription *subscription;
	struct ft_error error;

	REQUIRE(client, out);
	REQUIRE(problems, out);
	REQUIRE(changed, out);
	if (out_subscription == NULL)
		return outcome_null(out, "subscription");
	client_enter(client);
	subscription = make(client, problems, count, device, &error);
	if (subscription == NULL)
		return outcome(out, &error);
	subscription->changed = changed;
	subscription->data = data;
	/* Readable from the start: the first dispatch connects. */
	if (client->autotune != FLYTUNE_AUTOTUNE_NEVER)
		ring_at(subscription, 1);
	pthread_mutex_lock(&client->lock);
	subscription->next = client->subscriptions;
	if (client->subscriptions != NULL)
		client->subscriptions->previous = subscription;
	client->subscriptions = subscription;
	client->subscriptions_forked = begin_all_anew;
	pthread_mutex_unlock(&client->lock);
	*out_subscription = subscription;
	return FLYTUNE_OK;
}

int flytune_subscription_fd(const flytune_subscription *subscription)
{
	return subscription != NULL ? subscription->epoll : -1;
}

enum flytune_result flytune_dispatch(flytune_subscription *subscription, struct flytune_error *out)
{
	UNCANCELLED;
	flytune_client *client;
	enum call_result result;
	struct ft_error error;
	bool again;

	REQUIRE(subscription, out);
	client = subscription->client;
	client_enter(client);
	if (client->autotune == FLYTUNE_AUTOTUNE_NEVER)
		return FLYTUNE_OK;
	pthread_mutex_lock(&client->lock);
	if (subscription->epoll < 0) {
		pthread_mutex_unlock(&client->lock);
		ft_fail(&error, FT_E_SYSTEM,
		        "this process could not make descriptors of its own after a fork");
		return outcome(out, &error);
	}
	again = subscription->dispatching;
	if (again)
		subscription->again = true;
	subscription->dispatching = true;
	pthread_mutex_unlock(&client->lock);
	if (again)
		return FLYTUNE_OK;
	do {
		result = dispatch(subscription, &error);
		if (result == CALL_STOPPED)
			return FLYTUNE_OK;
		pthread_mutex_lock(&client->lock);
		again = subscription->again;
		subscription->again = false;
		subscription->dispatching = again;
		pthread_mutex_unlock(&client->lock);
	} while (again);
	return result == CALL_DONE ? FLYTUNE_OK : outcome(out, &error);
}

void flytune_unsubscribe(flytune_subscription *subscription)
{
	UNCANCELLED;
	flytune_client *client;

	if (subscription == NULL)
		return;
	client = subscription->client;
	client_enter(client);
	pthread_mutex_lock(&client->lock);
	if (subscription->previous != NULL)
		subscription->previous->next = subscription->next;
	else
		client->subscriptions = subscription->next;
	if (subscription->next != NULL)
		subscription->next->previous = subscription->previous;
	pthread_mutex_unlock(&client->lock);
	disconnect(subscription);
	release(subscription);
}
