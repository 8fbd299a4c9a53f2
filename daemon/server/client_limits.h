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

enum client_limits_refusal {
	CLIENT_LIMITS_FULL, /* of all */
	CLIENT_LIMITS_USER, /* of this user */
	PLACES_REFUSALS,
};

struct client_limits {
	uint32_t most;              /* of all */
	const uint64_t *most_asked; /* of one user, as set; may change meanwhile */
	uint32_t taken;
	struct place_count *list; /* users who have some, in no order: there are never many */
	uint32_t length, capacity;
	uint64_t refused[PLACES_REFUSALS];
};

/* `most` is at least 1. `most_asked` is kept. Nothing is allocated before the first place is taken. */
void client_limits_init(struct client_limits *limits, uint32_t most, const uint64_t *most_asked);
void client_limits_free(struct client_limits *limits);

/* Gives a user one, or fails as busy with the setting, what there is and its bound; or for want of memory. */
int client_limits_take(
        struct client_limits *limits, uint32_t user, bool administrator, struct ft_error *error);
/* One that was taken. */
void client_limits_leave(struct client_limits *limits, uint32_t user);

/* That are kept for administrators. */
uint32_t client_limits_kept(const struct client_limits *limits);
/* That one user who is no administrator may have: what is set, and never more than three quarters of all. */
uint32_t client_limits_share(const struct client_limits *limits);
/* Who has most, administrators included; count 0 if nobody has any. */
struct place_count client_limits_busiest(const struct client_limits *limits);

#endif
