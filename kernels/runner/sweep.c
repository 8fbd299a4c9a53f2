#include "kernels/runner/sweep.h"
#include "proto/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The tied are verified again too, but not for longer than this: only the winner must be. */
static const uint64_t confirm_tied_ns = 1000000000;
static const uint64_t second_ns = 1000000000;

/* The outputs of so many launches of the winner are looked at. One that is wrong in 1 of 200 is found by them in 99 of
 * 100 sweeps, one that is wrong in 1 of 50 always. Of problems that move more bytes than that, fewer for the same time. */
enum {
	AUDIT_LAUNCHES = 1000,
	AUDIT_LEAST = 16,
	AUDIT_PARTS = 16, /* at least */
	AUDIT_FIRST = 2,  /* which are checked whole */
	AUDIT_COST = 3    /* launches' times, for one */
};
static const uint64_t audit_part_ns = 200000000; /* after which a cancel is looked for */
static const uint64_t audit_whole_bytes = (uint64_t)64 << 20;
enum { RESERVE_MOST = 4, RESERVE_LEAST = 50, PAST_PART = 20 /* parts of the budget, kept for that */ };

/* Of the budget, what may be spent on waiting for the device to be quiet. */
enum {
	PATIENCE_PART = 10,
	OVERRUN_PART = 10, /* of it, by which the last verification may go beyond */
	TIGHT_PART = 4,    /* of what is left: if verifying all takes more, the default is timed first */
	VAIN_MOST = 4,     /* halvings of it */
	LOAD_QUIET = 20,   /* percent that others use of a quiet device */
	SPREAD_ROUNDS = 7, /* the first of a race, which may decide it */
};
static const uint64_t pause_first_ns = 50000000;
static const uint64_t pause_step_ns = 50000000; /* after which a cancel is looked for */
static const uint64_t pause_least_ns = 5000000; /* less is not worth to cool down for */

struct run {
	struct ft_sweep *sweep;
	struct ft_backend *backend;
	const struct ft_sweep_listener *listener;
	uint64_t start_ns;
	uint64_t deadline_ns; /* the budget's end; moves on while others are waited for */
	uint64_t prepare_ns;  /* that it took; 0: not over yet */
	uint64_t verify_ns;   /* a config; guessed at first, 0: not known */
	size_t verified;      /* that it was measured on */
	uint64_t sample_ns;   /* of the default, with all that goes with it; 0: not known */
	uint64_t reserve_ns;  /* for the launches of the winner that are looked at */
	uint64_t spread_ns;   /* of the first rounds */
	uint64_t launch_ns;   /* of the fastest, in the last round */
	bool warmed, raced;
	bool rejected;        /* a winner was found wrong after the race */
	size_t fresh;         /* rounds measured in this run */
	uint64_t began_ns;    /* the first of them */
	uint64_t patience_ns; /* left for waiting */
	uint64_t pause_ns;    /* of the next wait */
	uint64_t waited_ns;
	bool disturbed; /* the last round was disturbed */
	char interference[sizeof(
	        ((struct ft_interference *)0)->reason)]; /* the last that was to be said of it */
	size_t *order;                                   /* of a round */
	uint64_t *sample;                                /* of the round at hand */
	bool *asked;                                     /* for a build that is not in yet */
	bool *built;                                     /* in this process */
	bool *sampled;                                   /* once at least, thrown away or not */
	bool revived; /* some that were dropped race again, and may have to be built */
	struct ft_contender *contender;
	struct ft_writer writer;
};

enum {
	RUN_CANCELLED = 1,
	RUN_ENDED = 2,  /* the budget is spent */
	RUN_NO_TIME = 3 /* before anybody could win in it */
};

/* splitmix64: the order of a round follows from the seed and its number alone. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

int ft_sweep_init(struct ft_sweep *sweep, size_t count, struct ft_error *error)
{
	sweep->count = 0;
	sweep->trial = calloc(count ? count : 1, sizeof(*sweep->trial));
	sweep->standing = calloc(count ? count : 1, sizeof(*sweep->standing));
	if (!sweep->trial || !sweep->standing) {
		ft_sweep_free(sweep);
		return ft_fail(error, FT_E_MEMORY, "no memory for %zu trials", count);
	}
	sweep->count = count;
	return 0;
}

void ft_sweep_free(struct ft_sweep *sweep)
{
	for (size_t i = 0; sweep->trial && i < sweep->count; i++)
		free(sweep->trial[i].sample_ps);
	free(sweep->trial);
	free(sweep->standing);
	sweep->trial = NULL;
	sweep->standing = NULL;
	sweep->count = 0;
}

uint64_t *ft_sweep_samples(struct ft_sweep *sweep, size_t index)
{
	struct ft_sweep_trial *trial = &sweep->trial[index];
	if (!trial->sample_ps)
		trial->sample_ps = calloc(FT_ROUNDS_MAX, sizeof(*trial->sample_ps));
	return trial->sample_ps;
}

/* ---- events ---- */

static struct ft_runner_event make_event(const struct run *run, const char *word, size_t trial)
{
	struct ft_runner_event event = {.job = run->sweep->job, .trial = trial};
	snprintf(event.event, sizeof(event.event), "%s", word);
	return event;
}

static void tell(struct run *run, const struct ft_runner_event *event)
{
	run->listener->event(run->listener->context, event);
}

static void tell_stage(struct run *run, const char *stage)
{
	struct ft_runner_event event = make_event(run, "stage", 0);
	snprintf(event.stage, sizeof(event.stage), "%s", stage);
	tell(run, &event);
}

static void tell_begin(struct run *run, const char *stage, size_t trial)
{
	struct ft_runner_event event = make_event(run, "begin", trial);
	snprintf(event.stage, sizeof(event.stage), "%s", stage);
	tell(run, &event);
}

static bool can_win(const struct ft_sweep_trial *trial)
{
	return !trial->out && !trial->dropped;
}

static void decide(struct run *run, bool ended, struct ft_decision *decision)
{
	struct ft_sweep *sweep = run->sweep;
	for (size_t i = 0; i < sweep->count; i++) {
		const struct ft_sweep_trial *trial = &sweep->trial[i];
		/* What the budget did not suffice to verify is no contender. */
		run->contender[i] = (struct ft_contender){.out = trial->out || !trial->verified,
		        .dropped = trial->dropped,
		        .sample_ps = trial->sample_ps};
	}
	ft_decide(&sweep->rule, run->contender, sweep->count, sweep->default_index, sweep->rounds, ended,
	        sweep->standing, decision);
}

static void drop_the_worse(struct run *run)
{
	struct ft_sweep *sweep = run->sweep;
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->standing[i].drop || !can_win(&sweep->trial[i]))
			continue;
		sweep->trial[i].dropped = true;
		struct ft_runner_event event = make_event(run, "dropped", i);
		event.round = sweep->rounds;
		snprintf(event.reason, sizeof(event.reason), "%.1f %% slower than the best, at least %.1f %%",
		        (sweep->standing[i].ratio - 1) * 100, (sweep->standing[i].ratio_low - 1) * 100);
		tell(run, &event);
	}
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->standing[i].revive || !sweep->trial[i].dropped)
			continue;
		sweep->trial[i].dropped = false;
		run->revived = run->revived || !run->built[i];
	}
}

/* A trial that was timed is out after all. Others may have been dropped for being slower than it: they are compared
 * anew, among themselves. The daemon does the same. */
static void compare_anew(struct run *run)
{
	struct ft_sweep *sweep = run->sweep;
	struct ft_decision decision;
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->trial[i].out && sweep->trial[i].dropped) {
			sweep->trial[i].dropped = false;
			run->revived = true;
		}
	}
	decide(run, false, &decision);
	drop_the_worse(run);
}

static void put_out(struct run *run, size_t index, const char *status, const char *reason)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	trial->out = true;
	snprintf(trial->status, sizeof(trial->status), "%s", status);
	snprintf(trial->reason, sizeof(trial->reason), "%s", reason);
	struct ft_runner_event event = make_event(run, "out", index);
	snprintf(event.status, sizeof(event.status), "%s", status);
	snprintf(event.reason, sizeof(event.reason), "%s", reason);
	tell(run, &event);
	if (trial->sample_ps)
		compare_anew(run);
}

static bool cancelled(const struct run *run)
{
	return run->listener->cancelled(run->listener->context);
}

/* The default is timed beside the survivors after a restart, so that what they gain is known in fresh rounds.
 */
static bool is_measured(const struct run *run, size_t index)
{
	const struct ft_sweep *sweep = run->sweep;
	const struct ft_sweep_trial *trial = &sweep->trial[index];
	if (trial->out || !trial->verified || !run->built[index])
		return false;
	return !trial->dropped ||
	        (index == sweep->default_index && sweep->rounds > run->fresh &&
	                run->fresh < sweep->rule.min_rounds);
}

static bool is_wanted(const struct run *run, size_t index)
{
	const struct ft_sweep_trial *trial = &run->sweep->trial[index];
	return !trial->out && (!trial->dropped || index == run->sweep->default_index);
}

/* ---- build and verify ---- */

/* The process is about to end: this names whose doing it is. */
static int lose(struct run *run, const char *stage, size_t index)
{
	tell_begin(run, stage, index);
	return FT_BACKEND_LOST;
}

/* What the backend said of a config that is out now. */
static int reject(struct run *run, const char *stage, size_t index, int result, const struct ft_error *error)
{
	put_out(run, index, result == 1 ? "wrong" : "failed", error->message);
	return result == FT_BACKEND_LOST ? lose(run, stage, index) : 0;
}

static bool audits_at_any_rate(const struct run *run)
{
	return run->backend->audit && run->sweep->kernel->bytes(&run->sweep->problem) <= audit_whole_bytes;
}

/* How long it takes to verify the winner after the timing; an audit begins with two whole checks. */
static uint64_t verify_again_ns(const struct run *run)
{
	return run->verify_ns + run->verify_ns / 2 + (audits_at_any_rate(run) ? 2 * run->verify_ns : 0);
}

/* When measuring has to end, for the winner to be verified once more in the budget. */
static uint64_t race_end_ns(const struct run *run)
{
	uint64_t reserve = verify_again_ns(run) + run->reserve_ns;
	return reserve < run->deadline_ns ? run->deadline_ns - reserve : 1; /* 0 would be none */
}

static uint64_t last_end_ns(const struct run *run)
{
	uint64_t overrun = run->sweep->budget_ns / OVERRUN_PART;
	return run->deadline_ns > UINT64_MAX - overrun ? UINT64_MAX : run->deadline_ns + overrun;
}

static void tell_verified(struct run *run, size_t index)
{
	struct ft_runner_event event = make_event(run, "verified", index);
	event.error = run->sweep->trial[index].error;
	tell(run, &event);
}

/* 0, FT_BACKEND_LOST or RUN_ENDED. A wrong or failed config is out. */
static int verify(struct run *run, const char *stage, size_t index, uint64_t until_ns)
{
	struct ft_error error = {0};
	double largest = 0;
	tell_begin(run, stage, index);
	uint64_t begin = ft_monotonic_ns();
	run->backend->deadline_ns = until_ns;
	int result = run->backend->verify(run->backend, index, &largest, &error);
	run->backend->deadline_ns = 0;
	uint64_t took = ft_monotonic_ns() - begin;
	if (result == FT_BACKEND_ENDED) {
		if (run->verify_ns < took)
			run->verify_ns = took;
		tell_stage(run, stage); /* nobody is busy any more */
		return RUN_ENDED;
	}
	run->verify_ns = run->verified++ > 0 ? (run->verify_ns + took) / 2 : took;
	if (result != 0)
		return reject(run, stage, index, result, &error);
	run->sweep->trial[index].error = largest;
	tell_verified(run, index);
	return 0;
}

/* Another trial that does the same work, or count. One that is wrong stands for the other too. */
static size_t find_same(const struct run *run, size_t index)
{
	const struct ft_sweep *sweep = run->sweep;
	for (size_t i = 0; i < sweep->count; i++) {
		const struct ft_sweep_trial *other = &sweep->trial[i];
		if (i != index && run->built[i] && strcmp(other->status, "same_code_as") != 0 &&
		        strcmp(other->code, sweep->trial[index].code) == 0)
			return i;
	}
	return sweep->count;
}

static void tell_same(struct run *run, size_t index, size_t other)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	trial->out = true;
	snprintf(trial->status, sizeof(trial->status), "same_code_as");
	struct ft_runner_event event = make_event(run, "same_code", index);
	event.other = other;
	tell(run, &event);
}

/* The one that stands for all of equal code: the default if it is among them, else the one first in the
 * rule's order, so that the choice does not hang on which build came first. But one that was timed before
 * stays. */
static bool stands_before(const struct run *run, size_t a, size_t b)
{
	const struct ft_sweep *sweep = run->sweep;
	if (a == sweep->default_index || b == sweep->default_index)
		return a == sweep->default_index;
	bool timed_a = sweep->trial[a].sample_ps != NULL;
	bool timed_b = sweep->trial[b].sample_ps != NULL;
	if (timed_a != timed_b)
		return timed_a;
	return a < b;
}

/* There is nothing more to find out of it but its time. */
static bool is_settled(const struct run *run, size_t index)
{
	return index >= run->sweep->count || run->sweep->trial[index].out ||
	        (run->built[index] && run->sweep->trial[index].verified);
}

/* Whether one more can be verified and measured for as many rounds as a decision takes, beside those that are. */
static bool has_time(const struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	uint64_t now = ft_monotonic_ns();
	uint64_t racing = 1;
	for (size_t i = 0; i < sweep->count; i++)
		racing += is_measured(run, i);
	uint64_t samples = racing * (sweep->rule.min_rounds + 1) * run->sample_ns;
	return now < race_end_ns(run) && run->verify_ns + samples <= race_end_ns(run) - now;
}

static int time_the_default_first(struct run *run);

/* 0, RUN_ENDED where there is no time for it, RUN_NO_TIME where that is the default, or FT_BACKEND_LOST. */
static int verify_built(struct run *run, size_t index)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	const bool is_default = index == run->sweep->default_index;
	if (trial->verified)
		return 0;
	if (!is_default && !has_time(run))
		return RUN_ENDED;
	int result = verify(run, "verify", index, is_default ? run->deadline_ns : race_end_ns(run));
	trial->verified = result == 0 && !trial->out;
	if (!is_default)
		return result;
	/* It has to be verified once more. */
	if (result == RUN_ENDED || (result == 0 && ft_monotonic_ns() >= last_end_ns(run) - run->verify_ns))
		return RUN_NO_TIME;
	return result == 0 && trial->verified ? time_the_default_first(run) : result;
}

static int take_built(struct run *run, const struct ft_built *built)
{
	struct ft_sweep *sweep = run->sweep;
	size_t index = built->index;
	if (index >= sweep->count)
		return 0;
	struct ft_sweep_trial *trial = &sweep->trial[index];
	run->asked[index] = false;
	if (built->failed) {
		put_out(run, index, "failed", built->error.message);
		return 0;
	}
	bool same_as_before = strcmp(trial->code, built->code) == 0;
	if (!same_as_before || !built->cached) {
		struct ft_runner_event event = make_event(run, "built", index);
		snprintf(event.code, sizeof(event.code), "%s", built->code);
		event.cached = built->cached;
		event.registers = built->registers;
		event.spills = built->spills;
		event.build_ns = built->build_ns;
		tell(run, &event);
	}
	/* Other code than the one that was verified: nothing of that holds. */
	if (!same_as_before)
		trial->verified = false;
	snprintf(trial->code, sizeof(trial->code), "%s", built->code);
	run->built[index] = true;

	size_t other = find_same(run, index);
	if (other < sweep->count) {
		struct ft_sweep_trial *there = &sweep->trial[other];
		if (there->out || !stands_before(run, index, other)) {
			tell_same(run, index, other);
			return 0;
		}
		/* Its code was verified under the other's name; who hears of it has to know. */
		if (!trial->verified && there->verified) {
			trial->verified = true;
			trial->error = there->error;
			tell_verified(run, index);
		}
		tell_same(run, other, index);
	}
	/* Others are verified while time is left, which the default comes first to tell. */
	return index == sweep->default_index || is_settled(run, sweep->default_index)
	        ? verify_built(run, index)
	        : 0;
}

static void start_build(struct run *run, size_t index)
{
	struct ft_error failure = {0};
	if (!is_wanted(run, index) || run->built[index] || run->asked[index])
		return;
	tell_begin(run, "build", index);
	run->asked[index] = true;
	if (run->backend->build_start(run->backend, index, &failure) < 0)
		put_out(run, index, "failed", failure.message);
}

/* Builds and verifies all that are wanted, as far as the budget goes: whoever was not reached is not verified. */
static int build_all(struct run *run, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	struct ft_backend *backend = run->backend;
	int got, result = 0;
	run->revived = false;
	tell_stage(run, "build");
	if (sweep->default_index < sweep->count)
		start_build(run, sweep->default_index);
	for (size_t i = 0; i < sweep->count; i++) {
		if (i != sweep->default_index)
			start_build(run, i);
	}
	do {
		struct ft_built built = {0};
		if (cancelled(run))
			return RUN_CANCELLED;
		backend->deadline_ns =
		        is_settled(run, sweep->default_index) ? race_end_ns(run) : run->deadline_ns;
		got = backend->build_wait(backend, &built, error);
		backend->deadline_ns = 0;
		if (got > 0)
			result = take_built(run, &built);
	} while (got > 0 && result == 0);
	if (got == FT_BACKEND_ENDED && !is_settled(run, sweep->default_index))
		return RUN_NO_TIME;
	if (got == -1 || got == FT_BACKEND_LOST)
		return got;
	for (size_t i = 0; i < sweep->count && result == 0; i++) {
		if (cancelled(run))
			return RUN_CANCELLED;
		if (run->built[i] && is_wanted(run, i))
			result = verify_built(run, i);
	}
	return result == RUN_ENDED ? 0 : result;
}

/* ---- measure ---- */

/* One part of a sample; `sample_ps` is 0 until it is whole, and where the config is out. */
static int measure(struct run *run, size_t index, uint64_t *sample_ps)
{
	struct ft_error error = {0};
	*sample_ps = 0;
	run->listener->measure_begins(run->listener->context, index);
	int result = run->backend->measure(run->backend, index, sample_ps, &error);
	run->listener->measure_ends(run->listener->context);
	if (result == 0)
		return 0;
	put_out(run, index, "failed", error.message);
	return result == FT_BACKEND_LOST ? lose(run, "measure", index) : 0;
}

/* What is left is for the winner to be looked at. */
static bool over_budget(const struct run *run)
{
	return ft_monotonic_ns() >= race_end_ns(run);
}

/* The first sample of a config is thrown away, and announced. */
static int sample_first(struct run *run, size_t index)
{
	uint64_t thrown_away = 0;
	uint64_t begin = ft_monotonic_ns();
	if (!is_measured(run, index) || run->sampled[index])
		return 0;
	if (cancelled(run))
		return RUN_CANCELLED;
	tell_begin(run, "measure", index);
	while (!thrown_away && !run->sweep->trial[index].out) {
		if (measure(run, index, &thrown_away) == FT_BACKEND_LOST)
			return FT_BACKEND_LOST;
	}
	run->sampled[index] = true;
	if (index == run->sweep->default_index)
		run->sample_ns = ft_monotonic_ns() - begin;
	return 0;
}

/* The default's at any rate: it is to have a time whenever the budget ends. Who has none is not in the race. */
static int sample_the_new(struct run *run)
{
	int result = run->sweep->default_index < run->sweep->count
	        ? sample_first(run, run->sweep->default_index)
	        : 0;
	for (size_t i = 0; i < run->sweep->count && result == 0 && !over_budget(run); i++)
		result = sample_first(run, i);
	/* From here on none is announced: a stage clears whom to blame. */
	if (result == 0)
		tell_stage(run, "measure");
	return result;
}

/* Clocks, batches, first touches. */
static int warm(struct run *run, struct ft_error *error)
{
	tell_stage(run, "measure");
	run->warmed = true;
	/* What it looks at besides may take a part of what is left. */
	uint64_t now = ft_monotonic_ns();
	run->backend->deadline_ns =
	        race_end_ns(run) > now ? now + (race_end_ns(run) - now) / TIGHT_PART : now;
	int result = run->backend->warm(run->backend, error);
	run->backend->deadline_ns = 0;
	if (result == FT_BACKEND_ENDED)
		result = run->backend->warm(run->backend, error);
	return result < 0 ? -1 : 0;
}

/* Where verifying all would take a good part of the budget, how many there is time for depends on what a sample takes. */
static int time_the_default_first(struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	struct ft_error error;
	uint64_t now = ft_monotonic_ns();
	uint64_t left = race_end_ns(run) > now ? race_end_ns(run) - now : 0;
	uint64_t others = 0;
	for (size_t i = 0; i < sweep->count; i++)
		others += is_wanted(run, i) && !sweep->trial[i].verified;
	if (run->warmed || others == 0 || others * run->verify_ns <= left / TIGHT_PART)
		return 0;
	/* What keeps it from being warmed up is told when all are. */
	if (warm(run, &error) < 0) {
		run->warmed = false;
		return 0;
	}
	int result = sample_first(run, sweep->default_index);
	tell_stage(run, "build");
	return result;
}

/* ---- waiting ---- */

/* A pause that is `apart` costs nothing of the budget. */
static int pause_for(struct run *run, uint64_t duration_ns, bool apart)
{
	uint64_t begin = ft_monotonic_ns();
	uint64_t passed = 0;
	while (passed < duration_ns && (apart || !over_budget(run))) {
		uint64_t step = duration_ns - passed < pause_step_ns ? duration_ns - passed : pause_step_ns;
		struct timespec rest = {.tv_nsec = (long)step};
		if (cancelled(run))
			return RUN_CANCELLED;
		(void)nanosleep(&rest, NULL);
		passed = ft_monotonic_ns() - begin;
	}
	return 0;
}

static bool is_quiet(const struct run *run)
{
	unsigned percent = 0;
	return !run->backend->load || !run->backend->load(run->backend, run->sweep->device, &percent) ||
	        percent <= LOAD_QUIET;
}

/* Others use the device: it is left to them for a while, of which the budget tells the bound but which is no part of it.
 * What is measured beside them all the same is marked. */
static int wait_for_quiet(struct run *run, struct ft_error *error)
{
	bool quiet = false;
	tell_stage(run, "wait");
	uint64_t told = ft_monotonic_ns();
	while (!quiet && run->patience_ns > 0) {
		uint64_t begin = ft_monotonic_ns();
		uint64_t pause = run->pause_ns < run->patience_ns ? run->pause_ns : run->patience_ns;
		if (pause_for(run, pause, true) != 0)
			return RUN_CANCELLED;
		quiet = is_quiet(run);
		uint64_t spent = ft_monotonic_ns() - begin;
		run->waited_ns += spent;
		run->deadline_ns += spent < UINT64_MAX - run->deadline_ns ? spent : 0;
		run->patience_ns -= spent < run->patience_ns ? spent : run->patience_ns;
		run->pause_ns = 2 * run->pause_ns < second_ns ? 2 * run->pause_ns : second_ns;
		if (!quiet && ft_monotonic_ns() - told > second_ns) {
			tell_stage(run, "wait");
			told = ft_monotonic_ns();
		}
	}
	/* Others who stay are not waited for again and again: half as long each time, in sweeps that follow too. */
	run->backend->vain = quiet ? 0 : run->backend->vain < VAIN_MOST ? run->backend->vain + 1 : VAIN_MOST;
	tell_stage(run, "measure");
	return run->backend->warm(run->backend, error) < 0 ? -1 : 0;
}

/* Before a round: not all of the first ones in the same moment, nor any while others use the device. */
static int keep_pace(struct run *run, struct ft_error *error)
{
	if (run->fresh == 0) {
		run->began_ns = ft_monotonic_ns();
		uint64_t left = race_end_ns(run) > run->began_ns ? race_end_ns(run) - run->began_ns : 0;
		run->spread_ns = run->backend->spread_ns < left / 2 ? run->backend->spread_ns : left / 2;
	}
	if (run->disturbed && run->patience_ns > 0 && !over_budget(run))
		return wait_for_quiet(run, error);
	if (run->spread_ns == 0 || run->fresh >= SPREAD_ROUNDS || run->sweep->hasty)
		return 0;
	uint64_t due = run->began_ns + run->spread_ns * run->fresh / SPREAD_ROUNDS;
	uint64_t now = ft_monotonic_ns();
	if (now + pause_least_ns > due)
		return 0;
	int result = pause_for(run, due - now, false);
	if (result != 0)
		return result;
	return run->backend->warm(run->backend, error) < 0 ? -1 : 0;
}

static void look_at_interference(struct run *run, size_t measured, uint64_t *disturbed)
{
	struct ft_interference interference = {0};
	if (run->backend->interference)
		run->backend->interference(run->backend, &interference);
	if (interference.reason[0])
		snprintf(run->interference, sizeof(run->interference), "%s", interference.reason);
	if (interference.disturbed)
		*disturbed = measured;
	run->disturbed = measured > 0 && 2 * *disturbed >= measured;
	if (!run->disturbed)
		run->pause_ns = pause_first_ns;
}

/* ---- rounds ---- */

/* How many launches of the winner are looked at. */
static uint64_t audit_launches(const struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	uint64_t bytes = sweep->kernel->bytes(&sweep->problem);
	if (!run->backend->audit)
		return 0;
	if (bytes <= audit_whole_bytes)
		return AUDIT_LAUNCHES;
	uint64_t launches = (uint64_t)((double)AUDIT_LAUNCHES * (double)audit_whole_bytes / (double)bytes);
	return launches > AUDIT_LEAST ? launches : AUDIT_LEAST;
}

/* How long that takes, by the round at hand. */
static void set_reserve(struct run *run)
{
	const uint64_t most = run->sweep->budget_ns / RESERVE_MOST;
	uint64_t least_ps = UINT64_MAX;
	for (size_t i = 0; i < run->sweep->count; i++) {
		if (run->sample[i] > 0 && run->sample[i] < least_ps)
			least_ps = run->sample[i];
	}
	run->launch_ns = least_ps / 1000;
	double wanted = (double)run->sweep->budget_ns / RESERVE_LEAST +
	        (double)audit_launches(run) * AUDIT_COST * (double)least_ps / 1000;
	run->reserve_ns = wanted < (double)most ? (uint64_t)wanted : most;
}

static int tell_round(
        struct run *run, size_t round, size_t measured, uint64_t disturbed, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	ft_writer_reset(&run->writer);
	ft_write_array(&run->writer, (uint32_t)measured);
	for (size_t i = 0; i < sweep->count; i++) {
		if (!run->sample[i])
			continue;
		ft_write_array(&run->writer, 2);
		ft_write_uint(&run->writer, i);
		ft_write_uint(&run->writer, run->sample[i]);
	}
	if (!ft_writer_ok(&run->writer))
		return ft_fail(error, FT_E_MEMORY, "no memory for the samples of a round");
	struct ft_runner_event event = make_event(run, "round", 0);
	event.round = round;
	event.disturbed = disturbed;
	event.samples = (struct ft_view){run->writer.data, run->writer.length};
	tell(run, &event);
	return 0;
}

/* Who is measured in a round, in the order that the seed gives; but in the first round of all the default comes first, so
 * that it has a time whenever the budget ends. */
static size_t order_round(struct run *run)
{
	struct ft_sweep *sweep = run->sweep;
	size_t alive = 0;
	for (size_t i = 0; i < sweep->count; i++) {
		run->sample[i] = 0;
		if (is_measured(run, i) && run->sampled[i])
			run->order[alive++] = i;
	}
	uint64_t state = sweep->seed ^ (sweep->rounds + 1) * 0xd1342543de82ef95U;
	for (size_t i = alive; i > 1; i--) {
		size_t other = (size_t)(next_random(&state) % i);
		size_t moving = run->order[i - 1];
		run->order[i - 1] = run->order[other];
		run->order[other] = moving;
	}
	for (size_t i = 1; i < alive && sweep->rounds == 0; i++) {
		if (run->order[i] == sweep->default_index) {
			run->order[i] = run->order[0];
			run->order[0] = sweep->default_index;
		}
	}
	return alive;
}

/* Takes the parts of all samples in turn. RUN_ENDED when the budget ended it: then the first of all rounds has the sample of
 * who comes first in it, the default, however many parts that takes beside those of others. */
static int take_samples(struct run *run, size_t alive, size_t *measured)
{
	struct ft_sweep *sweep = run->sweep;
	*measured = 0;
	for (size_t left = alive, pass = 0; left > 0; pass++) {
		bool first = true; /* of those that have no sample yet */
		for (size_t i = 0; i < alive; i++) {
			/* There and back, so that none always follows the same one. */
			size_t index = run->order[pass % 2 && sweep->rounds > 0 ? alive - 1 - i : i];
			bool ended = over_budget(run);
			if (run->sample[index] || sweep->trial[index].out)
				continue;
			if (cancelled(run))
				return RUN_CANCELLED;
			const size_t head = run->order[0];
			if (ended &&
			        (sweep->rounds > 0 ||
			                (*measured > 0 && (run->sample[head] || sweep->trial[head].out))))
				return RUN_ENDED;
			if (ended && !first)
				break;
			first = false;
			if (measure(run, index, &run->sample[index]) == FT_BACKEND_LOST)
				return FT_BACKEND_LOST;
			if (run->sample[index] > 0 && run->sample[index] < FT_SAMPLE_LEAST_PS) {
				run->sample[index] = 0;
				put_out(run, index, "failed", "it was timed at less than any launch takes");
			}
			*measured += run->sample[index] != 0;
			left -= run->sample[index] || sweep->trial[index].out;
		}
	}
	return 0;
}

/* Every config alive once. A round that is broken off leaves no samples, so that all have the same ones; but for the
 * first of all, which is all that there is. */
static int measure_round(struct run *run, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	size_t measured;
	uint64_t disturbed = run->backend->disturbed;
	int result = take_samples(run, order_round(run), &measured);
	if (result == RUN_ENDED && sweep->rounds > 0)
		return 0;
	if (result != 0 && result != RUN_ENDED)
		return result;
	if (measured == 0)
		return 0;
	for (size_t i = 0; i < sweep->count; i++) {
		if (!run->sample[i])
			continue;
		uint64_t *samples = ft_sweep_samples(sweep, i);
		if (!samples)
			return ft_fail(error, FT_E_MEMORY, "no memory for samples");
		samples[sweep->rounds] = run->sample[i];
	}
	disturbed = run->backend->disturbed - disturbed;
	look_at_interference(run, measured, &disturbed);
	if (tell_round(run, sweep->rounds, measured, disturbed, error) < 0)
		return -1;
	set_reserve(run);
	sweep->rounds++;
	run->fresh++;
	return 0;
}

static int build_revived(struct run *run, struct ft_error *error)
{
	int result = build_all(run, error);
	if (result != 0)
		return result;
	tell_stage(run, "measure");
	return sample_the_new(run);
}

/* Rounds until the decision falls. After a restart nothing is decided before min_rounds fresh rounds, unless
 * the old ones decide already. */
static int race(struct run *run, struct ft_decision *decision, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	const bool resumed = sweep->rounds > 0;
	decide(run, false, decision);
	if (decision->verdict != FT_VERDICT_MEASURE &&
	        (sweep->rounds > 0 || decision->verdict == FT_VERDICT_NONE))
		return 0;
	for (;;) {
		size_t before = sweep->rounds;
		int result = 0;
		if (!run->raced) {
			run->raced = true;
			result = warm(run, error);
			if (result == 0)
				result = sample_the_new(run);
		}
		if (result == 0 && run->revived)
			result = build_revived(run, error);
		if (result == 0)
			result = keep_pace(run, error);
		if (result == 0)
			result = measure_round(run, error);
		if (result != 0)
			return result;
		bool ended = over_budget(run) || sweep->rounds >= FT_ROUNDS_MAX || sweep->rounds == before;
		bool settling = resumed && run->fresh < sweep->rule.min_rounds && !ended;
		decide(run, ended, decision);
		if (decision->verdict == FT_VERDICT_NONE)
			return 0;
		if (settling)
			continue;
		drop_the_worse(run);
		if (decision->verdict != FT_VERDICT_MEASURE)
			return 0;
	}
}

/* Launches of one that was found right twice: it may be wrong in few. A twentieth past the budget it ends after its first
 * part. 0, FT_BACKEND_LOST or RUN_CANCELLED. */
static int audit(struct run *run, size_t index)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	const uint64_t wanted = audit_launches(run);
	uint64_t told = ft_monotonic_ns();
	uint64_t each_ns = AUDIT_COST * run->launch_ns + 1;
	uint64_t done = 0;
	if (!audits_at_any_rate(run) && told + 2 * run->verify_ns >= run->deadline_ns)
		return 0;
	while (done < wanted && !trial->out && !trial->audited) {
		struct ft_error error = {0};
		uint64_t checked = 0;
		uint64_t now = ft_monotonic_ns();
		uint64_t left = now < run->deadline_ns ? run->deadline_ns - now : 0;
		uint64_t part = (wanted + AUDIT_PARTS - 1) / AUDIT_PARTS;
		uint64_t next = done == 0 ? AUDIT_FIRST : 2 * done; /* more as it is known what they take */
		uint64_t room = left + run->sweep->budget_ns / PAST_PART;
		uint64_t fit = (room < audit_part_ns ? room : audit_part_ns) / each_ns;
		if (cancelled(run))
			return RUN_CANCELLED;
		if (done > 0 && left == 0 && now - run->deadline_ns >= run->sweep->budget_ns / PAST_PART)
			break;
		if (part > next)
			part = next;
		if (part > fit)
			part = fit > 0 ? fit : 1;
		if (now - told > audit_part_ns) {
			tell_begin(run, "confirm", index);
			told = now;
		}
		int result = run->backend->audit(run->backend, index, part, &checked, &error);
		/* What the first ones take on top says nothing of the rest. */
		if (done > 0 && checked > 0)
			each_ns = (ft_monotonic_ns() - now) / checked + 1;
		done += checked;
		if (result != 0 && (result = reject(run, "confirm", index, result, &error)) != 0)
			return result;
	}
	if (!trial->audited)
		trial->audited = done;
	return 0;
}

/* Whole once more after the timing, and many launches of what may be served after this. */
static int confirm_one(struct run *run, size_t index, bool whole, uint64_t until_ns)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	if (!trial->confirmed) {
		int result = verify(run, "confirm", index, until_ns);
		if (result != 0)
			return result;
		trial->confirmed = !trial->out;
	}
	int result = whole ? audit(run, index) : 0;
	if (result == 0 && whole && !trial->out && (trial->audited > 0 || !run->backend->audit)) {
		struct ft_runner_event event = make_event(run, "confirmed", index);
		tell(run, &event);
	}
	return result;
}

/* The winner first, then the stored one if it is tied with it, then the others that are, as long as there is time. */
static int confirm(struct run *run, size_t winner)
{
	struct ft_sweep *sweep = run->sweep;
	tell_stage(run, "confirm");
	int result = confirm_one(run, winner, true, last_end_ns(run));
	if (result == RUN_ENDED)
		return RUN_NO_TIME;
	if (sweep->trial[winner].out)
		return result; /* who wins now comes first */
	uint64_t end = ft_monotonic_ns() + confirm_tied_ns;
	for (size_t k = 0; k < 2 * sweep->count && result == 0; k++) {
		const size_t i = k % sweep->count;
		const struct ft_sweep_trial *trial = &sweep->trial[i];
		uint64_t over = ft_monotonic_ns() + run->verify_ns;
		bool may_wait =
		        over >= run->deadline_ns || (!trial->served && (trial->confirmed || over >= end));
		if (i != winner && trial->served == (k < sweep->count) && sweep->standing[i].tied &&
		        can_win(trial) && run->built[i] && !may_wait && !cancelled(run))
			result = confirm_one(run, i, trial->served, run->deadline_ns);
	}
	return result == RUN_ENDED ? 0 : result;
}

static int sweep_to_end(struct run *run, struct ft_decision *decision, struct ft_error *error)
{
	for (;;) {
		int result = build_all(run, error);
		if (result == 0)
			result = race(run, decision, error);
		if (result != 0 || decision->verdict == FT_VERDICT_NONE)
			return result;
		result = confirm(run, decision->winner);
		if (result != 0 || !run->sweep->trial[decision->winner].out)
			return result;
		if (cancelled(run))
			return RUN_CANCELLED;
		run->rejected = true;
	}
}

/* What the default alone would have taken of a budget, as far as can be told. */
static uint64_t needed_ns(const struct run *run)
{
	const struct ft_backend *backend = run->backend;
	uint64_t spent = ft_monotonic_ns() - run->start_ns - run->waited_ns;
	uint64_t verify = run->verify_ns > backend->verify_ns ? run->verify_ns : backend->verify_ns;
	uint64_t needed = run->prepare_ns ? run->prepare_ns : backend->prepare_ns;
	needed += verify + verify / 2 + verify_again_ns(run);
	uint64_t least = (spent > run->sweep->budget_ns ? spent : run->sweep->budget_ns) * 5 / 4;
	return needed > least ? needed : least;
}

static void say_interference(const struct run *run, char *text, size_t size)
{
	char waited[64] = "";
	if (run->waited_ns > 0)
		snprintf(waited, sizeof(waited), "waited %.1f s for others",
		        (double)run->waited_ns / (double)second_ns);
	snprintf(text, size, "%s%s%s", waited, waited[0] && run->interference[0] ? "; " : "",
	        run->interference);
}

static void answer(
        const struct run *run, int result, const struct ft_decision *decision, struct ft_sweep_reply *reply)
{
	*reply = (struct ft_sweep_reply){.rounds = run->sweep->rounds};
	snprintf(reply->method, sizeof(reply->method), "%s", run->backend->method);
	if (result == RUN_CANCELLED) {
		snprintf(reply->outcome, sizeof(reply->outcome), "cancelled");
		return;
	}
	if (result == RUN_NO_TIME) {
		snprintf(reply->outcome, sizeof(reply->outcome), "no_time");
		reply->needs_ns = needed_ns(run);
		snprintf(reply->reason, sizeof(reply->reason),
		        run->rejected
		                ? "a winner was found wrong after the race, and to look at the next takes "
		                  "about %.1f s"
		                : "the budget is too small for the default alone, which needs about %.1f s",
		        (double)reply->needs_ns / (double)second_ns);
		return;
	}
	snprintf(reply->reason, sizeof(reply->reason), "%s", decision->reason);
	say_interference(run, reply->interference, sizeof(reply->interference));
	if (decision->verdict != FT_VERDICT_WINNER) {
		snprintf(reply->outcome, sizeof(reply->outcome), "no_winner");
		return;
	}
	snprintf(reply->outcome, sizeof(reply->outcome), "decided");
	reply->winner = decision->winner;
	uint64_t audited = run->sweep->trial[decision->winner].audited;
	size_t length = strlen(reply->method);
	if (run->backend->audit)
		snprintf(reply->method + length, sizeof(reply->method) - length,
		        "; %" PRIu64 " of the winner's launches checked", audited);
	reply->conclusive = decision->conclusive;
}

int ft_sweep_run(struct ft_sweep *sweep, struct ft_backend *backend, const struct ft_sweep_listener *listener,
        struct ft_sweep_reply *reply, struct ft_error *error)
{
	int result = -1;
	size_t count = sweep->count;
	struct ft_config *config = calloc(count ? count : 1, sizeof(*config));
	struct run run = {
	        .sweep = sweep,
	        .backend = backend,
	        .listener = listener,
	        .order = calloc(count ? count : 1, sizeof(*run.order)),
	        .sample = calloc(count ? count : 1, sizeof(*run.sample)),
	        .asked = calloc(count ? count : 1, sizeof(*run.asked)),
	        .built = calloc(count ? count : 1, sizeof(*run.built)),
	        .sampled = calloc(count ? count : 1, sizeof(*run.sampled)),
	        .contender = calloc(count ? count : 1, sizeof(*run.contender)),
	};
	ft_writer_init_growing(&run.writer, (size_t)1 << 20);
	uint64_t now = ft_monotonic_ns();
	run.start_ns = now;
	run.pause_ns = pause_first_ns;
	run.patience_ns = (sweep->budget_ns / PATIENCE_PART) >> backend->vain;
	run.deadline_ns = sweep->budget_ns > UINT64_MAX - now ? UINT64_MAX : now + sweep->budget_ns;
	if (!config || !run.order || !run.sample || !run.asked || !run.built || !run.sampled ||
	        !run.contender) {
		ft_fail(error, FT_E_MEMORY, "no memory for a sweep of %zu configs", count);
		goto out;
	}
	for (size_t i = 0; i < count; i++)
		config[i] = sweep->trial[i].config;
	struct ft_backend_sweep order = {
	        .kernel = sweep->kernel,
	        .problem = &sweep->problem,
	        .device = sweep->device,
	        .seed = sweep->seed,
	        .memory_cap = sweep->memory_cap,
	        .code_dir = sweep->code_dir,
	        .count = count,
	        .config = config,
	        .default_index = sweep->default_index,
	};
	struct ft_decision decision = {.verdict = FT_VERDICT_NONE};
	backend->method[0] = '\0';
	tell_stage(&run, "start");
	backend->deadline_ns = run.deadline_ns;
	backend->prepare_ns = backend->verify_ns = 0;
	result = backend->prepare(backend, &order, error);
	backend->deadline_ns = 0;
	if (result == 0) {
		run.prepare_ns = ft_monotonic_ns() - run.start_ns;
		run.verify_ns = backend->verify_ns;
		result = sweep_to_end(&run, &decision, error);
	} else if (result == FT_BACKEND_ENDED) {
		result = RUN_NO_TIME;
	}
	if (result >= 0) {
		answer(&run, result, &decision, reply);
		result = 0;
	}
	backend->finish(backend);
out:
	free(config);
	free(run.order);
	free(run.sample);
	free(run.asked);
	free(run.built);
	free(run.sampled);
	free(run.contender);
	ft_writer_free(&run.writer);
	return result;
}
