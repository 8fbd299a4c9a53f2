/* The only clock there is for tests of a sweep: it goes on where somebody looks at it, sleeps or works. A busy machine changes nothing.
 * Linked with --wrap=clock_gettime and --wrap=nanosleep. */
#ifndef FLYTUNE_TESTS_SWEEP_CLOCK_H
#define FLYTUNE_TESTS_SWEEP_CLOCK_H

#include <stdint.h>
#include <time.h>

static uint64_t clock_ns = 1000000000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	clock_ns += 100;
	*now = (struct timespec){
	        .tv_sec = (time_t)(clock_ns / 1000000000U), .tv_nsec = (long)(clock_ns % 1000000000U)};
	return 0;
}

int __wrap_nanosleep(const struct timespec *duration, struct timespec *left);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *left)
{
	(void)left;
	clock_ns += (uint64_t)duration->tv_sec * 1000000000U + (uint64_t)duration->tv_nsec;
	return 0;
}

#endif
