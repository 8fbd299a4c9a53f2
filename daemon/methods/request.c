#include "daemon/methods/methods.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/transfer.h"
#include "proto/clock.h"

enum {
	PRIORITY_MAX = 100,
	PARKED_MAX = 4096,
	PARKED_BYTES_MAX = 16 << 20,
};

static const uint64_t budget_max_ns = 86400ULL * 1000000000;

struct parked {
	struct node node; /* of those that wait for a device, then of its session's */
	struct session *session;
	uint64_t id;
	method_call *call;
	size_t length;
	uint8_t body[];
};

int requests_reading(struct requests *requests, struct ft_error *error)
{
	if (requests->reading)
		return 0;
	if (store_begin(requests->store, error) != 0)
		return -1;
	requests->reading = true;
	return 0;
}

void requests_add_untimed(struct requests *requests)
{
	histogram_add(&requests->latency, requests->timed_ns, requests->untimed);
	requests->untimed = 0;
}

void requests_batch_end(struct requests *requests)
{
	if (requests->reading)
		store_end(requests->store);
	requests->reading = false;
	/* Two looks at the clock a batch, not two a lookup. */
	if (requests->batch_lookups > 0)
		histogram_add(&requests->latency,
		        (ft_monotonic_ns() - requests->batch_began_ns) / requests->batch_lookups,
		        requests->batch_lookups);
	requests->batch_lookups = 0;
}

static bool allowed(struct requests *requests, const struct session *session, const char *what,
        enum access_level needs, struct ft_error *error)
{
	if (access_check(requests->access, session->level, needs, what, session->user, error) == 0)
		return true;
	requests->denied++;
	log_limited(requests->log, &requests->denials, LOG_LEVEL_NOTICE,
	        "audit denied %s uid=%u gid=%u pid=%" PRId64, what, session->user, session->group,
	        session->process);
	return false;
}

/* ---- hello ---- */

void requests_keeps(struct requests *requests, struct session *session)
{
	if (session->keeps)
		return;
	session->keeps = true;
	if (requests->keepers++ == 0)
		devices_watch(requests->devices, true);
}

static void method_hello(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_hello_request hello;
	struct ft_hello_reply reply = {.server = "flytuned " FLYTUNE_VERSION};
	struct ft_error error;

	if (ft_decode(&ft_hello_request_message, envelope->body, &hello, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	if (hello.min > hello.max || hello.max < FT_PROTOCOL_MIN || hello.min > FT_PROTOCOL_MAX) {
		(void)ft_fail(&error, FT_E_PROTOCOL,
		        "the client speaks protocol %" PRIu64 " to %" PRIu64
		        ", this daemon (%s) speaks %d to %d: upgrade the %s",
		        hello.min, hello.max, FLYTUNE_VERSION, FT_PROTOCOL_MIN, FT_PROTOCOL_MAX,
		        hello.max < FT_PROTOCOL_MIN ? "client" : "daemon");
		session_refuse(session, envelope->id, &error);
		return;
	}
	reply.protocol = hello.max < FT_PROTOCOL_MAX ? hello.max : FT_PROTOCOL_MAX;
	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(requests->store));
	reply.generation = store_generation(requests->store);
	memcpy(session->name, hello.name, sizeof(session->name));
	if (hello.board && !session->greeted && requests->board->descriptor >= 0) {
		session->greeted = true;
		requests_keeps(requests, session);
		reply.descriptors = 1;
		session_hand_over(
		        session, envelope->id, &ft_hello_reply_message, &reply, requests->board->descriptor);
		return;
	}
	session->greeted = true;
	session_reply(session, envelope->id, &ft_hello_reply_message, &reply);
}

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
static bool answer_tuned(struct requests *requests, struct pending *pending)
{
	struct subject *subject = &requests->subject;
	struct ft_tune_reply reply = {0};
	struct store_answer known;
	enum lookup_source source = LOOKUP_DEFAULT;
	struct ft_writer writer;
	bool told = false;

	if (requests_reading(requests, NULL) != 0)
		return false;
	if (lookup_known(requests->store, subject, 0, &known, NULL) != 1 ||
	        !lookup_settled(subject, &known.winner))
		return false;
	if (lookup_answer(requests->store, subject, 0, &requests->answer, &source, NULL) != 0)
		return false;
	ft_writer_init_growing(&writer, ft_bounds_request.bytes);
	ft_encode(&writer, &ft_answer_message, &requests->answer);
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
static int check_room(const struct subject *subject, struct ft_error *error)
{
	const struct ft_kernel *built_in = subject->kernel->built_in;
	uint64_t room = subject->device->shown.memory;
	uint64_t bytes;
	char bound[64];
	char value[32];

	if (built_in == NULL || room == 0)
		return 0;
	bytes = built_in->bytes(&subject->problem);
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

static void method_tune(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_tune_request request;
	struct queue_ask ask;
	struct pending *pending;
	struct ft_error error;

	if (ft_decode(&ft_tune_request_message, envelope->body, &request, &error) != 0 ||
	        check_tune(&request, &error) != 0)
		goto fail;
	switch (requests_subject(requests, session, envelope, method_tune, request.kernel, request.device,
	        &request.problem, &error)) {
	case SUBJECT_PARKED:
		return;
	case SUBJECT_REFUSED:
		goto fail;
	case SUBJECT_READY:
		break;
	}
	if (check_room(&requests->subject, &error) != 0)
		goto fail;
	pending = pending_new(session, envelope->id, &error);
	if (pending == NULL)
		goto fail;
	ask = (struct queue_ask){
	        .force = request.force,
	        .check = request.check && !request.force,
	        .priority = request.priority,
	        .budget_ns = request.budget_ns,
	        .user = session->user,
	        .most = session->level == ACCESS_ADMIN ? 0 : requests->options->jobs_per_user,
	};
	if (request.force || request.check || !answer_tuned(requests, pending))
		queue_add(requests->queue, &requests->subject, &ask, tune_arrived, pending);
	return;
fail:
	session_fail(session, envelope->id, &error);
}

/* ---- requests that wait until a device was heard ---- */

static void method_again(
        struct requests *requests, struct session *session, struct ft_envelope *envelope, method_call *call);

int requests_park(struct requests *requests, struct session *session, const struct ft_envelope *envelope,
        method_call *call, struct ft_error *error)
{
	size_t length = envelope->body.length;
	struct parked *parked;

	if (requests->stopping)
		return ft_fail(error, FT_E_STOPPING, "the daemon is stopping");
	if (requests->parked_count >= PARKED_MAX || requests->parked_bytes + length > PARKED_BYTES_MAX)
		return ft_fail(error, FT_E_BUSY, "too many requests wait for a device to be found");
	if (session->level != ACCESS_ADMIN &&
	        (session->turn.user->parked >= PARKED_MAX / 2 ||
	                session->turn.user->parked_bytes + length > PARKED_BYTES_MAX / 2))
		return ft_fail(error, FT_E_BUSY, "too many requests of user %u wait for a device to be found",
		        session->user);
	if (session_owe(session, error) != 0)
		return -1;
	parked = calloc(1, sizeof(*parked) + length);
	if (parked == NULL) {
		session_owe_less(session, 1);
		return ft_fail(error, FT_E_MEMORY, "no memory for a request");
	}
	parked->session = session;
	parked->id = envelope->id;
	parked->call = call;
	parked->length = length;
	if (length > 0)
		memcpy(parked->body, envelope->body.data, length);
	parked->node.data = parked;
	list_add(&requests->parked, &parked->node);
	requests->parked_count++;
	requests->parked_bytes += length;
	session->turn.user->parked++;
	session->turn.user->parked_bytes += length;
	return 0;
}

/* It waits no more: it is to be answered now. */
static void unpark(struct requests *requests, struct parked *parked)
{
	struct user *user = parked->session->turn.user;

	list_leave(&parked->node);
	requests->parked_count--;
	requests->parked_bytes -= parked->length;
	user->parked--;
	user->parked_bytes -= parked->length;
	session_owe_less(parked->session, 1);
}

enum subject_state requests_subject(struct requests *requests, struct session *session,
        const struct ft_envelope *envelope, method_call *call, const char *kernel, const char *device,
        const struct ft_problem *problem, struct ft_error *error)
{
	struct subject *subject = &requests->subject;

	/* Admitted on a device that is still to be heard, the problem is checked by the built-in schema: bad
	 * input gets its error at once, whatever the device turns out to be. */
	if (subject_admit(subject, requests->devices, kernel, device, problem, error) != 0) {
		if (strcmp(error->code, FT_E_UNKNOWN_DEVICE) != 0 || !devices_probing(requests->devices))
			return SUBJECT_REFUSED;
	} else if (subject->key.device != 0) {
		return SUBJECT_READY;
	} else if (subject->device->state == DEVICE_ABSENT && !subject->device->slot->probing) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "no %s device to %s on: %.200s",
		        subject->device->shown.kind, envelope->method, subject->device->slot->reason);
		return SUBJECT_REFUSED;
	}
	return requests_park(requests, session, envelope, call, error) == 0 ? SUBJECT_PARKED
	                                                                    : SUBJECT_REFUSED;
}

void requests_settled(struct requests *requests)
{
	/* Each in a turn of its session: a thousand of them are not to be answered at once. */
	while (requests->parked.first != NULL) {
		struct parked *parked = requests->parked.first->data;
		struct session *session = parked->session;

		list_leave(&parked->node);
		list_add(&session->again, &parked->node);
		session->due = true;
		session_wake(session);
	}
}

/* Those whose device was heard. True if there are more. */
static bool call_again(struct requests *requests, struct session *session)
{
	while (session->again.first != NULL && session->work == NULL && !session->closing) {
		struct parked *parked = session->again.first->data;
		struct ft_envelope envelope = {
		        .type = FT_REQUEST, .id = parked->id, .body = {parked->body, parked->length}};

		unpark(requests, parked);
		method_again(requests, session, &envelope, parked->call);
		if (session->work != NULL) {
			session->work->message = parked; /* which has the message in it */
			session->work->bytes += sizeof(*parked) + parked->length;
		} else {
			free(parked);
		}
		if (session_spent(session, SESSION_HEAVY))
			break;
	}
	return session->again.first != NULL;
}

static void drop_parked(struct requests *requests, struct list *list, const struct session *session)
{
	struct node *next;

	for (struct node *node = list->first; node != NULL; node = next) {
		struct parked *parked = node->data;

		next = node->next;
		if (parked->session != session)
			continue;
		unpark(requests, parked);
		free(parked);
	}
}

void requests_stop(struct requests *requests)
{
	struct node *next;
	struct ft_error error;

	if (requests->census.timer.data != NULL)
		census_stop(&requests->census);
	requests->stopping = true;
	(void)ft_fail(&error, FT_E_STOPPING, "the daemon is stopping");
	subscriptions_stop(&requests->subscriptions);
	for (struct node *node = requests->parked.first; node != NULL; node = next) {
		struct parked *parked = node->data;

		next = node->next;
		session_fail(parked->session, parked->id, &error);
		unpark(requests, parked);
		free(parked);
	}
}

/* ---- jobs ---- */

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
	struct requests *requests;
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
        struct requests *requests, uint64_t number, const struct ft_job *job, const struct ft_error *error)
{
	struct end *end = requests->end;

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
	end_free(requests->end);
	requests->end = end;
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
	awaited->end = end_of(awaited->requests, awaited->job, job, error);
	list_leave(&awaited->node);
	list_add(&session->ended, &awaited->node);
	session->due = true;
	session_wake(session);
}

/* Tells of jobs that ended. True if there is more to tell. */
static bool tell_ended(struct session *session)
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

bool requests_owed(struct requests *requests, struct session *session)
{
	bool more = call_again(requests, session);

	more = tell_ended(session) || more;
	return subscriptions_tell(&requests->subscriptions, session) || more;
}

/* Numbers come again in another store: one that was given by another, before the state directory was changed or rescued,
 * says nothing here. */
static int check_origin(
        const struct requests *requests, const struct ft_job_request *request, struct ft_error *error)
{
	const char *store = store_uuid(requests->store);

	if (request->store[0] == '\0' || strcmp(request->store, store) == 0)
		return 0;
	(void)ft_fail_field(error, FT_E_UNKNOWN_JOB, "store", request->store, store);
	(void)snprintf(error->message, sizeof(error->message),
	        "job %" PRIu64 " is of another store: %s gave it its number, and this daemon has %s",
	        request->job, error->value, store);
	return -1;
}

/* Decodes a job request; with `needed`, a job must be named. */
static bool read_job_request(const struct requests *requests, struct session *session,
        const struct ft_envelope *envelope, bool needed, struct ft_job_request *request)
{
	struct ft_error error;

	if (ft_decode(&ft_job_request_message, envelope->body, request, &error) == 0 &&
	        check_origin(requests, request, &error) == 0) {
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

static int await_job(struct requests *requests, struct session *session, uint64_t id, uint64_t job,
        bool cancel, struct ft_error *error)
{
	struct awaited *awaited = find_awaited(session, job, cancel);
	int status;

	/* Of one connection any number of waits for a job are one. */
	if (awaited != NULL)
		return add_id(awaited, id, error);
	awaited = calloc(1, sizeof(*awaited));
	if (awaited == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a request");
	awaited->requests = requests;
	awaited->session = session;
	awaited->job = job;
	awaited->cancel = cancel;
	awaited->node.data = awaited;
	list_add(&session->awaited, &awaited->node);
	status = add_id(awaited, id, error);
	if (status == 0 && cancel)
		status = queue_cancel(requests->queue, job, job_ended, awaited, &awaited->wait, error);
	else if (status == 0)
		status = queue_wait(requests->queue, job, job_ended, awaited, &awaited->wait, error);
	if (status == 0 && cancel)
		log_line(requests->log, LOG_LEVEL_NOTICE, "audit cancel uid=%u pid=%" PRId64 " job=%" PRIu64,
		        session->user, session->process, job);
	if (status != 0)
		awaited_free(awaited);
	return status;
}

/* wait and cancel: both reply with the job as it ended. */
static void until_ended(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope, bool cancel)
{
	struct ft_job_request request;
	struct ft_error error;

	if (!read_job_request(requests, session, envelope, true, &request))
		return;
	if (session_owe(session, &error) != 0) {
		session_fail(session, envelope->id, &error);
	} else if (await_job(requests, session, envelope->id, request.job, cancel, &error) != 0) {
		session_fail(session, envelope->id, &error);
		session_owe_less(session, 1);
	}
}

static void method_wait(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	until_ended(requests, session, envelope, false);
}

static void method_cancel(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_job_request request;
	struct ft_error error;
	int64_t owner;

	if (!read_job_request(requests, session, envelope, true, &request))
		return;
	/* Of one's own jobs it needs no more than to tune does. */
	owner = queue_owner(requests->queue, request.job);
	if (owner >= 0 && owner != session->user &&
	        !allowed(requests, session, "cancel of another user's job", ACCESS_ADMIN, &error))
		session_fail(session, envelope->id, &error);
	else
		until_ended(requests, session, envelope, true);
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

static void method_jobs(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_job_request request;
	struct listing *listing;
	struct ft_error error;

	if (!read_job_request(requests, session, envelope, false, &request))
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
	listing->queue = requests->queue;
	listing->job = request.job;
	listing->count = request.job != 0;
	ft_writer_init_growing(&listing->work.answer, ft_bounds_large.bytes);
	ft_begin_response(&listing->work.answer, envelope->id);
	ft_write_map(&listing->work.answer, 1); /* as ft_jobs_reply */
	ft_write_text(&listing->work.answer, "jobs");
	listing->count_at = ft_write_open_array(&listing->work.answer);
	session_begin(session, &listing->work);
}

static void method_watch(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_job_request request;
	struct ft_empty reply = {.ok = true};

	if (!read_job_request(requests, session, envelope, false, &request))
		return;
	events_join(&requests->server->watched, session, request.job);
	session_reply(session, envelope->id, &ft_empty_message, &reply);
}

/* ---- dispatch ---- */

static const struct method {
	const char *name;
	enum access_level needs;
	method_call *call;
	bool large; /* its answer may be: none for a user who leaves too much unread */
} methods[] = {
        {"lookup", ACCESS_MEMBER, method_lookup, false}, /* first: it is asked most */
        {"lookup_many", ACCESS_MEMBER, method_lookup_many, true},
        {"hello", ACCESS_ANYONE, method_hello, false},
        {"tune", ACCESS_MEMBER, method_tune, false},
        {"wait", ACCESS_MEMBER, method_wait, false},
        {"jobs", ACCESS_MEMBER, method_jobs, true},
        {"cancel", ACCESS_MEMBER, method_cancel, false}, /* of one's own jobs */
        {"trials", ACCESS_MEMBER, method_trials, true},
        {"code", ACCESS_MEMBER, method_code, true},
        {"status", ACCESS_ANYONE, method_status, true},
        {"devices", ACCESS_ANYONE, method_devices, true},
        {"metrics", ACCESS_ANYONE, method_metrics, true},
        {"watch", ACCESS_MEMBER, method_watch, false},
        {"subscribe", ACCESS_MEMBER, method_subscribe, true},
        {"misses", ACCESS_MEMBER, method_misses, true},
        {"pin", ACCESS_ADMIN, method_pin, false},
        {"unpin", ACCESS_ADMIN, method_unpin, false},
        {"forget", ACCESS_ADMIN, method_forget, false},
        {"pause", ACCESS_ADMIN, method_pause, false},
        {"resume", ACCESS_ADMIN, method_resume, false},
        {"export", ACCESS_MEMBER, method_export, true},
        {"import_begin", ACCESS_ADMIN, method_import_begin, false},
        {"import_rows", ACCESS_ADMIN, method_import_rows, true},
        {"import_commit", ACCESS_ADMIN, method_import_commit, false},
};

enum { METHODS = sizeof(methods) / sizeof(methods[0]) };

static const struct method *find_method(const char *name)
{
	for (size_t i = 0; i < METHODS; i++) {
		if (strcmp(name, methods[i].name) == 0)
			return &methods[i];
	}
	return NULL;
}

/* A request that was parked: it was allowed then. */
static void method_again(
        struct requests *requests, struct session *session, struct ft_envelope *envelope, method_call *call)
{
	for (size_t i = 0; i < METHODS; i++) {
		if (methods[i].call == call)
			(void)snprintf(envelope->method, sizeof(envelope->method), "%s", methods[i].name);
	}
	call(requests, session, envelope);
}

void requests_message(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	const struct method *method;
	struct ft_error error;

	devices_look(requests->devices);
	if (envelope->type == FT_NOTICE)
		return; /* none is known; a later version may send some */
	if (envelope->type != FT_REQUEST) {
		(void)ft_fail(&error, FT_E_BAD_FRAME, "a client does not answer: the daemon asks nothing");
		session_refuse(session, 0, &error);
		return;
	}
	if (!session->greeted && strcmp(envelope->method, "hello") != 0) {
		(void)ft_fail(
		        &error, FT_E_PROTOCOL, "the first request must be hello, not %s", envelope->method);
		session_refuse(session, envelope->id, &error);
		return;
	}
	method = find_method(envelope->method);
	if (method == NULL) {
		(void)ft_fail_field(&error, FT_E_UNKNOWN_METHOD, "method", envelope->method,
		        "a method of this protocol version");
	} else if (allowed(requests, session, method->name, method->needs, &error) &&
	        (!method->large || session_check_room(session, &error) == 0)) {
		/* Lookups say by themselves how much they were. */
		session->weight += method->call == method_lookup || method->call == method_lookup_many
		        ? 0
		        : SESSION_HEAVY;
		method->call(requests, session, envelope);
		return;
	}
	session_fail(session, envelope->id, &error);
}

void requests_session_closed(struct requests *requests, struct session *session)
{
	if (session->keeps && --requests->keepers == 0)
		devices_watch(requests->devices, false);
	session->keeps = false;
	subscriptions_left(&requests->subscriptions, session);
	transfer_free(session->transfer);
	session->transfer = NULL;
	awaited_free_all(&session->awaited);
	awaited_free_all(&session->ended);
	drop_parked(requests, &session->again, session);
	if (session->turn.user->parked > 0)
		drop_parked(requests, &requests->parked, session);
}

int requests_init(struct requests *requests, const struct log *log, const struct options *options,
        const struct access *access, struct store *store, struct devices *devices, struct queue *queue,
        struct background *background, struct server *server, struct board *board, struct ft_error *error)
{
	*requests = (struct requests){
	        .log = log,
	        .options = options,
	        .access = access,
	        .store = store,
	        .devices = devices,
	        .queue = queue,
	        .server = server,
	        .board = board,
	        .background = background,
	        .started_ns = ft_monotonic_ns(),
	};
	if (replies_init(&requests->replies, error) != 0 || misses_init(&requests->misses, error) != 0 ||
	        subscriptions_init(&requests->subscriptions, requests, server->loop, error) != 0)
		return -1;
	return census_init(&requests->census, server->loop, store, devices, error);
}

void requests_free(struct requests *requests)
{
	misses_free(&requests->misses);
	replies_free(&requests->replies);
	subscriptions_free(&requests->subscriptions);
	end_free(requests->end);
}
