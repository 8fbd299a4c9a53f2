/* The methods of the client road, by the file that has them. request.c has the table, and those that ask for
 * work. */
#ifndef FLYTUNE_DAEMON_METHODS_H
#define FLYTUNE_DAEMON_METHODS_H

#include "daemon/methods/request.h"

typedef void method_call(
        struct requests *requests, struct session *session, const struct ft_envelope *envelope);

/* ask.c: what to use */
method_call method_lookup, method_lookup_many;
/* subscription.c: to hear of changes */
method_call method_subscribe;
/* report.c: what is known */
method_call method_trials, method_devices, method_status, method_misses;
/* code.c: the machine code that won */
method_call method_code;
/* change.c: what an operator decides */
method_call method_pin, method_unpin, method_forget, method_pause, method_resume;
/* transfer.c: from store to store */
method_call method_export, method_import_begin, method_import_rows, method_import_commit;
/* metrics.c: figures for a monitoring system */
method_call method_metrics;

#endif
