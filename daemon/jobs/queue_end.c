/* The end of a job: what its sweep found goes to the store, and only then are others notified. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"
#include "daemon/host/bug.h"
#include "daemon/host/timer.h"
#include "daemon/jobs/internal.h"
#include "daemon/jobs/winner.h"

enum { RETRY_LAST_MS = 60000 };

/* With the end of a job the oldest that have ended leave the store. In memory they stay until that is committed. */
static void drop_oldest_ended(struct job *ends, struct store_batch *batch)
{
	const struct job_index *jobs = &ends->queue->jobs;
	uint32_t more = jobs->ended < QUEUE_ENDED_KEPT ? 0 : jobs->ended - QUEUE_ENDED_KEPT + 1;

	for (struct job *job = jobs->first; job != NULL && more > 0; job = job->next) {
		if (job->state != JOB_OVER)
			continue;
		if (store_batch_drop_job(batch, job->info.job) != 0)
			return;
		job->dropped_with = ends->info.job;
		more--;
	}
}

static void forget_dropped(const struct job *ended)
{
	struct job_index *jobs = &ended->queue->jobs;
	struct job *next;

	for (struct job *job = jobs->first; job != NULL; job = next) {
		next = job->next;
		if (job->dropped_with != ended->info.job)
			continue;
		job_index_remove(jobs, job);
		job_free(job);
	}
}

static void job_over(struct job *job)
{
	struct queue *queue = job->queue;

	if (!queue_go(job, JOB_OVER))
		return;
	queue->ends[job->outcome]++;
	if (job->info.sweep_ns > 0)
		histogram_add(&queue->sweeps, job->info.sweep_ns, 1);
	queue->jobs.active--;
	queue->jobs.ended++;
	if (job->active != NULL)
		queue_leave_device(job);
	log_line(queue->log, LOG_LEVEL_INFO,
	        "job ended job=%" PRIu64 " state=%s sweep_s=%.3f rounds=%" PRIu64 "%s%s", job->info.job,
	        job->info.state, (double)job->info.sweep_ns / 1e9, job->info.rounds,
	        job->info.reason[0] != '\0' ? ": " : "", job->info.reason);
	queue_report(queue, job, "ended");
	job_call_waits(&job->cancels, &job->info, NULL);
	job_call_waits(&job->waits, &job->info, NULL);
}

/* What lookups will answer, and what the job's waiters get: the same. */
static int make_answer(struct job *job, uint64_t generation)
{
	const struct store_winner *winner = &job->winner;
	const struct target *target = &job->active->found.target;
	struct ft_answer *answer = calloc(1, sizeof(*answer));

	if (answer == NULL)
		return -1;
	memcpy(answer->kernel, job->info.kernel, sizeof(answer->kernel));
	memcpy(answer->device, job->info.device, sizeof(answer->device));
	answer->problem = target->problem;
	answer->config = winner->config;
	memcpy(answer->source, lookup_source_words[LOOKUP_TUNED], sizeof(answer->source));
	(void)snprintf(answer->reason, sizeof(answer->reason), "%s", lookup_winner_reason(winner));
	answer->generation = generation;
	memcpy(answer->identity, target->kernel->identity_hash, sizeof(answer->identity));
	lookup_times(winner, answer);
	ft_writer_reset(&job->answer);
	ft_encode(&job->answer, &ft_answer_message, answer);
	free(answer);
	job->info.answer = (struct ft_view){job->answer.data, job->answer.length};
	return ft_writer_ok(&job->answer) ? 0 : -1;
}

static void retry_end(uv_timer_t *timer)
{
	struct queue *queue = timer->data;

	queue->retry_waits = false;
	for (uint32_t i = 0; i < WORKERS_MAX; i++) {
		struct active *active = queue->active[i];

		if (active == NULL || !active->refused)
			continue;
		active->refused = false;
		if (active->running->state == JOB_ENDS)
			queue_commit_end(active->running);
		else
			sweep_store_again(active->sweep);
	}
}

/* Of what the store refused. */
static void retry_later(struct active *active)
{
	struct queue *queue = active->queue;

	active->refused = true;
	if (queue->retry_waits || queue->stopping)
		return;
	queue->retry_waits = true;
	timer_start(&queue->retry, retry_end, queue->retry_ms);
	queue->retry_ms *= 2;
	if (queue->retry_ms > RETRY_LAST_MS)
		queue->retry_ms = RETRY_LAST_MS;
}

void queue_sweep_refused(void *data)
{
	retry_later(data);
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
		/* The result is in memory; it is reported when the store has room for it. */
		if (job->active == NULL || queue->retry_ms == RETRY_FIRST_MS)
			log_line(queue->log, LOG_LEVEL_WARNING, "result not stored yet job=%" PRIu64 ": %s",
			        job->info.job, error->message);
		if (job->active != NULL) {
			retry_later(job->active);
		} else {
			/* A cancelled job that never ran: it goes on as it was. */
			(void)queue_go(job, JOB_WAITS);
			job->info.reason[0] = '\0';
			job->info.ended_at_ns = 0;
			job_call_waits(&job->cancels, NULL, error);
		}
		return;
	}
	if (job->active != NULL) {
		struct sweep_end *found = &job->active->found;
		bool busy = found->trials != NULL && found->trials->busy;

		queue->retry_ms = RETRY_FIRST_MS;
		sweep_stored(job->active->sweep);
		trials_free(found->trials);
		found->trials = NULL;
		if (job->winner.set && make_answer(job, generation) != 0)
			job->info.answer = (struct ft_view){NULL, 0};
		if (found->target.device != NULL)
			queue->events->swept(queue->data, &found->target, &job->info, busy, job->away);
		device_leave(found->target.device);
		found->target.device = NULL;
	}
	forget_dropped(job);
	job_over(job);
	queue_pump(queue);
}

static void committed(void *data, uint64_t generation, const struct ft_error *error)
{
	struct job *job = data;
	struct queue *queue = job->queue;

	job->commits--;
	end_committed(job, generation, error);
	if (error != NULL)
		queue_pump(queue);
}

static int add_winner(struct queue *queue, struct job *job, struct store_batch *batch)
{
	const struct sweep_end *found = &job->active->found;
	const struct target *target = &found->target;

	if (winner_choose(&job->winner, queue->store, target, found->trials, queue->settings->band_ppm) != 0)
		return -1;
	job->winner.space_hash = found->space_hash;
	job->winner.job = job->info.job;
	return store_batch_winner(batch, &target->key, &target->problem, &job->winner);
}

void queue_commit_end(struct job *job)
{
	struct queue *queue = job->queue;
	struct store_batch *batch = store_batch_new(queue->store);
	struct ft_error error;

	if (batch == NULL)
		goto fail;
	drop_oldest_ended(job, batch);
	if (job->active != NULL && job->active->found.trials != NULL) {
		const struct sweep_end *found = &job->active->found;

		if (job->outcome == JOB_DONE && add_winner(queue, job, batch) != 0)
			goto fail;
		if (store_batch_trials(
		            batch, &found->target.key, found->target.kernel->identity, found->trials) != 0)
			goto fail;
	}
	if (job->active != NULL && job->winner.set && make_answer(job, STORE_THIS) != 0)
		goto fail;
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

/* With the devices on which it was tried before. */
static void set_failed(struct job *job, const char *why)
{
	char text[sizeof(job->info.reason)];
	size_t length = (size_t)snprintf(text, sizeof(text), "%.130s", why);

	for (int i = 0; i < LOST_MAX && job->lost[i] != NULL; i++) {
		if (job->lost[i] != job->active->worker)
			length += (size_t)snprintf(text + length, sizeof(text) - length,
			        "; its runner failed on %s too", job->lost[i]->device);
	}
	job_set_outcome(job, JOB_FAILED, job->lost[1] != NULL ? text : why);
}

void queue_sweep_ended(void *data, const struct sweep_end *found)
{
	struct active *active = data;
	struct queue *queue = active->queue;
	struct job *job = active->running;
	const enum sweep_outcome outcome = found->outcome;
	struct trials *trials = found->trials;
	bool elsewhere;

	job->info.stage[0] = '\0';
	if (!bug_unless(queue->log, job->state == JOB_RUNS || job->state == JOB_STOPS,
	            "the sweep of job %" PRIu64 " ends where it %s", job->info.job,
	            job_state_word(job->state))) {
		trials_free(trials);
		device_leave(found->target.device);
		return;
	}
	/* A device that moved, one that is needed elsewhere, or one whose runner failed: what was measured is stored, and the
	 * job goes on later. */
	elsewhere = queue_note_runner(active, found);
	if (!job->cancelled &&
	        (outcome == SWEEP_MOVED || elsewhere ||
	                (outcome == SWEEP_CANCELLED && job->state == JOB_STOPS))) {
		trials_free(trials);
		device_leave(found->target.device);
		job->keyed = job->keyed && outcome != SWEEP_MOVED;
		(void)queue_go(job, JOB_WAITS);
		if (outcome != SWEEP_MOVED)
			queue_report(queue, job, "queued");
		queue_leave_device(job);
		queue_pump(queue);
		return;
	}
	(void)queue_go(job, JOB_ENDS);
	job->away = (outcome == SWEEP_FAILED || outcome == SWEEP_LOST) &&
	        strcmp(found->why.code, FT_E_UNAVAILABLE) == 0;
	active->found = *found;
	if (outcome == SWEEP_HELD)
		job->winner = found->held;
	if (trials != NULL) {
		job->info.rounds = trials->rounds;
		trials_progress(trials, trials_members(trials), &job->info.trials, &job->info.settled);
	}
	if (outcome == SWEEP_DECIDED)
		job_set_outcome(job, JOB_DONE, trials->reason);
	else if (outcome == SWEEP_HELD)
		job_set_outcome(job, JOB_DONE, found->why.message);
	else if (outcome == SWEEP_CANCELLED || outcome == SWEEP_MOVED || job->cancelled)
		job_set_outcome(job, JOB_CANCELLED, "cancelled; what was measured is kept");
	else
		set_failed(job, found->why.message);
	queue_commit_end(job);
}
