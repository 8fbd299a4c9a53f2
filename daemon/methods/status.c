#include "daemon/methods/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs/winner.h"
#include "proto/clock.h"

/* ---- trials ---- */

static void write_trials(const struct trials *trials, uint32_t band_ppm, struct ft_writer *writer)
{
	const uint32_t members = trials_members(trials);
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
		        trial->status == TRIAL_WAITING && (trial->sample_ps != NULL || trial->look_ps > 0)
		                ? "ok"
		                : trial_status_word(trial->status));
		shown->is_default = i == trials->default_index;
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
		if (shown->time_ps == 0 && trial->status == TRIAL_WAITING)
			shown->time_ps = trial->look_ps;
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

void method_trials(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct reports *reports = group;
	struct context *context = reports->context;
	struct ft_trials_request request;
	struct ft_trials_reply *reply = calloc(1, sizeof(*reply));
	struct trials *trials = NULL;
	struct ft_writer writer;
	struct ft_writer knobs;
	struct ft_error error;
	struct target target;

	ft_writer_init_growing(&writer, ft_bounds_large.bytes);
	ft_writer_init_growing(&knobs, ft_bounds_request.bytes);
	if (reply == NULL) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the trials");
		goto fail;
	}
	if (ft_decode(&ft_trials_request_message, envelope->body, &request, &error) != 0 ||
	        context_read(context, &error) != 0 ||
	        target_admit(&target, context->devices, request.kernel, request.device, &request.problem,
	                &error) != 0 ||
	        lookup_trials(context->store, &target, &trials, &error) < 0)
		goto fail;
	memcpy(reply->kernel, request.kernel, sizeof(reply->kernel));
	reply->problem = target.problem;
	memcpy(reply->device, target.device->shown.id, sizeof(reply->device));
	memcpy(reply->identity, target.kernel->identity_hash, sizeof(reply->identity));
	if (trials != NULL) {
		reply->rounds = trials->rounds;
		reply->seed = trials->seed;
		reply->conclusive = trials->conclusive;
		memcpy(reply->method, trials->method, sizeof(reply->method));
		memcpy(reply->reason, trials->reason, sizeof(reply->reason));
		reply->sweep_ns = trials->sweep_ns;
		reply->band_ppm = context->settings->band_ppm;
		if (trials->winner >= 0)
			trials_gain(trials, trials->count, context->settings->band_ppm,
			        (uint32_t)trials->winner, &reply->gain_ppm, &reply->gain_least_ppm);
		reply->seen_ppm = trials_seen_ppm(trials, trials_members(trials));
		(void)trials_seen(trials, trials_members(trials), &reply->space);
		write_trials(trials, context->settings->band_ppm, &writer);
	} else {
		ft_write_array(&writer, 0);
	}
	ft_schema_write_knobs(&knobs, &target.kernel->schema);
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

void method_devices(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct reports *reports = group;
	struct context *context = reports->context;
	struct ft_devices_reply reply;
	struct ft_writer writer;
	struct ft_error error;

	ft_writer_init_growing(&writer, ft_bounds_large.bytes);
	devices_write(context->devices, &writer);
	if (ft_writer_ok(&writer)) {
		reply.devices = (struct ft_view){writer.data, writer.length};
		session_reply(session, envelope->id, &ft_devices_reply_message, &reply);
	} else {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of devices");
		session_fail(session, envelope->id, &error);
	}
	ft_writer_free(&writer);
}

/* A device that the operator named, by itself or by its runner, and that is not there. Where all are welcome, none is
 * missed. */
static void add_devices_degraded(const struct context *context, char *text, size_t size)
{
	const struct devices *devices = context->devices;

	for (uint32_t i = 0; i < devices->count; i++) {
		const struct device *device = devices->device[i];
		size_t length = strlen(text);

		if (device->state == DEVICE_ABSENT &&
		        (context->settings->device_count > 0 ||
		                settings_given(context->settings, "runner", device->shown.kind)))
			(void)snprintf(text + length, size - length, "%sno %s device: %s",
			        length > 0 ? "; " : "", device->shown.kind, device->slot->reason);
	}
}

void method_status(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct reports *reports = group;
	struct context *context = reports->context;
	struct ft_status_reply reply = {
	        .server = "flytuned " FLYTUNE_VERSION,
	        .protocol = FT_PROTOCOL_MAX,
	        .pid = (uint64_t)getpid(),
	        .uptime_ns = ft_monotonic_ns() - context->started_ns,
	        .sessions = context->server->count,
	        .jobs_queued = queue_waiting(context->queue),
	        .jobs_running = context->queue->running,
	        .runner_restarts = context->queue->restarts,
	        .paused = context->queue->paused,
	        .background_waiting = context->background->count,
	        .background_dropped = context->background->dropped,
	};
	const struct connection_limits *limits = &context->server->limits;
	struct user_connections busiest = connection_limits_busiest(limits);
	struct store_facts facts;
	struct ft_writer lookups;
	struct ft_writer devices;
	struct ft_error error;

	ft_writer_init_growing(&lookups, ft_bounds_request.bytes);
	ft_writer_init_growing(&devices, ft_bounds_large.bytes);
	store_facts(context->store, &facts);
	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(context->store));
	(void)snprintf(reply.state_dir, sizeof(reply.state_dir), "%s", context->settings->state_dir);
	reply.sessions_limit = limits->most;
	reply.sessions_refused = server_refused(context->server);
	reply.user_sessions_limit = connection_limits_share(limits);
	reply.busiest_user = busiest.user;
	reply.busiest_sessions = busiest.count;
	reply.generation = store_generation(context->store);
	reply.store_bytes = facts.bytes;
	reply.store_limit = facts.limit;
	reply.answers = facts.answers;
	reply.damaged = facts.damaged;
	memcpy(reply.degraded, facts.degraded, sizeof(reply.degraded));
	(void)snprintf(
	        reply.background, sizeof(reply.background), "%s", background_state(context->background));
	access_explain(context->access, context->settings->socket, reply.access, sizeof(reply.access));
	reply.stale_known = stale_count_get(&reports->stale_count, &reply.stale);
	reply.misses = reports->lookups->misses.asked;
	memcpy(reply.config, context->settings->config, sizeof(reply.config));
	add_devices_degraded(context, reply.degraded, sizeof(reply.degraded));
	ft_write_map(&lookups, LOOKUP_SOURCES + 1);
	for (int source = 0; source < LOOKUP_SOURCES; source++) {
		ft_write_text(&lookups, lookup_source_words[source]);
		ft_write_uint(&lookups, reports->lookups->by_source[source]);
	}
	ft_write_text(&lookups, "refused");
	ft_write_uint(&lookups, reports->lookups->refused);
	devices_write(context->devices, &devices);
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

/* ---- misses ---- */

/* Whether it has got a result of its own since. Where that cannot be asked, for want of its device or of the store, it has
 * not. */
static bool is_granted(struct context *context, const struct miss *miss, const struct ft_problem *problem)
{
	struct target target;
	struct ft_answer answer;
	struct lookup_basis basis;

	return target_admit(&target, context->devices, miss->kernel, miss->device, problem, NULL) == 0 &&
	        lookup_answer(context->store, &target, 0, &answer, &basis, NULL) == 0 &&
	        basis.source < LOOKUP_NEAREST;
}

/* The list of misses, some in each turn. Entries may be given to others meanwhile. */
struct listing {
	struct work work;
	struct reports *reports;
	uint64_t most;
	size_t count_at; /* in the answer, where the number of misses stands */
	uint32_t written;
	size_t next, count;
	struct miss_place place[]; /* the most asked first */
};

static bool write_miss(struct listing *listing, struct miss *miss)
{
	uint64_t now = ft_monotonic_ns();
	struct ft_miss shown = {.count = miss->count,
	        .first_ago_ns = now - miss->first_ns,
	        .last_ago_ns = now - miss->last_ns};

	if (!miss_problem(miss, &shown.problem) ||
	        is_granted(listing->reports->context, miss, &shown.problem)) {
		miss_drop(miss);
		return false;
	}
	memcpy(shown.kernel, miss->kernel, sizeof(shown.kernel));
	memcpy(shown.device, miss->device, sizeof(shown.device));
	ft_encode(&listing->work.answer, &ft_miss_message, &shown);
	return true;
}

static bool list_misses(struct work *work, struct session *session)
{
	struct listing *listing = (struct listing *)work;
	struct reports *reports = listing->reports;
	struct ft_error error;

	if (context_read(reports->context, &error) != 0) {
		ft_writer_reset(&work->answer);
		ft_write_failure(&work->answer, work->id, &error);
		return true;
	}
	while (listing->next < listing->count && (listing->most == 0 || listing->written < listing->most)) {
		struct miss *miss = misses_at(&reports->lookups->misses, listing->place[listing->next++]);

		listing->written += miss != NULL && write_miss(listing, miss);
		if (session_spent(session, SESSION_HEAVY))
			return false;
	}
	ft_write_count(&work->answer, listing->count_at, listing->written);
	return true;
}

void method_misses(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct reports *reports = group;
	struct ft_misses_request request;
	struct listing *listing = NULL;
	struct ft_writer *writer;
	struct miss **list;
	struct ft_error error;
	size_t count = 0;

	if (ft_decode(&ft_misses_request_message, envelope->body, &request, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	list = misses_sorted(&reports->lookups->misses, &count);
	if (list != NULL)
		listing = calloc(1, sizeof(*listing) + count * sizeof(listing->place[0]));
	if (listing == NULL) {
		free(list);
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the list of misses");
		session_fail(session, envelope->id, &error);
		return;
	}
	for (size_t i = 0; i < count; i++)
		listing->place[i] = misses_place(&reports->lookups->misses, list[i]);
	free(list);
	listing->work.step = list_misses;
	listing->reports = reports;
	listing->work.id = envelope->id;
	listing->work.bytes = sizeof(*listing) + count * sizeof(listing->place[0]);
	listing->most = request.most;
	listing->count = count;
	/* As ft_misses_reply; the list last, without a copy between. */
	writer = &listing->work.answer;
	ft_writer_init_growing(writer, ft_bounds_large.bytes);
	ft_begin_response(writer, envelope->id);
	ft_write_map(writer, 3);
	ft_write_text(writer, "asked");
	ft_write_uint(writer, reports->lookups->misses.asked);
	ft_write_text(writer, "forgotten");
	ft_write_uint(writer, reports->lookups->misses.forgotten);
	ft_write_text(writer, "misses");
	listing->count_at = ft_write_open_array(writer);
	session_begin(session, &listing->work);
}
