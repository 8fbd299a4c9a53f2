/* The CPU as a device: what it is called, what of it decides speed, and how much memory is free. */
#ifndef FLYTUNE_KERNELS_RUNNER_DEVICE_CPU_H
#define FLYTUNE_KERNELS_RUNNER_DEVICE_CPU_H

#include "kernels/kernel.h"

/* Fills in all that the system tells; architecture, usable cores and cache are those of `traits`. */
void ft_describe_cpu(const struct ft_traits *traits, struct ft_runner_device *shown);
/* Bytes that may still be allocated without hurting others, a control group's bound included. */
uint64_t ft_free_memory(void);

#endif
