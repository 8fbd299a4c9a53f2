#include "client/lib/forced.h"

#include <stdlib.h>

enum { FORCED_FIRST = 64 };

void forced_free(struct forced *forced)
{
	free(forced->slot);
}

static size_t place_of(const struct forced_slot *slot, size_t capacity, uint64_t hash)
{
	size_t place = hash & (capacity - 1);

	while (slot[place].hash != 0 && slot[place].hash != hash)
		place = (place + 1) & (capacity - 1);
	return place;
}

enum forced_state forced_get(const struct forced *forced, uint64_t hash)
{
	const struct forced_slot *slot;

	hash |= 1;
	if (forced->slot == NULL)
		return FORCED_NEW;
	slot = &forced->slot[place_of(forced->slot, forced->capacity, hash)];
	if (slot->hash == hash)
		return slot->state;
	return forced->count < FORCED_MAX ? FORCED_NEW : FORCED_FULL;
}

static bool grow(struct forced *forced)
{
	size_t capacity = forced->capacity == 0 ? FORCED_FIRST : forced->capacity * 2;
	struct forced_slot *slot = calloc(capacity, sizeof *slot);

	if (slot == NULL)
		return false;
	for (size_t i = 0; i < forced->capacity; i++) {
		if (forced->slot[i].hash != 0)
			slot[place_of(slot, capacity, forced->slot[i].hash)] = forced->slot[i];
	}
	free(forced->slot);
	forced->slot = slot;
	forced->capacity = capacity;
	return true;
}

bool forced_set(struct forced *forced, uint64_t hash, enum forced_state state)
{
	struct forced_slot *slot;

	hash |= 1;
	if (forced->count * 2 >= forced->capacity && !grow(forced))
		return false;
	slot = &forced->slot[place_of(forced->slot, forced->capacity, hash)];
	if (slot->hash == 0) {
		if (forced->count >= FORCED_MAX)
			return false;
		forced->count++;
	}
	slot->hash = hash;
	slot->state = state;
	return true;
}

void forced_forget_running(struct forced *forced)
{
	for (size_t i = 0; i < forced->capacity; i++) {
		if (forced->slot[i].state == FORCED_RUNNING)
			forced->slot[i].state = FORCED_NEW;
	}
}
