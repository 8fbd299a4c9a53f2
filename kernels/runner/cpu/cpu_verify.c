/* Whether a config's output is right, and stays so, and what it does to its inputs. */
#include "kernels/runner/cpu/internal.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/compare.h"

enum { IN_PLACE_ROWS = 16 /* checked in place */ };

struct compare {
	const struct cpu *cpu;
	const void *data[FT_TENSORS_MAX];
	size_t m;
	size_t rows_a_piece;
	_Atomic size_t gap; /* first row after which something was written, plus 1 */
	atomic_flag busy;
	struct ft_worst worst;
};

static void compare_piece(void *context, size_t index)
{
	struct compare *compare = context;
	const struct cpu *cpu = compare->cpu;
	struct ft_worst worst = {0};
	size_t first = index * compare->rows_a_piece;
	size_t rows = compare->m - first > compare->rows_a_piece ? compare->rows_a_piece : compare->m - first;
	const char *out = compare->data[cpu->out];
	ft_compare_rows(cpu->code->reference, &cpu->tensors, compare->data, first, rows, &worst);
	size_t gap = cpu->extent.stride - cpu->extent.row;
	for (size_t row = first; gap > 0 && row < first + rows && row + 1 < cpu->m; row++) {
		if (!cpu_is_poison(out + row * cpu->extent.stride + cpu->extent.row, gap))
			atomic_store(&compare->gap, row + 1);
	}
	while (atomic_flag_test_and_set_explicit(&compare->busy, memory_order_acquire))
		sched_yield();
	ft_worst_merge(&compare->worst, &worst);
	atomic_flag_clear_explicit(&compare->busy, memory_order_release);
}

/* 1 and an error if the output or what surrounds it is not as it must be. */
static int check_output(
        struct cpu *cpu, const char *in, const char *out, size_t m, double *largest, struct ft_error *error)
{
	const struct extent *extent = &cpu->extent;
	struct compare compare = {.cpu = cpu, .m = m, .busy = ATOMIC_FLAG_INIT};
	memcpy(compare.data, cpu->data, sizeof(compare.data));
	compare.data[cpu->in] = in;
	compare.data[cpu->out] = out;
	compare.rows_a_piece = cpu_rows_a_piece(cpu);
	cpu_in_parallel(cpu, (m + compare.rows_a_piece - 1) / compare.rows_a_piece, compare_piece, &compare);
	if (compare.worst.error > *largest)
		*largest = compare.worst.error;
	if (ft_worst_check(&compare.worst, &cpu->tensors.tensor[cpu->out], error) < 0)
		return 1;
	if (compare.gap > 0) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote between row %zu and the next", compare.gap - 1);
		return 1;
	}
	if (!cpu_is_poison(out - GUARD, GUARD)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote before the first row");
		return 1;
	}
	if (m == cpu->m && !cpu_is_poison(out + extent->data, extent->size - GUARD - extent->data)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote after the last row");
		return 1;
	}
	return 0;
}

/* 1 and an error if an input is not what it was; then all they are made anew, so that nobody else is held against
 * what one config did to them. */
static int check_inputs(struct cpu *cpu, struct ft_error *error)
{
	const char *what;
	const bool changed = cpu_has_changed(cpu, cpu_verified_in(cpu) - GUARD, cpu->extent.input, cpu->hash);
	if (cpu->ended)
		return 0;
	what = changed ? cpu->tensors.tensor[cpu->in].name : cpu_changed_input(cpu);
	cpu->launched = false;
	if (!what)
		return 0;
	cpu->until_ns = 0; /* half of it would be worse than none */
	cpu_fill_all(cpu);
	cpu->until_ns = cpu->backend.deadline_ns;
	ft_fail(error, FT_E_BAD_VALUE, "it changed its %s", what);
	return 1;
}

/* Right if the whole output is, and some rows of it in place: what lies in the way of reading before writing shows in any. */
static int check_launches(struct cpu *cpu, size_t index, double *largest, struct ft_error *error)
{
	const size_t m = cpu->m;
	const size_t few = m < IN_PLACE_ROWS ? m : IN_PLACE_ROWS;
	char *in = cpu_verified_in(cpu);
	char *out = cpu_verified_out(cpu);
	cpu_poison(cpu, out - GUARD, cpu->extent.size);
	cpu->launched = true;
	cpu->audited = cpu->count;
	uint64_t began = ft_clock_ns();
	cpu_launch(cpu, index, in, out, m);
	cpu_note_work(cpu, began);
	int result = cpu->ended ? 0 : check_output(cpu, in, out, m, largest, error);
	if (result != 0 || cpu->ended || !cpu->tensors.tensor[cpu->out].in_place)
		return result;
	for (size_t row = 0; row < few; row++)
		memcpy(out + row * cpu->extent.stride, in + row * cpu->extent.stride, cpu->extent.row);
	cpu_launch(cpu, index, out, out, few);
	result = check_output(cpu, in, out, few, largest, error);
	if (result != 0) {
		char message[sizeof(error->message)];
		snprintf(message, sizeof(message), "%s", error->message);
		ft_fail(error, FT_E_BAD_VALUE, "in place: %s", message);
	}
	return result;
}

int cpu_verify(struct ft_backend *backend, size_t index, double *largest, struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	*largest = 0;
	cpu->until_ns = backend->deadline_ns;
	cpu->ended = false;
	/* What timed launches did to it is not known to be this one's doing. */
	if (cpu->launched)
		(void)check_inputs(cpu, NULL);
	int result = cpu->ended ? 0 : check_launches(cpu, index, largest, error);
	/* An output that is wrong by a changed input is told as that. */
	if (!cpu->ended && check_inputs(cpu, error) != 0)
		result = 1;
	/* Nothing that was found in a part is true of the whole. */
	if (cpu->ended)
		return FT_BACKEND_ENDED;
	if (result == 0 && (cpu->warm_index == cpu->count || index == cpu->default_index))
		cpu->warm_index = index;
	return result;
}

/* 1 if an output is not right. The first of either input is held against the reference, all others against that one, to
 * the bit; and against the reference where they differ, for a sum's order may. */
static int check_again(struct cpu *cpu, size_t shift, struct ft_error *error)
{
	char *out = cpu_verified_out(cpu);
	const char *in = cpu_verified_in(cpu) + shift * cpu->extent.stride;
	const bool known = cpu->audits >= AUDIT_SHIFTS;
	double largest = 0;
	if (known && !cpu_has_changed(cpu, out - GUARD, cpu->extent.size, cpu->right[shift]))
		return 0;
	if (check_output(cpu, in, out, cpu->m, &largest, error) != 0) {
		char message[sizeof(error->message)];
		snprintf(message, sizeof(message), "%s", error->message);
		ft_fail(error, FT_E_BAD_VALUE,
		        "right at first, wrong in launch %" PRIu64 " after the timing: %s", cpu->audits + 1,
		        message);
		return 1;
	}
	if (!known)
		cpu_note_hashes(cpu, out - GUARD, cpu->extent.size, cpu->right[shift]);
	return 0;
}

/* Every other launch reads from the second row on: so no row's output is what the launch before left there, and neither
 * an element that was not written nor a sum that was kept goes unseen. The odd rows, some of which are alike, are
 * poisoned besides. */
int cpu_audit(struct ft_backend *backend, size_t index, uint64_t launches, uint64_t *checked,
        struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	const struct extent *extent = &cpu->extent;
	const size_t odd = cpu->m < ODD_ROWS ? cpu->m : ODD_ROWS;
	char *out = cpu_verified_out(cpu);
	int result = 0;
	cpu->until_ns = 0;
	cpu->ended = false;
	if (cpu->launched)
		(void)check_inputs(cpu, NULL);
	if (cpu->audited != index) {
		cpu_poison(cpu, out - GUARD, extent->size);
		cpu->audited = index;
		cpu->audits = 0;
	}
	for (*checked = 0; *checked < launches && result == 0; ++*checked) {
		size_t shift = cpu->audits % AUDIT_SHIFTS;
		cpu_poison(cpu, out, (odd - 1) * extent->stride + extent->row);
		uint64_t began = ft_clock_ns();
		cpu_launch(cpu, index, cpu_verified_in(cpu) + shift * extent->stride, out, cpu->m);
		cpu_note_work(cpu, began);
		result = check_again(cpu, shift, error);
		cpu->audits++;
	}
	return check_inputs(cpu, error) != 0 ? 1 : result;
}
