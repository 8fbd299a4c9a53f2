/* What the search reaches on recorded spaces, beside random and greedy search.
 *
 * usage: search [--seeds 100] [--first 0] [--batch 1] [--shuffle knobs|values] FILE...      tests/bench/search runs it on a folder
 *
 * A file is text. Lines that begin with # are comments; then a line of names, of the knobs and last of the time, separated by
 * commas; then a line a config: the knobs' values, which are numbers, and last the time in any unit, or the word that it failed
 * with.
 *
 * A row a space and a search: the share of the optimum (the best of all / the best found) after so much of the space, failures
 * counted as tries: the mean of the seeds and its 95 % interval; and the CPU time of a step. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/bench/recorded_space.h"

enum {
	PARTS = 4,
	LEAST = 100, /* configs, for a hundredth to be one */
};

static const double part[PARTS] = {0.01, 0.05, 0.10, 0.20};

enum way {
	WAY_RANDOM,
	WAY_GREEDY,
	WAY_OURS,
	WAYS,
};

static const char *const way_name[WAYS] = {"random", "greedy", "ours"};

struct options {
	uint64_t seeds, first;
	size_t batch;
	const char *shuffle;
};

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Puts in place of each value of a knob where it stands in the knob's list, the least first. */
static void set_indices(struct recorded_space *recorded, const double *value, size_t knob)
{
	size_t count = recorded->space.count, knobs = recorded->space.knobs, distinct = 0;
	double *list = malloc(count * sizeof(*list));

	if (list == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
		list[i] = value[i * knobs + knob];
	qsort(list, count, sizeof(*list), by_value);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || list[i] > list[distinct - 1])
			list[distinct++] = list[i];
	for (size_t i = 0; i < count; i++) {
		const double *found =
		        bsearch(&value[i * knobs + knob], list, distinct, sizeof(*list), by_value);

		recorded->row[i * knobs + knob] = (uint16_t)(found - list);
	}
	free(list);
}

static bool read_line(struct recorded_space *recorded, double *value, char *line)
{
	size_t at = recorded->space.count, knobs = recorded->space.knobs;
	char *end = line;

	for (size_t j = 0; j < knobs; j++, line = end + 1) {
		value[at * knobs + j] = strtod(line, &end);
		if (end == line || *end != ',')
			return false;
	}
	recorded->time[at] = strtod(line, &end);
	if (end == line) {
		recorded->time[at] = INFINITY;
		recorded->failed++;
	}
	recorded->space.count++;
	return true;
}

static void close_space(struct recorded_space *recorded)
{
	free(recorded->row);
	free(recorded->time);
}

/* False with a line on the standard error if it cannot be read; to be closed in any case. */
static bool open_space(struct recorded_space *recorded, const char *path)
{
	FILE *file = fopen(path, "re");
	double *value = NULL;
	char line[1024];
	bool good = file != NULL;

	*recorded = (struct recorded_space){.best = INFINITY, .space.default_index = SIZE_MAX};
	while (good && fgets(line, sizeof(line), file) != NULL) {
		if (line[0] == '#')
			continue;
		if (value == NULL) {
			for (const char *letter = line; *letter != '\0'; letter++)
				recorded->space.knobs += *letter == ',';
			if (recorded->space.knobs == 0 || recorded->space.knobs > FT_SEARCH_KNOBS_MAX)
				break;
			value = calloc(FT_SEARCH_MEMBERS_MAX * recorded->space.knobs, sizeof(*value));
			recorded->row =
			        calloc(FT_SEARCH_MEMBERS_MAX * recorded->space.knobs, sizeof(*recorded->row));
			recorded->time = calloc(FT_SEARCH_MEMBERS_MAX, sizeof(*recorded->time));
			good = value != NULL && recorded->row != NULL && recorded->time != NULL;
			continue;
		}
		good = recorded->space.count < FT_SEARCH_MEMBERS_MAX && read_line(recorded, value, line);
	}
	good = good && recorded->space.count >= LEAST;
	if (!good)
		(void)fprintf(stderr, "%s is no recorded space: %s\n", path,
		        file == NULL ? strerror(errno) : "a line is wrong, or there are too few or too many");
	for (size_t j = 0; good && j < recorded->space.knobs; j++)
		set_indices(recorded, value, j);
	for (size_t i = 0; good && i < recorded->space.count; i++)
		recorded->best = fmin(recorded->best, recorded->time[i]);
	recorded->space.row = recorded->row;
	free(value);
	if (file != NULL)
		(void)fclose(file);
	return good;
}

static double cpu_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Another order of the knobs, or of each knob's values: of the first nothing may depend. */
static void shuffle(const struct recorded_space *recorded, uint64_t seed, bool values, uint16_t *row)
{
	size_t knobs = recorded->space.knobs, count = recorded->space.count;
	uint16_t *list = malloc(FT_SEARCH_MEMBERS_MAX * sizeof(*list));
	size_t order[FT_SEARCH_KNOBS_MAX];

	if (list == NULL)
		abort();
	for (size_t j = 0; j < knobs; j++) {
		size_t other = recorded_below(&seed, j + 1);

		order[j] = order[other];
		order[other] = j;
	}
	for (size_t j = 0; j < knobs; j++) {
		size_t most = 0;

		for (size_t i = 0; i < count; i++)
			if (recorded->row[i * knobs + j] > most)
				most = recorded->row[i * knobs + j];
		for (size_t v = 0; v <= most; v++) {
			size_t other = recorded_below(&seed, v + 1);

			list[v] = list[other];
			list[other] = (uint16_t)v;
		}
		for (size_t i = 0; i < count; i++)
			row[i * knobs + (values ? j : order[j])] =
			        values ? list[recorded->row[i * knobs + j]] : recorded->row[i * knobs + j];
	}
	free(list);
}

/* Returns the tries made. */
static size_t run_one(const struct recorded_space *recorded, enum way way, uint64_t seed,
        const struct options *options, size_t tries, double *found)
{
	struct recorded_space other = *recorded;
	size_t made = tries;
	uint16_t *row = NULL;

	if (options->shuffle != NULL && way == WAY_OURS) {
		row = malloc(recorded->space.count * recorded->space.knobs * sizeof(*row));
		if (row == NULL)
			abort();
		shuffle(recorded, seed, strcmp(options->shuffle, "values") == 0, row);
		other.space.row = other.row = row;
	}
	if (way == WAY_RANDOM)
		recorded_random(&other, seed, tries, found);
	else if (way == WAY_GREEDY)
		recorded_greedy(&other, seed, tries, found);
	else
		made = recorded_search(&other, seed, tries, options->batch, found);
	free(row);
	return made;
}

static void run_way(const struct recorded_space *recorded, enum way way, const struct options *options)
{
	size_t made = 0, count = recorded->space.count, tries = (size_t)(part[PARTS - 1] * (double)count);
	double sum[PARTS] = {0}, squares[PARTS] = {0}, *found = calloc(tries + 1, sizeof(*found));
	double n = (double)options->seeds, started = cpu_us();

	if (found == NULL)
		abort();
	if (tries > FT_SEARCH_TRIES_MAX)
		tries = FT_SEARCH_TRIES_MAX;
	for (uint64_t seed = 0; seed < options->seeds; seed++) {
		made += run_one(recorded, way, options->first + seed, options, tries, found);
		for (size_t k = 0; k < PARTS; k++) {
			size_t at = (size_t)(part[k] * (double)count);
			double share = recorded->best / found[(at < 1 ? 1 : at > tries ? tries : at) - 1];

			sum[k] += share;
			squares[k] += share * share;
		}
	}
	(void)printf("| | %s |", way_name[way]);
	for (size_t k = 0; k < PARTS; k++) {
		double mean = sum[k] / n;

		(void)printf(" %.4f ± %.4f |", mean, 1.96 * sqrt(fmax(squares[k] / n - mean * mean, 0) / n));
	}
	(void)printf(" %.0f |\n", (cpu_us() - started) / (double)made);
	(void)fflush(stdout);
	free(found);
}

int main(int count, char **argument)
{
	static const struct option known[] = {
	        {"seeds", required_argument, NULL, 's'},
	        {"first", required_argument, NULL, '0'},
	        {"batch", required_argument, NULL, 'b'},
	        {"shuffle", required_argument, NULL, 'f'},
	        {NULL, 0, NULL, 0},
	};
	struct options options = {.seeds = 100, .batch = 1};
	int letter;

	while ((letter = getopt_long(count, argument, "", known, NULL)) != -1) {
		if (letter == 's')
			options.seeds = strtoull(optarg, NULL, 10);
		else if (letter == '0')
			options.first = strtoull(optarg, NULL, 10);
		else if (letter == 'b')
			options.batch = strtoull(optarg, NULL, 10);
		else if (letter == 'f')
			options.shuffle = optarg;
		else
			return 2;
	}
	if (optind == count || options.seeds < 2 || options.batch < 1 ||
	        options.batch > FT_SEARCH_TRIES_MAX) {
		(void)fprintf(stderr,
		        "usage: search [--seeds 100] [--first 0] [--batch 1] [--shuffle knobs|values] "
		        "FILE...\n");
		return 2;
	}
	(void)printf("| space, configs (failed) | search | 1 %% | 5 %% | 10 %% | 20 %% | CPU a step, µs |\n"
	             "|---|---|---|---|---|---|---|\n");
	for (; optind < count; optind++) {
		const char *slash = strrchr(argument[optind], '/');
		struct recorded_space recorded;
		bool opened = open_space(&recorded, argument[optind]);

		if (opened) {
			(void)printf("| %s, %zu (%zu) | | | | | | |\n",
			        slash != NULL ? slash + 1 : argument[optind], recorded.space.count,
			        recorded.failed);
			for (enum way way = WAY_RANDOM; way < WAYS; way++)
				run_way(&recorded, way, &options);
		}
		close_space(&recorded);
		if (!opened)
			return 1;
	}
	return 0;
}
