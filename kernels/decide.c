#include "kernels/decide.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/messages.h"

/* DECISION.md gives the rule in words, with its reasons. Only + - * / and sqrt touch a sample, always on
 * sorted values and without contraction, so that every IEEE machine gives the same bits in any order of
 * rounds. */

const struct ft_rule ft_rule_usual = {.band_ppm = 5000, .min_rounds = 7, .max_rounds = 120};

enum {
	ROUNDS_LEAST = 5,   /* no rule may decide on fewer */
	TRIM_PART = 5,      /* a fifth is cut off at either end */
	POOL_EACH = 2,      /* degrees of freedom that another pair's scatter adds */
	POOL_MOST = 8,      /* and all of them together */
	FREEDOM_LEAST = 8,  /* of a scatter that may decide */
	BEST_STEPS = 4,     /* changes of mind on the way to the best */
	STUDENT_TABLE = 30, /* below are the quantiles up to here */
	INTERVAL_LEAST = 6, /* below, the whole range is narrower than a 95 % interval of the median */
	ROUNDS_FACTOR = 2,  /* at the most so many times max_rounds, if the device is slow in some */
};

/* A round counts unless most configs took so much longer in it than they can. */
static const double slow_from = 1.05;

/* Rounding in a mean of equal values moves it by less. */
static const double EDGE_SLACK = 1e-12;

/* Whether a round has a sample of it: none takes less than any launch does. */
static bool is_sample(uint64_t sample_ps)
{
	return sample_ps >= FT_SAMPLE_LEAST_PS;
}

/* What the others' scatter says about one pair's, where few rounds say little. */
struct pool {
	double variance;
	double freedom;
};

/* Shell's: a late round sorts thousands of numbers, and the daemon's loop waits for it. */
static void sort_doubles(double *value, size_t count)
{
	static const size_t gaps[] = {57, 23, 10, 4, 1};
	for (size_t k = 0; k < sizeof gaps / sizeof gaps[0]; k++) {
		size_t gap = gaps[k];
		for (size_t i = gap; i < count; i++) {
			double moving = value[i];
			size_t j = i;
			for (; j >= gap && value[j - gap] > moving; j -= gap)
				value[j] = value[j - gap];
			value[j] = moving;
		}
	}
}

static void compare(
        const uint64_t *a, const uint64_t *b, const bool *slow, size_t rounds, struct ft_pair *pair)
{
	double s[FT_ROUNDS_MAX];
	size_t n = 0;
	*pair = (struct ft_pair){0};
	if (!a || !b)
		return;
	for (size_t r = 0; r < rounds; r++) {
		if (is_sample(a[r]) && is_sample(b[r]) && !(slow && slow[r]))
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
	pair->scattered = s[n - 1] > s[0];
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

/* The quantile of Student's t that a mean passes by chance once in 400. */
static double student(double freedom)
{
	static const double quantile[STUDENT_TABLE] = {127.3, 14.09, 7.453, 5.598, 4.773, 4.317, 4.029, 3.833,
	        3.690, 3.581, 3.497, 3.428, 3.372, 3.326, 3.286, 3.252, 3.222, 3.197, 3.174, 3.153, 3.135,
	        3.119, 3.104, 3.091, 3.078, 3.067, 3.057, 3.047, 3.038, 3.030};
	if (freedom < 1)
		return INFINITY;
	if (freedom <= STUDENT_TABLE)
		return quantile[(size_t)freedom - 1];
	return 2.807 + 6.69 / freedom; /* within 0.001 of the quantile */
}

static void interval(const struct ft_pair *pair, const struct pool *pool, double *low, double *high)
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
	static const double unknown = 1e9; /* finite, since it may be printed */
	return fmin((2 + shift) / (2 - shift), unknown);
}

static uint64_t middle(const uint64_t *sorted, size_t count)
{
	uint64_t low = sorted[(count - 1) / 2];
	return low + (sorted[count / 2] - low) / 2;
}

/* The median and, by order statistics, half of its 95 % interval: the samples at places k and n+1-k for the
 * largest k with P(Binomial(n, 1/2) < k) of at most 2.5 %. */
static void summarise(
        const uint64_t *sample_ps, const bool *slow, size_t rounds, struct ft_standing *standing)
{
	uint64_t sorted[FT_ROUNDS_MAX];
	size_t n = 0;
	if (!sample_ps)
		return;
	for (size_t r = 0; r < rounds; r++) {
		uint64_t moving = sample_ps[r];
		if (!is_sample(moving) || (slow && slow[r]))
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

/* All that a decision looks at. A standing's `drop` says who went in this very decision. */
struct race {
	const struct ft_contender *contender;
	struct ft_standing *standing;
	size_t count, default_index, rounds;
	uint32_t min_rounds;
	uint32_t enough;          /* rounds shared with the best, to be tied with it or take its place */
	double edge;              /* of the band, as a shift */
	bool slow[FT_ROUNDS_MAX]; /* rounds that do not count */
	uint32_t measured[FT_SPACE_MAX]; /* samples of each, slow or not */
	uint64_t pace_ps[FT_SPACE_MAX];  /* that each can keep up; 0: unknown */
	size_t best;
	struct pool pool;
};

static bool can_win(const struct race *race, size_t i)
{
	return !race->contender[i].out && !race->contender[i].dropped && !race->standing[i].drop;
}

/* ---- which rounds count ---- */

/* The time that a config kept within in a quarter of its rounds, or in just over half of min_rounds if that is more. */
static uint64_t pace_of(const struct race *race, size_t i)
{
	const uint64_t *sample_ps = race->contender[i].sample_ps;
	const uint32_t quarter = race->measured[i] / 4 + 1;
	const uint32_t half = race->min_rounds / 2 + 1;
	const size_t wanted = quarter > half ? quarter : half;
	uint64_t least[FT_ROUNDS_MAX]; /* of all, as many as wanted, sorted */
	size_t n = 0;
	for (size_t r = 0; sample_ps && r < race->rounds; r++) {
		uint64_t moving = sample_ps[r];
		if (!is_sample(moving) || (n == wanted && moving >= least[n - 1]))
			continue;
		size_t j = n < wanted ? n++ : n - 1;
		for (; j > 0 && least[j - 1] > moving; j--)
			least[j] = least[j - 1];
		least[j] = moving;
	}
	return n < wanted ? 0 : least[n - 1];
}

/* A neighbour on the device or a clock held down slows most configs at once, and not all by as much, so that
 * pairs do not cancel it. Those that came late or were brought back say nothing of rounds that they were not in. */
static void find_slow(struct race *race)
{
	uint32_t most = 0;
	uint32_t counting = 0;
	size_t timed = 0;
	bool known = false;
	for (size_t i = 0; i < race->count; i++) {
		timed += race->measured[i] > 0;
		if (can_win(race, i) && race->measured[i] > most)
			most = race->measured[i];
	}
	for (size_t r = 0; r < race->rounds; r++) {
		size_t asked = 0;
		size_t slower = 0;
		for (size_t i = 0; i < race->count; i++) {
			const uint64_t *sample_ps = race->contender[i].sample_ps;
			if (!can_win(race, i) || 2 * race->measured[i] <= most || !race->pace_ps[i] ||
			        !is_sample(sample_ps[r]))
				continue;
			asked++;
			slower += (double)sample_ps[r] > slow_from * (double)race->pace_ps[i];
		}
		race->slow[r] = 2 * slower > asked;
		counting += !race->slow[r];
	}
	/* Slow rounds have to do where there are too few others, nobody to compare with, or others that only those were in
	 * who cannot win any more: someone's must count. */
	for (size_t i = 0; i < race->count && !known; i++) {
		for (size_t r = 0; can_win(race, i) && race->measured[i] > 0 && r < race->rounds; r++)
			known = known || (is_sample(race->contender[i].sample_ps[r]) && !race->slow[r]);
	}
	if (counting < race->min_rounds || timed < 2 || !known)
		memset(race->slow, 0, sizeof race->slow);
}

/* What was dropped mostly in rounds that do not count was not dropped for what it is. */
static bool is_to_be_revived(const struct race *race, size_t i)
{
	uint32_t slow = 0;
	if (race->contender[i].out || (!race->contender[i].dropped && !race->standing[i].drop))
		return false;
	for (size_t r = 0; r < race->rounds; r++)
		slow += race->slow[r] && race->contender[i].sample_ps &&
		        is_sample(race->contender[i].sample_ps[r]);
	return 2 * slow > race->measured[i];
}

static void summarise_all(struct race *race)
{
	for (size_t i = 0; i < race->count; i++) {
		const uint64_t *sample_ps = race->contender[i].sample_ps;
		struct ft_standing before = race->standing[i];
		race->standing[i] = (struct ft_standing){0};
		/* Who went has the figures that it went for, whoever is the best after it. */
		if (before.drop)
			race->standing[i] = (struct ft_standing){.drop = true,
			        .ratio = before.ratio,
			        .ratio_low = before.ratio_low,
			        .ratio_high = before.ratio_high};
		summarise(sample_ps, race->slow, race->rounds, &race->standing[i]);
		/* Slow as they were, they are better than no time. */
		if (!race->standing[i].rounds && race->measured[i]) {
			summarise(sample_ps, NULL, race->rounds, &race->standing[i]);
			race->standing[i].rounds = 0;
		}
	}
}

/* ---- standings ---- */

/* The index at a place of the tie rule's order: the default, then the rest as they stand. */
static size_t in_order(const struct race *race, size_t place)
{
	if (race->default_index >= race->count)
		return place;
	if (place == 0)
		return race->default_index;
	return place <= race->default_index ? place - 1 : place;
}

/* Of those that can win; count if none of them has a sample. */
static size_t most_measured(const struct race *race)
{
	const struct ft_standing *standing = race->standing;
	size_t most = race->count;
	for (size_t place = 0; place < race->count; place++) {
		size_t i = in_order(race, place);
		if (can_win(race, i) && standing[i].rounds &&
		        (most == race->count || standing[i].rounds > standing[most].rounds))
			most = i;
	}
	return most;
}

/* Compares all with the best so far; the fastest by that among those that can win, or the best itself. */
static size_t compare_all(struct race *race)
{
	size_t fastest = race->best;
	double least = 0;
	for (size_t place = 0; place < race->count; place++) {
		size_t i = in_order(race, place);
		struct ft_pair *pair = &race->standing[i].pair;
		*pair = (struct ft_pair){0};
		if (i == race->best || race->contender[i].out)
			continue;
		compare(race->contender[i].sample_ps, race->contender[race->best].sample_ps, race->slow,
		        race->rounds, pair);
		if (can_win(race, i) && pair->rounds >= race->enough && pair->shift < least) {
			least = pair->shift;
			fastest = i;
		}
	}
	return fastest;
}

/* The fastest among those that can win, by paired rounds; leaves all pairs against it. */
static void find_best(struct race *race)
{
	race->best = most_measured(race);
	/* A few lucky rounds of a newcomer make it neither the best nor the winner. */
	race->enough = race->standing[race->best].rounds;
	if (race->enough > race->min_rounds)
		race->enough = race->min_rounds;
	/* Pairs need not agree with each other, so the walk is bounded; it mostly ends after one step. */
	for (int step = 0;; step++) {
		size_t faster = compare_all(race);
		if (faster == race->best || step == BEST_STEPS)
			return;
		race->best = faster;
	}
}

static void pool_scatter(struct race *race)
{
	double variance[FT_SPACE_MAX];
	size_t n = 0;
	for (size_t i = 0; i < race->count; i++) {
		if (race->standing[i].pair.rounds >= ROUNDS_LEAST)
			variance[n++] = race->standing[i].pair.variance;
	}
	race->pool = (struct pool){0};
	if (n < 2)
		return;
	sort_doubles(variance, n);
	race->pool.variance = variance[n / 2];
	double freedom = (double)((n - 1) * POOL_EACH);
	race->pool.freedom = freedom < POOL_MOST ? freedom : POOL_MOST;
}

/* Whether a pair's interval may decide anything. Seven rounds of a lone pair show too little of its scatter;
 * with a few more configs they do. */
static bool speaks(const struct race *race, const struct ft_pair *pair)
{
	return pair->rounds >= race->min_rounds &&
	        (!pair->scattered || pair->freedom + race->pool.freedom >= FREEDOM_LEAST);
}

/* Everyone's standing to the best; true if someone is to be dropped for it. */
static bool place_all(struct race *race)
{
	bool dropped = false;
	for (size_t i = 0; i < race->count; i++) {
		struct ft_standing *mine = &race->standing[i];
		const struct ft_pair *pair = &race->standing[i].pair;
		double low;
		double high;
		if (mine->drop)
			continue;
		mine->tied = i == race->best;
		mine->ratio = mine->ratio_low = mine->ratio_high = mine->tied ? 1 : 0;
		if (!pair->rounds)
			continue;
		interval(pair, &race->pool, &low, &high);
		mine->ratio = ratio_of(pair->shift);
		mine->ratio_low = ratio_of(low);
		mine->ratio_high = ratio_of(high);
		if (!can_win(race, i))
			continue;
		mine->tied = pair->rounds >= race->enough && pair->shift <= race->edge;
		mine->drop = speaks(race, pair) && low > race->edge;
		dropped = dropped || mine->drop;
	}
	return dropped;
}

/* Whether a candidate is within the band of every one that can win. */
static bool surely_tied(const struct race *race, size_t candidate)
{
	for (size_t j = 0; j < race->count; j++) {
		struct ft_pair pair;
		double low;
		double high;
		if (j == candidate || !can_win(race, j))
			continue;
		compare(race->contender[candidate].sample_ps, race->contender[j].sample_ps, race->slow,
		        race->rounds, &pair);
		interval(&pair, &race->pool, &low, &high);
		if (!speaks(race, &pair) || high > race->edge)
			return false;
	}
	return race->standing[candidate].rounds >= race->min_rounds;
}

static void explain(const struct race *race, const struct ft_rule *rule, size_t left, size_t tied, bool ended,
        bool complete, struct ft_decision *decision)
{
	size_t winner = decision->winner;
	const char *who = winner == race->default_index ? "the default" : "it";
	const char *doubt = "";
	double band = rule->band_ppm / 1e4;
	if (!decision->conclusive)
		doubt = ended ? "unsettled when it was ended: " : "unsettled after all rounds: ";
	if (!decision->conclusive && winner == race->default_index && !race->standing[winner].tied)
		snprintf(decision->reason, sizeof decision->reason,
		        "%sthe default stays, nothing is clearly faster (%+.2f %% to the fastest, as far as "
		        "is known)",
		        doubt, (race->standing[winner].ratio - 1) * 100);
	else if (left == 1)
		snprintf(decision->reason, sizeof decision->reason, "%s%s is the only one left%s", doubt, who,
		        decision->conclusive ? ""
		                : complete   ? ", and was timed too little"
		                             : ", but others were dropped in slow rounds");
	else if (tied == 1)
		snprintf(decision->reason, sizeof decision->reason,
		        "%s%s is the fastest, and nothing else is within %.3g %%", doubt, who, band);
	else if (winner == decision->best)
		snprintf(decision->reason, sizeof decision->reason,
		        "%s%s is the fastest, and first by the tie rule of those within %.3g %%", doubt, who,
		        band);
	else
		snprintf(decision->reason, sizeof decision->reason,
		        "%s%s is within %.3g %% of the fastest (%+.2f %%), and first by the tie rule", doubt,
		        who, band, (race->standing[winner].ratio - 1) * 100);
}

/* Where the rounds are too few to know the noise, or it is so wide that the default may as well be faster than the
 * fastest by more than the band, nothing has beaten the default clearly. Slow rounds are better than none. */
static bool default_stays(const struct race *race)
{
	const struct ft_contender *contender = race->contender;
	size_t i = race->default_index;
	struct ft_pair pair = race->standing[i].pair;
	double low;
	double high;
	if (i == race->best || race->measured[i] < race->min_rounds)
		return race->measured[i] > 0;
	if (pair.rounds < race->min_rounds)
		compare(contender[i].sample_ps, contender[race->best].sample_ps, NULL, race->rounds, &pair);
	interval(&pair, &race->pool, &low, &high);
	return low < -race->edge;
}

static void choose(const struct race *race, const struct ft_rule *rule, bool complete, bool last, bool ended,
        struct ft_decision *decision)
{
	/* The first in order that is not clearly worse decides: nobody after it matters but to say how fast
	 * the fastest is. */
	size_t left = 0;
	size_t tied = 0;
	size_t first = race->count;  /* that can win */
	size_t likely = race->count; /* and is tied as far as is known */
	for (size_t place = 0; place < race->count; place++) {
		size_t i = in_order(race, place);
		if (!can_win(race, i))
			continue;
		left++;
		tied += race->standing[i].tied;
		if (first == race->count)
			first = i;
		if (likely == race->count && race->standing[i].tied)
			likely = i;
	}
	decision->best = race->best;
	decision->conclusive = complete && surely_tied(race, first);
	if (!decision->conclusive && !last) {
		decision->verdict = FT_VERDICT_MEASURE;
		snprintf(decision->reason, sizeof decision->reason, "%zu of %zu still race", left,
		        race->count);
		return;
	}
	decision->verdict = FT_VERDICT_WINNER;
	if (decision->conclusive || (first == race->default_index && default_stays(race)))
		decision->winner = first;
	else
		decision->winner = likely;
	explain(race, rule, left, tied, ended, complete, decision);
}

/* Of those alive, the fewest samples; new members of an old space have rounds of their own to go. */
static uint32_t fewest(const struct race *race, bool counting)
{
	uint32_t least = FT_ROUNDS_MAX;
	for (size_t i = 0; i < race->count; i++) {
		uint32_t samples = counting ? race->standing[i].rounds : race->measured[i];
		if (can_win(race, i) && samples < least)
			least = samples;
	}
	return least;
}

/* Who is there, and how many of those that can win were measured. */
static size_t begin(struct race *race, const struct ft_rule *rule, const struct ft_contender *contender,
        size_t count, size_t default_index, size_t rounds, struct ft_standing *standing, size_t *alive)
{
	size_t measured = 0;
	race->contender = contender;
	race->standing = standing;
	race->count = count;
	race->default_index = default_index;
	race->rounds = rounds < FT_ROUNDS_MAX ? rounds : FT_ROUNDS_MAX;
	race->min_rounds = rule->min_rounds > ROUNDS_LEAST ? rule->min_rounds : ROUNDS_LEAST;
	/* From whole numbers and with the last bits to spare: a ratio of just the band is within it. */
	race->edge = 2.0 * rule->band_ppm / (2e6 + rule->band_ppm) + EDGE_SLACK;
	*alive = 0;
	for (size_t i = 0; i < count; i++) {
		standing[i] = (struct ft_standing){0};
		race->measured[i] = 0;
		for (size_t r = 0; contender[i].sample_ps && r < race->rounds; r++)
			race->measured[i] += is_sample(contender[i].sample_ps[r]);
		race->pace_ps[i] = pace_of(race, i);
		if (!can_win(race, i))
			continue;
		*alive += 1;
		measured += race->measured[i] > 0;
	}
	return measured;
}

/* Until nobody is dropped: so the decision is the same whether these drops are applied to its contenders or not. */
static void place(struct race *race)
{
	do {
		find_slow(race);
		summarise_all(race);
		find_best(race);
		pool_scatter(race);
	} while (place_all(race));
}

void ft_decide(const struct ft_rule *rule, const struct ft_contender *contender, size_t count,
        size_t default_index, size_t rounds, bool ended, struct ft_standing *standing,
        struct ft_decision *decision)
{
	struct race race;
	size_t alive;
	size_t measured;
	uint32_t max_rounds = rule->max_rounds < FT_ROUNDS_MAX ? rule->max_rounds : FT_ROUNDS_MAX;

	*decision = (struct ft_decision){.verdict = FT_VERDICT_NONE};
	if (count > FT_SPACE_MAX) {
		snprintf(decision->reason, sizeof decision->reason, "%zu configs, more than %d", count,
		        FT_SPACE_MAX);
		return;
	}
	measured = begin(&race, rule, contender, count, default_index, rounds, standing, &alive);
	if (!alive) {
		snprintf(decision->reason, sizeof decision->reason, "no config is left that can win");
		return;
	}
	if (!measured) {
		decision->verdict =
		        ended || race.rounds == FT_ROUNDS_MAX ? FT_VERDICT_NONE : FT_VERDICT_MEASURE;
		snprintf(decision->reason, sizeof decision->reason, "nothing was measured%s",
		        decision->verdict == FT_VERDICT_NONE ? "" : " yet");
		return;
	}
	place(&race);
	for (size_t r = 0; r < race.rounds; r++)
		decision->slow += race.slow[r];
	bool revived = false;
	for (size_t i = 0; i < count && !revived; i++)
		revived = is_to_be_revived(&race, i);
	bool last = ended || race.rounds == FT_ROUNDS_MAX || fewest(&race, true) >= max_rounds ||
	        fewest(&race, false) >= ROUNDS_FACTOR * max_rounds;
	choose(&race, rule, !revived, last && (ended || !revived || race.rounds == FT_ROUNDS_MAX), ended,
	        decision);
	/* Only now, since it stood outside for this decision. */
	for (size_t i = 0; i < count; i++) {
		standing[i].revive = is_to_be_revived(&race, i);
		standing[i].drop = standing[i].drop && !standing[i].revive;
	}
}

void ft_gain(const struct ft_rule *rule, const struct ft_contender *contender, size_t count,
        size_t default_index, size_t rounds, size_t winner, struct ft_standing *standing,
        struct ft_gain *gain)
{
	struct race race;
	struct ft_pair pair = {0};
	size_t alive;
	double low;
	double high;

	*gain = (struct ft_gain){0};
	if (count > FT_SPACE_MAX || default_index >= count || winner >= count ||
	        begin(&race, rule, contender, count, default_index, rounds, standing, &alive) == 0)
		return;
	place(&race);
	if (winner == default_index) {
		*gain = (struct ft_gain){.rounds = race.measured[winner], .ratio = 1, .low = 1};
		return;
	}
	compare(contender[default_index].sample_ps, contender[winner].sample_ps, race.slow, race.rounds,
	        &pair);
	/* Slow rounds are better than none. */
	if (!pair.rounds)
		compare(contender[default_index].sample_ps, contender[winner].sample_ps, NULL, race.rounds,
		        &pair);
	if (!pair.rounds)
		return;
	gain->rounds = pair.rounds;
	gain->ratio = ratio_of(pair.shift);
	interval(&pair, &race.pool, &low, &high);
	if (pair.freedom >= 1 && low > -2)
		gain->low = ratio_of(low);
}
