/* Whether a config that was found right stays so: the outputs of many launches, and what becomes of its inputs. */
#include "kernels/runner/gpu_state.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t grid_for(const struct gpu *gpu, uint64_t sets, uint64_t bytes)
{
	enum { PIECE_BYTES = 16 * 16 * CHECK_BLOCK }; /* as in gpu_check.hip */

	return at_least(1, at_most(sets * ((bytes + PIECE_BYTES - 1) / PIECE_BYTES), gpu->traits.units * 16));
}

int gpu_sign(struct gpu *gpu, uint64_t first, uint64_t sets, uint64_t from, uint64_t bytes, uint64_t *sign,
        struct ft_error *error)
{
	void *data = gpu->arena + first * gpu->set + from, *to = gpu->signs;
	int64_t quads = (int64_t)(bytes / 16), stride = (int64_t)gpu->set, count = (int64_t)sets;
	void *arguments[] = {&data, &quads, &stride, &count, &to};
	int code;

	if ((code = gpu_failed(gpu, gpu->hip.MemsetD8Async(gpu->signs, 0, sets * sizeof *sign, gpu->stream),
	             "cannot write to the device", error)) ||
	        (code = gpu_launch(gpu, gpu->kernel[SIGN_SETS], grid_for(gpu, sets, bytes), CHECK_BLOCK,
	                 arguments, error)))
		return code;
	return gpu_fetch(gpu, sign, gpu->signs, sets * sizeof *sign, error);
}

int gpu_check_inputs(struct gpu *gpu, uint64_t first, uint64_t sets, struct ft_error *error)
{
	const uint64_t bytes = gpu->set - gpu->x_at;
	bool changed = false;
	int code = gpu_sign(gpu, first, sets, gpu->x_at, bytes, gpu->seen_sign, error);

	for (uint64_t i = 0; i < sets && !code; i++) {
		if (gpu->seen_sign[i] == gpu->input_sign[first + i])
			continue;
		changed = true;
		code = gpu_fill(gpu, first + i, error);
	}
	if (code || !changed)
		return code;
	/* Between and behind what is filled something may have been written as well: that stays. */
	if ((code = gpu_sign(gpu, first, sets, gpu->x_at, bytes, gpu->input_sign + first, error)))
		return code;
	ft_fail(error, FT_E_UNAVAILABLE, "it changed its input or its weight");
	return 1;
}

/* The first of the graph's launches poisons all outputs and what surrounds them. */
static int audited_launch(struct gpu *gpu, void *context, unsigned number, struct ft_error *error)
{
	const struct member *member = context;
	uint64_t set = number - 1;

	if (number > 0)
		return gpu_launch_member(
		        gpu, member, 0, y_of(gpu, set), x_of(gpu, set), weight_of(gpu, set), error);
	void *data = gpu->arena;
	int64_t quads = (int64_t)(gpu->x_at / 16), stride = (int64_t)gpu->set, count = (int64_t)gpu->sets;
	unsigned word = POISON * 0x01010101u;
	void *arguments[] = {&data, &quads, &stride, &count, &word};

	return gpu_launch(gpu, gpu->kernel[FILL_SETS], grid_for(gpu, gpu->sets, gpu->x_at), CHECK_BLOCK,
	        arguments, error);
}

static int begin_audit(struct gpu *gpu, size_t index, struct ft_error *error)
{
	int code;

	if (gpu->audit)
		gpu->hip.GraphExecDestroy(gpu->audit);
	gpu->audit = NULL;
	gpu->audits = 0;
	gpu->audited = index + 1;
	if ((code = gpu_check_inputs(gpu, 0, gpu->sets, error)) < 0)
		return code;
	return gpu_capture(
	        gpu, (unsigned)gpu->sets + 1, audited_launch, &gpu->member[index], &gpu->audit, error);
}

/* A launch on each set. All outputs are held against the reference the first time, and against what they were then,
 * bit for bit, ever after; where one differs, against the reference again, for a sum's order may. */
static int audit_once(struct gpu *gpu, struct ft_error *error)
{
	const bool known = gpu->audits > 0;
	double largest = 0;
	int code = gpu_failed(
	        gpu, gpu->hip.GraphLaunch(gpu->audit, gpu->stream), "cannot launch a graph", error);

	if (code)
		return code;
	if ((!known && (code = gpu_judge(gpu, 0, gpu->sets, false, &largest, error))) ||
	        (code = gpu_sign(
	                 gpu, 0, gpu->sets, 0, gpu->x_at, known ? gpu->seen_sign : gpu->output_sign, error)))
		return code;
	for (uint64_t set = 0; set < gpu->sets && known && !code; set++)
		if (gpu->seen_sign[set] != gpu->output_sign[set])
			code = gpu_judge(gpu, set, 1, false, &largest, error);
	return code;
}

int gpu_audit(
        struct ft_backend *self, size_t index, uint64_t launches, uint64_t *checked, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	int code = 0, changed;

	if (gpu->audited != index + 1)
		code = begin_audit(gpu, index, error);
	for (*checked = 0; *checked < launches && !code; *checked += gpu->sets) {
		code = audit_once(gpu, error);
		gpu->audits += gpu->sets;
	}
	if (code == 1) {
		char message[sizeof error->message];

		snprintf(message, sizeof message, "%s", error->message);
		ft_fail(error, FT_E_UNAVAILABLE,
		        "right at first, wrong in one of the first %" PRIu64 " launches after the timing: %s",
		        gpu->audits, message);
	}
	if (code < 0 || (changed = gpu_check_inputs(gpu, 0, gpu->sets, error)) == 0)
		return code;
	return changed;
}
