#include "daemon/server/client_limits.h"

#include <string.h>

#include "tests/unit/check.h"

enum { PERSON = 1000, NEIGHBOUR = 1001 };

static void a_user_has_a_share(void **state)
{
	uint64_t asked = 3;
	struct places places;
	struct ft_error error;

	(void)state;
	places_init(&places, 100, &asked);
	for (int i = 0; i < 3; i++)
		assert_int_equal(places_take(&places, PERSON, false, &error), 0);
	assert_int_equal(places_take(&places, PERSON, false, &error), -1);
	assert_string_equal(error.code, FT_E_BUSY);
	assert_string_equal(error.field, "clients_per_user");
	assert_string_equal(error.value, "3");
	assert_string_equal(error.bound, "fewer than 3");
	assert_non_null(strstr(error.message, "1000"));
	assert_int_equal(places_take(&places, NEIGHBOUR, false, &error), 0);
	assert_int_equal(places_take(&places, PERSON, true, &error), 0);
	assert_int_equal(places.refused[PLACES_USER], 1);
	assert_int_equal(places_busiest(&places).user, PERSON);
	assert_int_equal(places_busiest(&places).count, 4);
	places_free(&places);
}

static void the_last_are_for_administrators(void **state)
{
	uint64_t asked = 1 << 20;
	struct places places;
	struct ft_error error;

	(void)state;
	places_init(&places, 8, &asked);
	assert_int_equal(places_share(&places), 6);
	assert_int_equal(places_kept(&places), 1);
	for (int i = 0; i < 6; i++)
		assert_int_equal(places_take(&places, PERSON, false, NULL), 0);
	assert_int_equal(places_take(&places, PERSON, false, NULL), -1);
	assert_int_equal(places_take(&places, NEIGHBOUR, false, NULL), 0);
	assert_int_equal(places_take(&places, NEIGHBOUR, false, &error), -1);
	assert_string_equal(error.field, "max_clients");
	assert_string_equal(error.value, "7");
	assert_int_equal(places_take(&places, 0, true, &error), 0);
	assert_int_equal(places_take(&places, 0, true, &error), -1);
	assert_string_equal(error.value, "8");
	assert_null(strstr(error.message, "administrators"));
	places_leave(&places, NEIGHBOUR);
	assert_int_equal(places_take(&places, NEIGHBOUR, false, &error), -1);
	assert_int_equal(places_take(&places, 0, true, &error), 0);
	places_free(&places);
}

static void what_was_left_is_there_again(void **state)
{
	uint64_t asked = 2;
	struct places places;

	(void)state;
	places_init(&places, 1000, &asked);
	for (int round = 0; round < 3; round++) {
		for (uint32_t user = 0; user < 300; user++) {
			assert_int_equal(places_take(&places, user, false, NULL), 0);
			assert_int_equal(places_take(&places, user, false, NULL), 0);
			assert_int_equal(places_take(&places, user, false, NULL), -1);
		}
		assert_int_equal(places.taken, 600);
		for (uint32_t user = 0; user < 300; user++) {
			places_leave(&places, user);
			places_leave(&places, user);
			places_leave(&places, user); /* one that has none */
		}
		assert_int_equal(places.taken, 0);
		assert_int_equal(places.length, 0);
	}
	assert_int_equal(places_busiest(&places).count, 0);
	places_free(&places);
}

static void few_places_leave_one_for_whoever_comes(void **state)
{
	uint64_t asked = 2048;
	struct places places;

	(void)state;
	places_init(&places, 1, &asked);
	assert_int_equal(places_take(&places, PERSON, false, NULL), 0);
	assert_int_equal(places_take(&places, 0, true, NULL), -1);
	places_free(&places);
	places_init(&places, 2, &asked);
	assert_int_equal(places_take(&places, PERSON, false, NULL), 0);
	assert_int_equal(places_take(&places, NEIGHBOUR, false, NULL), -1);
	assert_int_equal(places_take(&places, 0, true, NULL), 0);
	places_free(&places);
	places_init(&places, 4096, &asked);
	assert_int_equal(places_kept(&places), 32);
	assert_int_equal(places_share(&places), 2048);
	places_free(&places);
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
