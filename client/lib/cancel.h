/* Keeps a call whole when its thread is cancelled (pthread_cancel): what is cancelled in the middle would leave a lock held,
 * a connection in use or half a request sent, for all threads and for good. */
#ifndef FLYTUNE_CLIENT_CANCEL_H
#define FLYTUNE_CLIENT_CANCEL_H

#include <pthread.h>

struct cancel_before {
	int state, type;
};

/* The type as well: a cancellation that was sent while the state was enabled still, and arrives after, looks in glibc (seen in
 * 2.36) at the type alone. */
static inline struct cancel_before cancel_off(void)
{
	struct cancel_before before;

	(void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before.type);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.state);
	return before;
}

static inline void cancel_back(const struct cancel_before *before)
{
	int unused;

	(void)pthread_setcancelstate(before->state, &unused);
	(void)pthread_setcanceltype(before->type, &unused);
}

/* The first declaration of each function that programs call and that locks, allocates, frees or makes a system call: until
 * it returns, callbacks included, a cancellation of its thread waits. */
#define UNCANCELLED                                                                                 \
	__attribute__((cleanup(cancel_back), unused)) const struct cancel_before cancelled_before = \
	        cancel_off()

#endif
