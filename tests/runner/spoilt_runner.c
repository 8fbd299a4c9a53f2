/* The real CPU runner, some of whose configs (those that unroll least) are spoilt as FLYTUNE_SPOIL says, for all else to
 * be as it is:
 *
 *   racy=N     in one of N launches, by chance, an element of the output is wrong
 *   stale=N    in one of N launches an element keeps what was there before
 *   input=N    in one of N launches the input is written to
 *   weight=N   … the weight
 *
 * All others do their work four times: a spoilt one would win. FLYTUNE_SPOIL_SEED makes chance repeatable. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compare.h"
#include "kernels/pool.h"
#include "kernels/runner/cpu/backend_cpu.h"
#include "kernels/runner/runner.h"
#include "proto/clock.h"

extern const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm;
static struct ft_kernel_cpu kernel; /* with its functions in place of some */
const struct ft_kernel_cpu *const ft_kernels_cpu[] = {&kernel, NULL};

struct plan {
	struct ft_tensors tensors;
	bool spoilt;
	_Alignas(max_align_t) char real[];
};

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

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
		seed = mix(text ? strtoull(text, NULL, 10) : ft_monotonic_ns());
	return one_in > 0 && mix(seed + number) % one_in == 0;
}

static void describe(const void *of, char *text, size_t size)
{
	ft_kernel_cpu_rmsnorm.describe(((const struct plan *)of)->real, text, size);
}

static void resolve(const struct ft_kernel_cpu *code, const struct ft_problem *problem,
        const struct ft_config *config, const struct ft_traits *traits, void *to)
{
	struct plan *plan = to;
	char text[256];
	(void)code;
	ft_kernel_find(kernel.name)->tensors(ft_kernel_find(kernel.name), problem, &plan->tensors);
	ft_kernel_cpu_rmsnorm.resolve(&ft_kernel_cpu_rmsnorm, problem, config, traits, plan->real);
	describe(plan, text, sizeof(text));
	plan->spoilt = strstr(text, "unroll=0") != NULL;
}

static void run_spoilt(struct ft_pool *pool, const void *of, void *const *data, uint64_t rows)
{
	static uint64_t launches;
	const struct plan *plan = of;
	const uint32_t in = ft_tensors_find(&plan->tensors, FT_INPUT_ROWS),
	               out = ft_tensors_find(&plan->tensors, FT_OUTPUT),
	               weight = ft_tensors_find(&plan->tensors, FT_INPUT_SHARED);
	const struct ft_tensor *output = &plan->tensors.tensor[out];
	/* Of the last row's: no short launch goes without. */
	unsigned char *last = (unsigned char *)data[out] +
	        ((rows - 1) * output->stride + output->length) * ft_dtype_size(output->type);
	unsigned char before = last[-1];
	ft_kernel_cpu_rmsnorm.run(pool, plan->real, data, rows);
	if (!plan->spoilt) {
		for (int i = 1; i < 4 && data[in] != data[out]; i++)
			ft_kernel_cpu_rmsnorm.run(pool, plan->real, data, rows);
		return;
	}
	launches++;
	if (by_chance("racy", launches))
		last[-1] ^= 0x10;
	if (by_chance("stale", launches))
		last[-1] = before;
	if (by_chance("input", launches) && data[in] != data[out])
		*(unsigned char *)data[in] ^= 0x55;
	if (by_chance("weight", launches))
		*(unsigned char *)data[weight] ^= 0x55;
}

int main(int argc, char **argv)
{
	struct ft_backend *backend = ft_backend_cpu_new();
	kernel = ft_kernel_cpu_rmsnorm;
	kernel.plan_size +=
	        sizeof(struct plan); /* plans stand in a row, and each begins as a struct plan must */
	kernel.plan_size += _Alignof(struct plan) - 1;
	kernel.plan_size -= kernel.plan_size % _Alignof(struct plan);
	kernel.resolve = resolve;
	kernel.describe = describe;
	kernel.run = run_spoilt;
	if (!backend)
		return EXIT_FAILURE;
	int status = ft_runner_main(backend, argc, argv);
	ft_backend_cpu_free(backend);
	return status;
}
