/* What inputs are filled with (enum ft_fill of kernels/kernel.h), on the host. */
#ifndef FLYTUNE_KERNELS_RUNNER_FILL_H
#define FLYTUNE_KERNELS_RUNNER_FILL_H

#include "kernels/kernel.h"

enum { FT_FILL_ODD_ROWS = 32 }; /* the first rows hold the odd magnitudes, where a kernel wants such */

/* Rows of one tensor, in pieces of some rows: work for ft_parallel. */
struct ft_fill_rows {
	const struct ft_tensor *tensor;
	bool even;  /* no odd rows: what is timed is ordinary */
	char *data; /* row 0; what lies between rows stays as it is */
	size_t first, rows, rows_a_piece;
	uint64_t seed;
};

/* Of tensor `tensor`, in a sweep of that seed. */
uint64_t ft_fill_seed(uint64_t seed, uint32_t tensor);
/* `context` is a struct ft_fill_rows. */
void ft_fill_piece(void *context, size_t index);

#endif
