#include "daemon/server/connection_limits.h"

#include <string.h>

#include "tests/unit/check.h"

enum { PERSON = 1000, NEIGHBOUR = 1001 };

static void a_user_has_a_share(void **state)
{
	uint64_t asked = 3;
	struct connection_limits limits;
	struct ft_error error;

	(void)state;
	connection_limits_init(&limits, 100, &asked);
	for (int i = 0; i < 3; i++)
		assert_int_equal(connection_limits_take(&limits, PERSON, false, &error), 0);
	assert_int_equal(connection_limits_take(&limits, PERSON, false, &error), -1);
	assert_string_equal(error.code, FT_E_BUSY);
	assert_string_equal(error.field, "clients_per_user");
	assert_string_equal(error.value, "3");
	assert_string_equal(error.bound, "fewer than 3");
	assert_non_null(strstr(error.message, "1000"));
	assert_int_equal(connection_limits_take(&limits, NEIGHBOUR, false, &error), 0);
	assert_int_equal(connection_limits_take(&limits, PERSON, true, &error), 0);
	assert_int_equal(limits.refused[CONNECTION_LIMITS_USER], 1);
	assert_int_equal(connection_limits_busiest(&limits).user, PERSON);
	assert_int_equal(connection_limits_busiest(&limits).count, 4);
	connection_limits_free(&limits);
}

static void the_last_are_for_administrators(void **state)
{
	uint64_t asked = 1 << 20;
	struct connection_limits limits;
	struct ft_error error;

	(void)state;
	connection_limits_init(&limits, 8, &asked);
	assert_int_equal(connection_limits_share(&limits), 6);
	assert_int_equal(connection_limits_kept(&limits), 1);
	for (int i = 0; i < 6; i++)
		assert_int_equal(connection_limits_take(&limits, PERSON, false, NULL), 0);
	assert_int_equal(connection_limits_take(&limits, PERSON, false, NULL), -1);
	assert_int_equal(connection_limits_take(&limits, NEIGHBOUR, false, NULL), 0);
	assert_int_equal(connection_limits_take(&limits, NEIGHBOUR, false, &error), -1);
	assert_string_equal(error.field, "max_clients");
	assert_string_equal(error.value, "7");
	assert_int_equal(connection_limits_take(&limits, 0, true, &error), 0);
	assert_int_equal(connection_limits_take(&limits, 0, true, &error), -1);
	assert_string_equal(error.value, "8");
	assert_null(strstr(error.message, "administrators"));
	connection_limits_leave(&limits, NEIGHBOUR);
	assert_int_equal(connection_limits_take(&limits, NEIGHBOUR, false, &error), -1);
	assert_int_equal(connection_limits_take(&limits, 0, true, &error), 0);
	connection_limits_free(&limits);
}

static void what_was_left_is_there_again(void **state)
{
	uint64_t asked = 2;
	struct connection_limits limits;

	(void)state;
	connection_limits_init(&limits, 1000, &asked);
	for (int round = 0; round < 3; round++) {
		for (uint32_t user = 0; user < 300; user++) {
			assert_int_equal(connection_limits_take(&limits, user, false, NULL), 0);
			assert_int_equal(connection_limits_take(&limits, user, false, NULL), 0);
			assert_int_equal(connection_limits_take(&limits, user, false, NULL), -1);
		}
		assert_int_equal(limits.taken, 600);
		for (uint32_t user = 0; user < 300; user++) {
			connection_limits_leave(&limits, user);
			connection_limits_leave(&limits, user);
			connection_limits_leave(&limits, user); /* one that has none */
		}
		assert_int_equal(limits.taken, 0);
		assert_int_equal(limits.length, 0);
	}
	assert_int_equal(connection_limits_busiest(&limits).count, 0);
	connection_limits_free(&limits);
}

static void few_places_leave_one_for_whoever_comes(void **state)
{
	uint64_t asked = 2048;
	struct connection_limits limits;

	(void)state;
	connection_limits_init(&limits, 1, &asked);
	assert_int_equal(connection_limits_take(&limits, PERSON, false, NULL), 0);
	assert_int_equal(connection_limits_take(&limits, 0, true, NULL), -1);
	connection_limits_free(&limits);
	connection_limits_init(&limits, 2, &asked);
	assert_int_equal(connection_limits_take(&limits, PERSON, false, NULL), 0);
	assert_int_equal(connection_limits_take(&limits, NEIGHBOUR, false, NULL), -1);
	assert_int_equal(connection_limits_take(&limits, 0, true, NULL), 0);
	connection_limits_free(&limits);
	connection_limits_init(&limits, 4096, &asked);
	assert_int_equal(connection_limits_kept(&limits), 32);
	assert_int_equal(connection_limits_share(&limits), 2048);
	connection_limits_free(&limits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_user_has_a_share),
	        cmocka_unit_test(the_last_are_for_administrators),
	        cmocka_unit_test(what_was_left_is_there_again),
	        cmocka_unit_test(few_places_leave_one_for_whoever_comes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
