/* The methods of jobs: to ask for a sweep, to wait for its end or cancel it, to list them, to watch their progress. */
#ifndef FLYTUNE_DAEMON_METHODS_JOBS_H
#define FLYTUNE_DAEMON_METHODS_JOBS_H

#include "daemon/methods/parked.h"

struct end;

struct jobs {
	struct context *context;
	struct parked *parked;
	struct end *end; /* the last job's, for those who wait for it as well */
};

method_call method_tune, method_wait, method_cancel, method_jobs, method_watch;

/* Appends the ends of jobs that a session waited for to what it is owed, until its turn is over. True if there are more. */
bool jobs_tell_ended(struct session *session);
/* The session is gone. */
void jobs_left(struct session *session);
void jobs_free(struct jobs *jobs);

#endif
