#include "daemon/jobs/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/host/bug.h"
#include "daemon/jobs/job_state.h"
#include "daemon/jobs/winner.h"
#include "daemon/answers/lookup.h"
#include "daemon/host/timer.h"
#include "proto/clock.h"

atomic_ulong bugs_seen;

enum { RETRY_FIRST_MS = 2000, RETRY_LAST_MS = 60000 };

/* Jobs of one command come within this time. */
static const uint64_t together_ns = 10000000000;

const char *const queue_end_words[QUEUE_ENDS] = {
        [QUEUE_DONE] = "done",
        [QUEUE_FAILED] = "failed",
        [QUEUE_CANCELLED] = "cancelled",
};

struct wait {
	struct wait *next;
	struct wait **link; /* what points at it */
	uint32_t *waiters;  /* what it is counted in */
	queue_done done;
	void *data;
};

/* Someone who waits for a job to be in the store. */
struct arrival {
	struct arrival *next;
	void (*done)(void *data, const struct ft_job *job, bool joined, const struct ft_error *error);
	void *data;
	bool joined;
};

/* Someone who asked for a pause, or for its end. */
struct pause {
	struct pause *next;
	struct queue *queue;
	bool pause;
	void (*done)(void *data, bool paused, const struct ft_error *error);
	void *data;
};

struct job {
	struct job *next;
	struct ft_job info; /* its answer is a view of `answer` */
	struct ft_writer answer;
	struct store_winner winner; /* once the sweep has decided */
	struct store_key key;
	bool keyed;  /* key is of today's devices */
	bool looked; /* since a device was heard last: it has a key or can have none */
	bool stored; /* the store knows of it */
	enum job_state state;
	enum queue_end end; /* from JOB_ENDS or JOB_DROPS on */
	bool cancelled;     /* someone did, whether or not they still wait for it */
	bool away;          /* it failed for want of its device or runner */
	unsigned commits;   /* on their way to the store: it stays in memory until they are through */
	struct wait *waits;
	struct wait *cancels;
	uint32_t waiters, cancellers;
	struct arrival *arrivals;
	struct queue *queue;
};

static void pump(struct queue *queue);
static bool is_background(const struct job *job);
static void make_way(struct queue *queue);

static int stopping(struct ft_error *error)
{
	return ft_fail(error, FT_E_STOPPING, "the daemon is stopping; its jobs go on when it is back");
}

static void set_state(struct job *job, const char *state)
{
	(void)snprintf(job->info.state, sizeof(job->info.state), "%s", state);
}

/* Whoever gets false leaves it where it is. */
static bool go_to(struct job *job, enum job_state next)
{
	const struct queue *queue = job->queue;

	if (!bug_unless(queue->log, job_may_go(job->state, next), "job %" PRIu64 " cannot go from %s to %s",
	            job->info.job, job_state_word(job->state), job_state_word(next)) ||
	        !bug_unless(queue->log, (queue->running == job) == job_has_device(job->state),
	                "job %" PRIu64 " %s, and another has the device", job->info.job,
	                job_state_word(job->state)))
		return false;
	job->state = next;
	if (next == JOB_WAITS)
		set_state(job, "queued");
	else if (next == JOB_RUNS)
		set_state(job, "running");
	return true;
}

static void set_end(struct job *job, enum queue_end end, const char *reason)
{
	job->end = end;
	set_state(job, queue_end_words[end]);
	job->info.ended_at_ns = ft_wall_ns();
	(void)snprintf(job->info.reason, sizeof(job->info.reason), "%.*s", (int)sizeof(job->info.reason) - 1,
	        reason);
}

static void free_job(struct job *job)
{
	while (job->waits != NULL) {
		struct wait *wait = job->waits;

		job->waits = wait->next;
		free(wait);
	}
	while (job->cancels != NULL) {
		struct wait *wait = job->cancels;

		job->cancels = wait->next;
		free(wait);
	}
	while (job->arrivals != NULL) {
		struct arrival *arrival = job->arrivals;

		job->arrivals = arrival->next;
		free(arrival);
	}
	ft_writer_free(&job->answer);
	free(job);
}

static struct job *new_job(struct queue *queue)
{
	struct job *job = calloc(1, sizeof(*job));

	if (job != NULL) {
		job->queue = queue;
		ft_writer_init_growing(&job->answer, ft_bounds_request.bytes);
	}
	return job;
}

/* Where a job of this id is, or would be: ids only grow, so that the end is the place of a new one. */
static uint32_t index_of(const struct queue *queue, uint64_t id)
{
	uint32_t low = 0, high = queue->active + queue->ended;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (queue->by_id[middle]->info.job < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* False for want of memory. */
static bool append(struct queue *queue, struct job *job)
{
	uint32_t count = queue->active + queue->ended;

	if (count == queue->room) {
		uint32_t room = queue->room > 0 ? 2 * queue->room : 64;
		struct job **grown = realloc(queue->by_id, room * sizeof(struct job *));

		if (grown == NULL)
			return false;
		queue->by_id = grown;
		queue->room = room;
	}
	if (count > 0)
		queue->by_id[count - 1]->next = job;
	else
		queue->first = job;
	queue->by_id[count] = job;
	if (job->state == JOB_OVER)
		queue->ended++;
	else
		queue->active++;
	return true;
}

static void unlink_job(struct queue *queue, struct job *job)
{
	uint32_t index = index_of(queue, job->info.job);
	uint32_t behind = queue->active + queue->ended - index - 1;

	if (index > 0)
		queue->by_id[index - 1]->next = job->next;
	else
		queue->first = job->next;
	memmove(queue->by_id + index, queue->by_id + index + 1, behind * sizeof(struct job *));
	if (job->state == JOB_OVER)
		queue->ended--;
	else
		queue->active--;
}

static struct job *find(const struct queue *queue, uint64_t id)
{
	uint32_t index = index_of(queue, id);

	return index < queue->active + queue->ended && queue->by_id[index]->info.job == id
	        ? queue->by_id[index]
	        : NULL;
}

static bool load_job(void *data, const struct ft_job *stored)
{
	struct queue *queue = data;
	struct job *job = new_job(queue);

	if (job == NULL)
		return true; /* it stays in the store, and is found again at the next start */
	job->info = *stored;
	job->stored = true;
	job->state = strcmp(stored->state, "queued") != 0 && strcmp(stored->state, "running") != 0
	        ? JOB_OVER
	        : JOB_WAITS;
	if (stored->answer.data != NULL)
		ft_write_raw(&job->answer, stored->answer.data, stored->answer.length);
	job->info.answer =
	        (struct ft_view){job->answer.length > 0 ? job->answer.data : NULL, job->answer.length};
	if (job->state == JOB_WAITS)
		set_state(job, "queued");
	if (!append(queue, job))
		free_job(job);
	return true;
}

/* Where others may use all of the device, one round at a time with a wait after each would be all that came of making
 * way: nothing would ever be done. */
static bool shares_device(const struct options *options)
{
	return options->background == OPTIONS_BACKGROUND_ALWAYS || options->background_load >= 100;
}

static void sweep_event(void *data, struct ft_event *event)
{
	struct queue *queue = data;

	if (queue->running != NULL)
		queue->restarts += strcmp(event->event, "restarted") == 0 ? 1 : 0;
	(void)snprintf(event->state, sizeof(event->state), "running");
	queue->events->event(queue->data, event);
	if (queue->running != NULL && is_background(queue->running) && !shares_device(queue->options) &&
	        sweep_is_disturbed(queue->sweep)) {
		queue->disturbed = true;
		make_way(queue);
	}
}

static void tell(struct queue *queue, const struct job *job, const char *word)
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

/* ---- the end of a job ---- */

static void drop_oldest_ended(struct queue *queue, struct store_batch *batch)
{
	while (queue->ended >= QUEUE_ENDED_KEPT) {
		struct job *job = queue->first;

		while (job != NULL && job->state != JOB_OVER)
			job = job->next;
		if (job == NULL || store_batch_drop_job(batch, job->info.job) != 0)
			return;
		unlink_job(queue, job);
		free_job(job);
	}
}

static void link_wait(struct wait **list, uint32_t *waiters, struct wait *wait, queue_done done, void *data)
{
	*wait = (struct wait){.next = *list, .link = list, .waiters = waiters, .done = done, .data = data};
	(*waiters)++;
	if (wait->next != NULL)
		wait->next->link = &wait->next;
	*list = wait;
}

static void unlink_wait(struct wait *wait)
{
	*wait->link = wait->next;
	if (wait->next != NULL)
		wait->next->link = wait->link;
	(*wait->waiters)--;
}

static void call_waits(struct wait **waits, const struct ft_job *job, const struct ft_error *error)
{
	while (*waits != NULL) {
		struct wait *wait = *waits;

		*waits = wait->next;
		if (*waits != NULL)
			(*waits)->link = waits;
		(*wait->waiters)--;
		wait->done(wait->data, job, error);
		free(wait);
	}
}

static void call_pauses(struct queue *queue, const struct ft_error *error)
{
	struct pause *all = queue->pauses;

	queue->pauses = NULL;
	while (all != NULL) {
		struct pause *pause = all;

		all = pause->next;
		pause->done(pause->data, queue->paused, error);
		free(pause);
	}
}

static void stop_running(struct queue *queue)
{
	queue->running = NULL;
	call_pauses(queue, NULL);
}

static void job_over(struct job *job)
{
	struct queue *queue = job->queue;

	if (!go_to(job, JOB_OVER))
		return;
	queue->ends[job->end]++;
	if (job->info.sweep_ns > 0)
		histogram_add(&queue->sweeps, job->info.sweep_ns, 1);
	queue->active--;
	queue->ended++;
	if (queue->running == job)
		stop_running(queue);
	log_line(queue->log, LOG_LEVEL_INFO,
	        "job ended job=%" PRIu64 " state=%s sweep_s=%.3f rounds=%" PRIu64 "%s%s", job->info.job,
	        job->info.state, (double)job->info.sweep_ns / 1e9, job->info.rounds,
	        job->info.reason[0] != '\0' ? ": " : "", job->info.reason);
	tell(queue, job, "ended");
	call_waits(&job->cancels, &job->info, NULL);
	call_waits(&job->waits, &job->info, NULL);
}

/* What lookups will be told, and what the job's waiters are: the same. */
static int make_answer(struct queue *queue, struct job *job, uint64_t generation)
{
	const struct store_winner *winner = &job->winner;
	const struct subject *subject = &queue->found.subject;
	struct ft_answer *answer = calloc(1, sizeof(*answer));

	if (answer == NULL)
		return -1;
	memcpy(answer->kernel, job->info.kernel, sizeof(answer->kernel));
	memcpy(answer->device, job->info.device, sizeof(answer->device));
	answer->problem = subject->problem;
	answer->config = winner->config;
	(void)snprintf(answer->source, sizeof(answer->source), "%s", lookup_source_words[LOOKUP_TUNED]);
	(void)snprintf(answer->reason, sizeof(answer->reason), "%s", lookup_winner_reason(winner));
	answer->generation = generation;
	(void)snprintf(answer->identity, sizeof(answer->identity), "%s", subject->kernel->identity_hash);
	lookup_times(winner, answer);
	ft_writer_reset(&job->answer);
	ft_encode(&job->answer, &ft_answer_message, answer);
	free(answer);
	job->info.answer = (struct ft_view){job->answer.data, job->answer.length};
	return ft_writer_ok(&job->answer) ? 0 : -1;
}

static void commit_end(struct job *job);

static void retry_end(uv_timer_t *timer)
{
	struct queue *queue = timer->data;

	queue->retry_waits = false;
	if (queue->running != NULL && queue->running->state == JOB_ENDS)
		commit_end(queue->running);
}

void queue_store_mended(struct queue *queue)
{
	queue->retry_ms = RETRY_FIRST_MS;
	if (!queue->retry_waits || queue->stopping)
		return;
	(void)uv_timer_stop(&queue->retry);
	retry_end(&queue->retry);
}

static void end_committed(void *data, uint64_t generation, const struct ft_error *error)
{
	struct job *job = data;
	struct queue *queue = job->queue;

	if (queue->stopping)
		return; /* it is stored or it is not: the next start will see */
	if (error != NULL) {
		/* The result is in memory; it is told when the store has room for it. */
		if (queue->running != job || queue->retry_ms == RETRY_FIRST_MS)
			log_line(queue->log, LOG_LEVEL_WARNING, "result not stored yet job=%" PRIu64 ": %s",
			        job->info.job, error->message);
		if (queue->running == job) {
			queue->retry_waits = true;
			timer_start(&queue->retry, retry_end, queue->retry_ms);
			queue->retry_ms *= 2;
			if (queue->retry_ms > RETRY_LAST_MS)
				queue->retry_ms = RETRY_LAST_MS;
		} else {
			/* A cancelled job that never ran: it goes on as it was. */
			(void)go_to(job, JOB_WAITS);
			job->info.reason[0] = '\0';
			job->info.ended_at_ns = 0;
			call_waits(&job->cancels, NULL, error);
		}
		return;
	}
	if (queue->running == job) {
		bool busy = queue->found.trials != NULL && queue->found.trials->busy;

		queue->retry_ms = RETRY_FIRST_MS;
		sweep_stored(queue->sweep);
		trials_free(queue->found.trials);
		queue->found.trials = NULL;
		if (job->winner.set)
			(void)make_answer(queue, job, generation);
		if (queue->found.subject.device != NULL)
			queue->events->swept(queue->data, &queue->found.subject, &job->info, busy, job->away);
	}
	job_over(job);
	pump(queue);
}

static void drop_unstored(struct job *job);

static void committed(void *data, uint64_t generation, const struct ft_error *error)
{
	struct job *job = data;
	struct queue *queue = job->queue;

	job->commits--;
	job->stored = job->stored || error == NULL;
	end_committed(job, generation, error);
	if (error == NULL)
		return;
	drop_unstored(job);
	pump(queue);
}

static int add_winner(struct queue *queue, struct job *job, struct store_batch *batch)
{
	const struct subject *subject = &queue->found.subject;

	if (winner_choose(
	            &job->winner, queue->store, subject, queue->found.trials, queue->options->band_ppm) != 0)
		return -1;
	job->winner.space_hash = queue->found.space_hash;
	job->winner.job = job->info.job;
	if (store_batch_winner(batch, &subject->key, &subject->problem, &job->winner) != 0)
		return -1;
	return make_answer(queue, job, 0); /* its generation is known after the commit */
}

static void commit_end(struct job *job)
{
	struct queue *queue = job->queue;
	struct store_batch *batch = store_batch_new(queue->store);
	struct ft_error error;

	if (batch == NULL)
		goto fail;
	drop_oldest_ended(queue, batch);
	if (queue->running == job && queue->found.trials != NULL) {
		if (job->end == QUEUE_DONE && add_winner(queue, job, batch) != 0)
			goto fail;
		if (store_batch_trials(batch, &queue->found.subject.key,
		            queue->found.subject.kernel->identity, queue->found.trials) != 0)
			goto fail;
	}
	if (store_batch_job(batch, &job->info) != 0)
		goto fail;
	job->commits++;
	store_submit(batch, committed, job);
	return;
fail:
	if (batch != NULL)
		store_batch_drop(batch);
	(void)ft_fail(&error, FT_E_MEMORY, "no memory for the end of a job");
	end_committed(job, 0, &error);
}

static void sweep_ended(void *data, const struct sweep_end *found)
{
	struct queue *queue = data;
	struct job *job = queue->running;
	const enum sweep_outcome outcome = found->outcome;
	struct trials *trials = found->trials;

	job->info.stage[0] = '\0';
	if (!bug_unless(queue->log, job->state == JOB_RUNS || job->state == JOB_STOPS,
	            "the sweep of job %" PRIu64 " ends where it %s", job->info.job,
	            job_state_word(job->state))) {
		trials_free(trials);
		return;
	}
	/* A device that moved, or one that is needed elsewhere: what was measured is stored, and the job goes on
	 * later. */
	if (outcome == SWEEP_MOVED ||
	        (outcome == SWEEP_CANCELLED && job->state == JOB_STOPS && !job->cancelled)) {
		trials_free(trials);
		job->keyed = job->keyed && outcome != SWEEP_MOVED;
		(void)go_to(job, JOB_WAITS);
		if (outcome == SWEEP_CANCELLED)
			tell(queue, job, "queued");
		stop_running(queue);
		pump(queue);
		return;
	}
	(void)go_to(job, JOB_ENDS);
	job->away = outcome == SWEEP_FAILED && strcmp(found->why.code, FT_E_UNAVAILABLE) == 0;
	queue->found = *found;
	if (outcome == SWEEP_HELD)
		job->winner = found->held;
	if (trials != NULL) {
		job->info.rounds = trials->rounds;
		trials_progress(trials, trials->count < FT_SPACE_MAX ? trials->count : FT_SPACE_MAX,
		        &job->info.trials, &job->info.settled);
	}
	if (outcome == SWEEP_DECIDED)
		set_end(job, QUEUE_DONE, trials->reason);
	else if (outcome == SWEEP_HELD)
		set_end(job, QUEUE_DONE, found->why.message);
	else if (outcome == SWEEP_CANCELLED)
		set_end(job, QUEUE_CANCELLED, "cancelled; what was measured is kept");
	else
		set_end(job, QUEUE_FAILED, found->why.message);
	commit_end(job);
}

static const struct sweep_events sweep_events = {.event = sweep_event, .ended = sweep_ended};

/* ---- the next job ---- */

static bool is_background(const struct job *job)
{
	return job->info.cause[0] != '\0';
}

/* The rest of a ladder that one command asked for: it shares what the device was given for the sweep before,
 * and cannot put others off for longer than that command could. */
static bool follows(const struct queue *queue, const struct job *job)
{
	uint64_t created = job->info.created_at_ns, last = queue->last_created_ns;

	/* Either way: one of a higher priority may have gone before those that are older. */
	return job->keyed && job->key.kernel == queue->last.kernel && job->key.device == queue->last.device &&
	        memcmp(job->key.problem.hash, queue->last.problem.hash, sizeof(job->key.problem.hash)) == 0 &&
	        job->info.owner == queue->last_owner &&
	        (created > last ? created - last : last - created) < together_ns;
}

static bool before(const struct queue *queue, const struct job *a, const struct job *b)
{
	if (a->info.priority != b->info.priority)
		return a->info.priority > b->info.priority;
	if (follows(queue, a) != follows(queue, b))
		return follows(queue, a);
	return a->info.job < b->info.job;
}

static bool waits(const struct job *job, bool background)
{
	return job->state == JOB_WAITS && job->stored && is_background(job) == background;
}

static struct job *next_job(struct queue *queue, bool background)
{
	struct job *next = NULL;

	for (struct job *job = queue->first; job != NULL; job = job->next) {
		struct device *device;

		if (!waits(job, background) || (next != NULL && !before(queue, job, next)))
			continue;
		device = devices_find(queue->devices, job->info.device, NULL);
		if (device == NULL ? devices_probing(queue->devices) : device->state == DEVICE_PROBING)
			continue; /* its runner is still to be heard */
		next = job;
	}
	return next;
}

static void make_way(struct queue *queue)
{
	uint64_t job = queue->running->info.job; /* before it runs no more */

	if (queue->running->state != JOB_RUNS || !go_to(queue->running, JOB_STOPS))
		return;
	sweep_cancel(queue->sweep);
	log_line(queue->log, LOG_LEVEL_INFO, "sweep makes way job=%" PRIu64 "%s", job,
	        queue->disturbed ? ": something else uses the device" : "");
}

bool queue_is_busy(struct queue *queue)
{
	return queue->running != NULL || queue->stopping || queue->paused || next_job(queue, false) != NULL;
}

const struct ft_job *queue_background(struct queue *queue)
{
	struct job *job = next_job(queue, true);

	return job != NULL ? &job->info : NULL;
}

void queue_let(struct queue *queue)
{
	queue->let = true;
	pump(queue);
	queue->let = false;
}

void queue_hold(struct queue *queue, bool hold)
{
	queue->held = hold;
	if (!hold)
		pump(queue);
}

static void pump(struct queue *queue)
{
	struct job *job;

	if (queue->stopping || queue->paused || queue->held)
		return;
	job = next_job(queue, false);
	if (queue->running != NULL) {
		if (job != NULL && is_background(queue->running))
			make_way(queue);
		return;
	}
	if (job == NULL && queue->let)
		job = next_job(queue, true);
	if (job == NULL) {
		bool disturbed = queue->disturbed;

		queue->disturbed = false;
		queue->events->idle(queue->data, disturbed);
		return;
	}
	queue->let = false;
	if (!go_to(job, JOB_RUNS))
		return;
	queue->running = job;
	if (job->keyed)
		queue->last = job->key;
	queue->last_owner = (uint32_t)job->info.owner;
	queue->last_created_ns = job->info.created_at_ns;
	job->info.started_at_ns = ft_wall_ns();
	log_line(queue->log, LOG_LEVEL_INFO, "job started job=%" PRIu64 " kernel=%s device=%s", job->info.job,
	        job->info.kernel, job->info.device);
	tell(queue, job, "started");
	sweep_start(queue->sweep, &job->info);
}

/* ---- arrivals ---- */

/* A job that the store refused never was. Others may have joined it meanwhile, or cancelled it: their commits
 * come through first, and one of them may still store it. */
static void drop_unstored(struct job *job)
{
	struct ft_error error;

	if (job->stored || job->commits > 0 || job->state == JOB_OVER)
		return;
	(void)ft_fail(&error, FT_E_STORE, "the store refused the job");
	call_waits(&job->cancels, NULL, &error);
	call_waits(&job->waits, NULL, &error);
	unlink_job(job->queue, job);
	free_job(job);
}

static void arrived(void *data, uint64_t generation, const struct ft_error *error)
{
	struct job *job = data;
	struct queue *queue = job->queue;
	struct arrival *arrivals = job->arrivals;
	bool was_new = !job->stored;

	(void)generation;
	job->commits--;
	job->arrivals = NULL;
	job->stored = job->stored || error == NULL;
	if (was_new && job->stored)
		tell(queue, job, "queued");
	while (arrivals != NULL) {
		struct arrival *arrival = arrivals;

		arrivals = arrival->next;
		arrival->done(arrival->data, error == NULL ? &job->info : NULL, arrival->joined, error);
		free(arrival);
	}
	drop_unstored(job);
	pump(queue);
}

static bool same_key(const struct store_key *a, const struct store_key *b)
{
	return a->kernel == b->kernel && a->device == b->device && a->problem.ladder == b->problem.ladder &&
	        memcmp(a->problem.hash, b->problem.hash, sizeof(a->problem.hash)) == 0;
}

/* Jobs from before a restart, or from another hello, have no key of today's yet. */
static bool has_key(struct queue *queue, struct job *job)
{
	struct subject subject;

	if (job->keyed || job->looked)
		return job->keyed;
	job->looked = true;
	if (subject_admit(&subject, queue->devices, job->info.kernel, job->info.device, &job->info.problem,
	            NULL) == 0 &&
	        subject.key.device != 0) {
		job->key = subject.key;
		job->keyed = true;
	}
	return job->keyed;
}

static struct job *find_same(struct queue *queue, const struct subject *subject)
{
	for (struct job *job = queue->first; job != NULL; job = job->next) {
		if (job->state <= JOB_STOPS && has_key(queue, job) && same_key(&job->key, &subject->key) &&
		        ft_problem_equal(&job->info.problem, &subject->problem))
			return job;
	}
	return NULL;
}

static uint64_t count_jobs(const struct queue *queue, uint32_t user)
{
	uint64_t count = 0;

	for (const struct job *job = queue->first; job != NULL; job = job->next)
		count += job->state != JOB_OVER && !is_background(job) && job->info.owner == user;
	return count;
}

/* Someone by hand wants what is queued already. What was to try only a part tries all then; with force all is timed
 * anew, unless a whole sweep by hand is at that already. */
static void join(struct queue *queue, struct job *job, const struct queue_ask *ask)
{
	bool was_background = is_background(job);
	bool in_part = job->info.few || (job->info.check && !ask->check);
	bool anew = ask->force && !job->info.force && (in_part || was_background || job != queue->running);

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
		job->info.few = job->info.check = false;
	if ((anew || in_part) && job == queue->running)
		make_way(queue);
}

void queue_add(struct queue *queue, const struct subject *subject, const struct queue_ask *ask,
        void (*done)(void *data, const struct ft_job *job, bool joined, const struct ft_error *error),
        void *data)
{
	struct job *job = find_same(queue, subject);
	struct arrival *arrival = calloc(1, sizeof(*arrival));
	bool joined = job != NULL;
	struct store_batch *batch = NULL;
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
	if (job == NULL && queue->active >= QUEUE_ACTIVE_MAX) {
		(void)ft_fail(&error, FT_E_BUSY, "the queue is full: it holds %d jobs", QUEUE_ACTIVE_MAX);
		goto fail;
	}
	if (job == NULL) {
		job = new_job(queue);
		if (job == NULL)
			goto memory;
		job->info.job = store_next_job(queue->store);
		memcpy(job->info.kernel, subject->kernel->schema.kernel, sizeof(job->info.kernel));
		memcpy(job->info.device, subject->device->shown.id, sizeof(job->info.device));
		job->info.problem = subject->problem;
		job->info.owner = ask->user;
		job->info.created_at_ns = ft_wall_ns();
		job->info.priority = ask->priority;
		job->info.force = ask->force;
		job->info.check = ask->check;
		job->info.few = ask->few;
		(void)snprintf(
		        job->info.cause, sizeof(job->info.cause), "%s", ask->cause != NULL ? ask->cause : "");
		job->info.budget_ns = ask->budget_ns;
		job->key = subject->key;
		job->keyed = true;
		if (!append(queue, job))
			goto memory;
		set_state(job, "queued");
	} else if (ask->cause == NULL) {
		join(queue, job, ask);
	}
	if (arrival == NULL)
		goto memory;
	batch = store_batch_new(queue->store);
	if (batch == NULL || store_batch_job(batch, &job->info) != 0)
		goto memory;
	*arrival = (struct arrival){.next = job->arrivals, .done = done, .data = data, .joined = joined};
	job->arrivals = arrival;
	job->commits++;
	store_submit(batch, arrived, job);
	return;
memory:
	(void)ft_fail(&error, FT_E_MEMORY, "no memory for a job");
	if (batch != NULL)
		store_batch_drop(batch);
	if (job != NULL && !joined) {
		if (job->info.state[0] != '\0')
			unlink_job(queue, job);
		free_job(job);
	}
fail:
	free(arrival);
	done(data, NULL, false, &error);
}

int queue_wait(struct queue *queue, uint64_t id, queue_done done, void *data, struct wait **handle,
        struct ft_error *error)
{
	struct job *job = find(queue, id);
	struct wait *wait;
	char text[24];

	if (job == NULL) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, id);
		return ft_fail_field(
		        error, FT_E_UNKNOWN_JOB, "job", text, "a job that the daemon still lists");
	}
	if (job->state == JOB_OVER) {
		done(data, &job->info, NULL);
		return 0;
	}
	if (queue->stopping)
		return stopping(error);
	wait = calloc(1, sizeof(*wait));
	if (wait == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a wait");
	link_wait(&job->waits, &job->waiters, wait, done, data);
	*handle = wait;
	return 0;
}

void queue_leave(struct wait *wait)
{
	unlink_wait(wait);
	free(wait);
}

int64_t queue_owner(const struct queue *queue, uint64_t id)
{
	const struct job *job = find(queue, id);

	return job != NULL ? (int64_t)job->info.owner : -1;
}

int queue_cancel(struct queue *queue, uint64_t id, queue_done done, void *data, struct wait **handle,
        struct ft_error *error)
{
	struct job *job = find(queue, id);
	struct wait *wait;
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, id);
	if (job == NULL)
		return ft_fail_field(
		        error, FT_E_UNKNOWN_JOB, "job", text, "a job that the daemon still lists");
	if (job->state == JOB_OVER) {
		done(data, &job->info, NULL);
		return 0;
	}
	if (queue->stopping)
		return stopping(error);
	wait = calloc(1, sizeof(*wait));
	if (wait == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a wait");
	link_wait(&job->cancels, &job->cancellers, wait, done, data);
	*handle = wait;
	if (job->state == JOB_RUNS || job->state == JOB_STOPS) {
		job->cancelled = true;
		sweep_cancel(queue->sweep);
	} else if (job->state == JOB_WAITS && go_to(job, JOB_DROPS)) {
		set_end(job, QUEUE_CANCELLED, "cancelled before it ran");
		commit_end(job);
	}
	return 0;
}

/* ---- pause ---- */

static const char pause_note[] = "paused";

static void pause_stored(void *data, uint64_t generation, const struct ft_error *error)
{
	struct pause *pause = data;
	struct queue *queue = pause->queue;

	(void)generation;
	if (error != NULL) {
		pause->done(pause->data, queue->paused, error);
		free(pause);
		return;
	}
	queue->paused = pause->pause;
	log_line(queue->log, LOG_LEVEL_INFO, "queue %s active=%u", queue->paused ? "paused" : "resumed",
	        queue->active);
	pause->next = queue->pauses;
	queue->pauses = pause;
	if (!queue->paused || queue->running == NULL || queue->stopping) {
		call_pauses(queue, NULL);
		pump(queue);
		return;
	}
	/* One whose end is on the way to the store needs its device no more. */
	if (queue->running->state == JOB_RUNS && go_to(queue->running, JOB_STOPS))
		sweep_cancel(queue->sweep);
}

void queue_pause(struct queue *queue, bool pause_it,
        void (*done)(void *data, bool paused, const struct ft_error *error), void *data)
{
	struct store_batch *batch = store_batch_new(queue->store);
	struct pause *pause = calloc(1, sizeof(*pause));
	struct ft_error error;
	uint8_t value[8];
	struct ft_writer writer;

	ft_writer_init_fixed(&writer, value, sizeof(value));
	ft_write_bool(&writer, pause_it);
	if (batch == NULL || pause == NULL ||
	        store_batch_note(batch, pause_note, value, writer.length) != 0) {
		store_batch_drop(batch);
		free(pause);
		(void)ft_fail(&error, FT_E_MEMORY, "no memory to pause or resume");
		done(data, queue->paused, &error);
		return;
	}
	*pause = (struct pause){.queue = queue, .pause = pause_it, .done = done, .data = data};
	store_submit(batch, pause_stored, pause);
}

/* A pause outlives the daemon: whoever asked for it has not asked for its end. */
static int read_pause(struct queue *queue, struct ft_error *error)
{
	struct ft_writer value;
	struct ft_cursor cursor;
	uint8_t buffer[8];
	int found;

	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	found = store_get_note(queue->store, pause_note, &value, error);
	cursor = ft_cursor_of(value.data, value.length);
	if (found == 1 && !ft_read_bool(&cursor, &queue->paused))
		queue->paused = false;
	return found < 0 ? -1 : 0;
}

static void write_job(const struct job *job, struct ft_writer *writer)
{
	struct ft_job info = job->info;

	/* It has ended once the store says so. */
	if (job->state == JOB_ENDS || job->state == JOB_DROPS)
		(void)snprintf(
		        info.state, sizeof(info.state), "%s", job->state == JOB_ENDS ? "running" : "queued");
	info.waiters = job->waiters;
	ft_encode(writer, &ft_job_message, &info);
}

int queue_write(const struct queue *queue, uint64_t id, struct ft_writer *writer, struct ft_error *error)
{
	const struct job *job = find(queue, id);
	char text[24];

	if (job == NULL) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, id);
		return ft_fail_field(
		        error, FT_E_UNKNOWN_JOB, "job", text, "a job that the daemon still lists");
	}
	write_job(job, writer);
	return 0;
}

bool queue_write_next(const struct queue *queue, uint64_t *id, struct ft_writer *writer)
{
	uint32_t index = index_of(queue, *id + 1);

	if (index == queue->active + queue->ended)
		return false;
	*id = queue->by_id[index]->info.job;
	write_job(queue->by_id[index], writer);
	return true;
}

uint32_t queue_waiting(const struct queue *queue)
{
	return queue->active - (queue->running != NULL ? 1 : 0);
}

void queue_settled(struct queue *queue, struct runner_slot *slot)
{
	const struct device *device;

	/* Of a device that is another now, or gone. */
	for (struct job *job = queue->first; job != NULL; job = job->next) {
		if (job->keyed && job->state != JOB_OVER &&
		        devices_kernel(queue->devices, &job->key, &device) == NULL)
			job->keyed = false;
		job->looked = false;
	}
	sweep_settled(queue->sweep, slot);
	pump(queue);
}

void queue_runner_event(struct queue *queue, struct runner_slot *slot, const struct ft_runner_event *event)
{
	sweep_runner_event(queue->sweep, slot, event);
}

void queue_runner_gone(
        struct queue *queue, struct runner_slot *slot, enum runner_cause cause, const struct ft_error *why)
{
	queue->gone[cause]++;
	sweep_runner_gone(queue->sweep, slot, cause, why);
}

int queue_init(struct queue *queue, uv_loop_t *loop, struct devices *devices, struct store *store,
        const struct log *log, const struct options *options, const struct queue_events *events, void *data,
        struct ft_error *error)
{
	int status;

	*queue = (struct queue){
	        .devices = devices,
	        .store = store,
	        .log = log,
	        .options = options,
	        .events = events,
	        .data = data,
	        .retry_ms = RETRY_FIRST_MS,
	};
	if (store_begin(store, error) != 0)
		return -1;
	status = store_each_job(store, load_job, queue, error);
	if (status >= 0)
		status = read_pause(queue, error);
	store_end(store);
	if (status < 0)
		return -1;
	if (queue->active > 0 || queue->paused)
		log_line(log, LOG_LEVEL_INFO, "jobs found in the store active=%u%s", queue->active,
		        queue->paused ? "; the queue is paused" : "");
	status = uv_timer_init(loop, &queue->retry);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	queue->retry.data = queue;
	queue->sweep = sweep_new(loop, devices, store, log, options, &sweep_events, queue, error);
	if (queue->sweep == NULL)
		return -1;
	pump(queue);
	return 0;
}

void queue_stop(struct queue *queue)
{
	struct ft_error error;

	queue->stopping = true;
	sweep_abandon(queue->sweep);
	(void)stopping(&error);
	for (struct job *job = queue->first; job != NULL; job = job->next) {
		call_waits(&job->waits, NULL, &error);
		call_waits(&job->cancels, NULL, &error);
	}
	call_pauses(queue, &error);
	uv_close((uv_handle_t *)&queue->retry, NULL);
}

void queue_free(struct queue *queue)
{
	while (queue->first != NULL) {
		struct job *job = queue->first;

		queue->first = job->next;
		free_job(job);
	}
	free(queue->by_id);
	queue->by_id = NULL;
	trials_free(queue->found.trials);
	queue->found.trials = NULL;
	sweep_free(queue->sweep);
	queue->sweep = NULL;
}
