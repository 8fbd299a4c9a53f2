/* A histogram: how many of something were no larger than each of some bounds, and their sum. */
#ifndef FLYTUNE_DAEMON_HISTOGRAM_H
#define FLYTUNE_DAEMON_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BOUNDS = 16 };

struct histogram {
	uint64_t count[HISTOGRAM_BOUNDS + 1]; /* each of its own bucket; the last is above all bounds */
	uint64_t sum_ns;
};

/* In nanoseconds, from 1 µs on, in steps of about 3: 1, 3, 10, … */
static inline uint64_t histogram_bound(int index)
{
	uint64_t bound = index % 2 == 0 ? 1000 : 3000;

	for (int i = 0; i < index / 2; i++)
		bound *= 10;
	return bound;
}

/* `times` values of that size. */
static inline void histogram_add(struct histogram *histogram, uint64_t ns, uint64_t times)
{
	int index = 0;
	uint64_t bound = 1000;

	while (index < HISTOGRAM_BOUNDS && ns > bound) {
		index++;
		bound = index % 2 == 0 ? bound / 3 * 10 : bound * 3;
	}
	histogram->count[index] += times;
	histogram->sum_ns += ns * times;
}

#endif
