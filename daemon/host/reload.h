/* A reload: file and flags are read anew while the daemon serves, and the host is asked for what they name in a thread of its
 * own, since the user database may be on another host. With a fault in them all stays as it was, and the log says why. */
#ifndef FLYTUNE_DAEMON_RELOAD_H
#define FLYTUNE_DAEMON_RELOAD_H

#include <uv.h>

#include "daemon/host/access.h"
#include "daemon/host/log.h"

struct reload {
	uv_loop_t *loop;
	const struct log *log;
	const struct settings *settings; /* in force */
	int argc;
	char **argv;
	void (*begins)(void *data);
	/* NULL, both: nothing is to change. */
	void (*ended)(void *data, const struct settings *settings, const struct access *access);
	void *data;

	bool asking;  /* the host; else nothing is under way */
	bool again;   /* and the configuration may have changed since */
	bool stopped; /* set at the daemon's end: nothing is called back any more */
};

/* Where one is under way another follows it. */
void reload_begin(struct reload *reload);

#endif
