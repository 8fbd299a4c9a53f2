/* The CPU's clock: how fine it is, what reading it costs, and how long a window must be for that not to
 * matter. */
#ifndef FLYTUNE_KERNELS_RUNNER_MEASURE_CPU_H
#define FLYTUNE_KERNELS_RUNNER_MEASURE_CPU_H

#include <stdint.h>

struct ft_clock {
	uint64_t overhead_ns; /* between two readings, with nothing between them: the median */
	uint64_t step_ns;     /* the least that two readings differ by */
};

/* CLOCK_MONOTONIC_RAW, which no one slews. */
uint64_t ft_clock_ns(void);
void ft_clock_probe(struct ft_clock *clock);
/* The least window in which overhead and step are a thousandth. */
uint64_t ft_clock_window_ns(const struct ft_clock *clock);

#endif
