#include "daemon/methods/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/host/bug.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

/* ---- the page ---- */

static void head(FILE *page, const char *name, const char *type, const char *help)
{
	(void)fprintf(page, "# HELP flytune_%s %s\n# TYPE flytune_%s %s\n", name, help, name, type);
}

static void one(FILE *page, const char *name, const char *type, const char *help, double value)
{
	head(page, name, type, help);
	(void)fprintf(page, "flytune_%s %.17g\n", name, value);
}

static void labelled(FILE *page, const char *name, const char *label, const char *word, uint64_t value)
{
	(void)fprintf(page, "flytune_%s{%s=\"%s\"} %" PRIu64 "\n", name, label, word, value);
}

static void write_histogram(FILE *page, const char *name, const char *help, const struct histogram *histogram)
{
	uint64_t count = 0;

	head(page, name, "histogram", help);
	for (int i = 0; i < HISTOGRAM_BOUNDS; i++) {
		count += histogram->count[i];
		(void)fprintf(page, "flytune_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
		        (double)histogram_bound(i) / 1e9, count);
	}
	count += histogram->count[HISTOGRAM_BOUNDS];
	(void)fprintf(page,
	        "flytune_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nflytune_%s_sum %.9f\nflytune_%s_count %" PRIu64
	        "\n",
	        name, count, name, (double)histogram->sum_ns / 1e9, name, count);
}

static void write_lookups(FILE *page, const struct context *context, struct lookups *lookups)
{
	lookups_add_untimed(lookups);
	head(page, "lookups_total", "counter", "Lookups answered, by where the answer came from.");
	for (int source = 0; source < LOOKUP_SOURCES; source++)
		labelled(page, "lookups_total", "source", lookup_source_words[source],
		        lookups->by_source[source]);
	one(page, "lookups_refused_total", "counter", "Lookups that ended in an error.",
	        (double)lookups->refused);
	one(page, "misses_total", "counter",
	        "Lookups of problems without a result of their own, those counted that clients answered.",
	        (double)lookups->misses.asked);
	one(page, "denied_total", "counter", "Requests of users who may not.", (double)context->denied);
	write_histogram(page, "lookup_seconds",
	        "Time in the daemon for a lookup: the mean of those that came together, and of those alone "
	        "each 16th as measured.",
	        &lookups->latency);
}

static void write_queue(FILE *page, const struct queue *queue)
{
	uint64_t running = queue->running != NULL ? 1 : 0;

	head(page, "jobs", "gauge", "Jobs that have not ended, by state.");
	labelled(page, "jobs", "state", "queued", queue_waiting(queue));
	labelled(page, "jobs", "state", "running", running);
	head(page, "jobs_ended_total", "counter", "Jobs that ended, by how.");
	for (int outcome = 0; outcome < JOB_OUTCOMES; outcome++)
		labelled(page, "jobs_ended_total", "state", job_outcome_words[outcome], queue->ends[outcome]);
	write_histogram(page, "sweep_seconds", "Time that the sweep of a job took, over all its starts.",
	        &queue->sweeps);
	one(page, "bugs_total", "counter",
	        "States that cannot be, and were done without: please report the log's line.",
	        (double)atomic_load(&bugs_seen));
	one(page, "queue_paused", "gauge", "Whether the queue is paused.", queue->paused ? 1 : 0);
	head(page, "runners_gone_total", "counter", "Runners that ended, by cause.");
	for (int cause = 0; cause <= RUNNER_UNSTARTED; cause++)
		labelled(page, "runners_gone_total", "cause", runner_cause_word((enum runner_cause)cause),
		        queue->gone[cause]);
	one(page, "runner_restarts_total", "counter", "Runners started again in the middle of a sweep.",
	        (double)queue->restarts);
}

static void write_store(FILE *page, struct store *store, struct stale_count *stale_count)
{
	struct store_facts facts;
	uint64_t stale;

	store_facts(store, &facts);
	one(page, "store_bytes", "gauge", "Bytes used of the store's map.", (double)facts.bytes);
	one(page, "store_limit_bytes", "gauge", "Size of the store's map.", (double)facts.limit);
	one(page, "store_answers", "gauge", "Problems with an answer of their own.", (double)facts.answers);
	if (stale_count_get(stale_count, &stale))
		one(page, "store_stale_answers", "gauge",
		        "Answers tuned under an identity that is none of today's.", (double)stale);
	one(page, "store_commits_total", "counter", "Transactions committed.", (double)facts.commits);
	one(page, "store_damaged_total", "counter", "Records found damaged.", (double)facts.damaged);
	one(page, "store_degraded", "gauge", "Whether the store cannot be written as it should.",
	        facts.degraded[0] != '\0' ? 1 : 0);
	one(page, "generation", "gauge", "Counter of changes of answers.", (double)store_generation(store));
}

static void write_devices(FILE *page, const struct devices *devices)
{
	head(page, "device_ready", "gauge", "Whether a device can be tuned for.");
	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->device[i];

		(void)fprintf(page, "flytune_device_ready{device=\"%s\",kind=\"%s\"} %d\n", device->shown.id,
		        device->shown.kind, device->state == DEVICE_READY ? 1 : 0);
	}
}

static void write_sessions(FILE *page, const struct server *server)
{
	const struct client_limits *limits = &server->limits;

	one(page, "sessions", "gauge", "Connections of clients.", server->count);
	one(page, "sessions_limit", "gauge", "Connections that are served at once.", limits->most);
	one(page, "user_sessions_limit", "gauge", "Of these, of one user who is no administrator.",
	        client_limits_share(limits));
	head(page, "user_sessions", "gauge", "Connections of each user who has any.");
	for (uint32_t i = 0; i < limits->length; i++) {
		char user[16];

		(void)snprintf(user, sizeof(user), "%" PRIu32, limits->list[i].user);
		labelled(page, "user_sessions", "uid", user, limits->list[i].count);
	}
	one(page, "sessions_total", "counter", "Connections of clients so far.", (double)server->accepted);
	head(page, "sessions_refused_total", "counter",
	        "Connections that were one too many, by what was short.");
	labelled(page, "sessions_refused_total", "short", "max_clients", limits->refused[CLIENT_LIMITS_FULL]);
	labelled(page, "sessions_refused_total", "short", "clients_per_user",
	        limits->refused[CLIENT_LIMITS_USER]);
	labelled(page, "sessions_refused_total", "short", "descriptors", server->undescribed);
}

char *metrics_page(struct reports *reports, size_t *length)
{
	const struct context *context = reports->context;
	char *text = NULL;
	FILE *page = open_memstream(&text, length);

	if (page == NULL)
		return NULL;
	head(page, "info", "gauge", "Version and store.");
	(void)fprintf(page, "flytune_info{version=\"%s\",store=\"%s\"} 1\n", FLYTUNE_VERSION,
	        store_uuid(context->store));
	one(page, "uptime_seconds", "gauge", "Since the daemon's start.",
	        (double)(ft_monotonic_ns() - context->started_ns) / 1e9);
	write_lookups(page, context, reports->lookups);
	write_queue(page, context->queue);
	write_store(page, context->store, &reports->stale_count);
	write_devices(page, context->devices);
	write_sessions(page, context->server);
	one(page, "subscriptions", "gauge", "Answers that clients subscribe to.",
	        reports->subscriptions->count);
	one(page, "subscription_notices_total", "counter", "Changed answers that subscribers were told of.",
	        (double)reports->subscriptions->told);
	if (fclose(page) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

void method_metrics(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_metrics_reply reply;
	struct ft_error error;
	size_t length;
	char *text = metrics_page(group, &length);

	if (text == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the metrics");
		session_fail(session, envelope->id, &error);
		return;
	}
	reply.page = (struct ft_view){(const uint8_t *)text, length};
	session_reply(session, envelope->id, &ft_metrics_reply_message, &reply);
	free(text);
}

/* ---- the file ---- */

/* On a thread of the loop's pool, since a disk may be slow. Beside the file, then in its place: whoever reads
 * it never sees a half. */
static void write_file(uv_work_t *work)
{
	struct metrics_file *file = work->data;
	char beside[sizeof(file->path) + 8];
	struct stat facts;
	int descriptor;

	file->fault = 0;
	/* Nothing but a file is replaced: a daemon that root runs could take /dev/null away from everybody. */
	if (lstat(file->path, &facts) == 0 && !S_ISREG(facts.st_mode)) {
		file->fault = EEXIST;
		return;
	}
	(void)snprintf(beside, sizeof(beside), "%s.new", file->path);
	descriptor = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (descriptor < 0) {
		file->fault = errno;
		return;
	}
	errno = EIO;
	/* Whatever the daemon's own mask: the collector is another user. */
	if (fchmod(descriptor, 0644) != 0 ||
	        write(descriptor, file->text, file->length) != (ssize_t)file->length)
		file->fault = errno;
	if (close(descriptor) != 0 && file->fault == 0)
		file->fault = errno;
	if (file->fault == 0 && rename(beside, file->path) != 0)
		file->fault = errno;
	if (file->fault != 0)
		(void)unlink(beside);
}

static void written(uv_work_t *work, int status)
{
	struct metrics_file *file = work->data;
	const struct log *log = file->reports->context->log;

	(void)status;
	file->writing = false;
	free(file->text);
	file->text = NULL;
	if (file->fault != 0 && !file->failed)
		log_line(log, LOG_LEVEL_WARNING, "metrics cannot be written file=%s: %s", file->path,
		        strerror(file->fault));
	else if (file->fault == 0 && file->failed)
		log_line(log, LOG_LEVEL_INFO, "metrics are written again file=%s", file->path);
	file->failed = file->fault != 0;
}

static void begin_write(uv_timer_t *timer)
{
	struct metrics_file *file = timer->data;
	sigset_t all, before;
	int status;

	if (file->writing)
		return;
	file->text = metrics_page(file->reports, &file->length);
	if (file->text == NULL)
		return; /* the next time, perhaps */
	(void)snprintf(file->path, sizeof(file->path), "%s", file->reports->context->options->metrics_file);
	file->writing = true;
	/* The first time starts threads, and they inherit what is held back: signals are the loop thread's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	status = uv_queue_work(timer->loop, &file->work, write_file, written);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (status != 0) {
		file->writing = false;
		free(file->text);
		file->text = NULL;
	}
}

void metrics_file_configure(struct metrics_file *file)
{
	const struct options *options = file->reports->context->options;
	uint64_t interval_ms = options->metrics_interval_ns / 1000000;

	if (interval_ms == 0)
		interval_ms = 1;
	if (options->metrics_file[0] != '\0')
		timer_repeat(&file->timer, begin_write, 0, interval_ms);
	else
		(void)uv_timer_stop(&file->timer);
}

int metrics_file_init(struct metrics_file *file, struct reports *reports, struct ft_error *error)
{
	int status;

	*file = (struct metrics_file){.reports = reports};
	status = uv_timer_init(reports->context->server->loop, &file->timer);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	file->timer.data = file;
	file->work.data = file;
	metrics_file_configure(file);
	return 0;
}

void metrics_file_stop(struct metrics_file *file)
{
	uv_close((uv_handle_t *)&file->timer, NULL);
}
