/* Expressions against a naive evaluation in 128 bits, which knows nothing of texts and steps: each operator over operands at its
 * edges; and random trees, written out with as few brackets as the precedence needs, or more. */
#include "tests/unit/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/expression.h"

/* ---- what operators mean ---- */

enum fault { FAULT_NONE, FAULT_OVERFLOW, FAULT_ZERO, FAULT_RANGE };

static const char *const fault_words[] = {"", "overflows 64 bits", "divides by 0", "takes "};

__extension__ typedef __int128 wide;

static enum fault fit(wide exact, int64_t *result)
{
	*result = (int64_t)exact;
	return exact < INT64_MIN || exact > INT64_MAX ? FAULT_OVERFLOW : FAULT_NONE;
}

/* Operators and functions of two numbers as the header defines them, by other means than the processor's. */
static enum fault two_numbers(const char *name, int64_t a, int64_t b, int64_t *result)
{
	wide left = a, right = b, magnitude;

	switch (name[0]) {
	case '+':
		return fit(left + right, result);
	case '-':
		return fit(left - right, result);
	case '*':
		return fit(left * right, result);
	case '/':
	case '%':
		if (b == 0)
			return FAULT_ZERO;
		magnitude = (left < 0 ? -left : left) / (right < 0 ? -right : right);
		if ((left < 0) != (right < 0))
			magnitude = -magnitude;
		return fit(name[0] == '/' ? magnitude : left - magnitude * right, result);
	case 'c': /* ceildiv */
		if (a < 0 || b < 1)
			return FAULT_RANGE;
		return fit((left + right - 1) / right, result);
	default:
		*result = (name[1] == 'i') == (a < b) ? a : b; /* min, max */
		return FAULT_NONE;
	}
}

static enum fault one_number(const char *name, int64_t a, int64_t *result)
{
	wide power = 1;
	int64_t exponent = 0;

	switch (name[0]) {
	case '-':
		return fit(-(wide)a, result);
	case 'l': /* log2 */
		if (a < 1)
			return FAULT_RANGE;
		for (; power * 2 <= a; exponent++)
			power *= 2;
		*result = exponent;
		return FAULT_NONE;
	default: /* pow2ceil */
		while (power < a)
			power *= 2;
		return fit(power, result);
	}
}

static int64_t any_number(uint64_t *seed)
{
	static const int64_t edges[] = {0, 1, -1, 2, -2, 3, 7, 1000, INT32_MAX, INT64_C(1) << 32, 3037000499,
	        3037000500, INT64_C(1) << 62, (INT64_C(1) << 62) + 1, INT64_MAX, INT64_MAX - 1, INT64_MIN,
	        INT64_MIN + 1};
	uint64_t random = check_random(seed);

	if (random % 4 == 0)
		return (int64_t)(check_random(seed) >> (random >> 8) % 64);
	if (random % 4 == 1)
		return (int64_t)(random >> 8) % 20 - 5;
	return edges[(random >> 8) % (sizeof(edges) / sizeof(edges[0]))];
}

/* Each operator and function alone, over operands at its edges. */
static void arithmetic_is_exact_or_an_error(void **state)
{
	static const struct {
		const char *text, *name;
		bool is_of_one;
	} rows[] = {
	        {"m + n", "+", false},
	        {"m - n", "-", false},
	        {"m * n", "*", false},
	        {"m / n", "/", false},
	        {"m % n", "%", false},
	        {"min(m, n)", "min", false},
	        {"max(m, n)", "max", false},
	        {"ceildiv(m, n)", "ceildiv", false},
	        {"-m", "-", true},
	        {"log2(m)", "log2", true},
	        {"pow2ceil(m)", "pow2ceil", true},
	};
	struct ft_scope scope = {.count = 0};
	uint64_t seed = 20261130;

	(void)state;
	assert_int_equal(ft_scope_add(&scope, "m", false, NULL), 0);
	assert_int_equal(ft_scope_add(&scope, "n", false, NULL), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ft_expression *expression;

		assert_int_equal(
		        ft_expression_parse(rows[i].text, &scope, FT_EXPRESSION_NUMBER, &expression, NULL),
		        0);
		for (int k = 0; k < 5000; k++) {
			union ft_expression_value two[] = {{any_number(&seed)}, {any_number(&seed)}};
			int64_t a = two[0].number, b = two[1].number, result = 0, exact = 0;
			struct ft_error error = {.message = ""};
			enum fault fault = rows[i].is_of_one ? one_number(rows[i].name, a, &exact)
			                                     : two_numbers(rows[i].name, a, b, &exact);
			int status = ft_expression_number(expression, two, &result, &error);

			if (fault == FAULT_NONE
			                ? status != 0 || result != exact
			                : status != -1 || strstr(error.message, fault_words[fault]) == NULL)
				fail_msg("%s of %" PRId64 " and %" PRId64 ": %" PRId64 " %s, not %" PRId64
				         " %s",
				        rows[i].text, a, b, result, error.message, exact, fault_words[fault]);
		}
		ft_expression_free(expression);
	}
}

/* ---- random trees ---- */

enum kind {
	/* Leaves. */
	KIND_NUMBER,
	KIND_NAME, /* m or n */
	KIND_WORD,
	KIND_TEXT_NAME, /* s or t */
	/* The rest, by how tight they bind. */
	KIND_CHOICE,
	KIND_OR,
	KIND_AND,
	KIND_NOT,
	KIND_COMPARISON,
	KIND_MEMBER,
	KIND_SUM,
	KIND_PRODUCT,
	KIND_SIGN,
	KIND_CALL,
	KIND_SIZEOF,
};

/* How tight a kind binds, as the header orders operators. */
static const int levels[] = {[KIND_CHOICE] = 0,
        [KIND_OR] = 1,
        [KIND_AND] = 2,
        [KIND_NOT] = 3,
        [KIND_COMPARISON] = 4,
        [KIND_MEMBER] = 4,
        [KIND_SUM] = 5,
        [KIND_PRODUCT] = 6,
        [KIND_SIGN] = 7,
        [KIND_NUMBER] = 7,
        [KIND_NAME] = 8,
        [KIND_WORD] = 8,
        [KIND_TEXT_NAME] = 8,
        [KIND_CALL] = 8,
        [KIND_SIZEOF] = 8};

struct tree {
	enum kind kind;
	const char *name; /* operator, function, name or word */
	int64_t number;
	size_t count;
	struct tree *part[4];
};

struct forest {
	uint64_t seed;
	size_t used;
	struct tree tree[128];
};

static size_t pick(struct forest *forest, size_t count)
{
	return check_random(&forest->seed) % count;
}

static struct tree *grow(struct forest *forest, enum ft_expression_type type, int depth);

static struct tree *plant(struct forest *forest, enum kind kind, const char *name)
{
	struct tree *tree = &forest->tree[forest->used++];

	*tree = (struct tree){.kind = kind, .name = name};
	return tree;
}

static void add_part(struct forest *forest, struct tree *tree, enum ft_expression_type type, int depth)
{
	tree->part[tree->count++] = grow(forest, type, depth);
}

static struct tree *grow_leaf(struct forest *forest, enum ft_expression_type type)
{
	static const char *const words[] = {"f16", "bf16", "f32", "x", ""}, *const texts[] = {"s", "t"},
	                         *const names[] = {"m", "n"};
	struct tree *tree;

	if (type == FT_EXPRESSION_TEXT)
		return pick(forest, 2) == 0 ? plant(forest, KIND_WORD, words[pick(forest, 5)])
		                            : plant(forest, KIND_TEXT_NAME, texts[pick(forest, 2)]);
	if (pick(forest, 2) == 0)
		return plant(forest, KIND_NAME, names[pick(forest, 2)]);
	tree = plant(forest, KIND_NUMBER, "");
	tree->number = pick(forest, 4) == 0 ? any_number(&forest->seed) : (int64_t)pick(forest, 12) - 2;
	return tree;
}

static struct tree *grow_number(struct forest *forest, int depth)
{
	static const char *const calls[] = {"min", "max", "ceildiv", "log2", "pow2ceil"};
	static const char *const sums[] = {"+", "-"}, *const products[] = {"*", "/", "%"};
	struct tree *tree;
	size_t count = 2;

	switch (pick(forest, 8)) {
	case 0:
		tree = plant(forest, KIND_SIZEOF, "sizeof");
		add_part(forest, tree, FT_EXPRESSION_TEXT, depth);
		return tree;
	case 1:
		tree = plant(forest, KIND_SIGN, "-");
		count = 1;
		break;
	case 2:
	case 3:
		tree = plant(forest, KIND_CALL, calls[pick(forest, 5)]);
		count = tree->name[0] == 'm' ? 2 + pick(forest, 3) : tree->name[0] == 'c' ? 2 : 1;
		break;
	case 4:
	case 5:
		tree = plant(forest, KIND_SUM, sums[pick(forest, 2)]);
		break;
	default:
		tree = plant(forest, KIND_PRODUCT, products[pick(forest, 3)]);
	}
	while (tree->count < count)
		add_part(forest, tree, FT_EXPRESSION_NUMBER, depth);
	return tree;
}

static struct tree *grow_condition(struct forest *forest, int depth)
{
	static const char *const comparisons[] = {"==", "!=", "<", "<=", ">", ">="},
	                         *const in[] = {"in", "not in"};
	enum ft_expression_type type = FT_EXPRESSION_CONDITION;
	struct tree *tree;
	size_t count = 2;

	switch (depth > 0 ? pick(forest, 7) : 0) {
	case 0:
	case 1:
		tree = plant(forest, KIND_COMPARISON, comparisons[pick(forest, 6)]);
		type = tree->name[1] == '=' && tree->name[0] != '<' && tree->name[0] != '>' && depth > 0
		        ? (enum ft_expression_type)pick(forest, 3)
		        : FT_EXPRESSION_NUMBER;
		break;
	case 2:
	case 3:
		tree = plant(forest, KIND_MEMBER, in[pick(forest, 2)]);
		type = (enum ft_expression_type)pick(forest, 3);
		count = 2 + pick(forest, 3);
		break;
	case 4:
		tree = plant(forest, KIND_NOT, "not");
		count = 1;
		break;
	case 5:
		tree = plant(forest, KIND_AND, "and");
		break;
	default:
		tree = plant(forest, KIND_OR, "or");
	}
	while (tree->count < count)
		add_part(forest, tree, type, depth);
	return tree;
}

/* A tree of a type; a condition has two leaves at least. */
static struct tree *grow(struct forest *forest, enum ft_expression_type type, int depth)
{
	struct tree *tree;

	/* What is begun needs some trees still. */
	if (forest->used > 60)
		depth = 0;
	if (depth > 0 && pick(forest, 6) == 0) {
		tree = plant(forest, KIND_CHOICE, "?");
		add_part(forest, tree, FT_EXPRESSION_CONDITION, depth - 1);
		add_part(forest, tree, type, depth - 1);
		add_part(forest, tree, type, depth - 1);
		return tree;
	}
	if (type == FT_EXPRESSION_CONDITION)
		return grow_condition(forest, depth > 0 ? depth - 1 : 0);
	if (type == FT_EXPRESSION_TEXT || depth <= 0)
		return grow_leaf(forest, type);
	return grow_number(forest, depth - 1);
}

/* ---- as text ---- */

struct writing {
	struct forest *forest;
	size_t length;
	char text[FT_EXPRESSION_MAX + 1];
};

static void put(struct writing *writing, const char *text)
{
	static const char *const spaces[] = {"", " ", "  ", "\n", "\t"};

	/* Words need a space between them. */
	writing->length += (size_t)snprintf(writing->text + writing->length,
	        sizeof(writing->text) - writing->length, "%s%s", text, spaces[1 + pick(writing->forest, 4)]);
	assert_true(writing->length < sizeof(writing->text));
}

/* Where only what binds at least as tight as `level` may stand without brackets. */
static void write_tree(struct writing *writing, const struct tree *tree, int level)
{
	bool is_enclosed = levels[tree->kind] < level || pick(writing->forest, 10) == 0;
	int own = levels[tree->kind];
	char number[32];

	if (is_enclosed)
		put(writing, "(");
	switch (tree->kind) {
	case KIND_NUMBER:
		snprintf(number, sizeof(number), "%" PRId64, tree->number);
		put(writing, number);
		break;
	case KIND_WORD:
		snprintf(number, sizeof(number), pick(writing->forest, 2) == 0 ? "'%s'" : "\"%s\"",
		        tree->name);
		put(writing, number);
		break;
	case KIND_NAME:
	case KIND_TEXT_NAME:
		put(writing, tree->name);
		break;
	case KIND_CHOICE:
		write_tree(writing, tree->part[0], 1);
		put(writing, "?");
		write_tree(writing, tree->part[1], 0);
		put(writing, ":");
		write_tree(writing, tree->part[2], 0);
		break;
	case KIND_NOT:
	case KIND_SIGN:
		put(writing, tree->name);
		write_tree(writing, tree->part[0], own);
		break;
	case KIND_MEMBER:
	case KIND_CALL:
	case KIND_SIZEOF:
		if (tree->kind == KIND_MEMBER)
			write_tree(writing, tree->part[0], own + 1);
		put(writing, tree->name);
		put(writing, "(");
		for (size_t i = tree->kind == KIND_MEMBER; i < tree->count; i++) {
			write_tree(writing, tree->part[i], 0);
			put(writing, i + 1 < tree->count ? "," : ")");
		}
		break;
	default: /* from left to right; comparisons do not chain */
		write_tree(writing, tree->part[0], own + (tree->kind == KIND_COMPARISON));
		put(writing, tree->name);
		write_tree(writing, tree->part[1], own + 1);
	}
	if (is_enclosed)
		put(writing, ")");
}

/* ---- as a value ---- */

static const struct {
	int64_t m, n;
	const char *s, *t;
} worlds[] = {{7, 4096, "bf16", "f32"}, {0, -1, "f32", "x"}, {INT64_MAX, 2, "bf16", "bf16"},
        {INT64_MIN, -3, "f16", ""}};

struct outcome {
	enum fault fault;
	int64_t number; /* or 1, 0 of a condition */
	const char *text;
};

static bool same(const struct outcome *a, const struct outcome *b)
{
	if (a->text == NULL || b->text == NULL)
		return a->text == b->text && a->number == b->number;
	return strcmp(a->text, b->text) == 0;
}

static struct outcome value_of(const struct tree *tree, size_t world);

static struct outcome value_of_logic(const struct tree *tree, size_t world)
{
	struct outcome left = value_of(tree->part[0], world), right;

	if (left.fault != FAULT_NONE)
		return left;
	switch (tree->kind) {
	case KIND_CHOICE:
		return value_of(tree->part[left.number != 0 ? 1 : 2], world);
	case KIND_NOT:
		left.number = left.number == 0;
		return left;
	case KIND_AND:
	case KIND_OR:
		return (left.number != 0) == (tree->kind == KIND_OR) ? left : value_of(tree->part[1], world);
	case KIND_MEMBER:
		for (size_t i = 1; i < tree->count; i++) {
			right = value_of(tree->part[i], world);
			if (right.fault != FAULT_NONE)
				return right;
			if (same(&left, &right))
				return (struct outcome){.number = tree->name[0] == 'i'};
		}
		return (struct outcome){.number = tree->name[0] != 'i'};
	default:
		right = value_of(tree->part[1], world);
		if (right.fault != FAULT_NONE)
			return right;
		if (tree->name[0] == '=' || tree->name[0] == '!')
			return (struct outcome){.number = same(&left, &right) == (tree->name[0] == '=')};
		return (struct outcome){.number = left.number == right.number
		                ? (tree->name[1] == '=')
		                : (tree->name[0] == '<') == (left.number < right.number)};
	}
}

static struct outcome size_of(const char *type)
{
	if (strcmp(type, "f32") == 0)
		return (struct outcome){.number = 4};
	if (strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0)
		return (struct outcome){.number = 2};
	return (struct outcome){.fault = FAULT_RANGE};
}

static struct outcome value_of_arithmetic(const struct tree *tree, size_t world)
{
	struct outcome result = value_of(tree->part[0], world), next;

	if (result.fault != FAULT_NONE)
		return result;
	if (tree->kind == KIND_SIZEOF)
		return size_of(result.text != NULL ? result.text : "");
	if (tree->count == 1)
		result.fault = one_number(tree->name, result.number, &result.number);
	for (size_t i = 1; i < tree->count && result.fault == FAULT_NONE; i++) {
		next = value_of(tree->part[i], world);
		if (next.fault != FAULT_NONE)
			return next;
		result.fault = two_numbers(tree->name, result.number, next.number, &result.number);
	}
	return result;
}

static struct outcome value_of(const struct tree *tree, size_t world)
{
	switch (tree->kind) {
	case KIND_NUMBER:
		return (struct outcome){.number = tree->number};
	case KIND_NAME:
		return (struct outcome){.number = tree->name[0] == 'm' ? worlds[world].m : worlds[world].n};
	case KIND_WORD:
		return (struct outcome){.text = tree->name};
	case KIND_TEXT_NAME:
		return (struct outcome){.text = tree->name[0] == 's' ? worlds[world].s : worlds[world].t};
	case KIND_SUM:
	case KIND_PRODUCT:
	case KIND_SIGN:
	case KIND_CALL:
	case KIND_SIZEOF:
		return value_of_arithmetic(tree, world);
	default:
		return value_of_logic(tree, world);
	}
}

/* ---- the comparison ---- */

static struct outcome evaluated(const struct ft_expression *expression, enum ft_expression_type type,
        size_t world, struct ft_error *error)
{
	union ft_expression_value values[] = {{.number = worlds[world].m}, {.number = worlds[world].n},
	        {.text = worlds[world].s}, {.text = worlds[world].t}};
	struct outcome outcome = {.fault = FAULT_NONE};
	bool condition = false;
	int status;

	if (type == FT_EXPRESSION_NUMBER)
		status = ft_expression_number(expression, values, &outcome.number, error);
	else if (type == FT_EXPRESSION_TEXT)
		status = ft_expression_text(expression, values, &outcome.text, error);
	else
		status = ft_expression_condition(expression, values, &condition, error);
	if (type == FT_EXPRESSION_CONDITION)
		outcome.number = condition;
	for (int fault = FAULT_OVERFLOW; status != 0 && outcome.fault == FAULT_NONE && fault <= FAULT_RANGE;
	        fault++) {
		if (strstr(error->message, fault_words[fault]) != NULL)
			outcome.fault = (enum fault)fault;
	}
	return outcome;
}

static void random_expressions_give_what_their_trees_do(void **state)
{
	static struct forest forest = {.seed = 42};
	size_t faults[FAULT_RANGE + 1] = {0};
	struct ft_scope scope = {.count = 0};

	(void)state;
	assert_int_equal(ft_scope_add(&scope, "m", false, NULL), 0);
	assert_int_equal(ft_scope_add(&scope, "n", false, NULL), 0);
	assert_int_equal(ft_scope_add(&scope, "s", true, NULL), 0);
	assert_int_equal(ft_scope_add(&scope, "t", true, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		enum ft_expression_type type = (enum ft_expression_type)(i % 3);
		static struct writing writing;
		struct ft_expression *expression;
		struct ft_error error = {.message = ""};
		const struct tree *tree;

		forest.used = 0;
		tree = grow(&forest, type, 1 + i % 6);
		writing = (struct writing){.forest = &forest};
		write_tree(&writing, tree, 0);
		if (ft_expression_parse(writing.text, &scope, type, &expression, &error) != 0)
			fail_msg("%s\n%s", writing.text, error.message);
		for (size_t world = 0; world < sizeof(worlds) / sizeof(worlds[0]); world++) {
			struct outcome expected = value_of(tree, world),
			               found = evaluated(expression, type, world, &error);

			if (found.fault != expected.fault ||
			        (found.fault == FAULT_NONE && !same(&found, &expected)))
				fail_msg("%s\nin world %zu gives %" PRId64 " %s (%s), expected %" PRId64
				         " %s (%s)",
				        writing.text, world, found.number, found.text, error.message,
				        expected.number, expected.text, fault_words[expected.fault]);
			faults[expected.fault]++;
		}
		ft_expression_free(expression);
	}
	/* All of it was seen. */
	for (int fault = FAULT_NONE; fault <= FAULT_RANGE; fault++)
		assert_true(faults[fault] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(arithmetic_is_exact_or_an_error),
	        cmocka_unit_test(random_expressions_give_what_their_trees_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
