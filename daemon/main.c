/* flytuned: from the command line to the loop, and from a signal to a clean end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/host/check.h"
#include "daemon/methods/methods.h"
#include "daemon/host/notify.h"
#include "daemon/host/stack.h"
#include "daemon/host/timer.h"
#include "daemon/host/priority.h"
#include "daemon/host/process.h"
#include "daemon/host/reload.h"
#include "daemon/store/repair/startup_check.h"

enum {
	EXIT_BAD_USAGE = 2,
	LOG_TRIED_MS = 500,
	LIVES_MAX =
	        4, /* of one process, whose store is damaged again and again: its disk or memory is, then */
};

/* A commit that takes so long will not come: even a disk that is rebuilt answers sooner. */
static const uint64_t stuck_ns = UINT64_C(600) * 1000000000;
/* Said each second while a store is checked, rescued or put back, at a start or an end: half a minute from now, if no more comes. */
static const char still_at_work[] = "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=30000000";

struct daemon {
	int argc;
	char **argv;
	struct log log;
	struct settings settings;
	struct access access;
	struct notify notify;
	int listener;   /* the socket that was handed over; -1: none */
	unsigned lives; /* begun: a damaged store is closed, repaired and served again by the same process */
	bool again;     /* this life ends so that another can begin */

	/* From here on: of one life. */
	uv_loop_t loop;
	struct board board;
	struct store *store;
	struct watch state_watch; /* of the state directory */
	struct devices devices;
	struct server server;
	struct queue queue;
	struct background background;
	struct methods methods;
	uv_signal_t signals[PROCESS_SIGNALS];
	uv_timer_t watchdog;
	uv_timer_t log_timer; /* runs only while lines wait to be written */
	struct reload reload;
	/* What was begun, and so must be ended. */
	bool has_loop, has_devices, has_server, has_queue, has_methods, has_background;
	bool stopping;
	bool store_closing;
	int status;
};

/* For the handler alone: the store that must not be trusted blindly after a fault. */
static struct store *volatile faulted_store;

static void mark_store(int number)
{
	if (faulted_store != NULL)
		store_mark_signal(faulted_store, number);
}

static void close_rest(void *data)
{
	struct daemon *daemon = data;

	process_hold_signals(true);
	daemon->store = NULL;
	board_free(&daemon->board);
	if (daemon->has_server)
		server_free(&daemon->server);
	if (daemon->has_devices)
		devices_free(&daemon->devices);
	if (daemon->has_queue)
		queue_free(&daemon->queue);
	if (daemon->has_methods)
		methods_free(&daemon->methods);
	if (daemon->has_background)
		background_free(&daemon->background);
	for (size_t i = 0; i < sizeof(daemon->signals) / sizeof(daemon->signals[0]); i++)
		uv_close((uv_handle_t *)&daemon->signals[i], NULL);
	uv_close((uv_handle_t *)&daemon->watchdog, NULL);
	uv_close((uv_handle_t *)&daemon->log_timer, NULL);
	/* A user database that does not answer holds up no end; a life that goes on needs its settings. */
	if (daemon->reload.asking && !daemon->again)
		uv_stop(&daemon->loop);
}

/* The store goes last: what the others still hand over is committed. */
static void maybe_close_store(struct daemon *daemon)
{
	if (!daemon->stopping || daemon->store_closing ||
	        (daemon->has_devices && !devices_idle(&daemon->devices)) ||
	        (daemon->has_server && !server_idle(&daemon->server)))
		return;
	daemon->store_closing = true;
	watch_stop(&daemon->state_watch);
	faulted_store = NULL;
	if (daemon->store != NULL)
		store_close(daemon->store, close_rest, daemon);
	else
		close_rest(daemon);
}

static void store_waits(void *data)
{
	const struct daemon *daemon = data;

	notify_send(&daemon->notify, still_at_work);
}

static void feed_watchdog(uv_timer_t *timer)
{
	struct daemon *daemon = timer->data;
	struct store_facts facts = {0};

	/* That this is called shows that the loop turns. The writer's thread must, too: without it nothing is
	 * ever acknowledged again. */
	if (daemon->store != NULL)
		store_facts(daemon->store, &facts);
	if (facts.stuck_ns < stuck_ns) {
		notify_send(&daemon->notify,
		        daemon->stopping && facts.stuck_ns > 0 ? still_at_work : "WATCHDOG=1");
		return;
	}
	log_line(&daemon->log, LOG_LEVEL_ERROR,
	        "the store's writer has not come back for %" PRIu64 " s: the watchdog is not fed any more",
	        facts.stuck_ns / 1000000000);
}

static void stop(struct daemon *daemon)
{
	if (daemon->stopping)
		return;
	daemon->stopping = daemon->reload.stopped = true;
	notify_send(&daemon->notify, daemon->again ? "STATUS=Repairing the store" : "STOPPING=1");
	/* An end has half a minute, and putting back a large store may take longer. */
	if (daemon->notify.socket >= 0)
		timer_repeat(&daemon->watchdog, feed_watchdog, 1000, 1000);
	if (daemon->has_background)
		background_stop(&daemon->background);
	if (daemon->has_queue)
		queue_stop(&daemon->queue);
	if (daemon->has_methods)
		methods_stop(&daemon->methods);
	if (daemon->has_devices)
		devices_stop(&daemon->devices, true);
	if (daemon->has_server)
		server_stop(&daemon->server);
	maybe_close_store(daemon);
}

static void log_fault(void *data, const struct ft_error *fault)
{
	const struct log *log = data;

	log_line(log, LOG_LEVEL_WARNING, "configuration: %s", fault->message);
}

static void reload_begins(void *data)
{
	struct daemon *daemon = data;
	char lines[64];

	(void)snprintf(lines, sizeof(lines), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, uv_hrtime() / 1000);
	notify_send(&daemon->notify, lines);
}

static void reloaded(void *data, const struct settings *settings, const struct access *access)
{
	struct daemon *daemon = data;
	char rest[512];

	if (settings != NULL) {
		settings_reload(&daemon->settings, settings, rest, sizeof(rest));
		daemon->log.level = daemon->settings.log_level;
		daemon->access = *access;
		log_line(&daemon->log, LOG_LEVEL_NOTICE, "configuration reloaded file=%s%s%s",
		        settings->config[0] != '\0' ? settings->config : "none",
		        rest[0] != '\0' ? "; not before a restart: " : "", rest);
	}
	if (daemon->has_background) { /* what answers them is there */
		devices_read_kernels(&daemon->devices);
		devices_ask_again(&daemon->devices);
	}
	notify_send(&daemon->notify, "READY=1");
}

/* What the daemon has in the file system, which others can touch. */
static bool look_at_state(void *data)
{
	struct daemon *daemon = data;
	char code[280];

	if (daemon->stopping)
		return true;
	store_look(daemon->store);
	(void)snprintf(code, sizeof(code), "%s/code", daemon->settings.state_dir);
	return mkdir(code, 0700) == 0 || errno == EEXIST;
}

static void signalled(uv_signal_t *handle, int number)
{
	struct daemon *daemon = handle->data;

	if (number == SIGHUP) {
		if (daemon->stopping)
			return;
		reload_begin(&daemon->reload);
		watch_look(&daemon->state_watch);
		server_look(&daemon->server);
		return;
	}
	log_line(&daemon->log, LOG_LEVEL_INFO, "stopping signal=%d", number);
	daemon->again = false;
	stop(daemon);
}

static void publish_answer(void *data, const struct store_key *key)
{
	struct daemon *daemon = data;

	if (key != NULL)
		board_change(&daemon->board, board_stripe(key));
	else
		board_change_all(&daemon->board);
}

static void answers_changed(void *data, const struct store_key *key)
{
	struct daemon *daemon = data;

	if (daemon->has_methods && !daemon->stopping)
		subscriptions_changed(&daemon->methods.subscriptions, key);
}

static void published_answers(void *data, uint64_t generation)
{
	struct daemon *daemon = data;

	board_tell_generation(&daemon->board, generation);
}

static void store_mended(void *data)
{
	struct daemon *daemon = data;

	if (daemon->has_queue && !daemon->stopping)
		queue_store_mended(&daemon->queue);
}

static void store_broken(void *data)
{
	struct daemon *daemon = data;

	if (daemon->stopping)
		return;
	daemon->again = daemon->lives < LIVES_MAX;
	if (!daemon->again)
		daemon->status = EXIT_FAILURE;
	log_line(&daemon->log, LOG_LEVEL_ERROR, "the store was found damaged while in use: %s",
	        daemon->again ? "all is closed, to check and repair it, and begins again"
	                      : "for too often, so that this process ends");
	stop(daemon);
}

static void store_logs(void *data, int level, const char *message)
{
	const struct log *log = data;

	log_line(log, level, "%s", message);
}

/* ---- between the parts ---- */

static void device_settled(void *data, struct runner_slot *slot, bool changed)
{
	struct daemon *daemon = data;

	if (daemon->stopping)
		return;
	if (changed) {
		board_change_all(&daemon->board); /* another device may be the first now */
		subscriptions_changed(&daemon->methods.subscriptions, NULL);
	}
	queue_settled(&daemon->queue, slot);
	parked_settled(&daemon->methods.parked);
	background_settled(&daemon->background, slot);
}

static void device_doubted(void *data, struct runner_slot *slot)
{
	struct daemon *daemon = data;

	(void)slot;
	if (daemon->stopping)
		return;
	board_change_all(&daemon->board); /* what clients keep was of another device, as it may turn out */
	subscriptions_changed(&daemon->methods.subscriptions, NULL);
}

static void device_event(void *data, struct worker *worker, const struct ft_runner_event *event)
{
	struct daemon *daemon = data;

	if (!daemon->stopping)
		queue_runner_event(&daemon->queue, worker, event);
}

static void device_gone(
        void *data, struct worker *worker, enum runner_cause cause, const struct ft_error *why)
{
	struct daemon *daemon = data;

	if (daemon->stopping) {
		maybe_close_store(daemon);
		return;
	}
	/* In this order: the background lets go of the device, and who is given it then has met no death. */
	queue_runner_gone(&daemon->queue, worker, cause, why);
	background_runner_gone(&daemon->background, worker, cause);
}

static const struct devices_events devices_events = {
        .settled = device_settled,
        .doubted = device_doubted,
        .runner_event = device_event,
        .runner_gone = device_gone,
};

static void job_event(void *data, const struct ft_event *event)
{
	struct daemon *daemon = data;

	job_events_add(&daemon->server.watched, event);
}

static void queue_idle(void *data, struct device *device, bool disturbed)
{
	struct daemon *daemon = data;

	if (daemon->has_queue && !daemon->stopping)
		background_idle(&daemon->background, device, disturbed);
}

static void job_swept(void *data, const struct target *target, const struct ft_job *job, bool busy, bool away)
{
	struct daemon *daemon = data;

	background_swept(&daemon->background, target, job, busy, away);
}

static const struct queue_events queue_events = {
        .event = job_event,
        .idle = queue_idle,
        .swept = job_swept,
};

static bool client_at_once(void *data, struct session *session, struct ft_view bytes)
{
	struct daemon *daemon = data;

	return lookups_at_once(&daemon->methods.lookups, session, bytes);
}

static void client_message(void *data, struct session *session, const struct ft_envelope *envelope)
{
	struct daemon *daemon = data;

	methods_message(&daemon->methods, session, envelope);
}

static void client_batch_end(void *data, struct session *session)
{
	struct daemon *daemon = data;

	(void)session;
	methods_batch_end(&daemon->methods);
}

static bool client_owed(void *data, struct session *session)
{
	struct daemon *daemon = data;

	return methods_owed(&daemon->methods, session);
}

static void client_closed(void *data, struct session *session)
{
	struct daemon *daemon = data;

	if (daemon->has_queue)
		methods_session_closed(&daemon->methods, session);
}

static void clients_gone(void *data)
{
	maybe_close_store(data);
}

static const struct server_events server_events = {
        .at_once = client_at_once,
        .message = client_message,
        .batch_end = client_batch_end,
        .owed = client_owed,
        .closed = client_closed,
        .drained = clients_gone,
};

/* ---- the log ---- */

static void try_log(uv_timer_t *timer)
{
	struct daemon *daemon = timer->data;

	if (log_flush(&daemon->log))
		(void)uv_timer_stop(timer);
}

static void log_waits(void *data)
{
	struct daemon *daemon = data;

	if (daemon->has_loop && !uv_is_closing((uv_handle_t *)&daemon->log_timer))
		timer_repeat(&daemon->log_timer, try_log, LOG_TRIED_MS, LOG_TRIED_MS);
}

/* ---- start ---- */

static int start_signals(struct daemon *daemon, struct ft_error *error)
{
	for (size_t i = 0; i < PROCESS_SIGNALS; i++) {
		int status = uv_signal_start(&daemon->signals[i], signalled, process_signals[i]);

		if (status != 0)
			return ft_fail(error, FT_E_SYSTEM, "cannot watch for signal %d: %s",
			        process_signals[i], uv_strerror(status));
	}
	process_hold_signals(false);
	return 0;
}

static int start(struct daemon *daemon, struct ft_error *error)
{
	struct store_limits limits = store_limits_usual;
	struct store_options store_options = {
	        .limits = &limits,
	        .directory = daemon->settings.state_dir,
	        .map_bytes = daemon->settings.map_bytes,
	        .log = store_logs,
	        .log_data = &daemon->log,
	        .publish = publish_answer,
	        .published = published_answers,
	        .broken = store_broken,
	        .mended = store_mended,
	        .waits = store_waits,
	        .changed = answers_changed,
	        .changed_data = daemon,
	};
	int descriptor = -1;

	if (start_signals(daemon, error) != 0)
		return -1;
	if (daemon->lives++ == 0 &&
	        (notify_init(&daemon->notify, error) != 0 ||
	                notify_listen_socket(&daemon->listener, error) != 0))
		return -1;
	/* Closed with the server, while those who wait in its queue wait for the next life. */
	if (daemon->listener >= 0)
		descriptor = fcntl(daemon->listener, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (daemon->listener >= 0 && descriptor < 0)
		return ft_fail_errno(error, errno, "cannot use the socket");
	if (board_init(&daemon->board, error) != 0)
		return -1;
	if (daemon->board.descriptor < 0)
		log_line(&daemon->log, LOG_LEVEL_WARNING,
		        "a sandbox refuses set_robust_list: clients would not see this daemon die, so they "
		        "keep no answers and "
		        "ask for each");
	limits.history_ns = daemon->settings.history_days * 86400 * 1000000000;
	limits.history_rows = (uint32_t)daemon->settings.history_answers;
	if (store_open(&daemon->store, &daemon->loop, &store_options, error) != 0)
		return -1;
	board_tell_generation(&daemon->board, store_generation(daemon->store));
	faulted_store = daemon->store;
	process_watch_faults(mark_store);
	if (!look_at_state(daemon))
		return ft_fail_errno(error, errno, "cannot make %s/code", daemon->settings.state_dir);
	watch_start(&daemon->state_watch, &daemon->loop, daemon->settings.state_dir, look_at_state, daemon);
	daemon->has_devices = true;
	if (devices_init(&daemon->devices, &daemon->loop, &daemon->log, &daemon->settings, daemon->store,
	            &devices_events, daemon, error) != 0)
		return -1;
	daemon->has_server = true;
	if (server_init(&daemon->server, &daemon->loop, &daemon->log, &daemon->settings, &daemon->access,
	            descriptor, &server_events, daemon, error) != 0)
		return -1;
	if (background_init(&daemon->background, &daemon->loop, &daemon->devices, &daemon->queue,
	            daemon->store, &daemon->log, &daemon->settings, error) != 0)
		return -1;
	daemon->has_background = true;
	const struct context parts = {
	        .log = &daemon->log,
	        .settings = &daemon->settings,
	        .access = &daemon->access,
	        .store = daemon->store,
	        .devices = &daemon->devices,
	        .queue = &daemon->queue,
	        .background = &daemon->background,
	        .server = &daemon->server,
	        .board = &daemon->board,
	};
	daemon->has_methods = true;
	if (methods_init(&daemon->methods, &parts, error) != 0)
		return -1;
	if (queue_init(&daemon->queue, &daemon->loop, &daemon->devices, daemon->store, &daemon->log,
	            &daemon->settings, &queue_events, daemon, error) != 0)
		return -1;
	daemon->has_queue = true;
	background_settled(&daemon->background, NULL); /* devices that were known need not be probed */
	if (daemon->notify.watchdog_ns > 0)
		timer_repeat(&daemon->watchdog, feed_watchdog, daemon->notify.watchdog_ns / 2000000,
		        daemon->notify.watchdog_ns / 2000000);
	log_line(&daemon->log, LOG_LEVEL_INFO,
	        "ready version=%s pid=%d socket=%s state_dir=%s store=%s generation=%" PRIu64,
	        FLYTUNE_VERSION, (int)getpid(), daemon->settings.socket, daemon->settings.state_dir,
	        store_uuid(daemon->store), store_generation(daemon->store));
	notify_send(&daemon->notify, "READY=1\nSTATUS=Serving lookups");
	return 0;
}

static int check_store(const struct settings *settings)
{
	struct ft_error error;
	char report[1024];

	if (store_check(settings->state_dir, report, sizeof(report), &error) != 0) {
		(void)fprintf(stderr, "flytuned: %s\n", error.message);
		return EXIT_FAILURE;
	}
	(void)printf("%s\n", report);
	return EXIT_SUCCESS;
}

/* One life: all that belongs to one begins as zeros. */
static int live(struct daemon *daemon)
{
	struct ft_error error;
	int status;

	memset(&daemon->loop, 0, sizeof(*daemon) - offsetof(struct daemon, loop));
	daemon->again = false;
	daemon->board.descriptor = -1;
	daemon->reload = (struct reload){
	        .loop = &daemon->loop,
	        .log = &daemon->log,
	        .settings = &daemon->settings,
	        .argc = daemon->argc,
	        .argv = daemon->argv,
	        .begins = reload_begins,
	        .ended = reloaded,
	        .data = daemon,
	};
	status = uv_loop_init(&daemon->loop);
	if (status != 0) {
		log_line(&daemon->log, LOG_LEVEL_ERROR, "no event loop: %s", uv_strerror(status));
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < sizeof(daemon->signals) / sizeof(daemon->signals[0]); i++) {
		(void)uv_signal_init(&daemon->loop, &daemon->signals[i]);
		daemon->signals[i].data = daemon;
	}
	(void)uv_timer_init(&daemon->loop, &daemon->watchdog);
	daemon->watchdog.data = daemon;
	(void)uv_timer_init(&daemon->loop, &daemon->log_timer);
	daemon->log_timer.data = daemon;
	daemon->has_loop = true;
	if (daemon->lives == 0)
		log_line(&daemon->log, LOG_LEVEL_DEBUG, "loop priority nice=%d", priority_raise());
	if (start(daemon, &error) != 0) {
		log_line(&daemon->log, LOG_LEVEL_ERROR, "cannot start: %s", error.message);
		daemon->status = EXIT_FAILURE;
		stop(daemon);
	}
	(void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
	daemon->has_loop = false;
	if (daemon->reload.asking)
		return daemon->status;
	status = uv_loop_close(&daemon->loop);
	if (status != 0)
		log_line(
		        &daemon->log, LOG_LEVEL_ERROR, "the loop did not end clean: %s", uv_strerror(status));
	return status != 0 ? EXIT_FAILURE : daemon->status;
}

static int run(int argc, char **argv)
{
	static const char no_memory[] = "flytuned: no memory to start\n";
	struct daemon *daemon;
	struct ft_error error;
	int status;

	if (process_open_standard() != 0) {
		(void)fprintf(stderr, "flytuned: cannot open /dev/null: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	daemon = calloc(1, sizeof(*daemon));
	if (daemon == NULL) {
		(void)fputs(no_memory, stderr);
		return EXIT_FAILURE;
	}
	daemon->argc = argc;
	daemon->argv = argv;
	daemon->notify.socket = -1;
	daemon->listener = -1;
	switch (settings_parse(&daemon->settings, argc, argv, &error)) {
	case SETTINGS_DONE:
		free(daemon);
		return EXIT_SUCCESS;
	case SETTINGS_BAD:
		(void)fprintf(stderr, "flytuned: %s\n", error.message);
		free(daemon);
		return EXIT_BAD_USAGE;
	case SETTINGS_CHECK_STORE:
		status = check_store(&daemon->settings);
		free(daemon);
		return status;
	case SETTINGS_CHECK_CONFIG:
		status = check_print(&daemon->settings) > 0 ? EXIT_BAD_USAGE : EXIT_SUCCESS;
		free(daemon);
		return status;
	case SETTINGS_RUN:
		break;
	}
	if (!log_init(&daemon->log, daemon->settings.log_level, log_waits, daemon)) {
		(void)fputs(no_memory, stderr);
		free(daemon);
		return EXIT_FAILURE;
	}
	access_init(&daemon->access, &daemon->settings);
	(void)check_host(&daemon->settings, log_fault, &daemon->log);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error of the store, as a full disk is */
	(void)umask(0077);
	process_raise_descriptors(&daemon->settings.descriptors);
	do
		status = live(daemon);
	while (status == EXIT_SUCCESS && daemon->again);
	notify_free(&daemon->notify);
	if (status == EXIT_SUCCESS)
		log_line(&daemon->log, LOG_LEVEL_INFO, "stopped");
	log_free(&daemon->log);
	/* All is stored and closed. The thread that asks cannot be called back, and libuv's end waits for it. */
	if (daemon->reload.asking)
		_exit(status);
	free(daemon);
	return status;
}

int main(int argc, char **argv)
{
	process_reset_signals();
	return stack_run(run, argc, argv);
}
