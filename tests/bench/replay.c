/* Decides recorded sweeps in which every config was measured in every round: by the race as it would have gone,
 * and by the plain way, the least median of 25 rounds.
 *
 * Reads from standard input, for each sweep: the number of configs, the default's index, the number of rounds,
 * then a line of picoseconds a round. Prints, for each: the race's winner, whether it was settled, its rounds and
 * the samples that it took; then the plain winner. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/decide.h"
#include "proto/messages.h"

enum { PLAIN_ROUNDS = 25 };

struct sweep {
	size_t count, default_index, rounds;
	uint64_t sample[FT_SPACE_MAX][FT_ROUNDS_MAX];
	uint64_t seen[FT_SPACE_MAX][FT_ROUNDS_MAX]; /* by the race so far */
	struct ft_contender contender[FT_SPACE_MAX];
	struct ft_standing standing[FT_SPACE_MAX];
};

/* The next whole number, 0 at the end. */
static uint64_t next_number(void)
{
	uint64_t number = 0;
	int letter = getchar();

	while (letter == ' ' || letter == '\n')
		letter = getchar();
	for (; letter >= '0' && letter <= '9'; letter = getchar())
		number = 10 * number + (uint64_t)(letter - '0');
	return number;
}

static bool read_sweep(struct sweep *sweep)
{
	sweep->count = next_number();
	sweep->default_index = next_number();
	sweep->rounds = next_number();
	if (sweep->count == 0 || sweep->count > FT_SPACE_MAX || sweep->rounds > FT_ROUNDS_MAX)
		return false;
	for (size_t round = 0; round < sweep->rounds; round++) {
		for (size_t i = 0; i < sweep->count; i++)
			sweep->sample[i][round] = next_number();
	}
	return true;
}

static void race(struct sweep *sweep)
{
	struct ft_decision decision = {0};
	size_t round = 0, cost = 0;

	memset(sweep->seen, 0, sizeof sweep->seen);
	for (size_t i = 0; i < sweep->count; i++)
		sweep->contender[i] = (struct ft_contender){.sample_ps = sweep->seen[i]};
	for (; round < sweep->rounds; round++) {
		for (size_t i = 0; i < sweep->count; i++) {
			if (sweep->contender[i].dropped)
				continue;
			sweep->seen[i][round] = sweep->sample[i][round];
			cost++;
		}
		ft_decide(&ft_rule_usual, sweep->contender, sweep->count, sweep->default_index, round + 1,
		        round + 1 == sweep->rounds, sweep->standing, &decision);
		for (size_t i = 0; i < sweep->count; i++)
			sweep->contender[i].dropped =
			        (sweep->contender[i].dropped || sweep->standing[i].drop) &&
			        !sweep->standing[i].revive;
		if (decision.verdict != FT_VERDICT_MEASURE)
			break;
	}
	printf("%zu %d %zu %zu ", decision.winner, decision.conclusive,
	        round < sweep->rounds ? round + 1 : sweep->rounds, cost);
}

static int compare(const void *a, const void *b)
{
	uint64_t one, other;

	memcpy(&one, a, sizeof one);
	memcpy(&other, b, sizeof other);
	return (one > other) - (one < other);
}

static void plain(const struct sweep *sweep)
{
	size_t rounds = sweep->rounds < PLAIN_ROUNDS ? sweep->rounds : PLAIN_ROUNDS, best = 0;
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < sweep->count; i++) {
		uint64_t sorted[PLAIN_ROUNDS];

		memcpy(sorted, sweep->sample[i], rounds * sizeof *sorted);
		qsort(sorted, rounds, sizeof *sorted, compare);
		if (sorted[rounds / 2] < least) {
			least = sorted[rounds / 2];
			best = i;
		}
	}
	printf("%zu\n", best);
}

int main(void)
{
	struct sweep *sweep = calloc(1, sizeof *sweep);

	if (sweep == NULL)
		return 1;
	while (read_sweep(sweep)) {
		race(sweep);
		plain(sweep);
	}
	free(sweep);
	return 0;
}
