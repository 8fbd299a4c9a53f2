#include "kernels/runner/cpu/measure_cpu.h"

#include <stdlib.h>
#include <time.h>

uint64_t ft_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;
	return (*x > *y) - (*x < *y);
}

void ft_clock_probe(struct ft_clock *clock)
{
	enum { READINGS = 1001 };
	uint64_t took[READINGS];
	uint64_t step = UINT64_MAX;
	for (int i = 0; i < READINGS; i++) {
		uint64_t before = ft_clock_ns();
		took[i] = ft_clock_ns() - before;
		if (took[i] > 0 && took[i] < step)
			step = took[i];
	}
	qsort(took, READINGS, sizeof(took[0]), compare);
	clock->overhead_ns = took[READINGS / 2];
	/* A clock that never moved between two readings is coarse: wait for it to move once. */
	if (step == UINT64_MAX) {
		uint64_t before = ft_clock_ns();
		uint64_t after = before;
		while (after == before)
			after = ft_clock_ns();
		step = after - before;
	}
	clock->step_ns = step;
}

uint64_t ft_clock_window_ns(const struct ft_clock *clock)
{
	enum { PART = 1000 };
	return PART * (clock->overhead_ns + clock->step_ns);
}
