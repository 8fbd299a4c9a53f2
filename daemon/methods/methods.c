#include "daemon/methods/methods.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/methods/code.h"
#include "daemon/methods/export.h"
#include "daemon/methods/status.h"
#include "proto/clock.h"

/* ---- hello ---- */

static void method_hello(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct context *context = group;
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
		        hello.max < FT_PROTOCOL_MIN ? "client (libflytune-client, flytunectl)" : "daemon");
		session_refuse(session, envelope->id, &error);
		return;
	}
	reply.protocol = hello.max < FT_PROTOCOL_MAX ? hello.max : FT_PROTOCOL_MAX;
	(void)snprintf(reply.store, sizeof(reply.store), "%s", store_uuid(context->store));
	reply.generation = store_generation(context->store);
	memcpy(session->name, hello.name, sizeof(session->name));
	if (hello.board && !session->greeted && context->board->descriptor >= 0) {
		session->greeted = true;
		context_keeps(context, session);
		reply.descriptors = 1;
		session_hand_over(
		        session, envelope->id, &ft_hello_reply_message, &reply, context->board->descriptor);
		return;
	}
	session->greeted = true;
	session_reply(session, envelope->id, &ft_hello_reply_message, &reply);
}

/* ---- dispatch ---- */

#define GROUP(member) offsetof(struct methods, member)

static const struct method {
	const char *name;
	enum access_level needs;
	method_call *call;
	size_t group; /* where in struct methods it is */
	bool large;   /* its answer may be: none for a user who leaves too much unread */
} table[] = {
        {"lookup", ACCESS_MEMBER, method_lookup, GROUP(lookups), false}, /* first: it is asked most */
        {"lookup_many", ACCESS_MEMBER, method_lookup_many, GROUP(lookups), true},
        {"hello", ACCESS_ANYONE, method_hello, GROUP(context), false},
        {"tune", ACCESS_MEMBER, method_tune, GROUP(jobs), false},
        {"wait", ACCESS_MEMBER, method_wait, GROUP(jobs), false},
        {"jobs", ACCESS_MEMBER, method_jobs, GROUP(jobs), true},
        {"cancel", ACCESS_MEMBER, method_cancel, GROUP(jobs), false}, /* of one's own jobs */
        {"trials", ACCESS_MEMBER, method_trials, GROUP(reports), true},
        {"code", ACCESS_MEMBER, method_code, GROUP(context), true},
        {"status", ACCESS_ANYONE, method_status, GROUP(reports), true},
        {"devices", ACCESS_ANYONE, method_devices, GROUP(reports), true},
        {"kernels", ACCESS_MEMBER, method_kernels, GROUP(reports), true},
        {"metrics", ACCESS_ANYONE, method_metrics, GROUP(reports), true},
        {"watch", ACCESS_MEMBER, method_watch, GROUP(jobs), false},
        {"subscribe", ACCESS_MEMBER, method_subscribe, GROUP(subscriptions), true},
        {"misses", ACCESS_MEMBER, method_misses, GROUP(reports), true},
        {"pin", ACCESS_ADMIN, method_pin, GROUP(control), false},
        {"unpin", ACCESS_ADMIN, method_unpin, GROUP(control), false},
        {"forget", ACCESS_ADMIN, method_forget, GROUP(control), false},
        {"pause", ACCESS_ADMIN, method_pause, GROUP(control), false},
        {"resume", ACCESS_ADMIN, method_resume, GROUP(control), false},
        {"export", ACCESS_MEMBER, method_export, GROUP(context), true},
        {"import_begin", ACCESS_ADMIN, method_import_begin, GROUP(imports), false},
        {"import_rows", ACCESS_ADMIN, method_import_rows, GROUP(imports), true},
        {"import_commit", ACCESS_ADMIN, method_import_commit, GROUP(imports), false},
};

enum { METHODS = sizeof(table) / sizeof(table[0]) };

static const struct method *find_method(const char *name)
{
	for (size_t i = 0; i < METHODS; i++) {
		if (strcmp(name, table[i].name) == 0)
			return &table[i];
	}
	return NULL;
}

void methods_message(struct methods *methods, struct session *session, const struct ft_envelope *envelope)
{
	const struct method *method;
	struct ft_error error;

	devices_look(methods->context.devices);
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
	} else if (context_allows(&methods->context, session, method->name, method->needs, &error) &&
	        (!method->large || session_check_room(session, &error) == 0)) {
		/* Lookups say by themselves how much they were. */
		session->weight += method->call == method_lookup || method->call == method_lookup_many
		        ? 0
		        : SESSION_HEAVY;
		method->call((char *)methods + method->group, session, envelope);
		return;
	}
	session_fail(session, envelope->id, &error);
}

bool methods_owed(struct methods *methods, struct session *session)
{
	bool more = parked_call_again(&methods->parked, session);

	more = jobs_tell_ended(session) || more;
	return subscriptions_tell(&methods->subscriptions, session) || more;
}

void methods_batch_end(struct methods *methods)
{
	if (methods->context.reading)
		store_end(methods->context.store);
	methods->context.reading = false;
	lookups_batch_end(&methods->lookups);
}

/* ---- life ---- */

void methods_session_closed(struct methods *methods, struct session *session)
{
	context_keeps_no_more(&methods->context, session);
	subscriptions_left(&methods->subscriptions, session);
	transfer_free(session->transfer);
	session->transfer = NULL;
	jobs_left(session);
	parked_left(&methods->parked, session);
}

int methods_init(struct methods *methods, const struct context *parts, struct ft_error *error)
{
	struct context *context = &methods->context;
	struct parked *parked = &methods->parked;

	*methods = (struct methods){
	        .context = *parts,
	        .parked = {.context = context},
	        .jobs = {.context = context, .parked = parked},
	        .control = {.context = context, .parked = parked},
	        .imports = {.context = context, .parked = parked},
	        .reports = {.context = context,
	                .lookups = &methods->lookups,
	                .subscriptions = &methods->subscriptions},
	};
	context->started_ns = ft_monotonic_ns();
	if (lookups_init(&methods->lookups, context, parked, error) != 0 ||
	        subscriptions_init(&methods->subscriptions, context, &methods->lookups, error) != 0)
		return -1;
	return stale_count_init(&methods->reports.stale_count, context->server->loop, context->store,
	        context->devices, error);
}

void methods_stop(struct methods *methods)
{
	if (methods->reports.stale_count.timer.data != NULL)
		stale_count_stop(&methods->reports.stale_count);
	methods->context.stopping = true;
	subscriptions_stop(&methods->subscriptions);
	parked_stop(&methods->parked);
}

void methods_free(struct methods *methods)
{
	lookups_free(&methods->lookups);
	subscriptions_free(&methods->subscriptions);
	jobs_free(&methods->jobs);
}
