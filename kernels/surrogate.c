#include "kernels/surrogate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	SEEN_MAX = FT_SURROGATE_SEEN_MAX,
	POOL_MAX = FT_SURROGATE_POOL_MAX,
	FIT_MAX = FT_SURROGATE_FIT_MAX,
	KNOBS_MAX = FT_SURROGATE_KNOBS_MAX,
	BLOCK = 512,    /* of the pool, that stays in the nearest cache */
	FIT_PASSES = 2, /* over all knobs */
	STEPS = 4,      /* of a knob in a pass */
};

/* Of a correlation, what no neighbour explains: the same kernel compiled to other code, and noise. It also keeps the
 * factorisation sound in float. */
static const double nugget = 3e-3;
static const double rate_usual = 1, rate_least = 0.1, rate_most = 30, rate_step = 2.5;
static const double rate_prior = 0.125; /* half the inverse variance of a rate's logarithm */
static const double order_usual = 0.6, order_least = 0.1, order_most = 1.1, order_step = 0.2;

/* Members' value indices by knob, so that one knob of many members lies together. */
struct columns {
	uint16_t *value;
	size_t stride;
	size_t count;
};

/* What is fitted. */
struct rates {
	double rate
	        [KNOBS_MAX]; /* the logarithm of the correlation of the two ends of a knob's list, negated */
	double order[KNOBS_MAX]; /* the part of the correlation that goes by the distance in the list */
};

struct ft_surrogate {
	size_t knobs;
	size_t values[KNOBS_MAX];
	struct rates rates;
	float *correlation[KNOBS_MAX]; /* by the distance of two values of the knob */
	float *tables;                 /* where these lie */
	struct columns all, seen, pool;
	uint32_t *seen_member; /* SEEN_MAX */
	uint32_t *pool_member; /* POOL_MAX */
	double *factor;  /* Cholesky's, of the correlations of those seen: column j from j * SEEN_MAX on */
	float *solved;   /* POOL_MAX for each seen: the inverse of the factor times the pool's correlations */
	float *variance; /* POOL_MAX */
	float *mean;     /* POOL_MAX */
	float *near;     /* of whichever members are correlated */
	double ones[SEEN_MAX], known[SEEN_MAX], weight[SEEN_MAX];
	double trend, scale;
	uint64_t work;
};

/* ---- life ---- */

static bool columns_new(struct columns *columns, size_t knobs, size_t stride)
{
	columns->stride = stride;
	columns->value = calloc(knobs * stride + 1, sizeof(*columns->value));
	return columns->value != NULL;
}

static bool allocate(struct ft_surrogate *surrogate, size_t count, size_t entries)
{
	surrogate->tables = calloc(entries, sizeof(float));
	surrogate->seen_member = calloc(SEEN_MAX, sizeof(uint32_t));
	surrogate->pool_member = calloc(POOL_MAX, sizeof(uint32_t));
	surrogate->factor = calloc((size_t)SEEN_MAX * SEEN_MAX, sizeof(double));
	surrogate->solved = calloc((size_t)SEEN_MAX * POOL_MAX, sizeof(float));
	surrogate->variance = calloc(POOL_MAX, sizeof(float));
	surrogate->mean = calloc(POOL_MAX, sizeof(float));
	surrogate->near = calloc(count > SEEN_MAX ? count : SEEN_MAX, sizeof(float));
	return surrogate->tables != NULL && surrogate->seen_member != NULL &&
	        surrogate->pool_member != NULL && surrogate->factor != NULL && surrogate->solved != NULL &&
	        surrogate->variance != NULL && surrogate->mean != NULL && surrogate->near != NULL &&
	        columns_new(&surrogate->all, surrogate->knobs, count) &&
	        columns_new(&surrogate->seen, surrogate->knobs, SEEN_MAX) &&
	        columns_new(&surrogate->pool, surrogate->knobs, POOL_MAX);
}

static void columns_add(const struct ft_surrogate *surrogate, struct columns *columns, uint32_t member)
{
	for (size_t j = 0; j < surrogate->knobs; j++)
		columns->value[j * columns->stride + columns->count] =
		        surrogate->all.value[j * surrogate->all.stride + member];
	columns->count++;
}

static void set_tables(struct ft_surrogate *surrogate, const struct rates *rates)
{
	for (size_t j = 0; j < surrogate->knobs; j++) {
		size_t values = surrogate->values[j];
		double differs = (1 - rates->order[j]) * exp(-rates->rate[j]);

		surrogate->correlation[j][0] = 1;
		for (size_t a = 1; a < values; a++)
			surrogate->correlation[j][a] = (float)(rates->order[j] *
			                exp(-rates->rate[j] * (double)a / (double)(values - 1)) +
			        differs);
	}
}

struct ft_surrogate *ft_surrogate_new(const uint16_t *row, size_t count, size_t knobs)
{
	struct ft_surrogate *surrogate = calloc(1, sizeof(*surrogate));
	size_t entries = 1; /* one to spare */

	if (surrogate == NULL)
		return NULL;
	surrogate->knobs = knobs;
	for (size_t j = 0; j < knobs; j++) {
		surrogate->rates.rate[j] = rate_usual;
		surrogate->rates.order[j] = order_usual;
		for (size_t i = 0; i < count; i++)
			if (row[i * knobs + j] >= surrogate->values[j])
				surrogate->values[j] = (size_t)row[i * knobs + j] + 1;
		entries += surrogate->values[j];
	}
	if (!allocate(surrogate, count, entries)) {
		ft_surrogate_free(surrogate);
		return NULL;
	}
	for (size_t j = 0, at = 0; j < knobs; at += surrogate->values[j++]) {
		surrogate->correlation[j] = &surrogate->tables[at];
		for (size_t i = 0; i < count; i++)
			surrogate->all.value[j * count + i] = row[i * knobs + j];
	}
	surrogate->all.count = count;
	set_tables(surrogate, &surrogate->rates);
	return surrogate;
}

void ft_surrogate_free(struct ft_surrogate *surrogate)
{
	if (surrogate == NULL)
		return;
	free(surrogate->tables);
	free(surrogate->seen_member);
	free(surrogate->pool_member);
	free(surrogate->factor);
	free(surrogate->solved);
	free(surrogate->variance);
	free(surrogate->mean);
	free(surrogate->near);
	free(surrogate->all.value);
	free(surrogate->seen.value);
	free(surrogate->pool.value);
	free(surrogate);
}

/* ---- correlations and their factorisation ---- */

/* Of a member with each of `columns`. */
static void correlate(
        struct ft_surrogate *surrogate, uint32_t member, const struct columns *columns, float *out)
{
	for (size_t i = 0; i < columns->count; i++)
		out[i] = 1;
	for (size_t j = 0; j < surrogate->knobs; j++) {
		const uint16_t *value = &columns->value[j * columns->stride];
		const float *correlation = surrogate->correlation[j];
		int own = surrogate->all.value[j * surrogate->all.stride + member];

		for (size_t i = 0; i < columns->count; i++)
			out[i] *= correlation[abs(value[i] - own)];
	}
	surrogate->work += surrogate->knobs * columns->count;
}

/* Solves factor * x = x for the first `count`. */
static void solve(struct ft_surrogate *surrogate, double *x, size_t count)
{
	for (size_t j = 0; j < count; j++) {
		const double *column = &surrogate->factor[j * SEEN_MAX];
		double part = x[j] /= column[j];

		for (size_t k = j + 1; k < count; k++)
			x[k] -= part * column[k];
	}
	surrogate->work += count * count / 2;
}

/* Adds a member to those seen, and its row to the factor. */
static void factor_add(struct ft_surrogate *surrogate, uint32_t member)
{
	size_t at = surrogate->seen.count;
	double row[SEEN_MAX], rest = 1 + nugget;

	correlate(surrogate, member, &surrogate->seen, surrogate->near);
	for (size_t i = 0; i < at; i++)
		row[i] = surrogate->near[i];
	solve(surrogate, row, at);
	for (size_t i = 0; i < at; i++) {
		surrogate->factor[i * SEEN_MAX + at] = row[i];
		rest -= row[i] * row[i];
	}
	surrogate->factor[at * SEEN_MAX + at] = sqrt(fmax(rest, nugget / 2));
	surrogate->seen_member[at] = member;
	columns_add(surrogate, &surrogate->seen, member);
}

/* What is left of the pool's variance after those seen before `at` and this one. */
static void pool_add(struct ft_surrogate *surrogate, size_t at)
{
	size_t count = surrogate->pool.count;
	float *row = &surrogate->solved[at * POOL_MAX];
	float last = (float)(1 / surrogate->factor[at * SEEN_MAX + at]);

	correlate(surrogate, surrogate->seen_member[at], &surrogate->pool, row);
	for (size_t from = 0; from < count; from += BLOCK) {
		size_t to = from + BLOCK < count ? from + BLOCK : count;

		for (size_t k = 0; k < at; k++) {
			const float *other = &surrogate->solved[k * POOL_MAX];
			float part = (float)surrogate->factor[k * SEEN_MAX + at];

			for (size_t i = from; i < to; i++)
				row[i] -= part * other[i];
		}
		for (size_t i = from; i < to; i++) {
			row[i] *= last;
			surrogate->variance[i] -= row[i] * row[i];
		}
	}
	surrogate->work += at * count;
}

void ft_surrogate_see(struct ft_surrogate *surrogate, uint32_t member)
{
	factor_add(surrogate, member);
	pool_add(surrogate, surrogate->seen.count - 1);
}

size_t ft_surrogate_seen(const struct ft_surrogate *surrogate)
{
	return surrogate->seen.count;
}

uint32_t ft_surrogate_seen_at(const struct ft_surrogate *surrogate, size_t at)
{
	return surrogate->seen_member[at];
}

/* ---- fitting ---- */

/* How badly the rates explain the values of those seen: the negated logarithm of their likelihood, with a prior. */
static double misfit(struct ft_surrogate *surrogate, const struct rates *rates, const uint32_t *member,
        const double *value, size_t count)
{
	double determinant = 0, prior = 0, squares = 0;

	set_tables(surrogate, rates);
	surrogate->seen.count = 0;
	for (size_t i = 0; i < count; i++)
		factor_add(surrogate, member[i]);
	ft_surrogate_value(surrogate, value);
	squares = surrogate->scale * (double)count;
	for (size_t i = 0; i < count; i++)
		determinant += log(surrogate->factor[i * SEEN_MAX + i]);
	for (size_t j = 0; j < surrogate->knobs; j++) {
		double away = log(rates->rate[j] / rate_usual);
		prior += rate_prior * away * away;
	}
	return 0.5 * (double)count * log(squares / (double)count) + determinant + prior;
}

/* One of the STEPS from a knob's rates to their neighbours. False: it leads nowhere. */
static bool move(const struct ft_surrogate *surrogate, struct rates *rates, size_t knob, size_t step)
{
	double *rate = &rates->rate[knob], *order = &rates->order[knob];

	if (step < 2) {
		*rate *= step == 0 ? 1 / rate_step : rate_step;
		return surrogate->values[knob] > 1 && *rate > rate_least && *rate < rate_most;
	}
	*order += step == 2 ? -order_step : order_step;
	return surrogate->values[knob] > 2 && *order > order_least && *order < order_most;
}

void ft_surrogate_fit(
        struct ft_surrogate *surrogate, const uint32_t *member, const double *value, size_t count)
{
	struct rates *best = &surrogate->rates;
	double least;

	surrogate->pool.count = 0;
	least = misfit(surrogate, best, member, value, count);
	for (size_t step = 0; step < FIT_PASSES * surrogate->knobs * STEPS; step++) {
		struct rates other = *best;
		double now;

		if (!move(surrogate, &other, step / STEPS % surrogate->knobs, step % STEPS))
			continue;
		now = misfit(surrogate, &other, member, value, count);
		if (now < least) {
			least = now;
			*best = other;
		}
	}
	set_tables(surrogate, best);
	surrogate->seen.count = 0;
}

/* ---- what is expected ---- */

/* Solves for the values and, beside them, for a trend: a constant that is estimated along. */
void ft_surrogate_value(struct ft_surrogate *surrogate, const double *value)
{
	size_t count = surrogate->seen.count;
	double *ones = surrogate->ones, *known = surrogate->known, *weight = surrogate->weight;
	double across = 0, along = 0, squares = 0;

	for (size_t i = 0; i < count; i++) {
		ones[i] = 1;
		known[i] = isnan(value[i]) ? 0 : value[i];
	}
	for (size_t j = 0; j < count; j++) {
		const double *column = &surrogate->factor[j * SEEN_MAX];
		double one = ones[j] /= column[j];
		/* As expected: nothing remains of it when the trend is taken away. */
		double part = known[j] = isnan(value[j]) ? across / along * one : known[j] / column[j];

		for (size_t k = j + 1; k < count; k++) {
			ones[k] -= one * column[k];
			known[k] -= part * column[k];
		}
		across += isnan(value[j]) ? 0 : one * part;
		along += isnan(value[j]) ? 0 : one * one;
	}
	surrogate->trend = across / along;
	for (size_t i = 0; i < count; i++) {
		weight[i] = known[i] - surrogate->trend * ones[i];
		squares += weight[i] * weight[i];
	}
	surrogate->scale = squares / (double)count + 1e-12;
	surrogate->work += count * count;

	for (size_t i = 0; i < surrogate->pool.count; i++)
		surrogate->mean[i] = (float)surrogate->trend;
	for (size_t from = 0; from < surrogate->pool.count; from += BLOCK) {
		size_t to = from + BLOCK < surrogate->pool.count ? from + BLOCK : surrogate->pool.count;

		for (size_t k = 0; k < count; k++) {
			const float *row = &surrogate->solved[k * POOL_MAX];
			float part = (float)weight[k];

			for (size_t i = from; i < to; i++)
				surrogate->mean[i] += part * row[i];
		}
	}
	surrogate->work += count * surrogate->pool.count;
}

void ft_surrogate_mean_of_all(struct ft_surrogate *surrogate, float *mean)
{
	size_t count = surrogate->seen.count, members = surrogate->all.count;
	double weight[SEEN_MAX];

	memcpy(weight, surrogate->weight, sizeof(weight));
	for (size_t j = count; j-- > 0;) {
		const double *column = &surrogate->factor[j * SEEN_MAX];

		for (size_t k = j + 1; k < count; k++)
			weight[j] -= column[k] * weight[k];
		weight[j] /= column[j];
	}
	for (size_t i = 0; i < members; i++)
		mean[i] = (float)surrogate->trend;
	for (size_t k = 0; k < count; k++) {
		float part = (float)weight[k];

		correlate(surrogate, surrogate->seen_member[k], &surrogate->all, surrogate->near);
		for (size_t i = 0; i < members; i++)
			mean[i] += part * surrogate->near[i];
	}
	surrogate->work += count * members;
}

void ft_surrogate_set_pool(struct ft_surrogate *surrogate, const uint32_t *member, size_t count)
{
	surrogate->pool.count = 0;
	for (size_t i = 0; i < count; i++) {
		surrogate->pool_member[i] = member[i];
		surrogate->variance[i] = 1;
		columns_add(surrogate, &surrogate->pool, member[i]);
	}
	for (size_t i = 0; i < surrogate->seen.count; i++)
		pool_add(surrogate, i);
}

size_t ft_surrogate_pool(const struct ft_surrogate *surrogate, const uint32_t **member)
{
	*member = surrogate->pool_member;
	return surrogate->pool.count;
}

const float *ft_surrogate_mean(const struct ft_surrogate *surrogate)
{
	return surrogate->mean;
}

const float *ft_surrogate_variance(const struct ft_surrogate *surrogate)
{
	return surrogate->variance;
}

double ft_surrogate_scale(const struct ft_surrogate *surrogate)
{
	return surrogate->scale;
}

double ft_surrogate_distance(const struct ft_surrogate *surrogate, uint32_t a, uint32_t b)
{
	const uint16_t *value = surrogate->all.value;
	double distance = 0;

	for (size_t j = 0; j < surrogate->knobs; j++, value += surrogate->all.stride)
		if (value[a] != value[b])
			distance += abs(value[a] - value[b]) / (double)(surrogate->values[j] - 1);
	return distance;
}

size_t ft_surrogate_differ(const struct ft_surrogate *surrogate, uint32_t a, uint32_t b)
{
	const uint16_t *value = surrogate->all.value;
	size_t differ = 0;

	for (size_t j = 0; j < surrogate->knobs; j++, value += surrogate->all.stride)
		differ += value[a] != value[b];
	return differ;
}

uint64_t ft_surrogate_work(const struct ft_surrogate *surrogate)
{
	return surrogate->work;
}
