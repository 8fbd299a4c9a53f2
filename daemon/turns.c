#include "daemon/turns.h"

#include <stdlib.h>

#include "proto/clock.h"

static const uint64_t charged_most_ns = 1000000; /* for one turn */

struct user *turns_join(struct turns *turns, uint32_t id)
{
	struct user *user = turns->users;

	while (user != NULL && user->id != id)
		user = user->next;
	if (user == NULL) {
		user = calloc(1, sizeof(*user));
		if (user == NULL)
			return NULL;
		user->id = id;
		user->end = &user->first;
		user->later_end = &user->later;
		user->next = turns->users;
		turns->users = user;
	}
	user->sessions++;
	return user;
}

void turns_leave(struct turns *turns, struct user *user)
{
	struct user **at = &turns->users;

	if (--user->sessions > 0)
		return;
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	turns->bytes -= user->bytes;
	free(user);
}

static void user_due(struct turns *turns, struct user *user)
{
	if (user->used_ns < turns->now_ns)
		user->used_ns = turns->now_ns;
	user->previous_due = NULL;
	user->next_due = turns->due;
	if (turns->due != NULL)
		turns->due->previous_due = user;
	turns->due = user;
}

static void user_done(struct turns *turns, struct user *user)
{
	if (user->previous_due != NULL)
		user->previous_due->next_due = user->next_due;
	else
		turns->due = user->next_due;
	if (user->next_due != NULL)
		user->next_due->previous_due = user->previous_due;
}

void turns_add(struct turns *turns, struct turn *turn)
{
	struct user *user = turn->user;

	if (turn->waits)
		return;
	turn->waits = true;
	turn->next = NULL;
	if (user->first == NULL)
		user_due(turns, user);
	*user->end = turn;
	user->end = &turn->next;
	turns->waiting++;
}

static void keep_turning(uv_idle_t *idle)
{
	(void)idle; /* that it runs is all: the loop does not wait for its sockets then */
}

static struct turn *take(struct turns *turns, struct user *user)
{
	struct turn *turn = user->first;

	user->first = turn->next;
	turn->waits = false;
	turns->waiting--;
	if (user->first == NULL) {
		user->end = &user->first;
		user_done(turns, user);
	}
	return turn;
}

void turns_remove(struct turns *turns, struct turn *turn)
{
	struct user *user = turn->user;
	struct turn **at = &user->first;

	if (!turn->waits)
		return;
	while (*at != turn)
		at = &(*at)->next;
	*at = turn->next;
	if (*at == NULL)
		user->end = at;
	turn->waits = false;
	turns->waiting--;
	if (user->first == NULL)
		user_done(turns, user);
}

static struct user *least(const struct turns *turns)
{
	struct user *least = turns->due;

	for (struct user *user = least->next_due; user != NULL; user = user->next_due) {
		if (user->used_ns < least->used_ns)
			least = user;
	}
	return least;
}

static struct user *serve_one(struct turns *turns)
{
	struct user *user = least(turns);
	struct turn *turn = take(turns, user);

	turns->now_ns = user->used_ns;
	if (turns->serve(turn->data))
		turns_add(turns, turn);
	return user;
}

static void idle(struct turns *turns, bool idles)
{
	if (idles == turns->idles)
		return;
	turns->idles = idles;
	if (idles)
		(void)uv_idle_start(&turns->idle, keep_turning);
	else
		(void)uv_idle_stop(&turns->idle);
}

void turns_wake(struct turns *turns, struct turn *turn)
{
	turns_add(turns, turn);
	idle(turns, true);
}

/* By the clock: each user is charged what its turn took. */
static void serve_fairly(struct turns *turns, uint64_t end_ns)
{
	uint64_t now_ns = ft_monotonic_ns();

	end_ns += now_ns;
	while (turns->waiting > 0 && now_ns < end_ns) {
		struct user *user = serve_one(turns);
		uint64_t after_ns = ft_monotonic_ns();

		/* Of what took longer, most was someone else's: the processor was taken away. */
		user->used_ns += after_ns - now_ns < charged_most_ns ? after_ns - now_ns : charged_most_ns;
		now_ns = after_ns;
	}
}

void turns_serve(struct turns *turns)
{
	/* Where only one waits there is nobody to be fair to, and a look at the clock is a tenth of a lookup. */
	if (turns->waiting == 1) {
		(void)serve_one(turns);
		if (turns->waiting > 0)
			serve_fairly(turns, TURNS_SERVED_NS - TURNS_QUANTUM_NS);
	} else if (turns->waiting > 0) {
		serve_fairly(turns, TURNS_SERVED_NS);
	}
	idle(turns, turns->waiting > 0);
}

static void polled(uv_check_t *check)
{
	turns_serve(check->data);
}

void turns_init(struct turns *turns, uv_loop_t *loop, bool (*serve)(void *data))
{
	*turns = (struct turns){.serve = serve};
	(void)uv_check_init(loop, &turns->check);
	(void)uv_idle_init(loop, &turns->idle);
	turns->check.data = turns;
	(void)uv_check_start(&turns->check, polled);
	/* The sockets keep the loop alive, not that they are served. */
	uv_unref((uv_handle_t *)&turns->check);
}

void turns_stop(struct turns *turns)
{
	uv_close((uv_handle_t *)&turns->check, NULL);
	uv_close((uv_handle_t *)&turns->idle, NULL);
}
