/* A fake daemon for each test of a program. */
#ifndef FLYTUNE_TESTS_FAKE_CASE_H
#define FLYTUNE_TESTS_FAKE_CASE_H

#include "check.h"

#include "fake_daemon.h"

static struct fake fake;

static inline int set_up(void **state)
{
	(void)state;
	fake_init(&fake);
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	fake_free(&fake);
	return 0;
}

/* A test with a fake daemon of its own. */
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
