/* The parts of the client library that need no daemon: problems, kept answers, the breaker, sizes, words. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/breaker.h"
#include "client/lib/cache.h"
#include "client/lib/clock.h"
#include "client/lib/forced.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"
#include "client_help.h"

static void the_pause_grows_to_its_cap_and_ends(void **state)
{
	struct breaker breaker;
	struct ft_error error = {.code = "daemon_away"};
	uint64_t now = 1000, pause = 0, first = 0;

	(void)state;
	breaker_init(&breaker, 1);
	assert_false(breaker_paused(&breaker, now));
	for (int i = 0; i < 20; i++) {
		breaker_fail(&breaker, now, &error);
		assert_true(breaker_paused(&breaker, now));
		pause = breaker.until - now;
		if (i == 0)
			first = pause;
		assert_true(pause >= BREAKER_FIRST_MS * CLOCK_MS && pause <= BREAKER_CAP_MS * CLOCK_MS);
		now = breaker.until;
		assert_false(breaker_paused(&breaker, now));
	}
	assert_true(first <= BREAKER_FIRST_MS * CLOCK_MS * 3 / 2);
	assert_true(pause >= BREAKER_CAP_MS * CLOCK_MS * 2 / 3);
	breaker_connected(&breaker);
	assert_false(breaker_paused(&breaker, now));
	/* A daemon that says hello and nothing else is not tried ever faster. */
	breaker_fail(&breaker, now, &error);
	assert_true(breaker.until - now > first);
	breaker_succeed(&breaker);
	breaker_fail(&breaker, now, &error);
	assert_true(breaker.until - now <= BREAKER_FIRST_MS * CLOCK_MS * 3 / 2);
}

static void calls_that_fail_together_lengthen_the_pause_once(void **state)
{
	struct breaker breaker;
	struct ft_error error = {.code = "daemon_away"};
	uint64_t until;

	(void)state;
	breaker_init(&breaker, 1);
	breaker_fail(&breaker, 1000, &error);
	until = breaker.until;
	for (int i = 0; i < 8; i++)
		breaker_fail(&breaker, 1001, &error);
	assert_int_equal(breaker.until, until);
	assert_int_equal(breaker.failures, 1);
}

static void two_processes_do_not_come_back_at_the_same_moment(void **state)
{
	struct breaker a, b;
	struct ft_error error = {.code = "daemon_away"};

	(void)state;
	breaker_init(&a, 1000);
	breaker_init(&b, 2000);
	breaker_fail(&a, 0, &error);
	breaker_fail(&b, 0, &error);
	assert_true(a.until != b.until);
}

static void order_and_defaults_make_no_other_problem(void **state)
{
	const struct flytune_field one[] = {{"m", NULL, 64}, {"n", NULL, 4096}, {"dtype", "bf16", 0}};
	const struct flytune_field other[] = {{"weight_dtype", "bf16", 0}, {"dtype", "bf16", 0},
	        {"row_stride", NULL, 4096}, {"n", NULL, 4096}, {"m", NULL, 64}};
	flytune_problem *a = flytune_problem_new("rmsnorm", one, 3, NULL);
	flytune_problem *b = flytune_problem_new("rmsnorm", other, 5, NULL);
	flytune_problem *c = rmsnorm(65);

	(void)state;
	assert_int_equal(a->key_words, b->key_words);
	assert_memory_equal(a->key, b->key, a->key_words * sizeof *a->key);
	assert_int_equal(a->hash, b->hash);
	assert_true(a->hash != c->hash);
	assert_true(a->about->admitted);
	flytune_problem_free(a);
	flytune_problem_free(b);
	flytune_problem_free(c);
}

static void a_problem_tells_its_fields(void **state)
{
	flytune_problem *problem = rmsnorm(64);
	struct flytune_field field;

	(void)state;
	assert_string_equal(flytune_problem_kernel(problem), "rmsnorm");
	assert_int_equal(flytune_problem_field(problem, 0, &field), 1);
	assert_string_equal(field.name, "m");
	assert_int_equal(field.number, 64);
	assert_null(field.text);
	assert_int_equal(flytune_problem_field(problem, 3, &field), 1);
	assert_string_equal(field.name, "weight_dtype");
	assert_string_equal(field.text, "bf16");
	assert_int_equal(flytune_problem_field(problem, 5, &field), 0);
	flytune_problem_free(problem);
	flytune_problem_free(NULL);
}

static void names_that_no_kernel_can_have_are_refused(void **state)
{
	const struct flytune_field spaced = {"a b", NULL, 1}, nameless = {NULL, NULL, 1},
	                           twice[] = {{"m", NULL, 1}, {"m", NULL, 2}};
	const struct flytune_field longest = {"dtype", "a text of more than thirty-one bytes", 0};
	struct flytune_error error;

	(void)state;
	assert_null(flytune_problem_new("rms norm", NULL, 0, &error));
	assert_int_equal(error.code, FLYTUNE_E_BAD_VALUE);
	assert_string_equal(error.field, "kernel");
	assert_null(flytune_problem_new(NULL, NULL, 0, NULL));
	assert_null(flytune_problem_new("rmsnorm", &spaced, 1, &error));
	assert_null(flytune_problem_new("rmsnorm", &nameless, 1, &error));
	assert_null(flytune_problem_new("rmsnorm", twice, 2, &error));
	assert_string_equal(error.field, "m");
	assert_null(flytune_problem_new("rmsnorm", &longest, 1, &error));
}

static void a_problem_that_the_kernel_refuses_knows_why(void **state)
{
	struct flytune_rmsnorm shape;
	flytune_problem *problem;

	(void)state;
	flytune_rmsnorm_init(&shape);
	shape.m = 0;
	shape.n = 4096;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, NULL);
	assert_non_null(problem);
	assert_false(problem->about->admitted);
	assert_string_equal(problem->about->refusal.field, "m");
	flytune_problem_free(problem);
}

static void forced_sweeps_are_remembered_within_a_bound(void **state)
{
	struct forced forced = {0};

	(void)state;
	assert_int_equal(forced_get(&forced, 8), FORCED_NEW);
	for (uint64_t i = 1; i <= FORCED_MAX; i++) {
		uint64_t hash = i * UINT64_C(0x9e3779b97f4a7c15) | 1;

		assert_int_equal(forced_get(&forced, hash), FORCED_NEW);
		assert_true(forced_set(&forced, hash, i % 2 ? FORCED_DONE : FORCED_RUNNING));
	}
	assert_int_equal(forced_get(&forced, UINT64_C(0x9e3779b97f4a7c15) | 1), FORCED_DONE);
	assert_int_equal(forced_get(&forced, 0), FORCED_FULL);
	assert_false(forced_set(&forced, 0, FORCED_RUNNING));
	forced_forget_running(&forced);
	assert_int_equal(forced_get(&forced, (2 * UINT64_C(0x9e3779b97f4a7c15)) | 1), FORCED_NEW);
	assert_int_equal(forced_get(&forced, UINT64_C(0x9e3779b97f4a7c15) | 1), FORCED_DONE);
	forced_free(&forced);
}

struct older {
	size_t size;
	int first;
};

struct newer {
	size_t size;
	int first, second, third;
};

struct ours {
	size_t size;
	int first, second;
};

static void structures_of_other_releases_are_respected(void **state)
{
	struct ours ours = {sizeof ours, 1, 2}, read = {0};
	struct {
		struct older older;
		char guard[16];
	} small = {.older.size = sizeof small.older};
	struct newer large = {sizeof large, 7, 8, 9};
	char untouched[sizeof small.guard];

	(void)state;
	memset(small.guard, 0x5a, sizeof small.guard);
	memcpy(untouched, small.guard, sizeof untouched);
	assert_true(sized_out(&small.older, &ours, sizeof ours));
	assert_int_equal(small.older.first, 1);
	assert_int_equal(small.older.size, sizeof small.older);
	assert_memory_equal(small.guard, untouched, sizeof untouched);
	assert_true(sized_in(&read, sizeof read, &small.older));
	assert_int_equal(read.size, sizeof read);
	assert_true(sized_in(&read, sizeof read, &large));
	assert_int_equal(read.second, 8);
	assert_true(sized_out(&large, &ours, sizeof ours));
	assert_int_equal(large.second, 2);
	assert_int_equal(large.third, 0);
	assert_int_equal(large.size, sizeof large);
	large.size = 0;
	assert_false(sized_out(&large, &ours, sizeof ours));
	assert_false(sized_in(&read, sizeof read, &large));
}

static void every_code_has_a_word_of_its_own(void **state)
{
	struct ft_error error = {.code = "brand_new", .message = "says something"};
	char begins[16];
	struct flytune_error out;

	(void)state;
	for (int code = FLYTUNE_E_BAD_VALUE; code <= FLYTUNE_E_MEMORY; code++) {
		const char *word = flytune_result_word((enum flytune_result)code);

		assert_string_not_equal(word, "other");
		assert_int_equal(outcome_code(word), code);
	}
	assert_int_equal(outcome(&out, &error), FLYTUNE_E_OTHER);
	assert_string_equal(out.word, "brand_new");
	assert_string_equal(flytune_result_word(FLYTUNE_E_OTHER), "other");
	static const enum flytune_source order[] = {FLYTUNE_SOURCE_PINNED, FLYTUNE_SOURCE_TUNED,
	        FLYTUNE_SOURCE_FLEET, FLYTUNE_SOURCE_IMPORTED, FLYTUNE_SOURCE_RECORDED,
	        FLYTUNE_SOURCE_NEAREST, FLYTUNE_SOURCE_DEFAULT, FLYTUNE_SOURCE_UNKNOWN};

	for (size_t i = 1; i < sizeof order / sizeof *order; i++)
		assert_true(flytune_source_rank(order[i - 1]) > flytune_source_rank(order[i]));
	assert_int_equal(flytune_source_rank((enum flytune_source)99), 0);
	assert_string_equal(flytune_source_word(FLYTUNE_SOURCE_RECORDED), "recorded");
	assert_string_equal(flytune_source_word(FLYTUNE_SOURCE_NEAREST), "nearest");
	assert_string_equal(flytune_source_word((enum flytune_source)99), "unknown");
	assert_string_equal(flytune_state_word(FLYTUNE_STATE_CANCELLED), "cancelled");
	assert_string_equal(flytune_state_word((enum flytune_state)99), "unknown");
	assert_string_equal(flytune_version(), FLYTUNE_VERSION);
	snprintf(begins, sizeof begins, "%d.%d.", FLYTUNE_VERSION_MAJOR, FLYTUNE_VERSION_MINOR);
	assert_memory_equal(flytune_version(), begins, strlen(begins));
}

static void settings_that_make_no_sense_are_refused(void **state)
{
	struct flytune_options options;
	struct flytune_error error;
	char longest[200];

	(void)state;
	flytune_options_init(&options);
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	options.socket = longest;
	assert_null(flytune_open(&options, &error));
	assert_string_equal(error.field, "socket");
	assert_non_null(strstr(error.message, "107"));
	options.socket = NULL;
	options.generation = longest;
	assert_null(flytune_open(&options, &error));
	options.generation = NULL;
	options.device = longest;
	assert_null(flytune_open(&options, &error));
	options.device = NULL;
	options.autotune = (enum flytune_autotune)9;
	assert_null(flytune_open(&options, &error));
	options.autotune = FLYTUNE_AUTOTUNE_FORCE;
	options.generation = "01234567-89ab-cdef-0123-456789abcdef:7";
	assert_null(flytune_open(&options, &error));
	assert_string_equal(error.field, "FLYTUNE_AUTOTUNE");
	options.size = 0;
	assert_null(flytune_open(&options, &error));
	assert_int_equal(error.code, FLYTUNE_E_BAD_REQUEST);
	setenv("FLYTUNE_AUTOTUNE", "yes", 1);
	assert_null(flytune_open(NULL, &error));
	assert_string_equal(error.field, "FLYTUNE_AUTOTUNE");
	unsetenv("FLYTUNE_AUTOTUNE");
	flytune_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_pause_grows_to_its_cap_and_ends),
	        cmocka_unit_test(calls_that_fail_together_lengthen_the_pause_once),
	        cmocka_unit_test(two_processes_do_not_come_back_at_the_same_moment),
	        cmocka_unit_test(order_and_defaults_make_no_other_problem),
	        cmocka_unit_test(a_problem_tells_its_fields),
	        cmocka_unit_test(names_that_no_kernel_can_have_are_refused),
	        cmocka_unit_test(a_problem_that_the_kernel_refuses_knows_why),
	        cmocka_unit_test(forced_sweeps_are_remembered_within_a_bound),
	        cmocka_unit_test(structures_of_other_releases_are_respected),
	        cmocka_unit_test(every_code_has_a_word_of_its_own),
	        cmocka_unit_test(settings_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
