/* The answers that a client keeps: a bounded table, read by any thread without a lock, a system call or an allocation.
 *
 * An entry is plain words behind a sequence counter that is odd while they change: a reader that saw it odd, or changed,
 * takes nothing. Entries are written with the owner's lock held, and are reused, never freed before the table, so a reader
 * may be as late as it likes. Words are stored one by one with release order, so a reader that sees one word of a later
 * write is sure to see the counter of that write as well. It compares and copies them as plain memory, by the C library's
 * own functions, which use the widest registers there are: what was in pieces is thrown away. ThreadSanitizer cannot know
 * that, so for it words are loaded one by one, with acquire order.
 *
 * fork. The owner holds its lock across fork, so no entry is in the middle of a change in the child; after a clone that
 * ran no handlers cache_mend makes it so. Readers need to notice neither: what they see is the child's own copy.
 *
 * How often an entry answered is counted for those that are misses, which the daemon counts. Apart from them, a row of
 * counters for each of a few groups of threads, so that threads which ask the same do not write to the same memory. */
#ifndef FLYTUNE_CLIENT_CACHE_H
#define FLYTUNE_CLIENT_CACHE_H

#include <pthread.h>
#include <string.h>

#include "client/lib/board.h"
#include "client/lib/problem.h"

enum {
	CACHE_WAYS = 8,
	CACHE_ROWS = 8, /* of counters */

	CACHE_DEVICE_WORDS = FT_DEVICE_ID_SIZE / 8,
	/* The answer is kept from its beginning to the last knob that it has. */
	CACHE_KNOBS = offsetof(struct flytune_answer, knob),
	CACHE_ANSWER_WORDS = sizeof(struct flytune_answer) / 8,
	CACHE_KEY_WORDS = 136, /* at most: nearly every problem takes less; what takes more is not kept */

	/* Where things are in an entry. */
	CACHE_AT_SHAPE = 0, /* words of the answer, of the device, of the key */
	CACHE_AT_SERIAL,
	CACHE_AT_VERSION,
	CACHE_AT_STRIPE, /* and what else is known of it */
	CACHE_AT_KEY,    /* behind it the device, if there is one, and the answer */
	CACHE_ENTRY_WORDS = CACHE_AT_KEY + CACHE_KEY_WORDS + CACHE_DEVICE_WORDS + CACHE_ANSWER_WORDS,

	CACHE_LINE = 64, /* where an entry begins */
};

/* Copied by words, so nothing may stand across two. */
_Static_assert(CACHE_KNOBS % 8 == 0 && sizeof(struct flytune_knob) % 8 == 0 && FT_DEVICE_ID_SIZE % 8 == 0 &&
                sizeof(struct flytune_answer) ==
                        CACHE_KNOBS + FLYTUNE_KNOBS_MAX * sizeof(struct flytune_knob),
        "an answer is made of words");
_Static_assert((int)FLYTUNE_KNOBS_MAX == (int)FT_KNOBS_MAX, "all knobs fit");

static const uint64_t cache_swept_bit = UINT64_C(1) << 32;
static const uint64_t cache_miss_bit = UINT64_C(1) << 33;

struct cache_entry {
	_Alignas(CACHE_LINE) _Atomic uint32_t sequence; /* odd while it changes */
	_Atomic uint32_t used;                          /* since the hand came by */
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
};

struct cache {
	struct cache_set *set;
	uint32_t sets;                /* a power of two */
	uint8_t *hand;                /* of each set: where the next victim is looked for */
	struct cache_counts *repeats; /* how often each place answered */
};

/* What is asked: a problem on a device as the caller named it. */
struct cache_key {
	const flytune_problem *problem;
	const char *device; /* FT_DEVICE_ID_SIZE bytes, zero to the end */
	uint64_t hash;
	uint32_t device_words; /* 0: the caller named none */
};

/* How long an answer stands. */
struct cache_terms {
	uint64_t serial;  /* of the board that came with it; 0: none did */
	uint64_t version; /* of its stripe */
	uint32_t stripe;  /* below FT_BOARD_STRIPES */
	bool swept;       /* the sweep that was forced has ended before */
	bool miss;        /* nobody has tuned it: how often it is asked for is counted */
};

/* A kept answer that was found. */
struct cache_hit {
	const struct cache_entry *entry;
	struct cache_terms terms;
	size_t answer;     /* words before the answer in it */
	size_t words;      /* of the answer */
	uint32_t sequence; /* of the entry, when it was found */
	uint32_t place;    /* where it is counted */
};

/* Room for at least so many entries, and for no more than four times as many; each takes memory when first used. */
int cache_init(struct cache *cache, uint32_t entries);
void cache_free(struct cache *cache);
uint64_t cache_hash_on(const flytune_problem *problem, const char *device);

static inline struct cache_key cache_key(const flytune_problem *problem, const char *device)
{
	struct cache_key key = {.problem = problem, .device = device, .hash = problem->hash};

	if (*device != '\0') {
		key.hash = cache_hash_on(problem, device);
		key.device_words = CACHE_DEVICE_WORDS;
	}
	return key;
}

/* Whether an answer is kept, and how long it stands: nothing to rely on before it was copied. Any thread. */
static inline bool cache_find(const struct cache *cache, const struct cache_key *key, struct cache_hit *hit);
/* Copies out what was found, all but what `answer` has behind the last knob; its flags are those of a kept answer.
 * `answer` is of this library's size. False, and all but its size is in pieces, if the answer was replaced since it was found. */
static inline bool cache_copy(const struct cache_hit *hit, struct flytune_answer *answer);
/* Counts an answer that was given, if it is to be. Any thread. */
static inline void cache_count(const struct cache *cache, const struct cache_hit *hit);

/* With the owner's lock held. Keeps a copy; out of memory it keeps none. */
void cache_keep(struct cache *cache, const struct cache_key *key, const struct flytune_answer *answer,
        const struct cache_terms *terms);
/* Takes the count of answers given since it was last taken; and puts it back if it could not be reported. */
uint32_t cache_take_repeats(struct cache *cache, const struct cache_key *key);
void cache_return_repeats(struct cache *cache, const struct cache_key *key, uint32_t repeats);
/* In a forked child: what was counted is the parent's to report, and half an entry is none. */
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
static inline bool cache_same(const struct cache_entry *entry, size_t at, const void *other, size_t words)
{
	return memcmp(&entry->plain[at], other, words * 8) == 0;
}

static inline void cache_take(const struct cache_entry *entry, size_t at, void *to, size_t words)
{
	size_t bytes = words * 8;

	/* Where the compiler knows a bound it makes a string instruction of it, which takes longer to start than all of
	 * this takes. */
	__asm__("" : "+r"(bytes));
	memcpy(to, &entry->plain[at], bytes);
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

static inline uint32_t cache_shape(const struct cache_key *key)
{
	return key->device_words << 16 | key->problem->key_words;
}

/* Whether an entry answers this key, and then what it is. */
static inline __attribute__((always_inline)) bool cache_matches(
        const struct cache_entry *entry, const struct cache_key *key, struct cache_hit *hit)
{
	const flytune_problem *problem = key->problem;
	const size_t words = problem->key_words;
	uint64_t shape;

	hit->entry = entry;
	hit->sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);
	shape = cache_word(entry, CACHE_AT_SHAPE);
	hit->words = shape >> 32;
	hit->answer = CACHE_AT_KEY + words + key->device_words;
	return hit->sequence % 2 == 0 && (uint32_t)shape == cache_shape(key) &&
	        cache_same(entry, CACHE_AT_KEY, problem->key, words) &&
	        (key->device_words == 0 ||
	                cache_same(entry, CACHE_AT_KEY + words, key->device, CACHE_DEVICE_WORDS));
}

/* Where a search in a set begins: nearly every entry is where its search begins, so that the way there can be foreseen. */
static inline unsigned cache_way(uint64_t hash, unsigned tried)
{
	return (unsigned)((hash >> 32) + tried) % CACHE_WAYS;
}

static inline __attribute__((always_inline)) bool cache_find(
        const struct cache *cache, const struct cache_key *key, struct cache_hit *hit)
{
	const uint64_t hash = key->hash;
	uint32_t index = (uint32_t)hash & (cache->sets - 1);
	struct cache_set *set = &cache->set[index];
	struct cache_entry *entry;
	unsigned tried = 0, way;
	uint64_t stripe;

	do {
		if (tried == CACHE_WAYS)
			return false;
		way = cache_way(hash, tried++);
	} while (atomic_load_explicit(&set->place[way].hash, memory_order_relaxed) != hash);
	/* Should another problem have this very hash, then this one is asked for each time. */
	entry = atomic_load_explicit(&set->place[way].entry, memory_order_acquire);
	if (entry == NULL || !cache_matches(entry, key, hit))
		return false;
	stripe = cache_word(entry, CACHE_AT_STRIPE);
	hit->terms.serial = cache_word(entry, CACHE_AT_SERIAL);
	hit->terms.version = cache_word(entry, CACHE_AT_VERSION);
	hit->terms.stripe = (uint32_t)stripe;
	hit->terms.swept = (stripe & cache_swept_bit) != 0;
	hit->terms.miss = (stripe & cache_miss_bit) != 0;
	hit->place = index * CACHE_WAYS + way;
	/* Written only when it says something new: many threads look at this memory. */
	if (atomic_load_explicit(&entry->used, memory_order_relaxed) == 0)
		atomic_store_explicit(&entry->used, 1, memory_order_relaxed);
	return true;
}

static inline bool cache_copy(const struct cache_hit *hit, struct flytune_answer *answer)
{
	cache_take(hit->entry, hit->answer, answer, hit->words);
	cache_fence();
	if (atomic_load_explicit(&hit->entry->sequence, memory_order_relaxed) == hit->sequence)
		return true;
	answer->size = sizeof *answer;
	return false;
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

static inline void cache_count(const struct cache *cache, const struct cache_hit *hit)
{
	if (hit->terms.miss)
		atomic_fetch_add_explicit(
		        cache_counter(cache, cache_row(), hit->place), 1, memory_order_relaxed);
}

#endif
