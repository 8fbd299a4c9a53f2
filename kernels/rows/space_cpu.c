#include "kernels/rows/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static uint64_t cores(const struct ft_traits *traits)
{
	return traits->units > 0 ? traits->units : 1;
}

/* The choices that this machine has, least first: one, about half of its cores, all of them as 0. Threads
 * wait for memory, so that steps finer than these tell little apart. */
static uint32_t thread_choices(
        const struct ft_schema *schema, const struct ft_traits *traits, int64_t choice[THREAD_CHOICES])
{
	const struct ft_knob_def *def = &schema->knob[FT_ROWS_THREADS];
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

static bool shares_rows(const struct ft_rows *problem, uint64_t threads)
{
	return problem->m < threads && problem->n * ft_dtype_size(problem->dtype) >= SPLIT_PIECE * threads;
}

/* Threads as long as each gets a piece that is worth its start; rows so that a task is a run of memory that
 * the hardware's own prefetching likes, with some tasks a thread; long rows, where there are fewer than
 * threads, shared; streaming where fetching the output's lines would cost more than finding them in a cache
 * later may save. */
void ft_rows_cpu_default(const struct ft_schema *schema, const struct ft_rows *problem, uint64_t bytes,
        const struct ft_traits *traits, struct ft_config *config)
{
	const struct ft_knob_def *rows = &schema->knob[FT_ROWS_TAKEN];
	uint64_t row_bytes = 2 * problem->n * ft_dtype_size(problem->dtype);
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(schema, traits, choice);
	int64_t value[FT_ROWS_KNOBS] = {[FT_ROWS_THREADS] = 1, [FT_ROWS_TAKEN] = 1, [FT_ROWS_UNROLL] = 2};

	for (uint32_t i = 1; i < choices; i++) {
		uint64_t before = started(choice[i - 1], traits);

		if (bytes / PIECE > before && (problem->m > before || shares_rows(problem, before + 1)))
			value[FT_ROWS_THREADS] = choice[i];
	}
	if (value[FT_ROWS_THREADS] != 1 && shares_rows(problem, started(value[FT_ROWS_THREADS], traits)))
		value[FT_ROWS_SPLIT] = 1;
	for (uint32_t i = 1; i < rows->count && !value[FT_ROWS_SPLIT]; i++) {
		uint64_t take = (uint64_t)rows->value[i];

		if (take * row_bytes <= TASK &&
		        take * TASKS_A_THREAD * started(value[FT_ROWS_THREADS], traits) <= problem->m)
			value[FT_ROWS_TAKEN] = rows->value[i];
	}
	if (problem->n >= (uint64_t)8 * LANES)
		value[FT_ROWS_UNROLL] = 8;
	if (bytes > STREAMED && problem->n * ft_dtype_size(problem->dtype) >= LINE)
		value[FT_ROWS_STREAM] = 1;
	if (problem->m > 1)
		value[FT_ROWS_PREFETCH] = 1;
	ft_rows_config(schema, value, config);
}

/* Why a config cannot win: something less does the very same, or surely does better. NULL if it may. */
static const char *why_not(const struct ft_rows *problem, const int64_t value[FT_ROWS_KNOBS],
        uint64_t threads, uint64_t fewer, uint64_t rows_before)
{
	uint64_t rows = (uint64_t)value[FT_ROWS_TAKEN];
	uint64_t tasks = (problem->m + rows - 1) / rows;

	if (value[FT_ROWS_SPLIT]) {
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
	if (value[FT_ROWS_UNROLL] > 2 && problem->n < (uint64_t)value[FT_ROWS_UNROLL] * LANES)
		return "a row is too short for the unrolled loop";
	if (value[FT_ROWS_STREAM] && problem->n * ft_dtype_size(problem->dtype) < LINE)
		return "a row is too short to go past the caches";
	if (value[FT_ROWS_STREAM] && value[FT_ROWS_PREFETCH] && problem->m == 1)
		return "there is no next row to fetch, and the output is streamed";
	return NULL;
}

/* Counts through the knobs' values like an odometer, threads the slowest. */
int ft_rows_cpu_space(const struct ft_schema *schema, const struct ft_rows *problem, uint64_t bytes,
        const struct ft_traits *traits, struct ft_space *space, struct ft_error *error)
{
	const struct ft_knob_def *knob = schema->knob;
	static const int order[] = {FT_ROWS_TAKEN, FT_ROWS_UNROLL, FT_ROWS_STREAM, FT_ROWS_PREFETCH,
	        FT_ROWS_SPLIT}; /* fastest first */
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(schema, traits, choice);
	struct ft_config default_config;

	ft_rows_cpu_default(schema, problem, bytes, traits, &default_config);
	for (uint32_t threads = 0; threads < choices; threads++) {
		uint64_t fewer = threads > 0 ? started(choice[threads - 1], traits) : 0;
		uint32_t index[FT_ROWS_KNOBS] = {0};

		for (bool more = true; more;) {
			int64_t value[FT_ROWS_KNOBS] = {[FT_ROWS_THREADS] = choice[threads]};
			struct ft_config config;

			for (size_t i = 0; i < sizeof order / sizeof *order; i++)
				value[order[i]] = knob[order[i]].value[index[order[i]]];
			uint64_t rows_before = index[FT_ROWS_TAKEN] > 0
			        ? (uint64_t)knob[FT_ROWS_TAKEN].value[index[FT_ROWS_TAKEN] - 1]
			        : 0;

			ft_rows_config(schema, value, &config);
			if (ft_rows_add(space, &config, &default_config,
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

int ft_rows_cpu_check_config(const struct ft_schema *schema, const struct ft_traits *traits,
        const struct ft_config *config, struct ft_error *error)
{
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(schema, traits, choice);
	char bound[64];

	/* What cannot win for a problem is pruned, and still a member. */
	for (uint32_t i = 0; i < choices; i++) {
		if (config->knob[FT_ROWS_THREADS].value == choice[i])
			return 0;
	}
	if (cores(traits) > 1)
		snprintf(bound, sizeof bound, "1, half of the %" PRIu64 " usable cores, or 0 for all",
		        cores(traits));
	else
		snprintf(bound, sizeof bound, "1, as there is one usable core");
	return ft_rows_refuse(config, FT_ROWS_THREADS, bound, error);
}
