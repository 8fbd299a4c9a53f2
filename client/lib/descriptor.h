/* Keeps descriptors above the standard ones, which a program may have closed and may open again behind our back. */
#ifndef FLYTUNE_CLIENT_DESCRIPTOR_H
#define FLYTUNE_CLIENT_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The same, close-on-exec and above 2, or -1 with errno set; `fd` may be -1. */
static inline int descriptor_above_standard(int fd)
{
	if (fd >= 0 && fd <= STDERR_FILENO) {
		int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		int saved = errno;

		close(fd);
		errno = saved;
		fd = higher;
	}
	return fd;
}

#endif
