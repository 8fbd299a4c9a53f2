/* The kernels that this daemon knows: those that are built in, and those of the folders that the operator installed.
 *
 * A folder is read whole and copied into the state directory, state_dir/kernels/NAME-HASH: that copy is what runners build from,
 * so that daemon and runners always mean the same, whatever is edited meanwhile. One that is broken is named in the log, and
 * its last good copy serves on. Used from the loop's thread. */
#ifndef FLYTUNE_DAEMON_KERNELS_H
#define FLYTUNE_DAEMON_KERNELS_H

#include "daemon/host/log.h"
#include "daemon/host/settings.h"
#include "kernels/kernel.h"

enum { KERNELS_MAX = 64 };

struct ft_folder;

struct installed_kernel {
	struct ft_folder *folder;
	char name[FT_KERNEL_SIZE];   /* of the kernel, and of its folder */
	char path[512];              /* of the folder */
	char copy[512];              /* path of what runners build from */
	bool broken;                 /* the folder is; this is its last good copy */
	char reason[FT_REASON_SIZE]; /* what is wrong with it then */
};

struct kernels {
	const struct log *log;
	const struct settings *settings;
	uint32_t count;
	struct installed_kernel installed[KERNELS_MAX]; /* by name */
	/* Folders that are broken and of which there is no copy. */
	uint32_t refused_count;
	struct installed_kernel refused[KERNELS_MAX];
	/* Of earlier readings: devices may still mean them. */
	uint32_t retired_count;
	struct ft_folder **retired;
};

/* Reads all folders anew: those in settings->kernels come before those that packages brought. What cannot be read is logged, and
 * is no failure of this. */
void kernels_read(struct kernels *kernels, const struct log *log, const struct settings *settings);
void kernels_free(struct kernels *kernels);
/* NULL: nobody here knows it. Lives as long as `kernels`. */
const struct ft_kernel *kernels_find(const struct kernels *kernels, const char *name);
/* Whether one that is known here is for that kind of device. */
bool kernels_is_for(const struct kernels *kernels, const struct ft_kernel *kernel, const char *device_kind);
/* A hash of what is installed. */
uint64_t kernels_hash(const struct kernels *kernels);

#endif
