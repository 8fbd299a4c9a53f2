/* What a fuzz target is: one function that takes any bytes and must neither crash, leak nor hang.
 *
 * libFuzzer calls it (option `fuzz`), and so does replay.c, which runs the corpus as a test. */
#ifndef FLYTUNE_TESTS_FUZZ_TARGET_H
#define FLYTUNE_TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Dies where the fuzzer sees it, in builds without assertions too. */
#define MUST(condition)                                                                                \
	do {                                                                                           \
		if (!(condition)) {                                                                    \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                       \
		}                                                                                      \
	} while (0)

#endif
