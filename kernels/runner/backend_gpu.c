#include "kernels/runner/load.h"
#include "kernels/runner/backend_gpu.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/rmsnorm/reference.h"
#include "kernels/runner/gpu_devices.h"
#include "kernels/runner/gpu_keeper.h"
#include "kernels/runner/gpu_worker.h"
#include "kernels/runner/hip.h"

/* How a sample is taken: part of the identity of every result, raised when it changes. */
#define GPU_METHOD "graph-4"

enum {
	GUARD = 1024, /* bytes of poison before and after an output */
	POISON = 0xa5,
	CHECK_BLOCK = 256,
	TARGET_NS = 200000, /* that a sample should take */
	LAUNCHES_MAX = 400,
	WARM_MAX_NS = 60000000,
	/* What tells that someone else was on the device: see is_crowded. */
	CROWDED_NS = 300000,   /* that the host waits longer than it has to */
	JITTER_NS = 20000,     /* that a sample or a probe may take longer, whatever it takes */
	PATIENCE_NS = 8000000, /* spent on a sample that is disturbed, at the most */
	RETAKES = 4,
	LOOK_NS = 100000000, /* between two questions to the system, which take a part of a millisecond */
	PATHS_MAX = 4,
	PLACES = 8, /* of a config's code and first buffers */
	PARTS = 2,  /* places in a sample; a divisor of PLACES */
};

#define EPS RMSNORM_EPS

enum check_kernel {
	FILL_ROWS,
	FILL_WEIGHT,
	CHECK_ROWS,
	REFERENCE_ROW,
	CHECK_GUARDS,
	NOTHING,
	READ_ALL,
	CHECK_KERNELS
};

/* Where code lies in the device's memory, and with which buffers a graph begins, makes up to two percent of a short
 * launch, and stays for as long as the process does. So a config has several places, two in a sample, and samples take turns: what
 * a place does shows as noise among the rounds, which the decision can see, and not as a config's speed. */
struct placed {
	hip_module module;
	hip_function function;
	hip_graph_exec graph;
};

struct member {
	struct rmsnorm_launch launch;
	char launch_text[64];
	char key[FT_HASH_SIZE];
	bool compiling;       /* handed to the pool, and not come back */
	size_t follows;       /* 1 + the member whose build is awaited, as the same is compiled; 0: none */
	struct gpu_code code; /* of a built one, until it is loaded */
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
	const char *path[PATHS_MAX + 1];
	struct gpu_pool *pool;
	/* The checking code is the same for all sweeps of an architecture. */
	struct gpu_code check;
	char check_key[FT_HASH_SIZE];
	struct ft_nvidia *nvidia; /* open from the first sweep on, if there is one */
	size_t nvidia_device;
	bool nvidia_tried;

	/* ---- of one sweep ---- */
	bool sweeping;
	struct rmsnorm_problem problem;
	struct ft_traits traits;
	size_t index; /* of the device */
	uint64_t seed, memory_cap;
	char code_dir[256];        /* "": none */
	struct gpu_keeper *keeper; /* of that folder */
	size_t count;
	struct ft_config *config;
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
	hip_event before, start, stop; /* the probe lies between the first two, the graph behind it */
	char *arena, *flush, *result, *scratch;
	uint64_t span; /* bytes of x, and of y */
	uint64_t x_at; /* offset of x in a set; y is at GUARD */
	uint64_t weight_at;
	uint64_t set; /* bytes of one */
	uint64_t sets;
	uint64_t flush_bytes;
	unsigned launches; /* in a graph */
	unsigned parts;    /* graphs in a sample */
	uint64_t floor_ps; /* of an empty kernel */

	/* How the device is when it is ours alone, as far as was seen. */
	uint64_t probe_least_ns, wait_least_ns;
	uint64_t probes, probe_sum_ns;
	uint64_t samples, disturbed;
	uint64_t looked_ns, looked_at; /* when the system was asked last, and what was disturbed then */
	char said[96];                 /* what it said */
};

static struct gpu *gpu_of(struct ft_backend *backend)
{
	return (struct gpu *)(void *)backend;
}

/* ---- errors ---- */

/* After these nothing runs any more in the process. */
static bool is_sticky(hip_error code)
{
	static const hip_error sticky[] = {
	        46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720, 999};

	for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
		if (sticky[i] == code)
			return true;
	return false;
}

static int failed(const struct gpu *gpu, hip_error code, const char *what, struct ft_error *error)
{
	if (!code)
		return 0;
	ft_fail(error, FT_E_UNAVAILABLE, "%s: %s (error %d)", what, gpu->hip.GetErrorString(&gpu->hip, code),
	        code);
	return is_sticky(code) ? FT_BACKEND_LOST : -1;
}

/* ---- names of things ---- */

static void hash_text(const char *const *text, size_t count, char hash[FT_HASH_SIZE])
{
	XXH128_canonical_t canonical;
	XXH3_state_t state;

	XXH3_128bits_reset(&state);
	for (size_t i = 0; i < count; i++)
		XXH3_128bits_update(&state, text[i], strlen(text[i]) + 1);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		snprintf(hash + 2 * i, 3, "%02x", canonical.digest[i]);
}

static bool is_cuda(void)
{
	return strcmp(hip_kind, "cuda") == 0;
}

static void option(struct gpu_options *options, const char *text)
{
	snprintf(options->text[options->count++], sizeof options->text[0], "%s", text);
}

/* What every source is compiled with. `arch` may carry features ("gfx90a:xnack-"): code for any setting of
 * them loads in all. */
static void base_options(const char *arch, struct gpu_options *options)
{
	char text[sizeof options->text[0]];

	memset(options, 0, sizeof *options);
	if (is_cuda()) {
		snprintf(text, sizeof text, "--gpu-architecture=%s", arch);
		option(options, text);
		option(options, "--std=c++17");
		option(options, "--ptxas-options=-v");
		return;
	}
	snprintf(text, sizeof text, "--offload-arch=%.*s", (int)strcspn(arch, ":"), arch);
	option(options, text);
	option(options, "-std=c++17");
	option(options, "-O3");
	/* Said, as the default changed between releases. */
	option(options, "-mcode-object-version=4");
	if (strncmp(arch, "gfx1", 4) == 0)
		option(options, "-mcumode");
}

void gpu_rmsnorm_options(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct gpu_options *options)
{
	struct rmsnorm_defines defines;

	base_options(traits->arch, options);
	rmsnorm_gpu_defines(problem, traits, config, &defines);
	for (unsigned i = 0; i < defines.count; i++)
		option(options, defines.text[i]);
}

void gpu_launch_about(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, const char *builder, struct ft_code_about *about)
{
	struct rmsnorm_launch launch;

	memset(about, 0, sizeof *about);
	rmsnorm_gpu_launch(problem, traits, config, &launch);
	about->block = launch.block;
	about->rows = launch.rows;
	about->blocks_max = launch.blocks_limit;
	about->wave = traits->wave;
	snprintf(about->builder, sizeof about->builder, "%s", builder);
	snprintf(about->arguments, sizeof about->arguments, "%s", RMSNORM_ARGUMENTS);
}

int gpu_builder(char *text, size_t size, char *path, size_t path_size, struct ft_error *error)
{
	char build[80], real[4096];
	struct hip_rtc rtc;
	int major = 0, minor = 0;

	if (hip_rtc_load(&rtc, error) < 0)
		return -1;
	rtc.Version(&major, &minor);
	gpu_build_id(rtc.path, build, sizeof build);
	snprintf(path, path_size, "%s", rtc.path);
	/* hiprtc answers 9.0 in every release: the file's name says more. */
	const char *name = realpath(rtc.path, real) ? strrchr(real, '/') + 1 : rtc.path;

	snprintf(text, size, "%s-%d.%d file=%.60s build=%.40s", hip_rtc_name, major, minor, name,
	        build[0] ? build : "none");
	return 0;
}

/* ---- life ---- */

static int open_backend(struct ft_backend *self, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	const char *root = getenv("FLYTUNE_SYSFS_ROOT");
	char library_build[80] = "";
	int version = 0, paths = 0;
	struct ft_error why;
	bool loaded;

	gpu_clear_environment();
	self->device = gpu->device;
	self->files = gpu->path;
	if (!root)
		root = "";
	loaded = hip_load(&gpu->hip, &why) == 0;
	if (!loaded)
		snprintf(self->reason, sizeof self->reason, "%.255s", why.message);
	if (is_cuda()) {
		hip_error code = loaded ? gpu->hip.Init(0) : 0;

		if (code) {
			snprintf(self->reason, sizeof self->reason, "NVIDIA's driver does not start: %.150s",
			        gpu->hip.GetErrorString(&gpu->hip, code));
			loaded = false;
		}
		if (loaded) {
			gpu->hip.DriverGetVersion(&version);
			self->device_count = gpu_devices_nvidia(&gpu->hip, root, gpu->device, self->reason);
		}
		gpu_driver_version(root, "nvidia", gpu->driver, sizeof gpu->driver);
	} else if (loaded) {
		self->device_count = gpu_devices_amd(root, gpu->device, self->reason);
		gpu_driver_version(root, "amdgpu", gpu->driver, sizeof gpu->driver);
	}
	if (loaded &&
	        gpu_builder(gpu->builder, sizeof gpu->builder, gpu->compiler_path, sizeof gpu->compiler_path,
	                &why) < 0) {
		snprintf(self->reason, sizeof self->reason, "%.255s", why.message);
		self->device_count = 0;
	}
	if (gpu->hip.library[0]) {
		gpu_build_id(gpu->hip.library, library_build, sizeof library_build);
		gpu->path[paths++] = gpu->hip.library;
	}
	if (gpu->compiler_path[0])
		gpu->path[paths++] = gpu->compiler_path;
	gpu->path[paths++] = is_cuda() ? "/sys/module/nvidia/version" : "/sys/module/amdgpu/srcversion";
	gpu->path[paths] = NULL;
	snprintf(self->identity, sizeof self->identity,
	        "runner=flytune-" FLYTUNE_VERSION
	        " compiler=%s runtime=%s-%d:%.40s driver=%s method=" GPU_METHOD,
	        gpu->builder[0] ? gpu->builder : "none", hip_kind, version,
	        library_build[0] ? library_build : "none", gpu->driver[0] ? gpu->driver : "none");
	return gpu_pool_open(&gpu->pool, 0, error);
}

static void finish(struct ft_backend *self);

static void close_backend(struct ft_backend *self)
{
	struct gpu *gpu = gpu_of(self);

	if (gpu->sweeping)
		finish(self);
	gpu_code_free(&gpu->check);
	gpu_pool_close(gpu->pool);
	gpu->pool = NULL;
	ft_nvidia_close(gpu->nvidia);
	gpu->nvidia = NULL;
}

static void source_hash(struct ft_backend *self, const char *kernel, char hash[FT_HASH_SIZE])
{
	const char *text[] = {kernel, gpu_source_text(GPU_SOURCE_RMSNORM)};

	(void)self;
	hash_text(text, 2, hash);
}

/* ---- preparing ---- */

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 255) & ~UINT64_C(255);
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* One set of buffers: guard, y, guard, x, weight. */
static void lay_out(struct gpu *gpu)
{
	uint64_t element = rmsnorm_dtype_size(gpu->problem.dtype);

	gpu->span = ((gpu->problem.m - 1) * gpu->problem.row_stride + gpu->problem.n) * element;
	gpu->x_at = padded(GUARD + gpu->span + GUARD);
	gpu->weight_at = gpu->x_at + padded(gpu->span);
	gpu->set = gpu->weight_at + padded(gpu->problem.n * rmsnorm_dtype_size(gpu->problem.weight));
}

static char *y_of(const struct gpu *gpu, uint64_t set)
{
	return gpu->arena + set * gpu->set + GUARD;
}

static char *x_of(const struct gpu *gpu, uint64_t set)
{
	return gpu->arena + set * gpu->set + gpu->x_at;
}

static char *weight_of(const struct gpu *gpu, uint64_t set)
{
	return gpu->arena + set * gpu->set + gpu->weight_at;
}

/* As many sets as keep one launch's data out of the caches until it is used again, or as a sample has
 * launches, within what there is of memory. */
static int take_memory(struct gpu *gpu, struct ft_error *error)
{
	size_t available = 0, total = 0;
	uint64_t cache = at_least(gpu->traits.cache, 1 << 20), cap, scratch = padded(gpu->problem.n * 8);
	int code = failed(
	        gpu, gpu->hip.MemGetInfo(&available, &total), "the device does not tell its memory", error);

	if (code)
		return code;
	/* Some is left alone: contexts, modules and graphs take more, and others use the device too. */
	cap = available - at_most(available, at_least(UINT64_C(256) << 20, total / 64));
	cap = at_most(cap, gpu->memory_cap ? gpu->memory_cap : at_least(total / 4, UINT64_C(2) << 30));
	gpu->flush_bytes = padded(cache * 5 / 2);
	if (gpu->set + scratch + gpu->flush_bytes > cap)
		gpu->flush_bytes = padded(1 << 20);
	if (gpu->set + scratch + gpu->flush_bytes > cap)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "the problem takes %" PRIu64 " MiB of device memory; %" PRIu64
		        " MiB may be used (%zu MiB of %zu are free)",
		        (gpu->set + scratch + gpu->flush_bytes) >> 20, cap >> 20, available >> 20,
		        total >> 20);
	uint64_t rotation = (cache * 5 / 2 + gpu->set - 1) / gpu->set;
	/* At 5 TB/s and a microsecond a launch, more than any device does in a sample. */
	uint64_t sample = TARGET_NS / (1000 + gpu->set / 5000) + 1;

	gpu->sets = at_most(at_most(rotation + 1, sample), LAUNCHES_MAX);
	gpu->sets = at_most(gpu->sets, (cap - scratch - gpu->flush_bytes) / gpu->set);
	if ((code = failed(gpu, gpu->hip.Malloc((void **)&gpu->arena, gpu->sets * gpu->set),
	             "cannot allocate the buffers", error)) ||
	        (code = failed(gpu, gpu->hip.Malloc((void **)&gpu->flush, gpu->flush_bytes),
	                 "cannot allocate the buffer that clears caches", error)) ||
	        (code = failed(
	                 gpu, gpu->hip.Malloc((void **)&gpu->scratch, scratch), "cannot allocate", error)) ||
	        (code = failed(gpu, gpu->hip.Malloc((void **)&gpu->result, 256), "cannot allocate", error)))
		return code;
	return 0;
}

/* AMD's devices are counted in sysfs; the library's number of one is found by its PCI address. */
static int find_ordinal(struct gpu *gpu, struct ft_error *error)
{
	const char *wanted = gpu->device[gpu->index].shown.pci;
	int count = 0, code;

	gpu->ordinal = (int)gpu->index;
	if (is_cuda())
		return 0;
	if ((code = failed(gpu, gpu->hip.Init(0), "HIP does not start", error)) ||
	        (code = failed(gpu, gpu->hip.GetDeviceCount(&count), "HIP sees no device", error)))
		return code;
	for (int i = 0; i < count; i++) {
		char pci[32] = "";

		if (gpu->hip.DeviceGetPCIBusId(pci, sizeof pci, i) == 0 &&
		        strncasecmp(pci, wanted, 12) == 0) {
			gpu->ordinal = i;
			return 0;
		}
	}
	return ft_fail(error, FT_E_UNAVAILABLE,
	        "HIP does not show the device at %s: is its node in /dev/dri readable, and "
	        "HIP_VISIBLE_DEVICES unset?",
	        wanted);
}

static int set_up(struct gpu *gpu, struct ft_error *error)
{
	int code;

	if ((code = find_ordinal(gpu, error)) ||
	        (code = failed(
	                 gpu, gpu->hip.SetDevice(&gpu->hip, gpu->ordinal), "cannot use the device", error)) ||
	        (code = take_memory(gpu, error)) ||
	        (code = failed(gpu, gpu->hip.StreamCreateWithFlags(&gpu->stream, HIP_STREAM_NON_BLOCKING),
	                 "cannot make a stream", error)) ||
	        (code = failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->before, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)) ||
	        (code = failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->start, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)) ||
	        (code = failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->stop, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)))
		return code;
	return failed(gpu, gpu->hip.MemsetD8Async(gpu->flush, 0, gpu->flush_bytes, gpu->stream),
	        "cannot write to the device", error);
}

static void *set_up_thread(void *argument)
{
	struct gpu *gpu = argument;

	gpu->setup_failed = set_up(gpu, &gpu->setup_error);
	if (is_cuda() && !gpu->nvidia_tried) {
		gpu->nvidia = ft_nvidia_open(gpu->device[gpu->index].shown.pci);
		gpu->nvidia_device = gpu->index;
		gpu->nvidia_tried = true;
	}
	atomic_store(&gpu->setup_over, true);
	return NULL;
}

static int submit_check(struct gpu *gpu, struct ft_error *error)
{
	const char
	        *text[sizeof((struct gpu_options *)0)->text / sizeof((struct gpu_options *)0)->text[0] + 2];
	char key[sizeof gpu->check_key];
	struct gpu_options options;
	size_t count = 0;

	base_options(gpu->traits.arch, &options);
	for (; count < options.count; count++)
		text[count] = options.text[count];
	text[count] = gpu_source_text(GPU_SOURCE_CHECK);
	text[count + 1] = gpu->builder;
	hash_text(text, count + 2, key);
	if (gpu->check.data && strcmp(key, gpu->check_key) == 0) {
		gpu->check_tried = true;
		return 0;
	}
	gpu_code_free(&gpu->check);
	memcpy(gpu->check_key, key, sizeof key);
	if (gpu->code_dir[0] && gpu_code_load(gpu->code_dir, gpu->check_key, &gpu->check)) {
		gpu->check_tried = true;
		return 0;
	}
	return gpu_pool_submit(
	        gpu->pool, NULL, GPU_SOURCE_CHECK, gpu->traits.arch, text, options.count, error);
}

static int prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);

	gpu->sweeping = true;
	gpu->problem = rmsnorm_unpack(sweep->problem);
	gpu->index = sweep->device;
	gpu->traits = gpu->device[sweep->device].traits;
	gpu->seed = sweep->seed;
	gpu->memory_cap = sweep->memory_cap;
	snprintf(gpu->code_dir, sizeof gpu->code_dir, "%s", sweep->code_dir ? sweep->code_dir : "");
	gpu->count = sweep->count;
	gpu->config = calloc(sweep->count, sizeof *gpu->config);
	gpu->member = calloc(sweep->count, sizeof *gpu->member);
	gpu->first = NULL;
	gpu->last = &gpu->first;
	if (!gpu->config || !gpu->member)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	memcpy(gpu->config, sweep->config, sweep->count * sizeof *gpu->config);
	lay_out(gpu);
	if (gpu->code_dir[0] && gpu_keeper_open(&gpu->keeper, gpu->code_dir, error) < 0)
		return -1;
	if (submit_check(gpu, error) < 0)
		return -1;
	atomic_store(&gpu->setup_over, false);
	if (pthread_create(&gpu->setup, NULL, set_up_thread, gpu) != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot start a thread");
	gpu->setup_runs = true;
	return 0;
}

/* ---- building ---- */

static int tell(struct gpu *gpu, const struct ft_built *built, struct ft_error *error)
{
	struct ready *ready = calloc(1, sizeof *ready);

	if (!ready)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	ready->built = *built;
	*gpu->last = ready;
	gpu->last = &ready->next;
	return 0;
}

static void describe(const struct gpu_code *code, struct ft_built *built)
{
	memcpy(built->code, code->hash, sizeof built->code);
	built->registers = code->registers;
	built->spills = code->spills;
	built->build_ns = code->build_ns;
}

/* For tests of what a sweep does with a bad kernel: "loop:KNOB=VALUE,…" makes the configs that match it run
 * for ever, "wild:…" makes them write far outside, "near:…" just behind the output. */
static unsigned fault_of(const struct ft_config *config)
{
	static const char *const names[] = {"loop:", "wild:", "near:"};
	const char *text = getenv("FLYTUNE_TEST_FAULT");
	struct ft_config match;

	for (unsigned i = 0; text && i < sizeof names / sizeof *names; i++) {
		if (strncmp(text, names[i], 5) != 0 || ft_config_parse(text + 5, &match, NULL) < 0)
			continue;
		for (uint32_t k = 0; k < match.count; k++) {
			const struct ft_knob_value *knob = ft_config_find(config, match.knob[k].name);

			if (!knob || knob->value != match.knob[k].value)
				return 0;
		}
		return i + 1;
	}
	return 0;
}

/* A member that is compiled, or was, from the same options: some knobs change nothing on a device. */
static size_t find_twin(const struct gpu *gpu, size_t index)
{
	for (size_t i = 0; i < gpu->count; i++)
		if (i != index && (gpu->member[i].compiling || gpu->member[i].code.data) &&
		        strcmp(gpu->member[i].key, gpu->member[index].key) == 0)
			return i;
	return gpu->count;
}

static int copy_code(const struct gpu_code *from, struct gpu_code *to, struct ft_error *error)
{
	uint8_t *data = malloc(from->size);

	if (!data)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	memcpy(data, from->data, from->size);
	*to = *from;
	to->data = data;
	return 0;
}

/* What was built for `twin` is there for the member, too. */
static int tell_twin(struct gpu *gpu, size_t index, const struct ft_built *twin, struct ft_error *error)
{
	struct ft_built built = *twin;

	built.index = index;
	built.cached = true;
	gpu->member[index].follows = 0;
	if (!built.failed && copy_code(&gpu->member[twin->index].code, &gpu->member[index].code, error) < 0)
		return -1;
	return tell(gpu, &built, error);
}

static int build_start(struct ft_backend *self, size_t index, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	const struct ft_config *config = &gpu->config[index];
	struct ft_built built = {.index = index};
	struct gpu_options options;
	const char *text[GPU_OPTIONS_MAX + 3];
	unsigned fault = fault_of(config);
	size_t count = 0;

	gpu_rmsnorm_options(&gpu->problem, &gpu->traits, config, &options);
	if (fault)
		snprintf(options.text[options.count++], sizeof options.text[0], "-DRN_FAULT=%u", fault);
	rmsnorm_gpu_launch(&gpu->problem, &gpu->traits, config, &member->launch);
	snprintf(member->launch_text, sizeof member->launch_text, "block=%u rows=%u blocks=%u",
	        member->launch.block, member->launch.rows, member->launch.blocks_limit);
	for (; count < options.count; count++)
		text[count] = options.text[count];
	text[count] = gpu_source_text(GPU_SOURCE_RMSNORM);
	text[count + 1] = gpu->builder;
	text[count + 2] = member->launch_text;
	hash_text(text, count + 3, member->key);
	size_t twin = find_twin(gpu, index);

	if (twin < gpu->count && gpu->member[twin].compiling) {
		member->follows = twin + 1;
		return 0;
	}
	if (twin < gpu->count) {
		built.index = twin;
		describe(&gpu->member[twin].code, &built);
		return tell_twin(gpu, index, &built, error);
	}
	if (gpu->code_dir[0] && gpu_code_load(gpu->code_dir, member->key, &member->code)) {
		built.cached = true;
		describe(&member->code, &built);
		return tell(gpu, &built, error);
	}
	if (gpu_pool_submit(
	            gpu->pool, member, GPU_SOURCE_RMSNORM, gpu->traits.arch, text, options.count, error) < 0)
		return -1;
	member->compiling = true;
	return 0;
}

static void keep(const struct gpu *gpu, const char *key, const struct gpu_code *code,
        const struct ft_code_about *launch)
{
	if (gpu->keeper)
		gpu_keeper_put(gpu->keeper, key, code, launch);
}

static void take_check(struct gpu *gpu, struct gpu_compiled *compiled)
{
	gpu->check_tried = true;
	gpu->check_error = compiled->error;
	if (!compiled->failed) {
		gpu->check.data = compiled->data;
		gpu->check.size = compiled->size;
		compiled->data = NULL;
		if (gpu_code_inspect(&gpu->check, "check_rows", compiled->log, "", &gpu->check_error) < 0)
			gpu_code_free(&gpu->check);
		else
			keep(gpu, gpu->check_key, &gpu->check, NULL);
	}
	free(compiled->data);
	free(compiled->log);
}

static int take_member(
        struct gpu *gpu, struct gpu_compiled *compiled, struct ft_built *built, struct ft_error *error)
{
	struct member *member = compiled->tag;
	struct ft_code_about launch;

	memset(built, 0, sizeof *built);
	member->compiling = false;
	built->index = (size_t)(member - gpu->member);
	built->failed = compiled->failed;
	built->error = compiled->error;
	built->build_ns = compiled->build_ns;
	if (!compiled->failed) {
		member->code.data = compiled->data;
		member->code.size = compiled->size;
		member->code.build_ns = compiled->build_ns;
		compiled->data = NULL;
		if (gpu_code_inspect(&member->code, RMSNORM_KERNEL_NAME, compiled->log, member->launch_text,
		            &built->error) < 0) {
			built->failed = true;
			gpu_code_free(&member->code);
		} else {
			if (!member->code.target[0])
				snprintf(member->code.target, sizeof member->code.target, "%s",
				        gpu->traits.arch);
			gpu_launch_about(&gpu->problem, &gpu->traits, &gpu->config[built->index],
			        gpu->builder, &launch);
			keep(gpu, member->key, &member->code, &launch);
			describe(&member->code, built);
		}
	}
	free(compiled->data);
	free(compiled->log);
	for (size_t i = 0; i < gpu->count; i++)
		if (gpu->member[i].follows == built->index + 1 && tell_twin(gpu, i, built, error) < 0)
			return -1;
	return 0;
}

static int build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct gpu_compiled compiled;

	for (;;) {
		if (atomic_load(&gpu->setup_over) && gpu->setup_failed) {
			if (error)
				*error = gpu->setup_error;
			return -1;
		}
		if (gpu->first) {
			struct ready *ready = gpu->first;

			*built = ready->built;
			gpu->first = ready->next;
			if (!gpu->first)
				gpu->last = &gpu->first;
			free(ready);
			return 1;
		}
		int got = gpu_pool_wait(gpu->pool, &compiled, error);

		if (got <= 0)
			return got;
		if (compiled.tag)
			return take_member(gpu, &compiled, built, error) < 0 ? -1 : 1;
		take_check(gpu, &compiled);
	}
}

/* ---- running ---- */

static int launch(const struct gpu *gpu, hip_function function, uint64_t grid, unsigned block,
        void **arguments, struct ft_error *error)
{
	return failed(gpu,
	        gpu->hip.ModuleLaunchKernel(
	                function, (unsigned)grid, 1, 1, block, 1, 1, 0, gpu->stream, arguments, NULL),
	        "cannot launch", error);
}

static int launch_member(const struct gpu *gpu, const struct member *member, unsigned place, void *y, void *x,
        void *weight, struct ft_error *error)
{
	int64_t m = (int64_t)gpu->problem.m, stride = (int64_t)gpu->problem.row_stride;
	float eps = (float)EPS;
	void *arguments[] = {&y, &x, &weight, &m, &stride, &eps};

	return launch(gpu, member->place[place].function, member->launch.grid, member->launch.block,
	        arguments, error);
}

static uint64_t check_grid(const struct gpu *gpu, uint64_t wanted)
{
	return at_least(1, at_most(wanted, gpu->traits.units * 16));
}

static int fill(struct gpu *gpu, uint64_t set, struct ft_error *error)
{
	int64_t m = (int64_t)gpu->problem.m, n = (int64_t)gpu->problem.n,
	        stride = (int64_t)gpu->problem.row_stride;
	int type = (int)gpu->problem.dtype, weight_type = (int)gpu->problem.weight;
	uint64_t seed = gpu->seed * UINT64_C(0x9e3779b97f4a7c15) + (set << 40);
	uint64_t weight_seed = ~seed;
	void *x = x_of(gpu, set), *weight = weight_of(gpu, set);
	void *rows[] = {&x, &m, &n, &stride, &type, &seed};
	void *weights[] = {&weight, &n, &weight_type, &weight_seed};
	int code = launch(
	        gpu, gpu->kernel[FILL_ROWS], check_grid(gpu, gpu->problem.m), CHECK_BLOCK, rows, error);

	return code ? code
	            : launch(gpu, gpu->kernel[FILL_WEIGHT],
	                      check_grid(gpu, (gpu->problem.n + CHECK_BLOCK - 1) / CHECK_BLOCK), CHECK_BLOCK,
	                      weights, error);
}

static int synchronize(const struct gpu *gpu, struct ft_error *error)
{
	return failed(gpu, gpu->hip.StreamSynchronize(gpu->stream), "a kernel failed", error);
}

static int fetch(const struct gpu *gpu, void *to, const void *from, uint64_t size, struct ft_error *error)
{
	int code = synchronize(gpu, error);

	return code ? code
	            : failed(gpu, gpu->hip.MemcpyDtoH(to, (void *)(uintptr_t)from, size),
	                      "cannot read from the device", error);
}

/* The problem of one packed row of this one. */
static struct rmsnorm_problem row_problem(const struct gpu *gpu)
{
	struct rmsnorm_problem one = gpu->problem;

	one.m = 1;
	one.row_stride = one.n;
	return one;
}

struct row_on_host {
	void *x, *y, *weight;
	double *want, *got;
};

static void free_row(struct row_on_host *row)
{
	free(row->x);
	free(row->y);
	free(row->weight);
	free(row->want);
	free(row->got);
}

static int fetch_row(const struct gpu *gpu, uint64_t number, struct row_on_host *row, struct ft_error *error)
{
	uint64_t n = gpu->problem.n, element = rmsnorm_dtype_size(gpu->problem.dtype);
	uint64_t weight = rmsnorm_dtype_size(gpu->problem.weight);
	uint64_t at = number * gpu->problem.row_stride * element;
	int code;

	memset(row, 0, sizeof *row);
	row->x = malloc(n * element);
	row->y = malloc(n * element);
	row->weight = malloc(n * weight);
	row->want = malloc(n * sizeof(double));
	row->got = malloc(n * sizeof(double));
	if (!row->x || !row->y || !row->weight || !row->want || !row->got) {
		free_row(row);
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	}
	if ((code = fetch(gpu, row->x, x_of(gpu, 0) + at, n * element, error)) ||
	        (code = fetch(gpu, row->y, y_of(gpu, 0) + at, n * element, error)) ||
	        (code = fetch(gpu, row->weight, weight_of(gpu, 0), n * weight, error)))
		free_row(row);
	return code;
}

/* The device's float64 reference of one row is held against the host's. */
static int check_reference(struct gpu *gpu, uint64_t number, struct ft_error *error)
{
	struct rmsnorm_problem one = row_problem(gpu);
	int64_t n = (int64_t)gpu->problem.n, stride = (int64_t)gpu->problem.row_stride,
	        row_number = (int64_t)number;
	int type = (int)gpu->problem.dtype, weight_type = (int)gpu->problem.weight;
	double inverse = 1.0 / (double)gpu->problem.n, eps = EPS;
	void *out = gpu->scratch, *x = x_of(gpu, 0), *weight = weight_of(gpu, 0);
	void *arguments[] = {
	        &out, &x, &weight, &row_number, &n, &stride, &inverse, &eps, &type, &weight_type};
	struct row_on_host row;
	int code = launch(gpu, gpu->kernel[REFERENCE_ROW], 1, CHECK_BLOCK, arguments, error);

	if (code || (code = fetch_row(gpu, number, &row, error)))
		return code;
	code = fetch(gpu, row.got, gpu->scratch, gpu->problem.n * sizeof(double), error);
	rmsnorm_reference_rows(&one, row.x, row.weight, 0, 1, row.want);
	for (int64_t i = 0; i < n && !code; i++) {
		double off = row.got[i] - row.want[i], size = row.want[i] < 0 ? -row.want[i] : row.want[i];

		if (!(off <= 1e-12 * size + 1e-300 && off >= -1e-12 * size - 1e-300))
			code = ft_fail(error, FT_E_UNAVAILABLE,
			        "the device's float64 reference is wrong: row %" PRIu64 ", column %" PRId64
			        ": %.17g, and %.17g on the host",
			        number, i, row.got[i], row.want[i]);
	}
	free_row(&row);
	return code;
}

/* Joins the thread that made the context, loads the checking code, fills the buffers. */
static int get_ready(struct gpu *gpu, struct ft_error *error)
{
	static const char *const names[CHECK_KERNELS] = {"fill_rows", "fill_weight", "check_rows",
	        "reference_row", "check_guards", "nothing", "read_all"};
	struct gpu_compiled compiled;
	struct ft_built built;
	int code;

	if (gpu->ready)
		return 0;
	if (gpu->setup_runs) {
		pthread_join(gpu->setup, NULL);
		gpu->setup_runs = false;
	}
	if (gpu->setup_failed) {
		if (error)
			*error = gpu->setup_error;
		return gpu->setup_failed;
	}
	while (!gpu->check_tried) {
		code = gpu_pool_wait(gpu->pool, &compiled, error);
		if (code < 0)
			return -1;
		if (code == 0)
			return ft_fail(error, FT_E_UNAVAILABLE, "the checking code was never built");
		if (!compiled.tag) {
			take_check(gpu, &compiled);
			continue;
		}
		if (take_member(gpu, &compiled, &built, error) < 0 || tell(gpu, &built, error) < 0)
			return -1;
	}
	if (!gpu->check.data) {
		if (error)
			*error = gpu->check_error;
		return -1;
	}
	if ((code = failed(gpu, gpu->hip.SetDevice(&gpu->hip, gpu->ordinal), "cannot use the device", error)))
		return code;
	gpu->current = true;
	if ((code = failed(gpu, gpu->hip.ModuleLoadData(&gpu->check_module, gpu->check.data),
	             "cannot load the checking code", error)))
		return code;
	for (int i = 0; i < CHECK_KERNELS; i++)
		if ((code = failed(gpu,
		             gpu->hip.ModuleGetFunction(&gpu->kernel[i], gpu->check_module, names[i]),
		             "cannot find the checking code", error)))
			return code;
	for (uint64_t set = 0; set < gpu->sets; set++)
		if ((code = fill(gpu, set, error)))
			return code;
	if ((code = check_reference(gpu, 0, error)) ||
	        (code = check_reference(gpu, gpu->problem.m / 2, error)) ||
	        (code = check_reference(gpu, gpu->problem.m - 1, error)))
		return code;
	gpu->ready = true;
	return 0;
}

static int load_member(struct gpu *gpu, struct member *member, unsigned at, struct ft_error *error)
{
	struct placed *place = &member->place[at];
	int code;

	if (place->function)
		return 0;
	if (!member->code.data)
		return ft_fail(error, FT_E_UNAVAILABLE, "this config was not built");
	if ((code = failed(gpu, gpu->hip.ModuleLoadData(&place->module, member->code.data),
	             "cannot load the code object", error)) ||
	        (code = failed(gpu,
	                 gpu->hip.ModuleGetFunction(&place->function, place->module, RMSNORM_KERNEL_NAME),
	                 "the code object has no " RMSNORM_KERNEL_NAME, error)))
		return code;
	return 0;
}

static int guard(struct gpu *gpu, uint64_t first, uint64_t rows, uint64_t skip, uint64_t stride,
        struct ft_error *error)
{
	void *zone = y_of(gpu, 0) - GUARD, *result = gpu->result;
	unsigned poison = POISON;
	void *arguments[] = {&zone, &first, &rows, &skip, &stride, &poison, &result};

	return launch(gpu, gpu->kernel[CHECK_GUARDS], check_grid(gpu, rows), CHECK_BLOCK, arguments, error);
}

/* Runs one launch into set 0 and judges it. The output lies in poison; in place, only around the whole of it.
 */
static int run_and_check(
        struct gpu *gpu, const struct member *member, bool in_place, double *largest, struct ft_error *error)
{
	uint64_t element = rmsnorm_dtype_size(gpu->problem.dtype), found[3];
	uint64_t row_bytes = gpu->problem.n * element, stride_bytes = gpu->problem.row_stride * element;
	int64_t m = (int64_t)gpu->problem.m, n = (int64_t)gpu->problem.n,
	        stride = (int64_t)gpu->problem.row_stride;
	int type = (int)gpu->problem.dtype, weight_type = (int)gpu->problem.weight;
	double inverse = 1.0 / (double)gpu->problem.n, eps = EPS;
	void *y = y_of(gpu, 0), *x = x_of(gpu, 0), *weight = weight_of(gpu, 0), *result = gpu->result;
	void *arguments[] = {&y, &x, &weight, &m, &n, &stride, &inverse, &eps, &type, &weight_type, &result};
	const char *how = in_place ? " in place" : "";
	int code;

	if ((code = failed(gpu,
	             gpu->hip.MemsetD8Async(
	                     y_of(gpu, 0) - GUARD, POISON, GUARD + gpu->span + GUARD, gpu->stream),
	             "cannot poison the output", error)) ||
	        (code = failed(gpu, gpu->hip.MemsetD8Async(gpu->result, 0, 32, gpu->stream),
	                 "cannot write to the device", error)))
		return code;
	if (in_place &&
	        (code = failed(gpu, gpu->hip.MemcpyDtoDAsync(y, x, gpu->span, gpu->stream),
	                 "cannot copy the input", error)))
		return code;
	if ((code = launch_member(gpu, member, 0, y, in_place ? y : x, weight, error)) ||
	        (code = launch(gpu, gpu->kernel[CHECK_ROWS], check_grid(gpu, gpu->problem.m), CHECK_BLOCK,
	                 arguments, error)) ||
	        (code = guard(gpu, 0, 1, 0, GUARD, error)) ||
	        (code = guard(gpu, GUARD + gpu->span, 1, 0, GUARD, error)))
		return code;
	if (!in_place && stride_bytes > row_bytes && m > 1 &&
	        (code = guard(gpu, GUARD, gpu->problem.m - 1, row_bytes, stride_bytes, error)))
		return code;
	if ((code = fetch(gpu, found, gpu->result, sizeof found, error)))
		return code;
	if (found[1]) {
		ft_fail(error, FT_E_UNAVAILABLE,
		        "it writes outside of its rows%s: %" PRIu64 " bytes, one of them %" PRId64
		        " bytes from the output's begin",
		        how, found[1], (int64_t)(~found[2] - GUARD));
		return 1;
	}
	float worst;
	uint32_t bits = (uint32_t)(found[0] >> 32);

	memcpy(&worst, &bits, sizeof worst);
	if ((double)worst > *largest)
		*largest = (double)worst;
	if ((double)worst <= rmsnorm_bound(gpu->problem.dtype))
		return 0;
	/* The host looks at that row itself, and says which element it is; in place its input is gone from y
	 * only. */
	struct rmsnorm_problem one = row_problem(gpu);
	struct rmsnorm_worst element_at = {0};
	struct row_on_host row;
	uint64_t number = found[0] & 0xffffffffu;

	if ((code = fetch_row(gpu, number, &row, error)))
		return code;
	rmsnorm_compare_rows(&one, row.x, row.weight, row.y, 0, 1, &element_at);
	element_at.row = number;
	if (rmsnorm_worst_check(&element_at, gpu->problem.dtype, error) == 0)
		ft_fail(error, FT_E_UNAVAILABLE,
		        "row %" PRIu64 "%s is wrong by %g on the device and right when read back", number,
		        how, (double)worst);
	free_row(&row);
	return 1;
}

static int verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	int code;

	*largest = 0;
	if ((code = get_ready(gpu, error)) || (code = load_member(gpu, member, 0, error)))
		return code;
	code = run_and_check(gpu, member, false, largest, error);
	return code ? code : run_and_check(gpu, member, true, largest, error);
}

/* ---- timing ---- */

/* A graph of many launches, each on the next set of buffers; another place begins with another. */
static int capture(struct gpu *gpu, const struct member *member, unsigned place, unsigned launches,
        hip_graph_exec *exec, struct ft_error *error)
{
	/* A sample's parts go on where the one before ended: within it no buffer comes back that is still warm. */
	uint64_t first = (uint64_t)place * launches + place / PARTS * gpu->sets / (PLACES / PARTS);
	void *unused = gpu->result;
	void *nothing[] = {&unused};
	hip_graph graph = NULL;
	hip_error ended;
	int code = failed(gpu, gpu->hip.StreamBeginCapture(gpu->stream, HIP_CAPTURE_THREAD_LOCAL),
	        "cannot capture a graph", error);

	if (code)
		return code;
	for (unsigned i = 0; i < launches && !code; i++) {
		uint64_t set = (first + i) % gpu->sets;

		code = member ? launch_member(gpu, member, place, y_of(gpu, set), x_of(gpu, set),
		                        weight_of(gpu, set), error)
		              : launch(gpu, gpu->kernel[NOTHING], 1, CHECK_BLOCK, nothing, error);
	}
	ended = gpu->hip.StreamEndCapture(gpu->stream, &graph);
	if (!code)
		code = failed(gpu, ended, "cannot capture a graph", error);
	if (!code)
		code = failed(
		        gpu, gpu->hip.GraphInstantiate(&gpu->hip, exec, graph), "cannot make a graph", error);
	if (graph)
		gpu->hip.GraphDestroy(graph);
	return code;
}

/* What a run of a graph took, and what happened around it. */
struct timing {
	uint64_t elapsed_ns;
	uint64_t probe_ns;  /* of the reading that clears the caches before it, always the same work */
	uint64_t waited_ns; /* by the host, beyond both */
	bool preempted;     /* so was the host's thread: its wait says nothing */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t interruptions(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

/* Clears the caches by reading other memory, which also keeps the device busy until the graphs are on their way;
 * then times them from the first kernel to the last. */
static int time_graphs(struct gpu *gpu, const hip_graph_exec *exec, unsigned count, struct timing *timing,
        struct ft_error *error)
{
	int64_t quads = (int64_t)(gpu->flush_bytes / 16);
	void *data = gpu->flush, *never = gpu->result + 128;
	void *arguments[] = {&data, &quads, &never};
	float probe = 0, graph = 0;
	uint64_t begin = now_ns(), calm = interruptions(), wall;
	int code;

	if ((code = failed(
	             gpu, gpu->hip.EventRecord(gpu->before, gpu->stream), "cannot record an event", error)) ||
	        (code = launch(
	                 gpu, gpu->kernel[READ_ALL], gpu->traits.units * 8, CHECK_BLOCK, arguments, error)) ||
	        (code = failed(gpu, gpu->hip.EventRecord(gpu->start, gpu->stream), "cannot record an event",
	                 error)))
		return code;
	for (unsigned i = 0; i < count; i++)
		if ((code = failed(gpu, gpu->hip.GraphLaunch(exec[i], gpu->stream), "cannot launch a graph",
		             error)))
			return code;
	if ((code = failed(
	             gpu, gpu->hip.EventRecord(gpu->stop, gpu->stream), "cannot record an event", error)) ||
	        (code = failed(gpu, gpu->hip.EventSynchronize(gpu->stop), "a kernel failed", error)))
		return code;
	wall = now_ns() - begin;
	timing->preempted = interruptions() != calm;
	if ((code = failed(gpu, gpu->hip.EventElapsedTime(&probe, gpu->before, gpu->start),
	             "cannot read an event", error)) ||
	        (code = failed(gpu, gpu->hip.EventElapsedTime(&graph, gpu->start, gpu->stop),
	                 "cannot read an event", error)))
		return code;
	timing->probe_ns = (uint64_t)((double)probe * 1e6);
	timing->elapsed_ns = (uint64_t)((double)graph * 1e6);
	timing->waited_ns = wall - at_most(wall, timing->probe_ns + timing->elapsed_ns);
	gpu->probes++;
	gpu->probe_sum_ns += timing->probe_ns;
	if (gpu->probes == 1 || timing->probe_ns < gpu->probe_least_ns)
		gpu->probe_least_ns = timing->probe_ns;
	if (gpu->probes == 1 || timing->waited_ns < gpu->wait_least_ns)
		gpu->wait_least_ns = timing->waited_ns;
	return 0;
}

/* Whether a time is beyond what the same work takes on a device that does nothing else. */
static bool is_long(uint64_t took_ns, uint64_t least_ns)
{
	return took_ns > least_ns + least_ns / 2 + JITTER_NS;
}

/* Another process's kernels run in slices of time between ours: the host waits for its turn, or a slice falls into the
 * probe. */
static bool is_crowded(const struct gpu *gpu, const struct timing *timing)
{
	return is_long(timing->probe_ns, gpu->probe_least_ns) ||
	        (!timing->preempted && timing->waited_ns > gpu->wait_least_ns + CROWDED_NS);
}

static void drop_graphs(const struct gpu *gpu, struct member *member)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (member->place[i].graph) {
			gpu->hip.GraphExecDestroy(member->place[i].graph);
			member->place[i].graph = NULL;
		}
}

/* Launches that fill a sample, if one takes so long; no more than there are cold buffers for. */
static unsigned launches_for(const struct gpu *gpu, uint64_t launch_ns)
{
	uint64_t count = (TARGET_NS + launch_ns - 1) / at_least(launch_ns, 1);

	if (gpu->sets * gpu->set < 2 * gpu->traits.cache)
		count = at_most(count, gpu->sets);
	/* What an event costs is in every sample: two launches share it. */
	return (unsigned)at_least(
	        launch_ns < UINT64_C(5) * TARGET_NS && gpu->sets > 1 ? 2 : 1, at_most(count, LAUNCHES_MAX));
}

static int measure_floor(struct gpu *gpu, struct ft_error *error)
{
	enum { TIMES = 3 };
	hip_graph_exec exec = NULL;
	struct timing timing;
	uint64_t best = UINT64_MAX;
	int code = capture(gpu, NULL, 0, gpu->launches, &exec, error);

	for (int i = 0; i < TIMES && !code; i++) {
		code = time_graphs(
		        gpu, (const hip_graph_exec[PARTS]){exec, exec}, gpu->parts, &timing, error);
		if (!code && timing.elapsed_ns < best)
			best = timing.elapsed_ns;
	}
	if (exec)
		gpu->hip.GraphExecDestroy(exec);
	if (!code)
		gpu->floor_ps = best * 1000 / gpu->launches / gpu->parts;
	return code;
}

static void say_method(struct gpu *gpu)
{
	double mean = gpu->probes > 0 ? (double)gpu->probe_sum_ns / (double)gpu->probes : 0;

	snprintf(gpu->base.method, sizeof gpu->base.method,
	        "samples of %u launches over %" PRIu64 " sets of buffers (%" PRIu64
	        " MiB in all); caches cleared before each by reading %" PRIu64
	        " MiB (%.1f us, %.1f in the mean); an empty kernel takes %.3f us a launch; %" PRIu64
	        " of %" PRIu64 " samples disturbed",
	        gpu->launches * gpu->parts, gpu->sets, gpu->sets * gpu->set >> 20, gpu->flush_bytes >> 20,
	        (double)gpu->probe_least_ns / 1e3, mean / 1e3, (double)gpu->floor_ps / 1e6, gpu->disturbed,
	        gpu->samples);
}

static int warm(struct ft_backend *self, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = NULL;
	struct timing timing = {0};
	hip_graph_exec exec = NULL;
	uint64_t spent = 0, before = 0;
	unsigned launches;
	int code = get_ready(gpu, error);

	for (size_t i = 0; i < gpu->count && !member; i++)
		if (gpu->member[i].place[0].function)
			member = &gpu->member[i];
	/* In a sweep that goes on after a crash all may be verified already, and none be loaded. */
	for (size_t i = 0; i < gpu->count && !member && !code; i++)
		if (gpu->member[i].code.data && (code = load_member(gpu, &gpu->member[i], 0, error)) == 0)
			member = &gpu->member[i];
	if (code || !member)
		return code ? code : ft_fail(error, FT_E_UNAVAILABLE, "no config is ready to be timed");
	launches = (unsigned)at_least(1, at_most(gpu->sets, 16));
	code = capture(gpu, member, 0, launches, &exec, error);
	/* Until two in a row agree within 2 %: clocks have come up, and all code is on the device. */
	for (unsigned i = 0; spent < WARM_MAX_NS && !code; i++) {
		before = timing.elapsed_ns;
		code = time_graphs(gpu, &exec, 1, &timing, error);
		spent += timing.elapsed_ns + 50000;
		if (i >= 4 && timing.elapsed_ns * 50 > before * 49 && timing.elapsed_ns * 50 < before * 51)
			break;
	}
	if (exec)
		gpu->hip.GraphExecDestroy(exec);
	/* Warm again after a pause: what was sized stays so. */
	if (!code && gpu->launches == 0) {
		launches = launches_for(gpu, timing.elapsed_ns / launches);
		gpu->parts = launches > 1 ? PARTS : 1;
		gpu->launches = launches / gpu->parts;
		code = measure_floor(gpu, error);
	}
	if (!code)
		say_method(gpu);
	return code;
}

/* A sample that a slice of someone else's fell into is taken again, while that is cheap. It takes half as long again as the
 * config ever took, which no clock does to it; the decision would cut it off as well. */
static int measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	unsigned at = member->samples++ * gpu->parts % PLACES;
	bool first = member->launches == 0, disturbed = false, cut = true;
	hip_graph_exec graph[PARTS];
	struct timing timing;
	uint64_t spent = 0;
	int code;

	if ((code = get_ready(gpu, error)))
		return code;
	if (first)
		member->launches = gpu->launches;
	for (unsigned i = 0; i < gpu->parts; i++) {
		struct placed *place = &member->place[at + i];

		if ((code = load_member(gpu, member, at + i, error)) ||
		        (!place->graph &&
		                (code = capture(
		                         gpu, member, at + i, member->launches, &place->graph, error))))
			return code;
		graph[i] = place->graph;
	}
	for (unsigned i = 0; cut && i <= RETAKES && spent < PATIENCE_NS; i++) {
		if ((code = time_graphs(gpu, graph, gpu->parts, &timing, error)))
			return code;
		if (member->least_ns == 0 || timing.elapsed_ns < member->least_ns)
			member->least_ns = timing.elapsed_ns;
		cut = is_long(timing.elapsed_ns, member->least_ns) ||
		        is_long(timing.probe_ns, gpu->probe_least_ns);
		disturbed = disturbed || cut || is_crowded(gpu, &timing);
		spent += timing.probe_ns + timing.elapsed_ns + timing.waited_ns;
	}
	gpu->samples++;
	gpu->disturbed += disturbed;
	self->disturbed += disturbed;
	*sample_ps = timing.elapsed_ns * 1000 / member->launches / gpu->parts;
	if (*sample_ps == 0)
		*sample_ps = 1;
	/* A config that is many times slower than the rest needs fewer launches. */
	if (first && timing.elapsed_ns > 4 * (uint64_t)TARGET_NS && member->launches > 2) {
		member->launches =
		        (unsigned)at_least(2, (uint64_t)member->launches * TARGET_NS / timing.elapsed_ns);
		member->least_ns = 0;
		drop_graphs(gpu, member);
	}
	return 0;
}

static void weather(struct ft_backend *self, struct ft_weather *told)
{
	struct gpu *gpu = gpu_of(self);
	struct ft_nvidia_state state;
	uint64_t now = now_ns();
	bool crowded = gpu->disturbed > gpu->looked_at;

	say_method(gpu);
	if (gpu->nvidia && gpu->index == gpu->nvidia_device && now - gpu->looked_ns >= LOOK_NS) {
		ft_nvidia_look(gpu->nvidia, crowded, &state);
		gpu->looked_ns = now;
		gpu->looked_at = gpu->disturbed;
		if (state.held)
			snprintf(gpu->said, sizeof gpu->said, "heat or power held the device's clocks down");
		else if (state.processes > 1)
			snprintf(gpu->said, sizeof gpu->said, "%u processes had a context on the device",
			        state.processes);
		else if (state.capped && !gpu->said[0])
			snprintf(gpu->said, sizeof gpu->said, "the device's clocks were at its power limit");
		told->rough = state.held;
	}
	snprintf(told->reason, sizeof told->reason, "%s", gpu->said);
}

static void finish(struct ft_backend *self)
{
	struct gpu *gpu = gpu_of(self);

	if (gpu->setup_runs)
		pthread_join(gpu->setup, NULL);
	gpu->setup_runs = false;
	gpu_keeper_close(gpu->keeper);
	/* What is still being compiled belongs to members that go away now. */
	gpu_pool_drop(gpu->pool);
	if (!gpu->current && gpu->arena)
		gpu->hip.SetDevice(&gpu->hip, gpu->ordinal);
	for (size_t i = 0; i < gpu->count && gpu->member; i++) {
		struct member *member = &gpu->member[i];

		drop_graphs(gpu, member);
		for (unsigned k = 0; k < PLACES; k++)
			if (member->place[k].module)
				gpu->hip.ModuleUnload(member->place[k].module);
		gpu_code_free(&member->code);
	}
	if (gpu->check_module)
		gpu->hip.ModuleUnload(gpu->check_module);
	if (gpu->before)
		gpu->hip.EventDestroy(gpu->before);
	if (gpu->start)
		gpu->hip.EventDestroy(gpu->start);
	if (gpu->stop)
		gpu->hip.EventDestroy(gpu->stop);
	if (gpu->stream)
		gpu->hip.StreamDestroy(gpu->stream);
	char *memory[] = {gpu->arena, gpu->flush, gpu->scratch, gpu->result};

	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
		if (memory[i])
			gpu->hip.Free(memory[i]);
	while (gpu->first) {
		struct ready *next = gpu->first->next;

		free(gpu->first);
		gpu->first = next;
	}
	free(gpu->config);
	free(gpu->member);
	memset((char *)gpu + offsetof(struct gpu, sweeping), 0, sizeof *gpu - offsetof(struct gpu, sweeping));
	gpu->last = &gpu->first;
}

uint64_t gpu_launch_floor(const struct ft_backend *backend)
{
	return ((const struct gpu *)(const void *)backend)->floor_ps;
}

const struct gpu_code *gpu_member_code(const struct ft_backend *backend, size_t index)
{
	return &((const struct gpu *)(const void *)backend)->member[index].code;
}

static bool load(struct ft_backend *self, size_t device, unsigned *percent)
{
	const char *pci = self->device[device].shown.pci;
	const struct gpu *gpu = gpu_of(self);
	struct ft_nvidia_state state;

	if (gpu->nvidia && device == gpu->nvidia_device) {
		ft_nvidia_look(gpu->nvidia, false, &state);
		*percent = state.load;
		return state.load_known;
	}
	return strcmp(self->kind, "cuda") == 0 ? ft_load_nvidia(pci, percent) : ft_load_amd(pci, percent);
}

struct ft_backend *gpu_backend_new(void)
{
	struct gpu *gpu = calloc(1, sizeof *gpu);

	if (!gpu)
		return NULL;
	gpu->last = &gpu->first;
	gpu->base = (struct ft_backend){.kind = hip_kind,
	        .open = open_backend,
	        .close = close_backend,
	        .source = source_hash,
	        .prepare = prepare,
	        .build_start = build_start,
	        .build_wait = build_wait,
	        .verify = verify,
	        .warm = warm,
	        .measure = measure,
	        .load = load,
	        .weather = weather,
	        .finish = finish};
	return &gpu->base;
}

void gpu_backend_free(struct ft_backend *backend)
{
	free(gpu_of(backend));
}
