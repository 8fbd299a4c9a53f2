/* What is verified and timed with. */
#include "kernels/runner/cpu/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/compare.h"

enum {
	ROOM_PART = 2, /* of the free memory, a sweep takes at most one part in so many */
	SETS_MOST = 1 << 20,
	HUGE_PAGE = 2 << 20,
};

static size_t common_divisor(size_t a, size_t b)
{
	while (b > 0) {
		size_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Visits every set in turn, the next never near the last. */
static size_t choose_step(size_t sets)
{
	size_t step = (size_t)((double)sets * 0.618) + 1;
	while (common_divisor(sets, step) != 1)
		step++;
	return step;
}

/* ---- how large ---- */

/* It is filled before each launch, from a copy of what it is filled with. */
static bool is_kept(const struct ft_tensor *tensor)
{
	return tensor->role == FT_INOUT || tensor->is_filled;
}

static int measure(const struct ft_tensor *tensor, struct array *array, struct ft_error *error)
{
	const size_t page = PAGE;
	const size_t element = ft_dtype_size(tensor->type);
	*array = (struct array){.row = tensor->length * element, .data = ft_tensor_span(tensor)};
	if (__builtin_mul_overflow(tensor->stride, element, &array->stride) || array->data > SIZE_MAX / 64 ||
	        array->stride > SIZE_MAX / 64)
		return ft_fail(error, FT_E_BAD_VALUE, "the problem is larger than any memory");
	array->size = (array->data + (size_t)2 * GUARD + page - 1) / page * page;
	array->cold = tensor->role != FT_INPUT_SHARED && tensor->role != FT_SCRATCH;
	return 0;
}

int cpu_lay_out(struct cpu *cpu, struct ft_error *error)
{
	const size_t line = LINE;
	cpu->over_rows = ft_tensors_are_rows(&cpu->tensors);
	cpu->is_restored = false;
	cpu->slot = 0;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		struct array *array = &cpu->array[i];
		if (measure(tensor, array, error) < 0)
			return -1;
		cpu->is_restored = cpu->is_restored || is_kept(tensor);
		if (!array->cold)
			continue;
		array->slot = cpu->slot;
		cpu->slot += (array->data + line - 1) / line * line;
	}
	for (uint32_t i = cpu->tensors.count; i-- > 0;) {
		if (cpu_is_output(cpu->tensors.tensor[i].role))
			cpu->m = cpu->tensors.tensor[i].rows;
	}
	return cpu->slot > 0 ? 0
	                     : ft_fail(error, FT_E_BAD_VALUE, "the kernel has no array that is timed cold");
}

uint64_t cpu_touched(const struct cpu *cpu)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		if (cpu->array[i].cold)
			bytes += cpu->tensors.tensor[i].rows * (uint64_t)cpu->array[i].row;
	}
	return bytes > 0 ? bytes : 1;
}

/* Of all arrays that are verified with. */
static uint64_t verified_size(const struct cpu *cpu)
{
	uint64_t size = 0;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		size += cpu->array[i].size * (is_kept(tensor) ? 2 : 1);
		/* What the outputs have to be, and what is read to tell, in float64. */
		if (!cpu->over_rows)
			size += tensor->rows * tensor->length * sizeof(double);
	}
	return size;
}

int cpu_choose_sets(struct cpu *cpu, uint64_t cap, struct ft_error *error)
{
	const uint64_t verified = verified_size(cpu);
	const uint64_t rest = 2 * (uint64_t)HUGE_PAGE; /* by which an arena is larger than what it holds */
	const uint64_t cache = cpu->device.traits.cache;
	uint64_t room = (ft_host_free_memory("") + cpu->arena.backed) / ROOM_PART;
	if (cap != 0 && cap < room)
		room = cap;
	if (verified > room)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "the problem takes %" PRIu64 " MiB, and a sweep may use %" PRIu64 " MiB",
		        verified / MEBIBYTE, room / MEBIBYTE);
	uint64_t fit = room - verified > rest ? (room - verified - rest) / cpu->slot : 0;
	uint64_t most = COLD_MOST * cache / cpu_touched(cpu) + 2;
	most = most < SETS_MOST ? most : SETS_MOST;
	cpu->shared = fit == 0;
	cpu->most = cpu->shared ? 1 : most < fit ? most : fit;
	uint64_t first = COLD_LEAST * cache / cpu_touched(cpu) + 2;
	cpu->sets = first < cpu->most ? first : cpu->most;
	/* What a sweep before needed, this one will. */
	while (!cpu->shared && 2 * cpu->sets <= cpu->most && 2 * cpu->sets * cpu->slot <= cpu->arena.backed)
		cpu->sets *= 2;
	cpu->step = choose_step(cpu->sets);
	cpu->looked = false;
	return 0;
}

/* ---- memory ---- */

static char *map_memory(size_t size, struct ft_error *error)
{
	void *memory =
	        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED) {
		ft_fail_errno(error, errno, "cannot get %zu MiB", size / MEBIBYTE);
		return NULL;
	}
	/* Refused where there are none: then it is slower, for all alike. */
	(void)madvise(memory, size, MADV_HUGEPAGE);
	return memory;
}

void cpu_free_arena(struct arena *arena)
{
	if (arena->memory)
		munmap(arena->memory, arena->size);
	*arena = (struct arena){0};
}

void cpu_use_sets(struct cpu *cpu, size_t sets)
{
	struct arena *arena = &cpu->arena;
	cpu->sets = sets;
	cpu->step = choose_step(sets);
	cpu->at = 0;
	if (cpu->shared || sets <= arena->made)
		return;
	cpu_fill_sets(cpu, arena->made, sets);
	if (cpu->ended)
		return;
	arena->made = sets;
	arena->backed = sets * cpu->slot > arena->backed ? sets * cpu->slot : arena->backed;
}

/* The memory that is there serves if it is room enough, and no more of it taken than this sweep may have. */
int cpu_prepare_arena(struct cpu *cpu, struct ft_error *error)
{
	struct arena *arena = &cpu->arena;
	const size_t wanted = cpu->most * cpu->slot;
	if (!arena->memory || arena->size < wanted || arena->backed > wanted + HUGE_PAGE) {
		cpu_free_arena(arena);
		size_t size = (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
		arena->memory = map_memory(size, error);
		if (!arena->memory)
			return -1;
		arena->size = size;
	}
	/* What served before may have been written to by what it served. */
	arena->made = 0;
	cpu_use_sets(cpu, cpu->sets);
	return 0;
}

static char *take(char **memory, size_t size)
{
	char *row = *memory + GUARD;
	*memory += size;
	return row;
}

int cpu_allocate(struct cpu *cpu, struct ft_error *error)
{
	size_t size = 0;
	bool missing = false;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		size += cpu->array[i].size * (is_kept(&cpu->tensors.tensor[i]) ? 2 : 1);
	}
	cpu->memory = map_memory(size, error);
	if (!cpu->memory)
		return -1;
	cpu->memory_size = size;
	cpu->launched = false;
	char *memory = cpu->memory;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		struct array *array = &cpu->array[i];
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		array->verified = take(&memory, array->size);
		if (is_kept(tensor))
			array->kept = take(&memory, array->size);
		array->hash = calloc(AUDIT_INPUTS * cpu_pieces_of(array->size), sizeof(*array->hash));
		missing = missing || !array->hash;
	}
	return missing ? ft_fail(error, FT_E_MEMORY, "no memory for the hashes of the arrays") : 0;
}

void cpu_free_arrays(struct cpu *cpu)
{
	if (cpu->memory_size > 0)
		munmap(cpu->memory, cpu->memory_size);
	cpu->memory = NULL;
	cpu->memory_size = 0;
	for (size_t i = 0; i < FT_TENSORS_MAX; i++) {
		free(cpu->array[i].hash);
		free(cpu->array[i].want);
	}
	memset(cpu->array, 0, sizeof(cpu->array));
	memset(cpu->data, 0, sizeof(cpu->data));
}
