/* What a sweep concludes when its runner has ended: a winner, that the old one holds, or why there is none. */
#include "daemon/jobs/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/jobs/winner.h"

/* A check finds a default that takes so much longer than it did to be another. */
static const double check_slower = 0.1;

static const uint64_t second_ns = 1000000000;

enum { DISTURBED_LEAST = 20 /* samples, before their share says anything */ };

/* The winner that is stored against the default alone. */
static void conclude_check(struct sweep *sweep, const struct ft_decision *decision)
{
	struct trials *trials = sweep->trials;
	int32_t index = trials_find(trials, &sweep->held.config);
	const struct ft_standing *now = &sweep->standing[index];
	double change =
	        sweep->held.time_ps > 0 ? (double)now->median_ps / (double)sweep->held.time_ps - 1 : 0;
	bool alone = (uint32_t)index == trials->default_index;
	struct ft_error why;

	if ((trials->trial[index].status == TRIAL_WAITING || trials->trial[index].status == TRIAL_SUSPECT) &&
	        now->median_ps == 0) {
		sweep_fail(sweep, "the budget ended before the winner was timed");
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
		trials_time_winner(trials, sweep->members, sweep->settings->band_ppm, (uint32_t)index,
		        now->median_ps, &sweep->held);
		sweep->held.conclusive = decision->conclusive;
		sweep_finish(sweep, SWEEP_HELD, &why);
		return;
	}
	log_line(sweep->log, LOG_LEVEL_INFO, "winner no longer holds job=%" PRIu64 " change=%+.1f%%",
	        sweep->job->job, change * 100);
	sweep_stop_clock(sweep);
	trials_free(sweep->trials);
	sweep->trials = NULL;
	sweep_go_scope(sweep, SCOPE_WHOLE);
	sweep->old = OLD_GOES;
	sweep->suspects = SUSPECTS_WAIT;
	sweep->job->check = false;
	sweep->job->force = true;
	(void)sweep_note_event(sweep, "stage");
	sweep_send_notes(sweep, &sweep->waiting);
	sweep_ask_space(sweep);
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

/* A result that was measured beside someone else's work is to be distinguished. */
static void note_disturbance(
        struct sweep *sweep, const struct ft_decision *decision, const char *interference)
{
	struct trials *trials = sweep->trials;

	trials->busy = sweep->samples >= DISTURBED_LEAST && sweep->disturbed * 4 >= sweep->samples;
	if (trials->busy)
		add_to_reason(trials, "; measured while something else used the device (%.0f %% of samples)",
		        100.0 * (double)sweep->disturbed / (double)sweep->samples);
	if (decision->slow > 0)
		add_to_reason(trials, "; %u of %u rounds were slow and do not count", decision->slow,
		        trials->rounds);
	if (interference[0] != '\0')
		add_to_reason(trials, "; %s", interference);
}

bool sweep_is_disturbed(const struct sweep *sweep)
{
	return sweep_is_on(sweep->phase) && sweep->samples >= DISTURBED_LEAST &&
	        sweep->disturbed * 2 >= sweep->samples;
}

static uint32_t count_unreached(const struct sweep *sweep)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		count += sweep_tries(sweep, i) &&
		        (trial->status == TRIAL_SUSPECT ||
		                (trial->status == TRIAL_WAITING && !trial->dropped &&
		                        (!trial->verified || trial->sample_ps == NULL)));
	}
	return count;
}

/* Says how many went for what, and the first thing that a compiler or a check said of one. */
static void end_without_winner(struct sweep *sweep, const struct ft_decision *decision)
{
	static const enum trial_status ends[] = {
	        TRIAL_FAILED, TRIAL_WRONG, TRIAL_TIMEOUT, TRIAL_SAME_CODE, TRIAL_SUSPECT};
	static const char *const words[] = {"failed", "were wrong", "took too long",
	        "had the code of another", "were left out, since a runner ended with them"};
	uint32_t count[sizeof(ends) / sizeof(ends[0])] = {0}, tried = 0;
	const struct trial *first = NULL;
	char text[256];
	char config[FT_CONFIG_TEXT_SIZE];
	size_t length;

	for (uint32_t i = 0; i < sweep->members; i++) {
		const struct trial *trial = &sweep->trials->trial[i];

		if (trial->status == TRIAL_PRUNED || !sweep_tries(sweep, i))
			continue;
		tried++;
		for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++)
			count[k] += trial->status == ends[k];
		if (first == NULL && trial->status != TRIAL_WAITING && trial->status != TRIAL_SAME_CODE &&
		        trial->reason[0] != '\0')
			first = trial;
	}
	if (first == NULL) {
		sweep_fail(sweep, "no config can win: %s", decision->reason);
		return;
	}
	length = (size_t)snprintf(text, sizeof(text), "no config can win: of %u that were tried", tried);
	for (size_t k = 0; k < sizeof(ends) / sizeof(ends[0]); k++) {
		if (count[k] > 0)
			length += (size_t)snprintf(
			        text + length, sizeof(text) - length, ", %u %s", count[k], words[k]);
	}
	if (count_unreached(sweep) > 0)
		(void)snprintf(text + length, sizeof(text) - length, ", %u were not reached in the budget",
		        count_unreached(sweep));
	(void)ft_config_format(&first->config, ' ', config, sizeof(config));
	sweep_fail(sweep, "%s; the first, %.60s: %.180s", text, config, first->reason);
}

/* The default alone did not fit, or not the next winner. What was to be done before it counts as well. */
static void end_without_time(struct sweep *sweep, uint64_t needs_ns)
{
	uint64_t budget = sweep_budget(sweep), given = sweep->given_ns;
	uint64_t needs = needs_ns + (given < budget ? budget - given : 0);

	if (needs <= budget)
		needs = budget + budget / OVERRUN_PART;
	sweep_fail(sweep, "the budget of %.3g s is too small: %s takes about %" PRIu64 " s",
	        (double)budget / 1e9,
	        sweep->rejected ? "the winner was found wrong after the race, and to verify the next"
	                        : "to verify and time the default alone",
	        (needs + second_ns - 1) / second_ns);
}

/* `in_part`: runners ended, and there was no time to go on. */
static void conclude(struct sweep *sweep, const struct ft_sweep_reply *reply, bool in_part)
{
	struct trials *trials = sweep->trials;
	struct ft_decision decision;
	uint32_t unreached;
	uint64_t space;

	if (in_part)
		sweep->suspects = SUSPECTS_LEFT;
	if (sweep_try_suspect(sweep))
		return;
	unreached = count_unreached(sweep);
	trials_decide(
	        trials, sweep->members, sweep->settings->band_ppm, false, true, sweep->standing, &decision);
	if (decision.verdict == FT_VERDICT_MEASURE)
		trials_decide(trials, sweep->members, sweep->settings->band_ppm, true, true, sweep->standing,
		        &decision);
	(void)snprintf(trials->method, sizeof(trials->method), "%s", reply->method);
	if (sweep_is_check(sweep->scope)) {
		conclude_check(sweep, &decision);
		return;
	}
	if (sweep_try_extended(sweep, &decision))
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
		        unreached, sweep->job->trials, (double)sweep_budget(sweep) / 1e9);
	if (trials->unlisted > 0)
		add_to_reason(trials, "; %" PRIu64 " of %" PRIu64 " configs were tried",
		        trials_seen(trials, sweep->members, &space), trials->unlisted);
	note_disturbance(sweep, &decision, reply->interference);
	if (!in_part && (strcmp(reply->outcome, "decided") != 0 || reply->winner != decision.winner))
		log_line(sweep->log, LOG_LEVEL_WARNING,
		        "the runner chose otherwise job=%" PRIu64 " runner=%s:%" PRIu64 " daemon=%zu",
		        sweep->job->job, reply->outcome, reply->winner, decision.winner);
	for (uint32_t i = 0; i < sweep->members; i++) {
		if (trials->trial[i].status == TRIAL_WAITING && !trials->trial[i].dropped &&
		        sweep_tries(sweep, i))
			sweep_note_trial(sweep, i);
	}
	sweep_finish(sweep, SWEEP_DECIDED, NULL);
}

/* What this device or its driver could not give, and an equal one may; else it is the problem that is refused. */
static bool is_of_device(const struct ft_error *failure)
{
	return strcmp(failure->code, FT_E_UNAVAILABLE) == 0 || strcmp(failure->code, FT_E_MEMORY) == 0 ||
	        strcmp(failure->code, FT_E_SYSTEM) == 0;
}

void sweep_replied(void *data, struct ft_view view, const struct ft_error *failure)
{
	struct sweep *sweep = data;
	struct ft_sweep_reply reply;
	struct ft_error error;

	/* Nothing is decided of a device that changed under the sweep: its runner is on its way out, and sweep_runner_gone() goes
	 * on. */
	devices_look_now(sweep->devices);
	if (slot_is_asked(sweep->worker->slot->state))
		return;
	if (failure == NULL && ft_decode(&ft_sweep_reply_message, view, &reply, &error) != 0) {
		runner_kill(&sweep->worker->runner, RUNNER_PROTOCOL_ERROR, "its reply makes no sense: %s",
		        error.message);
		return;
	}
	if (failure != NULL) {
		(void)ft_fail(&error, FT_E_RUNNER, "%s", failure->message);
		sweep_finish(sweep, is_of_device(failure) ? SWEEP_LOST : SWEEP_FAILED, &error);
		return;
	}
	if (sweep->phase == SWEEP_STOPS)
		sweep_finish(sweep, SWEEP_CANCELLED, NULL);
	else if (strcmp(reply.outcome, "no_time") == 0 && sweep->judged < 0 && sweep->strikes == 0) {
		if (!sweep_take_suspects_share(sweep))
			end_without_time(sweep, reply.needs_ns);
	} else
		conclude(sweep, &reply, strcmp(reply.outcome, "no_time") == 0);
}
