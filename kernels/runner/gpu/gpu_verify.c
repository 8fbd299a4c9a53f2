#include "kernels/runner/gpu/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compare.h"

int gpu_launch(const struct gpu *gpu, hip_function function, uint64_t grid, unsigned block, void **arguments,
        struct ft_error *error)
{
	return gpu_failed(gpu,
	        gpu->hip.ModuleLaunchKernel(
	                function, (unsigned)grid, 1, 1, block, 1, 1, 0, gpu->stream, arguments, NULL),
	        "cannot launch", error);
}

void gpu_data_of(const struct gpu *gpu, uint64_t written, uint64_t set, void *data[FT_TENSORS_MAX])
{
	for (uint32_t i = 0; i < gpu->tensors.count; i++)
		data[i] = tensor_of(gpu, i, gpu_is_written(&gpu->tensors.tensor[i]) ? written : set);
}

static int launch_step(const struct gpu *gpu, const struct ft_step *step, hip_function function,
        void *const *data, struct ft_error *error)
{
	struct ft_argument value[FT_ARGUMENTS_MAX];
	void *tensor[FT_ARGUMENTS_MAX], *arguments[FT_ARGUMENTS_MAX + 1] = {NULL};

	memcpy(value, step->argument, sizeof value);
	for (uint32_t i = 0; i < step->count; i++) {
		switch (value[i].kind) {
		case FT_ARGUMENT_TENSOR:
			tensor[i] = data[value[i].tensor];
			arguments[i] = &tensor[i];
			break;
		case FT_ARGUMENT_INT32:
			arguments[i] = &value[i].int32;
			break;
		case FT_ARGUMENT_INT64:
			arguments[i] = &value[i].int64;
			break;
		case FT_ARGUMENT_FLOAT:
			arguments[i] = &value[i].float32;
			break;
		case FT_ARGUMENT_DOUBLE:
			arguments[i] = &value[i].float64;
			break;
		}
	}
	return gpu_failed(gpu,
	        gpu->hip.ModuleLaunchKernel(function, step->grid[0], step->grid[1], step->grid[2],
	                step->block[0], step->block[1], step->block[2], step->shared, gpu->stream, arguments,
	                NULL),
	        "cannot launch", error);
}

int gpu_launch_member(const struct gpu *gpu, const struct member *member, unsigned place, void *const *data,
        struct ft_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < member->launch.count && !code; i++)
		code = launch_step(
		        gpu, &member->launch.step[i], member->place[place].function[i], data, error);
	return code;
}

int gpu_restore(const struct gpu *gpu, uint64_t sets, struct ft_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < gpu->tensors.count; i++)
		for (uint64_t set = 0; gpu->kept_at[i] && set < sets && !code; set++)
			code = gpu_failed(gpu,
			        gpu->hip.MemcpyDtoDAsync(tensor_of(gpu, i, set),
			                gpu->arena + set * gpu->set + gpu->kept_at[i],
			                ft_tensor_span(&gpu->tensors.tensor[i]), gpu->stream),
			        "cannot copy on the device", error);
	return code;
}

static uint64_t check_grid(const struct gpu *gpu, uint64_t wanted)
{
	return at_least(1, at_most(wanted, gpu->traits.units * 16));
}

int gpu_fill(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error)
{
	int code = 0;

	if (gpu->host)
		return gpu_host_fill(gpu, first, sets, error);
	for (uint32_t i = 0; i < gpu->tensors.count && !code; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];
		int64_t rows = (int64_t)tensor->rows, length = (int64_t)tensor->length,
		        stride = (int64_t)tensor->stride, count = (int64_t)sets,
		        set_bytes = (int64_t)gpu->set;
		int type = (int)tensor->type;
		uint64_t seed = gpu->seed * UINT64_C(0x9e3779b97f4a7c15) + (first << 40) + i;
		void *data = tensor_of(gpu, i, first);
		void *by_row[] = {&data, &rows, &length, &stride, &type, &seed, &count, &set_bytes};
		void *plain[] = {&data, &length, &type, &seed, &count, &set_bytes};

		if (tensor->role == FT_OUTPUT)
			continue;
		if (tensor->fill == FT_FILL_ROWS) {
			code = gpu_launch(gpu, gpu->kernel[FILL_ROWS], check_grid(gpu, tensor->rows * sets),
			        CHECK_BLOCK, by_row, error);
			continue;
		}
		/* From end to end, and what may lie between its rows too. */
		length += (rows - 1) * stride;
		code = gpu_launch(gpu, gpu->kernel[FILL_NUMBERS],
		        check_grid(gpu, ((uint64_t)length * sets + CHECK_BLOCK - 1) / CHECK_BLOCK),
		        CHECK_BLOCK, plain, error);
	}
	return code;
}

static int synchronize(const struct gpu *gpu, struct ft_error *error)
{
	return gpu_failed(gpu, gpu->hip.StreamSynchronize(gpu->stream), "a kernel failed", error);
}

int gpu_fetch(const struct gpu *gpu, void *to, const void *from, uint64_t size, struct ft_error *error)
{
	int code = synchronize(gpu, error);

	return code ? code
	            : gpu_failed(gpu, gpu->hip.MemcpyDtoH(to, (void *)(uintptr_t)from, size),
	                      "cannot read from the device", error);
}

/* A row of a set, and what else its output depends on, as packed tensors of one row. */
struct row_on_host {
	struct ft_tensors tensors;
	void *data[FT_TENSORS_MAX];
};

static void free_row(struct row_on_host *row)
{
	for (uint32_t i = 0; i < FT_TENSORS_MAX; i++)
		free(row->data[i]);
}

static int fetch_row(
        const struct gpu *gpu, uint64_t set, uint64_t number, struct row_on_host *row, struct ft_error *error)
{
	int code = 0;

	memset(row, 0, sizeof *row);
	row->tensors = gpu->tensors;
	for (uint32_t i = 0; i < gpu->tensors.count && !code; i++) {
		struct ft_tensor *tensor = &row->tensors.tensor[i];
		uint64_t element = ft_dtype_size(tensor->type), size = tensor->length * element;
		uint64_t at = number * tensor->stride * element;

		if (tensor->role == FT_INPUT_SHARED) {
			size += (tensor->rows - 1) * tensor->stride * element;
			at = 0;
		} else {
			tensor->rows = 1;
			tensor->stride = tensor->length;
		}
		row->data[i] = malloc(size);
		code = row->data[i] ? gpu_fetch(gpu, row->data[i], tensor_of(gpu, i, set) + at, size, error)
		                    : ft_fail(error, FT_E_MEMORY, "out of memory");
	}
	if (code)
		free_row(row);
	return code;
}

static const void *const *data_of(const struct row_on_host *row)
{
	return (const void *const *)row->data;
}

/* The device's float64 reference of one row is held against the host's. */
static int check_reference(struct gpu *gpu, uint64_t number, struct ft_error *error)
{
	const uint64_t n = gpu->tensors.tensor[gpu->out].length;
	int64_t row_number = (int64_t)number;
	int which = (int)gpu->out;
	void *out = gpu->scratch, *set = gpu->arena, *table = gpu->table;
	void *arguments[] = {&out, &set, &table, &which, &row_number};
	double *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
	struct row_on_host row;
	int code = -1;

	if (!want || !got) {
		ft_fail(error, FT_E_MEMORY, "out of memory");
		goto out;
	}
	code = gpu_launch(gpu, gpu->kernel[REFERENCE_ROW], 1, CHECK_BLOCK, arguments, error);
	if (code || (code = gpu_fetch(gpu, got, gpu->scratch, n * sizeof *got, error)) ||
	        (code = fetch_row(gpu, 0, number, &row, error)))
		goto out;
	ft_reference_rows(gpu->code->reference, &row.tensors, data_of(&row), 0, 1, want);
	free_row(&row);
	for (uint64_t i = 0; i < n && !code; i++) {
		double off = got[i] - want[i], size = want[i] < 0 ? -want[i] : want[i];
		double least = gpu->tensors.tensor[gpu->out].absolute * 1e-6 + 1e-300;

		if (!(off <= 1e-12 * size + least && off >= -1e-12 * size - least))
			code = ft_fail(error, FT_E_UNAVAILABLE,
			        "the device's float64 reference is wrong: row %" PRIu64 ", column %" PRIu64
			        ": %.17g, and %.17g on the host",
			        number, i, got[i], want[i]);
	}
out:
	free(want);
	free(got);
	return code;
}

static int check_references(struct gpu *gpu, struct ft_error *error)
{
	const uint64_t rows = gpu->tensors.tensor[gpu->out].rows;
	int code = check_reference(gpu, 0, error);

	if (!code)
		code = check_reference(gpu, rows / 2, error);
	return code ? code : check_reference(gpu, rows - 1, error);
}

/* A tensor as gpu_check.hip knows it. */
struct on_device {
	int64_t at, rows, length, stride;
	double inverse, absolute;
	int32_t type, role;
};

static int put_table(struct gpu *gpu, struct ft_error *error)
{
	struct on_device table[FT_TENSORS_MAX] = {{0}};

	_Static_assert(sizeof table <= GPU_TABLE_BYTES, "the table has no room");
	for (uint32_t i = 0; i < gpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[i];

		table[i] = (struct on_device){.at = (int64_t)gpu->tensor_at[i],
		        .rows = (int64_t)tensor->rows,
		        .length = (int64_t)tensor->length,
		        .stride = (int64_t)tensor->stride,
		        .inverse = 1.0 / (double)tensor->length,
		        .absolute = tensor->absolute,
		        .type = (int32_t)tensor->type,
		        .role = (int32_t)tensor->role};
	}
	return gpu_failed(gpu, gpu->hip.MemcpyHtoD(gpu->table, table, sizeof table),
	        "cannot write to the device", error);
}

int gpu_get_ready(struct gpu *gpu, struct ft_error *error)
{
	static const char *const names[CHECK_KERNELS] = {"fill_rows", "fill_numbers", "check_rows",
	        "reference_row", "nothing", "read_all", "fill_sets", "sign_sets"};
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
	if ((code = gpu_await_check(gpu, error)))
		return code;
	if ((code = gpu_failed(
	             gpu, gpu->hip.SetDevice(&gpu->hip, gpu->ordinal), "cannot use the device", error)))
		return code;
	gpu->current = true;
	if ((code = gpu_failed(gpu, gpu->hip.ModuleLoadData(&gpu->check_module, gpu->check.data),
	             "cannot load the checking code", error)))
		return code;
	for (int i = 0; i < CHECK_KERNELS; i++)
		if ((code = gpu_failed(gpu,
		             gpu->hip.ModuleGetFunction(&gpu->kernel[i], gpu->check_module, names[i]),
		             "cannot find the checking code", error)))
			return code;
	if ((code = put_table(gpu, error)) || (code = gpu_fill(gpu, 0, gpu->sets, error)) ||
	        (gpu->code->reference && (code = check_references(gpu, error))) ||
	        (code = gpu_sign_inputs(gpu, gpu->sets, gpu->input_sign, error)))
		return code;
	gpu->ready = true;
	return 0;
}

int gpu_load_member(struct gpu *gpu, struct member *member, unsigned at, struct ft_error *error)
{
	struct placed *place = &member->place[at];
	const struct ft_launch *launch = &member->launch;
	int code;

	if (place->function[0])
		return 0;
	if (!member->code.data)
		return ft_fail(error, FT_E_UNAVAILABLE, "this config was not built");
	if ((code = gpu_failed(gpu, gpu->hip.ModuleLoadData(&place->module, member->code.data),
	             "cannot load the code object", error)))
		return code;
	/* The first comes last: when it is there, all are. */
	for (uint32_t i = launch->count; i-- > 0;) {
		hip_function function = NULL;

		if ((code = gpu_failed(gpu,
		             gpu->hip.ModuleGetFunction(&function, place->module, launch->step[i].symbol),
		             "the code object lacks the kernel", error)) ||
		        (launch->step[i].shared > 0 &&
		                (code = gpu_failed(gpu,
		                         gpu->hip.AllowShared(
		                                 &gpu->hip, function, (int)launch->step[i].shared),
		                         "cannot have so much shared memory", error))))
			return code;
		place->function[i] = function;
	}
	return 0;
}

int gpu_look_anew(const struct gpu *gpu, struct ft_error *error)
{
	return gpu_failed(gpu, gpu->hip.MemsetD8Async(gpu->result, 0, 32, gpu->stream),
	        "cannot write to the device", error);
}

int gpu_look(const struct gpu *gpu, const struct gpu_look *look, struct ft_error *error)
{
	int64_t guard = GUARD, sets = (int64_t)look->sets, set_bytes = (int64_t)gpu->set,
	        turn = (int64_t)look->turn;
	int which = (int)gpu->out, gaps = !look->in_place;
	unsigned poison = POISON;
	void *first = gpu->arena, *table = gpu->table, *result = gpu->result;
	const void *sign = look->sign, *known = look->known_to;
	void *arguments[] = {&first, &table, &which, &result, &guard, &poison, &gaps, &sets, &set_bytes,
	        &turn, &sign, &known};
	/* A multiple of the blocks that take one set. */
	uint64_t rows = check_grid(gpu, gpu->tensors.tensor[gpu->out].rows);

	return gpu_launch(gpu, gpu->kernel[CHECK_ROWS],
	        rows * at_most(look->sets, check_grid(gpu, gpu->traits.units * 16 / rows)), CHECK_BLOCK,
	        arguments, error);
}

int gpu_judge(const struct gpu *gpu, const char *how, double *largest, uint64_t *row, struct ft_error *error)
{
	uint64_t found[3] = {0};
	int code = gpu_fetch(gpu, found, gpu->result, sizeof found, error);
	uint32_t bits = (uint32_t)(found[0] >> 32);
	float worst;

	if (code)
		return code;
	memcpy(&worst, &bits, sizeof worst);
	*row = found[1] ? UINT64_MAX : found[0] & 0xffffffffu;
	if ((double)worst > *largest)
		*largest = (double)worst;
	if (found[1])
		ft_fail(error, FT_E_UNAVAILABLE,
		        "it writes outside of its rows%s: %" PRIu64 " bytes, one of them %" PRId64
		        " bytes from the output's begin",
		        how, found[1], (int64_t)(~found[2] - GUARD));
	else if ((double)worst > gpu->tensors.tensor[gpu->out].relative)
		ft_fail(error, FT_E_UNAVAILABLE, "row %" PRIu64 "%s is wrong by %g", *row, how,
		        (double)worst);
	else
		return 0;
	return 1;
}

/* What is wrong with a row of set 0, in the host's own words, where it comes to the same. */
static int explain(const struct gpu *gpu, uint64_t number, struct ft_error *error)
{
	struct ft_worst element_at = {0};
	struct ft_error told = *error;
	struct row_on_host row;
	int code = fetch_row(gpu, 0, number, &row, error);

	if (code)
		return code;
	ft_compare_rows(gpu->code->reference, &row.tensors, data_of(&row), 0, 1, &element_at);
	element_at.row = number;
	if (ft_worst_check(&element_at, &row.tensors.tensor[gpu->out], error) == 0)
		ft_fail(error, FT_E_UNAVAILABLE, "%.200s on the device and right when read back",
		        told.message);
	free_row(&row);
	return 1;
}

/* All that a launch writes to in set 0 is poison, or what it is filled with. */
static int renew_outputs(const struct gpu *gpu, struct ft_error *error)
{
	int code = gpu_failed(gpu, gpu->hip.MemsetD8Async(gpu->arena, POISON, gpu->inputs_at, gpu->stream),
	        "cannot poison the output", error);

	if (!code && gpu->common > 0)
		code = gpu_failed(gpu,
		        gpu->hip.MemsetD8Async(
		                gpu->arena + gpu->sets * gpu->set, POISON, gpu->common, gpu->stream),
		        "cannot poison the scratch", error);
	return code ? code : gpu_restore(gpu, 1, error);
}

/* Runs one launch into set 0 and judges it. The outputs lie in poison; the one of `in_place` over its input, and only around the
 * whole of it. */
static int run_and_check(struct gpu *gpu, const struct member *member, uint32_t in_place, double *largest,
        struct ft_error *error)
{
	const bool is_in_place = in_place < gpu->tensors.count;
	void *data[FT_TENSORS_MAX];
	uint64_t row = 0;
	int code = renew_outputs(gpu, error);

	if (code)
		return code;
	gpu_data_of(gpu, 0, 0, data);
	if (is_in_place) {
		const struct ft_tensor *tensor = &gpu->tensors.tensor[in_place];

		if ((code = gpu_failed(gpu,
		             gpu->hip.MemcpyDtoDAsync(data[in_place], data[tensor->alias],
		                     ft_tensor_span(tensor), gpu->stream),
		             "cannot copy the input", error)))
			return code;
		data[tensor->alias] = data[in_place];
	}
	if ((code = gpu_launch_member(gpu, member, 0, data, error)))
		return code;
	if (gpu->host)
		return gpu_host_judge(gpu, 0, in_place, gpu->base.deadline_ns, largest, error);
	if ((code = gpu_look_anew(gpu, error)) ||
	        (code = gpu_look(gpu, &(struct gpu_look){.sets = 1, .in_place = is_in_place}, error)))
		return code;
	code = gpu_judge(gpu, is_in_place ? " in place" : "", largest, &row, error);
	/* In place its input is gone from y only. */
	return code == 1 && row != UINT64_MAX ? explain(gpu, row, error) : code;
}

int gpu_verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	struct member *member = &gpu->member[index];
	int code, changed;

	*largest = 0;
	if ((code = gpu_get_ready(gpu, error)) || (code = gpu_load_member(gpu, member, 0, error)))
		return code;
	/* What timed launches did to the inputs is not known to be this one's doing. */
	if (gpu->launched && (code = gpu_check_inputs(gpu, 1, error)) < 0)
		return code;
	gpu->launched = false;
	gpu->audited = 0;
	code = run_and_check(gpu, member, gpu->tensors.count, largest, error);
	for (uint32_t i = 0; i < gpu->tensors.count && !code; i++)
		if (gpu->tensors.tensor[i].in_place)
			code = run_and_check(gpu, member, i, largest, error);
	/* An output that is wrong by a changed input is told as that. */
	if (code < 0 || (changed = gpu_check_inputs(gpu, 1, error)) == 0)
		return code;
	return changed;
}
