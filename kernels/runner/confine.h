/* What keeps a kernel folder's code away from the rest of the host: this process confines itself, for good, before it builds or loads
 * any, and all that it starts is confined with it. systemd/TRUST.md says what that protects.
 *
 * By Landlock, as far as the system's kernel has it: files are read where toolchains and drivers are, and written
 * where code is kept and built; processes outside cannot be signalled or traced, nor TCP or abstract sockets be reached. By a filter
 * of system calls: nothing is connected to, whatever was opened; no mode or owner of a file is changed by path, nothing cut off by
 * path; the daemon, by number, gets no signal and no limit. */
#ifndef FLYTUNE_KERNELS_RUNNER_CONFINE_H
#define FLYTUNE_KERNELS_RUNNER_CONFINE_H

#include <stddef.h>

#include "proto/error.h"

/* For a runner of devices of a kind, whose code is kept in `code_dir`: a folder to build in is made there, and is TMPDIR from now on. To
 * be called while there is one thread, since Landlock holds for the thread that asks for it and those that it starts. Closes all
 * descriptors past the daemon's socket. `lacks` gets what this system cannot do of it, in words; "": nothing. -1 and an error if
 * what it can do was not done: then no folder's code may run. */
int confine(const char *kind, const char *code_dir, char *lacks, size_t size, struct ft_error *error);

#endif
