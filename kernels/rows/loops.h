/* The inner loops of a kernel for one instruction set, made of what its file defines before it includes this:
 *
 *   WEIGHTS                     how many a kernel has
 *   PREFIX                      its name as launch_cpu.h has it
 *   gather_row(format, pairs, in, n, own_out, part)
 *   map_pair(value, weight, scalar)     a pair of results from one of elements; `weight` has a pair of each weight
 *
 * Two passes over a row: gather, then map and store. The second finds the row in the first or second cache unless it is
 * megabytes long. Included once in a file. */
#include "kernels/rows/launch_cpu.h"
#include "kernels/rows/vectors.h"

/* By value, so that it stays in registers whatever is stored to. */
struct weights {
	const char *at[WEIGHTS];
};
struct scalars {
	float at[FT_ROWS_SCALARS];
};

INLINE struct pair mapped(enum format format, enum format weight_format, const char *in,
        struct weights weights, size_t offset, struct scalars scalars)
{
	struct pair factor[WEIGHTS];
	struct pair value = load(format, in);
	for (size_t w = 0; w < WEIGHTS; w++)
		factor[w] = load_weight(weight_format, format, weights.at[w] + offset);
	return map_pair(value, factor, scalars.at);
}

INLINE void map_part(enum format format, enum format weight_format, const char *in, char *out,
        struct weights weights, size_t offset, struct scalars scalars, size_t count)
{
	char value_room[PAIR * 4];
	char weight_room[WEIGHTS][PAIR * 4];
	struct weights rooms;
	copy_part(value_room, in, count * size_of(format));
	for (size_t w = 0; w < WEIGHTS; w++) {
		copy_part(weight_room[w], weights.at[w] + offset, count * size_of(weight_format));
		rooms.at[w] = weight_room[w];
	}
	struct pair value = mapped(format, weight_format, value_room, rooms, 0, scalars);
	store(format, weight_format == F32, false, value_room, value);
	memcpy(out, value_room, count * size_of(format));
}

INLINE void map_row(enum format format, enum format weight_format, unsigned pairs, bool stream,
        const char *in, char *out, const void *const *weight, size_t n, const float *scalar,
        const char *next_in)
{
	const size_t size = size_of(format);
	const size_t weight_size = size_of(weight_format);
	const size_t step = (size_t)PAIR * pairs;
	const bool any_nan = weight_format == F32;
	struct weights weights;
	struct scalars scalars;
	size_t at = 0;
	for (size_t w = 0; w < WEIGHTS; w++)
		weights.at[w] = weight[w];
	for (size_t i = 0; i < FT_ROWS_SCALARS; i++)
		scalars.at[i] = scalar[i];
	if (stream) {
		/* Streaming stores must be aligned; the elements before are written as a part. */
		size_t head = (size_t)(-(uintptr_t)out % sizeof(vector)) / size;
		at = head < n ? head : n;
		if (at > 0)
			map_part(format, weight_format, in, out, weights, 0, scalars, at);
	}
	for (; n - at >= step; at += step) {
		if (next_in) {
#pragma GCC unroll 8
			for (size_t byte = 0; byte < step * size; byte += LINE)
				__builtin_prefetch(next_in + at * size + byte, 0, 2);
		}
		struct pair result[4];
#pragma GCC unroll 4
		for (size_t p = 0; p < pairs; p++) {
			size_t here = at + p * PAIR;
			result[p] = mapped(format, weight_format, in + here * size, weights,
			        here * weight_size, scalars);
		}
#pragma GCC unroll 4
		for (size_t p = 0; p < pairs; p++)
			store(format, any_nan, stream, out + (at + p * PAIR) * size, result[p]);
	}
	for (; n - at >= PAIR; at += PAIR)
		store(format, any_nan, stream, out + at * size,
		        mapped(format, weight_format, in + at * size, weights, at * weight_size, scalars));
	if (at < n)
		map_part(format, weight_format, in + at * size, out + at * size, weights, at * weight_size,
		        scalars, n - at);
#if defined(__x86_64__)
	/* Streaming stores pass other stores: whoever learns that the row is done must find it written. */
	if (stream)
		_mm_sfence();
#endif
}

#define GATHER_NAME(tag, pairs) gather_##tag##_##pairs
#define MAP_NAME(tag, pairs, stream) map_##tag##_##pairs##_##stream
#define DEFINE_GATHER(tag, format, pairs)                                                  \
	static void GATHER_NAME(tag, pairs)(                                               \
	        const void *in, size_t n, const void *own_out, double part[FT_ROWS_PARTS]) \
	{                                                                                  \
		gather_row(format, pairs, in, n, own_out, part);                           \
	}
#define DEFINE_MAP(tag, format, weight_format, pairs, stream)                                          \
	static void MAP_NAME(tag, pairs, stream)(const void *in, void *out, const void *const *weight, \
	        size_t n, const float scalar[FT_ROWS_SCALARS], const void *next_in)                    \
	{                                                                                              \
		map_row(format, weight_format, pairs, stream, in, out, weight, n, scalar, next_in);    \
	}
#define DEFINE_GATHERS(tag, format)   \
	DEFINE_GATHER(tag, format, 1) \
	DEFINE_GATHER(tag, format, 2) \
	DEFINE_GATHER(tag, format, 4)
#define DEFINE_MAPS(tag, format, weight_format)      \
	DEFINE_MAP(tag, format, weight_format, 1, 0) \
	DEFINE_MAP(tag, format, weight_format, 1, 1) \
	DEFINE_MAP(tag, format, weight_format, 2, 0) \
	DEFINE_MAP(tag, format, weight_format, 2, 1) \
	DEFINE_MAP(tag, format, weight_format, 4, 0) \
	DEFINE_MAP(tag, format, weight_format, 4, 1)
DEFINE_GATHERS(f32, F32)
DEFINE_GATHERS(f16, F16)
DEFINE_GATHERS(bf16, BF16)
DEFINE_MAPS(f32, F32, F32)
DEFINE_MAPS(f16, F16, F16)
DEFINE_MAPS(f16_w32, F16, F32)
DEFINE_MAPS(bf16, BF16, BF16)
DEFINE_MAPS(bf16_w32, BF16, F32)

#define GATHERS(tag)                                                          \
	{                                                                     \
		GATHER_NAME(tag, 1), GATHER_NAME(tag, 2), GATHER_NAME(tag, 4) \
	}
#define BOTH_MAPS(tag, pairs)                                    \
	{                                                        \
		MAP_NAME(tag, pairs, 0), MAP_NAME(tag, pairs, 1) \
	}
#define MAPS(tag)                                                       \
	{                                                               \
		BOTH_MAPS(tag, 1), BOTH_MAPS(tag, 2), BOTH_MAPS(tag, 4) \
	}

extern const struct ft_rows_loops FT_ROWS(PREFIX);
const struct ft_rows_loops FT_ROWS(PREFIX) = {
        .isa = FT_ROWS_ISA,
        .lanes = LANES,
#if defined(__x86_64__)
        .streams = true,
#endif
        .gather = {GATHERS(f32), GATHERS(f16), GATHERS(f16), GATHERS(bf16), GATHERS(bf16)},
        .map = {MAPS(f32), MAPS(f16), MAPS(f16_w32), MAPS(bf16), MAPS(bf16_w32)},
};
