#include "kernels/runner/cpu/cpu_folder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/code_file.h"
#include "kernels/runner/cpu/cpu_build.h"
#include "kernels/runner/cpu/expect.h"
#include "kernels/runner/cpu/internal.h"
#include "proto/clock.h"

enum { PARTS = 8 /* of the blocks, for each thread: who is done early takes more */ };

typedef void block_function(void *const *argument, const int64_t *block);

/* A config for a problem: how it is launched, and what of. */
struct plan {
	const struct ft_folder *folder;
	bool failed; /* with `error` */
	struct ft_error error;
	struct ft_defines defines;
	struct ft_folder_launch launch;
	union ft_cell cell[FT_FOLDER_STEPS_MAX][FT_FOLDER_ARGUMENTS_MAX];
	void *library;
	block_function *function[FT_FOLDER_STEPS_MAX];
};

struct cpu_folder {
	struct cpu_build build;
};

/* ---- a launch ---- */

static void resolve(const struct ft_kernel_cpu *code, const struct ft_problem *problem,
        const struct ft_config *config, const struct ft_traits *traits, void *to)
{
	struct plan *plan = to;
	plan->folder = code->own;
	if (ft_folder_launch(plan->folder, problem, traits, config, &plan->launch, &plan->error) < 0 ||
	        ft_folder_defines(plan->folder, problem, traits, config, &plan->defines, &plan->error) < 0) {
		plan->failed = true;
		return;
	}
	for (uint32_t i = 0; i < plan->launch.count; i++) {
		const struct ft_folder_arguments *arguments = &plan->launch.step[i].arguments;
		for (uint32_t j = 0; j < arguments->count; j++)
			ft_cell_set(&plan->cell[i][j], &arguments->argument[j]);
	}
}

/* What two that have the same code may still differ in. */
static void describe(const void *of, char *text, size_t size)
{
	const struct plan *plan = of;
	size_t length = 0;
	text[0] = '\0';
	for (uint32_t i = 0; i < plan->launch.count && length < size; i++) {
		const struct ft_folder_step *step = &plan->launch.step[i];
		length += (size_t)snprintf(text + length, size - length,
		        "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %016" PRIx64 ";", step->symbol, step->grid[0],
		        step->grid[1], step->grid[2], XXH3_64bits(plan->cell[i], sizeof(plan->cell[i])));
	}
}

struct blocks {
	block_function *function;
	void *argument[FT_FOLDER_ARGUMENTS_MAX];
	const uint64_t *grid;
	uint64_t count, at_once;
	_Atomic uint64_t next;
};

static void run_blocks(void *context, uint32_t worker)
{
	struct blocks *blocks = context;
	(void)worker;
	for (;;) {
		uint64_t first = atomic_fetch_add(&blocks->next, blocks->at_once);
		if (first >= blocks->count)
			return;
		uint64_t end =
		        blocks->count - first > blocks->at_once ? first + blocks->at_once : blocks->count;
		for (uint64_t i = first; i < end; i++) {
			const int64_t block[3] = {(int64_t)(i % blocks->grid[0]),
			        (int64_t)(i / blocks->grid[0] % blocks->grid[1]),
			        (int64_t)(i / blocks->grid[0] / blocks->grid[1])};
			blocks->function(blocks->argument, block);
		}
	}
}

static void run(struct ft_pool *pool, const void *of, void *const *data, uint64_t rows)
{
	const struct plan *plan = of;
	(void)rows;
	for (uint32_t i = 0; i < plan->launch.count; i++) {
		const struct ft_folder_step *step = &plan->launch.step[i];
		struct blocks blocks = {.function = plan->function[i],
		        .grid = step->grid,
		        .count = step->grid[0] * step->grid[1] * step->grid[2]};
		uint32_t threads = ft_pool_threads(pool);
		for (uint32_t j = 0; j < step->arguments.count; j++) {
			const struct ft_folder_argument *argument = &step->arguments.argument[j];
			/* Functions read what is no buffer, and never write to it. */
			blocks.argument[j] = argument->is_buffer ? data[argument->buffer]
			                                         : (void *)(uintptr_t)&plan->cell[i][j];
		}
		blocks.at_once = blocks.count / ((uint64_t)PARTS * threads) + 1;
		threads = blocks.count < threads ? (uint32_t)blocks.count : threads;
		ft_pool_run(pool, threads, run_blocks, &blocks);
	}
}

struct ft_kernel_cpu *cpu_folder_code(
        const struct ft_folder *folder, const char *compiler, struct ft_error *error)
{
	struct {
		struct ft_kernel_cpu code; /* first: who has it frees all */
		char source[FT_HASH_SIZE];
	} *made = NULL;
	const struct ft_folder_source *source = ft_folder_source(folder, "cpu");
	char words[FT_HASH_SIZE + 300];
	if (!source) {
		ft_fail(error, FT_E_UNAVAILABLE, "%s has no source for a CPU",
		        ft_folder_kernel(folder)->name);
		return NULL;
	}
	made = calloc(1, sizeof(*made));
	if (!made) {
		ft_fail(error, FT_E_MEMORY, "no memory for a kernel");
		return NULL;
	}
	made->code = (struct ft_kernel_cpu){.name = ft_folder_kernel(folder)->name,
	        .source = made->source,
	        .own = folder,
	        .plan_size = sizeof(struct plan),
	        .resolve = resolve,
	        .describe = describe,
	        .run = run};
	snprintf(words, sizeof(words), "%s %s", source->hash, compiler);
	ft_hash_text(words, strlen(words), made->source);
	return &made->code;
}

/* ---- a sweep ---- */

int cpu_folder_open(struct cpu *cpu, struct ft_error *error)
{
	struct cpu_folder *own = calloc(1, sizeof(*own));
	if (!own)
		return ft_fail(error, FT_E_MEMORY, "no memory for a sweep");
	cpu->folder = own;
	if (cpu_build_open(&own->build, cpu->code->own, (unsigned)cpu->device.traits.units, error) < 0)
		return -1;
	/* Steps and their arguments are the same for all configs; only numbers differ. */
	for (size_t i = 0; i < cpu->known; i++) {
		const struct plan *plan =
		        (const struct plan *)(const void *)(cpu->plan + i * cpu->code->plan_size);
		if (!plan->failed)
			return cpu_build_write_steps(&own->build, &plan->launch, error);
	}
	*error = ((const struct plan *)(const void *)cpu->plan)->error;
	return -1;
}

void cpu_folder_close(struct cpu *cpu)
{
	struct cpu_folder *own = cpu->folder;
	if (!own)
		return;
	for (size_t i = 0; i < cpu->count; i++) {
		struct plan *plan = (struct plan *)(void *)(cpu->plan + i * cpu->code->plan_size);
		if (plan->library)
			dlclose(plan->library);
	}
	cpu_build_close(&own->build);
	free(own);
	cpu->folder = NULL;
}

int cpu_folder_build_start(struct cpu *cpu, size_t index, struct ft_error *error)
{
	const struct plan *plan =
	        (const struct plan *)(const void *)(cpu->plan + index * cpu->code->plan_size);
	char library[64];
	if (plan->failed) {
		cpu->pending[index] = ++cpu->started;
		return 0;
	}
	snprintf(library, sizeof(library), "%zu.so", index);
	return cpu_build_steps(&cpu->folder->build, index, &plan->defines, library, error);
}

/* Two that are alike to the byte, and are launched alike, are the same. */
static int hash_library(const char *path, const void *plan, char hash[FT_HASH_SIZE], struct ft_error *error)
{
	XXH3_state_t *state = XXH3_createState();
	int file = open(path, O_RDONLY | O_CLOEXEC);
	char words[512];
	char block[8192];
	ssize_t got = -1;
	if (state && file >= 0) {
		XXH3_128bits_reset(state);
		while ((got = read(file, block, sizeof(block))) > 0)
			XXH3_128bits_update(state, block, (size_t)got);
	}
	if (file >= 0)
		close(file);
	if (got < 0) {
		XXH3_freeState(state);
		return ft_fail_errno(error, errno, "cannot read %s", path);
	}
	describe(plan, words, sizeof(words));
	XXH3_128bits_update(state, words, strlen(words));
	const XXH128_hash_t sum = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	snprintf(hash, FT_HASH_SIZE, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64, (uint64_t)sum.low64);
	return 0;
}

static int take_library(struct cpu *cpu, size_t index, struct ft_built *built)
{
	struct plan *plan = (struct plan *)(void *)(cpu->plan + index * cpu->code->plan_size);
	char path[320];
	snprintf(path, sizeof(path), "%s/%zu.so", cpu->folder->build.where, index);
	if (hash_library(path, plan, built->code, &built->error) < 0)
		return -1;
	plan->library = ft_expect_load(path, &built->error);
	(void)unlink(path);
	if (!plan->library)
		return -1;
	for (uint32_t i = 0; i < plan->launch.count; i++) {
		char symbol[32];
		snprintf(symbol, sizeof(symbol), "flytune_step_%" PRIu32, i);
		*(void **)&plan->function[i] = dlsym(plan->library, symbol);
		if (!plan->function[i])
			return ft_fail(&built->error, FT_E_UNAVAILABLE, "%s is not in it", symbol);
	}
	return 0;
}

int cpu_folder_build_wait(struct cpu *cpu, struct ft_built *built, struct ft_error *error)
{
	struct cc_done done;
	for (size_t i = 0; i < cpu->count; i++) {
		if (cpu->pending[i] == 0)
			continue;
		cpu->pending[i] = 0;
		*built = (struct ft_built){.index = i, .failed = true};
		built->error =
		        ((const struct plan *)(const void *)(cpu->plan + i * cpu->code->plan_size))->error;
		return 1;
	}
	int got = cc_wait(cpu->folder->build.cc, cpu->backend.deadline_ns, &done, error);
	if (got != 1)
		return got;
	*built = (struct ft_built){
	        .index = done.tag, .failed = done.failed, .build_ns = done.build_ns, .error = done.error};
	if (!built->failed && take_library(cpu, done.tag, built) < 0)
		built->failed = true;
	if (!built->failed)
		cpu->built = done.tag;
	return 1;
}

/* ---- the reference ---- */

int cpu_folder_expect(struct cpu *cpu, const struct ft_problem *problem, struct ft_error *error)
{
	const void *data[FT_TENSORS_MAX];
	double *want[FT_TENSORS_MAX];
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		data[i] = cpu->array[i].kept ? cpu->array[i].kept : cpu->array[i].verified;
	int code = ft_expect(
	        &cpu->folder->build, problem, &cpu->tensors, data, cpu->pool, cpu->until_ns, want, error);
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		cpu->array[i].want = want[i];
	return code;
}
