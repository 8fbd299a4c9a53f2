/* What cannot be, unless the daemon has a bug. */
#ifndef FLYTUNE_DAEMON_BUG_H
#define FLYTUNE_DAEMON_BUG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/host/log.h"

extern atomic_ulong bugs_seen; /* since the start; for the figures */

/* Whether `holds` does. Else a build for debugging, as the tests are run with, ends the process here; one for use logs and
 * counts it, and the caller does without what it wanted: a job that stands still is better than a daemon that hangs or is gone. */
#ifdef FLYTUNE_STRICT
#define bug_unless(log, holds, ...) \
	((holds) || (log_line((log), LOG_LEVEL_ERROR, "bug: " __VA_ARGS__), abort(), false))
#else
#define bug_unless(log, holds, ...)                                                                      \
	((holds) ||                                                                                      \
	        (log_line((log), LOG_LEVEL_ERROR, "bug: " __VA_ARGS__), atomic_fetch_add(&bugs_seen, 1), \
	                false))
#endif

#endif
