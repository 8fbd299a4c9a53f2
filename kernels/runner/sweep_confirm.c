/* After the timing: the winner is verified once more, and many of its launches are looked at. */
#include "kernels/runner/internal.h"

#include "proto/clock.h"

/* The tied are verified again too, but not for longer than this: only the winner must be. */
static const uint64_t confirm_tied_ns = 1000000000;
static const uint64_t audit_part_ns = 200000000; /* after which a cancel is looked for */
enum {
	AUDIT_PARTS = 16, /* at least */
	AUDIT_FIRST = 2,  /* which are checked whole */
	PAST_PART = 20,   /* of the budget, after which it ends with its first part */
};

/* Launches of one that was found right twice: it may be wrong in few. A twentieth past the budget it ends after its first
 * part. 0, FT_BACKEND_LOST or RUN_CANCELLED. */
static int audit(struct run *run, size_t index)
{
	struct ft_sweep_trial *trial = &run->sweep->trial[index];
	const uint64_t wanted = run_audit_launches(run);
	uint64_t told = ft_monotonic_ns();
	uint64_t each_ns = AUDIT_COST * run->launch_ns + 1;
	uint64_t done = 0;
	if (!run_audits_at_any_rate(run) && told + 2 * run->verify_ns >= run->deadline_ns)
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
		if (run_cancelled(run))
			return RUN_CANCELLED;
		if (done > 0 && left == 0 && now - run->deadline_ns >= run->sweep->budget_ns / PAST_PART)
			break;
		if (part > next)
			part = next;
		if (part > fit)
			part = fit > 0 ? fit : 1;
		if (now - told > audit_part_ns) {
			run_tell_begin(run, "confirm", index);
			told = now;
		}
		int result = run->backend->audit(run->backend, index, part, &checked, &error);
		/* What the first ones take on top says nothing of the rest. */
		if (done > 0 && checked > 0)
			each_ns = (ft_monotonic_ns() - now) / checked + 1;
		done += checked;
		if (result != 0 && (result = run_reject(run, "confirm", index, result, &error)) != 0)
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
		int result = run_verify(run, "confirm", index, until_ns);
		if (result != 0)
			return result;
		trial->confirmed = !trial->out;
	}
	int result = whole ? audit(run, index) : 0;
	if (result == 0 && whole && !trial->out && (trial->audited > 0 || !run->backend->audit)) {
		struct ft_runner_event event = run_event(run, "confirmed", index);
		run_tell(run, &event);
	}
	return result;
}

int run_confirm(struct run *run, size_t winner)
{
	struct ft_sweep *sweep = run->sweep;
	run_tell_stage(run, "confirm");
	int result = confirm_one(run, winner, true, run_last_end_ns(run));
	if (result == RUN_ENDED)
		return RUN_NO_TIME;
	if (sweep->trial[winner].out)
		return result; /* who wins now comes first */
	uint64_t end = ft_monotonic_ns() + confirm_tied_ns;
	const size_t count = sweep->count;
	for (size_t k = 0; k < 2 * count && result == 0; k++) {
		const size_t i = k < count ? k : k - count;
		const struct ft_sweep_trial *trial = &sweep->trial[i];
		uint64_t over = ft_monotonic_ns() + run->verify_ns;
		bool may_wait =
		        over >= run->deadline_ns || (!trial->served && (trial->confirmed || over >= end));
		if (i != winner && trial->served == (k < count) && sweep->standing[i].tied &&
		        run_can_win(trial) && run_is_built(run, i) && !may_wait && !run_cancelled(run))
			result = confirm_one(run, i, trial->served, run->deadline_ns);
	}
	return result == RUN_ENDED ? 0 : result;
}
