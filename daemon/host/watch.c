#include "daemon/host/watch.h"

#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "daemon/host/ready.h"
#include "daemon/host/timer.h"

/* Who removes one file is often about to remove others; and who replaces one is not done with the first step. */
enum { SETTLE_MS = 100, PAUSE_MOST_MS = 10000 };

static const uint32_t events =
        IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

/* Watches what has the path now. */
static void renew(struct watch *watch)
{
	int before = watch->number;

	if (watch->fd < 0)
		return;
	watch->number = inotify_add_watch(watch->fd, watch->path, events);
	if (before >= 0 && watch->number != before)
		(void)inotify_rm_watch(watch->fd, before);
}

static void happened(uv_poll_t *poll, int status, int what);

static void settled(uv_timer_t *timer)
{
	struct watch *watch = timer->data;
	char room[4096];
	bool good, watched;

	while (watch->fd >= 0 && read(watch->fd, room, sizeof(room)) > 0)
		continue;
	watched = watch->fd < 0 || poll_start(&watch->poll, UV_READABLE, happened) == 0;
	renew(watch);
	good = watch->look(watch->data);
	if (watch->number < 0)
		renew(watch); /* it may have been made again just now */
	if (good && watched && (watch->number >= 0 || watch->fd < 0)) {
		watch->pause_ms = 0;
		return;
	}
	watch->pause_ms = watch->pause_ms == 0 ? SETTLE_MS : watch->pause_ms * 2;
	if (watch->pause_ms > PAUSE_MOST_MS)
		watch->pause_ms = PAUSE_MOST_MS;
	timer_start(&watch->timer, settled, watch->pause_ms);
}

static void happened(uv_poll_t *poll, int status, int what)
{
	struct watch *watch = poll->data;

	(void)status;
	(void)what;
	(void)uv_poll_stop(poll);
	if (!uv_is_active((uv_handle_t *)&watch->timer))
		timer_start(&watch->timer, settled, SETTLE_MS);
}

void watch_start(struct watch *watch, uv_loop_t *loop, const char *path, bool (*look)(void *data), void *data)
{
	*watch = (struct watch){.look = look, .data = data, .number = -1, .started = true};
	(void)snprintf(watch->path, sizeof(watch->path), "%s", path);
	(void)uv_timer_init(loop, &watch->timer);
	watch->timer.data = watch;
	watch->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (watch->fd >= 0 && uv_poll_init(loop, &watch->poll, watch->fd) != 0) {
		(void)close(watch->fd);
		watch->fd = -1;
	}
	if (watch->fd < 0)
		return;
	watch->poll.data = watch;
	if (poll_start(&watch->poll, UV_READABLE, happened) != 0)
		timer_start(&watch->timer, settled, SETTLE_MS);
	renew(watch);
}

void watch_look(struct watch *watch)
{
	if (!watch->started)
		return;
	watch->pause_ms = 0;
	timer_start(&watch->timer, settled, 0);
}

void watch_stop(struct watch *watch)
{
	if (!watch->started)
		return;
	watch->started = false;
	uv_close((uv_handle_t *)&watch->timer, NULL);
	if (watch->fd < 0)
		return;
	uv_close((uv_handle_t *)&watch->poll, NULL);
	(void)close(watch->fd);
	watch->fd = -1;
}
