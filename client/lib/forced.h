/* Which problems a client has swept under FLYTUNE_AUTOTUNE=1: each once, however many threads ask.
 *
 * Guarded by its owner's lock. */
#ifndef FLYTUNE_CLIENT_FORCED_H
#define FLYTUNE_CLIENT_FORCED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum forced_state {
	FORCED_NEW,
	FORCED_RUNNING, /* some thread waits for it */
	FORCED_DONE,
	FORCED_FULL, /* the table is: this problem is not swept */
};

enum { FORCED_MAX = 1 << 16 };

struct forced_slot {
	uint64_t hash; /* of problem and device; 0: free */
	enum forced_state state;
};

struct forced {
	struct forced_slot *slot;
	size_t capacity; /* a power of two, at least twice the count */
	size_t count;
};

void forced_free(struct forced *forced);
enum forced_state forced_get(const struct forced *forced, uint64_t hash);
/* Adds it if need be; false when full or out of memory. */
bool forced_set(struct forced *forced, uint64_t hash, enum forced_state state);
/* After a fork: whoever waited is not in this process. */
void forced_forget_running(struct forced *forced);

#endif
