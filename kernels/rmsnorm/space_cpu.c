#include "kernels/rmsnorm/rmsnorm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { THREADS, ROWS, UNROLL, STREAM, PREFETCH, SPLIT, KNOBS };
enum {
	LANES = 16,            /* f32 in the widest vector: what one step of unroll takes */
	PIECE = 64 * 1024,     /* bytes worth handing to another thread */
	TASK = 256 * 1024,     /* bytes of a task, at most, where rows are short */
	STREAMED = 512 * 1024, /* bytes from which output is better not fetched before it is written */
	TASKS_A_THREAD = 4,    /* so that a thread that started late leaves little for last */
	THREAD_CHOICES = 3,
	LINE = 64,              /* bytes of a cache line */
	SPLIT_PIECE = 4 * 1024, /* bytes of a row a thread that are worth a meeting: the default's rule */
	SPLIT_MIN = 512         /* elements a thread below which it is not even tried */
};

const struct ft_schema rmsnorm_cpu_schema =
        {
                RMSNORM_SCHEMA_FIELDS,
                .knob_count = KNOBS,
                .knob =
                        {
                                [THREADS] = {.name = "threads",
                                        .count = 11,
                                        .value = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                                        .changes_bits = true, /* where they share a row */
                                        .help = "threads that work; 0 is one for every usable core"},
                                [ROWS] = {.name = "rows",
                                        .count = 3,
                                        .value = {1, 8, 64},
                                        .help = "rows that a thread takes at a time"},
                                [UNROLL] = {.name = "unroll",
                                        .count = 2,
                                        .value = {2, 8},
                                        .changes_bits = true,
                                        .help = "vectors that a step of the inner loops takes"},
                                [STREAM] = {.name = "stream",
                                        .count = 2,
                                        .value = {0, 1},
                                        .help = "1: output goes past the caches"},
                                [PREFETCH] = {.name = "prefetch",
                                        .count = 2,
                                        .value = {0, 1},
                                        .help = "1: the next row's input, and output that is not "
                                                "streamed, are "
                                                "fetched early"},
                                [SPLIT] = {.name = "split",
                                        .count = 2,
                                        .value = {0, 1},
                                        .changes_bits = true,
                                        .help = "1: the threads share each row"},
                        },
};

static uint64_t cores(const struct ft_traits *traits)
{
	return traits->units > 0 ? traits->units : 1;
}

/* The choices that this machine has, least first: one, about half of its cores, all of them as 0. Threads
 * wait for memory, so that steps finer than these tell little apart. */
static uint32_t thread_choices(const struct ft_traits *traits, int64_t choice[THREAD_CHOICES])
{
	const struct ft_knob_def *def = &rmsnorm_cpu_schema.knob[THREADS];
	uint32_t count = 0;

	choice[count++] = 1;
	for (uint32_t i = def->count; i > 0; i--) {
		if (def->value[i - 1] > 1 && (uint64_t)def->value[i - 1] * 2 <= cores(traits)) {
			choice[count++] = def->value[i - 1];
			break;
		}
	}
	if (cores(traits) > 1)
		choice[count++] = 0;
	return count;
}

/* Threads that a choice really starts. */
static uint64_t started(int64_t threads, const struct ft_traits *traits)
{
	return threads == 0 ? cores(traits) : (uint64_t)threads;
}

static bool shares_rows(const struct rmsnorm_problem *problem, uint64_t threads)
{
	return problem->m < threads && problem->n * ft_dtype_size(problem->dtype) >= SPLIT_PIECE * threads;
}

/* Threads as long as each gets a piece that is worth its start; rows so that a task is a run of memory that
 * the hardware's own prefetching likes, with some tasks a thread; long rows, where there are fewer than
 * threads, shared; streaming where fetching the output's lines would cost more than finding them in a cache
 * later may save. */
void rmsnorm_cpu_default(
        const struct rmsnorm_problem *problem, const struct ft_traits *traits, struct ft_config *config)
{
	const struct ft_knob_def *rows = &rmsnorm_cpu_schema.knob[ROWS];
	uint64_t bytes = rmsnorm_bytes(problem);
	uint64_t row_bytes = 2 * problem->n * ft_dtype_size(problem->dtype);
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(traits, choice);
	int64_t value[KNOBS] = {[THREADS] = 1, [ROWS] = 1, [UNROLL] = 2};

	for (uint32_t i = 1; i < choices; i++) {
		uint64_t before = started(choice[i - 1], traits);

		if (bytes / PIECE > before && (problem->m > before || shares_rows(problem, before + 1)))
			value[THREADS] = choice[i];
	}
	if (value[THREADS] != 1 && shares_rows(problem, started(value[THREADS], traits)))
		value[SPLIT] = 1;
	for (uint32_t i = 1; i < rows->count && !value[SPLIT]; i++) {
		uint64_t take = (uint64_t)rows->value[i];

		if (take * row_bytes <= TASK &&
		        take * TASKS_A_THREAD * started(value[THREADS], traits) <= problem->m)
			value[ROWS] = rows->value[i];
	}
	if (problem->n >= (uint64_t)8 * LANES)
		value[UNROLL] = 8;
	if (bytes > STREAMED && problem->n * ft_dtype_size(problem->dtype) >= LINE)
		value[STREAM] = 1;
	if (problem->m > 1)
		value[PREFETCH] = 1;
	rmsnorm_config_of(&rmsnorm_cpu_schema, value, config);
}

/* Why a config cannot win: something less does the very same, or surely does better. NULL if it may. */
static const char *why_not(const struct rmsnorm_problem *problem, const int64_t value[KNOBS],
        uint64_t threads, uint64_t fewer, uint64_t rows_before)
{
	uint64_t rows = (uint64_t)value[ROWS];
	uint64_t tasks = (problem->m + rows - 1) / rows;

	if (value[SPLIT]) {
		if (threads == 1)
			return "one thread shares with nobody";
		if (rows > 1)
			return "threads that share a row take one at a time";
		if (problem->m >= threads * TASKS_A_THREAD)
			return "there are rows enough for every thread";
		if (problem->n < threads * SPLIT_MIN)
			return "rows are too short to be shared";
	} else {
		if (fewer >= problem->m)
			return "fewer threads have a row each already";
		if (rows_before >= problem->m)
			return "fewer rows at a time are all the rows already";
		if (threads > 1 && tasks <= fewer)
			return "fewer threads have a task each already";
		if (threads == 1 && rows > 1)
			return "one thread takes the rows in order, however many at a time";
	}
	if (value[UNROLL] > 2 && problem->n < (uint64_t)value[UNROLL] * LANES)
		return "a row is too short for the unrolled loop";
	if (value[STREAM] && problem->n * ft_dtype_size(problem->dtype) < LINE)
		return "a row is too short to go past the caches";
	if (value[STREAM] && value[PREFETCH] && problem->m == 1)
		return "there is no next row to fetch, and the output is streamed";
	return NULL;
}

/* Counts through the knobs' values like an odometer, threads the slowest. */
int rmsnorm_cpu_space(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        struct ft_space *space, struct ft_error *error)
{
	const struct ft_knob_def *knob = rmsnorm_cpu_schema.knob;
	static const int order[] = {ROWS, UNROLL, STREAM, PREFETCH, SPLIT}; /* fastest first */
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(traits, choice);
	struct ft_config default_config;

	rmsnorm_cpu_default(problem, traits, &default_config);
	for (uint32_t threads = 0; threads < choices; threads++) {
		uint64_t fewer = threads > 0 ? started(choice[threads - 1], traits) : 0;
		uint32_t index[KNOBS] = {0};

		for (bool more = true; more;) {
			int64_t value[KNOBS] = {[THREADS] = choice[threads]};
			struct ft_config config;

			for (size_t i = 0; i < sizeof order / sizeof *order; i++)
				value[order[i]] = knob[order[i]].value[index[order[i]]];
			uint64_t rows_before =
			        index[ROWS] > 0 ? (uint64_t)knob[ROWS].value[index[ROWS] - 1] : 0;

			rmsnorm_config_of(&rmsnorm_cpu_schema, value, &config);
			if (rmsnorm_space_add(space, &config, &default_config,
			            why_not(problem, value, started(choice[threads], traits), fewer,
			                    rows_before),
			            error) < 0)
				return -1;
			more = false;
			for (size_t i = 0; i < sizeof order / sizeof *order && !more; i++) {
				index[order[i]]++;
				more = index[order[i]] < knob[order[i]].count;
				if (!more)
					index[order[i]] = 0;
			}
		}
	}
	return 0;
}

int rmsnorm_cpu_check_config(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(traits, choice);
	char value[32], bound[64];

	(void)problem; /* what cannot win for a problem is pruned, and still a member */
	for (uint32_t i = 0; i < choices; i++) {
		if (config->knob[THREADS].value == choice[i])
			return 0;
	}
	snprintf(value, sizeof value, "%" PRId64, config->knob[THREADS].value);
	if (cores(traits) > 1)
		snprintf(bound, sizeof bound, "1, half of the %" PRIu64 " usable cores, or 0 for all",
		        cores(traits));
	else
		snprintf(bound, sizeof bound, "1, as there is one usable core");
	return ft_fail_field(error, FT_E_BAD_VALUE, "threads", value, bound);
}
