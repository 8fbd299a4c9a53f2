/* Figures for a monitoring system: counted where things happen, written as a page in the Prometheus text format. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/host/bug.h"
#include "daemon/methods/status.h"
#include "proto/clock.h"

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
	uint64_t running = queue->running;

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
	const struct connection_limits *limits = &server->limits;

	one(page, "sessions", "gauge", "Connections of clients.", server->count);
	one(page, "sessions_limit", "gauge", "Connections that are served at once.", limits->most);
	one(page, "user_sessions_limit", "gauge", "Of these, of one user who is no administrator.",
	        connection_limits_share(limits));
	head(page, "user_sessions", "gauge", "Connections of each user who has any.");
	for (uint32_t i = 0; i < limits->length; i++) {
		char user[16];

		(void)snprintf(user, sizeof(user), "%" PRIu32, limits->list[i].user);
		labelled(page, "user_sessions", "uid", user, limits->list[i].count);
	}
	one(page, "sessions_total", "counter", "Connections of clients so far.", (double)server->accepted);
	head(page, "sessions_refused_total", "counter",
	        "Connections that were one too many, by what was short.");
	labelled(page, "sessions_refused_total", "short", "max_clients",
	        limits->refused[CONNECTION_LIMITS_FULL]);
	labelled(page, "sessions_refused_total", "short", "clients_per_user",
	        limits->refused[CONNECTION_LIMITS_USER]);
	labelled(page, "sessions_refused_total", "short", "descriptors", server->undescribed);
}

/* To be freed; NULL when out of memory. */
static char *metrics_page(struct reports *reports, size_t *length)
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
