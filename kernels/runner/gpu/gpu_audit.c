/* Whether a config that was found right stays so: the outputs of many launches, and what becomes of its inputs. */
#include "kernels/runner/gpu/internal.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t grid_for(const struct gpu *gpu, uint64_t sets, uint64_t bytes)
{
	enum { PIECE_BYTES = 16 * 16 * CHECK_BLOCK }; /* as in gpu_check.hip */

	return at_least(1, at_most(sets * ((bytes + PIECE_BYTES - 1) / PIECE_BYTES), gpu->traits.units * 16));
}

/* Of bytes that begin at an offset of each of the first so many sets, into `sums` of the device's. */
static int sign(const struct gpu *gpu, uint64_t sets, uint64_t from, uint64_t bytes, char *sums,
        struct ft_error *error)
{
	void *data = gpu->arena + from, *to = sums;
	int64_t quads = (int64_t)(bytes / 16), stride = (int64_t)gpu->set, count = (int64_t)sets;
	void *arguments[] = {&data, &quads, &stride, &count, &to};

	return gpu_launch(
	        gpu, gpu->kernel[SIGN_SETS], grid_for(gpu, sets, bytes), CHECK_BLOCK, arguments, error);
}

static int fill(const struct gpu *gpu, char *data, uint64_t sets, uint64_t bytes, unsigned word,
        struct ft_error *error)
{
	int64_t quads = (int64_t)(bytes / 16), stride = (int64_t)gpu->set, count = (int64_t)sets;
	void *arguments[] = {&data, &quads, &stride, &count, &word};

	return gpu_launch(
	        gpu, gpu->kernel[FILL_SETS], grid_for(gpu, sets, bytes), CHECK_BLOCK, arguments, error);
}

static char *sums_of(const struct gpu *gpu, enum gpu_sums which)
{
	return gpu->signs + which * gpu_sums_bytes(gpu);
}

int gpu_sign_inputs(struct gpu *gpu, uint64_t sets, uint64_t *to, struct ft_error *error)
{
	char *sums = sums_of(gpu, SUMS_INPUTS);
	int code;

	if ((code = gpu_failed(gpu, gpu->hip.MemsetD8Async(sums, 0, gpu_sums_bytes(gpu), gpu->stream),
	             "cannot write to the device", error)) ||
	        (code = sign(gpu, sets, gpu->inputs_at, gpu->set - gpu->inputs_at, sums, error)))
		return code;
	return gpu_fetch(gpu, to, sums, sets * sizeof *to, error);
}

int gpu_check_inputs(struct gpu *gpu, uint64_t sets, struct ft_error *error)
{
	bool changed = false;
	int code = gpu_sign_inputs(gpu, sets, gpu->seen_sign, error);

	for (uint64_t i = 0; i < sets && !code; i++) {
		if (gpu->seen_sign[i] == gpu->input_sign[i])
			continue;
		changed = true;
		code = gpu_fill(gpu, i, 1, error);
	}
	if (code || !changed)
		return code;
	/* Between and behind what is filled something may have been written as well: that stays. */
	if ((code = gpu_sign_inputs(gpu, sets, gpu->input_sign, error)))
		return code;
	ft_fail(error, FT_E_UNAVAILABLE, "it changed its inputs");
	return 1;
}

/* A launch on each set, as timed ones follow each other; then all outputs are summed up, and those of another sum than the
 * right one's are held against the reference, for a sum's order may differ. All of it on the device, that keeps what it found. */
struct audited {
	const struct member *member;
	uint64_t turn;
};

static int audited_launch(struct gpu *gpu, void *context, unsigned number, struct ft_error *error)
{
	const struct audited *audited = context;
	const uint64_t sets = gpu->audit_sets, place = (number + audited->turn) % sets;
	char *seen = sums_of(gpu, SUMS_SEEN);
	struct gpu_look look = {
	        .sets = sets, .turn = audited->turn, .sign = seen, .known_to = sums_of(gpu, SUMS_RIGHT)};
	int code;

	void *data[FT_TENSORS_MAX];

	/* Alone, or of the same inputs, it has no other output to be told from the one before. */
	if (number == 0 && (sets == 1 || gpu->host) &&
	        ((code = fill(gpu, gpu->arena, sets, gpu->inputs_at, POISON * 0x01010101u, error)) ||
	                (code = gpu_restore(gpu, sets, error))))
		return code;
	gpu_data_of(gpu, place, number, data);
	if ((code = gpu_launch_member(gpu, audited->member, 0, data, error)) || number + 1 < sets)
		return code;
	if ((code = fill(gpu, seen, 1, gpu_sums_bytes(gpu), 0, error)) ||
	        (code = sign(gpu, sets, 0, gpu->inputs_at, seen, error)))
		return code;
	return gpu->host ? 0 : gpu_look(gpu, &look, error);
}

static int begin_audit(struct gpu *gpu, size_t index, struct ft_error *error)
{
	struct audited audited = {.member = &gpu->member[index]};
	int code;

	gpu->audit_sets = at_most(gpu->sets, AUDIT_SETS);
	gpu->audit_ran = 0;
	gpu->audited = index + 1;
	for (unsigned i = 0; i < 2; i++)
		if (gpu->audit[i])
			gpu->hip.GraphExecDestroy(gpu->audit[i]);
	gpu->audit[0] = gpu->audit[1] = NULL;
	if ((code = gpu_check_inputs(gpu, gpu->audit_sets, error)) < 0 ||
	        (code = gpu_look_anew(gpu, error)) ||
	        (code = fill(
	                 gpu, gpu->arena, gpu->audit_sets, gpu->inputs_at, POISON * 0x01010101u, error)) ||
	        (code = fill(gpu, sums_of(gpu, SUMS_RIGHT), 1, gpu_sums_bytes(gpu), 0, error)))
		return code;
	gpu->is_right_known = false;
	for (; audited.turn < (gpu->host ? 1 : at_most(gpu->audit_sets, 2)) && !code; audited.turn++)
		code = gpu_capture(gpu, (unsigned)gpu->audit_sets, audited_launch, &audited,
		        &gpu->audit[audited.turn], error);
	return code;
}

/* Outputs of another sum than one that was found right are held against what they have to be. */
static int look_on_host(struct gpu *gpu, struct ft_error *error)
{
	int code = gpu_fetch(gpu, gpu->seen_sign, sums_of(gpu, SUMS_SEEN),
	        gpu->audit_sets * sizeof *gpu->seen_sign, error);
	double largest = 0;

	for (uint64_t i = 0; i < gpu->audit_sets && !code; i++) {
		if (gpu->is_right_known && gpu->seen_sign[i] == gpu->right_sign)
			continue;
		code = gpu_host_judge(gpu, i, gpu->tensors.count, 0, &largest, error);
		gpu->right_sign = gpu->seen_sign[i];
		gpu->is_right_known = code == 0;
	}
	return code;
}

/* The output of an input lies in turn in its own set and in the next: so no right output is what lay there before, and what
 * was not written shows. At first no sum is known to be right. */
static int audit_once(struct gpu *gpu, struct ft_error *error)
{
	const unsigned turn = gpu->audit_sets > 1 && !gpu->host ? gpu->audit_ran % 2 : 0;
	int code = gpu_failed(
	        gpu, gpu->hip.GraphLaunch(gpu->audit[turn], gpu->stream), "cannot launch a graph", error);

	if (!code && !gpu->host && gpu->audit_ran == 0)
		code = gpu_failed(gpu,
		        gpu->hip.MemcpyDtoDAsync(sums_of(gpu, SUMS_RIGHT), sums_of(gpu, SUMS_SEEN),
		                gpu_sums_bytes(gpu), gpu->stream),
		        "cannot copy on the device", error);
	gpu->audit_ran++;
	return !code && gpu->host ? look_on_host(gpu, error) : code;
}

int gpu_audit(
        struct ft_backend *self, size_t index, uint64_t launches, uint64_t *checked, struct ft_error *error)
{
	struct gpu *gpu = gpu_of(self);
	double largest = 0;
	uint64_t row = 0;
	int code = 0, changed;

	if (gpu->audited != index + 1)
		code = begin_audit(gpu, index, error);
	for (*checked = 0; *checked < launches && !code; *checked += gpu->audit_sets)
		code = audit_once(gpu, error);
	if (!code && !gpu->host)
		code = gpu_judge(gpu, "", &largest, &row, error);
	if (code == 1) {
		char message[sizeof error->message];

		snprintf(message, sizeof message, "%s", error->message);
		ft_fail(error, FT_E_UNAVAILABLE,
		        "right at first, wrong in one of the first %" PRIu64 " launches after the timing: %s",
		        gpu->audit_ran * gpu->audit_sets, message);
	}
	if (code < 0 || (changed = gpu_check_inputs(gpu, gpu->audit_sets, error)) == 0)
		return code;
	return changed;
}
