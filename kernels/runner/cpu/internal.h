/* What the CPU backend knows of its device and of the sweep in work, shared by the files that it is made of:
 * backend_cpu.c (its life), cpu_prepare.c, cpu_verify.c and cpu_time.c (the stages of a sweep), and cpu_arrays.c (what is
 * verified and timed with). Used from one thread. METHOD.md gives the reasons for what is measured, and how. */
#ifndef FLYTUNE_KERNELS_RUNNER_CPU_INTERNAL_H
#define FLYTUNE_KERNELS_RUNNER_CPU_INTERNAL_H

#include "kernels/host.h"
#include "kernels/pool.h"
#include "kernels/runner/cpu/backend_cpu.h"
#include "kernels/runner/cpu/measure_cpu.h"
#include "kernels/runner/load.h"

enum {
	GUARD = 4096,  /* bytes before and after an array */
	POISON = 0xff, /* NaN in every type */
	MEBIBYTE = 1 << 20,
	PIECE = 1 << 20, /* bytes of a chunk of parallel work */
	ODD_ROWS = 32,   /* the first rows hold the odd magnitudes, where a kernel wants such */
	PAGE = 4096,
	LINE = 64,       /* bytes, of a cache */
	COLD_LEAST = 4,  /* caches that the arrays to time with are as large as, at the least */
	COLD_ENOUGH = 8, /* where no launch was seen to be any faster in fewer */
	COLD_MOST = 16,
	WINDOWS_MOST = 64,
	AUDIT_SHIFTS = 2,
};

/* The input of rows, and the output, which has its shape: guards around m rows at the problem's stride. */
struct extent {
	size_t element;
	size_t row;    /* bytes of a row's elements */
	size_t stride; /* bytes from row to row */
	size_t data;   /* bytes from the first element to the last */
	size_t size;   /* with the guards, a whole number of pages: what is verified */
	size_t input;  /* the same of an input, which has one row more */
	size_t slot;   /* without, a whole number of cache lines: what is timed */
};

/* An input that all rows need: one array, verified and timed with. */
struct shared_input {
	char *data;
	size_t size;
	uint64_t hash;
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
	enum ft_dtype type;
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
	char self[512];
	const char *files[2];
	int *cpu; /* usable cores, device.traits.units of them */

	/* One sweep. */
	const struct ft_kernel *kernel;
	const struct ft_kernel_cpu *code; /* of that kernel */
	struct ft_tensors tensors;
	uint32_t in, out;           /* which of them */
	void *data[FT_TENSORS_MAX]; /* what the next launch gets */
	struct shared_input shared_input[FT_TENSORS_MAX];
	size_t m; /* rows */
	struct ft_pool *pool;
	struct ft_cpus before; /* the main thread's cores */
	bool pinned;
	size_t count;
	char *plan;      /* code->plan_size bytes each */
	size_t *pending; /* the place of its build among those that were started; 0: none */
	size_t started;
	struct batch *batch;
	bool *sampled; /* the sample that is thrown away was taken */
	struct windows *windows;
	size_t default_index;
	size_t built;      /* the last one */
	size_t warm_index; /* the default if it is right, else the first that is; count: none yet */
	struct extent extent;
	char *memory; /* the pair of arrays that is verified with */
	size_t memory_size;
	size_t sets; /* pairs of arrays to time with */
	size_t most; /* of them, by what memory there is */
	/* Whether they are enough was looked at: picoseconds a launch in what a cache holds, in half of them, and in all. */
	bool looked;
	uint64_t warm_ps, half_ps, whole_ps;
	size_t rows;                   /* of a pair that is timed: all of them but then */
	bool shared;                   /* memory was short: the one pair serves both */
	size_t at;                     /* the pair that is next */
	size_t step;                   /* from one to the next, so that no prefetcher guesses it */
	uint64_t *hash;                /* of the verified input, a piece each */
	uint64_t *right[AUDIT_SHIFTS]; /* of the output that belongs to it, read from that row on */
	size_t audited;                /* whose those are */
	uint64_t audits;               /* launches since */
	bool launched;                 /* something ran since the inputs were compared last */
	uint64_t until_ns;             /* of work in parallel: the deadline, monotonic; 0: none */
	bool ended;                    /* it passed in the middle of some */
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

static inline struct cpu *cpu_of(struct ft_backend *backend)
{
	return (struct cpu *)backend;
}

static inline char *cpu_verified_in(const struct cpu *cpu)
{
	return cpu->memory + GUARD;
}

static inline char *cpu_verified_out(const struct cpu *cpu)
{
	return cpu_verified_in(cpu) + cpu->extent.input;
}

/* Of pair `index` of those to time with. */
static inline char *cpu_timed_in(const struct cpu *cpu, size_t index)
{
	if (cpu->shared)
		return cpu_verified_in(cpu);
	return cpu->arena.memory + index * cpu->extent.slot;
}

/* In a page it lies to its input as an array does that follows it at once. */
static inline char *cpu_timed_out(const struct cpu *cpu, size_t index)
{
	if (cpu->shared)
		return cpu_verified_out(cpu);
	return cpu_timed_in(cpu, index) + cpu->arena.room + cpu->extent.slot % PAGE;
}

/* Bytes of a pair that a launch reads or writes. */
static inline uint64_t cpu_touched(const struct cpu *cpu)
{
	return 2 * cpu->m * (uint64_t)cpu->extent.row;
}

/* The one call in a timed window. */
static inline void cpu_launch(struct cpu *cpu, size_t index, char *in, char *out, size_t rows)
{
	cpu->data[cpu->in] = in;
	cpu->data[cpu->out] = out;
	cpu->code->run(cpu->pool, cpu->plan + index * cpu->code->plan_size, cpu->data, rows);
}

/* NULL: this program has none for it. */
const struct ft_kernel_cpu *cpu_find_code(const char *kernel);

/* ---- work on all cores ---- */

/* Work that began then has just ended. */
void cpu_note_work(struct cpu *cpu, uint64_t began_ns);
/* As far as the deadline lets it: cpu->ended tells if that was not to the end. */
void cpu_in_parallel(
        struct cpu *cpu, size_t count, void (*piece)(void *context, size_t index), void *context);

/* ---- arrays ---- */

/* Of the tensors: which is which, and how large they are. -1 if they are not what this runner knows. */
int cpu_measure_extent(struct cpu *cpu, struct ft_error *error);
/* How many pairs at first, and at the most, within what memory there is. */
int cpu_choose_sets(struct cpu *cpu, uint64_t cap, struct ft_error *error);
int cpu_allocate(struct cpu *cpu, struct ft_error *error);
/* So many pairs, all there; those of a sweep before serve again where they do. */
int cpu_prepare_arena(struct cpu *cpu, struct ft_error *error);
void cpu_use_sets(struct cpu *cpu, size_t sets);
void cpu_free_arrays(struct cpu *cpu);
void cpu_free_arena(struct arena *arena);

size_t cpu_rows_a_piece(const struct cpu *cpu);
static inline size_t cpu_pieces_of(size_t size)
{
	return (size + PIECE - 1) / PIECE;
}
/* Rows of the input that is verified with; what lies between them stays as it is. */
void cpu_fill_rows(struct cpu *cpu, size_t first, size_t rows);
/* That input with the poison around it, all others, and the hashes of each. */
void cpu_fill_all(struct cpu *cpu);
void cpu_poison(struct cpu *cpu, char *array, size_t size);
bool cpu_is_poison(const char *from, size_t size);
/* A hash for each piece. */
void cpu_note_hashes(struct cpu *cpu, const char *array, size_t size, uint64_t *hash);
bool cpu_has_changed(struct cpu *cpu, const char *array, size_t size, uint64_t *hash);
/* The name of an input that all rows need and that is not what it was; NULL: none. */
const char *cpu_changed_input(const struct cpu *cpu);

/* ---- the stages, as in backend.h ---- */

int cpu_prepare(struct ft_backend *backend, const struct ft_backend_sweep *sweep, struct ft_error *error);
void cpu_finish(struct ft_backend *backend);
int cpu_verify(struct ft_backend *backend, size_t index, double *largest, struct ft_error *error);
int cpu_audit(struct ft_backend *backend, size_t index, uint64_t launches, uint64_t *checked,
        struct ft_error *error);
int cpu_warm(struct ft_backend *backend, struct ft_error *error);
int cpu_measure(struct ft_backend *backend, size_t index, uint64_t *sample_ps, struct ft_error *error);

#endif
