/* Expressions: tables of what they give and how they are refused; each bound, at it and one over. */
#include "tests/unit/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/expression.h"
#include "proto/value.h"

/* Names and their values, in the order of their slots. */
static const struct {
	const char *name, *text;
	int64_t number;
} known[] = {
        {"m", NULL, 7},
        {"n", NULL, 4096},
        {"zero", NULL, 0},
        {"minus", NULL, -7},
        {"large", NULL, INT64_MAX},
        {"least", NULL, INT64_MIN},
        {"dtype", "bf16", 0},
        {"kind", "cuda", 0},
        {"min", NULL, 3}, /* a function has this name, too */
        {"block", NULL, 128},
};
enum { KNOWN = sizeof(known) / sizeof(known[0]) };

static union ft_expression_value values[KNOWN];

static struct ft_scope scope_of_known(void)
{
	struct ft_scope scope = {.count = 0};

	for (size_t i = 0; i < KNOWN; i++) {
		assert_int_equal(ft_scope_add(&scope, known[i].name, known[i].text != NULL, NULL), 0);
		if (known[i].text != NULL)
			values[i].text = known[i].text;
		else
			values[i].number = known[i].number;
	}
	return scope;
}

/* Parses for whichever type it has, and evaluates: a number, true or false, or a text; or the error. */
static void outcome(const char *text, enum ft_expression_type type, char *result, size_t size)
{
	struct ft_scope scope = scope_of_known();
	struct ft_expression *expression;
	struct ft_error error = {.code = ""};
	int64_t number = 0;
	bool condition = false;
	const char *word = "";
	int status;

	snprintf(result, size, "%s", "");
	if (ft_expression_parse(text, &scope, type, &expression, &error) != 0) {
		assert_int_equal(ft_expression_parse(text, &scope, type, &expression, NULL), -1);
		assert_string_equal(error.code, FT_E_BAD_VALUE);
		snprintf(result, size, "%s", error.message);
		return;
	}
	if (type == FT_EXPRESSION_NUMBER) {
		status = ft_expression_number(expression, values, &number, &error);
		snprintf(result, size, "%" PRId64, number);
	} else if (type == FT_EXPRESSION_CONDITION) {
		status = ft_expression_condition(expression, values, &condition, &error);
		snprintf(result, size, "%s", condition ? "true" : "false");
	} else {
		status = ft_expression_text(expression, values, &word, &error);
		snprintf(result, size, "%s", word);
	}
	if (status != 0) {
		assert_string_equal(error.code, FT_E_BAD_VALUE);
		snprintf(result, size, "%s", error.message);
	}
	ft_expression_free(expression);
}

struct row {
	const char *text, *result;
};

static void rows_hold(const struct row *rows, size_t count, enum ft_expression_type type)
{
	for (size_t i = 0; i < count; i++) {
		char result[sizeof(((struct ft_error *)NULL)->message)];

		outcome(rows[i].text, type, result, sizeof(result));
		if (strcmp(result, rows[i].result) != 0)
			fail_msg("%s\n  gives    %s\n  expected %s", rows[i].text, result, rows[i].result);
	}
}

#define ROWS_HOLD(rows, type) rows_hold(rows, sizeof(rows) / sizeof((rows)[0]), type)

static void numbers_are_computed(void **state)
{
	static const struct row rows[] = {
	        {"0", "0"},
	        {" \t\r\n42 ", "42"},
	        {"9223372036854775807", "9223372036854775807"},
	        {"-9223372036854775808", "-9223372036854775808"},
	        {"- 5", "-5"},
	        {"m", "7"},
	        {"-m", "-7"},
	        {"--m", "7"},
	        {"m - -m", "14"},
	        {"m--m", "14"},
	        {"1 + 2 * 3", "7"},
	        {"(1 + 2) * 3", "9"},
	        {"10 - 4 - 3", "3"},
	        {"10 - (4 - 3)", "9"},
	        {"100 / 10 / 5", "2"},
	        {"100 / 10 * 5", "50"},
	        {"100 % 30 * 3", "30"},
	        {"2 + 9 % 5 - 1", "5"},
	        {"-2 * 3 + 1", "-5"},
	        /* Towards 0, the remainder with the sign of what is divided. */
	        {"7 / 2", "3"},
	        {"-7 / 2", "-3"},
	        {"7 / -2", "-3"},
	        {"-7 / -2", "3"},
	        {"7 % 2", "1"},
	        {"-7 % 2", "-1"},
	        {"7 % -2", "1"},
	        {"-7 % -2", "-1"},
	        {"minus / 2 * 2 + minus % 2", "-7"},
	        {"least % -1", "0"},
	        {"least % large", "-1"},
	        {"min", "3"},
	        {"min(min, 2)", "2"},
	        {"min (5, 4, 9, -1, 7)", "-1"},
	        {"max(5, 4, 9, -1, 7)", "9"},
	        {"max(minus, zero)", "0"},
	        {"ceildiv(m * n, block)", "224"},
	        {"ceildiv(0, 5)", "0"},
	        {"ceildiv(1, large)", "1"},
	        {"ceildiv(large, 1)", "9223372036854775807"},
	        {"ceildiv(large, 2)", "4611686018427387904"},
	        {"log2(1)", "0"},
	        {"log2(2)", "1"},
	        {"log2(3)", "1"},
	        {"log2(4096)", "12"},
	        {"log2(large)", "62"},
	        {"pow2ceil(least)", "1"},
	        {"pow2ceil(0)", "1"},
	        {"pow2ceil(1)", "1"},
	        {"pow2ceil(2)", "2"},
	        {"pow2ceil(3)", "4"},
	        {"pow2ceil(4096)", "4096"},
	        {"pow2ceil(4097)", "8192"},
	        {"pow2ceil(4611686018427387904)", "4611686018427387904"},
	        {"sizeof(f32) + sizeof( f16 ) + sizeof(bf16)", "8"},
	        {"sizeof(dtype) * n", "8192"},
	        {"sizeof('f32')", "4"},
	        {"sizeof(m > 4 ? 'f32' : dtype)", "4"},
	        {"m > 4 ? 1 : 2", "1"},
	        {"m > 40 ? 1 : m > 4 ? 2 : 3", "2"},
	        {"m > 40 ? 1 : m > 30 ? 2 : 3", "3"},
	        {"m > 4 ? m > 5 ? 1 : 2 : 3", "1"},
	        {"(m > 4 ? 1 : 2) + 10", "11"},
	        {"m > 4 ? 1 : 2 + 10", "1"},
	        /* What is not asked for is not computed. */
	        {"zero == 0 ? 5 : 1 / zero", "5"},
	        {"zero != 0 ? 1 / zero : 6", "6"},
	};

	(void)state;
	ROWS_HOLD(rows, FT_EXPRESSION_NUMBER);
}

static void conditions_are_decided(void **state)
{
	static const struct row rows[] = {
	        {"m < 7", "false"},
	        {"m <= 7", "true"},
	        {"m > 7", "false"},
	        {"m >= 7", "true"},
	        {"m == 7", "true"},
	        {"m != 7", "false"},
	        {"least < large", "true"},
	        {"m + 1 == 2 * 4", "true"},
	        {"dtype == 'bf16'", "true"},
	        {"dtype == \"bf16\"", "true"},
	        {"dtype != 'bf16'", "false"},
	        {"dtype == 'bf'", "false"},
	        {"dtype == ''", "false"},
	        {"'' == \"\"", "true"},
	        {"dtype != kind", "true"},
	        {"dtype in ('f16', 'bf16')", "true"},
	        {"dtype in ('f16', kind)", "false"},
	        {"dtype not in ('f16', 'f32')", "true"},
	        {"n in (4096)", "true"},
	        {"n in (1, 2, m)", "false"},
	        {"n in (1, 4096, 1 / zero)", "true"},
	        {"not n in (1, 2)", "true"},
	        {"not n not in (1, 2)", "false"},
	        {"n % 2 in (0, 3)", "true"},
	        {"not m == 7", "false"},
	        {"not not m == 7", "true"},
	        {"not m == 7 or m == 7", "true"},
	        {"not (m == 7 or m == 7)", "false"},
	        {"m == 7 or m == 7 and m == 8", "true"},
	        {"(m == 7 or m == 7) and m == 8", "false"},
	        {"m == 8 and m == 8 or m == 7", "true"},
	        {"m == 7 and m == 7 and m == 8", "false"},
	        {"m == 8 or m == 9 or m == 7", "true"},
	        {"(m == 7) == (n == 4096)", "true"},
	        {"(m == 7) != (n == 4096)", "false"},
	        {"zero == 0 or 1 / zero == 1", "true"},
	        {"zero != 0 and 1 / zero == 1", "false"},
	        {"m == 7 ? n == 1 : n == 4096", "false"},
	};

	(void)state;
	ROWS_HOLD(rows, FT_EXPRESSION_CONDITION);
}

static void texts_are_chosen(void **state)
{
	static const struct row rows[] = {
	        {"dtype", "bf16"},
	        {"'rows'", "rows"},
	        {"m > 4 ? 'rows' : dtype", "rows"},
	        {"m < 4 ? 'rows' : dtype", "bf16"},
	        {"\"it's\"", "it's"},
	};

	(void)state;
	ROWS_HOLD(rows, FT_EXPRESSION_TEXT);
}

/* What is said of a text whose column is at fault. */
struct refusal {
	const char *text;
	int column;
	const char *message;
};

static void refusals_hold(const struct refusal *refusals, size_t count, enum ft_expression_type type)
{
	for (size_t i = 0; i < count; i++) {
		char message[512];

		snprintf(message, sizeof(message), "column %d of \"%s\": %s", refusals[i].column,
		        refusals[i].text, refusals[i].message);
		rows_hold(&(struct row){refusals[i].text, message}, 1, type);
	}
}

#define REFUSALS_HOLD(rows, type) refusals_hold(rows, sizeof(rows) / sizeof((rows)[0]), type)

static void bad_text_is_refused_where_it_stands(void **state)
{
	static const struct refusal numbers[] = {
	        {"", 1, "found the end, expected a value"},
	        {"   ", 4, "found the end, expected a value"},
	        {"m +", 4, "found the end, expected a value"},
	        {"m + * 2", 5, "found \"*\", expected a value"},
	        {"m n", 3, "found \"n\", expected an operator or the end"},
	        {"(m", 3, "found the end, expected \")\" or an operator"},
	        {"m)", 2, "found \")\", expected an operator or the end"},
	        {"min(m, n", 9, "found the end, expected \",\", \")\" or an operator"},
	        {"min m", 5, "found \"m\", expected an operator or the end"},
	        {"blok + 1", 1, "there is no name \"blok\"; did you mean \"block\"?"},
	        {"frobnicate * 2", 1,
	                "there is no name \"frobnicate\"; known are m, n, zero, minus, large, least, dtype, "
	                "kind, min, block"},
	        {"mim(m, n)", 1, "there is no function \"mim\"; did you mean \"min\"?"},
	        {"sin(m)", 1, "there is no function \"sin\"; did you mean \"min\"?"},
	        {"sizeof(bf61)", 8,
	                "there is no name or type \"bf61\"; types are f32, f16, bf16, f64, i8, u8, i32, i64"},
	        {"sizeof(int)", 8,
	                "there is no name or type \"int\"; types are f32, f16, bf16, f64, i8, u8, i32, i64"},
	        {"sizeof(m)", 8, "\"m\" is a number; it must be a text"},
	        {"sizeof(bf16, f16)", 12, "found \",\", expected \")\""},
	        {"sizeof()", 8, "found \")\", expected a value"},
	        {"min(m)", 1, "min takes 2 values or more, not 1"},
	        {"ceildiv(m)", 1, "ceildiv takes 2 values, not 1"},
	        {"ceildiv(m, n, 2)", 1, "ceildiv takes 2 values, not 3"},
	        {"log2(m, n)", 1, "log2 takes 1 value, not 2"},
	        {"m == 4", 1, "\"m == 4\" is a condition; it must be a number, as \"... ? 1 : 0\""},
	        {"dtype + 1", 1, "\"dtype\" is a text; it must be a number"},
	        {"m + (n == 4)", 5, "\"(n == 4)\" is a condition; it must be a number, as \"... ? 1 : 0\""},
	        {"m == 4 ? 1 : 'x'", 14, "\"'x'\" is a text; it must be a number"},
	        {"m ? 1 : 2", 1, "\"m\" is a number; it must be a condition, as \"... != 0\""},
	        {"m == 4 ? 1", 11, "found the end, expected \":\" or an operator"},
	        {"m == 4 ? 1, 2", 11, "found \",\", expected \":\" or an operator"},
	        {"2k", 1,
	                "found \"2k\", expected a whole number in decimal digits, the first of which is not "
	                "0"},
	        {"010", 1,
	                "found \"010\", expected a whole number in decimal digits, the first of which is not "
	                "0"},
	        {"1.5", 1,
	                "found \"1.5\", expected a whole number in decimal digits, the first of which is not "
	                "0"},
	        {"0x10", 1,
	                "found \"0x10\", expected a whole number in decimal digits, the first of which is "
	                "not 0"},
	        {"9223372036854775808", 1,
	                "found \"9223372036854775808\", expected at most 9223372036854775807"},
	        {"-9223372036854775809", 2,
	                "found \"9223372036854775809\", expected at most 9223372036854775808 behind a -"},
	        {"99999999999999999999999", 1,
	                "found \"99999999999999999999999\", expected at most 9223372036854775807"},
	        {"m = 4", 3, "found \"=\", expected \"==\""},
	        {"m @ 4", 3, "found \"@\", expected a number, a text, a name or an operator"},
	        {"m ä 4", 3, "found \"ä\", expected a number, a text, a name or an operator"},
	        {"m // n", 4, "found \"/\", expected a value"},
	        {"m ** n", 4, "found \"*\", expected a value"},
	        {"$m", 1, "found \"$\", expected a number, a text, a name or an operator"},
	        {"not", 4, "found the end, expected a value"},
	        {"and", 1, "found \"and\", expected a value"},
	        {"m == 4 ? 1 : 2 ? 3 : 4", 14, "\"2\" is a number; it must be a condition, as \"... != 0\""},
	        {"m + ä'", 5, "found \"ä\", expected a number, a text, a name or an operator"},
	};
	static const struct refusal conditions[] = {
	        {"m", 1, "\"m\" is a number; it must be a condition, as \"... != 0\""},
	        {"m and n == 4", 1, "\"m\" is a number; it must be a condition, as \"... != 0\""},
	        {"m == 4 and n", 12, "\"n\" is a number; it must be a condition, as \"... != 0\""},
	        {"not m", 5, "\"m\" is a number; it must be a condition, as \"... != 0\""},
	        {"m == dtype", 6, "\"dtype\" is a text; it must be a number"},
	        {"dtype < 'f'", 1, "\"dtype\" is a text; it must be a number"},
	        {"dtype in (1, 2)", 11, "\"1\" is a number; it must be a text"},
	        {"m in 1", 6, "found \"1\", expected a list in brackets, as (1, 2, 4)"},
	        {"m in ()", 7, "found \")\", expected a value"},
	        {"m in (1, )", 10, "found \")\", expected a value"},
	        {"m not (1)", 7, "found \"(\", expected \"in\" behind \"not\""},
	        {"m < n < 4", 7,
	                "found \"<\", expected \"and\", \"or\" or the end: write \"a < b and b < c\""},
	        {"m == n == 4", 8,
	                "found \"==\", expected \"and\", \"or\" or the end: write \"a < b and b < c\""},
	        {"m < n in (1)", 7,
	                "found \"in\", expected \"and\", \"or\" or the end: write \"a < b and b < c\""},
	        {"m == 4 && n == 4", 8, "found \"&&\", expected \"and\""},
	        {"m == 4 || n == 4", 8, "found \"||\", expected \"or\""},
	        {"!m", 1, "found \"!\", expected \"not\""},
	};
	static const struct refusal texts[] = {
	        {"'abc", 1, "found \"'abc\", expected a text with a quote behind it as before it"},
	        {"m", 1, "\"m\" is a number; it must be a text"},
	};
	/* Long ones are shown in part, the fault in it; those of several lines on one. */
	static const struct row cut[] = {
	        {"m +\n\t* 2", "column 6 of \"m +  * 2\": found \"*\", expected a value"},
	        {"1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + x "
	         "+ 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1",
	                "column 89 of \"1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + x + 1 + 1 + 1 + 1 + 1 + 1 + 1 + "
	                "...\": there is no name \"x\"; known are m, n, zero, minus, large, least, dtype, "
	                "kind, min, block"},
	        {"dtype == "
	         "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
	                "column 10 of \"dtype == "
	                "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\": found "
	                "\"'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\", expected a "
	                "text of at most 128 bytes"},
	        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	         "aaaa",
	                "column 1 of "
	                "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\": there is "
	                "no name \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\"; "
	                "known are m, n, zero, minus, large, least, dtype, kind, min, block"},
	};

	(void)state;
	REFUSALS_HOLD(numbers, FT_EXPRESSION_NUMBER);
	REFUSALS_HOLD(conditions, FT_EXPRESSION_CONDITION);
	REFUSALS_HOLD(texts, FT_EXPRESSION_TEXT);
	ROWS_HOLD(cut, FT_EXPRESSION_NUMBER);
}

static void what_cannot_be_computed_is_said_with_the_values(void **state)
{
	static const struct row rows[] = {
	        {"large + 1", "\"large + 1\" overflows 64 bits: large=9223372036854775807"},
	        {"large * n", "\"large * n\" overflows 64 bits: large=9223372036854775807, n=4096"},
	        {"1 + large * n",
	                "\"large * n\" overflows 64 bits: large=9223372036854775807, n=4096; in \"1 + large "
	                "* n\""},
	        {"(m + 1) * large", "\"(m + 1) * large\" overflows 64 bits: m=7, large=9223372036854775807"},
	        {"least - 1", "\"least - 1\" overflows 64 bits: least=-9223372036854775808"},
	        {"-least", "\"-least\" overflows 64 bits: least=-9223372036854775808"},
	        {"least / -1", "\"least / -1\" overflows 64 bits: least=-9223372036854775808"},
	        {"m / zero", "\"m / zero\" divides by 0: m=7, zero=0"},
	        {"m % (zero + 0)", "\"m % (zero + 0)\" divides by 0: m=7, zero=0"},
	        {"ceildiv(minus, m)",
	                "\"ceildiv(minus, m)\" takes 0 or more, and 1 or more, not -7 and 7: minus=-7, m=7"},
	        {"ceildiv(m, zero)",
	                "\"ceildiv(m, zero)\" takes 0 or more, and 1 or more, not 7 and 0: m=7, zero=0"},
	        {"4 * log2(m - 7)", "\"log2(m - 7)\" takes 1 or more, not 0: m=7; in \"4 * log2(m - 7)\""},
	        {"pow2ceil(large)", "\"pow2ceil(large)\" overflows 64 bits: large=9223372036854775807"},
	        {"sizeof(kind) * m",
	                "\"sizeof(kind)\" takes a type, not \"cuda\"; types are f32, f16, bf16, f64, i8, u8, "
	                "i32, i64: kind=cuda; "
	                "in \"sizeof(kind) * m\""},
	        {"m + n + zero + minus + large + m + n + zero + minus + large + m + n + zero + minus + large",
	                "\"m + n + zero + minus + large\" overflows 64 bits: m=7, n=4096, zero=0, minus=-7, "
	                "large=9223372036854775807; in \"m + n + zero + minus + large + m + n + zero + minus "
	                "+ large + m ...\""},
	};

	(void)state;
	ROWS_HOLD(rows, FT_EXPRESSION_NUMBER);
}

/* ---- bounds ---- */

/* `count` times one text between two others; at most 64 KiB. */
static const char *repeated(const char *before, const char *part, size_t count, const char *after)
{
	static char text[1 << 16];
	size_t length = (size_t)snprintf(text, sizeof(text), "%s", before);

	for (size_t i = 0; i < count; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length, "%s", part);
	length += (size_t)snprintf(text + length, sizeof(text) - length, "%s", after);
	assert_true(length < sizeof(text));
	return text;
}

static void gives(const char *text, enum ft_expression_type type, const char *expected)
{
	rows_hold(&(struct row){text, expected}, 1, type);
}

static void is_refused(const char *text, enum ft_expression_type type, const char *message)
{
	char result[512];

	outcome(text, type, result, sizeof(result));
	if (strstr(result, message) == NULL)
		fail_msg("%s\n  gives    %s\n  expected %s", text, result, message);
}

static void each_bound_holds_at_it_and_one_over(void **state)
{
	static const char nested[] = "it is nested more than 64 deep",
	                  many[] = "it has more than 512 operands and operators";
	char text[512];

	(void)state;
	gives(repeated("", " ", FT_EXPRESSION_MAX - 1, "m"), FT_EXPRESSION_NUMBER, "7");
	is_refused(repeated("", " ", FT_EXPRESSION_MAX, "m"), FT_EXPRESSION_NUMBER,
	        "it is longer than 4096 bytes");

	gives(repeated("-m", " + 1", 255, ""), FT_EXPRESSION_NUMBER, "248");
	is_refused(repeated("--m", " + 1", 255, ""), FT_EXPRESSION_NUMBER, many);
	gives(repeated("m in (7", ", 2", 254, ")"), FT_EXPRESSION_CONDITION, "true");
	gives(repeated("m in (1", ", 2", 254, ")"), FT_EXPRESSION_CONDITION, "false");
	is_refused(repeated("m in (1", ", 2", 255, ")"), FT_EXPRESSION_CONDITION, many);
	is_refused(repeated("m not in (1", ", 2", 254, ")"), FT_EXPRESSION_CONDITION, many);
	is_refused(repeated("m > 1 ? 1", " + 1", 254, " : 1"), FT_EXPRESSION_NUMBER, many);

	snprintf(text, sizeof(text), "%s", repeated("", "(", 64, "m"));
	gives(repeated(text, ")", 64, ""), FT_EXPRESSION_NUMBER, "7");
	snprintf(text, sizeof(text), "%s", repeated("", "(", 65, "m"));
	is_refused(repeated(text, ")", 65, ""), FT_EXPRESSION_NUMBER, nested);
	gives(repeated("", "-", 64, "m"), FT_EXPRESSION_NUMBER, "7");
	is_refused(repeated("", "-", 65, "m"), FT_EXPRESSION_NUMBER, nested);
	gives(repeated("", "not ", 64, "m == 7"), FT_EXPRESSION_CONDITION, "true");
	is_refused(repeated("", "not ", 65, "m == 7"), FT_EXPRESSION_CONDITION, nested);
	gives(repeated("", "m < 7 ? 1 : ", 64, "2"), FT_EXPRESSION_NUMBER, "2");
	is_refused(repeated("", "m < 7 ? 1 : ", 65, "2"), FT_EXPRESSION_NUMBER, nested);
	is_refused(repeated("", "m < 7 ? ", 65, "2"), FT_EXPRESSION_NUMBER, nested);
	is_refused(repeated("", "max(", 65, "2"), FT_EXPRESSION_NUMBER, nested);
	is_refused(repeated("", "m in (", 65, "2"), FT_EXPRESSION_CONDITION, nested);
	is_refused(repeated("", "sizeof(", 65, "2"), FT_EXPRESSION_NUMBER, nested);
	/* Where it is deep side by side, nothing is nested in the other. */
	snprintf(text, sizeof(text), "%s", repeated("(((m))) * 0", " + (((m)))", 20, ""));
	gives(text, FT_EXPRESSION_NUMBER, "140");

	gives(repeated("dtype == '", "x", FT_TEXT_SIZE - 1, "'"), FT_EXPRESSION_CONDITION, "false");
	is_refused(repeated("dtype == '", "x", FT_TEXT_SIZE, "'"), FT_EXPRESSION_CONDITION,
	        "expected a text of at most 128 bytes");
}

/* As many values wait at once as can: what they wait for must be in the stack. */
static void the_stack_holds_all_that_waits(void **state)
{
	char text[FT_EXPRESSION_MAX];

	(void)state;
	snprintf(text, sizeof(text), "%s", repeated("", "1 + 1 * max(1, ", 64, "1"));
	gives(repeated(text, ")", 64, ""), FT_EXPRESSION_NUMBER, "65");
	snprintf(text, sizeof(text), "%s", repeated("", "(1 == 0 + 1 * max(1, ", 31, "1"));
	gives(repeated(text, ") ? 1 : 0)", 31, ""), FT_EXPRESSION_NUMBER, "1");
}

/* Nothing behind the bound is read, however long it is. */
static void a_text_without_end_is_refused_at_once(void **state)
{
	struct ft_scope scope = scope_of_known();
	struct ft_expression *expression;
	struct ft_error error;
	size_t size = (size_t)2 * FT_EXPRESSION_MAX;
	char *text = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(text, MAP_FAILED);
	memset(text, '1', size);
	assert_int_equal(mprotect(text + size, size, PROT_NONE), 0);
	assert_int_equal(ft_expression_parse(text, &scope, FT_EXPRESSION_NUMBER, &expression, &error), -1);
	assert_string_equal(error.message, "it is longer than 4096 bytes");
	assert_int_equal(munmap(text, 2 * size), 0);
}

static void a_scope_takes_64_names_once(void **state)
{
	static char names[FT_SCOPE_MAX + 1][FT_NAME_SIZE];
	union ft_expression_value slots[FT_SCOPE_MAX] = {{.number = 0}};
	struct ft_scope scope = {.count = 0};
	struct ft_expression *expression;
	struct ft_error error;
	int64_t number;

	(void)state;
	assert_int_equal(ft_scope_add(&scope, "a234567890123456789012345678901", false, &error), 0);
	for (uint32_t i = 1; i <= FT_SCOPE_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "name_%u", i);
		assert_int_equal(ft_scope_add(&scope, names[i], false, &error), i < FT_SCOPE_MAX ? 0 : -1);
	}
	assert_string_equal(error.message, "name_64 is one name too many; there may be 64");
	assert_int_equal(ft_scope_add(&scope, "name_7", true, &error), -1);
	assert_string_equal(error.message, "the name name_7 is taken");
	assert_int_equal(ft_scope_add(&scope, "name_7", true, NULL), -1);
	assert_int_equal(scope.count, FT_SCOPE_MAX);
	assert_int_equal(ft_expression_parse("name_63 - a234567890123456789012345678901", &scope,
	                         FT_EXPRESSION_NUMBER, &expression, &error),
	        0);
	assert_true(ft_expression_slots(expression) == (UINT64_C(1) << 63 | 1));
	slots[63].number = 9;
	slots[0].number = 5;
	assert_int_equal(ft_expression_number(expression, slots, &number, &error), 0);
	assert_int_equal(number, 4);
	ft_expression_free(expression);
}

static void a_scope_refuses_what_is_no_name(void **state)
{
	static const char *const bad[] = {"", "1m", "m n", "m-n", "\xc3\xa4", "and", "or", "not", "in",
	        "a2345678901234567890123456789012"};
	struct ft_scope scope = {.count = 0};
	struct ft_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(ft_scope_add(&scope, bad[i], false, &error), -1);
		assert_string_equal(error.field, "name");
	}
	assert_int_equal(scope.count, 0);
}

/* ---- what else its users count on ---- */

static void an_expression_says_which_slots_it_uses(void **state)
{
	static const struct {
		const char *text;
		uint64_t slots;
	} rows[] = {
	        {"1 + 2", 0},
	        {"m + m", 1 << 0},
	        {"sizeof(dtype) * n", 1 << 1 | 1 << 6},
	        {"sizeof(bf16)", 0},
	        {"min(m, 1)", 1 << 0}, /* the function, not the name */
	        {"1 == 1 ? m : kind in ('cuda', dtype) ? 1 : block", 1 << 0 | 1 << 6 | 1 << 7 | 1 << 9},
	};
	struct ft_scope scope = scope_of_known();

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ft_expression *expression;

		assert_int_equal(
		        ft_expression_parse(rows[i].text, &scope, FT_EXPRESSION_NUMBER, &expression, NULL),
		        0);
		assert_true(ft_expression_slots(expression) == rows[i].slots);
		ft_expression_free(expression);
	}
}

static void an_expression_keeps_nothing_of_its_text_and_scope(void **state)
{
	char text[] = "m < 4 ? 'ab' : m < 40 ? 'cd' : sizeof(dtype) == 2 ? dtype : 'ef'";
	struct ft_scope scope = scope_of_known();
	struct ft_expression *expression;
	struct ft_error error;
	const char *word;

	(void)state;
	assert_int_equal(ft_expression_parse(text, &scope, FT_EXPRESSION_TEXT, &expression, &error), 0);
	memset(text, 'x', sizeof(text));
	memset(&scope, 0xff, sizeof(scope));
	assert_int_equal(ft_expression_text(expression, values, &word, &error), 0);
	assert_string_equal(word, "cd");
	values[0].number = 3;
	assert_int_equal(ft_expression_text(expression, values, &word, &error), 0);
	assert_string_equal(word, "ab");
	values[0].number = 40;
	assert_int_equal(ft_expression_text(expression, values, &word, &error), 0);
	assert_ptr_equal(word, values[6].text);
	values[6].text = "f8";
	assert_int_equal(ft_expression_text(expression, values, &word, NULL), -1);
	assert_int_equal(ft_expression_text(expression, values, &word, &error), -1);
	assert_string_equal(error.message,
	        "\"sizeof(dtype)\" takes a type, not \"f8\"; types are f32, f16, bf16, f64, i8, u8, i32, "
	        "i64: dtype=f8; in \"m < "
	        "4 ? "
	        "'ab' : m < 40 ? 'cd' : sizeof(dtype) == 2 ? dtype : 'ef'\"");
	ft_expression_free(expression);
	ft_expression_free(NULL);
}

/* A mistake of who calls must not read a number as a text. */
static void an_expression_is_evaluated_for_its_type_alone(void **state)
{
	struct ft_scope scope = scope_of_known();
	struct ft_expression *expression;
	const char *word;
	bool condition;

	(void)state;
	assert_int_equal(ft_expression_parse("m", &scope, FT_EXPRESSION_NUMBER, &expression, NULL), 0);
	assert_int_equal(ft_expression_text(expression, values, &word, NULL), -1);
	assert_int_equal(ft_expression_condition(expression, values, &condition, NULL), -1);
	ft_expression_free(expression);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(numbers_are_computed),
	        cmocka_unit_test(conditions_are_decided),
	        cmocka_unit_test(texts_are_chosen),
	        cmocka_unit_test(bad_text_is_refused_where_it_stands),
	        cmocka_unit_test(what_cannot_be_computed_is_said_with_the_values),
	        cmocka_unit_test(each_bound_holds_at_it_and_one_over),
	        cmocka_unit_test(the_stack_holds_all_that_waits),
	        cmocka_unit_test(a_text_without_end_is_refused_at_once),
	        cmocka_unit_test(a_scope_takes_64_names_once),
	        cmocka_unit_test(a_scope_refuses_what_is_no_name),
	        cmocka_unit_test(an_expression_says_which_slots_it_uses),
	        cmocka_unit_test(an_expression_keeps_nothing_of_its_text_and_scope),
	        cmocka_unit_test(an_expression_is_evaluated_for_its_type_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
