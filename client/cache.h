/* The answers that a client keeps: a bounded table, read by any thread without a lock, a system call or an allocation.
 *
 * An entry is plain words behind a sequence counter that is odd while they change: a reader that saw it odd, or changed,
 * takes nothing. Entries are written with the owner's lock held, and are reused, never freed before the table, so a reader
 * may be as late as it likes. Words are stored and loaded one by one with release and acquire order: a reader that
 * sees one word of a later write is sure to see the counter of that write as well, and no fence is needed.
 *
 * fork. The owner holds its lock across fork, so no entry is in the middle of a change in the child; after a clone that
 * ran no handlers cache_mend makes it so. Readers need to notice neither: what they see is the child's own copy.
 *
 * How often an entry answered is counted apart from it, a row of counters for each of a few groups of threads, so that
 * threads which ask the same do not write to the same memory. */
#ifndef FLYTUNE_CLIENT_CACHE_H
#define FLYTUNE_CLIENT_CACHE_H

#include "client/board.h"
#include "client/problem.h"

enum {
	CACHE_WAYS = 8,
	CACHE_ROWS = 8, /* of counters */
};

struct cache_entry;
struct cache_counts;

struct cache_set {
	_Atomic uint64_t hash[CACHE_WAYS]; /* 0: empty */
	_Atomic(struct cache_entry *) entry[CACHE_WAYS];
	_Atomic unsigned char used[CACHE_WAYS]; /* since the hand came by */
	unsigned hand;                          /* where the next victim is looked for */
};

struct cache {
	struct cache_set *set;
	uint32_t sets;                /* a power of two */
	struct cache_counts *repeats; /* how often each place answered */
};

/* What is asked: a problem on a device as the caller named it. */
struct cache_key {
	const flytune_problem *problem;
	const char *device; /* FT_DEVICE_ID_SIZE bytes, zero to the end */
	uint64_t hash;
};

/* How long an answer stands. */
struct cache_terms {
	uint64_t serial;  /* of the board that came with it; 0: none did */
	uint64_t version; /* of its stripe */
	uint32_t stripe;  /* below FT_BOARD_STRIPES */
	bool swept;       /* the sweep that was forced has ended before */
};

/* Room for at least so many entries, and for no more than four times as many; each takes memory when first used. */
int cache_init(struct cache *cache, uint32_t entries);
void cache_free(struct cache *cache);
struct cache_key cache_key(const flytune_problem *problem, const char *device);

/* Copies the answer out, all but its size and flags, and says how long it stands. `answer` is of this library's size. It is
 * left in pieces when nothing is found. Any thread. */
bool cache_find(const struct cache *cache, const struct cache_key *key, struct flytune_answer *answer,
        struct cache_terms *terms, uint32_t *place);
/* Counts an answer that was given from the place that cache_find said. Any thread. */
void cache_count(struct cache *cache, uint32_t place);

/* With the owner's lock held. Keeps a copy; out of memory it keeps none. */
void cache_keep(struct cache *cache, const struct cache_key *key, const struct flytune_answer *answer,
        const struct cache_terms *terms);
/* Takes the count of answers given since it was last taken; and puts it back if it could not be told. */
uint32_t cache_take_repeats(struct cache *cache, const struct cache_key *key);
void cache_return_repeats(struct cache *cache, const struct cache_key *key, uint32_t repeats);
/* In a forked child: what was counted is the parent's to tell, and half an entry is none. */
void cache_mend(struct cache *cache);

#endif
