/* What the loop waits for to be readable or writable: the one way to have it watched. */
#ifndef FLYTUNE_DAEMON_READY_H
#define FLYTUNE_DAEMON_READY_H

#include <errno.h>
#include <sys/epoll.h>

#include <uv.h>

/* Has the kernel watch the descriptor of a handle that was started just now; libuv's error where it has no room for that.
 * Else libuv 1.44 would do so before it next waits, and end the program where it cannot. What is watched already it only
 * changes, which takes no memory. */
static inline int poll_ensure(uv_handle_t *handle)
{
	struct epoll_event event = {0};
	uv_os_fd_t descriptor;
	int status = uv_fileno(handle, &descriptor);

	if (status != 0)
		return status;
	event.data.fd = descriptor;
	if (epoll_ctl(uv_backend_fd(handle->loop), EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST)
		return 0;
	return uv_translate_sys_error(errno);
}

/* As uv_poll_start. Where it fails nothing is watched. */
static inline int poll_start(uv_poll_t *poll, int events, uv_poll_cb ready)
{
	int status = uv_poll_start(poll, events, ready);

	if (status == 0 && (status = poll_ensure((uv_handle_t *)poll)) != 0)
		(void)uv_poll_stop(poll);
	return status;
}

#endif
