/* The states of a device, and of a kind of devices. */
#include "daemon/devices/device_state.h"

#include "check.h"

static void a_device_is_made_once_and_ends_once(void **state)
{
	(void)state;
	for (int from = 0; from < DEVICE_STATES; from++) {
		for (int to = 0; to < DEVICE_STATES; to++) {
			bool lives = from != DEVICE_NEW && from != DEVICE_RETIRED;
			bool may = from == DEVICE_NEW
			        ? to != DEVICE_NEW && to != DEVICE_RETIRED
			        : lives && (to == DEVICE_PROBING || to == DEVICE_RETIRED);

			assert_int_equal(device_may_go((enum device_state)from, (enum device_state)to), may);
		}
		assert_true(device_state_word((enum device_state)from)[0] != '\0');
	}
}

static void a_kind_is_in_doubt_from_wherever_it_was_and_comes_out_by_its_runner(void **state)
{
	(void)state;
	for (int from = 0; from < SLOT_STATES; from++) {
		for (int to = 0; to < SLOT_STATES; to++) {
			bool may = to == SLOT_PROBING || to == SLOT_KNOWN /* a runner said hello */;

			if (to == SLOT_FAILED) /* only one that was asked can fail to answer */
				may = slot_is_asked((enum slot_state)from);
			if (to == SLOT_KNOWN_ASKED ||
			        to == SLOT_FAILED_ASKED) /* once, and what it was stays */
				may = from == to - 1;
			assert_int_equal(slot_may_go((enum slot_state)from, (enum slot_state)to), may);
		}
		assert_true(slot_state_word((enum slot_state)from)[0] != '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_device_is_made_once_and_ends_once),
	        cmocka_unit_test(a_kind_is_in_doubt_from_wherever_it_was_and_comes_out_by_its_runner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
