/* What the GPU runners do by hand besides what every runner does: build a code object offline, explore a
 * space. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_OFFLINE_H
#define FLYTUNE_KERNELS_RUNNER_GPU_OFFLINE_H

/* `argv[1]` is "build". Needs no GPU. Returns the exit status. */
int gpu_build_main(int argc, char **argv);
/* `argv[1]` is "explore": builds, verifies and times a product of knob values, or the whole space. */
int gpu_explore_main(int argc, char **argv);

#endif
