/* What the CPU backend knows of its device and of the sweep in work, shared by the files that it is made of:
 * backend_cpu.c (its life), cpu_prepare.c, cpu_verify.c and cpu_time.c (the stages of a sweep), cpu_arrays.c (what is
 * verified and timed with) and cpu_fill.c (what is in it). Used from one thread. METHOD.md gives the reasons for what is measured, and how. */
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
	PAGE = 4096,
	LINE = 64,       /* bytes, of a cache */
	COLD_LEAST = 4,  /* caches that the arrays to time with are as large as, at the least */
	COLD_ENOUGH = 8, /* where no launch was seen to be any faster in fewer */
	COLD_MOST = 16,
	WINDOWS_MOST = 64,
	AUDIT_INPUTS = 2,
};

/* One of the kernel's arrays: guards around rows at its stride. */
struct array {
	size_t row;     /* bytes of a row's elements */
	size_t stride;  /* bytes from row to row */
	size_t data;    /* bytes from the first element to the last */
	size_t size;    /* with the guards, a whole number of pages */
	char *verified; /* row 0 of the one that is verified with; of what is not timed cold, timed as well */
	char *kept;     /* of one that is filled before each launch: the same, as it is filled */
	bool cold;
	size_t slot; /* of a cold one: where it begins in a set of those to time with */
	uint64_t *
	        hash; /* a piece each: of an input as it was filled, of an output as it is right with each input of the audit */
	double *want; /* of an output of a kernel that is not over rows: what it has to be, packed */
};

/* How one config is sampled. */
struct batch {
	uint64_t launches; /* a window; 0: not sized yet */
	uint32_t windows;  /* a sample */
};

/* What is timed with: sets of all cold arrays, one behind the other. The memory outlives a sweep, for its pages are dear. */
struct arena {
	char *memory;
	size_t size;   /* as mapped */
	size_t made;   /* sets that are filled */
	size_t backed; /* bytes that were written to; the rest takes no memory */
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
	char compiler_path[512];
	char compiler[256]; /* in its own words; "": none, or nobody asked yet */
	const char *files[3];
	int *cpu;                       /* usable cores, device.traits.units of them */
	struct ft_kernel_cpu **adopted; /* kernels of folders */
	size_t adopted_count;

	/* One sweep. */
	const struct ft_kernel *kernel;
	const struct ft_kernel_cpu *code; /* of that kernel */
	struct cpu_folder *folder;        /* where that is one of a folder */
	struct ft_tensors tensors;
	bool over_rows;             /* it is such a kernel; of others a launch is always whole */
	bool is_restored;           /* it has arrays that are filled before each launch */
	void *data[FT_TENSORS_MAX]; /* what the next launch gets */
	struct array array[FT_TENSORS_MAX];
	size_t m; /* rows of the first output */
	struct ft_pool *pool;
	struct ft_cpus before; /* the main thread's cores */
	bool pinned;
	const struct ft_problem *problem; /* the sweep's, as are the configs */
	const struct ft_config *config;
	size_t known;    /* configs that were there at the begin */
	size_t count;    /* and that there may be */
	char *plan;      /* code->plan_size bytes each */
	size_t *pending; /* the place of its build among those that were started; 0: none */
	size_t started;
	struct batch *batch;
	bool *sampled; /* the sample that is thrown away was taken */
	struct windows *windows;
	size_t default_index;
	size_t built;      /* the last one */
	size_t warm_index; /* the default if it is right, else the first that is; count: none yet */
	char *memory;      /* the arrays that are verified with */
	size_t memory_size;
	size_t slot; /* bytes of a set */
	size_t sets; /* of cold arrays, to time with */
	size_t most; /* of them, by what memory there is */
	/* Whether they are enough was looked at: picoseconds a launch in what a cache holds, in half of them, and in all. */
	bool looked;
	uint64_t warm_ps, half_ps, whole_ps;
	size_t rows;       /* of a set that is timed: all of them but then */
	bool shared;       /* memory was short: the one that is verified with serves both */
	size_t at;         /* the set that is next */
	size_t step;       /* from one to the next, so that no prefetcher guesses it */
	size_t audited;    /* whose the hashes of the outputs are */
	uint64_t audits;   /* launches since */
	bool launched;     /* something ran since the inputs were compared last */
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

static inline struct cpu *cpu_of(struct ft_backend *backend)
{
	return (struct cpu *)backend;
}

static inline bool cpu_is_output(enum ft_role role)
{
	return role == FT_OUTPUT || role == FT_INOUT;
}

static inline bool cpu_is_input(enum ft_role role)
{
	return role == FT_INPUT_ROWS || role == FT_INPUT || role == FT_INPUT_SHARED;
}

/* The next launch gets set `index` of those to time with. */
static inline void cpu_use_set(struct cpu *cpu, size_t index)
{
	char *set = cpu->arena.memory + index * cpu->slot;
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		cpu->data[i] = cpu->array[i].cold && !cpu->shared ? set + cpu->array[i].slot
		                                                  : cpu->array[i].verified;
}

/* The next launch gets what is verified with. */
static inline void cpu_use_verified(struct cpu *cpu)
{
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		cpu->data[i] = cpu->array[i].verified;
}

/* The one call in a timed window, but for the choice of a set. */
static inline void cpu_launch(struct cpu *cpu, size_t index, size_t rows)
{
	cpu->code->run(cpu->pool, cpu->plan + index * cpu->code->plan_size, cpu->data, rows);
}

/* NULL: this program has none for it. */
const struct ft_kernel_cpu *cpu_find_code(const struct cpu *cpu, const char *kernel);

/* ---- work on all cores ---- */

/* Work that began then has just ended. */
void cpu_note_work(struct cpu *cpu, uint64_t began_ns);
/* As far as the deadline lets it: cpu->ended tells if that was not to the end. */
void cpu_in_parallel(
        struct cpu *cpu, size_t count, void (*piece)(void *context, size_t index), void *context);

/* ---- arrays ---- */

/* Of the tensors: how large the arrays are, and which are timed cold. */
int cpu_lay_out(struct cpu *cpu, struct ft_error *error);
/* How many sets at first, and at the most, within what memory there is. */
int cpu_choose_sets(struct cpu *cpu, uint64_t cap, struct ft_error *error);
int cpu_allocate(struct cpu *cpu, struct ft_error *error);
/* Memory for as many sets as there may be, and as many as there are at first; that of a sweep before serves again where it does. */
int cpu_prepare_arena(struct cpu *cpu, struct ft_error *error);
void cpu_use_sets(struct cpu *cpu, size_t sets);
void cpu_free_arrays(struct cpu *cpu);
void cpu_free_arena(struct arena *arena);
/* Bytes of a set that a launch reads or writes. */
uint64_t cpu_touched(const struct cpu *cpu);
static inline size_t cpu_pieces_of(size_t size)
{
	return (size + PIECE - 1) / PIECE;
}

/* ---- what is in them ---- */

/* Of an output that is right with this input. */
static inline uint64_t *cpu_hashes(const struct array *array, size_t input)
{
	return array->hash + input * cpu_pieces_of(array->size);
}

/* Rows that make about a piece. */
size_t cpu_rows_a_piece(const struct array *array);
/* Rows of one that is verified with, or of what it is filled with before each launch; what lies between them stays as it is. */
void cpu_fill_rows(struct cpu *cpu, uint32_t tensor, size_t first, size_t rows);
/* All inputs with the poison around them, and the hashes of each. */
void cpu_fill_inputs(struct cpu *cpu);
/* What is verified with is ready for a launch: outputs are poison, what is filled before each launch is. */
void cpu_renew_outputs(struct cpu *cpu);
/* Only what is filled before each launch is. */
void cpu_restore_verified(struct cpu *cpu);
/* The same of a set that is timed. */
void cpu_restore_set(struct cpu *cpu, size_t set);
/* All of set 0, and others from it. */
void cpu_fill_sets(struct cpu *cpu, size_t first, size_t end);
void cpu_poison(struct cpu *cpu, char *array, size_t size);
bool cpu_is_poison(const char *from, size_t size);
/* A hash for each piece. */
void cpu_note_hashes(struct cpu *cpu, const char *array, size_t size, uint64_t *hash);
bool cpu_has_changed(struct cpu *cpu, const char *array, size_t size, uint64_t *hash);

/* ---- the stages, as in backend.h ---- */

/* How a config is launched. */
void cpu_resolve(struct cpu *cpu, size_t index);
int cpu_prepare(struct ft_backend *backend, const struct ft_backend_sweep *sweep, struct ft_error *error);
void cpu_finish(struct ft_backend *backend);
int cpu_verify(struct ft_backend *backend, size_t index, double *largest, struct ft_error *error);
int cpu_audit(struct ft_backend *backend, size_t index, uint64_t launches, uint64_t *checked,
        struct ft_error *error);
int cpu_warm(struct ft_backend *backend, struct ft_error *error);
int cpu_measure(struct ft_backend *backend, size_t index, uint64_t *sample_ps, struct ft_error *error);

#endif
