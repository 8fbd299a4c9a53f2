#include "tests/unit/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "proto/reader.h"
#include "proto/writer.h"

static const struct ft_bounds small = {.bytes = 4096, .depth = 8, .values = 1000};

static int scan_whole(
        const void *data, size_t length, const struct ft_bounds *bounds, size_t *end, struct ft_error *error)
{
	struct ft_scan scan;
	ft_scan_init(&scan, bounds);
	/* A copy of exactly that size, so that a sanitizer sees a read past the end. */
	uint8_t *copy = malloc(length > 0 ? length : 1);
	assert_non_null(copy);
	memcpy(copy, data, length);
	int whole = ft_scan_walk(&scan, copy, length, error);
	free(copy);
	if (end != NULL)
		*end = scan.offset;
	return whole;
}

/* ---- random messages, made and understood by msgpack-c ---- */

static void pack_random(msgpack_packer *packer, uint64_t *random, int depth)
{
	static const char filler[400] = "text";
	uint64_t number = check_random(random) >> (check_random(random) % 64);
	size_t length = check_random(random) % (check_random(random) % 8 == 0 ? sizeof(filler) : 12);
	uint32_t count = (uint32_t)(check_random(random) % (check_random(random) % 16 == 0 ? 20 : 4));
	switch (check_random(random) % (depth > 0 ? 14 : 12)) {
	case 0:
		msgpack_pack_nil(packer);
		break;
	case 1:
		msgpack_pack_true(packer);
		break;
	case 2:
		msgpack_pack_uint64(packer, number);
		break;
	case 3:
		msgpack_pack_int64(packer, -(int64_t)(number >> 1));
		break;
	case 4: /* wider than need be */
		msgpack_pack_fix_uint16(packer, (uint16_t)number);
		break;
	case 5:
		msgpack_pack_fix_int64(packer, (int64_t)number);
		break;
	case 6:
		msgpack_pack_fix_int8(packer, (int8_t)number);
		break;
	case 7:
		msgpack_pack_double(packer, (double)number / 7);
		break;
	case 8:
		msgpack_pack_float(packer, (float)number / 7);
		break;
	case 9:
		msgpack_pack_str_with_body(packer, filler, length);
		break;
	case 10:
		msgpack_pack_bin_with_body(packer, filler, length);
		break;
	case 11:
		msgpack_pack_ext_with_body(packer, filler, length, 5);
		break;
	case 12:
		msgpack_pack_array(packer, count);
		for (uint32_t i = 0; i < count; i++)
			pack_random(packer, random, depth - 1);
		break;
	default:
		msgpack_pack_map(packer, count);
		for (uint32_t i = 0; i < 2 * count; i++)
			pack_random(packer, random, depth - 1);
		break;
	}
}

/* Reads one value by the cursor and compares it with what msgpack-c saw. */
static void compare(struct ft_cursor *cursor, const msgpack_object *object)
{
	bool flag = false;
	int64_t number = 0;
	uint64_t large = 0;
	double real = 0;
	const char *text = NULL;
	const uint8_t *bytes = NULL;
	size_t length = 0;
	uint32_t count = 0;
	struct ft_view view;
	switch (object->type) {
	case MSGPACK_OBJECT_NIL:
		assert_int_equal(ft_peek(cursor), FT_KIND_NIL);
		assert_true(ft_read_nil(cursor));
		break;
	case MSGPACK_OBJECT_BOOLEAN:
		assert_int_equal(ft_peek(cursor), FT_KIND_BOOL);
		assert_true(ft_read_bool(cursor, &flag));
		assert_int_equal(flag, object->via.boolean);
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		assert_int_equal(ft_peek(cursor), FT_KIND_INT);
		if (object->via.u64 <= INT64_MAX) {
			struct ft_cursor again = *cursor;
			assert_true(ft_read_int(&again, &number));
			assert_true((uint64_t)number == object->via.u64);
			again = *cursor;
			assert_true(ft_read_real(&again, &real));
			assert_true(real == (double)number);
		} else {
			assert_false(ft_read_int(cursor, &number));
		}
		assert_true(ft_read_uint(cursor, &large));
		assert_true(large == object->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		assert_int_equal(ft_peek(cursor), FT_KIND_INT);
		assert_false(ft_read_uint(cursor, &large));
		assert_true(ft_read_int(cursor, &number));
		assert_true(number == object->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		assert_int_equal(ft_peek(cursor), FT_KIND_REAL);
		assert_false(ft_read_int(cursor, &number));
		if (isfinite(object->via.f64)) {
			assert_true(ft_read_real(cursor, &real));
			assert_true(real == object->via.f64);
		} else {
			assert_false(ft_read_real(cursor, &real));
			assert_true(ft_read_view(cursor, &view));
		}
		break;
	case MSGPACK_OBJECT_STR:
		assert_int_equal(ft_peek(cursor), FT_KIND_TEXT);
		assert_false(ft_read_bytes(cursor, &bytes, &length));
		assert_true(ft_read_text(cursor, &text, &length));
		assert_int_equal(length, object->via.str.size);
		assert_memory_equal(text, object->via.str.ptr, length);
		break;
	case MSGPACK_OBJECT_BIN:
		assert_int_equal(ft_peek(cursor), FT_KIND_BYTES);
		assert_false(ft_read_text(cursor, &text, &length));
		assert_true(ft_read_bytes(cursor, &bytes, &length));
		assert_int_equal(length, object->via.bin.size);
		assert_memory_equal(bytes, object->via.bin.ptr, length);
		break;
	case MSGPACK_OBJECT_EXT:
		assert_int_equal(ft_peek(cursor), FT_KIND_OTHER);
		assert_true(ft_read_view(cursor, &view));
		break;
	case MSGPACK_OBJECT_ARRAY:
		assert_int_equal(ft_peek(cursor), FT_KIND_ARRAY);
		assert_false(ft_read_map(cursor, &count));
		assert_true(ft_read_array(cursor, &count));
		assert_int_equal(count, object->via.array.size);
		for (uint32_t i = 0; i < count; i++)
			compare(cursor, &object->via.array.ptr[i]);
		break;
	case MSGPACK_OBJECT_MAP:
		assert_int_equal(ft_peek(cursor), FT_KIND_MAP);
		assert_false(ft_read_array(cursor, &count));
		assert_true(ft_read_map(cursor, &count));
		assert_int_equal(count, object->via.map.size);
		for (uint32_t i = 0; i < count; i++) {
			compare(cursor, &object->via.map.ptr[i].key);
			compare(cursor, &object->via.map.ptr[i].val);
		}
		break;
	default:
		fail();
	}
}

static const struct ft_bounds wide = {.bytes = 1 << 20, .depth = 16, .values = 100000};

static void every_value_reads_as_msgpack_reads_it(void **state)
{
	(void)state;
	uint64_t random = 1;
	for (int round = 0; round < 3000; round++) {
		msgpack_sbuffer buffer;
		msgpack_packer packer;
		msgpack_unpacked unpacked;
		msgpack_sbuffer_init(&buffer);
		msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
		msgpack_unpacked_init(&unpacked);
		pack_random(&packer, &random, 6);
		size_t end = 0;
		assert_int_equal(scan_whole(buffer.data, buffer.size, &wide, &end, NULL), 1);
		assert_int_equal(end, buffer.size);
		size_t offset = 0;
		assert_int_equal(msgpack_unpack_next(&unpacked, buffer.data, buffer.size, &offset),
		        MSGPACK_UNPACK_SUCCESS);
		struct ft_cursor cursor = ft_cursor_of(buffer.data, buffer.size);
		compare(&cursor, &unpacked.data);
		assert_ptr_equal(cursor.at, cursor.end);
		cursor = ft_cursor_of(buffer.data, buffer.size);
		struct ft_view view;
		assert_true(ft_read_view(&cursor, &view));
		assert_int_equal(view.length, buffer.size);
		msgpack_unpacked_destroy(&unpacked);
		msgpack_sbuffer_destroy(&buffer);
	}
}

static void a_message_cut_anywhere_is_unfinished_and_unreadable(void **state)
{
	(void)state;
	uint64_t random = 2;
	for (int round = 0; round < 300; round++) {
		msgpack_sbuffer buffer;
		msgpack_packer packer;
		msgpack_sbuffer_init(&buffer);
		msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
		pack_random(&packer, &random, 5);
		for (size_t cut = 0; cut < buffer.size && cut < 600; cut++) {
			assert_int_equal(scan_whole(buffer.data, cut, &wide, NULL, NULL), 0);
			struct ft_cursor cursor = ft_cursor_of(buffer.data, cut);
			struct ft_view view;
			assert_false(ft_read_view(&cursor, &view));
			assert_ptr_equal(cursor.at, buffer.data);
		}
		msgpack_sbuffer_destroy(&buffer);
	}
}

static void a_message_sent_byte_by_byte_is_found_whole(void **state)
{
	(void)state;
	uint64_t random = 3;
	for (int round = 0; round < 500; round++) {
		msgpack_sbuffer buffer;
		msgpack_packer packer;
		msgpack_sbuffer_init(&buffer);
		msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
		pack_random(&packer, &random, 6);
		struct ft_scan scan;
		ft_scan_init(&scan, &wide);
		for (size_t length = 0; length <= buffer.size; length++)
			assert_int_equal(ft_scan_walk(&scan, (const uint8_t *)buffer.data, length, NULL),
			        length == buffer.size);
		msgpack_sbuffer_destroy(&buffer);
	}
}

static void what_is_accepted_is_what_msgpack_accepts(void **state)
{
	(void)state;
	uint64_t random = 4;
	int accepted = 0;
	for (int round = 0; round < 20000; round++) {
		uint8_t data[48];
		for (size_t i = 0; i < sizeof(data); i++) {
			uint64_t byte = check_random(&random);
			/* Mostly bytes that begin something. */
			data[i] = (uint8_t)(byte >> 8);
			if (byte % 3 == 0)
				data[i] = (uint8_t)(0x80 + (byte >> 8) % 0x60);
		}
		size_t end = 0;
		int whole = scan_whole(data, sizeof(data), &small, &end, NULL);
		msgpack_unpacked unpacked;
		msgpack_unpacked_init(&unpacked);
		size_t offset = 0;
		if (whole >= 0) {
			msgpack_unpack_return answer =
			        msgpack_unpack_next(&unpacked, (const char *)data, sizeof(data), &offset);
			assert_int_equal(
			        answer, whole == 1 ? MSGPACK_UNPACK_SUCCESS : MSGPACK_UNPACK_CONTINUE);
			if (whole == 1) {
				assert_int_equal(offset, end);
				struct ft_cursor cursor = ft_cursor_of(data, end);
				compare(&cursor, &unpacked.data);
				accepted++;
			}
		}
		msgpack_unpacked_destroy(&unpacked);
	}
	assert_true(accepted > 1000);
}

/* ---- bounds ---- */

static void refused(const void *data, size_t length, const struct ft_bounds *bounds, const char *words)
{
	struct ft_error error;
	assert_int_equal(scan_whole(data, length, bounds, NULL, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_FRAME);
	assert_non_null(strstr(error.message, words));
}

static void five_bytes_that_announce_a_huge_array_are_refused_at_once(void **state)
{
	(void)state;
	refused("\xdd\xff\xff\xff\xff", 5, &ft_bounds_request, "longer");
	refused("\xdd\x00\x01\x00\x00", 5, &ft_bounds_request, "values");
	refused("\xdf\xff\xff\xff\xff", 5, &ft_bounds_large, "longer");
	refused("\xdd\x00\x00\x10\x00", 5, &small, "longer");
}

static void text_longer_than_a_message_may_be_is_refused_at_once(void **state)
{
	(void)state;
	refused("\xdb\xff\xff\xff\xff", 5, &ft_bounds_large, "longer");
	refused("\xc6\x00\x10\x00\x00", 5, &ft_bounds_request, "longer");
	refused("\xc9\x00\x10\x00\x00\x05", 6, &ft_bounds_request, "longer");
	/* Fits by itself, but not with the value that must still follow. */
	uint8_t pair[] = {0x92, 0xda, 0x0f, 0xfc};
	refused(pair, sizeof(pair), &small, "longer");
	pair[3]--;
	assert_int_equal(scan_whole(pair, sizeof(pair), &small, NULL, NULL), 0);
}

static void a_message_of_exactly_the_bound_is_accepted(void **state)
{
	(void)state;
	uint8_t data[4097] = {0xda, 0x0f, 0xfd};
	size_t end = 0;
	assert_int_equal(scan_whole(data, 4096, &small, &end, NULL), 1);
	assert_int_equal(end, 4096);
	data[2]++;
	refused(data, sizeof(data), &small, "longer");
}

static void counts_are_bounded_as_a_sum(void **state)
{
	(void)state;
	/* Each array alone is within the bound; level by level they would pass it. */
	uint8_t nested[] = {0xdc, 0x01, 0xf4, 0xdc, 0x01, 0xf4};
	refused(nested, sizeof(nested), &small, "values");
	uint8_t whole[3 + 999] = {0xdc, 0x03, 0xe7};
	assert_int_equal(scan_whole(whole, sizeof(whole), &small, NULL, NULL), 1);
	whole[2]++;
	refused(whole, sizeof(whole), &small, "values");
}

static void depth_is_bounded_in_its_own_words(void **state)
{
	(void)state;
	uint8_t data[64];
	memset(data, 0x91, sizeof(data));
	data[8] = 0xc0;
	assert_int_equal(scan_whole(data, 9, &small, NULL, NULL), 1);
	data[8] = 0x90; /* the ninth level, be it empty */
	refused(data, 9, &small, "deeper");
	memset(data, 0x91, sizeof(data));
	refused(data, sizeof(data), &small, "deeper");
	const struct ft_bounds silly = {.bytes = 4096, .depth = 1000, .values = 1000};
	refused(data, sizeof(data), &silly, "deeper");
	/* Closed containers do not count. */
	uint8_t flat[101] = {0xdc, 0, 49};
	memset(flat + 3, 0x91, 98);
	for (size_t i = 4; i < sizeof(flat); i += 2)
		flat[i] = 0x90;
	assert_int_equal(scan_whole(flat, sizeof(flat), &small, NULL, NULL), 1);
}

static void the_byte_that_means_nothing_is_refused(void **state)
{
	(void)state;
	refused("\xc1", 1, &small, "0xc1");
	refused("\x92\x00\xc1", 3, &small, "0xc1");
	struct ft_cursor cursor = ft_cursor_of("\xc1", 1);
	struct ft_view view;
	assert_int_equal(ft_peek(&cursor), FT_KIND_END);
	assert_false(ft_read_view(&cursor, &view));
}

static void a_cursor_believes_no_count_that_the_bytes_cannot_hold(void **state)
{
	(void)state;
	struct ft_cursor cursor = ft_cursor_of("\xdd\xff\xff\xff\xff\x00", 6);
	uint32_t count = 0;
	struct ft_view view;
	assert_false(ft_read_array(&cursor, &count));
	assert_false(ft_read_view(&cursor, &view));
	cursor = ft_cursor_of("\x82\x01\x02\x03", 4);
	assert_false(ft_read_map(&cursor, &count));
	/* Deeper than any scan allows: no recursion, so no matter. */
	size_t deep = 1 << 20;
	uint8_t *data = malloc(deep);
	assert_non_null(data);
	memset(data, 0x91, deep);
	cursor = ft_cursor_of(data, deep);
	assert_false(ft_read_view(&cursor, &view));
	data[deep - 1] = 0xc0;
	assert_true(ft_read_view(&cursor, &view));
	free(data);
	cursor = ft_cursor_of(NULL, 0);
	assert_int_equal(ft_peek(&cursor), FT_KIND_END);
	assert_false(ft_read_nil(&cursor));
	assert_false(ft_read_view(&cursor, &view));
}

static void numbers_that_are_none_are_refused(void **state)
{
	(void)state;
	double real = 0;
	struct ft_cursor cursor = ft_cursor_of("\xcb\x7f\xf8\0\0\0\0\0\0", 9);
	assert_false(ft_read_real(&cursor, &real));
	cursor = ft_cursor_of("\xca\x7f\x80\0\0", 5);
	assert_false(ft_read_real(&cursor, &real));
	cursor = ft_cursor_of("\xd3\xff\xff\xff\xff\xff\xff\xff\xfe", 9);
	assert_true(ft_read_real(&cursor, &real));
	assert_true(real == -2);
}

static void text_that_does_not_fit_is_not_cut(void **state)
{
	(void)state;
	char text[4] = "xyz";
	struct ft_cursor cursor = ft_cursor_of("\xa4"
	                                       "abcd",
	        5);
	assert_false(ft_read_text_into(&cursor, text, sizeof(text)));
	assert_string_equal(text, "xyz");
	cursor = ft_cursor_of("\xa3"
	                      "a\0c",
	        4);
	assert_false(ft_read_text_into(&cursor, text, sizeof(text)));
	cursor = ft_cursor_of("\xa3"
	                      "abc",
	        4);
	assert_true(ft_read_text_into(&cursor, text, sizeof(text)));
	assert_string_equal(text, "abc");
	cursor = ft_cursor_of("\xa0", 1);
	assert_true(ft_read_text_into(&cursor, text, sizeof(text)));
	assert_string_equal(text, "");
	assert_false(ft_read_text_into(&cursor, text, sizeof(text)));
}

/* ---- problems and configs ---- */

#define PROBLEM_REFUSED(bytes, wanted_code, wanted_field)                         \
	do {                                                                      \
		struct ft_problem problem;                                        \
		struct ft_error error;                                            \
		struct ft_cursor cursor = ft_cursor_of(bytes, sizeof(bytes) - 1); \
		assert_int_equal(ft_read_problem(&cursor, &problem, &error), -1); \
		assert_string_equal(error.code, wanted_code);                     \
		assert_string_equal(error.field, wanted_field);                   \
	} while (0)

#define CONFIG_REFUSED(bytes, wanted_code, wanted_field)                          \
	do {                                                                      \
		struct ft_config config;                                          \
		struct ft_error error;                                            \
		struct ft_cursor cursor = ft_cursor_of(bytes, sizeof(bytes) - 1); \
		assert_int_equal(ft_read_config(&cursor, &config, &error), -1);   \
		assert_string_equal(error.code, wanted_code);                     \
		assert_string_equal(error.field, wanted_field);                   \
	} while (0)

static void a_bad_problem_is_refused_by_field(void **state)
{
	(void)state;
	PROBLEM_REFUSED("\x90", FT_E_BAD_REQUEST, "problem");
	PROBLEM_REFUSED("", FT_E_BAD_REQUEST, "problem");
	PROBLEM_REFUSED("\x81\x01\x01", FT_E_BAD_VALUE, "a name in problem");
	PROBLEM_REFUSED("\x81\xa1 \x01", FT_E_BAD_VALUE, "a name in problem");
	PROBLEM_REFUSED("\x81\xa0\x01", FT_E_BAD_VALUE, "a name in problem");
	PROBLEM_REFUSED("\x81\xa2m\0\x01", FT_E_BAD_VALUE, "a name in problem");
	PROBLEM_REFUSED("\x81\xd9\x20"
	                "abcdefghijklmnopqrstuvwxyz012345\x01",
	        FT_E_BAD_VALUE, "a name in problem");
	PROBLEM_REFUSED("\x82\xa1m\x01\xa1m\x01", FT_E_BAD_REQUEST, "m");
	PROBLEM_REFUSED("\x81\xa1m\xc0", FT_E_BAD_REQUEST, "m");
	PROBLEM_REFUSED("\x81\xa1m\xcb\x3f\xf0\0\0\0\0\0\0", FT_E_BAD_REQUEST, "m");
	PROBLEM_REFUSED("\x81\xa1m\x90", FT_E_BAD_REQUEST, "m");
	PROBLEM_REFUSED("\x81\xa1m\xcf\xff\xff\xff\xff\xff\xff\xff\xff", FT_E_BAD_VALUE, "m");
	PROBLEM_REFUSED("\x81\xa1t\xa5"
	                "bf16\0",
	        FT_E_BAD_VALUE, "t");
	PROBLEM_REFUSED("\x81\xa1t\xa0", FT_E_BAD_VALUE, "t");
	PROBLEM_REFUSED("\x81\xa1t\xa6"
	                "bf16 x",
	        FT_E_BAD_VALUE, "t");
	PROBLEM_REFUSED("\x81\xa1t\xd9\x81"
	                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef+",
	        FT_E_BAD_VALUE, "t");
#define ELEVEN "\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0\xa1x\0"
	PROBLEM_REFUSED("\xde\0\x21" ELEVEN ELEVEN ELEVEN, FT_E_BAD_VALUE, "problem");
}

static void a_bad_config_is_refused_by_knob(void **state)
{
	(void)state;
	CONFIG_REFUSED("\x91\x01", FT_E_BAD_REQUEST, "config");
	CONFIG_REFUSED("\xa0", FT_E_BAD_VALUE, "config");
	CONFIG_REFUSED("\xa2x\0", FT_E_BAD_VALUE, "config");
	CONFIG_REFUSED("\xa2x\xff", FT_E_BAD_VALUE, "config");
	CONFIG_REFUSED("\x81\xa1 \x01", FT_E_BAD_VALUE, "a name in config");
	CONFIG_REFUSED("\x82\xa1m\x01\xa1m\x01", FT_E_BAD_REQUEST, "m");
	CONFIG_REFUSED("\x81\xa1m\xa2"
	               "1x",
	        FT_E_BAD_REQUEST, "m");
	CONFIG_REFUSED("\x81\xa1m\xa0", FT_E_BAD_REQUEST, "m");
	CONFIG_REFUSED("\x81\xa1m\xcf\xff\xff\xff\xff\xff\xff\xff\xff", FT_E_BAD_REQUEST, "m");
	CONFIG_REFUSED("\xde\xff\xff", FT_E_BAD_REQUEST, "config");
}

static void problems_and_configs_come_back_as_written(void **state)
{
	(void)state;
	struct ft_problem problem = {0};
	struct ft_config config = {0};
	for (int i = 0; i < FT_FIELDS_MAX; i++) {
		char name[FT_NAME_SIZE];
		snprintf(name, sizeof(name), "abcdefghijklmnopqrstuvwxyz012%02d", i);
		if (i % 2 == 0)
			ft_problem_set_number(&problem, name, INT64_MIN + i, NULL);
		else
			ft_problem_set_text(&problem, name, name, NULL);
		if (i % 3 == 0)
			ft_config_set_word(&config, name, name, NULL);
		else
			ft_config_set(&config, name, i % 2 == 0 ? INT64_MAX - i : -i, NULL);
	}
	uint8_t data[8192];
	struct ft_writer writer;
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_problem(&writer, &problem);
	ft_write_config(&writer, &config);
	assert_true(ft_writer_ok(&writer));
	struct ft_cursor cursor = ft_cursor_of(data, writer.length);
	struct ft_problem problem_read = {0};
	struct ft_config config_read = {0};
	assert_int_equal(ft_read_problem(&cursor, &problem_read, NULL), 0);
	assert_int_equal(ft_read_config(&cursor, &config_read, NULL), 0);
	assert_true(ft_problem_equal(&problem, &problem_read));
	assert_true(ft_config_equal(&config, &config_read));
	assert_ptr_equal(cursor.at, cursor.end);
	for (size_t cut = 0; cut < writer.length; cut++) {
		cursor = ft_cursor_of(data, cut);
		assert_true(ft_read_problem(&cursor, &problem_read, NULL) != 0 ||
		        ft_read_config(&cursor, &config_read, NULL) != 0);
	}
}

static void a_document_comes_back_as_it_was(void **state)
{
	(void)state;
	static char text[FT_DOCUMENT_MAX + 1];
	static uint8_t data[FT_DOCUMENT_MAX + 16];
	struct ft_config config = {.document = text, .document_length = FT_DOCUMENT_MAX};
	struct ft_config read;
	struct ft_writer writer;
	memset(text, 'x', sizeof(text));
	(void)snprintf(text, sizeof(text), "{\"\xc3\xa4\": \"");
	text[strlen(text)] = 'x';
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_config(&writer, &config);
	assert_true(ft_writer_ok(&writer));
	struct ft_cursor cursor = ft_cursor_of(data, writer.length);
	assert_int_equal(ft_read_config(&cursor, &read, NULL), 0);
	assert_true(ft_config_equal(&config, &read));
	assert_ptr_equal(cursor.at, cursor.end);
	config.document_length++;
	ft_writer_init_fixed(&writer, data, sizeof(data));
	ft_write_config(&writer, &config);
	cursor = ft_cursor_of(data, writer.length);
	assert_int_equal(ft_read_config(&cursor, &read, NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_value_reads_as_msgpack_reads_it),
	        cmocka_unit_test(a_message_cut_anywhere_is_unfinished_and_unreadable),
	        cmocka_unit_test(a_message_sent_byte_by_byte_is_found_whole),
	        cmocka_unit_test(what_is_accepted_is_what_msgpack_accepts),
	        cmocka_unit_test(five_bytes_that_announce_a_huge_array_are_refused_at_once),
	        cmocka_unit_test(text_longer_than_a_message_may_be_is_refused_at_once),
	        cmocka_unit_test(a_message_of_exactly_the_bound_is_accepted),
	        cmocka_unit_test(counts_are_bounded_as_a_sum),
	        cmocka_unit_test(depth_is_bounded_in_its_own_words),
	        cmocka_unit_test(the_byte_that_means_nothing_is_refused),
	        cmocka_unit_test(a_cursor_believes_no_count_that_the_bytes_cannot_hold),
	        cmocka_unit_test(numbers_that_are_none_are_refused),
	        cmocka_unit_test(text_that_does_not_fit_is_not_cut),
	        cmocka_unit_test(a_bad_problem_is_refused_by_field),
	        cmocka_unit_test(a_bad_config_is_refused_by_knob),
	        cmocka_unit_test(problems_and_configs_come_back_as_written),
	        cmocka_unit_test(a_document_comes_back_as_it_was),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
