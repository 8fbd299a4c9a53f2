/* Configs that a runner ended with.
 *
 * A death does not tell whether the config took the runner down, or the device, the machine, or someone's hand. So the config is
 * suspected: it sits out, and the sweep goes on with the others in a new runner. When they are done it is tried once more, the only
 * suspect among them, on a device that has just shown that it works. If its runner ends again it was the config, which is kept for all equal devices;
 * else nothing is held against it. Where runners end one after another and do nothing right between, it is the device: the sweep
 * ends, and no config is to blame. */
#include "daemon/jobs/internal.h"

#include <stdio.h>

enum {
	STRIKES_MAX = 3,
	SUSPECTS_PART = 4, /* of what is left of a budget, which the others leave to them */
};

bool sweep_strike(struct sweep *sweep, enum runner_cause cause, const struct ft_error *why)
{
	struct trial *trial = &sweep->trials->trial[sweep->busy];
	/* What builds says nothing of what runs. */
	const bool works = sweep->shown == SWEEP_SHOWN_RUN ||
	        (sweep->shown == SWEEP_SHOWN_BUILT && sweep->busy_stage == STAGE_BUILD);
	const bool blamed = trial->struck && works;

	if (trial->status == TRIAL_WAITING || trial->status == TRIAL_FAILED) {
		/* What the runner said of it before it went tells more. */
		if (trial->status != TRIAL_FAILED || trial->reason[0] == '\0')
			(void)snprintf(trial->reason, sizeof(trial->reason),
			        "its runner failed in stage %s: %.180s",
			        settings_stage_word(sweep->busy_stage), why->message);
		trial->status = !blamed ? TRIAL_SUSPECT : cause == RUNNER_LATE ? TRIAL_TIMEOUT : TRIAL_FAILED;
		trial->struck = !blamed;
		sweep_note_trial(sweep, (uint32_t)sweep->busy);
		sweep_out_after_timing(sweep, trial);
		sweep_store_trials(sweep);
	}
	sweep->strikes = works ? 1 : sweep->strikes + 1;
	return sweep->strikes < STRIKES_MAX;
}

void sweep_leave_suspect(struct sweep *sweep)
{
	struct trial *trial;

	if (sweep->judged < 0)
		return;
	trial = &sweep->trials->trial[sweep->judged];
	sweep->judged = -1;
	if (trial->status == TRIAL_WAITING &&
	        (sweep->suspects == SUSPECTS_LEFT || !trial->verified || trial->sample_ps == NULL)) {
		trial->status = TRIAL_SUSPECT; /* there was no time for it */
		sweep->suspects = SUSPECTS_LEFT;
		return;
	}
	trial->struck = false;
	sweep->dirty = true;
	if (trial->status == TRIAL_WAITING && !trial->dropped)
		trial->reason[0] = '\0';
}

/* The next to be tried, the default first; -1 if there is none. */
static int64_t next_suspect(const struct sweep *sweep)
{
	const struct trials *trials = sweep->trials;

	if (trials->trial[trials->default_index].status == TRIAL_SUSPECT)
		return trials->default_index;
	for (uint32_t i = 0; i < sweep->members; i++) {
		if (trials->trial[i].status == TRIAL_SUSPECT && sweep_tries(sweep, i))
			return i;
	}
	return -1;
}

static bool admit(struct sweep *sweep)
{
	int64_t next = next_suspect(sweep);

	if (next < 0 || sweep->suspects == SUSPECTS_LEFT ||
	        sweep_budget_left(sweep) < sweep_budget(sweep) / OVERRUN_PART)
		return false;
	sweep->trials->trial[next].status = TRIAL_WAITING;
	sweep->judged = next;
	return true;
}

bool sweep_try_suspect(struct sweep *sweep)
{
	sweep_leave_suspect(sweep);
	if (sweep->suspects == SUSPECTS_WAIT)
		sweep->suspects = SUSPECTS_TRIED;
	if (!admit(sweep))
		return false;
	sweep_stop_clock(sweep);
	sweep_ask(sweep);
	return true;
}

void sweep_go_on_with_suspects(struct sweep *sweep)
{
	if (sweep->suspects == SUSPECTS_TRIED &&
	        sweep->trials->trial[sweep->trials->default_index].status == TRIAL_WAITING)
		(void)admit(sweep);
}

bool sweep_wants_proof(const struct sweep *sweep)
{
	return sweep->shown != SWEEP_SHOWN_RUN && (sweep->judged >= 0 || sweep->strikes + 1 == STRIKES_MAX);
}

bool sweep_take_suspects_share(struct sweep *sweep)
{
	if (next_suspect(sweep) < 0 || sweep->suspects == SUSPECTS_LEFT)
		return false;
	sweep->suspects = SUSPECTS_LEFT;
	sweep_stop_clock(sweep);
	sweep_ask(sweep);
	return true;
}

uint64_t sweep_suspects_share(const struct sweep *sweep, uint64_t left_ns)
{
	return next_suspect(sweep) >= 0 && sweep->suspects != SUSPECTS_LEFT ? left_ns / SUSPECTS_PART : 0;
}
