#include "daemon/jobs/winner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/lookup.h"
#include "proto/clock.h"

/* Who contends, and which trial each is. */
struct lineup {
	uint32_t count, default_at;
	uint32_t trial[FT_SPACE_MAX];
	struct ft_contender contender[FT_SPACE_MAX];
};

/* Of an unlisted space those alone that were timed in the race, in the order of their places. The runner does the same. */
static void line_up(const struct trials *trials, uint32_t members, bool final, struct lineup *lineup)
{
	const bool unlisted = trials->unlisted > 0;

	lineup->count = 0;
	lineup->default_at = UINT32_MAX;
	for (uint32_t i = 0; i < members && lineup->count < FT_SPACE_MAX; i++) {
		uint32_t at = lineup->count;

		if (unlisted && i != trials->default_index && trials->trial[i].sample_ps == NULL)
			continue;
		for (; unlisted && at > 0 &&
		        trials->trial[lineup->trial[at - 1]].place > trials->trial[i].place;
		        at--)
			lineup->trial[at] = lineup->trial[at - 1];
		lineup->trial[at] = i;
		lineup->count++;
	}
	for (uint32_t k = 0; k < lineup->count; k++) {
		const struct trial *trial = &trials->trial[lineup->trial[k]];

		/* What was not verified cannot win, whatever its runner says. */
		lineup->contender[k] = (struct ft_contender){
		        .out = trial->status != TRIAL_WAITING || (final && !trial->verified),
		        .dropped = trial->dropped,
		        .sample_ps = trial->sample_ps,
		};
		if (lineup->trial[k] == trials->default_index)
			lineup->default_at = k;
	}
}

void trials_decide(const struct trials *trials, uint32_t members, uint32_t band_ppm, bool ended, bool final,
        struct ft_standing *standing, struct ft_decision *decision)
{
	static struct ft_standing of[FT_SPACE_MAX]; /* the loop thread's */
	struct lineup lineup;
	struct ft_rule rule = ft_rule_usual;

	rule.band_ppm = band_ppm;
	line_up(trials, members, final, &lineup);
	ft_decide(&rule, lineup.contender, lineup.count, lineup.default_at, trials->rounds, ended, of,
	        decision);
	memset(standing, 0, members * sizeof(*standing));
	for (uint32_t k = 0; k < lineup.count; k++)
		standing[lineup.trial[k]] = of[k];
	decision->winner = decision->winner < lineup.count ? lineup.trial[decision->winner] : members;
	decision->best = decision->best < lineup.count ? lineup.trial[decision->best] : members;
}

void trials_gain(const struct trials *trials, uint32_t members, uint32_t band_ppm, uint32_t winner,
        uint64_t *gain_ppm, uint64_t *least_ppm)
{
	struct ft_standing *standing = calloc(FT_SPACE_MAX, sizeof(*standing));
	struct lineup lineup;
	struct ft_rule rule = ft_rule_usual;
	struct ft_gain gain = {0};
	uint32_t at = 0;

	rule.band_ppm = band_ppm;
	line_up(trials, members, true, &lineup);
	while (at < lineup.count && lineup.trial[at] != winner)
		at++;
	if (standing != NULL)
		ft_gain(&rule, lineup.contender, lineup.count, lineup.default_at, trials->rounds, at,
		        standing, &gain);
	free(standing);
	*gain_ppm = (uint64_t)llround(gain.ratio * 1e6);
	*least_ppm = (uint64_t)llround(gain.low * 1e6);
}

void trials_time_winner(const struct trials *trials, uint32_t members, uint32_t band_ppm, uint32_t index,
        uint64_t time_ps, struct store_winner *winner)
{
	uint64_t gain_ppm;

	trials_gain(trials, members, band_ppm, index, &gain_ppm, &winner->gain_least_ppm);
	winner->time_ps = time_ps;
	winner->default_time_ps = (uint64_t)llround((double)time_ps * (double)gain_ppm / 1e6);
}

void trials_progress(const struct trials *trials, uint32_t members, uint64_t *tried, uint64_t *settled)
{
	*tried = 0;
	*settled = 0;
	for (uint32_t i = 0; i < members; i++) {
		const struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_PRUNED)
			continue;
		*tried += 1;
		if (trial->status != TRIAL_WAITING || trial->dropped || trials->winner >= 0)
			*settled += 1;
	}
}

uint64_t trials_seen(const struct trials *trials, uint32_t members, uint64_t *space)
{
	uint64_t tried = 0, seen = 0;

	for (uint32_t i = 0; i < members; i++) {
		const struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_PRUNED)
			continue;
		tried++;
		seen += (trial->status != TRIAL_WAITING && trial->status != TRIAL_SUSPECT) ||
		        trial->sample_ps != NULL || trial->look_ps > 0;
	}
	*space = trials->unlisted > 0 ? trials->unlisted : tried;
	return seen < *space ? seen : *space;
}

uint64_t trials_seen_ppm(const struct trials *trials, uint32_t members)
{
	uint64_t space;
	const uint64_t seen = trials_seen(trials, members, &space);

	return space > 0 ? seen * 1000000 / space : 0;
}

/* A stored winner gives way only to one that is better beyond the noise; or where nobody looked at what it does now. */
static uint32_t keep_tied(struct store *store, const struct target *target, const struct trials *trials,
        const struct ft_standing *standing)
{
	int32_t index = lookup_served(store, target, trials);

	if (index >= 0 && (uint32_t)index < trials_members(trials) && standing[index].tied &&
	        trials->trial[index].status == TRIAL_WAITING && !trials->trial[index].dropped &&
	        trials->trial[index].confirmed)
		return (uint32_t)index;
	return (uint32_t)trials->winner;
}

int winner_choose(struct store_winner *winner, struct store *store, const struct target *target,
        struct trials *trials, uint32_t band_ppm)
{
	const uint32_t members = trials_members(trials);
	struct ft_standing *standing = calloc(members, sizeof(*standing));
	struct ft_decision decision;

	if (standing == NULL)
		return -1;
	trials_decide(trials, members, band_ppm, true, true, standing, &decision);
	trials->winner = (int32_t)keep_tied(store, target, trials, standing);
	*winner = (struct store_winner){
	        .set = true,
	        .config = trials->trial[trials->winner].config,
	        .identity = target->kernel->identity,
	        .rule_revision = FT_RULE_REVISION,
	        .seen_ppm = trials_seen_ppm(trials, members),
	        .tuned_at_ns = ft_wall_ns(),
	        .conclusive = trials->conclusive,
	        .busy = trials->busy,
	};
	trials_time_winner(trials, members, band_ppm, (uint32_t)trials->winner,
	        standing[trials->winner].median_ps, winner);
	free(standing);
	return 0;
}
