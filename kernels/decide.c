#include "kernels/decide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/messages.h"

/* DECISION.md gives the rule in words, with its reasons. Only + - * / and sqrt touch a sample, always on
 * sorted values and without contraction, so that every IEEE machine gives the same bits in any order of
 * rounds. */

const struct ft_rule ft_rule_usual = {.band_ppm = 5000, .min_rounds = 7, .max_rounds = 60};

enum {
	ROUNDS_LEAST = 5,   /* no rule may decide on fewer */
	TRIM_PART = 5,      /* a fifth is cut off at either end */
	POOL_EACH = 2,      /* degrees of freedom that another pair's scatter adds */
	POOL_MOST = 8,      /* and all of them together */
	BEST_STEPS = 4,     /* changes of mind on the way to the best */
	STUDENT_TABLE = 30, /* below are the quantiles up to here */
	INTERVAL_LEAST = 6, /* below, the whole range is narrower than a 95 % interval of the median */
};

/* Two configs on the rounds that both have: s = 2(a-b)/(a+b), which is the ratio's logarithm but for its
 * cube over 12, bounded by ±2, and exact to compute. */
struct pair {
	uint32_t rounds;
	double shift;    /* trimmed mean of s */
	double variance; /* of the shift, times rounds */
	double freedom;  /* degrees of freedom of the variance */
};

/* What the others' scatter says about one pair's, where few rounds say little. */
struct pool {
	double variance;
	double freedom;
};

static void sort_doubles(double *value, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		double moving = value[i];
		size_t j = i;
		for (; j > 0 && value[j - 1] > moving; j--)
			value[j] = value[j - 1];
		value[j] = moving;
	}
}

static void compare(const uint64_t *a, const uint64_t *b, size_t rounds, struct pair *pair)
{
	double s[FT_ROUNDS_MAX];
	size_t n = 0;
	*pair = (struct pair){0};
	if (!a || !b)
		return;
	for (size_t r = 0; r < rounds; r++) {
		if (a[r] && b[r])
			s[n++] = 2 * ((double)a[r] - (double)b[r]) / ((double)a[r] + (double)b[r]);
	}
	if (!n)
		return;
	sort_doubles(s, n);
	size_t cut = n / TRIM_PART;
	size_t kept = n - 2 * cut;
	double sum = 0;
	for (size_t i = cut; i < n - cut; i++)
		sum += s[i];
	pair->rounds = (uint32_t)n;
	pair->shift = sum / (double)kept;
	if (kept < 2)
		return;
	/* Tukey and McLaughlin: what was cut off counts as the last value kept. */
	double low = s[cut];
	double high = s[n - cut - 1];
	double mean = (sum + (double)cut * (low + high)) / (double)n;
	double squares = (double)cut * ((low - mean) * (low - mean) + (high - mean) * (high - mean));
	for (size_t i = cut; i < n - cut; i++)
		squares += (s[i] - mean) * (s[i] - mean);
	pair->freedom = (double)(kept - 1);
	pair->variance = squares / ((double)kept * pair->freedom) * (double)n;
}

/* The quantile of Student's t that a mean passes by chance once in 2,000. */
static double student(double freedom)
{
	static const double quantile[STUDENT_TABLE] = {636.62, 31.60, 12.92, 8.610, 6.869, 5.959, 5.408,
	        5.041, 4.781, 4.587, 4.437, 4.318, 4.221, 4.140, 4.073, 4.015, 3.965, 3.922, 3.883, 3.850,
	        3.819, 3.792, 3.768, 3.745, 3.725, 3.707, 3.690, 3.674, 3.659, 3.646};
	if (freedom < 1)
		return INFINITY;
	if (freedom <= STUDENT_TABLE)
		return quantile[(size_t)freedom - 1];
	return 3.291 + 10.65 / freedom;
}

static void interval(const struct pair *pair, const struct pool *pool, double *low, double *high)
{
	*low = -2;
	*high = 2;
	if (!pair->rounds || pair->freedom < 1)
		return;
	double freedom = pair->freedom + pool->freedom;
	double variance = (pair->freedom * pair->variance + pool->freedom * pool->variance) / freedom;
	/* Never less than its own: a config may be noisier than the rest. */
	if (variance < pair->variance)
		variance = pair->variance;
	double margin = student(freedom) * sqrt(variance / (double)pair->rounds);
	*low = fmax(pair->shift - margin, -2);
	*high = fmin(pair->shift + margin, 2);
}

static double ratio_of(double shift)
{
	return shift < 2 ? (2 + shift) / (2 - shift) : INFINITY;
}

static uint64_t middle(const uint64_t *sorted, size_t count)
{
	uint64_t low = sorted[(count - 1) / 2];
	return low + (sorted[count / 2] - low) / 2;
}

/* The median and, by order statistics, half of its 95 % interval: the samples at places k and n+1-k for the
 * largest k with P(Binomial(n, 1/2) < k) of at most 2.5 %. */
static void summarise(const uint64_t *sample_ps, size_t rounds, struct ft_standing *standing)
{
	uint64_t sorted[FT_ROUNDS_MAX];
	size_t n = 0;
	if (!sample_ps)
		return;
	for (size_t r = 0; r < rounds; r++) {
		uint64_t moving = sample_ps[r];
		if (!moving)
			continue;
		size_t j = n++;
		for (; j > 0 && sorted[j - 1] > moving; j--)
			sorted[j] = sorted[j - 1];
		sorted[j] = moving;
	}
	standing->rounds = (uint32_t)n;
	if (!n)
		return;
	standing->median_ps = middle(sorted, n);
	size_t place = 0;
	if (n >= INTERVAL_LEAST) {
		double term = 1; /* P(Binomial = place), which starts at 2^-n */
		for (size_t i = 0; i < n; i++)
			term /= 2;
		double below = term;
		while (below + term * (double)(n - place) / (double)(place + 1) <= 0.025) {
			term = term * (double)(n - place) / (double)(place + 1);
			below += term;
			place++;
		}
	}
	standing->ci_ps = (sorted[n - 1 - place] - sorted[place]) / 2;
}

static bool can_win(const struct ft_contender *contender)
{
	return !contender->out && !contender->dropped;
}

/* The index at a place of the tie rule's order: the default, then the rest as they stand. */
static size_t in_order(size_t place, size_t count, size_t standard)
{
	if (standard >= count)
		return place;
	if (place == 0)
		return standard;
	return place <= standard ? place - 1 : place;
}

/* Compares all with a reference; the fastest by that among those that can win, or the reference. */
static size_t compare_all(const struct ft_contender *contender, size_t count, size_t standard, size_t rounds,
        size_t reference, struct pair *pair)
{
	size_t fastest = reference;
	double least = 0;
	for (size_t place = 0; place < count; place++) {
		size_t i = in_order(place, count, standard);
		pair[i] = (struct pair){0};
		if (i == reference || contender[i].out)
			continue;
		compare(contender[i].sample_ps, contender[reference].sample_ps, rounds, &pair[i]);
		if (can_win(&contender[i]) && pair[i].rounds && pair[i].shift < least) {
			least = pair[i].shift;
			fastest = i;
		}
	}
	return fastest;
}

/* The fastest among those that can win, by paired rounds; leaves all pairs against it in `pair`. Returns
 * count if nobody that can win has a sample. */
static size_t find_best(const struct ft_contender *contender, size_t count, size_t standard, size_t rounds,
        const struct ft_standing *standing, struct pair *pair)
{
	size_t best = count;
	for (size_t place = 0; place < count; place++) {
		size_t i = in_order(place, count, standard);
		if (can_win(&contender[i]) && standing[i].rounds &&
		        (best == count || standing[i].rounds > standing[best].rounds))
			best = i;
	}
	if (best == count)
		return best;
	/* Pairs need not agree with each other, so the walk is bounded; it mostly ends after one step. */
	for (int step = 0;; step++) {
		size_t faster = compare_all(contender, count, standard, rounds, best, pair);
		if (faster == best || step == BEST_STEPS)
			return best;
		best = faster;
	}
}

static void pool_scatter(const struct pair *pair, size_t count, struct pool *pool)
{
	double variance[FT_SPACE_MAX];
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		if (pair[i].rounds >= ROUNDS_LEAST)
			variance[n++] = pair[i].variance;
	}
	*pool = (struct pool){0};
	if (n < 2)
		return;
	sort_doubles(variance, n);
	pool->variance = variance[n / 2];
	double freedom = (double)((n - 1) * POOL_EACH);
	pool->freedom = freedom < POOL_MOST ? freedom : POOL_MOST;
}

/* Whether a candidate is within the band of every one that can win. */
static bool surely_tied(const struct ft_contender *contender, const struct ft_standing *standing,
        size_t count, size_t candidate, size_t rounds, uint32_t min_rounds, double edge,
        const struct pool *pool)
{
	for (size_t j = 0; j < count; j++) {
		struct pair pair;
		double low;
		double high;
		if (j == candidate || !can_win(&contender[j]) || standing[j].drop)
			continue;
		compare(contender[candidate].sample_ps, contender[j].sample_ps, rounds, &pair);
		interval(&pair, pool, &low, &high);
		if (pair.rounds < min_rounds || high > edge)
			return false;
	}
	return true;
}

static void explain(const struct ft_rule *rule, const struct ft_standing *standing, size_t alive,
        size_t standard, struct ft_decision *decision)
{
	size_t winner = decision->winner;
	const char *who = winner == standard ? "the default" : "it";
	const char *doubt = decision->conclusive ? "" : "not settled: ";
	double band = rule->band_ppm / 1e4;
	if (alive == 1)
		snprintf(decision->reason, sizeof decision->reason, "%s%s is the only one left", doubt, who);
	else if (winner == decision->best)
		snprintf(decision->reason, sizeof decision->reason,
		        "%s%s is the fastest, and first by the tie rule of those within %.3g %%", doubt, who,
		        band);
	else
		snprintf(decision->reason, sizeof decision->reason,
		        "%s%s is within %.3g %% of the fastest (%+.2f %%), and first by the tie rule", doubt,
		        who, band, (standing[winner].ratio - 1) * 100);
}

static void settle(struct ft_decision *decision, size_t winner, bool conclusive)
{
	decision->verdict = FT_VERDICT_WINNER;
	decision->winner = winner;
	decision->conclusive = conclusive;
}

void ft_decide(const struct ft_rule *rule, const struct ft_contender *contender, size_t count,
        size_t standard, size_t rounds, bool ended, struct ft_standing *standing,
        struct ft_decision *decision)
{
	struct pair pair[FT_SPACE_MAX];
	struct pool pool;
	size_t alive = 0;
	uint32_t min_rounds = rule->min_rounds > ROUNDS_LEAST ? rule->min_rounds : ROUNDS_LEAST;
	uint32_t max_rounds = rule->max_rounds < FT_ROUNDS_MAX ? rule->max_rounds : FT_ROUNDS_MAX;

	*decision = (struct ft_decision){.verdict = FT_VERDICT_NONE};
	for (size_t i = 0; i < count; i++)
		standing[i] = (struct ft_standing){0};
	if (count > FT_SPACE_MAX) {
		snprintf(decision->reason, sizeof decision->reason, "%zu configs, more than %d", count,
		        FT_SPACE_MAX);
		return;
	}
	if (rounds > FT_ROUNDS_MAX)
		rounds = FT_ROUNDS_MAX;
	for (size_t i = 0; i < count; i++) {
		summarise(contender[i].sample_ps, rounds, &standing[i]);
		alive += can_win(&contender[i]);
	}
	if (!alive) {
		snprintf(decision->reason, sizeof decision->reason, "no config is left that can win");
		return;
	}
	bool last = ended || rounds >= max_rounds;

	size_t best = find_best(contender, count, standard, rounds, standing, pair);
	if (best == count) {
		decision->verdict = last ? FT_VERDICT_NONE : FT_VERDICT_MEASURE;
		snprintf(decision->reason, sizeof decision->reason, "nothing was measured%s",
		        last ? "" : " yet");
		return;
	}
	decision->best = best;
	pool_scatter(pair, count, &pool);

	double band = rule->band_ppm / 1e6;
	double edge = 2 * band / (2 + band);
	for (size_t i = 0; i < count; i++) {
		struct ft_standing *mine = &standing[i];
		double low;
		double high;
		if (i == best) {
			mine->ratio = mine->ratio_low = mine->ratio_high = 1;
			mine->tied = true;
			continue;
		}
		if (!pair[i].rounds)
			continue;
		interval(&pair[i], &pool, &low, &high);
		mine->ratio = ratio_of(pair[i].shift);
		mine->ratio_low = ratio_of(low);
		mine->ratio_high = ratio_of(high);
		if (!can_win(&contender[i]))
			continue;
		mine->tied = pair[i].shift <= edge;
		mine->drop = pair[i].rounds >= min_rounds && low > edge;
	}

	/* The first in order that is not clearly worse decides: nobody after it matters but to say how fast
	 * the fastest is. */
	size_t left = 0;
	size_t first = count;  /* not to be dropped */
	size_t likely = count; /* tied as far as is known */
	for (size_t place = 0; place < count; place++) {
		size_t i = in_order(place, count, standard);
		if (!can_win(&contender[i]) || standing[i].drop)
			continue;
		left++;
		if (first == count)
			first = i;
		if (likely == count && standing[i].tied)
			likely = i;
	}
	if (standing[first].rounds >= min_rounds &&
	        surely_tied(contender, standing, count, first, rounds, min_rounds, edge, &pool))
		settle(decision, first, true);
	else if (last)
		settle(decision, likely, false);
	else
		decision->verdict = FT_VERDICT_MEASURE;
	if (decision->verdict == FT_VERDICT_MEASURE) {
		snprintf(decision->reason, sizeof decision->reason, "%zu of %zu still race", left, count);
		return;
	}
	standing[decision->winner].tied = true;
	explain(rule, standing, left, standard, decision);
}
