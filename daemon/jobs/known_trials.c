#include "daemon/jobs/known_trials.h"

#include <stdio.h>
#include <stdlib.h>

static const char not_in_space[] = "no longer in the space";

struct trials *trials_merge(const struct target *target, struct trials *known, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count, uint32_t default_index)
{
	bool taken[2 * FT_SPACE_MAX] = {false};
	uint32_t left = 0;
	struct trials *trials;

	for (uint32_t i = 0; known != NULL && i < known->count && i < 2 * FT_SPACE_MAX; i++) {
		bool inside = i < count && ft_config_equal(&known->trial[i].config, &config[i]);

		for (uint32_t k = 0; k < count && !inside; k++)
			inside = ft_config_equal(&known->trial[i].config, &config[k]);
		left += inside ? 0 : 1;
	}
	if (left > FT_SPACE_MAX)
		left = FT_SPACE_MAX;
	trials = trials_new(count + left);
	if (trials == NULL)
		return NULL;
	(void)snprintf(trials->kernel, sizeof(trials->kernel), "%s", target->kernel->schema.kernel);
	trials->problem = target->problem;
	trials->default_index = default_index;
	trials->winner = -1;
	if (known != NULL) {
		trials->seed = known->seed;
		trials->rounds = known->rounds;
		trials->sweep_ns = known->sweep_ns;
		(void)snprintf(trials->method, sizeof(trials->method), "%s", known->method);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct trial *trial = &trials->trial[i];
		int32_t before = -1;

		/* Mostly it stands where it stood. */
		if (known != NULL && i < known->count && ft_config_equal(&known->trial[i].config, &config[i]))
			before = (int32_t)i;
		else if (known != NULL)
			before = trials_find(known, &config[i]);
		if (before >= 0 && before < 2 * FT_SPACE_MAX) {
			*trial = known->trial[before];
			known->trial[before].sample_ps = NULL; /* moved */
			taken[before] = true;
			if (trial->status == TRIAL_PRUNED)
				trial->status = TRIAL_WAITING;
			if (trial->status == TRIAL_WAITING && trial->struck)
				trial->status = TRIAL_SUSPECT; /* it was to be tried once more */
			if (known->winner == before && pruned[i][0] == '\0')
				trials->winner = (int32_t)i;
		}
		trial->config = config[i];
		if (pruned[i][0] != '\0') {
			trial->status = TRIAL_PRUNED;
			(void)snprintf(trial->reason, sizeof(trial->reason), "%s", pruned[i]);
		}
	}
	for (uint32_t i = 0, at = count;
	        known != NULL && i < known->count && i < 2 * FT_SPACE_MAX && at < trials->count; i++) {
		if (taken[i])
			continue;
		trials->trial[at] = known->trial[i];
		known->trial[i].sample_ps = NULL;
		if (trials->trial[at].status == TRIAL_WAITING) {
			trials->trial[at].status = TRIAL_PRUNED;
			(void)snprintf(trials->trial[at].reason, sizeof(trials->trial[at].reason), "%s",
			        not_in_space);
		}
		at++;
	}
	/* "Same code as" names another trial by index: find it again, or build it anew. */
	for (uint32_t i = 0; i < trials->count; i++) {
		struct trial *trial = &trials->trial[i];
		int32_t same = -1;

		if (trial->status != TRIAL_SAME_CODE)
			continue;
		if (known != NULL && trial->same_as < known->count)
			same = trials_find(trials, &known->trial[trial->same_as].config);
		if (same >= 0 && (uint32_t)same < count && trials->trial[same].status != TRIAL_PRUNED) {
			trial->same_as = (uint32_t)same;
		} else {
			trial->status = TRIAL_WAITING;
			trial->code[0] = '\0';
		}
	}
	return trials;
}

struct trials *trials_of_unlisted(
        const struct target *target, struct trials *known, const struct ft_config *usual, uint64_t unlisted)
{
	struct trials *trials = known != NULL ? known : trials_new(0);
	int32_t index;

	if (trials == NULL)
		return NULL;
	if (known == NULL) {
		(void)snprintf(trials->kernel, sizeof(trials->kernel), "%s", target->kernel->schema.kernel);
		trials->problem = target->problem;
	}
	trials->unlisted = unlisted;
	for (uint32_t i = 0; i < trials->count; i++) {
		struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_PRUNED)
			trial->status = TRIAL_WAITING;
		if (trial->status == TRIAL_WAITING && trial->struck)
			trial->status = TRIAL_SUSPECT; /* it was to be tried once more */
	}
	index = trials_find(trials, usual);
	if (index < 0 && trials_add(trials, usual, TRIAL_NO_PLACE) != NULL)
		index = (int32_t)trials->count - 1;
	if (index < 0) {
		trials_free(trials);
		return NULL;
	}
	trials->default_index = (uint32_t)index;
	return trials;
}

bool trials_complete(const struct trials *trials, uint32_t members)
{
	if (trials->winner < 0)
		return false;
	for (uint32_t i = 0; i < members; i++) {
		const struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_WAITING && !trial->dropped && trial->sample_ps == NULL)
			return false;
	}
	return true;
}

/* A verdict that a sick device, or a machine without memory, may have come to. */
static bool may_be_retried(const struct trial *trial)
{
	return trial->status == TRIAL_FAILED || trial->status == TRIAL_TIMEOUT ||
	        trial->status == TRIAL_SUSPECT;
}

void trials_forget_times(struct trials *trials, bool retry)
{
	trials->rounds = 0;
	trials->winner = -1;
	trials->conclusive = false;
	trials->raced = false;
	for (uint32_t i = 0; i < trials->count; i++) {
		struct trial *trial = &trials->trial[i];

		free(trial->sample_ps);
		trial->sample_ps = NULL;
		trial->dropped = false;
		trial->dropped_round = 0;
		trial->verified = false;
		if (retry && may_be_retried(trial)) {
			trial->status = TRIAL_WAITING;
			trial->struck = false;
		}
		if (trial->status == TRIAL_WAITING)
			trial->reason[0] = '\0';
	}
}
