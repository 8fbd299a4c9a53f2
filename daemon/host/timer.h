/* When something is due: the one way to start a timer of the loop. */
#ifndef FLYTUNE_DAEMON_TIMER_H
#define FLYTUNE_DAEMON_TIMER_H

#include <uv.h>

/* Calls `due` once, so many milliseconds from now; at least one. A timer that is started with 0 in its own callback is due at
 * once, and libuv 1.44 runs it again before anything else has its turn: the loop hangs. */
static inline void timer_start(uv_timer_t *timer, uv_timer_cb due, uint64_t ms)
{
	(void)uv_timer_start(timer, due, ms > 0 ? ms : 1, 0);
}

/* First after so many milliseconds, then every so many; at least one. */
static inline void timer_repeat(uv_timer_t *timer, uv_timer_cb due, uint64_t first_ms, uint64_t every_ms)
{
	(void)uv_timer_start(timer, due, first_ms, every_ms > 0 ? every_ms : 1);
}

/* A time in whole milliseconds, no shorter than it is. */
static inline uint64_t timer_ms(uint64_t ns)
{
	return ns / 1000000 + (ns % 1000000 != 0);
}

#endif
