/* The configuration file: sections of KEY = VALUE, read by inih. flytuned.conf is its reference. */
#ifndef FLYTUNE_DAEMON_CONFIG_H
#define FLYTUNE_DAEMON_CONFIG_H

#include "daemon/host/options.h"

/* Reads `path` over what `options` holds; NULL: the usual file, if it is there. Errors name file and line. */
int config_read(struct options *options, const char *path, struct ft_error *error);

#endif
