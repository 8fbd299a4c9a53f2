/* Requests: what each method of the client road does. proto/PROTOCOL.md is their documentation. */
#ifndef FLYTUNE_DAEMON_REQUEST_H
#define FLYTUNE_DAEMON_REQUEST_H

#include "daemon/host/access.h"
#include "daemon/jobs/background.h"
#include "daemon/answers/stale_count.h"
#include "daemon/answers/board.h"
#include "daemon/host/histogram.h"
#include "daemon/answers/lookup.h"
#include "daemon/answers/miss.h"
#include "daemon/jobs/queue.h"
#include "daemon/answers/reply_cache.h"
#include "daemon/server/server.h"
#include "daemon/methods/subscription.h"

struct end;
struct parked; /* a request that waits until its device was heard */

struct requests {
	const struct log *log;
	const struct options *options;
	const struct access *access;
	struct store *store;
	struct devices *devices;
	struct queue *queue;
	struct server *server;
	struct board *board;
	uint64_t started_ns; /* monotonic */
	bool reading;        /* the store's read transaction is open for this batch of requests */
	uint64_t lookups[LOOKUP_SOURCES];
	uint64_t refused;         /* lookups that ended in an error */
	struct histogram latency; /* of lookups */
	uint64_t timed_ns;        /* of the last lookup answered at once that was timed: one in some */
	uint32_t untimed;         /* lookups like it that are still to be added */
	uint64_t batch_began_ns;  /* monotonic; of this batch of requests, once it reads the store */
	uint32_t batch_lookups;
	uint64_t denied;  /* requests of users who may not */
	uint32_t keepers; /* sessions that rely on answers without asking */
	struct log_limit denials;
	struct misses misses;
	struct background *background;
	struct census census;
	struct replies replies;
	struct subscriptions subscriptions;
	struct list parked; /* requests that wait until their device was heard */
	unsigned parked_count;
	size_t parked_bytes;
	struct end *end;         /* the last job's, for those who wait for it as well */
	bool too_early;          /* a lookup that names a generation found its device not heard yet */
	bool stopping;           /* what cannot be answered at once is not answered any more */
	struct ft_answer answer; /* of the lookup being answered: large, so not on the stack of each */
	struct subject subject;
};

int requests_init(struct requests *requests, const struct log *log, const struct options *options,
        const struct access *access, struct store *store, struct devices *devices, struct queue *queue,
        struct background *background, struct server *server, struct board *board, struct ft_error *error);
void requests_free(struct requests *requests);
/* All that one read brought. True if it was one lookup whose answer is known: `out` has that then, as after
 * requests_message and requests_batch_end. */
bool requests_at_once(struct requests *requests, struct session *session, struct ft_view bytes);
/* Before `latency` is read. */
void requests_add_untimed(struct requests *requests);
void requests_message(struct requests *requests, struct session *session, const struct ft_envelope *envelope);
/* As session_events' owed. */
bool requests_owed(struct requests *requests, struct session *session);
/* The end of what one read brought: lets go of the store's read transaction. */
void requests_batch_end(struct requests *requests);
void requests_session_closed(struct requests *requests, struct session *session);
/* A device was heard: what was parked is tried again. */
void requests_settled(struct requests *requests);
/* Answers what is parked with an error, and closes handles. */
void requests_stop(struct requests *requests);

/* ---- for the methods ---- */

/* Opens the store's read transaction for this batch, unless it is. */
int requests_reading(struct requests *requests, struct ft_error *error);

/* Checks what a request is about, for methods that need a device that was heard: fills requests->subject, or
 * keeps the request and has `call` called with it anew once a device was heard, or fails. */
enum subject_state { SUBJECT_READY, SUBJECT_PARKED, SUBJECT_REFUSED };
enum subject_state requests_subject(struct requests *requests, struct session *session,
        const struct ft_envelope *envelope,
        void (*call)(struct requests *requests, struct session *session, const struct ft_envelope *envelope),
        const char *kernel, const char *device, const struct ft_problem *problem, struct ft_error *error);
/* From now on the session relies on answers without asking: what they depend on is looked at without being asked. */
void requests_keeps(struct requests *requests, struct session *session);
/* Keeps a request until a device was heard, then has `call` called with it anew. */
int requests_park(struct requests *requests, struct session *session, const struct ft_envelope *envelope,
        void (*call)(struct requests *requests, struct session *session, const struct ft_envelope *envelope),
        struct ft_error *error);

/* Answers a lookup into requests->answer. *known is false if the store cannot be asked just now: then it is what is
 * served meanwhile, or fails for that. */
int requests_look_up(struct requests *requests, const struct ft_lookup_request *request,
        enum lookup_source *source, bool *known, struct ft_error *error);

#endif
