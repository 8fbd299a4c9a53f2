/* The space of a sweep, the part of it that is tried, and what the runner is asked. */
#include "daemon/jobs/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/answers/lookup.h"
#include "daemon/answers/staleness.h"
#include "daemon/jobs/known_trials.h"
#include "daemon/jobs/winner.h"

enum { SUBSET_MAX = 4 /* of the old best that an upgrade tries first */ };

/* Picks the old winner and the default: which of the old best is the best is not asked, as long as the one that was
 * served holds. If it does not, those that it was tied with are picked too, at most so many, by the trials that it
 * won. */
static void pick_best(struct sweep *sweep, const struct store_answer *known, const struct trials *old)
{
	struct ft_standing *standing;
	struct ft_decision decision;
	struct trials *trials = sweep->trials;
	const uint32_t members = trials_members(old);
	uint32_t left = SUBSET_MAX;
	int32_t index = trials_find(trials, &known->winner.config);

	sweep->picked[trials->default_index] = true;
	left--;
	if (index >= 0 && (uint32_t)index < sweep->members && !sweep->picked[index]) {
		sweep->picked[index] = true;
		left--;
	}
	standing = sweep->scope == SCOPE_EXTENDED ? calloc(members, sizeof(*standing)) : NULL;
	if (standing == NULL)
		return;
	trials_decide(old, members, sweep->settings->band_ppm, true, false, standing, &decision);
	for (uint32_t i = 0; i < members && left > 0; i++) {
		if (!standing[i].tied || old->trial[i].sample_ps == NULL)
			continue;
		index = trials_find(trials, &old->trial[i].config);
		if (index < 0 || (uint32_t)index >= sweep->members || sweep->picked[index])
			continue;
		sweep->picked[index] = true;
		left--;
	}
	free(standing);
}

/* Chooses the members that a check or the first pass after an upgrade tries. Where nothing is known that they
 * could be chosen by, it is a whole sweep. */
static void pick(struct sweep *sweep)
{
	struct store_answer known;
	struct trials *old = NULL;
	int32_t index;
	bool found = false;

	sweep->picked = calloc(sweep->members, sizeof(*sweep->picked));
	if (sweep->picked == NULL || store_begin(sweep->store, NULL) != 0)
		goto whole;
	if (lookup_known(sweep->store, &sweep->target, 0, &known, NULL) == 1 && known.winner.set) {
		if (sweep_is_of_part(sweep->scope))
			(void)store_get_trials(
			        sweep->store, &sweep->target.key, known.winner.identity, &old, NULL);
		found = true;
	}
	store_end(sweep->store);
	index = found ? trials_find(sweep->trials, &known.winner.config) : -1;
	if (index < 0 || (uint32_t)index >= sweep->members ||
	        (sweep->trials->trial[index].status != TRIAL_WAITING && sweep->scope != SCOPE_EXTENDED))
		goto whole;
	sweep->held = known.winner;
	if (sweep_is_check(sweep->scope) && winner_serves(&sweep->target, &known.winner)) {
		sweep->picked[index] = true;
		sweep->picked[sweep->trials->default_index] = true;
	} else if (sweep_is_of_part(sweep->scope) && old != NULL) {
		pick_best(sweep, &known, old);
	} else {
		goto whole;
	}
	trials_free(old);
	return;
whole:
	trials_free(old);
	free(sweep->picked);
	sweep->picked = NULL;
	sweep_go_scope(sweep, SCOPE_WHOLE);
}

bool sweep_tries(const struct sweep *sweep, uint32_t index)
{
	return sweep->picked == NULL || sweep->picked[index];
}

static void write_members(const struct sweep *sweep, struct ft_writer *writer, struct ft_sweep_member *member)
{
	const int32_t served = lookup_served(sweep->store, &sweep->target, sweep->trials);
	struct ft_writer samples;

	ft_writer_init_growing(&samples, ft_bounds_request.bytes);
	ft_write_array(writer, sweep->members);
	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		sweep->trials->trial[i].confirmed = false;
		memset(member, 0, sizeof(*member));
		member->config = trial->config;
		if (trial->status == TRIAL_SUSPECT ||
		        (trial->status == TRIAL_WAITING && !sweep_tries(sweep, i)))
			(void)snprintf(member->status, sizeof(member->status), "%s",
			        trial_status_word(TRIAL_PRUNED));
		else if (trial->status != TRIAL_WAITING)
			(void)snprintf(member->status, sizeof(member->status), "%s",
			        trial_status_word(trial->status));
		memcpy(member->code, trial->code, sizeof(member->code));
		member->same_as = trial->status == TRIAL_SAME_CODE ? trial->same_as : 0;
		member->verified =
		        trial->verified && (i != sweep->trials->default_index || !sweep_wants_proof(sweep));
		member->dropped = trial->dropped;
		member->served = (int64_t)i == served;
		member->place = trial->place;
		member->look_ps = trial->look_ps;
		ft_writer_reset(&samples);
		if (trial->sample_ps != NULL) {
			ft_write_array(&samples, sweep->trials->rounds);
			for (uint32_t round = 0; round < sweep->trials->rounds; round++)
				ft_write_uint(&samples, trial->sample_ps[round]);
			member->samples = (struct ft_view){samples.data, samples.length};
		}
		ft_encode(writer, &ft_sweep_member_message, member);
	}
	writer->failed = writer->failed || !ft_writer_ok(&samples);
	ft_writer_free(&samples);
}

void sweep_ask(struct sweep *sweep)
{
	struct ft_sweep_request *request = calloc(1, sizeof(*request));
	struct ft_sweep_member *member = calloc(1, sizeof(*member));
	struct ft_writer members;

	ft_writer_init_growing(&members, ft_bounds_large.bytes);
	if (request == NULL || member == NULL) {
		sweep_fail(sweep, "no memory for a sweep");
		goto out;
	}
	write_members(sweep, &members, member);
	if (!ft_writer_ok(&members)) {
		sweep_fail(sweep, "no memory for a sweep");
		goto out;
	}
	request->job = sweep->job->job;
	(void)snprintf(request->kernel, sizeof(request->kernel), "%s", sweep->target.kernel->schema.kernel);
	request->problem = sweep->target.problem;
	(void)snprintf(request->device, sizeof(request->device), "%s", sweep->target.device->shown.id);
	request->members = (struct ft_view){members.data, members.length};
	request->default_index = sweep->trials->default_index;
	request->rounds = sweep->trials->rounds;
	request->seed = sweep->trials->seed;
	request->budget_ns = sweep_budget_left(sweep);
	request->budget_ns -= sweep_suspects_share(sweep, request->budget_ns);
	if (request->budget_ns < sweep_budget(sweep) / OVERRUN_PART)
		request->budget_ns = sweep_budget(sweep) / OVERRUN_PART;
	sweep->given_ns = request->budget_ns;
	request->band_ppm = sweep->settings->band_ppm;
	request->min_rounds = ft_rule_usual.min_rounds;
	request->max_rounds = ft_rule_usual.max_rounds;
	/* What was known before speaks too: a moment's interference costs no more than a whole sweep, which follows. */
	request->hasty = sweep->picked != NULL;
	request->unlisted = sweep->trials->unlisted;
	request->search = request->unlisted > 0 && sweep->picked == NULL && !sweep->trials->raced;
	sweep_go(sweep, SWEEP_RUNS);
	sweep->busy = -1;
	sweep->busy_stage = STAGE_START;
	sweep_start_clock(sweep);
	sweep_expect_end(sweep);
	sweep->rejected = false;
	runner_ask(&sweep->worker->runner, "sweep", &ft_sweep_request_message, request, STAGE_START,
	        sweep_replied, sweep);
out:
	ft_writer_free(&members);
	free(member);
	free(request);
}

static uint32_t count_picked(const struct sweep *sweep)
{
	uint32_t count = 0;

	for (uint32_t i = 0; sweep->picked != NULL && i < sweep->members; i++)
		count += sweep->picked[i];
	return count;
}

bool sweep_try_extended(struct sweep *sweep, const struct ft_decision *decision)
{
	int32_t index = trials_find(sweep->trials, &sweep->held.config);
	uint32_t picked = count_picked(sweep);

	if (sweep->scope != SCOPE_SUBSET || picked == 0 ||
	        (decision->verdict == FT_VERDICT_WINNER && (int64_t)decision->winner == index))
		return false;
	free(sweep->picked);
	sweep_go_scope(sweep, SCOPE_EXTENDED);
	pick(sweep);
	if (count_picked(sweep) == picked)
		return false;
	sweep_stop_clock(sweep);
	sweep_ask(sweep);
	return true;
}

/* Of two configs in the schema's order. */
static bool same_values(const struct ft_config *a, const struct ft_config *b)
{
	for (uint32_t i = 0; i < a->count; i++) {
		if (!ft_knob_same(&a->knob[i], &b->knob[i]))
			return false;
	}
	return true;
}

/* Reads the members of a space; fails on what no space may hold. */
static int read_space(const struct ft_space_reply *reply, struct target *target, struct ft_config *config,
        char (*pruned)[FT_REASON_SIZE], uint32_t *count, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(reply->members.data, reply->members.length);
	struct ft_space_member member;
	struct ft_view view;

	if (!ft_read_array(&cursor, count) || *count == 0 || *count > FT_SPACE_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "a space must have 1 to %d configs", FT_SPACE_MAX);
	if (reply->unlisted > 0 &&
	        (*count != 1 || reply->unlisted > FT_MEMBERS_MAX || target->kernel->known == NULL ||
	                target->kernel->known->members == NULL))
		return ft_fail(error, FT_E_BAD_VALUE,
		        "a space that is not listed has its default, at most %d configs, and a kernel that "
		        "can "
		        "list it",
		        FT_MEMBERS_MAX);
	for (uint32_t i = 0; i < *count; i++) {
		if (!ft_read_view(&cursor, &view))
			return ft_fail(error, FT_E_BAD_REQUEST, "the space is cut short");
		if (ft_decode(&ft_space_member_message, view, &member, error) != 0 ||
		        ft_schema_check_config(&target->kernel->schema, &member.config, &config[i], error) !=
		                0)
			return -1;
		memcpy(pruned[i], member.pruned, sizeof(pruned[i]));
		for (uint32_t k = 0; k < i; k++) {
			if (same_values(&config[k], &config[i]))
				return ft_fail(error, FT_E_BAD_VALUE, "the space has a config twice");
		}
	}
	if (reply->default_index >= *count || pruned[reply->default_index][0] != '\0')
		return ft_fail(error, FT_E_BAD_VALUE, "the space's default is no member of it");
	return 0;
}

/* With trials that are of today's space; `known`: some were measured before. */
static void begin_trials(struct sweep *sweep, bool known, uint64_t space_hash)
{
	free(sweep->standing);
	sweep->standing =
	        calloc(sweep->trials->unlisted > 0 ? FT_TRIES_MAX : sweep->members, sizeof(*sweep->standing));
	if (sweep->standing == NULL) {
		sweep_fail(sweep, "no memory for the trials");
		return;
	}
	if (sweep->trials->seed == 0 &&
	        getrandom(&sweep->trials->seed, sizeof(sweep->trials->seed), 0) !=
	                (ssize_t)sizeof(sweep->trials->seed)) {
		sweep_fail(sweep, "no random seed");
		return;
	}
	sweep->trials->seed &= INT64_MAX; /* so that every language can hold it */
	free(sweep->picked);
	sweep->picked = NULL;
	sweep->judged = -1;
	sweep->samples = sweep->disturbed = 0;
	if (sweep->scope == SCOPE_EXTENDED)
		sweep_go_scope(sweep, SCOPE_SUBSET);
	if (sweep->scope != SCOPE_WHOLE)
		pick(sweep);
	if (sweep->old == OLD_GOES || (sweep->scope == SCOPE_CHECK && known))
		trials_forget_times(sweep->trials, sweep->old == OLD_GOES && sweep->retry);
	if (sweep->old == OLD_GOES) {
		sweep->old = OLD_GONE;
		sweep->job->begun = true;
	}
	if (sweep->scope == SCOPE_CHECK)
		sweep_go_scope(sweep, SCOPE_CHECKING);
	sweep->space_hash = space_hash;
	if (!sweep_is_check(sweep->scope) && trials_complete(sweep->trials, sweep->members)) {
		/* Decided before: an answer was lost, forgotten, or came back with its compiler. */
		sweep_finish(sweep, SWEEP_DECIDED, NULL);
		return;
	}
	sweep->trials->winner = -1;
	sweep->job->space = sweep->trials->unlisted;
	trials_progress(sweep->trials, sweep->members, &sweep->job->trials, &sweep->job->settled);
	sweep_go_on_with_suspects(sweep);
	sweep_store_trials(sweep);
	sweep_ask(sweep);
}

static void begin_members(struct sweep *sweep, struct trials *known, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count, uint32_t default_index)
{
	trials_free(sweep->trials);
	sweep->trials = trials_merge(&sweep->target, known, config, pruned, count, default_index);
	sweep->members = count;
	if (sweep->trials == NULL) {
		sweep_fail(sweep, "no memory for the trials");
		return;
	}
	begin_trials(sweep, known != NULL, target_members_hash(&sweep->target, config, pruned, count));
}

/* The one that is served is tried with the default, where no more is looked for. */
static void add_served(struct sweep *sweep)
{
	struct store_answer known;

	if (store_begin(sweep->store, NULL) != 0)
		return;
	if (lookup_known(sweep->store, &sweep->target, 0, &known, NULL) == 1 && known.winner.set &&
	        trials_find(sweep->trials, &known.winner.config) < 0 &&
	        target_takes(&sweep->target, &known.winner.config, NULL))
		(void)trials_add(sweep->trials, &known.winner.config, TRIAL_NO_PLACE);
	store_end(sweep->store);
}

/* Takes `known`. */
static void begin_unlisted(
        struct sweep *sweep, struct trials *known, const struct ft_config *usual, uint64_t unlisted)
{
	const bool measured = known != NULL;

	sweep->trials = trials_of_unlisted(&sweep->target, known, usual, unlisted);
	if (sweep->trials == NULL) {
		sweep_fail(sweep, "no memory for the trials");
		return;
	}
	if (sweep->scope != SCOPE_WHOLE)
		add_served(sweep);
	sweep->members = sweep->trials->count;
	begin_trials(sweep, measured, target_space_hash(&sweep->target));
}

static void space_replied(void *data, struct ft_view reply, const struct ft_error *failure)
{
	struct sweep *sweep = data;
	/* Not cleared: half a megabyte takes longer than all else here. */
	struct ft_config *config = malloc(FT_SPACE_MAX * sizeof(*config));
	char(*pruned)[FT_REASON_SIZE] = malloc(FT_SPACE_MAX * sizeof(*pruned));
	struct trials *known = NULL;
	struct ft_space_reply space;
	struct ft_error error;
	uint32_t count;

	if (failure != NULL) {
		sweep_fail(sweep, "the runner has no space for it: %s", failure->message);
		goto out;
	}
	if (config == NULL || pruned == NULL) {
		sweep_fail(sweep, "no memory for a space");
		goto out;
	}
	if (ft_decode(&ft_space_reply_message, reply, &space, &error) != 0 ||
	        read_space(&space, &sweep->target, config, pruned, &count, &error) != 0) {
		runner_kill(&sweep->worker->runner, RUNNER_PROTOCOL_ERROR, "its space makes no sense: %s",
		        error.message);
		goto out;
	}
	if (sweep->trials != NULL) { /* goes on after a runner failed: what is in memory is newest */
		known = sweep->trials;
		sweep->trials = NULL;
	} else {
		if (store_begin(sweep->store, &error) != 0) {
			sweep_fail(sweep, "cannot read the store: %s", error.message);
			goto out;
		}
		/* Damaged ones are measured anew. */
		(void)lookup_trials(sweep->store, &sweep->target, &known, NULL);
		store_end(sweep->store);
	}
	if (space.unlisted > 0) {
		begin_unlisted(sweep, known, &config[0], space.unlisted);
		known = NULL;
		goto out;
	}
	begin_members(sweep, known, config, (const char(*)[FT_REASON_SIZE])pruned, count,
	        (uint32_t)space.default_index);
out:
	trials_free(known);
	free(config);
	free(pruned);
}

void sweep_ask_space(struct sweep *sweep)
{
	struct ft_space_request request = {.problem = sweep->target.problem};

	memcpy(request.kernel, sweep->target.kernel->schema.kernel, sizeof(request.kernel));
	memcpy(request.device, sweep->target.device->shown.id, sizeof(request.device));
	sweep_go(sweep, SWEEP_WAITS_SPACE);
	sweep_start_clock(sweep);
	runner_ask(&sweep->worker->runner, "space", &ft_space_request_message, &request, STAGE_SPACE,
	        space_replied, sweep);
}
