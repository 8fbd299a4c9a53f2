#include "daemon/jobs/winner.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/answers/lookup.h"
#include "proto/clock.h"

static uint32_t line_up(
        const struct trials *trials, uint32_t members, bool final, struct ft_contender *contender)
{
	if (members > FT_SPACE_MAX)
		members = FT_SPACE_MAX;
	for (uint32_t i = 0; i < members; i++) {
		const struct trial *trial = &trials->trial[i];

		/* What was not verified cannot win, whatever its runner says. */
		contender[i] = (struct ft_contender){
		        .out = trial->status != TRIAL_WAITING || (final && !trial->verified),
		        .dropped = trial->dropped,
		        .sample_ps = trial->sample_ps,
		};
	}
	return members;
}

void trials_decide(const struct trials *trials, uint32_t members, uint32_t band_ppm, bool ended, bool final,
        struct ft_standing *standing, struct ft_decision *decision)
{
	struct ft_contender contender[FT_SPACE_MAX];
	struct ft_rule rule = ft_rule_usual;

	rule.band_ppm = band_ppm;
	members = line_up(trials, members, final, contender);
	ft_decide(
	        &rule, contender, members, trials->default_index, trials->rounds, ended, standing, decision);
}

void trials_gain(const struct trials *trials, uint32_t members, uint32_t band_ppm, uint32_t winner,
        uint64_t *gain_ppm, uint64_t *least_ppm)
{
	struct ft_contender contender[FT_SPACE_MAX];
	struct ft_standing *standing = calloc(FT_SPACE_MAX, sizeof(*standing));
	struct ft_rule rule = ft_rule_usual;
	struct ft_gain gain = {0};

	rule.band_ppm = band_ppm;
	members = line_up(trials, members, true, contender);
	if (standing != NULL)
		ft_gain(&rule, contender, members, trials->default_index, trials->rounds, winner, standing,
		        &gain);
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

uint64_t trials_seen_ppm(const struct trials *trials, uint32_t members)
{
	uint64_t tried = 0, seen = 0;

	for (uint32_t i = 0; i < members; i++) {
		const struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_PRUNED)
			continue;
		tried++;
		seen += (trial->status != TRIAL_WAITING && trial->status != TRIAL_SUSPECT) ||
		        trial->sample_ps != NULL;
	}
	return tried > 0 ? seen * 1000000 / tried : 0;
}

/* A stored winner gives way only to one that is better beyond the noise; or where nobody looked at what it does now. */
static uint32_t keep_tied(struct store *store, const struct target *target, const struct trials *trials,
        const struct ft_standing *standing)
{
	int32_t index = lookup_served(store, target, trials);

	if (index >= 0 && index < FT_SPACE_MAX && standing[index].tied &&
	        trials->trial[index].status == TRIAL_WAITING && !trials->trial[index].dropped &&
	        trials->trial[index].confirmed)
		return (uint32_t)index;
	return (uint32_t)trials->winner;
}

int winner_choose(struct store_winner *winner, struct store *store, const struct target *target,
        struct trials *trials, uint32_t band_ppm)
{
	uint32_t members = trials->count < FT_SPACE_MAX ? trials->count : FT_SPACE_MAX;
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
