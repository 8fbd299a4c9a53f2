/* Answers that a client keeps: which it gives again by itself, when it asks again, and what it takes for a board. */
#include "check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/cache.h"
#include "client/lib/clock.h"
#include "client_help.h"
#include "fake_case.h"

enum { PATIENT_MS = 30000 };

/* ---- the table ---- */

static const char nowhere[FT_DEVICE_ID_SIZE] = "";
static const char first_cpu[FT_DEVICE_ID_SIZE] = "cpu:0";

static void keep(struct cache *cache, const flytune_problem *problem, const char *device, uint64_t mark)
{
	struct cache_key key = cache_key(problem, device);
	struct cache_terms terms = {
	        .serial = mark, .version = mark, .stripe = (uint32_t)(mark % 4096), .miss = true};
	struct flytune_answer answer;

	memset(&answer, 0, sizeof answer);
	answer.source = FLYTUNE_SOURCE_TUNED;
	answer.generation = answer.time_ns = answer.revision = mark;
	answer.knob_count = (uint32_t)(mark % (FLYTUNE_KNOBS_MAX + 1));
	for (uint32_t i = 0; i < answer.knob_count; i++) {
		snprintf(answer.knob[i].name, sizeof answer.knob[i].name, "K%d", (int)i);
		answer.knob[i].value = (int64_t)mark;
	}
	cache_keep(cache, &key, &answer, &terms);
}

/* The mark that it was kept with, 0 if it is not there. */
static uint64_t find(const struct cache *cache, const flytune_problem *problem, const char *device)
{
	struct cache_key key = cache_key(problem, device);
	struct flytune_answer answer;
	struct cache_hit hit;

	if (!cache_find(cache, &key, &hit) || !cache_copy(&hit, &answer))
		return 0;
	assert_int_equal(answer.generation, hit.terms.serial);
	assert_int_equal(answer.time_ns, answer.generation);
	assert_int_equal(answer.revision, answer.generation);
	assert_int_equal(hit.terms.version, answer.generation);
	assert_int_equal(hit.terms.stripe, answer.generation % 4096);
	assert_int_equal(answer.knob_count, answer.generation % (FLYTUNE_KNOBS_MAX + 1));
	for (uint32_t i = 0; i < answer.knob_count; i++)
		assert_int_equal(answer.knob[i].value, answer.generation);
	return answer.generation;
}

static void kept_answers_are_bounded_and_never_mixed_up(void **state)
{
	enum { ENTRIES = 64, PROBLEMS = 1000 };
	struct cache cache;
	int found = 0;

	(void)state;
	assert_int_equal(cache_init(&cache, ENTRIES), 0);
	for (int64_t m = 1; m <= PROBLEMS; m++) {
		flytune_problem *problem = rmsnorm(m);

		keep(&cache, problem, first_cpu, (uint64_t)m);
		assert_int_equal(find(&cache, problem, first_cpu), m);
		assert_int_equal(find(&cache, problem, nowhere), 0);
		flytune_problem_free(problem);
	}
	for (int64_t m = 1; m <= PROBLEMS; m++) {
		flytune_problem *problem = rmsnorm(m);
		uint64_t mark = find(&cache, problem, first_cpu);

		assert_true(mark == 0 || mark == (uint64_t)m);
		found += mark != 0;
		flytune_problem_free(problem);
	}
	assert_true(found >= ENTRIES && found <= 4 * ENTRIES);
	cache_free(&cache);
}

static void as_many_as_were_asked_for_are_kept(void **state)
{
	enum { ENTRIES = 1024 };
	flytune_problem *problem[ENTRIES];
	struct cache cache;
	int found = 0;

	(void)state;
	assert_int_equal(cache_init(&cache, ENTRIES), 0);
	for (int i = 0; i < ENTRIES; i++) {
		problem[i] = rmsnorm(i + 1);
		keep(&cache, problem[i], nowhere, (uint64_t)i + 1);
	}
	for (int i = 0; i < ENTRIES; i++) {
		found += find(&cache, problem[i], nowhere) != 0;
		flytune_problem_free(problem[i]);
	}
	assert_true(found > ENTRIES * 97 / 100);
	cache_free(&cache);
}

static void the_answer_used_last_is_kept(void **state)
{
	struct cache cache;
	flytune_problem *favourite = rmsnorm(1 << 20);

	(void)state;
	assert_int_equal(cache_init(&cache, 1), 0);
	keep(&cache, favourite, nowhere, 1);
	for (int64_t m = 1; m < 200; m++) {
		flytune_problem *problem = rmsnorm(m);

		assert_int_equal(find(&cache, favourite, nowhere), 1);
		keep(&cache, problem, nowhere, 2);
		flytune_problem_free(problem);
	}
	cache_free(&cache);
	flytune_problem_free(favourite);
}

static void repeats_are_counted_told_once_and_given_back(void **state)
{
	struct cache cache;
	flytune_problem *problem = rmsnorm(64);
	struct cache_key key = cache_key(problem, nowhere);
	struct cache_hit hit = {0};

	(void)state;
	assert_int_equal(cache_init(&cache, 16), 0);
	keep(&cache, problem, nowhere, 1);
	for (int i = 0; i < 5; i++) {
		assert_true(cache_find(&cache, &key, &hit));
		cache_count(&cache, &hit);
	}
	assert_int_equal(cache_take_repeats(&cache, &key), 5);
	assert_int_equal(cache_take_repeats(&cache, &key), 0);
	cache_return_repeats(&cache, &key, 5);
	cache_count(&cache, &hit);
	assert_int_equal(cache_take_repeats(&cache, &key), 6);
	cache_return_repeats(&cache, &key, 6);
	cache_mend(&cache); /* a child has nothing to tell of what its parent counted */
	assert_int_equal(cache_take_repeats(&cache, &key), 0);
	assert_int_equal(find(&cache, problem, nowhere), 1);
	cache_free(&cache);
	flytune_problem_free(problem);
}

enum { RACED = 24, ROUNDS = 4000, READERS = 3 };

struct race {
	struct cache cache;
	flytune_problem *problem[RACED];
	atomic_bool done;
	atomic_uint torn, found;
};

/* Marks of a problem are its index plus a multiple of RACED. */
static void *read_on(void *data)
{
	struct race *race = data;
	uint64_t random = (uint64_t)(uintptr_t)&random;

	while (!atomic_load(&race->done)) {
		unsigned which = (unsigned)(check_random(&random) % RACED);
		struct cache_key key = cache_key(race->problem[which], nowhere);
		struct flytune_answer answer;
		struct cache_hit hit;
		bool whole;

		if (!cache_find(&race->cache, &key, &hit) || !cache_copy(&hit, &answer))
			continue;
		whole = answer.generation % RACED == which && hit.terms.serial == answer.generation &&
		        answer.revision == answer.generation &&
		        answer.knob_count == answer.generation % (FLYTUNE_KNOBS_MAX + 1);
		for (uint32_t i = 0; i < answer.knob_count; i++)
			whole = whole && answer.knob[i].value == (int64_t)answer.generation;
		atomic_fetch_add(whole ? &race->found : &race->torn, 1);
		cache_count(&race->cache, &hit);
	}
	return NULL;
}

static void readers_never_see_half_an_answer(void **state)
{
	struct race *race = calloc(1, sizeof *race);
	pthread_t reader[READERS];

	(void)state;
	assert_non_null(race);
	/* One small table, so that places change hands all the time. */
	assert_int_equal(cache_init(&race->cache, 1), 0);
	for (int i = 0; i < RACED; i++)
		race->problem[i] = rmsnorm(i + 1);
	for (int i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&reader[i], NULL, read_on, race), 0);
	for (uint64_t round = 1; round <= ROUNDS || atomic_load(&race->found) < 100; round++) {
		for (uint64_t i = 0; i < RACED; i++)
			keep(&race->cache, race->problem[i], nowhere, round * RACED + i);
	}
	atomic_store(&race->done, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(reader[i], NULL);
	assert_int_equal(atomic_load(&race->torn), 0);
	for (int i = 0; i < RACED; i++)
		flytune_problem_free(race->problem[i]);
	cache_free(&race->cache);
	free(race);
}

/* ---- the board ---- */

static void a_board_that_could_hurt_is_refused(void **state)
{
	static const enum fake_flaw flaws[] = {FAKE_UNSEALED, FAKE_SHRINKABLE, FAKE_SHORT, FAKE_LONG,
	        FAKE_HOLES, FAKE_GARBAGE, FAKE_FAR_OWNER};
	struct boards boards;
	struct board_sight sight;
	struct ft_error error;
	uint64_t serial;
	int devices[2];

	(void)state;
	boards_init(&boards);
	for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
		fake_board(&fake, flaws[i]);
		assert_int_equal(boards_adopt(&boards, fake.board_fd, &serial, &error), -1);
		assert_int_equal(serial, 0);
		assert_int_equal(boards.serial, 0);
	}
	assert_int_equal(pipe(devices), 0);
	assert_int_equal(boards_adopt(&boards, devices[0], &serial, &error), -1);
	close(devices[0]);
	close(devices[1]);
	fake_board(&fake, FAKE_SOUND);
	assert_int_equal(boards_adopt(&boards, fake.board_fd, &serial, &error), 0);
	assert_int_equal(serial, 1);
	/* The same one again, as every connection brings it. */
	assert_int_equal(boards_adopt(&boards, fake.board_fd, &serial, &error), 0);
	assert_int_equal(serial, 1);
	/* What it says of itself later is not believed. */
	fake.board->owner_offset = 0x7ffffff0;
	assert_int_equal(boards_check(&boards, 1, 0, 1, &sight), BOARD_STANDS);
	fake_board_dies(&fake);
	assert_int_equal(boards_check(&boards, 1, 0, 1, &sight), BOARD_AWAY);
	assert_int_equal(boards_adopt(&boards, fake.board_fd, &serial, &error), -1);
	boards_free(&boards);
}

static void a_later_board_takes_all_answers_back(void **state)
{
	struct boards boards;
	struct board_sight sight;
	struct ft_error error;
	uint64_t serial;

	(void)state;
	boards_init(&boards);
	for (uint64_t round = 1; round <= (uint64_t)3 * BOARDS_KEPT; round++) {
		fake_board(&fake, FAKE_SOUND);
		assert_int_equal(boards_adopt(&boards, fake.board_fd, &serial, &error), 0);
		assert_int_equal(serial, round);
		assert_int_equal(boards_check(&boards, round, 0, 1, &sight), BOARD_STANDS);
		for (uint64_t old = 0; old < round; old++)
			assert_int_equal(boards_check(&boards, old, 0, 1, &sight), BOARD_CHANGED);
		fake_board_changes(&fake);
		assert_int_equal(boards_check(&boards, round, 0, 1, &sight), BOARD_CHANGED);
	}
	boards_free(&boards);
}

/* ---- lookups ---- */

static flytune_client *open_client(void)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = PATIENT_MS;
	return fake_client(&fake, &options);
}

static uint32_t flags_of(flytune_client *client, const flytune_problem *problem, enum flytune_source source)
{
	struct flytune_answer answer;

	flytune_answer_init(&answer);
	assert_int_equal(flytune_lookup(client, problem, NULL, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.source, source);
	if (source == FLYTUNE_SOURCE_TUNED)
		assert_true(flytune_answer_get(&answer, "M", -2) >= 0);
	return answer.flags;
}

static void a_repeated_lookup_asks_nobody_until_its_word_changes(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64), *same = rmsnorm(64);

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	for (int round = 1; round <= 5; round++) {
		assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), 0);
		assert_int_equal(atomic_load(&fake.lookups), round);
		assert_int_equal(atomic_load(&fake.repeats), 0);
		for (int i = 0; i < 10; i++)
			assert_int_equal(
			        flags_of(client, problem, FLYTUNE_SOURCE_TUNED), FLYTUNE_ANSWER_KEPT);
		assert_int_equal(flags_of(client, same, FLYTUNE_SOURCE_TUNED), FLYTUNE_ANSWER_KEPT);
		fake_board_changes(&fake);
	}
	flytune_problem_free(problem);
	flytune_problem_free(same);
	flytune_close(client);
}

static void a_kept_answer_is_the_same_to_the_last_byte(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);
	struct flytune_answer asked, kept;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	memset(&asked, 0x55, sizeof asked);
	memset(&kept, 0xaa, sizeof kept);
	flytune_answer_init(&asked);
	flytune_answer_init(&kept);
	assert_int_equal(flytune_lookup(client, problem, NULL, &asked, NULL), FLYTUNE_OK);
	assert_int_equal(flytune_lookup(client, problem, NULL, &kept, NULL), FLYTUNE_OK);
	assert_int_equal(kept.flags, FLYTUNE_ANSWER_KEPT);
	kept.flags = asked.flags;
	assert_true(asked.knob_count > 0);
	assert_memory_equal(&asked, &kept,
	        offsetof(struct flytune_answer, knob) + asked.knob_count * sizeof asked.knob[0]);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void a_miss_tells_how_often_it_was_asked_for(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(FAKE_M_MISS);

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	for (int round = 1; round <= 5; round++) {
		assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_DEFAULT), 0);
		assert_int_equal(atomic_load(&fake.lookups), round);
		assert_int_equal(atomic_load(&fake.repeats), round == 1 ? 0 : 10);
		for (int i = 0; i < 10; i++)
			assert_int_equal(
			        flags_of(client, problem, FLYTUNE_SOURCE_DEFAULT), FLYTUNE_ANSWER_KEPT);
		fake_board_changes(&fake);
	}
	flytune_problem_free(problem);
	flytune_close(client);
}

static void without_a_board_that_can_be_trusted_every_lookup_asks(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);

	(void)state;
	fake_board(&fake, FAKE_SHRINKABLE);
	fake_listen(&fake);
	client = open_client();
	for (int i = 1; i <= 5; i++) {
		assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), 0);
		assert_int_equal(atomic_load(&fake.lookups), i);
	}
	flytune_problem_free(problem);
	flytune_close(client);
}

static void an_answer_taken_back_before_the_daemon_died_is_not_given(void **state)
{
	flytune_client *client;
	flytune_problem *held = rmsnorm(64), *taken_back = rmsnorm(65);

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	flags_of(client, taken_back, FLYTUNE_SOURCE_TUNED);
	fake_board_changes(&fake);
	flags_of(client, held, FLYTUNE_SOURCE_TUNED);
	fake_stop(&fake);
	fake_board_dies(&fake);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(flags_of(client, held, FLYTUNE_SOURCE_TUNED),
		        FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
		assert_int_equal(flags_of(client, taken_back, FLYTUNE_SOURCE_DEFAULT), FLYTUNE_ANSWER_AWAY);
	}
	flytune_problem_free(held);
	flytune_problem_free(taken_back);
	flytune_close(client);
}

static void a_successor_is_asked_within_100_ms(void **state)
{
	enum { ROUNDS_OF_DEATH = 2 * BOARDS_KEPT + 1 };
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);
	uint64_t began;
	int late = 0;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	flags_of(client, problem, FLYTUNE_SOURCE_TUNED);
	for (int i = 0; i < ROUNDS_OF_DEATH; i++) {
		fake_stop(&fake);
		fake_board_dies(&fake);
		assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED),
		        FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
		fake_board(&fake, FAKE_SOUND);
		fake_listen(&fake);
		began = clock_now();
		while ((flags_of(client, problem, FLYTUNE_SOURCE_TUNED) & FLYTUNE_ANSWER_AWAY) != 0)
			assert_true(clock_now() - began < PATIENT_MS * CLOCK_MS);
		late += clock_now() - began > 1000 * CLOCK_MS;
		/* It was asked, not believed: its word is the same number as its predecessor's. */
		assert_int_equal(atomic_load(&fake.lookups), i + 2);
		assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), FLYTUNE_ANSWER_KEPT);
	}
	/* 100 ms, and what a busy machine may add; now and then it may add more. */
	assert_true(late < ROUNDS_OF_DEATH / 2);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void a_child_goes_on_with_what_its_parent_had(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64), *other = rmsnorm(65);
	int status;
	pid_t child;

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	flags_of(client, problem, FLYTUNE_SOURCE_TUNED);
	child = fork();
	if (child == 0) {
		bool good = flags_of(client, problem, FLYTUNE_SOURCE_TUNED) == FLYTUNE_ANSWER_KEPT;

		fake_board_changes(&fake);
		good = good && flags_of(client, problem, FLYTUNE_SOURCE_TUNED) == 0 &&
		        flags_of(client, other, FLYTUNE_SOURCE_TUNED) == 0 &&
		        flags_of(client, other, FLYTUNE_SOURCE_TUNED) == FLYTUNE_ANSWER_KEPT;
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* What changed is seen here as well. */
	assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), 0);
	flytune_problem_free(problem);
	flytune_problem_free(other);
	flytune_close(client);
}

static void a_named_generation_needs_no_word(void **state)
{
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	setenv("FLYTUNE_GENERATION", "01234567-89ab-cdef-0123-456789abcdef:7", 1);
	client = open_client();
	assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), 0);
	fake_board_changes(&fake);
	assert_int_equal(flags_of(client, problem, FLYTUNE_SOURCE_TUNED), FLYTUNE_ANSWER_KEPT);
	fake_stop(&fake);
	fake_board_dies(&fake);
	assert_int_equal(
	        flags_of(client, problem, FLYTUNE_SOURCE_TUNED), FLYTUNE_ANSWER_AWAY | FLYTUNE_ANSWER_KEPT);
	flytune_problem_free(problem);
	flytune_close(client);
}

static void a_program_of_another_release_gets_what_it_knows(void **state)
{
	struct {
		struct flytune_answer answer;
		uint64_t newer;
	} large;
	struct flytune_answer answer;
	flytune_client *client;
	flytune_problem *problem = rmsnorm(64);

	(void)state;
	fake_board(&fake, FAKE_SOUND);
	fake_listen(&fake);
	client = open_client();
	flags_of(client, problem, FLYTUNE_SOURCE_TUNED);
	large.newer = 5;
	large.answer.size = sizeof large;
	assert_int_equal(flytune_lookup(client, problem, NULL, &large.answer, NULL), FLYTUNE_OK);
	assert_int_equal(large.answer.size, sizeof large);
	assert_int_equal(large.newer, 0);
	assert_int_equal(flytune_answer_get(&large.answer, "M", -2), 64);
	memset(&answer, 0x77, sizeof answer);
	answer.size = offsetof(struct flytune_answer, generation);
	assert_int_equal(flytune_lookup(client, problem, NULL, &answer, NULL), FLYTUNE_OK);
	assert_int_equal(answer.source, FLYTUNE_SOURCE_TUNED);
	assert_int_equal(answer.generation, UINT64_C(0x7777777777777777));
	flytune_problem_free(problem);
	flytune_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(kept_answers_are_bounded_and_never_mixed_up),
	        cmocka_unit_test(as_many_as_were_asked_for_are_kept),
	        cmocka_unit_test(the_answer_used_last_is_kept),
	        cmocka_unit_test(repeats_are_counted_told_once_and_given_back),
	        cmocka_unit_test(readers_never_see_half_an_answer),
	        ROW(a_board_that_could_hurt_is_refused),
	        ROW(a_later_board_takes_all_answers_back),
	        ROW(a_repeated_lookup_asks_nobody_until_its_word_changes),
	        ROW(a_kept_answer_is_the_same_to_the_last_byte),
	        ROW(a_miss_tells_how_often_it_was_asked_for),
	        ROW(without_a_board_that_can_be_trusted_every_lookup_asks),
	        ROW(an_answer_taken_back_before_the_daemon_died_is_not_given),
	        ROW(a_successor_is_asked_within_100_ms),
	        ROW(a_child_goes_on_with_what_its_parent_had),
	        ROW(a_named_generation_needs_no_word),
	        ROW(a_program_of_another_release_gets_what_it_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
