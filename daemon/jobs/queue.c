#include "daemon/jobs/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/bug.h"
#include "daemon/jobs/internal.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

atomic_ulong bugs_seen;

static int stopping(struct ft_error *error)
{
	return ft_fail(error, FT_E_STOPPING, "the daemon is stopping; its jobs go on when it is back");
}

static bool load_job(void *data, const struct ft_job *stored)
{
	struct queue *queue = data;
	struct job *job = job_new(queue);

	if (job == NULL)
		return true; /* it stays in the store, and is found again at the next start */
	job->info = *stored;
	memcpy(job->home, stored->device, sizeof(job->home));
	job->stored = true;
	job->state = strcmp(stored->state, "queued") != 0 && strcmp(stored->state, "running") != 0
	        ? JOB_OVER
	        : JOB_WAITS;
	if (stored->answer.data != NULL)
		ft_write_raw(&job->answer, stored->answer.data, stored->answer.length);
	job->info.answer =
	        (struct ft_view){job->answer.length > 0 ? job->answer.data : NULL, job->answer.length};
	if (job->state == JOB_WAITS)
		job_set_state(job, "queued");
	if (!job_index_append(&queue->jobs, job))
		job_free(job);
	return true;
}

void queue_report(struct queue *queue, const struct job *job, const char *word)
{
	struct ft_event event = {
	        .job = job->info.job,
	        .trials = job->info.trials,
	        .settled = job->info.settled,
	        .round = job->info.rounds,
	};

	(void)snprintf(event.event, sizeof(event.event), "%s", word);
	(void)snprintf(event.state, sizeof(event.state), "%s", job->info.state);
	(void)snprintf(event.stage, sizeof(event.stage), "%s", job->info.stage);
	(void)snprintf(event.reason, sizeof(event.reason), "%s", job->info.reason);
	queue->events->event(queue->data, &event);
}

/* ---- arrivals ---- */

static struct job_terms terms_of(const struct job *job)
{
	struct job_terms terms = {
	        .priority = job->info.priority,
	        .owner = job->info.owner,
	        .budget_ns = job->info.budget_ns,
	        .force = job->info.force,
	        .begun = job->info.begun,
	        .check = job->info.check,
	        .subset = job->info.subset,
	        .named = job->info.named,
	};

	memcpy(terms.cause, job->info.cause, sizeof(terms.cause));
	memcpy(terms.home, job->home, sizeof(terms.home));
	return terms;
}

/* What a join made of a job's terms is taken back, but for what others have changed since. */
static void put_terms_back(struct job *job, const struct job_terms *before, const struct job_terms *made)
{
	const struct job_terms now = terms_of(job);

#define BACK(member) (now.member == made->member ? before->member : now.member)
	job->info.priority = BACK(priority);
	job->info.owner = BACK(owner);
	job->info.budget_ns = BACK(budget_ns);
	job->info.force = BACK(force);
	job->info.begun = BACK(begun);
	job->info.check = BACK(check);
	job->info.subset = BACK(subset);
	job->info.named = BACK(named);
#undef BACK
	if (strcmp(now.cause, made->cause) == 0)
		memcpy(job->info.cause, before->cause, sizeof(job->info.cause));
	if (strcmp(now.home, made->home) != 0)
		return;
	memcpy(job->home, before->home, sizeof(job->home));
	if (job->state == JOB_WAITS)
		memcpy(job->info.device, job->home, sizeof(job->info.device));
}

/* One that the store refused never was: a new job goes, and a join leaves the job as it found it. Those behind it were stored
 * with what it had changed: with them that stands, or falls. */
static void take_back(struct job *job, const struct arrival *refused)
{
	if (job->arrivals != NULL)
		job->arrivals->before = refused->before;
	else if (job->state <= JOB_STOPS)
		put_terms_back(job, &refused->before, &refused->made);
	if (job->stored || job->commits > 0)
		return;
	job_index_remove(&job->queue->jobs, job);
	job_free(job);
}

static void arrived(void *data, uint64_t generation, const struct ft_error *error)
{
	struct job *job = data;
	struct queue *queue = job->queue;
	struct arrival *arrival = job->arrivals; /* commits come through in the order of the arrivals */
	bool was_new = !job->stored;

	(void)generation;
	job->commits--;
	job->arrivals = arrival->next;
	job->stored = job->stored || error == NULL;
	if (was_new && job->stored)
		queue_report(queue, job, "queued");
	arrival->done(arrival->data, error == NULL ? &job->info : NULL, arrival->joined, error);
	if (error != NULL)
		take_back(job, arrival);
	free(arrival);
	queue_pump(queue);
}

/* Jobs from before a restart, or from another hello, have no key of today's yet. */
static bool has_key(struct queue *queue, struct job *job)
{
	struct target target;

	if (job->keyed || job->looked)
		return job->keyed;
	job->looked = true;
	if (target_admit(&target, queue->devices, job->info.kernel, job->info.device, &job->info.problems,
	            NULL) == 0 &&
	        target.key.device != 0) {
		job->key = target.key;
		job->keyed = true;
	}
	return job->keyed;
}

static struct job *find_same(struct queue *queue, const struct target *target)
{
	for (struct job *job = queue->jobs.first; job != NULL; job = job->next) {
		if (job->state <= JOB_STOPS && !job->cancelled && has_key(queue, job) &&
		        store_key_equal(&job->key, &target->key) &&
		        ft_problem_equal(&job->info.problems, &target->problem))
			return job;
	}
	return NULL;
}

static uint64_t count_jobs(const struct queue *queue, uint32_t user)
{
	uint64_t count = 0;

	for (const struct job *job = queue->jobs.first; job != NULL; job = job->next)
		count += job->state != JOB_OVER && !job_is_background(job) && job->info.owner == user;
	return count;
}

/* Someone by hand wants what is queued already. What was to try only a part tries all then; with force all is timed
 * anew, unless a whole sweep by hand is at that already. */
static void join(struct job *job, const struct target *target, const struct queue_ask *ask)
{
	bool was_background = job_is_background(job);
	bool in_part = job->info.subset || (job->info.check && !ask->check);
	bool anew = ask->force && !job->info.force && (in_part || was_background || job->active == NULL);

	if (was_background || ask->priority > job->info.priority)
		job->info.priority = ask->priority;
	if (was_background) {
		job->info.owner = ask->user;
		job->info.budget_ns = ask->budget_ns;
	}
	job->info.cause[0] = '\0';
	if (anew) {
		job->info.force = true;
		job->info.begun = false;
	}
	if (in_part)
		job->info.subset = job->info.check = false;
	if (ask->named && !job->info.named && job->state == JOB_WAITS) {
		job->info.named = true;
		memcpy(job->home, target->device->shown.id, sizeof(job->home));
		memcpy(job->info.device, job->home, sizeof(job->info.device));
	}
	if (job->active == NULL)
		return;
	queue_show_holder(job->active);
	if (anew || in_part)
		queue_make_way(job->active);
}

void queue_add(struct queue *queue, const struct target *target, const struct queue_ask *ask,
        void (*done)(void *data, const struct ft_job *job, bool joined, const struct ft_error *error),
        void *data)
{
	struct job *job = find_same(queue, target);
	struct arrival *arrival = calloc(1, sizeof(*arrival));
	struct arrival **last;
	bool joined = job != NULL;
	struct store_batch *batch = NULL;
	struct job_terms before = {0};
	struct job_terms made;
	struct ft_error error;

	if (queue->stopping) {
		(void)stopping(&error);
		goto fail;
	}
	if (job == NULL && ask->most != 0 && count_jobs(queue, ask->user) >= ask->most) {
		(void)ft_fail(&error, FT_E_BUSY,
		        "user %u has %" PRIu64 " jobs queued or running; a user may have no more", ask->user,
		        ask->most);
		goto fail;
	}
	if (job == NULL && queue->jobs.active >= QUEUE_ACTIVE_MAX) {
		(void)ft_fail(&error, FT_E_BUSY, "the queue is full: it holds %d jobs", QUEUE_ACTIVE_MAX);
		goto fail;
	}
	if (job == NULL) {
		job = job_new(queue);
		if (job == NULL)
			goto memory;
		job->info.job = store_next_job(queue->store);
		memcpy(job->info.kernel, target->kernel->schema.kernel, sizeof(job->info.kernel));
		memcpy(job->info.device, target->device->shown.id, sizeof(job->info.device));
		memcpy(job->home, job->info.device, sizeof(job->home));
		job->info.named = ask->named;
		job->info.problems = target->problem;
		job->info.owner = ask->user;
		job->info.created_at_ns = ft_wall_ns();
		job->info.priority = ask->priority;
		job->info.force = ask->force;
		job->info.check = ask->check;
		job->info.subset = ask->subset;
		(void)snprintf(
		        job->info.cause, sizeof(job->info.cause), "%s", ask->cause != NULL ? ask->cause : "");
		job->info.budget_ns = ask->budget_ns;
		job->key = target->key;
		job->keyed = true;
		if (!job_index_append(&queue->jobs, job))
			goto memory;
		job_set_state(job, "queued");
	} else {
		before = terms_of(job);
		if (ask->cause == NULL)
			join(job, target, ask);
	}
	if (arrival == NULL)
		goto memory;
	batch = store_batch_new(queue->store);
	if (batch == NULL || store_batch_job(batch, &job->info) != 0)
		goto memory;
	*arrival = (struct arrival){
	        .done = done, .data = data, .joined = joined, .before = before, .made = terms_of(job)};
	for (last = &job->arrivals; *last != NULL; last = &(*last)->next)
		;
	*last = arrival;
	job->commits++;
	store_submit(batch, arrived, job);
	return;
memory:
	(void)ft_fail(&error, FT_E_MEMORY, "no memory for a job");
	if (batch != NULL)
		store_batch_drop(batch);
	if (joined) {
		made = terms_of(job);
		put_terms_back(job, &before, &made);
	}
	if (job != NULL && !joined) {
		if (job->info.state[0] != '\0')
			job_index_remove(&queue->jobs, job);
		job_free(job);
	}
fail:
	free(arrival);
	done(data, NULL, false, &error);
}

/* The job of a number, or NULL with an error. One that the store has not yet is nobody's: it may never be acknowledged. */
static struct job *find_listed(const struct queue *queue, uint64_t id, struct ft_error *error)
{
	struct job *job = job_index_find(&queue->jobs, id);
	char text[24];

	if (job == NULL || !job->stored) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, id);
		(void)ft_fail_field(
		        error, FT_E_UNKNOWN_JOB, "job", text, "a job that the daemon still lists");
		return NULL;
	}
	return job;
}

/* Has done() called when a job that is not over is; *handle is how to leave before. */
static int await_end(struct job *job, struct wait **list, uint32_t *waiters, job_done done, void *data,
        struct wait **handle, struct ft_error *error)
{
	struct wait *wait;

	if (job->queue->stopping)
		return stopping(error);
	wait = calloc(1, sizeof(*wait));
	if (wait == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a wait");
	job_link_wait(list, waiters, wait, done, data);
	*handle = wait;
	return 0;
}

int queue_wait(struct queue *queue, uint64_t id, job_done done, void *data, struct wait **handle,
        struct ft_error *error)
{
	struct job *job = find_listed(queue, id, error);

	if (job == NULL)
		return -1;
	if (job->state == JOB_OVER) {
		done(data, &job->info, NULL);
		return 0;
	}
	return await_end(job, &job->waits, &job->waiters, done, data, handle, error);
}

void queue_leave(struct wait *wait)
{
	job_unlink_wait(wait);
	free(wait);
}

int64_t queue_owner(const struct queue *queue, uint64_t id)
{
	const struct job *job = job_index_find(&queue->jobs, id);

	return job != NULL && job->stored ? (int64_t)job->info.owner : -1;
}

int queue_cancel(struct queue *queue, uint64_t id, job_done done, void *data, struct wait **handle,
        struct ft_error *error)
{
	struct job *job = find_listed(queue, id, error);

	if (job == NULL)
		return -1;
	if (job->state == JOB_OVER) {
		done(data, &job->info, NULL);
		return 0;
	}
	if (await_end(job, &job->cancels, &job->cancellers, done, data, handle, error) != 0)
		return -1;
	if (job->state == JOB_RUNS || job->state == JOB_STOPS) {
		if (!job->cancelled) /* its runner has one deadline, however often it is asked for */
			sweep_cancel(job->active->sweep);
		job->cancelled = true;
	} else if (job->state == JOB_WAITS && queue_go(job, JOB_DROPS)) {
		job_set_outcome(job, JOB_CANCELLED, "cancelled before it ran");
		queue_commit_end(job);
	}
	return 0;
}

/* ---- what is reported of jobs ---- */

int queue_write(const struct queue *queue, uint64_t id, struct ft_writer *writer, struct ft_error *error)
{
	const struct job *job = find_listed(queue, id, error);

	if (job == NULL)
		return -1;
	job_write(job, writer);
	return 0;
}

bool queue_write_next(const struct queue *queue, uint64_t *id, struct ft_writer *writer)
{
	const uint32_t count = queue->jobs.active + queue->jobs.ended;
	uint32_t index = job_index_place(&queue->jobs, *id + 1);

	while (index < count && !queue->jobs.by_id[index]->stored)
		index++;
	if (index == count)
		return false;
	*id = queue->jobs.by_id[index]->info.job;
	job_write(queue->jobs.by_id[index], writer);
	return true;
}

uint32_t queue_waiting(const struct queue *queue)
{
	return queue->jobs.active - queue->running;
}

/* Of the kind of a device that is not here. */
static const struct device *first_of_kind(const struct devices *devices, const char *id)
{
	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->device[i];

		if (device->state == DEVICE_READY && settings_id_is_of(id, device->shown.kind))
			return device;
	}
	return NULL;
}

/* Of a device that is another now, or gone. Where none was named one takes its place: an equal one, or after a restart, when
 * no more is known of it than its id, the first of its kind. */
static void find_home(struct job *job)
{
	struct devices *devices = job->queue->devices;
	const struct device *device = NULL;

	job->looked = false;
	job->was_keyed = job->was_keyed || job->keyed;
	job->keyed = job->keyed && devices_kernel(devices, &job->key, &device) != NULL;
	if (job->info.named || devices_find(devices, job->home, NULL) != NULL)
		return;
	if (!job->was_keyed)
		device = first_of_kind(devices, job->home);
	if (device == NULL)
		return;
	memcpy(job->home, device->shown.id, sizeof(job->home));
	if (job->state == JOB_WAITS)
		memcpy(job->info.device, job->home, sizeof(job->info.device));
}

static void find_homes(struct queue *queue)
{
	for (struct job *job = queue->jobs.first; job != NULL; job = job->next) {
		if (job->state != JOB_OVER)
			find_home(job);
	}
}

void queue_settled(struct queue *queue, const struct runner_slot *slot)
{
	find_homes(queue);
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		if (queue->active[i] != NULL)
			sweep_settled(queue->active[i]->sweep, slot);
	}
	queue_pump(queue);
}

void queue_runner_event(struct queue *queue, const struct worker *worker, const struct ft_runner_event *event)
{
	if (queue->active[worker->number] != NULL)
		sweep_runner_event(queue->active[worker->number]->sweep, worker, event);
}

void queue_runner_gone(
        struct queue *queue, const struct worker *worker, enum runner_cause cause, const struct ft_error *why)
{
	queue->gone[cause]++;
	if (queue->active[worker->number] != NULL)
		sweep_runner_gone(queue->active[worker->number]->sweep, worker, cause, why);
}

int queue_init(struct queue *queue, uv_loop_t *loop, struct devices *devices, struct store *store,
        const struct log *log, const struct settings *settings, const struct queue_events *events, void *data,
        struct ft_error *error)
{
	int status;

	*queue = (struct queue){
	        .loop = loop,
	        .devices = devices,
	        .store = store,
	        .log = log,
	        .settings = settings,
	        .events = events,
	        .data = data,
	        .retry_ms = RETRY_FIRST_MS,
	};
	if (store_begin(store, error) != 0)
		return -1;
	status = store_each_job(store, load_job, queue, error);
	if (status >= 0)
		status = queue_read_pause(queue, error);
	store_end(store);
	if (status < 0)
		return -1;
	if (queue->jobs.active > 0 || queue->paused)
		log_line(log, LOG_LEVEL_INFO, "jobs found in the store active=%u%s", queue->jobs.active,
		        queue->paused ? "; the queue is paused" : "");
	status = uv_timer_init(loop, &queue->retry);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	queue->retry.data = queue;
	(void)uv_timer_init(loop, &queue->rested);
	queue->rested.data = queue;
	find_homes(queue);
	queue_pump(queue);
	return 0;
}

void queue_stop(struct queue *queue)
{
	struct ft_error error;

	queue->stopping = true;
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		if (queue->active[i] != NULL)
			sweep_abandon(queue->active[i]->sweep);
	}
	(void)stopping(&error);
	for (struct job *job = queue->jobs.first; job != NULL; job = job->next) {
		job_call_waits(&job->waits, NULL, &error);
		job_call_waits(&job->cancels, NULL, &error);
	}
	queue_call_pauses(queue, &error);
	uv_close((uv_handle_t *)&queue->retry, NULL);
	uv_close((uv_handle_t *)&queue->rested, NULL);
}

void queue_free(struct queue *queue)
{
	job_index_free(&queue->jobs);
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		if (queue->active[i] == NULL)
			continue;
		trials_free(queue->active[i]->found.trials);
		device_leave(queue->active[i]->found.target.device);
		sweep_free(queue->active[i]->sweep);
		free(queue->active[i]);
		queue->active[i] = NULL;
	}
}
