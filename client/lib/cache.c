#include "client/lib/cache.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SLOTS_MAX = 1 << 18 };

static inline void store(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

/* Words of memory that only this thread sees. */
static inline uint64_t get(const void *words, size_t index)
{
	uint64_t value;

	memcpy(&value, (const char *)words + index * 8, 8);
	return value;
}

int cache_init(struct cache *cache, uint32_t entries)
{
	uint32_t slots = 2 * CACHE_WAYS;

	/* Twice the room, so that few sets are full when that many are kept. */
	while (slots < SLOTS_MAX && slots / 2 < entries)
		slots *= 2;
	*cache = (struct cache){.sets = slots / CACHE_WAYS};
	cache->set = calloc(cache->sets, sizeof *cache->set);
	cache->hand = calloc(cache->sets, sizeof *cache->hand);
	cache->repeats = calloc(
	        1, sizeof *cache->repeats + (size_t)slots * CACHE_ROWS * sizeof cache->repeats->count[0]);
	return cache->set == NULL || cache->hand == NULL || cache->repeats == NULL ? -1 : 0;
}

void cache_free(struct cache *cache)
{
	for (uint32_t i = 0; cache->set != NULL && i < cache->sets; i++) {
		for (unsigned way = 0; way < CACHE_WAYS; way++)
			free(atomic_load_explicit(&cache->set[i].place[way].entry, memory_order_relaxed));
	}
	free(cache->set);
	free(cache->hand);
	free(cache->repeats);
}

uint64_t cache_hash_on(const flytune_problem *problem, const char *device)
{
	uint64_t hash = XXH3_64bits_withSeed(device, FT_DEVICE_ID_SIZE, problem->hash);

	return hash != 0 ? hash : 1;
}

/* ---- with the lock held ---- */

static bool find_place(const struct cache *cache, const struct cache_key *key, uint32_t *place)
{
	uint32_t index = (uint32_t)key->hash & (cache->sets - 1);
	struct cache_set *set = &cache->set[index];
	struct cache_hit hit;

	for (unsigned way = 0; way < CACHE_WAYS; way++) {
		const struct cache_place *here = &set->place[way];

		if (atomic_load_explicit(&here->hash, memory_order_relaxed) == key->hash &&
		        cache_matches(atomic_load_explicit(&here->entry, memory_order_relaxed), key, &hit)) {
			*place = index * CACHE_WAYS + way;
			return true;
		}
	}
	return false;
}

static uint32_t take_count(struct cache *cache, uint32_t place)
{
	uint32_t count = 0;

	for (unsigned row = 0; row < CACHE_ROWS; row++)
		count += atomic_exchange_explicit(cache_counter(cache, row, place), 0, memory_order_relaxed);
	return count;
}

uint32_t cache_take_repeats(struct cache *cache, const struct cache_key *key)
{
	uint32_t place;

	return find_place(cache, key, &place) ? take_count(cache, place) : 0;
}

void cache_return_repeats(struct cache *cache, const struct cache_key *key, uint32_t repeats)
{
	uint32_t place;

	if (repeats != 0 && find_place(cache, key, &place))
		atomic_fetch_add_explicit(cache_counter(cache, 0, place), repeats, memory_order_relaxed);
}

/* An empty way, or the next one that was not used since the hand last came by. */
static unsigned choose_victim(struct cache_set *set, uint8_t *hand, uint64_t hash)
{
	for (unsigned tried = 0; tried < CACHE_WAYS; tried++) {
		unsigned way = cache_way(hash, tried);

		if (atomic_load_explicit(&set->place[way].hash, memory_order_relaxed) == 0)
			return way;
	}
	for (unsigned looked = 0; looked < 2 * CACHE_WAYS; looked++) {
		unsigned way = (*hand)++ % CACHE_WAYS;
		struct cache_entry *entry =
		        atomic_load_explicit(&set->place[way].entry, memory_order_relaxed);

		if (atomic_exchange_explicit(&entry->used, 0, memory_order_relaxed) == 0)
			return way;
	}
	return *hand % CACHE_WAYS;
}

static size_t words_of(uint32_t knobs)
{
	return (CACHE_KNOBS + knobs * sizeof(struct flytune_knob)) / 8;
}

static void store_words(_Atomic uint64_t *to, const void *from, size_t words)
{
	for (size_t i = 0; i < words; i++)
		store(&to[i], get(from, i));
}

/* As it is to be given again. */
static void write_answer(_Atomic uint64_t *to, const struct flytune_answer *answer, uint32_t knobs)
{
	struct flytune_answer given = *answer;

	given.size = sizeof given;
	given.flags = FLYTUNE_ANSWER_KEPT;
	given.knob_count = knobs;
	store_words(to, &given, words_of(knobs));
}

static void write_entry(struct cache_entry *entry, const struct cache_key *key,
        const struct flytune_answer *answer, const struct cache_terms *terms)
{
	const flytune_problem *problem = key->problem;
	_Atomic uint64_t *to = &entry->word[CACHE_AT_KEY];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_relaxed);
	uint32_t knobs = answer->knob_count < FLYTUNE_KNOBS_MAX ? answer->knob_count : FLYTUNE_KNOBS_MAX;

	atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_relaxed);
	store(&entry->word[CACHE_AT_SHAPE], cache_shape(key) | (uint64_t)words_of(knobs) << 32);
	store(&entry->word[CACHE_AT_SERIAL], terms->serial);
	store(&entry->word[CACHE_AT_VERSION], terms->version);
	store(&entry->word[CACHE_AT_STRIPE],
	        terms->stripe | (terms->swept ? cache_swept_bit : 0) | (terms->miss ? cache_miss_bit : 0));
	store_words(to, problem->key, problem->key_words);
	to += problem->key_words;
	if (*key->device != '\0') {
		store_words(to, key->device, CACHE_DEVICE_WORDS);
		to += CACHE_DEVICE_WORDS;
	}
	write_answer(to, answer, knobs);
	atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
}

static struct cache_entry *new_entry(void)
{
	struct cache_entry *entry = aligned_alloc(CACHE_LINE, sizeof *entry);

	if (entry != NULL)
		memset(entry, 0, sizeof *entry);
	return entry;
}

void cache_keep(struct cache *cache, const struct cache_key *key, const struct flytune_answer *answer,
        const struct cache_terms *terms)
{
	struct cache_set *set;
	struct cache_entry *entry;
	uint32_t place;
	unsigned way;

	if (key->problem->key_words > CACHE_KEY_WORDS)
		return;
	if (find_place(cache, key, &place)) {
		set = &cache->set[place / CACHE_WAYS];
		way = place % CACHE_WAYS;
		entry = atomic_load_explicit(&set->place[way].entry, memory_order_relaxed);
	} else {
		place = (uint32_t)key->hash & (cache->sets - 1);
		set = &cache->set[place];
		way = choose_victim(set, &cache->hand[place], key->hash);
		(void)take_count(cache, place * CACHE_WAYS + way);
		entry = atomic_load_explicit(&set->place[way].entry, memory_order_relaxed);
		if (entry == NULL)
			entry = new_entry();
		if (entry == NULL)
			return;
	}
	write_entry(entry, key, answer, terms);
	atomic_store_explicit(&set->place[way].entry, entry, memory_order_release);
	atomic_store_explicit(&set->place[way].hash, key->hash, memory_order_release);
}

void cache_mend(struct cache *cache)
{
	for (uint32_t i = 0; i < cache->sets; i++) {
		for (unsigned way = 0; way < CACHE_WAYS; way++) {
			struct cache_entry *entry =
			        atomic_load_explicit(&cache->set[i].place[way].entry, memory_order_relaxed);
			uint32_t sequence = entry == NULL
			        ? 0
			        : atomic_load_explicit(&entry->sequence, memory_order_relaxed);

			if (sequence % 2 != 0) {
				atomic_store_explicit(
				        &cache->set[i].place[way].hash, 0, memory_order_relaxed);
				atomic_store_explicit(&entry->word[CACHE_AT_SHAPE], 0, memory_order_relaxed);
				atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_release);
			}
			if (entry != NULL)
				(void)take_count(cache, i * CACHE_WAYS + way);
		}
	}
}
