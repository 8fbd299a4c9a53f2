#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

#include "proto/value.h"

static void names_are_words_of_at_most_31_characters(void **state)
{
	(void)state;
	static const char *const good[] = {
	        "m", "_", "BLOCK_THREADS", "a1", "abcdefghijklmnopqrstuvwxyz01234"};
	static const char *const bad[] = {
	        "", "1a", "a b", "a=b", "a-b", "../m", "m\n", "\xc3\xa4", "abcdefghijklmnopqrstuvwxyz012345"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(ft_name_valid(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(ft_name_valid(bad[i]));
}

static void setting_a_field_again_replaces_it(void **state)
{
	(void)state;
	struct ft_problem problem = {0};
	assert_int_equal(ft_problem_set_number(&problem, "m", 64, NULL), 0);
	assert_int_equal(ft_problem_set_text(&problem, "dtype", "bf16", NULL), 0);
	assert_int_equal(ft_problem_set_text(&problem, "m", "many", NULL), 0);
	assert_int_equal(problem.count, 2);
	assert_true(problem.field[0].is_text);
	assert_string_equal(problem.field[0].text, "many");
	assert_int_equal(ft_problem_set_number(&problem, "m", -1, NULL), 0);
	assert_false(problem.field[0].is_text);
	assert_int_equal(problem.field[0].number, -1);
	assert_string_equal(problem.field[0].text, "");
	assert_ptr_equal(ft_problem_find(&problem, "dtype"), &problem.field[1]);
	assert_null(ft_problem_find(&problem, "n"));
}

static void a_problem_refuses_what_it_cannot_hold(void **state)
{
	(void)state;
	struct ft_problem problem = {0};
	struct ft_error error;
	assert_int_equal(ft_problem_set_number(&problem, "a b", 1, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_VALUE);
	assert_string_equal(error.value, "a b");
	static char longer[FT_TEXT_SIZE + 1];
	memset(longer, 'x', FT_TEXT_SIZE);
	const char *const bad[] = {"", "a b", "a=b", "$(x)", "\"", "../x", "-include x", "a,b", longer};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(ft_problem_set_text(&problem, "dtype", bad[i], &error), -1);
		assert_string_equal(error.field, "dtype");
	}
	assert_int_equal(problem.count, 0);
	assert_int_equal(ft_problem_set_text(&problem, "dtype", "gfx90a:sramecc+:xnack-", &error), 0);
	for (int i = 1; i < FT_FIELDS_MAX; i++) {
		char name[8];
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(ft_problem_set_number(&problem, name, i, &error), 0);
	}
	assert_int_equal(ft_problem_set_number(&problem, "more", 1, &error), -1);
	assert_int_equal(problem.count, FT_FIELDS_MAX);
	assert_int_equal(ft_problem_set_number(&problem, "f3", 7, &error), 0);
}

static void problems_are_equal_whatever_the_order(void **state)
{
	(void)state;
	struct ft_problem a = {0};
	struct ft_problem b = {0};
	ft_problem_set_number(&a, "m", 64, NULL);
	ft_problem_set_text(&a, "dtype", "bf16", NULL);
	ft_problem_set_text(&b, "dtype", "bf16", NULL);
	assert_false(ft_problem_equal(&a, &b));
	ft_problem_set_number(&b, "m", 64, NULL);
	assert_true(ft_problem_equal(&a, &b));
	ft_problem_set_number(&b, "m", 65, NULL);
	assert_false(ft_problem_equal(&a, &b));
	ft_problem_set_text(&b, "m", "64", NULL);
	assert_false(ft_problem_equal(&a, &b));
	struct ft_problem c = {0};
	ft_problem_set_number(&c, "n", 64, NULL);
	ft_problem_set_text(&c, "dtype", "bf16", NULL);
	assert_false(ft_problem_equal(&a, &c));
}

static void a_problem_formats_as_people_write_it(void **state)
{
	(void)state;
	struct ft_problem problem = {0};
	char text[FT_PROBLEM_TEXT_SIZE];
	assert_int_equal(ft_problem_format(&problem, ' ', text, sizeof(text)), 0);
	assert_string_equal(text, "");
	ft_problem_set_number(&problem, "m", INT64_MIN, NULL);
	ft_problem_set_text(&problem, "dtype", "bf16", NULL);
	int length = ft_problem_format(&problem, ' ', text, sizeof(text));
	assert_string_equal(text, "m=-9223372036854775808 dtype=bf16");
	assert_int_equal(length, strlen(text));
	char cut[10];
	assert_int_equal(ft_problem_format(&problem, ' ', cut, sizeof(cut)), length);
	assert_string_equal(cut, "m=-922337");
	assert_int_equal(ft_problem_format(&problem, ' ', NULL, 0), length);
}

static void the_largest_config_fits_its_text(void **state)
{
	(void)state;
	struct ft_config config = {0};
	for (int i = 0; i < FT_KNOBS_MAX; i++) {
		char name[FT_NAME_SIZE];
		snprintf(name, sizeof(name), "abcdefghijklmnopqrstuvwxyz012%02d", i);
		assert_int_equal(i % 2 == 0 ? ft_config_set(&config, name, INT64_MIN, NULL)
		                            : ft_config_set_word(&config, name, name, NULL),
		        0);
	}
	assert_int_equal(ft_config_set(&config, "more", 1, NULL), -1);
	char text[FT_CONFIG_TEXT_SIZE];
	assert_true(ft_config_format(&config, ' ', text, sizeof(text)) < FT_CONFIG_TEXT_SIZE);
	struct ft_config parsed;
	assert_int_equal(ft_config_parse(text, &parsed, NULL), 0);
	assert_true(ft_config_equal(&config, &parsed));
	assert_memory_equal(&config, &parsed, sizeof(config));
}

static void a_knob_is_an_integer_or_a_word(void **state)
{
	(void)state;
	struct ft_config config;
	struct ft_config other;
	struct ft_error error;
	char text[FT_CONFIG_TEXT_SIZE];
	assert_int_equal(ft_config_parse("layout=rows,split=4", &config, NULL), 0);
	assert_string_equal(ft_config_find(&config, "layout")->word, "rows");
	assert_string_equal(ft_config_find(&config, "split")->word, "");
	ft_config_format(&config, ' ', text, sizeof(text));
	assert_string_equal(text, "layout=rows split=4");
	ft_config_copy(&other, &config);
	assert_true(ft_config_equal(&config, &other));
	assert_int_equal(ft_config_set_word(&other, "layout", "columns", NULL), 0);
	assert_false(ft_config_equal(&config, &other));
	assert_int_equal(ft_config_set(&other, "layout", 0, NULL), 0);
	assert_false(ft_config_equal(&config, &other));
	static const char *const bad[] = {
	        "", "4k", "-x", "+1", "_x", "a/b", "a b", "abcdefghijklmnopqrstuvwxyz012345"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(ft_config_set_word(&other, "layout", bad[i], &error), -1);
		assert_string_equal(error.field, "layout");
	}
}

static void a_document_is_equal_to_itself_alone(void **state)
{
	(void)state;
	struct ft_config knobs = {.count = 0};
	struct ft_config one = {.document = "{\"a\": 1}", .document_length = 8};
	struct ft_config other = {.document = "{\"a\": 2}", .document_length = 8};
	struct ft_config copied;
	char text[FT_CONFIG_TEXT_SIZE];
	ft_config_copy(&copied, &one);
	assert_true(ft_config_equal(&one, &copied));
	assert_false(ft_config_equal(&one, &other));
	assert_false(ft_config_equal(&one, &knobs));
	assert_false(ft_config_empty(&one));
	assert_true(ft_config_empty(&knobs));
	assert_int_equal(ft_config_format(&one, ' ', text, sizeof(text)), 8);
	assert_string_equal(text, "{\"a\": 1}");
}

static void kernels_of_others_have_a_dot_or_a_slash(void **state)
{
	(void)state;
	static const char *const good[] = {"rmsnorm", "triton.attention", "vllm/fused_moe-v2", "_x"};
	static const char *const bad[] = {"", "1x", "a b", ".x", "/x", "-x", "a:b",
	        "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz012345678901"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(ft_kernel_name_valid(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(ft_kernel_name_valid(bad[i]));
	assert_false(ft_name_valid("triton.attention"));
}

static void configs_are_read_as_they_are_written(void **state)
{
	(void)state;
	struct ft_config config;
	char text[FT_CONFIG_TEXT_SIZE];
	assert_int_equal(ft_config_parse(" BLOCK_THREADS=256,waves_per_eu=-1, ", &config, NULL), 0);
	ft_config_format(&config, ' ', text, sizeof(text));
	assert_string_equal(text, "BLOCK_THREADS=256 waves_per_eu=-1");
	assert_int_equal(ft_config_find(&config, "waves_per_eu")->value, -1);
	assert_null(ft_config_find(&config, "none"));
	assert_int_equal(ft_config_set(&config, "waves_per_eu", 2, NULL), 0);
	assert_int_equal(config.count, 2);
	struct ft_config other;
	assert_int_equal(ft_config_parse("waves_per_eu=2 BLOCK_THREADS=256", &other, NULL), 0);
	assert_true(ft_config_equal(&config, &other));
	ft_config_set(&other, "waves_per_eu", 0, NULL);
	assert_false(ft_config_equal(&config, &other));
	assert_int_equal(ft_config_parse("", &config, NULL), 0);
	assert_int_equal(config.count, 0);
}

static void a_config_that_is_no_list_of_values_is_refused_by_name(void **state)
{
	(void)state;
	static const char *const bad[][2] = {{"a", "config"}, {"a=", "a"}, {"a=_x", "a"}, {"a=1x", "a"},
	        {"a=+1", "a"}, {"a=1=2", "a"}, {"a=99999999999999999999", "a"}, {"a=1,a=2", "a"},
	        {"a=0x10", "a"}, {"=1", "name"}, {"1a=1", "name"}, {"a=1.5", "a"}, {"a;b=1", "name"},
	        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1",
	                "config"}};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ft_config config;
		struct ft_error error;
		assert_int_equal(ft_config_parse(bad[i][0], &config, &error), -1);
		assert_string_equal(error.code, FT_E_BAD_VALUE);
		assert_string_equal(error.field, bad[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_are_words_of_at_most_31_characters),
	        cmocka_unit_test(setting_a_field_again_replaces_it),
	        cmocka_unit_test(a_problem_refuses_what_it_cannot_hold),
	        cmocka_unit_test(problems_are_equal_whatever_the_order),
	        cmocka_unit_test(a_problem_formats_as_people_write_it),
	        cmocka_unit_test(the_largest_config_fits_its_text),
	        cmocka_unit_test(a_knob_is_an_integer_or_a_word),
	        cmocka_unit_test(a_document_is_equal_to_itself_alone),
	        cmocka_unit_test(kernels_of_others_have_a_dot_or_a_slash),
	        cmocka_unit_test(configs_are_read_as_they_are_written),
	        cmocka_unit_test(a_config_that_is_no_list_of_values_is_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
