#include "daemon/store/lmdb_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void store_log(const struct store_log *log, int level, const char *format, ...)
{
	char text[512];
	va_list arguments;

	if (log->call == NULL)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log->call(log->data, level, text);
}

/* ---- errors ---- */

uint64_t store_free_bytes(const struct directory *directory)
{
	struct statvfs info;

	if (fstatvfs(directory->fd, &info) != 0)
		return UINT64_MAX;
	return (uint64_t)info.f_bavail * info.f_frsize;
}

/* LMDB turns a page that could be written only in part into EIO, whatever kept the rest out. What it was, a file of our
 * own finds out; 0 if that one is taken: then the disk itself failed. */
static int ask_disk(const struct directory *directory)
{
	enum { PIECE = 64 * 1024, PIECES = 4 };
	static const uint8_t piece[PIECE];
	struct stat data;
	struct rlimit limit;
	int code = 0;
	int fd = openat(directory->fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	if (fstatat(directory->fd, DIRECTORY_DATA, &data, AT_SYMLINK_NOFOLLOW) == 0 &&
	        getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	        (uint64_t)data.st_size + sizeof(piece) * PIECES > limit.rlim_cur)
		code = EFBIG;
	if (fd < 0)
		return code != 0 ? code : errno == ENOSPC || errno == EDQUOT ? errno : 0;
	for (int i = 0; i < PIECES && code == 0; i++) {
		ssize_t written = pwrite(fd, piece, sizeof(piece), (off_t)i * PIECE);

		if (written < 0)
			code = errno == EINTR ? 0 : errno;
		else if (written < PIECE)
			code = ENOSPC;
	}
	(void)close(fd);
	return code == EIO ? 0 : code;
}

/* A file system may refuse for other reasons than its free bytes, and they are what the operator must look at. */
static void tell_room(const struct directory *directory, struct ft_error *error)
{
	enum { NEARLY_FULL = 256 * 1024 };
	struct statvfs info;

	if (fstatvfs(directory->fd, &info) != 0)
		ft_fail(error, FT_E_STORE, "disk full: %s", directory->path);
	else if (info.f_files > 0 && info.f_favail == 0)
		ft_fail(error, FT_E_STORE, "no inodes left on the file system of %s", directory->path);
	else if ((uint64_t)info.f_bavail * info.f_frsize <= NEARLY_FULL)
		ft_fail(error, FT_E_STORE, "disk full: %" PRIu64 " bytes free in %s",
		        (uint64_t)info.f_bavail * info.f_frsize, directory->path);
	else
		ft_fail(error, FT_E_STORE,
		        "the file system of %s takes no more, although it tells of %" PRIu64
		        " free bytes: a project's or group's quota, or its own bookkeeping, is full",
		        directory->path, (uint64_t)info.f_bavail * info.f_frsize);
}

enum fault store_fault(struct directory *directory, int code, struct ft_error *error)
{
	struct rlimit limit = {0};

	if (code == EIO) {
		code = ask_disk(directory);
		if (code == 0)
			code = EIO;
	}
	switch (code) {
	case 0:
		return FAULT_NONE;
	case MDB_MAP_FULL:
		ft_fail(error, FT_E_STORE, "the store in %s is full: all of its map is used (map_size)",
		        directory->path);
		return FAULT_ROOM;
	case ENOSPC:
		tell_room(directory, error);
		return FAULT_ROOM;
	case EDQUOT:
		ft_fail(error, FT_E_STORE, "disk quota exceeded in %s", directory->path);
		return FAULT_ROOM;
	case EFBIG:
		/* Without a limit it is a page number that no file could have. */
		if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
			directory_doubt(directory);
			break;
		}
		ft_fail(error, FT_E_STORE,
		        "the store in %s may not grow: this process may write files of %" PRIu64
		        " bytes (ulimit -f, LimitFSIZE)",
		        directory->path, (uint64_t)limit.rlim_cur);
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
	case MDB_CURSOR_FULL:
	case MDB_PAGE_FULL:
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

int store_put_sealed(
        MDB_txn *txn, MDB_dbi dbi, const struct record_key *key, struct ft_writer *value, unsigned flags)
{
	MDB_val at = store_value(key->data, key->length);
	MDB_val data;

	record_seal(value, key->data, key->length);
	if (!ft_writer_ok(value))
		return ENOMEM;
	data = store_value(value->data, value->length);
	return mdb_put(txn, dbi, &at, &data, flags);
}

int store_put_meta(MDB_txn *txn, MDB_dbi dbi, const struct record_meta *meta)
{
	int rc = 0;

	for (unsigned copy = 0; copy < 2 && rc == 0; copy++) {
		uint8_t buffer[256];
		struct ft_writer writer;
		struct record_key key;

		record_key_meta(&key, copy);
		ft_writer_init_fixed(&writer, buffer, sizeof(buffer));
		record_start(&writer);
		record_write_meta(&writer, meta);
		rc = store_put_sealed(txn, dbi, &key, &writer, 0);
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
