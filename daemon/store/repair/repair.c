#include "daemon/store/repair/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/store/repair/lmdb_file.h"
#include "daemon/store/lmdb_environment.h"
#include "proto/clock.h"

#define REBUILD_NAME "rebuild"

enum { COMMIT_RECORDS = 4096, JOB_GAP = 1024 };

const char repair_kinds[REPAIR_KINDS] = {
        RECORD_ANSWER,
        RECORD_TRIALS,
        RECORD_JOB,
        RECORD_NAME,
        RECORD_IDENTITY,
        RECORD_NOTE,
        RECORD_HISTORY,
        RECORD_META,
};

static void count_kind(uint64_t *kind, uint8_t which)
{
	for (int i = 0; i < REPAIR_KINDS; i++)
		kind[i] += (uint8_t)repair_kinds[i] == which;
}

/* ---- a child, and the pipe that it reports on ---- */

static bool write_all(int fd, const void *data, size_t length)
{
	const uint8_t *from = data;

	while (length > 0) {
		ssize_t written = write(fd, from, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		from += written;
		length -= (size_t)written;
	}
	return true;
}

struct patience {
	const struct repair_waits *waits;
	uint64_t heard_ns, told_ns; /* monotonic */
};

/* Waits until there is something to read. */
static void await(int fd, struct patience *patience)
{
	enum { TOLD_MS = 1000 };
	static const uint64_t silent_ns = UINT64_C(600) * 1000000000;
	struct pollfd place = {.fd = fd, .events = POLLIN};

	for (;;) {
		int ready = poll(&place, 1, TOLD_MS);
		uint64_t now = ft_monotonic_ns();

		if (ready > 0)
			patience->heard_ns = now;
		if (patience->waits->call != NULL && now - patience->heard_ns < silent_ns &&
		        now - patience->told_ns >= TOLD_MS * UINT64_C(1000000)) {
			patience->told_ns = now;
			patience->waits->call(patience->waits->data);
		}
		if (ready > 0 || (ready < 0 && errno != EINTR))
			return;
	}
}

static struct patience new_patience(const struct repair_waits *waits)
{
	uint64_t now = ft_monotonic_ns();

	return (struct patience){waits, now, now};
}

static bool read_all(int fd, void *data, size_t length, struct patience *patience)
{
	uint8_t *to = data;

	while (length > 0) {
		ssize_t got;

		await(fd, patience);
		got = read(fd, to, length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		to += got;
		length -= (size_t)got;
	}
	return true;
}

/* Runs `body` in a child, whose end of the pipe is `out`. */
static pid_t start_child(void (*body)(int fd, const struct seal *seal, int out), int fd,
        const struct seal *seal, int *in, struct ft_error *error)
{
	int ends[2];
	pid_t parent = getpid();
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return ft_fail_errno(error, errno, "a pipe cannot be made");
	child = fork();
	if (child < 0) {
		ft_fail_errno(error, errno, "a process to check the store cannot be started");
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	if (child == 0) {
		/* The lock of the directory is inherited: it must not outlive the parent. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(ends[0]);
		signal(SIGPIPE, SIG_DFL);
		body(fd, seal, ends[1]);
		_exit(0);
	}
	close(ends[1]);
	*in = ends[0];
	return child;
}

/* True if it ended by itself. */
static bool end_child(pid_t child, int in, int *signal)
{
	int status = 0;
	pid_t got;

	close(in);
	do
		got = waitpid(child, &status, 0);
	while (got < 0 && errno == EINTR);
	*signal = got == child && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	return got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- checking ---- */

static bool check_record(void *data, const void *key, size_t key_length, const void *value, size_t length)
{
	struct repair_check *check = data;
	struct ft_view body;

	if (record_open(key, key_length, value, length, &body)) {
		check->records++;
		count_kind(check->kind, *(const uint8_t *)key);
	} else {
		check->damaged++;
	}
	return true;
}

int repair_check(int fd, const struct seal *seal, struct repair_check *check, struct ft_error *error)
{
	struct pages pages;
	struct pages_report report;
	enum pages_state state;

	memset(check, 0, sizeof(*check));
	if ((seal == NULL ? pages_open(&pages, fd, &state, error)
	                  : pages_open_with(&pages, fd, seal->page_size, seal->header, &state, error)) != 0)
		return -1;
	if (state != PAGES_OPEN) {
		snprintf(check->reason, sizeof(check->reason), "%s",
		        state == PAGES_EMPTY             ? "the data file is empty"
		                : state == PAGES_FOREIGN ? "the data file is of another LMDB"
		                                         : "the header of the data file is damaged");
		return 0;
	}
	if (pages_walk(&pages, true, check_record, check, &report, error) != 0)
		return -1;
	check->sound = report.lost == 0;
	snprintf(check->reason, sizeof(check->reason), "%s", report.first);
	return 0;
}

struct check_message {
	int failed;
	struct repair_check check;
	struct ft_error error;
};

static void check_child(int fd, const struct seal *seal, int out)
{
	struct check_message message;

	memset(&message, 0, sizeof(message));
	message.failed = repair_check(fd, seal, &message.check, &message.error);
	write_all(out, &message, sizeof(message));
}

int repair_check_in_child(int fd, const struct seal *seal, const struct repair_waits *waits,
        struct repair_check *check, struct ft_error *error)
{
	struct patience patience = new_patience(waits);
	struct check_message message;
	int in = -1, signal = 0;
	bool whole, ended;
	pid_t child = start_child(check_child, fd, seal, &in, error);

	if (child < 0)
		return -1;
	whole = read_all(in, &message, sizeof(message), &patience);
	ended = end_child(child, in, &signal);
	if (!whole || !ended) {
		memset(check, 0, sizeof(*check));
		snprintf(check->reason, sizeof(check->reason), "reading it killed the process (signal %d)",
		        signal);
		return 0;
	}
	if (message.failed != 0) {
		if (error != NULL)
			*error = message.error;
		return -1;
	}
	*check = message.check;
	return 0;
}

/* ---- rescuing: the child sends frames of key and value, then one without a key that counts losses ---- */

struct frame {
	uint32_t key_length, value_length;
	uint64_t lost;
};

struct sender {
	int out;
	uint64_t damaged;
};

static bool send_record(void *data, const void *key, size_t key_length, const void *value, size_t length)
{
	struct sender *sender = data;
	struct frame frame = {(uint32_t)key_length, (uint32_t)length, 0};
	struct ft_view body;

	if (key_length > RECORD_KEY_MAX || length > RECORD_TRIALS_LIMIT ||
	        !record_open(key, key_length, value, length, &body)) {
		sender->damaged++;
		return true;
	}
	return write_all(sender->out, &frame, sizeof(frame)) && write_all(sender->out, key, key_length) &&
	        write_all(sender->out, value, length);
}

/* How far on a state of the store is, by what it says of itself: commits that changed answers count, then all. */
static bool is_newer(const struct pages *a, const struct pages *b)
{
	uint64_t generation[2] = {0, 0};
	const struct pages *const each[2] = {a, b};

	for (int i = 0; i < 2; i++) {
		struct record_key key;
		struct record_meta meta;
		struct ft_view body;
		uint8_t value[256];
		size_t length;

		record_key_meta(&key, 0);
		if (pages_get(each[i], key.data, key.length, value, sizeof(value), &length) == 1 &&
		        record_open(key.data, key.length, value, length, &body) &&
		        record_read_meta(body, &meta))
			generation[i] = meta.generation;
	}
	return generation[0] != generation[1] ? generation[0] > generation[1]
	                                      : a->transaction > b->transaction;
}

/* Where something is lost, the state of one transaction before may still have it. The one to be believed goes last, so that
 * what it has replaces what the other had: a whole one before one that is not, else the newer. */
static void send_child(int fd, const struct seal *seal, int out)
{
	struct sender sender = {.out = out};
	struct frame end = {0, 0, 0};
	struct pages each[2], newest;
	struct pages_report report[2];
	enum pages_state state;
	int count = pages_open_each(each, fd, NULL);
	int last;

	(void)seal;
	if (count < 0 || pages_open(&newest, fd, &state, NULL) != 0)
		_exit(1);
	if (state == PAGES_OPEN) {
		if (pages_walk(&newest, false, NULL, NULL, &report[0], NULL) != 0)
			_exit(1);
		end.lost = report[0].lost;
		if (end.lost == 0 || count == 0) {
			each[0] = newest;
			count = 1;
		}
	} else {
		end.lost = 1;
	}
	for (int i = 0; i < count; i++) {
		if (pages_walk(&each[i], false, NULL, NULL, &report[i], NULL) != 0)
			_exit(1);
	}
	last = count - 1;
	if (count == 2 && state != PAGES_OPEN &&
	        ((report[0].lost == 0) != (report[1].lost == 0) ? report[0].lost == 0
	                                                        : is_newer(&each[0], &each[1])))
		last = 0;
	if (count == 2 && pages_walk(&each[1 - last], false, send_record, &sender, &report[0], NULL) != 0)
		_exit(1);
	sender.damaged = 0;
	if (count > 0 && pages_walk(&each[last], false, send_record, &sender, &report[0], NULL) != 0)
		_exit(1);
	end.lost += sender.damaged;
	write_all(out, &end, sizeof(end));
}

struct rescue {
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	uint32_t pending; /* records in the open transaction */
	struct record_meta meta;
	uint64_t newest_generation;
	struct repair_result *result;
};

static void learn(struct rescue *rescue, const uint8_t *key, size_t length, struct ft_view body)
{
	struct record_answer answer;
	struct record_meta meta;
	uint64_t generation = 0;

	switch (key[0]) {
	case RECORD_META:
		if (record_read_meta(body, &meta) && meta.format == RECORD_FORMAT) {
			generation = meta.generation;
			if (meta.next_job > rescue->meta.next_job)
				rescue->meta.next_job = meta.next_job;
		}
		break;
	case RECORD_ANSWER:
		if (record_split_answer(body, &answer))
			generation = answer.generation;
		break;
	case RECORD_HISTORY:
		if (length == RECORD_HISTORY_SIZE)
			generation = ~record_get_u64(key + RECORD_PROBLEM_SIZE);
		break;
	case RECORD_IDENTITY:
		if (length == 13)
			generation = ~record_get_u64(key + 5);
		rescue->meta.identities++;
		break;
	case RECORD_JOB:
		/* Without the record that counts them, ids above this one may have been given out. */
		if (length == 9 && record_get_u64(key + 1) + JOB_GAP > rescue->meta.next_job)
			rescue->meta.next_job = record_get_u64(key + 1) + JOB_GAP;
		break;
	default:
		break;
	}
	if (generation > rescue->newest_generation)
		rescue->newest_generation = generation;
}

static int keep_record(
        struct rescue *rescue, const uint8_t *key, size_t key_length, const uint8_t *value, size_t length)
{
	MDB_val at = store_value(key, key_length);
	MDB_val data = store_value(value, length);
	struct ft_view body;
	int rc;

	if (!record_open(key, key_length, value, length, &body)) {
		rescue->result->lost++;
		return 0;
	}
	learn(rescue, key, key_length, body);
	/* The new store is another one, with another UUID: nobody can ask for generations of the old. */
	if (key[0] == RECORD_META || key[0] == RECORD_HISTORY)
		return 0;
	if (rescue->txn == NULL && (rc = mdb_txn_begin(rescue->env, NULL, 0, &rescue->txn)) != 0)
		return rc;
	rc = mdb_put(rescue->txn, rescue->dbi, &at, &data, MDB_NOOVERWRITE);
	if (rc == MDB_KEYEXIST) {
		data = store_value(value, length);
		rc = mdb_put(rescue->txn, rescue->dbi, &at, &data, 0);
	} else if (rc == 0) {
		rescue->meta.answers += key[0] == RECORD_ANSWER;
		rescue->result->kept++;
		count_kind(rescue->result->kind, key[0]);
	}
	if (rc == 0 && ++rescue->pending >= COMMIT_RECORDS) {
		rc = mdb_txn_commit(rescue->txn);
		rescue->txn = NULL;
		rescue->pending = 0;
	}
	return rc;
}

static int receive(struct rescue *rescue, int in, const struct repair_waits *waits)
{
	struct patience patience = new_patience(waits);
	uint8_t key[RECORD_KEY_MAX];
	uint8_t *value = NULL;
	size_t capacity = 0;
	struct frame frame;
	int rc = 0;

	while (rc == 0 && read_all(in, &frame, sizeof(frame), &patience)) {
		if (frame.key_length == 0) {
			rescue->result->lost += frame.lost;
			free(value);
			return 0;
		}
		if (frame.key_length > sizeof(key) || frame.value_length > RECORD_TRIALS_LIMIT)
			break;
		if (frame.value_length > capacity) {
			uint8_t *more = realloc(value, frame.value_length);

			if (more == NULL) {
				rc = ENOMEM;
				break;
			}
			value = more;
			capacity = frame.value_length;
		}
		if (!read_all(in, key, frame.key_length, &patience) ||
		        !read_all(in, value, frame.value_length, &patience))
			break;
		rc = keep_record(rescue, key, frame.key_length, value, frame.value_length);
	}
	free(value);
	/* The child died: what it sent is kept, how much is missing is not known. */
	rescue->result->lost += rc == 0;
	return rc;
}

static int finish(struct rescue *rescue)
{
	struct record_meta *meta = &rescue->meta;
	int rc = 0;

	meta->format = RECORD_FORMAT;
	meta->generation = rescue->newest_generation + 1;
	meta->floor = meta->generation;
	if (meta->next_job == 0)
		meta->next_job = 1;
	if (rescue->txn == NULL && (rc = mdb_txn_begin(rescue->env, NULL, 0, &rescue->txn)) != 0)
		return rc;
	rc = store_put_meta(rescue->txn, rescue->dbi, meta);
	if (rc == 0) {
		rc = mdb_txn_commit(rescue->txn);
		rescue->txn = NULL;
	}
	return rc;
}

/* ---- files ---- */

static void remove_rebuild(int directory)
{
	unlinkat(directory, REBUILD_NAME "/" DIRECTORY_DATA, 0);
	unlinkat(directory, REBUILD_NAME "/" DIRECTORY_LMDB_LOCK, 0);
	unlinkat(directory, REBUILD_NAME, AT_REMOVEDIR);
}

static int replace(struct directory *directory, struct repair_result *result, struct ft_error *error)
{
	unlinkat(directory->fd, DIRECTORY_LMDB_LOCK, 0);
	if (renameat(directory->fd, REBUILD_NAME "/" DIRECTORY_DATA, directory->fd, DIRECTORY_FRESH) != 0)
		return ft_fail_errno(
		        error, errno, "the new store cannot be put in its place in %s", directory->path);
	return directory_put_in(directory, "damaged", result->aside, sizeof(result->aside), error);
}

int repair_rebuild(struct directory *directory, uint64_t map_bytes, const struct repair_waits *waits,
        struct repair_result *result, struct ft_error *error)
{
	struct rescue rescue = {.result = result};
	char path[PATH_MAX + 16];
	bool cleared;
	int in = -1, signal, rc = 0, outcome = -1;
	pid_t child = -1;
	int fd = openat(directory->fd, DIRECTORY_DATA, O_RDONLY | O_CLOEXEC);

	memset(result, 0, sizeof(*result));
	remove_rebuild(directory->fd);
	if (fd < 0 && errno != ENOENT)
		return ft_fail_errno(error, errno, "the damaged store in %s cannot be read", directory->path);
	if (mkdirat(directory->fd, REBUILD_NAME, 0700) != 0) {
		ft_fail_errno(error, errno, "the state directory %s cannot be written", directory->path);
		goto done;
	}
	if (fd >= 0) {
		child = start_child(send_child, fd, NULL, &in, error);
		if (child < 0)
			goto done;
	}
	snprintf(path, sizeof(path), "%s/" REBUILD_NAME, directory->path);
	if (store_new_uuid(rescue.meta.uuid, error) != 0 ||
	        store_environment_open(
	                &rescue.env, &rescue.dbi, directory, path, map_bytes, &cleared, error) != 0)
		goto done;
	if (child >= 0)
		rc = receive(&rescue, in, waits);
	if (rc == 0)
		rc = finish(&rescue);
	if (rc != 0)
		store_fault(directory, rc, error);
	else
		outcome = 0;
done:
	if (child >= 0)
		end_child(child, in, &signal);
	if (rescue.txn != NULL)
		mdb_txn_abort(rescue.txn);
	if (rescue.env != NULL)
		mdb_env_close(rescue.env);
	if (outcome == 0)
		outcome = replace(directory, result, error);
	remove_rebuild(directory->fd);
	if (fd >= 0)
		close(fd);
	return outcome;
}
