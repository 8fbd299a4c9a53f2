/* The real CPU runner, some of whose configs (those that unroll least) are spoilt as FLYTUNE_SPOIL says, for all else to
 * be as it is:
 *
 *   racy=N     in one of N launches, by chance, an element of the output is wrong
 *   stale=N    in one of N launches an element keeps what was there before
 *   input=N    in one of N launches the input is written to
 *   weight=N   … the weight
 *
 * All others do their work four times: a spoilt one would win. FLYTUNE_SPOIL_SEED makes chance repeatable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rmsnorm/rmsnorm_cpu.h"
#include "kernels/runner/runner.h"

static void run_spoilt(struct ft_pool *pool, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_rmsnorm_cpu_plan *plan, const struct ft_rmsnorm_cpu_call *call);

#define ft_rmsnorm_cpu_run run_spoilt
#include "kernels/runner/cpu/backend_cpu.c" // NOLINT(bugprone-suspicious-include)
#undef ft_rmsnorm_cpu_run

/* N if that is how it is spoilt; 0 if not. */
static uint64_t spoilt(const char *how)
{
	const char *text = getenv("FLYTUNE_SPOIL");
	size_t length = strlen(how);
	return text && strncmp(text, how, length) == 0 && text[length] == '='
	        ? strtoull(text + length + 1, NULL, 10)
	        : 0;
}

static bool by_chance(const char *how, uint64_t number)
{
	static uint64_t seed;
	const uint64_t one_in = spoilt(how);
	const char *text = getenv("FLYTUNE_SPOIL_SEED");
	if (seed == 0)
		seed = mix(text ? strtoull(text, NULL, 10) : ft_clock_ns());
	return one_in > 0 && mix(seed + number) % one_in == 0;
}

static void run_spoilt(struct ft_pool *pool, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_rmsnorm_cpu_plan *plan, const struct ft_rmsnorm_cpu_call *call)
{
	static uint64_t launches;
	const size_t element = plan->types == FT_RMSNORM_F32 ? 4 : 2;
	/* Of the last row's: no short launch goes without. */
	unsigned char *last = (unsigned char *)call->out + ((call->m - 1) * call->stride + call->n) * element;
	unsigned char before = last[-1];
	ft_rmsnorm_cpu_run(pool, set, plan, call);
	if (plan->unroll != 0) {
		for (int i = 1; i < 4 && call->in != call->out; i++)
			ft_rmsnorm_cpu_run(pool, set, plan, call);
		return;
	}
	launches++;
	if (by_chance("racy", launches))
		last[-1] ^= 0x10;
	if (by_chance("stale", launches))
		last[-1] = before;
	if (by_chance("input", launches) && call->in != call->out)
		((unsigned char *)(uintptr_t)call->in)[0] ^= 0x55;
	if (by_chance("weight", launches))
		((unsigned char *)(uintptr_t)call->weight)[0] ^= 0x55;
}

int main(int argc, char **argv)
{
	struct ft_backend *backend = ft_backend_cpu_new();
	if (!backend)
		return EXIT_FAILURE;
	int status = ft_runner_main(argc, argv, backend);
	ft_backend_cpu_free(backend);
	return status;
}
