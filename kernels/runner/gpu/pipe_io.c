#include "kernels/runner/gpu/pipe_io.h"

#include <errno.h>
#include <unistd.h>

int pipe_read_all(int descriptor, void *data, size_t size)
{
	char *at = data;

	while (size > 0) {
		ssize_t got = read(descriptor, at, size);

		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = 0;
		if (got <= 0)
			return -1;
		at += got;
		size -= (size_t)got;
	}
	return 0;
}

int pipe_write_all(int descriptor, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t put = write(descriptor, at, size);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return -1;
		at += put;
		size -= (size_t)put;
	}
	return 0;
}
