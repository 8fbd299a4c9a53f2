/* The backend for GPUs: one source against the HIP API, linked with hip_load.c or cuda_load.c. */
#ifndef FLYTUNE_KERNELS_RUNNER_BACKEND_GPU_H
#define FLYTUNE_KERNELS_RUNNER_BACKEND_GPU_H

#include "kernels/runner/backend.h"
#include "kernels/runner/gpu/gpu_code.h"
#include "kernels/runner/gpu/gpu_compiler.h"

/* A backend that is not open yet; NULL when out of memory. To be freed after it was closed. */
struct ft_backend *gpu_backend_new(void);
void gpu_backend_free(struct ft_backend *backend);

/* What a config is compiled with, in all: options for the run-time compiler, each a text of its own. */
struct gpu_options {
	unsigned count;
	char text[GPU_OPTIONS_MAX][FT_DEFINE_SIZE + 112];
};
int gpu_kernel_options(const struct ft_kernel_gpu *kernel, const struct ft_problem *problem,
        const struct ft_traits *traits, const struct ft_config *config, struct gpu_options *options,
        struct ft_error *error);

/* How the code of a kernel over rows is launched (LAUNCH.md), and who built it; the rest of `about` is left zero. */
void gpu_launch_about(const struct ft_kernel_gpu *kernel, const struct ft_traits *traits,
        const struct ft_launch *launch, const char *builder, struct gpu_about *about);

/* The built-in kernel's code of that name; NULL: there is none. */
const struct ft_kernel_gpu *gpu_find_built_in(const char *name);

/* "nvrtc-13.0 build=…": what compiles. Fails if there is no compiler. */
int gpu_builder(char *text, size_t size, char *path, size_t path_size, struct ft_error *error);
/* The folder of the toolkit's headers that came with that compiler; "": none is there. */
void gpu_headers(const char *compiler, char *path, size_t size);

#endif
