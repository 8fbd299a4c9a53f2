/* Kernels that are not over rows: their inputs are made on the host, and their outputs are held there against what they have to be. All
 * sets of buffers have the same inputs. */
#include "kernels/runner/gpu/internal.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compare.h"
#include "kernels/host.h"
#include "kernels/runner/cpu/expect.h"
#include "kernels/runner/fill.h"
#include "kernels/runner/parallel.h"

enum {
	NAN_BYTE =
	        0xff, /* NaN in every type, between what inputs have, so that whoever reads there is found out */
	PIECE_BYTES = 1 << 20,
	MEMORY_PART = 2, /* of the host's free memory, a sweep takes at most one part in so many */
};

struct gpu_host {
	struct ft_pool *pool;
	struct cpu_build build;
	char *image; /* of the inputs in a set, and of what is filled before each launch */
	char *seen;  /* an output, with what surrounds it */
	double *want[FT_TENSORS_MAX];
};

static uint64_t rows_a_piece(const struct ft_tensor *tensor)
{
	return at_least(1, PIECE_BYTES / (tensor->length * ft_dtype_size(tensor->type) + 1));
}

/* ---- inputs ---- */

static char *image_of(const struct gpu *gpu, uint32_t tensor)
{
	const uint64_t at = gpu->kept_at[tensor] ? gpu->kept_at[tensor] : gpu->tensor_at[tensor];

	return gpu->host->image + (at - gpu->inputs_at);
}

static bool has_image(const struct gpu *gpu, uint32_t tensor)
{
	return gpu->kept_at[tensor] || !gpu_is_written(&gpu->tensors.tensor[tensor]);
}

static bool fill_image(struct gpu *gpu)
{
	bool whole = true;

	memset(gpu->host->image, NAN_BYTE, gpu->set - gpu->inputs_at);
	for (uint32_t i = 0; i < gpu->tensors.count && whole; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];
		struct ft_fill_rows fill = {.tensor = tensor,
		        .rows = tensor->rows,
		        .rows_a_piece = rows_a_piece(tensor),
		        .seed = ft_fill_seed(gpu->seed, i)};

		if (!has_image(gpu, i))
			continue;
		fill.data = image_of(gpu, i);
		/* Nobody writes between the rows of what is written to. */
		if (gpu->kept_at[i])
			memset(fill.data, POISON, ft_tensor_span(tensor));
		whole = ft_parallel(gpu->host->pool, gpu->base.deadline_ns,
		        (fill.rows + fill.rows_a_piece - 1) / fill.rows_a_piece, ft_fill_piece, &fill);
	}
	return whole;
}

static int take_memory(struct gpu *gpu, struct ft_error *error)
{
	const uint64_t room = ft_host_free_memory("") / MEMORY_PART;
	uint64_t largest = 0, wanted = gpu->set - gpu->inputs_at;

	for (uint32_t i = 0; i < gpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];

		largest = at_least(largest, ft_tensor_span(tensor));
		wanted += tensor->rows * tensor->length * sizeof(double);
	}
	wanted += largest;
	if (wanted > room)
		return ft_fail(error, FT_E_UNAVAILABLE,
		        "the problem takes %" PRIu64 " MiB of the host's memory, and a sweep may use %" PRIu64
		        " MiB",
		        wanted >> 20, room >> 20);
	gpu->host->image = malloc(gpu->set - gpu->inputs_at + 1);
	gpu->host->seen = malloc(GUARD + largest + GUARD);
	return gpu->host->image && gpu->host->seen ? 0 : ft_fail(error, FT_E_MEMORY, "out of memory");
}

int gpu_host_prepare(struct gpu *gpu, struct ft_error *error)
{
	const void *data[FT_TENSORS_MAX] = {NULL};
	struct ft_allowance allowance;

	gpu->host = calloc(1, sizeof *gpu->host);
	if (!gpu->host)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	ft_allowance_read("", &allowance);
	gpu->host->pool = ft_pool_new((uint32_t)ft_allowance_units(&allowance), NULL);
	if (!gpu->host->pool)
		return ft_fail(error, FT_E_MEMORY, "cannot start threads");
	if (take_memory(gpu, error) < 0 || cpu_build_open(&gpu->host->build, gpu->code->own, 1, error) < 0)
		return -1;
	if (!fill_image(gpu))
		return FT_BACKEND_ENDED;
	for (uint32_t i = 0; i < gpu->tensors.count; i++)
		data[i] = has_image(gpu, i) ? image_of(gpu, i) : NULL;
	return ft_expect(&gpu->host->build, &gpu->problem, &gpu->tensors, data, gpu->host->pool,
	        gpu->base.deadline_ns, gpu->host->want, error);
}

void gpu_host_finish(struct gpu *gpu)
{
	struct gpu_host *host = gpu->host;

	if (!host)
		return;
	cpu_build_close(&host->build);
	ft_pool_free(host->pool);
	free(host->image);
	free(host->seen);
	for (uint32_t i = 0; i < FT_TENSORS_MAX; i++)
		free(host->want[i]);
	free(host);
	gpu->host = NULL;
}

int gpu_host_fill(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error)
{
	const uint64_t size = gpu->set - gpu->inputs_at;
	char *from = gpu->arena + first * gpu->set + gpu->inputs_at;
	char last;
	int code;

	if (size == 0)
		return 0;
	/* It returns when the host's memory was read, before all is in the device's; what is read behind it was written. */
	if ((code = gpu_failed(gpu, gpu->hip.MemcpyHtoD(from, gpu->host->image, size),
	             "cannot write to the device", error)) ||
	        (code = gpu_fetch(gpu, &last, from + size - 1, 1, error)))
		return code;
	for (uint64_t i = 1; i < sets && !code; i++)
		code = gpu_failed(gpu, gpu->hip.MemcpyDtoDAsync(from + i * gpu->set, from, size, gpu->stream),
		        "cannot copy on the device", error);
	return code;
}

/* ---- outputs ---- */

struct look {
	const struct ft_tensor *tensor;
	const char *data; /* row 0 */
	const double *want;
	uint64_t rows_a_piece;
	bool gaps; /* nothing may have been written between rows */
	atomic_bool outside;
	atomic_flag busy;
	struct ft_worst worst;
};

static bool is_poison(const char *from, uint64_t size)
{
	return size == 0 || ((unsigned char)from[0] == POISON && memcmp(from, from + 1, size - 1) == 0);
}

static void look_at_rows(void *context, size_t index)
{
	struct look *look = context;
	const struct ft_tensor *tensor = look->tensor;
	const uint64_t element = ft_dtype_size(tensor->type), first = index * look->rows_a_piece;
	const uint64_t rows = at_most(look->rows_a_piece, tensor->rows - first);
	struct ft_worst worst = {0};

	ft_compare_values(tensor, look->data, first, rows, look->want + first * tensor->length, &worst);
	for (uint64_t row = first; look->gaps && row < first + rows && row + 1 < tensor->rows; row++)
		if (!is_poison(look->data + (row * tensor->stride + tensor->length) * element,
		            (tensor->stride - tensor->length) * element))
			atomic_store(&look->outside, true);
	while (atomic_flag_test_and_set_explicit(&look->busy, memory_order_acquire))
		sched_yield();
	ft_worst_merge(&look->worst, &worst);
	atomic_flag_clear_explicit(&look->busy, memory_order_release);
}

static int say_wrong(const struct gpu *gpu, uint32_t tensor, const char *how, struct ft_error *error)
{
	char message[sizeof error->message];

	snprintf(message, sizeof message, "%s", error->message);
	ft_fail(error, FT_E_UNAVAILABLE, "%s%s: %s", gpu->tensors.tensor[tensor].name, how, message);
	return 1;
}

/* The rows of one that was fetched, and what lies between them. */
static int judge_rows(struct gpu *gpu, uint32_t which, bool gaps, uint64_t until_ns, double *largest,
        struct ft_error *error)
{
	const struct ft_tensor *tensor = &gpu->tensors.tensor[which];
	struct look look = {.tensor = tensor,
	        .data = gpu->host->seen + GUARD,
	        .want = gpu->host->want[which],
	        .rows_a_piece = rows_a_piece(tensor),
	        .gaps = gaps,
	        .busy = ATOMIC_FLAG_INIT};

	if (!ft_parallel(gpu->host->pool, until_ns,
	            (tensor->rows + look.rows_a_piece - 1) / look.rows_a_piece, look_at_rows, &look))
		return FT_BACKEND_ENDED;
	if (look.worst.error > *largest)
		*largest = look.worst.error;
	if (atomic_load(&look.outside)) {
		ft_fail(error, FT_E_UNAVAILABLE, "it writes between its rows");
		return 1;
	}
	return ft_worst_check(&look.worst, tensor, error) < 0 ? 1 : 0;
}

static int judge_one(struct gpu *gpu, uint64_t set, uint32_t which, bool gaps, uint64_t until_ns,
        double *largest, struct ft_error *error)
{
	const struct ft_tensor *tensor = &gpu->tensors.tensor[which];
	const uint64_t span = ft_tensor_span(tensor);
	char *seen = gpu->host->seen;
	int code = gpu_fetch(gpu, seen, tensor_of(gpu, which, set) - GUARD, GUARD + span + GUARD, error);

	if (code)
		return code;
	if (!is_poison(seen, GUARD) || !is_poison(seen + GUARD + span, GUARD)) {
		ft_fail(error, FT_E_UNAVAILABLE, "it writes %s its rows",
		        is_poison(seen, GUARD) ? "behind" : "before");
		return 1;
	}
	return tensor->role == FT_SCRATCH ? 0 : judge_rows(gpu, which, gaps, until_ns, largest, error);
}

int gpu_host_judge(struct gpu *gpu, uint64_t set, uint32_t in_place, uint64_t until_ns, double *largest,
        struct ft_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < gpu->tensors.count && !code; i++) {
		if (!gpu_is_written(&gpu->tensors.tensor[i]))
			continue;
		code = judge_one(gpu, set, i, i != in_place, until_ns, largest, error);
		if (code == 1)
			return say_wrong(gpu, i, i == in_place ? ", in place" : "", error);
	}
	return code;
}
