/* Loads the kernel that was tuned for a problem on a GPU of this program and launches it there, with nothing but that
 * GPU's driver: no compiler.
 *
 * 	cc launch.c $(pkg-config --cflags --libs flytune-client) -ldl -lm -o launch && ./launch 4096 4096 0
 *
 * The last word is the GPU's ordinal in this program. Which of flytune's devices that is, its PCI address says. The
 * problem must have been tuned there: flytunectl tune rmsnorm --m 4096 --n 4096 --dtype bf16 --device ID. One source for AMD's
 * and NVIDIA's GPUs: the calls that it needs are the same but for their names.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flytune/client.h>
#include <flytune/rmsnorm.h>

/* ---- the driver ---- */

struct driver {
	int (*init)(unsigned flags);
	int (*address)(char *pci, int size, int ordinal);
	int (*load)(void **module, const void *object);
	int (*find)(void **function, void *module, const char *symbol);
	int (*allocate)(void **memory, size_t bytes);
	int (*upload)(void *device, const void *host, size_t bytes);
	int (*download)(void *host, void *device, size_t bytes);
	int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	        unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments,
	        void **extra);
	int (*synchronize)(void);
	int (*set_device)(int ordinal);                     /* HIP */
	int (*retain_context)(void **context, int ordinal); /* CUDA */
	int (*set_context)(void *context);                  /* CUDA */
};

/* Function pointers have no conversion from what dlsym gives; their bytes are the same. */
#define FIND(member, name)                                               \
	do {                                                             \
		void *found = dlsym(library, name);                      \
		memcpy(&driver->member, &found, sizeof found);           \
		if (found == NULL) {                                     \
			fprintf(stderr, "the driver has no %s\n", name); \
			return -1;                                       \
		}                                                        \
	} while (0)

static int load_hip(struct driver *driver)
{
	static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
	void *library = NULL;

	for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
		library = dlopen(names[i], RTLD_NOW);
	if (library == NULL)
		return -1;
	FIND(init, "hipInit");
	FIND(address, "hipDeviceGetPCIBusId");
	FIND(set_device, "hipSetDevice");
	FIND(load, "hipModuleLoadData");
	FIND(find, "hipModuleGetFunction");
	FIND(allocate, "hipMalloc");
	FIND(upload, "hipMemcpyHtoD");
	FIND(download, "hipMemcpyDtoH");
	FIND(launch, "hipModuleLaunchKernel");
	FIND(synchronize, "hipDeviceSynchronize");
	return 0;
}

static int load_cuda(struct driver *driver)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (library == NULL)
		return -1;
	FIND(init, "cuInit");
	FIND(address, "cuDeviceGetPCIBusId");
	FIND(retain_context, "cuDevicePrimaryCtxRetain");
	FIND(set_context, "cuCtxSetCurrent");
	FIND(load, "cuModuleLoadData");
	FIND(find, "cuModuleGetFunction");
	FIND(allocate, "cuMemAlloc_v2");
	FIND(upload, "cuMemcpyHtoD_v2");
	FIND(download, "cuMemcpyDtoH_v2");
	FIND(launch, "cuLaunchKernel");
	FIND(synchronize, "cuCtxSynchronize");
	return 0;
}

static int check(int code, const char *what)
{
	if (code != 0)
		fprintf(stderr, "%s: error %d of the driver\n", what, code);
	return code;
}

/* Makes a GPU the one that is used, and gives its PCI address. */
static int use_device(struct driver *driver, int ordinal, char *pci, int size)
{
	void *context;

	memset(driver, 0, sizeof *driver);
	if (load_cuda(driver) == 0 && driver->init(0) == 0)
		return check(driver->retain_context(&context, ordinal), "make a context") != 0 ||
		        check(driver->set_context(context), "use the context") != 0 ||
		        check(driver->address(pci, size, ordinal), "ask for the address") != 0;
	if (load_hip(driver) == 0 && driver->init(0) == 0)
		return check(driver->set_device(ordinal), "take the device") != 0 ||
		        check(driver->address(pci, size, ordinal), "ask for the address") != 0;
	fputs("neither CUDA's driver nor HIP has a device here\n", stderr);
	return -1;
}

/* ---- numbers ---- */

static float from_bf16(uint16_t bits)
{
	uint32_t word = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &word, sizeof value);
	return value;
}

static uint16_t some_bf16(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	/* of either sign, between 0.25 and 4 */
	return (uint16_t)((*state >> 33 & 0x8000) | (0x3e80 + (*state >> 40) % 0x200));
}

/* The largest relative error of one row, held against double precision. */
static double row_error(const uint16_t *y, const uint16_t *x, const uint16_t *weight, int64_t n)
{
	double sum = 0, worst = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)from_bf16(x[i]) * from_bf16(x[i]);
	for (int64_t i = 0; i < n; i++) {
		double want = from_bf16(x[i]) / sqrt(sum / (double)n + 1e-5) * from_bf16(weight[i]);
		double error = fabs(from_bf16(y[i]) - want) / fabs(want);

		worst = error > worst ? error : worst;
	}
	return worst;
}

/* ---- the launch ---- */

static int run(const struct driver *driver, const flytune_code_object *object,
        const struct flytune_code_info *info, int64_t m, int64_t n)
{
	size_t rows = (size_t)m * (size_t)n * sizeof(uint16_t), row = (size_t)n * sizeof(uint16_t), length;
	uint16_t *x = malloc(rows), *y = calloc(1, rows), *weight = malloc(row);
	void *module, *function, *device_x, *device_y, *device_weight;
	struct flytune_code_step step;
	int64_t stride = n;
	float eps = 1e-5f;
	uint64_t state = 1;
	double worst = 0;
	int failed = x == NULL || y == NULL || weight == NULL;

	for (size_t i = 0; i < rows / sizeof *x && !failed; i++)
		x[i] = some_bf16(&state);
	for (int64_t i = 0; i < n && !failed; i++)
		weight[i] = some_bf16(&state);
	flytune_code_step_init(&step);
	failed = failed || !flytune_code_get_step(object, 0, &step) ||
	        check(driver->load(&module, flytune_code_data(object, &length)), "load") != 0 ||
	        check(driver->find(&function, module, step.symbol), "find the kernel") != 0 ||
	        check(driver->allocate(&device_x, rows), "allocate") != 0 ||
	        check(driver->allocate(&device_y, rows), "allocate") != 0 ||
	        check(driver->allocate(&device_weight, row), "allocate") != 0 ||
	        check(driver->upload(device_x, x, rows), "upload") != 0 ||
	        check(driver->upload(device_weight, weight, row), "upload") != 0;
	if (!failed) {
		/* In the order that step.arguments tells. */
		void *arguments[] = {&device_y, &device_x, &device_weight, &m, &stride, &eps};
		uint32_t grid = flytune_code_blocks(&step, m);

		failed = check(driver->launch(function, grid, 1, 1, step.block, 1, 1, step.dynamic_shared,
		                       NULL, arguments, NULL),
		                 "launch") != 0 ||
		        check(driver->synchronize(), "run") != 0 ||
		        check(driver->download(y, device_y, rows), "download") != 0;
		for (int64_t r = 0; r < m && !failed; r++)
			worst = fmax(worst, row_error(y + r * n, x + r * n, weight, n));
		if (!failed)
			printf("%s for %s on %s: %" PRIu32 " blocks of %" PRIu32
			       " threads, largest relative error %.2e\n",
			        step.symbol, info->target, info->device, grid, step.block, worst);
	}
	free(x);
	free(y);
	free(weight);
	/* Half a unit in the last place, with something for arithmetic in single precision. */
	return failed || !(worst <= 1.0 / 256);
}

int main(int count, char **words)
{
	struct flytune_options options;
	struct flytune_rmsnorm shape;
	struct flytune_code_info info;
	struct flytune_error error;
	struct driver driver;
	char pci[32];
	flytune_client *client;
	flytune_problem *problem = NULL;
	flytune_code_object *object = NULL;
	int status = 1;

	if (use_device(&driver, count > 3 ? (int)strtol(words[3], NULL, 10) : 0, pci, sizeof pci) != 0)
		return 1;
	flytune_options_init(&options);
	options.device = pci;
	client = flytune_open(&options, &error);
	flytune_rmsnorm_init(&shape);
	shape.m = count > 1 ? strtoll(words[1], NULL, 10) : 64;
	shape.n = count > 2 ? strtoll(words[2], NULL, 10) : 4096;
	shape.dtype = "bf16";
	if (client != NULL)
		problem = flytune_problem_rmsnorm(&shape, &error);
	if (problem == NULL || flytune_code(client, problem, NULL, &object, &error) != FLYTUNE_OK) {
		fprintf(stderr, "%s\n", error.message);
	} else {
		flytune_code_info_init(&info);
		flytune_code_describe(object, &info);
		status = run(&driver, object, &info, shape.m, shape.n);
	}
	flytune_code_free(object);
	flytune_problem_free(problem);
	flytune_close(client);
	return status;
}
