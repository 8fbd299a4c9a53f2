#include "kernels/rmsnorm/rmsnorm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { THREADS, ROWS, UNROLL, STREAM, KNOBS };
enum {
	LANES = 16,          /* f32 in the widest vector: what one step of unroll takes */
	PIECE = 64 * 1024,   /* bytes worth handing to another thread; a task's size */
	TASKS_A_THREAD = 4,  /* so that a thread that started late leaves little for last */
	THREAD_CHOICES = 16, /* room for every power of two, and 0 */
	LINE = 64,           /* bytes of a cache line */
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
                                        .help = "threads that work; 0 is one for every usable core"},
                                [ROWS] = {.name = "rows",
                                        .count = 4,
                                        .value = {1, 4, 16, 64},
                                        .help = "rows that a thread takes at a time"},
                                [UNROLL] = {.name = "unroll",
                                        .count = 3,
                                        .value = {1, 2, 4},
                                        .changes_bits = true,
                                        .help = "vectors that a step of the inner loops takes"},
                                [STREAM] = {.name = "stream",
                                        .count = 2,
                                        .value = {0, 1},
                                        .help = "1: output goes past the caches"},
                        },
};

static uint64_t cores(const struct ft_traits *traits)
{
	return traits->units > 0 ? traits->units : 1;
}

/* The choices that this machine has, least first: powers of two below its cores, then all of them as 0. */
static uint32_t thread_choices(const struct ft_traits *traits, int64_t choice[THREAD_CHOICES])
{
	const struct ft_knob_def *def = &rmsnorm_cpu_schema.knob[THREADS];
	uint32_t count = 0;

	choice[count++] = 1;
	for (uint32_t i = 0; i < def->count; i++) {
		if (def->value[i] > 1 && (uint64_t)def->value[i] < cores(traits))
			choice[count++] = def->value[i];
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

/* Threads as long as each gets a piece that is worth its start; rows so that a task is such a piece, with
 * some tasks a thread; streaming where the output would push everything else out of the caches. */
void rmsnorm_cpu_standard(
        const struct rmsnorm_problem *problem, const struct ft_traits *traits, struct ft_config *config)
{
	const struct ft_knob_def *rows = &rmsnorm_cpu_schema.knob[ROWS];
	const struct ft_knob_def *unroll = &rmsnorm_cpu_schema.knob[UNROLL];
	uint64_t bytes = rmsnorm_bytes(problem);
	uint64_t row_bytes = 2 * problem->n * rmsnorm_dtype_size(problem->dtype);
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(traits, choice);
	int64_t value[KNOBS] = {[THREADS] = 1, [ROWS] = 1, [UNROLL] = 1, [STREAM] = 0};

	for (uint32_t i = 1; i < choices; i++) {
		uint64_t before = started(choice[i - 1], traits);

		if (bytes / PIECE > before && problem->m > before)
			value[THREADS] = choice[i];
	}
	for (uint32_t i = 1; i < rows->count; i++) {
		uint64_t take = (uint64_t)rows->value[i];

		if (take * row_bytes <= PIECE &&
		        take * TASKS_A_THREAD * started(value[THREADS], traits) <= problem->m)
			value[ROWS] = rows->value[i];
	}
	for (uint32_t i = 1; i < unroll->count; i++) {
		if ((uint64_t)unroll->value[i] * LANES <= problem->n)
			value[UNROLL] = unroll->value[i];
	}
	if (bytes > traits->cache && problem->n * rmsnorm_dtype_size(problem->dtype) >= LINE)
		value[STREAM] = 1;
	rmsnorm_config_of(&rmsnorm_cpu_schema, value, config);
}

/* Why a config cannot win: something less does the very same. NULL if it may. */
static const char *why_not(const struct rmsnorm_problem *problem, const int64_t value[KNOBS],
        uint64_t threads, uint64_t fewer, uint64_t rows_before)
{
	uint64_t rows = (uint64_t)value[ROWS];
	uint64_t tasks = (problem->m + rows - 1) / rows;

	if (fewer >= problem->m)
		return "fewer threads have a row each already";
	if (rows_before >= problem->m)
		return "fewer rows at a time are all the rows already";
	if (threads > 1 && tasks <= fewer)
		return "fewer threads have a task each already";
	if (value[UNROLL] > 1 && problem->n < (uint64_t)value[UNROLL] * LANES)
		return "a row is too short for the unrolled loop";
	if (value[STREAM] && problem->n * rmsnorm_dtype_size(problem->dtype) < LINE)
		return "a row is too short to go past the caches";
	return NULL;
}

int rmsnorm_cpu_space(const struct rmsnorm_problem *problem, const struct ft_traits *traits,
        struct ft_space *space, struct ft_error *error)
{
	const struct ft_knob_def *knob = rmsnorm_cpu_schema.knob;
	int64_t choice[THREAD_CHOICES];
	uint32_t choices = thread_choices(traits, choice);
	uint32_t rest = knob[STREAM].count * knob[UNROLL].count * knob[ROWS].count;
	struct ft_config standard;

	rmsnorm_cpu_standard(problem, traits, &standard);
	for (uint32_t i = 0; i < choices * rest; i++) {
		uint32_t threads = i / rest;
		uint32_t rows = i % knob[ROWS].count;
		int64_t value[KNOBS] = {
		        [THREADS] = choice[threads],
		        [ROWS] = knob[ROWS].value[rows],
		        [UNROLL] = knob[UNROLL].value[i / knob[ROWS].count % knob[UNROLL].count],
		        [STREAM] = knob[STREAM].value[i % rest / (knob[ROWS].count * knob[UNROLL].count)],
		};
		uint64_t fewer = threads > 0 ? started(choice[threads - 1], traits) : 0;
		uint64_t rows_before = rows > 0 ? (uint64_t)knob[ROWS].value[rows - 1] : 0;
		struct ft_config config;

		rmsnorm_config_of(&rmsnorm_cpu_schema, value, &config);
		if (rmsnorm_space_add(space, &config, &standard,
		            why_not(problem, value, started(value[THREADS], traits), fewer, rows_before),
		            error) < 0)
			return -1;
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
		snprintf(bound, sizeof bound, "0, 1 or a power of two below the %" PRIu64 " usable cores",
		        cores(traits));
	else
		snprintf(bound, sizeof bound, "1, as there is one usable core");
	return ft_fail_field(error, FT_E_BAD_VALUE, "threads", value, bound);
}
