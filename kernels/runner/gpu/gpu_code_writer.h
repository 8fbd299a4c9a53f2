/* Keeps code objects on disk behind a sweep's back: putting one there takes as long as a kernel takes to be verified, and
 * a sweep that has nothing built would wait for a score of them.
 *
 * Used from one thread; it has another, from the first object on. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_CODE_WRITER_H
#define FLYTUNE_KERNELS_RUNNER_GPU_CODE_WRITER_H

#include "kernels/runner/gpu/gpu_code.h"

struct gpu_code_writer;

/* For objects that gpu_code_keep puts into `folder`. */
int gpu_code_writer_open(struct gpu_code_writer **code_writer, const char *folder, struct ft_error *error);
/* Copies what it is given (`launch` may be NULL, as for gpu_code_keep). Keeping is for next time: a full disk, or no
 * memory, costs that object only. */
void gpu_code_writer_put(struct gpu_code_writer *code_writer, const char *key, const struct gpu_code *code,
        const struct gpu_about *launch);
/* Waits until all are on disk. NULL is nothing to close. */
void gpu_code_writer_close(struct gpu_code_writer *code_writer);

#endif
