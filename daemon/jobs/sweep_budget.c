/* The budget of a sweep: what of the time counts, and what is left. */
#include "daemon/jobs/internal.h"

#include "proto/clock.h"

uint64_t sweep_budget(const struct sweep *sweep)
{
	return sweep->job->budget_ns != 0 ? sweep->job->budget_ns : sweep->settings->budget_ns;
}

uint64_t sweep_budget_left(const struct sweep *sweep)
{
	uint64_t spent = sweep->spent_ns;
	uint64_t budget = sweep_budget(sweep);

	if (sweep->began_ns != 0)
		spent += ft_monotonic_ns() - sweep->began_ns;
	return spent < budget ? budget - spent : 0;
}

void sweep_start_clock(struct sweep *sweep)
{
	if (sweep->began_ns == 0)
		sweep->began_ns = ft_monotonic_ns();
}

void sweep_stop_clock(struct sweep *sweep)
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

void sweep_expect_end(struct sweep *sweep)
{
	uint64_t most_ns = sweep_budget_left(sweep) + sweep_budget(sweep) / OVERRUN_PART +
	        sweep->settings->deadline_ns[STAGE_STOP];

	deadline_start(&sweep->cut, most_ns / 1000000 + 1);
}

void sweep_budget_passed(void *data)
{
	struct sweep *sweep = data;

	if (!sweep_is_on(sweep->phase))
		return;
	sweep->cuts++;
	runner_kill(&sweep->worker->runner, RUNNER_LATE, "it did not end within the budget of %.3g s",
	        (double)sweep_budget(sweep) / 1e9);
}

void sweep_note_waiting(struct sweep *sweep, bool waits)
{
	if (waits == (sweep->wait_ns != 0))
		return;
	sweep_stop_clock(sweep);
	if (waits) {
		sweep->wait_ns = ft_monotonic_ns();
	} else {
		sweep_start_clock(sweep);
		sweep_expect_end(sweep);
	}
}
