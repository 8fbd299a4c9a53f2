/* The begin of a sweep: how long it will take at the least, memory, threads, plans, inputs. */
#include "kernels/runner/cpu/internal.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compare.h"
#include "kernels/runner/cpu/cpu_folder.h"
#include "kernels/runner/fill.h"
#include "proto/clock.h"

static void pin(struct cpu *cpu)
{
	struct ft_cpus one;
	ft_cpus_one(&one, cpu->cpu[0]);
	cpu->pinned = sched_getaffinity(0, sizeof(cpu->before), (cpu_set_t *)&cpu->before) == 0 &&
	        sched_setaffinity(0, sizeof(one), (cpu_set_t *)&one) == 0;
}

static void note_least(uint64_t *least, uint64_t begin, uint64_t end)
{
	*least = end - begin < *least ? end - begin : *least;
}

/* Of a kernel over rows, from a piece of the work, on one core: how long all of it takes. The least of some tries, for one that
 * lost its core would count a thousand times. Small problems are not worth it. */
static void estimate(struct cpu *cpu)
{
	enum { PIECES_LEAST = 8, TRIES = 3 };
	cpu->backend.prepare_ns = cpu->backend.verify_ns = 0;
	if (!cpu->over_rows)
		return;
	const uint32_t in = ft_tensors_find(&cpu->tensors, FT_INPUT_ROWS);
	const struct array *input = &cpu->array[in];
	const struct array *output = &cpu->array[ft_tensors_find(&cpu->tensors, FT_OUTPUT)];
	const size_t rows = cpu_rows_a_piece(input);
	const size_t pieces = cpu->m / rows, threads = ft_pool_threads(cpu->pool);
	const size_t at = (FT_FILL_ODD_ROWS / rows + 1) * rows; /* behind the odd rows */
	struct ft_worst worst = {0};
	uint64_t hash;
	if (pieces < PIECES_LEAST || at + rows > cpu->m)
		return;
	cpu_use_verified(cpu);
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		if (cpu->tensors.tensor[i].role == FT_INPUT_SHARED)
			memset(cpu->array[i].verified, 0, cpu->array[i].data);
	}
	uint64_t fills = UINT64_MAX, writes = UINT64_MAX, compares = UINT64_MAX, hashes = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t begin = ft_clock_ns();
		cpu_fill_rows(cpu, in, at, rows);
		uint64_t filled = ft_clock_ns();
		cpu_poison(cpu, output->verified - GUARD, PIECE);
		uint64_t written = ft_clock_ns();
		ft_compare_rows(cpu->code->reference, &cpu->tensors, (const void *const *)cpu->data, at, rows,
		        &worst);
		uint64_t compared = ft_clock_ns();
		cpu_note_hashes(cpu, input->verified - GUARD, PIECE, &hash);
		note_least(&fills, begin, filled);
		note_least(&writes, filled, written);
		note_least(&compares, written, compared);
		note_least(&hashes, compared, ft_clock_ns());
	}
	/* A launch reads and writes at least what a poisoning writes. */
	const uint64_t arena = cpu->shared ? 0 : 2 * cpu->sets;
	cpu->backend.prepare_ns = pieces * (fills + (1 + arena) * writes + hashes) / threads;
	cpu->backend.verify_ns = pieces * (compares + 4 * writes + hashes) / threads;
}

/* Whether the default cannot be verified twice by the deadline, as it has to be; with room for a bad estimate. */
static bool is_hopeless(const struct ft_backend *backend)
{
	uint64_t now = ft_monotonic_ns();
	uint64_t needed = backend->prepare_ns + 2 * backend->verify_ns;
	return backend->deadline_ns != 0 && needed != 0 &&
	        (backend->deadline_ns <= now || needed > (backend->deadline_ns - now) * 3 / 2);
}

void cpu_resolve(struct cpu *cpu, size_t index)
{
	cpu->code->resolve(cpu->code, cpu->problem, &cpu->config[index], &cpu->device.traits,
	        cpu->plan + index * cpu->code->plan_size);
}

int cpu_prepare(struct ft_backend *backend, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	const uint32_t cores = (uint32_t)cpu->device.traits.units;
	const size_t room = sweep->room > sweep->count ? sweep->room : sweep->count;
	cpu->kernel = sweep->kernel;
	cpu->code = cpu_find_code(cpu, sweep->kernel->name);
	if (!cpu->code)
		return ft_fail(error, FT_E_UNKNOWN_KERNEL, "this runner has no %s", sweep->kernel->name);
	cpu->kernel->tensors(cpu->kernel, sweep->problem, &cpu->tensors);
	cpu->seed = sweep->seed;
	cpu->problem = sweep->problem;
	cpu->config = sweep->config;
	cpu->known = sweep->count;
	cpu->count = room;
	cpu->default_index = sweep->default_index;
	cpu->built = room;
	cpu->warm_index = room;
	cpu->audited = room;
	cpu->at = 0;
	cpu->warm_ps = cpu->half_ps = cpu->whole_ps = 0;
	cpu->started = 0;
	cpu->samples = 0;
	cpu->disturbed = 0;
	cpu->steal = (struct ft_steal){0};
	cpu->plan = calloc(room ? room : 1, cpu->code->plan_size);
	cpu->pending = calloc(room ? room : 1, sizeof(*cpu->pending));
	cpu->batch = calloc(room ? room : 1, sizeof(*cpu->batch));
	cpu->sampled = calloc(room ? room : 1, sizeof(*cpu->sampled));
	cpu->windows = calloc(room ? room : 1, sizeof(*cpu->windows));
	if (!cpu->plan || !cpu->pending || !cpu->batch || !cpu->sampled || !cpu->windows)
		return ft_fail(error, FT_E_MEMORY, "no memory for a sweep of %zu configs", sweep->count);
	if (cpu_lay_out(cpu, error) < 0 || cpu_choose_sets(cpu, sweep->memory_cap, error) < 0)
		return -1;
	cpu->rows = cpu->m;
	pin(cpu);
	cpu->pool = ft_pool_new(cores, cpu->cpu);
	if (!cpu->pool)
		return ft_fail(error, FT_E_MEMORY, "cannot start %" PRIu32 " threads", cores);
	if (cpu_allocate(cpu, error) < 0)
		return -1;
	for (size_t i = 0; i < sweep->count; i++)
		cpu_resolve(cpu, i);
	if (!cpu->code->reference && cpu_folder_open(cpu, error) < 0)
		return -1;
	cpu->until_ns = 0;
	cpu->ended = false;
	estimate(cpu);
	if (is_hopeless(backend))
		return FT_BACKEND_ENDED;
	cpu->until_ns = backend->deadline_ns;
	if (!cpu->shared && cpu_prepare_arena(cpu, error) < 0)
		return -1;
	if (!cpu->ended)
		cpu_fill_inputs(cpu);
	if (cpu->ended)
		return FT_BACKEND_ENDED;
	return cpu->folder ? cpu_folder_expect(cpu, sweep->problem, error) : 0;
}

void cpu_finish(struct ft_backend *backend)
{
	struct cpu *cpu = cpu_of(backend);
	cpu_folder_close(cpu);
	ft_pool_free(cpu->pool);
	cpu->pool = NULL;
	if (cpu->pinned)
		(void)sched_setaffinity(0, sizeof(cpu->before), (cpu_set_t *)&cpu->before);
	cpu->pinned = false;
	cpu_free_arrays(cpu);
	free(cpu->plan);
	cpu->plan = NULL;
	free(cpu->pending);
	cpu->pending = NULL;
	free(cpu->batch);
	cpu->batch = NULL;
	free(cpu->sampled);
	cpu->sampled = NULL;
	free(cpu->windows);
	cpu->windows = NULL;
	cpu->count = 0;
}
