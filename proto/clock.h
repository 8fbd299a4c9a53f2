/* The time, in nanoseconds. */
#ifndef FLYTUNE_PROTO_CLOCK_H
#define FLYTUNE_PROTO_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ft_clock_read(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Since some moment in the past; never set back. */
static inline uint64_t ft_monotonic_ns(void)
{
	return ft_clock_read(CLOCK_MONOTONIC);
}

/* Since 1970; whoever keeps the clock may set it. */
static inline uint64_t ft_wall_ns(void)
{
	return ft_clock_read(CLOCK_REALTIME);
}

#endif
