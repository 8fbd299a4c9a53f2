/* A runner by hand, without a daemon: `devices` and `sweep`. */
#ifndef FLYTUNE_KERNELS_RUNNER_MANUAL_H
#define FLYTUNE_KERNELS_RUNNER_MANUAL_H

#include "kernels/runner/backend.h"

/* What its arguments ask for, on standard output. The backend is open. Returns the exit status. */
int ft_runner_by_hand(int argc, char **argv, struct ft_backend *backend);

#endif
