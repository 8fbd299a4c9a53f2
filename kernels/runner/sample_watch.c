#include "kernels/runner/sample_watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/messages.h"

enum {
	LOOK_MS = 500,       /* how often a sample in progress is looked at */
	ANNOUNCE_SIZE = 128, /* holds a `begin` notice */
};

/* A `begin` notice, made beforehand: a signal handler sends it. */
struct announcement {
	uint8_t data[ANNOUNCE_SIZE];
	size_t length;
};

/* Where the signal handler finds it: nothing can be passed to one. Set while a sweep runs. */
static _Atomic(struct sample_watch *) watched;

/* All of it, or the daemon is gone. */
static bool send_all(int descriptor, const uint8_t *data, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(descriptor, data, length, MSG_NOSIGNAL);
		if (sent > 0) {
			data += sent;
			length -= (size_t)sent;
		} else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			struct pollfd waiting = {.fd = descriptor, .events = POLLOUT};
			(void)poll(&waiting, 1, -1);
		} else if (sent < 0 && errno != EINTR) {
			return false;
		}
	}
	return true;
}

bool sample_watch_send(struct sample_watch *watch, const uint8_t *data, size_t length)
{
	pthread_mutex_lock(&watch->lock);
	bool sent = send_all(watch->descriptor, data, length);
	pthread_mutex_unlock(&watch->lock);
	return sent;
}

void sample_watch_begins(struct sample_watch *watch, size_t trial)
{
	atomic_fetch_add(&watch->samples, 1);
	atomic_store(&watch->measured, trial + 1);
}

void sample_watch_ends(struct sample_watch *watch)
{
	atomic_store(&watch->measured, 0);
}

static void fatal(int number)
{
	struct sample_watch *watch = atomic_load(&watched);
	size_t measured = watch ? atomic_load(&watch->measured) : 0;
	if (measured > 0 && measured <= watch->count) {
		const struct announcement *announcement = &watch->announcement[measured - 1];
		ssize_t sent = send(watch->descriptor, announcement->data, announcement->length,
		        MSG_NOSIGNAL | MSG_DONTWAIT);
		(void)sent;
	}
	/* The action was reset to the default on entry. */
	raise(number);
}

static void handle_fatal_signals(bool handle)
{
	static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	struct sigaction action = {
	        .sa_handler = handle ? fatal : SIG_DFL, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(fatal_signals) / sizeof(fatal_signals[0]); i++)
		(void)sigaction(fatal_signals[i], &action, NULL);
}

static void *watch_main(void *argument)
{
	struct sample_watch *watch = argument;
	unsigned seen = 0;
	bool announced = true;
	for (;;) {
		/* The hang-up alone: what the daemon says is the other thread's to read. */
		struct pollfd poll_for[2] = {
		        {.fd = watch->descriptor, .events = POLLRDHUP},
		        {.fd = watch->stop, .events = POLLIN},
		};
		int ready = poll(poll_for, 2, LOOK_MS);
		if (ready > 0 && poll_for[1].revents)
			return NULL;
		if (ready > 0 && poll_for[0].revents)
			_exit(EXIT_SUCCESS);
		if (ready != 0)
			continue;
		unsigned samples = atomic_load(&watch->samples);
		if (samples != seen) {
			seen = samples;
			announced = false;
			continue;
		}
		/* The same sample as half a second ago, if any. */
		if (announced)
			continue;
		pthread_mutex_lock(&watch->lock);
		size_t measured = atomic_load(&watch->measured);
		if (measured > 0 && measured <= watch->count && atomic_load(&watch->samples) == seen) {
			const struct announcement *announcement = &watch->announcement[measured - 1];
			(void)send_all(watch->descriptor, announcement->data, announcement->length);
			announced = true;
		}
		pthread_mutex_unlock(&watch->lock);
	}
}

int sample_watch_start(struct sample_watch *watch, uint64_t job, size_t count, struct ft_error *error)
{
	watch->count = count;
	watch->announcement = calloc(count ? count : 1, sizeof(*watch->announcement));
	watch->stop = eventfd(0, EFD_CLOEXEC);
	if (!watch->announcement || watch->stop < 0)
		goto failed;
	for (size_t i = 0; i < count; i++) {
		struct announcement *announcement = &watch->announcement[i];
		struct ft_writer writer;
		struct ft_runner_event event = {.job = job, .trial = i, .event = "begin", .stage = "measure"};
		ft_writer_init_fixed(&writer, announcement->data, sizeof(announcement->data));
		ft_begin_notice(&writer, "event");
		ft_encode(&writer, &ft_runner_event_message, &event);
		if (!ft_writer_ok(&writer))
			goto failed;
		announcement->length = writer.length;
	}
	atomic_store(&watch->measured, 0);
	if (pthread_create(&watch->thread, NULL, watch_main, watch) != 0)
		goto failed;
	atomic_store(&watched, watch);
	handle_fatal_signals(true);
	return 0;
failed:
	free(watch->announcement);
	watch->announcement = NULL;
	if (watch->stop >= 0)
		close(watch->stop);
	return ft_fail(error, FT_E_MEMORY, "no memory or threads to watch over a sweep");
}

void sample_watch_stop(struct sample_watch *watch)
{
	handle_fatal_signals(false);
	atomic_store(&watched, NULL);
	uint64_t one = 1;
	ssize_t written = write(watch->stop, &one, sizeof(one));
	(void)written; /* a counter of zero takes one */
	pthread_join(watch->thread, NULL);
	close(watch->stop);
	free(watch->announcement);
	watch->announcement = NULL;
}
