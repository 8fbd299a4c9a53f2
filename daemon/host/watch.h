/* Watches a directory for names that go away or are replaced in it, and for its own. Costs no wake-up while nothing of
 * that kind happens. On the loop thread. */
#ifndef FLYTUNE_DAEMON_WATCH_H
#define FLYTUNE_DAEMON_WATCH_H

#include <limits.h>
#include <stdbool.h>
#include <uv.h>

struct watch {
	char path[PATH_MAX];
	/* Something may have gone. True if all is as it should be; else it is called again, after longer and longer, until it is.
	 */
	bool (*look)(void *data);
	void *data;
	int fd;     /* of inotify; -1: the system has none left, and `look` is called by watch_look alone */
	int number; /* of the watch; -1: there is no such directory now */
	uint64_t pause_ms;
	uv_poll_t poll;
	uv_timer_t timer; /* runs only between an event and `look` */
	bool started;
};

/* `path` is the directory. That it cannot be watched is no failure. */
void watch_start(
        struct watch *watch, uv_loop_t *loop, const char *path, bool (*look)(void *data), void *data);
/* As if something had happened. */
void watch_look(struct watch *watch);
void watch_stop(struct watch *watch);

#endif
