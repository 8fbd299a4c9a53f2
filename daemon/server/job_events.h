/* Events of jobs, for those who watch.
 *
 * An event is encoded once and kept in a ring of the last ones; a watcher is where it stands in it. What was not read before
 * its place was needed for another it is reported as missed: one that does not read costs no memory for it. */
#ifndef FLYTUNE_DAEMON_JOB_EVENTS_H
#define FLYTUNE_DAEMON_JOB_EVENTS_H

#include "daemon/server/session.h"

enum { EVENTS_KEPT = 4096 };

struct kept_event;

struct job_events {
	struct kept_event *kept[EVENTS_KEPT]; /* by number, modulo; none is kept while nobody watches */
	uint64_t count;                       /* events so far */
	struct list watchers;
};

/* A session watches a job from now on, or all (0), instead of what it watched before. And no more, if it did. */
void job_events_join(struct job_events *events, struct session *session, uint64_t job);
void job_events_leave(struct job_events *events, struct session *session);
void job_events_add(struct job_events *events, const struct ft_event *event);
/* Appends events to what the session is owed, until its turn is over. True if there are more. */
bool job_events_tell(const struct job_events *events, struct session *session);
void job_events_forget(struct job_events *events);

#endif
