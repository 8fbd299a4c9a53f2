/* `flytune-runner-KIND build`: builds code objects offline, without a GPU and without a daemon. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_OFFLINE_H
#define FLYTUNE_KERNELS_RUNNER_GPU_OFFLINE_H

#include "kernels/kernel.h"

/* `argv[1]` is "build". Returns the exit status. */
int gpu_build_main(int argc, char **argv);

/* "--weight-dtype" sets the field weight_dtype, as the schema has it. 0 or -1. */
int gpu_set_field(struct ft_problem *given, const struct ft_schema *schema, const char *option,
        const char *value, struct ft_error *error);

#endif
