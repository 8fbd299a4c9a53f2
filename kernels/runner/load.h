/* How much of a device others use, by the system's own figure and without a context on it. */
#ifndef FLYTUNE_KERNELS_RUNNER_LOAD_H
#define FLYTUNE_KERNELS_RUNNER_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of `count` processors, by number, over a tenth of a second. */
bool ft_load_cpu(const int *processor, size_t count, unsigned *percent);
/* Time that the host of a virtual machine took from processors. */
struct ft_steal {
	uint64_t all, taken; /* ticks at the last look */
};
/* The share since the last look, in percent, once there was time enough since to tell; else, and where the system has no
 * figure, false. The first look only begins. */
bool ft_steal_cpu(const int *processor, size_t count, struct ft_steal *steal, unsigned *percent);
/* As amdgpu tells it in sysfs; `pci` is "0000:c1:00.0". */
bool ft_load_amd(const char *pci, unsigned *percent);
/* As NVIDIA's management library tells it, if the driver came with one. */
bool ft_load_nvidia(const char *pci, unsigned *percent);

#endif
