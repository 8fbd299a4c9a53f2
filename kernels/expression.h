/* Expressions: what a kernel folder says of sizes, launches, rules and defaults, as text.
 *
 *     ceildiv(m * n, BLOCK) * (dtype in ('f16', 'bf16') ? 2 : 1)
 *
 * An expression is parsed once, against the names that it may use, and evaluated as often as need be, for values of them. Its
 * types are known when it was parsed: what can still fail then is arithmetic.
 *
 * Values are numbers (64 bits, signed), texts, and conditions. A condition is no number: write `split != 0`, and `m > 4 ? 1 : 0`.
 *
 *     12  'bf16'  "bf16"         a whole number in decimal digits; a text, in which nothing is escaped
 *     m  dtype                   a name; not `and`, `or`, `not` and `in`
 *     sizeof(bf16)               bytes of an element of a type of element.h, or of the type that a text names: sizeof(dtype). A
 *                                name that is known comes before a type of that name
 *     min(a, b, ...)  max(a, b, ...)
 *     ceildiv(a, b)              a / b rounded up; a >= 0, b >= 1
 *     log2(a)                    rounded down; a >= 1
 *     pow2ceil(a)                the least power of two that is not below a; 1 if a is negative
 *
 * Operators, those that bind tightest first; they are C's, but for the words, which are Python's and stand where Python has them:
 *
 *     -a
 *     a * b   a / b   a % b      numbers. As in C, and so in the source of the kernel, the quotient is rounded towards 0, and the
 *                                remainder has the sign of a: -7 / 2 is -3, -7 % 2 is -1
 *     a + b   a - b
 *     a < b   a <= b   a > b   a >= b    numbers
 *     a == b  a != b             two numbers, texts or conditions
 *     a in (b, c, ...)   a not in (b, c, ...)
 *     not a
 *     a and b                    b is evaluated only if a holds
 *     a or b                     b is evaluated only if a does not hold
 *     a ? b : c                  one of b and c is evaluated; they have one type; a ? b : c ? d : e is a ? b : (c ? d : e)
 *
 * Comparisons do not chain: write `a < b and b < c`. The members of a list are evaluated up to the one that is equal.
 * What overflows 64 bits, or divides by 0, is an error that gives the part at fault, the values of the names in it and
 * the whole. Errors of a parse give the column, from 1, which counts bytes: what stands there, and what could.
 *
 * Functions return 0, or -1 with the error filled in (code bad_value; out_of_memory). */
#ifndef FLYTUNE_KERNELS_EXPRESSION_H
#define FLYTUNE_KERNELS_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

enum {
	FT_SCOPE_MAX = 64,        /* names: fields, knobs and traits */
	FT_EXPRESSION_MAX = 4096, /* bytes of an expression */
	FT_EXPRESSION_STEPS =
	        512, /* operands and operators in it, `? :` for two, each member of a list for two */
	FT_EXPRESSION_NESTING = 64, /* brackets, choices, `not` and signs within each other */
};

/* The names that an expression may use. A name's slot is its place: whoever adds the names of several expressions in one order
 * can give them all the same values. */
struct ft_scope {
	uint32_t count;
	const char *name[FT_SCOPE_MAX]; /* borrowed, until the last parse */
	uint64_t texts;                 /* bit i: name[i] has a text, else a number */
};

/* Appends a name to a scope, which begins as zeros. Fails if it is no name, one of the language's words, or taken. */
int ft_scope_add(struct ft_scope *scope, const char *name, bool is_text, struct ft_error *error);

/* A name's value; the scope says which of the two it is. */
union ft_expression_value {
	int64_t number;
	const char *text; /* borrowed; not NULL */
};

enum ft_expression_type { FT_EXPRESSION_NUMBER, FT_EXPRESSION_CONDITION, FT_EXPRESSION_TEXT };

struct ft_expression;

/* `wanted` is the type that it must have. Takes time in proportion to the text, up to the bound; what is longer is refused at
 * once. Up to 80 KiB of stack, where it is nested deep. The caller frees *expression, which keeps nothing of text and scope. */
int ft_expression_parse(const char *text, const struct ft_scope *scope, enum ft_expression_type wanted,
        struct ft_expression **expression, struct ft_error *error);
void ft_expression_free(struct ft_expression *expression); /* NULL: nothing */

/* The slots of the names in it: bit i for slot i. */
uint64_t ft_expression_slots(const struct ft_expression *expression);

/* Evaluates it; the function is that of the type it was parsed for. values[i] is that of slot i; only those of slots in it are
 * looked at, and all of them may be. Any thread; no allocation; at most 3 KiB of stack if it does not fail. */
int ft_expression_number(const struct ft_expression *expression, const union ft_expression_value *values,
        int64_t *result, struct ft_error *error);
int ft_expression_condition(const struct ft_expression *expression, const union ft_expression_value *values,
        bool *result, struct ft_error *error);
/* The text is the expression's or one of the values: it lives as long as both. */
int ft_expression_text(const struct ft_expression *expression, const union ft_expression_value *values,
        const char **result, struct ft_error *error);

#endif
