#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"

#define FT_SAMPLE(F)                        \
	F(UINT, id, 0, FT_REQUIRED)         \
	F(TEXT, word, 8, FT_REQUIRED)       \
	F(BOOL, flag, 0, FT_OPTIONAL)       \
	F(INT, number, 0, FT_OPTIONAL)      \
	F(REAL, real, 0, FT_OPTIONAL)       \
	F(BYTES, bytes, 0, FT_OPTIONAL)     \
	F(PROBLEM, problem, 0, FT_OPTIONAL) \
	F(CONFIG, config, 0, FT_OPTIONAL)   \
	F(RAW, raw, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(sample, FT_SAMPLE)
FT_DEFINE_MESSAGE(sample, FT_SAMPLE)

#define FT_STRICT(F)                      \
	F(BYTES, bytes, 0, FT_REQUIRED)   \
	F(CONFIG, config, 0, FT_REQUIRED) \
	F(RAW, raw, 0, FT_REQUIRED)
FT_DECLARE_MESSAGE(strict, FT_STRICT)
FT_DEFINE_MESSAGE(strict, FT_STRICT)

static struct ft_view view_of(const void *data, size_t length)
{
	return (struct ft_view){.data = data, .length = length};
}

static int decode(const void *data, size_t length, struct ft_sample *sample, struct ft_error *error)
{
	return ft_decode(&ft_sample_message, view_of(data, length), sample, error);
}

static void fill(struct ft_sample *sample)
{
	memset(sample, 0, sizeof(*sample));
	sample->id = UINT64_MAX;
	strcpy(sample->word, "seven77");
	sample->flag = true;
	sample->number = INT64_MIN;
	sample->real = 0.1;
	sample->bytes = view_of("\0\1", 2);
	ft_problem_set_number(&sample->problem, "m", 64, NULL);
	ft_problem_set_text(&sample->problem, "dtype", "bf16", NULL);
	ft_config_set(&sample->config, "B", -1, NULL);
	ft_config_set_word(&sample->config, "layout", "rows", NULL);
	sample->raw = view_of("\x92\x01\x02", 3);
}

static void every_type_comes_back_as_it_was(void **state)
{
	(void)state;
	uint8_t data[512];
	struct ft_writer writer;
	struct ft_sample sample;
	struct ft_sample read;
	fill(&sample);
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_encode(&writer, &ft_sample_message, &sample);
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(decode(data, writer.length, &read, NULL), 0);
	assert_true(read.id == sample.id);
	assert_string_equal(read.word, sample.word);
	assert_true(read.flag);
	assert_true(read.number == sample.number);
	assert_true(read.real == sample.real);
	assert_int_equal(read.bytes.length, 2);
	assert_memory_equal(read.bytes.data, sample.bytes.data, 2);
	assert_true(ft_problem_equal(&read.problem, &sample.problem));
	assert_true(ft_config_equal(&read.config, &sample.config));
	assert_int_equal(read.raw.length, 3);
	assert_memory_equal(read.raw.data, sample.raw.data, 3);
}

static void a_body_cut_anywhere_or_with_more_behind_it_is_refused(void **state)
{
	(void)state;
	uint8_t data[512];
	struct ft_writer writer;
	struct ft_sample sample;
	fill(&sample);
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_encode(&writer, &ft_sample_message, &sample);
	for (size_t cut = 0; cut < writer.length; cut++) {
		uint8_t *copy = malloc(cut + 1);
		assert_non_null(copy);
		memcpy(copy, data, cut);
		struct ft_error error = {0};
		assert_int_equal(decode(copy, cut, &sample, &error), -1);
		assert_string_not_equal(error.message, "");
		free(copy);
	}
	ft_write_nil(&writer);
	assert_int_equal(decode(data, writer.length, &sample, NULL), -1);
}

static void what_is_empty_does_not_travel_unless_required(void **state)
{
	(void)state;
	uint8_t data[64];
	struct ft_writer writer;
	struct ft_sample sample = {0};
	ft_writer_init_fixed(&writer, data, sizeof(data));
	sample.real = NAN;
	ft_encode(&writer, &ft_sample_message, &sample);
	assert_int_equal(writer.length, 11);
	assert_memory_equal(data, "\x82\xa2id\x00\xa4word\xa0", writer.length);
	struct ft_strict strict = {.raw = view_of("\x90", 1)};
	ft_writer_reset(&writer);
	ft_encode(&writer, &ft_strict_message, &strict);
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(writer.length, 22);
	assert_memory_equal(data,
	        "\x83\xa5"
	        "bytes\xc4\0\xa6"
	        "config\x80\xa3raw\x90",
	        writer.length);
	strict.raw.length = 0;
	ft_writer_reset(&writer);
	ft_encode(&writer, &ft_strict_message, &strict);
	assert_false(ft_writer_ok(&writer));
}

static void members_come_in_any_order_among_unknown_ones(void **state)
{
	(void)state;
	static const char body[] =
	        "\x85\xa4word\xa1x\xa1z\x82\x01\x92\x02\x03\xc0\xc0\xa6number\xfe\xa2id\x07\xa3wor\xa1y";
	struct ft_sample sample;
	assert_int_equal(decode(body, sizeof(body) - 1, &sample, NULL), 0);
	assert_int_equal(sample.id, 7);
	assert_string_equal(sample.word, "x");
	assert_int_equal(sample.number, -2);
}

static void nil_reads_as_absent(void **state)
{
	(void)state;
	struct ft_sample sample;
	struct ft_error error;
	assert_int_equal(decode("\x83\xa2id\x01\xa4word\xa0\xa4"
	                        "flag\xc0",
	                         17, &sample, NULL),
	        0);
	assert_false(sample.flag);
	assert_int_equal(decode("\x82\xa2id\xc0\xa4word\xa0", 11, &sample, &error), -1);
	assert_string_equal(error.field, "id");
}

#define REFUSED(bytes, wanted_code, wanted_field)                                        \
	do {                                                                             \
		struct ft_sample sample;                                                 \
		struct ft_error error;                                                   \
		assert_int_equal(decode(bytes, sizeof(bytes) - 1, &sample, &error), -1); \
		assert_string_equal(error.code, wanted_code);                            \
		assert_string_equal(error.field, wanted_field);                          \
	} while (0)

static void what_is_wrong_is_named(void **state)
{
	(void)state;
	REFUSED("", FT_E_BAD_REQUEST, "id");
	REFUSED("\x80", FT_E_BAD_REQUEST, "id");
	REFUSED("\x81\xa2id\x01", FT_E_BAD_REQUEST, "word");
	REFUSED("\x90", FT_E_BAD_REQUEST, "");
	REFUSED("\x81\x01\x01", FT_E_BAD_REQUEST, "");
	REFUSED("\x82\xa2id\x01\xa2id\x01", FT_E_BAD_REQUEST, "id");
	REFUSED("\x82\xa2id\xc0\xa2id\x01", FT_E_BAD_REQUEST, "id");
	REFUSED("\x81\xa2id\xff", FT_E_BAD_VALUE, "id");
	REFUSED("\x81\xa2id\xa1x", FT_E_BAD_REQUEST, "id");
	REFUSED("\x81\xa2id\xcb\x3f\xf0\0\0\0\0\0\0", FT_E_BAD_REQUEST, "id");
	REFUSED("\x81\xa6number\xcf\xff\xff\xff\xff\xff\xff\xff\xff", FT_E_BAD_VALUE, "number");
	REFUSED("\x81\xa4word\x01", FT_E_BAD_REQUEST, "word");
	REFUSED("\x81\xa4word\xc4\x01x", FT_E_BAD_REQUEST, "word");
	REFUSED("\x81\xa4word\xa8"
	        "eight888",
	        FT_E_BAD_VALUE, "word");
	REFUSED("\x81\xa4word\xa3x\0y", FT_E_BAD_VALUE, "word");
	REFUSED("\x81\xa4"
	        "flag\x01",
	        FT_E_BAD_REQUEST, "flag");
	REFUSED("\x81\xa4real\xcb\x7f\xf8\0\0\0\0\0\0", FT_E_BAD_REQUEST, "real");
	REFUSED("\x81\xa4real\xca\xff\x80\0\0", FT_E_BAD_REQUEST, "real");
	REFUSED("\x81\xa5"
	        "bytes\xa1x",
	        FT_E_BAD_REQUEST, "bytes");
	REFUSED("\x81\xa7problem\x90", FT_E_BAD_REQUEST, "problem");
	REFUSED("\x81\xa7problem\x82\xa1m\x01\xa1m\x02", FT_E_BAD_REQUEST, "m");
	REFUSED("\x81\xa6"
	        "config\x01",
	        FT_E_BAD_REQUEST, "config");
	REFUSED("\x81\xa6"
	        "config\x81\xa1"
	        "B\xa2+x",
	        FT_E_BAD_REQUEST, "B");
	REFUSED("\x81\xa3raw\x92\x01", FT_E_BAD_REQUEST, "raw");
	REFUSED("\x81\xa3raw", FT_E_BAD_REQUEST, "raw");
}

static void text_arrives_as_utf8(void **state)
{
	(void)state;
	static const char *const texts[][2] = {{"µ", "µ"}, {"…", "…"}, {"😀", "😀"}, {"\xc2", "?"},
	        {"a\xe2\x80", "a??"}, {"\xc0\x80", "??"}, {"\xed\xa0\x80", "???"},
	        {"\xf4\x90\x80\x80", "????"}, {"\xe0\x80\x80", "???"},
	        {"\xff"
	         "a",
	                "?a"},
	        {"\xc3(", "?("}, {"\xf0\x9f\x98", "???"}};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint8_t data[64];
		struct ft_writer writer;
		ft_writer_init_fixed(&writer, data, sizeof(data));
		ft_write_map(&writer, 2);
		ft_write_text(&writer, "id");
		ft_write_uint(&writer, 1);
		ft_write_text(&writer, "word");
		ft_write_text(&writer, texts[i][0]);
		struct ft_sample sample;
		assert_int_equal(decode(data, writer.length, &sample, NULL), 0);
		assert_string_equal(sample.word, texts[i][1]);
	}
}

/* ---- the envelope ---- */

static int open_bytes(const char *data, size_t length, struct ft_envelope *envelope)
{
	struct ft_error error = {0};
	int opened = ft_open_envelope(view_of(data, length), envelope, &error);
	if (opened != 0)
		assert_string_equal(error.code, FT_E_BAD_FRAME);
	return opened;
}
#define OPEN(bytes, envelope) open_bytes(bytes, sizeof(bytes) - 1, envelope)

static void the_three_kinds_of_message_open(void **state)
{
	(void)state;
	struct ft_envelope envelope;
	uint8_t data[128];
	struct ft_writer writer;
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_begin_request(&writer, UINT32_MAX, "lookup");
	ft_write_map(&writer, 0);
	assert_int_equal(ft_open_envelope(view_of(data, writer.length), &envelope, NULL), 0);
	assert_int_equal(envelope.type, FT_REQUEST);
	assert_int_equal(envelope.id, UINT32_MAX);
	assert_string_equal(envelope.method, "lookup");
	assert_int_equal(envelope.body.length, 1);
	assert_null(envelope.error.data);

	ft_writer_reset(&writer);
	ft_begin_response(&writer, 7);
	ft_write_map(&writer, 0);
	assert_int_equal(ft_open_envelope(view_of(data, writer.length), &envelope, NULL), 0);
	assert_int_equal(envelope.type, FT_RESPONSE);
	assert_int_equal(envelope.id, 7);
	assert_string_equal(envelope.method, "");
	assert_int_equal(envelope.body.length, 1);
	assert_null(envelope.error.data);

	ft_writer_reset(&writer);
	ft_begin_notice(&writer, "event");
	ft_write_map(&writer, 0);
	assert_int_equal(ft_open_envelope(view_of(data, writer.length), &envelope, NULL), 0);
	assert_int_equal(envelope.type, FT_NOTICE);
	assert_string_equal(envelope.method, "event");

	assert_int_equal(OPEN("\x94\0\x01\xa1x\xc0", &envelope), 0);
	assert_null(envelope.body.data);
}

static void a_failure_comes_back_as_it_was(void **state)
{
	(void)state;
	uint8_t data[1024];
	struct ft_writer writer;
	struct ft_envelope envelope;
	struct ft_error error;
	struct ft_error read;
	ft_fail_field(&error, FT_E_BAD_VALUE, "n", "0", "1 to 1048576");
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_failure(&writer, 9, &error);
	assert_true(ft_writer_ok(&writer));
	assert_int_equal(ft_open_envelope(view_of(data, writer.length), &envelope, NULL), 0);
	assert_int_equal(envelope.type, FT_RESPONSE);
	assert_int_equal(envelope.id, 9);
	assert_non_null(envelope.error.data);
	assert_null(envelope.body.data);
	ft_read_failure(envelope.error, &read);
	assert_string_equal(read.code, error.code);
	assert_string_equal(read.message, error.message);
	assert_string_equal(read.field, error.field);
	assert_string_equal(read.value, error.value);
	assert_string_equal(read.bound, error.bound);
	ft_read_failure(view_of("\x80", 1), &read);
	assert_string_equal(read.code, FT_E_PROTOCOL);
}

static void what_is_no_envelope_is_a_bad_frame(void **state)
{
	(void)state;
	struct ft_envelope envelope;
	assert_int_equal(OPEN("", &envelope), -1);
	assert_int_equal(OPEN("\xc0", &envelope), -1);
	assert_int_equal(OPEN("\x90", &envelope), -1);
	assert_int_equal(OPEN("\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\x03\x01\xa1x\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\xff\x01\xa1x\x80", &envelope), -1);
	assert_int_equal(OPEN("\x93\0\x01\xa1x", &envelope), -1);
	assert_int_equal(OPEN("\x94\x02\x01\xa1x\x80", &envelope), -1);
	assert_int_equal(OPEN("\x95\0\x01\xa1x\x80\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\0\xff\xa1x\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\0\xcf\0\0\0\x01\0\0\0\0\xa1x\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\0\x01\x01\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\0\x01\xa1x\x90", &envelope), -1);
	assert_int_equal(OPEN("\x94\0\x01\xa1x\xc0\xc0", &envelope), -1);
	assert_int_equal(OPEN("\x94\x01\x01\xa1x\xc0", &envelope), -1);
	assert_int_equal(OPEN("\x94\x01\x01\x80\x80", &envelope), -1);
	assert_int_equal(OPEN("\x94\x01\x01\xc0\x01", &envelope), -1);
	assert_int_equal(OPEN("\x94\x01\x01\x81", &envelope), -1);
	assert_int_equal(OPEN("\x93\x02\xa1x", &envelope), -1);
}

static void an_odd_method_keeps_its_request_and_equals_no_method(void **state)
{
	(void)state;
	struct ft_envelope envelope;
	assert_int_equal(OPEN("\x94\0\x05\xa7lookup\0\x80", &envelope), 0);
	assert_int_equal(envelope.id, 5);
	assert_string_equal(envelope.method, "lookup?");
	assert_int_equal(
	        OPEN("\x94\0\x05\xd9\x28lookuplookuplookuplookuplookuplookuplook\x80", &envelope), 0);
	assert_int_equal(strlen(envelope.method), FT_NAME_SIZE - 1);
	assert_int_equal(OPEN("\x94\0\x05\xa0\x80", &envelope), 0);
	assert_string_equal(envelope.method, "");
}

static void a_response_put_together_in_one_go_is_the_same(void **state)
{
	static const uint64_t numbers[] = {
	        0, 127, 128, 255, 256, 65535, 65536, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX};
	static const uint8_t before[] = {0x82, 0xa1, 'a', 0x07, 0xa1, 'g'};
	static const uint8_t after[1] = {0};
	enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

	(void)state;
	for (size_t i = 0; i < NUMBERS; i++) {
		uint8_t room[64], whole[64];
		struct ft_writer parts, once;

		ft_writer_init_fixed(&parts, room, sizeof(room));
		ft_begin_response(&parts, numbers[NUMBERS - 1 - i]);
		ft_write_raw(&parts, before, sizeof(before));
		ft_write_uint(&parts, numbers[i]);
		ft_writer_init_fixed(&once, whole, sizeof(whole));
		ft_write_response_around(&once, numbers[NUMBERS - 1 - i],
		        (struct ft_view){before, sizeof(before)}, numbers[i], (struct ft_view){after, 0});
		assert_true(ft_writer_ok(&once));
		assert_int_equal(once.length, parts.length);
		assert_memory_equal(once.data, parts.data, parts.length);
	}
	struct ft_writer small;
	uint8_t little[20];

	ft_writer_init_fixed(&small, little, sizeof(little));
	ft_write_response_around(
	        &small, 1, (struct ft_view){before, sizeof(before)}, 1, (struct ft_view){after, 0});
	assert_false(ft_writer_ok(&small));
	assert_int_equal(small.length, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_type_comes_back_as_it_was),
	        cmocka_unit_test(a_body_cut_anywhere_or_with_more_behind_it_is_refused),
	        cmocka_unit_test(what_is_empty_does_not_travel_unless_required),
	        cmocka_unit_test(members_come_in_any_order_among_unknown_ones),
	        cmocka_unit_test(nil_reads_as_absent),
	        cmocka_unit_test(what_is_wrong_is_named),
	        cmocka_unit_test(text_arrives_as_utf8),
	        cmocka_unit_test(the_three_kinds_of_message_open),
	        cmocka_unit_test(a_failure_comes_back_as_it_was),
	        cmocka_unit_test(a_response_put_together_in_one_go_is_the_same),
	        cmocka_unit_test(what_is_no_envelope_is_a_bad_frame),
	        cmocka_unit_test(an_odd_method_keeps_its_request_and_equals_no_method),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
