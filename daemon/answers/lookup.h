/* A lookup: the best config known for a problem, without ever searching on the caller's time.
 *
 * The first that applies: pinned, tuned (a winner under today's identity), imported, nearest (the same
 * problem but for the scale field, known within a factor of two), default. */
#ifndef FLYTUNE_DAEMON_LOOKUP_H
#define FLYTUNE_DAEMON_LOOKUP_H

#include "daemon/answers/target.h"

/* In no order. */
enum lookup_source {
	LOOKUP_PINNED,
	LOOKUP_TUNED,
	LOOKUP_IMPORTED,
	LOOKUP_NEAREST,
	LOOKUP_DEFAULT,
	LOOKUP_FLEET,    /* none yet */
	LOOKUP_RECORDED, /* none yet */
	LOOKUP_SOURCES
};

enum { LOOKUP_WORD_SIZE = sizeof(((struct ft_answer *)NULL)->source) };
extern const char lookup_source_words[LOOKUP_SOURCES][LOOKUP_WORD_SIZE];

/* What an answer stands on. */
struct lookup_basis {
	enum lookup_source source;
	bool stale; /* the problem has a winner of its own, tuned under another compiler, driver or kernel source */
};

/* The stored answer of a target's own problem, now or of a generation (0: now), for a key has only a hash of that. 1 found, 0
 * not, -1 error. Call between store_begin and store_end. */
int lookup_known(struct store *store, const struct target *target, uint64_t generation,
        struct store_answer *known, struct ft_error *error);
/* Whether a target has a winner with which there is nothing to sweep. Call between store_begin and store_end. */
bool lookup_is_settled(struct store *store, const struct target *target);
/* The trials of a target's own problem under today's identity; NULL if there are none. 0, or -1. Call between store_begin and
 * store_end. */
int lookup_trials(
        struct store *store, const struct target *target, struct trials **trials, struct ft_error *error);
/* Which of these trials is the winner that is served; -1: none. */
int32_t lookup_served(struct store *store, const struct target *target, const struct trials *trials);
/* Times, gain and date of a winner. */
void lookup_times(const struct store_winner *winner, struct ft_answer *answer);
/* What is to be said of a winner that is served; "" if nothing is. */
const char *lookup_winner_reason(const struct store_winner *winner);
/* Answers a target as of now, or of a generation (0: now). Call between store_begin and store_end. */
int lookup_answer(struct store *store, const struct target *target, uint64_t generation,
        struct ft_answer *answer, struct lookup_basis *basis, struct ft_error *error);
/* The default, for when the store cannot be read: a store that fails takes no lookup down. */
int lookup_without_store(struct store *store, const struct target *target, struct ft_answer *answer,
        struct lookup_basis *basis, struct ft_error *error);
/* Reads "UUID:COUNTER"; fails with generation_unavailable if it is not of this store, not reached or
 * collected. */
int lookup_token(struct store *store, const char *token, uint64_t *generation, struct ft_error *error);

#endif
