#include "daemon/host/deadline.h"

#include "daemon/host/timer.h"
#include "proto/clock.h"

enum { SLICE_MS = 1000, LOOK_MS = 1 /* the loop polls between two timers, unless they are due at once */ };

static void slice_over(uv_timer_t *timer);

/* The loop's own clock may be old by now. */
static uint64_t now_ms(void)
{
	return ft_monotonic_ns() / 1000000;
}

static void begin_slice(struct deadline *deadline)
{
	deadline->slice_ms = deadline->left_ms < SLICE_MS ? deadline->left_ms : SLICE_MS;
	if (deadline->slice_ms == 0)
		deadline->slice_ms = LOOK_MS;
	deadline->began_ms = now_ms();
	uv_update_time(deadline->timer.loop);
	timer_start(&deadline->timer, slice_over, deadline->slice_ms);
}

static void slice_over(uv_timer_t *timer)
{
	struct deadline *deadline = timer->data;
	uint64_t took_ms = now_ms() - deadline->began_ms;
	bool late = took_ms > deadline->slice_ms + deadline->slice_ms / 2 + SLICE_MS / 10;
	bool last = deadline->left_ms == 0;

	if (last && !late) {
		deadline->passed(deadline->data);
		return;
	}
	deadline->left_ms -= deadline->slice_ms < deadline->left_ms ? deadline->slice_ms : deadline->left_ms;
	/* Whoever stood still with the loop has had no time to say anything. */
	if (late && deadline->left_ms == 0)
		deadline->left_ms = SLICE_MS;
	begin_slice(deadline);
}

int deadline_init(struct deadline *deadline, uv_loop_t *loop, void (*passed)(void *data), void *data)
{
	int status = uv_timer_init(loop, &deadline->timer);

	deadline->passed = passed;
	deadline->data = data;
	deadline->timer.data = deadline;
	return status;
}

void deadline_start(struct deadline *deadline, uint64_t ms)
{
	deadline->left_ms = ms;
	begin_slice(deadline);
}

void deadline_stop(struct deadline *deadline)
{
	(void)uv_timer_stop(&deadline->timer);
}

void deadline_close(struct deadline *deadline)
{
	if (!uv_is_closing((uv_handle_t *)&deadline->timer))
		uv_close((uv_handle_t *)&deadline->timer, NULL);
}
