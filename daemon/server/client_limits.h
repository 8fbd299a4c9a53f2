/* Places: how many connections are served, of all and of each user.
 *
 * One user has no more than a share, and the last places are for administrators alone: whatever the others do, an operator
 * gets in. Only who is served has a place; one that is told why it is not, and closed, has none. */
#ifndef FLYTUNE_DAEMON_PLACES_H
#define FLYTUNE_DAEMON_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct place_count {
	uint32_t user, count;
};

enum places_refusal {
	PLACES_FULL, /* of all */
	PLACES_USER, /* of this user */
	PLACES_REFUSALS,
};

struct places {
	uint32_t most;              /* of all */
	const uint64_t *most_asked; /* of one user, as set; may change meanwhile */
	uint32_t taken;
	struct place_count *list; /* users who have some, in no order: there are never many */
	uint32_t length, capacity;
	uint64_t refused[PLACES_REFUSALS];
};

/* `most` is at least 1. `most_asked` is kept. Nothing is allocated before the first place is taken. */
void places_init(struct places *places, uint32_t most, const uint64_t *most_asked);
void places_free(struct places *places);

/* Gives a user one, or fails as busy with the setting, what there is and its bound; or for want of memory. */
int places_take(struct places *places, uint32_t user, bool administrator, struct ft_error *error);
/* One that was taken. */
void places_leave(struct places *places, uint32_t user);

/* That are kept for administrators. */
uint32_t places_kept(const struct places *places);
/* That one user who is no administrator may have: what is set, and never more than three quarters of all. */
uint32_t places_share(const struct places *places);
/* Who has most, administrators included; count 0 if nobody has any. */
struct place_count places_busiest(const struct places *places);

#endif
