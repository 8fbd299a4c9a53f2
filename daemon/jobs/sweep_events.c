/* What the runner says while it sweeps: nothing of it is believed that makes no sense. */
#include "daemon/jobs/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/winner.h"

/* No launch takes so long; a sample above is nonsense. */
static const uint64_t sample_max_ps = 100ULL * 1000000000000ULL;

static void protocol_error(struct sweep *sweep, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void protocol_error(struct sweep *sweep, const char *format, ...)
{
	char text[200];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	runner_kill(&sweep->worker->runner, RUNNER_PROTOCOL_ERROR, "%s", text);
}

static enum settings_stage stage_of(const char *word, enum settings_stage otherwise)
{
	if (strcmp(word, "start") == 0)
		return STAGE_START;
	if (strcmp(word, "build") == 0)
		return STAGE_BUILD;
	if (strcmp(word, "verify") == 0 || strcmp(word, "confirm") == 0)
		return STAGE_VERIFY;
	if (strcmp(word, "measure") == 0)
		return STAGE_MEASURE;
	return otherwise;
}

/* But for who was looked at and never raced. */
static void race_again(const struct trials *trials, struct trial *trial)
{
	if (!trial->dropped || (trials->unlisted > 0 && trial->sample_ps == NULL))
		return;
	trial->dropped = false;
	trial->dropped_round = 0;
	trial->reason[0] = '\0';
}

/* "so many % slower": a space may lose hundreds of configs in one round, and printing a real number takes microseconds.
 * Whoever is dropped is slower for sure (decide.h). */
static void say_slower(char *text, size_t size, double ratio, double ratio_low)
{
	unsigned long long slower = (unsigned long long)llround(fmax(ratio - 1, 0) * 1000);
	unsigned long long least = (unsigned long long)llround(fmax(ratio_low - 1, 0) * 1000);

	(void)snprintf(text, size, "%llu.%llu %% slower than the best (at least %llu.%llu %%)", slower / 10,
	        slower % 10, least / 10, least % 10);
}

/* Drops what the samples so far show to be clearly worse. */
static void drop_worse(struct sweep *sweep)
{
	struct trials *trials = sweep->trials;
	struct ft_decision decision;

	/* Before that nothing is decided, see decide.h. */
	if (trials->rounds < ft_rule_usual.min_rounds)
		return;
	trials_decide(
	        trials, sweep->members, sweep->settings->band_ppm, false, false, sweep->standing, &decision);
	for (uint32_t i = 0; i < sweep->members; i++) {
		struct trial *trial = &trials->trial[i];

		if (!sweep->standing[i].drop || trial->dropped || trial->status != TRIAL_WAITING)
			continue;
		trial->dropped = true;
		trial->dropped_round = trials->rounds;
		say_slower(trial->reason, sizeof(trial->reason), sweep->standing[i].ratio,
		        sweep->standing[i].ratio_low);
		sweep_note_trial(sweep, i);
	}
	/* Dropped in rounds that turned out to be slow ones: the runner races them again. */
	for (uint32_t i = 0; i < sweep->members; i++) {
		if (sweep->standing[i].revive && trials->trial[i].status == TRIAL_WAITING)
			race_again(trials, &trials->trial[i]);
	}
}

void sweep_out_after_timing(struct sweep *sweep, const struct trial *out)
{
	if (out->sample_ps == NULL)
		return;
	for (uint32_t i = 0; i < sweep->members; i++) {
		struct trial *trial = &sweep->trials->trial[i];

		if (trial->status == TRIAL_WAITING)
			race_again(sweep->trials, trial);
	}
	drop_worse(sweep);
}

/* One round's samples, taken whole or not at all. `sample` is zero for each member. */
static void take_samples(struct sweep *sweep, const struct ft_runner_event *event, uint64_t *sample)
{
	struct trials *trials = sweep->trials;
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	const uint32_t most = sweep->members < FT_SPACE_MAX ? sweep->members : FT_SPACE_MAX;
	uint32_t count;

	if (event->round != trials->rounds || trials->rounds >= FT_ROUNDS_MAX) {
		protocol_error(
		        sweep, "it sent round %" PRIu64 " where %u is due", event->round, trials->rounds);
		return;
	}
	if (!ft_read_array(&cursor, &count) || count == 0 || count > most) {
		protocol_error(sweep, "a round must have 1 to %u samples", most);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t two;
		uint64_t index;
		uint64_t value;

		if (!ft_read_array(&cursor, &two) || two != 2 || !ft_read_uint(&cursor, &index) ||
		        !ft_read_uint(&cursor, &value) || index >= sweep->members ||
		        value < FT_SAMPLE_LEAST_PS || value > sample_max_ps || sample[index] != 0 ||
		        trials->trial[index].status != TRIAL_WAITING) {
			protocol_error(sweep, "sample %u of round %u makes no sense", i, trials->rounds);
			return;
		}
		sample[index] = value;
	}
	for (uint32_t i = 0; i < sweep->members; i++) {
		/* The default races on for a while though it is dropped: what others gain comes from the rounds shared with it. */
		if (sample[i] == 0 || (trials->trial[i].dropped && i != trials->default_index))
			continue;
		uint64_t *samples = trials_samples(trials, i);

		if (samples == NULL) {
			protocol_error(sweep, "no memory for its samples");
			return;
		}
		samples[trials->rounds] = sample[i];
	}
	trials->rounds++;
	sweep->let_go = 0;
	sweep->shown = SWEEP_SHOWN_RUN;
	sweep->samples += count;
	sweep->disturbed += event->disturbed < count ? event->disturbed : count;
	sweep->busy = -1;
	sweep->job->rounds = trials->rounds;
	drop_worse(sweep);
	(void)sweep_note_event(sweep, "round");
	sweep_store_trials(sweep);
}

static void take_round(struct sweep *sweep, const struct ft_runner_event *event)
{
	uint64_t *sample = calloc(sweep->members, sizeof(*sample));

	if (sample == NULL)
		protocol_error(sweep, "no memory for its samples");
	else
		take_samples(sweep, event, sample);
	free(sample);
}

static void take_stage(struct sweep *sweep, const struct ft_runner_event *event)
{
	sweep_note_waiting(sweep, strcmp(event->stage, "wait") == 0);
	(void)snprintf(sweep->job->stage, sizeof(sweep->job->stage), "%s", event->stage);
	sweep->busy_stage = stage_of(event->stage, sweep->busy_stage);
	sweep->busy = -1;
	(void)sweep_note_event(sweep, "stage");
	sweep_store_trials(sweep);
}

static void take_out(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trial *trial = &sweep->trials->trial[event->trial];
	enum trial_status status;

	if (trial_status_parse(event->status, &status) != 0 ||
	        (status != TRIAL_WRONG && status != TRIAL_FAILED && status != TRIAL_TIMEOUT &&
	                status != TRIAL_PRUNED)) {
		protocol_error(sweep, "a trial cannot be out as \"%s\"", event->status);
		return;
	}
	trial->status = status;
	sweep->rejected = sweep->rejected || trial->sample_ps != NULL;
	memcpy(trial->reason, event->reason, sizeof(trial->reason));
	sweep_note_trial(sweep, (uint32_t)event->trial);
	sweep_out_after_timing(sweep, trial);
	sweep_store_trials(sweep);
}

/* ---- of a space that is not listed ---- */

static bool searches(const struct sweep *sweep)
{
	return sweep->trials->unlisted > 0 && sweep->picked == NULL && !sweep->trials->raced;
}

/* One more member that the runner is going to try. */
static void take_member(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trials *trials = sweep->trials;
	struct ft_config config = event->config;
	bool good = searches(sweep) && event->trial == sweep->members && event->place < trials->unlisted &&
	        target_takes(&sweep->target, &config, NULL);

	for (uint32_t i = 0; i < sweep->members && good; i++)
		good = trials->trial[i].place != event->place;
	if (!good || trials_add(trials, &config, (uint32_t)event->place) == NULL) {
		protocol_error(sweep, "it cannot try member %" PRIu64 " as trial %" PRIu64, event->place,
		        event->trial);
		return;
	}
	sweep->members++;
	trials_progress(trials, sweep->members, &sweep->job->trials, &sweep->job->settled);
	sweep->dirty = true; /* to the store with what comes of it */
}

static void take_look(struct sweep *sweep, const struct ft_runner_event *event)
{
	if (!searches(sweep) || event->look_ps < FT_SAMPLE_LEAST_PS || event->look_ps > sample_max_ps) {
		protocol_error(sweep, "a look at trial %" PRIu64 " makes no sense", event->trial);
		return;
	}
	sweep->trials->trial[event->trial].look_ps = event->look_ps;
	sweep->let_go = 0;
	sweep->shown = SWEEP_SHOWN_RUN;
	sweep_note_trial(sweep, (uint32_t)event->trial);
	sweep_store_trials(sweep);
}

static void leave_out(struct trial *trial, uint64_t best_ps)
{
	if (trial->status != TRIAL_WAITING)
		return;
	trial->dropped = true;
	if (trial->look_ps > 0)
		(void)snprintf(trial->reason, sizeof(trial->reason),
		        "%" PRIu64 " %% slower than the best when it was looked at",
		        (trial->look_ps - best_ps) * 100 / best_ps);
	else
		(void)snprintf(trial->reason, sizeof(trial->reason), "there was no time to look at it");
}

/* Who races; the others are left out. */
static void take_race(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trials *trials = sweep->trials;
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	bool *races = calloc(sweep->members, sizeof(*races));
	uint64_t best_ps = UINT64_MAX, index = 0;
	uint32_t count = 0;
	bool good =
	        races != NULL && searches(sweep) && ft_read_array(&cursor, &count) && count <= FT_SPACE_MAX;

	for (uint32_t i = 0; i < count && good; i++) {
		good = ft_read_uint(&cursor, &index) && index < sweep->members;
		if (good)
			races[index] = true;
	}
	if (!good) {
		protocol_error(sweep, "who is to race makes no sense");
		free(races);
		return;
	}
	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &trials->trial[i];

		if (trial->status == TRIAL_WAITING && trial->look_ps > 0 && trial->look_ps < best_ps)
			best_ps = trial->look_ps;
	}
	trials->raced = true;
	for (uint32_t i = 0; i < sweep->members; i++) {
		trials->trial[i].dropped = trials->trial[i].dropped && !races[i];
		if (!races[i] && i != trials->default_index)
			leave_out(&trials->trial[i], best_ps);
	}
	free(races);
	trials_progress(trials, sweep->members, &sweep->job->trials, &sweep->job->settled);
	(void)sweep_note_event(sweep, "stage");
	sweep_store_trials(sweep);
}

static void take_event(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trial *trial = &sweep->trials->trial[event->trial];
	bool waiting = trial->status == TRIAL_WAITING;

	if (strcmp(event->event, "begin") == 0) {
		sweep->busy = (int64_t)event->trial;
		sweep->busy_stage = stage_of(event->stage, sweep->busy_stage);
	} else if (strcmp(event->event, "built") == 0 && waiting) {
		/* Other code than what was verified: nothing of that holds. */
		trial->verified = trial->verified && strcmp(trial->code, event->code) == 0;
		memcpy(trial->code, event->code, sizeof(trial->code));
		trial->registers = event->registers;
		trial->spills = event->spills;
		if (!event->cached)
			trial->build_ns = event->build_ns;
		if (sweep->shown == SWEEP_SHOWN_NOTHING)
			sweep->shown = SWEEP_SHOWN_BUILT;
		sweep_store_trials(sweep);
	} else if (strcmp(event->event, "same_code") == 0 && waiting) {
		if (event->other >= sweep->members || event->other == event->trial) {
			protocol_error(sweep, "trial %" PRIu64 " cannot have the code of trial %" PRIu64,
			        event->trial, event->other);
			return;
		}
		trial->status = TRIAL_SAME_CODE;
		trial->same_as = (uint32_t)event->other;
		if (trial->look_ps == 0)
			trial->look_ps = sweep->trials->trial[event->other].look_ps;
		memcpy(trial->reason, event->reason, sizeof(trial->reason));
		sweep_note_trial(sweep, (uint32_t)event->trial);
		sweep_store_trials(sweep);
	} else if (strcmp(event->event, "verified") == 0 && waiting) {
		trial->verified = true;
		sweep->shown = SWEEP_SHOWN_RUN;
		if (event->error > trial->error)
			trial->error = event->error;
		sweep_store_trials(sweep);
	} else if (strcmp(event->event, "confirmed") == 0 && waiting) {
		trial->confirmed = true;
	} else if (strcmp(event->event, "looked") == 0 && waiting) {
		take_look(sweep, event);
	} else if (strcmp(event->event, "out") == 0 && waiting) {
		take_out(sweep, event);
	}
	/* "dropped" is the runner's view of what the daemon decides by itself; other words are of later
	 * versions. */
	if (strcmp(event->event, "begin") != 0 && sweep->busy == (int64_t)event->trial)
		sweep->busy = -1;
}

void sweep_runner_event(struct sweep *sweep, const struct worker *worker, const struct ft_runner_event *event)
{
	if (sweep->worker != worker || !sweep_is_on(sweep->phase) || event->job != sweep->job->job)
		return; /* a late word about a sweep that is over */
	const bool is_member = strcmp(event->event, "member") == 0;

	if (event->trial >= sweep->members && !is_member) {
		protocol_error(sweep, "it speaks of trial %" PRIu64 " of %u", event->trial, sweep->members);
		return;
	}
	if (is_member)
		take_member(sweep, event);
	else if (strcmp(event->event, "round") == 0)
		take_round(sweep, event);
	else if (strcmp(event->event, "stage") == 0)
		take_stage(sweep, event);
	else if (strcmp(event->event, "race") == 0)
		take_race(sweep, event);
	else
		take_event(sweep, event);
	/* Every word shows that it is alive; a cancelled sweep has its one deadline to stop. */
	if (sweep->phase == SWEEP_RUNS && worker->runner.state == RUNNER_READY)
		runner_expect(&sweep->worker->runner, sweep->busy_stage);
}
