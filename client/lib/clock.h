/* Deadlines: absolute times of the monotonic clock, in nanoseconds. */
#ifndef FLYTUNE_CLIENT_CLOCK_H
#define FLYTUNE_CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "proto/clock.h"

#define CLOCK_MS UINT64_C(1000000)
#define CLOCK_NEVER UINT64_MAX

static inline uint64_t clock_now(void)
{
	return ft_monotonic_ns();
}

/* `ms` from now; never if it is negative. */
static inline uint64_t clock_after(int64_t ms)
{
	if (ms < 0 || (uint64_t)ms > UINT64_MAX / 4 / CLOCK_MS)
		return CLOCK_NEVER;
	return clock_now() + (uint64_t)ms * CLOCK_MS;
}

static inline uint64_t clock_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline struct timespec clock_timespec(uint64_t at)
{
	const uint64_t second = 1000 * CLOCK_MS;
	/* Far enough for ever, and in range wherever time_t is. */
	uint64_t capped = at > UINT64_MAX / 4 ? UINT64_MAX / 4 : at;
	struct timespec time = {.tv_sec = (time_t)(capped / second), .tv_nsec = (long)(capped % second)};

	return time;
}

#endif
