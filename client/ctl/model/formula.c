#include "client/ctl/model/formula.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 3, DEPTH_MAX = 16, DIGITS_MAX = 18 };

/* What binds tighter stands later. */
static const char *const operators[LEVELS] = {"|", "+", "*/"};

static const char digits[] = "0123456789";
static const char letters[] = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

struct reading {
	const char *at;
	const struct formula_names *names;
	char *problem;
	int depth; /* of parentheses */
};

struct value {
	enum formula_status status;
	int64_t number;
};

static struct value fail(struct reading *reading, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static struct value fail(struct reading *reading, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reading->problem, FORMULA_PROBLEM_SIZE, format, arguments);
	va_end(arguments);
	return (struct value){.status = FORMULA_WRONG};
}

static char next(struct reading *reading)
{
	reading->at += strspn(reading->at, " ");
	return *reading->at;
}

/* What does not count is read for its grammar alone, and is DONE. */
static struct value read_level(struct reading *reading, int level, bool counts);

static struct value read_operand(struct reading *reading, bool counts)
{
	char name[FORMULA_NAME_SIZE];
	struct value value = {.status = FORMULA_DONE};
	size_t length;

	if (next(reading) == '(') {
		if (++reading->depth > DEPTH_MAX)
			return fail(reading, "it has more than %d parentheses in each other", DEPTH_MAX);
		reading->at++;
		value = read_level(reading, 0, counts);
		if (value.status == FORMULA_WRONG)
			return value;
		if (next(reading) != ')')
			return fail(reading, "a ) is missing before '%.40s'", reading->at);
		reading->at++;
		reading->depth--;
		return value;
	}
	length = strspn(reading->at, letters);
	if (length == 0)
		return fail(reading, "a name or a number is missing before '%.40s'", reading->at);
	if (length >= sizeof name)
		return fail(reading, "'%.40s' is no name: it is too long", reading->at);
	memcpy(name, reading->at, length);
	name[length] = '\0';
	reading->at += length;
	if (strspn(name, digits) > 0) {
		if (strspn(name, digits) != length || length > DIGITS_MAX)
			return fail(reading, "%s is neither a name nor a number", name);
		value.number = strtoll(name, NULL, 10);
	} else if (counts) {
		value.status =
		        reading->names->find(reading->names->data, name, &value.number, reading->problem);
		if (value.status == FORMULA_UNKNOWN)
			snprintf(reading->problem, FORMULA_PROBLEM_SIZE, "%s", name);
	}
	return value;
}

static struct value calculate(struct reading *reading, int64_t left, char sign, int64_t right)
{
	struct value value = {.status = FORMULA_DONE};
	bool fits = true;

	if (sign == '+')
		fits = !__builtin_add_overflow(left, right, &value.number);
	else if (sign == '*')
		fits = !__builtin_mul_overflow(left, right, &value.number);
	else if (right == 0 || left % right != 0)
		return fail(reading, "%" PRId64 " / %" PRId64 " is no whole number", left, right);
	else
		value.number = left / right;
	return fits ? value : fail(reading, "%" PRId64 " %c %" PRId64 " is too large", left, sign, right);
}

/* A level reads the operands of its operators by the next one; behind the last are names and numbers. */
static struct value read_level(struct reading *reading, int level, bool counts)
{
	struct value left, right;

	if (level == LEVELS)
		return read_operand(reading, counts);
	left = read_level(reading, level + 1, counts);
	while (left.status != FORMULA_WRONG && next(reading) != '\0' &&
	        strchr(operators[level], *reading->at) != NULL) {
		char sign = *reading->at++;
		bool wanted = counts && (sign == '|') == (left.status == FORMULA_UNKNOWN);

		right = read_level(reading, level + 1, wanted);
		if (right.status == FORMULA_WRONG)
			return right;
		if (wanted && sign != '|' && right.status == FORMULA_DONE)
			left = calculate(reading, left.number, sign, right.number);
		else if (wanted)
			left = right;
	}
	return left;
}

static struct value read_whole(struct reading *reading, bool counts)
{
	struct value value = read_level(reading, 0, counts);

	if (value.status != FORMULA_WRONG && next(reading) != '\0')
		return fail(reading, "an operator is missing before '%.40s'", reading->at);
	return value;
}

enum formula_status formula_evaluate(const char *text, const struct formula_names *names, int64_t *number,
        char problem[FORMULA_PROBLEM_SIZE])
{
	struct reading reading = {.at = text, .names = names, .problem = problem};
	struct value value = read_whole(&reading, true);

	*number = value.number;
	return value.status;
}

bool formula_is_valid(const char *text, char problem[FORMULA_PROBLEM_SIZE])
{
	struct reading reading = {.at = text, .problem = problem};

	return read_whole(&reading, false).status == FORMULA_DONE;
}

bool formula_has(const char *text, const char *name)
{
	while (*text != '\0') {
		size_t length = strspn(text, letters);

		if (length == strlen(name) && strncmp(text, name, length) == 0)
			return true;
		text += length > 0 ? length : 1;
	}
	return false;
}
