/* A caller's problem: what was given, made whole and hashed once, then never changed. */
#ifndef FLYTUNE_CLIENT_PROBLEM_H
#define FLYTUNE_CLIENT_PROBLEM_H

#include <flytune/client.h>
#include "kernels/kernel.h"

enum {
	/* Holds the kernel's name and every field's name, kind and value. */
	PROBLEM_KEY_WORDS = (FT_KERNEL_SIZE + FT_FIELDS_MAX * (FT_NAME_SIZE + 1 + FT_TEXT_SIZE) + 7) / 8,
	PROBLEM_LINE = 64, /* where one begins */
};

/* One allocation, no larger than what it holds: programs keep thousands. */
struct flytune_problem {
	/* Kernel and whole as one row of bytes, the same for equal problems, zero to the end of its last word. In front,
	 * with its length and hash: a lookup that is answered from memory reads no more. */
	_Alignas(PROBLEM_LINE) uint64_t hash; /* of the key, never 0 */
	uint32_t key_words;
	struct problem_about *about; /* behind the key */
	uint64_t key[];
};

struct problem_about {
	const struct ft_kernel *built_in; /* NULL: only the daemon may know it */
	bool admitted;                    /* by the built-in kernel's rules */
	struct ft_error refusal;          /* why not */
	char kernel[FT_KERNEL_SIZE];
	/* As given, which travels to the daemon, and it fills in its own defaults; behind that the whole, which is as given
	 * where this library does not know the kernel. */
	uint32_t given_count, whole_count;
	struct ft_field field[];
};

void problem_given(const flytune_problem *problem, struct ft_problem *given);
void problem_whole(const flytune_problem *problem, struct ft_problem *whole);

#endif
