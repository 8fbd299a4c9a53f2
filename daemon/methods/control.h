/* The methods by which an operator decides: answers pinned, freed and forgotten, and whether the queue works. Each is told
 * and takes effect after its commit, and leaves a line in the log. */
#ifndef FLYTUNE_DAEMON_CONTROL_H
#define FLYTUNE_DAEMON_CONTROL_H

#include "daemon/methods/parked.h"

struct control {
	struct context *context;
	struct parked *parked;
};

method_call method_pin, method_unpin, method_forget, method_pause, method_resume;

#endif
