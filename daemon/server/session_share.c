/* A user's share: of the memory, and of the work that is under way. */
#include "daemon/server/internal.h"

enum { WORKS_AT_ONCE = 4 }; /* of one user */

/* Those of a user that are under way are few, so that their answers are: the others wait to be begun, and each place that is
 * free is given to whose turn it is. */
static void begin_next(struct user *user)
{
	while (user->works < WORKS_AT_ONCE && user->later.first != NULL) {
		struct session *next = user->later.first->data;

		list_leave(&next->later);
		next->begun = true;
		user->works++;
		fair_turns_wake(next->common->turns, &next->turn);
	}
}

bool session_begin_work(struct session *session)
{
	struct user *user = session->turn.user;

	if (session->begun || session->later.list != NULL)
		return session->begun;
	if (user->works == WORKS_AT_ONCE || user->later.first != NULL) {
		list_add(&user->later, &session->later);
		return false;
	}
	user->works++;
	session->begun = true;
	return true;
}

void session_leave_work(struct session *session)
{
	list_leave(&session->later);
	if (!session->begun)
		return;
	session->begun = false;
	session->turn.user->works--;
	begin_next(session->turn.user);
}

bool session_is_over(const struct session *session)
{
	const struct user *user = session->turn.user;

	return user->bytes > SESSION_USER_BYTES ||
	        (session->common->turns->bytes > SESSION_BYTES && user->bytes > SESSION_USER_BYTES / 4);
}

int session_check_room(const struct session *session, struct ft_error *error)
{
	if (!session_is_over(session))
		return 0;
	return ft_fail(error, FT_E_BUSY,
	        "user %u leaves %zu bytes of questions half asked and answers unread, and is given no large "
	        "ones "
	        "meanwhile",
	        session->user, session->turn.user->bytes);
}

void session_hold(struct session *session, bool held)
{
	if (held == (session->held.list != NULL))
		return;
	if (held)
		list_add(&session->turn.user->held, &session->held);
	else
		list_leave(&session->held);
	session->partial = session->partial > 0;
}

static void release_held(struct user *user)
{
	while (user->held.first != NULL && !session_is_over(user->held.first->data)) {
		struct session *session = user->held.first->data;

		session_hold(session, false);
		fair_turns_wake(session->common->turns, &session->turn);
	}
}

void session_charge(struct session *session, size_t bytes)
{
	struct fair_turns *turns = session->common->turns;
	struct user *user = session->turn.user;
	bool scarce = turns->bytes > SESSION_BYTES;

	user->bytes += bytes - session->bytes;
	turns->bytes += bytes - session->bytes;
	session->bytes = bytes;
	release_held(user);
	/* Where the memory of all was scarce, and is not any more, that is so for all. */
	if (scarce && turns->bytes <= SESSION_BYTES) {
		for (struct node *node = turns->users.first; node != NULL; node = node->next)
			release_held(node->data);
	}
}
