/* What tests of the store share: a store in a directory of its own, and calls that wait. */
#ifndef FLYTUNE_TESTS_STORE_HELP_H
#define FLYTUNE_TESTS_STORE_HELP_H

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "daemon/store/store.h"

struct place {
	char path[256];
	uv_loop_t loop;
	struct store *store;
	struct store_limits limits;
	uint64_t map_bytes;
	struct ft_error error;
	char log[8192]; /* all lines */
	bool closed;
	/* What the store told of changes, since it was made. */
	_Atomic unsigned published_keys, published_all; /* calls of `publish` with a key, and without */
	_Atomic uint64_t published;                     /* the generation last told */
	unsigned changed_keys, changed_all;
};

static inline void place_log(void *data, int level, const char *message)
{
	struct place *place = data;
	size_t used = strlen(place->log);

	snprintf(place->log + used, sizeof(place->log) - used, "%d %s\n", level, message);
}

static inline void place_publish(void *data, const struct store_key *key)
{
	struct place *place = data;

	if (key != NULL)
		place->published_keys++;
	else
		place->published_all++;
}

static inline void place_published(void *data, uint64_t generation)
{
	((struct place *)data)->published = generation;
}

static inline void place_changed(void *data, const struct store_key *key)
{
	struct place *place = data;

	if (key != NULL)
		place->changed_keys++;
	else
		place->changed_all++;
}

static inline struct place *place_new(void)
{
	struct place *place = calloc(1, sizeof(*place));
	/* Memory, where there is some: these tests commit thousands of times, and none of them cuts the
	 * power. */
	const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

	assert_non_null(place);
	snprintf(place->path, sizeof(place->path), "%s/flytune-store-XXXXXX", top);
	assert_non_null(mkdtemp(place->path));
	place->limits = store_limits_usual;
	place->map_bytes = UINT64_C(64) << 20;
	return place;
}

static inline int place_try_open(struct place *place)
{
	const struct store_options options = {
	        .directory = place->path,
	        .map_bytes = place->map_bytes,
	        .limits = &place->limits,
	        .log = place_log,
	        .log_data = place,
	        .publish = place_publish,
	        .published = place_published,
	        .changed = place_changed,
	        .changed_data = place,
	};

	assert_int_equal(uv_loop_init(&place->loop), 0);
	if (store_open(&place->store, &place->loop, &options, &place->error) == 0)
		return 0;
	uv_run(&place->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&place->loop), 0);
	return -1;
}

static inline void place_open(struct place *place)
{
	if (place_try_open(place) != 0)
		fail_msg("the store did not open: %s", place->error.message);
}

static inline void place_on_closed(void *data)
{
	((struct place *)data)->closed = true;
}

static inline void place_close(struct place *place)
{
	place->closed = false;
	store_close(place->store, place_on_closed, place);
	uv_run(&place->loop, UV_RUN_DEFAULT);
	assert_true(place->closed);
	assert_int_equal(uv_loop_close(&place->loop), 0);
	place->store = NULL;
}

static inline void place_file(const struct place *place, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", place->path, name);
}

/* Counts names that start so; copies the last. */
static inline int place_count(const struct place *place, const char *prefix, char *last, size_t size)
{
	DIR *directory = opendir(place->path);
	struct dirent *entry;
	int count = 0;

	assert_non_null(directory);
	while ((entry = readdir(directory)) != NULL) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		count++;
		if (last != NULL)
			snprintf(last, size, "%s", entry->d_name);
	}
	closedir(directory);
	return count;
}

static inline void place_free(struct place *place)
{
	DIR *directory = opendir(place->path);
	struct dirent *entry;

	if (directory != NULL) {
		while ((entry = readdir(directory)) != NULL)
			unlinkat(dirfd(directory), entry->d_name, 0);
		closedir(directory);
	}
	rmdir(place->path);
	free(place);
}

/* ---- batches ---- */

struct outcome {
	bool done;
	bool failed;
	uint64_t generation;
	struct ft_error error;
};

static inline void outcome_done(void *data, uint64_t generation, const struct ft_error *error)
{
	struct outcome *outcome = data;

	outcome->done = true;
	outcome->generation = generation;
	outcome->failed = error != NULL;
	if (error != NULL)
		outcome->error = *error;
}

static inline void place_wait(struct place *place, const struct outcome *outcome)
{
	while (!outcome->done)
		uv_run(&place->loop, UV_RUN_ONCE);
}

static inline struct outcome place_commit(struct place *place, struct store_batch *batch)
{
	struct outcome outcome = {0};

	store_submit(batch, outcome_done, &outcome);
	place_wait(place, &outcome);
	return outcome;
}

/* ---- things to keep ---- */

static inline struct store_key some_key(uint8_t which, uint64_t scale)
{
	struct store_key key = {.kernel = 1, .device = 2};

	memset(key.problem.hash, which, sizeof(key.problem.hash));
	key.problem.scale = scale;
	return key;
}

static inline struct ft_problem some_problem(uint8_t which, uint64_t scale)
{
	struct ft_problem problem = {0};

	ft_problem_set_number(&problem, "m", (int64_t)scale, NULL);
	ft_problem_set_number(&problem, "n", 4096 + which, NULL);
	ft_problem_set_text(&problem, "dtype", "bf16", NULL);
	return problem;
}

static inline struct ft_config some_config(int64_t block)
{
	struct ft_config config = {0};

	ft_config_set(&config, "BLOCK_THREADS", block, NULL);
	ft_config_set(&config, "waves_per_eu", 0, NULL);
	return config;
}

static inline struct store_winner some_winner(int64_t block)
{
	return (struct store_winner){
	        .set = true,
	        .config = some_config(block),
	        .identity = 3,
	        .rule_revision = 1,
	        .space_hash = UINT64_C(0xfedcba9876543210),
	        .time_ps = 81200000,
	        .default_time_ps = 90000000,
	        .tuned_at_ns = UINT64_C(1760000000000000000),
	        .conclusive = true,
	        .job = 7,
	};
}

/* Commits a winner for some_key(which, scale field) and gives its generation. */
static inline uint64_t put_winner(struct place *place, uint8_t which, uint64_t scale, int64_t block)
{
	struct store_key key = some_key(which, scale);
	struct ft_problem problem = some_problem(which, scale);
	struct store_winner winner = some_winner(block);
	struct store_batch *batch = store_batch_new(place->store);
	struct outcome outcome;

	assert_non_null(batch);
	assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
	outcome = place_commit(place, batch);
	assert_false(outcome.failed);
	return outcome.generation;
}

/* The winner's BLOCK_THREADS, 0 if there is no answer, -1 on an error; at a generation unless that is 0. */
static inline int64_t get_winner(struct place *place, uint8_t which, uint64_t scale, uint64_t generation)
{
	struct store_key key = some_key(which, scale);
	struct store_answer answer;
	int found;

	assert_int_equal(store_begin(place->store, NULL), 0);
	found = generation == 0 ? store_get_answer(place->store, &key, &answer, &place->error)
	                        : store_get_answer_at(place->store, &key, generation, &answer, &place->error);
	store_end(place->store);
	if (found != 1)
		return found;
	return ft_config_find(&answer.winner.config, "BLOCK_THREADS")->value;
}

static inline off_t file_size(const char *path)
{
	struct stat info;

	return stat(path, &info) == 0 ? info.st_size : -1;
}

#endif
