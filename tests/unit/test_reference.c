#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/layernorm/layernorm.h"
#include "tests/reference.h"

struct type {
	const char *name;
	int fraction, bias, exponents; /* bits, bias, exponents in all */
	double (*from)(uint16_t bits);
	uint16_t (*to)(double value);
};

static const struct type types16[] = {
        {"f16", 10, 15, 32, ft_from_f16, ft_to_f16},
        {"bf16", 7, 127, 256, ft_from_bf16, ft_to_bf16},
};

/* What a pattern means, straight from the definition. */
static double by_definition(const struct type *type, uint16_t bits)
{
	int exponent = bits >> type->fraction & (type->exponents - 1);
	double fraction = bits & ((1 << type->fraction) - 1);
	double value;

	if (exponent == type->exponents - 1)
		value = fraction != 0 ? NAN : HUGE_VAL;
	else if (exponent == 0)
		value = ldexp(fraction, 1 - type->bias - type->fraction);
	else
		value = ldexp(fraction + ldexp(1, type->fraction), exponent - type->bias - type->fraction);
	return bits & 0x8000 ? -value : value;
}

static void every_pattern_means_what_the_format_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		for (uint32_t bits = 0; bits < 65536; bits++) {
			double got = types16[i].from((uint16_t)bits);
			double want = by_definition(&types16[i], (uint16_t)bits);

			if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want))
				fail_msg("%s %04x is %a, not %a", types16[i].name, bits, got, want);
		}
	}
}

static void every_pattern_survives_the_way_there_and_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		uint16_t quiet = (uint16_t)(1 << (types16[i].fraction - 1));

		for (uint32_t bits = 0; bits < 65536; bits++) {
			double value = types16[i].from((uint16_t)bits);
			uint16_t back = types16[i].to(value);

			if (back != (isnan(value) ? (bits | quiet) : bits))
				fail_msg("%s %04x came back as %04x", types16[i].name, bits, back);
		}
	}
}

/* Around every tie between two neighbours, the largest number and infinity among them. */
static void rounding_is_to_nearest_even_everywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const struct type *type = &types16[i];
		uint16_t infinity = (uint16_t)((type->exponents - 1) << type->fraction);

		for (uint16_t low = 0; low < infinity; low++) {
			uint16_t high = (uint16_t)(low + 1);
			double below = type->from(low);
			double above = high == infinity ? ldexp(1, type->exponents - 1 - type->bias)
			                                : type->from(high);
			double tie = below + (above - below) / 2; /* exact: a float64 has the bits */
			uint16_t even = low & 1 ? high : low;

			for (int sign = 0; sign < 2; sign++) {
				uint16_t mark = sign ? 0x8000 : 0;
				double s = sign ? -1 : 1;

				assert_int_equal(type->to(s * tie), even | mark);
				assert_int_equal(type->to(s * nextafter(tie, 0)), low | mark);
				assert_int_equal(type->to(s * nextafter(tie, HUGE_VAL)), high | mark);
				assert_int_equal(type->to(s * nextafter(below, HUGE_VAL)), low | mark);
				assert_int_equal(type->to(s * nextafter(above, 0)), high | mark);
			}
		}
	}
}

static void the_ends_of_float64_narrow_to_zero_and_infinity(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		uint16_t infinity = (uint16_t)((types16[i].exponents - 1) << types16[i].fraction);

		assert_int_equal(types16[i].to(0.0), 0);
		assert_int_equal(types16[i].to(-0.0), 0x8000);
		assert_int_equal(types16[i].to(5e-324), 0);
		assert_int_equal(types16[i].to(-5e-324), 0x8000);
		assert_int_equal(types16[i].to(1e-300), 0);
		assert_int_equal(types16[i].to(1e300), infinity);
		assert_int_equal(types16[i].to(-HUGE_VAL), infinity | 0x8000);
		assert_true(isnan(types16[i].from(types16[i].to(NAN))));
	}
}

/* ---- the reference ---- */

enum { ROOM = 1 << 16 };

struct arrays {
	struct ft_rows problem;
	union {
		float f32[ROOM];
		uint16_t bits[2 * ROOM];
	} x, y, weight;
};

static const enum ft_dtype pairs[][2] = {
        {FT_F32, FT_F32}, {FT_F16, FT_F16}, {FT_BF16, FT_BF16}, {FT_F16, FT_F32}, {FT_BF16, FT_F32}};

static double drawn(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005U + 1442695040888963407U;
	return ((double)(*seed >> 11) * 0x1p-53 - 0.5) * 4;
}

/* Random inputs; NaN between the rows, so that a read there shows. */
static void fill(struct arrays *arrays, struct ft_rows problem)
{
	uint64_t seed = problem.m * 31 + problem.n;

	assert_true(problem.m * problem.row_stride <= ROOM);
	memset(arrays, 0xff, sizeof *arrays);
	arrays->problem = problem;
	for (uint64_t row = 0; row < problem.m; row++) {
		for (uint64_t i = 0; i < problem.n; i++)
			ft_store(problem.dtype, &arrays->x, row * problem.row_stride + i, drawn(&seed));
	}
	for (uint64_t i = 0; i < problem.n; i++)
		ft_store(problem.weight, &arrays->weight, i, drawn(&seed));
}

static void the_reference_is_the_formula_for_all_types_strides_and_parts(void **state)
{
	static const uint64_t shapes[][3] = {
	        {1, 1, 1}, {3, 7, 7}, {5, 64, 70}, {2, 1000, 1000}, {4, 129, 131}};
	struct arrays *arrays = malloc(sizeof *arrays);
	double *out = malloc(ROOM * sizeof *out);

	(void)state;
	assert_non_null(arrays);
	assert_non_null(out);
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		for (size_t j = 0; j < sizeof pairs / sizeof pairs[0]; j++) {
			struct ft_rows problem = {.m = shapes[i][0],
			        .n = shapes[i][1],
			        .row_stride = shapes[i][2],
			        .dtype = pairs[j][0],
			        .weight = pairs[j][1]};
			uint64_t first = problem.m > 2 ? 1 : 0;

			fill(arrays, problem);
			rmsnorm_reference_rows(
			        &problem, &arrays->x, &arrays->weight, first, problem.m - first, out);
			for (uint64_t row = first; row < problem.m; row++) {
				long double sum = 0;

				for (uint64_t k = 0; k < problem.n; k++) {
					long double value = ft_load(
					        problem.dtype, &arrays->x, row * problem.row_stride + k);

					sum += value * value;
				}
				for (uint64_t k = 0; k < problem.n; k++) {
					long double value = ft_load(
					        problem.dtype, &arrays->x, row * problem.row_stride + k);
					double want = (double)(value /
					        sqrtl(sum / (long double)problem.n + 1e-5L) *
					        (long double)ft_load(problem.weight, &arrays->weight, k));
					double got = out[(row - first) * problem.n + k];

					assert_true(fabs(got - want) <= 1e-14 * fabs(want));
				}
			}
		}
	}
	free(out);
	free(arrays);
}

/* With rows far from 0 as well, where float64 must lose nothing either. */
static void layernorms_reference_is_the_formula(void **state)
{
	enum { M = 3, N = 129, STRIDE = 131 };
	static const double mean[M] = {0, 1000, -30000};
	struct arrays *arrays = malloc(sizeof *arrays);
	float bias[N];
	uint16_t bits[N];

	(void)state;
	assert_non_null(arrays);
	for (size_t j = 0; j < sizeof pairs / sizeof pairs[0]; j++) {
		struct ft_rows problem = {
		        .m = M, .n = N, .row_stride = STRIDE, .dtype = pairs[j][0], .weight = pairs[j][1]};
		void *biases = problem.weight == FT_F32 ? (void *)bias : (void *)bits;
		const void *data[] = {NULL, &arrays->x, &arrays->weight, biases};
		struct ft_tensors tensors;
		double out[M * N];
		uint64_t seed = j;

		fill(arrays, problem);
		for (uint64_t i = 0; i < N; i++) {
			ft_store(problem.weight, biases, i, drawn(&seed));
			for (uint64_t row = 0; row < M; row++)
				ft_store(problem.dtype, &arrays->x, row * STRIDE + i,
				        mean[row] + drawn(&seed));
		}
		ft_rows_tensors(&layernorm_rows, &problem, &tensors);
		ft_reference_rows(&layernorm_reference, &tensors, data, 0, M, out);
		for (uint64_t row = 0; row < M; row++) {
			long double sum = 0, squares = 0;

			for (uint64_t i = 0; i < N; i++)
				sum += ft_load(problem.dtype, &arrays->x, row * STRIDE + i);
			sum /= N;
			for (uint64_t i = 0; i < N; i++) {
				long double left = ft_load(problem.dtype, &arrays->x, row * STRIDE + i) - sum;

				squares += left * left;
			}
			for (uint64_t i = 0; i < N; i++) {
				long double left = ft_load(problem.dtype, &arrays->x, row * STRIDE + i) - sum;
				double want = (double)(left / sqrtl(squares / N + 1e-5L) *
				                (long double)ft_load(problem.weight, &arrays->weight, i) +
				        (long double)ft_load(problem.weight, biases, i));

				assert_true(fabs(out[row * N + i] - want) <= 1e-10);
			}
		}
	}
	free(arrays);
}

static void the_rounded_reference_passes_its_own_comparison_in_place_too(void **state)
{
	struct arrays *arrays = malloc(sizeof *arrays);

	(void)state;
	assert_non_null(arrays);
	for (size_t j = 0; j < sizeof pairs / sizeof pairs[0]; j++) {
		struct ft_rows problem = {
		        .m = 40, .n = 1000, .row_stride = 1003, .dtype = pairs[j][0], .weight = pairs[j][1]};
		struct ft_worst worst = {.error = 0};
		struct ft_error error = {.code = ""};

		fill(arrays, problem);
		rmsnorm_reference_store(&problem, &arrays->x, &arrays->weight, &arrays->y);
		rmsnorm_compare_rows(&problem, &arrays->x, &arrays->weight, &arrays->y, 0, problem.m, &worst);
		assert_int_equal(rmsnorm_worst_check(&worst, problem.dtype, &error), 0);
		assert_true(worst.error > 0);
		rmsnorm_reference_store(&problem, &arrays->x, &arrays->weight, &arrays->x);
		size_t bytes = problem.m * problem.row_stride * ft_dtype_size(problem.dtype);

		assert_memory_equal(&arrays->x, &arrays->y, bytes);
	}
	free(arrays);
}

/* ---- the comparison ---- */

/* One row of one element, x = 1 and weight such that the exact result is about `want`: the error of `got`. */
static double error_of(enum ft_dtype dtype, double want, double got, struct ft_worst *worst)
{
	struct ft_rows problem = {.m = 1, .n = 1, .row_stride = 1, .dtype = dtype, .weight = FT_F32};
	float x32 = 1, y32 = 0, weight = (float)(want * sqrt(1 + 1e-5));
	uint16_t x16 = 0, y16 = 0;
	bool wide = dtype == FT_F32;

	ft_store(dtype, wide ? (void *)&x32 : (void *)&x16, 0, 1);
	ft_store(dtype, wide ? (void *)&y32 : (void *)&y16, 0, got);
	*worst = (struct ft_worst){.error = 0};
	rmsnorm_compare_rows(&problem, wide ? (void *)&x32 : (void *)&x16, &weight,
	        wide ? (void *)&y32 : (void *)&y16, 0, 1, worst);
	return worst->error;
}

static void bounds_are_half_a_step_at_one(void **state)
{
	struct ft_worst worst;

	(void)state;
	assert_true(ft_dtype_error(FT_BF16) == 0x1p-8 + 1e-6);
	assert_true(ft_dtype_error(FT_F16) == 0x1p-11 + 1e-6);
	assert_true(ft_dtype_error(FT_F32) == 1e-6);
	/* f32 arithmetic went over the lowest tie of a binade: still right. A step further: wrong. */
	assert_true(error_of(FT_F16, 1 + 0x1p-11 - 0x1p-22, 1 + 0x1p-10, &worst) <= 0x1p-11);
	assert_true(error_of(FT_F16, 1 + 0x1p-11, 1 + 0x1p-9, &worst) > 0x1p-11);
	assert_true(error_of(FT_BF16, 1 + 0x1p-8 - 0x1p-20, 1 + 0x1p-7, &worst) <= 0x1p-8);
	/* Truncated instead of rounded. */
	assert_true(error_of(FT_BF16, 1 + 0x1.8p-8, 1, &worst) > 0x1p-8);
	assert_true(error_of(FT_F16, 1 + 0x1.8p-11, 1, &worst) > 0x1p-11);
	assert_true(error_of(FT_F32, 1, 1 + 2e-6, &worst) > 1e-6);
	assert_true(error_of(FT_F32, 1, 1 + 5e-7, &worst) <= 1e-6);
}

static void subnormal_results_are_held_to_half_their_step(void **state)
{
	struct ft_worst worst;

	(void)state;
	/* The smallest subnormal of f16 is 2^-24. */
	assert_true(error_of(FT_F16, 0x1.8p-25, 0x1p-24, &worst) <= 0x1p-11);
	assert_true(error_of(FT_F16, 0x1.8p-26, 0, &worst) <= 0x1p-11);
	assert_true(error_of(FT_F16, 0x1p-24, 0, &worst) > 0x1p-11);
	assert_true(error_of(FT_F16, 0x1.8p-24, 0x1.8p-23, &worst) > 0x1p-11);
	/* Flushed to zero. */
	assert_true(error_of(FT_F16, 0x1p-15, 0, &worst) > 0x1p-11);
}

static void infinities_and_nan_are_judged_and_never_overlooked(void **state)
{
	static const enum ft_dtype all[] = {FT_F32, FT_F16, FT_BF16};
	struct ft_worst worst;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		double bound = ft_dtype_error(all[i]);

		assert_true(error_of(all[i], 1, NAN, &worst) > bound);
		assert_true(error_of(all[i], 1, HUGE_VAL, &worst) > bound);
		assert_true(error_of(all[i], -1, -HUGE_VAL, &worst) > bound);
		assert_true(error_of(all[i], 0, HUGE_VAL, &worst) > bound);
		assert_true(error_of(all[i], 0, NAN, &worst) > bound);
		assert_true(error_of(all[i], NAN, NAN, &worst) == 0);
		assert_true(error_of(all[i], NAN, 1, &worst) > bound);
		assert_true(error_of(all[i], HUGE_VAL, HUGE_VAL, &worst) == 0);
		assert_true(error_of(all[i], HUGE_VAL, -HUGE_VAL, &worst) > bound);
		assert_true(error_of(all[i], HUGE_VAL, 1, &worst) > bound);
	}
	/* Just over the largest f16 number, either answer is half a step away; far over, only infinity is
	 * right. */
	assert_true(error_of(FT_F16, 65519, HUGE_VAL, &worst) <= 0x1p-11);
	assert_true(error_of(FT_F16, 65521, 65504, &worst) <= 0x1p-11);
	assert_true(error_of(FT_F16, 1e6, HUGE_VAL, &worst) == 0);
	assert_true(error_of(FT_F16, 1e6, 65504, &worst) > 0x1p-11);
	assert_true(error_of(FT_F16, 60000, HUGE_VAL, &worst) > 0x1p-11);
}

/* A lone wrong element after a right but inexact one: the quick test must not pass it over. */
static void one_wrong_element_is_found_and_named(void **state)
{
	static const double wrong[] = {NAN, HUGE_VAL, -HUGE_VAL, 0, 100};
	static const uint64_t places[][2] = {{0, 0}, {7, 0}, {12, 500}, {39, 999}};
	struct arrays *arrays = malloc(sizeof *arrays);

	(void)state;
	assert_non_null(arrays);
	for (size_t j = 0; j < sizeof pairs / sizeof pairs[0]; j++) {
		struct ft_rows problem = {
		        .m = 40, .n = 1000, .row_stride = 1003, .dtype = pairs[j][0], .weight = pairs[j][1]};

		fill(arrays, problem);
		rmsnorm_reference_store(&problem, &arrays->x, &arrays->weight, &arrays->y);
		for (size_t k = 0; k < 20; k++) {
			uint64_t row = places[k / 5][0], column = places[k / 5][1];
			uint64_t at = row * problem.row_stride + column;
			double right = ft_load(problem.dtype, &arrays->y, at);
			struct ft_worst worst = {.error = 0};
			struct ft_error error = {.code = ""};
			char where[64];

			ft_store(problem.dtype, &arrays->y, at, wrong[k % 5]);
			rmsnorm_compare_rows(
			        &problem, &arrays->x, &arrays->weight, &arrays->y, 0, problem.m, &worst);
			assert_int_equal(worst.row, row);
			assert_int_equal(worst.column, column);
			assert_int_equal(rmsnorm_worst_check(&worst, problem.dtype, &error), -1);
			snprintf(where, sizeof where, "row %d, column %d ", (int)row, (int)column);
			assert_non_null(strstr(error.message, where));
			ft_store(problem.dtype, &arrays->y, at, right);
		}
	}
	free(arrays);
}

static void parts_compared_apart_come_to_the_same_worst(void **state)
{
	struct arrays *arrays = malloc(sizeof *arrays);
	struct ft_rows problem = {
	        .m = 40, .n = 1000, .row_stride = 1003, .dtype = FT_BF16, .weight = FT_BF16};
	struct ft_worst all = {.error = 0}, joined = {.error = 0};

	(void)state;
	assert_non_null(arrays);
	fill(arrays, problem);
	rmsnorm_reference_store(&problem, &arrays->x, &arrays->weight, &arrays->y);
	rmsnorm_compare_rows(&problem, &arrays->x, &arrays->weight, &arrays->y, 0, problem.m, &all);
	for (uint64_t part = 4; part-- > 0;) {
		struct ft_worst worst = {.error = 0};

		rmsnorm_compare_rows(
		        &problem, &arrays->x, &arrays->weight, &arrays->y, part * 10, 10, &worst);
		ft_worst_merge(&joined, &worst);
	}
	assert_memory_equal(&all, &joined, sizeof all);
	/* Of equal errors the first element stays, whichever part came in first. */
	struct ft_worst a = {.error = 1, .row = 3, .column = 4}, b = {.error = 1, .row = 3, .column = 2};
	struct ft_worst c = {.error = 1, .row = 3, .column = 9};

	ft_worst_merge(&a, &b);
	assert_int_equal(a.column, 2);
	ft_worst_merge(&a, &c);
	assert_int_equal(a.column, 2);
	free(arrays);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_pattern_means_what_the_format_says),
	        cmocka_unit_test(every_pattern_survives_the_way_there_and_back),
	        cmocka_unit_test(rounding_is_to_nearest_even_everywhere),
	        cmocka_unit_test(the_ends_of_float64_narrow_to_zero_and_infinity),
	        cmocka_unit_test(the_reference_is_the_formula_for_all_types_strides_and_parts),
	        cmocka_unit_test(layernorms_reference_is_the_formula),
	        cmocka_unit_test(the_rounded_reference_passes_its_own_comparison_in_place_too),
	        cmocka_unit_test(bounds_are_half_a_step_at_one),
	        cmocka_unit_test(subnormal_results_are_held_to_half_their_step),
	        cmocka_unit_test(infinities_and_nan_are_judged_and_never_overlooked),
	        cmocka_unit_test(one_wrong_element_is_found_and_named),
	        cmocka_unit_test(parts_compared_apart_come_to_the_same_worst),
	};

	return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
