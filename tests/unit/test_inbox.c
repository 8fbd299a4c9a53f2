#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

#include "proto/inbox.h"
#include "proto/writer.h"

static const struct ft_bounds bounds = {.bytes = 200000, .depth = 8, .values = 1000};

/* Puts bytes in as far as there is room; returns how many. */
static size_t put(struct ft_inbox *inbox, const uint8_t *data, size_t length)
{
	uint8_t *room = NULL;
	size_t size = 0;
	assert_int_equal(ft_inbox_room(inbox, &room, &size, NULL), 0);
	assert_true(size > 0);
	if (length > size)
		length = size;
	memcpy(room, data, length);
	ft_inbox_received(inbox, length);
	return length;
}

static void several_messages_in_one_read_come_out_one_by_one(void **state)
{
	(void)state;
	struct ft_inbox inbox;
	struct ft_view message;
	ft_inbox_init(&inbox, &bounds);
	assert_true(ft_inbox_idle(&inbox));
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 0);
	static const uint8_t three[] = {0x91, 0x01, 0x92, 0x02, 0x03, 0x93, 0x04};
	assert_int_equal(put(&inbox, three, sizeof(three)), sizeof(three));
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_int_equal(message.length, 2);
	assert_memory_equal(message.data, three, 2);
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_int_equal(message.length, 3);
	assert_memory_equal(message.data, three + 2, 3);
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 0);
	assert_false(ft_inbox_idle(&inbox));
	static const uint8_t rest[] = {0x05, 0x06};
	put(&inbox, rest, sizeof(rest));
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_int_equal(message.length, 4);
	assert_memory_equal(message.data, "\x93\x04\x05\x06", 4);
	assert_true(ft_inbox_idle(&inbox));
	ft_inbox_free(&inbox);
	ft_inbox_free(&inbox);
}

/* Messages of all sizes, in pieces of all sizes: what goes in comes out. */
static void pieces_of_any_size_make_the_same_messages(void **state)
{
	(void)state;
	uint64_t random = 5;
	struct ft_writer stream;
	size_t ends[200];
	ft_writer_init_growing(&stream, 64 << 20);
	for (size_t i = 0; i < 200; i++) {
		size_t length = check_random(&random) % (i % 20 == 0 ? 190000 : 300);
		uint8_t *filler = calloc(1, length + 1);
		assert_non_null(filler);
		memset(filler, (int)i, length);
		ft_write_array(&stream, 2);
		ft_write_uint(&stream, i);
		ft_write_bytes(&stream, filler, length);
		free(filler);
		ends[i] = stream.length;
	}
	assert_true(ft_writer_ok(&stream));
	struct ft_inbox inbox;
	ft_inbox_init(&inbox, &bounds);
	size_t sent = 0;
	size_t seen = 0;
	while (sent < stream.length) {
		size_t piece = 1 + check_random(&random) % (check_random(&random) % 2 == 0 ? 50 : 100000);
		if (piece > stream.length - sent)
			piece = stream.length - sent;
		sent += put(&inbox, stream.data + sent, piece);
		struct ft_view message;
		while (ft_inbox_next(&inbox, &message, NULL) == 1) {
			size_t start = seen > 0 ? ends[seen - 1] : 0;
			assert_int_equal(message.length, ends[seen] - start);
			assert_memory_equal(message.data, stream.data + start, message.length);
			seen++;
		}
	}
	assert_int_equal(seen, 200);
	assert_true(ft_inbox_idle(&inbox));
	ft_inbox_free(&inbox);
	ft_writer_free(&stream);
}

static void an_inbox_gives_memory_back_after_a_large_message(void **state)
{
	(void)state;
	struct ft_inbox inbox;
	struct ft_view message = {0};
	ft_inbox_init(&inbox, &bounds);
	struct ft_writer writer;
	ft_writer_init_growing(&writer, 1 << 20);
	static const uint8_t filler[190000];
	ft_write_bytes(&writer, filler, sizeof(filler));
	for (size_t sent = 0; sent < writer.length;) {
		assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 0);
		sent += put(&inbox, writer.data + sent, writer.length - sent);
	}
	assert_true(inbox.capacity <= bounds.bytes);
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_memory_equal(message.data, writer.data, writer.length);
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 0);
	assert_true(inbox.capacity <= 65536);
	put(&inbox, (const uint8_t *)"\x05", 1);
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	ft_writer_free(&writer);
	ft_inbox_free(&inbox);
}

static void a_message_of_exactly_the_bound_gets_through(void **state)
{
	(void)state;
	const struct ft_bounds tight = {.bytes = 20000, .depth = 8, .values = 100};
	static uint8_t data[20000] = {0xda, 0x4e, 0x1d};
	struct ft_inbox inbox;
	struct ft_view message;
	ft_inbox_init(&inbox, &tight);
	for (size_t sent = 0; sent < sizeof(data);) {
		assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 0);
		sent += put(&inbox, data + sent, sizeof(data) - sent);
	}
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_int_equal(message.length, sizeof(data));
	ft_inbox_free(&inbox);
}

static void broken_framing_is_an_error(void **state)
{
	(void)state;
	struct ft_inbox inbox;
	struct ft_view message;
	struct ft_error error;
	ft_inbox_init(&inbox, &bounds);
	put(&inbox, (const uint8_t *)"\x01\xc1", 2);
	assert_int_equal(ft_inbox_next(&inbox, &message, &error), 1);
	assert_int_equal(ft_inbox_next(&inbox, &message, &error), -1);
	assert_string_equal(error.code, FT_E_BAD_FRAME);
	ft_inbox_free(&inbox);
}

static void bytes_that_nobody_takes_out_are_bounded(void **state)
{
	(void)state;
	struct ft_inbox inbox;
	uint8_t *room = NULL;
	size_t size = 0;
	size_t held = 0;
	ft_inbox_init(&inbox, &bounds);
	while (ft_inbox_room(&inbox, &room, &size, NULL) == 0) {
		memset(room, 0, size);
		ft_inbox_received(&inbox, size);
		held += size;
	}
	assert_int_equal(held, bounds.bytes);
	struct ft_view message;
	assert_int_equal(ft_inbox_next(&inbox, &message, NULL), 1);
	assert_int_equal(ft_inbox_room(&inbox, &room, &size, NULL), 0);
	assert_int_equal(size, 1);
	ft_inbox_free(&inbox);
}

static void memory_is_lent_to_whom_it_is_at_work_and_never_twice(void **state)
{
	static const uint8_t whole[] = {0x92, 0x01, 0x02};
	struct ft_inbox_spare spare = {0};
	struct ft_inbox one, other;
	struct ft_view message;
	const uint8_t *lent;

	(void)state;
	ft_inbox_init(&one, &bounds);
	ft_inbox_init(&other, &bounds);
	ft_inbox_borrow(&one, &spare);
	assert_null(one.data);
	put(&one, whole, sizeof(whole));
	assert_int_equal(ft_inbox_next(&one, &message, NULL), 1);
	assert_int_equal(message.length, sizeof(whole));
	assert_memory_equal(message.data, whole, sizeof(whole));
	lent = one.data;
	ft_inbox_return(&one, &spare);
	assert_null(one.data);
	assert_ptr_equal(spare.data, lent);

	ft_inbox_borrow(&other, &spare);
	assert_ptr_equal(other.data, lent);
	assert_null(spare.data);
	/* Half a message keeps the memory that it is in. */
	put(&other, whole, 2);
	assert_int_equal(ft_inbox_next(&other, &message, NULL), 0);
	ft_inbox_return(&other, &spare);
	assert_ptr_equal(other.data, lent);
	put(&one, whole, sizeof(whole));
	assert_int_equal(ft_inbox_next(&one, &message, NULL), 1);
	ft_inbox_return(&one, &spare);
	assert_non_null(spare.data);
	put(&other, whole + 2, 1);
	assert_int_equal(ft_inbox_next(&other, &message, NULL), 1);
	assert_int_equal(message.length, sizeof(whole));
	ft_inbox_return(&other, &spare);
	assert_null(other.data);
	assert_true(spare.data != NULL && spare.data != lent);
	ft_inbox_spare_free(&spare);
	ft_inbox_free(&one);
	ft_inbox_free(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(several_messages_in_one_read_come_out_one_by_one),
	        cmocka_unit_test(pieces_of_any_size_make_the_same_messages),
	        cmocka_unit_test(an_inbox_gives_memory_back_after_a_large_message),
	        cmocka_unit_test(a_message_of_exactly_the_bound_gets_through),
	        cmocka_unit_test(broken_framing_is_an_error),
	        cmocka_unit_test(bytes_that_nobody_takes_out_are_bounded),
	        cmocka_unit_test(memory_is_lent_to_whom_it_is_at_work_and_never_twice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
