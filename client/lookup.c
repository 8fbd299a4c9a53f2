#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/answer.h"
#include "client/outcome.h"
#include "client/sized.h"

/* One lookup, as its steps see it. */
struct lookup {
	flytune_client *client;
	const flytune_problem *problem;
	char device[FT_DEVICE_ID_SIZE];
	uint64_t deadline;
	struct flytune_answer answer;
};

/* Calls that were answered without the daemon since it was last asked: they ride along. */
static uint64_t count_repeats(struct lookup *lookup)
{
	struct cache_entry *entry;
	uint64_t repeats;

	pthread_mutex_lock(&lookup->client->lock);
	entry = cache_find(&lookup->client->cache, lookup->problem, lookup->device);
	repeats = entry == NULL ? 0 : entry->repeats;
	pthread_mutex_unlock(&lookup->client->lock);
	return repeats;
}

static void keep(struct lookup *lookup, uint64_t told)
{
	struct cache_entry *entry;

	pthread_mutex_lock(&lookup->client->lock);
	cache_keep(&lookup->client->cache, lookup->problem, lookup->device, &lookup->answer);
	entry = cache_find(&lookup->client->cache, lookup->problem, lookup->device);
	if (entry != NULL)
		entry->repeats -= entry->repeats < told ? entry->repeats : told;
	if (lookup->device[0] == '\0')
		memcpy(lookup->client->last_device, lookup->answer.device,
		        sizeof lookup->client->last_device);
	pthread_mutex_unlock(&lookup->client->lock);
}

/* While the daemon is away nothing can change an answer, so those that it gave stand. */
static bool find_kept(struct lookup *lookup)
{
	struct cache_entry *entry;

	pthread_mutex_lock(&lookup->client->lock);
	entry = cache_find(&lookup->client->cache, lookup->problem, lookup->device);
	if (entry != NULL) {
		entry->repeats++;
		lookup->answer = entry->answer;
		lookup->answer.flags |= FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT;
	}
	pthread_mutex_unlock(&lookup->client->lock);
	return entry != NULL;
}

static int answer_alone(struct lookup *lookup, struct ft_error *error)
{
	char reason[sizeof error->code];

	if (find_kept(lookup))
		return 0;
	if (lookup->client->token[0] != '\0') {
		char why[200];

		snprintf(why, sizeof why, "%s", error->message);
		return ft_fail(error, FT_E_GENERATION, "the answers of generation %s cannot be had: %s",
		        lookup->client->token, why);
	}
	/* The cause stands unless the problem itself is at fault. */
	if (lookup->problem->built_in == NULL)
		return -1;
	snprintf(reason, sizeof reason, "%s", error->code);
	return answer_standard(
	        lookup->client, lookup->problem, lookup->device, reason, &lookup->answer, error);
}

static int ask(struct lookup *lookup, struct ft_error *error)
{
	flytune_client *client = lookup->client;
	struct ft_lookup_request request = {.tune_on_miss = client->tune_on_miss};
	struct connection *connection;
	struct ft_envelope reply;
	enum call_result result;

	memcpy(request.kernel, lookup->problem->kernel, sizeof request.kernel);
	request.problem = lookup->problem->given;
	memcpy(request.device, lookup->device, sizeof request.device);
	memcpy(request.generation, client->token, sizeof request.generation);
	request.repeats = count_repeats(lookup);
	/* Without a generation there is always an answer of our own, so a daemon that was away is not waited
	 * for. */
	result = client_call(client, "lookup", &ft_lookup_request_message, &request, lookup->deadline,
	        client->token[0] != '\0', &connection, &reply, error);
	if (result == CALL_DONE) {
		if (answer_read(reply.body, connection, &lookup->answer, error) == 0) {
			client_give(client, connection);
			keep(lookup, request.repeats);
			return 0;
		}
		ft_fail(error, FT_E_BAD_FRAME, "flytuned gave an answer that this library cannot read");
		client_drop(client, connection, error);
	}
	if (result == CALL_REFUSED && outcome_is_callers(error))
		return -1;
	return answer_alone(lookup, error);
}

/* ---- FLYTUNE_AUTOTUNE=1 ---- */

static enum forced_state begin_forced(struct lookup *lookup, uint64_t hash, uint64_t deadline)
{
	flytune_client *client = lookup->client;
	struct timespec until = clock_timespec(deadline);
	enum forced_state state;

	pthread_mutex_lock(&client->lock);
	/* Another thread sweeps this very problem: its end is ours. */
	while ((state = forced_get(&client->forced, hash)) == FORCED_RUNNING) {
		if (pthread_cond_timedwait(&client->changed, &client->lock, &until) != 0)
			break;
	}
	if (state == FORCED_NEW && !forced_set(&client->forced, hash, FORCED_RUNNING))
		state = FORCED_FULL;
	pthread_mutex_unlock(&client->lock);
	return state;
}

static void end_forced(flytune_client *client, uint64_t hash, enum forced_state state)
{
	pthread_mutex_lock(&client->lock);
	forced_set(&client->forced, hash, state);
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
}

/* Runs the full sweep, unless this client did. False if it was to be run and has not ended. */
static bool sweep_first(struct lookup *lookup)
{
	flytune_client *client = lookup->client;
	uint64_t deadline = clock_after(client->autotune_timeout_ms);
	uint64_t hash = XXH3_64bits_withSeed(lookup->device, strlen(lookup->device), lookup->problem->hash);
	struct flytune_tune_options options;
	struct flytune_job ended;
	uint64_t job = 0;
	bool done = false;

	switch (begin_forced(lookup, hash, deadline)) {
	case FORCED_NEW:
		break;
	case FORCED_DONE:
		return true;
	default:
		return false;
	}
	flytune_tune_options_init(&options);
	options.device = lookup->device[0] == '\0' ? NULL : lookup->device;
	options.force = 1;
	if (flytune_tune(client, lookup->problem, &options, &job, NULL, NULL) == FLYTUNE_OK) {
		uint64_t now = clock_now();

		flytune_job_init(&ended);
		done = job == 0 ||
		        (now < deadline &&
		                flytune_wait(client, job, (int64_t)((deadline - now) / CLOCK_MS), NULL, NULL,
		                        &ended, NULL, NULL) == FLYTUNE_OK &&
		                ended.state == FLYTUNE_STATE_DONE);
		/* Once it was asked for, it is not asked for again: it goes on without us. */
		end_forced(client, hash, FORCED_DONE);
	} else {
		end_forced(client, hash, FORCED_NEW);
	}
	return done;
}

enum flytune_code flytune_lookup(flytune_client *client, const flytune_problem *problem,
        const struct flytune_lookup_options *given, struct flytune_answer *answer, struct flytune_error *out)
{
	struct lookup lookup = {.client = client, .problem = problem};
	struct flytune_lookup_options options;
	struct ft_error error;
	bool swept = true;
	int failed;

	flytune_lookup_options_init(&options);
	if (given != NULL && !sized_in(&options, sizeof options, given))
		return outcome_unsized(out, "flytune_lookup_options");
	if (sized_length(answer) < sizeof answer->size)
		return outcome_unsized(out, "flytune_answer");
	if (client_device(client, options.device, lookup.device, &error) != 0)
		return outcome(out, &error);
	client_enter(client);
	if (client->autotune == FLYTUNE_AUTOTUNE_NEVER) {
		failed = answer_standard(
		        client, problem, lookup.device, "autotune is off", &lookup.answer, &error);
		lookup.answer.flags = 0;
	} else {
		if (client->autotune == FLYTUNE_AUTOTUNE_FORCE)
			swept = sweep_first(&lookup);
		lookup.deadline =
		        clock_after(options.timeout_ms > 0 ? options.timeout_ms : client->lookup_timeout_ms);
		failed = ask(&lookup, &error);
	}
	if (failed != 0)
		return outcome(out, &error);
	if (!swept)
		lookup.answer.flags |= FLYTUNE_ANSWER_UNSWEPT;
	sized_out(answer, &lookup.answer, sizeof lookup.answer);
	return FLYTUNE_OK;
}
