#include "kernels/runner/load.h"
#include "kernels/runner/cpu/backend_cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/host.h"
#include "kernels/rmsnorm/reference.h"
#include "kernels/rmsnorm/rmsnorm_cpu.h"
#include "kernels/rmsnorm/rmsnorm_cpu_source.h"
#include "kernels/runner/cpu/measure_cpu.h"
#include "proto/clock.h"

/* METHOD.md gives the reasons for what is measured, and how. */
enum {
	TIMING_REVISION = 3, /* raised when the same machine would get other times */
	GUARD = 4096,        /* bytes before and after an array */
	POISON = 0xff,       /* NaN in every type */
	MEBIBYTE = 1 << 20,
	PIECE = 1 << 20,    /* bytes of a chunk of parallel work */
	ODD_ROWS = 32,      /* the first rows hold the odd magnitudes */
	IN_PLACE_ROWS = 16, /* checked in place */
	WARM_MS = 50,
	SETS_MOST = 1 << 20,
	ROOM_PART = 2,   /* of the free memory, a sweep takes at most one part in so many */
	COLD_LEAST = 4,  /* caches that the arrays to time with are as large as, at the least */
	COLD_ENOUGH = 8, /* where no launch was seen to be any faster in fewer */
	COLD_MOST = 16,
	WARM_PART = 2, /* of the last-level cache, which stays in it */
	COLD_RISE =
	        3, /* percent that a launch takes longer in twice the arrays where they are still too few */
	WARM_RISE = 10, /* than in a cache, where memory is what it waits for */
	COLD_TURNS = 3, /* in which that is looked at, as long as that is cheap */
	PAGE = 4096,
	HUGE_PAGE = 2 << 20,
	WINDOWS = 15, /* of a sample, where launches are short */
	WINDOWS_MOST = 64,
	STEAL_ROUGH = 10, /* percent of the processors that the host took away */
	AUDIT_SHIFTS = 2,
	LINE = 64,        /* bytes, of a cache */
	SETTLE_LEAST = 8, /* launches in a window of which one more, before it, is not too many */
};

static const uint64_t spread_ns = 1000000000; /* of the first rounds */
static const uint64_t sample_ns = 1000000;    /* of one sample, at least */
static const uint64_t patience_ns = 8000000;  /* spent on one that is disturbed, at most */
static const uint64_t look_ns = 100000000;    /* spent on each size of the arrays, at most */
static const uint64_t walk_ns = 100000000;    /* of that, on launches that only go through them once */
static const uint64_t cools_ns = 10000000;    /* without work; then clocks have to be brought up again */

/* One array of the problem: guards around m rows at the problem's stride. */
struct extent {
	size_t element;
	size_t row;    /* bytes of a row's elements */
	size_t stride; /* bytes from row to row */
	size_t data;   /* bytes from the first element to the last */
	size_t size;   /* with the guards, a whole number of pages: what is verified */
	size_t input;  /* the same of an input, which has one row more */
	size_t slot;   /* without, a whole number of cache lines: what is timed */
};

/* How one config is sampled. */
struct batch {
	uint64_t launches; /* a window; 0: not sized yet */
	uint32_t windows;  /* a sample */
};

/* What is timed with. It outlives a sweep: inputs are ordinary elements from end to end, whatever rows a problem
 * makes of them, and nothing reads the outputs. */
struct arena {
	char *pattern; /* of a piece of the inputs */
	char *memory;
	size_t room;   /* bytes for inputs, and as many for outputs behind them */
	size_t filled; /* of them, so many as there are; the rest takes no memory */
	size_t size;   /* as mapped */
	enum rmsnorm_dtype dtype;
	uint64_t made; /* for whoever counts what sweeps share */
};

/* A sample in the making: its windows lie between those of other configs. */
struct windows {
	uint64_t calm[WINDOWS_MOST];
	uint64_t rough[WINDOWS_MOST]; /* in which the scheduler took a core away */
	uint32_t calm_count;
	uint32_t rough_count;
	uint64_t spent;
};

struct cpu {
	struct ft_backend backend;
	struct ft_backend_device device;
	const struct ft_rmsnorm_cpu_rows *set;
	char self[512];
	const char *files[2];
	int *cpu; /* usable cores, device.traits.units of them */

	/* One sweep. */
	struct ft_pool *pool;
	struct ft_cpus before; /* the main thread's cores */
	bool pinned;
	size_t count;
	struct ft_rmsnorm_cpu_plan *plan;
	size_t *pending; /* the place of its build among those that were started; 0: none */
	size_t started;
	struct batch *batch;
	bool *sampled; /* the sample that is thrown away was taken */
	struct windows *windows;
	size_t standard;
	size_t built;      /* the last one */
	size_t warm_index; /* the default if it is right, else the first that is; count: none yet */
	struct rmsnorm_problem problem;
	struct extent extent;
	char *memory; /* the pair of arrays that is verified with */
	size_t memory_size;
	size_t sets; /* pairs of arrays to time with */
	size_t most; /* of them, by what memory there is */
	/* Whether they are enough was looked at: picoseconds a launch in what a cache holds, in half of them, and in all. */
	bool looked;
	uint64_t warm_ps, half_ps, whole_ps;
	size_t rows; /* of a pair that is timed: all of them but then */
	bool shared; /* memory was short: the one pair serves both */
	size_t at;   /* the pair that is next */
	size_t step; /* from one to the next, so that no prefetcher guesses it */
	char *weight;
	size_t weight_size;
	uint64_t *hash;                /* of the verified input, a piece each */
	uint64_t *right[AUDIT_SHIFTS]; /* of the output that belongs to it, read from that row on */
	size_t audited;                /* whose those are */
	uint64_t audits;               /* launches since */
	uint64_t weight_hash;
	bool launched;     /* something ran since input and weight were compared last */
	uint64_t until_ns; /* of work in parallel: the deadline, monotonic; 0: none */
	bool ended;        /* it passed in the middle of some */
	uint64_t seed;
	struct ft_clock clock;
	uint64_t floor_ps; /* an empty launch */
	struct ft_steal steal;
	uint64_t samples;
	uint64_t disturbed;

	/* Between sweeps. */
	struct arena arena;
	uint64_t hot_ns;    /* since when the cores have been at work */
	uint64_t worked_ns; /* until when */
};

static struct cpu *self_of(struct ft_backend *backend)
{
	return (struct cpu *)backend;
}

/* ---- the device ---- */

static int find_cores(struct cpu *cpu, const struct ft_allowance *allowance, struct ft_error *error)
{
	uint64_t units = cpu->device.traits.units;
	cpu->cpu = calloc(units, sizeof(*cpu->cpu));
	if (!cpu->cpu)
		return ft_fail(error, FT_E_MEMORY, "no memory for a list of cores");
	if (ft_cpus_list(&allowance->cpus, cpu->cpu, units) == units)
		return 0;
	free(cpu->cpu);
	cpu->cpu = NULL;
	return ft_fail(error, FT_E_SYSTEM, "the system does not tell which cores may be used");
}

static int cpu_open(struct ft_backend *backend, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	const struct ft_rmsnorm_cpu_rows *sets[3];
	struct ft_allowance allowance;
	ft_rmsnorm_cpu_sets(sets);
	cpu->set = sets[0];
	snprintf(cpu->device.traits.kind, sizeof(cpu->device.traits.kind), "%s", backend->kind);
	ft_allowance_read("", &allowance);
	ft_host_traits(&allowance, &cpu->device.traits);
	if (find_cores(cpu, &allowance, error) < 0)
		return -1;
	ft_host_describe("", &allowance, &cpu->device.traits, &cpu->device.shown);
	backend->device = &cpu->device;
	backend->device_count = 1;
	snprintf(backend->identity, sizeof(backend->identity), "compiler=%s flags=%s isa=%s timing=%d",
	        FT_CPU_COMPILER, FT_CPU_FLAGS, cpu->set->isa, TIMING_REVISION);
	for (char *c = backend->identity; *c; c++) {
		if (*c == ',')
			*c = ';';
	}

	size_t files = 0;
	ssize_t length = readlink("/proc/self/exe", cpu->self, sizeof(cpu->self) - 1);
	if (length > 0) {
		cpu->self[length] = '\0';
		cpu->files[files++] = cpu->self;
	}
	cpu->files[files] = NULL;
	backend->files = cpu->files;
	return 0;
}

static void cpu_finish(struct ft_backend *backend);
static void free_arena(struct arena *arena);

static void cpu_close(struct ft_backend *backend)
{
	struct cpu *cpu = self_of(backend);
	cpu_finish(backend);
	free_arena(&cpu->arena);
	free(cpu->cpu);
	cpu->cpu = NULL;
	backend->device_count = 0;
}

static void cpu_source(struct ft_backend *backend, const char *kernel, char hash[FT_HASH_SIZE])
{
	(void)backend;
	(void)kernel; /* there is one */
	snprintf(hash, FT_HASH_SIZE, "%s", FT_RMSNORM_CPU_SOURCE);
}

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
static void note_work(struct cpu *cpu, uint64_t began_ns)
{
	if (began_ns > cpu->worked_ns + cools_ns)
		cpu->hot_ns = began_ns;
	cpu->worked_ns = ft_clock_ns();
}

/* As far as the deadline lets it: cpu->ended tells if that was not to the end. */
static void in_parallel(
        struct cpu *cpu, size_t count, void (*piece)(void *context, size_t index), void *context)
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
	note_work(cpu, began);
}

/* ---- arrays ---- */

static char *verified_in(const struct cpu *cpu)
{
	return cpu->memory + GUARD;
}

static char *verified_out(const struct cpu *cpu)
{
	return verified_in(cpu) + cpu->extent.input;
}

/* Of pair `index` of those to time with. */
static char *timed_in(const struct cpu *cpu, size_t index)
{
	if (cpu->shared)
		return verified_in(cpu);
	return cpu->arena.memory + index * cpu->extent.slot;
}

/* In a page it lies to its input as an array does that follows it at once. */
static char *timed_out(const struct cpu *cpu, size_t index)
{
	if (cpu->shared)
		return verified_out(cpu);
	return timed_in(cpu, index) + cpu->arena.room + cpu->extent.slot % PAGE;
}

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

/* The factor of an element in one of the odd rows. Squares stay within f32's range, and sums of a million
 * too. */
static double odd_factor(enum rmsnorm_dtype dtype, uint64_t kind, uint64_t random)
{
	const bool half = dtype == RMSNORM_F16;
	switch (kind % 6) {
	case 0: /* wide: from far below 1 to far above in one row */
		return half ? ldexp(1, (int)(random % 21) - 10) : ldexp(1, (int)(random % 41) - 20);
	case 1: /* large */
		return half ? 0x1p14 : 1e12;
	case 2: /* tiny: eps decides; subnormal in f16 */
		return half ? 0x1p-20 : 1e-15;
	case 3: /* few that are not zero */
		return random % 16 == 0 ? 1 : 0;
	case 4: /* zero */
		return 0;
	default:
		return 1;
	}
}

struct fill {
	const struct cpu *cpu;
	char *data; /* row 0 */
	size_t rows;
	size_t rows_a_piece;
	uint64_t seed;
};

static void store_element(enum rmsnorm_dtype dtype, char *to, double value)
{
	if (dtype == RMSNORM_F32) {
		float narrow = (float)value;
		memcpy(to, &narrow, sizeof(narrow));
	} else {
		uint16_t bits = dtype == RMSNORM_F16 ? rmsnorm_to_f16(value) : rmsnorm_to_bf16(value);
		memcpy(to, &bits, sizeof(bits));
	}
}

static void fill_piece(void *context, size_t index)
{
	const struct fill *fill = context;
	const struct cpu *cpu = fill->cpu;
	const struct rmsnorm_problem *problem = &cpu->problem;
	size_t first = index * fill->rows_a_piece;
	size_t end = fill->rows - first > fill->rows_a_piece ? first + fill->rows_a_piece : fill->rows;
	for (size_t row = first; row < end; row++) {
		char *data = fill->data + row * cpu->extent.stride;
		uint64_t state = mix(fill->seed ^ mix(row));
		for (size_t i = 0; i < problem->n; i++) {
			uint64_t random = mix(state + i);
			double value = uniform(random);
			if (row < ODD_ROWS)
				value *= odd_factor(problem->dtype, row, mix(random));
			store_element(problem->dtype, data + i * cpu->extent.element, value);
		}
	}
}

static size_t rows_a_piece(const struct cpu *cpu)
{
	size_t rows = PIECE / (cpu->extent.row + 1);
	return rows > 0 ? rows : 1;
}

/* Rows alone: what lies between them stays poison. */
static void fill_rows(struct cpu *cpu, char *data, size_t rows, uint64_t seed)
{
	struct fill fill = {
	        .cpu = cpu, .data = data, .rows = rows, .rows_a_piece = rows_a_piece(cpu), .seed = seed};
	in_parallel(cpu, (rows + fill.rows_a_piece - 1) / fill.rows_a_piece, fill_piece, &fill);
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

static size_t pieces_of(size_t size)
{
	return (size + PIECE - 1) / PIECE;
}

static void poison(struct cpu *cpu, char *array, size_t size)
{
	struct blocks blocks = {.to = array, .size = size};
	in_parallel(cpu, pieces_of(size), poison_block, &blocks);
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

static void note_hashes(struct cpu *cpu, const char *array, size_t size, uint64_t *hash)
{
	struct blocks blocks = {.from = array, .size = size, .hash = hash};
	in_parallel(cpu, pieces_of(size), hash_block, &blocks);
}

static void check_block(void *context, size_t index)
{
	struct blocks *blocks = context;
	size_t offset = index * PIECE;
	size_t size = blocks->size - offset > PIECE ? PIECE : blocks->size - offset;
	if (XXH3_64bits(blocks->from + offset, size) != blocks->hash[index])
		atomic_store(&blocks->changed, true);
}

static bool has_changed(struct cpu *cpu, const char *array, size_t size, uint64_t *hash)
{
	struct blocks blocks = {.from = array, .size = size, .hash = hash};
	in_parallel(cpu, pieces_of(size), check_block, &blocks);
	return atomic_load(&blocks.changed);
}

static bool is_poison(const char *from, size_t size)
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

/* ---- prepare ---- */

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

/* Bytes of a pair that a launch reads or writes. */
static uint64_t touched(const struct cpu *cpu)
{
	return 2 * cpu->problem.m * (uint64_t)cpu->extent.row;
}

/* How many pairs at first, and at the most, within what memory there is. */
static int choose_sets(struct cpu *cpu, uint64_t cap, struct ft_error *error)
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
	uint64_t most = COLD_MOST * cache / touched(cpu) + 2;
	most = most < SETS_MOST ? most : SETS_MOST;
	cpu->shared = fit == 0;
	cpu->most = cpu->shared ? 1 : most < fit ? most : fit;
	uint64_t first = COLD_LEAST * cache / touched(cpu) + 2;
	cpu->sets = first < cpu->most ? first : cpu->most;
	/* What a sweep before needed, this one will. */
	while (!cpu->shared && 2 * cpu->sets <= cpu->most &&
	        2 * cpu->sets * cpu->extent.slot <= cpu->arena.filled)
		cpu->sets *= 2;
	cpu->step = choose_step(cpu->sets);
	cpu->looked = false;
	return 0;
}

static int measure_extent(struct cpu *cpu, struct ft_error *error)
{
	const struct rmsnorm_problem *problem = &cpu->problem;
	const size_t page = 4096;
	const size_t line = LINE;
	struct extent *extent = &cpu->extent;
	size_t last;
	extent->element = rmsnorm_dtype_size(problem->dtype);
	extent->row = problem->n * extent->element;
	if (__builtin_mul_overflow(problem->row_stride, extent->element, &extent->stride) ||
	        __builtin_mul_overflow(problem->m - 1, extent->stride, &last) ||
	        __builtin_add_overflow(last, extent->row, &extent->data) || extent->data > SIZE_MAX / 8 ||
	        extent->stride > SIZE_MAX / 8)
		return ft_fail(error, FT_E_UNAVAILABLE, "the problem is larger than any memory");
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

static void free_arena(struct arena *arena)
{
	if (arena->memory)
		munmap(arena->memory, arena->size);
	free(arena->pattern);
	arena->pattern = arena->memory = NULL;
	arena->room = arena->filled = arena->size = 0;
}

/* So many pairs, all there. */
static void use_sets(struct cpu *cpu, size_t sets)
{
	struct arena *arena = &cpu->arena;
	const size_t pieces = cpu->shared ? 0 : pieces_of(sets * cpu->extent.slot);
	cpu->sets = sets;
	cpu->step = choose_step(sets);
	cpu->at = 0;
	if (pieces * PIECE <= arena->filled)
		return;
	in_parallel(cpu, pieces, spread_piece, arena);
	if (!cpu->ended)
		arena->filled = pieces * PIECE;
}

/* The one that is there serves if there is room enough in it and no more memory taken than this sweep may have. */
static int prepare_arena(struct cpu *cpu, struct ft_error *error)
{
	struct arena *arena = &cpu->arena;
	const size_t wanted = cpu->most * cpu->extent.slot;
	if (!arena->memory || arena->room < wanted || arena->filled > wanted + HUGE_PAGE) {
		free_arena(arena);
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
	const bool usable = arena->filled > 0 && arena->dtype == cpu->problem.dtype;
	uint64_t state = mix(~cpu->seed);
	for (size_t i = 0; i < PIECE / cpu->extent.element && !usable; i++)
		store_element(cpu->problem.dtype, arena->pattern + i * cpu->extent.element,
		        uniform(mix(state + i)));
	/* One that served before may have been written to by what it served. */
	in_parallel(cpu, arena->filled / PIECE, spread_piece, arena);
	arena->dtype = cpu->problem.dtype;
	arena->made += !usable;
	use_sets(cpu, cpu->sets);
	return 0;
}

static int allocate(struct cpu *cpu, struct ft_error *error)
{
	const struct extent *extent = &cpu->extent;
	bool missing = false;
	cpu->memory = map_memory(extent->input + extent->size, error);
	if (!cpu->memory)
		return -1;
	cpu->memory_size = extent->input + extent->size;
	cpu->launched = false;
	cpu->weight_size = cpu->problem.n * rmsnorm_dtype_size(cpu->problem.weight);
	cpu->weight = aligned_alloc(64, (cpu->weight_size + 63) / 64 * 64);
	cpu->hash = calloc(pieces_of(extent->input), sizeof(*cpu->hash));
	for (size_t i = 0; i < AUDIT_SHIFTS; i++) {
		cpu->right[i] = calloc(pieces_of(extent->size), sizeof(*cpu->right[i]));
		missing = missing || !cpu->right[i];
	}
	if (!cpu->weight || !cpu->hash || missing)
		return ft_fail(error, FT_E_MEMORY, "no memory for the weights");
	return 0;
}

static void fill_all(struct cpu *cpu)
{
	uint64_t state = mix(cpu->seed ^ 0x77);
	for (size_t i = 0; i < cpu->problem.n; i++)
		rmsnorm_store(cpu->problem.weight, cpu->weight, i, uniform(mix(state + i)));
	cpu->weight_hash = XXH3_64bits(cpu->weight, cpu->weight_size);

	char *verified = verified_in(cpu);
	poison(cpu, verified - GUARD, cpu->extent.input);
	fill_rows(cpu, verified, cpu->problem.m + 1, cpu->seed);
	note_hashes(cpu, verified - GUARD, cpu->extent.input, cpu->hash);
}

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

/* From a piece of the work, on one core: how long all of it takes. The least of some tries, for one that lost its core would
 * count a thousand times. Small problems are not worth it. */
static void estimate(struct cpu *cpu)
{
	enum { PIECES_LEAST = 8, TRIES = 3 };
	const size_t pieces = cpu->problem.m / rows_a_piece(cpu), threads = ft_pool_threads(cpu->pool);
	const size_t at = (ODD_ROWS / rows_a_piece(cpu) + 1) * rows_a_piece(cpu); /* behind the odd rows */
	struct rmsnorm_worst worst = {0};
	uint64_t hash;
	cpu->backend.prepare_ns = cpu->backend.verify_ns = 0;
	if (pieces < PIECES_LEAST || at + rows_a_piece(cpu) > cpu->problem.m)
		return;
	struct fill fill = {.cpu = cpu,
	        .data = verified_in(cpu),
	        .rows = cpu->problem.m,
	        .rows_a_piece = rows_a_piece(cpu),
	        .seed = cpu->seed};
	struct blocks blocks = {.to = verified_out(cpu) - GUARD,
	        .from = verified_in(cpu) - GUARD,
	        .size = cpu->extent.size,
	        .hash = &hash};
	memset(cpu->weight, 0, cpu->weight_size);
	uint64_t fills = UINT64_MAX, writes = UINT64_MAX, compares = UINT64_MAX, hashes = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t begin = ft_clock_ns();
		fill_piece(&fill, at / rows_a_piece(cpu));
		uint64_t filled = ft_clock_ns();
		poison_block(&blocks, 0);
		uint64_t written = ft_clock_ns();
		rmsnorm_compare_rows(&cpu->problem, verified_in(cpu), cpu->weight, verified_out(cpu), at,
		        rows_a_piece(cpu), &worst);
		uint64_t compared = ft_clock_ns();
		hash_block(&blocks, 0);
		note_least(&fills, begin, filled);
		note_least(&writes, filled, written);
		note_least(&compares, written, compared);
		note_least(&hashes, compared, ft_clock_ns());
	}
	/* A launch reads and writes at least what a poisoning writes. */
	const uint64_t arena = cpu->shared || cpu->arena.filled ? 0 : 2 * cpu->sets;
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

static int cpu_prepare(
        struct ft_backend *backend, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	const uint32_t cores = (uint32_t)cpu->device.traits.units;
	cpu->problem = rmsnorm_unpack(sweep->problem);
	cpu->seed = sweep->seed;
	cpu->count = sweep->count;
	cpu->standard = sweep->standard;
	cpu->built = sweep->count;
	cpu->warm_index = sweep->count;
	cpu->audited = sweep->count;
	cpu->at = 0;
	cpu->warm_ps = cpu->half_ps = cpu->whole_ps = 0;
	cpu->rows = cpu->problem.m;
	cpu->started = 0;
	cpu->samples = 0;
	cpu->disturbed = 0;
	cpu->steal = (struct ft_steal){0};
	cpu->plan = calloc(sweep->count ? sweep->count : 1, sizeof(*cpu->plan));
	cpu->pending = calloc(sweep->count ? sweep->count : 1, sizeof(*cpu->pending));
	cpu->batch = calloc(sweep->count ? sweep->count : 1, sizeof(*cpu->batch));
	cpu->sampled = calloc(sweep->count ? sweep->count : 1, sizeof(*cpu->sampled));
	cpu->windows = calloc(sweep->count ? sweep->count : 1, sizeof(*cpu->windows));
	if (!cpu->plan || !cpu->pending || !cpu->batch || !cpu->sampled || !cpu->windows)
		return ft_fail(error, FT_E_MEMORY, "no memory for a sweep of %zu configs", sweep->count);
	if (measure_extent(cpu, error) < 0 || choose_sets(cpu, sweep->memory_cap, error) < 0)
		return -1;
	pin(cpu);
	cpu->pool = ft_pool_new(cores, cpu->cpu);
	if (!cpu->pool)
		return ft_fail(error, FT_E_MEMORY, "cannot start %" PRIu32 " threads", cores);
	if (allocate(cpu, error) < 0)
		return -1;
	for (size_t i = 0; i < sweep->count; i++)
		ft_rmsnorm_cpu_resolve(cpu->set, &cpu->problem, &sweep->config[i], cores, &cpu->plan[i]);
	estimate(cpu);
	if (is_hopeless(backend))
		return FT_BACKEND_ENDED;
	cpu->until_ns = backend->deadline_ns;
	cpu->ended = false;
	if (!cpu->shared && prepare_arena(cpu, error) < 0)
		return -1;
	if (!cpu->ended)
		fill_all(cpu);
	if (cpu->ended)
		return FT_BACKEND_ENDED;
	return 0;
}

static void cpu_finish(struct ft_backend *backend)
{
	struct cpu *cpu = self_of(backend);
	ft_pool_free(cpu->pool);
	cpu->pool = NULL;
	if (cpu->pinned)
		(void)sched_setaffinity(0, sizeof(cpu->before), (cpu_set_t *)&cpu->before);
	cpu->pinned = false;
	if (cpu->memory_size > 0)
		munmap(cpu->memory, cpu->memory_size);
	cpu->memory = NULL;
	cpu->memory_size = 0;
	free(cpu->weight);
	cpu->weight = NULL;
	free(cpu->hash);
	cpu->hash = NULL;
	for (size_t i = 0; i < AUDIT_SHIFTS; i++) {
		free(cpu->right[i]);
		cpu->right[i] = NULL;
	}
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

/* ---- build ---- */

/* The compiler was here before: what is left is to choose a function and how to launch it, and two configs
 * that come down to the same choice are the same code. */
static void hash_plan(const struct cpu *cpu, const struct ft_rmsnorm_cpu_plan *plan, char code[FT_HASH_SIZE])
{
	char text[256];
	XXH128_canonical_t canonical;
	snprintf(text, sizeof(text),
	        "%s %s types=%d threads=%u unroll=%u stream=%d next=%d own=%d split=%d rows=%" PRIu64,
	        FT_RMSNORM_CPU_SOURCE, cpu->set->isa, (int)plan->types, plan->threads, plan->unroll,
	        plan->stream, plan->next_input, plan->own_output, plan->split, plan->rows);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, strlen(text)));
	for (size_t i = 0; i < sizeof(canonical.digest); i++)
		snprintf(code + 2 * i, 3, "%02x", canonical.digest[i]);
}

static int cpu_build_start(struct ft_backend *backend, size_t index, struct ft_error *error)
{
	(void)error;
	struct cpu *cpu = self_of(backend);
	cpu->pending[index] = ++cpu->started;
	return 0;
}

static int cpu_build_wait(struct ft_backend *backend, struct ft_built *built, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	size_t first = cpu->count;
	(void)error;
	for (size_t i = 0; i < cpu->count; i++) {
		if (cpu->pending[i] && (first == cpu->count || cpu->pending[i] < cpu->pending[first]))
			first = i;
	}
	if (first == cpu->count)
		return 0;
	cpu->pending[first] = 0;
	*built = (struct ft_built){.index = first, .cached = true};
	hash_plan(cpu, &cpu->plan[first], built->code);
	cpu->built = first;
	return 1;
}

/* ---- verify ---- */

static void launch(const struct cpu *cpu, size_t index, const char *in, char *out, size_t m)
{
	const struct ft_rmsnorm_cpu_call call = {
	        .in = in,
	        .out = out,
	        .weight = cpu->weight,
	        .m = m,
	        .n = cpu->problem.n,
	        .stride = cpu->problem.row_stride,
	        .eps = (float)RMSNORM_EPS,
	};
	ft_rmsnorm_cpu_run(cpu->pool, cpu->set, &cpu->plan[index], &call);
}

struct compare {
	const struct cpu *cpu;
	const char *in;
	const char *out;
	size_t m;
	size_t rows_a_piece;
	_Atomic size_t gap; /* first row after which something was written, plus 1 */
	atomic_flag busy;
	struct rmsnorm_worst worst;
};

static void compare_piece(void *context, size_t index)
{
	struct compare *compare = context;
	const struct cpu *cpu = compare->cpu;
	struct rmsnorm_worst worst = {0};
	size_t first = index * compare->rows_a_piece;
	size_t rows = compare->m - first > compare->rows_a_piece ? compare->rows_a_piece : compare->m - first;
	rmsnorm_compare_rows(&cpu->problem, compare->in, cpu->weight, compare->out, first, rows, &worst);
	size_t gap = cpu->extent.stride - cpu->extent.row;
	for (size_t row = first; gap > 0 && row < first + rows && row + 1 < cpu->problem.m; row++) {
		if (!is_poison(compare->out + row * cpu->extent.stride + cpu->extent.row, gap))
			atomic_store(&compare->gap, row + 1);
	}
	while (atomic_flag_test_and_set_explicit(&compare->busy, memory_order_acquire))
		sched_yield();
	rmsnorm_worst_merge(&compare->worst, &worst);
	atomic_flag_clear_explicit(&compare->busy, memory_order_release);
}

/* 1 and an error if the output or what surrounds it is not as it must be. */
static int check_output(
        struct cpu *cpu, const char *in, const char *out, size_t m, double *largest, struct ft_error *error)
{
	const struct extent *extent = &cpu->extent;
	struct compare compare = {.cpu = cpu, .in = in, .out = out, .m = m, .busy = ATOMIC_FLAG_INIT};
	compare.rows_a_piece = rows_a_piece(cpu);
	in_parallel(cpu, (m + compare.rows_a_piece - 1) / compare.rows_a_piece, compare_piece, &compare);
	if (compare.worst.error > *largest)
		*largest = compare.worst.error;
	if (rmsnorm_worst_check(&compare.worst, cpu->problem.dtype, error) < 0)
		return 1;
	if (compare.gap > 0) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote between row %zu and the next", compare.gap - 1);
		return 1;
	}
	if (!is_poison(out - GUARD, GUARD)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote before the first row");
		return 1;
	}
	if (m == cpu->problem.m && !is_poison(out + extent->data, extent->size - GUARD - extent->data)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote after the last row");
		return 1;
	}
	return 0;
}

/* 1 and an error if input or weight are not what they were; then they are made anew, so that nobody else is held against
 * what one config did to them. */
static int check_inputs(struct cpu *cpu, struct ft_error *error)
{
	const char *what = NULL;
	const bool changed = has_changed(cpu, verified_in(cpu) - GUARD, cpu->extent.input, cpu->hash);
	if (cpu->ended)
		return 0;
	if (changed)
		what = "input";
	else if (XXH3_64bits(cpu->weight, cpu->weight_size) != cpu->weight_hash)
		what = "weight";
	cpu->launched = false;
	if (!what)
		return 0;
	cpu->until_ns = 0; /* half of it would be worse than none */
	fill_all(cpu);
	cpu->until_ns = cpu->backend.deadline_ns;
	ft_fail(error, FT_E_BAD_VALUE, "it changed its %s", what);
	return 1;
}

/* Right if the whole output is, and some rows of it in place: what lies in the way of reading before writing shows in any. */
static int check_launches(struct cpu *cpu, size_t index, double *largest, struct ft_error *error)
{
	const size_t m = cpu->problem.m;
	const size_t few = m < IN_PLACE_ROWS ? m : IN_PLACE_ROWS;
	char *in = verified_in(cpu);
	char *out = verified_out(cpu);
	poison(cpu, out - GUARD, cpu->extent.size);
	cpu->launched = true;
	cpu->audited = cpu->count;
	uint64_t began = ft_clock_ns();
	launch(cpu, index, in, out, m);
	note_work(cpu, began);
	int result = cpu->ended ? 0 : check_output(cpu, in, out, m, largest, error);
	if (result != 0 || cpu->ended)
		return result;
	for (size_t row = 0; row < few; row++)
		memcpy(out + row * cpu->extent.stride, in + row * cpu->extent.stride, cpu->extent.row);
	launch(cpu, index, out, out, few);
	result = check_output(cpu, in, out, few, largest, error);
	if (result != 0) {
		char message[sizeof(error->message)];
		snprintf(message, sizeof(message), "%s", error->message);
		ft_fail(error, FT_E_BAD_VALUE, "in place: %s", message);
	}
	return result;
}

static int cpu_verify(struct ft_backend *backend, size_t index, double *largest, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	*largest = 0;
	cpu->until_ns = backend->deadline_ns;
	cpu->ended = false;
	/* What timed launches did to it is not known to be this one's doing. */
	if (cpu->launched)
		(void)check_inputs(cpu, NULL);
	int result = cpu->ended ? 0 : check_launches(cpu, index, largest, error);
	/* An output that is wrong by a changed input is told as that. */
	if (!cpu->ended && check_inputs(cpu, error) != 0)
		result = 1;
	/* Nothing that was found in a part is true of the whole. */
	if (cpu->ended)
		return FT_BACKEND_ENDED;
	if (result == 0 && (cpu->warm_index == cpu->count || index == cpu->standard))
		cpu->warm_index = index;
	return result;
}

/* 1 if an output is not right. The first of either input is held against the reference, all others against that one, to
 * the bit; and against the reference where they differ, for a sum's order may. */
static int check_again(struct cpu *cpu, size_t shift, struct ft_error *error)
{
	char *out = verified_out(cpu);
	const char *in = verified_in(cpu) + shift * cpu->extent.stride;
	const bool known = cpu->audits >= AUDIT_SHIFTS;
	double largest = 0;
	if (known && !has_changed(cpu, out - GUARD, cpu->extent.size, cpu->right[shift]))
		return 0;
	if (check_output(cpu, in, out, cpu->problem.m, &largest, error) != 0) {
		char message[sizeof(error->message)];
		snprintf(message, sizeof(message), "%s", error->message);
		ft_fail(error, FT_E_BAD_VALUE,
		        "right at first, wrong in launch %" PRIu64 " after the timing: %s", cpu->audits + 1,
		        message);
		return 1;
	}
	if (!known)
		note_hashes(cpu, out - GUARD, cpu->extent.size, cpu->right[shift]);
	return 0;
}

/* Every other launch reads from the second row on: so no row's output is what the launch before left there, and neither
 * an element that was not written nor a sum that was kept goes unseen. The odd rows, some of which are alike, are
 * poisoned besides. */
static int cpu_audit(struct ft_backend *backend, size_t index, uint64_t launches, uint64_t *checked,
        struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	const struct extent *extent = &cpu->extent;
	const size_t odd = cpu->problem.m < ODD_ROWS ? cpu->problem.m : ODD_ROWS;
	char *out = verified_out(cpu);
	int result = 0;
	cpu->until_ns = 0;
	cpu->ended = false;
	if (cpu->launched)
		(void)check_inputs(cpu, NULL);
	if (cpu->audited != index) {
		poison(cpu, out - GUARD, extent->size);
		cpu->audited = index;
		cpu->audits = 0;
	}
	for (*checked = 0; *checked < launches && result == 0; ++*checked) {
		size_t shift = cpu->audits % AUDIT_SHIFTS;
		poison(cpu, out, (odd - 1) * extent->stride + extent->row);
		uint64_t began = ft_clock_ns();
		launch(cpu, index, verified_in(cpu) + shift * extent->stride, out, cpu->problem.m);
		note_work(cpu, began);
		result = check_again(cpu, shift, error);
		cpu->audits++;
	}
	return check_inputs(cpu, error) != 0 ? 1 : result;
}

/* ---- measure ---- */

static void empty_work(void *context, uint32_t worker)
{
	(void)context;
	(void)worker;
}

static void next_pair(struct cpu *cpu)
{
	cpu->at += cpu->step;
	while (cpu->at >= cpu->sets)
		cpu->at -= cpu->sets;
}

static void next_launch(struct cpu *cpu, size_t index)
{
	cpu->launched = true;
	cpu->audited = cpu->count;
	launch(cpu, index, timed_in(cpu, cpu->at), timed_out(cpu, cpu->at), cpu->rows);
	next_pair(cpu);
}

static uint64_t time_batch(struct cpu *cpu, size_t index, uint64_t batch)
{
	uint64_t begin = ft_clock_ns();
	for (uint64_t i = 0; i < batch; i++)
		next_launch(cpu, index);
	uint64_t took = ft_clock_ns() - begin;
	note_work(cpu, begin);
	return took > cpu->clock.overhead_ns ? took - cpu->clock.overhead_ns : 1;
}

static uint64_t window_least_ns(const struct cpu *cpu)
{
	uint64_t least = ft_clock_window_ns(&cpu->clock);
	return least > sample_ns / WINDOWS ? least : sample_ns / WINDOWS;
}

/* The first sample of a config, which nobody keeps, tells how many launches fill a window. */
static void size_batch(struct cpu *cpu, size_t index)
{
	enum { TRIES = 3, GROWTH = 64 };
	const uint64_t least = window_least_ns(cpu);
	struct batch *batch = &cpu->batch[index];
	uint64_t took = UINT64_MAX;
	batch->launches = 1;
	for (;;) {
		for (int i = 0; i < TRIES; i++) {
			uint64_t once = time_batch(cpu, index, batch->launches); /* never 0 */
			took = once < took ? once : took;
			if (once >= patience_ns)
				break; /* large, or not to be had undisturbed */
		}
		if (took >= least || took == 0)
			break;
		uint64_t next = batch->launches * least / took + 1;
		batch->launches = next > batch->launches * GROWTH ? batch->launches * GROWTH
		        : next > batch->launches                  ? next
		                                                  : batch->launches + 1;
		took = UINT64_MAX;
	}
	uint64_t windows = took > 0 ? sample_ns / took : WINDOWS;
	batch->windows = windows < 1 ? 1 : windows > WINDOWS ? WINDOWS : (uint32_t)windows;
}

/* Longer in twice the arrays: part of them was found in the caches. */
static bool rises(const struct cpu *cpu)
{
	return cpu->whole_ps * 100 > cpu->half_ps * (100 + COLD_RISE);
}

static bool are_cold(const struct cpu *cpu)
{
	return cpu->half_ps > 0 && !rises(cpu) &&
	        touched(cpu) * cpu->sets >= COLD_LEAST * cpu->device.traits.cache;
}

static void say_method(struct cpu *cpu)
{
	char looked[80] = "";
	if (cpu->half_ps > 0)
		snprintf(looked, sizeof(looked), " (%.2f µs; in half %.2f, cached %.2f)",
		        (double)cpu->whole_ps / 1e6, (double)cpu->half_ps / 1e6, (double)cpu->warm_ps / 1e6);
	snprintf(cpu->backend.method, sizeof(cpu->backend.method),
	        "windows of at least %.0f µs, launches back to back on %" PRIu64
	        " pinned cores; %s: %.0f MiB in %zu arrays%s, cache %.0f MiB; empty launch %.2f µs; %" PRIu64
	        " of %" PRIu64 " samples disturbed",
	        (double)window_least_ns(cpu) / 1e3, cpu->device.traits.units,
	        are_cold(cpu) ? "cold" : "not all cold", (double)touched(cpu) * (double)cpu->sets / MEBIBYTE,
	        2 * cpu->sets, looked, (double)cpu->device.traits.cache / MEBIBYTE,
	        (double)cpu->floor_ps / 1e6, cpu->disturbed, cpu->samples);
}

static uint64_t median(uint64_t *value, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		uint64_t moving = value[i];
		size_t j = i;
		for (; j > 0 && value[j - 1] > moving; j--)
			value[j] = value[j - 1];
		value[j] = moving;
	}
	if (count == 0)
		return 0;
	return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

static bool backend_is_late(const struct cpu *cpu, uint64_t more_ns)
{
	return cpu->backend.deadline_ns != 0 && ft_monotonic_ns() + more_ns >= cpu->backend.deadline_ns;
}

/* What a launch would leave of the next pair in the caches. */
static void touch_next(struct cpu *cpu)
{
	const char *in = timed_in(cpu, cpu->at);
	const char *out = timed_out(cpu, cpu->at);
	for (size_t i = 0; i < cpu->extent.slot; i += LINE) {
		(void)*(const volatile char *)(in + i);
		(void)*(const volatile char *)(out + i);
	}
	next_pair(cpu);
}

/* Once through so many pairs, for caches to hold what that leaves in them. Nanoseconds a launch. Beside others, whose turn
 * each launch may have to wait for, no longer than walk_ns: the rest is read. 0 if the deadline comes before. */
static uint64_t walk(struct cpu *cpu, size_t index, size_t sets)
{
	enum { PART = 64 };
	uint64_t spent = 0;
	size_t done = 0;
	while (done < sets && spent < walk_ns && !backend_is_late(cpu, 0)) {
		size_t part = sets - done < PART ? sets - done : PART;
		spent += time_batch(cpu, index, part);
		done += part;
	}
	for (size_t i = done; i < sets; i++) {
		if (i % PART == 0 && backend_is_late(cpu, 0))
			return 0;
		touch_next(cpu);
	}
	return done > 0 ? (spent + done - 1) / done : 0;
}

/* Picoseconds a launch in so many arrays, once caches hold what such a walk leaves in them; that of the quarter of windows
 * that others disturbed least. 0 if the deadline comes before they are made, or timed. */
static uint64_t time_in(struct cpu *cpu, size_t index, size_t sets)
{
	enum { LEAST = 3 };
	uint64_t took[WINDOWS] = {0};
	uint64_t spent = 0;
	size_t count = 0;
	use_sets(cpu, sets);
	if (cpu->ended)
		return 0;
	const uint64_t once = walk(cpu, index, sets);
	if (once == 0)
		return 0;
	uint64_t launches = window_least_ns(cpu) / once + 1;
	for (; count < WINDOWS && (count < LEAST || spent < look_ns / 4); count++) {
		if (backend_is_late(cpu, launches * once))
			return 0;
		took[count] = time_batch(cpu, index, launches);
		spent += took[count];
	}
	(void)median(took, count); /* sorts */
	return took[count / 4] * 1000 / launches;
}

/* False where there is none. */
static bool keep_least(uint64_t *least, uint64_t value)
{
	*least = *least == 0 || (value > 0 && value < *least) ? value : *least;
	return value > 0;
}

/* Takes turns at the pairs of a cache, at half of `sets` and at all of them. False if the deadline ended it. */
static bool look_at(struct cpu *cpu, size_t index, size_t sets)
{
	const uint64_t few = cpu->device.traits.cache / WARM_PART / touched(cpu);
	const size_t m = cpu->problem.m;
	uint64_t begin = ft_clock_ns();
	bool timed = true;
	cpu->half_ps = cpu->whole_ps = 0;
	for (int turn = 0; timed && turn < COLD_TURNS && (turn == 0 || ft_clock_ns() - begin < look_ns);
	        turn++) {
		timed = keep_least(&cpu->warm_ps, time_in(cpu, index, few > 0 && few < sets ? few : 1));
		/* Of a single pair, half the rows. */
		cpu->rows = sets > 1 ? m : m / 2;
		timed = timed &&
		        keep_least(
		                &cpu->half_ps, time_in(cpu, index, sets > 1 ? sets / 2 : 1) * m / cpu->rows);
		cpu->rows = m;
		timed = timed && keep_least(&cpu->whole_ps, time_in(cpu, index, sets));
	}
	return timed;
}

/* Takes more arrays until a launch takes no longer in twice as many, and longer than in a cache. What of them stays there
 * is not told by its size: who shares it, what goes past it, and which lines it gives up first count as well. */
static void look_for_cold(struct cpu *cpu, size_t index)
{
	const uint64_t cache = cpu->device.traits.cache;
	size_t there = cpu->sets;
	for (size_t sets = there;; sets = 2 * sets < cpu->most ? 2 * sets : cpu->most) {
		if (!look_at(cpu, index, sets)) {
			cpu->half_ps = cpu->whole_ps = 0;
			/* More may not have been made whole in time. */
			use_sets(cpu, there);
			cpu->ended = false;
			return;
		}
		there = sets;
		const bool waits = cpu->whole_ps * 100 > cpu->warm_ps * (100 + WARM_RISE);
		if (sets == cpu->most ||
		        (!rises(cpu) && (waits || touched(cpu) * sets >= COLD_ENOUGH * cache)))
			return;
	}
}

/* What every launch costs before it does anything: below this nothing is told apart. */
static uint64_t empty_launch_ps(struct cpu *cpu)
{
	enum { FLOOR_WINDOWS = 31, FLOOR_LAUNCHES = 32 };
	uint64_t took[FLOOR_WINDOWS] = {0};
	uint64_t spent = 0;
	size_t count = 0;
	while (count < FLOOR_WINDOWS && (spent < patience_ns || count == 0)) {
		uint64_t begin = ft_clock_ns();
		for (int i = 0; i < FLOOR_LAUNCHES; i++)
			ft_pool_run(cpu->pool, ft_pool_threads(cpu->pool), empty_work, NULL);
		took[count] = ft_clock_ns() - begin;
		spent += took[count++];
	}
	return median(took, count) * 1000 / FLOOR_LAUNCHES;
}

static int cpu_warm(struct ft_backend *backend, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	(void)error;
	cpu->until_ns = backend->deadline_ns;
	cpu->ended = false;
	ft_clock_probe(&cpu->clock);
	uint64_t begin = ft_clock_ns();
	note_work(cpu, begin);
	while (begin - cpu->hot_ns < (uint64_t)WARM_MS * 1000000) {
		if (cpu->warm_index < cpu->count)
			next_launch(cpu, cpu->warm_index);
		else
			ft_pool_run(cpu->pool, ft_pool_threads(cpu->pool), empty_work, NULL);
		note_work(cpu, begin);
		begin = ft_clock_ns();
	}
	size_t index = cpu->warm_index < cpu->count ? cpu->warm_index : cpu->built;
	if (!cpu->looked && (cpu->sets > 1 || cpu->problem.m > 1) && index < cpu->count)
		look_for_cold(cpu, index);
	cpu->looked = true;
	cpu->floor_ps = empty_launch_ps(cpu);
	note_work(cpu, begin);
	say_method(cpu);
	return 0;
}

static uint64_t interruptions(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

/* One more window of a sample, which is the median of some. One in which the scheduler took a core away is taken
 * again, while that is cheap: chosen by what happened to it and not by its time, a sample stays unbiased. */
static int cpu_measure(struct ft_backend *backend, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct cpu *cpu = self_of(backend);
	struct windows *windows = &cpu->windows[index];
	(void)error;
	*sample_ps = 0;
	if (!cpu->sampled[index]) {
		cpu->sampled[index] = true;
		if (cpu->batch[index].launches == 0)
			size_batch(cpu, index);
		else
			next_launch(cpu, index);
		*sample_ps = 1;
		return 0;
	}
	const struct batch batch = cpu->batch[index];
	/* Another config was on the cores: its code and the branches that it took are not this one's. */
	if (batch.launches >= SETTLE_LEAST)
		next_launch(cpu, index);
	uint64_t before = interruptions();
	uint64_t took = time_batch(cpu, index, batch.launches);
	windows->spent += took;
	if (interruptions() == before)
		windows->calm[windows->calm_count++] = took;
	else
		windows->rough[windows->rough_count++] = took;
	if (windows->calm_count < batch.windows &&
	        windows->calm_count + windows->rough_count < WINDOWS_MOST && windows->spent < patience_ns)
		return 0;
	took = windows->calm_count > 0 ? median(windows->calm, windows->calm_count)
	                               : median(windows->rough, windows->rough_count);
	cpu->samples++;
	cpu->disturbed += windows->calm_count < batch.windows;
	cpu->backend.disturbed += windows->calm_count < batch.windows;
	*windows = (struct windows){0};
	say_method(cpu);
	*sample_ps = took * 1000 / batch.launches;
	if (*sample_ps == 0)
		*sample_ps = 1;
	return 0;
}

/* A preemption by others shows in each window; what a host takes does not. */
static void cpu_weather(struct ft_backend *backend, struct ft_weather *weather)
{
	struct cpu *cpu = self_of(backend);
	unsigned percent = 0;
	if (!ft_steal_cpu(cpu->cpu, cpu->device.traits.units, &cpu->steal, &percent) || percent < STEAL_ROUGH)
		return;
	weather->rough = true;
	snprintf(weather->reason, sizeof(weather->reason), "the host took %u %% of the processors away",
	        percent);
}

/* ---- life ---- */

static bool cpu_load(struct ft_backend *backend, size_t device, unsigned *percent)
{
	struct cpu *cpu = self_of(backend);
	(void)device;
	return ft_load_cpu(cpu->cpu, cpu->device.traits.units, percent);
}

struct ft_backend *ft_backend_cpu_new(void)
{
	struct cpu *cpu = calloc(1, sizeof(*cpu));
	if (!cpu)
		return NULL;
	cpu->backend = (struct ft_backend){
	        .kind = "cpu",
	        .open = cpu_open,
	        .close = cpu_close,
	        .source = cpu_source,
	        .prepare = cpu_prepare,
	        .build_start = cpu_build_start,
	        .build_wait = cpu_build_wait,
	        .verify = cpu_verify,
	        .audit = cpu_audit,
	        .warm = cpu_warm,
	        .measure = cpu_measure,
	        .load = cpu_load,
	        .weather = cpu_weather,
	        .spread_ns = spread_ns,
	        .finish = cpu_finish,
	};
	return &cpu->backend;
}

void ft_backend_cpu_free(struct ft_backend *backend)
{
	free(self_of(backend));
}
