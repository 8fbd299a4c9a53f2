#include "kernels/runner/gpu/gpu_folder.h"
#include "kernels/runner/gpu/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int gpu_failed(const struct gpu *gpu, hip_error code, const char *what, struct ft_error *error)
{
	if (!code)
		return 0;
	ft_fail(error, FT_E_UNAVAILABLE, "%s: %s (error %d)", what, gpu->hip.GetErrorString(&gpu->hip, code),
	        code);
	return is_sticky(code) ? FT_BACKEND_LOST : -1;
}

/* ---- life ---- */

static void name_place(struct gpu *gpu, int *paths, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void name_place(struct gpu *gpu, int *paths, const char *format, ...)
{
	va_list arguments;

	if (*paths == PATHS_MAX) {
		gpu->unnamed++;
		return;
	}
	va_start(arguments, format);
	vsnprintf(gpu->place[*paths], sizeof gpu->place[*paths], format, arguments);
	va_end(arguments);
	gpu->path[*paths] = gpu->place[*paths];
	gpu->path[++*paths] = NULL;
}

/* Where the driver's version stands, which devices there are, and what they are parted into. */
static void name_places(struct gpu *gpu, int paths)
{
	const char *module = gpu_is_cuda() ? "nvidia" : "amdgpu";

	name_place(gpu, &paths, "/sys/module/%s/version", module);
	name_place(gpu, &paths, "/sys/module/%s/srcversion", module);
	name_place(gpu, &paths, "/proc/sys/kernel/osrelease");
	if (gpu_is_cuda()) {
		name_place(gpu, &paths, "/proc/driver/nvidia/gpus");
		for (size_t i = 0; i < gpu->base.device_count; i++)
			name_place(gpu, &paths, "/proc/driver/nvidia/capabilities/gpu%zu/mig", i);
		return;
	}
	name_place(gpu, &paths, "/sys/class/kfd/kfd/topology/nodes");
	for (size_t i = 0; i < gpu->base.device_count; i++) {
		const char *pci = gpu->device[i].shown.pci;

		/* The parts of one device, which follow each other, have its modes. */
		if (i > 0 && strcmp(pci, gpu->device[i - 1].shown.pci) == 0)
			continue;
		name_place(gpu, &paths, "/sys/bus/pci/devices/%s/current_compute_partition", pci);
		name_place(gpu, &paths, "/sys/bus/pci/devices/%s/current_memory_partition", pci);
	}
}

static int open_backend(struct ft_backend *self, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	const char *root = secure_getenv("FLYTUNE_SYSFS_ROOT");
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
	if (gpu_is_cuda()) {
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
	gpu->path[paths] = NULL;
	name_places(gpu, paths);
	if (gpu->unnamed > 0)
		fprintf(stderr,
		        "flytune-runner-%s: of the files whose change makes its hello stale %u are not "
		        "watched: a "
		        "hello names %d at most\n",
		        self->kind, gpu->unnamed, PATHS_MAX);
	snprintf(self->identity, sizeof self->identity,
	        "runner=flytune-" FLYTUNE_VERSION
	        " compiler=%s runtime=%s-%d:%.40s driver=%s method=" GPU_METHOD,
	        gpu->builder[0] ? gpu->builder : "none", hip_kind, version,
	        library_build[0] ? library_build : "none", gpu->driver[0] ? gpu->driver : "none");
	return gpu_pool_open(&gpu->pool, 0, error);
}

const struct ft_kernel_gpu *gpu_find_built_in(const char *name)
{
	unsigned i = 0;

	while (ft_kernels_gpu[i] && strcmp(ft_kernels_gpu[i]->name, name) != 0)
		i++;
	return ft_kernels_gpu[i];
}

const struct ft_kernel_gpu *gpu_find_code(const struct gpu *gpu, const char *name)
{
	for (size_t i = 0; i < gpu->adopted_count; i++)
		if (strcmp(gpu->adopted[i]->name, name) == 0)
			return gpu->adopted[i];
	return gpu_find_built_in(name);
}

static int adopt(struct ft_backend *self, const struct ft_folder *folder, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);

	gpu_headers(gpu->compiler_path, gpu->headers, sizeof gpu->headers);
	gpu->adopted[gpu->adopted_count] = gpu_folder_code(folder, gpu->headers, error);
	if (!gpu->adopted[gpu->adopted_count])
		return -1;
	gpu->adopted_count++;
	return 0;
}

static void finish(struct ft_backend *self);

static void close_backend(struct ft_backend *self)
{
	struct gpu *gpu = gpu_of(self);

	if (gpu->sweeping)
		finish(self);
	while (gpu->adopted_count > 0)
		free(gpu->adopted[--gpu->adopted_count]);
	gpu_code_free(&gpu->check);
	gpu_pool_close(gpu->pool);
	gpu->pool = NULL;
	ft_nvidia_close(gpu->nvidia);
	gpu->nvidia = NULL;
}

static void source_hash(struct ft_backend *self, const char *kernel, char hash[FT_HASH_SIZE])
{
	const struct ft_kernel_gpu *code = gpu_find_code(gpu_of(self), kernel);

	hash[0] = '\0';
	if (code)
		gpu_hash_text((const char *[]){kernel, code->hash ? code->hash : code->source.text}, 2, hash);
}

static void finish(struct ft_backend *self)
{
	struct gpu *gpu = gpu_of(self);

	if (gpu->setup_runs)
		pthread_join(gpu->setup, NULL);
	gpu->setup_runs = false;
	gpu_code_writer_close(gpu->code_writer);
	gpu_host_finish(gpu);
	/* What is still being compiled belongs to members that go away now. */
	gpu_pool_drop(gpu->pool);
	if (!gpu->current && gpu->arena)
		gpu->hip.SetDevice(&gpu->hip, gpu->ordinal);
	for (size_t i = 0; i < gpu->count && gpu->member; i++) {
		struct member *member = &gpu->member[i];

		gpu_drop_graphs(gpu, member);
		for (unsigned k = 0; k < PLACES; k++)
			if (member->place[k].module)
				gpu->hip.ModuleUnload(member->place[k].module);
		gpu_code_free(&member->code);
	}
	for (unsigned i = 0; i < 2; i++)
		if (gpu->audit[i])
			gpu->hip.GraphExecDestroy(gpu->audit[i]);
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
	char *memory[] = {gpu->arena, gpu->flush, gpu->scratch, gpu->result, gpu->signs, gpu->table};

	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
		if (memory[i])
			gpu->hip.Free(memory[i]);
	while (gpu->first) {
		struct ready *next = gpu->first->next;

		free(gpu->first);
		gpu->first = next;
	}
	free(gpu->member);
	free(gpu->input_sign);
	free(gpu->seen_sign);
	memset((char *)gpu + offsetof(struct gpu, sweeping), 0, sizeof *gpu - offsetof(struct gpu, sweeping));
	gpu->last = &gpu->first;
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
	        .host = FT_HOST_WORKED,
	        .takes_late = true,
	        .open = open_backend,
	        .close = close_backend,
	        .source = source_hash,
	        .adopt = adopt,
	        .prepare = gpu_prepare,
	        .build_start = gpu_build_start,
	        .build_wait = gpu_build_wait,
	        .verify = gpu_verify,
	        .audit = gpu_audit,
	        .warm = gpu_warm,
	        .measure = gpu_measure,
	        .load = load,
	        .interference = gpu_interference,
	        .finish = finish};
	return &gpu->base;
}

void gpu_backend_free(struct ft_backend *backend)
{
	free(gpu_of(backend));
}
