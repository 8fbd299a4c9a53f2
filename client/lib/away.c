#include "client/lib/away.h"

#include <stdio.h>
#include <string.h>

#include "client/lib/answer.h"
#include "kernels/host.h"

/* While the daemon is away nothing can change an answer, so those that it gave, and did not take back before it went,
 * stand. */
static bool find_kept(flytune_client *client, const struct cache_key *key, struct flytune_answer *answer)
{
	struct board_sight sight = {0};
	struct cache_hit hit;

	if (!cache_find(&client->cache, key, &hit))
		return false;
	/* A daemon without a board says nothing of changes. */
	if (client->token[0] == '\0' &&
	        (hit.terms.serial != 0 ||
	                atomic_load_explicit(&client->boards.serial, memory_order_relaxed) != 0) &&
	        boards_check(&client->boards, hit.terms.serial, hit.terms.stripe, hit.terms.version,
	                &sight) == BOARD_CHANGED)
		return false;
	if (!cache_copy(&hit, answer))
		return false;
	if (sight.generation != 0)
		answer->generation = sight.generation;
	cache_count(&client->cache, &hit);
	answer->flags |= FLYTUNE_ANSWER_AWAY;
	return true;
}

/* "cuda:0" is of the kind cuda; a PCI address does not tell. */
static bool kind_of(const char *device, char kind[16])
{
	static const char *const kinds[] = {"cpu", "hip", "cuda"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		size_t length = strlen(kinds[i]);

		if (strncmp(device, kinds[i], length) == 0 &&
		        (device[length] == ':' || device[length] == '\0')) {
			snprintf(kind, 16, "%s", kinds[i]);
			return true;
		}
	}
	return false;
}

static void guess_traits(flytune_client *client, const char *kind, struct ft_traits *traits)
{
	pthread_mutex_lock(&client->lock);
	*traits = client->traits;
	pthread_mutex_unlock(&client->lock);
	if (strcmp(traits->kind, kind) == 0)
		return;
	ft_traits_guess(kind, traits);
	pthread_mutex_lock(&client->lock);
	client->traits = *traits;
	pthread_mutex_unlock(&client->lock);
}

int away_default(flytune_client *client, const flytune_problem *problem, const char *device,
        const char *reason, struct flytune_answer *answer, struct ft_error *error)
{
	struct ft_problem whole;
	struct ft_traits traits;
	struct ft_config config;
	char kind[16], last[FT_DEVICE_ID_SIZE];

	if (!problem->about->admitted) {
		*error = problem->about->refusal;
		return -1;
	}
	pthread_mutex_lock(&client->lock);
	memcpy(last, client->last_device, sizeof last);
	pthread_mutex_unlock(&client->lock);
	if (!kind_of(device, kind) && !kind_of(last, kind))
		snprintf(kind, sizeof kind, "%s", client->guessed_kind);

	memset(answer, 0, sizeof *answer);
	answer->size = sizeof *answer;
	answer->flags = FLYTUNE_ANSWER_AWAY;
	answer->source = FLYTUNE_SOURCE_DEFAULT;
	snprintf(answer->reason, sizeof answer->reason, "%s", reason);
	if (*device != '\0')
		snprintf(answer->device, sizeof answer->device, "%s", device);
	else if (last[0] != '\0')
		snprintf(answer->device, sizeof answer->device, "%s", last);
	else
		snprintf(answer->device, sizeof answer->device, "%s:0", kind);
	guess_traits(client, kind, &traits);
	problem_whole(problem, &whole);
	problem->about->built_in->default_config(problem->about->built_in, &whole, &traits, &config);
	answer->revision = problem->about->built_in->schema(problem->about->built_in, kind)->revision;
	return answer_knobs(&config, answer->knob, &answer->knob_count, error);
}

int away_answer(flytune_client *client, const struct cache_key *key, struct flytune_answer *answer,
        struct ft_error *error)
{
	char reason[sizeof error->code];

	if (find_kept(client, key, answer))
		return 0;
	if (client->token[0] != '\0') {
		char why[200];

		snprintf(why, sizeof why, "%s", error->message);
		return ft_fail(error, FT_E_GENERATION, "the answers of generation %s cannot be had: %s",
		        client->token, why);
	}
	/* The cause stands unless the problem itself is at fault. */
	if (key->problem->about->built_in == NULL)
		return -1;
	snprintf(reason, sizeof reason, "%s", error->code);
	return away_default(client, key->problem, key->device, reason, answer, error);
}
