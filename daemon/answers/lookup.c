#include "daemon/answers/lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/nearest.h"
#include "daemon/answers/staleness.h"

const char lookup_source_words[LOOKUP_SOURCES][LOOKUP_WORD_SIZE] = {
        [LOOKUP_PINNED] = "pinned",
        [LOOKUP_TUNED] = "tuned",
        [LOOKUP_IMPORTED] = "imported",
        [LOOKUP_NEAREST] = "nearest",
        [LOOKUP_DEFAULT] = "default",
        [LOOKUP_FLEET] = "fleet",
        [LOOKUP_RECORDED] = "recorded",
};

int lookup_token(struct store *store, const char *token, uint64_t *generation, struct ft_error *error)
{
	const char *colon = strchr(token, ':');
	const char *uuid = store_uuid(store);
	char *end;
	unsigned long long counter;

	if (colon == NULL || (size_t)(colon - token) != strlen(uuid) ||
	        strncmp(token, uuid, strlen(uuid)) != 0)
		return ft_fail_field(
		        error, FT_E_GENERATION, "generation", token, "a token of this store, UUID:COUNTER");
	errno = 0;
	counter = strtoull(colon + 1, &end, 10);
	if (errno != 0 || end == colon + 1 || *end != '\0' || colon[1] == '-' || counter == 0)
		return ft_fail_field(
		        error, FT_E_GENERATION, "generation", token, "a token of this store, UUID:COUNTER");
	if (counter > store_generation(store) || counter < store_history_floor(store))
		return ft_fail(error, FT_E_GENERATION,
		        "generation %llu is not kept: this store has %llu to %llu", counter,
		        (unsigned long long)store_history_floor(store),
		        (unsigned long long)store_generation(store));
	*generation = counter;
	return 0;
}

static void set_gain(uint64_t time_ps, uint64_t default_time_ps, uint64_t least_ppm, struct ft_answer *answer)
{
	answer->time_ns = (time_ps + 500) / 1000;
	if (time_ps != 0)
		answer->gain_ppm = (uint64_t)((double)default_time_ps / (double)time_ps * 1e6 + 0.5);
	answer->gain_least_ppm = least_ppm;
}

void lookup_times(const struct store_winner *winner, struct ft_answer *answer)
{
	set_gain(winner->time_ps, winner->default_time_ps, winner->gain_least_ppm, answer);
	answer->seen_ppm = winner->seen_ppm;
	answer->order_class = winner->order_class;
	answer->unsettled = !winner->conclusive;
	answer->tuned_at_ns = winner->tuned_at_ns;
}

static void take_winner(
        const struct device_kernel *kernel, const struct store_winner *winner, struct ft_answer *answer)
{
	ft_config_copy(&answer->config, &winner->config);
	lookup_times(winner, answer);
	memcpy(answer->identity, kernel->identity_hash, sizeof(answer->identity));
}

const char *lookup_winner_reason(const struct store_winner *winner)
{
	if (winner->busy)
		return winner->conclusive ? "measured while something else used the device"
		                          : "not settled, and something else used the device";
	return winner->conclusive ? "" : "the race ended before it was settled";
}

int lookup_known(struct store *store, const struct target *target, uint64_t generation,
        struct store_answer *known, struct ft_error *error)
{
	int found = generation == 0 ? store_get_answer(store, &target->key, known, error)
	                            : store_get_answer_at(store, &target->key, generation, known, error);

	return found == 1 && !ft_problem_equal(&known->problem, &target->problem) ? 0 : found;
}

bool lookup_is_settled(struct store *store, const struct target *target)
{
	struct store_answer known;

	return lookup_known(store, target, 0, &known, NULL) == 1 && winner_is_settled(target, &known.winner);
}

int lookup_trials(
        struct store *store, const struct target *target, struct trials **trials, struct ft_error *error)
{
	*trials = NULL;
	if (target->key.device != 0 &&
	        store_get_trials(store, &target->key, target->kernel->identity, trials, error) < 0)
		return -1;
	if (*trials != NULL && !ft_problem_equal(&(*trials)->problem, &target->problem)) {
		trials_free(*trials);
		*trials = NULL;
	}
	return 0;
}

int32_t lookup_served(struct store *store, const struct target *target, const struct trials *trials)
{
	struct store_answer known;
	int32_t index = -1;

	if (store_begin(store, NULL) != 0)
		return -1;
	if (lookup_known(store, target, 0, &known, NULL) == 1 && winner_serves(target, &known.winner))
		index = trials_find(trials, &known.winner.config);
	store_end(store);
	return index;
}

int lookup_without_store(struct store *store, const struct target *target, struct ft_answer *answer,
        struct lookup_basis *basis, struct ft_error *error)
{
	ft_clear(&ft_answer_message, answer);
	memcpy(answer->kernel, target->kernel->schema.kernel, sizeof(answer->kernel));
	memcpy(answer->device, target->device->shown.id, sizeof(answer->device));
	ft_problem_copy(&answer->problem, &target->problem);
	answer->generation = store_generation(store);
	answer->revision = target->kernel->schema.revision;
	*basis = (struct lookup_basis){.source = LOOKUP_DEFAULT};
	memcpy(answer->source, lookup_source_words[LOOKUP_DEFAULT], sizeof(answer->source));
	ft_text_copy(answer->reason, sizeof(answer->reason), "the store cannot be read");
	return target_default(target, &answer->config, error);
}

/* Whether the answers of that moment were those of today's device under today's software. An identity of 0: it was just
 * heard for the first time, and that is not stored yet. */
static int check_generation(
        struct store *store, const struct target *target, uint64_t generation, struct ft_error *error)
{
	const struct device *device = target->device;
	uint32_t occupant = store_device_identity(store, device->place, generation);
	uint32_t identity = store_device_identity(store, target->kernel->target, generation);

	if (occupant != 0 && occupant != device->occupant)
		return ft_fail(error, FT_E_GENERATION, "at generation %llu, %s was another device",
		        (unsigned long long)generation, device->shown.id);
	if (identity != 0 && identity != target->kernel->identity)
		return ft_fail(error, FT_E_GENERATION,
		        "generation %llu was answered under another compiler, driver or kernel source",
		        (unsigned long long)generation);
	return 0;
}

int lookup_answer(struct store *store, const struct target *target, uint64_t generation,
        struct ft_answer *answer, struct lookup_basis *basis, struct ft_error *error)
{
	static const char stale[] = "stale: tuned under another compiler, driver or kernel source";
	const char *reason = "no result yet";
	struct store_answer known;
	bool near = false;
	int found = 0;

	ft_clear(&ft_answer_message, answer);
	memcpy(answer->kernel, target->kernel->schema.kernel, sizeof(answer->kernel));
	memcpy(answer->device, target->device->shown.id, sizeof(answer->device));
	ft_problem_copy(&answer->problem, &target->problem);
	answer->generation = generation != 0 ? generation : store_generation(store);
	if (target->kernel->id == 0 || target->device->key == 0) {
		reason = target->device->state == DEVICE_PROBING ? "probing" : "no device";
		answer->device[0] = '\0';
		goto use_default;
	}
	if (generation != 0 && check_generation(store, target, generation, error) != 0)
		return -1;
	found = lookup_known(store, target, generation, &known, error);
	if (found < 0)
		return -1;
	if (found > 0 && known.pin.set) {
		ft_config_copy(&answer->config, &known.pin.config);
		if (target_takes(target, &answer->config, NULL)) {
			basis->source = LOOKUP_PINNED;
			answer->tuned_at_ns = known.pin.at_ns;
			goto done;
		}
		reason = "pinned config is no longer in the space";
	}
	if (found > 0 && winner_serves(target, &known.winner)) {
		take_winner(target->kernel, &known.winner, answer);
		basis->source = LOOKUP_TUNED;
		reason = lookup_winner_reason(&known.winner);
		goto finish;
	}
	if (found > 0 && winner_is_current(target->kernel, &known.winner))
		reason = "winner is no longer in the space";
	else if (found > 0 && known.winner.set)
		reason = stale;
	if (found > 0 && known.import.set) {
		ft_config_copy(&answer->config, &known.import.config);
		if (target_takes(target, &answer->config, NULL)) {
			basis->source = LOOKUP_IMPORTED;
			set_gain(known.import.time_ps, known.import.default_time_ps,
			        known.import.gain_least_ppm, answer);
			answer->seen_ppm = known.import.seen_ppm;
			answer->order_class = known.import.order_class;
			answer->unsettled = known.import.unsettled;
			answer->tuned_at_ns = known.import.at_ns;
			if (strcmp(known.import.identity, target->kernel->identity_text) != 0)
				reason = "measured under another identity";
			else
				reason = "";
			goto finish;
		}
		reason = "imported config is not in the space";
	}
	if (nearest_answer(store, target, generation, answer, &near, error) != 0)
		return -1;
	if (near) {
		basis->source = LOOKUP_NEAREST;
		goto finish;
	}
use_default:
	basis->source = LOOKUP_DEFAULT;
	if (target_default(target, &answer->config, error) != 0)
		return -1;
	answer->revision = target->kernel->schema.revision;
	goto finish;
done:
	reason = "";
finish:
	basis->stale = reason == stale;
	memcpy(answer->source, lookup_source_words[basis->source], sizeof(answer->source));
	ft_text_copy(answer->reason, sizeof(answer->reason), reason);
	return 0;
}
