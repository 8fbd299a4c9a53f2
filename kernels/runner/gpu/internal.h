/* What the GPU backend knows of its devices and of the sweep in work, shared by the files that it is made of:
 * backend_gpu.c (its life), gpu_options.c (what is compiled), gpu_prepare.c, gpu_build.c, gpu_verify.c, gpu_audit.c and
 * gpu_time.c (the stages of a sweep), gpu_host.c (what is verified on the host). Used from one thread, but for the one of gpu_prepare.c. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_INTERNAL_H
#define FLYTUNE_KERNELS_RUNNER_GPU_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/runner/gpu/backend_gpu.h"
#include "kernels/runner/gpu/gpu_devices.h"
#include "kernels/runner/gpu/gpu_code_writer.h"
#include "kernels/runner/gpu/gpu_compiler.h"
#include "kernels/runner/gpu/hip.h"
#include "kernels/runner/load.h"

/* How a sample is taken: part of the identity of every result, raised when it changes. */
#define GPU_METHOD "graph-5"

enum {
	GUARD = 1024, /* bytes of poison before and after an output */
	POISON = 0xa5,
	CHECK_BLOCK = 256,
	TARGET_NS = 100000, /* that a sample should take */
	PATHS_MAX = 60,     /* the daemon looks at 64 at most */
	AUDIT_SETS = 64,
	GPU_TABLE_BYTES = 1024, /* of the tensors, on the device */
	PLACES = 8,             /* of a config's code and first buffers */
	PARTS = 2,              /* places in a sample; a divisor of PLACES */
};

enum check_kernel {
	FILL_ROWS,
	FILL_NUMBERS,
	CHECK_ROWS,
	REFERENCE_ROW,
	NOTHING,
	READ_ALL,
	FILL_SETS,
	SIGN_SETS,
	CHECK_KERNELS
};

/* What is summed up, a number for each set (gpu_check.hip). */
enum gpu_sums { SUMS_INPUTS, SUMS_RIGHT, SUMS_SEEN, SUMS };

/* Where code lies in the device's memory, and with which buffers a graph begins, makes up to two percent of a short
 * launch, and stays for as long as the process does. So a config has several places, two in a sample, and samples take turns: what
 * a place does shows as noise among the rounds, which the decision can see, and not as a config's speed. */
struct placed {
	hip_module module;
	hip_function function[FT_STEPS_MAX];
	hip_graph_exec graph;
};

struct member {
	struct ft_launch launch;
	char launch_text[64];   /* of a kernel over rows, whatever their number */
	char how[FT_HASH_SIZE]; /* any other is launched; "": its code's hash says it */
	char key[FT_HASH_SIZE];
	bool compiling;       /* handed to the pool, and not come back */
	size_t follows;       /* 1 + the member whose build is awaited, as the same is compiled; 0: none */
	struct gpu_code code; /* of a built one */
	struct placed place[PLACES];
	unsigned samples;  /* taken: each from the next place */
	unsigned launches; /* in a graph */
	uint64_t least_ns; /* that a sample took; 0: not yet run */
};

/* Built already, and not yet told of by build_wait. */
struct ready {
	struct ready *next;
	struct ft_built built;
};

struct gpu {
	struct ft_backend base;
	struct hip hip;
	struct ft_backend_device device[GPU_DEVICES_MAX];
	char driver[64], builder[192], compiler_path[256];
	char place[PATHS_MAX][96]; /* of the system's, below */
	const char *path[PATHS_MAX + 1];
	unsigned unnamed; /* places for which there was no room */
	struct gpu_pool *pool;
	/* The checking code is the same for all sweeps of a kernel and an architecture. */
	struct gpu_code check;
	char check_key[FT_HASH_SIZE];
	struct ft_nvidia *nvidia; /* open from the first sweep on, if there is one */
	size_t nvidia_device;
	bool nvidia_tried;
	struct ft_kernel_gpu *adopted[FT_FOLDERS_MAX]; /* kernels of folders */
	size_t adopted_count;
	char headers[128]; /* for them */

	/* ---- of one sweep ---- */
	bool sweeping;
	const struct ft_kernel_gpu *code;
	struct ft_gpu_source check_source; /* its */
	struct gpu_host *host;             /* of one that is not over rows; else NULL */
	struct ft_problem problem;
	struct ft_tensors tensors;
	uint32_t in, out;                   /* which of them, of a kernel over rows */
	uint64_t tensor_at[FT_TENSORS_MAX]; /* where row 0 of each lies in a set, or behind all */
	uint64_t kept_at
	        [FT_TENSORS_MAX]; /* in a set: what it is filled with before each launch; 0: it is not */
	bool is_common[FT_TENSORS_MAX]; /* scratch that all sets share, behind them */
	struct ft_traits traits;
	size_t index; /* of the device */
	uint64_t seed, memory_cap;
	char code_dir[256];                  /* "": none */
	struct gpu_code_writer *code_writer; /* of that folder */
	size_t count;
	const struct ft_config *config; /* the sweep's */
	struct member *member;
	struct ready *first, **last;

	/* The context is made, and memory taken, on a thread while configs compile. */
	pthread_t setup;
	bool setup_runs;
	atomic_bool setup_over;
	int setup_failed;
	struct ft_error setup_error;

	bool ready; /* check code loaded, inputs filled */
	bool check_tried;
	struct ft_error check_error;
	hip_module check_module;
	hip_function kernel[CHECK_KERNELS];

	int ordinal; /* the device's number in the library */
	bool current;
	hip_stream stream;
	hip_event before, start, stop; /* the probe lies between the first two, the graphs behind it */
	char *arena, *flush, *result, *scratch, *signs;
	char *table;        /* the tensors, as gpu_check.hip knows them */
	uint64_t inputs_at; /* offset in a set of the first input; before it is all that is written to */
	uint64_t set;       /* bytes of one */
	uint64_t common;    /* bytes behind all sets */
	uint64_t sets;
	uint64_t flush_bytes, flush_room; /* read before a sample, and there to be read */
	/* Of a launch behind so many bytes read as all samples are, and behind as many as there is room for; 0: not looked at. */
	uint64_t near_ps, far_ps;
	/* Sums over what lies in each set (gpu_check.hip): inputs as they were made, and as they are. */
	uint64_t *input_sign, *seen_sign;
	bool launched;                  /* something ran since the inputs were looked at last */
	size_t audited;                 /* 1 + which; 0: none */
	hip_graph_exec audit[2];        /* a launch on each set, and a look at all outputs */
	uint64_t audit_sets, audit_ran; /* how many of them; and graphs, so far */
	uint64_t right_sign;            /* of outputs that the host found right, if `is_right_known` */
	bool is_right_known;
	unsigned launches; /* in a graph */
	unsigned parts;    /* graphs in a sample */
	uint64_t floor_ps; /* of an empty kernel */

	/* How the device is when it is ours alone, as far as was seen. */
	uint64_t probe_least_ns, wait_least_ns;
	uint64_t probes, probe_sum_ns;
	uint64_t samples, disturbed;
	uint64_t looked_ns, looked_at; /* when the system was asked last, and what was disturbed then */
	bool held, capped;  /* what it said: heat or power held the clocks down; they were at the limit */
	unsigned processes; /* that had a context on the device, when more than ours had */
};

static inline struct gpu *gpu_of(struct ft_backend *backend)
{
	return (struct gpu *)(void *)backend;
}

static inline uint64_t at_least(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Of each kind of sums, in whole quads. */
static inline uint64_t gpu_sums_bytes(const struct gpu *gpu)
{
	return (gpu->sets + 1) / 2 * 16;
}

static inline char *tensor_of(const struct gpu *gpu, uint32_t tensor, uint64_t set)
{
	return gpu->arena + (gpu->is_common[tensor] ? gpu->sets : set) * gpu->set + gpu->tensor_at[tensor];
}

static inline bool gpu_is_written(const struct ft_tensor *tensor)
{
	return tensor->role == FT_OUTPUT || tensor->role == FT_INOUT || tensor->role == FT_SCRATCH;
}

/* 0, FT_BACKEND_LOST after what no call in this process survives, or -1; with `what` failed, and why. */
int gpu_failed(const struct gpu *gpu, hip_error code, const char *what, struct ft_error *error);

/* Of so many texts, each with its end. */
void gpu_hash_text(const char *const *text, size_t count, char hash[FT_HASH_SIZE]);
void gpu_hash_launch(const struct ft_launch *launch, char hash[FT_HASH_SIZE]);
bool gpu_is_cuda(void);
/* A kernel's, built in or of a folder; NULL: this runner has none. */
const struct ft_kernel_gpu *gpu_find_code(const struct gpu *gpu, const char *name);
/* What every source is compiled with. `arch` may carry features ("gfx90a:xnack-"): code for any setting of them loads in
 * all. */
void gpu_base_options(const char *arch, struct gpu_options *options);

/* The stages, as in backend.h. */
int gpu_prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error);
int gpu_build_start(struct ft_backend *self, size_t index, struct ft_error *error);
int gpu_build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error);
int gpu_verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error);
int gpu_audit(
        struct ft_backend *self, size_t index, uint64_t launches, uint64_t *checked, struct ft_error *error);
int gpu_warm(struct ft_backend *self, struct ft_error *error);
int gpu_measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error);
void gpu_interference(struct ft_backend *self, struct ft_interference *told);

/* Waits until the checking code is built; what else is built meanwhile is kept for gpu_build_wait. */
int gpu_await_check(struct gpu *gpu, struct ft_error *error);
/* Joins the thread that made the context, loads the checking code, fills the buffers; once a sweep. */
int gpu_get_ready(struct gpu *gpu, struct ft_error *error);
int gpu_load_member(struct gpu *gpu, struct member *member, unsigned place, struct ft_error *error);
int gpu_launch(const struct gpu *gpu, hip_function function, uint64_t grid, unsigned block, void **arguments,
        struct ft_error *error);
/* Row 0 of each tensor: what is written to in one set, all else in another. */
void gpu_data_of(const struct gpu *gpu, uint64_t written, uint64_t set, void *data[FT_TENSORS_MAX]);
/* All of its steps. */
int gpu_launch_member(const struct gpu *gpu, const struct member *member, unsigned place, void *const *data,
        struct ft_error *error);
/* What is filled before each launch is again, in the first so many sets. */
int gpu_restore(const struct gpu *gpu, uint64_t sets, struct ft_error *error);
/* Inputs of so many sets, from the seed; the same each time. */
int gpu_fill(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error);
/* Waits for what was launched before. */
int gpu_fetch(const struct gpu *gpu, void *to, const void *from, uint64_t size, struct ft_error *error);
/* Forgets what the device found wrong; then what it finds of the outputs of sets is added to what it found. */
int gpu_look_anew(const struct gpu *gpu, struct ft_error *error);
struct gpu_look {
	uint64_t sets; /* the first so many */
	bool in_place;
	uint64_t turn; /* the output of a set's input lies so many further on */
	const char *sign,
	        *known_to; /* sums of outputs, and those of right ones, on the device; NULL: none is right already */
};
int gpu_look(const struct gpu *gpu, const struct gpu_look *look, struct ft_error *error);
/* Waits, and judges by what was found: 0, 1 if it is wrong, or as gpu_failed. `how` is said of it; `row` gets the worst, or
 * UINT64_MAX where something else was written to. */
int gpu_judge(const struct gpu *gpu, const char *how, double *largest, uint64_t *row, struct ft_error *error);
/* Of the inputs of the first so many sets, into `sign`. */
int gpu_sign_inputs(struct gpu *gpu, uint64_t sets, uint64_t *sign, struct ft_error *error);
/* 1 if an input of the first so many sets is not what it was; then it is again. */
int gpu_check_inputs(struct gpu *gpu, uint64_t sets, struct ft_error *error);
/* ---- gpu_host.c, of a kernel that is not over rows ---- */

/* Inputs, and what its outputs have to be. 0, -1 or FT_BACKEND_ENDED. */
int gpu_host_prepare(struct gpu *gpu, struct ft_error *error);
void gpu_host_finish(struct gpu *gpu);
int gpu_host_fill(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error);
/* Waits, and judges what was written in a set, where the output `in_place` lay over its input (of no tensor: none did): 0, 1 if it is
 * wrong, FT_BACKEND_ENDED after `until_ns` (0: never), or as gpu_failed. */
int gpu_host_judge(struct gpu *gpu, uint64_t set, uint32_t in_place, uint64_t until_ns, double *largest,
        struct ft_error *error);

/* Launches that are kept in a graph, each made by `launch` of its number. */
int gpu_capture(struct gpu *gpu, unsigned launches,
        int (*launch)(struct gpu *gpu, void *context, unsigned number, struct ft_error *error), void *context,
        hip_graph_exec *exec, struct ft_error *error);
/* That make a sample, if one takes so long. */
unsigned gpu_launches_for(uint64_t launch_ns);
/* They have to be captured again. */
void gpu_drop_graphs(const struct gpu *gpu, struct member *member);

#endif
