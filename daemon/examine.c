/* What stands in a state directory, learned before LMDB, which trusts it, opens the file; and its rescue. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/pages.h"
#include "daemon/salvage.h"
#include "daemon/store_internal.h"

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

int store_examine(struct store *store, enum found *found, char *reason, size_t size, struct ft_error *error)
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

int store_rebuild(struct store *store, const char *reason, struct ft_error *error)
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
