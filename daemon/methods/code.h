/* The machine code of a winner, as its sweep kept it: read from the state directory, checked, and given out. */
#ifndef FLYTUNE_DAEMON_METHODS_CODE_H
#define FLYTUNE_DAEMON_METHODS_CODE_H

#include "daemon/methods/context.h"

method_call method_code; /* of the context */

#endif
