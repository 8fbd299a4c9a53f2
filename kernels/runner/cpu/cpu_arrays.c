/* What is verified and timed with, and work on it by all cores. */
#include "kernels/runner/cpu/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/compare.h"
#include "proto/clock.h"

enum {
	ROOM_PART = 2, /* of the free memory, a sweep takes at most one part in so many */
	SETS_MOST = 1 << 20,
	HUGE_PAGE = 2 << 20,
};

static const uint64_t cools_ns = 10000000; /* without work; then clocks have to be brought up again */

/* ---- parallel work on the arrays ---- */

struct parallel {
	_Atomic size_t next;
	size_t count;
	uint64_t until_ns; /* 0: to the end */
	atomic_bool ended; /* it passed before all was done */
	void (*piece)(void *context, size_t index);
	void *context;
};

static void parallel_work(void *context, uint32_t worker)
{
	(void)worker;
	struct parallel *parallel = context;
	for (;;) {
		size_t index = atomic_fetch_add(&parallel->next, 1);
		if (index >= parallel->count)
			return;
		if (parallel->until_ns != 0 && ft_monotonic_ns() >= parallel->until_ns) {
			atomic_store(&parallel->ended, true);
			return;
		}
		parallel->piece(parallel->context, index);
	}
}

/* Work that began then has just ended. */
void cpu_note_work(struct cpu *cpu, uint64_t began_ns)
{
	if (began_ns > cpu->worked_ns + cools_ns)
		cpu->hot_ns = began_ns;
	cpu->worked_ns = ft_clock_ns();
}

/* As far as the deadline lets it: cpu->ended tells if that was not to the end. */
void cpu_in_parallel(struct cpu *cpu, size_t count, void (*piece)(void *context, size_t index), void *context)
{
	uint64_t began = ft_clock_ns();
	struct parallel parallel = {
	        .count = count, .until_ns = cpu->until_ns, .piece = piece, .context = context};
	atomic_init(&parallel.next, 0);
	if (count > 1)
		ft_pool_run(cpu->pool, ft_pool_threads(cpu->pool), parallel_work, &parallel);
	else
		parallel_work(&parallel, 0);
	cpu->ended = cpu->ended || atomic_load(&parallel.ended);
	cpu_note_work(cpu, began);
}

/* ---- filling ---- */

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

/* In (-2, 2), never 0. */
static double uniform(uint64_t random)
{
	return ((double)(random >> 11) + 0.5) * 0x1p-51 - 2;
}

/* An element in one of the odd rows, of one that is drawn. Squares stay within f32's range, and sums of a million
 * too. */
static double odd_element(enum ft_dtype type, uint64_t kind, uint64_t random, double value)
{
	const bool half = type == FT_F16;
	switch (kind % 6) {
	case 0: /* wide: from far below 1 to far above in one row */
		return ldexp(value, half ? (int)(random % 21) - 10 : (int)(random % 41) - 20);
	case 1: /* large */
		return value * (half ? 0x1p14 : 1e12);
	case 2: /* tiny: eps decides; subnormal in f16 */
		return value * (half ? 0x1p-20 : 1e-15);
	case 3: /* few that are not zero */
		return random % 16 == 0 ? value : 0;
	case 4: /* zero */
		return 0;
	default: /* far from 0, beside how they differ */
		return 1000 + value;
	}
}

struct fill {
	const struct ft_tensor *tensor;
	char *data; /* row 0 */
	size_t first, rows, rows_a_piece;
	uint64_t seed;
};

static void fill_piece(void *context, size_t index)
{
	const struct fill *fill = context;
	const struct ft_tensor *tensor = fill->tensor;
	size_t first = fill->first + index * fill->rows_a_piece, end = fill->first + fill->rows;
	end = end - first > fill->rows_a_piece ? first + fill->rows_a_piece : end;
	for (size_t row = first; row < end; row++) {
		const bool odd = tensor->fill == FT_FILL_ROWS && row < ODD_ROWS;
		uint64_t state = mix(fill->seed ^ mix(row));
		for (size_t i = 0; i < tensor->length; i++) {
			uint64_t random = mix(state + i);
			double value = uniform(random);
			if (odd)
				value = odd_element(tensor->type, row, mix(random), value);
			ft_store(tensor->type, fill->data, row * tensor->stride + i, value);
		}
	}
}

size_t cpu_rows_a_piece(const struct cpu *cpu)
{
	size_t rows = PIECE / (cpu->extent.row + 1);
	return rows > 0 ? rows : 1;
}

void cpu_fill_rows(struct cpu *cpu, size_t first, size_t rows)
{
	struct fill fill = {.tensor = &cpu->tensors.tensor[cpu->in],
	        .data = cpu_verified_in(cpu),
	        .first = first,
	        .rows = rows,
	        .rows_a_piece = cpu_rows_a_piece(cpu),
	        .seed = cpu->seed};
	cpu_in_parallel(cpu, (rows + fill.rows_a_piece - 1) / fill.rows_a_piece, fill_piece, &fill);
}

struct blocks {
	char *to; /* of a poison */
	const char *from;
	size_t size;
	uint64_t *hash;
	atomic_bool changed;
};

static void poison_block(void *context, size_t index)
{
	const struct blocks *blocks = context;
	size_t offset = index * PIECE;
	memset(blocks->to + offset, POISON, blocks->size - offset > PIECE ? PIECE : blocks->size - offset);
}

void cpu_poison(struct cpu *cpu, char *array, size_t size)
{
	struct blocks blocks = {.to = array, .size = size};
	cpu_in_parallel(cpu, cpu_pieces_of(size), poison_block, &blocks);
}

/* The pattern to a piece of an arena's inputs, where it is not there yet or no longer; and an output that is there. */
static void spread_piece(void *context, size_t index)
{
	const struct arena *arena = context;
	char *input = arena->memory + index * PIECE;
	if (index * PIECE >= arena->filled) {
		memcpy(input, arena->pattern, PIECE);
		memset(input + arena->room, 0, PIECE);
	} else if (memcmp(input, arena->pattern, PIECE) != 0) {
		memcpy(input, arena->pattern, PIECE);
	}
}

static void hash_block(void *context, size_t index)
{
	const struct blocks *blocks = context;
	size_t offset = index * PIECE;
	size_t size = blocks->size - offset > PIECE ? PIECE : blocks->size - offset;
	blocks->hash[index] = XXH3_64bits(blocks->from + offset, size);
}

void cpu_note_hashes(struct cpu *cpu, const char *array, size_t size, uint64_t *hash)
{
	struct blocks blocks = {.from = array, .size = size, .hash = hash};
	cpu_in_parallel(cpu, cpu_pieces_of(size), hash_block, &blocks);
}

static void check_block(void *context, size_t index)
{
	struct blocks *blocks = context;
	size_t offset = index * PIECE;
	size_t size = blocks->size - offset > PIECE ? PIECE : blocks->size - offset;
	if (XXH3_64bits(blocks->from + offset, size) != blocks->hash[index])
		atomic_store(&blocks->changed, true);
}

bool cpu_has_changed(struct cpu *cpu, const char *array, size_t size, uint64_t *hash)
{
	struct blocks blocks = {.from = array, .size = size, .hash = hash};
	cpu_in_parallel(cpu, cpu_pieces_of(size), check_block, &blocks);
	return atomic_load(&blocks.changed);
}

bool cpu_is_poison(const char *from, size_t size)
{
	size_t i = 0;
	for (; size - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
		uint64_t word;
		memcpy(&word, from + i, sizeof(word));
		if (word != UINT64_MAX)
			return false;
	}
	for (; i < size; i++) {
		if ((unsigned char)from[i] != POISON)
			return false;
	}
	return true;
}

/* ---- memory ---- */

static size_t common_divisor(size_t a, size_t b)
{
	while (b > 0) {
		size_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Visits every pair in turn, the next never near the last. */
static size_t choose_step(size_t sets)
{
	size_t step = (size_t)((double)sets * 0.618) + 1;
	while (common_divisor(sets, step) != 1)
		step++;
	return step;
}

int cpu_choose_sets(struct cpu *cpu, uint64_t cap, struct ft_error *error)
{
	const uint64_t verified = (uint64_t)cpu->extent.input + cpu->extent.size;
	const uint64_t timed = 2 * (uint64_t)cpu->extent.slot;
	const uint64_t rest = 2 * (uint64_t)HUGE_PAGE; /* by which an arena is larger than what it holds */
	const uint64_t cache = cpu->device.traits.cache;
	uint64_t room = (ft_host_free_memory("") + 2 * cpu->arena.filled) / ROOM_PART;
	if (cap != 0 && cap < room)
		room = cap;
	if (verified > room)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "the problem takes %" PRIu64 " MiB, and a sweep may use %" PRIu64 " MiB",
		        verified / MEBIBYTE, room / MEBIBYTE);
	uint64_t fit = room - verified > rest ? (room - verified - rest) / timed : 0;
	uint64_t most = COLD_MOST * cache / cpu_touched(cpu) + 2;
	most = most < SETS_MOST ? most : SETS_MOST;
	cpu->shared = fit == 0;
	cpu->most = cpu->shared ? 1 : most < fit ? most : fit;
	uint64_t first = COLD_LEAST * cache / cpu_touched(cpu) + 2;
	cpu->sets = first < cpu->most ? first : cpu->most;
	/* What a sweep before needed, this one will. */
	while (!cpu->shared && 2 * cpu->sets <= cpu->most &&
	        2 * cpu->sets * cpu->extent.slot <= cpu->arena.filled)
		cpu->sets *= 2;
	cpu->step = choose_step(cpu->sets);
	cpu->looked = false;
	return 0;
}

int cpu_measure_extent(struct cpu *cpu, struct ft_error *error)
{
	const struct ft_tensors *tensors = &cpu->tensors;
	const size_t page = PAGE;
	const size_t line = LINE;
	struct extent *extent = &cpu->extent;
	cpu->in = ft_tensors_find(tensors, FT_INPUT_ROWS);
	cpu->out = ft_tensors_find(tensors, FT_OUTPUT);
	if (!ft_tensors_known(tensors))
		return ft_fail(error, FT_E_BAD_VALUE,
		        "this runner knows kernels with one output and one input of the same shape");
	const struct ft_tensor *output = &tensors->tensor[cpu->out];
	cpu->m = output->rows;
	extent->element = ft_dtype_size(output->type);
	extent->row = output->length * extent->element;
	extent->data = ft_tensor_span(output);
	if (__builtin_mul_overflow(output->stride, extent->element, &extent->stride) ||
	        extent->data > SIZE_MAX / 8 || extent->stride > SIZE_MAX / 8)
		return ft_fail(error, FT_E_BAD_VALUE, "the problem is larger than any memory");
	extent->size = (extent->data + (size_t)2 * GUARD + page - 1) / page * page;
	extent->input = (extent->data + extent->stride + (size_t)2 * GUARD + page - 1) / page * page;
	extent->slot = (extent->data + line - 1) / line * line;
	return 0;
}

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
	free(arena->pattern);
	arena->pattern = arena->memory = NULL;
	arena->room = arena->filled = arena->size = 0;
}

void cpu_use_sets(struct cpu *cpu, size_t sets)
{
	struct arena *arena = &cpu->arena;
	const size_t pieces = cpu->shared ? 0 : cpu_pieces_of(sets * cpu->extent.slot);
	cpu->sets = sets;
	cpu->step = choose_step(sets);
	cpu->at = 0;
	if (pieces * PIECE <= arena->filled)
		return;
	cpu_in_parallel(cpu, pieces, spread_piece, arena);
	if (!cpu->ended)
		arena->filled = pieces * PIECE;
}

/* The one that is there serves if there is room enough in it and no more memory taken than this sweep may have. */
int cpu_prepare_arena(struct cpu *cpu, struct ft_error *error)
{
	struct arena *arena = &cpu->arena;
	const size_t wanted = cpu->most * cpu->extent.slot;
	if (!arena->memory || arena->room < wanted || arena->filled > wanted + HUGE_PAGE) {
		cpu_free_arena(arena);
		size_t room = (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
		arena->pattern = malloc(PIECE);
		if (!arena->pattern)
			return ft_fail(error, FT_E_MEMORY, "no memory for the arrays to time with");
		arena->memory = map_memory(2 * room + PAGE, error);
		if (!arena->memory)
			return -1;
		arena->room = room;
		arena->size = 2 * room + PAGE;
	}
	const enum ft_dtype type = cpu->tensors.tensor[cpu->in].type;
	const bool usable = arena->filled > 0 && arena->type == type;
	uint64_t state = mix(~cpu->seed);
	for (size_t i = 0; i < PIECE / cpu->extent.element && !usable; i++)
		ft_store(type, arena->pattern, i, uniform(mix(state + i)));
	/* One that served before may have been written to by what it served. */
	cpu_in_parallel(cpu, arena->filled / PIECE, spread_piece, arena);
	arena->type = type;
	arena->made += !usable;
	cpu_use_sets(cpu, cpu->sets);
	return 0;
}

int cpu_allocate(struct cpu *cpu, struct ft_error *error)
{
	const struct extent *extent = &cpu->extent;
	bool missing = false;
	cpu->memory = map_memory(extent->input + extent->size, error);
	if (!cpu->memory)
		return -1;
	cpu->memory_size = extent->input + extent->size;
	cpu->launched = false;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		struct shared_input *input = &cpu->shared_input[i];
		if (tensor->role != FT_INPUT_SHARED)
			continue;
		input->size =
		        ((tensor->rows - 1) * tensor->stride + tensor->length) * ft_dtype_size(tensor->type);
		input->data = aligned_alloc(LINE, (input->size + LINE - 1) / LINE * LINE);
		missing = missing || !input->data;
		cpu->data[i] = input->data;
	}
	cpu->hash = calloc(cpu_pieces_of(extent->input), sizeof(*cpu->hash));
	for (size_t i = 0; i < AUDIT_SHIFTS; i++) {
		cpu->right[i] = calloc(cpu_pieces_of(extent->size), sizeof(*cpu->right[i]));
		missing = missing || !cpu->right[i];
	}
	if (!cpu->hash || missing)
		return ft_fail(error, FT_E_MEMORY, "no memory for the inputs that all rows share");
	return 0;
}

void cpu_fill_all(struct cpu *cpu)
{
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		struct shared_input *input = &cpu->shared_input[i];
		struct fill fill = {.tensor = tensor,
		        .data = input->data,
		        .rows = tensor->rows,
		        .rows_a_piece = tensor->rows,
		        .seed = ~cpu->seed ^ mix(i)};
		if (!input->data)
			continue;
		fill_piece(&fill, 0);
		input->hash = XXH3_64bits(input->data, input->size);
	}

	char *verified = cpu_verified_in(cpu);
	cpu_poison(cpu, verified - GUARD, cpu->extent.input);
	cpu_fill_rows(cpu, 0, cpu->m + 1);
	cpu_note_hashes(cpu, verified - GUARD, cpu->extent.input, cpu->hash);
}

const char *cpu_changed_input(const struct cpu *cpu)
{
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct shared_input *input = &cpu->shared_input[i];
		if (input->data && XXH3_64bits(input->data, input->size) != input->hash)
			return cpu->tensors.tensor[i].name;
	}
	return NULL;
}

void cpu_free_arrays(struct cpu *cpu)
{
	if (cpu->memory_size > 0)
		munmap(cpu->memory, cpu->memory_size);
	cpu->memory = NULL;
	cpu->memory_size = 0;
	for (size_t i = 0; i < FT_TENSORS_MAX; i++)
		free(cpu->shared_input[i].data);
	memset(cpu->shared_input, 0, sizeof(cpu->shared_input));
	memset(cpu->data, 0, sizeof(cpu->data));
	free(cpu->hash);
	cpu->hash = NULL;
	for (size_t i = 0; i < AUDIT_SHIFTS; i++) {
		free(cpu->right[i]);
		cpu->right[i] = NULL;
	}
}
