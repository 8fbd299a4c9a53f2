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

/* NVIDIA's management library, asked about one device; needs no context on it. */
struct ft_nvidia;
struct ft_nvidia_state {
	bool load_known;
	unsigned load;      /* percent of the time in which a kernel ran, whoever's */
	bool held;          /* heat or the power supply hold its clocks down */
	bool capped;        /* its clocks are as high as the power limit lets them */
	unsigned processes; /* that have a context on it; 0: not known */
};
/* NULL where the driver came without the library, or it does not know the device. */
struct ft_nvidia *ft_nvidia_open(const char *pci);
void ft_nvidia_close(struct ft_nvidia *nvidia);
/* `processes` costs more than the rest together, and is looked at only if it is wanted. */
void ft_nvidia_look(const struct ft_nvidia *nvidia, bool processes, struct ft_nvidia_state *state);
/* Opens, asks and closes. */
bool ft_load_nvidia(const char *pci, unsigned *percent);

#endif
