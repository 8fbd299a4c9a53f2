/* Tests kernels/search.c: which members are tried, and what is found with them. */
#include "tests/unit/check.h"

#include <string.h>

#include "tests/bench/recorded_space.h"

enum { KNOBS = 6, STEPS = 150 };

/* A sanitizer finds with few what it finds with many. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 2 };
#else
enum { SEEDS = 10 };
#endif

/* Every combination of so many values a knob, with no times. */
static void make_grid(struct recorded_space *grid, const size_t *values, size_t knobs)
{
	size_t count = 1;

	for (size_t j = 0; j < knobs; j++)
		count *= values[j];
	*grid = (struct recorded_space){.best = INFINITY};
	grid->row = calloc(count * knobs + 1, sizeof(*grid->row));
	grid->time = calloc(count + 1, sizeof(*grid->time));
	assert_non_null(grid->row);
	assert_non_null(grid->time);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0, rest = i; j < knobs; rest /= values[j++])
			grid->row[i * knobs + j] = (uint16_t)(rest % values[j]);
	grid->space = (struct ft_search_space){
	        .row = grid->row, .count = count, .knobs = knobs, .default_index = SIZE_MAX};
}

static void free_space(struct recorded_space *space)
{
	free(space->row);
	free(space->time);
}

/* A convolution of a 4,096 by 4,096 image with a 17 by 17 filter on a made-up GPU of 100 processors, in microseconds; INFINITY:
 * it does not launch. Time goes by the steps of real ones: lanes that idle in a part-filled warp, registers and shared
 * memory that let fewer blocks reside, too few warps to hide latency, registers that spill, banks that conflict, stores that
 * are not aligned, a last wave of blocks that fills the device in part, and each config's own part of up to an eighth, which follows
 * from nothing. */
static double convolution_us(const uint16_t *row)
{
	double block_x = 16 * (row[0] + 1), block_y = 1 << row[1], tile_x = row[2] + 1, tile_y = row[3] + 1;
	bool staged = row[4] != 0, padded = row[5] != 0;
	double warps = ceil(block_x * block_y / 32), outputs = tile_x * tile_y, registers = 24 + 7 * outputs;
	double width = block_x * tile_x, height = block_y * tile_y;
	double bytes = staged ? (width + 16 + (padded ? 1 : 0)) * (height + 16) * 4 : 0;
	double resident = floor(
	        fmin(fmin(64 / warps, 2048 / (warps * fmin(registers, 96))), staged ? 100000 / bytes : 32));
	double waves = ceil(ceil(4096 / width) * ceil(4096 / height) / (100 * resident)), each, hidden;
	uint64_t mixed = 0;

	if (warps > 32 || warps < 2 || resident < 1)
		return INFINITY;
	each = outputs * (1 + fmax(registers - 96, 0) / 16);
	each += staged ? bytes / (block_x * block_y) / 16 : (tile_x + 16) * (tile_y + 16) / 24;
	if (staged && !padded && ((int)width + 16) % 32 == 16)
		each *= 1.6;
	if ((int)width % 128 != 0)
		each *= 1.3;
	hidden = resident * warps * outputs / (resident * warps * outputs + 60);
	for (size_t j = 0; j < KNOBS; j++)
		mixed = (mixed + row[j]) * 64;
	return waves * resident * warps * each / hidden * (1 + (double)(check_random(&mixed) % 1000) / 8000);
}

static void make_convolution(struct recorded_space *convolution)
{
	static const size_t values[KNOBS] = {16, 5, 4, 4, 2, 2};

	make_grid(convolution, values, KNOBS);
	for (size_t i = 0; i < convolution->space.count; i++) {
		convolution->time[i] = convolution_us(&convolution->row[i * KNOBS]);
		convolution->best = fmin(convolution->best, convolution->time[i]);
	}
}

static uint64_t time_ps(const struct recorded_space *space, size_t member)
{
	return isinf(space->time[member]) ? 0 : (uint64_t)(space->time[member] * 1e6);
}

static struct ft_search *new_search(const struct recorded_space *space, size_t tries, uint64_t seed)
{
	struct ft_error error;
	struct ft_search *search = ft_search_new(&space->space, tries, seed, &error);

	if (search == NULL)
		fail_msg("%s", error.message);
	return search;
}

/* One more, told at once. */
static size_t try_one(struct ft_search *search, const struct recorded_space *space)
{
	size_t member = ft_search_next(search);

	if (member != FT_SEARCH_NONE)
		assert_true(ft_search_tell(search, member, time_ps(space, member)));
	return member;
}

static void a_seed_gives_the_same_members(void **state)
{
	struct recorded_space space;
	struct ft_search *search[3];
	size_t others = 0;
	(void)state;

	make_convolution(&space);
	for (size_t i = 0; i < 3; i++)
		search[i] = new_search(&space, 80, i == 2 ? 8 : 7);
	for (size_t i = 0; i < 80; i++) {
		size_t member = try_one(search[0], &space);

		assert_int_equal(try_one(search[1], &space), member);
		others += try_one(search[2], &space) != member;
	}
	assert_true(others > 40);
	for (size_t i = 0; i < 3; i++)
		ft_search_free(search[i]);
	free_space(&space);
}

/* Asks for all, so many at a time, and counts how often each is given. */
static void all_are_given_once(const struct recorded_space *space, size_t batch)
{
	size_t count = space->space.count, given = 0, *asked = calloc(batch, sizeof(*asked));
	bool *seen = calloc(count + 1, sizeof(*seen));
	struct ft_search *search = new_search(space, count, 1);
	size_t together = 1;

	assert_non_null(asked);
	assert_non_null(seen);
	while (together > 0) {
		for (together = 0;
		        together < batch && (asked[together] = ft_search_next(search)) != FT_SEARCH_NONE;
		        together++) {
			assert_true(asked[together] < count);
			assert_false(seen[asked[together]]);
			seen[asked[together]] = true;
		}
		given += together;
		assert_int_equal(ft_search_tried(search), given);
		/* Told in another order than they were asked for. */
		for (size_t i = together; i-- > 0;)
			assert_true(ft_search_tell(search, asked[i], time_ps(space, asked[i])));
	}
	assert_int_equal(given, count);
	assert_int_equal(ft_search_next(search), FT_SEARCH_NONE);
	ft_search_free(search);
	free(asked);
	free(seen);
}

static void each_member_is_given_once_and_all_in_the_end(void **state)
{
	static const size_t values[] = {19, 9, 3}, few[] = {513}, one[] = {1};
	struct recorded_space space;
	(void)state;

	make_grid(&space, values, 3); /* 513 */
	for (size_t i = 0; i < space.space.count; i++)
		space.time[i] = i % 7 == 0 ? INFINITY : (double)(100 + i % 50);
	all_are_given_once(&space, 1);
	all_are_given_once(&space, 24);
	all_are_given_once(&space, 513);
	/* All fail: nothing is known but where. */
	for (size_t i = 0; i < space.space.count; i++)
		space.time[i] = INFINITY;
	all_are_given_once(&space, 1);
	/* All take the same. */
	for (size_t i = 0; i < space.space.count; i++)
		space.time[i] = 5;
	all_are_given_once(&space, 10);
	free_space(&space);
	make_grid(&space, few, 1);
	all_are_given_once(&space, 8);
	free_space(&space);
	make_grid(&space, one, 1);
	all_are_given_once(&space, 1);
	free_space(&space);
}

static void the_default_is_first(void **state)
{
	struct recorded_space space;
	struct ft_search *search;
	size_t refused;
	(void)state;

	make_convolution(&space);
	space.space.default_index = 1234;
	search = new_search(&space, 40, 5);
	assert_int_equal(try_one(search, &space), 1234);
	assert_int_not_equal(try_one(search, &space), 1234);
	ft_search_free(search);
	search = new_search(&space, 40, 5);
	assert_true(ft_search_tell(search, 1234, 5)); /* known from before */
	for (size_t i = 1; i < 40; i++)
		assert_int_not_equal(try_one(search, &space), 1234);
	assert_int_equal(ft_search_next(search), FT_SEARCH_NONE);
	refused = 0;
	for (size_t i = 0; i < 60; i++)
		refused += !ft_search_tell(search, i, 5);
	assert_true(refused >= 60 - 40); /* those that were not tried, since no more may be */
	assert_int_equal(ft_search_tried(search), 40);
	ft_search_free(search);
	free_space(&space);
}

/* Any two of the first 16 are some way apart, and each value of the short knobs is among them. */
static void the_first_fill_the_space(void **state)
{
	struct recorded_space space;
	struct ft_search *search;
	bool seen[KNOBS][5] = {{false}};
	(void)state;

	make_convolution(&space);
	search = new_search(&space, 16, 3);
	for (size_t i = 0; i < 16; i++) {
		size_t member = try_one(search, &space);

		for (size_t j = 1; j < KNOBS; j++)
			seen[j][space.row[member * KNOBS + j]] = true;
	}
	for (size_t j = 1; j < KNOBS; j++)
		assert_true(seen[j][0] && (j < 4 || seen[j][1]));
	assert_true(seen[1][4] && seen[2][3] && seen[3][3]);
	ft_search_free(search);
	free_space(&space);
}

static void what_is_known_from_before_counts_and_helps(void **state)
{
	enum { KNOWN = 150, MORE = 30, EACH = SEEDS / 2 };
	struct recorded_space space;
	double share = 0;
	(void)state;

	make_convolution(&space);
	for (uint64_t seed = 0; seed < EACH; seed++) {
		struct ft_search *search = new_search(&space, KNOWN + MORE, seed);
		double best = INFINITY;

		for (size_t i = 0; i < KNOWN; i++)
			assert_true(ft_search_tell(search, 34 * i, time_ps(&space, 34 * i)));
		assert_int_equal(ft_search_tried(search), KNOWN);
		for (size_t i = 0; i < MORE; i++) {
			size_t member = try_one(search, &space);

			assert_true(member % 34 != 0 || member >= (size_t)34 * KNOWN);
			best = fmin(best, space.time[member]);
		}
		share += space.best / best / EACH;
		assert_int_equal(ft_search_next(search), FT_SEARCH_NONE);
		ft_search_free(search);
	}
	/* It goes on from there, and does not begin by filling the space: so few tries reach 0.75 without. */
	print_message("after what is known %.3f\n", share);
	assert_true(share > 0.82);
	free_space(&space);
}

static void what_is_told_again_counts(void **state)
{
	struct recorded_space space;
	struct ft_search *search;
	size_t member;
	(void)state;

	make_convolution(&space);
	search = new_search(&space, 100, 2);
	member = ft_search_next(search);
	assert_true(ft_search_tell(search, member, 1)); /* the fastest by far */
	assert_true(ft_search_tell(search, member, 0)); /* no: it failed */
	assert_false(ft_search_tell(search, space.space.count, 5));
	assert_int_equal(ft_search_tried(search), 1);
	for (size_t i = 1; i < 100; i++)
		(void)try_one(search, &space);
	assert_int_equal(ft_search_tried(search), 100);
	ft_search_free(search);
	free_space(&space);
}

/* A space as large as may be, of as many knobs: what a step costs is bounded, however much is told. */
static void a_step_costs_no_more_however_large_the_space(void **state)
{
	static const size_t values[FT_SEARCH_KNOBS_MAX] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
	static const uint64_t step_most = 20000000;
	struct recorded_space space;
	struct ft_search *search;
	uint64_t before;
	(void)state;

	make_grid(&space, values, FT_SEARCH_KNOBS_MAX);
	assert_int_equal(space.space.count, FT_SEARCH_MEMBERS_MAX);
	for (size_t i = 0; i < space.space.count; i++)
		space.time[i] = (double)(1000 + i * 37 % 1009);
	search = new_search(&space, SIZE_MAX, 4);
	for (size_t i = 0; i < FT_SEARCH_TRIES_MAX - STEPS; i++)
		assert_true(ft_search_tell(search, i * 16, time_ps(&space, i * 16)));
	before = ft_search_work(search);
	for (size_t i = 0; i < STEPS; i++)
		assert_int_not_equal(try_one(search, &space), FT_SEARCH_NONE);
	assert_true(ft_search_work(search) > before);
	print_message("%.1f million multiplications a step\n",
	        (double)(ft_search_work(search) - before) / STEPS / 1e6);
	assert_true((ft_search_work(search) - before) / STEPS < step_most);
	assert_int_equal(ft_search_next(search), FT_SEARCH_NONE);
	assert_int_equal(ft_search_tried(search), FT_SEARCH_TRIES_MAX);
	ft_search_free(search);
	free_space(&space);
}

static void what_is_too_large_is_refused(void **state)
{
	static const uint16_t row[1] = {0};
	static const struct {
		size_t count, knobs;
		const char *message;
	} cases[] = {
	        {0, 1, "a space of 0 members is not searched: it must have 1 to 65536"},
	        {65537, 1, "a space of 65537 members is not searched: it must have 1 to 65536"},
	        {1, 0, "a space of 0 knobs is not searched: it must have 1 to 16"},
	        {1, 17, "a space of 17 knobs is not searched: it must have 1 to 16"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ft_search_space space = {.row = row, .count = cases[i].count, .knobs = cases[i].knobs};
		struct ft_error error;

		assert_null(ft_search_new(&space, 10, 1, &error));
		assert_string_equal(error.code, FT_E_BAD_VALUE);
		assert_string_equal(error.message, cases[i].message);
	}
	ft_search_free(NULL);
}

enum { LATER = 256 };

/* The mean share of the optimum after a hundredth of the space and after a twentieth. */
struct shares {
	double early, later;
};

static void add_share(struct shares *shares, const struct recorded_space *space, const double *found)
{
	shares->early += space->best / found[LATER / 5 - 1] / SEEDS;
	shares->later += space->best / found[LATER - 1] / SEEDS;
}

static void it_finds_more_than_random_and_greedy_search(void **state)
{
	struct shares random = {0}, greedy = {0}, ours = {0}, batched = {0};
	struct recorded_space space;
	double found[LATER];
	(void)state;

	make_convolution(&space);
	assert_int_equal(space.space.count / 20, LATER);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		recorded_random(&space, seed, LATER, found);
		add_share(&random, &space, found);
		recorded_greedy(&space, seed, LATER, found);
		add_share(&greedy, &space, found);
		(void)recorded_search(&space, seed, LATER, 1, found);
		add_share(&ours, &space, found);
		(void)recorded_search(&space, seed, LATER, 32, found);
		add_share(&batched, &space, found);
	}
	print_message("random %.3f %.3f, greedy %.3f %.3f, ours %.3f %.3f, 32 at a time %.3f %.3f\n",
	        random.early, random.later, greedy.early, greedy.later, ours.early, ours.later, batched.early,
	        batched.later);
	assert_true(ours.early > greedy.early + 0.05);
	assert_true(ours.early > random.early + 0.05);
	assert_true(ours.later > greedy.later + 0.01);
	assert_true(ours.later > random.later + 0.05);
	assert_true(ours.later > 0.97);
	assert_true(batched.early > random.early + 0.03);
	assert_true(batched.later > random.later + 0.05);
	free_space(&space);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_seed_gives_the_same_members),
	        cmocka_unit_test(each_member_is_given_once_and_all_in_the_end),
	        cmocka_unit_test(the_default_is_first),
	        cmocka_unit_test(the_first_fill_the_space),
	        cmocka_unit_test(what_is_known_from_before_counts_and_helps),
	        cmocka_unit_test(what_is_told_again_counts),
	        cmocka_unit_test(a_step_costs_no_more_however_large_the_space),
	        cmocka_unit_test(what_is_too_large_is_refused),
	        cmocka_unit_test(it_finds_more_than_random_and_greedy_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
