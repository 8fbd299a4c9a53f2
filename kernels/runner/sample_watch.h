/* Watches over the samples of a sweep, which are not announced one by one: a notice for each would cost more than a
 * short launch, and wake the daemon on a core that is being measured. Instead a thread looks twice a second,
 * and names the config whose sample takes long, so that a hang is blamed on it; a handler of fatal signals
 * does the same before the process dies. The thread also ends the process when the daemon is gone, whatever
 * else it does. */
#ifndef FLYTUNE_KERNELS_RUNNER_SAMPLE_WATCH_H
#define FLYTUNE_KERNELS_RUNNER_SAMPLE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct announcement;

struct sample_watch {
	int descriptor;
	int stop; /* an eventfd: the thread is to end */
	pthread_t thread;
	pthread_mutex_t lock;   /* of the socket, against the other thread */
	atomic_size_t measured; /* trial whose sample is being taken, plus one; 0: none */
	atomic_uint samples;    /* counts them, so that one is told from the next */
	size_t count;
	struct announcement *announcement;
};

/* To begin with. */
#define SAMPLE_WATCH(socket)                                                          \
	{                                                                             \
		.descriptor = (socket), .stop = -1, .lock = PTHREAD_MUTEX_INITIALIZER \
	}

/* While a job's sweep of `count` trials runs. One at a time in a process. */
int sample_watch_start(struct sample_watch *watch, uint64_t job, size_t count, struct ft_error *error);
void sample_watch_stop(struct sample_watch *watch);
/* Around each sample. */
void sample_watch_begins(struct sample_watch *watch, size_t trial);
void sample_watch_ends(struct sample_watch *watch);
/* All of it, at any time and never in the middle of what the watch has to say. False if the daemon is gone. */
bool sample_watch_send(struct sample_watch *watch, const uint8_t *data, size_t length);

#endif
