/* A caller's problem: what was given, made whole and hashed once, then never changed. */
#ifndef FLYTUNE_CLIENT_PROBLEM_H
#define FLYTUNE_CLIENT_PROBLEM_H

#include <stdatomic.h>

#include "client/include/flytune/client.h"
#include "kernels/kernel.h"

struct flytune_problem {
	atomic_uint references; /* the caller's, and one a kept answer */
	char kernel[FT_NAME_SIZE];
	struct ft_problem given;          /* travels to the daemon, which fills in its own defaults */
	struct ft_problem whole;          /* as given where this library does not know the kernel */
	const struct ft_kernel *built_in; /* NULL: only the daemon may know it */
	bool admitted;                    /* by the built-in kernel's rules */
	struct ft_error refusal;          /* why not */
	uint64_t hash;                    /* of kernel and whole */
};

const flytune_problem *problem_hold(const flytune_problem *problem);
void problem_release(const flytune_problem *problem);
bool problem_equal(const flytune_problem *a, const flytune_problem *b);

#endif
