/* The list of wishes that outlives the daemon: what comes back of it, and of a damaged one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/candidate.h"
#include "tests/unit/check.h"

static struct wish wish_of(int64_t m, enum wish_cause cause, uint64_t asked)
{
	struct wish wish = {.cause = cause, .asked = asked, .number = (uint32_t)m};

	snprintf(wish.kernel, sizeof(wish.kernel), "rmsnorm");
	snprintf(wish.device, sizeof(wish.device), "cpu:0");
	assert_int_equal(ft_problem_set_number(&wish.problem, "m", m, NULL), 0);
	assert_int_equal(ft_problem_set_text(&wish.problem, "dtype", "bf16", NULL), 0);
	return wish;
}

static struct ft_view view_of(const struct ft_writer *writer)
{
	return (struct ft_view){.data = writer->data, .length = writer->length};
}

static void the_most_asked_come_back_first_and_those_that_failed_do_not(void **state)
{
	struct wish wish[] = {
	        wish_of(1, WISH_MISS, 5), wish_of(2, WISH_UPGRADE, 7), wish_of(3, WISH_BUSY, 9)};
	struct wish kept = wish_of(4, WISH_GROWN, UINT64_MAX);
	struct ft_writer list;
	struct wish *back;

	(void)state;
	wish[2].pause.length_ns = 1;
	ft_writer_init_growing(&list, 1 << 16);
	assert_int_equal(wishes_write(&list, wish, 3, &kept, 1), 0);
	assert_int_equal(wishes_read(view_of(&list), &back), 3);
	assert_true(ft_problem_equal(&back[0].problem, &kept.problem));
	assert_true(back[0].asked == UINT64_MAX && back[0].cause == WISH_GROWN);
	assert_true(ft_problem_equal(&back[1].problem, &wish[1].problem));
	assert_int_equal(back[1].cause, WISH_UPGRADE);
	assert_int_equal(back[2].asked, 5);
	assert_string_equal(back[2].kernel, "rmsnorm");
	assert_string_equal(back[2].device, "cpu:0");
	free(back);
	ft_writer_free(&list);
}

static void a_list_is_bounded_and_keeps_the_most_asked(void **state)
{
	enum { COUNT = WISHES_LISTED + 500 };
	struct wish *wish = calloc(COUNT, sizeof(*wish));
	struct ft_writer list;
	struct wish *back;

	(void)state;
	assert_non_null(wish);
	for (uint32_t i = 0; i < COUNT; i++)
		wish[i] = wish_of(1 + i, WISH_MISS, i);
	ft_writer_init_growing(&list, 1 << 20);
	assert_int_equal(wishes_write(&list, wish, COUNT, NULL, 0), 0);
	assert_int_equal(wishes_read(view_of(&list), &back), WISHES_LISTED);
	assert_int_equal(back[0].asked, COUNT - 1);
	assert_int_equal(back[WISHES_LISTED - 1].asked, COUNT - WISHES_LISTED);
	free(back);
	ft_writer_free(&list);
	free(wish);
}

/* Cut at every byte, with every byte changed, and by chance: fewer wishes at the most, and nothing that makes no sense. */
static void a_damaged_list_gives_what_stands_before_the_damage(void **state)
{
	struct wish wish[] = {wish_of(1, WISH_MISS, 9), wish_of(2, WISH_BUSY, 8), wish_of(3, WISH_MISS, 7)};
	struct ft_writer list;
	struct wish *back;
	uint64_t random = 1;

	(void)state;
	ft_writer_init_growing(&list, 1 << 16);
	assert_int_equal(wishes_write(&list, wish, 3, NULL, 0), 0);
	for (size_t length = 0; length < list.length; length++) {
		uint8_t *cut = malloc(length ? length : 1);

		assert_non_null(cut);
		memcpy(cut, list.data, length);
		uint32_t count = wishes_read((struct ft_view){cut, length}, &back);
		assert_true(count < 3);
		for (uint32_t i = 0; i < count; i++)
			assert_true(ft_problem_equal(&back[i].problem, &wish[i].problem));
		free(back);
		free(cut);
	}
	for (size_t at = 0; at < list.length; at++) {
		uint8_t before = list.data[at];

		for (int change = 0; change < 16; change++) {
			list.data[at] = (uint8_t)check_random(&random);
			uint32_t count = wishes_read(view_of(&list), &back);
			assert_true(count <= 3);
			for (uint32_t i = 0; i < count; i++)
				assert_true(back[i].cause < WISH_CAUSES);
			free(back);
		}
		list.data[at] = before;
	}
	ft_writer_free(&list);
}

static void a_list_of_a_later_version_is_left_alone(void **state)
{
	static const uint8_t later[] = {0x92, 0x02, 0x91, 0x90};
	static const uint8_t empty[] = {0x92, 0x01, 0x90};
	static const uint8_t huge[] = {0x92, 0x01, 0xdd, 0xff, 0xff, 0xff, 0xff};
	struct wish *back;

	(void)state;
	assert_int_equal(wishes_read((struct ft_view){later, sizeof(later)}, &back), 0);
	assert_null(back);
	assert_int_equal(wishes_read((struct ft_view){empty, sizeof(empty)}, &back), 0);
	free(back);
	assert_int_equal(wishes_read((struct ft_view){huge, sizeof(huge)}, &back), 0);
	free(back);
	assert_int_equal(wishes_read((struct ft_view){NULL, 0}, &back), 0);
	assert_null(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_most_asked_come_back_first_and_those_that_failed_do_not),
	        cmocka_unit_test(a_list_is_bounded_and_keeps_the_most_asked),
	        cmocka_unit_test(a_damaged_list_gives_what_stands_before_the_damage),
	        cmocka_unit_test(a_list_of_a_later_version_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
