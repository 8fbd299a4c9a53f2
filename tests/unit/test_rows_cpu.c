/* Kernels over rows on the CPU: every instruction set that this machine has, against the float64 reference. */
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/compare.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rows/launch_cpu.h"

enum { GUARD = 256, POISON = 0xff, THREADS = 3 };

static struct ft_pool *pool;

extern const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm, ft_kernel_cpu_layernorm;

static const struct kernel {
	const struct ft_kernel_cpu *code;
	const struct ft_rows_kernel *rows;
} kernels[] = {{&ft_kernel_cpu_rmsnorm, &rmsnorm_rows}, {&ft_kernel_cpu_layernorm, &layernorm_rows}};
enum { KERNELS = sizeof(kernels) / sizeof(kernels[0]) };

/* Of the kernel that is tested. */
static const struct kernel *kernel;
static const struct ft_rows_cpu *on_cpu;
static const struct ft_rows_loops *sets[FT_ISAS];
static size_t set_count;

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15U;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

struct arrays {
	struct ft_rows problem;
	size_t data; /* bytes from the first element to the last */
	char *in, *out;
	char *weight[FT_TENSORS_MAX];
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
static struct arrays arrays_new(const struct ft_rows *problem, size_t skew)
{
	struct arrays arrays = {.problem = *problem};
	size_t size = ft_dtype_size(problem->dtype);
	arrays.data = ((problem->m - 1) * problem->row_stride + problem->n) * size;
	size_t whole = (arrays.data + skew * size + (size_t)2 * GUARD + 63) / 64 * 64;
	size_t weights = (problem->n * ft_dtype_size(problem->weight) + 63) / 64 * 64;
	arrays.in = aligned_alloc(64, whole);
	arrays.out = aligned_alloc(64, whole);
	assert_non_null(arrays.in);
	assert_non_null(arrays.out);
	memset(arrays.in, POISON, whole);
	memset(arrays.out, POISON, whole);
	arrays.in += GUARD + skew * size;
	arrays.out += GUARD + skew * size;
	for (size_t w = 0; w < kernel->rows->weights; w++) {
		arrays.weight[w] = aligned_alloc(64, weights);
		assert_non_null(arrays.weight[w]);
		for (size_t i = 0; i < problem->n; i++)
			ft_store(problem->weight, arrays.weight[w], i,
			        (double)(mix(i + w * problem->n) % 4001) / 1000 - 2);
	}
	for (size_t row = 0; row < problem->m; row++) {
		double factor = row % 4 == 1 ? (problem->dtype == FT_F16 ? 0x1p13 : 1e12)
		        : row % 4 == 2       ? (problem->dtype == FT_F16 ? 0x1p-20 : 1e-15)
		                             : 1;
		/* far from 0 beside its spread */
		double mean = row % 4 == 3 ? 1000 : 0;
		for (size_t i = 0; i < problem->n; i++)
			ft_store(problem->dtype, arrays.in, row * problem->row_stride + i,
			        mean + ((double)(mix(row * 7919 + i) % 4001) / 1000 - 2) * factor);
	}
	return arrays;
}

static void arrays_free(struct arrays *arrays, size_t skew)
{
	free(arrays->in - GUARD - skew * element(arrays));
	free(arrays->out - GUARD - skew * element(arrays));
	for (size_t w = 0; w < kernel->rows->weights; w++)
		free(arrays->weight[w]);
}

static void run(const struct arrays *arrays, const struct ft_rows_loops *set, const struct ft_config *config,
        char *out)
{
	struct ft_rows_plan plan;
	void *data[FT_TENSORS_MAX] = {
	        [FT_ROWS_OUTPUT] = out, [FT_ROWS_INPUT] = out == arrays->out ? arrays->in : out};
	memcpy(data + FT_ROWS_WEIGHT, arrays->weight, kernel->rows->weights * sizeof(*data));
	ft_rows_resolve_with(on_cpu, set, &arrays->problem, config, THREADS, &plan);
	ft_rows_run(pool, &plan, data, arrays->problem.m);
}

static void fail_with(const struct arrays *arrays, const struct ft_rows_loops *set,
        const struct ft_config *config, const char *what)
{
	char text[FT_CONFIG_TEXT_SIZE];
	ft_config_format(config, ' ', text, sizeof(text));
	fail_msg("%s %s m=%llu n=%llu stride=%llu %s/%s %s: %s", kernel->code->name, ft_isa_name(set->isa),
	        (unsigned long long)arrays->problem.m, (unsigned long long)arrays->problem.n,
	        (unsigned long long)arrays->problem.row_stride, ft_dtype_name(arrays->problem.dtype),
	        ft_dtype_name(arrays->problem.weight), text, what);
}

static void check(
        const struct arrays *arrays, const struct ft_rows_loops *set, const struct ft_config *config)
{
	const struct ft_rows *problem = &arrays->problem;
	struct ft_worst worst = {0};
	struct ft_error error = {0};
	size_t size = element(arrays);
	struct ft_tensors tensors;
	const void *data[FT_TENSORS_MAX] = {[FT_ROWS_OUTPUT] = arrays->out, [FT_ROWS_INPUT] = arrays->in};
	memcpy(data + FT_ROWS_WEIGHT, arrays->weight, kernel->rows->weights * sizeof(*data));
	ft_rows_tensors(kernel->rows, problem, &tensors);
	ft_compare_rows(kernel->code->reference, &tensors, data, 0, problem->m, &worst);
	if (ft_worst_check(&worst, &tensors.tensor[FT_ROWS_OUTPUT], &error) < 0)
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
				struct ft_rows problem = {.m = 4,
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
			struct ft_rows problem = {.m = shapes[shape].m,
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
		struct ft_rows problem = {.m = 1,
		        .n = FT_ROWS_N_MAX,
		        .row_stride = FT_ROWS_N_MAX,
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

/* All alike, or alike but for a little: where a mean of squares less the square of a mean has nothing left. */
static void rows_far_from_0_beside_their_spread_are_right(void **state)
{
	enum { ROWS = 6 };
	static const double mean[ROWS] = {1000, -1000, 3, 20000, -30000, 0.1};
	static const double spread[ROWS] = {0, 0, 0, 2, 50, 0};
	static const size_t lengths[] = {1, 40, 4096, 10000};
	(void)state;
	for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
		for (size_t t = 0; t < TYPES; t++) {
			struct ft_rows problem = {.m = ROWS,
			        .n = lengths[l],
			        .row_stride = lengths[l],
			        .dtype = types[t].dtype,
			        .weight = types[t].weight};
			struct arrays arrays = arrays_new(&problem, 0);
			for (size_t row = 0; row < ROWS; row++)
				for (size_t i = 0; i < problem.n; i++)
					ft_store(problem.dtype, arrays.in, row * problem.n + i,
					        mean[row] +
					                spread[row] * ((double)(mix(i) % 1000) / 500 - 1));
			for (size_t s = 0; s < set_count; s++) {
				for (int64_t split = 0; split < 2; split++) {
					struct ft_config config =
					        config_of((const int64_t[]){0, 1, 8, 0, 0, split});
					poison(&arrays);
					run(&arrays, sets[s], &config, arrays.out);
					check(&arrays, sets[s], &config);
				}
			}
			arrays_free(&arrays, 0);
		}
	}
}

static void in_place_gives_the_same_bits(void **state)
{
	(void)state;
	for (size_t t = 0; t < TYPES; t++) {
		struct ft_rows problem = {.m = 9,
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
		struct ft_rows problem = {.m = 1, .n = N, .row_stride = N, .dtype = dtype, .weight = dtype};
		struct arrays arrays = arrays_new(&problem, 0);
		double squares = 0;
		for (size_t i = 0; i < N; i++) {
			double value = i % 3 == 0 ? 1 : i % 3 == 1 ? -0.5 : 2;
			uint16_t bits = (uint16_t)i;
			memcpy(arrays.weight[0] + 2 * i, &bits, 2);
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
					float want = x * scale * (float)ft_load(dtype, arrays.weight[0], i);
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
		struct ft_rows problem = {.m = 2,
		        .n = 200,
		        .row_stride = 200,
		        .dtype = types[t].dtype,
		        .weight = types[t].weight};
		struct arrays arrays = arrays_new(&problem, 0);
		ft_store(problem.dtype, arrays.in, 3, (double)NAN);
		for (size_t i = 0; problem.weight == FT_F32 && i < 5; i++)
			memcpy(arrays.weight[0] + 4 * (20 + i), &nans[i], 4);
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
	struct ft_rows one = {.m = 1, .n = 40, .row_stride = 40};
	struct ft_rows many = {.m = 100, .n = 4096, .row_stride = 4096};
	struct ft_config config = config_of((const int64_t[]){0, 64, 8, 0, 1, 0});
	struct ft_rows_plan plan;
	(void)state;
	ft_rows_resolve_with(on_cpu, sets[0], &one, &config, 8, &plan);
	assert_int_equal(plan.threads, 1);
	assert_int_equal(plan.rows, 1);
	assert_false(plan.next_input);
	assert_true(((uint64_t)sets[0]->lanes * 2 << plan.unroll) <= 40 || plan.unroll == 0);
	ft_rows_resolve_with(on_cpu, sets[0], &many, &config, 8, &plan);
	assert_int_equal(plan.threads, 2);
	assert_int_equal(plan.rows, 64);
	assert_true(plan.next_input);
	assert_true(plan.own_output);
	config = config_of((const int64_t[]){1, 8, 8, 0, 0, 1});
	ft_rows_resolve_with(on_cpu, sets[0], &many, &config, 8, &plan);
	assert_false(plan.split);
	assert_int_equal(plan.rows, 100);
	/* More threads than can meet at a row take rows: the plan says what is done. */
	config = config_of((const int64_t[]){0, 1, 8, 0, 0, 1});
	ft_rows_resolve_with(on_cpu, sets[0], &many, &config, 512, &plan);
	assert_true(plan.split);
	assert_int_equal(plan.threads, 512);
	ft_rows_resolve_with(on_cpu, sets[0], &many, &config, 513, &plan);
	assert_false(plan.split);
	assert_int_equal(plan.threads, 100);
	assert_int_equal(plan.rows, 1);
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

/* The kernel that `kernel` points at, and the loops of all sets that this machine has. */
static int start(void **state)
{
	const struct ft_config config = config_of((const int64_t[]){1, 1, 2, 0, 0, 0});
	struct ft_problem problem = {0};
	struct ft_rows_plan plan;
	enum ft_isa isa[FT_ISAS];
	(void)state;
	ft_problem_set_number(&problem, "m", 1, NULL);
	ft_problem_set_number(&problem, "n", 1, NULL);
	kernel->code->resolve(kernel->code, &problem, &config, &(struct ft_traits){.units = 1}, &plan);
	on_cpu = plan.kernel;
	set_count = ft_isa_usable(isa);
	for (size_t i = 0; i < set_count; i++)
		sets[i] = on_cpu->loops[isa[i]];
	pool = ft_pool_new(THREADS, NULL);
	return pool && plan.loops == sets[0] ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	ft_pool_free(pool);
	return 0;
}

int main(void)
{
	const struct CMUnitTest of_each[] = {
	        cmocka_unit_test(every_length_alignment_and_type_is_right_on_one_thread),
	        cmocka_unit_test(every_way_to_share_work_among_threads_is_right),
	        cmocka_unit_test(a_row_of_a_million_elements_is_as_exact_as_a_short_one),
	        cmocka_unit_test(rows_far_from_0_beside_their_spread_are_right),
	        cmocka_unit_test(in_place_gives_the_same_bits),
	        cmocka_unit_test(a_nan_in_a_row_or_an_f32_weight_stays_one),
	        cmocka_unit_test(a_config_is_clipped_to_what_has_an_effect),
	};
	const struct CMUnitTest of_one[] = {
	        cmocka_unit_test(every_weight_and_rounding_has_the_bits_of_one_rounding),
	        cmocka_unit_test(every_worker_of_the_pool_runs_once_a_run),
	};
	int failed = 0;
	for (kernel = kernels; kernel < kernels + KERNELS; kernel++)
		failed += cmocka_run_group_tests_name(kernel->code->name, of_each, start, stop);
	kernel = kernels;
	return failed + cmocka_run_group_tests_name("bits and threads", of_one, start, stop);
}
