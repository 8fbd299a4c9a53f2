#include "kernels/runner/fill.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

/* In (-2, 2), never 0. */
static double uniform(uint64_t random)
{
	return ((double)(random >> 11) + 0.5) * 0x1p-51 - 2;
}

/* By Box and Muller. */
static double normal(uint64_t random)
{
	const double first = ((double)(random >> 32) + 0.5) * 0x1p-32;
	const double second = (double)(random & UINT32_MAX) * 0x1p-32;
	return sqrt(-2 * log(first)) * cos(2 * M_PI * second);
}

/* An element in one of the odd rows, of one that is drawn. Squares stay within f32's range, and sums of a million
 * too. */
static double odd_element(enum ft_dtype type, uint64_t kind, uint64_t random, double value)
{
	const bool half = type == FT_F16;
	switch (kind % 6) {
	case 0: /* wide: from far below 1 to far above in one row */
		return ldexp(value, half ? (int)(random % 21) - 10 : (int)(random % 41) - 20);
	case 1: /* large */
		return value * (half ? 0x1p14 : 1e12);
	case 2: /* tiny: eps decides; subnormal in f16 */
		return value * (half ? 0x1p-20 : 1e-15);
	case 3: /* few that are not zero */
		return random % 16 == 0 ? value : 0;
	case 4: /* zero */
		return 0;
	default: /* far from 0, beside how they differ */
		return 1000 + value;
	}
}

static double element(const struct ft_fill_rows *fill, size_t row, size_t column, uint64_t random)
{
	switch (fill->tensor->fill) {
	case FT_FILL_ZEROS:
		return 0;
	case FT_FILL_INDEX:
		return (double)column;
	case FT_FILL_NORMAL:
		return normal(random);
	case FT_FILL_UNIFORM:
		return (double)(random >> 11) * 0x1p-53;
	case FT_FILL_ROWS:
		if (!fill->even && row < FT_FILL_ODD_ROWS)
			return odd_element(fill->tensor->type, row, mix(random), uniform(random));
		break;
	case FT_FILL_NUMBERS:
	case FT_FILL_BITS:
		break;
	}
	return uniform(random);
}

static void store(const struct ft_fill_rows *fill, size_t row, size_t column, uint64_t random)
{
	const struct ft_tensor *tensor = fill->tensor;
	const size_t size = ft_dtype_size(tensor->type), at = row * tensor->stride + column;
	if (tensor->fill == FT_FILL_BITS)
		memcpy(fill->data + at * size, &random, size);
	else
		ft_store(tensor->type, fill->data, at, element(fill, row, column, random));
}

void ft_fill_piece(void *context, size_t index)
{
	const struct ft_fill_rows *fill = context;
	const struct ft_tensor *tensor = fill->tensor;
	size_t first = fill->first + index * fill->rows_a_piece, end = fill->first + fill->rows;
	end = end - first > fill->rows_a_piece ? first + fill->rows_a_piece : end;
	for (size_t row = first; row < end; row++) {
		uint64_t state = mix(fill->seed ^ mix(row));
		for (size_t i = 0; i < tensor->length; i++)
			store(fill, row, i, mix(state + i));
	}
}

uint64_t ft_fill_seed(uint64_t seed, uint32_t tensor)
{
	return mix(seed) ^ mix(tensor);
}
