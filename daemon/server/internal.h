/* What the files of a session share. */
#ifndef FLYTUNE_DAEMON_SERVER_INTERNAL_H
#define FLYTUNE_DAEMON_SERVER_INTERNAL_H

#include "daemon/server/session.h"

/* ---- session.c ---- */

/* What was appended between turns is sent at once; the rest waits for its turn. */
void session_flush_between(struct session *session);

/* ---- session_share.c ---- */

bool session_begin_work(struct session *session);
/* It is done, or cannot go on for now: another may begin. */
void session_leave_work(struct session *session);
/* Whether a user has had more than a share of the memory. */
bool session_is_over(const struct session *session);
/* Held back for want of memory, as it would have more to do otherwise; so half a message waits for its user's memory, and
 * ages anew. */
void session_hold(struct session *session, bool held);
void session_charge(struct session *session, size_t bytes);

#endif
