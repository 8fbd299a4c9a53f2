/* Export: answers on their way to another store, in steps that are requests of their own, all as of one generation. A row
 * keeps the identity and the origin that it has, so that what was measured elsewhere never passes for local. */
#ifndef FLYTUNE_DAEMON_EXPORT_H
#define FLYTUNE_DAEMON_EXPORT_H

#include "daemon/methods/context.h"

method_call method_export; /* of the context */

#endif
