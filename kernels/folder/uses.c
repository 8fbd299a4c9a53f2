/* Which names the expressions and arguments of a folder use. */
#include "kernels/folder/internal.h"

#include <string.h>

static uint64_t slots_of(const struct formula *formula)
{
	return formula->expression != NULL ? ft_expression_slots(formula->expression) : 0;
}

static uint64_t slots_of_axes(const struct formula axis[AXES])
{
	return slots_of(&axis[0]) | slots_of(&axis[1]) | slots_of(&axis[2]);
}

/* `buffers` gets those that are arguments. */
static uint64_t slots_of_arguments(const struct arguments *arguments, uint32_t *buffers)
{
	uint64_t slots = 0;

	for (uint32_t i = 0; i < arguments->count; i++) {
		slots |= slots_of(&arguments->argument[i].formula);
		if (arguments->argument[i].is_buffer)
			*buffers |= UINT32_C(1) << arguments->argument[i].buffer;
	}
	return slots;
}

static uint64_t slots_of_target(const struct target *target, uint32_t *buffers)
{
	uint64_t slots = 0;

	for (uint32_t i = 0; i < target->define_count; i++)
		slots |= slots_of(&target->define[i].formula);
	for (uint32_t i = 0; i < target->step_count; i++) {
		const struct step *step = &target->step[i];

		slots |= slots_of_axes(step->grid) | slots_of_axes(step->block) |
		        slots_of_axes(step->cluster) | slots_of(&step->shared) |
		        slots_of_arguments(&step->arguments, buffers);
	}
	return slots;
}

static uint64_t slots_of_rules(const struct rule *rule, uint32_t count)
{
	uint64_t slots = 0;

	for (uint32_t i = 0; i < count; i++)
		slots |= slots_of(&rule[i].formula);
	return slots;
}

/* All the rest, in which a field may stand. */
static uint64_t slots_of_problem(const struct ft_folder *folder)
{
	uint32_t ignored = 0;
	uint64_t slots = slots_of_rules(folder->check, folder->check_count) | slots_of(&folder->bytes) |
	        slots_of(&folder->flops) | slots_of_arguments(&folder->reference_arguments, &ignored);

	for (uint32_t i = 0; i < folder->buffer_count; i++) {
		const struct buffer *buffer = &folder->buffer[i];

		slots |= slots_of(&buffer->rows) | slots_of(&buffer->length) | slots_of(&buffer->stride);
		if (buffer->type_field < FT_FIELDS_MAX)
			slots |= UINT64_C(1) << buffer->type_field;
	}
	for (uint32_t i = 0; i < folder->knob_count; i++)
		slots |= slots_of(&folder->knob[i].usual) | slots_of(&folder->knob[i].reference);
	for (uint32_t i = 0; i < folder->order_count; i++)
		slots |= slots_of(&folder->order[i]);
	return slots;
}

void ft_folder_uses(const struct ft_folder *folder, const char *device_kind, struct ft_folder_uses *uses)
{
	const enum kind kind = kind_named(device_kind);
	const uint64_t rules = slots_of_rules(folder->rule, folder->rule_count);
	uint32_t knob = 0;
	uint64_t code;

	memset(uses, 0, sizeof(*uses));
	code = slots_of_target(&folder->target[kind], &uses->buffers);
	uses->fields = (uint32_t)((code | rules | slots_of_problem(folder)) &
	        ((UINT64_C(1) << folder->field_count) - 1));
	for (uint32_t i = 0; i < folder->knob_count; i++) {
		const uint32_t slot = folder->knob_slot + i;

		if ((folder->knob[i].kinds >> kind & 1) == 0)
			continue;
		uses->knobs_of_rules |= (uint32_t)(rules >> slot & 1) << knob;
		uses->knobs_of_code |= (uint32_t)(code >> slot & 1) << knob;
		knob++;
	}
}
