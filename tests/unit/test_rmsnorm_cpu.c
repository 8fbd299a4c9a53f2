/* The CPU's rmsnorm: every instruction set that this machine has, against the float64 reference. */
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rmsnorm/rmsnorm_cpu.h"
#include "tests/reference.h"

enum { GUARD = 256, POISON = 0xff, THREADS = 3 };

static struct ft_pool *pool;

static const struct ft_rmsnorm_cpu_rows *sets[FT_ISAS];
static size_t set_count;

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

struct arrays {
	struct rmsnorm_problem problem;
	size_t data; /* bytes from the first element to the last */
	char *in, *out, *weight;
};

static size_t element(const struct arrays *arrays)
{
	return ft_dtype_size(arrays->problem.dtype);
}

static void poison(struct arrays *arrays)
{
	memset(arrays->out - GUARD, POISON, arrays->data + (size_t)2 * GUARD);
}

/* `skew` elements past the alignment of a cache line. */
static struct arrays arrays_new(const struct rmsnorm_problem *problem, size_t skew)
{
	struct arrays arrays = {.problem = *problem};
	size_t size = ft_dtype_size(problem->dtype);
	arrays.data = ((problem->m - 1) * problem->row_stride + problem->n) * size;
	size_t whole = (arrays.data + skew * size + (size_t)2 * GUARD + 63) / 64 * 64;
	size_t weights = (problem->n * ft_dtype_size(problem->weight) + 63) / 64 * 64;
	arrays.in = aligned_alloc(64, whole);
	arrays.out = aligned_alloc(64, whole);
	arrays.weight = aligned_alloc(64, weights);
	assert_non_null(arrays.in);
	assert_non_null(arrays.out);
	assert_non_null(arrays.weight);
	memset(arrays.in, POISON, whole);
	memset(arrays.out, POISON, whole);
	arrays.in += GUARD + skew * size;
	arrays.out += GUARD + skew * size;
	for (size_t i = 0; i < problem->n; i++)
		ft_store(problem->weight, arrays.weight, i, (double)(mix(i) % 4001) / 1000 - 2);
	for (size_t row = 0; row < problem->m; row++) {
		double factor = row % 4 == 1 ? (problem->dtype == FT_F16 ? 0x1p13 : 1e12)
		        : row % 4 == 2       ? (problem->dtype == FT_F16 ? 0x1p-20 : 1e-15)
		                             : 1;
		for (size_t i = 0; i < problem->n; i++)
			ft_store(problem->dtype, arrays.in, row * problem->row_stride + i,
			        ((double)(mix(row * 7919 + i) % 4001) / 1000 - 2) * factor);
	}
	return arrays;
}

static void arrays_free(struct arrays *arrays, size_t skew)
{
	free(arrays->in - GUARD - skew * element(arrays));
	free(arrays->out - GUARD - skew * element(arrays));
	free(arrays->weight);
}

static void run(const struct arrays *arrays, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_config *config, char *out)
{
	struct ft_rmsnorm_cpu_plan plan;
	const struct ft_rmsnorm_cpu_call call = {
	        .in = out == arrays->out ? arrays->in : out,
	        .out = out,
	        .weight = arrays->weight,
	        .m = arrays->problem.m,
	        .n = arrays->problem.n,
	        .stride = arrays->problem.row_stride,
	        .eps = (float)RMSNORM_EPS,
	};
	ft_rmsnorm_cpu_resolve(set, &arrays->problem, config, THREADS, &plan);
	ft_rmsnorm_cpu_run(pool, set, &plan, &call);
}

static void fail_with(const struct arrays *arrays, const struct ft_rmsnorm_cpu_rows *set,
        const struct ft_config *config, const char *what)
{
	char text[FT_CONFIG_TEXT_SIZE];
	ft_config_format(config, ' ', text, sizeof(text));
	fail_msg("%s m=%llu n=%llu stride=%llu %s/%s %s: %s", ft_isa_name(set->isa),
	        (unsigned long long)arrays->problem.m, (unsigned long long)arrays->problem.n,
	        (unsigned long long)arrays->problem.row_stride, ft_dtype_name(arrays->problem.dtype),
	        ft_dtype_name(arrays->problem.weight), text, what);
}

static void check(
        const struct arrays *arrays, const struct ft_rmsnorm_cpu_rows *set, const struct ft_config *config)
{
	const struct rmsnorm_problem *problem = &arrays->problem;
	struct ft_worst worst = {0};
	struct ft_error error = {0};
	size_t size = element(arrays);
	rmsnorm_compare_rows(problem, arrays->in, arrays->weight, arrays->out, 0, problem->m, &worst);
	if (rmsnorm_worst_check(&worst, problem->dtype, &error) < 0)
		fail_with(arrays, set, config, error.message);
	for (size_t i = 0; i < GUARD; i++) {
		if ((unsigned char)arrays->out[-1 - (ptrdiff_t)i] != POISON ||
		        (unsigned char)arrays->out[arrays->data + i] != POISON)
			fail_with(arrays, set, config, "wrote outside of the rows");
	}
	for (size_t row = 0; row + 1 < problem->m; row++) {
		for (size_t i = problem->n * size; i < problem->row_stride * size; i++) {
			if ((unsigned char)arrays->out[row * problem->row_stride * size + i] != POISON)
				fail_with(arrays, set, config, "wrote between the rows");
		}
	}
}

static struct ft_config config_of(const int64_t value[6])
{
	static const char *const name[] = {"threads", "rows", "unroll", "stream", "prefetch", "split"};
	struct ft_config config = {0};
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(ft_config_set(&config, name[i], value[i], NULL), 0);
	return config;
}

static const struct {
	enum ft_dtype dtype, weight;
} types[] = {{FT_F32, FT_F32}, {FT_F16, FT_F16}, {FT_F16, FT_F32}, {FT_BF16, FT_BF16}, {FT_BF16, FT_F32}};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

/* Every loop of the row kernels, whole steps, single pairs and parts, at any alignment. */
static void every_length_alignment_and_type_is_right_on_one_thread(void **state)
{
	static const size_t lengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
	        255, 257, 1000, 4096, 4099, 8192, 8225};
	(void)state;
	for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
		for (size_t t = 0; t < TYPES; t++) {
			for (size_t skew = 0; skew < 4; skew += 3) {
				struct rmsnorm_problem problem = {.m = 4,
				        .n = lengths[l],
				        .row_stride = lengths[l] + skew,
				        .dtype = types[t].dtype,
				        .weight = types[t].weight};
				struct arrays arrays = arrays_new(&problem, skew);
				for (size_t s = 0; s < set_count; s++) {
					for (int64_t unroll = 2; unroll <= 8; unroll *= 2) {
						for (int64_t mode = 0; mode < 4; mode++) {
							struct ft_config config = config_of((const int64_t[]){
							        1, 1, unroll, mode & 1, mode >> 1, 0});
							poison(&arrays);
							run(&arrays, sets[s], &config, arrays.out);
							check(&arrays, sets[s], &config);
						}
					}
				}
				arrays_free(&arrays, skew);
			}
		}
	}
}

static void every_way_to_share_work_among_threads_is_right(void **state)
{
	static const struct {
		size_t m, n;
	} shapes[] = {{1, 4096}, {2, 1537}, {7, 33}, {40, 129}, {130, 64}};
	(void)state;
	for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
		for (size_t t = 0; t < TYPES; t++) {
			struct rmsnorm_problem problem = {.m = shapes[shape].m,
			        .n = shapes[shape].n,
			        .row_stride = shapes[shape].n + 5,
			        .dtype = types[t].dtype,
			        .weight = types[t].weight};
			struct arrays arrays = arrays_new(&problem, 0);
			for (int64_t threads = 0; threads <= 2; threads += 2) {
				for (int64_t rows = 1; rows <= 64; rows *= 8) {
					for (int64_t mode = 0; mode < 8; mode++) {
						struct ft_config config = config_of((const int64_t[]){threads,
						        rows, 8, mode & 1, mode >> 1 & 1, mode >> 2});
						poison(&arrays);
						run(&arrays, sets[0], &config, arrays.out);
						check(&arrays, sets[0], &config);
					}
				}
			}
			arrays_free(&arrays, 0);
		}
	}
}

static void a_row_of_a_million_elements_is_as_exact_as_a_short_one(void **state)
{
	(void)state;
	for (size_t t = 0; t < TYPES; t++) {
		struct rmsnorm_problem problem = {.m = 1,
		        .n = RMSNORM_N_MAX,
		        .row_stride = RMSNORM_N_MAX,
		        .dtype = types[t].dtype,
		        .weight = types[t].weight};
		struct arrays arrays = arrays_new(&problem, 0);
		for (size_t s = 0; s < set_count; s++) {
			for (int64_t split = 0; split < 2; split++) {
				struct ft_config config = config_of((const int64_t[]){0, 1, 2, 1, 1, split});
				poison(&arrays);
				run(&arrays, sets[s], &config, arrays.out);
				check(&arrays, sets[s], &config);
			}
		}
		arrays_free(&arrays, 0);
	}
}

static void in_place_gives_the_same_bits(void **state)
{
	(void)state;
	for (size_t t = 0; t < TYPES; t++) {
		struct rmsnorm_problem problem = {.m = 9,
		        .n = 2051,
		        .row_stride = 2060,
		        .dtype = types[t].dtype,
		        .weight = types[t].weight};
		struct arrays arrays = arrays_new(&problem, 0);
		char *copy = malloc(arrays.data);
		assert_non_null(copy);
		for (size_t s = 0; s < set_count; s++) {
			for (int64_t mode = 0; mode < 8; mode++) {
				struct ft_config config = config_of(
				        (const int64_t[]){0, 1, 4, mode & 1, mode >> 1 & 1, mode >> 2});
				poison(&arrays);
				run(&arrays, sets[s], &config, arrays.out);
				memcpy(copy, arrays.in, arrays.data);
				run(&arrays, sets[s], &config, copy);
				for (size_t row = 0; row < problem.m; row++) {
					size_t offset = row * problem.row_stride * element(&arrays);
					assert_memory_equal(copy + offset, arrays.out + offset,
					        problem.n * element(&arrays));
				}
			}
		}
		free(copy);
		arrays_free(&arrays, 0);
	}
}

/* Squares that are powers of two add up exactly in any order, so that the scale is known, and with it every
 * bit. The weights go through all that there are. */
static void every_weight_and_rounding_has_the_bits_of_one_rounding(void **state)
{
	enum { N = 65536 };
	(void)state;
	for (int narrow = 0; narrow < 2; narrow++) {
		const enum ft_dtype dtype = narrow ? FT_BF16 : FT_F16;
		struct rmsnorm_problem problem = {
		        .m = 1, .n = N, .row_stride = N, .dtype = dtype, .weight = dtype};
		struct arrays arrays = arrays_new(&problem, 0);
		double squares = 0;
		for (size_t i = 0; i < N; i++) {
			double value = i % 3 == 0 ? 1 : i % 3 == 1 ? -0.5 : 2;
			uint16_t bits = (uint16_t)i;
			memcpy(arrays.weight + 2 * i, &bits, 2);
			ft_store(dtype, arrays.in, i, value);
			squares += value * value;
		}
		float scale = (float)(1 / sqrt(squares / N + (double)(float)RMSNORM_EPS));
		for (size_t s = 0; s < set_count; s++) {
			for (int64_t stream = 0; stream < 2; stream++) {
				struct ft_config config = config_of((const int64_t[]){1, 1, 8, stream, 0, 0});
				poison(&arrays);
				run(&arrays, sets[s], &config, arrays.out);
				for (size_t i = 0; i < N; i++) {
					float x = (float)ft_load(dtype, arrays.in, i);
					float want = x * scale * (float)ft_load(dtype, arrays.weight, i);
					uint16_t bits = dtype == FT_F16 ? ft_to_f16((double)want)
					                                : ft_to_bf16((double)want);
					uint16_t got;
					memcpy(&got, arrays.out + 2 * i, 2);
					if (isnan(want) ? !isnan(ft_load(dtype, arrays.out, i)) : got != bits)
						fail_msg("%s %s weight %zx: %x, not %x",
						        ft_isa_name(sets[s]->isa), ft_dtype_name(dtype), i,
						        got, bits);
				}
			}
		}
		arrays_free(&arrays, 0);
	}
}

static void a_nan_in_a_row_or_an_f32_weight_stays_one(void **state)
{
	static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff, 0x7f800001};
	(void)state;
	for (size_t t = 0; t < TYPES; t++) {
		struct rmsnorm_problem problem = {.m = 2,
		        .n = 200,
		        .row_stride = 200,
		        .dtype = types[t].dtype,
		        .weight = types[t].weight};
		struct arrays arrays = arrays_new(&problem, 0);
		ft_store(problem.dtype, arrays.in, 3, (double)NAN);
		for (size_t i = 0; problem.weight == FT_F32 && i < 5; i++)
			memcpy(arrays.weight + 4 * (20 + i), &nans[i], 4);
		for (size_t s = 0; s < set_count; s++) {
			struct ft_config config = config_of((const int64_t[]){1, 1, 2, 0, 0, 0});
			poison(&arrays);
			run(&arrays, sets[s], &config, arrays.out);
			for (size_t i = 0; i < problem.n; i++) {
				bool wants = problem.weight == FT_F32 && i >= 20 && i < 25;
				assert_true(isnan(ft_load(problem.dtype, arrays.out, i)));
				assert_int_equal(
				        isnan(ft_load(problem.dtype, arrays.out, problem.n + i)) != 0, wants);
			}
		}
		arrays_free(&arrays, 0);
	}
}

static void a_config_is_clipped_to_what_has_an_effect(void **state)
{
	struct rmsnorm_problem one = {.m = 1, .n = 40, .row_stride = 40};
	struct rmsnorm_problem many = {.m = 100, .n = 4096, .row_stride = 4096};
	struct ft_config config = config_of((const int64_t[]){0, 64, 8, 0, 1, 0});
	struct ft_rmsnorm_cpu_plan plan;
	(void)state;
	ft_rmsnorm_cpu_resolve(sets[0], &one, &config, 8, &plan);
	assert_int_equal(plan.threads, 1);
	assert_int_equal(plan.rows, 1);
	assert_false(plan.next_input);
	assert_true(((uint64_t)sets[0]->lanes * 2 << plan.unroll) <= 40 || plan.unroll == 0);
	ft_rmsnorm_cpu_resolve(sets[0], &many, &config, 8, &plan);
	assert_int_equal(plan.threads, 2);
	assert_int_equal(plan.rows, 64);
	assert_true(plan.next_input);
	assert_true(plan.own_output);
	config = config_of((const int64_t[]){1, 8, 8, 0, 0, 1});
	ft_rmsnorm_cpu_resolve(sets[0], &many, &config, 8, &plan);
	assert_false(plan.split);
	assert_int_equal(plan.rows, 100);
}

struct count {
	_Atomic uint32_t worker[THREADS];
};

static void count_worker(void *context, uint32_t worker)
{
	struct count *count = context;
	count->worker[worker]++;
}

static void every_worker_of_the_pool_runs_once_a_run(void **state)
{
	enum { RUNS = 2000 };
	struct count count = {0};
	(void)state;
	for (uint32_t i = 0; i < RUNS; i++)
		ft_pool_run(pool, 1 + i % THREADS, count_worker, &count);
	assert_int_equal(count.worker[0], RUNS);
	for (uint32_t i = 1; i < THREADS; i++)
		assert_int_equal(count.worker[i], RUNS / THREADS * (THREADS - i) + (RUNS % THREADS > i));
}

static int start(void **state)
{
	(void)state;
	pool = ft_pool_new(THREADS, NULL);
	set_count = ft_rmsnorm_cpu_sets(sets);
	return pool && set_count > 0 ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	ft_pool_free(pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_length_alignment_and_type_is_right_on_one_thread),
	        cmocka_unit_test(every_way_to_share_work_among_threads_is_right),
	        cmocka_unit_test(a_row_of_a_million_elements_is_as_exact_as_a_short_one),
	        cmocka_unit_test(in_place_gives_the_same_bits),
	        cmocka_unit_test(every_weight_and_rounding_has_the_bits_of_one_rounding),
	        cmocka_unit_test(a_nan_in_a_row_or_an_f32_weight_stays_one),
	        cmocka_unit_test(a_config_is_clipped_to_what_has_an_effect),
	        cmocka_unit_test(every_worker_of_the_pool_runs_once_a_run),
	};
	return cmocka_run_group_tests(tests, start, stop);
}
