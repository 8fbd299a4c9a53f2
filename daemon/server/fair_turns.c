#include "daemon/server/fair_turns.h"

#include <stdlib.h>

#include "proto/clock.h"

/* What a turn takes is charged by the clock as long as it is no more than this: to ask what time a thread had is a system
 * call. */
static const uint64_t unasked_ns = 1000000;

struct user *fair_turns_join(struct fair_turns *turns, uint32_t id)
{
	struct user *user;

	for (struct node *node = turns->users.first; node != NULL; node = node->next) {
		user = node->data;
		if (user->id == id) {
			user->sessions++;
			return user;
		}
	}
	user = calloc(1, sizeof(*user));
	if (user == NULL)
		return NULL;
	user->id = id;
	user->sessions = 1;
	user->known.data = user->due.data = user;
	list_add(&turns->users, &user->known);
	return user;
}

void fair_turns_leave(struct fair_turns *turns, struct user *user)
{
	if (--user->sessions > 0)
		return;
	list_leave(&user->known);
	turns->bytes -= user->bytes;
	free(user);
}

void fair_turns_add(struct fair_turns *turns, struct turn *turn)
{
	struct user *user = turn->user;

	if (turn->waiting.list != NULL)
		return;
	if (user->turns.first == NULL) {
		if (user->used_ns < turns->now_ns)
			user->used_ns = turns->now_ns;
		list_add(&turns->due, &user->due);
	}
	list_add(&user->turns, &turn->waiting);
	turns->waiting++;
}

void fair_turns_remove(struct fair_turns *turns, struct turn *turn)
{
	if (turn->waiting.list == NULL)
		return;
	list_leave(&turn->waiting);
	turns->waiting--;
	if (turn->user->turns.first == NULL)
		list_leave(&turn->user->due);
}

static void keep_turning(uv_idle_t *idle)
{
	(void)idle; /* that it runs is all: the loop does not wait for its sockets then */
}

/* Of those who used as little, who came last: the other was served already. */
static struct user *least(const struct fair_turns *turns)
{
	struct node *node = turns->due.first;
	struct user *least = node->data;

	while ((node = node->next) != NULL) {
		struct user *user = node->data;

		if (user->used_ns <= least->used_ns)
			least = user;
	}
	return least;
}

static struct user *serve_one(struct fair_turns *turns)
{
	struct user *user = least(turns);
	struct node *node = user->turns.first;
	struct turn *turn = (struct turn *)node; /* its first member */

	fair_turns_remove(turns, turn);
	turns->now_ns = user->used_ns;
	if (turns->serve(node->data))
		fair_turns_add(turns, turn);
	return user;
}

static void idle(struct fair_turns *turns, bool idles)
{
	if (idles == turns->idles)
		return;
	turns->idles = idles;
	if (idles)
		(void)uv_idle_start(&turns->idle, keep_turning);
	else
		(void)uv_idle_stop(&turns->idle);
}

void fair_turns_wake(struct fair_turns *turns, struct turn *turn)
{
	fair_turns_add(turns, turn);
	idle(turns, true);
}

/* Of what took long, most may have been someone else's: the processor was taken away. */
static uint64_t charge_of(uint64_t took_ns, uint64_t had_ns)
{
	if (took_ns <= unasked_ns || had_ns >= took_ns)
		return took_ns;
	return had_ns > unasked_ns ? had_ns : unasked_ns;
}

/* Each user is charged what its turn took. */
static void serve_fairly(struct fair_turns *turns, uint64_t for_ns)
{
	uint64_t began_ns = ft_monotonic_ns();
	uint64_t had_ns = ft_clock_read(CLOCK_THREAD_CPUTIME_ID);
	uint64_t now_ns = began_ns;

	while (turns->waiting > 0 && now_ns - began_ns < for_ns) {
		struct user *user = serve_one(turns);
		uint64_t after_ns = ft_monotonic_ns();
		uint64_t took_ns = after_ns - now_ns;

		/* One that took long is the last: what was had before it is less than `for_ns`. */
		user->used_ns += charge_of(took_ns,
		        took_ns > unasked_ns ? ft_clock_read(CLOCK_THREAD_CPUTIME_ID) - had_ns : took_ns);
		now_ns = after_ns;
	}
}

static bool is_alone(const struct fair_turns *turns)
{
	return turns->users.first != NULL && turns->users.first->next == NULL;
}

uint64_t fair_turns_quantum_ns(const struct fair_turns *turns)
{
	return is_alone(turns) ? TURNS_ALONE_QUANTUM_NS : TURNS_QUANTUM_NS;
}

void fair_turns_serve(struct fair_turns *turns)
{
	uint64_t for_ns = is_alone(turns) ? TURNS_ALONE_SERVED_NS : TURNS_SERVED_NS;

	/* Where only one waits there is nobody to be fair to, and a look at the clock is a tenth of a lookup. */
	if (turns->waiting == 1) {
		(void)serve_one(turns);
		if (turns->waiting > 0)
			serve_fairly(turns, for_ns - fair_turns_quantum_ns(turns));
	} else if (turns->waiting > 0) {
		serve_fairly(turns, for_ns);
	}
	idle(turns, turns->waiting > 0);
}

static void polled(uv_check_t *check)
{
	fair_turns_serve(check->data);
}

void fair_turns_init(struct fair_turns *turns, uv_loop_t *loop, bool (*serve)(void *data))
{
	*turns = (struct fair_turns){.serve = serve};
	(void)uv_check_init(loop, &turns->check);
	(void)uv_idle_init(loop, &turns->idle);
	turns->check.data = turns;
	(void)uv_check_start(&turns->check, polled);
	/* The sockets keep the loop alive, not that they are served. */
	uv_unref((uv_handle_t *)&turns->check);
}

void fair_turns_stop(struct fair_turns *turns)
{
	uv_close((uv_handle_t *)&turns->check, NULL);
	uv_close((uv_handle_t *)&turns->idle, NULL);
}
