#include "daemon/answers/miss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int misses_init(struct misses *misses, struct ft_error *error)
{
	*misses = (struct misses){.set = calloc(MISS_SETS, sizeof(*misses->set))};
	if (misses->set == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for the table of misses");
	return 0;
}

void misses_free(struct misses *misses)
{
	free(misses->set);
	misses->set = NULL;
}

static bool is_of(const struct miss *miss, const struct target *target)
{
	return miss->count > 0 && memcmp(&miss->key, &target->key, sizeof(miss->key)) == 0 &&
	        strcmp(miss->device, target->device->shown.id) == 0;
}

/* A hostile count of repeats must not wrap around to a small one. */
static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Its place, a free one, or that of the least asked, of these the one not asked for the longest time. */
static struct miss *place_of(struct miss *set, const struct target *target)
{
	struct miss *place = &set[0];

	for (int way = 0; way < MISS_WAYS; way++) {
		struct miss *miss = &set[way];

		if (is_of(miss, target))
			return miss;
		if (miss->count < place->count ||
		        (miss->count == place->count && miss->last_ns < place->last_ns))
			place = miss;
	}
	return place;
}

uint64_t misses_count(struct misses *misses, const struct target *target, uint64_t repeats, uint64_t now_ns,
        struct miss_place *place)
{
	uint64_t hash = XXH3_64bits(&target->key, sizeof(target->key));
	struct miss *miss = place_of(misses->set[hash % MISS_SETS], target);
	uint64_t asked = add(repeats, 1);
	struct ft_writer writer;

	*place = (struct miss_place){0};
	misses->asked = add(misses->asked, asked);
	if (!is_of(miss, target)) {
		uint8_t problem[MISS_PROBLEM_SIZE];

		ft_writer_init_fixed(&writer, problem, sizeof(problem));
		ft_write_problem(&writer, &target->problem);
		if (!ft_writer_ok(&writer)) {
			misses->forgotten++;
			return asked;
		}
		misses->forgotten += miss->count > 0;
		if (++misses->serial == 0)
			misses->serial = 1;
		*miss = (struct miss){.first_ns = now_ns,
		        .key = target->key,
		        .serial = misses->serial,
		        .length = (uint16_t)writer.length};
		memcpy(miss->kernel, target->kernel->schema.kernel, sizeof(miss->kernel));
		memcpy(miss->device, target->device->shown.id, sizeof(miss->device));
		memcpy(miss->problem, problem, writer.length);
	}
	miss->count = add(miss->count, asked);
	miss->last_ns = now_ns;
	*place = misses_place(misses, miss);
	return miss->count;
}

struct miss_place misses_place(const struct misses *misses, const struct miss *miss)
{
	return (struct miss_place){(uint32_t)(miss - misses->set[0]), miss->serial};
}

struct miss *misses_at(const struct misses *misses, struct miss_place place)
{
	struct miss *miss = &misses->set[place.at / MISS_WAYS][place.at % MISS_WAYS];

	return miss->count > 0 && miss->serial == place.serial ? miss : NULL;
}

bool misses_again(struct misses *misses, struct miss_place place, uint64_t now_ns)
{
	struct miss *miss = misses_at(misses, place);

	if (miss == NULL)
		return false;
	misses->asked = add(misses->asked, 1);
	miss->count = add(miss->count, 1);
	miss->last_ns = now_ns;
	return true;
}

static int more_asked_first(const void *a, const void *b)
{
	const struct miss *left = *(struct miss *const *)a;
	const struct miss *right = *(struct miss *const *)b;

	if (left->count != right->count)
		return left->count > right->count ? -1 : 1;
	if (left->last_ns != right->last_ns)
		return left->last_ns > right->last_ns ? -1 : 1;
	return left < right ? -1 : left > right;
}

struct miss **misses_sorted(const struct misses *misses, size_t *count)
{
	struct miss **list = calloc((size_t)MISS_SETS * MISS_WAYS, sizeof(struct miss *));

	*count = 0;
	for (int set = 0; list != NULL && set < MISS_SETS; set++) {
		for (int way = 0; way < MISS_WAYS; way++) {
			if (misses->set[set][way].count > 0)
				list[(*count)++] = &misses->set[set][way];
		}
	}
	if (*count > 0)
		qsort(list, *count, sizeof(struct miss *), more_asked_first);
	return list;
}

void miss_drop(struct miss *miss)
{
	memset(miss, 0, sizeof(*miss));
}

bool miss_problem(const struct miss *miss, struct ft_problem *problem)
{
	struct ft_cursor cursor = ft_cursor_of(miss->problem, miss->length);

	return ft_read_problem(&cursor, problem, NULL) == 0;
}
