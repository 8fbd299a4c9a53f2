/* Which GPUs there are and what decides their speed, found without a context on any of them.
 *
 * AMD's from sysfs alone, since its runtime reports another unit count for the same card depending on the
 * environment, and partitions change both speed and count. NVIDIA's from the driver's attributes and the PCI
 * ids in sysfs. Below `root` ("" for the real one) lies what the kernel shows, so that a test can make
 * devices up. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_DEVICES_H
#define FLYTUNE_KERNELS_RUNNER_GPU_DEVICES_H

#include "kernels/runner/backend.h"
#include "kernels/runner/gpu/hip.h"

enum { GPU_DEVICES_MAX = 64 };

/* Fills at most GPU_DEVICES_MAX; returns how many. None is no failure: `reason` says why. */
size_t gpu_devices_amd(const char *root, struct ft_backend_device *device, char reason[FT_REASON_SIZE]);
/* `hip` is loaded and initialised. */
size_t gpu_devices_nvidia(const struct hip *hip, const char *root, struct ft_backend_device *device,
        char reason[FT_REASON_SIZE]);
/* The version of a loaded kernel module; "" if there is none. */
void gpu_driver_version(const char *root, const char *module, char *text, size_t size);
/* The build id of an ELF file, in hexadecimal; "" if it has none. */
void gpu_build_id(const char *path, char *text, size_t size);

#endif
