/* The configuration file: sections of KEY = VALUE, read by inih. flytuned.conf is its reference. */
#ifndef FLYTUNE_DAEMON_CONFIG_FILE_H
#define FLYTUNE_DAEMON_CONFIG_FILE_H

#include "proto/error.h"

/* Takes one setting. */
typedef int (*config_file_set)(
        void *data, const char *section, const char *key, const char *value, struct ft_error *error);
/* Reads *path, NULL: the usual file, if it is there; *path is what was read, NULL: none. Errors name file and line. */
int config_file_read(const char **path, config_file_set set, void *data, struct ft_error *error);

#endif
