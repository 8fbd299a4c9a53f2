/* The list of candidates that outlives the daemon: what comes back of it, and of a damaged one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/candidate.h"
#include "tests/unit/check.h"

static struct candidate candidate_of(int64_t m, enum candidate_cause cause, uint64_t asked)
{
	struct candidate candidate = {.cause = cause, .asked = asked, .number = (uint32_t)m};

	snprintf(candidate.kernel, sizeof(candidate.kernel), "rmsnorm");
	snprintf(candidate.device, sizeof(candidate.device), "cpu:0");
	assert_int_equal(ft_problem_set_number(&candidate.problem, "m", m, NULL), 0);
	assert_int_equal(ft_problem_set_text(&candidate.problem, "dtype", "bf16", NULL), 0);
	return candidate;
}

static struct ft_view view_of(const struct ft_writer *writer)
{
	return (struct ft_view){.data = writer->data, .length = writer->length};
}

static void the_most_asked_come_back_first_and_those_that_failed_do_not(void **state)
{
	struct candidate candidate[] = {candidate_of(1, CANDIDATE_MISS, 5),
	        candidate_of(2, CANDIDATE_UPGRADE, 7), candidate_of(3, CANDIDATE_BUSY, 9)};
	struct candidate kept = candidate_of(4, CANDIDATE_GROWN, UINT64_MAX);
	struct ft_writer list;
	struct candidate *back;

	(void)state;
	candidate[2].pause.length_ns = 1;
	ft_writer_init_growing(&list, 1 << 16);
	assert_int_equal(candidates_write(&list, candidate, 3, &kept, 1), 0);
	assert_int_equal(candidates_read(view_of(&list), &back), 3);
	assert_true(ft_problem_equal(&back[0].problem, &kept.problem));
	assert_true(back[0].asked == UINT64_MAX && back[0].cause == CANDIDATE_GROWN);
	assert_true(ft_problem_equal(&back[1].problem, &candidate[1].problem));
	assert_int_equal(back[1].cause, CANDIDATE_UPGRADE);
	assert_int_equal(back[2].asked, 5);
	assert_string_equal(back[2].kernel, "rmsnorm");
	assert_string_equal(back[2].device, "cpu:0");
	free(back);
	ft_writer_free(&list);
}

static void a_list_is_bounded_and_keeps_the_most_asked(void **state)
{
	enum { COUNT = CANDIDATES_LISTED + 500 };
	struct candidate *candidate = calloc(COUNT, sizeof(*candidate));
	struct ft_writer list;
	struct candidate *back;

	(void)state;
	assert_non_null(candidate);
	for (uint32_t i = 0; i < COUNT; i++)
		candidate[i] = candidate_of(1 + i, CANDIDATE_MISS, i);
	ft_writer_init_growing(&list, 1 << 20);
	assert_int_equal(candidates_write(&list, candidate, COUNT, NULL, 0), 0);
	assert_int_equal(candidates_read(view_of(&list), &back), CANDIDATES_LISTED);
	assert_int_equal(back[0].asked, COUNT - 1);
	assert_int_equal(back[CANDIDATES_LISTED - 1].asked, COUNT - CANDIDATES_LISTED);
	free(back);
	ft_writer_free(&list);
	free(candidate);
}

/* Cut at every byte, with every byte changed, and by chance: fewer candidates at the most, and nothing that makes no sense. */
static void a_damaged_list_gives_what_stands_before_the_damage(void **state)
{
	struct candidate candidate[] = {candidate_of(1, CANDIDATE_MISS, 9),
	        candidate_of(2, CANDIDATE_BUSY, 8), candidate_of(3, CANDIDATE_MISS, 7)};
	struct ft_writer list;
	struct candidate *back;
	uint64_t random = 1;

	(void)state;
	ft_writer_init_growing(&list, 1 << 16);
	assert_int_equal(candidates_write(&list, candidate, 3, NULL, 0), 0);
	for (size_t length = 0; length < list.length; length++) {
		uint8_t *cut = malloc(length ? length : 1);

		assert_non_null(cut);
		memcpy(cut, list.data, length);
		uint32_t count = candidates_read((struct ft_view){cut, length}, &back);
		assert_true(count < 3);
		for (uint32_t i = 0; i < count; i++)
			assert_true(ft_problem_equal(&back[i].problem, &candidate[i].problem));
		free(back);
		free(cut);
	}
	for (size_t at = 0; at < list.length; at++) {
		uint8_t before = list.data[at];

		for (int change = 0; change < 16; change++) {
			list.data[at] = (uint8_t)check_random(&random);
			uint32_t count = candidates_read(view_of(&list), &back);
			assert_true(count <= 3);
			for (uint32_t i = 0; i < count; i++)
				assert_true(back[i].cause < CANDIDATE_CAUSES);
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
	struct candidate *back;

	(void)state;
	assert_int_equal(candidates_read((struct ft_view){later, sizeof(later)}, &back), 0);
	assert_null(back);
	assert_int_equal(candidates_read((struct ft_view){empty, sizeof(empty)}, &back), 0);
	free(back);
	assert_int_equal(candidates_read((struct ft_view){huge, sizeof(huge)}, &back), 0);
	free(back);
	assert_int_equal(candidates_read((struct ft_view){NULL, 0}, &back), 0);
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
