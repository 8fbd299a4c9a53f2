/* What is in the arrays: inputs, poison, and hashes of either. Work on all cores. */
#include "kernels/runner/cpu/internal.h"

#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/runner/fill.h"
#include "kernels/runner/parallel.h"

static const uint64_t cools_ns = 10000000; /* without work; then clocks have to be brought up again */

/* ---- parallel work on the arrays ---- */

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
	if (!ft_parallel(cpu->pool, cpu->until_ns, count, piece, context))
		cpu->ended = true;
	cpu_note_work(cpu, began);
}

/* ---- filling ---- */

size_t cpu_rows_a_piece(const struct array *array)
{
	size_t rows = PIECE / (array->row + 1);
	return rows > 0 ? rows : 1;
}

static void fill_rows(struct cpu *cpu, uint32_t tensor, char *data, bool even, size_t first, size_t rows)
{
	struct ft_fill_rows fill = {.tensor = &cpu->tensors.tensor[tensor],
	        .even = even,
	        .data = data,
	        .first = first,
	        .rows = rows,
	        .rows_a_piece = cpu_rows_a_piece(&cpu->array[tensor]),
	        .seed = ft_fill_seed(cpu->seed, tensor)};
	cpu_in_parallel(cpu, (rows + fill.rows_a_piece - 1) / fill.rows_a_piece, ft_fill_piece, &fill);
}

void cpu_fill_rows(struct cpu *cpu, uint32_t tensor, size_t first, size_t rows)
{
	const struct array *array = &cpu->array[tensor];
	fill_rows(cpu, tensor, array->kept ? array->kept : array->verified, false, first, rows);
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

struct copy {
	char *to;
	const char *from;
	size_t size;
};

static void copy_block(void *context, size_t index)
{
	const struct copy *copy = context;
	size_t offset = index * PIECE;
	memcpy(copy->to + offset, copy->from + offset,
	        copy->size - offset > PIECE ? PIECE : copy->size - offset);
}

static void copy(struct cpu *cpu, char *to, const char *from, size_t size)
{
	struct copy all = {.to = to, .from = from, .size = size};
	cpu_in_parallel(cpu, cpu_pieces_of(size), copy_block, &all);
}

void cpu_fill_inputs(struct cpu *cpu)
{
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct array *array = &cpu->array[i];
		char *data = array->kept ? array->kept : array->verified;
		if (!array->kept && !cpu_is_input(cpu->tensors.tensor[i].role))
			continue;
		cpu_poison(cpu, data - GUARD, array->size);
		cpu_fill_rows(cpu, i, 0, cpu->tensors.tensor[i].rows);
		if (!array->kept)
			cpu_note_hashes(cpu, data - GUARD, array->size, array->hash);
	}
}

void cpu_restore_verified(struct cpu *cpu)
{
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct array *array = &cpu->array[i];
		if (array->kept)
			copy(cpu, array->verified - GUARD, array->kept - GUARD, array->size);
	}
}

void cpu_renew_outputs(struct cpu *cpu)
{
	cpu_restore_verified(cpu);
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct array *array = &cpu->array[i];
		if (!array->kept && !cpu_is_input(cpu->tensors.tensor[i].role))
			cpu_poison(cpu, array->verified - GUARD, array->size);
	}
}

/* ---- sets to time with ---- */

void cpu_restore_set(struct cpu *cpu, size_t set)
{
	cpu_use_set(cpu, set);
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct array *array = &cpu->array[i];
		if (array->kept)
			memcpy(cpu->data[i], array->kept, array->data);
	}
}

/* Numbers from end to end, whatever rows are made of them: those of a piece again and again. */
static void fill_even(struct cpu *cpu, uint32_t tensor, char *data)
{
	const struct array *array = &cpu->array[tensor];
	const struct ft_tensor *shape = &cpu->tensors.tensor[tensor];
	const size_t size = ft_dtype_size(shape->type);
	const size_t least = array->data < PIECE ? array->data : PIECE;
	struct ft_tensor flat = *shape;
	if (shape->fill == FT_FILL_INDEX) {
		fill_rows(cpu, tensor, data, true, 0, shape->rows);
		return;
	}
	flat.rows = 1;
	flat.length = flat.stride = least / size;
	ft_fill_piece(&(struct ft_fill_rows){.tensor = &flat,
	                      .even = true,
	                      .data = data,
	                      .rows = 1,
	                      .rows_a_piece = 1,
	                      .seed = ft_fill_seed(~cpu->seed, tensor)},
	        0);
	for (size_t done = least; done < array->data; done += least)
		memcpy(data + done, data, array->data - done < least ? array->data - done : least);
}

struct sets {
	struct cpu *cpu;
	size_t first, end;
	size_t at_once; /* sets that one piece of work copies, if they are small */
	size_t pieces;  /* else: of one set */
};

/* What lies in bytes [from, to) of a set, from set 0. Outputs are not copied; they only have to be there. */
static void copy_set(struct cpu *cpu, size_t set, size_t from, size_t to)
{
	char *memory = cpu->arena.memory + set * cpu->slot;
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct array *array = &cpu->array[i];
		const size_t begin = from > array->slot ? from : array->slot;
		const size_t end = to < array->slot + array->data ? to : array->slot + array->data;
		if (!array->cold || begin >= end)
			continue;
		if (cpu->tensors.tensor[i].role != FT_OUTPUT)
			memcpy(memory + begin, cpu->arena.memory + begin, end - begin);
		else if (set * cpu->slot + end > cpu->arena.backed)
			memset(memory + begin, 0, end - begin);
	}
}

static void copy_sets(void *context, size_t index)
{
	const struct sets *sets = context;
	const size_t first = sets->first + index / sets->pieces * sets->at_once;
	const size_t end = sets->end - first > sets->at_once ? first + sets->at_once : sets->end;
	const size_t from = index % sets->pieces * PIECE;
	for (size_t set = first; set < end; set++)
		copy_set(sets->cpu, set, from, sets->pieces > 1 ? from + PIECE : sets->cpu->slot);
}

void cpu_fill_sets(struct cpu *cpu, size_t first, size_t end)
{
	const size_t small = cpu->slot < PIECE ? PIECE / cpu->slot : 1;
	struct sets sets = {.cpu = cpu, .end = end, .at_once = small, .pieces = cpu_pieces_of(cpu->slot)};
	for (uint32_t i = 0; first == 0 && i < cpu->tensors.count; i++) {
		if (!cpu->array[i].cold)
			continue;
		if (cpu->tensors.tensor[i].role == FT_OUTPUT)
			cpu_poison(cpu, cpu->arena.memory + cpu->array[i].slot, cpu->array[i].data);
		else
			fill_even(cpu, i, cpu->arena.memory + cpu->array[i].slot);
	}
	sets.first = first > 0 ? first : 1;
	if (sets.first < end)
		cpu_in_parallel(cpu, (end - sets.first + small - 1) / small * sets.pieces, copy_sets, &sets);
}
