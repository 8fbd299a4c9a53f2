#include "kernels/runner/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

enum { PATIENCE_PART = 10 /* of the budget, which may be spent on waiting for the device to be quiet */ };

int ft_sweep_init(struct ft_sweep *sweep, size_t count, struct ft_error *error)
{
	const size_t room = sweep->room > count ? sweep->room : count;
	sweep->count = 0;
	sweep->trial = calloc(room ? room : 1, sizeof(*sweep->trial));
	sweep->standing = calloc(room ? room : 1, sizeof(*sweep->standing));
	if (!sweep->trial || !sweep->standing) {
		ft_sweep_free(sweep);
		return ft_fail(error, FT_E_MEMORY, "no memory for %zu trials", room);
	}
	sweep->count = count;
	sweep->room = room;
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
	sweep->count = sweep->room = 0;
}

uint64_t *ft_sweep_samples(struct ft_sweep *sweep, size_t index)
{
	struct ft_sweep_trial *trial = &sweep->trial[index];
	if (!trial->sample_ps)
		trial->sample_ps = calloc(FT_ROUNDS_MAX, sizeof(*trial->sample_ps));
	return trial->sample_ps;
}

static int sweep_to_end(struct run *run, struct ft_decision *decision, struct ft_error *error)
{
	int looked = run->sweep->search ? run_search(run, error) : 0;
	if (looked != 0)
		return looked;
	for (;;) {
		int result = run_build_all(run, error);
		if (result == 0)
			result = run_race(run, decision, error);
		if (result != 0 || decision->verdict == FT_VERDICT_NONE)
			return result;
		result = run_confirm(run, decision->winner);
		if (result != 0 || !run->sweep->trial[decision->winner].out)
			return result;
		if (run_cancelled(run))
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
	needed += verify + verify / 2 + run_verify_again_ns(run);
	uint64_t least = (spent > run->sweep->budget_ns ? spent : run->sweep->budget_ns) * 5 / 4;
	return needed > least ? needed : least;
}

static void say_interference(const struct run *run, char *text, size_t size)
{
	char waited[64] = "";
	if (run->waited_ns > 0)
		snprintf(waited, sizeof(waited), "waited %.1f s for others", (double)run->waited_ns / 1e9);
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
		        (double)reply->needs_ns / 1e9);
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
	const size_t room = sweep->room ? sweep->room : 1;
	struct run run = {
	        .sweep = sweep,
	        .backend = backend,
	        .listener = listener,
	        .order = calloc(room, sizeof(*run.order)),
	        .sample = calloc(room, sizeof(*run.sample)),
	        .member = calloc(room, sizeof(*run.member)),
	        .config = calloc(room, sizeof(*run.config)),
	        .contender = calloc(room, sizeof(*run.contender)),
	        .racing = calloc(room, sizeof(*run.racing)),
	        .standing = calloc(room, sizeof(*run.standing)),
	};
	ft_writer_init_growing(&run.writer, (size_t)1 << 20);
	uint64_t now = ft_monotonic_ns();
	run.start_ns = now;
	run.pause_ns = pause_first_ns;
	run.patience_ns = (sweep->budget_ns / PATIENCE_PART) >> backend->vain;
	run.deadline_ns = sweep->budget_ns > UINT64_MAX - now ? UINT64_MAX : now + sweep->budget_ns;
	if (!run.order || !run.sample || !run.member || !run.config || !run.contender || !run.racing ||
	        !run.standing) {
		ft_fail(error, FT_E_MEMORY, "no memory for a sweep of %zu configs", room);
		goto out;
	}
	for (size_t i = 0; i < sweep->count; i++)
		run.config[i] = sweep->trial[i].config;
	struct ft_backend_sweep order = {
	        .kernel = sweep->kernel,
	        .problem = &sweep->problem,
	        .device = sweep->device,
	        .seed = sweep->seed,
	        .memory_cap = sweep->memory_cap,
	        .code_dir = sweep->code_dir,
	        .count = sweep->count,
	        .room = sweep->room,
	        .config = run.config,
	        .default_index = sweep->default_index,
	};
	struct ft_decision decision = {.verdict = FT_VERDICT_NONE};
	backend->method[0] = '\0';
	run_tell_stage(&run, "start");
	result = run_take_host(&run, FT_HOST_WORKED, "start");
	backend->deadline_ns = run.deadline_ns;
	backend->prepare_ns = backend->verify_ns = 0;
	if (result == 0)
		result = backend->prepare(backend, &order, error);
	backend->deadline_ns = 0;
	if (result == 0) {
		run.prepare_ns = ft_monotonic_ns() - run.start_ns - run.waited_ns;
		run.verify_ns = backend->verify_ns;
		result = sweep_to_end(&run, &decision, error);
	} else if (result == FT_BACKEND_ENDED) {
		result = RUN_NO_TIME;
	}
	if (result >= 0) {
		answer(&run, result, &decision, reply);
		result = 0;
	}
	run_leave_host(&run);
	backend->finish(backend);
out:
	free(run.order);
	free(run.sample);
	free(run.member);
	free(run.config);
	free(run.contender);
	free(run.racing);
	free(run.standing);
	ft_writer_free(&run.writer);
	return result;
}
