/* Who is in the race, what is known of each, and what is said of it. */
#include "kernels/runner/internal.h"

#include <stdio.h>
#include <string.h>

struct ft_runner_event run_event(const struct run *run, const char *word, size_t trial)
{
	struct ft_runner_event event = {.job = run->sweep->job, .trial = trial};
	snprintf(event.event, sizeof(event.event), "%s", word);
	return event;
}

void run_tell(struct run *run, const struct ft_runner_event *event)
{
	run->listener->event(run->listener->context, event);
}

void run_tell_stage(struct run *run, const char *stage)
{
	struct ft_runner_event event = run_event(run, "stage", 0);
	snprintf(event.stage, sizeof(event.stage), "%s", stage);
	run_tell(run, &event);
}

void run_tell_begin(struct run *run, const char *stage, size_t trial)
{
	struct ft_runner_event event = run_event(run, "begin", trial);
	snprintf(event.stage, sizeof(event.stage), "%s", stage);
	run_tell(run, &event);
}

bool run_cancelled(const struct run *run)
{
	return run->listener->cancelled(run->listener->context);
}

bool run_can_win(const struct ft_sweep_trial *trial)
{
	return !trial->out && !trial->dropped && !trial->aside;
}

bool run_is_measured(const struct run *run, size_t index)
{
	const struct ft_sweep *sweep = run->sweep;
	const struct ft_sweep_trial *trial = &sweep->trial[index];
	if (trial->out || trial->aside || !trial->verified || !run_is_built(run, index))
		return false;
	return !trial->dropped ||
	        (index == sweep->default_index && sweep->rounds > run->fresh &&
	                run->fresh < sweep->rule.min_rounds);
}

bool run_is_wanted(const struct run *run, size_t index)
{
	const struct ft_sweep_trial *trial = &run->sweep->trial[index];
	return !trial->out && !trial->aside && (!trial->dropped || index == run->sweep->default_index);
}

bool run_is_built(const struct run *run, size_t index)
{
	return run->member[index] >= MEMBER_BUILT;
}

/* Who contends, in the order of the tie rule. Of an unlisted space those alone that race, or did. The daemon does the same. */
static size_t line_up(struct run *run, size_t *default_at)
{
	const struct ft_sweep *sweep = run->sweep;
	size_t count = 0;
	*default_at = SIZE_MAX;
	for (size_t i = 0; i < sweep->count; i++) {
		const struct ft_sweep_trial *trial = &sweep->trial[i];
		size_t at = count;
		if (sweep->unlisted && i != sweep->default_index &&
		        (trial->aside || (trial->out && !trial->sample_ps) || count == FT_SPACE_MAX))
			continue;
		for (; sweep->unlisted && at > 0 && sweep->trial[run->racing[at - 1]].place > trial->place;
		        at--)
			run->racing[at] = run->racing[at - 1];
		run->racing[at] = i;
		count++;
	}
	for (size_t k = 0; k < count; k++) {
		const struct ft_sweep_trial *trial = &sweep->trial[run->racing[k]];
		/* What the budget did not suffice to verify is no contender. */
		run->contender[k] = (struct ft_contender){.out = trial->out || !trial->verified,
		        .dropped = trial->dropped,
		        .sample_ps = trial->sample_ps};
		if (run->racing[k] == sweep->default_index)
			*default_at = k;
	}
	return count;
}

void run_decide(struct run *run, bool ended, struct ft_decision *decision)
{
	struct ft_sweep *sweep = run->sweep;
	size_t default_at;
	size_t count = line_up(run, &default_at);
	ft_decide(&sweep->rule, run->contender, count, default_at, sweep->rounds, ended, run->standing,
	        decision);
	memset(sweep->standing, 0, sweep->count * sizeof(*sweep->standing));
	for (size_t k = 0; k < count; k++)
		sweep->standing[run->racing[k]] = run->standing[k];
	decision->winner = decision->winner < count ? run->racing[decision->winner] : sweep->count;
	decision->best = decision->best < count ? run->racing[decision->best] : sweep->count;
}

void run_drop_the_worse(struct run *run)
{
	struct ft_sweep *sweep = run->sweep;
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->standing[i].drop || !run_can_win(&sweep->trial[i]))
			continue;
		sweep->trial[i].dropped = true;
		struct ft_runner_event event = run_event(run, "dropped", i);
		event.round = sweep->rounds;
		snprintf(event.reason, sizeof(event.reason), "%.1f %% slower than the best, at least %.1f %%",
		        (sweep->standing[i].ratio - 1) * 100, (sweep->standing[i].ratio_low - 1) * 100);
		run_tell(run, &event);
	}
	for (size_t i = 0; i < sweep->count; i++) {
		if (!sweep->standing[i].revive || !sweep->trial[i].dropped)
			continue;
		sweep->trial[i].dropped = false;
		run->revived = run->revived || !run_is_built(run, i);
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
	run_decide(run, false, &decision);
	run_drop_the_worse(run);
}

void run_put_out(struct run *run, size_t index, const char *status, const char *reason)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	trial->out = true;
	snprintf(trial->status, sizeof(trial->status), "%s", status);
	snprintf(trial->reason, sizeof(trial->reason), "%s", reason);
	struct ft_runner_event event = run_event(run, "out", index);
	snprintf(event.status, sizeof(event.status), "%s", status);
	snprintf(event.reason, sizeof(event.reason), "%s", reason);
	run_tell(run, &event);
	if (trial->sample_ps)
		compare_anew(run);
}

int run_lose(struct run *run, const char *stage, size_t index)
{
	run_tell_begin(run, stage, index);
	return FT_BACKEND_LOST;
}

int run_reject(struct run *run, const char *stage, size_t index, int result, const struct ft_error *error)
{
	run_put_out(run, index, result == 1 ? "wrong" : "failed", error->message);
	return result == FT_BACKEND_LOST ? run_lose(run, stage, index) : 0;
}
