/* Building and verifying, as far as the budget goes. */
#include "kernels/runner/internal.h"

#include <stdio.h>
#include <string.h>

#include "proto/clock.h"

static void tell_verified(struct run *run, size_t index)
{
	struct ft_runner_event event = run_event(run, "verified", index);
	event.error = run->sweep->trial[index].error;
	run_tell(run, &event);
}

int run_verify(struct run *run, const char *stage, size_t index, uint64_t until_ns)
{
	struct ft_error error = {0};
	double largest = 0;
	run_tell_begin(run, stage, index);
	uint64_t begin = ft_monotonic_ns();
	run->backend->deadline_ns = until_ns;
	int result = run->backend->verify(run->backend, index, &largest, &error);
	run->backend->deadline_ns = 0;
	uint64_t took = ft_monotonic_ns() - begin;
	if (result == FT_BACKEND_ENDED) {
		if (run->verify_ns < took)
			run->verify_ns = took;
		run_tell_stage(run, stage); /* nobody is busy any more */
		return RUN_ENDED;
	}
	run->verify_ns = run->verified++ > 0 ? (run->verify_ns + took) / 2 : took;
	if (result != 0)
		return run_reject(run, stage, index, result, &error);
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
		if (i != index && run_is_built(run, i) && strcmp(other->status, "same_code_as") != 0 &&
		        strcmp(other->code, sweep->trial[index].code) == 0)
			return i;
	}
	return sweep->count;
}

static void tell_same(struct run *run, size_t index, size_t other)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	trial->out = true;
	trial->look_ps = run->sweep->trial[other].look_ps;
	snprintf(trial->status, sizeof(trial->status), "same_code_as");
	struct ft_runner_event event = run_event(run, "same_code", index);
	event.other = other;
	run_tell(run, &event);
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
	        (run_is_built(run, index) && run->sweep->trial[index].verified);
}

/* Whether one more can be verified and measured for as many rounds as a decision takes, beside those that are. */
static bool has_time(const struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	uint64_t now = ft_monotonic_ns();
	uint64_t racing = 1;
	/* Of a last batch that took long what is built is looked at, into the half of what was left for the race. */
	if (run->look_end_ns)
		return now < run_race_end_ns(run) &&
		        (now < run->look_end_ns || now - run->look_end_ns < run_race_end_ns(run) - now);
	for (size_t i = 0; i < sweep->count; i++)
		racing += run_is_measured(run, i);
	uint64_t samples = racing * (sweep->rule.min_rounds + 1) * run->sample_ns;
	return now < run_race_end_ns(run) && run->verify_ns + samples <= run_race_end_ns(run) - now;
}

/* 0, RUN_ENDED where there is no time for it, RUN_NO_TIME where that is the default, or FT_BACKEND_LOST. */
static int verify_built(struct run *run, size_t index)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	const bool is_default = index == run->sweep->default_index;
	if (trial->verified)
		return 0;
	if (!is_default && !has_time(run))
		return RUN_ENDED;
	int result = run_verify(run, "verify", index, is_default ? run->deadline_ns : run_race_end_ns(run));
	trial->verified = result == 0 && !trial->out;
	if (!is_default)
		return result;
	/* It has to be verified once more. */
	if (result == RUN_ENDED ||
	        (result == 0 && ft_monotonic_ns() >= run_last_end_ns(run) - run->verify_ns))
		return RUN_NO_TIME;
	return result == 0 && trial->verified ? run_time_the_default_first(run) : result;
}

static int take_built(struct run *run, const struct ft_built *built)
{
	struct ft_sweep *sweep = run->sweep;
	size_t index = built->index;
	if (index >= sweep->count)
		return 0;
	struct ft_sweep_trial *trial = &sweep->trial[index];
	run->member[index] = built->failed ? MEMBER_NEW : MEMBER_BUILT;
	if (built->failed) {
		run_put_out(run, index, "failed", built->error.message);
		return 0;
	}
	bool same_as_before = strcmp(trial->code, built->code) == 0;
	if (!same_as_before || !built->cached) {
		struct ft_runner_event event = run_event(run, "built", index);
		snprintf(event.code, sizeof(event.code), "%s", built->code);
		event.cached = built->cached;
		event.registers = built->registers;
		event.spills = built->spills;
		event.build_ns = built->build_ns;
		run_tell(run, &event);
	}
	/* Other code than the one that was verified: nothing of that holds. */
	if (!same_as_before)
		trial->verified = false;
	snprintf(trial->code, sizeof(trial->code), "%s", built->code);

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
	if (!run_is_wanted(run, index) || run->member[index] != MEMBER_NEW)
		return;
	run_tell_begin(run, "build", index);
	run->member[index] = MEMBER_BUILDING;
	if (run->backend->build_start(run->backend, index, &failure) < 0)
		run_put_out(run, index, "failed", failure.message);
}

static int build_all(struct run *run, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	struct ft_backend *backend = run->backend;
	int got, result = 0;
	run->revived = false;
	run_tell_stage(run, "build");
	if (sweep->default_index < sweep->count)
		start_build(run, sweep->default_index);
	for (size_t i = 0; i < sweep->count; i++) {
		if (i != sweep->default_index)
			start_build(run, i);
	}
	do {
		struct ft_built built = {0};
		if (run_cancelled(run))
			return RUN_CANCELLED;
		backend->deadline_ns =
		        is_settled(run, sweep->default_index) ? run_race_end_ns(run) : run->deadline_ns;
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
		if (run_cancelled(run))
			return RUN_CANCELLED;
		if (run_is_built(run, i) && run_is_wanted(run, i))
			result = verify_built(run, i);
	}
	return result == RUN_ENDED ? 0 : result;
}

int run_build_all(struct run *run, struct ft_error *error)
{
	int result = run_take_host(run, FT_HOST_WORKED, "build");
	if (result == 0)
		result = build_all(run, error);
	run_leave_host(run);
	return result;
}
