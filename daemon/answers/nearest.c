#include "daemon/answers/nearest.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/answers/staleness.h"

enum { NEAREST_LOOKED_AT = 16, NEAREST_FACTOR = 2 };

/* Whether a config of another size would be tried at this one. Making a space takes longer than all else of a lookup, so
 * what came of it last is remembered, by a hash of all that it depends on but for kernel and device, whose it is. */
static bool tries_here(const struct target *target, const struct ft_config *config)
{
	struct {
		struct ft_problem_key problem;
		int64_t value[FT_KNOBS_MAX];
	} about;
	uint64_t hash, *place;

	memset(&about, 0, sizeof(about)); /* and what lies between its members */
	about.problem = target->key.problem;
	for (uint32_t i = 0; i < config->count; i++)
		about.value[i] = config->knob[i].value;
	hash = XXH3_64bits(&about, sizeof(about));
	for (uint32_t i = 0; i < config->count; i++) {
		const char *word = config->knob[i].word;

		if (word[0] != '\0')
			hash = XXH3_64bits_withSeed(word, strlen(word), hash + i);
	}
	hash &= ~UINT64_C(1);
	place = &target->kernel->tried[hash / 2 % DEVICE_TRIED];
	if ((*place & ~UINT64_C(1)) != hash || *place == 0)
		*place = hash | target_tries(target, config);
	return *place & 1;
}

struct near_search {
	const struct target *target;
	struct ft_answer *answer;
	bool found;
};

/* Stops at the first neighbour that knows a config which is valid here as well. */
static bool look_near(void *data, uint64_t scale, const struct store_answer *known)
{
	struct near_search *search = data;
	const struct target *target = search->target;
	struct ft_problem here;
	struct ft_config config;
	bool serves = false;

	/* The key has only a hash: the problem must be the same but for the scale field. */
	ft_problem_copy(&here, &target->problem);
	if (ft_problem_set_number(&here, target->kernel->schema.scale, (int64_t)scale, NULL) != 0 ||
	        !ft_problem_equal(&here, &known->problem))
		return true;
	if (winner_is_current(target->kernel, &known->winner)) {
		ft_config_copy(&config, &known->winner.config);
		serves = target_takes(target, &config, NULL);
	}
	if (!serves) {
		if (!known->import.set)
			return true;
		ft_config_copy(&config, &known->import.config);
		if (!target_takes(target, &config, NULL))
			return true;
	}
	if (!tries_here(target, &config))
		return true;
	/* Times were measured at another size: they say nothing of this one. */
	if (serves) {
		search->answer->unsettled = !known->winner.conclusive;
		memcpy(search->answer->identity, target->kernel->identity_hash,
		        sizeof(search->answer->identity));
	}
	search->answer->tuned_at_ns = serves ? known->winner.tuned_at_ns : known->import.at_ns;
	search->answer->order_class = serves ? known->winner.order_class : known->import.order_class;
	ft_config_copy(&search->answer->config, &config);
	search->answer->tuned_scale = scale;
	search->found = true;
	return false;
}

int nearest_answer(struct store *store, const struct target *target, uint64_t generation,
        struct ft_answer *answer, bool *found, struct ft_error *error)
{
	struct near_search search = {.target = target, .answer = answer};
	uint64_t here = target->key.problem.scale;
	uint64_t high = here > UINT64_MAX / NEAREST_FACTOR ? UINT64_MAX : here * NEAREST_FACTOR;

	if (target->kernel->schema.scale[0] != '\0' &&
	        store_near_answers(store, &target->key, here / NEAREST_FACTOR + here % NEAREST_FACTOR, high,
	                NEAREST_LOOKED_AT, generation, look_near, &search, error) < 0)
		return -1;
	*found = search.found;
	return 0;
}
