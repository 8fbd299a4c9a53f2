#include "client/lib/lookup.h"

#include <stdio.h>
#include <string.h>

#include "client/lib/away.h"
#include "client/lib/cancel.h"
#include "client/lib/job.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

/* ---- answers given before ---- */

/* Whether somebody has to look for a successor, which is done now and then. */
static __attribute__((noinline)) bool time_to_look(const flytune_client *client)
{
	return clock_now() >= atomic_load_explicit(&client->paused_until, memory_order_relaxed);
}

/* What a generation says, it says for ever: the board only shows whether the daemon is there. */
static __attribute__((noinline)) enum board_verdict check_named(const flytune_client *client)
{
	uint64_t latest = atomic_load_explicit(&client->boards.serial, memory_order_acquire);
	struct board_sight sight;

	if (!boards_look(&client->boards, latest, 0, &sight))
		return BOARD_CHANGED;
	return sight.alive ? BOARD_STANDS : BOARD_AWAY;
}

/* With the generation that the board gave, if it did. */
static inline enum board_verdict check(
        const flytune_client *client, const struct cache_terms *terms, uint64_t *generation)
{
	struct board_sight sight;
	enum board_verdict verdict;

	*generation = 0;
	if (client->token[0] != '\0')
		return check_named(client);
	verdict = boards_check(&client->boards, terms->serial, terms->stripe, terms->version, &sight);
	if (verdict != BOARD_CHANGED)
		*generation = sight.generation;
	return verdict;
}

static inline bool copy(const struct cache_hit *hit, uint64_t generation, struct flytune_answer *answer)
{
	if (!cache_copy(hit, answer))
		return false;
	if (generation != 0)
		answer->generation = generation;
	return true;
}

/* Into a structure of this library's size, of which nothing but that size is left when nothing is found. */
static inline __attribute__((always_inline)) bool answer_at_once(
        const flytune_client *client, const struct cache_key *key, struct flytune_answer *answer)
{
	struct cache_hit hit;
	enum board_verdict verdict;
	uint64_t generation;

	if (!cache_find(&client->cache, key, &hit))
		return false;
	verdict = check(client, &hit.terms, &generation);
	if (verdict != BOARD_STANDS && (verdict == BOARD_CHANGED || time_to_look(client)))
		return false;
	if (client->autotune == FLYTUNE_AUTOTUNE_FORCE && !hit.terms.swept)
		return false;
	if (!copy(&hit, generation, answer))
		return false;
	cache_count(&client->cache, &hit);
	if (verdict == BOARD_AWAY)
		answer->flags |= FLYTUNE_ANSWER_AWAY;
	return true;
}

bool lookup_at_once(flytune_client *client, const struct cache_key *key, struct flytune_answer *answer)
{
	struct flytune_answer ours;

	if (sized_length(answer) == sizeof *answer)
		return answer_at_once(client, key, answer);
	memset(&ours, 0, sizeof ours);
	return answer_at_once(client, key, &ours) && sized_out(answer, &ours, sizeof ours);
}

/* Calls that were answered without the daemon since it was last asked: they ride along. */
static uint32_t take_repeats(struct lookup *lookup)
{
	uint32_t repeats;

	pthread_mutex_lock(&lookup->client->lock);
	repeats = cache_take_repeats(&lookup->client->cache, &lookup->key);
	pthread_mutex_unlock(&lookup->client->lock);
	return repeats;
}

void lookup_unheard(struct lookup *lookup, uint32_t repeats)
{
	pthread_mutex_lock(&lookup->client->lock);
	cache_return_repeats(&lookup->client->cache, &lookup->key, repeats);
	pthread_mutex_unlock(&lookup->client->lock);
}

void lookup_keep(struct lookup *lookup, struct cache_terms *terms)
{
	/* Too large to be kept by the thousand. */
	if (lookup->answer.document_length > 0)
		return;
	terms->swept = lookup->swept;
	terms->miss = lookup->answer.source == FLYTUNE_SOURCE_NEAREST ||
	        lookup->answer.source == FLYTUNE_SOURCE_DEFAULT;
	pthread_mutex_lock(&lookup->client->lock);
	cache_keep(&lookup->client->cache, &lookup->key, &lookup->answer, terms);
	if (lookup->key.device[0] == '\0')
		memcpy(lookup->client->last_device, lookup->answer.device,
		        sizeof lookup->client->last_device);
	pthread_mutex_unlock(&lookup->client->lock);
}

/* ---- asking ---- */

void lookup_prepare(struct lookup *lookup, struct ft_lookup_request *request)
{
	flytune_client *client = lookup->client;

	ft_clear(&ft_lookup_request_message, request);
	request->tune_on_miss = client->tune_on_miss;
	memcpy(request->kernel, lookup->key.problem->about->kernel, sizeof request->kernel);
	problem_given(lookup->key.problem, &request->problem);
	memcpy(request->device, lookup->key.device, sizeof request->device);
	memcpy(request->generation, client->token, sizeof request->generation);
	request->repeats = take_repeats(lookup);
}

int lookup_ask(struct lookup *lookup, struct ft_error *error)
{
	flytune_client *client = lookup->client;
	struct ft_lookup_request request;
	struct cache_terms terms;
	struct connection *connection;
	struct ft_envelope reply;
	enum call_result result;

	lookup_prepare(lookup, &request);
	/* Without a generation there is always an answer of our own, so a daemon that was away is not waited
	 * for. */
	result = client_call(client, "lookup", &ft_lookup_request_message, &request, lookup->deadline,
	        client->token[0] != '\0', &connection, &reply, error);
	if (result == CALL_DONE) {
		if (answer_read(reply.body, connection, &lookup->answer, lookup->document, &terms, error) ==
		        0) {
			client_give(client, connection);
			lookup_keep(lookup, &terms);
			return 0;
		}
		ft_fail(error, FT_E_BAD_FRAME, "flytuned gave an answer that this library cannot read");
		client_drop(client, connection, error);
	}
	if (result != CALL_REFUSED)
		lookup_unheard(lookup, (uint32_t)request.repeats);
	else if (outcome_is_callers(error))
		return -1;
	return away_answer(client, &lookup->key, &lookup->answer, error);
}

/* ---- FLYTUNE_AUTOTUNE=1 ---- */

static void set_forced(flytune_client *client, uint64_t hash, enum forced_state state)
{
	pthread_mutex_lock(&client->lock);
	forced_set(&client->forced, hash, state);
	pthread_cond_broadcast(&client->changed);
	pthread_mutex_unlock(&client->lock);
}

void lookup_sweep_begin(const struct lookup *lookup, struct lookup_sweep *sweep)
{
	flytune_client *client = lookup->client;
	struct flytune_tune_options options;
	struct flytune_job job;

	*sweep = (struct lookup_sweep){0};
	pthread_mutex_lock(&client->lock);
	sweep->state = forced_get(&client->forced, lookup->key.hash);
	if (sweep->state == FORCED_NEW && !forced_set(&client->forced, lookup->key.hash, FORCED_RUNNING))
		sweep->state = FORCED_FULL;
	pthread_mutex_unlock(&client->lock);
	if (sweep->state != FORCED_NEW)
		return;
	flytune_tune_options_init(&options);
	options.device = lookup->key.device[0] == '\0' ? NULL : lookup->key.device;
	options.force = 1;
	flytune_job_init(&job);
	if (flytune_tune(client, lookup->key.problem, &options, &job, NULL, NULL) != FLYTUNE_OK) {
		sweep->failed = true;
		set_forced(client, lookup->key.hash, FORCED_NEW);
		return;
	}
	sweep->job = job.job;
	snprintf(sweep->store, sizeof sweep->store, "%.36s", job.store);
}

/* Another thread sweeps this very problem, or another place of the same list: its end is ours. */
static bool await_other(flytune_client *client, uint64_t hash, uint64_t deadline)
{
	struct timespec until = clock_timespec(deadline);
	enum forced_state state;
	bool late = false;

	pthread_mutex_lock(&client->lock);
	while ((state = forced_get(&client->forced, hash)) == FORCED_RUNNING && !late)
		late = pthread_cond_timedwait(&client->changed, &client->lock, &until) != 0;
	pthread_mutex_unlock(&client->lock);
	return state == FORCED_DONE;
}

bool lookup_sweep_end(const struct lookup *lookup, const struct lookup_sweep *sweep, uint64_t deadline)
{
	flytune_client *client = lookup->client;
	struct flytune_job job;
	uint64_t now = clock_now();
	bool done = sweep->job == 0;

	if (sweep->state == FORCED_RUNNING)
		return await_other(client, lookup->key.hash, deadline);
	if (sweep->state != FORCED_NEW || sweep->failed)
		return sweep->state == FORCED_DONE;
	job_name(&job, lookup->key.problem, sweep->job, sweep->store);
	if (!done && now < deadline)
		done = flytune_wait(client, &job, (int64_t)((deadline - now) / CLOCK_MS), NULL, NULL, NULL,
		               NULL) == FLYTUNE_OK &&
		        job.state == FLYTUNE_STATE_DONE;
	/* Once it was asked for, it is not asked for again: it goes on without us. */
	set_forced(client, lookup->key.hash, FORCED_DONE);
	return done;
}

/* Runs the full sweep, unless this client did. False if it was to be run and has not ended. */
static bool sweep_first(const struct lookup *lookup)
{
	uint64_t deadline = clock_after(lookup->client->autotune_timeout_ms);
	struct lookup_sweep sweep;

	lookup_sweep_begin(lookup, &sweep);
	return lookup_sweep_end(lookup, &sweep, deadline);
}

static enum flytune_result answer_asking(flytune_client *client, const struct cache_key *key,
        int64_t timeout_ms, const struct answer_room *document, struct flytune_answer *answer,
        struct flytune_error *out)
{
	UNCANCELLED;
	struct lookup lookup = {.client = client, .key = *key, .document = document};
	struct ft_error error;
	bool swept = true;
	int failed;

	client_enter(client);
	if (client->autotune == FLYTUNE_AUTOTUNE_NEVER) {
		failed = away_default(
		        client, key->problem, key->device, "autotune is off", &lookup.answer, &error);
		lookup.answer.flags = 0;
	} else {
		if (client->autotune == FLYTUNE_AUTOTUNE_FORCE)
			swept = lookup.swept = sweep_first(&lookup);
		lookup.deadline = clock_after(timeout_ms > 0 ? timeout_ms : client->lookup_timeout_ms);
		failed = lookup_ask(&lookup, &error);
	}
	if (failed != 0)
		return outcome(out, &error);
	if (!swept)
		lookup.answer.flags |= FLYTUNE_ANSWER_UNSWEPT;
	sized_out(answer, &lookup.answer, sizeof lookup.answer);
	return FLYTUNE_OK;
}

static __attribute__((noinline)) enum flytune_result look_up(flytune_client *client,
        const flytune_problem *problem, const struct flytune_lookup_options *given,
        struct flytune_answer *answer, struct flytune_error *out)
{
	struct flytune_lookup_options options;
	struct answer_room document = {NULL, 0};
	const char *device = client->device;
	int64_t timeout_ms = 0;
	char named[FT_DEVICE_ID_SIZE];
	struct cache_key key;

	if (sized_length(answer) < sizeof answer->size)
		return outcome_unsized(out, "flytune_answer");
	if (given != NULL) {
		struct ft_error error;

		if (!sized_in(&options, sizeof options, given))
			return outcome_unsized(out, "flytune_lookup_options");
		timeout_ms = options.timeout_ms;
		document = (struct answer_room){
		        options.document, options.document != NULL ? options.document_size : 0};
		if (options.device != NULL) {
			if (client_device(client, options.device, named, &error) != 0)
				return outcome(out, &error);
			device = named;
		}
	}
	key = cache_key(problem, device);
	if (client->autotune != FLYTUNE_AUTOTUNE_NEVER && lookup_at_once(client, &key, answer))
		return FLYTUNE_OK;
	return answer_asking(client, &key, timeout_ms, &document, answer, out);
}

/* In one piece: what a call of each part costs adds up to a tenth of this. */
__attribute__((flatten)) enum flytune_result flytune_lookup(flytune_client *client,
        const flytune_problem *problem, const struct flytune_lookup_options *given,
        struct flytune_answer *answer, struct flytune_error *out)
{
	struct cache_key key;

	REQUIRE(client, out);
	REQUIRE(problem, out);
	REQUIRE(answer, out);
	if (given != NULL || sized_length(answer) != sizeof *answer)
		return look_up(client, problem, given, answer, out);
	/* What nearly every call is, without the rest around it. Where the daemon is never asked, nothing is kept. */
	key = cache_key(problem, client->device);
	return answer_at_once(client, &key, answer) ? FLYTUNE_OK
	                                            : look_up(client, problem, NULL, answer, out);
}
