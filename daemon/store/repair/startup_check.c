#include "daemon/store/repair/startup_check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/repair/lmdb_file.h"

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

/* As the store itself says it; 0: it is not known. */
static uint64_t format_of(int data)
{
	enum pages_state state;
	struct record_meta meta;
	struct pages pages;

	return pages_open(&pages, data, &state, NULL) == 0 && state == PAGES_OPEN &&
	                read_format(&pages, &meta)
	        ? meta.format
	        : 0;
}

/* 0 passes: it is not known. */
static int check_format(const char *path, uint64_t format, struct ft_error *error)
{
	if (format == 0 || format == RECORD_FORMAT)
		return 0;
	if (format > RECORD_FORMAT)
		return ft_fail(error, FT_E_STORE,
		        "the store in %.100s has format %" PRIu64
		        ", from a newer flytune; this one knows format %d",
		        path, format, RECORD_FORMAT);
	return ft_fail(error, FT_E_STORE,
	        "the store in %.100s has format %" PRIu64
	        ", of flytune 0.1.0, and is left as it is: with 0.1.0, `flytunectl export FILE`; then move "
	        "the directory away, start this flytune (" FLYTUNE_VERSION ") and `flytunectl import FILE`",
	        path, format);
}

/* ---- the seal ---- */

struct sealed {
	char what[16];
	struct seal seal;
	uint64_t hash; /* of all before */
};
static const char seal_word[16] = "flytune header\n";

void seal_write(const struct directory *directory)
{
	struct sealed sealed;
	struct stat info;
	int data = openat(directory->fd, DIRECTORY_DATA, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int fd = -1;

	if (data < 0)
		return;
	memset(&sealed, 0, sizeof(sealed));
	memcpy(sealed.what, seal_word, sizeof(sealed.what));
	if (fstat(data, &info) == 0 && pages_copy_header(data, 0, sealed.seal.header, &sealed.seal.page_size))
		fd = openat(directory->fd, DIRECTORY_SEAL,
		        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	(void)close(data);
	if (fd < 0)
		return;
	sealed.seal.size = (uint64_t)info.st_size;
	sealed.hash = record_hash(&sealed, offsetof(struct sealed, hash));
	if (write(fd, &sealed, sizeof(sealed)) != (ssize_t)sizeof(sealed))
		(void)unlinkat(directory->fd, DIRECTORY_SEAL, 0);
	(void)close(fd);
}

/* False if there is none that holds. */
static bool seal_read(const struct directory *directory, struct seal *seal)
{
	struct sealed sealed;
	int fd = openat(directory->fd, DIRECTORY_SEAL, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, &sealed, sizeof(sealed));
	(void)close(fd);
	*seal = sealed.seal;
	return got == (ssize_t)sizeof(sealed) && memcmp(sealed.what, seal_word, sizeof(seal_word)) == 0 &&
	        sealed.hash == record_hash(&sealed, offsetof(struct sealed, hash));
}

enum seal_verdict {
	SEAL_HOLDS,
	SEAL_SAYS_NOTHING, /* another store, or none, or one that was gone on with */
	SEAL_MENDS,        /* the header is the sealed one but for damage */
};

/* A commit changes more bits of a header than these: its number, and the roots of both trees. */
enum { FLIPPED_MOST = 2 };

static enum seal_verdict ask_seal(const struct pages *pages, enum pages_state state, const struct seal *seal)
{
	uint8_t header[PAGES_HEADER_SIZE];
	unsigned differ[2] = {0, 0};
	uint32_t page_size;

	if (pages->size != seal->size || !pages_copy_header(pages->fd, seal->page_size, header, &page_size))
		return SEAL_SAYS_NOTHING;
	for (size_t i = 0; i < sizeof(header); i++)
		differ[i / PAGES_META_SIZE] +=
		        (unsigned)__builtin_popcount((unsigned)(header[i] ^ seal->header[i]));
	if (differ[0] + differ[1] == 0)
		return SEAL_HOLDS;
	/* Half of it is as it was, and nothing can be made of the whole. */
	if (differ[0] + differ[1] <= FLIPPED_MOST ||
	        (state == PAGES_BAD && (differ[0] == 0 || differ[1] == 0)))
		return SEAL_MENDS;
	return SEAL_SAYS_NOTHING;
}

/* Looks at a store whose last run ended in peace, at what no checksum of a record covers. */
static int ask_for_header(const struct startup *startup, struct pages *pages, enum pages_state *state,
        bool *doubt, struct ft_error *error)
{
	const struct directory *directory = startup->directory;
	struct repair_check check;
	struct seal seal;
	enum seal_verdict verdict = SEAL_SAYS_NOTHING;

	if (directory->unclean == 0 && seal_read(directory, &seal))
		verdict = ask_seal(pages, *state, &seal);
	*doubt = verdict != SEAL_HOLDS;
	if (verdict != SEAL_MENDS)
		return 0;
	if (repair_check_in_child(pages->fd, &seal, &startup->waits, &check, error) != 0)
		return -1;
	if (!check.sound)
		return 0;
	if (pages_put_header(pages->fd, seal.page_size, seal.header, error) != 0 ||
	        pages_open(pages, pages->fd, state, error) != 0)
		return -1;
	*doubt = false;
	store_log(&startup->log, 4,
	        "the header of the store in %s was damaged: it was mended from the copy that the last run "
	        "left",
	        directory->path);
	return 0;
}

/* Looks whether the structure holds, where there is reason to doubt it. */
static int check_if_needed(const struct startup *startup, const struct pages *pages, bool doubt,
        enum found *found, char *reason, size_t size, struct ft_error *error)
{
	const struct directory *directory = startup->directory;

	doubt = pages_short(pages) || directory->signal != 0 || (doubt && directory->unclean == 0) ||
	        pages->size <= startup->always_bytes ||
	        (directory->unclean > 0 && pages->size <= startup->check_bytes) || directory->unclean > 1;
	struct repair_check check;

	if (!doubt)
		return 0;
	if (repair_check_in_child(pages->fd, NULL, &startup->waits, &check, error) != 0)
		return -1;
	if (!check.sound) {
		*found = FOUND_DAMAGE;
		snprintf(reason, size, "%s", check.reason);
		return 0;
	}
	if (directory->signal == DIRECTORY_DAMAGE_AGAIN) {
		*found = FOUND_DAMAGE;
		snprintf(reason, size, "LMDB came upon damage twice that a walk does not find");
		return 0;
	}
	/* Whatever ended the last runs, it was not the structure of the store. */
	startup->directory->unclean = 0;
	if (check.damaged > 0)
		store_log(&startup->log, 4, "%" PRIu64 " of %" PRIu64 " records of the store are damaged",
		        check.damaged, check.damaged + check.records);
	/* LMDB maps whole pages: the file must reach as far as its header says. */
	if (pages_short(pages) &&
	        ftruncate(pages->fd, (off_t)((pages->last_page + 1) * pages->page_size)) != 0)
		return ft_fail_errno(error, errno, "the store in %s cannot be written", directory->path);
	return 0;
}

static int examine_data(
        const struct startup *startup, enum found *found, char *reason, size_t size, struct ft_error *error)
{
	struct directory *directory = startup->directory;
	enum pages_state state = PAGES_EMPTY;
	struct record_meta meta;
	struct pages pages;
	bool doubt = false;
	int outcome = -1;
	int fd;

	*found = FOUND_STORE;
	if (check_format(directory->path, directory->format, error) != 0)
		return -1;
	fd = openat(directory->fd, DIRECTORY_DATA, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno != ENOENT)
		return ft_fail_errno(error, errno, "the store in %s cannot be opened", directory->path);
	if (fd < 0) {
		*found = directory->initialised ? FOUND_DAMAGE : FOUND_NOTHING;
		snprintf(reason, size, "its data file is missing");
		return 0;
	}
	if (pages_open(&pages, fd, &state, error) != 0 ||
	        (pages.size > 0 && ask_for_header(startup, &pages, &state, &doubt, error) != 0))
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
		outcome = check_format(directory->path, meta.format, error);
		if (outcome == 0)
			outcome = check_if_needed(startup, &pages, doubt, found, reason, size, error);
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

static bool is_store(const struct directory *directory, const char *name)
{
	int fd = openat(directory->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool is = fd >= 0 && format_of(fd) == RECORD_FORMAT;

	if (fd >= 0)
		(void)close(fd);
	return is;
}

/* Something ended the last run while it put its store in its place. */
static int finish_putting_in(
        const struct startup *startup, enum found *found, char *reason, size_t size, struct ft_error *error)
{
	const struct directory *directory = startup->directory;
	char aside[128];

	if (!is_store(directory, DIRECTORY_FRESH)) {
		(void)unlinkat(directory->fd, DIRECTORY_FRESH, 0);
		return 0;
	}
	if (*found == FOUND_STORE) {
		/* Which of them is wanted is not ours to say. */
		if (directory_move_aside(
		            directory, DIRECTORY_FRESH, "replaced", aside, sizeof(aside), error) != 0)
			return -1;
		store_log(&startup->log, 4,
		        "in %s another store stood beside " DIRECTORY_DATA
		        ", left by a run that ended while it was put back: it is %s now",
		        directory->path, aside);
		return 0;
	}
	if (directory_put_in(directory, *found == FOUND_DAMAGE ? "damaged" : "replaced", aside, sizeof(aside),
	            error) != 0)
		return -1;
	store_log(&startup->log, 4,
	        "the last run ended while the store in %s was put in its place: that is done now%s%s",
	        directory->path, aside[0] != '\0' ? "; what stood there is " : "", aside);
	return examine_data(startup, found, reason, size, error);
}

int startup_check(
        const struct startup *startup, enum found *found, char *reason, size_t size, struct ft_error *error)
{
	const struct directory *directory = startup->directory;

	if (examine_data(startup, found, reason, size, error) != 0)
		return -1;
	(void)unlinkat(directory->fd, DIRECTORY_PARTIAL, 0);
	if (faccessat(directory->fd, DIRECTORY_FRESH, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	return finish_putting_in(startup, found, reason, size, error);
}

int startup_rebuild(const struct startup *startup, const char *reason, struct ft_error *error)
{
	struct repair_result result;
	char counts[256] = "";
	size_t at = 0;

	store_log(&startup->log, 3, "the store in %s is damaged: %s; what can be read of it is being rescued",
	        startup->directory->path, reason);
	if (repair_rebuild(startup->directory, startup->map_bytes, &startup->waits, &result, error) != 0)
		return -1;
	static const char *const words[REPAIR_KINDS] = {
	        "answers", "sets of trials", "jobs", "names", "device identities", "notes"};
	for (int i = 0; i < REPAIR_KINDS && words[i] != NULL; i++) {
		if (result.kind[i] > 0 && at < sizeof(counts))
			at += (size_t)snprintf(counts + at, sizeof(counts) - at, "%s%" PRIu64 " %s",
			        at > 0 ? ", " : "", result.kind[i], words[i]);
	}
	store_log(&startup->log, 3,
	        "a new store was started with %" PRIu64 " records of the damaged one (%s); %" PRIu64
	        " places could not be read; the damaged file is %s%s%s",
	        result.kept, at > 0 ? counts : "nothing", result.lost,
	        result.aside[0] != '\0' ? startup->directory->path : "gone",
	        result.aside[0] != '\0' ? "/" : "", result.aside);
	return 0;
}

/* ---- checking by hand ---- */

/* A header that is well made and is not what it was: the walk alone does not know. */
static int check_seal(
        const struct directory *directory, int fd, struct repair_check *check, struct ft_error *error)
{
	enum pages_state state;
	struct pages pages;
	struct seal seal;

	if (directory->unclean > 0 || !seal_read(directory, &seal))
		return 0;
	if (pages_open(&pages, fd, &state, error) != 0)
		return -1;
	if (ask_seal(&pages, state, &seal) == SEAL_MENDS) {
		check->sound = false;
		snprintf(check->reason, sizeof(check->reason),
		        "the header of the data file is damaged; the next start mends it");
	}
	return 0;
}

int store_check(const char *directory_path, char *report, size_t size, struct ft_error *error)
{
	struct directory directory;
	struct repair_check check;
	int outcome = -1;
	int fd = -1;

	report[0] = '\0';
	if (directory_look(&directory, directory_path, error) != 0)
		return -1;
	if (check_format(directory_path, directory.format, error) != 0)
		goto done;
	fd = openat(directory.fd, DIRECTORY_DATA, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		ft_fail_errno(error, errno, "the store in %s cannot be opened", directory_path);
		goto done;
	}
	if (check_format(directory_path, format_of(fd), error) != 0 ||
	        repair_check(fd, NULL, &check, error) != 0 || check_seal(&directory, fd, &check, error) != 0)
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
