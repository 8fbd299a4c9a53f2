#include "kernels/expression.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element.h"
#include "kernels/internal.h"
#include "proto/value.h"

void ft_expression_free(struct ft_expression *expression)
{
	free(expression);
}

uint64_t ft_expression_slots(const struct ft_expression *expression)
{
	return expression->slots;
}

/* ---- what is said of them ---- */

void ft_note_add(struct note *note, const char *format, ...)
{
	size_t room = sizeof(note->text) - note->length;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(note->text + note->length, room, format, arguments);
	va_end(arguments);
	note->length += (size_t)length < room ? (size_t)length : room - 1;
}

void ft_note_add_part(struct note *note, const char *text, size_t length)
{
	size_t start = note->length + 1;

	ft_note_add(note, "\"%.*s%s\"", (int)(length > SHOWN ? SHOWN : length), text,
	        length > SHOWN ? "..." : "");
	for (size_t i = start; i < note->length; i++) {
		if (strchr("\t\r\n", note->text[i]) != NULL)
			note->text[i] = ' ';
	}
}

void ft_note_add_types(struct note *note)
{
	for (int type = 0; type < FT_DTYPES; type++)
		ft_note_add(note, "%s%s", type == 0 ? "; types are " : ", ", ft_dtype_name(type));
}

void ft_note_refuse(const struct note *note, struct ft_error *error)
{
	(void)ft_fail(error, FT_E_BAD_VALUE, "%s", note->text);
}

/* ---- evaluation ---- */

/* Each value on the stack but the last waits for a step of its own that takes it; below them one place is left free. */
enum { STACK = FT_EXPRESSION_STEPS / 2 + 2 };

/* The values of the names in a part, each once; then the whole, if the part is not. */
static void add_values(struct note *note, const struct ft_expression *expression, const struct step *part,
        const union ft_expression_value *values)
{
	uint64_t said = 0;
	size_t length = strlen(expression->text);

	for (const struct step *step = expression->step; step->op != OP_END; step++) {
		if (step->op != OP_SLOT || step->from < part->from || step->to > part->to ||
		        (said >> step->index & 1) != 0)
			continue;
		ft_note_add(note, "%s%.*s=", said == 0 ? ": " : ", ", step->to - step->from,
		        expression->text + step->from);
		if (step->number != 0)
			ft_note_add(note, "%s", values[step->index].text);
		else
			ft_note_add(note, "%" PRId64, values[step->index].number);
		said |= UINT64_C(1) << step->index;
	}
	if (part->to - part->from == (int)length)
		return;
	ft_note_add(note, "; in ");
	ft_note_add_part(note, expression->text, length);
}

/* A step that cannot be done; its operands are on top of the stack. */
static void fail_step(const struct ft_expression *expression, const struct step *step,
        const union ft_expression_value *values, const union ft_expression_value *operand,
        struct ft_error *error)
{
	struct note note = {.length = 0};

	ft_note_add_part(&note, expression->text + step->from, (size_t)step->to - step->from);
	switch (step->op) {
	case OP_CEILDIV:
		ft_note_add(&note, " takes 0 or more, and 1 or more, not %" PRId64 " and %" PRId64,
		        operand[0].number, operand[1].number);
		break;
	case OP_LOG2:
		ft_note_add(&note, " takes 1 or more, not %" PRId64, operand[0].number);
		break;
	case OP_SIZEOF:
		ft_note_add(&note, " takes a type, not \"%s\"", operand[0].text);
		ft_note_add_types(&note);
		break;
	case OP_DIVIDE:
	case OP_REMAINDER:
		if (operand[1].number == 0) {
			ft_note_add(&note, " divides by 0");
			break;
		}
		/* fall through */
	default:
		ft_note_add(&note, " overflows 64 bits");
	}
	add_values(&note, expression, step, values);
	ft_note_refuse(&note, error);
}

static int evaluate(const struct ft_expression *expression, enum ft_expression_type type,
        const union ft_expression_value *values, union ft_expression_value *result, struct ft_error *error)
{
	union ft_expression_value stack[STACK], *top = stack;
	const struct step *step = expression->step;
	enum ft_dtype element;
	bool is_lost; /* the step cannot be done */

#ifdef __clang_analyzer__ /* it does not know that a step takes what others have put there */
	memset(stack, 1, sizeof(stack));
#endif
	if (expression->type != type)
		return ft_fail(error, FT_E_BAD_VALUE, "the expression was parsed for another type");
	for (;; step++) {
		is_lost = false;
		switch ((enum op)step->op) {
		case OP_END:
			*result = *top;
			return 0;
		case OP_NUMBER:
			(++top)->number = step->number;
			break;
		case OP_WORD:
			(++top)->text = expression->words + step->from + 1;
			break;
		case OP_SLOT:
			*++top = values[step->index];
			break;
		case OP_ADD:
			top--;
			is_lost = __builtin_add_overflow(top[0].number, top[1].number, &top[0].number);
			break;
		case OP_SUBTRACT:
			top--;
			is_lost = __builtin_sub_overflow(top[0].number, top[1].number, &top[0].number);
			break;
		case OP_MULTIPLY:
			top--;
			is_lost = __builtin_mul_overflow(top[0].number, top[1].number, &top[0].number);
			break;
		case OP_DIVIDE:
			top--;
			is_lost = top[1].number == 0 || (top[0].number == INT64_MIN && top[1].number == -1);
			if (!is_lost)
				top[0].number /= top[1].number;
			break;
		case OP_REMAINDER:
			top--;
			is_lost = top[1].number == 0;
			if (!is_lost)
				top[0].number = top[1].number == -1 ? 0 : top[0].number % top[1].number;
			break;
		case OP_NEGATE:
			is_lost = __builtin_sub_overflow(0, top->number, &top->number);
			break;
		case OP_LESS:
			top--;
			top[0].number = top[0].number < top[1].number;
			break;
		case OP_LESS_EQUAL:
			top--;
			top[0].number = top[0].number <= top[1].number;
			break;
		case OP_GREATER:
			top--;
			top[0].number = top[0].number > top[1].number;
			break;
		case OP_GREATER_EQUAL:
			top--;
			top[0].number = top[0].number >= top[1].number;
			break;
		case OP_EQUAL:
			top--;
			top[0].number = top[0].number == top[1].number;
			break;
		case OP_UNEQUAL:
			top--;
			top[0].number = top[0].number != top[1].number;
			break;
		case OP_EQUAL_TEXTS:
			top--;
			top[0].number = ft_name_same(top[0].text, top[1].text);
			break;
		case OP_UNEQUAL_TEXTS:
			top--;
			top[0].number = !ft_name_same(top[0].text, top[1].text);
			break;
		case OP_NOT:
			top->number = !top->number;
			break;
		case OP_AND:
			if (top->number == 0)
				step = expression->step + step->index - 1;
			else
				top--;
			break;
		case OP_OR:
			if (top->number != 0)
				step = expression->step + step->index - 1;
			else
				top--;
			break;
		case OP_UNLESS:
			if ((top--)->number == 0)
				step = expression->step + step->index - 1;
			break;
		case OP_JUMP:
			step = expression->step + step->index - 1;
			break;
		case OP_MEMBER:
		case OP_MEMBER_TEXT:
			top--;
			if (step->op == OP_MEMBER ? top[0].number == top[1].number
			                          : ft_name_same(top[0].text, top[1].text)) {
				top->number = 1;
				step = expression->step + step->index - 1;
			}
			break;
		case OP_NO_MEMBER:
			top->number = 0;
			break;
		case OP_MIN:
			top--;
			if (top[1].number < top[0].number)
				top[0] = top[1];
			break;
		case OP_MAX:
			top--;
			if (top[1].number > top[0].number)
				top[0] = top[1];
			break;
		case OP_CEILDIV:
			top--;
			is_lost = top[0].number < 0 || top[1].number < 1;
			if (!is_lost)
				top[0].number =
				        top[0].number / top[1].number + (top[0].number % top[1].number != 0);
			break;
		case OP_LOG2:
			is_lost = top->number < 1;
			if (!is_lost)
				top->number = 63 - __builtin_clzll((unsigned long long)top->number);
			break;
		case OP_POW2CEIL:
			is_lost = top->number > INT64_C(1) << 62;
			if (!is_lost)
				top->number = top->number < 2
				        ? 1
				        : INT64_C(1) << (64 -
				                  __builtin_clzll((unsigned long long)top->number - 1));
			break;
		case OP_SIZEOF:
			is_lost = !ft_dtype_find(top->text, &element);
			if (!is_lost)
				top->number = (int64_t)ft_dtype_size(element);
			break;
		}
		if (is_lost) {
			fail_step(expression, step, values, top, error);
			return -1;
		}
	}
}

int ft_expression_number(const struct ft_expression *expression, const union ft_expression_value *values,
        int64_t *result, struct ft_error *error)
{
	union ft_expression_value value;

	if (evaluate(expression, FT_EXPRESSION_NUMBER, values, &value, error) != 0)
		return -1;
	*result = value.number;
	return 0;
}

int ft_expression_condition(const struct ft_expression *expression, const union ft_expression_value *values,
        bool *result, struct ft_error *error)
{
	union ft_expression_value value;

	if (evaluate(expression, FT_EXPRESSION_CONDITION, values, &value, error) != 0)
		return -1;
	*result = value.number != 0;
	return 0;
}

int ft_expression_text(const struct ft_expression *expression, const union ft_expression_value *values,
        const char **result, struct ft_error *error)
{
	union ft_expression_value value;

	if (evaluate(expression, FT_EXPRESSION_TEXT, values, &value, error) != 0)
		return -1;
	*result = value.text;
	return 0;
}
