#include "kernels/rmsnorm/reference.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a type with fewer bits than float64 looks like. */
struct shape {
	int fraction; /* explicit bits */
	int bias;
	int exponent; /* bits */
};

static const struct shape shape_f16 = {.fraction = 10, .bias = 15, .exponent = 5};
static const struct shape shape_bf16 = {.fraction = 7, .bias = 127, .exponent = 8};

static uint64_t bits_of(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static inline float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

/* The pattern, moved to float32's places, is off by a power of two; multiplying by it is exact and makes
 * subnormal numbers normal. No branch: reading the input is most of what a comparison costs. */
static inline double widen_f16(uint16_t bits)
{
	uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
	float scaled = float_of(magnitude) * 0x1p112F;
	uint32_t wide, special = magnitude >= UINT32_C(0x1f) << 23 ? UINT32_C(0xff) << 23 : 0;

	memcpy(&wide, &scaled, sizeof wide);
	return (double)float_of(wide | special | (uint32_t)(bits & 0x8000) << 16);
}

static inline double widen_bf16(uint16_t bits)
{
	return (double)float_of((uint32_t)bits << 16);
}

double rmsnorm_from_f16(uint16_t bits)
{
	return widen_f16(bits);
}

double rmsnorm_from_bf16(uint16_t bits)
{
	return widen_bf16(bits);
}

/* Drops the last `count` bits (1 to 63), to nearest even. A carry walks into the exponent, as it must. */
static uint64_t shift_to_even(uint64_t bits, int count)
{
	uint64_t half = UINT64_C(1) << (count - 1);
	uint64_t rest = bits & ((half << 1) - 1);
	uint64_t kept = bits >> count;

	return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint16_t narrow(double value, const struct shape *shape)
{
	uint64_t bits = bits_of(value);
	uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
	int exponent = (int)(bits >> 52 & 0x7ff);
	uint64_t sign = bits >> 63 << 15;
	uint64_t infinity = ((UINT64_C(1) << shape->exponent) - 1) << shape->fraction;
	int drop = 52 - shape->fraction;
	uint64_t result;

	if (exponent == 0x7ff) {
		uint64_t quiet = UINT64_C(1) << (shape->fraction - 1);

		return (uint16_t)(sign | infinity | (fraction ? quiet | fraction >> drop : 0));
	}
	exponent += shape->bias - 1023;
	if (exponent > 0) {
		result = shift_to_even((uint64_t)exponent << 52 | fraction, drop);
	} else {
		/* Subnormal: the leading bit becomes explicit, and each step below drops one bit more. A
		 * subnormal float64 is far below half of any of these and gives 0 all the same. */
		int more = drop + 1 - exponent;

		result = more < 64 ? shift_to_even(UINT64_C(1) << 52 | fraction, more) : 0;
	}
	return (uint16_t)(sign | (result < infinity ? result : infinity));
}

uint16_t rmsnorm_to_f16(double value)
{
	return narrow(value, &shape_f16);
}

uint16_t rmsnorm_to_bf16(double value)
{
	return narrow(value, &shape_bf16);
}

/* Always inlined with a constant type, so that the loops below are compiled once a type, without a branch in
 * them. */
static inline __attribute__((always_inline)) double load(
        enum rmsnorm_dtype dtype, const void *data, uint64_t index)
{
	if (dtype == RMSNORM_F32)
		return (double)((const float *)data)[index];
	uint16_t bits = ((const uint16_t *)data)[index];

	return dtype == RMSNORM_F16 ? widen_f16(bits) : widen_bf16(bits);
}

double rmsnorm_load(enum rmsnorm_dtype dtype, const void *data, uint64_t index)
{
	return load(dtype, data, index);
}

void rmsnorm_store(enum rmsnorm_dtype dtype, void *data, uint64_t index, double value)
{
	if (dtype == RMSNORM_F32)
		((float *)data)[index] = (float)value;
	else
		((uint16_t *)data)[index] =
		        dtype == RMSNORM_F16 ? rmsnorm_to_f16(value) : rmsnorm_to_bf16(value);
}

/* ---- the reference ---- */

static inline __attribute__((always_inline)) double scale_as(
        enum rmsnorm_dtype dtype, const void *x, uint64_t start, uint64_t n)
{
	double sum[4] = {0};
	uint64_t i = 0;

	for (; i + 4 <= n; i += 4) {
		for (uint64_t j = 0; j < 4; j++) {
			double value = load(dtype, x, start + i + j);

			sum[j] += value * value;
		}
	}
	for (; i < n; i++) {
		double value = load(dtype, x, start + i);

		sum[0] += value * value;
	}
	return 1.0 / sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) / (double)n + RMSNORM_EPS);
}

/* rsqrt(mean(x * x) + eps) of one row. */
static double row_scale(const struct rmsnorm_problem *problem, const void *x, uint64_t row)
{
	uint64_t start = row * problem->row_stride;

	switch (problem->dtype) {
	case RMSNORM_F16:
		return scale_as(RMSNORM_F16, x, start, problem->n);
	case RMSNORM_BF16:
		return scale_as(RMSNORM_BF16, x, start, problem->n);
	case RMSNORM_F32:
		break;
	}
	return scale_as(RMSNORM_F32, x, start, problem->n);
}

void rmsnorm_reference_rows(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        uint64_t first_row, uint64_t rows, double *out)
{
	for (uint64_t row = first_row; row < first_row + rows; row++) {
		double scale = row_scale(problem, x, row);

		for (uint64_t i = 0; i < problem->n; i++)
			*out++ = load(problem->dtype, x, row * problem->row_stride + i) * scale *
			        load(problem->weight, weight, i);
	}
}

void rmsnorm_reference_store(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        uint64_t first_row, uint64_t rows, void *y)
{
	for (uint64_t row = first_row; row < first_row + rows; row++) {
		double scale = row_scale(problem, x, row);

		for (uint64_t i = 0; i < problem->n; i++) {
			uint64_t at = row * problem->row_stride + i;

			rmsnorm_store(problem->dtype, y, at,
			        load(problem->dtype, x, at) * scale * load(problem->weight, weight, i));
		}
	}
}

/* ---- the comparison ---- */

double rmsnorm_bound(enum rmsnorm_dtype dtype)
{
	/* what f32 arithmetic may be off by before the result is rounded */
	static const double arithmetic = 1e-6;

	if (dtype == RMSNORM_F16)
		return 0x1p-11 + arithmetic;
	return dtype == RMSNORM_BF16 ? 0x1p-8 + arithmetic : arithmetic;
}

static inline __attribute__((always_inline)) double smallest_normal(enum rmsnorm_dtype dtype)
{
	return dtype == RMSNORM_F16 ? 0x1p-14 : 0x1p-126;
}

/* The first power of two that the type lacks. */
static double beyond(enum rmsnorm_dtype dtype)
{
	return dtype == RMSNORM_F16 ? 0x1p16 : 0x1p128;
}

/* The error of one element, where the quick test below did not do. */
static double error_of(enum rmsnorm_dtype dtype, double got, double want)
{
	double limit = beyond(dtype);

	if (isnan(got) || isnan(want))
		return isnan(got) && isnan(want) ? 0 : HUGE_VAL;
	if (got == want)
		return 0;
	if (isinf(want))
		return HUGE_VAL;
	if (isinf(got)) {
		if (fabs(want) >= limit && signbit(got) == signbit(want))
			return 0;
		got = copysign(limit, got);
	}
	return fabs(got - want) / fmax(fmax(fabs(got), fabs(want)), smallest_normal(dtype));
}

/* Elements looked at together: as many as make a branch once a block cheap. */
enum { BLOCK = 64 };

static inline __attribute__((always_inline)) void compare_as(enum rmsnorm_dtype dtype,
        enum rmsnorm_dtype weight_dtype, const struct rmsnorm_problem *problem, const void *x,
        const void *weight, const void *y, uint64_t row, struct rmsnorm_worst *worst)
{
	uint64_t start = row * problem->row_stride;
	double scale = scale_as(dtype, x, start, problem->n);
	double least = smallest_normal(dtype);
	double got[BLOCK], want[BLOCK];

	for (uint64_t block = 0; block < problem->n; block += BLOCK) {
		uint64_t count = problem->n - block < BLOCK ? problem->n - block : BLOCK;
		uint64_t suspect = 0;

		/* No division and no branch: is anything here worse than the worst so far? Infinities and NaN
		 * fail the test and so are looked at below; the size is kept finite for that. */
		for (uint64_t i = 0; i < count; i++) {
			want[i] = load(dtype, x, start + block + i) * scale *
			        load(weight_dtype, weight, block + i);
			got[i] = load(dtype, y, start + block + i);
			double size = fabs(got[i]) > fabs(want[i]) ? fabs(got[i]) : fabs(want[i]);

			size = size > least ? size : least;
			size = size < DBL_MAX ? size : DBL_MAX;
			suspect |= !(fabs(got[i] - want[i]) <= worst->error * size);
		}
		for (uint64_t i = 0; suspect && i < count; i++) {
			double error = error_of(dtype, got[i], want[i]);

			if (error > worst->error)
				*worst = (struct rmsnorm_worst){.error = error,
				        .row = row,
				        .column = block + i,
				        .got = got[i],
				        .want = want[i]};
		}
	}
}

static inline __attribute__((always_inline)) void compare_all(const struct rmsnorm_problem *problem,
        const void *x, const void *weight, const void *y, uint64_t first_row, uint64_t rows,
        struct rmsnorm_worst *worst)
{
	enum rmsnorm_dtype own = problem->dtype;
	bool mixed = problem->weight != own;

	for (uint64_t row = first_row; row < first_row + rows; row++) {
		if (own == RMSNORM_F32)
			compare_as(RMSNORM_F32, RMSNORM_F32, problem, x, weight, y, row, worst);
		else if (own == RMSNORM_F16 && mixed)
			compare_as(RMSNORM_F16, RMSNORM_F32, problem, x, weight, y, row, worst);
		else if (own == RMSNORM_F16)
			compare_as(RMSNORM_F16, RMSNORM_F16, problem, x, weight, y, row, worst);
		else if (mixed)
			compare_as(RMSNORM_BF16, RMSNORM_F32, problem, x, weight, y, row, worst);
		else
			compare_as(RMSNORM_BF16, RMSNORM_BF16, problem, x, weight, y, row, worst);
	}
}

#if defined(__x86_64__)
/* The same code and, without fused multiply-add, the same bits; only wider. A sweep compares every config's
 * whole output, so this is a good part of its time. */
__attribute__((target("avx2"))) static void compare_wide(const struct rmsnorm_problem *problem, const void *x,
        const void *weight, const void *y, uint64_t first_row, uint64_t rows, struct rmsnorm_worst *worst)
{
	compare_all(problem, x, weight, y, first_row, rows, worst);
}
#endif

void rmsnorm_compare_rows(const struct rmsnorm_problem *problem, const void *x, const void *weight,
        const void *y, uint64_t first_row, uint64_t rows, struct rmsnorm_worst *worst)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2")) {
		compare_wide(problem, x, weight, y, first_row, rows, worst);
		return;
	}
#endif
	compare_all(problem, x, weight, y, first_row, rows, worst);
}

void rmsnorm_worst_merge(struct rmsnorm_worst *worst, const struct rmsnorm_worst *other)
{
	bool first = other->row < worst->row || (other->row == worst->row && other->column < worst->column);

	if (other->error > worst->error || (other->error == worst->error && other->error > 0 && first))
		*worst = *other;
}

int rmsnorm_worst_check(const struct rmsnorm_worst *worst, enum rmsnorm_dtype dtype, struct ft_error *error)
{
	double bound = rmsnorm_bound(dtype);

	if (worst->error <= bound)
		return 0;
	return ft_fail(error, FT_E_RUNNER,
	        "row %" PRIu64 ", column %" PRIu64 " is %.9g where the reference says %.9g: relative error "
	        "%.3g, at most %.3g is right",
	        worst->row, worst->column, worst->got, worst->want, worst->error, bound);
}
