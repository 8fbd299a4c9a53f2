/* The row kernels for one instruction set (kernels/isa.h).
 *
 * Two passes over a row: the sum of squares, then scale and store. The second finds the row in the first or
 * second cache unless it is megabytes long. */
#include "kernels/rmsnorm/rmsnorm_cpu.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(LANES * 4)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));

enum format { F32, F16, BF16 };

/* Squares are added up in f32 over this many elements, then in double, so that a row of a million elements is
 * as exact as a short one. A multiple of PAIR * 4. */
enum { BLOCK = 4096, LINE = 64, PAIR = 2 * LANES };

/* The work goes in pairs of vectors, 2 * LANES elements. Of 16-bit elements without a conversion instruction
 * one holds the even elements and the other the odd ones: a shift or a mask widens them then, where putting
 * them in order would cost shuffles. */
struct pair {
	vector first, second;
};

INLINE bool parted(enum format format)
{
#if defined(__F16C__)
	return format == BF16;
#else
	return format != F32;
#endif
}

INLINE size_t size_of(enum format format)
{
	return format == F32 ? 4 : 2;
}

INLINE void part(words both, words *even, words *odd)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*even = both & 0xffff;
	*odd = both >> 16;
#else
	*even = both >> 16;
	*odd = both & 0xffff;
#endif
}

INLINE words join(words even, words odd)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return even | odd << 16;
#else
	return even << 16 | odd;
#endif
}

/* Lanes that are all ones in `mask` come from `yes`. */
INLINE words pick(words mask, words yes, words no)
{
	return (mask & yes) | (~mask & no);
}

#if !defined(__F16C__)
INLINE vector widen_f16(words bits)
{
	words magnitude = (bits & 0x7fff) << 13;
	/* The exponent is 112 too small: a multiplication mends it, subnormals included. */
	vector scaled = (vector)magnitude * 0x1p112F;
	words special = (words)(magnitude >= (0x7c00U << 13));
	words value = pick(special, magnitude | 0x7f800000U, (words)scaled);
	return (vector)(value | (bits & 0x8000) << 16);
}

INLINE words narrow_f16(vector from)
{
	words bits = (words)from;
	words magnitude = bits & 0x7fffffff;
	/* Normal results: another bias, rounded to nearest even on the 13 bits that go. */
	words normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
	/* Subnormal results: the adder rounds, 0.5 having its last bit where theirs is. */
	words subnormal = (words)((vector)magnitude + 0.5F) - 0x3f000000U;
	words value = pick((words)(magnitude < (113U << 23)), subnormal, normal);
	value = pick((words)(magnitude >= 0x477ff000U), (words){0} + 0x7c00U, value);
	value = pick((words)(magnitude > 0x7f800000U), (words){0} + 0x7e00U, value);
	return value | ((bits >> 16) & 0x8000);
}
#endif

INLINE words narrow_bf16(vector from, bool any_nan)
{
	words bits = (words)from;
	words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	/* Rounding can carry a NaN into the sign, but only one whose low half is not empty: never one that
	 * came from bf16 operands. */
	if (!any_nan)
		return rounded;
	words is_nan = (words)((bits & 0x7fffffff) > 0x7f800000U);
	return pick(is_nan, (bits >> 16) | 0x40, rounded);
}

INLINE struct pair load(enum format format, const char *from)
{
	struct pair value;
	if (format == F32) {
		/* Each by itself: of a copy of both gcc makes a detour over the stack. */
		memcpy(&value.first, from, sizeof(value.first));
		memcpy(&value.second, from + sizeof(value.first), sizeof(value.second));
		return value;
	}
#if defined(__AVX512F__)
	if (format == F16) {
		value.first =
		        (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
		value.second =
		        (vector)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from + 1));
		return value;
	}
#elif defined(__F16C__)
	if (format == F16) {
		value.first = (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
		value.second =
		        (vector)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from + 1));
		return value;
	}
#endif
	words both;
	words even;
	words odd;
	memcpy(&both, from, sizeof(both));
	part(both, &even, &odd);
#if !defined(__F16C__)
	if (format == F16) {
		value.first = widen_f16(even);
		value.second = widen_f16(odd);
		return value;
	}
#endif
	value.first = (vector)(even << 16);
	value.second = (vector)(odd << 16);
	return value;
}

/* A pair of weights in the order of the elements that they belong to. */
INLINE struct pair load_weight(enum format weight_format, enum format format, const char *from)
{
	struct pair value = load(weight_format, from);
	if (parted(weight_format) == parted(format))
		return value;
	struct pair sorted;
#if LANES == 16
	sorted.first = __builtin_shufflevector(
	        value.first, value.second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
	sorted.second = __builtin_shufflevector(
	        value.first, value.second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif LANES == 8
	sorted.first = __builtin_shufflevector(value.first, value.second, 0, 2, 4, 6, 8, 10, 12, 14);
	sorted.second = __builtin_shufflevector(value.first, value.second, 1, 3, 5, 7, 9, 11, 13, 15);
#else
	sorted.first = __builtin_shufflevector(value.first, value.second, 0, 2, 4, 6);
	sorted.second = __builtin_shufflevector(value.first, value.second, 1, 3, 5, 7);
#endif
	return sorted;
}

/* One vector of memory, whatever its elements. `to` is aligned if `stream`. */
INLINE void put(bool stream, char *to, words value)
{
#if defined(__x86_64__)
	if (stream) {
#if LANES == 16
		_mm512_stream_si512((__m512i *)(void *)to, (__m512i)value);
#elif LANES == 8
		_mm256_stream_si256((__m256i *)(void *)to, (__m256i)value);
#else
		_mm_stream_si128((__m128i *)(void *)to, (__m128i)value);
#endif
		return;
	}
#else
	(void)stream;
#endif
	memcpy(to, &value, sizeof(value));
}

INLINE void store(enum format format, bool any_nan, bool stream, char *to, struct pair value)
{
	if (format == F32) {
		put(stream, to, (words)value.first);
		put(stream, to + sizeof(vector), (words)value.second);
	} else if (format == BF16) {
		put(stream, to, join(narrow_bf16(value.first, any_nan), narrow_bf16(value.second, any_nan)));
	} else {
#if defined(__AVX512F__)
		__m256i first =
		        _mm512_cvtps_ph((__m512)value.first, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		__m256i second =
		        _mm512_cvtps_ph((__m512)value.second, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		put(stream, to, (words)_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
#elif defined(__F16C__)
		__m128i first = _mm256_cvtps_ph((__m256)value.first, _MM_FROUND_TO_NEAREST_INT);
		__m128i second = _mm256_cvtps_ph((__m256)value.second, _MM_FROUND_TO_NEAREST_INT);
		put(stream, to, (words)_mm256_insertf128_si256(_mm256_castsi128_si256(first), second, 1));
#else
		put(stream, to, join(narrow_f16(value.first), narrow_f16(value.second)));
#endif
	}
}

INLINE float sum_lanes(vector value)
{
	typedef float quad __attribute__((vector_size(16)));
	quad quarter[LANES / 4];
	memcpy(quarter, &value, sizeof(value));
#if LANES == 16
	quad sum = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
#elif LANES == 8
	quad sum = quarter[0] + quarter[1];
#else
	quad sum = quarter[0];
#endif
	return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* The first `count` elements, the rest zeros. */
INLINE void copy_part(char room[PAIR * 4], const char *from, size_t bytes)
{
	memset(room, 0, (size_t)PAIR * 4);
	memcpy(room, from, bytes);
}

INLINE double sum_squares(enum format format, unsigned pairs, const char *in, size_t n, const char *own_out)
{
	const size_t size = size_of(format);
	const size_t step = (size_t)PAIR * pairs;
	double total = 0;
	size_t at = 0;
	while (n - at >= step) {
		size_t stop = n - at > BLOCK ? at + BLOCK : n;
		vector sum[8] = {{0}};
		for (; stop - at >= step; at += step) {
			if (own_out) {
#pragma GCC unroll 8
				for (size_t byte = 0; byte < step * size; byte += LINE)
					__builtin_prefetch(own_out + at * size + byte, 1, 3);
			}
#pragma GCC unroll 4
			for (size_t p = 0; p < pairs; p++) {
				struct pair value = load(format, in + (at + p * PAIR) * size);
				sum[2 * p] += value.first * value.first;
				sum[2 * p + 1] += value.second * value.second;
			}
		}
#pragma GCC unroll 4
		for (size_t p = 1; p < pairs; p++) {
			sum[0] += sum[2 * p];
			sum[1] += sum[2 * p + 1];
		}
		total += (double)sum_lanes(sum[0] + sum[1]);
	}
	if (at < n) {
		vector rest = {0};
		for (; at < n; at += PAIR) {
			char room[PAIR * 4];
			const char *from = in + at * size;
			if (n - at < PAIR) {
				copy_part(room, from, (n - at) * size);
				from = room;
			}
			struct pair value = load(format, from);
			rest += value.first * value.first;
			rest += value.second * value.second;
		}
		total += (double)sum_lanes(rest);
	}
	return total;
}

INLINE struct pair scaled(
        enum format format, enum format weight_format, const char *in, const char *weight, float scale)
{
	struct pair value = load(format, in);
	struct pair factor = load_weight(weight_format, format, weight);
	value.first = value.first * scale * factor.first;
	value.second = value.second * scale * factor.second;
	return value;
}

INLINE void scale_part(enum format format, enum format weight_format, const char *in, char *out,
        const char *weight, float scale, size_t count)
{
	char value_room[PAIR * 4];
	char weight_room[PAIR * 4];
	copy_part(value_room, in, count * size_of(format));
	copy_part(weight_room, weight, count * size_of(weight_format));
	struct pair value = scaled(format, weight_format, value_room, weight_room, scale);
	store(format, weight_format == F32, false, value_room, value);
	memcpy(out, value_room, count * size_of(format));
}

INLINE void scale_row(enum format format, enum format weight_format, unsigned pairs, bool stream,
        const char *in, char *out, const char *weight, size_t n, float scale, const char *next_in)
{
	const size_t size = size_of(format);
	const size_t weight_size = size_of(weight_format);
	const size_t step = (size_t)PAIR * pairs;
	const bool any_nan = weight_format == F32;
	size_t at = 0;
	if (stream) {
		/* Streaming stores must be aligned; the elements before are written as a part. */
		size_t head = (size_t)(-(uintptr_t)out % sizeof(vector)) / size;
		at = head < n ? head : n;
		if (at > 0)
			scale_part(format, weight_format, in, out, weight, scale, at);
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
			result[p] = scaled(
			        format, weight_format, in + here * size, weight + here * weight_size, scale);
		}
#pragma GCC unroll 4
		for (size_t p = 0; p < pairs; p++)
			store(format, any_nan, stream, out + (at + p * PAIR) * size, result[p]);
	}
	for (; n - at >= PAIR; at += PAIR) {
		struct pair result =
		        scaled(format, weight_format, in + at * size, weight + at * weight_size, scale);
		store(format, any_nan, stream, out + at * size, result);
	}
	if (at < n)
		scale_part(format, weight_format, in + at * size, out + at * size, weight + at * weight_size,
		        scale, n - at);
#if defined(__x86_64__)
	/* Streaming stores pass other stores: whoever learns that the row is done must find it written. */
	if (stream)
		_mm_sfence();
#endif
}

#define SUM_NAME(tag, pairs) sum_##tag##_##pairs
#define SCALE_NAME(tag, pairs, stream) scale_##tag##_##pairs##_##stream
#define DEFINE_SUM(tag, format, pairs)                                                    \
	static double SUM_NAME(tag, pairs)(const void *in, size_t n, const void *own_out) \
	{                                                                                 \
		return sum_squares(format, pairs, in, n, own_out);                        \
	}
#define DEFINE_SCALE(tag, format, weight_format, pairs, stream)                                            \
	static void SCALE_NAME(tag, pairs, stream)(                                                        \
	        const void *in, void *out, const void *weight, size_t n, float scale, const void *next_in) \
	{                                                                                                  \
		scale_row(format, weight_format, pairs, stream, in, out, weight, n, scale, next_in);       \
	}
#define DEFINE_SUMS(tag, format)   \
	DEFINE_SUM(tag, format, 1) \
	DEFINE_SUM(tag, format, 2) \
	DEFINE_SUM(tag, format, 4)
#define DEFINE_SCALES(tag, format, weight_format)      \
	DEFINE_SCALE(tag, format, weight_format, 1, 0) \
	DEFINE_SCALE(tag, format, weight_format, 1, 1) \
	DEFINE_SCALE(tag, format, weight_format, 2, 0) \
	DEFINE_SCALE(tag, format, weight_format, 2, 1) \
	DEFINE_SCALE(tag, format, weight_format, 4, 0) \
	DEFINE_SCALE(tag, format, weight_format, 4, 1)
DEFINE_SUMS(f32, F32)
DEFINE_SUMS(f16, F16)
DEFINE_SUMS(bf16, BF16)
DEFINE_SCALES(f32, F32, F32)
DEFINE_SCALES(f16, F16, F16)
DEFINE_SCALES(f16_w32, F16, F32)
DEFINE_SCALES(bf16, BF16, BF16)
DEFINE_SCALES(bf16_w32, BF16, F32)

#define SUMS(tag)                                                    \
	{                                                            \
		SUM_NAME(tag, 1), SUM_NAME(tag, 2), SUM_NAME(tag, 4) \
	}
#define BOTH(tag, pairs)                                             \
	{                                                            \
		SCALE_NAME(tag, pairs, 0), SCALE_NAME(tag, pairs, 1) \
	}
#define SCALES(tag)                                      \
	{                                                \
		BOTH(tag, 1), BOTH(tag, 2), BOTH(tag, 4) \
	}

extern const struct ft_rmsnorm_cpu_rows FT_ROWS(ft_rmsnorm_cpu_rows);
const struct ft_rmsnorm_cpu_rows FT_ROWS(ft_rmsnorm_cpu_rows) = {
        .isa = FT_ROWS_ISA,
        .lanes = LANES,
#if defined(__x86_64__)
        .streams = true,
#endif
        .sum = {SUMS(f32), SUMS(f16), SUMS(f16), SUMS(bf16), SUMS(bf16)},
        .scale = {SCALES(f32), SCALES(f16), SCALES(f16_w32), SCALES(bf16), SCALES(bf16_w32)},
};
