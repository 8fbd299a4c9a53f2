/* A space of which it is known what each member takes, and what a search reaches on it: random, greedy, and ours. */
#ifndef FLYTUNE_TESTS_RECORDED_SPACE_H
#define FLYTUNE_TESTS_RECORDED_SPACE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/search.h"

struct recorded_space {
	struct ft_search_space space;
	uint16_t *row; /* the space's own */
	double *time;  /* of each member; INFINITY: it failed */
	double best;
	size_t failed;
};

static uint64_t recorded_draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static size_t recorded_below(uint64_t *state, size_t bound)
{
	return (size_t)((recorded_draw(state) >> 32) * bound >> 32);
}

/* ---- searches: each fills `found` with the best time after each try ---- */

static void recorded_random(const struct recorded_space *recorded, uint64_t seed, size_t tries, double *found)
{
	size_t count = recorded->space.count;
	uint32_t *member = calloc(count, sizeof(*member));
	double best = INFINITY;

	if (member == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
		member[i] = (uint32_t)i;
	for (size_t i = 0; i < tries; i++) {
		size_t other = i + recorded_below(&seed, count - i);
		uint32_t moved = member[i];

		member[i] = member[other];
		member[other] = moved;
		best = fmin(best, recorded->time[member[i]]);
		found[i] = best;
	}
	free(member);
}

struct recorded_greedy {
	const struct recorded_space *recorded;
	bool *tried;
	uint32_t *order; /* of all members, shuffled: in which the neighbours are looked at */
	size_t tries, done;
	double best, *found;
};

static void recorded_try(struct recorded_greedy *greedy, size_t member)
{
	if (greedy->tried[member] || greedy->done == greedy->tries)
		return;
	greedy->tried[member] = true;
	greedy->best = fmin(greedy->best, greedy->recorded->time[member]);
	greedy->found[greedy->done++] = greedy->best;
}

/* To the first better config that differs in one knob, until there is none. */
static void recorded_climb(struct recorded_greedy *greedy, size_t member)
{
	const struct ft_search_space *space = &greedy->recorded->space;
	const double *time = greedy->recorded->time;
	bool moved = true;

	recorded_try(greedy, member);
	while (moved && greedy->done < greedy->tries) {
		moved = false;
		for (size_t i = 0; i < space->count && !moved; i++) {
			size_t other = greedy->order[i], differ = 0;

			for (size_t j = 0; j < space->knobs && differ < 2; j++)
				differ += space->row[other * space->knobs + j] !=
				        space->row[member * space->knobs + j];
			if (differ != 1)
				continue;
			recorded_try(greedy, other);
			moved = time[other] < time[member];
			if (moved)
				member = other;
		}
	}
}

/* Starts at random, climbs, starts anew: what needs nothing but neighbours. */
static void recorded_greedy(const struct recorded_space *recorded, uint64_t seed, size_t tries, double *found)
{
	size_t count = recorded->space.count;
	struct recorded_greedy greedy = {
	        .recorded = recorded, .tries = tries, .best = INFINITY, .found = found};

	greedy.tried = calloc(count, sizeof(*greedy.tried));
	greedy.order = calloc(count, sizeof(*greedy.order));
	if (greedy.tried == NULL || greedy.order == NULL)
		abort();
	for (size_t i = 0; i < count; i++) {
		size_t other = recorded_below(&seed, i + 1);

		greedy.order[i] = greedy.order[other];
		greedy.order[other] = (uint32_t)i;
	}
	while (greedy.done < tries)
		recorded_climb(&greedy, recorded_below(&seed, count));
	free(greedy.tried);
	free(greedy.order);
}

/* Ours, asked for `batch` members at a time. Ends where the best of all is found; returns the tries until then. */
static size_t recorded_search(
        const struct recorded_space *recorded, uint64_t seed, size_t tries, size_t batch, double *found)
{
	struct ft_search *search = ft_search_new(&recorded->space, tries, seed, NULL);
	double best = INFINITY;
	size_t asked[FT_SEARCH_TRIES_MAX], done = 0, count = 1;

	if (search == NULL)
		abort();
	while (count > 0 && best > recorded->best) {
		for (count = 0; count < batch && (asked[count] = ft_search_next(search)) != FT_SEARCH_NONE;)
			count++;
		for (size_t i = 0; i < count; i++) {
			double time = recorded->time[asked[i]];

			if (!ft_search_tell(search, asked[i], isinf(time) ? 0 : (uint64_t)(time * 1e9)))
				abort();
			best = fmin(best, time);
			found[done++] = best;
		}
	}
	ft_search_free(search);
	for (size_t i = done; i < tries; i++)
		found[i] = best;
	return done;
}

#endif
