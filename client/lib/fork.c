#include "client/lib/fork.h"

#include <unistd.h>

/* The handlers of pthread_atfork take no argument, so the list has to be global: it is the one piece of the library's
 * state that is. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fork_member *first;

/* No lock is ever held for long. */
static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
	for (struct fork_member *member = first; member != NULL; member = member->next)
		pthread_mutex_lock(member->lock);
}

static void after_fork_in_parent(void)
{
	for (struct fork_member *member = first; member != NULL; member = member->next)
		pthread_mutex_unlock(member->lock);
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
	for (struct fork_member *member = first; member != NULL; member = member->next) {
		member->forked(member->owner);
		pthread_mutex_unlock(member->lock);
	}
	pthread_mutex_unlock(&list_lock);
}

/* Should it fail, client_enter still sees that the process is another. */
static void install(void)
{
	(void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void fork_watch(struct fork_member *member)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&list_lock);
	member->previous = NULL;
	member->next = first;
	if (first != NULL)
		first->previous = member;
	first = member;
	pthread_mutex_unlock(&list_lock);
}

void fork_forget(struct fork_member *member)
{
	pthread_mutex_lock(&list_lock);
	if (member->previous != NULL)
		member->previous->next = member->next;
	else
		first = member->next;
	if (member->next != NULL)
		member->next->previous = member->previous;
	pthread_mutex_unlock(&list_lock);
}
