/* How many connections are served, of all and of each user.
 *
 * One user has no more than a share, and the last places are for administrators alone: whatever the others do, an operator
 * gets in. Only who is served has a place; one that is sent the reason why not, and closed, has none. */
#ifndef FLYTUNE_DAEMON_CONNECTION_LIMITS_H
#define FLYTUNE_DAEMON_CONNECTION_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct user_connections {
	uint32_t user, count;
};

enum connection_limits_refusal {
	CONNECTION_LIMITS_FULL, /* of all */
	CONNECTION_LIMITS_USER, /* of this user */
	CONNECTION_LIMITS_REFUSALS,
};

struct connection_limits {
	uint32_t most;              /* of all */
	const uint64_t *most_asked; /* of one user, as set; may change meanwhile */
	uint32_t taken;
	struct user_connections *list; /* users who have some, in no order: there are never many */
	uint32_t length, capacity;
	uint64_t refused[CONNECTION_LIMITS_REFUSALS];
};

/* `most` is at least 1. `most_asked` is kept. Nothing is allocated before the first place is taken. */
void connection_limits_init(struct connection_limits *limits, uint32_t most, const uint64_t *most_asked);
void connection_limits_free(struct connection_limits *limits);

/* Gives a user one, or fails as busy with the setting, what there is and its bound; or for want of memory. */
int connection_limits_take(
        struct connection_limits *limits, uint32_t user, bool administrator, struct ft_error *error);
/* One that was taken. */
void connection_limits_leave(struct connection_limits *limits, uint32_t user);

/* That are kept for administrators. */
uint32_t connection_limits_kept(const struct connection_limits *limits);
/* That one user who is no administrator may have: what is set, and never more than three quarters of all. */
uint32_t connection_limits_share(const struct connection_limits *limits);
/* Who has most, administrators included; count 0 if nobody has any. */
struct user_connections connection_limits_busiest(const struct connection_limits *limits);

#endif
