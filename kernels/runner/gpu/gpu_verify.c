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

int gpu_launch_member(const struct gpu *gpu, const struct member *member, unsigned place, void *y, void *x,
        void *weight, struct ft_error *error)
{
	int64_t m = (int64_t)gpu->problem.m, stride = (int64_t)gpu->problem.row_stride;
	float eps = (float)EPS;
	void *arguments[] = {&y, &x, &weight, &m, &stride, &eps};

	return gpu_launch(gpu, member->place[place].function, member->launch.grid, member->launch.block,
	        arguments, error);
}

static uint64_t check_grid(const struct gpu *gpu, uint64_t wanted)
{
	return at_least(1, at_most(wanted, gpu->traits.units * 16));
}

int gpu_fill(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error)
{
	int64_t m = (int64_t)gpu->problem.m, n = (int64_t)gpu->problem.n,
	        stride = (int64_t)gpu->problem.row_stride, count = (int64_t)sets,
	        set_bytes = (int64_t)gpu->set;
	int type = (int)gpu->problem.dtype, weight_type = (int)gpu->problem.weight;
	uint64_t seed = gpu->seed * UINT64_C(0x9e3779b97f4a7c15) + (first << 40);
	void *x = x_of(gpu, first), *weight = weight_of(gpu, first);
	void *rows[] = {&x, &m, &n, &stride, &type, &seed, &count, &set_bytes};
	void *weights[] = {&weight, &n, &weight_type, &seed, &count, &set_bytes};
	int code = gpu_launch(gpu, gpu->kernel[FILL_ROWS], check_grid(gpu, gpu->problem.m * sets),
	        CHECK_BLOCK, rows, error);

	return code ? code
	            : gpu_launch(gpu, gpu->kernel[FILL_WEIGHT],
	                      check_grid(gpu, (gpu->problem.n * sets + CHECK_BLOCK - 1) / CHECK_BLOCK),
	                      CHECK_BLOCK, weights, error);
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

static int fetch_row(
        const struct gpu *gpu, uint64_t set, uint64_t number, struct row_on_host *row, struct ft_error *error)
{
	uint64_t n = gpu->problem.n, element = ft_dtype_size(gpu->problem.dtype);
	uint64_t weight = ft_dtype_size(gpu->problem.weight);
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
	if ((code = gpu_fetch(gpu, row->x, x_of(gpu, set) + at, n * element, error)) ||
	        (code = gpu_fetch(gpu, row->y, y_of(gpu, set) + at, n * element, error)) ||
	        (code = gpu_fetch(gpu, row->weight, weight_of(gpu, set), n * weight, error)))
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
	int code = gpu_launch(gpu, gpu->kernel[REFERENCE_ROW], 1, CHECK_BLOCK, arguments, error);

	if (code || (code = fetch_row(gpu, 0, number, &row, error)))
		return code;
	code = gpu_fetch(gpu, row.got, gpu->scratch, gpu->problem.n * sizeof(double), error);
	struct ft_tensors tensors = rmsnorm_tensors(&one);
	const void *data[] = {row.y, row.x, row.weight};

	ft_reference_rows(&rmsnorm_reference, &tensors, data, 0, 1, row.want);
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

int gpu_get_ready(struct gpu *gpu, struct ft_error *error)
{
	static const char *const names[CHECK_KERNELS] = {"fill_rows", "fill_weight", "check_rows",
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
	if ((code = gpu_fill(gpu, 0, gpu->sets, error)) || (code = check_reference(gpu, 0, error)) ||
	        (code = check_reference(gpu, gpu->problem.m / 2, error)) ||
	        (code = check_reference(gpu, gpu->problem.m - 1, error)))
		return code;
	if ((code = gpu_sign_inputs(gpu, gpu->sets, gpu->input_sign, error)))
		return code;
	gpu->ready = true;
	return 0;
}

int gpu_load_member(struct gpu *gpu, struct member *member, unsigned at, struct ft_error *error)
{
	struct placed *place = &member->place[at];
	int code;

	if (place->function)
		return 0;
	if (!member->code.data)
		return ft_fail(error, FT_E_UNAVAILABLE, "this config was not built");
	if ((code = gpu_failed(gpu, gpu->hip.ModuleLoadData(&place->module, member->code.data),
	             "cannot load the code object", error)) ||
	        (code = gpu_failed(gpu,
	                 gpu->hip.ModuleGetFunction(&place->function, place->module, RMSNORM_KERNEL_NAME),
	                 "the code object has no " RMSNORM_KERNEL_NAME, error)))
		return code;
	return 0;
}

int gpu_look_anew(const struct gpu *gpu, struct ft_error *error)
{
	return gpu_failed(gpu, gpu->hip.MemsetD8Async(gpu->result, 0, 32, gpu->stream),
	        "cannot write to the device", error);
}

int gpu_look(const struct gpu *gpu, const struct gpu_look *look, struct ft_error *error)
{
	int64_t m = (int64_t)gpu->problem.m, n = (int64_t)gpu->problem.n,
	        stride = (int64_t)gpu->problem.row_stride;
	int64_t guard = GUARD, sets = (int64_t)look->sets, set_bytes = (int64_t)gpu->set,
	        turn = (int64_t)look->turn;
	int type = (int)gpu->problem.dtype, weight_type = (int)gpu->problem.weight, gaps = !look->in_place;
	unsigned poison = POISON;
	double inverse = 1.0 / (double)gpu->problem.n, eps = EPS;
	void *y = y_of(gpu, 0), *x = x_of(gpu, 0), *weight = weight_of(gpu, 0), *result = gpu->result;
	const void *sign = look->sign, *known = look->known_to;
	void *arguments[] = {&y, &x, &weight, &m, &n, &stride, &inverse, &eps, &type, &weight_type, &result,
	        &guard, &poison, &gaps, &sets, &set_bytes, &turn, &sign, &known};
	/* A multiple of the blocks that take one set. */
	uint64_t rows = check_grid(gpu, gpu->problem.m);

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
	else if ((double)worst > ft_dtype_error(gpu->problem.dtype))
		ft_fail(error, FT_E_UNAVAILABLE, "row %" PRIu64 "%s is wrong by %g", *row, how,
		        (double)worst);
	else
		return 0;
	return 1;
}

/* What is wrong with a row of set 0, in the host's own words, where it comes to the same. */
static int explain(const struct gpu *gpu, uint64_t number, struct ft_error *error)
{
	struct rmsnorm_problem one = row_problem(gpu);
	struct ft_worst element_at = {0};
	struct ft_error told = *error;
	struct row_on_host row;
	int code = fetch_row(gpu, 0, number, &row, error);

	if (code)
		return code;
	struct ft_tensors tensors = rmsnorm_tensors(&one);
	const void *data[] = {row.y, row.x, row.weight};

	ft_compare_rows(&rmsnorm_reference, &tensors, data, 0, 1, &element_at);
	element_at.row = number;
	if (ft_worst_check(&element_at, &tensors.tensor[RMSNORM_OUTPUT], error) == 0)
		ft_fail(error, FT_E_UNAVAILABLE, "%.200s on the device and right when read back",
		        told.message);
	free_row(&row);
	return 1;
}

/* Runs one launch into set 0 and judges it. The output lies in poison; in place, only around the whole of it.
 */
static int run_and_check(
        struct gpu *gpu, const struct member *member, bool in_place, double *largest, struct ft_error *error)
{
	void *y = y_of(gpu, 0), *x = x_of(gpu, 0), *weight = weight_of(gpu, 0);
	uint64_t row = 0;
	int code;

	if ((code = gpu_failed(gpu,
	             gpu->hip.MemsetD8Async(
	                     y_of(gpu, 0) - GUARD, POISON, GUARD + gpu->span + GUARD, gpu->stream),
	             "cannot poison the output", error)))
		return code;
	if (in_place &&
	        (code = gpu_failed(gpu, gpu->hip.MemcpyDtoDAsync(y, x, gpu->span, gpu->stream),
	                 "cannot copy the input", error)))
		return code;
	if ((code = gpu_launch_member(gpu, member, 0, y, in_place ? y : x, weight, error)) ||
	        (code = gpu_look_anew(gpu, error)) ||
	        (code = gpu_look(gpu, &(struct gpu_look){.sets = 1, .in_place = in_place}, error)))
		return code;
	code = gpu_judge(gpu, in_place ? " in place" : "", largest, &row, error);
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
	code = run_and_check(gpu, member, false, largest, error);
	if (!code)
		code = run_and_check(gpu, member, true, largest, error);
	/* An output that is wrong by a changed input is told as that. */
	if (code < 0 || (changed = gpu_check_inputs(gpu, 1, error)) == 0)
		return code;
	return changed;
}
