/* The answers that a client keeps: a bounded table, read by any thread without a lock, a system call or an allocation.
 *
 * An entry is plain words behind a sequence counter that is odd while they change: a reader that saw it odd, or changed,
 * takes nothing. Entries are written with the owner's lock held, and are reused, never freed before the table, so a reader
 * may be as late as it likes. Words are stored one by one with release order, so a reader that sees one word of a later
 * write is sure to see the counter of that write as well. It compares and copies them as plain memory, which takes a
 * third of the time that it takes word by word: what was in pieces is thrown away. ThreadSanitizer cannot know that,
 * so for it words are loaded one by one, with acquire order.
 *
 * fork. The owner holds its lock across fork, so no entry is in the middle of a change in the child; after a clone that
 * ran no handlers cache_mend makes it so. Readers need to notice neither: what they see is the child's own copy.
 *
 * How often an entry answered is counted apart from it, a row of counters for each of a few groups of threads, so that
 * threads which ask the same do not write to the same memory. */
#ifndef FLYTUNE_CLIENT_CACHE_H
#define FLYTUNE_CLIENT_CACHE_H

#include <pthread.h>
#include <string.h>

#include "client/board.h"
#include "client/problem.h"

enum {
	CACHE_WAYS = 8,
	CACHE_ROWS = 8, /* of counters */

	CACHE_DEVICE_WORDS = FT_DEVICE_ID_SIZE / 8,
	/* The answer is kept from behind its source, which is in the shape, to the last knob that it has. */
	CACHE_REASON = offsetof(struct flytune_answer, reason),
	CACHE_KNOBS = offsetof(struct flytune_answer, knob),
	CACHE_KNOB_WORDS = sizeof(struct flytune_knob) / 8,
	CACHE_FIXED_WORDS = (CACHE_KNOBS - CACHE_REASON) / 8,

	/* Where things are in an entry. */
	CACHE_AT_SHAPE = 0, /* words of the key, knobs, source */
	CACHE_AT_SERIAL,
	CACHE_AT_VERSION,
	CACHE_AT_STRIPE, /* and whether it was swept */
	CACHE_AT_DEVICE,
	CACHE_AT_KEY = CACHE_AT_DEVICE + CACHE_DEVICE_WORDS, /* and the answer behind it */
	CACHE_ENTRY_WORDS =
	        CACHE_AT_KEY + PROBLEM_KEY_WORDS + CACHE_FIXED_WORDS + FLYTUNE_KNOBS_MAX * CACHE_KNOB_WORDS,
};

/* Copied by words, so nothing may stand across two. */
_Static_assert(CACHE_REASON % 8 == 0 && CACHE_KNOBS % 8 == 0 && sizeof(struct flytune_knob) % 8 == 0 &&
                FT_DEVICE_ID_SIZE % 8 == 0,
        "an answer is made of words");
_Static_assert((int)FLYTUNE_KNOBS_MAX == (int)FT_KNOBS_MAX, "all knobs fit");

static const uint64_t cache_swept_bit = UINT64_C(1) << 32;

struct cache_entry {
	_Atomic uint32_t sequence; /* odd while it changes */
	_Atomic uint32_t used;     /* since the hand came by */
	union {
		_Atomic uint64_t word[CACHE_ENTRY_WORDS];
		uint64_t plain[CACHE_ENTRY_WORDS];
	};
};

struct cache_counts {
	_Atomic uint32_t none;
	_Atomic uint32_t count[]; /* CACHE_ROWS rows of all places */
};

struct cache_place {
	_Atomic uint64_t hash; /* 0: empty */
	_Atomic(struct cache_entry *) entry;
};

struct cache_set {
	struct cache_place place[CACHE_WAYS];
	unsigned hand; /* where the next victim is looked for */
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

/* A kept answer that was found. */
struct cache_hit {
	const struct cache_entry *entry;
	struct cache_terms terms;
	uint32_t sequence; /* of the entry, when it was found */
	uint32_t place;    /* where it is counted */
};

/* Room for at least so many entries, and for no more than four times as many; each takes memory when first used. */
int cache_init(struct cache *cache, uint32_t entries);
void cache_free(struct cache *cache);
uint64_t cache_hash_on(const flytune_problem *problem, const char *device);

static inline struct cache_key cache_key(const flytune_problem *problem, const char *device)
{
	uint64_t hash = *device == '\0' ? problem->hash : cache_hash_on(problem, device);

	return (struct cache_key){.problem = problem, .device = device, .hash = hash != 0 ? hash : 1};
}

/* Whether an answer is kept, and how long it stands: nothing to rely on before it was copied. Any thread. */
static inline bool cache_find(const struct cache *cache, const struct cache_key *key, struct cache_hit *hit);
/* Copies out what was found, all but its size and flags. `answer` is of this library's size. False, and it is left in pieces,
 * if the answer was replaced since it was found. */
static inline bool cache_copy(
        const struct cache_key *key, const struct cache_hit *hit, struct flytune_answer *answer);
/* Counts an answer that was given from a place. Any thread. */
static inline void cache_count(const struct cache *cache, uint32_t place);

/* With the owner's lock held. Keeps a copy; out of memory it keeps none. */
void cache_keep(struct cache *cache, const struct cache_key *key, const struct flytune_answer *answer,
        const struct cache_terms *terms);
/* Takes the count of answers given since it was last taken; and puts it back if it could not be told. */
uint32_t cache_take_repeats(struct cache *cache, const struct cache_key *key);
void cache_return_repeats(struct cache *cache, const struct cache_key *key, uint32_t repeats);
/* In a forked child: what was counted is the parent's to tell, and half an entry is none. */
void cache_mend(struct cache *cache);

/* ---- on the way of every lookup ---- */

#if defined(__SANITIZE_THREAD__)
static inline bool cache_same(const struct cache_entry *entry, size_t at, const void *other, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t word = atomic_load_explicit(&entry->word[at + i], memory_order_acquire);

		if (memcmp(&word, (const char *)other + i * 8, 8) != 0)
			return false;
	}
	return true;
}

static inline void cache_take(const struct cache_entry *entry, size_t at, void *to, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t word = atomic_load_explicit(&entry->word[at + i], memory_order_acquire);

		memcpy((char *)to + i * 8, &word, 8);
	}
}

static inline void cache_fence(void)
{
}
#else
/* Not memcpy: where it cannot tell the length the compiler makes a string instruction of it, which takes longer to start than
 * all of this takes. */
typedef uint64_t cache_pair __attribute__((vector_size(16), aligned(1), may_alias));

/* Nearly always alike to the end, so not a branch a word. */
static inline bool cache_same(const struct cache_entry *entry, size_t at, const void *other, size_t words)
{
	const cache_pair *ours = (const cache_pair *)&entry->plain[at];
	const cache_pair *theirs = other;
	cache_pair unlike = {0, 0};

	for (size_t i = 0; i < words / 2; i++)
		unlike |= ours[i] ^ theirs[i];
	if (words % 2 != 0) {
		uint64_t last;

		memcpy(&last, (const char *)other + (words - 1) * 8, 8);
		unlike[0] |= entry->plain[at + words - 1] ^ last;
	}
	return (unlike[0] | unlike[1]) == 0;
}

static inline void cache_take(const struct cache_entry *entry, size_t at, void *to, size_t words)
{
	const cache_pair *ours = (const cache_pair *)&entry->plain[at];
	cache_pair *theirs = to;

#pragma GCC unroll 4
	for (size_t i = 0; i < words / 2; i++)
		theirs[i] = ours[i];
	if (words % 2 != 0)
		memcpy((char *)to + (words - 1) * 8, &entry->plain[at + words - 1], 8);
}

static inline void cache_fence(void)
{
	atomic_thread_fence(memory_order_acquire);
}
#endif

static inline uint64_t cache_word(const struct cache_entry *entry, size_t at)
{
	return atomic_load_explicit(&entry->word[at], memory_order_acquire);
}

/* Whether an entry answers this key, and then the sequence under which it did. */
static inline bool cache_matches(
        const struct cache_entry *entry, const struct cache_key *key, uint32_t *sequence)
{
	const flytune_problem *problem = key->problem;

	*sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
	return *sequence % 2 == 0 && cache_word(entry, CACHE_AT_SHAPE) >> 32 == problem->key_words &&
	        cache_same(entry, CACHE_AT_DEVICE, key->device, CACHE_DEVICE_WORDS) &&
	        cache_same(entry, CACHE_AT_KEY, problem->key, problem->key_words);
}

static inline bool cache_find(const struct cache *cache, const struct cache_key *key, struct cache_hit *hit)
{
	const uint64_t hash = key->hash;
	uint32_t index = (uint32_t)hash & (cache->sets - 1);
	struct cache_set *set = &cache->set[index];

	for (unsigned way = 0; way < CACHE_WAYS; way++) {
		struct cache_entry *entry;
		uint64_t stripe;

		if (atomic_load_explicit(&set->place[way].hash, memory_order_relaxed) != hash)
			continue;
		entry = atomic_load_explicit(&set->place[way].entry, memory_order_acquire);
		if (entry == NULL || !cache_matches(entry, key, &hit->sequence))
			continue;
		stripe = cache_word(entry, CACHE_AT_STRIPE);
		hit->entry = entry;
		hit->terms.serial = cache_word(entry, CACHE_AT_SERIAL);
		hit->terms.version = cache_word(entry, CACHE_AT_VERSION);
		hit->terms.stripe = (uint32_t)stripe;
		hit->terms.swept = (stripe & cache_swept_bit) != 0;
		hit->place = index * CACHE_WAYS + way;
		/* Written only when it says something new: many threads look at this memory. */
		if (atomic_load_explicit(&entry->used, memory_order_relaxed) == 0)
			atomic_store_explicit(&entry->used, 1, memory_order_relaxed);
		return true;
	}
	return false;
}

static inline bool cache_copy(
        const struct cache_key *key, const struct cache_hit *hit, struct flytune_answer *answer)
{
	const struct cache_entry *entry = hit->entry;
	uint64_t shape = cache_word(entry, CACHE_AT_SHAPE);
	/* Until the sequence is seen again anything may be wrong: no more than there can be. */
	uint32_t knobs = (uint32_t)(shape >> 16 & 0xffff);

	if (knobs > FLYTUNE_KNOBS_MAX)
		return false;
	cache_take(entry, CACHE_AT_KEY + key->problem->key_words, (char *)answer + CACHE_REASON,
	        CACHE_FIXED_WORDS + (size_t)knobs * CACHE_KNOB_WORDS);
	answer->source = (enum flytune_source)(shape & 0xffff);
	cache_fence();
	return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == hit->sequence;
}

static inline _Atomic uint32_t *cache_counter(const struct cache *cache, unsigned row, uint32_t place)
{
	return &cache->repeats->count[(size_t)row * cache->sets * CACHE_WAYS + place];
}

/* Threads are told apart by where the C library keeps their own data, which costs no call that could fail. */
static inline unsigned cache_row(void)
{
	uint64_t self = (uint64_t)(uintptr_t)pthread_self();

	return (unsigned)(self * UINT64_C(0x9e3779b97f4a7c15) >> 61) % CACHE_ROWS;
}

static inline void cache_count(const struct cache *cache, uint32_t place)
{
	atomic_fetch_add_explicit(cache_counter(cache, cache_row(), place), 1, memory_order_relaxed);
}

#endif
