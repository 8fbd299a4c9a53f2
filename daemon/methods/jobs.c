#include "daemon/methods/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"

enum { PRIORITY_MAX = 100 };

static const uint64_t budget_max_ns = 86400ULL * 1000000000;

/* ---- tune ---- */

static void tune_arrived(void *data, const struct ft_job *job, bool joined, const struct ft_error *error)
{
	struct pending *pending = data;
	struct ft_tune_reply reply = {.joined = joined};

	if (pending->session != NULL && job != NULL) {
		reply.job = job->job;
		session_reply(pending->session, pending->id, &ft_tune_reply_message, &reply);
	} else if (pending->session != NULL) {
		session_fail(pending->session, pending->id, error);
	}
	pending_free(pending);
}

/* A winner of today's identity and of all of today's space needs no sweep. True if that was the answer. */
static bool answer_tuned(struct context *context, const struct target *target, struct pending *pending)
{
	struct ft_answer answer;
	struct ft_tune_reply reply = {0};
	struct lookup_basis basis;
	struct ft_writer writer;
	bool told = false;

	if (context_read(context, NULL) != 0 || !lookup_is_settled(context->store, target) ||
	        lookup_answer(context->store, target, 0, &answer, &basis, NULL) != 0)
		return false;
	ft_writer_init_growing(&writer, ft_bounds_request.bytes);
	ft_encode(&writer, &ft_answer_message, &answer);
	if (ft_writer_ok(&writer)) {
		reply.answer = (struct ft_view){writer.data, writer.length};
		session_reply(pending->session, pending->id, &ft_tune_reply_message, &reply);
		pending_free(pending);
		told = true;
	}
	ft_writer_free(&writer);
	return told;
}

/* A launch of it must fit into the device. */
static int check_room(const struct target *target, struct ft_error *error)
{
	const struct ft_kernel *known = target->kernel->known;
	uint64_t room = target->device->shown.memory;
	struct ft_tensors tensors;
	uint64_t bytes;
	char bound[64];
	char value[32];

	if (known == NULL || room == 0)
		return 0;
	known->tensors(known, &target->problem, &tensors);
	bytes = ft_tensors_span(&tensors);
	if (bytes <= room)
		return 0;
	(void)snprintf(value, sizeof(value), "%" PRIu64 " bytes", bytes);
	(void)snprintf(bound, sizeof(bound), "at most the %" PRIu64 " bytes of the device", room);
	return ft_fail_field(error, FT_E_BAD_VALUE, "problem", value, bound);
}

static int check_tune(const struct ft_tune_request *request, struct ft_error *error)
{
	char text[24];

	if (request->priority < -PRIORITY_MAX || request->priority > PRIORITY_MAX) {
		(void)snprintf(text, sizeof(text), "%" PRId64, request->priority);
		return ft_fail_field(error, FT_E_BAD_VALUE, "priority", text, "from -100 to 100");
	}
	if (request->budget_ns > budget_max_ns) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, request->budget_ns);
		return ft_fail_field(error, FT_E_BAD_VALUE, "budget_ns", text, "at most a day");
	}
	return 0;
}

void method_tune(void *group, struct session *session, const struct ft_envelope *envelope)
{
	const struct jobs *jobs = group;
	struct context *context = jobs->context;
	struct target target;
	struct ft_tune_request request;
	struct queue_ask ask;
	struct pending *pending;
	struct ft_error error;

	if (ft_decode(&ft_tune_request_message, envelope->body, &request, &error) != 0 ||
	        check_tune(&request, &error) != 0)
		goto fail;
	switch (parked_target(jobs->parked, session, envelope, method_tune, group, request.kernel,
	        request.device, &request.problem, &target, &error)) {
	case TARGET_PARKED:
		return;
	case TARGET_REFUSED:
		goto fail;
	case TARGET_READY:
		break;
	}
	if (check_room(&target, &error) != 0)
		goto fail;
	pending = pending_new(session, envelope->id, &error);
	if (pending == NULL)
		goto fail;
	ask = (struct queue_ask){
	        .force = request.force,
	        .check = request.check && !request.force,
	        .named = request.device[0] != '\0',
	        .priority = request.priority,
	        .budget_ns = request.budget_ns,
	        .user = session->user,
	        .most = session->level == ACCESS_ADMIN ? 0 : context->settings->jobs_per_user,
	};
	if (request.force || request.check || !answer_tuned(context, &target, pending))
		queue_add(context->queue, &target, &ask, tune_arrived, pending);
	return;
fail:
	session_fail(session, envelope->id, &error);
}

/* ---- ends of jobs ---- */

/* How a job ended, encoded once for all who wait. */
struct end {
	uint32_t references;
	uint64_t job;
	bool failed;
	struct ft_error error;
	struct ft_writer encoded;
};

/* One connection that waits for the end of a job, with all the requests that asked for it. */
struct awaited {
	struct node node;
	struct jobs *jobs;
	struct session *session;
	uint64_t job;
	bool cancel;
	struct wait *wait; /* until it has ended */
	struct end *end;   /* then */
	uint32_t count, room;
	uint32_t told; /* of the ids */
	uint32_t *id;
};

static void end_free(struct end *end)
{
	if (end == NULL || --end->references > 0)
		return;
	ft_writer_free(&end->encoded);
	free(end);
}

static struct end *end_of(
        struct jobs *jobs, uint64_t number, const struct ft_job *job, const struct ft_error *error)
{
	struct end *end = jobs->end;

	if (end != NULL && end->job == number && job != NULL && !end->failed) {
		end->references++;
		return end;
	}
	end = calloc(1, sizeof(*end));
	if (end == NULL)
		return NULL;
	end->references = 2;
	end->job = number;
	ft_writer_init_growing(&end->encoded, ft_bounds_large.bytes);
	if (job != NULL)
		ft_encode(&end->encoded, &ft_job_message, job);
	if (!ft_writer_ok(&end->encoded))
		(void)ft_fail(&end->error, FT_E_MEMORY, "no memory for a job");
	else if (job == NULL)
		end->error = *error;
	end->failed = job == NULL || !ft_writer_ok(&end->encoded);
	end_free(jobs->end);
	jobs->end = end;
	return end;
}

static void awaited_free(struct awaited *awaited)
{
	list_leave(&awaited->node);
	if (awaited->wait != NULL)
		queue_leave(awaited->wait);
	end_free(awaited->end);
	free(awaited->id);
	free(awaited);
}

static void awaited_free_all(const struct list *list)
{
	struct node *next;

	for (struct node *node = list->first; node != NULL; node = next) {
		next = node->next;
		awaited_free(node->data);
	}
}

static void job_ended(void *data, const struct ft_job *job, const struct ft_error *error)
{
	struct awaited *awaited = data;
	struct session *session = awaited->session;

	awaited->wait = NULL;
	awaited->end = end_of(awaited->jobs, awaited->job, job, error);
	list_leave(&awaited->node);
	list_add(&session->ended, &awaited->node);
	session->due = true;
	session_wake(session);
}

bool jobs_tell_ended(struct session *session)
{
	struct node *node = session->ended.first;

	while (node != NULL && session->out.length < SESSION_TOLD) {
		struct awaited *awaited = node->data;
		const struct end *end = awaited->end;
		struct ft_error error;

		if (awaited->told == awaited->count) {
			node = node->next;
			awaited_free(awaited);
			continue;
		}
		if (end == NULL) {
			(void)ft_fail(&error, FT_E_MEMORY, "no memory for a job");
			ft_write_failure(&session->out, awaited->id[awaited->told], &error);
		} else if (end->failed) {
			ft_write_failure(&session->out, awaited->id[awaited->told], &end->error);
		} else {
			ft_begin_response(&session->out, awaited->id[awaited->told]);
			ft_write_raw(&session->out, end->encoded.data, end->encoded.length);
		}
		awaited->told++;
		session_owe_less(session, 1);
		if (session_spent(session, 1))
			break;
	}
	return node != NULL;
}

void jobs_left(struct session *session)
{
	awaited_free_all(&session->awaited);
	awaited_free_all(&session->ended);
}

void jobs_free(struct jobs *jobs)
{
	end_free(jobs->end);
}

/* ---- jobs ---- */

/* Numbers come again in another store: one that was given by another, before the state directory was changed or rescued,
 * says nothing here. */
static int check_origin(const struct jobs *jobs, const struct ft_job_request *request, struct ft_error *error)
{
	const char *store = store_uuid(jobs->context->store);

	if (request->store[0] == '\0' || strcmp(request->store, store) == 0)
		return 0;
	(void)ft_fail_field(error, FT_E_UNKNOWN_JOB, "store", request->store, store);
	(void)snprintf(error->message, sizeof(error->message),
	        "job %" PRIu64 " is of another store: %s gave it its number, and this daemon has %s",
	        request->job, error->value, store);
	return -1;
}

/* Decodes a job request; with `needed`, a job must be named. */
static bool read_job_request(const struct jobs *jobs, struct session *session,
        const struct ft_envelope *envelope, bool needed, struct ft_job_request *request)
{
	struct ft_error error;

	if (ft_decode(&ft_job_request_message, envelope->body, request, &error) == 0 &&
	        check_origin(jobs, request, &error) == 0) {
		if (request->job != 0 || !needed)
			return true;
		(void)ft_fail_field(&error, FT_E_BAD_REQUEST, "job", "absent", "the number of a job");
	}
	session_fail(session, envelope->id, &error);
	return false;
}

static struct awaited *find_awaited(const struct session *session, uint64_t job, bool cancel)
{
	for (struct node *node = session->awaited.first; node != NULL; node = node->next) {
		struct awaited *awaited = node->data;

		if (awaited->job == job && awaited->cancel == cancel)
			return awaited;
	}
	return NULL;
}

static int add_id(struct awaited *awaited, uint64_t id, struct ft_error *error)
{
	if (awaited->count == awaited->room) {
		uint32_t room = awaited->room > 0 ? 2 * awaited->room : 1;
		uint32_t *grown = realloc(awaited->id, room * sizeof(*grown));

		if (grown == NULL)
			return ft_fail(error, FT_E_MEMORY, "no memory for a request");
		awaited->id = grown;
		awaited->room = room;
	}
	awaited->id[awaited->count++] = (uint32_t)id;
	return 0;
}

static int await_job(struct jobs *jobs, struct session *session, uint64_t id, uint64_t job, bool cancel,
        struct ft_error *error)
{
	struct awaited *awaited = find_awaited(session, job, cancel);
	int status;

	/* Of one connection any number of waits for a job are one. */
	if (awaited != NULL)
		return add_id(awaited, id, error);
	awaited = calloc(1, sizeof(*awaited));
	if (awaited == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a request");
	awaited->jobs = jobs;
	awaited->session = session;
	awaited->job = job;
	awaited->cancel = cancel;
	awaited->node.data = awaited;
	list_add(&session->awaited, &awaited->node);
	status = add_id(awaited, id, error);
	if (status == 0 && cancel)
		status = queue_cancel(jobs->context->queue, job, job_ended, awaited, &awaited->wait, error);
	else if (status == 0)
		status = queue_wait(jobs->context->queue, job, job_ended, awaited, &awaited->wait, error);
	if (status == 0 && cancel)
		log_line(jobs->context->log, LOG_LEVEL_NOTICE,
		        "audit cancel uid=%u pid=%" PRId64 " job=%" PRIu64, session->user, session->process,
		        job);
	if (status != 0)
		awaited_free(awaited);
	return status;
}

/* wait and cancel: both reply with the job as it ended. */
static void until_ended(
        struct jobs *jobs, struct session *session, const struct ft_envelope *envelope, bool cancel)
{
	struct ft_job_request request;
	struct ft_error error;

	if (!read_job_request(jobs, session, envelope, true, &request))
		return;
	if (session_owe(session, &error) != 0) {
		session_fail(session, envelope->id, &error);
	} else if (await_job(jobs, session, envelope->id, request.job, cancel, &error) != 0) {
		session_fail(session, envelope->id, &error);
		session_owe_less(session, 1);
	}
}

void method_wait(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct jobs *jobs = group;
	until_ended(jobs, session, envelope, false);
}

void method_cancel(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct jobs *jobs = group;
	struct ft_job_request request;
	struct ft_error error;
	int64_t owner;

	if (!read_job_request(jobs, session, envelope, true, &request))
		return;
	/* Of one's own jobs it needs no more than to tune does. */
	owner = queue_owner(jobs->context->queue, request.job);
	if (owner >= 0 && owner != session->user &&
	        !context_allows(jobs->context, session, "cancel of another user's job", ACCESS_ADMIN, &error))
		session_fail(session, envelope->id, &error);
	else
		until_ended(jobs, session, envelope, true);
}

/* The list of all jobs, some in each turn. */
struct listing {
	struct work work;
	const struct queue *queue;
	uint64_t job;    /* 0: all */
	size_t count_at; /* in the answer, where the number of jobs stands */
	uint64_t last;
	uint32_t count;
};

static bool list_jobs(struct work *work, struct session *session)
{
	struct listing *listing = (struct listing *)work;
	struct ft_error error;

	if (listing->job != 0 && queue_write(listing->queue, listing->job, &work->answer, &error) != 0) {
		ft_writer_reset(&work->answer);
		ft_write_failure(&work->answer, work->id, &error);
		return true;
	}
	while (listing->job == 0 && queue_write_next(listing->queue, &listing->last, &work->answer)) {
		listing->count++;
		if (session_spent(session, SESSION_HEAVY))
			return false;
	}
	ft_write_count(&work->answer, listing->count_at, listing->count);
	return true;
}

void method_jobs(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct jobs *jobs = group;
	struct ft_job_request request;
	struct listing *listing;
	struct ft_error error;

	if (!read_job_request(jobs, session, envelope, false, &request))
		return;
	listing = calloc(1, sizeof(*listing));
	if (listing == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of jobs");
		session_fail(session, envelope->id, &error);
		return;
	}
	listing->work.step = list_jobs;
	listing->work.id = envelope->id;
	listing->work.bytes = sizeof(*listing);
	listing->queue = jobs->context->queue;
	listing->job = request.job;
	listing->count = request.job != 0;
	ft_writer_init_growing(&listing->work.answer, ft_bounds_large.bytes);
	ft_begin_response(&listing->work.answer, envelope->id);
	ft_write_map(&listing->work.answer, 1); /* as ft_jobs_reply */
	ft_write_text(&listing->work.answer, "jobs");
	listing->count_at = ft_write_open_array(&listing->work.answer);
	session_begin(session, &listing->work);
}

void method_watch(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct jobs *jobs = group;
	struct ft_job_request request;
	struct ft_empty reply = {.ok = true};

	if (!read_job_request(jobs, session, envelope, false, &request))
		return;
	job_events_join(&jobs->context->server->watched, session, request.job);
	session_reply(session, envelope->id, &ft_empty_message, &reply);
}
