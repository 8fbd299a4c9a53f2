/* A sweep's life: from a job to what was found. */
#include "daemon/host/bug.h"
#include "daemon/jobs/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	UNBLAMED_MAX = 2,
	LET_GO_MAX =
	        16, /* starts of the runner in a row without a round, that the daemon itself made needed */
};

/* A hash that no space has: the winner was chosen from a part of it. */
static const uint64_t space_in_part = 1;

struct sweep *sweep_new(uv_loop_t *loop, struct devices *devices, struct store *store, const struct log *log,
        const struct settings *settings, const struct sweep_events *events, void *data,
        struct ft_error *error)
{
	struct sweep *sweep = malloc(sizeof(*sweep));
	int status;

	if (sweep == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a sweep");
		return NULL;
	}
	*sweep = (struct sweep){
	        .devices = devices,
	        .store = store,
	        .log = log,
	        .settings = settings,
	        .events = events,
	        .data = data,
	        .busy = -1,
	};
	status = deadline_init(&sweep->cut, loop, sweep_budget_passed, sweep);
	if (status == 0)
		return sweep;
	(void)ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	free(sweep);
	return NULL;
}

void sweep_free(struct sweep *sweep)
{
	free(sweep);
}

void sweep_go(struct sweep *sweep, enum sweep_phase next)
{
	(void)bug_unless(sweep->log, sweep_may_go(sweep->phase, next),
	        "a sweep that %s cannot be one that %s", sweep_phase_word(sweep->phase),
	        sweep_phase_word(next));
	sweep->phase = next;
}

void sweep_go_scope(struct sweep *sweep, enum sweep_scope next)
{
	(void)bug_unless(sweep->log, sweep_scope_may_go(sweep->scope, next),
	        "a sweep of scope \"%s\" cannot be one of scope \"%s\"", sweep_scope_word(sweep->scope),
	        sweep_scope_word(next));
	sweep->scope = next;
}

/* ---- the end ---- */

void sweep_maybe_end(struct sweep *sweep)
{
	struct sweep_end found;

	if (sweep->phase != SWEEP_ENDS || sweep->storing)
		return;
	if (sweep->dirty && sweep_ends_by_itself(sweep)) {
		sweep->events->refused(sweep->data);
		return;
	}
	found = (struct sweep_end){
	        .outcome = sweep->outcome,
	        .target = sweep->target,
	        .trials = sweep->trials,
	        .space_hash = sweep_is_of_part(sweep->scope) ? space_in_part : sweep->space_hash,
	        .held = sweep->held,
	        .why = sweep->why,
	};
	sweep_free_notes(&sweep->last_notes);
	if (sweep->outcome == SWEEP_DECIDED) {
		sweep->last_notes = sweep->waiting;
		sweep->waiting = NULL;
	} else {
		sweep_send_notes(sweep, &sweep->waiting);
	}
	free(sweep->standing);
	sweep->standing = NULL;
	free(sweep->picked);
	sweep->picked = NULL;
	sweep->trials = NULL;
	sweep->target = (struct target){0}; /* it is the hearer's now */
	sweep_go(sweep, SWEEP_OFF);
	sweep->job = NULL;
	sweep->dirty = false;
	if (found.outcome != SWEEP_DECIDED &&
	        (found.outcome != SWEEP_CANCELLED || sweep_is_check(sweep->scope))) {
		trials_free(found.trials);
		found.trials = NULL;
	}
	sweep->events->ended(sweep->data, &found);
}

void sweep_store_again(struct sweep *sweep)
{
	sweep_store_trials(sweep);
	sweep_maybe_end(sweep);
}

void sweep_finish(struct sweep *sweep, enum sweep_outcome outcome, const struct ft_error *why)
{
	sweep_stop_clock(sweep);
	if (sweep->worker != NULL && sweep->worker->runner.reply == NULL)
		runner_rest(&sweep->worker->runner);
	sweep_go(sweep, SWEEP_ENDS);
	sweep->outcome = outcome;
	sweep->why = why != NULL ? *why : (struct ft_error){0};
	/* What was measured is kept, however it ended, and reported only then. */
	if (sweep->dirty && sweep_ends_by_itself(sweep))
		sweep_store_trials(sweep);
	sweep_maybe_end(sweep);
}

void sweep_fail(struct sweep *sweep, const char *format, ...)
{
	struct ft_error why;
	char text[sizeof(why.message)];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	(void)ft_fail(&why, FT_E_RUNNER, "%s", text);
	sweep_finish(sweep, SWEEP_FAILED, &why);
}

/* ---- what the runner's life does to it ---- */

static void set_target(struct sweep *sweep, const struct target *target)
{
	device_use(target->device);
	device_leave(sweep->target.device);
	sweep->target = *target;
}

/* Finds the device anew: a hello may have replaced it. False if the sweep cannot go on as it was begun; what it has then
 * stays what it was measured as. */
static bool find_target(struct sweep *sweep, struct ft_error *error)
{
	struct target found;

	if (target_admit(&found, sweep->devices, sweep->job->kernel, sweep->job->device,
	            &sweep->job->problems, error) != 0)
		return false;
	if (sweep->identity == 0)
		set_target(sweep, &found);
	if (found.device->state != DEVICE_READY) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "device %s is gone: %.200s", sweep->job->device,
		        found.device->slot->reason);
		return false;
	}
	if (sweep->identity != 0 &&
	        (sweep->identity != found.kernel->identity || sweep->target.key.device != found.key.device)) {
		(void)ft_fail(error, FT_E_UNAVAILABLE, "the device or its software changed under the sweep");
		return false;
	}
	set_target(sweep, &found);
	sweep->identity = found.kernel->identity;
	return true;
}

void sweep_start(struct sweep *sweep, struct ft_job *job)
{
	struct ft_error error;

	sweep->job = job;
	sweep->scope = job->check ? SCOPE_CHECK : job->subset ? SCOPE_SUBSET : SCOPE_WHOLE;
	sweep->old = job->force && !job->begun ? OLD_GOES : OLD_KEPT;
	sweep->retry = job->force && job->cause[0] == '\0';
	sweep->cuts = 0;
	sweep->unblamed = sweep->let_go = sweep->strikes = 0;
	sweep->shown = SWEEP_SHOWN_NOTHING;
	sweep->suspects = SUSPECTS_WAIT;
	sweep->judged = -1;
	sweep->began_ns = sweep->wait_ns = sweep->spent_ns = 0;
	sweep->busy = -1;
	sweep->identity = 0;
	sweep->worker = NULL;
	sweep_go(sweep, SWEEP_WAITS_RUNNER);
	(void)snprintf(job->stage, sizeof(job->stage), "start");
	if (!find_target(sweep, &error)) {
		sweep_finish(sweep, SWEEP_FAILED, &error);
		return;
	}
	sweep->worker = sweep->target.device->worker;
	if (sweep->worker->runner.state == RUNNER_ENDING)
		return; /* it is started again when it is gone */
	sweep_start_clock(sweep);
	if (sweep->worker->runner.state == RUNNER_READY)
		sweep_ask_space(sweep);
	else
		runner_start(&sweep->worker->runner);
}

void sweep_settled(struct sweep *sweep, const struct runner_slot *slot)
{
	struct ft_error error;

	if (sweep->phase != SWEEP_WAITS_RUNNER || sweep->worker->slot != slot)
		return;
	/* Without its device there is nothing to wait for, whatever becomes of the runner. */
	if (!find_target(sweep, &error))
		sweep_finish(sweep, SWEEP_MOVED, &error);
	else if (sweep->worker->runner.state == RUNNER_READY)
		sweep_ask_space(sweep);
}

void sweep_runner_gone(
        struct sweep *sweep, const struct worker *worker, enum runner_cause cause, const struct ft_error *why)
{
	struct ft_event *event;
	struct ft_error error;

	if (sweep->worker != worker || sweep->phase == SWEEP_OFF || sweep->phase == SWEEP_ENDS)
		return;
	sweep_stop_clock(sweep);
	if (sweep->phase == SWEEP_STOPS) {
		sweep_finish(sweep, SWEEP_CANCELLED, NULL);
		return;
	}
	if (cause == RUNNER_UNSTARTED) {
		sweep_finish(sweep, SWEEP_LOST, why);
		return;
	}
	if (cause != RUNNER_ASKED) {
		sweep->job->restarts++;
		/* One config may hang; where one after another seems to, it is not theirs. */
		if (sweep->cuts >= UNBLAMED_MAX) {
			sweep_finish(sweep, SWEEP_LOST, why);
			return;
		}
		if (sweep->phase == SWEEP_RUNS && sweep->busy >= 0) {
			sweep->unblamed = 0;
			if (!sweep_strike(sweep, cause, why)) {
				(void)ft_fail(&error, FT_E_RUNNER,
				        "its runner failed with %u configs in a row, which none of them is "
				        "to blame for: "
				        "%.200s",
				        sweep->strikes, why->message);
				sweep_finish(sweep, SWEEP_LOST, &error);
				return;
			}
		} else if (++sweep->unblamed >= UNBLAMED_MAX) {
			sweep_finish(sweep, SWEEP_LOST, why);
			return;
		}
		event = sweep_note_event(sweep, "restarted");
		if (event != NULL)
			(void)snprintf(event->reason, sizeof(event->reason), "%.*s",
			        (int)sizeof(event->reason) - 1, why->message);
	} else if (++sweep->let_go > LET_GO_MAX) {
		sweep_fail(sweep, "its runner was let go %u times before a round was done: %.200s",
		        sweep->let_go, why->message);
		return;
	}
	sweep->busy = -1;
	sweep->shown = SWEEP_SHOWN_NOTHING;
	sweep_go(sweep, SWEEP_WAITS_RUNNER);
	sweep_start_clock(sweep);
	runner_start(&sweep->worker->runner);
}

void sweep_cancel(struct sweep *sweep)
{
	if (sweep->phase == SWEEP_RUNS)
		sweep_go(sweep, SWEEP_STOPS);
	if (sweep->phase == SWEEP_STOPS) {
		runner_cancel(&sweep->worker->runner, sweep->job->job);
	} else if (sweep->phase == SWEEP_WAITS_RUNNER || sweep->phase == SWEEP_WAITS_SPACE) {
		/* Nothing is measured yet: the runner's answer is not needed. */
		if (sweep->phase == SWEEP_WAITS_SPACE)
			runner_kill(&sweep->worker->runner, RUNNER_ASKED, "the job was cancelled");
		sweep_finish(sweep, SWEEP_CANCELLED, NULL);
	}
}

void sweep_stored(struct sweep *sweep)
{
	sweep_send_notes(sweep, &sweep->last_notes);
}

void sweep_abandon(struct sweep *sweep)
{
	sweep_free_notes(&sweep->last_notes);
	deadline_close(&sweep->cut);
	if (sweep->phase == SWEEP_OFF)
		return;
	sweep_go(sweep, SWEEP_OFF);
	device_leave(sweep->target.device);
	sweep->target = (struct target){0};
	trials_free(sweep->trials);
	sweep->trials = NULL;
	free(sweep->standing);
	sweep->standing = NULL;
	free(sweep->picked);
	sweep->picked = NULL;
	sweep_free_notes(&sweep->waiting);
	if (!sweep->storing)
		sweep_free_notes(&sweep->storing_notes);
	sweep->job = NULL;
}
