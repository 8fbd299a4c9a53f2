/* Misses: problems that were looked up and have no result of their own, with how often they were asked.
 *
 * A table of a fixed size, filled without allocation on the lookup's way. Where it is full, what is asked
 * most stays. Not kept across restarts.
 *
 * Not one with the table of candidates (daemon/jobs/candidate.h): that holds only what is to be swept, stale results among it,
 * for which nobody asks and which whatever is asked once would push out of here. */
#ifndef FLYTUNE_DAEMON_MISS_H
#define FLYTUNE_DAEMON_MISS_H

#include "daemon/answers/target.h"

enum { MISS_SETS = 256, MISS_WAYS = 8, MISS_PROBLEM_SIZE = 384 };

struct miss {
	uint64_t count;             /* 0: the place is free */
	uint64_t first_ns, last_ns; /* monotonic */
	uint32_t serial;            /* of this use of the place; near what is written with each lookup */
	uint16_t length;
	struct store_key key;
	char kernel[FT_KERNEL_SIZE];
	char device[FT_DEVICE_ID_SIZE];
	uint8_t problem[MISS_PROBLEM_SIZE]; /* MessagePack */
};

/* Where a miss is counted: serial 0 is nowhere. */
struct miss_place {
	uint32_t at;
	uint32_t serial;
};

struct misses {
	struct miss (*set)[MISS_WAYS]; /* touched page by page, as misses come */
	uint64_t asked;                /* lookups that missed */
	uint32_t serial;               /* given last */
	uint64_t forgotten;            /* entries that had to make place, or were too large to list */
};

int misses_init(struct misses *misses, struct ft_error *error);
void misses_free(struct misses *misses);
/* One lookup missed, and `repeats` more of the same were answered by the client itself. How often it was asked so far, as
 * far as is known; and where it is counted. */
uint64_t misses_count(struct misses *misses, const struct target *target, uint64_t repeats, uint64_t now_ns,
        struct miss_place *place);
/* The same missed once more. False if its place has been given away since. */
bool misses_again(struct misses *misses, struct miss_place place, uint64_t now_ns);
/* All entries, the most asked first, as a fresh array of `*count` pointers into the table; NULL when out of
 * memory. */
struct miss **misses_sorted(const struct misses *misses, size_t *count);
/* Where an entry stands, and the entry that stands there still; NULL if another took its place. */
struct miss_place misses_place(const struct misses *misses, const struct miss *miss);
struct miss *misses_at(const struct misses *misses, struct miss_place place);
void miss_drop(struct miss *miss);
/* False if the entry makes no sense. */
bool miss_problem(const struct miss *miss, struct ft_problem *problem);

#endif
