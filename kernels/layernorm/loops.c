/* layernorm's inner loops for one instruction set. */
#include "kernels/rows/vectors.h"

#include "kernels/layernorm/moments.h"

#define WEIGHTS 2
#define PREFIX layernorm_loops

/* Block by block: the mean of one in f32, then what is left of it, from the first cache. Memory is read once. */
INLINE void gather_row(
        enum format format, unsigned pairs, const char *in, size_t n, const char *own_out, double *part)
{
	const size_t size = size_of(format);
	moments_of(part, 0, 0, 0, 0);
	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t count = n - at < BLOCK ? n - at : BLOCK;
		double sum;
		double left;
		double squares;
		double other[3];
		add_up(format, pairs, SUM, false, 0, in + at * size, count,
		        own_out ? own_out + at * size : NULL, &sum, NULL);
		const float mean = (float)(sum / (double)count);
		add_up(format, pairs, BOTH, true, mean, in + at * size, count, NULL, &left, &squares);
		moments_of(other, (double)count, (double)mean, left, squares);
		moments_merge(part, other);
	}
}

INLINE struct pair map_pair(struct pair value, const struct pair *weight, const float *row)
{
	value.first =
	        ((value.first - row[MEAN]) * row[SCALE] + row[OFFSET]) * weight[0].first + weight[1].first;
	value.second =
	        ((value.second - row[MEAN]) * row[SCALE] + row[OFFSET]) * weight[0].second + weight[1].second;
	return value;
}

#include "kernels/rows/loops.h"
