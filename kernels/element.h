/* Types of elements, and numbers of 16 bits, exactly.
 *
 * What stands here in full is to be inlined with a constant type, so that a loop over an array is compiled once
 * a type, without a branch in it. */
#ifndef FLYTUNE_KERNELS_ELEMENT_H
#define FLYTUNE_KERNELS_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Device sources know the first three by these numbers. */
enum ft_dtype { FT_F32, FT_F16, FT_BF16, FT_F64, FT_I8, FT_U8, FT_I32, FT_I64, FT_DTYPES };

#define FT_INLINE static inline __attribute__((always_inline))

size_t ft_dtype_size(enum ft_dtype type); /* bytes an element */
const char *ft_dtype_name(enum ft_dtype type);
/* Of a name that a schema allowed; f32 where it is none of them. */
enum ft_dtype ft_dtype_named(const char *name);
/* False where it is none of them. */
bool ft_dtype_find(const char *name, enum ft_dtype *type);
bool ft_dtype_is_integer(enum ft_dtype type);

/* What rounding to a type and the f32 arithmetic before it may be off by: 2^-8 + 1e-6 for bf16, 2^-11 + 1e-6 for
 * f16, 1e-6 for f32; the same arithmetic in f64 is off by 1e-14; integers are exact. */
double ft_dtype_error(enum ft_dtype type);

/* Rounded once, to nearest even; NaN stays NaN, quiet, its sign and leading bits kept. */
uint16_t ft_to_f16(double value);
uint16_t ft_to_bf16(double value);

FT_INLINE float ft_float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

/* The pattern, moved to float32's places, is off by a power of two; multiplying by it is exact and makes
 * subnormal numbers normal. No branch: reading the input is most of what a comparison costs. */
FT_INLINE double ft_from_f16(uint16_t bits)
{
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
	float scaled = ft_float_of(magnitude) * 0x1p112F;
	uint32_t wide, special = magnitude >= UINT32_C(0x1f) << 23 ? UINT32_C(0xff) << 23 : 0;

	memcpy(&wide, &scaled, sizeof wide);
	return (double)ft_float_of(wide | special | (uint32_t)(bits & 0x8000) << 16);
}

FT_INLINE double ft_from_bf16(uint16_t bits)
{
	return (double)ft_float_of((uint32_t)bits << 16);
}

/* Element `index` of an array of that type, which lies as such an array has to. Of FT_I64 exact up to 2^53. */
FT_INLINE double ft_load(enum ft_dtype type, const void *data, uint64_t index)
{
	if (type == FT_F32)
		return (double)((const float *)data)[index];
	if (type == FT_F64)
		return ((const double *)data)[index];
	if (type == FT_I8)
		return ((const int8_t *)data)[index];
	if (type == FT_U8)
		return ((const uint8_t *)data)[index];
	if (type == FT_I32)
		return ((const int32_t *)data)[index];
	if (type == FT_I64)
		return (double)((const int64_t *)data)[index];
	uint16_t bits = ((const uint16_t *)data)[index];

	return type == FT_F16 ? ft_from_f16(bits) : ft_from_bf16(bits);
}

/* Rounded once, to nearest even; what lies outside of an integer type becomes its nearest bound, and NaN becomes 0. */
void ft_store(enum ft_dtype type, void *data, uint64_t index, double value);

/* Makes `name` of `name`_any, an inlined function that loops over arrays: on x86-64 compiled twice and chosen
 * between when called. The wider code gives the same bits, as nothing in it is fused; a sweep compares every
 * config's whole output, so this is a good part of its time. */
#if defined(__x86_64__)
#define FT_WIDE(name, parameters, arguments)                               \
	__attribute__((target("avx2"))) static void name##_wide parameters \
	{                                                                  \
		name##_any arguments;                                      \
	}                                                                  \
	static void name parameters                                        \
	{                                                                  \
		if (__builtin_cpu_supports("avx2"))                        \
			name##_wide arguments;                             \
		else                                                       \
			name##_any arguments;                              \
	}
#else
#define FT_WIDE(name, parameters, arguments) \
	static void name parameters          \
	{                                    \
		name##_any arguments;        \
	}
#endif

#endif
