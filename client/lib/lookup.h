/* The steps of a lookup that is not answered at once: shared by the lookup of one problem and that of a list. */
#ifndef FLYTUNE_CLIENT_LOOKUP_H
#define FLYTUNE_CLIENT_LOOKUP_H

#include "client/lib/answer.h"

struct lookup {
	flytune_client *client;
	struct cache_key key;
	uint64_t deadline;
	const struct answer_room *document; /* NULL: it is not wanted */
	bool swept;                         /* what is asked for now, is asked after the forced sweep */
	struct flytune_answer answer;
};

/* From what is kept: no system call, no lock, nothing written but a count of this thread's group. */
bool lookup_at_once(flytune_client *client, const struct cache_key *key, struct flytune_answer *answer);
/* Fills in the request, and takes the count of answers given since it was last reported; if the daemon did not
 * receive it, give it back. */
void lookup_prepare(struct lookup *lookup, struct ft_lookup_request *request);
void lookup_unheard(struct lookup *lookup, uint32_t repeats);
/* Keeps the answer that the daemon gave. */
void lookup_keep(struct lookup *lookup, struct cache_terms *terms);
/* Asks the daemon; where it is away, away_answer. */
int lookup_ask(struct lookup *lookup, struct ft_error *error);

/* FLYTUNE_AUTOTUNE=1: the full sweep of a problem, once a client. */
struct lookup_sweep {
	enum forced_state state;  /* as it was when it was asked for: FORCED_NEW is ours */
	uint64_t job;             /* 0: there is nothing to wait for */
	char store[FT_UUID_SIZE]; /* that gave the job its number */
	bool failed;
};
/* Has it queued, unless that was done before. Does not wait for a sweep. */
void lookup_sweep_begin(const struct lookup *lookup, struct lookup_sweep *sweep);
/* Waits for its end; false if it was to be run and has not ended. */
bool lookup_sweep_end(const struct lookup *lookup, const struct lookup_sweep *sweep, uint64_t deadline);

#endif
