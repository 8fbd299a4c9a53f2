/* This machine's CPU as a device: what it is, and what of it a process may use.
 *
 * One text for the runner, which measures under it, for the daemon, which notices by it that what the runner said may no
 * longer hold, and for clients, which work out defaults with it while the daemon is away. Reads small files of the
 * kernel's, in tens of microseconds, and keeps nothing. Any thread. */
#ifndef FLYTUNE_KERNELS_HOST_H
#define FLYTUNE_KERNELS_HOST_H

#include "kernels/kernel.h"

enum { FT_CPUS_MAX = 16384 }; /* a kernel that is built for more refuses to tell; one core is assumed then */

/* A set of CPUs by their numbers; as cpu_set_t is, which ends at 1,024. */
struct ft_cpus {
	unsigned long bit[FT_CPUS_MAX / (8 * sizeof(unsigned long))];
};

/* What affinity and control groups leave the process: its own group and all above it, of both versions. */
struct ft_allowance {
	struct ft_cpus
	        cpus; /* of the process, not of the calling thread, which its program may have bound to one */
	uint64_t cores;  /* of these; at least 1 */
	uint64_t quota;  /* thousandths of a core's time; UINT64_MAX: no bound */
	uint64_t memory; /* bytes; UINT64_MAX: no bound */
};

/* `root` stands before /proc and /sys: "" but in tests. */
void ft_allowance_read(const char *root, struct ft_allowance *allowance);
/* Cores that work can be spread over: a quota's last part of a core counts as one. */
uint64_t ft_allowance_units(const struct ft_allowance *allowance);
/* What may change while a process runs, in words; differs whenever what was measured, or said of the device, might. */
void ft_allowance_print(const struct ft_allowance *allowance, char *text, size_t size);
/* The numbers of the CPUs, `most` at most; gives how many. */
size_t ft_cpus_list(const struct ft_cpus *cpus, int *number, size_t most);
/* Only CPU `number`. */
void ft_cpus_one(struct ft_cpus *cpus, int number);

/* Architecture, usable cores and cache. */
void ft_host_traits(const struct ft_allowance *allowance, struct ft_traits *traits);
/* Traits to compute defaults with while no runner was heard: of the CPU this runs on, or a typical GPU of a
 * kind. A CPU's are read from some small files, in tens of microseconds: ask once and keep them. */
void ft_traits_guess(const char *kind, struct ft_traits *traits);
/* Of a device as its hello tells it: alike for whoever heard it. */
void ft_traits_of(const struct ft_runner_device *shown, struct ft_traits *traits);
/* The CPU as a hello tells it. `identity` holds all that decides its speed. */
void ft_host_describe(const char *root, const struct ft_allowance *allowance, const struct ft_traits *traits,
        struct ft_runner_device *shown);
/* Bytes that may still be allocated without hurting others; files that are cached make way. */
uint64_t ft_host_free_memory(const char *root);

#endif
