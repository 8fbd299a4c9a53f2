#include "client/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int cache_init(struct cache *cache, uint32_t entries)
{
	*cache = (struct cache){.sets = (entries + CACHE_WAYS - 1) / CACHE_WAYS};
	cache->slot = calloc((size_t)cache->sets * CACHE_WAYS, sizeof(struct cache_entry *));
	return cache->slot == NULL ? -1 : 0;
}

void cache_free(struct cache *cache)
{
	for (size_t i = 0; cache->slot != NULL && i < (size_t)cache->sets * CACHE_WAYS; i++) {
		if (cache->slot[i] != NULL)
			problem_release(cache->slot[i]->problem);
		free(cache->slot[i]);
	}
	free(cache->slot);
}

static uint64_t hash_of(const flytune_problem *problem, const char *device)
{
	return XXH3_64bits_withSeed(device, strlen(device), problem->hash);
}

static bool is(
        const struct cache_entry *entry, uint64_t hash, const flytune_problem *problem, const char *device)
{
	return entry != NULL && entry->problem != NULL && entry->hash == hash &&
	        strcmp(entry->device, device) == 0 && problem_equal(entry->problem, problem);
}

struct cache_entry *cache_find(struct cache *cache, const flytune_problem *problem, const char *device)
{
	uint64_t hash = hash_of(problem, device);
	struct cache_entry **set = &cache->slot[hash % cache->sets * CACHE_WAYS];

	for (unsigned i = 0; i < CACHE_WAYS; i++) {
		if (is(set[i], hash, problem, device)) {
			set[i]->used = ++cache->tick;
			return set[i];
		}
	}
	return NULL;
}

void cache_keep(struct cache *cache, const flytune_problem *problem, const char *device,
        const struct flytune_answer *answer)
{
	uint64_t hash = hash_of(problem, device);
	struct cache_entry **set = &cache->slot[hash % cache->sets * CACHE_WAYS];
	struct cache_entry **chosen = &set[0];
	struct cache_entry *entry;

	for (unsigned i = 0; i < CACHE_WAYS; i++) {
		if (is(set[i], hash, problem, device)) {
			chosen = &set[i];
			break;
		}
		if (*chosen != NULL && (set[i] == NULL || set[i]->used < (*chosen)->used))
			chosen = &set[i];
	}
	if (*chosen == NULL)
		*chosen = calloc(1, sizeof **chosen);
	entry = *chosen;
	if (entry == NULL)
		return;
	if (!is(entry, hash, problem, device))
		entry->repeats = 0;
	if (entry->problem != problem) {
		problem_release(entry->problem);
		entry->problem = problem_hold(problem);
	}
	entry->hash = hash;
	entry->used = ++cache->tick;
	snprintf(entry->device, sizeof entry->device, "%s", device);
	entry->answer = *answer;
}
