/* Reads the daemon's list of devices. */
#ifndef FLYTUNE_CLIENT_DEVICE_H
#define FLYTUNE_CLIENT_DEVICE_H

#include <flytune/admin.h>

#include "client/lib/handle.h"

/* A fresh list; NULL on failure. */
flytune_device_list *device_list_read(struct ft_view data, struct ft_error *error);

#endif
