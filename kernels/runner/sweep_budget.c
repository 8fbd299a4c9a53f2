/* How a sweep spends its time: what is kept for its last steps, and when it waits for others on the device. */
#include "kernels/runner/internal.h"

#include <stdio.h>
#include <time.h>

#include "proto/clock.h"

/* Of the budget, what may be kept for the launches of the winner that are looked at. */
enum { RESERVE_MOST = 4, RESERVE_LEAST = 50 };
enum {
	OVERRUN_PART = 10, /* of the budget, by which the last verification may go beyond */
	VAIN_MOST = 4,     /* halvings of what may be spent on waiting for the device to be quiet */
	LOAD_QUIET = 20,   /* percent that others use of a quiet device */
	SPREAD_ROUNDS = 7, /* the first of a race, which may decide it */
};
static const uint64_t second_ns = 1000000000;
static const uint64_t host_step_ns = 1000000;                 /* after which the host's lock is tried again */
static const uint64_t pause_step_ns = 50000000;               /* after which a cancel is looked for */
static const uint64_t pause_least_ns = 5000000;               /* less is not worth to cool down for */
static const uint64_t audit_whole_bytes = (uint64_t)64 << 20; /* up to so many moved, all launches are */

bool run_audits_at_any_rate(const struct run *run)
{
	return run->backend->audit &&
	        run->sweep->kernel->bytes(run->sweep->kernel, &run->sweep->problem) <= audit_whole_bytes;
}

uint64_t run_audit_launches(const struct run *run)
{
	const struct ft_sweep *sweep = run->sweep;
	uint64_t bytes = sweep->kernel->bytes(sweep->kernel, &sweep->problem);
	if (!run->backend->audit)
		return 0;
	if (bytes <= audit_whole_bytes)
		return AUDIT_LAUNCHES;
	uint64_t launches = (uint64_t)((double)AUDIT_LAUNCHES * (double)audit_whole_bytes / (double)bytes);
	return launches > AUDIT_LEAST ? launches : AUDIT_LEAST;
}

uint64_t run_verify_again_ns(const struct run *run)
{
	return run->verify_ns + run->verify_ns / 2 + (run_audits_at_any_rate(run) ? 2 * run->verify_ns : 0);
}

uint64_t run_race_end_ns(const struct run *run)
{
	uint64_t reserve = run_verify_again_ns(run) + run->reserve_ns;
	return reserve < run->deadline_ns ? run->deadline_ns - reserve : 1; /* 0 would be none */
}

uint64_t run_last_end_ns(const struct run *run)
{
	uint64_t overrun = run->sweep->budget_ns / OVERRUN_PART;
	return run->deadline_ns > UINT64_MAX - overrun ? UINT64_MAX : run->deadline_ns + overrun;
}

bool run_over_budget(const struct run *run)
{
	return ft_monotonic_ns() >= run_race_end_ns(run);
}

void run_set_reserve(struct run *run)
{
	const uint64_t most = run->sweep->budget_ns / RESERVE_MOST;
	uint64_t least_ps = UINT64_MAX;
	for (size_t i = 0; i < run->sweep->count; i++) {
		if (run->sample[i] > 0 && run->sample[i] < least_ps)
			least_ps = run->sample[i];
	}
	run->launch_ns = least_ps / 1000;
	double wanted = (double)run->sweep->budget_ns / RESERVE_LEAST +
	        (double)run_audit_launches(run) * AUDIT_COST * (double)least_ps / 1000;
	run->reserve_ns = wanted < (double)most ? (uint64_t)wanted : most;
}

/* A pause that is `apart` costs nothing of the budget. */
static int pause_for(struct run *run, uint64_t duration_ns, bool apart)
{
	uint64_t begin = ft_monotonic_ns();
	uint64_t passed = 0;
	while (passed < duration_ns && (apart || !run_over_budget(run))) {
		uint64_t step = duration_ns - passed < pause_step_ns ? duration_ns - passed : pause_step_ns;
		struct timespec rest = {.tv_nsec = (long)step};
		if (run_cancelled(run))
			return RUN_CANCELLED;
		(void)nanosleep(&rest, NULL);
		passed = ft_monotonic_ns() - begin;
	}
	return 0;
}

/* What others have to be waited for is no part of the budget. */
static void count_wait(struct run *run, uint64_t spent_ns)
{
	run->waited_ns += spent_ns;
	run->deadline_ns += spent_ns < UINT64_MAX - run->deadline_ns ? spent_ns : 0;
}

int run_take_host(struct run *run, enum ft_host_use use, const char *stage)
{
	struct ft_host_lock *lock = run->sweep->host_lock;
	if (!lock || run->backend->host != use || ft_host_lock_try(lock, use))
		return 0;
	uint64_t begin = ft_monotonic_ns(), told = begin;
	int result = 0;
	run_tell_stage(run, "wait");
	while (result == 0 && !ft_host_lock_try(lock, use)) {
		result = pause_for(run, host_step_ns, true);
		if (ft_monotonic_ns() - told > second_ns) {
			run_tell_stage(run, "wait");
			told = ft_monotonic_ns();
		}
	}
	count_wait(run, ft_monotonic_ns() - begin);
	run_tell_stage(run, stage);
	return result;
}

void run_leave_host(const struct run *run)
{
	if (run->sweep->host_lock)
		ft_host_lock_leave(run->sweep->host_lock);
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
	run_tell_stage(run, "wait");
	uint64_t told = ft_monotonic_ns();
	while (!quiet && run->patience_ns > 0) {
		uint64_t begin = ft_monotonic_ns();
		uint64_t pause = run->pause_ns < run->patience_ns ? run->pause_ns : run->patience_ns;
		if (pause_for(run, pause, true) != 0)
			return RUN_CANCELLED;
		quiet = is_quiet(run);
		uint64_t spent = ft_monotonic_ns() - begin;
		count_wait(run, spent);
		run->patience_ns -= spent < run->patience_ns ? spent : run->patience_ns;
		run->pause_ns = 2 * run->pause_ns < second_ns ? 2 * run->pause_ns : second_ns;
		if (!quiet && ft_monotonic_ns() - told > second_ns) {
			run_tell_stage(run, "wait");
			told = ft_monotonic_ns();
		}
	}
	/* Others who stay are not waited for again and again: half as long each time, in sweeps that follow too. */
	run->backend->vain = quiet ? 0 : run->backend->vain < VAIN_MOST ? run->backend->vain + 1 : VAIN_MOST;
	run_tell_stage(run, "measure");
	return run->backend->warm(run->backend, error) < 0 ? -1 : 0;
}

int run_keep_pace(struct run *run, struct ft_error *error)
{
	if (run->fresh == 0) {
		run->began_ns = ft_monotonic_ns();
		uint64_t left =
		        run_race_end_ns(run) > run->began_ns ? run_race_end_ns(run) - run->began_ns : 0;
		run->spread_ns = run->backend->spread_ns < left / 2 ? run->backend->spread_ns : left / 2;
	}
	if (run->disturbed && run->patience_ns > 0 && !run_over_budget(run))
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

void run_look_at_interference(struct run *run, size_t measured, uint64_t *disturbed)
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
