/* What the two halves of the CUDA that pretends agree on: pretend_cuda.c, the driver, says what is pretended; pretend_nvrtc.c is the
 * run-time compiler. */
#ifndef FLYTUNE_TESTS_GPU_PRETEND_H
#define FLYTUNE_TESTS_GPU_PRETEND_H

#include <elf.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
/* The library's own declarations are the test: no header declares these. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, ILLEGAL = 700 };

/* A code object. */
struct object {
	Elf64_Ehdr header;
	Elf64_Shdr section[3];
	char names[32];
	uint32_t kernel; /* .text.k begins with it */
	char text[4096];
	uint64_t library_size; /* behind it is a folder's library */
	char library[];
};

#endif
