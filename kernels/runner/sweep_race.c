/* Rounds of samples, until the decision falls. */
#include "kernels/runner/internal.h"

#include <stdio.h>

#include "proto/clock.h"

enum { TIGHT_PART = 4 /* of what is left: if verifying all takes more, the default is timed first */ };

/* splitmix64: the order of a round follows from the seed and its number alone. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

int run_measure(struct run *run, size_t index, uint64_t *sample_ps)
{
	struct ft_error error = {0};
	*sample_ps = 0;
	run->listener->measure_begins(run->listener->context, index);
	int result = run->backend->measure(run->backend, index, sample_ps, &error);
	run->listener->measure_ends(run->listener->context);
	if (result == 0)
		return 0;
	run_put_out(run, index, "failed", error.message);
	return result == FT_BACKEND_LOST ? run_lose(run, "measure", index) : 0;
}

int run_sample_first(struct run *run, size_t index)
{
	uint64_t thrown_away = 0;
	uint64_t begin = ft_monotonic_ns();
	if (!run_is_measured(run, index) || run->member[index] == MEMBER_SAMPLED)
		return 0;
	if (run_cancelled(run))
		return RUN_CANCELLED;
	run_tell_begin(run, "measure", index);
	while (!thrown_away && !run->sweep->trial[index].out) {
		if (run_measure(run, index, &thrown_away) == FT_BACKEND_LOST)
			return FT_BACKEND_LOST;
	}
	run->member[index] = MEMBER_SAMPLED;
	if (index == run->sweep->default_index)
		run->sample_ns = ft_monotonic_ns() - begin;
	return 0;
}

/* The default's at any rate: it is to have a time whenever the budget ends. Who has none is not in the race. */
static int sample_the_new(struct run *run)
{
	int result = run->sweep->default_index < run->sweep->count
	        ? run_sample_first(run, run->sweep->default_index)
	        : 0;
	for (size_t i = 0; i < run->sweep->count && result == 0 && !run_over_budget(run); i++)
		result = run_sample_first(run, i);
	/* From here on none is announced: a stage clears whom to blame. */
	if (result == 0)
		run_tell_stage(run, "measure");
	return result;
}

int run_warm(struct run *run, struct ft_error *error)
{
	run_tell_stage(run, "measure");
	if (run->pace == RUN_COLD)
		run->pace = RUN_WARMED;
	/* What it looks at besides may take a part of what is left. */
	uint64_t now = ft_monotonic_ns();
	run->backend->deadline_ns =
	        run_race_end_ns(run) > now ? now + (run_race_end_ns(run) - now) / TIGHT_PART : now;
	int result = run->backend->warm(run->backend, error);
	run->backend->deadline_ns = 0;
	if (result == FT_BACKEND_ENDED)
		result = run->backend->warm(run->backend, error);
	return result < 0 ? -1 : 0;
}

int run_time_the_default_first(struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	struct ft_error error;
	uint64_t now = ft_monotonic_ns();
	uint64_t left = run_race_end_ns(run) > now ? run_race_end_ns(run) - now : 0;
	uint64_t others = 0;
	for (size_t i = 0; i < sweep->count; i++)
		others += run_is_wanted(run, i) && !sweep->trial[i].verified;
	if (run->pace != RUN_COLD || others == 0 || others * run->verify_ns <= left / TIGHT_PART)
		return 0;
	/* What keeps it from being warmed up is told when all are. */
	if (run_warm(run, &error) < 0) {
		run->pace = RUN_COLD;
		return 0;
	}
	int result = run_sample_first(run, sweep->default_index);
	run_tell_stage(run, "build");
	return result;
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
	struct ft_runner_event event = run_event(run, "round", 0);
	event.round = round;
	event.disturbed = disturbed;
	event.samples = (struct ft_view){run->writer.data, run->writer.length};
	run_tell(run, &event);
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
		if (run_is_measured(run, i) && run->member[i] == MEMBER_SAMPLED)
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
			bool ended = run_over_budget(run);
			if (run->sample[index] || sweep->trial[index].out)
				continue;
			if (run_cancelled(run))
				return RUN_CANCELLED;
			const size_t head = run->order[0];
			if (ended &&
			        (sweep->rounds > 0 ||
			                (*measured > 0 && (run->sample[head] || sweep->trial[head].out))))
				return RUN_ENDED;
			if (ended && !first)
				break;
			first = false;
			if (run_measure(run, index, &run->sample[index]) == FT_BACKEND_LOST)
				return FT_BACKEND_LOST;
			if (run->sample[index] > 0 && run->sample[index] < FT_SAMPLE_LEAST_PS) {
				run->sample[index] = 0;
				run_put_out(
				        run, index, "failed", "it was timed at less than any launch takes");
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
	run_look_at_interference(run, measured, &disturbed);
	if (tell_round(run, sweep->rounds, measured, disturbed, error) < 0)
		return -1;
	run_set_reserve(run);
	sweep->rounds++;
	run->fresh++;
	return 0;
}

static int build_revived(struct run *run, struct ft_error *error)
{
	int result = run_build_all(run, error);
	if (result != 0)
		return result;
	run_tell_stage(run, "measure");
	return sample_the_new(run);
}

/* A round that no work on the host disturbs. */
static int measure_alone(struct run *run, struct ft_error *error)
{
	uint64_t waited = run->waited_ns;
	int result = run_take_host(run, FT_HOST_TIMED, "measure");
	if (result == 0 && run->waited_ns > waited)
		result = run->backend->warm(run->backend, error) < 0 ? -1 : 0;
	if (result == 0)
		result = measure_round(run, error);
	run_leave_host(run);
	return result;
}

static int begin_race(struct run *run, struct ft_error *error)
{
	int result = run_take_host(run, FT_HOST_TIMED, "measure");
	if (result == 0)
		result = run_warm(run, error);
	if (result == 0)
		result = sample_the_new(run);
	run_leave_host(run);
	return result;
}

int run_race(struct run *run, struct ft_decision *decision, struct ft_error *error)
{
	struct ft_sweep *sweep = run->sweep;
	const bool resumed = sweep->rounds > 0;
	run_decide(run, false, decision);
	if (decision->verdict != FT_VERDICT_MEASURE &&
	        (sweep->rounds > 0 || decision->verdict == FT_VERDICT_NONE))
		return 0;
	for (;;) {
		size_t before = sweep->rounds;
		int result = 0;
		if (run->pace != RUN_RACING) {
			run->pace = RUN_RACING;
			result = begin_race(run, error);
		}
		if (result == 0 && run->revived)
			result = build_revived(run, error);
		if (result == 0)
			result = run_keep_pace(run, error);
		if (result == 0)
			result = measure_alone(run, error);
		if (result != 0)
			return result;
		bool ended =
		        run_over_budget(run) || sweep->rounds >= FT_ROUNDS_MAX || sweep->rounds == before;
		bool settling = resumed && run->fresh < sweep->rule.min_rounds && !ended;
		run_decide(run, ended, decision);
		if (decision->verdict == FT_VERDICT_NONE)
			return 0;
		if (settling)
			continue;
		run_drop_the_worse(run);
		if (decision->verdict != FT_VERDICT_MEASURE)
			return 0;
	}
}
