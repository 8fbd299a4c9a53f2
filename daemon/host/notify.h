/* What systemd is notified of, and what it hands over: sd_notify(3) and sd_listen_fds(3) as documented protocols. */
#ifndef FLYTUNE_DAEMON_NOTIFY_H
#define FLYTUNE_DAEMON_NOTIFY_H

#include <stdint.h>

#include "proto/error.h"

struct notify {
	int socket;           /* -1: nobody listens */
	uint64_t watchdog_ns; /* 0: no watchdog */
};

/* Reads NOTIFY_SOCKET and WATCHDOG_USEC, and removes them from the environment, so that no child inherits
 * them. */
int notify_init(struct notify *notify, struct ft_error *error);
void notify_free(struct notify *notify);
/* Sends lines such as "READY=1\nSTATUS=…". Loss is not an error: the manager may be gone. */
void notify_send(const struct notify *notify, const char *lines);

/* The listening Unix stream socket that the service manager passed, -1 if it passed none. Removes LISTEN_*.
 */
int notify_listen_socket(int *descriptor, struct ft_error *error);

#endif
