#include "daemon/methods/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"
#include "proto/clock.h"

/* A change on its way to the store. */
struct act {
	struct context *context;
	struct pending *pending;
	bool was_set;
	char audit[1024];
};

static struct act *new_act(struct context *context, struct session *session,
        const struct ft_envelope *envelope, struct ft_error *error)
{
	struct act *act = calloc(1, sizeof(*act));

	if (act == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a change");
		return NULL;
	}
	act->pending = pending_new(session, envelope->id, error);
	if (act->pending == NULL) {
		free(act);
		return NULL;
	}
	act->context = context;
	(void)snprintf(act->audit, sizeof(act->audit), "%s uid=%u gid=%u pid=%" PRId64, envelope->method,
	        session->user, session->group, session->process);
	return act;
}

static void end_act(struct act *act)
{
	pending_free(act->pending);
	free(act);
}

static void audit(const struct act *act, uint64_t generation, const struct ft_error *error)
{
	const struct log *log = act->context->log;

	if (error != NULL)
		log_line(log, LOG_LEVEL_WARNING, "audit %s failed: %s", act->audit, error->message);
	else if (generation != 0)
		log_line(log, LOG_LEVEL_NOTICE, "audit %s generation=%" PRIu64, act->audit, generation);
	else
		log_line(log, LOG_LEVEL_NOTICE, "audit %s", act->audit);
}

/* ---- answers ---- */

static void changed(void *data, uint64_t generation, const struct ft_error *error)
{
	struct act *act = data;
	struct session *session = act->pending->session;
	struct ft_change_reply reply = {.generation = generation, .was_set = act->was_set};

	audit(act, generation, error);
	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(act->context->store));
	if (session != NULL && error == NULL)
		session_reply(session, act->pending->id, &ft_change_reply_message, &reply);
	else if (session != NULL)
		session_fail(session, act->pending->id, error);
	end_act(act);
}

static void describe(struct act *act, const struct target *target, const struct ft_config *config)
{
	char problem[FT_PROBLEM_TEXT_SIZE];
	char knobs[FT_CONFIG_TEXT_SIZE] = "";
	size_t length = strlen(act->audit);

	(void)ft_problem_format(&target->problem, ' ', problem, sizeof(problem));
	(void)ft_config_format(config, ' ', knobs, sizeof(knobs));
	(void)snprintf(act->audit + length, sizeof(act->audit) - length,
	        " device=%s kernel=%s problem=\"%s\"%s%s%s", target->device->shown.id,
	        target->kernel->schema.kernel, problem, knobs[0] != '\0' ? " config=\"" : "", knobs,
	        knobs[0] != '\0' ? "\"" : "");
}

enum change { CHANGE_PIN, CHANGE_UNPIN, CHANGE_FORGET };

static int add_change(struct store_batch *batch, enum change change, const struct target *target,
        const struct store_pin *pin)
{
	return change == CHANGE_FORGET ? store_batch_forget(batch, &target->key)
	                               : store_batch_pin(batch, &target->key, &target->problem, pin);
}

/* Whether the change takes or replaces something, as far as is committed by now. */
static bool was_set(struct store *store, const struct target *target, enum change change)
{
	struct store_answer *known = malloc(sizeof(*known));
	bool is = false;

	if (known != NULL && lookup_known(store, target, 0, known, NULL) == 1)
		is = change == CHANGE_FORGET || known->pin.set;
	free(known);
	return is;
}

static void change_answer(struct control *control, struct session *session,
        const struct ft_envelope *envelope, method_call *call, enum change change)
{
	struct context *context = control->context;
	struct target target;
	struct store_pin pin = {.set = change == CHANGE_PIN, .user = session->user, .at_ns = ft_wall_ns()};
	struct store_batch *batch = NULL;
	struct ft_change_request request;
	struct act *act = NULL;
	struct ft_error error;

	if (ft_decode(&ft_change_request_message, envelope->body, &request, &error) != 0)
		goto fail;
	if (!ft_config_empty(&request.config) != (change == CHANGE_PIN)) {
		(void)ft_fail_field(&error, FT_E_BAD_REQUEST, "config",
		        change == CHANGE_PIN ? "missing" : "given",
		        change == CHANGE_PIN ? "given" : "left out");
		goto fail;
	}
	switch (parked_target(control->parked, session, envelope, call, control, request.kernel,
	        request.device, &request.problem, &target, &error)) {
	case TARGET_PARKED:
		return;
	case TARGET_REFUSED:
		goto fail;
	case TARGET_READY:
		break;
	}
	if ((pin.set && !target_takes(&target, &request.config, &error)) ||
	        context_read(context, &error) != 0)
		goto fail;
	pin.config = request.config;
	act = new_act(context, session, envelope, &error);
	if (act == NULL)
		goto fail;
	batch = store_batch_new(context->store);
	if (batch == NULL || add_change(batch, change, &target, &pin) != 0) {
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for a change");
		goto fail;
	}
	act->was_set = was_set(context->store, &target, change);
	describe(act, &target, &request.config);
	store_submit(batch, changed, act);
	return;
fail:
	if (batch != NULL)
		store_batch_drop(batch);
	if (act != NULL)
		end_act(act);
	session_fail(session, envelope->id, &error);
}

void method_pin(void *group, struct session *session, const struct ft_envelope *envelope)
{
	change_answer(group, session, envelope, method_pin, CHANGE_PIN);
}

void method_unpin(void *group, struct session *session, const struct ft_envelope *envelope)
{
	change_answer(group, session, envelope, method_unpin, CHANGE_UNPIN);
}

void method_forget(void *group, struct session *session, const struct ft_envelope *envelope)
{
	change_answer(group, session, envelope, method_forget, CHANGE_FORGET);
}

/* ---- the queue ---- */

static void paused(void *data, bool is_paused, const struct ft_error *error)
{
	struct act *act = data;
	struct session *session = act->pending->session;
	struct ft_pause_reply reply = {.paused = is_paused};

	audit(act, 0, error);
	if (session != NULL && error == NULL)
		session_reply(session, act->pending->id, &ft_pause_reply_message, &reply);
	else if (session != NULL)
		session_fail(session, act->pending->id, error);
	end_act(act);
}

static void set_paused(const struct control *control, struct session *session,
        const struct ft_envelope *envelope, bool pause)
{
	struct ft_error error;
	struct act *act = new_act(control->context, session, envelope, &error);

	if (act == NULL)
		session_fail(session, envelope->id, &error);
	else
		queue_pause(control->context->queue, pause, paused, act);
}

void method_pause(void *group, struct session *session, const struct ft_envelope *envelope)
{
	set_paused(group, session, envelope, true);
}

void method_resume(void *group, struct session *session, const struct ft_envelope *envelope)
{
	set_paused(group, session, envelope, false);
}
