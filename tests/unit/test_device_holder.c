#include "daemon/devices/device_holder.h"

#include "check.h"

static void nobody_takes_a_device_from_another(void **state)
{
	(void)state;
	for (int from = 1; from < HOLDERS; from++) {
		for (int to = 1; to < HOLDERS; to++)
			/* But a sweep that nobody waited for, or that was to be small, may become a whole one, and back. */
			assert_int_equal(
			        device_holder_may_go((enum device_holder)from, (enum device_holder)to),
			        (to == HOLDER_SWEEP && (from == HOLDER_BACKGROUND || from == HOLDER_CHECK)) ||
			                (from == HOLDER_SWEEP &&
			                        (to == HOLDER_BACKGROUND || to == HOLDER_CHECK)));
	}
}

static void all_who_have_one_got_it_free_and_give_it_back(void **state)
{
	(void)state;
	assert_false(device_holder_may_go(HOLDER_NONE, HOLDER_NONE));
	for (int holder = 1; holder < HOLDERS; holder++) {
		assert_true(device_holder_may_go(HOLDER_NONE, (enum device_holder)holder));
		assert_true(device_holder_may_go((enum device_holder)holder, HOLDER_NONE));
		assert_true(device_holder_word((enum device_holder)holder)[0] != '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(nobody_takes_a_device_from_another),
	        cmocka_unit_test(all_who_have_one_got_it_free_and_give_it_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
