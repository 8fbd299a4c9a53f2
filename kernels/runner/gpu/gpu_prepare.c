#include "kernels/runner/gpu/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/compare.h"

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 255) & ~UINT64_C(255);
}

/* With a guard on either side. */
static uint64_t place_guarded(struct gpu *gpu, uint32_t tensor, uint64_t at)
{
	gpu->tensor_at[tensor] = at + GUARD;
	return padded(at + GUARD + ft_tensor_span(&gpu->tensors.tensor[tensor]) + GUARD);
}

/* One set of buffers: what is written to, between guards; then the inputs, and what is filled before each launch as it is
 * filled. Scratch that is not is as warm for each launch as the one before left it: there is one for all. */
static void lay_out(struct gpu *gpu)
{
	uint64_t at = 0;

	gpu->in = ft_tensors_find(&gpu->tensors, FT_INPUT_ROWS);
	gpu->out = ft_tensors_find(&gpu->tensors, FT_OUTPUT);
	for (uint32_t i = 0; i < gpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];

		gpu->is_common[i] = tensor->role == FT_SCRATCH && !tensor->is_filled;
		if (gpu->is_common[i])
			gpu->common = place_guarded(gpu, i, gpu->common);
		else if (gpu_is_written(tensor))
			at = place_guarded(gpu, i, at);
	}
	gpu->inputs_at = at;
	for (uint32_t i = 0; i < gpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];

		if (gpu->is_common[i] || tensor->role == FT_OUTPUT)
			continue;
		if (gpu_is_written(tensor))
			gpu->kept_at[i] = at;
		else
			gpu->tensor_at[i] = at;
		at += padded(ft_tensor_span(tensor));
	}
	gpu->set = at;
}

/* A set for each launch of a sample, so that none comes back in it, and what is read before each to clear the caches; within
 * what there is of memory. */
static int take_memory(struct gpu *gpu, struct ft_error *error)
{
	size_t available = 0, total = 0;
	uint64_t cache = at_least(gpu->traits.cache, 1 << 20), cap, most,
	         scratch = gpu->code->reference ? padded(gpu->tensors.tensor[gpu->out].length * 8) : 256,
	         left;
	const uint64_t least = padded(1 << 20);
	int code = gpu_failed(
	        gpu, gpu->hip.MemGetInfo(&available, &total), "the device does not tell its memory", error);

	if (code)
		return code;
	/* Some is left alone: contexts, modules and graphs take more, and others use the device too. */
	cap = available - at_most(available, at_least(UINT64_C(256) << 20, total / 64));
	most = gpu->memory_cap ? gpu->memory_cap : at_least(total / 4, UINT64_C(2) << 30);
	cap = at_most(cap, most);
	/* What would not fit if all were free is the problem's fault, not the device's. */
	const uint64_t needed = gpu->set + gpu->common + scratch + least;

	if (needed > cap)
		return ft_fail(error, needed > most ? FT_E_BAD_VALUE : FT_E_UNAVAILABLE,
		        "the problem takes %" PRIu64 " MiB of device memory; %" PRIu64
		        " MiB may be used (%zu MiB of %zu are free)",
		        needed >> 20, cap >> 20, available >> 20, total >> 20);
	left = cap - gpu->set - gpu->common - scratch;
	/* Not every driver tells of the last cache: there is room for more than twice the largest one known. */
	gpu->flush_room = padded(at_least(cache * 10, UINT64_C(600) << 20));
	gpu->flush_room = at_least(least, at_most(gpu->flush_room, left / 2 & ~UINT64_C(255)));
	gpu->flush_bytes = at_most(padded(cache * 5 / 2), gpu->flush_room);
	/* At 5 TB/s and a microsecond a launch, more than any device does in a sample. */
	gpu->sets = gpu_launches_for(1000 + gpu->set / 5000);
	gpu->sets = at_most(gpu->sets, 1 + (left - gpu->flush_room) / gpu->set);
	if ((code = gpu_failed(gpu, gpu->hip.Malloc((void **)&gpu->arena, gpu->sets * gpu->set + gpu->common),
	             "cannot allocate the buffers", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.Malloc((void **)&gpu->flush, gpu->flush_room),
	                 "cannot allocate the buffer that clears caches", error)) ||
	        (code = gpu_failed(
	                 gpu, gpu->hip.Malloc((void **)&gpu->scratch, scratch), "cannot allocate", error)) ||
	        (code = gpu_failed(
	                 gpu, gpu->hip.Malloc((void **)&gpu->result, 256), "cannot allocate", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.Malloc((void **)&gpu->table, GPU_TABLE_BYTES),
	                 "cannot allocate", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.Malloc((void **)&gpu->signs, SUMS * gpu_sums_bytes(gpu)),
	                 "cannot allocate", error)))
		return code;
	gpu->input_sign = calloc(gpu->sets, sizeof *gpu->input_sign);
	gpu->seen_sign = calloc(gpu->sets, sizeof *gpu->seen_sign);
	if (!gpu->input_sign || !gpu->seen_sign)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	return 0;
}

/* AMD's devices are counted in sysfs; the library's number of one is found by its PCI address. */
static int find_ordinal(struct gpu *gpu, struct ft_error *error)
{
	const char *wanted = gpu->device[gpu->index].shown.pci;
	int count = 0, code;

	gpu->ordinal = (int)gpu->index;
	if (gpu_is_cuda())
		return 0;
	if ((code = gpu_failed(gpu, gpu->hip.Init(0), "HIP does not start", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.GetDeviceCount(&count), "HIP sees no device", error)))
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
	        (code = gpu_failed(
	                 gpu, gpu->hip.SetDevice(&gpu->hip, gpu->ordinal), "cannot use the device", error)) ||
	        (code = take_memory(gpu, error)) ||
	        (code = gpu_failed(gpu, gpu->hip.StreamCreateWithFlags(&gpu->stream, HIP_STREAM_NON_BLOCKING),
	                 "cannot make a stream", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->before, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->start, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)) ||
	        (code = gpu_failed(gpu, gpu->hip.EventCreateWithFlags(&gpu->stop, HIP_EVENT_DEFAULT),
	                 "cannot make an event", error)))
		return code;
	return 0;
}

static void *set_up_thread(void *argument)
{
	struct gpu *gpu = argument;

	gpu->setup_failed = set_up(gpu, &gpu->setup_error);
	if (gpu_is_cuda() && !gpu->nvidia_tried) {
		gpu->nvidia = ft_nvidia_open(gpu->device[gpu->index].shown.pci);
		gpu->nvidia_device = gpu->index;
		gpu->nvidia_tried = true;
	}
	atomic_store(&gpu->setup_over, true);
	return NULL;
}

static int submit_check(struct gpu *gpu, struct ft_error *error)
{
	const char *text[GPU_OPTIONS_MAX + 2];
	char key[sizeof gpu->check_key];
	struct gpu_options options;
	size_t count = 0;

	gpu_base_options(gpu->traits.arch, &options);
	for (; count < options.count; count++)
		text[count] = options.text[count];
	text[count] = gpu->code->check;
	text[count + 1] = gpu->builder;
	gpu_hash_text(text, count + 2, key);
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
	gpu->check_source = (struct ft_gpu_source){.name = "check.hip", .text = gpu->code->check};
	return gpu_pool_submit(
	        gpu->pool, NULL, &gpu->check_source, gpu->traits.arch, text, options.count, error);
}

int gpu_prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);

	gpu->sweeping = true;
	gpu->code = gpu_find_code(gpu, sweep->kernel->name);
	if (!gpu->code)
		return ft_fail(error, FT_E_UNKNOWN_KERNEL, "this runner has no %s", sweep->kernel->name);
	gpu->problem = *sweep->problem;
	sweep->kernel->tensors(sweep->kernel, sweep->problem, &gpu->tensors);
	if (gpu->code->reference && !ft_tensors_are_rows(&gpu->tensors))
		return ft_fail(
		        error, FT_E_BAD_VALUE, "a reference of rows needs one output and one input of them");
	gpu->index = sweep->device;
	gpu->traits = gpu->device[sweep->device].traits;
	gpu->seed = sweep->seed;
	gpu->memory_cap = sweep->memory_cap;
	snprintf(gpu->code_dir, sizeof gpu->code_dir, "%s", sweep->code_dir ? sweep->code_dir : "");
	gpu->count = sweep->room > sweep->count ? sweep->room : sweep->count;
	gpu->config = sweep->config;
	gpu->member = calloc(gpu->count, sizeof *gpu->member);
	gpu->first = NULL;
	gpu->last = &gpu->first;
	if (!gpu->member)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	lay_out(gpu);
	if (gpu->code_dir[0] && gpu_code_writer_open(&gpu->code_writer, gpu->code_dir, error) < 0)
		return -1;
	if (submit_check(gpu, error) < 0)
		return -1;
	atomic_store(&gpu->setup_over, false);
	if (pthread_create(&gpu->setup, NULL, set_up_thread, gpu) != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot start a thread");
	gpu->setup_runs = true;
	return gpu->code->reference ? 0 : gpu_host_prepare(gpu, error);
}
