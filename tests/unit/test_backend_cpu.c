/* The CPU backend from inside: kernels that are wrong in one way each must not pass, and sweeps end well. */
#include "tests/unit/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/runner/cpu/internal.h"
#include "kernels/runner/sweep.h"

extern const struct ft_kernel_cpu ft_kernel_cpu_rmsnorm;
static struct ft_kernel_cpu kernel; /* as it is, or with a launch that is wrong */
const struct ft_kernel_cpu *const ft_kernels_cpu[] = {&kernel, NULL};

static struct ft_problem problem_of(int64_t m, int64_t n, const char *dtype, int64_t stride)
{
	struct ft_problem given = {0};
	struct ft_problem whole;
	struct ft_error error = {0};
	ft_problem_set_number(&given, "m", m, NULL);
	ft_problem_set_number(&given, "n", n, NULL);
	ft_problem_set_text(&given, "dtype", dtype, NULL);
	if (stride)
		ft_problem_set_number(&given, "row_stride", stride, NULL);
	if (ft_problem_admit(&ft_kernel_rmsnorm, ft_kernel_rmsnorm.schema(&ft_kernel_rmsnorm, "cpu"), &given,
	            &whole, &error) < 0)
		fail_msg("%s", error.message);
	return whole;
}

static struct ft_config config_of(int64_t threads, int64_t stream, int64_t split)
{
	struct ft_config config = {0};
	ft_config_set(&config, "threads", threads, NULL);
	ft_config_set(&config, "rows", 1, NULL);
	ft_config_set(&config, "unroll", 2, NULL);
	ft_config_set(&config, "stream", stream, NULL);
	ft_config_set(&config, "prefetch", 1, NULL);
	ft_config_set(&config, "split", split, NULL);
	return config;
}

/* ---- kernels that are wrong, of 100 elements of f32 a row ---- */

enum { N = 100 };
typedef void launch(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows);
static size_t stride; /* of what is launched, in elements */

static void right(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	ft_kernel_cpu_rmsnorm.run(pool, plan, data, rows);
}

static float *row_of(void *const *data, size_t tensor, size_t row)
{
	return (float *)data[tensor] + row * stride;
}

/* One element of one row, by a little more than it may. */
static void wrong_in_one_element(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	right(pool, plan, data, rows);
	row_of(data, FT_ROWS_OUTPUT, 5)[N - 1] *= 1.00001F; /* the fifth row is zero */
}

static void leaves_one_element_out(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	float before[16];
	for (size_t row = 0; row < rows; row++)
		before[row] = row_of(data, FT_ROWS_OUTPUT, row)[N - 1];
	right(pool, plan, data, rows);
	for (size_t row = 0; row < rows; row++)
		row_of(data, FT_ROWS_OUTPUT, row)[N - 1] = before[row];
}

static void writes_past_the_row(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	right(pool, plan, data, rows);
	row_of(data, FT_ROWS_OUTPUT, 3)[N] = 0;
}

static void writes_before_the_row(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	right(pool, plan, data, rows);
	row_of(data, FT_ROWS_OUTPUT, 0)[-1] = 0;
}

static void changes_its_input(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	right(pool, plan, data, rows);
	if (data[FT_ROWS_INPUT] != data[FT_ROWS_OUTPUT])
		row_of(data, FT_ROWS_INPUT, rows - 1)[0] = 1;
}

static void changes_its_weight(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	right(pool, plan, data, rows);
	*row_of(data, FT_ROWS_WEIGHT, 0) += 1;
}

/* Its output is right for neither what the input was nor what it is. */
static void changes_its_input_and_is_wrong(
        struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	changes_its_input(pool, plan, data, rows);
	row_of(data, FT_ROWS_OUTPUT, 0)[N - 1] = 2;
}

/* Right unless input and output are one. */
static void reads_after_writing(struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	for (size_t row = 0; row < rows; row++)
		row_of(data, FT_ROWS_OUTPUT, row)[N - 1] = 0;
	right(pool, plan, data, rows);
}

static struct ft_backend *open_backend(void)
{
	struct ft_backend *backend = ft_backend_cpu_new();
	struct ft_error error = {0};
	kernel = ft_kernel_cpu_rmsnorm;
	assert_non_null(backend);
	if (backend->open(backend, &error) < 0)
		fail_msg("%s", error.message);
	return backend;
}

static void close_backend(struct ft_backend *backend)
{
	backend->close(backend);
	ft_backend_cpu_free(backend);
}

static void prepare(struct ft_backend *backend, const struct ft_problem *problem,
        const struct ft_config *config, size_t count, uint64_t memory_cap)
{
	struct ft_error error = {0};
	struct ft_backend_sweep sweep = {.kernel = &ft_kernel_rmsnorm,
	        .problem = problem,
	        .seed = 11,
	        .memory_cap = memory_cap,
	        .count = count,
	        .config = config};
	if (backend->prepare(backend, &sweep, &error) < 0)
		fail_msg("%s", error.message);
}

static int verify_with(launch *run, int64_t row_stride, char message[320])
{
	struct ft_backend *backend = open_backend();
	struct ft_problem problem = problem_of(12, N, "f32", row_stride);
	struct ft_config config = config_of(1, 0, 0);
	struct ft_error error = {0};
	double largest = 0;
	stride = row_stride ? (size_t)row_stride : N;
	if (run)
		kernel.run = run;
	prepare(backend, &problem, &config, 1, (uint64_t)4 << 20);
	int result = backend->verify(backend, 0, &largest, &error);
	snprintf(message, 320, "%s", error.message);
	backend->finish(backend);
	close_backend(backend);
	return result;
}

static void a_right_kernel_passes_and_every_kind_of_wrong_one_does_not(void **state)
{
	static const struct {
		launch *run;
		int64_t stride;
		const char *says;
	} wrong[] = {
	        {wrong_in_one_element, 0, ""},
	        {leaves_one_element_out, 0, ""},
	        {writes_past_the_row, 120, "between"},
	        {writes_past_the_row, 101, "between"},
	        {writes_before_the_row, 120, ""},
	        {changes_its_input, 0, "changed its input"},
	        {changes_its_input_and_is_wrong, 0, "changed its input"},
	        {changes_its_weight, 0, "changed its weight"},
	        {reads_after_writing, 0, "in place"},
	};
	char message[320];
	(void)state;
	if (verify_with(NULL, 0, message) != 0 || verify_with(NULL, 120, message) != 0)
		fail_msg("the right kernel: %s", message);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (verify_with(wrong[i].run, wrong[i].stride, message) != 1 ||
		        !strstr(message, wrong[i].says))
			fail_msg("wrong kernel %zu: \"%s\"", i, message);
	}
}

static const char *timed_input(const struct cpu *cpu, size_t set)
{
	return cpu->arena.memory + set * cpu->slot + cpu->array[FT_ROWS_INPUT].slot;
}

/* Whoever spoils the arrays is blamed, and nobody who comes after: in verification, in launches that were timed, and in the
 * sweep after that. */
static void what_one_config_does_to_its_arrays_is_no_others_fault(void **state)
{
	static launch *const damage[] = {
	        changes_its_input, changes_its_input_and_is_wrong, changes_its_weight};
	struct ft_problem problem = problem_of(12, N, "f32", 0);
	/* What is timed has arrays of its own, or shares those that are verified with. */
	static const uint64_t cap[] = {(uint64_t)8 << 20, 64 << 10};
	struct ft_config config[2] = {config_of(1, 0, 0), config_of(1, 0, 0)};
	(void)state;
	stride = N;
	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]) * 2; i++) {
		struct ft_backend *backend = open_backend();
		struct cpu *cpu = cpu_of(backend);
		struct ft_error error = {0};
		double largest;
		uint64_t sample = 0;
		prepare(backend, &problem, config, 2, cap[i % 2]);
		assert_int_equal(cpu->shared, i % 2);
		kernel.run = damage[i / 2];
		assert_int_equal(backend->verify(backend, 0, &largest, &error), 1);
		assert_non_null(strstr(error.message, "changed its"));
		kernel.run = right;
		if (backend->verify(backend, 1, &largest, &error) != 0)
			fail_msg("damage %zu: the innocent one: %s", i, error.message);
		/* This time only after it was found right. */
		assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
		kernel.run = damage[i / 2];
		for (size_t samples = 0; samples<3; samples += sample> 0)
			assert_int_equal(backend->measure(backend, 0, &sample, &error), 0);
		kernel.run = right;
		if (backend->verify(backend, 1, &largest, &error) != 0)
			fail_msg("damage %zu when timed: the innocent one: %s", i, error.message);
		backend->finish(backend);
		prepare(backend, &problem, config, 2, cap[i % 2]);
		/* Inputs are alike in all sets. */
		for (size_t set = 1; !cpu->shared && set < cpu->sets; set++)
			assert_memory_equal(
			        timed_input(cpu, set), timed_input(cpu, 0), cpu->array[FT_ROWS_INPUT].data);
		backend->finish(backend);
		close_backend(backend);
	}
}

static void plans_that_come_to_the_same_have_one_hash(void **state)
{
	struct ft_backend *backend = open_backend();
	struct ft_problem one_row = problem_of(1, 100, "bf16", 0);
	struct ft_config config[3] = {config_of(1, 0, 0), config_of(0, 0, 0), config_of(1, 1, 0)};
	struct ft_built built[3];
	(void)state;
	prepare(backend, &one_row, config, 3, (uint64_t)4 << 20);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(backend->build_start(backend, i, NULL), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(backend->build_wait(backend, &built[i], NULL), 1);
	struct ft_built none;
	assert_int_equal(backend->build_wait(backend, &none, NULL), 0);
	assert_string_equal(built[0].code, built[1].code);
#if defined(__x86_64__) /* elsewhere streaming stores are stores */
	assert_string_not_equal(built[0].code, built[2].code);
#endif
	assert_int_equal(strlen(built[0].code), FT_HASH_SIZE - 1);
	backend->finish(backend);
	close_backend(backend);
}

static void a_sample_is_the_time_of_one_launch(void **state)
{
	struct ft_backend *backend = open_backend();
	struct ft_problem problem = problem_of(64, 1024, "f16", 0);
	struct ft_config config = config_of(1, 0, 0);
	struct ft_built built;
	uint64_t sample = 0;
	(void)state;
	prepare(backend, &problem, &config, 1, (uint64_t)16 << 20);
	assert_int_equal(backend->build_start(backend, 0, NULL), 0);
	assert_int_equal(backend->build_wait(backend, &built, NULL), 1);
	assert_int_equal(backend->warm(backend, NULL), 0);
	assert_int_equal(backend->measure(backend, 0, &sample, NULL), 0); /* thrown away */
	assert_true(sample > 0);
	sample = 0;
	while (sample == 0)
		assert_int_equal(backend->measure(backend, 0, &sample, NULL), 0);
	/* 256 KiB there and back: more than a microsecond, less than a second, on anything. */
	assert_true(sample > 1000000 && sample < UINT64_C(1000000000000));
	assert_non_null(strstr(backend->method, "MiB"));
	assert_true(strlen(backend->method) < FT_REASON_SIZE - 1);
	backend->finish(backend);
	close_backend(backend);
}

/* A clock that a busy machine changes nothing of: it goes on where somebody looks at it or works. 0: the real one. */
static _Atomic uint64_t pretended_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (pretended_ns == 0)
		return __real_clock_gettime(clock, now);
	const uint64_t at = atomic_fetch_add(&pretended_ns, 100) + 100;
	*now = (struct timespec){.tv_sec = (time_t)(at / 1000000000U), .tv_nsec = (long)(at % 1000000000U)};
	return 0;
}

/* A cache that keeps the inputs of the last so many launches, whatever its size is said to be: others are waited for. */
enum { REMEMBERED = 200 };
static uint64_t used[1 << 14];
static uint64_t uses;
static const struct cpu *remembering;

static void waits_for_what_is_not_in_the_cache(
        struct ft_pool *pool, const void *plan, void *const *data, uint64_t rows)
{
	size_t pair =
	        (size_t)((const char *)data[FT_ROWS_INPUT] - remembering->arena.memory) / remembering->slot;
	right(pool, plan, data, rows);
	if (pair >= sizeof(used) / sizeof(used[0]))
		return;
	uses++;
	pretended_ns += uses - used[pair] > REMEMBERED ? 20000 : 2000;
	used[pair] = uses;
}

static void arrays_are_added_until_they_are_cold_whatever_the_cache_is_said_to_be(void **state)
{
	struct ft_backend *backend = open_backend();
	struct cpu *cpu = cpu_of(backend);
	struct ft_problem problem = problem_of(1, 256, "f32", 0);
	struct ft_config config = config_of(1, 0, 0);
	struct ft_error error = {0};
	double largest;
	(void)state;
	/* As large as that many pairs, it would be said to be 6 times as large. */
	cpu->device.traits.cache = (uint64_t)REMEMBERED * 2048 / 6;
	remembering = cpu;
	kernel.run = waits_for_what_is_not_in_the_cache;
	pretended_ns = 1000000000;
	prepare(backend, &problem, &config, 1, (uint64_t)64 << 20);
	size_t first = cpu->sets;
	assert_true(first < REMEMBERED);
	assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
	assert_int_equal(backend->warm(backend, &error), 0);
	if (cpu->sets / 2 <= REMEMBERED || !strstr(backend->method, "; cold: "))
		fail_msg("%zu pairs at first, then %zu: %s", first, cpu->sets, backend->method);
	assert_true(cpu->whole_ps > 2 * cpu->warm_ps);
	backend->finish(backend);
	/* Where there is no room for as many as are sure to be, it is not said that they are. */
	prepare(backend, &problem, &config, 1, (uint64_t)4300 << 10);
	assert_true(cpu->sets < first && cpu->sets > 1);
	assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
	assert_int_equal(backend->warm(backend, &error), 0);
	assert_non_null(strstr(backend->method, "; not all cold: "));
	backend->finish(backend);
	close_backend(backend);
	pretended_ns = 0;
}

/* One sweep after another, the last but one as a second slice of the first. */
static void sweeps_of_one_process_share_memory(void **state)
{
	struct ft_backend *backend = open_backend();
	struct cpu *cpu = cpu_of(backend);
	struct ft_problem problem[] = {problem_of(64, 1024, "f16", 0), problem_of(72, 512, "f16", 0),
	        problem_of(64, 1024, "f16", 0), problem_of(64, 1024, "f32", 0)};
	struct ft_config config = config_of(1, 0, 0);
	const char *memory = NULL;
	(void)state;
	for (size_t i = 0; i < sizeof(problem) / sizeof(problem[0]); i++) {
		struct ft_error error = {0};
		uint64_t sample = 0;
		double largest;
		struct ft_backend_sweep sweep = {.kernel = &ft_kernel_rmsnorm,
		        .problem = &problem[i],
		        .seed = 100 + i,
		        .memory_cap = (uint64_t)64 << 20,
		        .count = 1,
		        .config = &config};
		assert_int_equal(backend->prepare(backend, &sweep, &error), 0);
		assert_false(cpu->shared);
		if (i > 0)
			assert_ptr_equal(cpu->arena.memory, memory);
		memory = cpu->arena.memory;
		for (size_t set = 1; set < cpu->sets; set++)
			assert_memory_equal(
			        timed_input(cpu, set), timed_input(cpu, 0), cpu->array[FT_ROWS_INPUT].data);
		assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
		assert_int_equal(backend->warm(backend, &error), 0);
		for (int samples = 0; samples<2; samples += sample> 0)
			assert_int_equal(backend->measure(backend, 0, &sample, &error), 0);
		assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
		backend->finish(backend);
	}
	close_backend(backend);
}

static void memory_that_does_not_suffice_is_said_before_anything_is_touched(void **state)
{
	struct ft_backend *backend = open_backend();
	struct ft_problem problem = problem_of(1024, 4096, "f32", 0);
	struct ft_problem huge = problem_of((int64_t)1 << 22, 1 << 20, "f32", 0);
	struct ft_config config = config_of(1, 0, 0);
	struct ft_backend_sweep sweep = {.kernel = &ft_kernel_rmsnorm,
	        .problem = &problem,
	        .memory_cap = 1 << 20,
	        .count = 1,
	        .config = &config};
	struct ft_error error = {0};
	(void)state;
	assert_int_equal(backend->prepare(backend, &sweep, &error), -1);
	assert_string_equal(error.code, FT_E_UNAVAILABLE);
	backend->finish(backend);
	sweep.problem = &huge;
	sweep.memory_cap = 0;
	assert_int_equal(backend->prepare(backend, &sweep, &error), -1);
	assert_string_equal(error.code, FT_E_UNAVAILABLE);
	backend->finish(backend);
	/* Room for one pair: it serves to verify and to time. */
	sweep.problem = &problem;
	sweep.memory_cap = (uint64_t)40 << 20;
	assert_int_equal(backend->prepare(backend, &sweep, &error), 0);
	assert_true(cpu_of(backend)->shared);
	double largest;
	assert_int_equal(backend->verify(backend, 0, &largest, &error), 0);
	backend->finish(backend);
	close_backend(backend);
}

static void the_device_is_told_without_what_changes_from_boot_to_boot(void **state)
{
	struct ft_backend *backend = open_backend();
	struct ft_backend *again = open_backend();
	const struct ft_runner_device *shown = &backend->device[0].shown;
	char source[FT_HASH_SIZE];
	(void)state;
	assert_string_equal(shown->id, "cpu:0");
	assert_true(shown->units >= 1 && shown->memory > 0 && shown->cache > 0);
	assert_string_equal(shown->identity, again->device[0].shown.identity);
	assert_string_equal(backend->identity, again->identity);
	assert_null(strstr(shown->identity, "MHz"));
	backend->source(backend, "rmsnorm", source);
	assert_int_equal(strlen(source), FT_HASH_SIZE - 1);
	assert_string_equal(backend->files[0][0] == '/' ? "/" : backend->files[0], "/");
	close_backend(backend);
	close_backend(again);
}

/* ---- whole sweeps ---- */

static void hear(void *context, const struct ft_runner_event *event)
{
	(void)event;
	++*(size_t *)context;
}

static bool never(void *context)
{
	(void)context;
	return false;
}

static void begins(void *context, size_t trial)
{
	(void)context;
	(void)trial;
}

static void ends(void *context)
{
	(void)context;
}

static void a_sweep_of_every_type_ends_with_a_winner(void **state)
{
	static const char *const dtypes[] = {"f32", "f16", "bf16"};
	struct ft_space *space = calloc(1, sizeof(*space));
	struct ft_backend *backend = open_backend();
	size_t heard = 0;
	struct ft_sweep_listener listener = {.context = &heard,
	        .event = hear,
	        .cancelled = never,
	        .measure_begins = begins,
	        .measure_ends = ends};
	(void)state;
	assert_non_null(space);
	for (size_t d = 0; d < 3; d++) {
		struct ft_sweep sweep = {.kernel = &ft_kernel_rmsnorm,
		        .problem = problem_of(9, 1000 + (int64_t)d, dtypes[d], 1100),
		        .seed = d,
		        .budget_ns = UINT64_C(240000000000),
		        .memory_cap = (uint64_t)8 << 20,
		        .rule = ft_rule_usual};
		struct ft_sweep_reply reply;
		struct ft_error error = {0};
		memset(space, 0, sizeof(*space));
		assert_int_equal(ft_kernel_rmsnorm.space(&ft_kernel_rmsnorm, &sweep.problem,
		                         &backend->device[0].traits, space, &error),
		        0);
		assert_int_equal(ft_sweep_init(&sweep, space->count, &error), 0);
		sweep.default_index = space->default_index;
		for (size_t i = 0; i < space->count; i++) {
			sweep.trial[i].config = space->config[i];
			sweep.trial[i].out = space->pruned[i][0] != '\0';
		}
		if (ft_sweep_run(&sweep, backend, &listener, &reply, &error) != 0)
			fail_msg("%s", error.message);
		if (strcmp(reply.outcome, "decided") != 0)
			fail_msg("%s: %s", reply.outcome, reply.reason);
		for (size_t i = 0; i < space->count; i++) {
			if (sweep.trial[i].reason[0])
				fail_msg("trial %zu: %s", i, sweep.trial[i].reason);
		}
		ft_sweep_free(&sweep);
	}
	assert_true(heard > 30);
	close_backend(backend);
	free(space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_right_kernel_passes_and_every_kind_of_wrong_one_does_not),
	        cmocka_unit_test(what_one_config_does_to_its_arrays_is_no_others_fault),
	        cmocka_unit_test(plans_that_come_to_the_same_have_one_hash),
	        cmocka_unit_test(a_sample_is_the_time_of_one_launch),
	        cmocka_unit_test(arrays_are_added_until_they_are_cold_whatever_the_cache_is_said_to_be),
	        cmocka_unit_test(sweeps_of_one_process_share_memory),
	        cmocka_unit_test(memory_that_does_not_suffice_is_said_before_anything_is_touched),
	        cmocka_unit_test(the_device_is_told_without_what_changes_from_boot_to_boot),
	        cmocka_unit_test(a_sweep_of_every_type_ends_with_a_winner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
