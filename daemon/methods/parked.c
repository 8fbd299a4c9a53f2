#include "daemon/methods/parked.h"

#include <stdlib.h>
#include <string.h>

enum {
	PARKED_MAX = 4096,
	PARKED_BYTES_MAX = 16 << 20,
};

struct request {
	struct node node; /* of those that wait for a device, then of its session's */
	struct session *session;
	uint64_t id;
	method_call *call;
	void *group;
	char method[sizeof(((struct ft_envelope *)0)->method)];
	size_t length;
	uint8_t body[];
};

int parked_add(struct parked *parked, struct session *session, const struct ft_envelope *envelope,
        method_call *call, void *group, struct ft_error *error)
{
	size_t length = envelope->body.length;
	struct request *request;

	if (parked->context->stopping)
		return ft_fail(error, FT_E_STOPPING, "the daemon is stopping");
	if (parked->count >= PARKED_MAX || parked->bytes + length > PARKED_BYTES_MAX)
		return ft_fail(error, FT_E_BUSY, "too many requests wait for a device to be found");
	if (session->level != ACCESS_ADMIN &&
	        (session->turn.user->parked >= PARKED_MAX / 2 ||
	                session->turn.user->parked_bytes + length > PARKED_BYTES_MAX / 2))
		return ft_fail(error, FT_E_BUSY, "too many requests of user %u wait for a device to be found",
		        session->user);
	if (session_owe(session, error) != 0)
		return -1;
	request = calloc(1, sizeof(*request) + length);
	if (request == NULL) {
		session_owe_less(session, 1);
		return ft_fail(error, FT_E_MEMORY, "no memory for a request");
	}
	request->session = session;
	request->id = envelope->id;
	request->call = call;
	request->group = group;
	memcpy(request->method, envelope->method, sizeof(request->method));
	request->length = length;
	if (length > 0)
		memcpy(request->body, envelope->body.data, length);
	request->node.data = request;
	list_add(&parked->requests, &request->node);
	parked->count++;
	parked->bytes += length;
	session->turn.user->parked++;
	session->turn.user->parked_bytes += length;
	return 0;
}

/* It waits no more: it is to be answered now. */
static void unpark(struct parked *parked, struct request *request)
{
	struct user *user = request->session->turn.user;

	list_leave(&request->node);
	parked->count--;
	parked->bytes -= request->length;
	user->parked--;
	user->parked_bytes -= request->length;
	session_owe_less(request->session, 1);
}

enum target_state parked_target(struct parked *parked, struct session *session,
        const struct ft_envelope *envelope, method_call *call, void *group, const char *kernel,
        const char *device, const struct ft_problem *problem, struct target *target, struct ft_error *error)
{
	/* Admitted on a device that is still being probed, the problem is checked by the built-in schema: bad
	 * input gets its error at once, whatever the device turns out to be. */
	if (target_admit(target, parked->context->devices, kernel, device, problem, error) != 0) {
		if (strcmp(error->code, FT_E_UNKNOWN_DEVICE) != 0 ||
		        !devices_probing(parked->context->devices))
			return TARGET_REFUSED;
	} else if (target->key.device != 0) {
		return TARGET_READY;
	} else if (target->device->state == DEVICE_ABSENT && !slot_is_asked(target->device->slot->state)) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "no %s device to %s on: %.200s",
		        target->device->shown.kind, envelope->method, target->device->slot->reason);
		return TARGET_REFUSED;
	}
	return parked_add(parked, session, envelope, call, group, error) == 0 ? TARGET_PARKED
	                                                                      : TARGET_REFUSED;
}

void parked_settled(struct parked *parked)
{
	/* A thousand of them are not to be answered at once. */
	while (parked->requests.first != NULL) {
		struct request *request = parked->requests.first->data;
		struct session *session = request->session;

		list_leave(&request->node);
		list_add(&session->again, &request->node);
		session->due = true;
		session_wake(session);
	}
}

bool parked_call_again(struct parked *parked, struct session *session)
{
	while (session->again.first != NULL && session->work == NULL && session->state != SESSION_CLOSING) {
		struct request *request = session->again.first->data;
		struct ft_envelope envelope = {
		        .type = FT_REQUEST, .id = request->id, .body = {request->body, request->length}};

		memcpy(envelope.method, request->method, sizeof(envelope.method));
		unpark(parked, request);
		request->call(request->group, session, &envelope); /* it was allowed before */
		if (session->work != NULL) {
			session->work->message = request; /* which has the message in it */
			session->work->bytes += sizeof(*request) + request->length;
		} else {
			free(request);
		}
		if (session_spent(session, SESSION_HEAVY))
			break;
	}
	return session->again.first != NULL;
}

static void drop(struct parked *parked, struct list *list, const struct session *session)
{
	struct node *next;

	for (struct node *node = list->first; node != NULL; node = next) {
		struct request *request = node->data;

		next = node->next;
		if (request->session != session)
			continue;
		unpark(parked, request);
		free(request);
	}
}

void parked_left(struct parked *parked, struct session *session)
{
	drop(parked, &session->again, session);
	if (session->turn.user->parked > 0)
		drop(parked, &parked->requests, session);
}

void parked_stop(struct parked *parked)
{
	struct node *next;
	struct ft_error error;

	(void)ft_fail(&error, FT_E_STOPPING, "the daemon is stopping");
	for (struct node *node = parked->requests.first; node != NULL; node = next) {
		struct request *request = node->data;

		next = node->next;
		session_fail(request->session, request->id, &error);
		unpark(parked, request);
		free(request);
	}
}
