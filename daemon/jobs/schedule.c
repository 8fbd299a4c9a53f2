/* Which job a device takes next, and who makes way for whom. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/bug.h"
#include "daemon/host/timer.h"
#include "daemon/jobs/internal.h"
#include "proto/clock.h"

/* Jobs of one command come within this time. */
static const uint64_t together_ns = 10000000000;

/* A device whose runner failed rests for so long, at first and at the most. */
static const uint64_t rest_first_ns = 1000000000, rest_last_ns = 300000000000;

/* Where others may use all of the device, one round at a time with a wait after each would be all that came of making
 * way: nothing would ever be done. */
static bool shares_device(const struct settings *settings)
{
	return settings->background == SETTINGS_BACKGROUND_ALWAYS || settings->background_load >= 100;
}

/* ---- what a device is at ---- */

static void sweep_event(void *data, struct ft_event *event)
{
	struct active *active = data;
	struct queue *queue = active->queue;

	if (active->running != NULL)
		queue->restarts += strcmp(event->event, "restarted") == 0 ? 1 : 0;
	(void)snprintf(event->state, sizeof(event->state), "running");
	queue->events->event(queue->data, event);
	if (active->running == NULL)
		return;
	queue_show_holder(active);
	if (job_is_background(active->running) && !shares_device(queue->settings) &&
	        sweep_is_disturbed(active->sweep)) {
		active->disturbed = true;
		queue_make_way(active);
	}
}

static const struct sweep_events sweep_events = {
        .event = sweep_event, .refused = queue_sweep_refused, .ended = queue_sweep_ended};

static struct active *active_of(struct queue *queue, struct worker *worker)
{
	struct active *active = queue->active[worker->number];

	if (active != NULL)
		return active;
	active = calloc(1, sizeof(*active));
	if (active == NULL)
		return NULL;
	*active = (struct active){.queue = queue, .worker = worker};
	active->sweep = sweep_new(queue->loop, queue->devices, queue->store, queue->log, queue->settings,
	        &sweep_events, active, NULL);
	if (active->sweep == NULL) {
		free(active);
		return NULL;
	}
	queue->active[worker->number] = active;
	return active;
}

static enum device_holder holder_of(const struct job *job)
{
	return job_is_background(job) ? HOLDER_BACKGROUND : job->info.check ? HOLDER_CHECK : HOLDER_SWEEP;
}

void queue_show_holder(const struct active *active)
{
	enum device_holder holder = holder_of(active->running);

	if (active->worker->holder != holder)
		(void)worker_hold(active->worker, holder, active->running->info.job);
}

/* The rest of a scale field that one command asked for: it shares what the device was given for the first, and cannot put
 * others off for longer than that command could. */
static bool follows(const struct active *active, const struct job *job)
{
	uint64_t created = job->info.created_at_ns, first = active->first_created_ns;

	/* Either way: one of a higher priority may have gone before those that are older. */
	return job->keyed && job->key.kernel == active->first.kernel &&
	        job->key.device == active->first.device &&
	        memcmp(job->key.problem.hash, active->first.problem.hash, sizeof(job->key.problem.hash)) ==
	        0 &&
	        job->info.owner == active->first_owner &&
	        (created > first ? created - first : first - created) < together_ns;
}

static void take_device(struct active *active, struct job *job, const struct device *device)
{
	struct queue *queue = active->queue;

	job->active = active;
	active->running = job;
	queue->running++;
	queue_show_holder(active);
	if (!follows(active, job)) {
		active->first = job->keyed ? job->key : (struct store_key){0};
		active->first_owner = (uint32_t)job->info.owner;
		active->first_created_ns = job->info.created_at_ns;
	}
	if (device != NULL)
		memcpy(job->info.device, device->shown.id, sizeof(job->info.device));
}

void queue_leave_device(struct job *job)
{
	struct active *active = job->active;
	struct queue *queue = job->queue;

	active->running = NULL;
	job->active = NULL;
	queue->running--;
	(void)worker_hold(active->worker, HOLDER_NONE, 0);
	for (struct job *other = queue->jobs.first; other != NULL; other = other->next) {
		if (other->way == active)
			other->way = NULL;
	}
	if (job->state == JOB_WAITS)
		memcpy(job->info.device, job->home, sizeof(job->info.device));
	if (queue->running == 0)
		queue_call_pauses(queue, NULL);
}

/* ---- the next job ---- */

static bool before(const struct active *active, const struct job *a, const struct job *b)
{
	if (a->info.priority != b->info.priority)
		return a->info.priority > b->info.priority;
	if (follows(active, a) != follows(active, b))
		return follows(active, a);
	return a->info.job < b->info.job;
}

static bool waits(const struct job *job, bool background)
{
	return job->state == JOB_WAITS && job->stored && job_is_background(job) == background;
}

static bool rests(const struct queue *queue, const struct device *device)
{
	const struct active *active = queue->active[device->worker->number];

	return active != NULL && active->rest.until_ns > 0 && active->rest.until_ns > ft_monotonic_ns();
}

static bool was_lost(const struct job *job, const struct worker *worker)
{
	for (int i = 0; i < LOST_MAX; i++) {
		if (job->lost[i] == worker)
			return true;
	}
	return false;
}

/* Leaves it to an equal device: its own runner failed, at this job or lately, and another's did not. Without a job: whether it
 * would leave any. */
static bool yields(const struct queue *queue, const struct device *device, const struct job *job)
{
	const struct devices *devices = queue->devices;
	bool lost = job != NULL && was_lost(job, device->worker);
	bool tired = rests(queue, device);

	for (uint32_t i = 0; i < devices->count && (lost || tired); i++) {
		const struct device *other = devices->device[i];

		if (other->worker != device->worker && devices_equal(other, device) &&
		        (job == NULL || !was_lost(job, other->worker)) && (lost || !rests(queue, other)))
			return true;
	}
	return false;
}

/* On its own device; on an equal one where it named none. */
static bool may_run(const struct queue *queue, const struct job *job, const struct device *device)
{
	const struct device *home = devices_find(queue->devices, job->home, NULL);

	if (home == NULL) /* it fails, and says why, wherever that is */
		return !devices_probing(queue->devices);
	if (home == device && home->state == DEVICE_PROBING) /* its runner is still being probed */
		return false;
	if (job->info.named)
		return home == device;
	return (home == device || devices_equal(home, device)) && !yields(queue, device, job);
}

/* One that was cancelled may have its device still when another asks for the same: the new sweep goes on from what it stores. */
static bool is_swept_elsewhere(const struct queue *queue, const struct job *job)
{
	for (uint32_t i = 0; i < queue->devices->worker_count && job->keyed; i++) {
		const struct active *active = queue->active[i];

		if (active != NULL && active->running != NULL && active->running != job &&
		        active->running->keyed && store_key_equal(&active->running->key, &job->key))
			return true;
	}
	return false;
}

static struct job *next_job(const struct active *active, const struct device *device, bool background)
{
	const struct queue *queue = active->queue;
	struct job *next = NULL;

	for (struct job *job = queue->jobs.first; job != NULL; job = job->next) {
		if (waits(job, background) &&
		        (job->way == NULL || job->way == active || active->running == NULL) &&
		        (next == NULL || before(active, job, next)) && may_run(queue, job, device) &&
		        !is_swept_elsewhere(queue, job))
			next = job;
	}
	return next;
}

void queue_make_way(struct active *active)
{
	uint64_t job = active->running->info.job; /* before it runs no more */

	if (active->running->state != JOB_RUNS || !queue_go(active->running, JOB_STOPS))
		return;
	log_line(active->queue->log, LOG_LEVEL_INFO, "sweep makes way job=%" PRIu64 "%s", job,
	        active->disturbed ? ": something else uses the device" : "");
	sweep_cancel(active->sweep);
}

/* ---- runners that fail ---- */

static void rest_over(uv_timer_t *timer);

/* The timer runs to the first end of a rest that is still to come. */
static void await_rest(struct queue *queue)
{
	uint64_t now_ns = ft_monotonic_ns(), first_ns = UINT64_MAX;

	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		const struct active *active = queue->active[i];

		if (active != NULL && active->rest.until_ns > now_ns && active->rest.until_ns < first_ns)
			first_ns = active->rest.until_ns;
	}
	if (first_ns != UINT64_MAX && !queue->stopping)
		timer_start(&queue->rested, rest_over, timer_ms(first_ns - now_ns));
}

static void rest_over(uv_timer_t *timer)
{
	queue_pump(timer->data);
	await_rest(timer->data);
}

static const struct device *device_of(const struct queue *queue, const struct worker *worker)
{
	const struct devices *devices = queue->devices;

	for (uint32_t i = 0; i < devices->count; i++) {
		if (devices->device[i]->worker == worker)
			return devices->device[i];
	}
	return NULL;
}

bool queue_note_runner(struct active *active, const struct sweep_end *found)
{
	struct queue *queue = active->queue;
	struct job *job = active->running;
	const struct device *device = device_of(queue, active->worker);
	int lost = 0;

	if (found->outcome == SWEEP_MOVED || found->outcome == SWEEP_CANCELLED)
		return false; /* which says nothing of the runner */
	if (found->outcome != SWEEP_LOST) {
		if (found->target.device != NULL) /* else none was asked */
			active->rest = (struct backoff){0};
		return false;
	}
	backoff_lengthen(&active->rest, rest_first_ns, rest_last_ns);
	await_rest(queue);
	while (lost < LOST_MAX && job->lost[lost] != NULL)
		lost++;
	if (lost < LOST_MAX)
		job->lost[lost] = active->worker;
	if (device != NULL && yields(queue, device, NULL))
		log_line(queue->log, LOG_LEVEL_WARNING,
		        "device rests device=%s for_s=%.3g: its runner failed, and an equal device can work",
		        device->shown.id, (double)active->rest.length_ns / 1e9);
	if (device == NULL || job->cancelled || job->info.named || lost + 1 >= LOST_MAX ||
	        !yields(queue, device, job))
		return false;
	(void)snprintf(job->info.reason, sizeof(job->info.reason), "its runner failed on %s: %.160s",
	        device->shown.id, found->why.message);
	log_line(queue->log, LOG_LEVEL_NOTICE, "job waits for an equal device job=%" PRIu64 ": %s",
	        job->info.job, job->info.reason);
	return true;
}

/* ---- giving out ---- */

static void start(struct active *active, struct job *job, const struct device *device)
{
	struct queue *queue = active->queue;

	if (!queue_go(job, JOB_RUNS))
		return;
	take_device(active, job, devices_find(queue->devices, job->home, NULL) != NULL ? device : NULL);
	job->info.started_at_ns = ft_wall_ns();
	job->info.reason[0] = '\0';
	log_line(queue->log, LOG_LEVEL_INFO, "job started job=%" PRIu64 " kernel=%s device=%s", job->info.job,
	        job->info.kernel, job->info.device);
	queue_report(queue, job, "started");
	sweep_start(active->sweep, &job->info);
}

static bool is_free(const struct active *active)
{
	return active->running == NULL && active->worker->holder == HOLDER_NONE;
}

/* Gives a device that is free its next job; where there is none by hand, says so. */
static void pump_free(struct queue *queue, struct device *device)
{
	struct active *active = active_of(queue, device->worker);
	struct job *job;
	bool disturbed;

	if (active == NULL || !is_free(active))
		return;
	job = next_job(active, device, false);
	if (job == NULL && queue->let == device->worker) {
		queue->let = NULL;
		job = next_job(active, device, true);
	}
	if (job != NULL) {
		start(active, job, device);
		return;
	}
	disturbed = active->disturbed;
	active->disturbed = false;
	queue->events->idle(queue->data, device, disturbed);
}

/* Background work makes way for what no free device could take. */
static void pump_background(struct queue *queue, struct device *device)
{
	struct active *active = active_of(queue, device->worker);
	struct job *job;

	if (active == NULL || active->running == NULL || !job_is_background(active->running) ||
	        active->running->state != JOB_RUNS)
		return;
	job = next_job(active, device, false);
	if (job == NULL)
		return;
	job->way = active;
	queue_make_way(active);
}

void queue_pump(struct queue *queue)
{
	struct devices *devices = queue->devices;

	for (uint32_t i = 0; i < devices->count && !queue->stopping && !queue->paused; i++)
		pump_free(queue, devices->device[i]);
	for (uint32_t i = 0; i < devices->count && !queue->stopping && !queue->paused; i++)
		pump_background(queue, devices->device[i]);
}

/* ---- background work ---- */

bool queue_is_busy(struct queue *queue, struct device *device)
{
	struct active *active = active_of(queue, device->worker);

	return active == NULL || !is_free(active) || queue->stopping || queue->paused ||
	        yields(queue, device, NULL) || next_job(active, device, false) != NULL;
}

bool queue_works_on(const struct queue *queue, const struct store_key *key)
{
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		const struct job *job = queue->active[i] != NULL ? queue->active[i]->running : NULL;

		if (job != NULL && job->keyed && store_key_equal(&job->key, key))
			return true;
	}
	return false;
}

const struct ft_job *queue_background(struct queue *queue, struct device *device)
{
	struct active *active = active_of(queue, device->worker);
	struct job *job = active != NULL ? next_job(active, device, true) : NULL;

	return job != NULL ? &job->info : NULL;
}

void queue_let(struct queue *queue, const struct device *device)
{
	queue->let = device->worker;
	queue_pump(queue);
	queue->let = NULL;
}

void queue_hold(struct queue *queue, struct worker *worker, bool hold)
{
	(void)worker_hold(worker, hold ? HOLDER_LOAD : HOLDER_NONE, 0);
	if (!hold)
		queue_pump(queue);
}
