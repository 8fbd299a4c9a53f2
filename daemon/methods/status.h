/* The methods that report what is known: trials, devices, kernels, the daemon's state and figures, and what was asked for in vain. */
#ifndef FLYTUNE_DAEMON_STATUS_H
#define FLYTUNE_DAEMON_STATUS_H

#include "daemon/answers/stale_count.h"
#include "daemon/methods/lookup.h"
#include "daemon/methods/subscription.h"

struct reports {
	struct context *context;
	struct lookups *lookups;
	const struct subscriptions *subscriptions;
	struct stale_count stale_count;
};

method_call method_trials, method_devices, method_status, method_misses, method_kernels, method_metrics;

#endif
