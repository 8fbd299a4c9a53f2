/* Vectors of f32 for the inner loops of one instruction set (kernels/isa.h), and how they are had from elements in memory and
 * put there again. */
#ifndef FLYTUNE_KERNELS_ROWS_VECTORS_H
#define FLYTUNE_KERNELS_ROWS_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
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

/* Elements are added up in f32 over a block, then in double, so that a row of a million elements is as exact as a short one.
 * BLOCK is a multiple of PAIR * 4. */
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

/* The first `count` of a pair's elements are 1, the rest 0: what copy_part left of them. */
INLINE struct pair ones(enum format format, size_t count)
{
	char room[PAIR * 4] = {0};
	for (size_t i = 0; i < count; i++) {
		const uint32_t one = format == F32 ? 0x3f800000 : format == F16 ? 0x3c00 : 0x3f80;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		memcpy(room + i * size_of(format), &one, size_of(format));
#else
		memcpy(room + i * size_of(format), (const char *)&one + 4 - size_of(format), size_of(format));
#endif
	}
	return load(format, room);
}

enum sums { SUM = 1, SQUARES = 2, BOTH = 3 };

/* Of a vector of elements, less `shift`. */
INLINE void add_vector(enum sums sums, vector value, vector shift, bool shifted, vector *sum, vector *squares)
{
	if (shifted)
		value -= shift;
	if (sums & SUM)
		*sum += value;
	if (sums & SQUARES)
		*squares += value * value;
}

/* Adds up n elements less `shift`, unless that is 0 whatever it is (`shifted` is false), and their squares: as far as `sums`
 * says. Prefetches `own_out` for writing along the way unless it is NULL. */
INLINE void add_up(enum format format, unsigned pairs, enum sums sums, bool shifted, float by, const char *in,
        size_t n, const char *own_out, double *sum_to, double *squares_to)
{
	const size_t size = size_of(format);
	const size_t step = (size_t)PAIR * pairs;
	const vector shift = (vector){0} + by;
	double total = 0;
	double total_squares = 0;
	size_t at = 0;
	while (n - at >= step) {
		size_t stop = n - at > BLOCK ? at + BLOCK : n;
		vector sum[8] = {{0}};
		vector squares[8] = {{0}};
		for (; stop - at >= step; at += step) {
			if (own_out) {
#pragma GCC unroll 8
				for (size_t byte = 0; byte < step * size; byte += LINE)
					__builtin_prefetch(own_out + at * size + byte, 1, 3);
			}
#pragma GCC unroll 4
			for (size_t p = 0; p < pairs; p++) {
				struct pair value = load(format, in + (at + p * PAIR) * size);
				add_vector(sums, value.first, shift, shifted, &sum[2 * p], &squares[2 * p]);
				add_vector(sums, value.second, shift, shifted, &sum[2 * p + 1],
				        &squares[2 * p + 1]);
			}
		}
#pragma GCC unroll 4
		for (size_t p = 1; p < pairs; p++) {
			sum[0] += sum[2 * p];
			sum[1] += sum[2 * p + 1];
			squares[0] += squares[2 * p];
			squares[1] += squares[2 * p + 1];
		}
		total += (double)sum_lanes(sum[0] + sum[1]);
		total_squares += (double)sum_lanes(squares[0] + squares[1]);
	}
	if (at < n) {
		vector sum = {0};
		vector squares = {0};
		for (; n - at >= PAIR; at += PAIR) {
			struct pair value = load(format, in + at * size);
			add_vector(sums, value.first, shift, shifted, &sum, &squares);
			add_vector(sums, value.second, shift, shifted, &sum, &squares);
		}
		if (at < n) {
			char room[PAIR * 4];
			copy_part(room, in + at * size, (n - at) * size);
			struct pair value = load(format, room);
			if (shifted) {
				struct pair there = ones(format, n - at);
				value.first = (value.first - shift) * there.first;
				value.second = (value.second - shift) * there.second;
			}
			add_vector(sums, value.first, shift, false, &sum, &squares);
			add_vector(sums, value.second, shift, false, &sum, &squares);
		}
		total += (double)sum_lanes(sum);
		total_squares += (double)sum_lanes(squares);
	}
	if (sums & SUM)
		*sum_to = total;
	if (sums & SQUARES)
		*squares_to = total_squares;
}

#endif
