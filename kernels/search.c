#include "kernels/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/surrogate.h"

enum {
	START = 16,         /* told before the surrogate is asked */
	DRAWN = 2000,       /* members of which the farthest is taken */
	FAR_FROM = 64,      /* of the latest tried it is to be far from */
	NEIGHBOUR_EACH = 3, /* each so many times a neighbour of the best few */
	FEW_PART = 16,      /* the best few: one to so many told, */
	FEW_MOST = 12,      /* and at the most so many */
	KEPT = 384,         /* told members that the surrogate reasons from when it starts anew */
	GROWTH_PART = 6,    /* it is fitted anew when by a sixth more are told, */
	GROWTH_MOST = 128,  /* or so many more */
	LIKELY_PARTS = 4,   /* of the pool all but one part are those of which most is expected */
};

_Static_assert(KEPT + GROWTH_MOST <= FT_SURROGATE_SEEN_MAX, "what comes until it starts anew has room");
_Static_assert((int)START >= (int)FEW_PART, "there is a best few");
_Static_assert((int)FT_SEARCH_KNOBS_MAX <= (int)FT_SURROGATE_KNOBS_MAX, "the surrogate takes as many");

struct standing {
	double value;
	uint32_t member;
};

struct ft_search {
	struct ft_surrogate *surrogate;
	size_t count, default_index, tries;
	uint64_t random;
	uint32_t *left;  /* not tried, in any order */
	uint32_t *place; /* of a member among them; `count`: it is tried */
	size_t left_count;
	uint32_t *tried; /* FT_SEARCH_TRIES_MAX, in the order they were given or told */
	size_t tried_count;
	double *value; /* of each member: the logarithm of its time, INFINITY if it failed, NAN if it is not told */
	size_t told, told_well;
	double best, worst;        /* of those told well */
	size_t fitted;             /* told when the surrogate started anew; 0: it did not yet */
	bool unseen;               /* it has not seen all that is told */
	struct standing *standing; /* `count`: room to sort */
	float *mean;               /* `count` */
	uint32_t *pool;            /* FT_SURROGATE_POOL_MAX */
};

/* ---- random numbers (splitmix64: small, and the same everywhere) ---- */

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static size_t draw_below(struct ft_search *search, size_t bound)
{
	return (size_t)((draw(&search->random) >> 32) * bound >> 32);
}

/* Moves `count` of the `all`, drawn at random, to the front. */
static void shuffle(struct ft_search *search, struct standing *standing, size_t count, size_t all)
{
	for (size_t i = 0; i < count; i++) {
		size_t other = i + draw_below(search, all - i);
		struct standing moved = standing[i];

		standing[i] = standing[other];
		standing[other] = moved;
	}
}

/* ---- life ---- */

void ft_search_free(struct ft_search *search)
{
	if (search == NULL)
		return;
	ft_surrogate_free(search->surrogate);
	free(search->left);
	free(search->place);
	free(search->tried);
	free(search->value);
	free(search->standing);
	free(search->mean);
	free(search->pool);
	free(search);
}

static bool allocate(struct ft_search *search, const struct ft_search_space *space)
{
	search->surrogate = ft_surrogate_new(space->row, space->count, space->knobs);
	search->left = calloc(space->count, sizeof(*search->left));
	search->place = calloc(space->count, sizeof(*search->place));
	search->tried = calloc(FT_SEARCH_TRIES_MAX, sizeof(*search->tried));
	search->value = calloc(space->count, sizeof(*search->value));
	search->standing = calloc(space->count, sizeof(*search->standing));
	search->mean = calloc(space->count, sizeof(*search->mean));
	search->pool = calloc(FT_SURROGATE_POOL_MAX, sizeof(*search->pool));
	return search->surrogate != NULL && search->left != NULL && search->place != NULL &&
	        search->tried != NULL && search->value != NULL && search->standing != NULL &&
	        search->mean != NULL && search->pool != NULL;
}

struct ft_search *ft_search_new(
        const struct ft_search_space *space, size_t tries, uint64_t seed, struct ft_error *error)
{
	struct ft_search *search;

	if (space->count < 1 || space->count > FT_SEARCH_MEMBERS_MAX) {
		(void)ft_fail(error, FT_E_BAD_VALUE,
		        "a space of %zu members is not searched: it must have 1 to %d", space->count,
		        FT_SEARCH_MEMBERS_MAX);
		return NULL;
	}
	if (space->knobs < 1 || space->knobs > FT_SEARCH_KNOBS_MAX) {
		(void)ft_fail(error, FT_E_BAD_VALUE,
		        "a space of %zu knobs is not searched: it must have 1 to %d", space->knobs,
		        FT_SEARCH_KNOBS_MAX);
		return NULL;
	}
	search = calloc(1, sizeof(*search));
	if (search == NULL || !allocate(search, space)) {
		ft_search_free(search);
		(void)ft_fail(error, FT_E_MEMORY, "out of memory for a search of %zu members", space->count);
		return NULL;
	}
	search->count = search->left_count = space->count;
	search->default_index = space->default_index;
	search->tries = tries < FT_SEARCH_TRIES_MAX ? tries : FT_SEARCH_TRIES_MAX;
	search->random = seed;
	search->best = INFINITY;
	search->worst = -INFINITY;
	for (size_t i = 0; i < space->count; i++) {
		search->left[i] = search->place[i] = (uint32_t)i;
		search->value[i] = NAN;
	}
	return search;
}

size_t ft_search_tried(const struct ft_search *search)
{
	return search->tried_count;
}

uint64_t ft_search_work(const struct ft_search *search)
{
	return ft_surrogate_work(search->surrogate);
}

/* ---- what is tried and told ---- */

static bool is_tried(const struct ft_search *search, uint32_t member)
{
	return search->place[member] == search->count;
}

static bool is_over(const struct ft_search *search)
{
	return search->left_count == 0 || search->tried_count >= search->tries;
}

static void take(struct ft_search *search, uint32_t member)
{
	uint32_t last = search->left[--search->left_count];

	search->left[search->place[member]] = last;
	search->place[last] = search->place[member];
	search->place[member] = (uint32_t)search->count;
	search->tried[search->tried_count++] = member;
}

bool ft_search_tell(struct ft_search *search, size_t index, uint64_t time_ps)
{
	uint32_t member = (uint32_t)index;
	double value = time_ps == 0 ? INFINITY : log((double)time_ps);

	if (index >= search->count)
		return false;
	if (!is_tried(search, member)) {
		if (is_over(search))
			return false;
		take(search, member);
		search->unseen = true;
	}
	search->told += isnan(search->value[member]);
	search->value[member] = value;
	/* Anew, since what is told again may have been the best. */
	search->told_well = 0;
	search->best = INFINITY;
	search->worst = -INFINITY;
	for (size_t i = 0; i < search->tried_count; i++) {
		double known = search->value[search->tried[i]];

		if (!isfinite(known))
			continue;
		search->told_well++;
		search->best = fmin(search->best, known);
		search->worst = fmax(search->worst, known);
	}
	return true;
}

/* As the surrogate is told: a member that failed is as slow as the slowest. */
static double value_of(const struct ft_search *search, uint32_t member)
{
	return isinf(search->value[member]) ? search->worst : search->value[member];
}

static int by_value(const void *left, const void *right)
{
	const struct standing *a = left, *b = right;

	if (a->value != b->value)
		return a->value < b->value ? -1 : 1;
	return a->member < b->member ? -1 : a->member > b->member;
}

/* Fills `standing` with those told, the best first. */
static void rank_told(struct ft_search *search)
{
	size_t count = 0;

	for (size_t i = 0; i < search->tried_count; i++) {
		uint32_t member = search->tried[i];

		if (!isnan(search->value[member]))
			search->standing[count++] = (struct standing){value_of(search, member), member};
	}
	qsort(search->standing, count, sizeof(*search->standing), by_value);
}

/* ---- filling the space ---- */

static uint32_t farthest(struct ft_search *search)
{
	size_t from = search->tried_count > FAR_FROM ? search->tried_count - FAR_FROM : 0;
	uint32_t chosen = search->left[draw_below(search, search->left_count)];
	double most = -1;

	for (size_t k = 0; k < DRAWN && search->tried_count > 0; k++) {
		uint32_t member = search->left[draw_below(search, search->left_count)];
		double least = INFINITY;

		for (size_t i = from; i < search->tried_count && least > most; i++)
			least = fmin(
			        least, ft_surrogate_distance(search->surrogate, member, search->tried[i]));
		if (least > most) {
			most = least;
			chosen = member;
		}
	}
	return chosen;
}

/* ---- the surrogate's part ---- */

/* Those of which the least time is expected, and some of the others. All, if there is room. */
static void choose_pool(struct ft_search *search)
{
	size_t count = search->left_count;

	for (size_t i = 0; i < count; i++)
		search->standing[i] = (struct standing){0, search->left[i]};
	if (count > FT_SURROGATE_POOL_MAX) {
		size_t likely = FT_SURROGATE_POOL_MAX - FT_SURROGATE_POOL_MAX / LIKELY_PARTS;

		ft_surrogate_mean_of_all(search->surrogate, search->mean);
		for (size_t i = 0; i < count; i++)
			search->standing[i].value = (double)search->mean[search->left[i]];
		qsort(search->standing, count, sizeof(*search->standing), by_value);
		shuffle(search, search->standing + likely, FT_SURROGATE_POOL_MAX - likely, count - likely);
		count = FT_SURROGATE_POOL_MAX;
	}
	for (size_t i = 0; i < count; i++)
		search->pool[i] = search->standing[i].member;
	ft_surrogate_set_pool(search->surrogate, search->pool, count);
}

static void tell_surrogate(struct ft_search *search)
{
	double value[FT_SURROGATE_SEEN_MAX];
	size_t count = ft_surrogate_seen(search->surrogate);

	for (size_t i = 0; i < count; i++)
		value[i] = value_of(search, ft_surrogate_seen_at(search->surrogate, i));
	ft_surrogate_value(search->surrogate, value);
}

/* The best half of `most` of the first `count`, and of the others some drawn at random. */
static size_t thin_out(struct ft_search *search, size_t count, size_t most)
{
	if (count <= most)
		return count;
	shuffle(search, search->standing + most / 2, most - most / 2, count - most / 2);
	return most;
}

/* Starts the surrogate anew, from what is told by now. */
static void fit(struct ft_search *search)
{
	uint32_t member[FT_SURROGATE_FIT_MAX], kept[KEPT];
	double value[FT_SURROGATE_FIT_MAX];
	size_t count, fitted;

	rank_told(search);
	count = thin_out(search, search->told, KEPT);
	for (size_t i = 0; i < count; i++)
		kept[i] = search->standing[i].member;
	fitted = thin_out(search, count, FT_SURROGATE_FIT_MAX);
	for (size_t i = 0; i < fitted; i++) {
		member[i] = search->standing[i].member;
		value[i] = search->standing[i].value;
	}
	ft_surrogate_fit(search->surrogate, member, value, fitted);
	for (size_t i = 0; i < count; i++)
		ft_surrogate_see(search->surrogate, kept[i]);
	tell_surrogate(search);
	choose_pool(search);
	for (size_t i = 0; i < search->tried_count; i++)
		if (isnan(search->value[search->tried[i]]) &&
		        ft_surrogate_seen(search->surrogate) < FT_SURROGATE_SEEN_MAX)
			ft_surrogate_see(search->surrogate, search->tried[i]);
	search->fitted = search->told;
	search->unseen = false;
}

static bool is_to_be_fitted(const struct ft_search *search)
{
	size_t growth = search->fitted / GROWTH_PART;

	if (search->fitted == 0 || search->unseen)
		return true;
	if (search->told == search->fitted) /* it would see no more than it does */
		return false;
	return search->told - search->fitted >= (growth < GROWTH_MOST ? growth : GROWTH_MOST) ||
	        ft_surrogate_seen(search->surrogate) == FT_SURROGATE_SEEN_MAX;
}

/* How much less than the best is to be expected of a member: its gain, where there is one, times its probability. */
static double improvement(double best, double mean, double deviation)
{
	double z = (best - mean) / deviation;
	double density = exp(-0.5 * z * z) * 0.3989422804014327;

	if (z < -5) /* the difference below would be lost in rounding */
		return deviation * density / (z * z);
	return deviation * (z * 0.5 * erfc(-z * 0.7071067811865476) + density);
}

static uint32_t most_promising(const struct ft_search *search)
{
	const float *mean = ft_surrogate_mean(search->surrogate);
	const float *variance = ft_surrogate_variance(search->surrogate);
	double scale = ft_surrogate_scale(search->surrogate), most = -1;
	uint32_t chosen = search->left[0];
	const uint32_t *pool;
	size_t count = ft_surrogate_pool(search->surrogate, &pool);

	for (size_t i = 0; i < count; i++) {
		double gain;

		if (is_tried(search, pool[i]))
			continue;
		gain = improvement(
		        search->best, (double)mean[i], sqrt(scale * fmax((double)variance[i], 1e-9)));
		if (gain > most) {
			most = gain;
			chosen = pool[i];
		}
	}
	return chosen;
}

/* Of a member's neighbours the one of which the least time is expected; `count`: there is none. */
static uint32_t neighbour(const struct ft_search *search, uint32_t member)
{
	const float *mean = ft_surrogate_mean(search->surrogate);
	uint32_t chosen = (uint32_t)search->count;
	float least = INFINITY;
	const uint32_t *pool;
	size_t count = ft_surrogate_pool(search->surrogate, &pool);

	for (size_t i = 0; i < count; i++) {
		if (mean[i] < least && !is_tried(search, pool[i]) &&
		        ft_surrogate_differ(search->surrogate, member, pool[i]) == 1) {
			least = mean[i];
			chosen = pool[i];
		}
	}
	return chosen;
}

static uint32_t by_surrogate(struct ft_search *search)
{
	uint32_t chosen = (uint32_t)search->count;

	if (is_to_be_fitted(search))
		fit(search);
	tell_surrogate(search);
	if (search->tried_count % NEIGHBOUR_EACH == 0) {
		size_t few = search->told / FEW_PART < FEW_MOST ? search->told / FEW_PART : FEW_MOST;

		rank_told(search);
		chosen = neighbour(
		        search, search->standing[search->tried_count / NEIGHBOUR_EACH % few].member);
	}
	if (chosen == search->count)
		chosen = most_promising(search);
	if (ft_surrogate_seen(search->surrogate) < FT_SURROGATE_SEEN_MAX)
		ft_surrogate_see(search->surrogate, chosen);
	return chosen;
}

size_t ft_search_next(struct ft_search *search)
{
	uint32_t chosen;

	if (is_over(search))
		return FT_SEARCH_NONE;
	if (search->default_index < search->count && !is_tried(search, (uint32_t)search->default_index))
		chosen = (uint32_t)search->default_index;
	else if (search->told < START || search->told_well == 0)
		chosen = farthest(search);
	else
		chosen = by_surrogate(search);
	take(search, chosen);
	return chosen;
}
