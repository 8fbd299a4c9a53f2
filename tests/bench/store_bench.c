/* What the store adds to LMDB: mdb_get beside store_get_answer in one run, interleaved; opening; memory.
 *
 *   store_bench [ENTRIES] [DIRECTORY]     1,000 entries in a directory of its own unless said otherwise */
#include <errno.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "daemon/store/record.h"
#include "daemon/store/store.h"

enum { ROUNDS = 10, LOOKUPS = 100000, BATCH = 1000 };

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "store_bench: %s: %s\n", what, why);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A line of /proc/self/status, in KiB. */
static long status_kib(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	long value = -1;

	if (file == NULL)
		return -1;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtol(line + strlen(name) + 1, NULL, 10);
	}
	fclose(file);
	return value;
}

static struct store_key key_of(uint64_t number)
{
	struct store_key key = {.kernel = 1, .device = 1};

	/* As the hash of a problem would: 50 values of m a problem. */
	for (uint64_t i = 0, mixed = (number / 50 + 1) * UINT64_C(0x9E3779B97F4A7C15); i < 16; i++)
		key.problem.hash[i] = (uint8_t)(mixed >> (i % 8 * 8)) ^ (uint8_t)(i * 29);
	key.problem.scale = 1 + number % 50;
	return key;
}

static void on_done(void *data, uint64_t generation, const struct ft_error *error)
{
	(void)generation;
	if (error != NULL)
		fail("commit", error->message);
	(*(uint64_t *)data)++;
}

static void fill(struct store *store, uv_loop_t *loop, uint64_t entries)
{
	uint64_t done = 0, submitted = 0;

	for (uint64_t number = 0; number < entries;) {
		struct store_batch *batch = store_batch_new(store);

		for (int i = 0; i < BATCH && number < entries; i++, number++) {
			struct store_key key = key_of(number);
			struct ft_problem problem = {0};
			struct store_winner winner = {
			        .set = true,
			        .identity = 1,
			        .rule_revision = 1,
			        .space_hash = UINT64_C(0x123456789abcdef0),
			        .time_ps = 81200000,
			        .default_time_ps = 90000000,
			        .tuned_at_ns = UINT64_C(1760000000000000000),
			        .conclusive = true,
			        .job = number,
			};

			ft_problem_set_number(&problem, "m", (int64_t)key.problem.scale, NULL);
			ft_problem_set_number(&problem, "n", 4096, NULL);
			ft_problem_set_text(&problem, "dtype", "bf16", NULL);
			ft_problem_set_text(&problem, "weight_dtype", "bf16", NULL);
			ft_problem_set_number(&problem, "row_stride", 4096, NULL);
			ft_config_set(&winner.config, "BLOCK_THREADS", 256, NULL);
			ft_config_set(&winner.config, "waves_per_eu", 0, NULL);
			if (batch == NULL || store_batch_winner(batch, &key, &problem, &winner) != 0)
				fail("batch", "out of memory");
		}
		store_submit(batch, on_done, &done);
		submitted++;
		while (submitted - done > 8)
			uv_run(loop, UV_RUN_ONCE);
	}
	while (done < submitted)
		uv_run(loop, UV_RUN_ONCE);
}

static void on_closed(void *data)
{
	*(bool *)data = true;
}

static void on_log(void *data, int level, const char *message)
{
	(void)data;
	fprintf(stderr, "%d %s\n", level, message);
}

static struct store *open_store(uv_loop_t *loop, const char *directory, uint64_t *took)
{
	struct store_options options = {.directory = directory, .log = on_log};
	struct ft_error error;
	struct store *store;
	uint64_t start = now_ns();

	if (store_open(&store, loop, &options, &error) != 0)
		fail("open", error.message);
	*took = now_ns() - start;
	return store;
}

static void close_store(struct store *store, uv_loop_t *loop)
{
	bool closed = false;

	store_close(store, on_closed, &closed);
	while (!closed)
		uv_run(loop, UV_RUN_DEFAULT);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *sample, size_t count)
{
	qsort(sample, count, sizeof(*sample), compare_doubles);
	return count % 2 == 1 ? sample[count / 2] : (sample[count / 2 - 1] + sample[count / 2]) / 2;
}

/* The same work on an environment that is only LMDB's: key made, transaction renewed, got and reset. */
static double time_lmdb(MDB_txn *txn, MDB_dbi dbi, uint64_t entries, uint64_t seed)
{
	uint64_t start = now_ns();

	for (int i = 0; i < LOOKUPS; i++) {
		struct store_key key = key_of(next_random(&seed) % entries);
		struct record_key made;
		MDB_val at, value;

		record_key_problem(&made, RECORD_ANSWER, &key);
		at = (MDB_val){made.length, made.data};
		if (mdb_txn_renew(txn) != 0 || mdb_get(txn, dbi, &at, &value) != 0)
			fail("mdb_get", "nothing there");
		mdb_txn_reset(txn);
	}
	return (double)(now_ns() - start) / LOOKUPS;
}

static double time_store(struct store *store, uint64_t entries, uint64_t seed)
{
	uint64_t start = now_ns();

	for (int i = 0; i < LOOKUPS; i++) {
		struct store_key key = key_of(next_random(&seed) % entries);
		struct store_answer answer;

		if (store_begin(store, NULL) != 0 || store_get_answer(store, &key, &answer, NULL) != 1)
			fail("store_get_answer", "nothing there");
		store_end(store);
	}
	return (double)(now_ns() - start) / LOOKUPS;
}

/* Copies the answers into an environment of LMDB's own: one environment may not be opened twice. */
static void copy_entries(MDB_env *env, MDB_dbi *dbi, uint64_t entries, const void *value, size_t length)
{
	MDB_txn *txn = NULL;

	for (uint64_t number = 0; number < entries; number++) {
		struct store_key key = key_of(number);
		struct record_key made;
		MDB_val at;
		union {
			const void *from;
			void *to;
		} pointer = {.from = value};
		MDB_val data = {length, pointer.to};

		record_key_problem(&made, RECORD_ANSWER, &key);
		at = (MDB_val){made.length, made.data};
		if ((txn == NULL && mdb_txn_begin(env, NULL, 0, &txn) != 0) ||
		        mdb_dbi_open(txn, NULL, 0, dbi) != 0 || mdb_put(txn, *dbi, &at, &data, 0) != 0)
			fail("mdb_put", "failed");
		if (number % BATCH == BATCH - 1) {
			mdb_txn_commit(txn);
			txn = NULL;
		}
	}
	if (txn != NULL)
		mdb_txn_commit(txn);
}

int main(int argc, char **argv)
{
	uint64_t entries = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
	char own[] = "/tmp/store-bench-XXXXXX", plain[] = "/tmp/store-bench-XXXXXX";
	const char *directory = argc > 2 ? argv[2] : own;
	double lmdb_ns[ROUNDS], store_ns[ROUNDS], ratio[ROUNDS], open_ms[ROUNDS];
	uint8_t filler[160] = {1};
	struct store_facts facts;
	struct store *store;
	uv_loop_t loop;
	uint64_t took;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	if (entries == 0)
		fail("entries", "at least 1");
	if (mkdtemp(plain) == NULL || (argc <= 2 && mkdtemp(own) == NULL))
		fail("directory", strerror(errno));
	uv_loop_init(&loop);
	store = open_store(&loop, directory, &took);
	store_facts(store, &facts);
	if (facts.answers < entries)
		fill(store, &loop, entries);
	store_facts(store, &facts);
	close_store(store, &loop);
	for (int i = 0; i < ROUNDS; i++) {
		store = open_store(&loop, directory, &took);
		open_ms[i] = (double)took / 1e6;
		close_store(store, &loop);
	}
	store = open_store(&loop, directory, &took);
	long anon_before = status_kib("RssAnon"), shmem_before = status_kib("RssShmem");

	time_store(store, entries, 1);
	long anon = status_kib("RssAnon"), shmem = status_kib("RssShmem"), file = status_kib("RssFile");

	if (mdb_env_create(&env) != 0 || mdb_env_set_mapsize(env, (size_t)16 << 30) != 0 ||
	        mdb_env_open(env, plain, MDB_NOTLS | MDB_NORDAHEAD | MDB_NOSYNC, 0600) != 0)
		fail("mdb_env_open", plain);
	copy_entries(env, &dbi, entries, filler, sizeof(filler));
	if (mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) != 0)
		fail("mdb_txn_begin", "failed");
	mdb_txn_reset(txn);
	time_lmdb(txn, dbi, entries, 1);
	for (int i = 0; i < ROUNDS; i++) {
		lmdb_ns[i] = time_lmdb(txn, dbi, entries, (uint64_t)i + 7);
		store_ns[i] = time_store(store, entries, (uint64_t)i + 7);
		ratio[i] = store_ns[i] / lmdb_ns[i];
	}
	printf("entries               %" PRIu64 "\n", entries);
	printf("used                  %.1f MiB\n", (double)facts.bytes / 1048576);
	printf("mdb_get               %.0f ns (key made, transaction renewed and reset)\n",
	        median(lmdb_ns, ROUNDS));
	printf("store_get_answer      %.0f ns (the same, checked and decoded)\n", median(store_ns, ROUNDS));
	printf("ratio                 %.2f\n", median(ratio, ROUNDS));
	double usual_ms = median(open_ms, ROUNDS); /* sorts them */

	printf("open to ready         %.2f ms (median), %.2f ms (worst of %d)\n", usual_ms,
	        open_ms[ROUNDS - 1], ROUNDS);
	printf("RssAnon + RssShmem    %ld KiB after opening, %ld KiB after %d lookups (RssFile then: %ld "
	       "KiB)\n",
	        anon_before + shmem_before, anon + shmem, LOOKUPS, file);
	mdb_txn_abort(txn);
	mdb_env_close(env);
	close_store(store, &loop);
	uv_loop_close(&loop);
	for (int i = 0; i < 2; i++) {
		static const char *const name[] = {"data.mdb", "lock.mdb", "lock", "initialised"};
		const char *where = i == 0 ? plain : own;

		if (i == 1 && argc > 2)
			break;
		for (size_t k = 0; k < sizeof(name) / sizeof(name[0]); k++) {
			char path[256];

			snprintf(path, sizeof(path), "%s/%s", where, name[k]);
			unlink(path);
		}
		rmdir(where);
	}
	return 0;
}
