#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/job.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

enum {
	COME_BACK_MS = 10000, /* that a wait grants a daemon that went away */
	LOOK_AGAIN_MS = 50,
};

/* A caller's request to be sent events. */
struct listener {
	flytune_event_fn events;
	void *data;
};

static int show(const struct ft_event *event, struct flytune_event *shown)
{
	memset(shown, 0, sizeof *shown);
	shown->size = sizeof *shown;
	shown->job = event->job;
	snprintf(shown->event, sizeof shown->event, "%s", event->event);
	shown->state = job_state(event->state);
	snprintf(shown->stage, sizeof shown->stage, "%s", event->stage);
	shown->trials = event->trials;
	shown->settled = event->settled;
	shown->space = event->space;
	shown->round = event->round;
	snprintf(shown->status, sizeof shown->status, "%s", event->status);
	shown->time_ps = event->time_ps;
	shown->ci_ps = event->ci_ps;
	snprintf(shown->reason, sizeof shown->reason, "%s", event->reason);
	return answer_knobs(&event->config, shown->knob, &shown->knob_count, NULL);
}

static int on_notice(void *data, const struct ft_envelope *notice)
{
	const struct listener *listener = data;
	struct flytune_event shown;
	struct ft_event event;

	/* A notice that this library does not know, or a newer form of it, is none of its business. */
	if (strcmp(notice->method, "event") != 0 ||
	        ft_decode(&ft_event_message, notice->body, &event, NULL) != 0)
		return 0;
	if (show(&event, &shown) != 0)
		return 0;
	return listener->events(listener->data, &shown);
}

static bool same_value(const struct flytune_value *a, const struct flytune_value *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->text, b->text) == 0 && a->number == b->number;
}

/* Whether a job is of the problem that was asked for. A store that was put back from a copy keeps its name and gives the
 * same numbers again. */
static bool is_of(const struct flytune_job *job, const struct flytune_job *asked)
{
	uint32_t found = 0;

	if (asked->kernel[0] == '\0')
		return true;
	for (uint32_t i = 0; i < asked->field_count && i < FLYTUNE_FIELDS_MAX; i++) {
		for (uint32_t j = 0; j < job->field_count; j++)
			found += same_value(&job->field[j], &asked->field[i]);
	}
	return strcmp(job->kernel, asked->kernel) == 0 && found == asked->field_count;
}

static enum call_result read_ended(struct ft_view body, const struct connection *connection,
        const struct flytune_job *asked, struct flytune_job *job, struct flytune_answer *answer,
        struct ft_error *error)
{
	struct ft_job ended;

	if (ft_decode(&ft_job_message, body, &ended, error) != 0)
		return CALL_LOST;
	job_show(&ended, connection->hello.store, job);
	if (!is_of(job, asked)) {
		ft_fail(error, FT_E_UNKNOWN_JOB, "job %llu is of another problem than was asked for",
		        (unsigned long long)asked->job);
		return CALL_REFUSED;
	}
	if (ended.answer.data != NULL &&
	        answer_read(ended.answer, connection, answer, NULL, NULL, error) != 0)
		return CALL_LOST;
	return CALL_DONE;
}

/* One connection's worth of waiting. */
static enum call_result wait_once(flytune_client *client, const struct flytune_job *asked, uint64_t deadline,
        struct listener *listener, struct flytune_job *job, struct flytune_answer *answer,
        struct ft_error *error)
{
	struct ft_job_request request;
	struct connection *connection;
	struct ft_envelope reply;
	enum call_result result = client_take_own(client, deadline, &connection, error);

	if (result != CALL_DONE)
		return result;
	(void)job_request(asked, &request);
	if (listener->events != NULL)
		result = connection_call(connection, "watch", &ft_job_request_message, &request, deadline,
		        on_notice, listener, &reply, error);
	if (result == CALL_DONE)
		result = connection_call(connection, "wait", &ft_job_request_message, &request, deadline,
		        listener->events != NULL ? on_notice : NULL, listener, &reply, error);
	if (result == CALL_DONE)
		result = read_ended(reply.body, connection, asked, job, answer, error);
	if (result == CALL_DONE || result == CALL_REFUSED)
		client_give(client, connection);
	else
		client_drop(client, connection, NULL);
	return result;
}

static enum flytune_result stopped(struct flytune_error *out)
{
	struct ft_error error;

	ft_fail(&error, FT_E_CANCELLED, "the wait was ended by the program's own callback");
	return outcome(out, &error);
}

/* What a wait asks and learns: large, so not on the stack of the caller's thread. */
struct waiting {
	struct flytune_job asked, ended;
	struct flytune_answer answer;
};

static enum flytune_result wait_for(flytune_client *client, struct waiting *waiting, uint64_t deadline,
        struct listener *listener, struct flytune_error *out)
{
	uint64_t lost_at = 0;
	struct ft_error error;

	for (;;) {
		uint64_t began = clock_now();

		client_enter(client);
		switch (wait_once(client, &waiting->asked, deadline, listener, &waiting->ended,
		        &waiting->answer, &error)) {
		case CALL_DONE:
			return FLYTUNE_OK;
		case CALL_STOPPED:
			return stopped(out);
		case CALL_LOST:
			break;
		default:
			return outcome(out, &error);
		}
		/* A daemon that is restarted takes its jobs up again, so the wait goes on. */
		if (lost_at == 0 || clock_now() - began > COME_BACK_MS * CLOCK_MS)
			lost_at = clock_now();
		if (clock_now() >= deadline || clock_now() - lost_at > COME_BACK_MS * CLOCK_MS)
			return outcome(out, &error);
		poll(NULL, 0, LOOK_AGAIN_MS);
	}
}

enum flytune_result flytune_wait(flytune_client *client, struct flytune_job *job, int64_t timeout_ms,
        flytune_event_fn events, void *data, struct flytune_answer *answer, struct flytune_error *out)
{
	UNCANCELLED;
	struct listener listener = {.events = events, .data = data};
	uint64_t deadline = clock_after(timeout_ms);
	struct waiting *waiting;
	enum flytune_result result;

	REQUIRE(client, out);
	REQUIRE(job, out);
	if (sized_length(job) < sizeof job->size)
		return outcome_unsized(out, "flytune_job");
	if (answer != NULL && sized_length(answer) < sizeof answer->size)
		return outcome_unsized(out, "flytune_answer");
	waiting = calloc(1, sizeof *waiting);
	if (waiting == NULL) {
		struct ft_error error;

		ft_fail(&error, FT_E_MEMORY, "out of memory");
		return outcome(out, &error);
	}
	(void)sized_in(&waiting->asked, sizeof waiting->asked, job);
	flytune_answer_init(&waiting->answer);
	result = wait_for(client, waiting, deadline, &listener, out);
	if (result == FLYTUNE_OK) {
		sized_out(job, &waiting->ended, sizeof waiting->ended);
		if (answer != NULL && waiting->ended.state == FLYTUNE_STATE_DONE)
			sized_out(answer, &waiting->answer, sizeof waiting->answer);
	}
	free(waiting);
	return result;
}

enum flytune_result flytune_watch(flytune_client *client, const struct flytune_job *job, int64_t timeout_ms,
        flytune_event_fn events, void *data, struct flytune_error *out)
{
	UNCANCELLED;
	struct listener listener = {.events = events, .data = data};
	uint64_t deadline = clock_after(timeout_ms);
	struct flytune_event begin = {.size = sizeof begin, .event = "watching"};
	struct ft_job_request request;
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	enum call_result result;

	REQUIRE(client, out);
	REQUIRE(events, out);
	if (!job_request(job, &request))
		return outcome_unsized(out, "flytune_job");
	begin.job = request.job;
	client_enter(client);
	result = client_call_own(client, "watch", &ft_job_request_message, &request, deadline, on_notice,
	        &listener, &connection, &reply, &error);
	if (result == CALL_DONE) {
		result = events(data, &begin) != 0
		        ? CALL_STOPPED
		        : connection_listen(connection, deadline, on_notice, &listener, &error);
		client_drop(client, connection, NULL);
	}
	return result == CALL_STOPPED ? FLYTUNE_OK : outcome(out, &error);
}
