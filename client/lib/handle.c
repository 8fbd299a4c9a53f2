#include "client/lib/handle.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/cancel.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

#define USUAL_SOCKET "/run/flytuned/flytuned.sock"
#define LIBRARY_NAME "libflytune-client/" FLYTUNE_VERSION

enum {
	LOOKUP_TIMEOUT_MS = 1000,
	CALL_TIMEOUT_MS = 10000,
	AUTOTUNE_TIMEOUT_MS = 60000,
	CACHE_ENTRIES = 1024,
	CALL_ATTEMPTS = 3,
	COME_BACK_MS = 5000, /* that a call which was lost grants a daemon that is restarted */
	LOOK_AGAIN_MS = 20,
};

const char *flytune_version(void)
{
	return FLYTUNE_VERSION;
}

/* ---- settings ---- */

static const char *first_of(const char *a, const char *b, const char *c)
{
	if (a != NULL)
		return a;
	return b != NULL && *b != '\0' ? b : c;
}

static int set_socket(flytune_client *client, const char *given, struct ft_error *error)
{
	const char *path = first_of(given, secure_getenv("FLYTUNE_SOCKET"), USUAL_SOCKET);
	size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
	char bound[64];

	if (*path == '\0' || strlen(path) > most) {
		snprintf(bound, sizeof bound, "a path of 1 to %zu bytes; it has %zu", most, strlen(path));
		return ft_fail_field(error, FT_E_BAD_VALUE, "socket", path, bound);
	}
	client->socket = strdup(path);
	if (client->socket == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	return 0;
}

static int set_token(flytune_client *client, const char *given, struct ft_error *error)
{
	const char *token = first_of(given, secure_getenv("FLYTUNE_GENERATION"), "");

	if (strlen(token) >= sizeof client->token)
		return ft_fail_field(error, FT_E_BAD_VALUE, "generation", token, "a token UUID:COUNTER");
	snprintf(client->token, sizeof client->token, "%s", token);
	return 0;
}

static int set_autotune(flytune_client *client, enum flytune_autotune given, struct ft_error *error)
{
	const char *word = secure_getenv("FLYTUNE_AUTOTUNE");

	client->autotune = given;
	if (given == FLYTUNE_AUTOTUNE_ENVIRONMENT) {
		if (word == NULL || *word == '\0')
			client->autotune = FLYTUNE_AUTOTUNE_USUAL;
		else if (strcmp(word, "1") == 0)
			client->autotune = FLYTUNE_AUTOTUNE_FORCE;
		else if (strcmp(word, "0") == 0)
			client->autotune = FLYTUNE_AUTOTUNE_NEVER;
		else
			return ft_fail_field(error, FT_E_BAD_VALUE, "FLYTUNE_AUTOTUNE", word, "0 or 1");
	} else if (given < FLYTUNE_AUTOTUNE_ENVIRONMENT || given > FLYTUNE_AUTOTUNE_NEVER) {
		return ft_fail(error, FT_E_BAD_VALUE, "options.autotune is none of enum flytune_autotune");
	}
	if (client->autotune == FLYTUNE_AUTOTUNE_FORCE && client->token[0] != '\0')
		return ft_fail_field(error, FT_E_BAD_VALUE, "FLYTUNE_AUTOTUNE", "1",
		        "0 or unset while a generation is named, whose answers no sweep may change");
	return 0;
}

static int64_t timeout_of(int64_t given, int64_t usual)
{
	return given > 0 ? given : usual;
}

/* What this host's first device most likely is. Two looks at /dev, so that an open stays cheap. */
static const char *guess_kind(void)
{
	if (access("/dev/kfd", F_OK) == 0)
		return "hip";
	return access("/dev/nvidiactl", F_OK) == 0 ? "cuda" : "cpu";
}

static int configure(flytune_client *client, const struct flytune_options *given, struct ft_error *error)
{
	struct flytune_options options;

	flytune_options_init(&options);
	if (given != NULL && !sized_in(&options, sizeof options, given))
		return ft_fail(
		        error, FT_E_BAD_REQUEST, "options.size is not set: call flytune_options_init first");
	if (set_socket(client, options.socket, error) != 0 ||
	        set_token(client, options.generation, error) != 0 ||
	        set_autotune(client, options.autotune, error) != 0)
		return -1;
	if (options.device != NULL && client_device(client, options.device, client->device, error) != 0)
		return -1;
	snprintf(client->name, sizeof client->name, "%s", options.name != NULL ? options.name : LIBRARY_NAME);
	client->tune_on_miss = options.tune_on_miss != 0;
	client->lookup_timeout_ms = timeout_of(options.lookup_timeout_ms, LOOKUP_TIMEOUT_MS);
	client->call_timeout_ms = timeout_of(options.call_timeout_ms, CALL_TIMEOUT_MS);
	client->autotune_timeout_ms = timeout_of(options.autotune_timeout_ms, AUTOTUNE_TIMEOUT_MS);
	client->log = options.log;
	client->log_data = options.log_data;
	snprintf(client->guessed_kind, sizeof client->guessed_kind, "%s", guess_kind());
	if (cache_init(&client->cache, options.cache_entries == 0 ? CACHE_ENTRIES : options.cache_entries) !=
	        0)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	return 0;
}

int client_device(const flytune_client *client, const char *named, char device[FT_DEVICE_ID_SIZE],
        struct ft_error *error)
{
	const char *id;

	if (client == NULL)
		return ft_fail_field(error, FT_E_BAD_VALUE, "client", "NULL", "given");
	id = named != NULL ? named : client->device;
	if (strlen(id) >= FT_DEVICE_ID_SIZE)
		return ft_fail_field(
		        error, FT_E_UNKNOWN_DEVICE, "device", id, "an id such as cpu:0, under 32 bytes");
	/* It may be the client's own, being set. Zero to the end, as the cache's keys are. */
	if (device != id) {
		size_t length = strlen(id);

		memmove(device, id, length + 1);
		memset(device + length, 0, FT_DEVICE_ID_SIZE - length);
	}
	return 0;
}

/* ---- life ---- */

/* Deadlines are of the monotonic clock. */
static int init_changed(flytune_client *client)
{
	pthread_condattr_t attributes;
	int failed = pthread_condattr_init(&attributes);

	if (failed != 0)
		return failed;
	failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (failed == 0)
		failed = pthread_cond_init(&client->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return failed;
}

static void dispose(flytune_client *client)
{
	cache_free(&client->cache);
	boards_free(&client->boards);
	free(client->socket);
	free(client);
}

static void forked(void *client)
{
	client_forked(client);
}

flytune_client *flytune_open(const struct flytune_options *options, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_error error;
	flytune_client *client = calloc(1, sizeof *client);

	if (client == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		outcome(out, &error);
		return NULL;
	}
	if (configure(client, options, &error) != 0) {
		outcome(out, &error);
		dispose(client);
		return NULL;
	}
	if (pthread_mutex_init(&client->lock, NULL) != 0 || init_changed(client) != 0) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		outcome(out, &error);
		dispose(client);
		return NULL;
	}
	atomic_init(&client->pid, getpid());
	breaker_init(&client->breaker, clock_now() ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)client);
	boards_init(&client->boards);
	client->fork = (struct fork_member){.lock = &client->lock, .forked = forked, .owner = client};
	fork_watch(&client->fork);
	return client;
}

void flytune_close(flytune_client *client)
{
	UNCANCELLED;

	if (client == NULL)
		return;
	client_enter(client);
	fork_forget(&client->fork);
	while (client->connections != NULL) {
		struct connection *connection = client->connections;

		client->connections = connection->next;
		connection_free(connection);
	}
	pthread_cond_destroy(&client->changed);
	pthread_mutex_destroy(&client->lock);
	forced_free(&client->forced);
	dispose(client);
}

/* ---- fork ---- */

/* The program may have closed the descriptor since, and its number may be something else now. */
void client_close_inherited(struct connection *connection)
{
	struct stat status;

	if (connection->fd >= 0 && fstat(connection->fd, &status) == 0 &&
	        status.st_dev == connection->device && status.st_ino == connection->inode)
		close(connection->fd);
	connection->fd = -1;
	if (connection->board_fd >= 0)
		close(connection->board_fd);
	connection->board_fd = -1;
}

void client_forked(flytune_client *client)
{
	while (client->connections != NULL) {
		struct connection *connection = client->connections;

		client->connections = connection->next;
		client_close_inherited(connection);
		connection->orphan = true;
		/* A busy one is left to the thread that uses it, which may be the one that forked; if it is
		 * not, its buffers were caught in the middle of a change and must not be touched. */
		if (!connection->busy)
			connection_free(connection);
	}
	client->pooled = 0;
	client->connecting = false;
	client->probe = NULL;
	forced_forget_running(&client->forced);
	cache_mend(&client->cache);
	if (client->subscriptions != NULL)
		client->subscriptions_forked(client->subscriptions);
	/* Those who waited on it are not in this process. */
	(void)init_changed(client);
	atomic_store(&client->pid, getpid());
}

void client_enter(flytune_client *client)
{
	int pid = getpid();
	int owner = atomic_load(&client->pid);

	if (owner == pid)
		return;
	/* A raw clone ran no handlers. The first thread to come here mends the client, the others wait for
	 * it: it makes no call that can block. */
	if (owner > 0 && atomic_compare_exchange_strong(&client->pid, &owner, -pid)) {
		pthread_mutex_init(&client->lock, NULL);
		client_forked(client);
		return;
	}
	while (atomic_load(&client->pid) != pid)
		sched_yield();
}

/* ---- pool ---- */

static void tell(const flytune_client *client, enum flytune_log_level level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void tell(const flytune_client *client, enum flytune_log_level level, const char *format, ...)
{
	char message[512];
	va_list arguments;

	if (client->log == NULL)
		return;
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	client->log(client->log_data, level, message);
}

/* Takes it off the list and frees it. The lock is held. */
static void discard(flytune_client *client, struct connection *connection)
{
	struct connection **link = &client->connections;

	while (*link != NULL && *link != connection)
		link = &(*link)->next;
	if (*link != NULL) {
		*link = connection->next;
		if (connection->pooled)
			client->pooled--;
	}
	connection_free(connection);
}

static struct connection *find_idle(const flytune_client *client)
{
	struct connection *connection = client->connections;

	while (connection != NULL && (connection->busy || !connection->pooled))
		connection = connection->next;
	return connection;
}

/* A connection on the list, not connected yet. The lock is held. */
static struct connection *add_connection(flytune_client *client, bool pooled)
{
	struct connection *connection = connection_new();

	if (connection == NULL)
		return NULL;
	connection->busy = true;
	connection->pooled = pooled;
	/* Those of one's own are for waiting, not for answers to be kept. */
	connection->boards = pooled ? &client->boards : NULL;
	connection->next = client->connections;
	client->connections = connection;
	if (pooled)
		client->pooled++;
	return connection;
}

/* The daemon was there and went: most likely it is being restarted. */
static void note_loss(flytune_client *client)
{
	atomic_store_explicit(&client->lost_at, clock_now(), memory_order_relaxed);
}

/* Connects, or goes on with the hello that is still unanswered. Only the thread that set `connecting` comes
 * here, and the lock is not held. */
static enum call_result attempt(flytune_client *client, struct connection *connection, uint64_t deadline,
        bool hurried, struct ft_error *error)
{
	enum call_result result;

	if (connection->fd >= 0)
		return connection_finish(connection, hurried ? 0 : deadline, error);
	result = connection_start(connection, client->socket, client->name, hurried ? 0 : deadline, error);
	if (result != CALL_DONE)
		return result == CALL_LATE && hurried ? CALL_LOST : result;
	result = connection_finish(
	        connection, hurried ? clock_min(deadline, clock_after(PROBE_WAIT_MS)) : deadline, error);
	if (result != CALL_LOST || hurried || strcmp(error->code, FT_E_AWAY) != 0)
		return result;
	/* A daemon that is stopping closes what it took and has not read yet. Where the service manager holds
	 * the socket, the next daemon is behind it already; else it comes soon. */
	note_loss(client);
	connection_reset(connection);
	result = connection_start(connection, client->socket, client->name, deadline, error);
	return result == CALL_DONE ? connection_finish(connection, deadline, error) : result;
}

/* After the breaker changed, with the lock held. */
static void tell_pause(flytune_client *client)
{
	atomic_store_explicit(&client->paused_until, client->breaker.open ? client->breaker.until : 0,
	        memory_order_relaxed);
}

/* Decides, with the lock held, whether this thread connects (CALL_DONE, with `connecting` set), or has got an
 * idle connection, or what to say instead. */
static enum call_result wait_for_turn(flytune_client *client, uint64_t deadline, bool patient, bool pooled,
        struct connection **idle, struct ft_error *error)
{
	struct timespec until = clock_timespec(deadline);
	bool late = false; /* all is looked at once more before that is said */

	for (;;) {
		if (breaker_paused(&client->breaker, clock_now()) ||
		        (client->breaker.open && client->connecting && !patient)) {
			*error = client->breaker.error;
			return CALL_LOST;
		}
		if (!client->breaker.open && pooled) {
			*idle = find_idle(client);
			if (*idle != NULL)
				return CALL_DONE;
		}
		if (!client->connecting && (!pooled || client->pooled < POOL_MAX || client->probe != NULL))
			break;
		/* While the breaker is open the idle ones are not trusted either. */
		if (!client->connecting && client->breaker.open) {
			struct connection *stale = find_idle(client);

			if (stale != NULL) {
				discard(client, stale);
				continue;
			}
			if (!patient) {
				*error = client->breaker.error;
				return CALL_LOST;
			}
		}
		if (late) {
			ft_fail(error, FT_E_TIMEOUT, "all %d connections of this client were busy", POOL_MAX);
			return CALL_LATE;
		}
		late = pthread_cond_timedwait(&client->changed, &client->lock, &until) == ETIMEDOUT;
	}
	client->connecting = true;
	return CALL_DONE;
}

static enum call_result take(flytune_client *client, uint64_t deadline, bool patient, bool pooled,
        struct connection **out, struct ft_error *error)
{
	struct connection *connection = NULL;
	enum call_result result;
	bool was_away, hurried;
	unsigned failures;

	pthread_mutex_lock(&client->lock);
	result = wait_for_turn(client, deadline, patient, pooled, &connection, error);
	if (result != CALL_DONE || connection != NULL) {
		if (connection != NULL)
			connection->busy = true;
		pthread_mutex_unlock(&client->lock);
		*out = connection;
		return result;
	}
	was_away = client->breaker.open;
	failures = client->breaker.failures;
	hurried = was_away && !patient;
	if (pooled) {
		connection = client->probe;
		client->probe = NULL;
	}
	if (connection == NULL)
		connection = add_connection(client, pooled);
	pthread_mutex_unlock(&client->lock);

	if (connection == NULL) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		result = CALL_LOCAL;
	} else {
		/* Nobody else may connect meanwhile, so this has the patience of a lookup, not of the caller.
		 */
		uint64_t patience = clock_min(deadline, clock_after(client->lookup_timeout_ms));

		result = attempt(client, connection, patience, hurried, error);
	}

	pthread_mutex_lock(&client->lock);
	client->connecting = false;
	if (result == CALL_DONE) {
		atomic_store_explicit(&client->lost_at, 0, memory_order_relaxed);
		breaker_connected(&client->breaker);
	} else if (result == CALL_LATE && hurried &&
	        clock_now() < connection->started_at + (uint64_t)client->lookup_timeout_ms * CLOCK_MS) {
		/* Said nothing yet: the next call looks again. */
		client->probe = connection;
		connection = NULL;
		*error = client->breaker.error;
	} else if (connection != NULL && connection->absent) {
		breaker_absent(&client->breaker, clock_now(), error);
	} else {
		breaker_fail(&client->breaker, clock_now(), error);
	}
	tell_pause(client);
	if (result != CALL_DONE && connection != NULL) {
		discard(client, connection);
		connection = NULL;
	}
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);

	if (result == CALL_DONE && was_away)
		tell(client, FLYTUNE_LOG_INFO, "flytuned answers again: %s on %s", connection->hello.server,
		        client->socket);
	else if (result != CALL_DONE && !was_away && failures == 0)
		tell(client, FLYTUNE_LOG_WARNING, "flytuned is away: %s", error->message);
	*out = connection;
	return result;
}

/* Whoever is patient waits for a daemon that went a moment ago. A lookup has a default to give instead, and does not. */
static enum call_result take_when_back(flytune_client *client, uint64_t deadline, bool patient, bool pooled,
        struct connection **connection, struct ft_error *error)
{
	uint64_t first_lost_at = 0;

	for (;;) {
		enum call_result result = take(client, deadline, patient, pooled, connection, error);
		uint64_t now = clock_now();

		/* From the first loss on, so that one who closes on everybody is not waited for without end. */
		if (first_lost_at == 0)
			first_lost_at = atomic_load_explicit(&client->lost_at, memory_order_relaxed);
		if (result != CALL_LOST || !patient || strcmp(error->code, FT_E_AWAY) != 0 ||
		        first_lost_at == 0 || now >= deadline ||
		        now > first_lost_at + COME_BACK_MS * CLOCK_MS)
			return result;
		poll(NULL, 0, LOOK_AGAIN_MS);
	}
}

enum call_result client_take_own(
        flytune_client *client, uint64_t deadline, struct connection **connection, struct ft_error *error)
{
	return take_when_back(client, deadline, true, false, connection, error);
}

void client_give(flytune_client *client, struct connection *connection)
{
	if (connection->orphan) {
		connection_free(connection);
		return;
	}
	pthread_mutex_lock(&client->lock);
	breaker_succeed(&client->breaker);
	tell_pause(client);
	connection->busy = false;
	if (!connection->pooled)
		discard(client, connection);
	pthread_cond_signal(&client->changed);
	pthread_mutex_unlock(&client->lock);
}

void client_drop(flytune_client *client, struct connection *connection, const struct ft_error *error)
{
	bool news = false;

	if (connection->orphan) {
		connection_free(connection);
		return;
	}
	pthread_mutex_lock(&client->lock);
	if (error != NULL) {
		news = client->breaker.failures == 0;
		breaker_fail(&client->breaker, clock_now(), error);
		tell_pause(client);
	}
	discard(client, connection);
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
	if (news)
		tell(client, FLYTUNE_LOG_WARNING, "flytuned is away: %s", error->message);
}

/* The daemon has closed one connection that lay idle: it has closed the others as well. */
static void drop_idle(flytune_client *client)
{
	struct connection *connection;

	pthread_mutex_lock(&client->lock);
	while ((connection = find_idle(client)) != NULL)
		discard(client, connection);
	pthread_mutex_unlock(&client->lock);
}

enum call_result client_call(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, uint64_t deadline, bool patient, struct connection **connection,
        struct ft_envelope *reply, struct ft_error *error)
{
	enum call_result result = CALL_LOST;

	for (int lost = 0; lost < CALL_ATTEMPTS; lost++) {
		bool stale;

		result = take_when_back(client, deadline, patient, true, connection, error);
		if (result != CALL_DONE)
			return result;
		stale = (*connection)->used || lost == 0;
		result = connection_call(
		        *connection, method, message, body, deadline, NULL, NULL, reply, error);
		switch (result) {
		case CALL_DONE:
			return result;
		case CALL_REFUSED:
			client_give(client, *connection);
			return result;
		case CALL_LOST:
			/* The daemon may have been restarted since this connection was last used, or be stopping
			 * just now. */
			if (stale && strcmp(error->code, FT_E_AWAY) == 0) {
				client_drop(client, *connection, NULL);
				drop_idle(client);
				note_loss(client);
				continue;
			}
			client_drop(client, *connection, error);
			return result;
		case CALL_LATE:
			client_drop(client, *connection, error);
			return result;
		default:
			client_drop(client, *connection, NULL);
			return result;
		}
	}
	return result;
}

enum call_result client_call_own(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, uint64_t deadline, connection_notice notice, void *data,
        struct connection **connection, struct ft_envelope *reply, struct ft_error *error)
{
	enum call_result result = CALL_LOST;

	for (int lost = 0; lost < CALL_ATTEMPTS; lost++) {
		result = client_take_own(client, deadline, connection, error);
		if (result != CALL_DONE)
			return result;
		result = connection_call(
		        *connection, method, message, body, deadline, notice, data, reply, error);
		if (result == CALL_DONE)
			return result;
		client_drop(client, *connection, NULL);
		if (result != CALL_LOST || strcmp(error->code, FT_E_AWAY) != 0)
			return result;
		note_loss(client);
	}
	return result;
}

enum flytune_result client_ask(flytune_client *client, const char *method, const struct ft_message *message,
        const void *body, int (*read)(void *to, const struct client_reply *reply, struct ft_error *error),
        void *to, struct flytune_error *out)
{
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;

	REQUIRE(client, out);
	client_enter(client);
	if (client_call(client, method, message, body, clock_after(client->call_timeout_ms), true,
	            &connection, &reply, &error) != CALL_DONE)
		return outcome(out, &error);
	if (read != NULL && read(to, &(struct client_reply){reply.body, connection}, &error) != 0) {
		client_drop(client, connection, NULL);
		return outcome(out, &error);
	}
	client_give(client, connection);
	return FLYTUNE_OK;
}
