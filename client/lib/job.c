#include "client/lib/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/list.h"
#include "client/lib/outcome.h"
#include "client/lib/problem.h"
#include "client/lib/sized.h"
#include "client/lib/values.h"

static const char *const state_words[] = {
        [FLYTUNE_STATE_UNKNOWN] = "unknown",
        [FLYTUNE_STATE_QUEUED] = "queued",
        [FLYTUNE_STATE_RUNNING] = "running",
        [FLYTUNE_STATE_DONE] = "done",
        [FLYTUNE_STATE_FAILED] = "failed",
        [FLYTUNE_STATE_CANCELLED] = "cancelled",
};

enum { STATE_COUNT = sizeof state_words / sizeof *state_words };

const char *flytune_state_word(enum flytune_state state)
{
	return (size_t)state < STATE_COUNT ? state_words[state] : "unknown";
}

enum flytune_state job_state(const char *word)
{
	for (size_t i = 1; i < STATE_COUNT; i++) {
		if (strcmp(state_words[i], word) == 0)
			return (enum flytune_state)i;
	}
	return FLYTUNE_STATE_UNKNOWN;
}

void job_show(const struct ft_job *job, const char *store, struct flytune_job *shown)
{
	memset(shown, 0, sizeof *shown);
	shown->size = sizeof *shown;
	shown->job = job->job;
	shown->state = job_state(job->state);
	snprintf(shown->stage, sizeof shown->stage, "%s", job->stage);
	snprintf(shown->kernel, sizeof shown->kernel, "%s", job->kernel);
	snprintf(shown->device, sizeof shown->device, "%s", job->device);
	snprintf(shown->reason, sizeof shown->reason, "%s", job->reason);
	shown->priority = (int32_t)job->priority;
	shown->owner = (uint32_t)job->owner;
	shown->created_at_ns = job->created_at_ns;
	shown->started_at_ns = job->started_at_ns;
	shown->ended_at_ns = job->ended_at_ns;
	shown->sweep_ns = job->sweep_ns;
	shown->waited_ns = job->waited_ns;
	shown->trials = job->trials;
	shown->settled = job->settled;
	shown->space = job->space;
	shown->rounds = job->rounds;
	shown->waiters = job->waiters;
	shown->restarts = job->restarts;
	shown->field_count = values_show(&job->problems, shown->field);
	snprintf(shown->cause, sizeof shown->cause, "%s",
	        job->cause[0] != '\0' ? job->cause
	                : job->check  ? "check"
	                              : "user");
	snprintf(shown->store, sizeof shown->store, "%s", store);
}

void job_name(struct flytune_job *job, const flytune_problem *problem, uint64_t number, const char *store)
{
	struct ft_problem whole;

	problem_whole(problem, &whole);
	flytune_job_init(job);
	job->job = number;
	snprintf(job->store, sizeof job->store, "%s", store);
	memcpy(job->kernel, problem->about->kernel, sizeof job->kernel);
	job->field_count = values_show(&whole, job->field);
}

bool job_request(const struct flytune_job *named, struct ft_job_request *request)
{
	struct flytune_job job;

	*request = (struct ft_job_request){0};
	if (named == NULL)
		return true;
	if (!sized_in(&job, sizeof job, named))
		return false;
	request->job = job.job;
	snprintf(request->store, sizeof request->store, "%.36s", job.store);
	return true;
}

/* ---- tune ---- */

struct tuned {
	const flytune_problem *problem;
	struct flytune_job job;
	struct flytune_answer answer; /* where it is known already, and the job's number 0 */
};

static int read_tuned(void *to, const struct client_reply *answer, struct ft_error *error)
{
	struct tuned *tuned = to;
	struct ft_tune_reply reply;

	if (ft_decode(&ft_tune_reply_message, answer->body, &reply, error) != 0)
		return -1;
	/* The store of the daemon that acknowledged it. */
	job_name(&tuned->job, tuned->problem, reply.job, answer->connection->hello.store);
	return reply.job != 0
	        ? 0
	        : answer_read(reply.answer, answer->connection, &tuned->answer, NULL, NULL, error);
}

enum flytune_result flytune_tune(flytune_client *client, const flytune_problem *problem,
        const struct flytune_tune_options *given, struct flytune_job *job, struct flytune_answer *answer,
        struct flytune_error *out)
{
	UNCANCELLED;
	struct tuned tuned = {.problem = problem};
	struct flytune_tune_options options;
	struct ft_tune_request request = {0};
	struct ft_error error;
	enum flytune_result code;

	REQUIRE(problem, out);
	REQUIRE(job, out);
	flytune_tune_options_init(&options);
	if (given != NULL && !sized_in(&options, sizeof options, given))
		return outcome_unsized(out, "flytune_tune_options");
	if (sized_length(job) < sizeof job->size)
		return outcome_unsized(out, "flytune_job");
	if (answer != NULL && sized_length(answer) < sizeof answer->size)
		return outcome_unsized(out, "flytune_answer");
	if (client_device(client, options.device, request.device, &error) != 0)
		return outcome(out, &error);
	memcpy(request.kernel, problem->about->kernel, sizeof request.kernel);
	problem_given(problem, &request.problem);
	request.force = options.force != 0;
	request.check = options.check != 0;
	request.priority = options.priority;
	if (options.budget_ms > 0)
		request.budget_ns = (uint64_t)options.budget_ms * CLOCK_MS;
	code = client_ask(client, "tune", &ft_tune_request_message, &request, read_tuned, &tuned, out);
	if (code != FLYTUNE_OK)
		return code;
	if (answer != NULL && tuned.job.job == 0)
		sized_out(answer, &tuned.answer, sizeof tuned.answer);
	sized_out(job, &tuned.job, sizeof tuned.job);
	return FLYTUNE_OK;
}

enum flytune_result flytune_cancel(
        flytune_client *client, const struct flytune_job *job, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_job_request request;

	REQUIRE(job, out);
	if (!job_request(job, &request))
		return outcome_unsized(out, "flytune_job");
	return client_ask(client, "cancel", &ft_job_request_message, &request, NULL, NULL, out);
}

/* ---- lists ---- */

struct flytune_job_list {
	struct flytune_job *job;
	size_t count;
};

static int read_job(struct ft_view data, void *element, struct ft_error *error)
{
	struct ft_job job;

	if (ft_decode(&ft_job_message, data, &job, error) != 0)
		return -1;
	job_show(&job, "", element);
	return 0;
}

static int read_jobs(void *to, const struct client_reply *reply, struct ft_error *error)
{
	flytune_job_list **list = to;
	flytune_job_list *made = calloc(1, sizeof *made);
	struct ft_jobs_reply jobs;
	void *array = NULL;

	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	if (ft_decode(&ft_jobs_reply_message, reply->body, &jobs, error) != 0 ||
	        list_read(jobs.jobs, sizeof *made->job, read_job, &array, &made->count, error) != 0) {
		free(made);
		return -1;
	}
	made->job = array;
	for (size_t i = 0; i < made->count; i++)
		snprintf(made->job[i].store, sizeof made->job[i].store, "%s", reply->connection->hello.store);
	*list = made;
	return 0;
}

enum flytune_result flytune_jobs(flytune_client *client, const struct flytune_job *job,
        flytune_job_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_job_request request;

	REQUIRE(list, out);
	if (!job_request(job, &request))
		return outcome_unsized(out, "flytune_job");
	return client_ask(client, "jobs", &ft_job_request_message, &request, read_jobs, list, out);
}

size_t flytune_job_list_count(const flytune_job_list *list)
{
	return list != NULL ? list->count : 0;
}

int flytune_job_list_get(const flytune_job_list *list, size_t index, struct flytune_job *job)
{
	return list != NULL && index < list->count &&
	        sized_out(job, &list->job[index], sizeof list->job[index]);
}

void flytune_job_list_free(flytune_job_list *list)
{
	UNCANCELLED;

	if (list != NULL)
		free(list->job);
	free(list);
}
