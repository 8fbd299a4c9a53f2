#include "client/ctl/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_short;
static int fault; /* the first errno of a write that failed */

/* The stream's own write would forget why it failed. */
static ssize_t write_out(void *cookie, const char *text, size_t size)
{
	size_t written = 0;

	(void)cookie;
	while (written < size) {
		ssize_t some = write(STDOUT_FILENO, text + written, size - written);

		if (some < 0 && errno == EINTR)
			continue;
		if (some < 0) {
			fault = fault == 0 ? errno : fault;
			return 0;
		}
		written += (size_t)some;
	}
	return (ssize_t)size;
}

void output_begin(void)
{
	FILE *own;

	for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
		/* Open for the other direction. */
		if (fcntl(descriptor, F_GETFD) == -1)
			(void)!open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	}
	own = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_out});
	if (own == NULL)
		return; /* it does without */
	if (isatty(STDOUT_FILENO))
		(void)setvbuf(own, NULL, _IOLBF, 0);
	stdout = own;
}

void output_short(void)
{
	if (!is_short)
		fputs("flytunectl: out of memory\n", stderr);
	is_short = true;
}

bool output_flush(void)
{
	if (fflush(stdout) != 0 && fault == 0)
		fault = errno;
	return fault == 0 && !ferror(stdout);
}

bool output_end(void)
{
	if (output_flush())
		return !is_short;
	/* A reader that has seen enough, such as head, is no news. */
	if (fault != EPIPE)
		fprintf(stderr, "flytunectl: standard output: %s\n", strerror(fault != 0 ? fault : EIO));
	return false;
}
