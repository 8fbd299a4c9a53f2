#include "daemon/jobs/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/host/bug.h"
#include "proto/clock.h"

const char *const job_outcome_words[JOB_OUTCOMES] = {
        [JOB_DONE] = "done",
        [JOB_FAILED] = "failed",
        [JOB_CANCELLED] = "cancelled",
};

void job_set_state(struct job *job, const char *state)
{
	(void)snprintf(job->info.state, sizeof(job->info.state), "%s", state);
}

/* Whoever gets false leaves it where it is. */
bool job_go(struct job *job, enum job_state next, bool has_device, const struct log *log)
{
	if (!bug_unless(log, job_may_go(job->state, next), "job %" PRIu64 " cannot go from %s to %s",
	            job->info.job, job_state_word(job->state), job_state_word(next)) ||
	        !bug_unless(log, has_device == job_has_device(job->state),
	                "job %" PRIu64 " %s, and another has the device", job->info.job,
	                job_state_word(job->state)))
		return false;
	job->state = next;
	if (next == JOB_WAITS)
		job_set_state(job, "queued");
	else if (next == JOB_RUNS)
		job_set_state(job, "running");
	return true;
}

void job_set_outcome(struct job *job, enum job_outcome outcome, const char *reason)
{
	job->outcome = outcome;
	job_set_state(job, job_outcome_words[outcome]);
	job->info.ended_at_ns = ft_wall_ns();
	(void)snprintf(job->info.reason, sizeof(job->info.reason), "%.*s", (int)sizeof(job->info.reason) - 1,
	        reason);
}

void job_free(struct job *job)
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

struct job *job_new(struct queue *queue)
{
	struct job *job = calloc(1, sizeof(*job));

	if (job != NULL) {
		job->queue = queue;
		ft_writer_init_growing(&job->answer, ft_bounds_request.bytes);
	}
	return job;
}

void job_link_wait(struct wait **list, uint32_t *waiters, struct wait *wait, job_done done, void *data)
{
	*wait = (struct wait){.next = *list, .link = list, .waiters = waiters, .done = done, .data = data};
	(*waiters)++;
	if (wait->next != NULL)
		wait->next->link = &wait->next;
	*list = wait;
}

void job_unlink_wait(struct wait *wait)
{
	*wait->link = wait->next;
	if (wait->next != NULL)
		wait->next->link = wait->link;
	(*wait->waiters)--;
}

void job_call_waits(struct wait **waits, const struct ft_job *job, const struct ft_error *error)
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

bool job_is_background(const struct job *job)
{
	return job->info.cause[0] != '\0';
}

void job_write(const struct job *job, struct ft_writer *writer)
{
	struct ft_job info = job->info;

	/* It has ended, and as what, once the store says so. */
	if (job->state == JOB_ENDS || job->state == JOB_DROPS) {
		(void)snprintf(
		        info.state, sizeof(info.state), "%s", job->state == JOB_ENDS ? "running" : "queued");
		info.answer = (struct ft_view){NULL, 0};
		info.reason[0] = '\0';
		info.ended_at_ns = 0;
	}
	info.waiters = job->waiters;
	ft_encode(writer, &ft_job_message, &info);
}
