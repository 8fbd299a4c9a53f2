#include "daemon/server/connection_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT_MAX = 32 };

void connection_limits_init(struct connection_limits *limits, uint32_t most, const uint64_t *most_asked)
{
	*limits = (struct connection_limits){.most = most, .most_asked = most_asked};
}

void connection_limits_free(struct connection_limits *limits)
{
	free(limits->list);
	limits->list = NULL;
	limits->length = limits->capacity = 0;
}

uint32_t connection_limits_kept(const struct connection_limits *limits)
{
	uint32_t eighth = limits->most / 8;

	if (limits->most < 2)
		return 0;
	if (eighth < 1)
		return 1;
	return eighth < KEPT_MAX ? eighth : KEPT_MAX;
}

uint32_t connection_limits_share(const struct connection_limits *limits)
{
	uint32_t share = limits->most - limits->most / 4;

	return *limits->most_asked < share ? (uint32_t)*limits->most_asked : share;
}

static struct user_connections *find(const struct connection_limits *limits, uint32_t user)
{
	for (uint32_t i = 0; i < limits->length; i++) {
		if (limits->list[i].user == user)
			return &limits->list[i];
	}
	return NULL;
}

static int add(struct connection_limits *limits, struct user_connections *found, uint32_t user,
        struct ft_error *error)
{
	uint32_t capacity = limits->capacity > 0 ? 2 * limits->capacity : 8;
	struct user_connections *grown;

	if (found != NULL) {
		found->count++;
	} else {
		if (limits->length == limits->capacity) {
			grown = realloc(limits->list, capacity * sizeof(*grown));
			if (grown == NULL)
				return ft_fail(error, FT_E_MEMORY, "no memory for a client");
			limits->list = grown;
			limits->capacity = capacity;
		}
		limits->list[limits->length++] = (struct user_connections){user, 1};
	}
	limits->taken++;
	return 0;
}

static int refuse(struct ft_error *error, const char *field, uint32_t value, const char *bound)
{
	if (error == NULL)
		return -1;
	(void)snprintf(error->field, sizeof(error->field), "%s", field);
	(void)snprintf(error->value, sizeof(error->value), "%" PRIu32, value);
	(void)snprintf(error->bound, sizeof(error->bound), "%s", bound);
	return -1;
}

int connection_limits_take(
        struct connection_limits *limits, uint32_t user, bool administrator, struct ft_error *error)
{
	struct user_connections *found = find(limits, user);
	uint32_t has = found != NULL ? found->count : 0;
	uint32_t kept = administrator ? 0 : connection_limits_kept(limits);
	char bound[64];

	if (limits->taken >= limits->most - kept) {
		limits->refused[CONNECTION_LIMITS_FULL]++;
		(void)snprintf(bound, sizeof(bound), "fewer than %" PRIu32, limits->most - kept);
		(void)ft_fail(error, FT_E_BUSY,
		        "the daemon serves %" PRIu32
		        " connections, and max_clients allows no more than %" PRIu32 "%s",
		        limits->taken, limits->most - kept,
		        kept > 0 ? " besides those of administrators" : "");
		return refuse(error, "max_clients", limits->taken, bound);
	}
	if (!administrator && has >= connection_limits_share(limits)) {
		limits->refused[CONNECTION_LIMITS_USER]++;
		(void)snprintf(bound, sizeof(bound), "fewer than %" PRIu32, connection_limits_share(limits));
		(void)ft_fail(error, FT_E_BUSY,
		        "user %" PRIu32 " has %" PRIu32
		        " connections, and clients_per_user allows no more than %" PRIu32,
		        user, has, connection_limits_share(limits));
		return refuse(error, "clients_per_user", has, bound);
	}
	return add(limits, found, user, error);
}

void connection_limits_leave(struct connection_limits *limits, uint32_t user)
{
	struct user_connections *found = find(limits, user);

	if (found == NULL)
		return;
	limits->taken--;
	if (--found->count == 0)
		*found = limits->list[--limits->length];
}

struct user_connections connection_limits_busiest(const struct connection_limits *limits)
{
	struct user_connections busiest = {0};

	for (uint32_t i = 0; i < limits->length; i++) {
		if (limits->list[i].count > busiest.count)
			busiest = limits->list[i];
	}
	return busiest;
}
