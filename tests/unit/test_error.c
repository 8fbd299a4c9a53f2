#include "tests/unit/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/error.h"

static void a_failure_carries_code_and_message(void **state)
{
	(void)state;
	struct ft_error error;
	memset(&error, 'x', sizeof(error));
	assert_int_equal(ft_fail(&error, FT_E_BUSY, "%d clients are too many", 9), -1);
	assert_string_equal(error.code, "busy");
	assert_string_equal(error.message, "9 clients are too many");
	assert_string_equal(error.field, "");
	assert_string_equal(error.value, "");
	assert_string_equal(error.bound, "");
}

static void a_caller_who_does_not_care_may_pass_no_error(void **state)
{
	(void)state;
	assert_int_equal(ft_fail(NULL, FT_E_BUSY, "busy"), -1);
	assert_int_equal(ft_fail_field(NULL, FT_E_BAD_VALUE, "n", "0", "at least 1"), -1);
	assert_int_equal(ft_fail_errno(NULL, ENOENT, "cannot open"), -1);
}

static void a_field_failure_names_field_value_and_bound(void **state)
{
	(void)state;
	struct ft_error error;
	assert_int_equal(ft_fail_field(&error, FT_E_BAD_VALUE, "n", "0", "1 to 1048576"), -1);
	assert_string_equal(error.code, "bad_value");
	assert_string_equal(error.message, "n is 0; it must be 1 to 1048576");
	assert_string_equal(error.field, "n");
	assert_string_equal(error.value, "0");
	assert_string_equal(error.bound, "1 to 1048576");
	ft_fail_field(&error, FT_E_BAD_VALUE, "n", "", NULL);
	assert_string_equal(error.message, "n is empty");
}

static void what_is_shown_steers_no_terminal_and_is_text(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
	        {"a\033[2Jb\n\177", "a?[2Jb??"},
	        {"\302\233"
	         "2J \302\240",
	                "??2J \302\240"},
	        {"\302\265s \342\202\254 \360\237\230\200", "\302\265s \342\202\254 \360\237\230\200"},
	        {"cut \342\202", "cut ??"},
	        {"\377\376\300\200", "????"},
	        {"\355\240\200\364\220\200\200\340\200\200\360\200\200\200", "??????????????"},
	        {"", ""},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[64];
		struct ft_error error;
		snprintf(text, sizeof(text), "%s", cases[i][0]);
		ft_make_plain(text);
		assert_string_equal(text, cases[i][1]);
		ft_fail(&error, FT_E_BUSY, "%s", cases[i][0]);
		assert_string_equal(error.message, cases[i][1]);
		ft_fail_field(&error, FT_E_BUSY, cases[i][0], cases[i][0], cases[i][0]);
		assert_string_equal(error.bound, cases[i][1]);
	}
}

static void what_is_too_long_is_cut_and_terminated(void **state)
{
	(void)state;
	struct ft_error error;
	char text[1000];
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ft_fail_field(&error, text, text, text, text);
	assert_int_equal(strlen(error.code), sizeof(error.code) - 1);
	assert_int_equal(strlen(error.field), sizeof(error.field) - 1);
	assert_int_equal(strlen(error.value), sizeof(error.value) - 1);
	assert_int_equal(strlen(error.bound), sizeof(error.bound) - 1);
	ft_fail(&error, FT_E_BUSY, "%s", text);
	assert_int_equal(strlen(error.message), sizeof(error.message) - 1);
	ft_fail_errno(&error, ENOENT, "%s", text);
	assert_int_equal(strlen(error.message), sizeof(error.message) - 1);
}

static void a_peers_line_breaks_do_not_reach_the_log(void **state)
{
	(void)state;
	struct ft_error error;
	ft_fail_field(&error, FT_E_BAD_VALUE, "dt\nype", "f16\x1b[2J\r\n\x7f", "f16");
	assert_string_equal(error.field, "dt?ype");
	assert_string_equal(error.value, "f16?[2J???");
	assert_string_equal(error.message, "dt?ype is f16?[2J???; it must be f16");
}

static void a_system_failure_says_what_the_system_said(void **state)
{
	(void)state;
	struct ft_error error;
	assert_int_equal(ft_fail_errno(&error, ENOENT, "cannot open %s", "x"), -1);
	assert_string_equal(error.code, "system");
	assert_string_equal(error.message, "cannot open x: No such file or directory");
}

static void an_error_can_be_wrapped_into_itself(void **state)
{
	(void)state;
	struct ft_error error;
	ft_fail(&error, FT_E_STORE, "inner");
	ft_fail(&error, FT_E_UNAVAILABLE, "outer: %s", error.message);
	assert_string_equal(error.message, "outer: inner");
	ft_fail_field(&error, error.code, "n", error.message, error.code);
	assert_string_equal(error.message, "n is outer: inner; it must be unavailable");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_failure_carries_code_and_message),
	        cmocka_unit_test(a_caller_who_does_not_care_may_pass_no_error),
	        cmocka_unit_test(a_field_failure_names_field_value_and_bound),
	        cmocka_unit_test(what_is_shown_steers_no_terminal_and_is_text),
	        cmocka_unit_test(what_is_too_long_is_cut_and_terminated),
	        cmocka_unit_test(a_peers_line_breaks_do_not_reach_the_log),
	        cmocka_unit_test(a_system_failure_says_what_the_system_said),
	        cmocka_unit_test(an_error_can_be_wrapped_into_itself),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
