/* How much of a device others use, by the system's own figure and without a context on it. */
#ifndef FLYTUNE_KERNELS_RUNNER_LOAD_H
#define FLYTUNE_KERNELS_RUNNER_LOAD_H

#include <stdbool.h>

/* Of the processors that this process may run on, over a tenth of a second. */
bool ft_load_cpu(unsigned *percent);
/* As amdgpu tells it in sysfs; `pci` is "0000:c1:00.0". */
bool ft_load_amd(const char *pci, unsigned *percent);
/* As NVIDIA's management library tells it, if the driver came with one. */
bool ft_load_nvidia(const char *pci, unsigned *percent);

#endif
