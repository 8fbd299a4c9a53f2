/* Keeps a call whole when its thread is cancelled (pthread_cancel): what is cancelled in the middle would leave a lock held,
 * a connection in use or half a request sent, for all threads and for good. */
#ifndef FLYTUNE_CLIENT_CANCEL_H
#define FLYTUNE_CLIENT_CANCEL_H

#include <poll.h>
#include <pthread.h>

struct cancel_before {
	int state, type;
};

/* A cancellation that was sent to a thread of the asynchronous type before this, and arrives after: who sends it may stand still
 * between the look at our state and the signal, for as long as the scheduler likes. What glibc (seen in 2.36) does when the
 * signal arrives depends on the type alone, not on the state; and a system call that is a cancellation point is of the
 * asynchronous type while it lasts. So the type is set as well, and for such a thread one cancellation point is passed here,
 * where nothing is held yet: glibc does not let it return before the signal has arrived. */
static inline struct cancel_before cancel_off(void)
{
	struct cancel_before before;

	(void)pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before.type);
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.state);
	if (before.type == PTHREAD_CANCEL_ASYNCHRONOUS)
		(void)poll(NULL, 0, 0);
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
