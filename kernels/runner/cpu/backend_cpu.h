/* The CPU as a backend: real kernels on the cores of this machine. */
#ifndef FLYTUNE_KERNELS_RUNNER_BACKEND_CPU_H
#define FLYTUNE_KERNELS_RUNNER_BACKEND_CPU_H

#include "kernels/runner/backend.h"

/* NULL when out of memory. Release with ft_backend_cpu_free after the backend was closed. */
struct ft_backend *ft_backend_cpu_new(void);
void ft_backend_cpu_free(struct ft_backend *backend);

#endif
