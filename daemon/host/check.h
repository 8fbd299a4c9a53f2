/* What of the settings this host does not bear out: programs, groups and directories that are not there. */
#ifndef FLYTUNE_DAEMON_CHECK_H
#define FLYTUNE_DAEMON_CHECK_H

#include "daemon/host/settings.h"

/* Reports each fault, and gives their number. Only what was set is looked at: what the usual places hold is the
 * installation's matter. Asks the host's user database, so it may wait: not for a loop that serves. */
unsigned check_host(
        const struct settings *settings, void (*tell)(void *data, const struct ft_error *fault), void *data);
/* The same, on standard error; that there is none, on standard output. */
unsigned check_print(const struct settings *settings);

#endif
