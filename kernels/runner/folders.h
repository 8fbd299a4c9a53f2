/* The kernels of folders that a runner has: read first, then the process is confined, and only then is any of their code built or
 * loaded. In this order: folders_read of each, folders_confine, the backend's open, folders_adopt, and folders_drop after its close. */
#ifndef FLYTUNE_KERNELS_RUNNER_FOLDERS_H
#define FLYTUNE_KERNELS_RUNNER_FOLDERS_H

#include "kernels/runner/backend.h"

/* One that is broken is said, and is missing; the others are there. One for other kinds of devices is left. */
void folders_read(struct ft_backend *backend, const char *path);
/* `code_dir` NULL: not wanted. Who runs no folder's code is confined by nothing; what cannot be confined is dropped, and `unconfined`
 * says why. */
void folders_confine(struct ft_backend *backend, const char *code_dir);
void folders_adopt(struct ft_backend *backend);
void folders_drop(struct ft_backend *backend);

#endif
