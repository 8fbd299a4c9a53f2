#include "client/cache.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
	DEVICE_WORDS = FT_DEVICE_ID_SIZE / 8,
	/* The answer is kept from behind its source, which is in the shape, to the last knob that it has. */
	ANSWER_KNOBS = offsetof(struct flytune_answer, knob),
	KNOB_WORDS = sizeof(struct flytune_knob) / 8,
	FIXED_WORDS = (ANSWER_KNOBS - offsetof(struct flytune_answer, reason)) / 8,
	SLOTS_MAX = 1 << 18,

	/* Where things are in an entry. */
	AT_SHAPE = 0, /* words of the key, knobs, source */
	AT_SERIAL,
	AT_VERSION,
	AT_STRIPE, /* and whether it was swept */
	AT_DEVICE,
	AT_KEY = AT_DEVICE + DEVICE_WORDS, /* and the answer behind it */
	ENTRY_WORDS = AT_KEY + PROBLEM_KEY_WORDS + FIXED_WORDS + FLYTUNE_KNOBS_MAX * KNOB_WORDS,
};

/* Copied word by word, so nothing may stand across two. */
_Static_assert(offsetof(struct flytune_answer, reason) % 8 == 0 && ANSWER_KNOBS % 8 == 0 &&
                sizeof(struct flytune_knob) % 8 == 0 && FT_DEVICE_ID_SIZE % 8 == 0,
        "an answer is made of words");
_Static_assert((int)FLYTUNE_KNOBS_MAX == (int)FT_KNOBS_MAX, "all knobs fit");

struct cache_counts {
	_Atomic uint32_t none;
	_Atomic uint32_t count[]; /* CACHE_ROWS rows of all places */
};

struct cache_entry {
	_Atomic uint32_t sequence; /* odd while it changes */
	_Atomic uint64_t word[ENTRY_WORDS];
};

static const uint64_t swept_bit = UINT64_C(1) << 32;

static inline uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

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

static inline void put(void *words, size_t index, uint64_t value)
{
	memcpy((char *)words + index * 8, &value, 8);
}

int cache_init(struct cache *cache, uint32_t entries)
{
	uint32_t slots = 2 * CACHE_WAYS;

	/* Twice the room, so that few sets are full when that many are kept. */
	while (slots < SLOTS_MAX && slots / 2 < entries)
		slots *= 2;
	*cache = (struct cache){.sets = slots / CACHE_WAYS};
	cache->set = calloc(cache->sets, sizeof *cache->set);
	cache->repeats = calloc(
	        1, sizeof *cache->repeats + (size_t)slots * CACHE_ROWS * sizeof cache->repeats->count[0]);
	return cache->set == NULL || cache->repeats == NULL ? -1 : 0;
}

void cache_free(struct cache *cache)
{
	for (uint32_t i = 0; cache->set != NULL && i < cache->sets; i++) {
		for (unsigned way = 0; way < CACHE_WAYS; way++)
			free(atomic_load_explicit(&cache->set[i].entry[way], memory_order_relaxed));
	}
	free(cache->set);
	free(cache->repeats);
}

struct cache_key cache_key(const flytune_problem *problem, const char *device)
{
	uint64_t hash = problem->hash;

	if (*device != '\0')
		hash = XXH3_64bits_withSeed(device, FT_DEVICE_ID_SIZE, hash);
	return (struct cache_key){.problem = problem, .device = device, .hash = hash != 0 ? hash : 1};
}

static inline uint64_t shape_of(const struct cache_key *key, uint32_t knobs, uint32_t source)
{
	return (uint64_t)key->problem->key_words << 32 | knobs << 16 | source;
}

/* Whether a slot answers this key, and then the sequence under which it did. */
static inline bool matches(const struct cache_entry *entry, const struct cache_key *key, uint32_t *sequence)
{
	const struct flytune_problem *problem = key->problem;

	*sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
	if (*sequence % 2 != 0 || load(&entry->word[AT_SHAPE]) >> 32 != problem->key_words)
		return false;
	for (unsigned i = 0; i < DEVICE_WORDS; i++) {
		if (load(&entry->word[AT_DEVICE + i]) != get(key->device, i))
			return false;
	}
	for (uint32_t i = 0; i < problem->key_words; i++) {
		if (load(&entry->word[AT_KEY + i]) != problem->key[i])
			return false;
	}
	return true;
}

static inline bool read_entry(const struct cache_entry *entry, const struct cache_key *key,
        struct flytune_answer *answer, struct cache_terms *terms)
{
	const _Atomic uint64_t *from = &entry->word[AT_KEY + key->problem->key_words];
	uint32_t sequence;
	uint64_t shape, stripe;
	uint32_t knobs;

	if (!matches(entry, key, &sequence))
		return false;
	shape = load(&entry->word[AT_SHAPE]);
	/* Until the sequence is seen again anything may be wrong: no more than there can be. */
	knobs = (uint32_t)(shape >> 16 & 0xffff);
	if (knobs > FLYTUNE_KNOBS_MAX)
		return false;
	terms->serial = load(&entry->word[AT_SERIAL]);
	terms->version = load(&entry->word[AT_VERSION]);
	stripe = load(&entry->word[AT_STRIPE]);
	terms->stripe = (uint32_t)stripe;
	terms->swept = (stripe & swept_bit) != 0;
	for (size_t i = 0; i < FIXED_WORDS; i++)
		put(answer->reason, i, load(&from[i]));
	from += FIXED_WORDS;
	for (size_t i = 0; i < (size_t)knobs * KNOB_WORDS; i++)
		put(answer->knob, i, load(&from[i]));
	answer->source = (enum flytune_source)(shape & 0xffff);
	return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == sequence;
}

bool cache_find(const struct cache *cache, const struct cache_key *key, struct flytune_answer *answer,
        struct cache_terms *terms, uint32_t *place)
{
	uint32_t index = (uint32_t)key->hash & (cache->sets - 1);
	struct cache_set *set = &cache->set[index];

	for (unsigned way = 0; way < CACHE_WAYS; way++) {
		struct cache_entry *entry;

		if (atomic_load_explicit(&set->hash[way], memory_order_relaxed) != key->hash)
			continue;
		entry = atomic_load_explicit(&set->entry[way], memory_order_acquire);
		if (entry == NULL || !read_entry(entry, key, answer, terms))
			continue;
		/* Written only when it says something new: many threads look at this memory. */
		if (atomic_load_explicit(&set->used[way], memory_order_relaxed) == 0)
			atomic_store_explicit(&set->used[way], 1, memory_order_relaxed);
		*place = index * CACHE_WAYS + way;
		return true;
	}
	return false;
}

/* ---- counting ---- */

static inline _Atomic uint32_t *counter(const struct cache *cache, unsigned row, uint32_t place)
{
	return &cache->repeats->count[(size_t)row * cache->sets * CACHE_WAYS + place];
}

/* Threads are told apart by where the C library keeps their own data, which costs no call that could fail. */
static inline unsigned row_of_thread(void)
{
	uint64_t self = (uint64_t)(uintptr_t)pthread_self();

	return (unsigned)(self * UINT64_C(0x9e3779b97f4a7c15) >> 61) % CACHE_ROWS;
}

void cache_count(struct cache *cache, uint32_t place)
{
	atomic_fetch_add_explicit(counter(cache, row_of_thread(), place), 1, memory_order_relaxed);
}

/* ---- with the lock held ---- */

static bool find_place(const struct cache *cache, const struct cache_key *key, uint32_t *place)
{
	uint32_t index = (uint32_t)key->hash & (cache->sets - 1);
	struct cache_set *set = &cache->set[index];
	uint32_t sequence;

	for (unsigned way = 0; way < CACHE_WAYS; way++) {
		if (atomic_load_explicit(&set->hash[way], memory_order_relaxed) == key->hash &&
		        matches(atomic_load_explicit(&set->entry[way], memory_order_relaxed), key,
		                &sequence)) {
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
		count += atomic_exchange_explicit(counter(cache, row, place), 0, memory_order_relaxed);
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
		atomic_fetch_add_explicit(counter(cache, 0, place), repeats, memory_order_relaxed);
}

/* An empty way, or the next one that was not used since the hand last came by. */
static unsigned choose_victim(struct cache_set *set)
{
	for (unsigned way = 0; way < CACHE_WAYS; way++) {
		if (atomic_load_explicit(&set->hash[way], memory_order_relaxed) == 0)
			return way;
	}
	for (unsigned looked = 0; looked < 2 * CACHE_WAYS; looked++) {
		unsigned way = set->hand++ % CACHE_WAYS;

		if (atomic_exchange_explicit(&set->used[way], 0, memory_order_relaxed) == 0)
			return way;
	}
	return set->hand % CACHE_WAYS;
}

static void write_entry(struct cache_entry *entry, const struct cache_key *key,
        const struct flytune_answer *answer, const struct cache_terms *terms)
{
	const struct flytune_problem *problem = key->problem;
	_Atomic uint64_t *to = &entry->word[AT_KEY + problem->key_words];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_relaxed);
	uint32_t knobs = answer->knob_count < FLYTUNE_KNOBS_MAX ? answer->knob_count : FLYTUNE_KNOBS_MAX;

	atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_relaxed);
	store(&entry->word[AT_SHAPE], shape_of(key, knobs, answer->source));
	store(&entry->word[AT_SERIAL], terms->serial);
	store(&entry->word[AT_VERSION], terms->version);
	store(&entry->word[AT_STRIPE], terms->stripe | (terms->swept ? swept_bit : 0));
	for (unsigned i = 0; i < DEVICE_WORDS; i++)
		store(&entry->word[AT_DEVICE + i], get(key->device, i));
	for (uint32_t i = 0; i < problem->key_words; i++)
		store(&entry->word[AT_KEY + i], problem->key[i]);
	for (size_t i = 0; i < FIXED_WORDS; i++)
		store(&to[i], get(answer->reason, i));
	to += FIXED_WORDS;
	for (size_t i = 0; i < (size_t)knobs * KNOB_WORDS; i++)
		store(&to[i], get(answer->knob, i));
	atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
}

void cache_keep(struct cache *cache, const struct cache_key *key, const struct flytune_answer *answer,
        const struct cache_terms *terms)
{
	struct cache_set *set;
	struct cache_entry *entry;
	uint32_t place;
	unsigned way;

	if (find_place(cache, key, &place)) {
		set = &cache->set[place / CACHE_WAYS];
		way = place % CACHE_WAYS;
		entry = atomic_load_explicit(&set->entry[way], memory_order_relaxed);
	} else {
		place = (uint32_t)key->hash & (cache->sets - 1);
		set = &cache->set[place];
		way = choose_victim(set);
		(void)take_count(cache, place * CACHE_WAYS + way);
		entry = atomic_load_explicit(&set->entry[way], memory_order_relaxed);
		if (entry == NULL)
			entry = calloc(1, sizeof *entry);
		if (entry == NULL)
			return;
	}
	write_entry(entry, key, answer, terms);
	atomic_store_explicit(&set->entry[way], entry, memory_order_release);
	atomic_store_explicit(&set->hash[way], key->hash, memory_order_release);
}

void cache_mend(struct cache *cache)
{
	for (uint32_t i = 0; i < cache->sets; i++) {
		for (unsigned way = 0; way < CACHE_WAYS; way++) {
			struct cache_entry *entry =
			        atomic_load_explicit(&cache->set[i].entry[way], memory_order_relaxed);
			uint32_t sequence = entry == NULL
			        ? 0
			        : atomic_load_explicit(&entry->sequence, memory_order_relaxed);

			if (sequence % 2 != 0) {
				atomic_store_explicit(&cache->set[i].hash[way], 0, memory_order_relaxed);
				atomic_store_explicit(&entry->word[AT_SHAPE], 0, memory_order_relaxed);
				atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_release);
			}
			if (entry != NULL)
				(void)take_count(cache, i * CACHE_WAYS + way);
		}
	}
}
