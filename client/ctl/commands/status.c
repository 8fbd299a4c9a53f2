/* flytunectl status, flytunectl devices */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/format.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/table.h"

static void print_devices(const flytune_device_list *devices)
{
	static const char *const head[] = {"DEVICE", "STATE", "NAME", "ARCH", ">UNITS", ">MEMORY", "RUNNER",
	        ">PID", "HELD BY", ">JOB", "REASON"};
	struct flytune_device device;
	struct table table;
	char memory[FORMAT_SIZE];

	table_init(&table, head, sizeof head / sizeof *head);
	flytune_device_init(&device);
	for (size_t i = 0; flytune_device_list_get(devices, i, &device); i++) {
		table_add(&table, "%s", device.id);
		table_add(&table, "%s", device.state);
		table_add(&table, "%s", device.name);
		table_add(&table, "%s", device.arch);
		table_count(&table, device.units);
		table_add(&table, "%s", device.memory != 0 ? format_bytes(device.memory, memory) : "");
		table_add(&table, "%s", device.runner);
		table_count(&table, device.runner_pid);
		table_add(&table, "%s", device.holder);
		table_count(&table, device.job);
		table_add(&table, "%s", device.reason);
	}
	if (flytune_device_list_count(devices) == 0)
		puts("no device");
	else
		table_print(&table);
}

static void status_members(struct document *json, const struct flytune_status_info *status)
{
	char token[128];

	snprintf(token, sizeof token, "%s:%" PRIu64, status->store, status->generation);
	document_text(json, "server", status->server);
	document_count(json, "protocol", status->protocol);
	document_count(json, "pid", status->pid);
	document_real(json, "uptime_s", (double)status->uptime_ns / 1e9);
	document_text(json, "store", status->store);
	document_count(json, "generation", status->generation);
	document_text(json, "token", token);
	document_text(json, "state_dir", status->state_dir);
	document_count(json, "store_bytes", status->store_bytes);
	document_count(json, "store_limit", status->store_limit);
	document_count(json, "answers", status->answers);
	document_count(json, "damaged", status->damaged);
	document_count(json, "sessions", status->sessions);
	document_object(json, "jobs");
	document_count(json, "queued", status->jobs_queued);
	document_count(json, "running", status->jobs_running);
	document_end(json);
	document_bool(json, "paused", status->paused);
	document_count(json, "runner_restarts", status->runner_restarts);
	document_object(json, "lookups");
	for (int i = FLYTUNE_SOURCE_PINNED; i <= FLYTUNE_SOURCE_RECORDED; i++)
		document_count(json, flytune_source_word((enum flytune_source)i), status->lookups[i]);
	document_end(json);
	document_text(json, "degraded", status->degraded);
	document_text(json, "access", status->access);
	document_object(json, "background");
	document_text(json, "state", status->background);
	document_count(json, "waiting", status->background_waiting);
	document_count(json, "dropped", status->background_dropped);
	document_end(json);
	if (status->stale_known)
		document_count(json, "stale", status->stale);
	else
		document_null(json, "stale");
	document_count(json, "misses", status->misses);
	json_text(json, "config", status->config);
	document_count(json, "sessions_limit", status->sessions_limit);
	document_count(json, "user_sessions_limit", status->user_sessions_limit);
	document_count(json, "sessions_refused", status->sessions_refused);
	document_object(json, "busiest_user");
	document_count(json, "uid", status->busiest_user);
	document_count(json, "sessions", status->busiest_sessions);
	document_end(json);
}

/* The state before the devices, or the devices alone with NULL. */
static void print_json(const struct flytune_status_info *status, const flytune_device_list *devices)
{
	struct document json = {0};

	document_object(&json, NULL);
	if (status != NULL)
		status_members(&json, status);
	json_devices(&json, "devices", devices);
	document_end(&json);
	document_print(&json);
}

static const char *stale_words(const struct flytune_status_info *status, char text[FORMAT_SIZE])
{
	text[0] = '\0';
	if (!status->stale_known)
		snprintf(text, FORMAT_SIZE, ", the stale ones are being counted");
	else if (status->stale > 0)
		snprintf(text, FORMAT_SIZE, ", %" PRIu64 " stale", status->stale);
	return text;
}

static void print_sessions(struct table *table, const struct flytune_status_info *status)
{
	/* An older daemon reports no limit. */
	if (status->sessions_limit == 0)
		table_fact(table, "sessions", "%" PRIu64, status->sessions);
	else
		table_fact(table, "sessions",
		        "%" PRIu64 " of %" PRIu64 ", user %" PRIu64 " has %" PRIu64 " of %" PRIu64
		        ", %" PRIu64 " refused",
		        status->sessions, status->sessions_limit, status->busiest_user,
		        status->busiest_sessions, status->user_sessions_limit, status->sessions_refused);
}

static void print_status(const struct flytune_status_info *status, const flytune_device_list *devices)
{
	struct table table;
	char text[FORMAT_SIZE], limit[FORMAT_SIZE];

	table_init(&table, NULL, 2);
	table_fact(&table, "server", "%s, pid %" PRIu64 ", up %s", status->server, status->pid,
	        format_duration(status->uptime_ns, text));
	table_fact(&table, "degraded", "%s", status->degraded);
	table_fact(&table, "store", "%s: %s of %s (%.1f %%)", status->state_dir,
	        format_bytes(status->store_bytes, text), format_bytes(status->store_limit, limit),
	        status->store_limit == 0 ? 0.0
	                                 : 100.0 * (double)status->store_bytes / (double)status->store_limit);
	table_fact(&table, "answers", "%" PRIu64 " problem%s%s", status->answers,
	        status->answers == 1 ? "" : "s", stale_words(status, text));
	if (status->damaged > 0)
		table_fact(&table, "damaged", "%" PRIu64 " records", status->damaged);
	table_fact(&table, "generation", "%s:%" PRIu64, status->store, status->generation);
	table_fact(&table, "jobs", "%" PRIu64 " running, %" PRIu64 " queued%s", status->jobs_running,
	        status->jobs_queued, status->paused ? ", paused" : "");
	if (status->background_waiting > 0 || status->background_dropped > 0)
		table_fact(&table, "background",
		        "%" PRIu64 " problem%s waiting, %" PRIu64 " dropped for want of room; %s",
		        status->background_waiting, status->background_waiting == 1 ? "" : "s",
		        status->background_dropped,
		        status->background[0] != '\0' ? status->background : "idle");
	table_fact(&table, "lookups",
	        "%" PRIu64 " pinned, %" PRIu64 " tuned, %" PRIu64 " imported, %" PRIu64 " nearest, %" PRIu64
	        " default",
	        status->lookups[FLYTUNE_SOURCE_PINNED], status->lookups[FLYTUNE_SOURCE_TUNED],
	        status->lookups[FLYTUNE_SOURCE_IMPORTED], status->lookups[FLYTUNE_SOURCE_NEAREST],
	        status->lookups[FLYTUNE_SOURCE_DEFAULT]);
	table_fact(&table, "misses", "%" PRIu64, status->misses);
	table_fact(&table, "access", "%s", status->access);
	table_fact(&table, "config", "%s", status->config);
	print_sessions(&table, status);
	if (status->runner_restarts > 0)
		table_fact(&table, "runners", "%" PRIu64 " restarted", status->runner_restarts);
	table_print(&table);
	puts("");
	print_devices(devices);
}

static enum ctl_exit run_status(struct ctl *ctl, int count, char **words)
{
	struct flytune_status_info status;
	flytune_device_list *devices;
	struct flytune_error error;

	if (count > 0)
		return stray_word(&command_status, words[0]);
	flytune_status_info_init(&status);
	if (flytune_status(ctl->client, &status, &devices, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_json(&status, devices);
	else
		print_status(&status, devices);
	flytune_device_list_free(devices);
	return CTL_DONE;
}

const struct command command_status = {
        .name = "status",
        .words = "",
        .help = "Show how the daemon, its store, jobs and devices are",
        .run = run_status,
};

static enum ctl_exit run_devices(struct ctl *ctl, int count, char **words)
{
	flytune_device_list *devices;
	struct flytune_error error;

	if (count > 0)
		return stray_word(&command_devices, words[0]);
	if (flytune_devices(ctl->client, &devices, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		print_json(NULL, devices);
	else
		print_devices(devices);
	flytune_device_list_free(devices);
	return CTL_DONE;
}

const struct command command_devices = {
        .name = "devices",
        .words = "",
        .help = "List the devices that can be tuned for",
        .run = run_devices,
};
