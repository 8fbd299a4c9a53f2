/* The mean and variance of a row on a CPU, from those of its pieces, in double. */
#ifndef FLYTUNE_KERNELS_LAYERNORM_MOMENTS_H
#define FLYTUNE_KERNELS_LAYERNORM_MOMENTS_H

/* What is gathered of a piece: elements, their mean, and the sum of the squares of what is left without it. */
enum { COUNT, CENTER, SQUARED };

/* What mapping an element takes: y = ((x - mean) * scale + offset) * weight + bias, the offset being for what the mean lost when it
 * was rounded. */
enum { MEAN, OFFSET, SCALE };

/* Of `count` elements that are about `near`: the sum of what is left without that, and of the squares of it. */
static inline void moments_of(double part[3], double count, double near, double left, double squares)
{
	const double mean = count > 0 ? left / count : 0;

	part[COUNT] = count;
	part[CENTER] = near + mean;
	part[SQUARED] = squares - left * mean;
}

static inline void moments_merge(double part[3], const double other[3])
{
	const double count = part[COUNT] + other[COUNT];
	const double apart = other[CENTER] - part[CENTER];

	if (other[COUNT] <= 0)
		return;
	part[SQUARED] += other[SQUARED] + apart * apart * part[COUNT] * other[COUNT] / count;
	part[CENTER] += apart * other[COUNT] / count;
	part[COUNT] = count;
}

#endif
