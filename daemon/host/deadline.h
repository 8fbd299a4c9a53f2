/* A deadline for someone else, judged fairly: it counts only time that the loop saw pass, so that a machine that stood
 * still (a freezer, a suspend, a host that is busy) is nobody's lateness, and it passes only after what had arrived by
 * then was read. For that the time is counted in slices: one that ends late, because the loop did not run, counts no
 * more than itself and is not the last one. */
#ifndef FLYTUNE_DAEMON_DEADLINE_H
#define FLYTUNE_DAEMON_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct deadline {
	uv_timer_t timer;
	void (*passed)(void *data);
	void *data;
	uint64_t left_ms;
	uint64_t slice_ms, began_ms; /* the one that runs, and when it began */
};

/* 0, or what libuv says. */
int deadline_init(struct deadline *deadline, uv_loop_t *loop, void (*passed)(void *data), void *data);
/* From now on, instead of what ran. Wakes the loop once a second. */
void deadline_start(struct deadline *deadline, uint64_t ms);
void deadline_stop(struct deadline *deadline);
/* Once it was made; may be called again. */
void deadline_close(struct deadline *deadline);

#endif
