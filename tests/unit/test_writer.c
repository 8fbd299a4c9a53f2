#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

#include "proto/writer.h"

#define ASSERT_WRITTEN(writer, ...)                                              \
	do {                                                                     \
		const uint8_t expected[] = {__VA_ARGS__};                        \
		assert_true(ft_writer_ok(writer));                               \
		assert_int_equal((writer)->length, sizeof(expected));            \
		assert_memory_equal((writer)->data, expected, sizeof(expected)); \
		ft_writer_reset(writer);                                         \
	} while (0)

static void values_take_their_shortest_form(void **state)
{
	(void)state;
	uint8_t data[64];
	struct ft_writer writer;
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_nil(&writer);
	ft_write_bool(&writer, true);
	ft_write_bool(&writer, false);
	ASSERT_WRITTEN(&writer, 0xc0, 0xc3, 0xc2);
	ft_write_int(&writer, 5);
	ft_write_int(&writer, -1);
	ft_write_int(&writer, -129);
	ft_write_int(&writer, 200);
	ASSERT_WRITTEN(&writer, 0x05, 0xff, 0xd1, 0xff, 0x7f, 0xcc, 200);
	ft_write_int(&writer, INT64_MIN);
	ASSERT_WRITTEN(&writer, 0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0);
	ft_write_uint(&writer, UINT64_MAX);
	ASSERT_WRITTEN(&writer, 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff);
	ft_write_real(&writer, 1.5);
	ASSERT_WRITTEN(&writer, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0);
	ft_write_text(&writer, "ab");
	ft_write_bytes(&writer, "ab", 2);
	ft_write_bytes(&writer, NULL, 0);
	ASSERT_WRITTEN(&writer, 0xa2, 'a', 'b', 0xc4, 2, 'a', 'b', 0xc4, 0);
	ft_write_map(&writer, 1);
	ft_write_array(&writer, 16);
	ft_write_raw(&writer, "\x01", 1);
	ASSERT_WRITTEN(&writer, 0x81, 0xdc, 0, 16, 0x01);
}

static void a_number_that_a_reader_would_refuse_is_written_as_nil(void **state)
{
	(void)state;
	uint8_t data[16];
	struct ft_writer writer;
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_real(&writer, NAN);
	ft_write_real(&writer, -INFINITY);
	ASSERT_WRITTEN(&writer, 0xc0, 0xc0);
}

static void problems_and_configs_are_maps(void **state)
{
	(void)state;
	uint8_t data[64];
	struct ft_writer writer;
	struct ft_problem problem = {0};
	struct ft_config config = {0};
	ft_problem_set_number(&problem, "m", 64, NULL);
	ft_problem_set_text(&problem, "t", "x", NULL);
	ft_config_set(&config, "B", -1, NULL);
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_problem(&writer, &problem);
	ASSERT_WRITTEN(&writer, 0x82, 0xa1, 'm', 64, 0xa1, 't', 0xa1, 'x');
	ft_write_config(&writer, &config);
	ASSERT_WRITTEN(&writer, 0x81, 0xa1, 'B', 0xff);
}

static void a_fixed_writer_stops_at_its_end_and_says_so(void **state)
{
	(void)state;
	uint8_t data[8];
	struct ft_writer writer;
	memset(data, 0x55, sizeof(data));
	ft_writer_init_fixed(&writer, data, 4);
	ft_write_text(&writer, "abc");
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(writer.length, 4);
	ft_write_nil(&writer);
	assert_false(ft_writer_ok(&writer));
	assert_int_equal(writer.length, 4);
	assert_int_equal(data[4], 0x55);
	ft_writer_reset(&writer);
	ft_write_text(&writer, "abcd");
	ft_write_nil(&writer); /* would fit, but comes after a failure */
	assert_false(ft_writer_ok(&writer));
	assert_true(writer.length <= 1);
	ft_writer_free(&writer);
}

static void a_growing_writer_grows_to_its_limit(void **state)
{
	(void)state;
	struct ft_writer writer;
	static const uint8_t zeros[700];
	ft_writer_init_growing(&writer, 10000);
	assert_true(ft_writer_ok(&writer));
	for (int i = 0; i < 14; i++)
		ft_write_raw(&writer, zeros, sizeof(zeros));
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(writer.length, 9800);
	ft_write_raw(&writer, zeros, 200);
	assert_true(ft_writer_ok(&writer));
	ft_write_nil(&writer);
	assert_false(ft_writer_ok(&writer));
	ft_writer_reset(&writer);
	ft_write_nil(&writer);
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(writer.length, 1);
	ft_writer_free(&writer);
	ft_writer_free(&writer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(values_take_their_shortest_form),
	        cmocka_unit_test(a_number_that_a_reader_would_refuse_is_written_as_nil),
	        cmocka_unit_test(problems_and_configs_are_maps),
	        cmocka_unit_test(a_fixed_writer_stops_at_its_end_and_says_so),
	        cmocka_unit_test(a_growing_writer_grows_to_its_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
