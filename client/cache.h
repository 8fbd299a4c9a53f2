/* The answers that a client keeps for the time when the daemon is away: a bounded table, the least recently
 * used of a set making room.
 *
 * Guarded by its owner's lock. */
#ifndef FLYTUNE_CLIENT_CACHE_H
#define FLYTUNE_CLIENT_CACHE_H

#include "client/problem.h"

enum { CACHE_WAYS = 4 };

struct cache_entry {
	uint64_t hash;
	uint64_t used;    /* the cache's tick when it was last touched */
	uint64_t repeats; /* times served from here since the daemon was last asked */
	const flytune_problem *problem;
	char device[FT_DEVICE_ID_SIZE]; /* as the caller named it */
	struct flytune_answer answer;
};

struct cache {
	struct cache_entry **slot; /* sets * CACHE_WAYS */
	uint32_t sets;
	uint64_t tick;
};

int cache_init(struct cache *cache, uint32_t entries);
void cache_free(struct cache *cache);
/* NULL if it has none. */
struct cache_entry *cache_find(struct cache *cache, const flytune_problem *problem, const char *device);
/* Keeps a copy. Out of memory it keeps none. */
void cache_keep(struct cache *cache, const flytune_problem *problem, const char *device,
        const struct flytune_answer *answer);

#endif
