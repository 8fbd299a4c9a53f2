#include "daemon/jobs/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/answers/lookup.h"
#include "daemon/jobs/merge.h"
#include "daemon/jobs/winner.h"
#include "proto/clock.h"

enum {
	UNBLAMED_MAX = 2,
	LET_GO_MAX =
	        16,  /* starts of the runner in a row without a round, that the daemon itself made needed */
	FEW_MAX = 4, /* of the old best that an upgrade tries first */
	DISTURBED_LEAST = 20, /* samples, before their share says anything */
	OVERRUN_PART =
	        10, /* of a budget, by which it may be passed; as much is left to a runner that has to be started anew */
};

/* A check finds a default that takes so much longer than it did to be another. */
static const double check_slower = 0.1;

/* A hash that no space has: the winner was chosen from a part of it. */
static const uint64_t space_in_part = 1;

static const uint64_t second_ns = 1000000000;

/* No launch takes so long; a sample above is nonsense. */
static const uint64_t sample_max_ps = 100ULL * 1000000000000ULL;

struct sweep_note {
	struct sweep_note *next;
	struct ft_event event;
};

static void budget_passed(void *data);

int sweep_init(struct sweep *sweep, uv_loop_t *loop, struct devices *devices, struct store *store,
        const struct log *log, const struct options *options, const struct sweep_events *events, void *data)
{
	*sweep = (struct sweep){
	        .devices = devices,
	        .store = store,
	        .log = log,
	        .options = options,
	        .events = events,
	        .data = data,
	        .busy = -1,
	};
	return deadline_init(&sweep->cut, loop, budget_passed, sweep);
}

/* ---- events and the store ---- */

static void free_notes(struct sweep_note **notes)
{
	while (*notes != NULL) {
		struct sweep_note *note = *notes;

		*notes = note->next;
		free(note);
	}
}

/* An event to go out once what it tells is stored. Losing one for want of memory loses a line of progress
 * only. */
static struct ft_event *note_event(struct sweep *sweep, const char *word)
{
	struct sweep_note *note = calloc(1, sizeof(*note));

	if (note == NULL)
		return NULL;
	_Static_assert(sizeof(note->event.stage) == sizeof(sweep->job->stage), "a stage is copied whole");
	note->event.job = sweep->job->job;
	(void)snprintf(note->event.event, sizeof(note->event.event), "%s", word);
	memcpy(note->event.stage, sweep->job->stage, sizeof(note->event.stage));
	note->event.trials = sweep->job->trials;
	note->event.settled = sweep->job->settled;
	note->event.round = sweep->job->rounds;
	note->next = sweep->waiting;
	sweep->waiting = note;
	return &note->event;
}

static void note_trial(struct sweep *sweep, uint32_t index)
{
	const struct trial *trial = &sweep->trials->trial[index];
	struct ft_event *event;

	trials_progress(sweep->trials, sweep->members, &sweep->job->trials, &sweep->job->settled);
	event = note_event(sweep, "trial");
	if (event == NULL)
		return;
	event->config = trial->config;
	(void)snprintf(event->status, sizeof(event->status), "%s",
	        trial->status == TRIAL_WAITING ? "ok" : trial_status_word(trial->status));
	memcpy(event->reason, trial->reason, sizeof(event->reason));
	if (trial->sample_ps != NULL) {
		event->time_ps = sweep->standing[index].median_ps;
		event->ci_ps = sweep->standing[index].ci_ps;
	}
}

static void send_notes(struct sweep *sweep, struct sweep_note **notes)
{
	struct sweep_note *ordered = NULL;

	while (*notes != NULL) {
		struct sweep_note *note = *notes;

		*notes = note->next;
		note->next = ordered;
		ordered = note;
	}
	for (struct sweep_note *note = ordered; note != NULL; note = note->next)
		sweep->events->event(sweep->data, &note->event);
	free_notes(&ordered);
}

static void store_trials(struct sweep *sweep);

static void maybe_end(struct sweep *sweep)
{
	struct sweep_end found = {
	        .outcome = sweep->outcome,
	        .subject = sweep->subject,
	        .trials = sweep->trials,
	        .space_hash = sweep->space_hash,
	        .held = sweep->held,
	        .why = sweep->why,
	};

	if (sweep->phase != SWEEP_ENDS || sweep->storing)
		return;
	free_notes(&sweep->last_notes);
	if (sweep->outcome == SWEEP_DECIDED) {
		sweep->last_notes = sweep->waiting;
		sweep->waiting = NULL;
	} else {
		send_notes(sweep, &sweep->waiting);
	}
	free(sweep->standing);
	sweep->standing = NULL;
	free(sweep->picked);
	sweep->picked = NULL;
	sweep->trials = NULL;
	sweep->phase = SWEEP_OFF;
	sweep->job = NULL;
	sweep->dirty = false;
	if (found.outcome != SWEEP_DECIDED && (found.outcome != SWEEP_CANCELLED || sweep->check)) {
		trials_free(found.trials);
		found.trials = NULL;
	}
	sweep->events->ended(sweep->data, &found);
}

/* Whether nobody but the sweep keeps what it has by its end. */
static bool ends_by_itself(const struct sweep *sweep)
{
	return sweep->phase == SWEEP_ENDS && sweep->trials != NULL && sweep->outcome != SWEEP_DECIDED;
}

static void trials_stored(void *data, uint64_t generation, const struct ft_error *error)
{
	struct sweep *sweep = data;

	(void)generation;
	sweep->storing = false;
	if (sweep->phase == SWEEP_OFF) { /* abandoned meanwhile */
		free_notes(&sweep->storing_notes);
		return;
	}
	if (error != NULL) {
		/* Nothing is lost: the trials are in memory, and go with the next batch. */
		log_limited(sweep->log, &sweep->unstored, LOG_LEVEL_WARNING,
		        "trials not stored job=%" PRIu64 ": %s", sweep->job->job, error->message);
		sweep->dirty = true;
		while (sweep->storing_notes != NULL) {
			struct sweep_note *note = sweep->storing_notes;

			sweep->storing_notes = note->next;
			free(note);
		}
	} else {
		sweep->lets_go = false;
		send_notes(sweep, &sweep->storing_notes);
		if (sweep->dirty && (sweep->phase == SWEEP_RUNS || ends_by_itself(sweep)))
			store_trials(sweep);
	}
	maybe_end(sweep);
}

static void store_trials(struct sweep *sweep)
{
	struct store_batch *batch;

	sweep->dirty = true;
	if (sweep->check) { /* what it measures is not kept: there is nothing to wait for */
		sweep->dirty = false;
		send_notes(sweep, &sweep->waiting);
		return;
	}
	if (sweep->storing)
		return;
	batch = store_batch_new(sweep->store);
	if (batch == NULL)
		return;
	if (store_batch_trials(batch, &sweep->subject.key, sweep->subject.kernel->identity, sweep->trials) !=
	        0) {
		store_batch_drop(batch);
		return;
	}
	/* Times are let go once: a crash must not have those from after it go as well. */
	if (sweep->lets_go && store_batch_job(batch, sweep->job) != 0) {
		store_batch_drop(batch);
		return;
	}
	sweep->dirty = false;
	sweep->storing = true;
	sweep->storing_notes = sweep->waiting;
	sweep->waiting = NULL;
	store_submit(batch, trials_stored, sweep);
}

/* ---- the budget ---- */

static uint64_t budget_of(const struct sweep *sweep)
{
	return sweep->job->budget_ns != 0 ? sweep->job->budget_ns : sweep->options->budget_ns;
}

static uint64_t budget_left(const struct sweep *sweep)
{
	uint64_t spent = sweep->spent_ns;
	uint64_t budget = budget_of(sweep);

	if (sweep->began_ns != 0)
		spent += ft_monotonic_ns() - sweep->began_ns;
	return spent < budget ? budget - spent : 0;
}

static void start_clock(struct sweep *sweep)
{
	if (sweep->began_ns == 0)
		sweep->began_ns = ft_monotonic_ns();
}

/* Books what passed since it was started: all that others had to be waited for in it costs nothing of the budget. */
static void stop_clock(struct sweep *sweep)
{
	uint64_t now = ft_monotonic_ns();
	uint64_t passed = sweep->began_ns != 0 ? now - sweep->began_ns : 0;

	if (sweep->wait_ns != 0)
		sweep->job->waited_ns += now - sweep->wait_ns;
	sweep->began_ns = sweep->wait_ns = 0;
	sweep->spent_ns += passed;
	sweep->job->sweep_ns += passed;
	if (sweep->trials != NULL)
		sweep->trials->sweep_ns += passed;
	deadline_stop(&sweep->cut);
}

/* A runner keeps to the budget by itself, but for what it cannot interrupt. */
static void expect_end(struct sweep *sweep)
{
	uint64_t most_ns = budget_left(sweep) + budget_of(sweep) / OVERRUN_PART +
	        sweep->options->deadline_ns[STAGE_STOP];

	deadline_start(&sweep->cut, most_ns / 1000000 + 1);
}

static void budget_passed(void *data)
{
	struct sweep *sweep = data;

	if (sweep->phase != SWEEP_RUNS)
		return;
	sweep->cuts++;
	runner_kill(&sweep->slot->runner, RUNNER_LATE, "it did not end within the budget of %.3g s",
	        (double)budget_of(sweep) / 1e9);
}

/* While the runner waits for others the clock stands still. */
static void note_waiting(struct sweep *sweep, bool waits)
{
	if (waits == (sweep->wait_ns != 0))
		return;
	stop_clock(sweep);
	if (waits) {
		sweep->wait_ns = ft_monotonic_ns();
	} else {
		start_clock(sweep);
		expect_end(sweep);
	}
}

static void end(struct sweep *sweep, enum sweep_outcome outcome, const struct ft_error *why)
{
	stop_clock(sweep);
	if (sweep->slot != NULL && sweep->slot->runner.reply == NULL)
		runner_rest(&sweep->slot->runner);
	sweep->phase = SWEEP_ENDS;
	sweep->outcome = outcome;
	sweep->why = why != NULL ? *why : (struct ft_error){0};
	/* What was measured is kept, however it ended, and told of only then. */
	if (sweep->dirty && ends_by_itself(sweep))
		store_trials(sweep);
	maybe_end(sweep);
}

static void end_failed(struct sweep *sweep, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void end_failed(struct sweep *sweep, const char *format, ...)
{
	struct ft_error why;
	char text[sizeof(why.message)];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	(void)ft_fail(&why, FT_E_RUNNER, "%s", text);
	end(sweep, SWEEP_FAILED, &why);
}

/* ---- a part of the space ---- */

/* Picks the old winner and the default: which of the old best is the best is not asked, as long as the one that was
 * served holds. If it does not, those that it was tied with are picked too, at most so many, by the trials that it
 * won. */
static void pick_best(struct sweep *sweep, const struct store_answer *known, const struct trials *old)
{
	struct ft_standing *standing;
	struct ft_decision decision;
	struct trials *trials = sweep->trials;
	uint32_t members = old->count < FT_SPACE_MAX ? old->count : FT_SPACE_MAX;
	uint32_t left = FEW_MAX;
	int32_t index = trials_find(trials, &known->winner.config);

	sweep->picked[trials->standard] = true;
	left--;
	if (index >= 0 && (uint32_t)index < sweep->members && !sweep->picked[index]) {
		sweep->picked[index] = true;
		left--;
	}
	standing = sweep->wider ? calloc(members, sizeof(*standing)) : NULL;
	if (standing == NULL)
		return;
	trials_decide(old, members, sweep->options->band_ppm, true, false, standing, &decision);
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
	if (lookup_known(sweep->store, &sweep->subject, 0, &known, NULL) == 1 && known.winner.set) {
		if (sweep->few)
			(void)store_get_trials(
			        sweep->store, &sweep->subject.key, known.winner.identity, &old, NULL);
		found = true;
	}
	store_end(sweep->store);
	index = found ? trials_find(sweep->trials, &known.winner.config) : -1;
	if (index < 0 || (uint32_t)index >= sweep->members ||
	        (sweep->trials->trial[index].status != TRIAL_WAITING && !sweep->wider))
		goto whole;
	sweep->held = known.winner;
	if (sweep->check && lookup_serves(&sweep->subject, &known.winner)) {
		sweep->picked[index] = true;
		sweep->picked[sweep->trials->standard] = true;
	} else if (sweep->few && old != NULL) {
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
	sweep->check = sweep->few = false;
}

static bool is_tried(const struct sweep *sweep, uint32_t index)
{
	return sweep->picked == NULL || sweep->picked[index];
}

static void write_members(const struct sweep *sweep, struct ft_writer *writer, struct ft_sweep_member *member)
{
	const int32_t served = lookup_served(sweep->store, &sweep->subject, sweep->trials);
	struct ft_writer samples;

	ft_writer_init_growing(&samples, ft_bounds_request.bytes);
	ft_write_array(writer, sweep->members);
	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		sweep->trials->trial[i].confirmed = false;
		memset(member, 0, sizeof(*member));
		member->config = trial->config;
		if (trial->status != TRIAL_WAITING)
			(void)snprintf(member->status, sizeof(member->status), "%s",
			        trial_status_word(trial->status));
		else if (!is_tried(sweep, i))
			(void)snprintf(member->status, sizeof(member->status), "%s",
			        trial_status_word(TRIAL_PRUNED));
		memcpy(member->code, trial->code, sizeof(member->code));
		member->same_as = trial->status == TRIAL_SAME_CODE ? trial->same_as : 0;
		member->verified = trial->verified;
		member->dropped = trial->dropped;
		member->served = (int64_t)i == served;
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

static void sweep_replied(void *data, struct ft_view reply, const struct ft_error *failure);

static void ask_sweep(struct sweep *sweep)
{
	struct ft_sweep_request *request = calloc(1, sizeof(*request));
	struct ft_sweep_member *member = calloc(1, sizeof(*member));
	struct ft_writer members;

	ft_writer_init_growing(&members, ft_bounds_large.bytes);
	if (request == NULL || member == NULL) {
		end_failed(sweep, "no memory for a sweep");
		goto out;
	}
	write_members(sweep, &members, member);
	if (!ft_writer_ok(&members)) {
		end_failed(sweep, "no memory for a sweep");
		goto out;
	}
	request->job = sweep->job->job;
	(void)snprintf(request->kernel, sizeof(request->kernel), "%s", sweep->subject.kernel->schema.kernel);
	request->problem = sweep->subject.problem;
	(void)snprintf(request->device, sizeof(request->device), "%s", sweep->subject.device->shown.id);
	request->members = (struct ft_view){members.data, members.length};
	request->standard = sweep->trials->standard;
	request->rounds = sweep->trials->rounds;
	request->seed = sweep->trials->seed;
	request->budget_ns = budget_left(sweep);
	if (request->budget_ns < budget_of(sweep) / OVERRUN_PART)
		request->budget_ns = budget_of(sweep) / OVERRUN_PART;
	sweep->given_ns = request->budget_ns;
	request->band_ppm = sweep->options->band_ppm;
	request->min_rounds = ft_rule_usual.min_rounds;
	request->max_rounds = ft_rule_usual.max_rounds;
	/* What was known before speaks too: a moment's weather costs no more than a whole sweep, which follows. */
	request->hasty = sweep->picked != NULL;
	sweep->phase = SWEEP_RUNS;
	sweep->busy = -1;
	sweep->busy_stage = STAGE_START;
	start_clock(sweep);
	expect_end(sweep);
	sweep->samples = 0;
	sweep->disturbed = 0;
	sweep->rejected = false;
	runner_ask(&sweep->slot->runner, "sweep", &ft_sweep_request_message, request, STAGE_START,
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

/* The old winner did not hold after an upgrade: what it was tied with is tried too. False if there is nothing more to
 * try. */
static bool try_wider(struct sweep *sweep, const struct ft_decision *decision)
{
	int32_t index = trials_find(sweep->trials, &sweep->held.config);
	uint32_t picked = count_picked(sweep);

	if (!sweep->few || picked == 0 || sweep->wider ||
	        (decision->verdict == FT_VERDICT_WINNER && (int64_t)decision->winner == index))
		return false;
	free(sweep->picked);
	sweep->wider = true;
	pick(sweep);
	if (count_picked(sweep) == picked)
		return false;
	stop_clock(sweep);
	ask_sweep(sweep);
	return true;
}

/* Of two configs in the schema's order. */
static bool same_values(const struct ft_config *a, const struct ft_config *b)
{
	for (uint32_t i = 0; i < a->count; i++) {
		if (a->knob[i].value != b->knob[i].value)
			return false;
	}
	return true;
}

/* Reads the members of a space; fails on what no space may hold. */
static int read_space(const struct ft_space_reply *reply, struct subject *subject, struct ft_config *config,
        char (*pruned)[FT_REASON_SIZE], uint32_t *count, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(reply->members.data, reply->members.length);
	struct ft_space_member member;
	struct ft_view view;

	if (!ft_read_array(&cursor, count) || *count == 0 || *count > FT_SPACE_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "a space must have 1 to %d configs", FT_SPACE_MAX);
	for (uint32_t i = 0; i < *count; i++) {
		if (!ft_read_view(&cursor, &view))
			return ft_fail(error, FT_E_BAD_REQUEST, "the space is cut short");
		if (ft_decode(&ft_space_member_message, view, &member, error) != 0 ||
		        ft_schema_check_config(&subject->kernel->schema, &member.config, &config[i], error) !=
		                0)
			return -1;
		memcpy(pruned[i], member.pruned, sizeof(pruned[i]));
		for (uint32_t k = 0; k < i; k++) {
			if (same_values(&config[k], &config[i]))
				return ft_fail(error, FT_E_BAD_VALUE, "the space has a config twice");
		}
	}
	if (reply->standard >= *count || pruned[reply->standard][0] != '\0')
		return ft_fail(error, FT_E_BAD_VALUE, "the space's default is no member of it");
	return 0;
}

static void begin_members(struct sweep *sweep, struct trials *known, const struct ft_config *config,
        const char (*pruned)[FT_REASON_SIZE], uint32_t count, uint32_t standard)
{
	trials_free(sweep->trials);
	sweep->trials = trials_merge(&sweep->subject, known, config, pruned, count, standard);
	free(sweep->standing);
	sweep->standing = calloc(count, sizeof(*sweep->standing));
	sweep->members = count;
	if (sweep->trials == NULL || sweep->standing == NULL) {
		end_failed(sweep, "no memory for the trials");
		return;
	}
	if (sweep->trials->seed == 0 &&
	        getrandom(&sweep->trials->seed, sizeof(sweep->trials->seed), 0) !=
	                (ssize_t)sizeof(sweep->trials->seed)) {
		end_failed(sweep, "no random seed");
		return;
	}
	sweep->trials->seed &= INT64_MAX; /* so that every language can hold it */
	free(sweep->picked);
	sweep->picked = NULL;
	sweep->wider = false;
	if (sweep->check || sweep->few)
		pick(sweep);
	if (sweep->force || (sweep->check && known != NULL && !sweep->checking))
		trials_forget_times(sweep->trials);
	if (sweep->force)
		sweep->lets_go = sweep->job->begun = true;
	sweep->force = false;
	sweep->checking = sweep->check;
	sweep->space_hash =
	        sweep->few ? space_in_part : subject_members_hash(&sweep->subject, config, pruned, count);
	if (!sweep->check && trials_complete(sweep->trials, count)) {
		/* Decided before: an answer was lost, forgotten, or came back with its compiler. */
		end(sweep, SWEEP_DECIDED, NULL);
		return;
	}
	sweep->trials->winner = -1;
	trials_progress(sweep->trials, count, &sweep->job->trials, &sweep->job->settled);
	store_trials(sweep);
	ask_sweep(sweep);
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
		end_failed(sweep, "the runner has no space for it: %s", failure->message);
		goto out;
	}
	if (config == NULL || pruned == NULL) {
		end_failed(sweep, "no memory for a space");
		goto out;
	}
	if (ft_decode(&ft_space_reply_message, reply, &space, &error) != 0 ||
	        read_space(&space, &sweep->subject, config, pruned, &count, &error) != 0) {
		runner_kill(
		        &sweep->slot->runner, RUNNER_BABBLED, "its space makes no sense: %s", error.message);
		goto out;
	}
	if (sweep->trials != NULL) { /* goes on after a runner failed: what is in memory is newest */
		known = sweep->trials;
		sweep->trials = NULL;
	} else {
		if (store_begin(sweep->store, &error) != 0) {
			end_failed(sweep, "cannot read the store: %s", error.message);
			goto out;
		}
		if (store_get_trials(sweep->store, &sweep->subject.key, sweep->subject.kernel->identity,
		            &known, &error) < 0)
			known = NULL; /* damaged: measured anew */
		store_end(sweep->store);
		if (known != NULL && !ft_problem_equal(&known->problem, &sweep->subject.problem)) {
			trials_free(known);
			known = NULL;
		}
	}
	begin_members(
	        sweep, known, config, (const char(*)[FT_REASON_SIZE])pruned, count, (uint32_t)space.standard);
out:
	trials_free(known);
	free(config);
	free(pruned);
}

static void ask_space(struct sweep *sweep)
{
	struct ft_space_request request = {.problem = sweep->subject.problem};

	memcpy(request.kernel, sweep->subject.kernel->schema.kernel, sizeof(request.kernel));
	memcpy(request.device, sweep->subject.device->shown.id, sizeof(request.device));
	sweep->phase = SWEEP_WAITS_SPACE;
	start_clock(sweep);
	runner_ask(&sweep->slot->runner, "space", &ft_space_request_message, &request, STAGE_SPACE,
	        space_replied, sweep);
}

/* ---- the end of a runner's sweep ---- */

/* The winner that is stored against the default alone. */
static void conclude_check(struct sweep *sweep, const struct ft_decision *decision)
{
	struct trials *trials = sweep->trials;
	int32_t index = trials_find(trials, &sweep->held.config);
	const struct ft_standing *now = &sweep->standing[index];
	double change =
	        sweep->held.time_ps > 0 ? (double)now->median_ps / (double)sweep->held.time_ps - 1 : 0;
	bool alone = (uint32_t)index == trials->standard;
	struct ft_error why;

	if (trials->trial[index].status == TRIAL_WAITING && now->median_ps == 0) {
		end_failed(sweep, "the budget ended before the winner was timed");
		return;
	}
	if (decision->verdict == FT_VERDICT_WINNER &&
	        (alone ? change < check_slower : decision->winner == (size_t)index || now->tied)) {
		(void)ft_fail(&why, FT_E_RUNNER,
		        "the winner holds%s; it takes %.1f %% %s than when it won (%.4g µs)",
		        alone ? ": it is the default" : " against the default",
		        (change < 0 ? -change : change) * 100, change < 0 ? "less" : "more",
		        (double)sweep->held.time_ps / 1e6);
		/* What it takes now is what was asked; nothing of that is stored. */
		trials_time_winner(trials, sweep->members, sweep->options->band_ppm, (uint32_t)index,
		        now->median_ps, &sweep->held);
		sweep->held.conclusive = decision->conclusive;
		end(sweep, SWEEP_HELD, &why);
		return;
	}
	log_line(sweep->log, LOG_LEVEL_INFO, "winner no longer holds job=%" PRIu64 " change=%+.1f%%",
	        sweep->job->job, change * 100);
	stop_clock(sweep);
	trials_free(sweep->trials);
	sweep->trials = NULL;
	sweep->check = sweep->checking = sweep->job->check = false;
	sweep->force = sweep->job->force = true;
	(void)note_event(sweep, "stage");
	send_notes(sweep, &sweep->waiting);
	ask_space(sweep);
}

static void add_to_reason(struct trials *trials, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void add_to_reason(struct trials *trials, const char *format, ...)
{
	size_t length = strlen(trials->reason);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(trials->reason + length, sizeof(trials->reason) - length, format, arguments);
	va_end(arguments);
}

/* A result that was measured beside someone else's work is to be told from others. */
static void note_disturbance(struct sweep *sweep, const struct ft_decision *decision, const char *weather)
{
	struct trials *trials = sweep->trials;

	trials->busy = sweep->samples >= DISTURBED_LEAST && sweep->disturbed * 4 >= sweep->samples;
	if (trials->busy)
		add_to_reason(trials, "; measured while something else used the device (%.0f %% of samples)",
		        100.0 * (double)sweep->disturbed / (double)sweep->samples);
	if (decision->slow > 0)
		add_to_reason(trials, "; %u of %u rounds were slow and do not count", decision->slow,
		        trials->rounds);
	if (weather[0] != '\0')
		add_to_reason(trials, "; %s", weather);
}

bool sweep_is_disturbed(const struct sweep *sweep)
{
	return sweep->phase == SWEEP_RUNS && sweep->samples >= DISTURBED_LEAST &&
	        sweep->disturbed * 2 >= sweep->samples;
}

static uint32_t count_unreached(const struct sweep *sweep)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		count += trial->status == TRIAL_WAITING && is_tried(sweep, i) && !trial->dropped &&
		        (!trial->verified || trial->sample_ps == NULL);
	}
	return count;
}

/* Says how many went for what, and the first thing that a compiler or a check said of one. */
static void end_without_winner(struct sweep *sweep, const struct ft_decision *decision)
{
	static const enum trial_status ends[] = {TRIAL_FAILED, TRIAL_WRONG, TRIAL_TIMEOUT, TRIAL_SAME_CODE};
	uint32_t count[sizeof(ends) / sizeof(ends[0])] = {0}, tried = 0;
	const struct trial *first = NULL;
	char text[256];
	char config[FT_CONFIG_TEXT_SIZE];
	size_t length;

	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		if (trial->status == TRIAL_PRUNED || !is_tried(sweep, i))
			continue;
		tried++;
		for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++)
			count[k] += trial->status == ends[k];
		if (first == NULL && trial->status != TRIAL_WAITING && trial->status != TRIAL_SAME_CODE &&
		        trial->reason[0] != '\0')
			first = trial;
	}
	if (first == NULL) {
		end_failed(sweep, "no config can win: %s", decision->reason);
		return;
	}
	length = (size_t)snprintf(text, sizeof(text), "no config can win: of %u that were tried", tried);
	for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++) {
		if (count[k] > 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length, ", %u %s", count[k],
			        ends[k] == TRIAL_FAILED            ? "failed"
			                : ends[k] == TRIAL_WRONG   ? "were wrong"
			                : ends[k] == TRIAL_TIMEOUT ? "took too long"
			                                           : "had the code of another");
	}
	if (count_unreached(sweep) > 0)
		(void)snprintf(text + length, sizeof(text) - length, ", %u were not reached in the budget",
		        count_unreached(sweep));
	(void)ft_config_format(&first->config, ' ', config, sizeof(config));
	end_failed(sweep, "%s; the first, %.60s: %.180s", text, config, first->reason);
}

/* The default alone did not fit, or not the next winner. What was to be done before it counts as well. */
static void end_without_time(struct sweep *sweep, uint64_t needs_ns)
{
	uint64_t budget = budget_of(sweep), given = sweep->given_ns;
	uint64_t needs = needs_ns + (given < budget ? budget - given : 0);

	if (needs <= budget)
		needs = budget + budget / OVERRUN_PART;
	end_failed(sweep, "the budget of %.3g s is too small: %s takes about %" PRIu64 " s",
	        (double)budget / 1e9,
	        sweep->rejected ? "the winner was found wrong after the race, and to verify the next"
	                        : "to verify and time the default alone",
	        (needs + second_ns - 1) / second_ns);
}

static void conclude(struct sweep *sweep, const struct ft_sweep_reply *reply)
{
	struct trials *trials = sweep->trials;
	struct ft_decision decision;
	uint32_t unreached = count_unreached(sweep);

	trials_decide(
	        trials, sweep->members, sweep->options->band_ppm, false, true, sweep->standing, &decision);
	if (decision.verdict == FT_VERDICT_MEASURE)
		trials_decide(trials, sweep->members, sweep->options->band_ppm, true, true, sweep->standing,
		        &decision);
	(void)snprintf(trials->method, sizeof(trials->method), "%s", reply->method);
	if (sweep->check) {
		conclude_check(sweep, &decision);
		return;
	}
	if (try_wider(sweep, &decision))
		return;
	if (decision.verdict != FT_VERDICT_WINNER) {
		end_without_winner(sweep, &decision);
		return;
	}
	trials->winner = (int32_t)decision.winner;
	trials->conclusive = decision.conclusive && unreached == 0;
	(void)snprintf(trials->reason, sizeof(trials->reason), "%s%s",
	        decision.conclusive && unreached > 0 ? "unsettled when it was ended: " : "", decision.reason);
	if (unreached > 0)
		add_to_reason(trials, "; %u of %" PRIu64 " configs were not reached in the budget of %.3g s",
		        unreached, sweep->job->trials, (double)budget_of(sweep) / 1e9);
	note_disturbance(sweep, &decision, reply->weather);
	if (strcmp(reply->outcome, "decided") != 0 || reply->winner != decision.winner)
		log_line(sweep->log, LOG_LEVEL_WARNING,
		        "the runner chose otherwise job=%" PRIu64 " runner=%s:%" PRIu64 " daemon=%zu",
		        sweep->job->job, reply->outcome, reply->winner, decision.winner);
	for (uint32_t i = 0; i < sweep->members; i++) {
		if (trials->trial[i].status == TRIAL_WAITING && !trials->trial[i].dropped &&
		        is_tried(sweep, i))
			note_trial(sweep, i);
	}
	end(sweep, SWEEP_DECIDED, NULL);
}

static void sweep_replied(void *data, struct ft_view view, const struct ft_error *failure)
{
	struct sweep *sweep = data;
	struct ft_sweep_reply reply;
	struct ft_error error;

	/* Nothing is decided of a device that changed under the sweep: its runner is on its way out. */
	devices_look_now(sweep->devices);
	if (sweep->slot->probing)
		return;
	if (failure == NULL && ft_decode(&ft_sweep_reply_message, view, &reply, &error) != 0) {
		runner_kill(
		        &sweep->slot->runner, RUNNER_BABBLED, "its reply makes no sense: %s", error.message);
		return;
	}
	if (failure != NULL)
		end_failed(sweep, "%s", failure->message);
	else if (sweep->cancelled)
		end(sweep, SWEEP_CANCELLED, NULL);
	else if (strcmp(reply.outcome, "no_time") == 0)
		end_without_time(sweep, reply.needs_ns);
	else
		conclude(sweep, &reply);
}

/* ---- events of the runner ---- */

static void babbled(struct sweep *sweep, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void babbled(struct sweep *sweep, const char *format, ...)
{
	char text[200];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	runner_kill(&sweep->slot->runner, RUNNER_BABBLED, "%s", text);
}

static enum options_stage stage_of(const char *word, enum options_stage otherwise)
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

static void race_again(struct trial *trial)
{
	if (!trial->dropped)
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
	        trials, sweep->members, sweep->options->band_ppm, false, false, sweep->standing, &decision);
	for (uint32_t i = 0; i < sweep->members; i++) {
		struct trial *trial = &trials->trial[i];

		if (!sweep->standing[i].drop || trial->dropped || trial->status != TRIAL_WAITING)
			continue;
		trial->dropped = true;
		trial->dropped_round = trials->rounds;
		say_slower(trial->reason, sizeof(trial->reason), sweep->standing[i].ratio,
		        sweep->standing[i].ratio_low);
		note_trial(sweep, i);
	}
	/* Dropped in rounds that turned out to be slow ones: the runner races them again. */
	for (uint32_t i = 0; i < sweep->members; i++) {
		if (sweep->standing[i].revive && trials->trial[i].status == TRIAL_WAITING)
			race_again(&trials->trial[i]);
	}
}

/* A trial that was timed is out after all. Others may have been dropped for being slower than it: they are
 * compared anew, among themselves. */
static void out_after_timing(struct sweep *sweep, const struct trial *out)
{
	if (out->sample_ps == NULL)
		return;
	for (uint32_t i = 0; i < sweep->members; i++) {
		struct trial *trial = &sweep->trials->trial[i];

		if (trial->status == TRIAL_WAITING)
			race_again(trial);
	}
	drop_worse(sweep);
}

/* One round's samples, taken whole or not at all. */
static void take_round(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trials *trials = sweep->trials;
	uint64_t sample[FT_SPACE_MAX] = {0};
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	uint32_t count;

	if (event->round != trials->rounds || trials->rounds >= FT_ROUNDS_MAX) {
		babbled(sweep, "it sent round %" PRIu64 " where %u is due", event->round, trials->rounds);
		return;
	}
	if (!ft_read_array(&cursor, &count) || count == 0 || count > sweep->members) {
		babbled(sweep, "a round must have 1 to %u samples", sweep->members);
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
			babbled(sweep, "sample %u of round %u makes no sense", i, trials->rounds);
			return;
		}
		sample[index] = value;
	}
	for (uint32_t i = 0; i < sweep->members; i++) {
		/* The default races on for a while though it is dropped: what others gain is told by the rounds shared with it. */
		if (sample[i] == 0 || (trials->trial[i].dropped && i != trials->standard))
			continue;
		uint64_t *samples = trials_samples(trials, i);

		if (samples == NULL) {
			babbled(sweep, "no memory for its samples");
			return;
		}
		samples[trials->rounds] = sample[i];
	}
	trials->rounds++;
	sweep->let_go = 0;
	sweep->samples += count;
	sweep->disturbed += event->disturbed < count ? event->disturbed : count;
	sweep->busy = -1;
	sweep->job->rounds = trials->rounds;
	drop_worse(sweep);
	(void)note_event(sweep, "round");
	store_trials(sweep);
}

static void take_stage(struct sweep *sweep, const struct ft_runner_event *event)
{
	note_waiting(sweep, strcmp(event->stage, "wait") == 0);
	(void)snprintf(sweep->job->stage, sizeof(sweep->job->stage), "%s", event->stage);
	sweep->busy_stage = stage_of(event->stage, sweep->busy_stage);
	sweep->busy = -1;
	(void)note_event(sweep, "stage");
	store_trials(sweep);
}

static void take_out(struct sweep *sweep, const struct ft_runner_event *event)
{
	struct trial *trial = &sweep->trials->trial[event->trial];
	enum trial_status status;

	if (trial_status_parse(event->status, &status) != 0 ||
	        (status != TRIAL_WRONG && status != TRIAL_FAILED && status != TRIAL_TIMEOUT &&
	                status != TRIAL_PRUNED)) {
		babbled(sweep, "a trial cannot be out as \"%s\"", event->status);
		return;
	}
	trial->status = status;
	sweep->rejected = sweep->rejected || trial->sample_ps != NULL;
	memcpy(trial->reason, event->reason, sizeof(trial->reason));
	note_trial(sweep, (uint32_t)event->trial);
	out_after_timing(sweep, trial);
	store_trials(sweep);
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
		store_trials(sweep);
	} else if (strcmp(event->event, "same_code") == 0 && waiting) {
		if (event->other >= sweep->members || event->other == event->trial) {
			babbled(sweep, "trial %" PRIu64 " cannot have the code of trial %" PRIu64,
			        event->trial, event->other);
			return;
		}
		trial->status = TRIAL_SAME_CODE;
		trial->same_as = (uint32_t)event->other;
		memcpy(trial->reason, event->reason, sizeof(trial->reason));
		note_trial(sweep, (uint32_t)event->trial);
		store_trials(sweep);
	} else if (strcmp(event->event, "verified") == 0 && waiting) {
		trial->verified = true;
		if (event->error > trial->error)
			trial->error = event->error;
		store_trials(sweep);
	} else if (strcmp(event->event, "confirmed") == 0 && waiting) {
		trial->confirmed = true;
	} else if (strcmp(event->event, "out") == 0 && waiting) {
		take_out(sweep, event);
	}
	/* "dropped" is the runner's view of what the daemon decides by itself; other words are of later
	 * versions. */
	if (strcmp(event->event, "begin") != 0 && sweep->busy == (int64_t)event->trial)
		sweep->busy = -1;
}

void sweep_runner_event(struct sweep *sweep, struct runner_slot *slot, const struct ft_runner_event *event)
{
	if (sweep->slot != slot || sweep->phase != SWEEP_RUNS || event->job != sweep->job->job)
		return; /* a late word about a sweep that is over */
	if (event->trial >= sweep->members) {
		babbled(sweep, "it speaks of trial %" PRIu64 " of %u", event->trial, sweep->members);
		return;
	}
	if (strcmp(event->event, "round") == 0)
		take_round(sweep, event);
	else if (strcmp(event->event, "stage") == 0)
		take_stage(sweep, event);
	else
		take_event(sweep, event);
	/* Every word shows that it is alive; a cancelled sweep has its one deadline to stop. */
	if (sweep->phase == SWEEP_RUNS && !sweep->cancelled && slot->runner.state == RUNNER_READY)
		runner_expect(&slot->runner, sweep->busy_stage);
}

/* ---- the runner's life ---- */

/* Finds the device anew: a hello may have replaced it. False if the sweep cannot go on as it was begun; what it has then
 * stays what it was measured as. */
static bool find_subject(struct sweep *sweep, struct ft_error *error)
{
	struct subject found;

	if (subject_admit(&found, sweep->devices, sweep->job->kernel, sweep->job->device,
	            &sweep->job->problem, error) != 0)
		return false;
	if (sweep->identity == 0)
		sweep->subject = found;
	if (found.device->state != DEVICE_READY) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "device %s is gone: %.200s", sweep->job->device,
		        found.device->slot->reason);
		return false;
	}
	if (sweep->identity != 0 &&
	        (sweep->identity != found.kernel->identity ||
	                sweep->subject.key.device != found.key.device)) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "the device or its software changed under the sweep");
		return false;
	}
	sweep->subject = found;
	sweep->identity = found.kernel->identity;
	return true;
}

void sweep_start(struct sweep *sweep, struct ft_job *job)
{
	struct ft_error error;

	sweep->job = job;
	sweep->force = job->force && !job->begun;
	sweep->lets_go = false;
	sweep->check = job->check;
	sweep->few = job->few;
	sweep->checking = false;
	sweep->cancelled = false;
	sweep->cuts = 0;
	sweep->unblamed = sweep->let_go = 0;
	sweep->began_ns = sweep->wait_ns = sweep->spent_ns = 0;
	sweep->busy = -1;
	sweep->subject = (struct subject){0};
	sweep->identity = 0;
	sweep->slot = NULL;
	sweep->phase = SWEEP_WAITS_RUNNER;
	(void)snprintf(job->stage, sizeof(job->stage), "start");
	if (!find_subject(sweep, &error)) {
		end(sweep, SWEEP_FAILED, &error);
		return;
	}
	sweep->slot = sweep->subject.device->slot;
	if (sweep->slot->runner.state == RUNNER_ENDING)
		return; /* it is started again when it is gone */
	start_clock(sweep);
	if (sweep->slot->runner.state == RUNNER_READY)
		ask_space(sweep);
	else
		runner_start(&sweep->slot->runner);
}

void sweep_settled(struct sweep *sweep, struct runner_slot *slot)
{
	struct ft_error error;

	if (sweep->slot != slot || sweep->phase == SWEEP_OFF || sweep->phase == SWEEP_ENDS)
		return;
	if (sweep->phase != SWEEP_WAITS_RUNNER)
		return;
	/* Without its device there is nothing to wait for, whatever becomes of the runner. */
	if (!find_subject(sweep, &error))
		end(sweep, SWEEP_MOVED, &error);
	else if (slot->runner.state == RUNNER_READY)
		ask_space(sweep);
}

void sweep_runner_gone(
        struct sweep *sweep, struct runner_slot *slot, enum runner_cause cause, const struct ft_error *why)
{
	if (sweep->slot != slot || sweep->phase == SWEEP_OFF || sweep->phase == SWEEP_ENDS)
		return;
	stop_clock(sweep);
	if (sweep->cancelled) {
		end(sweep, SWEEP_CANCELLED, NULL);
		return;
	}
	if (cause == RUNNER_UNSTARTED) {
		end(sweep, SWEEP_FAILED, why);
		return;
	}
	if (cause != RUNNER_ASKED) {
		sweep->job->restarts++;
		/* One config may hang; where one after another seems to, it is not theirs. */
		if (sweep->cuts >= UNBLAMED_MAX) {
			end(sweep, SWEEP_FAILED, why);
			return;
		}
		if (sweep->phase == SWEEP_RUNS && sweep->busy >= 0) {
			struct trial *trial = &sweep->trials->trial[sweep->busy];

			/* What the runner said of it before it went tells more. */
			if (trial->status != TRIAL_FAILED || trial->reason[0] == '\0')
				(void)snprintf(trial->reason, sizeof(trial->reason),
				        "its runner failed in stage %s: %.180s",
				        options_stage_word(sweep->busy_stage), why->message);
			trial->status = cause == RUNNER_LATE ? TRIAL_TIMEOUT : TRIAL_FAILED;
			note_trial(sweep, (uint32_t)sweep->busy);
			out_after_timing(sweep, trial);
			store_trials(sweep);
			sweep->unblamed = 0;
		} else if (++sweep->unblamed >= UNBLAMED_MAX) {
			end(sweep, SWEEP_FAILED, why);
			return;
		}
		(void)note_event(sweep, "restarted");
	} else if (++sweep->let_go > LET_GO_MAX) {
		end_failed(sweep, "its runner was let go %u times before a round was done: %.200s",
		        sweep->let_go, why->message);
		return;
	}
	sweep->busy = -1;
	sweep->phase = SWEEP_WAITS_RUNNER;
	start_clock(sweep);
	runner_start(&slot->runner);
}

void sweep_cancel(struct sweep *sweep)
{
	struct ft_cancel_notice notice = {.job = sweep->job->job};

	sweep->cancelled = true;
	if (sweep->phase == SWEEP_RUNS && sweep->slot->runner.state == RUNNER_READY) {
		runner_tell(&sweep->slot->runner, "cancel", &ft_cancel_notice_message, &notice);
		runner_expect(&sweep->slot->runner, STAGE_STOP);
	} else if (sweep->phase == SWEEP_WAITS_RUNNER || sweep->phase == SWEEP_WAITS_SPACE) {
		/* Nothing is measured yet: the runner's answer is not needed. */
		if (sweep->phase == SWEEP_WAITS_SPACE)
			runner_kill(&sweep->slot->runner, RUNNER_ASKED, "the job was cancelled");
		end(sweep, SWEEP_CANCELLED, NULL);
	}
}

void sweep_stored(struct sweep *sweep)
{
	send_notes(sweep, &sweep->last_notes);
}

void sweep_abandon(struct sweep *sweep)
{
	free_notes(&sweep->last_notes);
	deadline_close(&sweep->cut);
	if (sweep->phase == SWEEP_OFF)
		return;
	sweep->phase = SWEEP_OFF;
	trials_free(sweep->trials);
	sweep->trials = NULL;
	free(sweep->standing);
	sweep->standing = NULL;
	free(sweep->picked);
	sweep->picked = NULL;
	free_notes(&sweep->waiting);
	if (!sweep->storing)
		free_notes(&sweep->storing_notes);
	sweep->job = NULL;
}
