#include "daemon/server/session_state.h"

#include "check.h"

static void it_only_goes_forward(void **state)
{
	(void)state;
	for (int from = 0; from < SESSION_STATES; from++) {
		for (int to = 0; to < SESSION_STATES; to++)
			assert_int_equal(
			        session_may_go((enum session_state)from, (enum session_state)to), to > from);
		assert_non_null(session_state_word((enum session_state)from));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(it_only_goes_forward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
