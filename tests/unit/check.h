/* What every unit test includes: cmocka and the headers that it wants before itself. */
#ifndef FLYTUNE_TESTS_CHECK_H
#define FLYTUNE_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A small random generator with a stated seed, so that a failure can be repeated. */
static inline uint64_t check_random(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t mixed = *state;
	mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ (mixed >> 31);
}

#endif
