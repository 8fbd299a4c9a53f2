#include "daemon/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PRIORITY_MAX = 100, PARKED_MAX = 4096 };

static const uint64_t budget_max_ns = 86400ULL * 1000000000;

struct parked {
	struct parked *next;
	struct pending *pending;
	struct ft_tune_request request;
	uint32_t user;
};

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int begin_reading(struct requests *requests, struct ft_error *error)
{
	if (!requests->reading && store_begin(requests->store, error) != 0)
		return -1;
	requests->reading = true;
	return 0;
}

void requests_batch_end(struct requests *requests)
{
	if (requests->reading)
		store_end(requests->store);
	requests->reading = false;
}

/* ---- hello ---- */

static void do_hello(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
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
		reply.descriptors = 1;
		session_hand_over(
		        session, envelope->id, &ft_hello_reply_message, &reply, requests->board->descriptor);
		return;
	}
	session->greeted = true;
	session_reply(session, envelope->id, &ft_hello_reply_message, &reply);
}

/* ---- lookup ---- */

static int look_up(struct requests *requests, const struct ft_lookup_request *request,
        enum lookup_source *source, struct ft_error *error)
{
	uint64_t generation = 0;

	if (request->invariant)
		return ft_fail_field(error, FT_E_BAD_VALUE, "invariant", "true", "false: not offered yet");
	if (begin_reading(requests, error) != 0)
		return -1;
	if (request->generation[0] != '\0' &&
	        lookup_token(requests->store, request->generation, &generation, error) != 0)
		return -1;
	if (subject_admit(&requests->subject, requests->devices, request->kernel, request->device,
	            &request->problem, error) != 0)
		return -1;
	return lookup_answer(
	        requests->store, &requests->subject, generation, &requests->answer, source, error);
}

static void do_lookup(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_lookup_request request;
	enum lookup_source source = LOOKUP_DEFAULT;
	struct ft_error error;

	if (ft_decode(&ft_lookup_request_message, envelope->body, &request, &error) != 0 ||
	        look_up(requests, &request, &source, &error) != 0) {
		requests->refused++;
		session_fail(session, envelope->id, &error);
		return;
	}
	requests->lookups[source]++;
	session_reply(session, envelope->id, &ft_answer_message, &requests->answer);
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
	uint64_t space;
	bool told = false;

	if (begin_reading(requests, NULL) != 0)
		return false;
	if (store_get_answer(requests->store, &subject->key, &known, NULL) != 1 || !known.winner.set ||
	        known.winner.identity != subject->kernel->identity ||
	        known.winner.rule_revision != FT_RULE_REVISION ||
	        !ft_problem_equal(&known.problem, &subject->problem))
		return false;
	space = subject_space_hash(subject);
	if (space != known.winner.space_hash)
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

static void tune(struct requests *requests, struct pending *pending, const struct ft_tune_request *request,
        uint32_t user)
{
	struct queue_ask ask = {
	        .force = request->force,
	        .priority = request->priority,
	        .budget_ns = request->budget_ns,
	        .user = user,
	};
	struct ft_error error;
	struct parked *parked;

	if (pending->session == NULL) { /* it left while its request was parked */
		pending_free(pending);
		return;
	}
	/* Admitted on a device that is still to be heard, the problem is checked by the built-in schema: bad
	 * input gets its error at once, whatever the device turns out to be. */
	if (subject_admit(&requests->subject, requests->devices, request->kernel, request->device,
	            &request->problem, &error) != 0) {
		if (strcmp(error.code, FT_E_UNKNOWN_DEVICE) != 0 || !devices_probing(requests->devices)) {
			session_fail(pending->session, pending->id, &error);
			pending_free(pending);
			return;
		}
	} else if (requests->subject.key.device != 0) {
		if (requests->subject.kernel->built_in != NULL &&
		        requests->subject.device->shown.memory != 0 &&
		        requests->subject.kernel->built_in->bytes(&requests->subject.problem) >
		                requests->subject.device->shown.memory) {
			char bound[64];
			char value[32];

			(void)snprintf(value, sizeof(value), "%" PRIu64 " bytes",
			        requests->subject.kernel->built_in->bytes(&requests->subject.problem));
			(void)snprintf(bound, sizeof(bound), "at most the %" PRIu64 " bytes of the device",
			        requests->subject.device->shown.memory);
			(void)ft_fail_field(&error, FT_E_BAD_VALUE, "problem", value, bound);
			session_fail(pending->session, pending->id, &error);
			pending_free(pending);
			return;
		}
		if (request->force || !answer_tuned(requests, pending))
			queue_add(requests->queue, &requests->subject, &ask, tune_arrived, pending);
		return;
	} else if (requests->subject.device->state == DEVICE_ABSENT) {
		(void)ft_fail(&error, FT_E_UNAVAILABLE, "no %s device to tune on: %.200s",
		        requests->subject.device->shown.kind, requests->subject.device->slot->reason);
		session_fail(pending->session, pending->id, &error);
		pending_free(pending);
		return;
	}
	parked = requests->parked_count < PARKED_MAX ? calloc(1, sizeof(*parked)) : NULL;
	if (parked == NULL) {
		(void)ft_fail(&error, FT_E_BUSY, "too many requests wait for a device to be found");
		session_fail(pending->session, pending->id, &error);
		pending_free(pending);
		return;
	}
	*parked = (struct parked){
	        .next = requests->parked, .pending = pending, .request = *request, .user = user};
	requests->parked = parked;
	requests->parked_count++;
}

static void do_tune(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_tune_request request;
	struct pending *pending;
	struct ft_error error;
	char text[24];

	if (ft_decode(&ft_tune_request_message, envelope->body, &request, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	if (request.priority < -PRIORITY_MAX || request.priority > PRIORITY_MAX) {
		(void)snprintf(text, sizeof(text), "%" PRId64, request.priority);
		(void)ft_fail_field(&error, FT_E_BAD_VALUE, "priority", text, "from -100 to 100");
		session_fail(session, envelope->id, &error);
		return;
	}
	if (request.budget_ns > budget_max_ns) {
		(void)snprintf(text, sizeof(text), "%" PRIu64, request.budget_ns);
		(void)ft_fail_field(&error, FT_E_BAD_VALUE, "budget_ns", text, "at most a day");
		session_fail(session, envelope->id, &error);
		return;
	}
	pending = pending_new(session, envelope->id);
	if (pending == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for a request");
		session_fail(session, envelope->id, &error);
		return;
	}
	tune(requests, pending, &request, session->user);
}

void requests_settled(struct requests *requests)
{
	struct parked *parked = requests->parked;

	requests->parked = NULL;
	requests->parked_count = 0;
	while (parked != NULL) {
		struct parked *next = parked->next;

		tune(requests, parked->pending, &parked->request, parked->user);
		free(parked);
		parked = next;
	}
	requests_batch_end(requests);
}

void requests_stop(struct requests *requests)
{
	struct ft_error error;

	(void)ft_fail(&error, FT_E_UNAVAILABLE, "the daemon is stopping");
	while (requests->parked != NULL) {
		struct parked *parked = requests->parked;

		requests->parked = parked->next;
		if (parked->pending->session != NULL)
			session_fail(parked->pending->session, parked->pending->id, &error);
		pending_free(parked->pending);
		free(parked);
	}
}

/* ---- jobs ---- */

static void job_told(void *data, const struct ft_job *job, const struct ft_error *error)
{
	struct pending *pending = data;

	if (pending->session != NULL && job != NULL)
		session_reply(pending->session, pending->id, &ft_job_message, job);
	else if (pending->session != NULL)
		session_fail(pending->session, pending->id, error);
	pending_free(pending);
}

/* Decodes a job request; with `needed`, a job must be named. */
static bool read_job_request(struct session *session, const struct ft_envelope *envelope, bool needed,
        struct ft_job_request *request)
{
	struct ft_error error;

	if (ft_decode(&ft_job_request_message, envelope->body, request, &error) == 0) {
		if (request->job != 0 || !needed)
			return true;
		(void)ft_fail_field(&error, FT_E_BAD_REQUEST, "job", "absent", "the number of a job");
	}
	session_fail(session, envelope->id, &error);
	return false;
}

/* wait and cancel: both reply with the job as it ended. */
static void do_until_ended(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope, bool cancel)
{
	struct ft_job_request request;
	struct pending *pending;
	struct ft_error error;
	int status;

	if (!read_job_request(session, envelope, true, &request))
		return;
	pending = pending_new(session, envelope->id);
	if (pending == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for a request");
		session_fail(session, envelope->id, &error);
		return;
	}
	if (cancel)
		status = queue_cancel(requests->queue, request.job, session->user,
		        session->user == 0 || session->user == geteuid(), job_told, pending, &error);
	else
		status = queue_wait(requests->queue, request.job, job_told, pending, &error);
	if (status != 0) {
		session_fail(session, envelope->id, &error);
		pending_free(pending);
	} else if (cancel) {
		log_line(requests->log, LOG_LEVEL_NOTICE, "audit cancel uid=%u pid=%" PRId64 " job=%" PRIu64,
		        session->user, session->process, request.job);
	}
}

static void do_wait(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	do_until_ended(requests, session, envelope, false);
}

static void do_cancel(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	do_until_ended(requests, session, envelope, true);
}

static void do_jobs(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_job_request request;
	struct ft_jobs_reply reply;
	struct ft_writer writer;
	struct ft_error error;

	if (!read_job_request(session, envelope, false, &request))
		return;
	ft_writer_init_growing(&writer, ft_bounds_large.bytes);
	if (queue_write(requests->queue, request.job, &writer, &error) != 0) {
		session_fail(session, envelope->id, &error);
	} else if (!ft_writer_ok(&writer)) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of jobs");
		session_fail(session, envelope->id, &error);
	} else {
		reply.jobs = (struct ft_view){writer.data, writer.length};
		session_reply(session, envelope->id, &ft_jobs_reply_message, &reply);
	}
	ft_writer_free(&writer);
}

static void do_watch(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_job_request request;
	struct ft_empty reply = {.ok = true};

	(void)requests;
	if (!read_job_request(session, envelope, false, &request))
		return;
	session->watching = true;
	session->watched_job = request.job;
	session_reply(session, envelope->id, &ft_empty_message, &reply);
}

/* ---- trials ---- */

static void write_trials(const struct trials *trials, uint32_t band_ppm, struct ft_writer *writer)
{
	uint32_t members = trials->count < FT_SPACE_MAX ? trials->count : FT_SPACE_MAX;
	struct ft_standing *standing = calloc(members > 0 ? members : 1, sizeof(*standing));
	struct ft_trial *shown = calloc(1, sizeof(*shown));
	struct ft_decision decision;

	if (standing == NULL || shown == NULL) {
		writer->failed = true;
		goto out;
	}
	trials_decide(trials, members, band_ppm, true, false, standing, &decision);
	ft_write_array(writer, trials->count);
	for (uint32_t i = 0; i < trials->count; i++) {
		const struct trial *trial = &trials->trial[i];

		memset(shown, 0, sizeof(*shown));
		shown->config = trial->config;
		(void)snprintf(shown->status, sizeof(shown->status), "%s",
		        trial->status == TRIAL_WAITING && trial->sample_ps != NULL
		                ? "ok"
		                : trial_status_word(trial->status));
		shown->is_default = i == trials->standard;
		shown->is_winner = (int64_t)i == trials->winner;
		if (i < members && trial->sample_ps != NULL) {
			shown->time_ps = standing[i].median_ps;
			shown->ci_ps = standing[i].ci_ps;
			shown->rounds = standing[i].rounds;
			shown->tied = standing[i].tied;
			shown->ratio = standing[i].ratio;
			shown->ratio_low = standing[i].ratio_low;
			shown->ratio_high = standing[i].ratio_high;
		}
		shown->dropped_round = trial->dropped_round;
		memcpy(shown->code, trial->code, sizeof(shown->code));
		if (trial->status == TRIAL_SAME_CODE && trial->same_as < trials->count)
			shown->same_as = trials->trial[trial->same_as].config;
		shown->registers = trial->registers;
		shown->spills = trial->spills;
		shown->build_ns = trial->build_ns;
		shown->error = trial->error;
		(void)snprintf(shown->reason, sizeof(shown->reason), "%s",
		        shown->is_winner && trial->reason[0] == '\0' ? trials->reason : trial->reason);
		ft_encode(writer, &ft_trial_message, shown);
	}
out:
	free(standing);
	free(shown);
}

static void do_trials(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_trials_request request;
	struct ft_trials_reply *reply = calloc(1, sizeof(*reply));
	struct trials *trials = NULL;
	struct ft_writer writer;
	struct ft_writer knobs;
	struct ft_error error;
	struct subject *subject = &requests->subject;

	ft_writer_init_growing(&writer, ft_bounds_large.bytes);
	ft_writer_init_growing(&knobs, ft_bounds_request.bytes);
	if (reply == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the trials");
		goto fail;
	}
	if (ft_decode(&ft_trials_request_message, envelope->body, &request, &error) != 0 ||
	        begin_reading(requests, &error) != 0 ||
	        subject_admit(subject, requests->devices, request.kernel, request.device, &request.problem,
	                &error) != 0)
		goto fail;
	if (subject->key.device != 0 &&
	        store_get_trials(requests->store, &subject->key, subject->kernel->identity, &trials, &error) <
	                0)
		goto fail;
	if (trials != NULL && !ft_problem_equal(&trials->problem, &subject->problem)) {
		trials_free(trials);
		trials = NULL;
	}
	memcpy(reply->kernel, request.kernel, sizeof(reply->kernel));
	reply->problem = subject->problem;
	memcpy(reply->device, subject->device->shown.id, sizeof(reply->device));
	memcpy(reply->identity, subject->kernel->identity_hash, sizeof(reply->identity));
	if (trials != NULL) {
		reply->rounds = trials->rounds;
		reply->seed = trials->seed;
		reply->conclusive = trials->conclusive;
		memcpy(reply->method, trials->method, sizeof(reply->method));
		memcpy(reply->reason, trials->reason, sizeof(reply->reason));
		reply->sweep_ns = trials->sweep_ns;
		reply->band_ppm = requests->options->band_ppm;
		write_trials(trials, requests->options->band_ppm, &writer);
	} else {
		ft_write_array(&writer, 0);
	}
	ft_schema_write_knobs(&knobs, &subject->kernel->schema);
	if (!ft_writer_ok(&writer) || !ft_writer_ok(&knobs)) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the trials");
		goto fail;
	}
	reply->knobs = (struct ft_view){knobs.data, knobs.length};
	reply->trials = (struct ft_view){writer.data, writer.length};
	session_reply(session, envelope->id, &ft_trials_reply_message, reply);
	goto out;
fail:
	session_fail(session, envelope->id, &error);
out:
	trials_free(trials);
	ft_writer_free(&writer);
	ft_writer_free(&knobs);
	free(reply);
}

/* ---- status and devices ---- */

static void do_devices(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_devices_reply reply;
	struct ft_writer writer;
	struct ft_error error;

	ft_writer_init_growing(&writer, ft_bounds_large.bytes);
	devices_write(requests->devices, &writer);
	if (ft_writer_ok(&writer)) {
		reply.devices = (struct ft_view){writer.data, writer.length};
		session_reply(session, envelope->id, &ft_devices_reply_message, &reply);
	} else {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of devices");
		session_fail(session, envelope->id, &error);
	}
	ft_writer_free(&writer);
}

static void do_status(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_status_reply reply = {
	        .server = "flytuned " FLYTUNE_VERSION,
	        .protocol = FT_PROTOCOL_MAX,
	        .pid = (uint64_t)getpid(),
	        .uptime_ns = monotonic_ns() - requests->started_ns,
	        .sessions = requests->server->count,
	        .jobs_queued = queue_waiting(requests->queue),
	        .jobs_running = requests->queue->running != NULL ? 1 : 0,
	        .runner_restarts = requests->queue->restarts,
	};
	struct store_facts facts;
	struct ft_writer lookups;
	struct ft_writer devices;
	struct ft_error error;

	ft_writer_init_growing(&lookups, ft_bounds_request.bytes);
	ft_writer_init_growing(&devices, ft_bounds_large.bytes);
	store_facts(requests->store, &facts);
	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(requests->store));
	(void)snprintf(reply.state_dir, sizeof(reply.state_dir), "%s", requests->options->state_dir);
	reply.generation = store_generation(requests->store);
	reply.store_bytes = facts.bytes;
	reply.store_limit = facts.limit;
	reply.answers = facts.answers;
	reply.damaged = facts.damaged;
	memcpy(reply.degraded, facts.degraded, sizeof(reply.degraded));
	ft_write_map(&lookups, LOOKUP_SOURCES + 1);
	for (int source = 0; source < LOOKUP_SOURCES; source++) {
		ft_write_text(&lookups, lookup_source_words[source]);
		ft_write_uint(&lookups, requests->lookups[source]);
	}
	ft_write_text(&lookups, "refused");
	ft_write_uint(&lookups, requests->refused);
	devices_write(requests->devices, &devices);
	if (ft_writer_ok(&lookups) && ft_writer_ok(&devices)) {
		reply.lookups = (struct ft_view){lookups.data, lookups.length};
		reply.devices = (struct ft_view){devices.data, devices.length};
		session_reply(session, envelope->id, &ft_status_reply_message, &reply);
	} else {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the status");
		session_fail(session, envelope->id, &error);
	}
	ft_writer_free(&lookups);
	ft_writer_free(&devices);
}

/* ---- dispatch ---- */

static const struct method {
	const char *name;
	void (*call)(struct requests *requests, struct session *session, const struct ft_envelope *envelope);
} methods[] = {
        {"lookup", do_lookup}, /* first: it is asked most */
        {"hello", do_hello},
        {"tune", do_tune},
        {"wait", do_wait},
        {"jobs", do_jobs},
        {"cancel", do_cancel},
        {"trials", do_trials},
        {"status", do_status},
        {"devices", do_devices},
        {"watch", do_watch},
};

void requests_message(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_error error;

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
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(envelope->method, methods[i].name) == 0) {
			methods[i].call(requests, session, envelope);
			return;
		}
	}
	(void)ft_fail_field(
	        &error, FT_E_UNKNOWN_METHOD, "method", envelope->method, "a method of this protocol version");
	session_fail(session, envelope->id, &error);
}

void requests_session_closed(struct requests *requests, struct session *session)
{
	struct pending *pending = session->pending;

	while (pending != NULL) {
		struct pending *next = pending->next;

		/* Those whose wait could be left are owed nothing more; the others outlive the session. */
		if (queue_leave(requests->queue, pending))
			pending_free(pending);
		pending = next;
	}
}

void requests_init(struct requests *requests, const struct log *log, const struct options *options,
        struct store *store, struct devices *devices, struct queue *queue, struct server *server,
        struct board *board)
{
	*requests = (struct requests){
	        .log = log,
	        .options = options,
	        .store = store,
	        .devices = devices,
	        .queue = queue,
	        .server = server,
	        .board = board,
	        .started_ns = monotonic_ns(),
	};
}
