/* From an expression's tokens to its steps: recursive descent, a level of operators within the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element.h"
#include "kernels/expression.h"
#include "kernels/internal.h"
#include "proto/value.h"

static bool take(struct parser *parser, enum token_kind kind, const char *what)
{
	return parser->kind == kind ? ft_parser_next(parser) : ft_parser_expected(parser, what);
}

/* ---- steps ---- */

/* What was parsed, and leaves one value on the stack. */
struct operand {
	enum ft_expression_type type;
	size_t from, to;
};

static bool emit(struct parser *parser, enum op op, size_t from, size_t index, int64_t number)
{
	if (parser->count < FT_EXPRESSION_STEPS) {
		parser->step[parser->count++] = (struct step){.op = (uint16_t)op,
		        .from = (uint16_t)from,
		        .to = (uint16_t)parser->end,
		        .index = (uint16_t)index,
		        .number = number};
		return true;
	}
	return ft_parser_refuse(
	        parser, from, "it has more than %d operands and operators", (int)FT_EXPRESSION_STEPS);
}

/* The step goes on at what comes next. */
static void lead_here(struct parser *parser, size_t step)
{
	parser->step[step].index = (uint16_t)parser->count;
}

static bool nest(struct parser *parser)
{
	if (parser->nesting++ <= FT_EXPRESSION_NESTING) /* the whole counts, too */
		return true;
	return ft_parser_refuse(
	        parser, parser->end, "it is nested more than %d deep", (int)FT_EXPRESSION_NESTING);
}

static bool require(const struct parser *parser, const struct operand *operand, enum ft_expression_type type)
{
	static const char *const names[] = {"a number", "a condition", "a text"};
	const char *part = parser->text + operand->from;
	struct note note;

	if (operand->type == type)
		return true;
	note = ft_parser_note(parser, operand->from);
	ft_note_add_part(&note, part, operand->to - operand->from);
	ft_note_add(&note, " is %s; it must be %s", names[operand->type], names[type]);
	if (operand->type == FT_EXPRESSION_NUMBER && type == FT_EXPRESSION_CONDITION)
		ft_note_add(&note, ", as \"... != 0\"");
	if (operand->type == FT_EXPRESSION_CONDITION && type == FT_EXPRESSION_NUMBER)
		ft_note_add(&note, ", as \"... ? 1 : 0\"");
	ft_note_refuse(&note, parser->error);
	return false;
}

/* ---- names and calls ---- */

static const char *const functions[] = {"min", "max", "ceildiv", "log2", "pow2ceil", "sizeof"};
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };
static const struct {
	enum op op;
	uint32_t takes;
	bool takes_more;
} calls[FUNCTIONS] = {{OP_MIN, 2, true}, {OP_MAX, 2, true}, {OP_CEILDIV, 2, false}, {OP_LOG2, 1, false},
        {OP_POW2CEIL, 1, false}, {OP_SIZEOF, 1, false}};

static bool choice(struct parser *parser, struct operand *operand);

/* The token's letters; cut if they are more than a name's. */
static void copy_name(const struct parser *parser, const struct operand *name, char copy[FT_NAME_SIZE + 1])
{
	snprintf(copy, FT_NAME_SIZE + 1, "%.*s", (int)(name->to - name->from), parser->text + name->from);
}

/* There is no such name or function. */
static bool unknown(const struct parser *parser, const struct operand *name, const char *kind,
        const char *const *names, size_t count)
{
	struct note note = ft_parser_note(parser, name->from);
	char copy[FT_NAME_SIZE + 1];
	const char *meant;

	copy_name(parser, name, copy);
	meant = ft_meant_word(copy, names, count);
	ft_note_add(&note, "there is no %s ", kind);
	ft_note_add_part(&note, parser->text + name->from, name->to - name->from);
	if (meant != NULL)
		ft_note_add(&note, "; did you mean \"%s\"?", meant);
	for (size_t i = 0; meant == NULL && i < count; i++)
		ft_note_add(&note, "%s%s", i == 0 ? "; known are " : ", ", names[i]);
	ft_note_refuse(&note, parser->error);
	return false;
}

/* The slot of a name; the count of names if it is none. */
static uint32_t find_slot(const struct parser *parser, const struct operand *name)
{
	char copy[FT_NAME_SIZE + 1];
	uint32_t slot = 0;

	copy_name(parser, name, copy);
	while (slot < parser->scope->count && !ft_name_same(parser->scope->name[slot], copy))
		slot++;
	return slot;
}

static bool read_slot(struct parser *parser, struct operand *name)
{
	uint32_t slot = find_slot(parser, name);
	bool is_text;

	if (slot == parser->scope->count)
		return unknown(parser, name, "name", parser->scope->name, parser->scope->count);
	is_text = (parser->scope->texts >> slot & 1) != 0;
	name->type = is_text ? FT_EXPRESSION_TEXT : FT_EXPRESSION_NUMBER;
	parser->slots |= UINT64_C(1) << slot;
	return emit(parser, OP_SLOT, name->from, slot, is_text);
}

static bool unknown_type(const struct parser *parser, const struct operand *name)
{
	struct note note = ft_parser_note(parser, name->from);

	ft_note_add(&note, "there is no name or type ");
	ft_note_add_part(&note, parser->text + name->from, name->to - name->from);
	ft_note_add_types(&note);
	ft_note_refuse(&note, parser->error);
	return false;
}

/* Behind the bracket of sizeof: a type by its name, or a text. */
static bool read_sizeof(struct parser *parser, const struct operand *call)
{
	struct operand name = {.from = parser->from, .to = parser->to};
	const char *behind = parser->text + parser->to;
	enum ft_dtype type;
	char copy[FT_NAME_SIZE + 1];

	if (parser->kind != TOKEN_NAME || behind[strspn(behind, " \t\r\n")] == '(' ||
	        find_slot(parser, &name) < parser->scope->count)
		return choice(parser, &name) && require(parser, &name, FT_EXPRESSION_TEXT) &&
		        take(parser, TOKEN_CLOSE, "\")\" or an operator") &&
		        emit(parser, OP_SIZEOF, call->from, 0, 0);
	copy_name(parser, &name, copy);
	if (!ft_dtype_find(copy, &type))
		return unknown_type(parser, &name);
	return ft_parser_next(parser) && take(parser, TOKEN_CLOSE, "\")\"") &&
	        emit(parser, OP_NUMBER, call->from, 0, (int64_t)ft_dtype_size(type));
}

static bool read_call(struct parser *parser, const struct operand *name)
{
	char copy[FT_NAME_SIZE + 1];
	size_t function = 0;
	uint32_t count = 0;

	copy_name(parser, name, copy);
	while (function < FUNCTIONS && strcmp(functions[function], copy) != 0)
		function++;
	if (function == FUNCTIONS)
		return unknown(parser, name, "function", functions, FUNCTIONS);
	if (calls[function].op == OP_SIZEOF)
		return ft_parser_next(parser) && read_sizeof(parser, name);
	do {
		struct operand value;

		if (!ft_parser_next(parser) || !choice(parser, &value) ||
		        !require(parser, &value, FT_EXPRESSION_NUMBER))
			return false;
		count++;
		if (calls[function].takes_more && count > 1 &&
		        !emit(parser, calls[function].op, name->from, 0, 0))
			return false;
	} while (parser->kind == TOKEN_COMMA);
	if (!take(parser, TOKEN_CLOSE, "\",\", \")\" or an operator"))
		return false;
	if (count == calls[function].takes || (count > calls[function].takes && calls[function].takes_more))
		return calls[function].takes_more || emit(parser, calls[function].op, name->from, 0, 0);
	return ft_parser_refuse(parser, name->from, "%s takes %u value%s%s, not %u", copy,
	        calls[function].takes, calls[function].takes == 1 ? "" : "s",
	        calls[function].takes_more ? " or more" : "", count);
}

/* ---- operators ---- */

static bool read_literal(struct parser *parser, size_t from, bool is_negative)
{
	uint64_t largest = (uint64_t)INT64_MAX + is_negative, number = parser->number;

	if (number > largest)
		return ft_parser_expected(parser,
		        is_negative ? "at most 9223372036854775808 behind a -"
		                    : "at most 9223372036854775807");
	return ft_parser_next(parser) &&
	        emit(parser, OP_NUMBER, from, 0, (int64_t)(is_negative ? UINT64_C(0) - number : number));
}

static bool primary(struct parser *parser, struct operand *operand)
{
	size_t from = parser->from;
	bool is_whole;

	*operand = (struct operand){FT_EXPRESSION_NUMBER, from, parser->to};
	switch (parser->kind) {
	case TOKEN_NUMBER:
		is_whole = read_literal(parser, from, false);
		break;
	case TOKEN_WORD:
		operand->type = FT_EXPRESSION_TEXT;
		is_whole = ft_parser_next(parser) && emit(parser, OP_WORD, from, 0, 0);
		break;
	case TOKEN_NAME:
		is_whole = ft_parser_next(parser) &&
		        (parser->kind == TOKEN_OPEN ? read_call(parser, operand)
		                                    : read_slot(parser, operand));
		break;
	case TOKEN_OPEN:
		is_whole = ft_parser_next(parser) && choice(parser, operand) &&
		        take(parser, TOKEN_CLOSE, "\")\" or an operator");
		break;
	default:
		return ft_parser_expected(parser, "a value");
	}
	operand->from = from;
	operand->to = parser->end;
	return is_whole;
}

static bool sign(struct parser *parser, struct operand *operand)
{
	size_t from = parser->from;

	if (parser->kind != TOKEN_MINUS)
		return primary(parser, operand);
	if (!ft_parser_next(parser))
		return false;
	*operand = (struct operand){FT_EXPRESSION_NUMBER, from, parser->to};
	if (parser->kind == TOKEN_NUMBER)
		return read_literal(parser, from, true);
	if (!nest(parser) || !sign(parser, operand) || !require(parser, operand, FT_EXPRESSION_NUMBER))
		return false;
	parser->nesting--;
	return emit(parser, OP_NEGATE, from, 0, 0);
}

/* Behind `in`. */
static bool membership(struct parser *parser, const struct operand *left)
{
	size_t last = 0;

	if (parser->kind != TOKEN_OPEN)
		return ft_parser_expected(parser, "a list in brackets, as (1, 2, 4)");
	do {
		struct operand member;

		if (!ft_parser_next(parser) || !choice(parser, &member) ||
		        !require(parser, &member, left->type))
			return false;
		/* Its index leads to the member before until it is known where they all lead. */
		if (!emit(parser, left->type == FT_EXPRESSION_TEXT ? OP_MEMBER_TEXT : OP_MEMBER, left->from,
		            last, 0))
			return false;
		last = parser->count - 1;
	} while (parser->kind == TOKEN_COMMA);
	if (!take(parser, TOKEN_CLOSE, "\",\", \")\" or an operator") ||
	        !emit(parser, OP_NO_MEMBER, left->from, 0, 0))
		return false;
	while (last != 0) {
		size_t before = parser->step[last].index;

		lead_here(parser, last);
		last = before;
	}
	return true;
}

static bool binary(struct parser *parser, enum level level, struct operand *left);

static bool comparison(struct parser *parser, const struct symbol *symbol, const struct operand *left)
{
	enum op op = symbol->op;
	struct operand right;

	if (symbol->kind == TOKEN_NOT)
		return take(parser, TOKEN_IN, "\"in\" behind \"not\"") && membership(parser, left) &&
		        emit(parser, OP_NOT, left->from, 0, 0);
	if (symbol->kind == TOKEN_IN)
		return membership(parser, left);
	if (op != OP_EQUAL && op != OP_UNEQUAL && !require(parser, left, FT_EXPRESSION_NUMBER))
		return false;
	if (!binary(parser, LEVEL_SUM, &right) || !require(parser, &right, left->type))
		return false;
	if (left->type == FT_EXPRESSION_TEXT)
		op = op == OP_EQUAL ? OP_EQUAL_TEXTS : OP_UNEQUAL_TEXTS;
	return emit(parser, op, left->from, 0, 0);
}

/* Behind an operator of that level, what stands to its right. */
static bool join(struct parser *parser, const struct symbol *symbol, enum level level, struct operand *left)
{
	bool is_logic = level < LEVEL_COMPARISON;
	enum ft_expression_type type = is_logic ? FT_EXPRESSION_CONDITION : FT_EXPRESSION_NUMBER;
	size_t step = parser->count;
	struct operand right;

	if (level == LEVEL_COMPARISON)
		return comparison(parser, symbol, left);
	if (!require(parser, left, type) || (is_logic && !emit(parser, symbol->op, left->from, 0, 0)) ||
	        !binary(parser, level + 1, &right) || !require(parser, &right, type))
		return false;
	if (!is_logic)
		return emit(parser, symbol->op, left->from, 0, 0);
	lead_here(parser, step);
	return true;
}

static bool negation(struct parser *parser, struct operand *operand)
{
	size_t from = parser->from;

	if (!ft_parser_next(parser) || !nest(parser) || !binary(parser, LEVEL_COMPARISON, operand) ||
	        !require(parser, operand, FT_EXPRESSION_CONDITION) || !emit(parser, OP_NOT, from, 0, 0))
		return false;
	parser->nesting--;
	*operand = (struct operand){FT_EXPRESSION_CONDITION, from, parser->end};
	return true;
}

/* Operators of a level and those that bind tighter. */
static bool binary(struct parser *parser, enum level level, struct operand *left)
{
	bool is_compared = false;

	if (level == LEVEL_SIGN)
		return sign(parser, left);
	if (level == LEVEL_COMPARISON && parser->kind == TOKEN_NOT)
		return negation(parser, left);
	if (!binary(parser, level + 1, left))
		return false;
	while (parser->symbol != NULL && parser->symbol->level == level) {
		const struct symbol *symbol = parser->symbol;

		if (is_compared)
			return ft_parser_expected(
			        parser, "\"and\", \"or\" or the end: write \"a < b and b < c\"");
		if (!ft_parser_next(parser) || !join(parser, symbol, level, left))
			return false;
		is_compared = level == LEVEL_COMPARISON;
		left->type = level <= LEVEL_COMPARISON ? FT_EXPRESSION_CONDITION : FT_EXPRESSION_NUMBER;
		left->to = parser->end;
	}
	return true;
}

/* A whole expression, or what stands in brackets. */
static bool choice(struct parser *parser, struct operand *operand)
{
	size_t from = parser->from, first, second;
	struct operand other;

	if (!nest(parser) || !binary(parser, LEVEL_OR, operand))
		return false;
	if (parser->kind == TOKEN_CHOICE) {
		first = parser->count;
		if (!require(parser, operand, FT_EXPRESSION_CONDITION) ||
		        !emit(parser, OP_UNLESS, from, 0, 0) || !ft_parser_next(parser) ||
		        !choice(parser, operand))
			return false;
		second = parser->count;
		if (!emit(parser, OP_JUMP, from, 0, 0) || !take(parser, TOKEN_ELSE, "\":\" or an operator"))
			return false;
		lead_here(parser, first);
		if (!choice(parser, &other) || !require(parser, &other, operand->type))
			return false;
		lead_here(parser, second);
	}
	parser->nesting--;
	operand->from = from;
	operand->to = parser->end;
	return true;
}

/* ---- the whole ---- */

static struct ft_expression *expression_of(struct parser *parser, enum ft_expression_type type)
{
	size_t steps = (parser->count + 1) * sizeof(struct step), size = parser->length + 1;
	struct ft_expression *expression = calloc(1, sizeof(*expression) + steps + 2 * size);
	char *text, *words;

	if (expression == NULL)
		return NULL;
	parser->step[parser->count] = (struct step){.op = OP_END};
	memcpy(expression->step, parser->step, steps);
	text = (char *)expression->step + steps;
	words = text + size;
	memcpy(text, parser->text, size);
	memcpy(words, parser->text, size);
	for (size_t i = 0; i < parser->count; i++) {
		if (parser->step[i].op == OP_WORD)
			words[parser->step[i].to - 1] = '\0';
	}
	expression->type = type;
	expression->slots = parser->slots;
	expression->text = text;
	expression->words = words;
	return expression;
}

int ft_expression_parse(const char *text, const struct ft_scope *scope, enum ft_expression_type wanted,
        struct ft_expression **expression, struct ft_error *error)
{
	struct parser parser = {
	        .text = text, .length = strnlen(text, FT_EXPRESSION_MAX + 1), .scope = scope, .error = error};
	struct operand operand;

	if (parser.length > FT_EXPRESSION_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "it is longer than %d bytes", (int)FT_EXPRESSION_MAX);
	if (!ft_parser_next(&parser) || !choice(&parser, &operand))
		return -1;
	if (parser.kind != TOKEN_END) {
		ft_parser_expected(&parser, "an operator or the end");
		return -1;
	}
	if (!require(&parser, &operand, wanted))
		return -1;
	*expression = expression_of(&parser, wanted);
	if (*expression == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for an expression");
	return 0;
}
