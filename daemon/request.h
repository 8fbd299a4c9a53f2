/* Requests: what each method of the client road does. proto/PROTOCOL.md is their documentation. */
#ifndef FLYTUNE_DAEMON_REQUEST_H
#define FLYTUNE_DAEMON_REQUEST_H

#include "daemon/board.h"
#include "daemon/lookup.h"
#include "daemon/queue.h"
#include "daemon/server.h"

struct parked; /* a tune request that waits until its device was heard */

struct requests {
	const struct log *log;
	const struct options *options;
	struct store *store;
	struct devices *devices;
	struct queue *queue;
	struct server *server;
	struct board *board;
	uint64_t started_ns; /* monotonic */
	bool reading;        /* the store's read transaction is open for this batch of requests */
	uint64_t lookups[LOOKUP_SOURCES];
	uint64_t refused; /* lookups that ended in an error */
	struct parked *parked;
	unsigned parked_count;
	struct ft_answer answer; /* of the lookup being answered: large, so not on the stack of each */
	struct subject subject;
};

void requests_init(struct requests *requests, const struct log *log, const struct options *options,
        struct store *store, struct devices *devices, struct queue *queue, struct server *server,
        struct board *board);
void requests_message(struct requests *requests, struct session *session, const struct ft_envelope *envelope);
/* The end of what one read brought: lets go of the store's read transaction. */
void requests_batch_end(struct requests *requests);
void requests_session_closed(struct requests *requests, struct session *session);
/* A device was heard: what was parked is tried again. */
void requests_settled(struct requests *requests);
/* Answers what is parked with an error. */
void requests_stop(struct requests *requests);

#endif
