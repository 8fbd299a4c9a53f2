/* Opening and closing, names, facts, and what the loop thread does when the writer reports. */
#include "daemon/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "daemon/pages.h"
#include "daemon/salvage.h"
#include "daemon/store_internal.h"

const struct store_limits store_limits_usual = {
        .history_ns = UINT64_C(90) * 24 * 3600 * 1000000000,
        .history_rows = 64,
        .collect_commits = 16,
        .collect_rows = 256,
        .stale_percent = 80,
        .refuse_percent = 95,
        .probe_ms = 2000,
        .probe_most_ms = 60000,
        .check_bytes = UINT64_C(64) << 20,
};

/* ---- small things ---- */

uint64_t store_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t store_wall_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int store_new_uuid(char *uuid, struct ft_error *error)
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return ft_fail_errno(error, errno, "the system gives no random numbers");
	bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40); /* version 4: random */
	bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
	for (size_t i = 0, at = 0; i < sizeof(bytes); i++) {
		snprintf(uuid + at, 3, "%02x", bytes[i]);
		at += 2;
		if (i == 3 || i == 5 || i == 7 || i == 9)
			uuid[at++] = '-';
	}
	return 0;
}

void store_log(struct store *store, int level, const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (store->log == NULL)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	store->log(store->log_data, level, text);
}

void store_log_later(struct store *store, int level, const char *format, ...)
{
	char text[512];
	struct store_line *line;
	size_t size;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	size = strlen(text) + 1;
	line = malloc(sizeof(*line) + size);
	if (line == NULL)
		return;
	line->next = NULL;
	line->level = level;
	memcpy(line->text, text, size);
	pthread_mutex_lock(&store->lock);
	*store->lines_end = line;
	store->lines_end = &line->next;
	pthread_mutex_unlock(&store->lock);
	uv_async_send(&store->async);
}

/* ---- errors ---- */

uint64_t store_free_bytes(const struct directory *directory)
{
	struct statvfs info;

	if (fstatvfs(directory->fd, &info) != 0)
		return UINT64_MAX;
	return (uint64_t)info.f_bavail * info.f_frsize;
}

enum fault store_fault(struct directory *directory, int code, struct ft_error *error)
{
	/* LMDB turns a page that could be written only in part into EIO, also when the disk is full. */
	enum { NEARLY_FULL = 256 * 1024 };
	uint64_t left;

	switch (code) {
	case 0:
		return FAULT_NONE;
	case MDB_MAP_FULL:
		ft_fail(error, FT_E_STORE, "the store in %s is full: all of its map is used",
		        directory->path);
		return FAULT_ROOM;
	case ENOSPC:
	case EDQUOT:
	case EIO:
		left = store_free_bytes(directory);
		if (code == EIO && left > NEARLY_FULL)
			break;
		if (code == EDQUOT)
			ft_fail(error, FT_E_STORE, "disk quota exceeded in %s", directory->path);
		else
			ft_fail(error, FT_E_STORE, "disk full: %" PRIu64 " bytes free in %s", left,
			        directory->path);
		return FAULT_ROOM;
	case EROFS:
		ft_fail(error, FT_E_STORE, "the file system of %s is read-only", directory->path);
		return FAULT_ROOM;
	case EPERM:
	case EACCES:
		ft_fail(error, FT_E_STORE, "the store in %s may not be written: %s", directory->path,
		        mdb_strerror(code));
		return FAULT_ROOM;
	case MDB_TXN_FULL:
		ft_fail(error, FT_E_STORE, "too much for one transaction of the store in %s",
		        directory->path);
		return FAULT_BATCH;
	case MDB_BAD_VALSIZE:
		ft_fail(error, FT_E_STORE, "a key or value is too long for the store");
		return FAULT_BATCH;
	case ENOMEM:
		ft_fail(error, FT_E_MEMORY, "there is not enough memory for the store");
		return FAULT_BATCH;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_PANIC:
	case MDB_CURSOR_FULL:
	case MDB_PAGE_FULL:
	case EFBIG: /* a page number that no file could have */
		directory_doubt(directory);
		break;
	default:
		break;
	}
	ft_fail(error, FT_E_STORE, "the store in %s failed: %s", directory->path, mdb_strerror(code));
	return FAULT_ENVIRONMENT;
}

/* ---- the environment ---- */

/* LMDB maps its lock file and writes to it: a hole there would kill the process on a full disk. Nothing in
 * this process has the file open now, so that closing it again drops no lock. */
static int fill_lock_file(const char *path)
{
	enum { LOCK_FILE_SIZE = 16384 }; /* more than LMDB's 126 readers take */
	char name[PATH_MAX + 32];
	int fd, rc;

	snprintf(name, sizeof(name), "%s/" DIRECTORY_LMDB_LOCK, path);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno;
	rc = posix_fallocate(fd, 0, LOCK_FILE_SIZE);
	close(fd);
	return rc;
}

int store_environment_open(MDB_env **env, MDB_dbi *dbi, struct directory *directory, const char *path,
        uint64_t map_bytes, bool *cleared, struct ft_error *error)
{
	MDB_env *made = NULL;
	MDB_txn *txn = NULL;
	mdb_filehandle_t fd;
	int dead = 0;
	int rc = fill_lock_file(path);

	if (rc == 0)
		rc = mdb_env_create(&made);
	if (rc == 0)
		rc = mdb_env_set_mapsize(made, map_bytes);
	/* No flag that trades durability. NOTLS: the loop thread's read transaction is not tied to its thread
	 * slot, so that the writer may be a reader's host too. NORDAHEAD: lookups are random. */
	if (rc == 0)
		rc = mdb_env_open(made, path, MDB_NOTLS | MDB_NORDAHEAD, 0600);
	if (rc == 0)
		rc = mdb_env_get_fd(made, &fd);
	/* LMDB leaves this one open across exec; a runner must not hold it. */
	if (rc == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		rc = errno;
	if (rc == 0)
		rc = mdb_reader_check(made, &dead);
	if (rc == 0)
		rc = mdb_txn_begin(made, NULL, MDB_RDONLY, &txn);
	if (rc == 0)
		rc = mdb_dbi_open(txn, NULL, 0, dbi);
	if (txn != NULL)
		mdb_txn_abort(txn);
	if (rc != 0) {
		if (made != NULL)
			mdb_env_close(made);
		/* A full disk has words of its own. */
		if (store_fault(directory, rc, error) != FAULT_ROOM)
			ft_fail(error, FT_E_STORE, "the store in %s cannot be opened: %s", path,
			        mdb_strerror(rc));
		return -1;
	}
	*cleared = dead > 0;
	*env = made;
	return 0;
}

int store_read_meta(MDB_txn *txn, MDB_dbi dbi, struct record_meta *meta)
{
	int rc = MDB_NOTFOUND;

	for (unsigned copy = 0; copy < 2; copy++) {
		struct record_key key;
		struct ft_view body;
		MDB_val at, value;

		record_key_meta(&key, copy);
		at = store_value(key.data, key.length);
		rc = mdb_get(txn, dbi, &at, &value);
		if (rc == 0 && record_open(key.data, key.length, value.mv_data, value.mv_size, &body) &&
		        record_read_meta(body, meta))
			return 0;
		if (rc == 0)
			rc = MDB_CORRUPTED;
		else if (rc != MDB_NOTFOUND)
			return rc;
	}
	return rc;
}

int store_put_meta(MDB_txn *txn, MDB_dbi dbi, const struct record_meta *meta)
{
	int rc = 0;

	for (unsigned copy = 0; copy < 2 && rc == 0; copy++) {
		uint8_t buffer[256];
		struct ft_writer writer;
		struct record_key key;
		MDB_val at, value;

		record_key_meta(&key, copy);
		ft_writer_init_fixed(&writer, buffer, sizeof(buffer));
		record_start(&writer);
		record_write_meta(&writer, meta);
		record_seal(&writer, key.data, key.length);
		at = store_value(key.data, key.length);
		value = store_value(writer.data, writer.length);
		rc = ft_writer_ok(&writer) ? mdb_put(txn, dbi, &at, &value, 0) : MDB_BAD_VALSIZE;
	}
	return rc;
}

int store_read_identity(MDB_txn *txn, MDB_dbi dbi, uint32_t device, uint32_t *identity)
{
	struct record_key key;
	struct ft_cursor reader;
	struct ft_view body;
	uint64_t wide;
	MDB_val at, value;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(txn, dbi, &cursor);

	*identity = 0;
	if (rc != 0)
		return rc;
	record_key_identity(&key, device, UINT64_MAX);
	at = store_value(key.data, key.length);
	rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	/* A damaged record counts as none: the identity is then set anew. */
	if (rc == 0 && at.mv_size == key.length && memcmp(at.mv_data, key.data, 5) == 0 &&
	        record_open(at.mv_data, at.mv_size, value.mv_data, value.mv_size, &body) &&
	        (reader = ft_cursor_of(body.data, body.length), ft_read_uint(&reader, &wide)) &&
	        wide <= UINT32_MAX)
		*identity = (uint32_t)wide;
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

uint64_t store_used_bytes(MDB_txn *txn, MDB_dbi dbi)
{
	/* Free pages are in the file, but not in use: the trees' own counts leave them out, at no cost. */
	MDB_stat main, freed;

	if (mdb_stat(txn, dbi, &main) != 0 || mdb_stat(txn, 0, &freed) != 0)
		return 0;
	return (uint64_t)main.ms_psize *
	        (2 + main.ms_branch_pages + main.ms_leaf_pages + main.ms_overflow_pages +
	                freed.ms_branch_pages + freed.ms_leaf_pages + freed.ms_overflow_pages);
}

/* ---- opening: what is there ---- */

enum found { FOUND_NOTHING, FOUND_STORE, FOUND_DAMAGE };

static bool read_format(const struct pages *pages, struct record_meta *meta)
{
	for (unsigned copy = 0; copy < 2; copy++) {
		struct record_key key;
		struct ft_view body;
		uint8_t value[256];
		size_t length;

		record_key_meta(&key, copy);
		if (pages_get(pages, key.data, key.length, value, sizeof(value), &length) == 1 &&
		        record_open(key.data, key.length, value, length, &body) &&
		        record_read_meta(body, meta))
			return true;
	}
	return false;
}

static int refuse_format(const struct store *store, uint64_t format, struct ft_error *error)
{
	return ft_fail(error, FT_E_STORE,
	        "the store in %s has format %" PRIu64 ", %s; this flytune knows format %d",
	        store->directory.path, format,
	        format > RECORD_FORMAT ? "from a newer flytune" : "which there never was", RECORD_FORMAT);
}

/* Looks whether the structure holds, where there is reason to doubt it. */
static int check_if_needed(struct store *store, const struct pages *pages, enum found *found, char *reason,
        size_t size, struct ft_error *error)
{
	const struct directory *directory = &store->directory;
	bool doubt = pages_short(pages) || directory->signal != 0 ||
	        (directory->unclean > 0 && pages->size <= store->limits.check_bytes) ||
	        directory->unclean > 1;
	struct salvage_check check;

	if (!doubt)
		return 0;
	if (salvage_check_in_child(pages->fd, &check, error) != 0)
		return -1;
	if (!check.sound) {
		*found = FOUND_DAMAGE;
		snprintf(reason, size, "%s", check.reason);
		return 0;
	}
	/* Whatever ended the last runs, it was not the structure of the store. */
	store->directory.unclean = 0;
	if (check.damaged > 0)
		store_log(store, 4, "%" PRIu64 " of %" PRIu64 " records of the store are damaged",
		        check.damaged, check.damaged + check.records);
	/* LMDB maps whole pages: the file must reach as far as its header says. */
	if (pages_short(pages) &&
	        ftruncate(pages->fd, (off_t)((pages->last_page + 1) * pages->page_size)) != 0)
		return ft_fail_errno(error, errno, "the store in %s cannot be written", directory->path);
	return 0;
}

/* Everything that can be known before LMDB, which trusts it, opens the file. */
static int examine(struct store *store, enum found *found, char *reason, size_t size, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	enum pages_state state = PAGES_EMPTY;
	struct record_meta meta;
	struct pages pages;
	int outcome = -1;
	int fd;

	*found = FOUND_STORE;
	if (directory->format > RECORD_FORMAT)
		return refuse_format(store, directory->format, error);
	fd = openat(directory->fd, DIRECTORY_DATA, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		return ft_fail_errno(error, errno, "the store in %s cannot be opened", directory->path);
	if (fd < 0) {
		*found = directory->initialised ? FOUND_DAMAGE : FOUND_NOTHING;
		snprintf(reason, size, "its data file is missing");
		return 0;
	}
	if (pages_open(&pages, fd, &state, error) != 0)
		goto done;
	outcome = 0;
	if (state == PAGES_EMPTY) {
		*found = directory->initialised ? FOUND_DAMAGE : FOUND_NOTHING;
		snprintf(reason, size, "its data file is empty");
	} else if (state == PAGES_FOREIGN) {
		outcome = ft_fail(error, FT_E_STORE,
		        "the store in %s was written by another LMDB (format %" PRIu32
		        "); export it with the flytune that wrote it",
		        directory->path, pages.version);
	} else if (state == PAGES_BAD) {
		*found = FOUND_DAMAGE;
		snprintf(reason, size, "the header of its data file is damaged");
	} else if (read_format(&pages, &meta)) {
		if (meta.format != RECORD_FORMAT)
			outcome = refuse_format(store, meta.format, error);
		else
			outcome = check_if_needed(store, &pages, found, reason, size, error);
	} else if (!directory->initialised && pages.main.entries == 0) {
		*found = FOUND_NOTHING; /* ended between LMDB's first page and our first commit */
	} else {
		*found = FOUND_DAMAGE;
		snprintf(reason, size, "what it says about itself cannot be read");
	}
done:
	close(fd);
	return outcome;
}

static int rebuild(struct store *store, const char *reason, struct ft_error *error)
{
	struct salvage_result result;
	char counts[256] = "";
	size_t at = 0;

	store_log(store, 3, "the store in %s is damaged: %s; what can be read of it is being rescued",
	        store->directory.path, reason);
	if (salvage_rebuild(&store->directory, store->map_bytes, &result, error) != 0)
		return -1;
	static const char *const words[SALVAGE_KINDS] = {
	        "answers", "sets of trials", "jobs", "names", "device identities", "notes"};
	for (int i = 0; i < SALVAGE_KINDS && words[i] != NULL; i++) {
		if (result.kind[i] > 0 && at < sizeof(counts))
			at += (size_t)snprintf(counts + at, sizeof(counts) - at, "%s%" PRIu64 " %s",
			        at > 0 ? ", " : "", result.kind[i], words[i]);
	}
	store_log(store, 3,
	        "a new store was started with %" PRIu64 " records of the damaged one (%s); %" PRIu64
	        " places could not be read; the damaged file is %s%s%s",
	        result.kept, at > 0 ? counts : "nothing", result.lost,
	        result.aside[0] != '\0' ? store->directory.path : "gone", result.aside[0] != '\0' ? "/" : "",
	        result.aside);
	return 0;
}

/* ---- opening: the first transaction ---- */

static int begin_life(MDB_txn *txn, MDB_dbi dbi, struct record_meta *meta, struct ft_error *error)
{
	int rc = store_read_meta(txn, dbi, meta);

	if (rc == MDB_NOTFOUND) {
		memset(meta, 0, sizeof(*meta));
		meta->format = RECORD_FORMAT;
		meta->generation = 1;
		meta->floor = 1;
		meta->next_job = 1;
		if (store_new_uuid(meta->uuid, error) != 0)
			return MDB_PANIC;
		rc = 0;
	}
	return rc;
}

/* Makes what a new store starts with, and reserves job ids: none that a run gives out is given out again. */
static int first_transaction(struct store *store, bool fresh, struct ft_error *error)
{
	struct record_meta meta;
	MDB_txn *txn = NULL;
	uint64_t next_job = 0;
	int rc = mdb_txn_begin(store->env, NULL, 0, &txn);

	if (rc == 0)
		rc = begin_life(txn, store->dbi, &meta, error);
	if (rc == 0) {
		next_job = meta.next_job;
		meta.next_job += STORE_JOB_IDS;
		rc = store_put_meta(txn, store->dbi, &meta);
	}
	if (rc == 0) {
		rc = mdb_txn_commit(txn);
		txn = NULL;
	}
	if (txn != NULL)
		mdb_txn_abort(txn);
	if (rc == 0) {
		store->next_job = next_job;
		store->job_bound = meta.next_job;
		return 0;
	}
	/* A full disk is no reason not to answer from what is there. */
	if (store_fault(&store->directory, rc, error) == FAULT_ROOM && !fresh) {
		if (error != NULL)
			snprintf(store->degraded, sizeof(store->degraded), "%.*s",
			        (int)sizeof(store->degraded) - 1, error->message);
		store_log(store, 3, "the store cannot be written: %s", store->degraded);
		return 0;
	}
	return -1;
}

static struct store_names *names_of(struct store *store, enum store_name kind)
{
	return &store->names[(unsigned)kind % STORE_NAME_KINDS];
}

static int keep_name(struct store_names *names, uint32_t id, char *text)
{
	if (id > names->capacity) {
		uint32_t capacity = names->capacity == 0 ? 16 : names->capacity;
		char **grown;

		while (capacity < id)
			capacity *= 2;
		grown = realloc(names->text, capacity * sizeof(*grown));
		if (grown == NULL)
			return -1;
		memset(grown + names->capacity, 0, (capacity - names->capacity) * sizeof(*grown));
		names->text = grown;
		names->capacity = capacity;
	}
	names->text[id - 1] = text;
	if (id > names->count)
		names->count = id;
	return 0;
}

static int load_name(struct store *store, const MDB_val *key, const MDB_val *value)
{
	/* Ids are dense; one far beyond is no id of ours. */
	enum { IDS_MAX = 1 << 20 };
	const uint8_t *bytes = key->mv_data;
	uint32_t id = record_get_u32(bytes + 2);
	struct ft_cursor cursor;
	struct ft_view body;
	const char *from;
	size_t length;
	char *text = NULL;

	if (bytes[1] >= STORE_NAME_KINDS || id == 0 || id > IDS_MAX)
		return 0;
	if (record_open(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &body) &&
	        (cursor = ft_cursor_of(body.data, body.length), ft_read_text(&cursor, &from, &length))) {
		/* Not strndup: it may look for an end past the name, where the map has no page. */
		text = malloc(length + 1);
		if (text == NULL)
			return ENOMEM;
		memcpy(text, from, length);
		text[length] = '\0';
	} else {
		store_note_damage(store, key->mv_data, key->mv_size); /* its id stays taken */
	}
	if (keep_name(&store->names[bytes[1]], id, text) != 0) {
		free(text);
		return ENOMEM;
	}
	return 0;
}

static int load_names(struct store *store, struct ft_error *error)
{
	static const uint8_t start[1] = {RECORD_NAME};
	MDB_val key = store_value(start, sizeof(start));
	MDB_val value;
	MDB_cursor *cursor;
	int rc = mdb_cursor_open(store->reader, store->dbi, &cursor);

	if (rc == 0) {
		rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
		while (rc == 0 && key.mv_size == 6 && *(const uint8_t *)key.mv_data == RECORD_NAME) {
			rc = load_name(store, &key, &value);
			if (rc == 0)
				rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
		}
		mdb_cursor_close(cursor);
	}
	if (rc != 0 && rc != MDB_NOTFOUND) {
		store_fault(&store->directory, rc, error);
		return -1;
	}
	return 0;
}

static int first_read(struct store *store, struct ft_error *error)
{
	int outcome;

	if (store_begin(store, error) != 0)
		return -1;
	outcome = load_names(store, error);
	store_end(store);
	if (store->job_bound == 0)
		store->next_job = store->job_bound = store->seen.next_job;
	return outcome;
}

/* ---- reports of the writer ---- */

static void free_names(struct store_name_record *list)
{
	while (list != NULL) {
		struct store_name_record *next = list->next;

		free(list);
		list = next;
	}
}

static void forget_names(struct store *store)
{
	for (int kind = 0; kind < STORE_NAME_KINDS; kind++) {
		for (uint32_t i = 0; i < store->names[kind].count; i++)
			free(store->names[kind].text[i]);
		free(store->names[kind].text);
		memset(&store->names[kind], 0, sizeof(store->names[kind]));
	}
}

static void free_store(struct store *store)
{
	forget_names(store);
	free_names(store->new_names);
	free_names(store->unwritten);
	while (store->lines != NULL) {
		struct store_line *next = store->lines->next;

		free(store->lines);
		store->lines = next;
	}
	free(store->identity);
	pthread_cond_destroy(&store->wake);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct store *store = handle->data;
	void (*closed)(void *data) = store->closed;
	void *data = store->closed_data;

	free_store(store);
	if (closed != NULL)
		closed(data);
}

static void finish_closing(struct store *store)
{
	pthread_join(store->thread, NULL);
	store->thread_runs = false;
	store_drop_reader(store);
	if (store->env != NULL)
		mdb_env_close(store->env);
	store->env = NULL;
	atomic_store(&store->parked, true);
	directory_close(&store->directory, true);
	uv_close((uv_handle_t *)&store->async, on_handle_closed);
}

static void report_lines(struct store *store, struct store_line *line)
{
	while (line != NULL) {
		struct store_line *next = line->next;

		store_log(store, line->level, "%s", line->text);
		free(line);
		line = next;
	}
}

void store_each_change(const struct store *store, const struct store_batch *batch,
        void (*call)(void *data, const struct store_key *key))
{
	if (call == NULL || batch->failed || batch->generation == 0)
		return;
	for (const struct op *op = batch->first; op != NULL; op = op->next) {
		struct store_key key;

		if (op->kind == OP_IDENTITY)
			call(store->changed_data, NULL);
		else if ((op->kind == OP_SLOT || op->kind == OP_FORGET) &&
		        record_key_read_problem(op->bytes, op->key_length, &key))
			call(store->changed_data, &key);
	}
}

static void report_batches(struct store *store, struct store_batch *batch)
{
	/* All of a commit's changes before any word of it: whoever hears of one sees the others, too. */
	for (const struct store_batch *each = batch; each != NULL; each = each->next)
		store_each_change(store, each, store->changed);
	while (batch != NULL) {
		struct store_batch *next = batch->next;

		if (batch->done != NULL)
			batch->done(
			        batch->data, store->seen.generation, batch->failed ? &batch->error : NULL);
		store_batch_free(batch);
		batch = next;
	}
}

static void on_report(uv_async_t *async)
{
	struct store *store = async->data;
	struct store_batch *finished;
	struct store_line *lines;
	bool stopped, reopened, degraded;

	pthread_mutex_lock(&store->lock);
	finished = store->finished;
	store->finished = NULL;
	store->finished_end = &store->finished;
	lines = store->lines;
	store->lines = NULL;
	store->lines_end = &store->lines;
	if (store->park && !atomic_load(&store->parked)) {
		store_drop_reader(store);
		atomic_store_explicit(&store->parked, true, memory_order_release);
		pthread_cond_signal(&store->wake);
	}
	stopped = store->stopped;
	reopened = store->reopened;
	store->reopened = false;
	degraded = store->degraded[0] != '\0';
	pthread_mutex_unlock(&store->lock);

	report_lines(store, lines);
	/* Reads see what is reported before anybody hears of it. While that cannot be, they fail anyway. */
	if (finished != NULL || reopened)
		store_refresh(store, NULL);
	if (reopened && store->changed != NULL)
		store->changed(store->changed_data, NULL);
	report_batches(store, finished);
	if (store->was_degraded && !degraded && store->mended != NULL)
		store->mended(store->changed_data);
	store->was_degraded = degraded;
	if (!stopped || !store->thread_runs)
		return;
	/* What `done` submitted since comes back at once, refused; only then is there nothing left to tell.
	 */
	pthread_mutex_lock(&store->lock);
	bool more = store->finished != NULL;
	pthread_mutex_unlock(&store->lock);
	if (more)
		uv_async_send(async);
	else
		finish_closing(store);
}

/* ---- opening and closing ---- */

static void close_environment(struct store *store)
{
	store_drop_reader(store);
	if (store->env != NULL)
		mdb_env_close(store->env);
	store->env = NULL;
}

/* Opens what stands in the directory and reads what the store must know of itself. */
static int open_environment(struct store *store, bool fresh, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	bool cleared;

	if (store_environment_open(&store->env, &store->dbi, directory, directory->path, store->map_bytes,
	            &cleared, error) != 0)
		return -1;
	if (cleared)
		store_log(store, 6, "readers that a dead process had left in the store were cleared");
	if (first_transaction(store, fresh, error) != 0)
		return -1;
	return first_read(store, error);
}

static int open_parts(struct store *store, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	enum found found;
	char reason[256] = "";

	if (directory->exposed)
		store_log(store, 4, "the state directory %s can be written by others than its owner",
		        directory->path);
	if (directory->overlay)
		store_log(store, 4,
		        "the state directory %s is on an overlay file system: what is kept there goes with "
		        "its container",
		        directory->path);
	if (examine(store, &found, reason, sizeof(reason), error) != 0)
		return -1;
	if (found == FOUND_DAMAGE) {
		if (rebuild(store, reason, error) != 0)
			return -1;
		directory->unclean = 0;
	}
	/* Before anything reads it: should that be a process's death, the next one knows. */
	if (directory_mark_open(directory, directory->unclean, error) != 0)
		return -1;
	if (open_environment(store, found == FOUND_NOTHING, error) != 0) {
		if (!atomic_load(&directory->doubt))
			return -1;
		/* Damage that LMDB itself came upon, where nothing gave reason to look for it before. */
		snprintf(reason, sizeof(reason), "%s", error->message);
		close_environment(store);
		forget_names(store);
		if (rebuild(store, reason, error) != 0)
			return -1;
		atomic_store(&directory->doubt, false);
		if (open_environment(store, false, error) != 0)
			return -1;
	}
	if (!directory->initialised && directory_initialise(directory, RECORD_FORMAT, error) != 0)
		return -1;
	return 0;
}

static int make_lock(struct store *store, struct ft_error *error)
{
	pthread_condattr_t attributes;

	if (pthread_condattr_init(&attributes) != 0)
		return ft_fail(error, FT_E_SYSTEM, "the store's lock cannot be made");
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	if (pthread_cond_init(&store->wake, &attributes) != 0) {
		pthread_condattr_destroy(&attributes);
		return ft_fail(error, FT_E_SYSTEM, "the store's lock cannot be made");
	}
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&store->lock, NULL);
	return 0;
}

int store_open(
        struct store **opened, uv_loop_t *loop, const struct store_options *options, struct ft_error *error)
{
	struct store *store = calloc(1, sizeof(*store));
	struct ft_error local;
	bool handle = false;

	*opened = NULL;
	if (error == NULL)
		error = &local;
	if (store == NULL)
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory for the store");
	store->loop = loop;
	store->log = options->log;
	store->log_data = options->log_data;
	store->publish = options->publish;
	store->published = options->published;
	store->changed = options->changed;
	store->mended = options->mended;
	store->changed_data = options->changed_data;
	store->limits = options->limits != NULL ? *options->limits : store_limits_usual;
	store->map_bytes = options->map_bytes != 0 ? options->map_bytes : UINT64_C(16) << 30;
	store->reader_at = SIZE_MAX;
	store->waiting_end = &store->waiting;
	store->finished_end = &store->finished;
	store->new_names_end = &store->new_names;
	store->lines_end = &store->lines;
	if (make_lock(store, error) != 0) {
		free(store);
		return -1;
	}
	if (directory_open(&store->directory, options->directory, error) != 0) {
		free_store(store);
		return -1;
	}
	if (open_parts(store, error) != 0)
		goto failed;
	int rc = uv_async_init(loop, &store->async, on_report);
	if (rc != 0) {
		ft_fail(error, FT_E_SYSTEM, "the event loop is not usable: %s", uv_strerror(rc));
		goto failed;
	}
	store->async.data = store;
	handle = true;
	if (store_start_writer(store, error) != 0)
		goto failed;
	store->thread_runs = true;
	*opened = store;
	return 0;
failed:
	close_environment(store);
	/* A run before this one that ended badly is still to be looked into by the next. */
	directory_close(&store->directory, store->directory.unclean == 0);
	if (handle)
		uv_close((uv_handle_t *)&store->async, on_handle_closed);
	else
		free_store(store);
	return -1;
}

void store_close(struct store *store, void (*closed)(void *data), void *data)
{
	store->closed = closed;
	store->closed_data = data;
	pthread_mutex_lock(&store->lock);
	store->stop = true;
	store->final_job = store->next_job;
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->lock);
}

void store_mark_signal(const struct store *store, int signal)
{
	directory_mark_signal(&store->directory, signal);
}

/* ---- facts ---- */

const char *store_uuid(const struct store *store)
{
	return store->seen.uuid;
}

uint64_t store_generation(const struct store *store)
{
	return store->seen.generation;
}

uint64_t store_history_floor(const struct store *store)
{
	return store->seen.floor;
}

void store_facts(struct store *store, struct store_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	facts->bytes = store->bytes;
	facts->limit = store->map_bytes;
	facts->answers = store->seen.answers;
	facts->damaged = store->damaged;
	pthread_mutex_lock(&store->lock);
	facts->commits = store->commits;
	if (store->busy_since_ns != 0)
		facts->stuck_ns = store_clock_ns() - store->busy_since_ns;
	memcpy(facts->degraded, store->degraded, sizeof(facts->degraded));
	pthread_mutex_unlock(&store->lock);
	if (facts->degraded[0] == '\0' &&
	        facts->bytes / 100 >= facts->limit / 10000 * store->limits.refuse_percent)
		snprintf(facts->degraded, sizeof(facts->degraded),
		        "the store is nearly full (%" PRIu64 " of %" PRIu64
		        " bytes): new jobs and imports are refused",
		        facts->bytes, facts->limit);
}

/* ---- names ---- */

/* Leaves a name with the writer, which commits it before or with whatever is submitted next. */
static int leave_name(struct store *store, enum store_name kind, uint32_t id, const char *text)
{
	struct store_name_record *record = NULL;
	struct ft_writer value;
	struct record_key key;

	record_key_name(&key, kind, id);
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_start(&value);
	ft_write_text(&value, text);
	record_seal(&value, key.data, key.length);
	if (ft_writer_ok(&value))
		record = malloc(sizeof(*record) + value.length);
	if (record != NULL) {
		record->next = NULL;
		record->key = key;
		record->length = value.length;
		memcpy(record->value, value.data, value.length);
		pthread_mutex_lock(&store->lock);
		*store->new_names_end = record;
		store->new_names_end = &record->next;
		pthread_mutex_unlock(&store->lock);
	}
	ft_writer_free(&value);
	return record != NULL ? 0 : -1;
}

int store_intern(
        struct store *store, enum store_name kind, const char *text, uint32_t *id, struct ft_error *error)
{
	struct store_names *names = names_of(store, kind);
	char *copy;

	for (uint32_t i = 0; i < names->count; i++) {
		if (names->text[i] != NULL && strcmp(names->text[i], text) == 0) {
			*id = i + 1;
			return 0;
		}
	}
	copy = strdup(text);
	if (copy == NULL || keep_name(names, names->count + 1, copy) != 0) {
		free(copy);
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory for a name");
	}
	if (leave_name(store, kind, names->count, text) != 0) {
		names->text[--names->count] = NULL;
		free(copy);
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory for a name");
	}
	*id = names->count;
	return 0;
}

const char *store_name_text(struct store *store, enum store_name kind, uint32_t id)
{
	const struct store_names *names = names_of(store, kind);

	return id >= 1 && id <= names->count ? names->text[id - 1] : NULL;
}

/* ---- job ids ---- */

static void on_reserved(void *data, uint64_t generation, const struct ft_error *error)
{
	struct store *store = data;

	(void)generation;
	store->reserving = false;
	if (error == NULL)
		store->job_bound += STORE_JOB_IDS;
}

/* An id past the bound is durable with its job, not before; the bound moves on long before it is reached
 * unless writing fails, and then the job fails too. */
uint64_t store_next_job(struct store *store)
{
	if (!store->reserving && store->next_job + STORE_JOB_IDS / 2 >= store->job_bound) {
		struct store_batch *batch = store_batch_new(store);

		if (store->job_bound < store->next_job)
			store->job_bound = store->next_job;
		if (batch != NULL && store_batch_reserve(batch, store->job_bound + STORE_JOB_IDS) == 0) {
			store->reserving = true;
			store_submit(batch, on_reserved, store);
		} else {
			store_batch_drop(batch);
		}
	}
	return store->next_job++;
}

/* ---- checking by hand ---- */

int store_check(const char *directory_path, char *report, size_t size, struct ft_error *error)
{
	struct directory directory;
	struct salvage_check check;
	int outcome = -1;
	int fd = -1;

	report[0] = '\0';
	if (directory_look(&directory, directory_path, error) != 0)
		return -1;
	if (directory.format > RECORD_FORMAT) {
		ft_fail(error, FT_E_STORE,
		        "the store in %s has format %" PRIu32
		        ", from a newer flytune; this one knows format %d",
		        directory_path, directory.format, RECORD_FORMAT);
		goto done;
	}
	fd = openat(directory.fd, DIRECTORY_DATA, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		ft_fail_errno(error, errno, "the store in %s cannot be opened", directory_path);
		goto done;
	}
	if (salvage_check(fd, &check, error) != 0)
		goto done;
	snprintf(report, size,
	        "%" PRIu64 " records are sound (%" PRIu64 " answers, %" PRIu64 " sets of trials, %" PRIu64
	        " jobs, %" PRIu64 " rows of history), %" PRIu64 " damaged; the structure is %s%s",
	        check.records, check.kind[0], check.kind[1], check.kind[2], check.kind[6], check.damaged,
	        check.sound ? "sound" : "damaged: ", check.sound ? "" : check.reason);
	if (!check.sound || check.damaged > 0)
		ft_fail(error, FT_E_STORE, "the store in %s is damaged: %s", directory_path,
		        check.sound ? "single records fail their checksum" : check.reason);
	else
		outcome = 0;
done:
	if (fd >= 0)
		close(fd);
	directory_close(&directory, false);
	return outcome;
}
