/* Tests client/ctl/model/formula.c: what a formula of the model table is, and what it comes to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/ctl/model/formula.h"

/* a is 6, b is 4, big is 2^62, bad is at fault; the rest is not known. */
static enum formula_status find(
        void *data, const char *name, int64_t *number, char problem[FORMULA_PROBLEM_SIZE])
{
	(void)data;
	if (strcmp(name, "bad") == 0) {
		snprintf(problem, FORMULA_PROBLEM_SIZE, "bad is at fault");
		return FORMULA_WRONG;
	}
	*number = strcmp(name, "a") == 0 ? 6 : strcmp(name, "b") == 0 ? 4 : INT64_C(1) << 62;
	return strcmp(name, "a") == 0 || strcmp(name, "b") == 0 || strcmp(name, "big") == 0 ? FORMULA_DONE
	                                                                                    : FORMULA_UNKNOWN;
}

static void formulas_come_to_what_they_say(void **state)
{
	static const struct {
		const char *text;
		enum formula_status status;
		int64_t number;
		const char *problem;
	} cases[] = {
	        {"a", FORMULA_DONE, 6, ""},
	        {" 12 ", FORMULA_DONE, 12, ""},
	        {"a+b*2", FORMULA_DONE, 14, ""},
	        {"(a + b) * 2", FORMULA_DONE, 20, ""},
	        {"b * a / 3 / 2", FORMULA_DONE, 4, ""},
	        {"none | a", FORMULA_DONE, 6, ""},
	        {"a | none", FORMULA_DONE, 6, ""},
	        {"a * none | none | b + 1", FORMULA_DONE, 5, ""},
	        {"(none | b) * (a | none)", FORMULA_DONE, 24, ""},
	        /* What is not needed is not looked at. */
	        {"a | a / b", FORMULA_DONE, 6, ""},
	        {"a | bad", FORMULA_DONE, 6, ""},
	        {"none", FORMULA_UNKNOWN, 0, "none"},
	        {"none | nought", FORMULA_UNKNOWN, 0, "nought"},
	        {"a + none", FORMULA_UNKNOWN, 0, "none"},
	        {"a / b", FORMULA_WRONG, 0, "6 / 4 is no whole number"},
	        {"a / 0", FORMULA_WRONG, 0, "6 / 0 is no whole number"},
	        {"bad | a", FORMULA_WRONG, 0, "bad is at fault"},
	        {"big + big", FORMULA_WRONG, 0, "4611686018427387904 + 4611686018427387904 is too large"},
	        {"big * b", FORMULA_WRONG, 0, "4611686018427387904 * 4 is too large"},
	};
	const struct formula_names names = {.find = find};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char problem[FORMULA_PROBLEM_SIZE] = "";
		int64_t number = -1;

		if (formula_evaluate(cases[i].text, &names, &number, problem) != cases[i].status)
			fail_msg("%s: %s", cases[i].text, problem);
		if (cases[i].status == FORMULA_DONE)
			assert_int_equal(number, cases[i].number);
		else
			assert_string_equal(problem, cases[i].problem);
		assert_true(formula_is_valid(cases[i].text, problem));
	}
}

static void what_is_no_formula_is_refused(void **state)
{
	static const struct {
		const char *text, *said;
	} bad[] = {
	        {"", "a name or a number is missing before ''"},
	        {"a +", "a name or a number is missing before ''"},
	        {"* a", "a name or a number is missing before '* a'"},
	        {"a b", "an operator is missing before 'b'"},
	        {"a - b", "an operator is missing before '- b'"},
	        {"(a", "a ) is missing before ''"},
	        {"a)", "an operator is missing before ')'"},
	        {"()", "a name or a number is missing before ')'"},
	        {"1a", "1a is neither a name nor a number"},
	        {"1234567890123456789", "is neither a name nor a number"},
	        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	                "is no name: it is too long"},
	        {"((((((((((((((((( a )))))))))))))))))", "more than 16 parentheses"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char problem[FORMULA_PROBLEM_SIZE] = "";

		assert_false(formula_is_valid(bad[i].text, problem));
		if (strstr(problem, bad[i].said) == NULL)
			fail_msg("%s: said: %s", bad[i].text, problem);
	}
}

static void names_are_found_whole(void **state)
{
	(void)state;
	assert_true(formula_has("2*(tokens+1)", "tokens"));
	assert_false(formula_has("tokens_max + my_tokens", "tokens"));
	assert_false(formula_has("", "tokens"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(formulas_come_to_what_they_say),
	        cmocka_unit_test(what_is_no_formula_is_refused),
	        cmocka_unit_test(names_are_found_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
