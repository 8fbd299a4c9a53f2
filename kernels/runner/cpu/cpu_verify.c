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
	uint32_t output;
	const void *data[FT_TENSORS_MAX];
	size_t rows, rows_a_piece;
	_Atomic size_t gap; /* first row after which something was written, plus 1 */
	atomic_flag busy;
	struct ft_worst worst;
};

static void compare_piece(void *context, size_t index)
{
	struct compare *compare = context;
	const struct cpu *cpu = compare->cpu;
	const struct array *array = &cpu->array[compare->output];
	const struct ft_tensor *output = &cpu->tensors.tensor[compare->output];
	struct ft_worst worst = {0};
	size_t first = index * compare->rows_a_piece;
	size_t rows =
	        compare->rows - first > compare->rows_a_piece ? compare->rows_a_piece : compare->rows - first;
	const char *out = compare->data[compare->output];
	if (array->want)
		ft_compare_values(output, out, first, rows, array->want + first * output->length, &worst);
	else
		ft_compare_rows(cpu->code->reference, &cpu->tensors, compare->data, first, rows, &worst);
	size_t gap = array->stride - array->row;
	for (size_t row = first; gap > 0 && row < first + rows && row + 1 < output->rows; row++) {
		if (!cpu_is_poison(out + row * array->stride + array->row, gap))
			atomic_store(&compare->gap, row + 1);
	}
	while (atomic_flag_test_and_set_explicit(&compare->busy, memory_order_acquire))
		sched_yield();
	ft_worst_merge(&compare->worst, &worst);
	atomic_flag_clear_explicit(&compare->busy, memory_order_release);
}

/* 1 and an error if what surrounds the rows of one of them is not as it must be. */
static int check_guards(const struct array *array, const char *out, bool whole, struct ft_error *error)
{
	if (!cpu_is_poison(out - GUARD, GUARD)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote before the first row");
		return 1;
	}
	if (whole && !cpu_is_poison(out + array->data, array->size - GUARD - array->data)) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote after the last row");
		return 1;
	}
	return 0;
}

/* 1 and an error if the first rows of an output or what surrounds them is not as it must be. */
static int check_output(struct cpu *cpu, uint32_t output, const void *const *data, size_t rows,
        double *largest, struct ft_error *error)
{
	const struct array *array = &cpu->array[output];
	struct compare compare = {.cpu = cpu, .output = output, .rows = rows, .busy = ATOMIC_FLAG_INIT};
	memcpy(compare.data, data, sizeof(compare.data));
	compare.rows_a_piece = cpu_rows_a_piece(array);
	cpu_in_parallel(
	        cpu, (rows + compare.rows_a_piece - 1) / compare.rows_a_piece, compare_piece, &compare);
	if (compare.worst.error > *largest)
		*largest = compare.worst.error;
	if (ft_worst_check(&compare.worst, &cpu->tensors.tensor[output], error) < 0)
		return 1;
	if (compare.gap > 0) {
		ft_fail(error, FT_E_BAD_VALUE, "it wrote between row %zu and the next", compare.gap - 1);
		return 1;
	}
	return check_guards(array, data[output], rows == cpu->tensors.tensor[output].rows, error);
}

/* Puts words before what an error says. */
static void say_first(struct ft_error *error, const char *words)
{
	char message[sizeof(error->message)];
	if (!error)
		return;
	snprintf(message, sizeof(message), "%s", error->message);
	ft_fail(error, FT_E_BAD_VALUE, "%s: %s", words, message);
}

/* All that a launch may write to, after one. */
static int check_outputs(struct cpu *cpu, double *largest, struct ft_error *error)
{
	uint32_t outputs = 0;
	for (uint32_t i = 0; i < cpu->tensors.count; i++)
		outputs += cpu_is_output(cpu->tensors.tensor[i].role);
	for (uint32_t i = 0; i < cpu->tensors.count; i++) {
		const struct ft_tensor *tensor = &cpu->tensors.tensor[i];
		const bool is_output = cpu_is_output(tensor->role);
		int result = 0;
		if (is_output)
			result = check_output(
			        cpu, i, (const void *const *)cpu->data, tensor->rows, largest, error);
		else if (tensor->role == FT_SCRATCH)
			result = check_guards(&cpu->array[i], cpu->data[i], true, error);
		if (result != 0 && (outputs > 1 || !is_output))
			say_first(error, tensor->name);
		if (result != 0 || cpu->ended)
			return result;
	}
	return 0;
}

/* 1 and an error if an input is not what it was; then all they are made anew, so that nobody else is held against
 * what one config did to them. */
static int check_inputs(struct cpu *cpu, struct ft_error *error)
{
	const char *what = NULL;
	for (uint32_t i = 0; i < cpu->tensors.count && !what; i++) {
		const struct array *array = &cpu->array[i];
		if (cpu_is_input(cpu->tensors.tensor[i].role) &&
		        cpu_has_changed(cpu, array->verified - GUARD, array->size, array->hash))
			what = cpu->tensors.tensor[i].name;
	}
	if (cpu->ended)
		return 0;
	cpu->launched = false;
	if (!what)
		return 0;
	cpu->until_ns = 0; /* half of it would be worse than none */
	cpu_fill_inputs(cpu);
	cpu->until_ns = cpu->backend.deadline_ns;
	ft_fail(error, FT_E_BAD_VALUE, "it changed its %s", what);
	return 1;
}

/* Once more with an output as its input; some rows, where a kernel is over rows. */
static int check_in_place(
        struct cpu *cpu, size_t index, uint32_t out, double *largest, struct ft_error *error)
{
	const struct array *array = &cpu->array[out];
	const struct ft_tensor *output = &cpu->tensors.tensor[out];
	const size_t few = cpu->over_rows && output->rows > IN_PLACE_ROWS ? IN_PLACE_ROWS : output->rows;
	const void *data[FT_TENSORS_MAX];
	cpu_use_verified(cpu);
	memcpy(data, cpu->data, sizeof(data));
	for (size_t row = 0; row < few; row++)
		memcpy(array->verified + row * array->stride,
		        cpu->array[output->alias].verified + row * array->stride, array->row);
	cpu_restore_verified(cpu);
	cpu->data[output->alias] = cpu->data[out];
	cpu_launch(cpu, index, few);
	int result = check_output(cpu, out, data, few, largest, error);
	if (result != 0)
		say_first(error, "in place");
	return result;
}

/* Right if all outputs are, and in place: what lies in the way of reading before writing shows in any row. */
static int check_launches(struct cpu *cpu, size_t index, double *largest, struct ft_error *error)
{
	cpu_use_verified(cpu);
	cpu_renew_outputs(cpu);
	cpu->launched = true;
	cpu->audited = cpu->count;
	uint64_t began = ft_clock_ns();
	cpu_launch(cpu, index, cpu->m);
	cpu_note_work(cpu, began);
	int result = cpu->ended ? 0 : check_outputs(cpu, largest, error);
	for (uint32_t i = 0; i < cpu->tensors.count && result == 0 && !cpu->ended; i++) {
		if (cpu->tensors.tensor[i].in_place)
			result = check_in_place(cpu, index, i, largest, error);
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

/* 1 if an output is not right. The first of either input is held against the reference, all others against that one, to the
 * bit; and against the reference where they differ, for a sum's order may. */
static int check_again(struct cpu *cpu, size_t input, struct ft_error *error)
{
	const bool known = cpu->audits >= AUDIT_INPUTS;
	bool differs = !known;
	double largest = 0;
	for (uint32_t i = 0; i < cpu->tensors.count && !differs; i++) {
		const struct array *array = &cpu->array[i];
		differs = cpu_is_output(cpu->tensors.tensor[i].role) &&
		        cpu_has_changed(cpu, array->verified - GUARD, array->size, cpu_hashes(array, input));
	}
	if (!differs)
		return 0;
	if (check_outputs(cpu, &largest, error) != 0) {
		char words[64];
		snprintf(words, sizeof(words), "right at first, wrong in launch %" PRIu64 " after the timing",
		        cpu->audits + 1);
		say_first(error, words);
		return 1;
	}
	for (uint32_t i = 0; i < cpu->tensors.count && !known; i++) {
		const struct array *array = &cpu->array[i];
		if (cpu_is_output(cpu->tensors.tensor[i].role))
			cpu_note_hashes(cpu, array->verified - GUARD, array->size, cpu_hashes(array, input));
	}
	return 0;
}

/* The next launch reads the inputs of a set that is timed, and writes where it is verified. */
static void use_other_inputs(struct cpu *cpu)
{
	cpu_use_verified(cpu);
	for (uint32_t i = 0; i < cpu->tensors.count && !cpu->shared; i++) {
		if (cpu->array[i].cold && cpu_is_input(cpu->tensors.tensor[i].role))
			cpu->data[i] = cpu->arena.memory + cpu->array[i].slot;
	}
}

/* Some launches: at no fixed distance, or a fault that comes in every so-many-th might fall between those that are looked at. */
static bool is_chosen(uint64_t launch)
{
	return launch * UINT64_C(0x9e3779b97f4a7c15) >> 62 == 0;
}

/* Before a launch of a kernel that is not over rows: its outputs are poison; or there was one with other inputs, which is not
 * looked at. */
static void spoil_outputs(struct cpu *cpu, size_t index)
{
	if (!is_chosen(cpu->audits) || cpu->shared) {
		cpu_renew_outputs(cpu);
		return;
	}
	use_other_inputs(cpu);
	cpu_launch(cpu, index, cpu->m);
	cpu_restore_verified(cpu);
}

/* No output is what the launch before left there, and neither an element that was not written nor a sum that was kept goes
 * unseen: of a kernel over rows launches with two inputs take turns, both writing to one place. What another input has to come to
 * is known of such kernels alone. */
int cpu_audit(struct ft_backend *backend, size_t index, uint64_t launches, uint64_t *checked,
        struct ft_error *error)
{
	struct cpu *cpu = cpu_of(backend);
	int result = 0;
	cpu->until_ns = 0;
	cpu->ended = false;
	if (cpu->launched)
		(void)check_inputs(cpu, NULL);
	if (cpu->audited != index) {
		cpu_renew_outputs(cpu);
		cpu->audited = index;
		cpu->audits = 0;
	}
	for (*checked = 0; *checked < launches && result == 0; ++*checked) {
		const size_t input = cpu->over_rows ? cpu->audits % AUDIT_INPUTS : 0;
		uint64_t began = ft_clock_ns();
		if (!cpu->over_rows)
			spoil_outputs(cpu, index);
		if (input == 0)
			cpu_use_verified(cpu);
		else
			use_other_inputs(cpu);
		cpu_launch(cpu, index, cpu->m);
		cpu_note_work(cpu, began);
		result = check_again(cpu, input, error);
		cpu->audits++;
	}
	return check_inputs(cpu, error) != 0 ? 1 : result;
}
