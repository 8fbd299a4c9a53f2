#include "daemon/host/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LISTEN_FDS_START = 3 };

static uint64_t number_of(const char *text)
{
	char *end;
	unsigned long long value;

	if (text == NULL || *text == '\0')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	return errno == 0 && *end == '\0' ? value : 0;
}

int notify_init(struct notify *notify, struct ft_error *error)
{
	const char *path = secure_getenv("NOTIFY_SOCKET");
	const char *pid = secure_getenv("WATCHDOG_PID");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length;
	int result = 0;

	notify->socket = -1;
	notify->watchdog_ns = 0;
	if (pid == NULL || number_of(pid) == (uint64_t)getpid())
		notify->watchdog_ns = number_of(secure_getenv("WATCHDOG_USEC")) * 1000;
	if (path != NULL && *path != '\0') {
		length = strlen(path);
		if ((path[0] != '/' && path[0] != '@') || length >= sizeof(address.sun_path)) {
			result = ft_fail_field(error, FT_E_BAD_VALUE, "NOTIFY_SOCKET", path,
			        "an absolute path or @name under 108 bytes");
			goto out;
		}
		memcpy(address.sun_path, path, length);
		if (path[0] == '@')
			address.sun_path[0] = '\0';
		notify->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (notify->socket < 0) {
			result = ft_fail_errno(error, errno, "cannot make a socket for NOTIFY_SOCKET");
			goto out;
		}
		if (connect(notify->socket, (struct sockaddr *)&address,
		            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) != 0) {
			(void)close(notify->socket); /* the manager is gone: run on without it */
			notify->socket = -1;
		}
	}
out:
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	(void)unsetenv("WATCHDOG_PID");
	return result;
}

void notify_free(struct notify *notify)
{
	if (notify->socket >= 0)
		(void)close(notify->socket);
	notify->socket = -1;
}

void notify_send(const struct notify *notify, const char *lines)
{
	if (notify->socket >= 0)
		(void)!send(notify->socket, lines, strlen(lines), MSG_NOSIGNAL | MSG_DONTWAIT);
}

int notify_listen_socket(int *descriptor, struct ft_error *error)
{
	const char *pid = secure_getenv("LISTEN_PID");
	uint64_t count = number_of(secure_getenv("LISTEN_FDS"));
	bool ours = pid != NULL && number_of(pid) == (uint64_t)getpid();
	int type = 0;
	int listening = 0;
	struct sockaddr_storage address = {0};
	socklen_t size = sizeof(type);

	*descriptor = -1;
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	if (!ours || count == 0)
		return 0;
	if (count != 1)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "LISTEN_FDS hands over %llu sockets; flytuned takes one", (unsigned long long)count);
	if (getsockopt(LISTEN_FDS_START, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
		return ft_fail_errno(error, errno, "descriptor 3 from LISTEN_FDS is no socket");
	size = sizeof(listening);
	(void)getsockopt(LISTEN_FDS_START, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size);
	size = sizeof(address);
	if (getsockname(LISTEN_FDS_START, (struct sockaddr *)&address, &size) != 0 ||
	        address.ss_family != AF_UNIX || type != SOCK_STREAM || listening == 0)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "descriptor 3 from LISTEN_FDS is no listening Unix stream socket");
	if (fcntl(LISTEN_FDS_START, F_SETFD, FD_CLOEXEC) != 0)
		return ft_fail_errno(error, errno, "cannot set close-on-exec on descriptor 3");
	*descriptor = LISTEN_FDS_START;
	return 0;
}
