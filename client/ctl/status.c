/* flytunectl status, flytunectl devices */
#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/table.h"

static void print_devices(const flytune_device_list *devices)
{
	static const char *const head[] = {
	        "DEVICE", "STATE", "NAME", "ARCH", ">UNITS", ">MEMORY", "RUNNER", ">PID", "REASON"};
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
		table_add(&table, "%s", device.reason);
	}
	if (flytune_device_list_count(devices) == 0)
		puts("no device");
	else
		table_print(&table);
}

static int print_status_json(const struct flytune_status *status, const flytune_device_list *devices)
{
	json_t *lookups = json_pack("{s:I, s:I, s:I, s:I, s:I}", "pinned", (json_int_t)status->pinned,
	        "tuned", (json_int_t)status->tuned, "imported", (json_int_t)status->imported, "nearest",
	        (json_int_t)status->nearest, "default", (json_int_t)status->standard);
	char token[128];

	snprintf(token, sizeof token, "%s:%" PRIu64, status->store, status->generation);
	return json_print(json_pack(
	        "{s:s, s:I, s:I, s:f, s:s, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:b, "
	        "s:I, s:o, s:s, s:s, s:{s:s, s:I, s:I}, s:o, s:I, s:o, s:I, s:I, s:I, s:{s:I, s:I}, s:o}",
	        "server", status->server, "protocol", (json_int_t)status->protocol, "pid",
	        (json_int_t)status->pid, "uptime_s", (double)status->uptime_ns / 1e9, "store", status->store,
	        "generation", (json_int_t)status->generation, "token", token, "state_dir", status->state_dir,
	        "store_bytes", (json_int_t)status->store_bytes, "store_limit",
	        (json_int_t)status->store_limit, "answers", (json_int_t)status->answers, "damaged",
	        (json_int_t)status->damaged, "sessions", (json_int_t)status->sessions, "jobs", "queued",
	        (json_int_t)status->jobs_queued, "running", (json_int_t)status->jobs_running, "paused",
	        status->paused, "runner_restarts", (json_int_t)status->runner_restarts, "lookups", lookups,
	        "degraded", status->degraded, "access", status->access, "background", "state",
	        status->background, "waiting", (json_int_t)status->background_waiting, "dropped",
	        (json_int_t)status->background_dropped, "stale",
	        status->stale_known ? json_integer((json_int_t)status->stale) : json_null(), "misses",
	        (json_int_t)status->misses, "config", json_text(status->config), "sessions_limit",
	        (json_int_t)status->sessions_limit, "user_sessions_limit",
	        (json_int_t)status->user_sessions_limit, "sessions_refused",
	        (json_int_t)status->sessions_refused, "busiest_user", "uid", (json_int_t)status->busiest_user,
	        "sessions", (json_int_t)status->busiest_sessions, "devices", json_devices(devices)));
}

static const char *stale_words(const struct flytune_status *status, char text[FORMAT_SIZE])
{
	text[0] = '\0';
	if (!status->stale_known)
		snprintf(text, FORMAT_SIZE, ", the stale ones are being counted");
	else if (status->stale > 0)
		snprintf(text, FORMAT_SIZE, ", %" PRIu64 " stale", status->stale);
	return text;
}

static void print_sessions(struct table *table, const struct flytune_status *status)
{
	/* A daemon of before tells no limit. */
	if (status->sessions_limit == 0)
		table_fact(table, "sessions", "%" PRIu64, status->sessions);
	else
		table_fact(table, "sessions",
		        "%" PRIu64 " of %" PRIu64 ", user %" PRIu64 " has %" PRIu64 " of %" PRIu64
		        ", %" PRIu64 " refused",
		        status->sessions, status->sessions_limit, status->busiest_user,
		        status->busiest_sessions, status->user_sessions_limit, status->sessions_refused);
}

static void print_status(const struct flytune_status *status, const flytune_device_list *devices)
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
	        status->pinned, status->tuned, status->imported, status->nearest, status->standard);
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
	struct flytune_status status;
	flytune_device_list *devices;
	struct flytune_error error;
	int failed = 0;

	if (count > 0)
		return ctl_usage(&command_status, "'%s' is not understood", words[0]);
	flytune_status_init(&status);
	if (flytune_status(ctl->client, &status, &devices, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		failed = print_status_json(&status, devices);
	else
		print_status(&status, devices);
	flytune_device_list_free(devices);
	return failed != 0 ? CTL_FAILED : CTL_DONE;
}

const struct command command_status = {
        .name = "status",
        .words = "",
        .help = "Tell how the daemon, its store, jobs and devices are",
        .run = run_status,
};

static enum ctl_exit run_devices(struct ctl *ctl, int count, char **words)
{
	flytune_device_list *devices;
	struct flytune_error error;
	int failed = 0;

	if (count > 0)
		return ctl_usage(&command_devices, "'%s' is not understood", words[0]);
	if (flytune_devices(ctl->client, &devices, &error) != FLYTUNE_OK)
		return ctl_fail(ctl, &error);
	if (ctl->json)
		failed = json_print(json_pack("{s:o}", "devices", json_devices(devices)));
	else
		print_devices(devices);
	flytune_device_list_free(devices);
	return failed != 0 ? CTL_FAILED : CTL_DONE;
}

const struct command command_devices = {
        .name = "devices",
        .words = "",
        .help = "List the devices that can be tuned for",
        .run = run_devices,
};
