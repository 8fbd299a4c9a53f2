/* What works a device: its runner, and who has the device. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/devices/internal.h"
#include "daemon/host/bug.h"

struct worker *worker_new(
        struct runner_slot *slot, const struct runner_events *events, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct worker *worker = NULL;

	if (devices->worker_count == WORKERS_MAX) {
		(void)ft_fail(error, FT_E_UNAVAILABLE,
		        "%d devices have come and gone, which is the most: restart the daemon", WORKERS_MAX);
		return NULL;
	}
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a device's runner");
		return NULL;
	}
	if (runner_init(&worker->runner, devices->loop, devices->log, devices->settings, slot->kind,
	            slot->path, events, worker, error) != 0) {
		free(worker);
		return NULL;
	}
	worker->runner.kernels = &devices->kernels;
	worker->slot = slot;
	worker->number = devices->worker_count;
	devices->worker[devices->worker_count++] = worker;
	return worker;
}

struct worker *worker_of(struct runner_slot *slot, const char *id, struct ft_error *error)
{
	struct devices *devices = slot->devices;
	struct worker *worker = NULL;

	for (uint32_t i = 0; i < devices->worker_count; i++) {
		struct worker *other = devices->worker[i];

		if (other->slot != slot)
			continue;
		if (strcmp(other->device, id) == 0)
			return other;
		if (other->device[0] == '\0')
			worker = other;
	}
	if (worker == NULL)
		worker = worker_new(slot, slot->first->runner.events, error);
	if (worker != NULL)
		(void)snprintf(worker->device, sizeof(worker->device), "%s", id);
	return worker;
}

bool slot_runs(const struct runner_slot *slot)
{
	const struct devices *devices = slot->devices;

	for (uint32_t i = 0; devices != NULL && i < devices->worker_count; i++) {
		if (devices->worker[i]->slot == slot && devices->worker[i]->runner.state != RUNNER_OFF)
			return true;
	}
	return false;
}

void slot_kill_runners(struct runner_slot *slot, const char *why)
{
	struct devices *devices = slot->devices;

	for (uint32_t i = 0; i < devices->worker_count; i++) {
		if (devices->worker[i]->slot == slot)
			runner_kill(&devices->worker[i]->runner, RUNNER_ASKED, "%s", why);
	}
}

bool worker_hold(struct worker *worker, enum device_holder holder, uint64_t job)
{
	if (!bug_unless(worker->runner.log, device_holder_may_go(worker->holder, holder),
	            "device %s cannot go from \"%s\" of job %" PRIu64 " to \"%s\" of job %" PRIu64,
	            worker->device, device_holder_word(worker->holder), worker->job,
	            device_holder_word(holder), job))
		return false;
	worker->holder = holder;
	worker->job = holder == HOLDER_NONE ? 0 : job;
	return true;
}

void workers_close(struct devices *devices)
{
	for (uint32_t i = 0; i < devices->worker_count; i++)
		runner_close(&devices->worker[i]->runner, free);
	devices->worker_count = 0;
}
