/* Keeps what a process has in memory usable in a child that it forks. */
#ifndef FLYTUNE_CLIENT_FORK_H
#define FLYTUNE_CLIENT_FORK_H

#include <pthread.h>

/* Something of the parent's that the child must mend before it is used. */
struct fork_member {
	struct fork_member *next, *previous;
	pthread_mutex_t *lock;       /* held across the fork, so that the child finds what it guards whole */
	void (*forked)(void *owner); /* in the child, with the lock held */
	void *owner;
};

void fork_watch(struct fork_member *member);
void fork_forget(struct fork_member *member);

#endif
