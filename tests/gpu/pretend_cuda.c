/* A CUDA driver and nvrtc that pretend: device memory is the heap, kernels are C functions that run when they
 * are launched, and code objects are little ELF files that hold the options they were "compiled" with.
 *
 * Built as libcuda.so.1 and libnvrtc.so.13, so that the whole of flytune-runner-cuda runs where there is no
 * GPU. It proves nothing of the device code. A program is of the kernel whose source it was compiled from, or
 * whose checks; what it computes is that kernel's reference. Any other source is a folder's: the host's C++ compiler makes a library
 * of it, whose functions are called for one thread after another, so without barriers, and with no floating-point numbers as
 * arguments. FLYTUNE_PRETEND spoils something: "wrong", "outside", "lost",
 * "memory=MIB" (what the device has), "free=MIB" (what others leave of it), "crowd=N" (from the Nth reading of all memory on,
 * every other one takes three milliseconds longer, as beside another process), "nvml=LOAD,REASONS,PROCESSES" (what the
 * management library says, as which it poses too), "cache=MIB" (a
 * launch is faster if less than that was read before it, whatever size of a cache the driver tells), "lucky" (a launch takes 500 microseconds of the device's clock, in blocks
 * of 128 a fifth less where that code was loaded first). The faults that the device code has for tests are acted out: one never
 * ends, and after a wild write every call fails, as on a real device.
 *
 * FLYTUNE_PRETEND_GPUS: so many equal GPUs, 1 unless said. FLYTUNE_PRETEND_CONTEXTS: a file, to which "PID DEVICE" is appended for
 * each context that is made. "lost=N" in FLYTUNE_PRETEND: what is launched on GPU N writes wildly. */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/compare.h"
#include "kernels/rows/rows.h"
#include "tests/gpu/pretend.h"

enum { ARGUMENTS_MAX = 20, OWN_ARGUMENTS = 12 };

struct module {
	uint32_t kernel; /* of ft_kernels_gpu */
	char options[4096];
	bool again;    /* its code was loaded before */
	void *library; /* of a folder's source */
};

struct index3 {
	unsigned x, y, z;
};

typedef void own_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
        uint64_t, uint64_t, uint64_t, uint64_t);

struct function {
	struct module *module;
	char name[32];
	own_function *own; /* of a folder's source */
};

struct launch {
	struct function *function;
	unsigned grid, block;
	struct index3 blocks, threads;
	/* Where there is no function: a copy. */
	void *to;
	const void *from;
	size_t size;
	uint64_t argument[ARGUMENTS_MAX];
};

struct graph {
	struct launch *launch;
	size_t count;
};

struct stream {
	bool capturing;
	struct graph graph;
};

static bool spoiled(const char *how)
{
	const char *text = getenv("FLYTUNE_PRETEND");

	return text && strcmp(text, how) == 0;
}

/* Of a device that is lost to this process: the driver keeps such a state, too. */
static bool lost;

enum { GPUS_MAX = 8 };
static int primary[GPUS_MAX]; /* contexts, by the device */
static int current;           /* the device of the one that is current */

static bool is_lost_here(void)
{
	const char *text = getenv("FLYTUNE_PRETEND");

	return text && strncmp(text, "lost=", 5) == 0 && (int)strtol(text + 5, NULL, 10) == current;
}

static uint64_t option_of(const struct module *module, const char *name)
{
	const char *found = strstr(module->options, name);

	return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

/* ---- kernels ---- */

struct arguments {
	unsigned count;
	unsigned narrow; /* a bit each: 32 bits wide, reading more would read past them */
};

static const struct ft_kernel_gpu *kernel_of(const struct module *module)
{
	return ft_kernels_gpu[module->kernel];
}

static bool is_kernel(const struct module *module, const char *name)
{
	return strncmp(name, "flytune_", 8) == 0 && strcmp(name + 8, kernel_of(module)->name) == 0;
}

/* As a kernel over rows has them: the problem that code is of, for so many rows. */
static void problem_of(
        const struct module *module, uint64_t m, uint64_t row_stride, struct ft_problem *problem)
{
	const uint64_t n = option_of(module, "-DRN_N=");

	*problem = (struct ft_problem){0};
	ft_problem_set_number(problem, "m", (int64_t)m, NULL);
	ft_problem_set_number(problem, "n", (int64_t)n, NULL);
	ft_problem_set_number(problem, "row_stride", (int64_t)(row_stride > 0 ? row_stride : n), NULL);
	ft_problem_set_text(
	        problem, "dtype", ft_dtype_name((enum ft_dtype)option_of(module, "-DRN_X=")), NULL);
	ft_problem_set_text(
	        problem, "weight_dtype", ft_dtype_name((enum ft_dtype)option_of(module, "-DRN_W=")), NULL);
}

/* Of one of the runner's own functions, or a kernel's: all of its tensors, m, the row stride and eps. */
static struct arguments arguments_of(const struct module *module, const char *name)
{
	static const struct {
		const char *name;
		struct arguments arguments;
	} known[] = {{"fill_rows", {8, 1 << 4}}, {"fill_numbers", {6, 1 << 2}},
	        {"check_rows", {12, 1 << 2 | 1 << 5 | 1 << 6}}, {"reference_row", {5, 1 << 3}},
	        {"nothing", {1, 0}}, {"read_all", {3, 0}}, {"fill_sets", {5, 1 << 4}}, {"sign_sets", {5, 0}}};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(name, known[i].name) == 0)
			return known[i].arguments;
	if (!is_kernel(module, name))
		return (struct arguments){0};
	struct ft_problem problem;
	struct ft_tensors tensors;

	problem_of(module, 1, 0, &problem);
	ft_kernel_find(kernel_of(module)->name)
	        ->tensors(ft_kernel_find(kernel_of(module)->name), &problem, &tensors);
	return (struct arguments){tensors.count + 3, 1u << (tensors.count + 2)};
}

static void *pointer(uint64_t argument)
{
	return (void *)(uintptr_t)argument;
}

static double noise(uint64_t at)
{
	at *= UINT64_C(0x9e3779b97f4a7c15);
	return (double)(at >> 40) / (1 << 24) - 0.4999;
}

static void look_for_poison(const uint8_t *zone, uint64_t from, uint64_t to, uint8_t poison, uint64_t *result)
{
	for (uint64_t at = from; at < to; at++) {
		if (zone[at] == poison)
			continue;
		result[1]++;
		if (~at > result[2])
			result[2] = ~at;
	}
}

/* A tensor as gpu_check.hip knows it. */
struct on_device {
	int64_t at, rows, length, stride;
	double inverse, absolute;
	int32_t type, role;
};

/* The tensors of a set whose output is another's, as the host knows them. */
static void tensors_of(const struct on_device *table, const char *set, const char *out, uint64_t which,
        struct ft_tensors *tensors, const void *data[FT_TENSORS_MAX])
{
	memset(tensors, 0, sizeof *tensors);
	for (; tensors->count < FT_TENSORS_MAX && table[tensors->count].length > 0; tensors->count++) {
		const struct on_device *from = &table[tensors->count];

		tensors->tensor[tensors->count] = (struct ft_tensor){.role = (enum ft_role)from->role,
		        .type = (enum ft_dtype)from->type,
		        .rows = (uint64_t)from->rows,
		        .length = (uint64_t)from->length,
		        .stride = (uint64_t)from->stride,
		        .absolute = from->absolute};
		data[tensors->count] = (tensors->count == which ? out : set) + from->at;
	}
}

/* One set's, whose output lies in the set `place`. */
static void check_set(const struct launch *launch, const char *set, const char *place)
{
	const uint64_t *a = launch->argument;
	const void *data[FT_TENSORS_MAX];
	struct ft_tensors tensors;

	tensors_of(pointer(a[1]), set, place, a[2], &tensors, data);
	const struct ft_tensor *out = &tensors.tensor[a[2]];
	uint64_t *result = pointer(a[3]), element = ft_dtype_size(out->type), guard = a[4];
	const uint8_t *zone = (const uint8_t *)data[a[2]] - guard;

	look_for_poison(zone, 0, guard, (uint8_t)a[5], result);
	for (uint64_t row = 0; row < out->rows; row++) {
		uint64_t end = guard + (row * out->stride + out->length) * element;
		struct ft_worst worst = {0};
		uint32_t bits;
		float error;

		ft_compare_rows(
		        kernel_of(launch->function->module)->reference, &tensors, data, row, 1, &worst);
		error = (float)worst.error;
		memcpy(&bits, &error, sizeof bits);
		if (((uint64_t)bits << 32 | row) > result[0])
			result[0] = (uint64_t)bits << 32 | row;
		if (row + 1 == out->rows)
			look_for_poison(zone, end, end + guard, (uint8_t)a[5], result);
		else if (a[6])
			look_for_poison(zone, end, end + (out->stride - out->length) * element, (uint8_t)a[5],
			        result);
	}
}

static void check_rows(const struct launch *launch)
{
	const uint64_t *a = launch->argument, *sign = pointer(a[10]), *known = pointer(a[11]);

	for (uint64_t set = 0; set < a[7]; set++) {
		uint64_t place = (set + a[9]) % a[7];

		if (!known || sign[place] != known[set])
			check_set(launch, (const char *)pointer(a[0]) + set * a[8],
			        (const char *)pointer(a[0]) + place * a[8]);
	}
}

static void fill_sets(const struct launch *launch)
{
	const uint64_t *a = launch->argument;
	uint32_t word = (uint32_t)a[4];

	for (uint64_t set = 0; set < a[3]; set++)
		for (uint64_t at = 0; at < a[1] * 4; at++)
			memcpy((char *)pointer(a[0]) + set * a[2] + at * sizeof word, &word, sizeof word);
}

static void sign_sets(const struct launch *launch)
{
	const uint64_t *a = launch->argument;
	uint64_t *sign = pointer(a[4]);

	for (uint64_t set = 0; set < a[3]; set++)
		for (uint64_t at = 0; at < a[1] * 2; at++) {
			uint64_t word;

			memcpy(&word, (const char *)pointer(a[0]) + set * a[2] + at * sizeof word,
			        sizeof word);
			word = (word ^ at * UINT64_C(0xd1342543de82ef95)) * UINT64_C(0x9e3779b97f4a7c15);
			sign[set] += word ^ word >> 29;
		}
}

/* The reference, rounded once. */
static void compute(const struct ft_reference *reference, const struct ft_tensors *tensors,
        const void *const *data, void *out)
{
	const struct ft_tensor *rows = &tensors->tensor[FT_ROWS_OUTPUT];

	for (uint64_t row = 0; row < rows->rows; row++) {
		double known[FT_ROW_KNOWN], value;

		reference->row(tensors, data, row, known);
		for (uint64_t i = 0; i < rows->length; i++) {
			reference->values(tensors, data, row, known, i, 1, &value);
			ft_store(rows->type, out, row * rows->stride + i, value);
		}
	}
}

static int run_kernel(const struct launch *launch)
{
	const uint64_t *a = launch->argument;
	const struct module *module = launch->function->module;
	const unsigned tensor_count = arguments_of(module, launch->function->name).count - 3;
	const void *data[FT_TENSORS_MAX] = {NULL};
	struct ft_problem problem;
	struct ft_tensors tensors;

	problem_of(module, a[tensor_count], a[tensor_count + 1], &problem);
	ft_kernel_find(kernel_of(module)->name)
	        ->tensors(ft_kernel_find(kernel_of(module)->name), &problem, &tensors);
	for (unsigned i = 0; i < tensor_count; i++)
		data[i] = pointer(a[i]);
	const struct ft_tensor *out = &tensors.tensor[FT_ROWS_OUTPUT];
	uint64_t row_threads = option_of(module, "-DRN_ROW_THREADS=");
	uint64_t rows = row_threads > 0 ? launch->block / row_threads : 0;
	uint8_t *end = (uint8_t *)pointer(a[FT_ROWS_OUTPUT]) +
	        ((out->rows - 1) * out->stride + out->length) * ft_dtype_size(out->type);

	if (launch->block != option_of(module, "-DRN_BLOCK_THREADS=") || launch->grid == 0 || rows == 0)
		return INVALID;
	uint64_t fault = option_of(module, "-DFT_FAULT=");

	if (fault == 1)
		for (;;)
			pause();
	if (spoiled("lost") || is_lost_here() || fault == 2) {
		lost = true;
		return ILLEGAL;
	}
	compute(kernel_of(module)->reference, &tensors, data, pointer(a[FT_ROWS_OUTPUT]));
	if (spoiled("wrong") && launch->block == 256)
		end[-1] ^= 0x10;
	if ((spoiled("outside") && launch->block == 256) || fault == 3)
		end[3] = 0;
	if (fault == 4)
		((uint8_t *)pointer(a[FT_ROWS_INPUT]))[0] ^= 0x10;
	static unsigned launches;

	if (fault >= 5 && ++launches % (fault == 5 ? 50 : 200) == 0)
		end[-1] ^= 0x10;
	return OK;
}

/* How far the device's clock is ahead of the host's. */
static long ahead_ns;

/* A number behind a word of FLYTUNE_PRETEND, and behind so many commas; 0 if it is not there. */
static unsigned long pretended(const char *word, unsigned commas)
{
	const char *text = getenv("FLYTUNE_PRETEND");

	text = text ? strstr(text, word) : NULL;
	if (!text)
		return 0;
	text += strlen(word);
	for (; commas > 0 && text; commas--)
		text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL;
	return text ? strtoul(text, NULL, 10) : 0;
}

static void crowd(void)
{
	static unsigned long readings;
	unsigned long from = pretended("crowd=", 0);

	if (from > 0 && ++readings >= from && readings % 2 == 0)
		ahead_ns += 3000000;
}

static void fill_rows(const struct launch *launch)
{
	const uint64_t *a = launch->argument;

	for (uint64_t set = 0; set < a[6]; set++)
		for (uint64_t row = 0; row < a[1]; row++)
			for (uint64_t at = 0; at < (row + 1 < a[1] ? a[3] : a[2]); at++)
				ft_store((enum ft_dtype)a[4], (char *)pointer(a[0]) + set * a[7],
				        row * a[3] + at,
				        at < a[2] ? noise(a[5] + (set << 40) + row * a[3] + at)
				                  : (double)__builtin_nanf(""));
}

static void fill_numbers(const struct launch *launch)
{
	const uint64_t *a = launch->argument;

	for (uint64_t set = 0; set < a[4]; set++)
		for (uint64_t at = 0; at < a[1]; at++)
			ft_store((enum ft_dtype)a[2], (char *)pointer(a[0]) + set * a[5], at,
			        1 + noise(~(a[3] + (set << 40)) + at));
}

/* Of a device whose last cache holds "cache=MIB": what was read since the cache was read over is cached. */
static uint64_t read_over;

static void run_threads(const struct launch *launch, struct index3 *thread)
{
	const uint64_t *a = launch->argument;

	for (thread->z = 0; thread->z < launch->threads.z; thread->z++)
		for (thread->y = 0; thread->y < launch->threads.y; thread->y++)
			for (thread->x = 0; thread->x < launch->threads.x; thread->x++)
				launch->function->own(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
				        a[9], a[10], a[11]);
}

/* A folder's. */
static int run_own(const struct launch *launch)
{
	void *library = launch->function->module->library;
	struct index3 *block = dlsym(library, "blockIdx"), *thread = dlsym(library, "threadIdx");
	struct index3 *blocks = dlsym(library, "gridDim"), *threads = dlsym(library, "blockDim");

	if (!block || !thread || !blocks || !threads)
		return INVALID;
	*blocks = launch->blocks;
	*threads = launch->threads;
	for (block->z = 0; block->z < blocks->z; block->z++)
		for (block->y = 0; block->y < blocks->y; block->y++)
			for (block->x = 0; block->x < blocks->x; block->x++)
				run_threads(launch, thread);
	return OK;
}

static int run(const struct launch *launch)
{
	const uint64_t *a = launch->argument;
	const unsigned long cache = pretended("cache=", 0);

	if (lost)
		return ILLEGAL;
	if (!launch->function) {
		memcpy(launch->to, launch->from, launch->size);
		return OK;
	}
	const char *name = launch->function->name;

	if (launch->function->own)
		return run_own(launch);
	if (is_kernel(launch->function->module, name)) {
		if (spoiled("lucky"))
			ahead_ns +=
			        launch->block == 128 && !launch->function->module->again ? 400000 : 500000;
		if (cache > 0)
			ahead_ns += read_over < cache << 20 ? 6000000 : 10000000;
		return run_kernel(launch);
	}
	if (strcmp(name, "read_all") == 0) {
		read_over = a[1] * 16;
		crowd();
	}
	if (strcmp(name, "check_rows") == 0)
		check_rows(launch);
	else if (strcmp(name, "fill_sets") == 0)
		fill_sets(launch);
	else if (strcmp(name, "sign_sets") == 0)
		sign_sets(launch);
	else if (strcmp(name, "fill_rows") == 0)
		fill_rows(launch);
	else if (strcmp(name, "fill_numbers") == 0)
		fill_numbers(launch);
	if (strcmp(name, "reference_row") == 0) {
		const void *data[FT_TENSORS_MAX];
		struct ft_tensors tensors;

		tensors_of(pointer(a[2]), pointer(a[1]), pointer(a[1]), a[3], &tensors, data);
		ft_reference_rows(kernel_of(launch->function->module)->reference, &tensors, data, a[4], 1,
		        pointer(a[0]));
	}
	return OK;
}

/* ---- the driver ---- */

EXPORT int cuInit(unsigned flags)
{
	(void)flags;
	return OK;
}

EXPORT int cuDeviceGetCount(int *count)
{
	const char *text = getenv("FLYTUNE_PRETEND_GPUS");
	int wanted = text ? (int)strtol(text, NULL, 10) : 1;

	*count = wanted < GPUS_MAX ? wanted : GPUS_MAX;
	return OK;
}

EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device)
{
	snprintf(text, (size_t)size, "0000:%02X:00.0", 0xa1 + device);
	return OK;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	(void)device;
	*value = attribute == 16  ? 4
	        : attribute == 10 ? 32
	        : attribute == 38 ? 1 << 20
	        : attribute == 75 ? 9
	        : attribute == 1  ? 1024
	        : attribute == 12 ? 65536
	        : attribute == 97 ? 232448
	                          : 0;
	return OK;
}

static size_t memory_size(void)
{
	const char *text = getenv("FLYTUNE_PRETEND");

	return text && strncmp(text, "memory=", 7) == 0 ? strtoull(text + 7, NULL, 10) << 20
	                                                : (size_t)1 << 30;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	(void)device;
	*bytes = memory_size();
	return OK;
}

EXPORT int cuDeviceGetName(char *text, int size, int device)
{
	(void)device;
	snprintf(text, (size_t)size, "Pretended GPU");
	return OK;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	const char *path = getenv("FLYTUNE_PRETEND_CONTEXTS");
	FILE *file = path ? fopen(path, "ae") : NULL;

	if (file) {
		fprintf(file, "%ld %d\n", (long)getpid(), device);
		fclose(file);
	}
	*context = &primary[device];
	return OK;
}

EXPORT int cuCtxSetCurrent(void *context)
{
	if (context)
		current = (int)((int *)context - primary);
	return OK;
}

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	const char *text = getenv("FLYTUNE_PRETEND");

	*total = memory_size();
	*available = text && strncmp(text, "free=", 5) == 0 ? strtoull(text + 5, NULL, 10) << 20 : *total;
	return OK;
}

EXPORT int cuMemAlloc_v2(void **memory, size_t size)
{
	return posix_memalign(memory, 256, size) == 0 ? OK : NO_MEMORY;
}

EXPORT int cuMemFree_v2(void *memory)
{
	free(memory);
	return OK;
}

EXPORT int cuMemcpyHtoD_v2(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return OK;
}

EXPORT int cuMemcpyDtoH_v2(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return OK;
}

/* Done, or a part of the graph that is captured. */
static int append(struct stream *stream, const struct launch *launch)
{
	if (!stream || !stream->capturing)
		return run(launch);
	struct launch *more =
	        realloc(stream->graph.launch, (stream->graph.count + 1) * sizeof *stream->graph.launch);

	if (!more)
		return NO_MEMORY;
	stream->graph.launch = more;
	stream->graph.launch[stream->graph.count++] = *launch;
	return OK;
}

EXPORT int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, struct stream *stream)
{
	return append(stream, &(struct launch){.to = to, .from = from, .size = size});
}

EXPORT int cuMemsetD8Async(void *to, unsigned char value, size_t count, struct stream *stream)
{
	(void)stream;
	memset(to, value, count);
	return OK;
}

/* The object's bytes stay where they are while a sweep lasts. */
static const void *loaded[64];
static size_t loaded_count;

/* Its descriptor stays open: a library that is loaded is known by its path. */
static void *open_library(const char *bytes, size_t size)
{
	int descriptor = memfd_create("library", MFD_CLOEXEC);
	char path[64];

	if (descriptor < 0 || write(descriptor, bytes, size) != (ssize_t)size)
		return NULL;
	snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

EXPORT int cuModuleLoadData(struct module **module, const void *image)
{
	const struct object *object = image;

	*module = calloc(1, sizeof **module);
	if (!*module)
		return NO_MEMORY;
	(*module)->kernel = object->kernel;
	memcpy((*module)->options, object->text, sizeof(*module)->options);
	if (object->library_size > 0 &&
	        !((*module)->library = open_library(object->library, object->library_size)))
		return INVALID;
	for (size_t i = 0; i < loaded_count; i++)
		(*module)->again = (*module)->again || loaded[i] == image;
	if (!(*module)->again && loaded_count < sizeof loaded / sizeof *loaded)
		loaded[loaded_count++] = image;
	return OK;
}

EXPORT int cuModuleUnload(struct module *module)
{
	free(module);
	return OK;
}

/* Functions live as long as the process: tests are short. */
EXPORT int cuModuleGetFunction(struct function **function, struct module *module, const char *name)
{
	own_function *own = NULL;

	if (module->library)
		*(void **)&own = dlsym(module->library, name);
	if (module->library ? !own : arguments_of(module, name).count == 0)
		return 500;
	*function = calloc(1, sizeof **function);
	if (!*function)
		return NO_MEMORY;
	(*function)->module = module;
	(*function)->own = own;
	snprintf((*function)->name, sizeof(*function)->name, "%s", name);
	return OK;
}

EXPORT int cuFuncSetAttribute(struct function *function, int attribute, int value)
{
	enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, MOST = 232448 };

	return function && attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= MOST ? OK : INVALID;
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, struct function *function)
{
	(void)attribute;
	(void)function;
	*value = 32;
	return OK;
}

EXPORT int cuLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
        unsigned by, unsigned bz, unsigned shared, struct stream *stream, void **arguments, void **extra)
{
	const struct arguments its = arguments_of(function->module, function->name);
	struct launch launch = {.function = function,
	        .grid = gx,
	        .block = bx,
	        .blocks = {gx, gy, gz},
	        .threads = {bx, by, bz}};

	if (extra || gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024 ||
	        (!function->own && (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared)))
		return INVALID;
	for (unsigned i = 0; i < its.count; i++)
		memcpy(&launch.argument[i], arguments[i], its.narrow >> i & 1 ? 4 : 8);
	/* The runner has 8 bytes for each, and none behind the last. */
	for (unsigned i = 0; function->own && i < OWN_ARGUMENTS && arguments[i]; i++)
		memcpy(&launch.argument[i], arguments[i], 8);
	return append(stream, &launch);
}

EXPORT int cuStreamCreate(struct stream **stream, unsigned flags)
{
	(void)flags;
	*stream = calloc(1, sizeof **stream);
	return *stream ? OK : NO_MEMORY;
}

EXPORT int cuStreamDestroy_v2(struct stream *stream)
{
	free(stream);
	return OK;
}

EXPORT int cuStreamSynchronize(struct stream *stream)
{
	(void)stream;
	return lost ? ILLEGAL : OK;
}

EXPORT int cuCtxSynchronize(void)
{
	return lost ? ILLEGAL : OK;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return OK;
}

EXPORT int cuStreamBeginCapture_v2(struct stream *stream, int mode)
{
	(void)mode;
	stream->capturing = true;
	stream->graph = (struct graph){0};
	return OK;
}

EXPORT int cuStreamEndCapture(struct stream *stream, struct graph **graph)
{
	*graph = malloc(sizeof **graph);
	if (!*graph)
		return NO_MEMORY;
	**graph = stream->graph;
	stream->capturing = false;
	return OK;
}

EXPORT int cuGraphInstantiateWithFlags(struct graph **exec, struct graph *graph, unsigned long long flags)
{
	(void)flags;
	*exec = malloc(sizeof **exec);
	if (!*exec)
		return NO_MEMORY;
	**exec = *graph;
	(*exec)->launch = malloc(graph->count * sizeof *graph->launch);
	if (!(*exec)->launch)
		return NO_MEMORY;
	memcpy((*exec)->launch, graph->launch, graph->count * sizeof *graph->launch);
	return OK;
}

EXPORT int cuGraphLaunch(struct graph *graph, struct stream *stream)
{
	(void)stream;
	for (size_t i = 0; i < graph->count; i++) {
		int code = run(&graph->launch[i]);

		if (code)
			return code;
	}
	return OK;
}

EXPORT int cuGraphDestroy(struct graph *graph)
{
	free(graph->launch);
	free(graph);
	return OK;
}

EXPORT int cuGraphExecDestroy(struct graph *graph)
{
	return cuGraphDestroy(graph);
}

EXPORT int cuEventCreate(struct timespec **event, unsigned flags)
{
	(void)flags;
	*event = calloc(1, sizeof **event);
	return *event ? OK : NO_MEMORY;
}

EXPORT int cuEventRecord(struct timespec *event, struct stream *stream)
{
	long ahead;

	(void)stream;
	clock_gettime(CLOCK_MONOTONIC, event);
	ahead = event->tv_nsec + ahead_ns;
	event->tv_sec += ahead / 1000000000;
	event->tv_nsec = ahead % 1000000000;
	return OK;
}

EXPORT int cuEventSynchronize(struct timespec *event)
{
	(void)event;
	return OK;
}

EXPORT int cuEventElapsedTime(float *milliseconds, const struct timespec *start, const struct timespec *stop)
{
	*milliseconds = (float)((double)(stop->tv_sec - start->tv_sec) * 1e3 +
	        (double)(stop->tv_nsec - start->tv_nsec) / 1e6);
	return OK;
}

EXPORT int cuEventDestroy_v2(struct timespec *event)
{
	free(event);
	return OK;
}

EXPORT int cuGetErrorString(int error, const char **text)
{
	*text = error == ILLEGAL ? "an illegal memory access was encountered" : "pretended error";
	return OK;
}

/* ---- the management library ---- */

EXPORT int nvmlInit_v2(void)
{
	return OK;
}

EXPORT int nvmlShutdown(void)
{
	return OK;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
	static char handle;

	(void)pci;
	*device = &handle;
	return OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned used[2])
{
	(void)device;
	used[0] = used[1] = (unsigned)pretended("nvml=", 0);
	return OK;
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
	(void)device;
	*reasons = pretended("nvml=", 1);
	return OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list)
{
	enum { INSUFFICIENT_SIZE = 7 };

	(void)device;
	(void)list;
	*count = (unsigned)pretended("nvml=", 2);
	return *count > 0 ? INSUFFICIENT_SIZE : OK;
}
