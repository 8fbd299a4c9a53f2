/* The bytes on disk: keys sort as they should, values come back as they were, and damage shows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/store/record.h"

static struct store_key key_of(uint8_t which, uint64_t scale)
{
	struct store_key key = {.kernel = 1, .device = 2};

	memset(key.problem.hash, which, sizeof(key.problem.hash));
	key.problem.scale = scale;
	return key;
}

static int order(const struct record_key *a, const struct record_key *b)
{
	int order = memcmp(a->data, b->data, a->length < b->length ? a->length : b->length);

	return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static void keys_sort_by_scale_and_history_newest_first(void **state)
{
	static const uint64_t scale[] = {0, 1, 255, 256, 65535, UINT32_MAX, UINT64_MAX};
	struct record_key low, high;

	(void)state;
	for (size_t i = 0; i + 1 < sizeof(scale) / sizeof(scale[0]); i++) {
		struct store_key a = key_of(7, scale[i]);
		struct store_key b = key_of(7, scale[i + 1]);

		record_key_problem(&low, RECORD_ANSWER, &a);
		record_key_problem(&high, RECORD_ANSWER, &b);
		assert_true(order(&low, &high) < 0);
		record_key_history(&low, &a, 1);
		record_key_history(&high, &b, UINT64_MAX);
		assert_true(order(&low, &high) < 0);
		record_key_history(&low, &a, scale[i + 1]);
		record_key_history(&high, &a, scale[i]);
		assert_true(order(&low, &high) < 0);
		record_key_job(&low, scale[i]);
		record_key_job(&high, scale[i + 1]);
		assert_true(order(&low, &high) < 0);
	}
}

static void the_layout_of_a_key_is_as_documented(void **state)
{
	struct store_key key = {.kernel = 0x01020304, .device = 0x05060708};
	struct record_key made;
	uint8_t expected[41] = {'H', 1, 2, 3, 4, 5, 6, 7, 8};

	(void)state;
	memset(key.problem.hash, 0xaa, 16);
	memset(expected + 9, 0xaa, 16);
	key.problem.scale = 0x1122;
	expected[31] = 0x11;
	expected[32] = 0x22;
	memset(expected + 33, 0xff, 8);
	expected[40] = 0xfa;
	record_key_history(&made, &key, 5);
	assert_int_equal(made.length, sizeof(expected));
	assert_memory_equal(made.data, expected, sizeof(expected));
	record_key_trials(&made, &key, 0x0d0e0f10, 0);
	assert_int_equal(made.length, RECORD_TRIALS_SIZE);
	assert_int_equal(made.data[0], 'T');
	assert_int_equal(made.data[36], 0x10);
}

static void any_flipped_bit_or_wrong_place_shows(void **state)
{
	struct store_key key = key_of(1, 64);
	struct record_key at, other;
	struct ft_writer value;
	struct ft_view body;

	(void)state;
	record_key_problem(&at, RECORD_ANSWER, &key);
	key.problem.scale = 65;
	record_key_problem(&other, RECORD_ANSWER, &key);
	ft_writer_init_growing(&value, 1 << 20);
	record_start(&value);
	ft_write_text(&value, "some body");
	record_seal(&value, at.data, at.length);
	assert_true(ft_writer_ok(&value));
	assert_true(record_open(at.data, at.length, value.data, value.length, &body));
	assert_int_equal(body.length, 10);
	assert_false(record_open(other.data, other.length, value.data, value.length, &body));
	for (size_t i = 0; i < value.length * 8; i++) {
		value.data[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_false(record_open(at.data, at.length, value.data, value.length, &body));
		value.data[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (size_t length = 0; length < value.length; length++)
		assert_false(record_open(at.data, at.length, value.data, length, &body));
	ft_writer_free(&value);
}

static void meta_comes_back_and_a_newer_one_gives_its_format_away(void **state)
{
	struct record_meta meta = {
	        .format = RECORD_FORMAT,
	        .uuid = "01234567-89ab-4def-8123-456789abcdef",
	        .generation = UINT64_MAX,
	        .floor = 1,
	        .answers = 2,
	        .history = 3,
	        .next_job = 4,
	        .identities = 5,
	};
	struct record_meta back;
	struct ft_writer value;

	(void)state;
	ft_writer_init_growing(&value, 4096);
	record_write_meta(&value, &meta);
	assert_true(record_read_meta((struct ft_view){value.data, value.length}, &back));
	assert_string_equal(back.uuid, meta.uuid);
	assert_int_equal(back.generation, UINT64_MAX);
	assert_int_equal(back.floor, 1);
	assert_int_equal(back.answers, 2);
	assert_int_equal(back.history, 3);
	assert_int_equal(back.next_job, 4);
	assert_int_equal(back.identities, 5);
	ft_writer_reset(&value);
	ft_write_array(&value, 3);
	ft_write_uint(&value, 9);
	ft_write_text(&value, "what may come");
	ft_write_nil(&value);
	assert_true(record_read_meta((struct ft_view){value.data, value.length}, &back));
	assert_int_equal(back.format, 9);
	ft_writer_free(&value);
}

static struct trials *full_trials(uint32_t count)
{
	struct trials *trials = trials_new(count);

	assert_non_null(trials);
	strcpy(trials->kernel, "rmsnorm");
	ft_problem_set_number(&trials->problem, "n", -5, NULL);
	ft_problem_set_text(&trials->problem, "dtype", "bf16", NULL);
	trials->seed = UINT64_MAX;
	trials->rounds = 201;
	trials->default_index = count - 1;
	trials->winner = 0;
	trials->conclusive = true;
	trials->sweep_ns = 123;
	strcpy(trials->method, "graphs");
	strcpy(trials->reason, "clearly best");
	for (uint32_t i = 0; i < count; i++) {
		struct trial *trial = &trials->trial[i];

		ft_config_set(&trial->config, "BLOCK_THREADS", 64 + i, NULL);
		if (i % 2 == 1)
			ft_config_set(&trial->config, "late", -(int64_t)i, NULL);
		else if (i % 4 == 0)
			ft_config_set_word(&trial->config, "layout", i % 8 == 0 ? "rows" : "columns", NULL);
		trial->status = (enum trial_status)(i % 7);
		trial->verified = i % 2 == 0;
		trial->dropped = i % 3 == 0;
		trial->struck = i % 5 == 0;
		trial->dropped_round = i;
		trial->same_as = i / 2;
		snprintf(trial->code, sizeof(trial->code), "%032x", i);
		trial->registers = i;
		trial->spills = UINT64_MAX - i;
		trial->build_ns = 1000000 * (uint64_t)i;
		trial->error = i == 2 ? NAN : i * 0.001;
		snprintf(trial->reason, sizeof(trial->reason), "reason %u", i);
		if (i % 4 == 3)
			continue;
		for (int round = 0; round < FT_ROUNDS_MAX; round++)
			trials_samples(trials, i)[round] = round > 200 ? 0
			        : round == 7                           ? UINT64_MAX
			                                               : (uint64_t)round << (round % 60);
	}
	return trials;
}

static void an_import_comes_back_with_its_words_or_its_document(void **state)
{
	static struct store_answer back;
	static char text[FT_DOCUMENT_MAX];
	static const char longest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	                              "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

	(void)state;
	memset(text, '1', sizeof(text));
	for (int document = 0; document < 2; document++) {
		struct store_import import = {.set = true, .origin = "here", .identity = "there", .at_ns = 5};
		struct ft_problem problem = {.count = 0};
		struct ft_writer part[2], value;

		if (document) {
			import.config = (struct ft_config){.document = text, .document_length = sizeof(text)};
		} else {
			ft_config_set(&import.config, "split", -1, NULL);
			ft_config_set_word(&import.config, "layout", "rows", NULL);
		}
		assert_int_equal(ft_problem_set_text(&problem, "label", longest, NULL), 0);
		for (int i = 0; i < 2; i++)
			ft_writer_init_growing(&part[i], 1 << 16);
		ft_writer_init_growing(&value, 1 << 16);
		record_write_problem(&part[0], &problem);
		record_write_import(&part[1], &import);
		record_write_answer(&value,
		        &(struct record_answer){.generation = 7,
		                .problem = {part[0].data, part[0].length},
		                .pin = {(const uint8_t *)"\xc0", 1},
		                .winner = {(const uint8_t *)"\xc0", 1},
		                .import = {part[1].data, part[1].length}});
		assert_true(record_read_answer((struct ft_view){value.data, value.length}, &back));
		assert_true(ft_problem_equal(&back.problem, &problem));
		assert_true(back.import.set && ft_config_equal(&back.import.config, &import.config));
		assert_int_equal(back.import.at_ns, 5);
		for (size_t length = 0; length < value.length; length++)
			assert_false(record_read_answer((struct ft_view){value.data, length}, &back));
		ft_writer_free(&value);
		for (int i = 0; i < 2; i++)
			ft_writer_free(&part[i]);
	}
}

static void trials_come_back_whole(void **state)
{
	struct trials *trials = full_trials(40);
	struct trials *back;
	struct ft_writer value;
	bool sound;

	(void)state;
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_trials(&value, trials);
	assert_true(ft_writer_ok(&value));
	back = record_read_trials((struct ft_view){value.data, value.length}, &sound);
	assert_true(sound);
	assert_non_null(back);
	assert_string_equal(back->kernel, trials->kernel);
	assert_true(ft_problem_equal(&back->problem, &trials->problem));
	assert_int_equal(back->seed, trials->seed);
	assert_int_equal(back->rounds, 201);
	assert_int_equal(back->default_index, 39);
	assert_int_equal(back->winner, 0);
	assert_true(back->conclusive);
	assert_int_equal(back->sweep_ns, 123);
	assert_string_equal(back->method, "graphs");
	assert_string_equal(back->reason, "clearly best");
	assert_int_equal(back->count, 40);
	for (uint32_t i = 0; i < 40; i++) {
		const struct trial *a = &trials->trial[i], *b = &back->trial[i];

		assert_true(ft_config_equal(&a->config, &b->config));
		assert_int_equal(a->status, b->status);
		assert_int_equal(a->verified, b->verified);
		assert_int_equal(a->dropped, b->dropped);
		assert_int_equal(a->struck, b->struck);
		assert_int_equal(a->dropped_round, b->dropped_round);
		assert_int_equal(a->same_as, b->same_as);
		assert_string_equal(a->code, b->code);
		assert_int_equal(a->registers, b->registers);
		assert_int_equal(a->spills, b->spills);
		assert_int_equal(a->build_ns, b->build_ns);
		assert_true(i == 2 ? isinf(b->error) : a->error == b->error);
		assert_string_equal(a->reason, b->reason);
		assert_int_equal(a->sample_ps == NULL, b->sample_ps == NULL);
		if (a->sample_ps != NULL)
			assert_memory_equal(a->sample_ps, b->sample_ps, FT_ROUNDS_MAX * sizeof(uint64_t));
	}
	trials_free(back);
	ft_writer_free(&value);
	trials_free(trials);
}

static void a_usual_set_of_trials_is_small(void **state)
{
	struct trials *trials = trials_new(12);
	struct ft_writer value;

	(void)state;
	for (uint32_t i = 0; i < 12; i++) {
		ft_config_set(&trials->trial[i].config, "BLOCK_THREADS", 128 << i % 4, NULL);
		ft_config_set(&trials->trial[i].config, "waves_per_eu", i / 4, NULL);
		for (int round = 0; round < 15; round++)
			trials_samples(trials, i)[round] = 81200000;
	}
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_trials(&value, trials);
	assert_true(ft_writer_ok(&value));
	assert_true(value.length < 2000);
	ft_writer_free(&value);
	trials_free(trials);
}

static void a_body_that_makes_no_sense_is_refused(void **state)
{
	struct trials *trials = full_trials(5);
	struct ft_writer value;
	uint8_t *copy;

	(void)state;
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_trials(&value, trials);
	copy = malloc(value.length);
	assert_non_null(copy);
	srand(3);
	for (int i = 0; i < 20000; i++) {
		size_t length = i % 2 == 0 ? (size_t)rand() % value.length : value.length;
		bool sound;
		struct store_answer answer;
		struct record_history row;

		memcpy(copy, value.data, value.length);
		for (int flip = 0; flip < 3; flip++)
			copy[(size_t)rand() % value.length] = (uint8_t)rand();
		/* Whatever comes out, it does so without harm, and indices in it are in range. */
		struct trials *back = record_read_trials((struct ft_view){copy, length}, &sound);
		if (back != NULL) {
			assert_true(back->winner < (int64_t)back->count);
			for (uint32_t k = 0; k < back->count; k++)
				assert_true(back->trial[k].same_as < back->count);
		}
		trials_free(back);
		record_read_answer((struct ft_view){copy, length}, &answer);
		record_read_history((struct ft_view){copy, length}, &row);
	}
	free(copy);
	ft_writer_free(&value);
	trials_free(trials);
}

/* Of a space that is not listed they are in several records, and each has its place and its look. */
static void trials_of_a_large_space_come_back_in_chunks(void **state)
{
	enum { COUNT = 2 * RECORD_CHUNK + 7 };
	struct trials *trials = full_trials(COUNT);
	struct trials *back;
	struct ft_writer value;
	bool sound;

	(void)state;
	trials->unlisted = 20736;
	trials->raced = true;
	for (uint32_t i = 0; i < COUNT; i++) {
		trials->trial[i].place = 20735 - i;
		trials->trial[i].look_ps = i * 1000000ULL;
	}
	assert_int_equal(record_chunks(trials), 3);
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_trials(&value, trials);
	back = record_read_trials((struct ft_view){value.data, value.length}, &sound);
	assert_true(sound);
	assert_non_null(back);
	assert_int_equal(back->count, COUNT);
	assert_int_equal(back->unlisted, 20736);
	assert_true(back->raced);
	for (uint32_t chunk = 1; chunk < 3; chunk++) {
		ft_writer_reset(&value);
		record_write_chunk(&value, trials, chunk);
		assert_true(ft_writer_ok(&value));
		for (size_t length = 0; length < value.length; length += 101)
			assert_false(record_read_chunk((struct ft_view){value.data, length}, back, chunk));
		assert_false(record_read_chunk((struct ft_view){value.data, value.length}, back, 3 - chunk));
		assert_true(record_read_chunk((struct ft_view){value.data, value.length}, back, chunk));
	}
	assert_true(record_sound_trials(back));
	for (uint32_t i = 0; i < COUNT; i++) {
		const struct trial *a = &trials->trial[i], *b = &back->trial[i];

		assert_true(ft_config_equal(&a->config, &b->config));
		assert_int_equal(b->status, a->status);
		assert_int_equal(b->place, a->place);
		assert_int_equal(b->look_ps, a->look_ps);
	}
	trials_free(back);
	ft_writer_free(&value);
	trials_free(trials);
}

static void too_many_knob_names_fail_the_write_and_not_the_process(void **state)
{
	struct trials *trials = trials_new(40);
	struct ft_writer value;

	(void)state;
	for (uint32_t i = 0; i < 40 * 16; i++) {
		char name[FT_NAME_SIZE];

		snprintf(name, sizeof(name), "knob%u", i);
		ft_config_set(&trials->trial[i / 16].config, name, 1, NULL);
	}
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_write_trials(&value, trials);
	assert_false(ft_writer_ok(&value));
	ft_writer_free(&value);
	trials_free(trials);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(keys_sort_by_scale_and_history_newest_first),
	        cmocka_unit_test(trials_of_a_large_space_come_back_in_chunks),
	        cmocka_unit_test(the_layout_of_a_key_is_as_documented),
	        cmocka_unit_test(any_flipped_bit_or_wrong_place_shows),
	        cmocka_unit_test(meta_comes_back_and_a_newer_one_gives_its_format_away),
	        cmocka_unit_test(an_import_comes_back_with_its_words_or_its_document),
	        cmocka_unit_test(trials_come_back_whole),
	        cmocka_unit_test(a_usual_set_of_trials_is_small),
	        cmocka_unit_test(a_body_that_makes_no_sense_is_refused),
	        cmocka_unit_test(too_many_knob_names_fail_the_write_and_not_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
