#include "daemon/server/client_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT_MAX = 32 };

void places_init(struct places *places, uint32_t most, const uint64_t *most_asked)
{
	*places = (struct places){.most = most, .most_asked = most_asked};
}

void places_free(struct places *places)
{
	free(places->list);
	places->list = NULL;
	places->length = places->capacity = 0;
}

uint32_t places_kept(const struct places *places)
{
	uint32_t eighth = places->most / 8;

	if (places->most < 2)
		return 0;
	if (eighth < 1)
		return 1;
	return eighth < KEPT_MAX ? eighth : KEPT_MAX;
}

uint32_t places_share(const struct places *places)
{
	uint32_t share = places->most - places->most / 4;

	return *places->most_asked < share ? (uint32_t)*places->most_asked : share;
}

static struct place_count *find(const struct places *places, uint32_t user)
{
	for (uint32_t i = 0; i < places->length; i++) {
		if (places->list[i].user == user)
			return &places->list[i];
	}
	return NULL;
}

static int add(struct places *places, struct place_count *found, uint32_t user, struct ft_error *error)
{
	uint32_t capacity = places->capacity > 0 ? 2 * places->capacity : 8;
	struct place_count *grown;

	if (found != NULL) {
		found->count++;
	} else {
		if (places->length == places->capacity) {
			grown = realloc(places->list, capacity * sizeof(*grown));
			if (grown == NULL)
				return ft_fail(error, FT_E_MEMORY, "no memory for a client");
			places->list = grown;
			places->capacity = capacity;
		}
		places->list[places->length++] = (struct place_count){user, 1};
	}
	places->taken++;
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

int places_take(struct places *places, uint32_t user, bool administrator, struct ft_error *error)
{
	struct place_count *found = find(places, user);
	uint32_t has = found != NULL ? found->count : 0;
	uint32_t kept = administrator ? 0 : places_kept(places);
	char bound[64];

	if (places->taken >= places->most - kept) {
		places->refused[PLACES_FULL]++;
		(void)snprintf(bound, sizeof(bound), "fewer than %" PRIu32, places->most - kept);
		(void)ft_fail(error, FT_E_BUSY,
		        "the daemon serves %" PRIu32
		        " connections, and max_clients allows no more than %" PRIu32 "%s",
		        places->taken, places->most - kept,
		        kept > 0 ? " besides those of administrators" : "");
		return refuse(error, "max_clients", places->taken, bound);
	}
	if (!administrator && has >= places_share(places)) {
		places->refused[PLACES_USER]++;
		(void)snprintf(bound, sizeof(bound), "fewer than %" PRIu32, places_share(places));
		(void)ft_fail(error, FT_E_BUSY,
		        "user %" PRIu32 " has %" PRIu32
		        " connections, and clients_per_user allows no more than %" PRIu32,
		        user, has, places_share(places));
		return refuse(error, "clients_per_user", has, bound);
	}
	return add(places, found, user, error);
}

void places_leave(struct places *places, uint32_t user)
{
	struct place_count *found = find(places, user);

	if (found == NULL)
		return;
	places->taken--;
	if (--found->count == 0)
		*found = places->list[--places->length];
}

struct place_count places_busiest(const struct places *places)
{
	struct place_count busiest = {0};

	for (uint32_t i = 0; i < places->length; i++) {
		if (places->list[i].count > busiest.count)
			busiest = places->list[i];
	}
	return busiest;
}
