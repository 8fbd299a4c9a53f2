/* Reading and writing the whole of something through a descriptor that may take or give it in parts. */
#ifndef FLYTUNE_KERNELS_RUNNER_PIPE_IO_H
#define FLYTUNE_KERNELS_RUNNER_PIPE_IO_H

#include <stddef.h>

/* 0, or -1 with errno (0 of a read: the other end closed before `size` bytes). */
int pipe_read_all(int descriptor, void *data, size_t size);
int pipe_write_all(int descriptor, const void *data, size_t size);

#endif
