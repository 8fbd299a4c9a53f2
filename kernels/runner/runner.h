/* The runner: the device-independent program around a backend. It builds, verifies and measures the configs
 * of one problem, by the daemon's order.
 *
 * The daemon starts it with a stream socket on descriptor 3; it answers `hello`, `space` and `sweep` until the
 * socket ends. */
#ifndef FLYTUNE_KERNELS_RUNNER_RUNNER_H
#define FLYTUNE_KERNELS_RUNNER_RUNNER_H

#include "kernels/runner/backend.h"

enum { FT_RUNNER_DESCRIPTOR = 3 };

/* All of a runner's main: opens and closes the backend itself. `--kernel FOLDER`, any number of times, gives it the kernels of
 * folders; `--confine CODE_DIR` has it confine itself (confine.h) before it builds or loads the code of any. Returns the exit status. */
int ft_runner_main(struct ft_backend *backend, int argc, char **argv);

/* Serves one daemon on `descriptor` until it hangs up (0) or breaks the framing (1). The backend is open.
 * While a sweep runs a hang-up ends the process at once, wherever it is. */
int ft_runner_serve(int descriptor, struct ft_backend *backend);

#endif
