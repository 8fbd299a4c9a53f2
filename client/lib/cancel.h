/* Keeps a call whole when its thread is cancelled (pthread_cancel): what is cancelled in the middle would leave a lock held,
 * a connection in use or half a request sent, for all threads and for good. */
#ifndef FLYTUNE_CLIENT_CANCEL_H
#define FLYTUNE_CLIENT_CANCEL_H

#include <pthread.h>

static inline int cancel_off(void)
{
	int before;

	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_back(const int *before)
{
	int unused;

	(void)pthread_setcancelstate(*before, &unused);
}

/* The first declaration of each function that programs call and that locks, allocates, frees or makes a system call: until
 * it returns, callbacks included, a cancellation of its thread waits. */
#define UNCANCELLED __attribute__((cleanup(cancel_back), unused)) const int cancelled_before = cancel_off()

#endif
