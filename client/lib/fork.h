/* Keeps clients usable across fork. */
#ifndef FLYTUNE_CLIENT_FORK_H
#define FLYTUNE_CLIENT_FORK_H

#include "client/lib/handle.h"

void fork_watch(flytune_client *client);
void fork_forget(flytune_client *client);

#endif
