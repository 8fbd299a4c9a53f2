/* Replies that are owed and come later. */
#include <stdlib.h>

#include "daemon/server/internal.h"

int session_owe(struct session *session, struct ft_error *error)
{
	struct user *user = session->turn.user;

	if (session->pending_count >= SESSION_PENDING_MAX)
		return ft_fail(error, FT_E_BUSY, "%d requests of this connection are not answered yet",
		        SESSION_PENDING_MAX);
	if (user->waits >= SESSION_USER_WAITS)
		return ft_fail(error, FT_E_BUSY, "%d requests of user %u are not answered yet",
		        SESSION_USER_WAITS, session->user);
	session->pending_count++;
	user->waits++;
	return 0;
}

void session_owe_less(struct session *session, uint32_t count)
{
	session->pending_count -= count;
	session->turn.user->waits -= count;
	/* The last answer may have been all that it was kept for. */
	if (session->state >= SESSION_FINISHED && !session->handling)
		session_flush_between(session);
}

struct pending *pending_new(struct session *session, uint64_t id, struct ft_error *error)
{
	struct pending *pending;

	if (session_owe(session, error) != 0)
		return NULL;
	pending = calloc(1, sizeof(*pending));
	if (pending == NULL) {
		session_owe_less(session, 1);
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a request");
		return NULL;
	}
	*pending = (struct pending){.next = session->pending, .session = session, .id = id};
	if (session->pending != NULL)
		session->pending->previous = pending;
	session->pending = pending;
	return pending;
}

void pending_free(struct pending *pending)
{
	struct session *session = pending->session;

	if (session != NULL) {
		if (pending->previous != NULL)
			pending->previous->next = pending->next;
		else
			session->pending = pending->next;
		if (pending->next != NULL)
			pending->next->previous = pending->previous;
	}
	free(pending);
	if (session != NULL)
		session_owe_less(session, 1);
}
