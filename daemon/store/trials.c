#include "daemon/store/trials.h"

#include <stdlib.h>
#include <string.h>

static const char *const status_words[] = {
        [TRIAL_WAITING] = "waiting",
        [TRIAL_WRONG] = "wrong",
        [TRIAL_FAILED] = "failed",
        [TRIAL_TIMEOUT] = "timeout",
        [TRIAL_SAME_CODE] = "same_code_as",
        [TRIAL_PRUNED] = "pruned",
        [TRIAL_SUSPECT] = "suspect",
};

enum { STATUS_COUNT = sizeof(status_words) / sizeof(status_words[0]) };

struct trials *trials_new(uint32_t count)
{
	struct trials *trials = calloc(1, sizeof(*trials));

	if (trials == NULL)
		return NULL;
	trials->winner = -1;
	trials->count = count;
	if (count > 0) {
		trials->trial = calloc(count, sizeof(*trials->trial));
		if (trials->trial == NULL) {
			free(trials);
			return NULL;
		}
	}
	return trials;
}

void trials_free(struct trials *trials)
{
	if (trials == NULL)
		return;
	for (uint32_t i = 0; i < trials->count; i++)
		free(trials->trial[i].sample_ps);
	free(trials->trial);
	free(trials);
}

uint64_t *trials_samples(struct trials *trials, uint32_t index)
{
	struct trial *trial = &trials->trial[index];

	if (trial->sample_ps == NULL)
		trial->sample_ps = calloc(FT_ROUNDS_MAX, sizeof(*trial->sample_ps));
	return trial->sample_ps;
}

int32_t trials_find(const struct trials *trials, const struct ft_config *config)
{
	for (uint32_t i = 0; i < trials->count; i++)
		if (ft_config_equal(&trials->trial[i].config, config))
			return (int32_t)i;
	return -1;
}

uint32_t trials_members(const struct trials *trials)
{
	return trials->unlisted > 0 || trials->count < FT_SPACE_MAX ? trials->count : FT_SPACE_MAX;
}

struct trial *trials_add(struct trials *trials, const struct ft_config *config, uint32_t place)
{
	enum { ROOM = 64 };
	struct trial *trial;

	if (trials->count >= FT_TRIES_MAX)
		return NULL;
	if (trials->count >= trials->room) {
		const uint32_t room = 2 * trials->count > ROOM ? 2 * trials->count : ROOM;

		trial = realloc(trials->trial, room * sizeof(*trial));
		if (trial == NULL)
			return NULL;
		trials->trial = trial;
		trials->room = room;
	}
	trial = &trials->trial[trials->count++];
	*trial = (struct trial){.config = *config, .place = place};
	return trial;
}

const char *trial_status_word(enum trial_status status)
{
	return (unsigned)status < STATUS_COUNT ? status_words[status] : "unknown";
}

int trial_status_parse(const char *word, enum trial_status *status)
{
	for (unsigned i = 0; i < STATUS_COUNT; i++) {
		if (strcmp(word, status_words[i]) == 0) {
			*status = (enum trial_status)i;
			return 0;
		}
	}
	return -1;
}
