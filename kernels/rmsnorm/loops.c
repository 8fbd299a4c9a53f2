/* rmsnorm's inner loops for one instruction set. */
#include "kernels/rows/vectors.h"

#define WEIGHTS 1
#define PREFIX rmsnorm_loops

INLINE void gather_row(
        enum format format, unsigned pairs, const char *in, size_t n, const char *own_out, double *part)
{
	add_up(format, pairs, SQUARES, false, 0, in, n, own_out, NULL, part);
}

INLINE struct pair map_pair(struct pair value, const struct pair *weight, const float *scale)
{
	value.first = value.first * scale[0] * weight[0].first;
	value.second = value.second * scale[0] * weight[0].second;
	return value;
}

#include "kernels/rows/loops.h"
