/* The decision: what each of its rules protects. */
#include "kernels/decide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/messages.h"

enum { CONFIGS = 64, NO_DEFAULT = 10000 };

static const uint64_t base_ps = 100000000; /* 100 µs */

struct race {
	size_t count, default_index, rounds;
	struct ft_rule rule;
	uint64_t random;
	uint64_t sample_ps[CONFIGS][FT_ROUNDS_MAX];
	struct ft_contender contender[CONFIGS];
	struct ft_standing standing[CONFIGS];
	struct ft_decision decision;
};

static void race_start(struct race *race, size_t count, size_t default_index)
{
	memset(race, 0, sizeof *race);
	race->count = count;
	race->default_index = default_index;
	race->rule = ft_rule_usual;
	race->random = 12345;
	for (size_t i = 0; i < count; i++)
		race->contender[i].sample_ps = race->sample_ps[i];
}

static double uniform(struct race *race)
{
	race->random = race->random * 6364136223846793005u + 1442695040888963407u;
	return (double)(race->random >> 11) / 9007199254740992.0;
}

/* One round: each config that is alive at its time, give or take `noise` (uniform, relative). */
static void race_round(struct race *race, const double *slower, double noise)
{
	for (size_t i = 0; i < race->count; i++) {
		double off = noise * (2 * uniform(race) - 1);
		bool alive = !race->contender[i].out && !race->contender[i].dropped;
		race->sample_ps[i][race->rounds] =
		        alive ? (uint64_t)((double)base_ps * (1 + slower[i]) * (1 + off)) : 0;
	}
	race->rounds++;
}

static void race_decide(struct race *race, bool ended)
{
	ft_decide(&race->rule, race->contender, race->count, race->default_index, race->rounds, ended,
	        race->standing, &race->decision);
}

/* To the end, as a runner does it. */
static void race_run(struct race *race, const double *slower, double noise)
{
	do {
		race_round(race, slower, noise);
		race_decide(race, false);
		for (size_t i = 0; i < race->count; i++)
			race->contender[i].dropped = (race->contender[i].dropped || race->standing[i].drop) &&
			        !race->standing[i].revive;
		assert_true(race->rounds <= race->rule.max_rounds);
	} while (race->decision.verdict == FT_VERDICT_MEASURE);
}

static void assert_winner(const struct race *race, size_t winner, bool conclusive)
{
	assert_int_equal(race->decision.verdict, FT_VERDICT_WINNER);
	assert_int_equal(race->decision.winner, winner);
	assert_int_equal(race->decision.conclusive, conclusive);
	assert_true(race->standing[winner].tied);
	assert_true(race->decision.reason[0] != '\0');
}

static void twelve_clear_configs_are_decided_in_seven_rounds(void **state)
{
	(void)state;
	static struct race race;
	const double slower[12] = {.4, .3, .02, .15, .05, 0, .03, .2, .6, 1.1, 5, .08};
	race_start(&race, 12, 3);
	race_run(&race, slower, 0.002);
	assert_winner(&race, 5, true);
	assert_int_equal(race.rounds, 7);
	assert_int_equal(race.decision.best, 5);
	for (size_t i = 0; i < 12; i++)
		assert_int_equal(race.standing[i].drop, i != 5);
}

static void the_default_is_kept_when_it_is_tied(void **state)
{
	(void)state;
	static struct race race;
	const double slower[4] = {0.002, 0, 0.003, 0.1};
	race_start(&race, 4, 2);
	race_run(&race, slower, 0.001);
	assert_winner(&race, 2, true);
	assert_int_equal(race.decision.best, 1);
	assert_non_null(strstr(race.decision.reason, "default"));
}

static void the_default_is_given_up_when_it_is_clearly_beaten(void **state)
{
	(void)state;
	static struct race race;
	const double slower[4] = {0.003, 0, 0.012, 0.1};
	race_start(&race, 4, 2);
	race_run(&race, slower, 0.001);
	assert_winner(&race, 0, true);
	assert_true(race.contender[2].dropped);
}

static void a_tie_without_the_default_goes_to_the_earlier_config(void **state)
{
	(void)state;
	static struct race race;
	const double slower[5] = {0.02, 0.003, 0, 0.001, 0.3};
	race_start(&race, 5, 4);
	race_run(&race, slower, 0.0005);
	assert_winner(&race, 1, true);
	assert_true(race.standing[2].tied && race.standing[3].tied);
}

static void a_tie_is_not_chained_from_neighbour_to_neighbour(void **state)
{
	(void)state;
	static struct race race;
	/* Each is within the band of the next, but the first two are not within that of the best. */
	const double slower[4] = {0.012, 0.008, 0.004, 0};
	race_start(&race, 4, 0);
	race_run(&race, slower, 0.0005);
	assert_winner(&race, 2, true);
	assert_false(race.standing[0].tied);
	assert_false(race.standing[1].tied);
}

static void just_the_band_is_a_tie(void **state)
{
	(void)state;
	static struct race race;
	const double tied[2] = {0.005, 0};
	race_start(&race, 2, 0);
	race_run(&race, tied, 0);
	assert_winner(&race, 0, true);
	const double worse[2] = {0.00501, 0};
	race_start(&race, 2, 0);
	race_run(&race, worse, 0);
	assert_winner(&race, 1, true);
}

static void equal_samples_are_decided_at_once(void **state)
{
	(void)state;
	static struct race race;
	const double slower[12] = {0};
	race_start(&race, 12, 7);
	race_run(&race, slower, 0);
	assert_winner(&race, 7, true);
	assert_int_equal(race.rounds, race.rule.min_rounds);
	race_start(&race, 12, NO_DEFAULT);
	race_run(&race, slower, 0);
	assert_winner(&race, 0, true);
}

static void nothing_is_dropped_before_the_least_rounds(void **state)
{
	(void)state;
	static struct race race;
	const double slower[3] = {0, 3, 0.5};
	race_start(&race, 3, 1);
	race.rule.min_rounds = 1; /* the function has a floor of its own */
	for (size_t r = 0; r < 4; r++) {
		race_round(&race, slower, 0);
		race_decide(&race, false);
		assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
		for (size_t i = 0; i < 3; i++)
			assert_false(race.standing[i].drop);
	}
	race_round(&race, slower, 0);
	race_decide(&race, false);
	assert_winner(&race, 0, true);
}

static void a_lone_pair_is_not_decided_on_seven_rounds_of_scatter(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0.05, 0};
	race_start(&race, 2, 0);
	race_run(&race, slower, 0.001);
	assert_winner(&race, 1, true);
	assert_int_equal(race.rounds, 13);
	/* Without scatter there is nothing to wait for. */
	race_start(&race, 2, 0);
	race_run(&race, slower, 0);
	assert_winner(&race, 1, true);
	assert_int_equal(race.rounds, 7);
}

static void a_config_within_the_noise_is_not_dropped(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0, 0.01};
	race_start(&race, 2, 0);
	for (size_t r = 0; r < 7; r++)
		race_round(&race, slower, 0.05);
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
	assert_false(race.standing[0].drop || race.standing[1].drop);
	assert_true(race.standing[1].ratio_low < 1.005 && race.standing[0].ratio_low <= 1);
}

static void one_disturbed_round_drops_nobody(void **state)
{
	(void)state;
	static struct race race;
	const double slower[5] = {0, 0.001, 0.002, 0.1, 0.2};
	race_start(&race, 5, 0);
	for (size_t r = 0; r < 7; r++)
		race_round(&race, slower, 0.0005);
	race.sample_ps[0][3] *= 40;
	race_decide(&race, false);
	assert_winner(&race, 0, true);
	assert_false(race.standing[1].drop || race.standing[2].drop);
}

/* Rounds in which most take longer than they can do not count, however they rank the configs. */
static void slow_rounds_do_not_count(void **state)
{
	(void)state;
	static struct race race;
	const double alone[4] = {0.06, 0, 0.08, 0.3};
	const double beside[4] = {0.16, 0.3, 0.2, 0.45};
	race_start(&race, 4, 3);
	for (size_t r = 0; r < 5; r++)
		race_round(&race, beside, 0.002);
	for (size_t r = 0; r < 7; r++)
		race_round(&race, alone, 0.002);
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	assert_int_equal(race.decision.slow, 5);
	assert_int_equal(race.standing[1].rounds, 7);
	assert_true(race.standing[1].median_ps < base_ps * 101 / 100);
	/* In any order. */
	for (size_t i = 0; i < 4; i++) {
		uint64_t keep = race.sample_ps[i][0];
		race.sample_ps[i][0] = race.sample_ps[i][9];
		race.sample_ps[i][9] = keep;
	}
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	assert_int_equal(race.decision.slow, 5);
}

static void what_was_dropped_in_slow_rounds_is_revived(void **state)
{
	(void)state;
	static struct race race;
	const double alone[4] = {0.0558, 0, 0.05, 0.3};
	const double beside[4] = {0.1664, 0.4, 0.16, 0.45};
	race_start(&race, 4, 3);
	for (size_t r = 0; r < 9; r++) {
		race_round(&race, beside, 0.004);
		race_decide(&race, false);
		for (size_t i = 0; i < 4; i++)
			race.contender[i].dropped = race.contender[i].dropped || race.standing[i].drop;
	}
	assert_true(race.contender[1].dropped && race.contender[3].dropped);
	assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
	race_run(&race, alone, 0.004);
	assert_winner(&race, 1, true);
	assert_true(race.decision.slow >= 7);
}

static void a_lone_config_is_not_held_against_itself(void **state)
{
	(void)state;
	static struct race race;
	const double slower[1] = {0};
	race_start(&race, 1, 0);
	for (size_t r = 0; r < 9; r++)
		race_round(&race, slower, 0.4);
	race_decide(&race, false);
	assert_int_equal(race.decision.slow, 0);
	assert_int_equal(race.standing[0].rounds, 9);
}

static void drift_that_hits_all_alike_changes_nothing(void **state)
{
	(void)state;
	static struct race still;
	static struct race drifting;
	const double slower[4] = {0.03, 0.02, 0.01, 0};
	race_start(&still, 4, 0);
	race_start(&drifting, 4, 0);
	for (size_t r = 0; r < 7; r++) {
		race_round(&still, slower, 0.001);
		race_round(&drifting, slower, 0.001);
		for (size_t i = 0; i < 4; i++)
			drifting.sample_ps[i][r] *= r + 1;
	}
	race_decide(&still, false);
	race_decide(&drifting, false);
	assert_winner(&still, 3, true);
	assert_winner(&drifting, 3, true);
	for (size_t i = 0; i < 4; i++)
		assert_float_equal(still.standing[i].ratio, drifting.standing[i].ratio, 1e-6);
}

static void the_order_of_rounds_does_not_matter(void **state)
{
	(void)state;
	static struct race race;
	static struct race other;
	const double slower[12] = {0.003, 0.002, 0.008, 0, 0.001, .05, .1, .2, .004, .006, .007, .5};
	race_start(&race, 12, 2);
	for (size_t r = 0; r < 40; r++)
		race_round(&race, slower, 0.02);
	other = race;
	for (size_t i = 0; i < 12; i++) {
		other.contender[i].sample_ps = other.sample_ps[i];
		for (size_t r = 0; r < 40; r++)
			other.sample_ps[i][r] = race.sample_ps[i][(r * 17 + 5) % 40];
	}
	race_decide(&race, false);
	race_decide(&other, false);
	assert_memory_equal(&race.standing, &other.standing, sizeof race.standing);
	assert_memory_equal(&race.decision, &other.decision, sizeof race.decision);
}

static void stored_samples_give_the_same_decision_again(void **state)
{
	(void)state;
	static struct race race;
	const double slower[8] = {0.004, 0.1, 0.02, 0, 0.001, 0.05, 0.008, 0.3};
	for (uint64_t seed = 1; seed <= 50; seed++) {
		race_start(&race, 8, 6);
		race.random = seed;
		race_run(&race, slower, 0.008);
		struct ft_decision first = race.decision;
		race_decide(&race, false);
		assert_int_equal(race.decision.winner, first.winner);
		assert_int_equal(race.decision.best, first.best);
		assert_int_equal(race.decision.conclusive, first.conclusive);
	}
}

static void a_race_that_cannot_be_settled_ends_and_says_so(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0.005, 0}; /* on the edge of the band */
	race_start(&race, 2, 0);
	race_run(&race, slower, 0.02);
	assert_int_equal(race.decision.verdict, FT_VERDICT_WINNER);
	assert_false(race.decision.conclusive);
	assert_int_equal(race.rounds, race.rule.max_rounds);
	assert_non_null(strstr(race.decision.reason, "unsettled"));
}

static void a_race_ended_before_its_noise_is_known_keeps_the_default(void **state)
{
	(void)state;
	static struct race race;
	const double slower[4] = {0.2, 0, 0.1, 0.003};
	race_start(&race, 4, 0);
	race_round(&race, slower, 0.001);
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_WINNER);
	assert_int_equal(race.decision.winner, 0);
	assert_false(race.decision.conclusive);
	assert_non_null(strstr(race.decision.reason, "default stays"));
	race_start(&race, 4, 3);
	race_round(&race, slower, 0.001);
	race_decide(&race, true);
	assert_winner(&race, 3, false);
	/* Without a time of the default, the best that is known. */
	race_start(&race, 4, 0);
	race_round(&race, slower, 0.001);
	race.contender[0].sample_ps = NULL;
	race_decide(&race, true);
	assert_winner(&race, 1, false);
}

static void an_ended_race_that_was_settled_is_conclusive(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0.2, 0};
	race_start(&race, 2, 0);
	for (size_t r = 0; r < 13; r++)
		race_round(&race, slower, 0.001);
	race_decide(&race, true);
	assert_winner(&race, 1, true);
}

static void nobody_wins_without_a_sample(void **state)
{
	(void)state;
	static struct race race;
	race_start(&race, 3, 0);
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
	/* Rounds went by, and every sample failed. */
	race.rounds = 5;
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
	for (size_t i = 0; i < 3; i++)
		race.contender[i].sample_ps = NULL;
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
	assert_int_equal(race.standing[0].median_ps, 0);
	assert_true(race.standing[0].ratio == 0);
}

static void nobody_wins_when_all_are_out(void **state)
{
	(void)state;
	static struct race race;
	const double slower[3] = {0, 0.1, 0.2};
	race_start(&race, 3, 0);
	for (size_t r = 0; r < 9; r++)
		race_round(&race, slower, 0.001);
	race.contender[0].out = true;
	race.contender[1].dropped = true;
	race.contender[2].out = true;
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
	assert_true(race.decision.reason[0] != '\0');
	race.count = 0;
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
}

static void who_is_out_or_dropped_never_wins(void **state)
{
	(void)state;
	static struct race race;
	const double slower[4] = {0, 0.1, 0.05, 0.2};
	race_start(&race, 4, 0);
	for (size_t r = 0; r < 9; r++)
		race_round(&race, slower, 0.001);
	race.contender[0].out = true;
	race_decide(&race, false);
	assert_winner(&race, 2, true);
	assert_false(race.standing[0].tied);
	race.contender[0].out = false;
	race.contender[0].dropped = true;
	race_decide(&race, false);
	assert_winner(&race, 2, true);
	assert_false(race.standing[0].tied || race.standing[0].drop);
	/* What is known of it is still told. */
	assert_true(race.standing[0].ratio < 0.97 && race.standing[0].median_ps != 0);
}

static void a_single_config_wins_once_its_time_is_known(void **state)
{
	(void)state;
	static struct race race;
	const double slower[1] = {0};
	race_start(&race, 1, 0);
	race_run(&race, slower, 0.01);
	assert_winner(&race, 0, true);
	assert_int_equal(race.rounds, race.rule.min_rounds);
	assert_true(race.standing[0].ratio == 1);
}

static void times_up_to_100_seconds_do_not_overflow(void **state)
{
	(void)state;
	static struct race race;
	race_start(&race, 3, 0);
	race.rounds = FT_ROUNDS_MAX;
	for (size_t r = 0; r < race.rounds; r++) {
		race.sample_ps[0][r] = 100000000000000u;
		race.sample_ps[1][r] = 99900000000000u;
		race.sample_ps[2][r] = 1;
	}
	race.contender[2].out = true;
	race_decide(&race, false);
	assert_winner(&race, 0, true);
	assert_int_equal(race.standing[0].median_ps, 100000000000000u);
	/* Even nonsense stays finite. */
	for (size_t r = 0; r < race.rounds; r++)
		race.sample_ps[0][r] = r & 1 ? UINT64_MAX : UINT64_MAX - 1;
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	assert_true(race.standing[0].median_ps >= UINT64_MAX - 1);
}

static void rounds_that_one_lacks_are_left_out_of_its_comparisons(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0.02, 0};
	race_start(&race, 2, 0);
	/* The machine was three times as fast while only one of them was measured. */
	for (size_t r = 0; r < 30; r++)
		race_round(&race, slower, 0.001);
	for (size_t r = 0; r < 10; r++) {
		race.sample_ps[0][r] /= 3;
		race.sample_ps[1][r] = 0;
	}
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	assert_true(race.standing[0].ratio > 1.015 && race.standing[0].ratio < 1.025);
	assert_int_equal(race.standing[1].rounds, 20);
}

static void a_new_member_gets_rounds_of_its_own(void **state)
{
	(void)state;
	static struct race race;
	const double slower[5] = {0.02, 0, 0.001, 0.1, 0.2};
	race_start(&race, 5, 0);
	race.contender[2].out = true;
	for (size_t r = 0; r < race.rule.max_rounds; r++)
		race_round(&race, slower, 0.001);
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	/* The space grows by the last; the first was dropped. All rounds were used up, but not by it. */
	race.contender[2].out = false;
	race.contender[0].dropped = race.contender[3].dropped = race.contender[4].dropped = true;
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
	for (size_t r = 0; r < 6; r++) {
		race_round(&race, slower, 0.001);
		race_decide(&race, false);
		assert_int_equal(race.decision.verdict, FT_VERDICT_MEASURE);
	}
	race_round(&race, slower, 0.001);
	race_decide(&race, false);
	assert_winner(&race, 1, true);
	assert_int_equal(race.standing[2].rounds, 7);
}

static void a_lucky_newcomer_does_not_win_an_ended_race(void **state)
{
	(void)state;
	static struct race race;
	const double slower[2] = {0, 0.02};
	race_start(&race, 2, NO_DEFAULT);
	race.contender[1].dropped = true;
	for (size_t r = 0; r < 20; r++)
		race_round(&race, slower, 0.001);
	race.contender[1].dropped = false;
	race_round(&race, slower, 0.001);
	race.sample_ps[1][20] = base_ps * 9 / 10;
	race_decide(&race, true);
	assert_winner(&race, 0, false);
}

static void a_resumed_race_counts_its_old_rounds(void **state)
{
	(void)state;
	static struct race race;
	const double slower[4] = {0.3, 0, 0.4, 0.5};
	race_start(&race, 4, 0);
	for (size_t r = 0; r < 4; r++)
		race_round(&race, slower, 0.001);
	/* After the restart the machine is in another mood. */
	for (size_t r = 0; r < 3; r++) {
		race_round(&race, slower, 0.001);
		for (size_t i = 0; i < 4; i++)
			race.sample_ps[i][race.rounds - 1] *= 2;
	}
	race_decide(&race, false);
	assert_winner(&race, 1, true);
}

static void a_full_house_of_rounds_ends_the_race(void **state)
{
	(void)state;
	static struct race race;
	const double slower[CONFIGS] = {0};
	race_start(&race, 2, 0);
	race.rule.max_rounds = 100000;
	for (size_t r = 0; r < FT_ROUNDS_MAX; r++)
		race_round(&race, slower, 0.2);
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_WINNER);
	assert_false(race.decision.conclusive);
	race.rounds = FT_ROUNDS_MAX + 1; /* looks no further than it may */
	race_decide(&race, false);
	assert_int_equal(race.decision.verdict, FT_VERDICT_WINNER);
}

static void too_many_configs_are_refused(void **state)
{
	(void)state;
	static struct ft_contender contender[FT_SPACE_MAX + 1];
	static struct ft_standing standing[FT_SPACE_MAX + 1];
	struct ft_decision decision;
	ft_decide(&ft_rule_usual, contender, FT_SPACE_MAX + 1, 0, 0, false, standing, &decision);
	assert_int_equal(decision.verdict, FT_VERDICT_NONE);
	ft_decide(&ft_rule_usual, contender, FT_SPACE_MAX, 0, 0, false, standing, &decision);
	assert_int_equal(decision.verdict, FT_VERDICT_MEASURE);
}

static void the_median_and_its_interval_are_those_of_the_textbook(void **state)
{
	(void)state;
	static struct race race;
	race_start(&race, 1, 0);
	const struct {
		size_t rounds, below; /* samples outside of the interval at either end */
	} known[] = {{5, 0}, {6, 0}, {8, 0}, {9, 1}, {12, 2}, {15, 3}, {20, 5}, {25, 7}, {60, 21}};
	for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
		size_t n = known[k].rounds;
		for (size_t r = 0; r < n; r++)
			race.sample_ps[0][r] = 1000 + 10 * ((r * 7) % n);
		if (n % 7 == 0)
			continue;
		race.rounds = n;
		race_decide(&race, true);
		assert_int_equal(race.standing[0].median_ps, 1000 + 5 * (n - 1));
		assert_int_equal(race.standing[0].ci_ps, 5 * (n - 1 - 2 * known[k].below));
	}
}

/* What is left races in rounds that are all slow, each by another's, and the rounds that are not had only what is out. */
static void rounds_that_nobody_left_was_in_do_not_stand_in_for_slow_ones(void **state)
{
	enum { OLD_ROUNDS = 10, NEW_ROUNDS = 12 };
	static struct race race;
	(void)state;
	race_start(&race, 4, 1);
	race.contender[0].out = true;
	for (size_t r = 0; r < OLD_ROUNDS; r++)
		race.sample_ps[0][r] = base_ps;
	for (size_t r = OLD_ROUNDS; r < OLD_ROUNDS + NEW_ROUNDS; r++) {
		for (size_t i = 1; i < race.count; i++)
			race.sample_ps[i][r] = r % 3 == i - 1 ? base_ps : 2 * base_ps;
	}
	race.rounds = OLD_ROUNDS + NEW_ROUNDS;
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_WINNER);
	assert_int_equal(race.decision.winner, 1);
	assert_int_equal(race.standing[1].rounds, NEW_ROUNDS);
	assert_int_equal(race.decision.slow, 0);
}

/* Dropping some changes which rounds count and who is the best; who went has the figures that it went for. */
static void what_is_dropped_is_shown_as_slower_than_the_band(void **state)
{
	enum { RACES = 400, ROUNDS = 40 };
	static struct race race;
	unsigned drops = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= RACES; seed++) {
		double slower[CONFIGS] = {0}, beside[CONFIGS] = {0};
		race_start(&race, 16, seed % 16);
		race.random = seed * 7919;
		for (size_t i = 0; i < race.count; i++)
			slower[i] = 0.06 * uniform(&race);
		while (race.rounds < ROUNDS) {
			bool busy = uniform(&race) < 0.4;
			for (size_t i = 0; i < race.count; i++)
				beside[i] = slower[i] + (busy ? 0.3 * uniform(&race) : 0);
			race_round(&race, beside, 0.01);
			race_decide(&race, false);
			for (size_t i = 0; i < race.count; i++) {
				const struct ft_standing *standing = &race.standing[i];
				struct ft_contender *contender = &race.contender[i];
				if (standing->drop) {
					assert_true(standing->ratio_low > 1 + race.rule.band_ppm / 1e6);
					assert_true(standing->ratio >= standing->ratio_low);
				}
				drops += standing->drop;
				contender->dropped =
				        (contender->dropped || standing->drop) && !standing->revive;
			}
		}
	}
	assert_true(drops > RACES);
}

/* Rounds that are slow by what is out since, in which others were dropped: these race again, so nothing is settled. */
static void the_only_one_left_is_told_from_the_only_one_that_is_fast(void **state)
{
	static struct race race;
	const double slower[CONFIGS] = {0, 0.1, 0.2};
	(void)state;
	race_start(&race, 3, 0);
	race_round(&race, slower, 0.001);
	race.contender[1].out = race.contender[2].out = true;
	race_decide(&race, true);
	assert_winner(&race, 0, false);
	assert_string_equal(race.decision.reason,
	        "unsettled when it was ended: the default is the only one left, and was timed too little");
	for (size_t r = 1; r < race.rule.min_rounds; r++)
		race_round(&race, slower, 0.001);
	race_decide(&race, true);
	assert_winner(&race, 0, true);
	assert_string_equal(race.decision.reason, "the default is the only one left");
}

static void a_time_that_no_launch_takes_is_no_sample(void **state)
{
	static struct race race;
	(void)state;
	race_start(&race, 2, 0);
	race.rounds = 20;
	for (size_t r = 0; r < race.rounds; r++) {
		race.sample_ps[0][r] = base_ps;
		race.sample_ps[1][r] = FT_SAMPLE_LEAST_PS - 1;
	}
	race_decide(&race, true);
	assert_int_equal(race.decision.winner, 0);
	assert_int_equal(race.standing[1].rounds, 0);
	assert_int_equal(race.standing[1].median_ps, 0);
	race.contender[0].out = true;
	race_decide(&race, true);
	assert_int_equal(race.decision.verdict, FT_VERDICT_NONE);
}

/* The default was in the first rounds alone, when the machine was ten times slower: only what both were in is compared. */
static void a_gain_is_that_of_the_rounds_that_both_were_in(void **state)
{
	static struct race race;
	struct ft_gain gain;
	const double slower[CONFIGS] = {0.05, 0, 0.01, 0.3};
	(void)state;
	race_start(&race, 4, 0);
	for (size_t r = 0; r < 8; r++)
		race_round(&race, slower, 0.001);
	for (size_t i = 0; i < race.count; i++) {
		for (size_t r = 0; r < race.rounds; r++)
			race.sample_ps[i][r] *= 10;
	}
	race.contender[0].dropped = true;
	for (size_t r = 0; r < 8; r++)
		race_round(&race, slower, 0.001);
	ft_gain(&race.rule, race.contender, race.count, 0, race.rounds, 1, race.standing, &gain);
	assert_int_equal(gain.rounds, 8);
	assert_true(gain.ratio > 1.045 && gain.ratio < 1.055);
	assert_true(gain.low > 1.03 && gain.low <= gain.ratio);
	ft_gain(&race.rule, race.contender, race.count, 1, race.rounds, 1, race.standing, &gain);
	assert_true(gain.rounds == 16 && gain.ratio == 1 && gain.low == 1);
	/* One that was never timed: nothing is known. */
	race.contender[0].sample_ps = NULL;
	ft_gain(&race.rule, race.contender, race.count, 0, race.rounds, 1, race.standing, &gain);
	assert_true(gain.rounds == 0 && gain.ratio == 0 && gain.low == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_gain_is_that_of_the_rounds_that_both_were_in),
	        cmocka_unit_test(a_time_that_no_launch_takes_is_no_sample),
	        cmocka_unit_test(what_is_dropped_is_shown_as_slower_than_the_band),
	        cmocka_unit_test(the_only_one_left_is_told_from_the_only_one_that_is_fast),
	        cmocka_unit_test(twelve_clear_configs_are_decided_in_seven_rounds),
	        cmocka_unit_test(the_default_is_kept_when_it_is_tied),
	        cmocka_unit_test(the_default_is_given_up_when_it_is_clearly_beaten),
	        cmocka_unit_test(a_tie_without_the_default_goes_to_the_earlier_config),
	        cmocka_unit_test(a_tie_is_not_chained_from_neighbour_to_neighbour),
	        cmocka_unit_test(just_the_band_is_a_tie),
	        cmocka_unit_test(equal_samples_are_decided_at_once),
	        cmocka_unit_test(nothing_is_dropped_before_the_least_rounds),
	        cmocka_unit_test(a_lone_pair_is_not_decided_on_seven_rounds_of_scatter),
	        cmocka_unit_test(a_config_within_the_noise_is_not_dropped),
	        cmocka_unit_test(one_disturbed_round_drops_nobody),
	        cmocka_unit_test(slow_rounds_do_not_count),
	        cmocka_unit_test(what_was_dropped_in_slow_rounds_is_revived),
	        cmocka_unit_test(a_lone_config_is_not_held_against_itself),
	        cmocka_unit_test(drift_that_hits_all_alike_changes_nothing),
	        cmocka_unit_test(the_order_of_rounds_does_not_matter),
	        cmocka_unit_test(stored_samples_give_the_same_decision_again),
	        cmocka_unit_test(a_race_that_cannot_be_settled_ends_and_says_so),
	        cmocka_unit_test(a_race_ended_before_its_noise_is_known_keeps_the_default),
	        cmocka_unit_test(an_ended_race_that_was_settled_is_conclusive),
	        cmocka_unit_test(nobody_wins_without_a_sample),
	        cmocka_unit_test(nobody_wins_when_all_are_out),
	        cmocka_unit_test(who_is_out_or_dropped_never_wins),
	        cmocka_unit_test(a_single_config_wins_once_its_time_is_known),
	        cmocka_unit_test(times_up_to_100_seconds_do_not_overflow),
	        cmocka_unit_test(rounds_that_one_lacks_are_left_out_of_its_comparisons),
	        cmocka_unit_test(a_new_member_gets_rounds_of_its_own),
	        cmocka_unit_test(a_lucky_newcomer_does_not_win_an_ended_race),
	        cmocka_unit_test(a_resumed_race_counts_its_old_rounds),
	        cmocka_unit_test(a_full_house_of_rounds_ends_the_race),
	        cmocka_unit_test(too_many_configs_are_refused),
	        cmocka_unit_test(the_median_and_its_interval_are_those_of_the_textbook),
	        cmocka_unit_test(rounds_that_nobody_left_was_in_do_not_stand_in_for_slow_ones),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
