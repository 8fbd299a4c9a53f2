#include "daemon/answers/target.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int target_admit(struct target *target, struct devices *devices, const char *kernel, const char *device,
        const struct ft_problem *given, struct ft_error *error)
{
	target->device = devices_find(devices, device, error);
	if (target->device == NULL)
		return -1;
	target->kernel = device_kernel_find(target->device, kernel, error);
	if (target->kernel == NULL)
		return -1;
	if (target->kernel->known != NULL) {
		if (ft_problem_admit(target->kernel->known, &target->kernel->schema, given, &target->problem,
		            error) != 0)
			return -1;
	} else if (ft_schema_complete(&target->kernel->schema, given, &target->problem, error) != 0) {
		return -1;
	}
	target->key.kernel = target->kernel->id;
	target->key.device = target->device->key;
	ft_schema_key(&target->kernel->schema, &target->problem, &target->key.problem);
	return 0;
}

int target_default(const struct target *target, struct ft_config *config, struct ft_error *error)
{
	if (target->kernel->known != NULL) {
		target->kernel->known->default_config(
		        target->kernel->known, &target->problem, &target->device->traits, config);
		return 0;
	}
	if (target->kernel->fallback.count == 0)
		return ft_fail(error, FT_E_UNAVAILABLE, "kernel %s has no default: tune it first",
		        target->kernel->schema.kernel);
	ft_config_copy(config, &target->kernel->fallback);
	return 0;
}

bool target_takes(const struct target *target, struct ft_config *config, struct ft_error *error)
{
	struct ft_config ordered;

	if (ft_schema_check_config(&target->kernel->schema, config, &ordered, error) != 0)
		return false;
	if (target->kernel->known != NULL &&
	        target->kernel->known->check_config(target->kernel->known, &target->problem,
	                &target->device->traits, &ordered, error) != 0)
		return false;
	ft_config_copy(config, &ordered);
	return true;
}

bool target_tries(const struct target *target, const struct ft_config *config)
{
	const struct ft_kernel *known = target->kernel->known;
	struct ft_space *space;
	bool tries = false;

	if (known == NULL)
		return true;
	if (known->tries != NULL)
		return known->tries(known, &target->problem, &target->device->traits, config);
	space = malloc(sizeof(*space));
	if (space == NULL || known->space(known, &target->problem, &target->device->traits, space, NULL) != 0)
		goto out;
	for (uint32_t i = 0; i < space->count && !tries; i++)
		tries = space->pruned[i][0] == '\0' && ft_config_equal(&space->config[i], config);
out:
	free(space);
	return tries;
}

static void add_config(XXH3_state_t *state, const struct ft_config *config)
{
	char text[FT_CONFIG_TEXT_SIZE];

	(void)ft_config_format(config, ' ', text, sizeof(text));
	(void)XXH3_64bits_update(state, text, strlen(text) + 1);
}

/* Where the space follows from a text, problem and device are of the same answer: no member is looked at. */
static uint64_t hash_text(const struct ft_kernel *known)
{
	return XXH3_64bits(known->space_text, strlen(known->space_text));
}

uint64_t target_space_hash(const struct target *target)
{
	const struct ft_kernel *known = target->kernel->known;
	struct ft_space *space;
	XXH3_state_t *state;
	uint64_t hash = 0;

	if (known == NULL)
		return 0;
	if (known->space_text != NULL)
		return hash_text(known);
	space = malloc(sizeof(*space));
	state = XXH3_createState();
	if (space != NULL && state != NULL &&
	        known->space(known, &target->problem, &target->device->traits, space, NULL) == 0) {
		(void)XXH3_64bits_reset(state);
		for (uint32_t i = 0; i < space->count; i++) {
			if (space->pruned[i][0] == '\0')
				add_config(state, &space->config[i]);
		}
		hash = XXH3_64bits_digest(state);
	}
	(void)XXH3_freeState(state);
	free(space);
	return hash;
}

uint64_t target_members_hash(const struct target *target, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count)
{
	const struct ft_kernel *known = target->kernel->known;
	XXH3_state_t *state = NULL;
	uint64_t hash = 0;

	if (known != NULL && known->space_text != NULL)
		return hash_text(known);
	if (known != NULL)
		state = XXH3_createState();
	if (state == NULL)
		return 0;
	(void)XXH3_64bits_reset(state);
	for (uint32_t i = 0; i < count; i++) {
		if (pruned[i][0] == '\0')
			add_config(state, &config[i]);
	}
	hash = XXH3_64bits_digest(state);
	(void)XXH3_freeState(state);
	return hash;
}
