/* Kernels of folders on a GPU: the contract's struct for runners, made of what kernel.json says. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_FOLDER_H
#define FLYTUNE_KERNELS_RUNNER_GPU_FOLDER_H

#include "kernels/folder/folder.h"

/* NULL and an error if it has no source for this program's kind of device. `headers` is a folder for includes in angle brackets, ""
 * where there is none. Lives as long as the folder, and is the caller's to free. */
struct ft_kernel_gpu *gpu_folder_code(
        const struct ft_folder *folder, const char *headers, struct ft_error *error);

#endif
