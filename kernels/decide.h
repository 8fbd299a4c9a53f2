/* The decision: what to measure next, what to drop, who wins. A pure function of the samples.
 *
 * Linked by runner and daemon alike: the runner races with it, the daemon decides again from the samples that
 * it stored, so that no runner can choose a winner by saying so. Same input, same answer, on every machine.
 *
 * Samples come in rounds: in one round every config still alive is measured once, in shuffled order, so that
 * drift hits all alike. Comparisons are therefore between samples of the same round. DECISION.md says how,
 * and why. */
#ifndef FLYTUNE_KERNELS_DECIDE_H
#define FLYTUNE_KERNELS_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ft_rule {
	uint32_t band_ppm;   /* configs within this of the best are tied with it: 5,000 is 0.5 % */
	uint32_t min_rounds; /* before anything is dropped or decided; at least 5 */
	/* Samples of each config still alive at which the race ends inconclusive, with the best it knows: so many
	 * of rounds at the device's own pace, or twice as many in all. At FT_ROUNDS_MAX rounds it ends as well, since
	 * no more are kept. */
	uint32_t max_rounds;
};

enum {
	FT_RULE_REVISION = 2
}; /* raised when the same samples may give another answer; part of a winner's identity */

extern const struct ft_rule ft_rule_usual; /* 5,000 ppm, 7 rounds, 120 rounds */

struct ft_contender {
	bool out;                  /* wrong, failed, pruned, or the same code as another: cannot win */
	bool dropped;              /* by an earlier decision: measured no more, cannot win */
	const uint64_t *sample_ps; /* one a round; 0 where it was not measured in that round */
};

enum ft_verdict {
	FT_VERDICT_MEASURE, /* another round for those alive */
	FT_VERDICT_WINNER,
	FT_VERDICT_NONE, /* nobody can win */
};

/* Two configs on the rounds that both have: s = 2(a-b)/(a+b), which is the ratio's logarithm but for its
 * cube over 12, bounded by ±2, and exact to compute. */
struct ft_pair {
	uint32_t rounds;
	double shift;    /* trimmed mean of s */
	double variance; /* of the shift, times rounds */
	double freedom;  /* degrees of freedom of the variance */
	bool scattered;  /* not all of them are the same */
};

struct ft_standing {
	uint64_t
	        median_ps; /* 0 without samples; of the rounds that count, or of all it has where none does */
	uint64_t ci_ps;    /* half the width of the median's 95 % confidence interval */
	uint32_t rounds;   /* that count, with a sample */
	double ratio;      /* to the best, from paired rounds; 1 for the best itself, 0 if unknown */
	double ratio_low;  /* its 99.5 % confidence interval, which is what decides */
	double ratio_high;
	bool drop;           /* can win, but is clearly worse than the band: to be dropped now */
	bool revive;         /* was dropped in rounds that no longer count: to race again */
	bool tied;           /* can win, and is within the band of the best as far as is known */
	struct ft_pair pair; /* with the best; the deciding's own, which is too large for a stack */
};

struct ft_decision {
	enum ft_verdict verdict;
	size_t winner;
	size_t best;      /* least time among those that can win; the winner is tied with it */
	bool conclusive;  /* false when max_rounds or the budget ended the race */
	uint32_t slow;    /* rounds that do not count, since the device was slower than it can be */
	char reason[128]; /* in plain words */
};

/* What a winner gains over the default: from the rounds that both were in alone, never from medians of different ones. */
struct ft_gain {
	uint32_t rounds; /* that both were in; 0: nothing is known, and the rest is 0 */
	double ratio;    /* the default's time to the winner's: 1.2 is 20 % longer */
	double low; /* the lower end of its 99.5 % confidence interval; 0: the rounds are too few to say */
};

/* Contenders stand in the order of the tie rule, but for the default at index `default_index`, which goes before
 * all (any index from `count` up: there is no default). With `ended` (budget over, cancelled for good) it
 * decides at once from what there is; a config without a sample then cannot win. `standing` has `count`
 * elements. Allocates nothing; needs some 10 KB of stack. At most FT_SPACE_MAX contenders, and the first
 * FT_ROUNDS_MAX rounds. */
void ft_decide(const struct ft_rule *rule, const struct ft_contender *contender, size_t count,
        size_t default_index, size_t rounds, bool ended, struct ft_standing *standing,
        struct ft_decision *decision);

/* Of any of the contenders, by the same rounds that a decision counts. Overwrites `standing`. */
void ft_gain(const struct ft_rule *rule, const struct ft_contender *contender, size_t count,
        size_t default_index, size_t rounds, size_t winner, struct ft_standing *standing,
        struct ft_gain *gain);

#endif
