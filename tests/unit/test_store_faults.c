/* The store when things go wrong around it: kill -9, full disks, errors of the disk. */
#include "tests/unit/store_help.h"

#include "daemon/store/repair/startup_check.h"

#include <errno.h>
#include <lmdb.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

/* ---- errors of the disk, made up ---- */

static _Atomic int commit_fails; /* how often still */
static _Atomic int commit_code;
static _Atomic int open_fails;
static _Atomic bool commit_kept;  /* what fails is in the file all the same */
static _Atomic bool commit_holds; /* for the next: it returns late */
static _Atomic bool commit_held;
static const char *_Atomic commit_removes; /* a file, while it commits */

int __real_mdb_txn_commit(MDB_txn *txn);
int __wrap_mdb_txn_commit(MDB_txn *txn);
int __wrap_mdb_txn_commit(MDB_txn *txn)
{
	if (commit_fails == 0) {
		int rc = __real_mdb_txn_commit(txn);
		const char *removed = atomic_exchange(&commit_removes, NULL);

		if (removed != NULL)
			(void)unlink(removed);
		commit_held = commit_holds;
		while (commit_holds)
			sched_yield();
		return rc;
	}
	commit_fails--;
	if (commit_kept)
		(void)__real_mdb_txn_commit(txn);
	else
		mdb_txn_abort(txn);
	return commit_code;
}

int __real_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode);
int __wrap_mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode)
{
	if (open_fails == 0)
		return __real_mdb_env_open(env, path, flags, mode);
	open_fails--;
	return EIO;
}

/* ---- putting back ---- */

static const char *_Atomic rename_fails; /* of a file of this name */
static _Atomic unsigned copies;

int __real_mdb_env_copyfd2(MDB_env *env, mdb_filehandle_t fd, unsigned flags);
int __wrap_mdb_env_copyfd2(MDB_env *env, mdb_filehandle_t fd, unsigned flags);
int __wrap_mdb_env_copyfd2(MDB_env *env, mdb_filehandle_t fd, unsigned flags)
{
	copies++;
	return __real_mdb_env_copyfd2(env, fd, flags);
}

int __real_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other)
{
	const char *fails = rename_fails;

	if (fails != NULL && strcmp(name, fails) == 0) {
		errno = EIO;
		return -1;
	}
	return __real_renameat(from, name, to, other);
}

/* ---- what was synced ---- */

static ino_t watched; /* a file or directory */
static _Atomic unsigned syncs_of_watched;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat info;

	if (watched != 0 && fstat(fd, &info) == 0 && info.st_ino == watched)
		syncs_of_watched++;
	return __real_fsync(fd);
}

/* ---- kill -9 ---- */

enum { KINDS = 3 };

/* What the writing child reports once it is acknowledged. */
struct acknowledged {
	uint64_t number; /* batches 1 to this one are durable */
	uint64_t generation;
	uint64_t job; /* an id that was given out, acknowledged or not */
};

struct writing {
	struct place *place;
	int out;
	uint64_t next;
	unsigned open; /* batches on their way */
};

struct written {
	struct writing *writing;
	struct acknowledged what;
};

static void on_written(void *data, uint64_t generation, const struct ft_error *error)
{
	struct written *written = data;

	if (error != NULL)
		_exit(3);
	written->what.generation = generation;
	if (write(written->writing->out, &written->what, sizeof(written->what)) !=
	        (ssize_t)sizeof(written->what))
		_exit(4);
	written->writing->open--;
	free(written);
}

/* Batch `number`: a winner at scale field number % 97, trials, a job, and a name now and then. */
static void write_one(struct writing *writing)
{
	struct store *store = writing->place->store;
	uint64_t number = writing->next++;
	struct store_key key = some_key(1, number % 97);
	struct ft_problem problem = some_problem(1, number % 97);
	struct store_winner winner = some_winner((int64_t)number);
	struct trials *trials = trials_new(20);
	struct store_batch *batch = store_batch_new(store);
	struct written *written = calloc(1, sizeof(*written));
	struct ft_job job = {.job = store_next_job(store), .problems = problem};
	char name[32];
	uint32_t id;

	strcpy(job.state, "queued");
	strcpy(job.device, "cpu:0");
	strcpy(job.kernel, "rmsnorm");
	snprintf(name, sizeof(name), "identity %u", (unsigned)(number / 10));
	trials->rounds = 200;
	for (uint32_t i = 0; i < 20; i++) {
		trials->trial[i].config = some_config(i);
		trials_samples(trials, i)[0] = number;
		trials_samples(trials, i)[number % 200] = number;
	}
	if (store_intern(store, STORE_IDENTITY, name, &id, NULL) != 0 ||
	        store_batch_winner(batch, &key, &problem, &winner) != 0 ||
	        store_batch_trials(batch, &key, 1, trials) != 0 || store_batch_job(batch, &job) != 0)
		_exit(5);
	if (number > 60) {
		store_batch_drop_job(batch, job.job - 60);
	}
	trials_free(trials);
	written->writing = writing;
	written->what.number = number;
	written->what.job = job.job;
	writing->open++;
	store_submit(batch, on_written, written);
}

static void write_for_ever(struct place *place, int out, uint64_t next)
{
	struct writing writing = {.place = place, .out = out, .next = next};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (place_try_open(place) != 0)
		_exit(6);
	for (;;) {
		while (writing.open < 8)
			write_one(&writing);
		uv_run(&place->loop, UV_RUN_ONCE);
	}
}

static void what_was_acknowledged_survives_kill_9(void **state)
{
	enum { ROUNDS = 50 };
	struct place *place = place_new();
	struct acknowledged last = {0}, most = {0};
	uint64_t next = 1;

	(void)state;
	/* History is collected meanwhile, so that this, too, is cut off anywhere. */
	place->limits.history_ns = 0;
	place->limits.history_rows = 2;
	place->limits.collect_commits = 2;
	place->limits.collect_rows = 50;
	srand(17);
	for (int round = 0; round < ROUNDS; round++) {
		int ends[2];
		int wanted = 1 + rand() % 40;
		struct acknowledged got;

		assert_int_equal(pipe(ends), 0);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			close(ends[0]);
			write_for_ever(place, ends[1], next);
		}
		close(ends[1]);
		for (int i = 0; i < wanted; i++) {
			assert_int_equal(read(ends[0], &got, sizeof(got)), sizeof(got));
			/* Ids are never given out twice, whatever became of the run before. */
			assert_true(got.job > most.job);
			most.job = got.job;
			last = got;
		}
		assert_int_equal(kill(child, SIGKILL), 0);
		while (read(ends[0], &got, sizeof(got)) == (ssize_t)sizeof(got)) {
			last = got;
			most.job = got.job;
		}
		close(ends[0]);
		assert_int_equal(waitpid(child, NULL, 0), child);

		place_open(place);
		assert_true(store_generation(place->store) >= last.generation);
		assert_int_equal(place_count(place, "data.mdb.damaged", NULL, 0), 0);
		for (uint64_t back = 0; back < 97 && back < last.number; back++) {
			uint64_t number = last.number - back;
			struct store_key key = some_key(1, number % 97);
			struct trials *trials;
			int64_t block = get_winner(place, 1, number % 97, 0);

			assert_true(block >= (int64_t)number);
			assert_int_equal(store_begin(place->store, NULL), 0);
			assert_int_equal(store_get_trials(place->store, &key, 1, &trials, NULL), 0);
			store_end(place->store);
			assert_non_null(trials);
			assert_int_equal(trials->trial[19].sample_ps[block % 200], block);
			trials_free(trials);
			/* A later one may be there, although nobody heard of it. */
			if ((uint64_t)block > next)
				next = (uint64_t)block;
		}
		char name[32];
		snprintf(name, sizeof(name), "identity %u", (unsigned)(last.number / 10));
		bool known = false;
		for (uint32_t id = 1; store_name_text(place->store, STORE_IDENTITY, id) != NULL; id++)
			known = known || strcmp(store_name_text(place->store, STORE_IDENTITY, id), name) == 0;
		assert_true(known);
		most.job = store_next_job(place->store);
		assert_true(most.job > last.job);
		place_close(place);
		next++;
	}
	char report[256];
	assert_int_equal(store_check(place->path, report, sizeof(report), &place->error), 0);
	assert_string_equal(place->log, "");
	place_free(place);
}

/* ---- a full disk ---- */

static bool on_small_disk(struct place *place)
{
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	return mount("none", place->path, "tmpfs", 0, "size=2m,mode=0700") == 0;
}

static void fill_disk(struct place *place, const char *name)
{
	char path[512];
	uint8_t block[4096] = {0};
	int fd;

	place_file(place, name, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		continue;
	close(fd);
}

static struct outcome put_note(struct place *place, size_t size)
{
	struct store_batch *batch = store_batch_new(place->store);
	uint8_t *value = calloc(1, size);
	static unsigned number;
	char name[32];

	snprintf(name, sizeof(name), "note %u", number++);
	assert_int_equal(store_batch_note(batch, name, value, size), 0);
	free(value);
	return place_commit(place, batch);
}

static void wait_until_writable(struct place *place)
{
	struct store_facts facts;

	for (;;) {
		store_facts(place->store, &facts);
		if (facts.degraded[0] == '\0')
			return;
		uv_run(&place->loop, UV_RUN_ONCE);
	}
}

static void a_full_disk_is_named_and_got_over_without_help(void **state)
{
	struct place *place = place_new();
	struct store_facts facts;
	struct outcome outcome;
	char path[512];

	(void)state;
	if (!on_small_disk(place)) {
		place_free(place);
		skip();
	}
	place->limits.probe_ms = 20;
	place_open(place);
	put_winner(place, 1, 1, 8);
	fill_disk(place, "filler");
	outcome = put_note(place, 20000);
	assert_true(outcome.failed);
	assert_non_null(strstr(outcome.error.message, "disk full: 0 bytes free in"));
	store_facts(place->store, &facts);
	assert_non_null(strstr(facts.degraded, "disk full"));
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	outcome = put_note(place, 20000);
	assert_true(outcome.failed);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);

	place_file(place, "filler", path, sizeof(path));
	assert_int_equal(unlink(path), 0);
	wait_until_writable(place);
	assert_non_null(strstr(place->log, "can be written again"));
	assert_false(put_note(place, 20000).failed);
	/* Each change of state is one line, whatever fails in between. */
	char *line = strstr(place->log, "disk full");
	assert_non_null(line);
	assert_null(strstr(line + 1, "disk full"));
	place_close(place);

	/* A store on a full disk opens, and answers. */
	fill_disk(place, "filler");
	place_open(place);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	place_close(place);
	assert_int_equal(unlink(path), 0);
	place_open(place);
	assert_int_equal(put_winner(place, 1, 1, 9), 3);
	place_close(place);
	assert_int_equal(umount2(place->path, MNT_DETACH), 0);
	place_free(place);
}

/* How often a text stands in the log. */
static unsigned logged(const struct place *place, const char *words)
{
	unsigned count = 0;

	for (const char *at = place->log; (at = strstr(at, words)) != NULL; at++)
		count++;
	return count;
}

static void small_writes_are_no_end_of_a_disk_too_full_for_a_large_one(void **state)
{
	enum { LARGE = 300000, LEFT = 120000 };
	struct place *place = place_new();
	struct store_facts facts;
	struct stat filler;
	char path[512];

	(void)state;
	if (!on_small_disk(place)) {
		place_free(place);
		skip();
	}
	place->limits.probe_ms = 5;
	place->limits.probe_most_ms = 20;
	place_open(place);
	put_winner(place, 1, 1, 8);
	fill_disk(place, "filler");
	place_file(place, "filler", path, sizeof(path));
	assert_int_equal(stat(path, &filler), 0);
	assert_int_equal(truncate(path, filler.st_size - LEFT), 0);
	assert_true(put_note(place, LARGE).failed);
	/* For as long as many probes take, and with small writes between them, it is one trouble. */
	for (int i = 0; i < 40; i++) {
		assert_false(put_note(place, 50).failed);
		store_facts(place->store, &facts);
		assert_non_null(strstr(facts.degraded, "disk full"));
		assert_non_null(strstr(facts.degraded, "300"));
		poll(NULL, 0, 2);
	}
	assert_true(put_note(place, LARGE).failed);
	assert_int_equal(logged(place, "disk full"), 1);
	assert_int_equal(logged(place, "written again"), 0);
	assert_int_equal(unlink(path), 0);
	wait_until_writable(place);
	assert_false(put_note(place, LARGE).failed);
	assert_int_equal(logged(place, "disk full"), 1);
	assert_int_equal(logged(place, "written again"), 1);
	/* What a probe wrote is gone. */
	struct ft_writer value;
	ft_writer_init_growing(&value, 1 << 20);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_int_equal(store_get_note(place->store, "rehearsal:0", &value, NULL), 0);
	store_end(place->store);
	ft_writer_free(&value);
	place_close(place);
	assert_int_equal(umount2(place->path, MNT_DETACH), 0);
	place_free(place);
}

static void a_write_that_was_large_enough_ends_it(void **state)
{
	struct place *place = place_new();
	struct store_facts facts;

	(void)state;
	place->limits.probe_ms = 3600000;
	place_open(place);
	commit_code = ENOSPC;
	commit_fails = 1;
	assert_true(put_note(place, 5000).failed);
	assert_false(put_note(place, 1000).failed);
	store_facts(place->store, &facts);
	assert_true(facts.degraded[0] != '\0');
	assert_false(put_note(place, 6000).failed);
	store_facts(place->store, &facts);
	assert_string_equal(facts.degraded, "");
	place_close(place);
	place_free(place);
}

static void what_may_not_be_written_is_tried_again_without_losing_reads(void **state)
{
	static const int code[] = {EROFS, EPERM, EACCES};

	(void)state;
	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++) {
		struct place *place = place_new();

		place->limits.probe_ms = 5;
		place_open(place);
		put_winner(place, 1, 1, 8);
		commit_code = code[i];
		commit_fails = 3;
		assert_true(put_note(place, 100).failed);
		assert_int_equal(get_winner(place, 1, 1, 0), 8);
		wait_until_writable(place);
		assert_int_equal(get_winner(place, 1, 1, 0), 8);
		assert_int_equal(logged(place, "opened again"), 0);
		assert_int_equal(logged(place, "written again"), 1);
		place_close(place);
		place_free(place);
	}
}

static void what_keeps_a_write_out_is_told_as_it_is(void **state)
{
	static const struct {
		int code;
		const char *words;
	} refusals[] = {
	        {ENOSPC, "takes no more, although it tells of"},
	        {EDQUOT, "quota exceeded"},
	        {MDB_MAP_FULL, "map_size"},
	        {EIO, "Input/output error"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct place *place = place_new();
		struct outcome outcome;

		place_open(place);
		commit_code = refusals[i].code;
		commit_fails = 1;
		outcome = put_note(place, 100);
		assert_true(outcome.failed);
		assert_null(strstr(outcome.error.message, "disk full"));
		if (strstr(outcome.error.message, refusals[i].words) == NULL)
			fail_msg("%s", outcome.error.message);
		place_close(place);
		place_free(place);
	}
}

static void a_limit_on_files_is_told_as_one(void **state)
{
	struct place *place = place_new();
	struct rlimit before, limit;
	struct outcome outcome;
	struct stat data;
	char path[512];

	(void)state;
	place->limits.probe_ms = 5;
	place_open(place);
	put_winner(place, 1, 1, 8);
	place_file(place, "data.mdb", path, sizeof(path));
	assert_int_equal(stat(path, &data), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){(rlim_t)data.st_size + 6000, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	outcome = put_note(place, 300000);
	assert_true(outcome.failed);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_non_null(strstr(outcome.error.message, "ulimit -f"));
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	wait_until_writable(place);
	assert_false(put_note(place, 300000).failed);
	/* It was no damage: the end is one in peace. */
	place_close(place);
	assert_int_equal(place_count(place, "open", NULL, 0), 0);
	place_free(place);
}

static void a_store_that_stays_unwritable_says_so_once(void **state)
{
	static const int code[] = {EIO, ENOSPC};

	(void)state;
	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++) {
		struct place *place = place_new();

		place->limits.probe_ms = 1;
		place->limits.probe_most_ms = 1;
		place_open(place);
		commit_code = code[i];
		/* It fails each time, and in between it seems to work again. */
		for (int round = 0; round < 20; round++) {
			commit_fails = 3;
			assert_true(put_note(place, 100).failed);
			commit_fails = 0;
			wait_until_writable(place);
		}
		assert_int_equal(logged(place, "cannot be written"), 1);
		assert_true(logged(place, "opened again") <= 1);
		assert_int_equal(logged(place, "written again"), 1);
		place_close(place);
		place_free(place);
	}
}

static void a_new_directory_is_durable_before_anything_in_it_is(void **state)
{
	struct place *place = place_new();
	struct stat parent;
	char path[512], top[256];

	(void)state;
	assert_int_equal(stat(place->path, &parent), 0);
	snprintf(top, sizeof(top), "%s", place->path);
	snprintf(path, sizeof(path), "%s/state", top);
	memcpy(place->path, path, strlen(path) + 1);
	watched = parent.st_ino;
	syncs_of_watched = 0;
	place_open(place);
	assert_true(syncs_of_watched >= 1);
	watched = 0;
	place_close(place);
	place_free(place);
	assert_int_equal(rmdir(top), 0);
}

static void a_new_store_on_a_full_disk_says_so(void **state)
{
	struct place *place = place_new();

	(void)state;
	if (!on_small_disk(place)) {
		place_free(place);
		skip();
	}
	fill_disk(place, "filler");
	assert_int_equal(place_try_open(place), -1);
	assert_non_null(strstr(place->error.message, "disk full"));
	assert_int_equal(umount2(place->path, MNT_DETACH), 0);
	place_free(place);
}

static void a_read_only_directory_is_a_clear_error(void **state)
{
	struct place *place = place_new();

	(void)state;
	if (!on_small_disk(place)) {
		place_free(place);
		skip();
	}
	assert_int_equal(mount("none", place->path, "none", MS_REMOUNT | MS_RDONLY, "size=2m"), 0);
	assert_int_equal(place_try_open(place), -1);
	assert_non_null(strstr(place->error.message, "cannot be written"));
	assert_int_equal(umount2(place->path, MNT_DETACH), 0);
	place_free(place);
}

/* ---- errors of the disk ---- */

static void an_error_of_the_disk_opens_the_store_anew(void **state)
{
	static const int code[] = {EIO, MDB_PANIC, MDB_CORRUPTED};

	(void)state;
	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]); i++) {
		struct place *place = place_new();
		struct outcome outcome;
		struct store_facts facts;

		place->limits.probe_ms = 10;
		place_open(place);
		put_winner(place, 1, 1, 8);
		commit_code = code[i];
		open_fails = 2;
		commit_fails = 1;
		outcome = put_note(place, 10);
		assert_true(outcome.failed);
		store_facts(place->store, &facts);
		assert_true(facts.degraded[0] != '\0');
		/* Batches that come while the store is away fail, and say why. */
		while (strstr(place->log, "opened again") == NULL) {
			put_note(place, 10);
		}
		wait_until_writable(place);
		assert_int_equal(get_winner(place, 1, 1, 0), 8);
		assert_false(put_note(place, 10).failed);
		put_winner(place, 1, 1, 9);
		assert_int_equal(get_winner(place, 1, 1, 0), 9);
		place_close(place);
		/* What LMDB itself thinks damaged is checked at the next start, though this run ended in
		 * peace. */
		assert_int_equal(place_count(place, "open", NULL, 0), code[i] == MDB_CORRUPTED ? 1 : 0);
		place->log[0] = '\0';
		place_open(place);
		assert_string_equal(place->log, "");
		assert_int_equal(get_winner(place, 1, 1, 0), 9);
		place_close(place);
		assert_int_equal(place_count(place, "open", NULL, 0), 0);
		place_free(place);
	}
}

static void reads_fail_cleanly_while_the_store_is_away(void **state)
{
	struct place *place = place_new();
	struct store_key key = some_key(1, 1);
	struct store_answer answer;
	struct outcome outcome;

	(void)state;
	place_open(place);
	put_winner(place, 1, 1, 8);
	/* An outer begin, as a session's, is cut short; what follows in it fails. */
	assert_int_equal(store_begin(place->store, NULL), 0);
	commit_code = EIO;
	commit_fails = 1;
	open_fails = 1000;
	outcome = put_note(place, 10);
	assert_true(outcome.failed);
	while (store_get_answer(place->store, &key, &answer, &place->error) == 1)
		uv_run(&place->loop, UV_RUN_ONCE);
	assert_non_null(strstr(place->error.message, "opened again"));
	assert_int_equal(store_get_answer_at(place->store, &key, 2, &answer, &place->error), -1);
	store_end(place->store);
	assert_int_equal(store_begin(place->store, &place->error), -1);
	/* Closing does not wait for the disk. */
	place_close(place);
	open_fails = 0;
	place_open(place);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	place_close(place);
	place_free(place);
}

/* ---- names that are taken away ---- */

/* A commit is acknowledged, and the next start finds it with all before. */
static void expect_all_kept(struct place *place, bool starts_again)
{
	put_winner(place, 1, 2, 9);
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	assert_int_equal(get_winner(place, 1, 2, 0), 9);
	if (!starts_again)
		return;
	place_close(place);
	place->log[0] = '\0';
	place_open(place);
	assert_string_equal(place->log, "");
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	assert_int_equal(get_winner(place, 1, 2, 0), 9);
	/* It is the same store: its generations can be asked for. */
	assert_int_equal(get_winner(place, 1, 1, 2), 8);
}

static void a_data_file_that_was_taken_away_is_put_back(void **state)
{
	enum { BEFORE_A_COMMIT, IN_A_COMMIT, ASKED, AT_THE_END, REPLACED, WAYS };

	(void)state;
	for (int way = 0; way < WAYS; way++) {
		struct place *place = place_new();
		char path[512], other[512];

		place->limits.probe_ms = 5;
		place_open(place);
		place_file(place, "data.mdb", path, sizeof(path));
		place_file(place, "other", other, sizeof(other));
		put_winner(place, 1, 1, 8);
		if (way == REPLACED) {
			int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

			assert_true(fd >= 0);
			assert_int_equal(write(fd, "other", 5), 5);
			close(fd);
			assert_int_equal(rename(other, path), 0);
		} else if (way == IN_A_COMMIT) {
			commit_removes = path;
		} else {
			assert_int_equal(unlink(path), 0);
		}
		if (way == ASKED) {
			store_look(place->store);
			/* There, and open again. */
			while (access(path, F_OK) != 0 || store_begin(place->store, NULL) != 0)
				uv_run(&place->loop, UV_RUN_ONCE);
			store_end(place->store);
		}
		if (way == AT_THE_END) {
			place_close(place);
			place_open(place);
		}
		assert_int_equal(get_winner(place, 1, 1, 0), 8);
		expect_all_kept(place, false);
		assert_int_equal(logged(place, "stop the daemon before"), 1);
		expect_all_kept(place, true);
		assert_int_equal(place_count(place, "data.mdb.replaced-", NULL, 0), way == REPLACED);
		assert_int_equal(place_count(place, "data.mdb.damaged", NULL, 0), 0);
		place_close(place);
		place_free(place);
	}
}

static void a_directory_that_was_moved_or_removed_is_made_again(void **state)
{
	(void)state;
	for (int removed = 0; removed < 2; removed++) {
		struct place *place = place_new();
		struct place away = {0};

		place_open(place);
		put_winner(place, 1, 1, 8);
		snprintf(away.path, sizeof(away.path), "%s.away", place->path);
		assert_int_equal(rename(place->path, away.path), 0);
		if (removed) {
			struct place *gone = calloc(1, sizeof(*gone));

			assert_non_null(gone);
			*gone = away;
			place_free(gone);
		}
		expect_all_kept(place, true);
		if (!removed) {
			struct place *gone = calloc(1, sizeof(*gone));

			assert_non_null(gone);
			*gone = away;
			/* It is left as after an end in peace, and free for others. */
			assert_int_equal(place_count(gone, "open", NULL, 0), 0);
			gone->map_bytes = place->map_bytes;
			gone->limits = place->limits;
			place_open(gone);
			assert_int_equal(get_winner(gone, 1, 1, 0), 8);
			place_close(gone);
			place_free(gone);
		}
		place_close(place);
		place_free(place);
	}
}

static void nothing_is_acknowledged_that_no_start_would_find(void **state)
{
	struct place *place = place_new();
	struct place *other = place_new();
	struct store_facts facts;
	struct outcome outcome;
	char away[300];

	(void)state;
	place->limits.probe_ms = 5;
	place->limits.probe_most_ms = 20;
	place_open(place);
	put_winner(place, 1, 1, 8);
	/* Another's directory stands there now. */
	snprintf(away, sizeof(away), "%s.away", place->path);
	assert_int_equal(rename(place->path, away), 0);
	assert_int_equal(rmdir(other->path), 0);
	memcpy(other->path, place->path, sizeof(other->path));
	place_open(other);
	put_winner(other, 5, 5, 5);
	outcome = put_note(place, 100);
	assert_true(outcome.failed);
	assert_non_null(strstr(outcome.error.message, "in use by process"));
	store_facts(place->store, &facts);
	assert_non_null(strstr(facts.degraded, "in use by process"));
	assert_int_equal(get_winner(place, 1, 1, 0), 8);
	assert_int_equal(get_winner(other, 5, 5, 0), 5);
	place_close(other);
	wait_until_writable(place);
	expect_all_kept(place, true);
	assert_int_equal(place_count(place, "data.mdb.replaced-", NULL, 0), 1);
	assert_int_equal(get_winner(place, 5, 5, 0), 0);
	place_close(place);
	place_free(place);
	memcpy(other->path, away, sizeof(other->path));
	place_free(other);
}

static void all_is_not_copied_for_each_that_asks(void **state)
{
	static const char *const steps[] = {"data.mdb.partial", "data.mdb", "data.mdb.new"};

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct place *place = place_new();
		char path[512], other[512];
		int fd;

		place->limits.probe_ms = 100000;
		place->limits.probe_most_ms = 100000;
		place_open(place);
		put_winner(place, 1, 1, 8);
		place_file(place, "data.mdb", path, sizeof(path));
		place_file(place, "other", other, sizeof(other));
		fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(rename(other, path), 0);
		copies = 0;
		rename_fails = steps[i];
		for (int n = 0; n < 5; n++) {
			struct outcome outcome = put_note(place, 100);

			assert_true(outcome.failed);
			store_look(place->store);
		}
		assert_int_equal(copies, 1);
		/* Only where nothing else has the name, the copy stays for the next start. */
		assert_int_equal(place_count(place, "data.mdb.new", NULL, 0), i == 2);
		assert_int_equal(place_count(place, "data.mdb.partial", NULL, 0), 0);
		rename_fails = NULL;
		place_close(place); /* the end waits for nothing */
		assert_int_equal(copies, 2);
		assert_int_equal(place_count(place, "data.mdb.replaced-", NULL, 0), 1);
		place_open(place);
		expect_all_kept(place, true);
		place_close(place);
		place_free(place);
	}
}

/* ---- publishing ---- */

static struct store_batch *winner_batch(struct place *place, uint8_t which, int64_t block)
{
	struct store_key key = some_key(which, 1);
	struct ft_problem problem = some_problem(which, 1);
	struct store_winner winner = some_winner(block);
	struct store_batch *batch = store_batch_new(place->store);

	assert_non_null(batch);
	assert_int_equal(store_batch_winner(batch, &key, &problem, &winner), 0);
	return batch;
}

static void what_a_read_sees_is_published_though_the_writer_sleeps(void **state)
{
	struct place *place = place_new();
	struct outcome outcome = {0};
	uint64_t generation;

	(void)state;
	place_open(place);
	generation = put_winner(place, 1, 1, 8);
	assert_int_equal(place->published, generation);
	assert_int_equal(place->published_keys, 1);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_true(store_is_latest(place->store));
	/* On disk, and not come back yet. */
	commit_holds = true;
	store_submit(winner_batch(place, 1, 9), outcome_done, &outcome);
	while (!commit_held)
		sched_yield();
	assert_true(store_is_latest(place->store));
	assert_int_equal(place->published_keys, 1);
	store_end(place->store);
	assert_int_equal(get_winner(place, 1, 1, 0), 9);
	assert_int_equal(place->published_keys, 2);
	assert_int_equal(place->published, generation + 1);
	assert_int_equal(store_generation(place->store), generation + 1);
	assert_int_equal(store_begin(place->store, NULL), 0);
	assert_true(store_is_latest(place->store));
	store_end(place->store);
	assert_false(outcome.done);
	assert_int_equal(place->changed_keys, 1);
	commit_holds = false;
	place_wait(place, &outcome);
	assert_false(outcome.failed);
	assert_int_equal(place->published_keys, 2);
	assert_int_equal(place->changed_keys, 2);
	place_close(place);
	place_free(place);
}

static void a_commit_is_published_while_the_loop_is_busy(void **state)
{
	struct place *place = place_new();
	struct outcome outcome = {0};
	uint64_t generation;

	(void)state;
	place_open(place);
	generation = put_winner(place, 1, 1, 8);
	assert_int_equal(store_begin(place->store, NULL), 0);
	store_submit(winner_batch(place, 1, 9), outcome_done, &outcome);
	/* The loop does not turn; the writer publishes by itself. */
	while (place->published == generation)
		sched_yield();
	assert_false(store_is_latest(place->store));
	assert_int_equal(store_generation(place->store), generation);
	store_end(place->store);
	assert_int_equal(get_winner(place, 1, 1, 0), 9);
	place_wait(place, &outcome);
	assert_int_equal(place->changed_keys, 2);
	place_close(place);
	place_free(place);
}

static void a_commit_that_failed_and_was_kept_takes_all_answers_back(void **state)
{
	struct place *place = place_new();
	struct outcome outcome;
	uint64_t generation;

	(void)state;
	place->limits.probe_ms = 10;
	place_open(place);
	generation = put_winner(place, 1, 1, 8);
	commit_code = EIO;
	commit_kept = true;
	commit_fails = 1;
	outcome = place_commit(place, winner_batch(place, 1, 9));
	assert_true(outcome.failed);
	wait_until_writable(place);
	while (place->changed_all == 0)
		uv_run(&place->loop, UV_RUN_ONCE);
	/* Nobody was told that it was done, but it is what lookups find. */
	assert_int_equal(get_winner(place, 1, 1, 0), 9);
	assert_int_equal(place->published_all, 1);
	assert_int_equal(place->published, generation + 1);
	commit_kept = false;
	place_close(place);
	place_free(place);
}

static void what_was_not_kept_is_not_published(void **state)
{
	struct place *place = place_new();
	uint64_t generation;

	(void)state;
	place_open(place);
	generation = put_winner(place, 1, 1, 8);
	commit_code = ENOSPC;
	commit_fails = 1;
	assert_true(place_commit(place, winner_batch(place, 1, 9)).failed);
	assert_false(put_note(place, 10).failed);
	/* The same answer again is no change. */
	assert_false(place_commit(place, winner_batch(place, 1, 8)).failed);
	assert_int_equal(place->published_keys, 1);
	assert_int_equal(place->changed_keys, 1);
	assert_int_equal(place->published, generation);
	place_close(place);
	place_free(place);
}

/* ---- descriptors ---- */

static void no_descriptor_of_the_store_survives_an_exec(void **state)
{
	struct place *place = place_new();
	int open_ones = 0;

	(void)state;
	place_open(place);
	for (int fd = 3; fd < 256; fd++) {
		char link[64], target[512];
		ssize_t length;
		int flags = fcntl(fd, F_GETFD);

		if (flags < 0)
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		length = readlink(link, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		if (strstr(target, "flytune-store") == NULL)
			continue;
		open_ones++;
		assert_true((flags & FD_CLOEXEC) != 0);
	}
	assert_true(open_ones >= 4);
	place_close(place);
	place_free(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_was_acknowledged_survives_kill_9),
	        cmocka_unit_test(an_error_of_the_disk_opens_the_store_anew),
	        cmocka_unit_test(reads_fail_cleanly_while_the_store_is_away),
	        cmocka_unit_test(a_data_file_that_was_taken_away_is_put_back),
	        cmocka_unit_test(a_directory_that_was_moved_or_removed_is_made_again),
	        cmocka_unit_test(nothing_is_acknowledged_that_no_start_would_find),
	        cmocka_unit_test(all_is_not_copied_for_each_that_asks),
	        cmocka_unit_test(what_a_read_sees_is_published_though_the_writer_sleeps),
	        cmocka_unit_test(a_commit_is_published_while_the_loop_is_busy),
	        cmocka_unit_test(a_commit_that_failed_and_was_kept_takes_all_answers_back),
	        cmocka_unit_test(what_was_not_kept_is_not_published),
	        cmocka_unit_test(no_descriptor_of_the_store_survives_an_exec),
	        cmocka_unit_test(a_full_disk_is_named_and_got_over_without_help),
	        cmocka_unit_test(small_writes_are_no_end_of_a_disk_too_full_for_a_large_one),
	        cmocka_unit_test(a_write_that_was_large_enough_ends_it),
	        cmocka_unit_test(what_keeps_a_write_out_is_told_as_it_is),
	        cmocka_unit_test(a_limit_on_files_is_told_as_one),
	        cmocka_unit_test(a_store_that_stays_unwritable_says_so_once),
	        cmocka_unit_test(a_new_directory_is_durable_before_anything_in_it_is),
	        cmocka_unit_test(what_may_not_be_written_is_tried_again_without_losing_reads),
	        cmocka_unit_test(a_new_store_on_a_full_disk_says_so),
	        cmocka_unit_test(a_read_only_directory_is_a_clear_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
