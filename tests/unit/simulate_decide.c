/* The decision on simulated sweeps whose true times are known: how often it errs, how often 60 fresh sweeps
 * agree, and what it costs, beside "median of 25, least" and "least of 25, least" on the same samples.
 *
 * usage: simulate_decide [SWEEPS [SEED [MODEL]]]      SWEEPS is 10,000 unless given */
#include "kernels/decide.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/messages.h"

enum {
	REPEATS = 60, /* fresh sweeps of one problem */
	PLAIN_ROUNDS = 25,
	CONFIGS_MOST = 60,
};

/* ---- random numbers (splitmix64: small, and the same everywhere) ---- */

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
	return ((double)(draw(state) >> 11) + 0.5) / 9007199254740992.0;
}

static double gauss(uint64_t *state)
{
	return sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
}

/* ---- what disturbs a sample ---- */

enum model {
	QUIET,     /* 0.1 %, as a GPU left alone */
	GAUSSIAN,  /* 0.5 % */
	NOISY,     /* 1.5 % */
	TAILS,     /* 0.4 %, and every tenth sample late by 15 % in the mean */
	DRIFT,     /* 0.4 %, and slower by 12 % on the way */
	BURSTS,    /* 0.4 %, and a tenth of the time a neighbour that takes 30 % */
	CLOCKS,    /* 0.3 %, and a clock that jumps between two states 12 % apart */
	WANDERING, /* 0.3 %, a common 2 % and each config's own 0.5 % that wander slowly */
	UNEVEN,    /* from 0.1 % to 1.2 % by config */
	COARSE,    /* 0.3 %, read from a timer with steps of 0.5 % */
	NEIGHBOUR, /* 0.3 %, and in a fifth of the rounds someone who slows each config by its own 0 to 30 % */
	MODELS,
};

static const char *const model_name[MODELS] = {"quiet", "gaussian", "noisy", "tails", "drift", "bursts",
        "clocks", "wandering", "uneven", "coarse", "neighbour"};

struct interference {
	enum model model;
	uint64_t random;
	double common;
	bool burst, slow;
	double own[CONFIGS_MOST];
	double scatter[CONFIGS_MOST];
	double hit[CONFIGS_MOST];
	bool there;
	double round;
};

static void interference_start(struct interference *interference, enum model model, uint64_t seed,
        size_t count, const double *scatter)
{
	memset(interference, 0, sizeof *interference);
	interference->model = model;
	interference->random = seed;
	interference->slow = draw(&interference->random) & 1;
	interference->round = -1;
	for (size_t i = 0; i < count; i++) {
		interference->scatter[i] = scatter[i];
		interference->hit[i] = 25 * scatter[(i + 1) % count];
	}
}

/* One sample of config `i`, `progress` of the way through 60 rounds. */
static uint64_t sample(struct interference *interference, double true_ps, size_t i, double progress)
{
	uint64_t *random = &interference->random;
	double factor = 1;
	switch (interference->model) {
	case QUIET:
		factor += 0.001 * gauss(random);
		break;
	case GAUSSIAN:
		factor += 0.005 * gauss(random);
		break;
	case NOISY:
		factor += 0.015 * gauss(random);
		break;
	case TAILS:
		factor += 0.004 * gauss(random);
		if (uniform(random) < 0.1)
			factor += -0.15 * log(uniform(random));
		break;
	case DRIFT:
		factor *= 1 + 0.12 * progress;
		factor *= 1 + 0.004 * gauss(random);
		break;
	case BURSTS:
		if (uniform(random) < (interference->burst ? 1 / 8.0 : 1 / 72.0))
			interference->burst = !interference->burst;
		factor += 0.004 * gauss(random) + (interference->burst ? 0.3 : 0);
		break;
	case CLOCKS:
		if (uniform(random) < 1 / 40.0)
			interference->slow = !interference->slow;
		factor = (1 + 0.003 * gauss(random)) * (interference->slow ? 1.12 : 1);
		break;
	case WANDERING:
		interference->common = 0.98 * interference->common + 0.2 * 0.02 * gauss(random);
		interference->own[i] = 0.5 * interference->own[i] + 0.866 * 0.005 * gauss(random);
		factor += interference->common + interference->own[i] + 0.003 * gauss(random);
		break;
	case UNEVEN:
		factor += interference->scatter[i] * gauss(random);
		break;
	case COARSE:
		factor += 0.003 * gauss(random);
		return (uint64_t)((floor(true_ps * factor / 5e5) + 1) * 5e5);
	case NEIGHBOUR:
		if (floor(progress * 60) != interference->round) {
			interference->round = floor(progress * 60);
			interference->there = uniform(random) < 0.2;
		}
		factor += 0.003 * gauss(random);
		factor *= interference->there ? 1 + interference->hit[i] : 1;
		break;
	case MODELS:
		break;
	}
	return (uint64_t)(true_ps * (factor > 0.5 ? factor : 0.5));
}

/* ---- problems ---- */

struct problem {
	size_t count, default_index;
	double true_ps[CONFIGS_MOST];
	double scatter[CONFIGS_MOST];
	double best_ps;
	size_t right; /* what the tie rule chooses from the true times */
};

static size_t in_order(size_t place, size_t default_index)
{
	if (place == 0)
		return default_index;
	return place <= default_index ? place - 1 : place;
}

static void make_problem(struct problem *problem, uint64_t *random)
{
	static const size_t counts[] = {2, 6, 12, 12, 24, 60};
	problem->count = counts[draw(random) % (sizeof counts / sizeof *counts)];
	problem->default_index = draw(random) % problem->count;
	/* Problems differ in how many configs crowd near the best, and in whether some stand near the edge of
	 * the band. */
	double crowd = 0.6 * uniform(random);
	bool near = draw(random) % 2;
	problem->best_ps = INFINITY;
	for (size_t i = 0; i < problem->count; i++) {
		double slower;
		if (uniform(random) < crowd)
			slower = (near ? 0.012 : 0.004) * uniform(random);
		else if (uniform(random) < 0.4)
			slower = (near ? 0 : 0.006) + 0.024 * uniform(random);
		else
			slower = 0.03 + 1.5 * uniform(random) * uniform(random);
		problem->true_ps[i] = 1e8 * (1 + slower);
		problem->scatter[i] = 0.001 + 0.011 * uniform(random);
		if (problem->true_ps[i] < problem->best_ps)
			problem->best_ps = problem->true_ps[i];
	}
	for (size_t place = problem->count; place-- > 0;) {
		size_t i = in_order(place, problem->default_index);
		if (problem->true_ps[i] <= problem->best_ps * (1 + ft_rule_usual.band_ppm / 1e6))
			problem->right = i;
	}
}

/* ---- one sweep ---- */

struct sweep {
	size_t chosen;
	bool conclusive;
	bool upheld; /* when decided again from the stored samples */
	size_t rounds;
	size_t measured;            /* samples */
	size_t median, least;       /* what the plain ways choose */
	double shift[CONFIGS_MOST]; /* to the true best over all rounds */
};

struct bench {
	uint64_t sample_ps[CONFIGS_MOST][FT_ROUNDS_MAX];
	struct ft_standing standing[CONFIGS_MOST];
};

static int compare_samples(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left;
	uint64_t b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left;
	double b = *(const double *)right;
	return (a > b) - (a < b);
}

static void plain_choices(const struct problem *problem, const struct bench *bench, struct sweep *sweep)
{
	uint64_t median = UINT64_MAX;
	uint64_t least = UINT64_MAX;
	for (size_t i = 0; i < problem->count; i++) {
		uint64_t sorted[PLAIN_ROUNDS];
		memcpy(sorted, bench->sample_ps[i], sizeof sorted);
		qsort(sorted, PLAIN_ROUNDS, sizeof *sorted, compare_samples);
		if (sorted[PLAIN_ROUNDS / 2] < median) {
			median = sorted[PLAIN_ROUNDS / 2];
			sweep->median = i;
		}
		if (sorted[0] < least) {
			least = sorted[0];
			sweep->least = i;
		}
	}
}

/* The middle of a config's paired ratios to the true best: its spread over the repeats is the standard error
 * that a sweep of all rounds has. */
static double shift_to_best(const struct problem *problem, const struct bench *bench, size_t i, size_t rounds)
{
	size_t best = 0;
	double ratio[FT_ROUNDS_MAX];
	double sum = 0;
	for (size_t j = 1; j < problem->count; j++) {
		if (problem->true_ps[j] < problem->true_ps[best])
			best = j;
	}
	for (size_t r = 0; r < rounds; r++)
		ratio[r] = (double)bench->sample_ps[i][r] / (double)bench->sample_ps[best][r];
	qsort(ratio, rounds, sizeof *ratio, compare_doubles);
	size_t cut = rounds / 5;
	for (size_t r = cut; r < rounds - cut; r++)
		sum += ratio[r];
	return sum / (double)(rounds - 2 * cut);
}

/* A round of all configs, in an order of its own; a race sees only what it measures. */
static void make_round(const struct problem *problem, struct interference *interference, size_t *order,
        size_t r, struct bench *bench)
{
	for (size_t i = problem->count; i-- > 1;) {
		size_t j = draw(&interference->random) % (i + 1);
		size_t keep = order[i];
		order[i] = order[j];
		order[j] = keep;
	}
	for (size_t i = 0; i < problem->count; i++) {
		double progress =
		        ((double)r + (double)i / (double)problem->count) / (double)ft_rule_usual.max_rounds;
		bench->sample_ps[order[i]][r] =
		        sample(interference, problem->true_ps[order[i]], order[i], progress);
	}
}

static void run_sweep(const struct problem *problem, enum model model, uint64_t seed, struct bench *bench,
        struct sweep *sweep)
{
	struct ft_contender contender[CONFIGS_MOST];
	struct ft_decision decision = {0};
	struct interference interference;
	size_t order[CONFIGS_MOST];
	memset(sweep, 0, sizeof *sweep);
	interference_start(&interference, model, seed, problem->count, problem->scatter);
	for (size_t i = 0; i < problem->count; i++)
		order[i] = i;
	for (size_t r = 0; r < ft_rule_usual.max_rounds; r++)
		make_round(problem, &interference, order, r, bench);
	plain_choices(problem, bench, sweep);
	for (size_t i = 0; i < problem->count; i++) {
		contender[i] = (struct ft_contender){.sample_ps = bench->sample_ps[i]};
		sweep->shift[i] = shift_to_best(problem, bench, i, ft_rule_usual.max_rounds);
	}
	for (size_t r = 1; decision.verdict == FT_VERDICT_MEASURE; r++) {
		if (r > ft_rule_usual.max_rounds)
			make_round(problem, &interference, order, r - 1, bench);
		for (size_t i = 0; i < problem->count; i++) {
			if (contender[i].dropped)
				bench->sample_ps[i][r - 1] = 0;
			else
				sweep->measured++;
		}
		ft_decide(&ft_rule_usual, contender, problem->count, problem->default_index, r, false,
		        bench->standing, &decision);
		for (size_t i = 0; i < problem->count; i++)
			contender[i].dropped = (contender[i].dropped || bench->standing[i].drop) &&
			        !bench->standing[i].revive;
		sweep->rounds = r;
	}
	sweep->chosen = decision.winner;
	sweep->conclusive = decision.conclusive;
	/* As the daemon does from what it stored, with the last drops among it. */
	ft_decide(&ft_rule_usual, contender, problem->count, problem->default_index, sweep->rounds, false,
	        bench->standing, &decision);
	sweep->upheld = decision.verdict == FT_VERDICT_WINNER && decision.winner == sweep->chosen &&
	        decision.conclusive == sweep->conclusive;
}

/* ---- the tally ---- */

struct tally {
	size_t sweeps, problems;
	size_t wrong, wrong_median, wrong_least; /* more than 1 % off the true best */
	size_t inconclusive, overturned;
	size_t apart, agreed;                 /* problems with no contender near the edge; all 60 the same */
	size_t apart_sweeps, strayed;         /* their sweeps; those that chose otherwise than most */
	size_t same, same_median, same_least; /* sweeps that chose what most chose, over all problems */
	size_t rounds, measured, all;         /* all: what all configs for as many rounds would have cost */
	double worst;
};

static size_t most_chosen(const size_t *chosen, size_t count)
{
	size_t most = 0;
	for (size_t i = 0; i < count; i++) {
		size_t same = 0;
		for (size_t j = 0; j < count; j++)
			same += chosen[j] == chosen[i];
		if (same > most)
			most = same;
	}
	return most;
}

/* Whether all repeats together, an exhaustive measurement, see no config within three standard errors of the
 * band's edge. */
static bool stands_apart(const struct problem *problem, const struct sweep *sweep, size_t repeats)
{
	for (size_t i = 0; i < problem->count; i++) {
		double sum = 0;
		double squares = 0;
		for (size_t k = 0; k < repeats; k++)
			sum += sweep[k].shift[i];
		double mean = sum / (double)repeats;
		for (size_t k = 0; k < repeats; k++)
			squares += (sweep[k].shift[i] - mean) * (sweep[k].shift[i] - mean);
		double error = sqrt(squares / (double)(repeats - 1));
		if (fabs(mean - 1 - ft_rule_usual.band_ppm / 1e6) <= 3 * error)
			return false;
	}
	return true;
}

static void run_problem(enum model model, uint64_t *random, struct bench *bench, struct tally *tally)
{
	struct problem problem;
	struct sweep sweep[REPEATS];
	size_t chosen[REPEATS];
	size_t median[REPEATS];
	size_t least[REPEATS];
	make_problem(&problem, random);
	for (size_t k = 0; k < REPEATS; k++) {
		run_sweep(&problem, model, draw(random), bench, &sweep[k]);
		chosen[k] = sweep[k].chosen;
		median[k] = sweep[k].median;
		least[k] = sweep[k].least;
		double regret = problem.true_ps[chosen[k]] / problem.best_ps - 1;
		tally->wrong += regret > 0.01;
		tally->wrong_median += problem.true_ps[median[k]] / problem.best_ps > 1.01;
		tally->wrong_least += problem.true_ps[least[k]] / problem.best_ps > 1.01;
		tally->inconclusive += !sweep[k].conclusive;
		tally->overturned += !sweep[k].upheld;
		tally->rounds += sweep[k].rounds;
		tally->measured += sweep[k].measured;
		tally->all += sweep[k].rounds * problem.count;
		if (regret > tally->worst)
			tally->worst = regret;
	}
	size_t most = most_chosen(chosen, REPEATS);
	tally->same += most;
	tally->same_median += most_chosen(median, REPEATS);
	tally->same_least += most_chosen(least, REPEATS);
	tally->sweeps += REPEATS;
	tally->problems++;
	if (stands_apart(&problem, sweep, REPEATS)) {
		tally->apart++;
		tally->agreed += most == REPEATS;
		tally->apart_sweeps += REPEATS;
		tally->strayed += REPEATS - most;
	}
}

static void add(struct tally *sum, const struct tally *part)
{
	sum->sweeps += part->sweeps;
	sum->problems += part->problems;
	sum->wrong += part->wrong;
	sum->wrong_median += part->wrong_median;
	sum->wrong_least += part->wrong_least;
	sum->inconclusive += part->inconclusive;
	sum->overturned += part->overturned;
	sum->apart += part->apart;
	sum->agreed += part->agreed;
	sum->apart_sweeps += part->apart_sweeps;
	sum->strayed += part->strayed;
	sum->same += part->same;
	sum->same_median += part->same_median;
	sum->same_least += part->same_least;
	sum->rounds += part->rounds;
	sum->measured += part->measured;
	sum->all += part->all;
	if (part->worst > sum->worst)
		sum->worst = part->worst;
}

static void print(const char *name, const struct tally *t)
{
	double n = (double)t->sweeps / 100;
	printf("%-10s %6zu | %6.2f %6.2f %6.2f | %5.2f | %5.1f %5.1f %5.1f | %3zu of %3zu %4zu/%-5zu | %5.1f "
	       "%5.2f | %4.1f\n",
	        name, t->sweeps, (double)t->wrong / n, (double)t->wrong_median / n,
	        (double)t->wrong_least / n, t->worst * 100, (double)t->same / n, (double)t->same_median / n,
	        (double)t->same_least / n, t->agreed, t->apart, t->strayed, t->apart_sweeps,
	        (double)t->rounds / (double)t->sweeps, (double)t->measured / (double)t->all,
	        (double)t->inconclusive / n);
}

static bool holds(bool it, const char *what)
{
	printf("%s: %s\n", it ? "holds" : "FAILS", what);
	return it;
}

int main(int argc, char **argv)
{
	size_t sweeps = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
	uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	long only = argc > 3 ? strtol(argv[3], NULL, 10) : -1;
	struct tally sum = {0};
	struct bench *bench = calloc(1, sizeof *bench);
	if (!bench)
		return 1;
	size_t problems = (sweeps + (size_t)REPEATS * MODELS - 1) / ((size_t)REPEATS * MODELS);
	printf("%-10s %6s | %-20s | %5s | %-17s | %-10s %-10s | %5s %5s | %s\n", "noise", "sweeps",
	        "over 1 % off: %", "worst", "agreement: %", "60 of 60", "strayed", "rounds", "cost",
	        "not settled: %");
	printf("%-10s %6s | %6s %6s %6s | %5s | %5s %5s %5s |\n", "", "", "race", "median", "least", "%",
	        "race", "medn", "least");
	for (int model = 0; model < MODELS; model++) {
		struct tally tally = {0};
		if (only >= 0 && model != only)
			continue;
		for (size_t p = 0; p < problems; p++)
			run_problem((enum model)model, &random, bench, &tally);
		print(model_name[model], &tally);
		add(&sum, &tally);
	}
	print("all", &sum);
	printf("decided again otherwise: %zu\n", sum.overturned);
	free(bench);
	if (only >= 0)
		return 0;
	bool passed = true;
	passed &= holds(sum.wrong * 200 < sum.sweeps, "a wrong winner in under 0.5 % of the sweeps");
	passed &= holds(sum.strayed * 1000 <= sum.apart_sweeps,
	        "at most 1 in 1,000 strays where no contender is near the edge");
	passed &= holds(sum.overturned == 0, "the stored samples give the same decision");
	passed &= holds(sum.wrong < sum.wrong_median && sum.wrong < sum.wrong_least,
	        "wrong less often than plain ways");
	passed &= holds(sum.same > sum.same_median && sum.same > sum.same_least,
	        "agrees with itself more than plain ways");
	passed &= holds(sum.measured < sum.all * 6 / 10, "measures under 0.6 of what no dropping would");
	return passed ? 0 : 1;
}
