/* Whether the data file is still what its name leads to, and putting it back where it is not: what was acknowledged must be
 * found by the next start, which knows nothing but the name. On the writer's thread.
 *
 * A file whose name was taken away is whole for as long as it is open. It is copied to where it belongs, in a directory made
 * anew if need be; nothing that others put in its place is lost either. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/host/lock.h"
#include "daemon/store/internal.h"

void store_know_file(struct store *store)
{
	mdb_filehandle_t fd;
	struct stat info = {0};

	if (mdb_env_get_fd(store->env, &fd) == 0)
		(void)fstat(fd, &info);
	store->data_device = info.st_dev;
	store->data_inode = info.st_ino;
}

enum fault store_stands(const struct store *store, struct ft_error *error)
{
	char path[PATH_MAX + 16];

	(void)snprintf(path, sizeof(path), "%s/" DIRECTORY_DATA, store->directory.path);
	switch (name_leads(
	        AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, (dev_t)store->data_device, (ino_t)store->data_inode)) {
	case NAME_LEADS_THERE:
		return FAULT_NONE;
	case NAME_LEADS_ELSEWHERE:
		(void)ft_fail(error, FT_E_STORE, "%s was removed or replaced while the daemon runs", path);
		return FAULT_GONE;
	case NAME_LEADS_UNKNOWN:
		break;
	}
	(void)ft_fail_errno(error, errno, "%s cannot be looked at", path);
	return FAULT_ROOM;
}

/* Gives what is open a file of its own again, beside its name in `directory`. */
static int copy_file(struct store *store, const struct directory *directory, struct ft_error *error)
{
	int rc, fd;

	(void)unlinkat(directory->fd, DIRECTORY_FRESH, 0);
	(void)unlinkat(directory->fd, DIRECTORY_PARTIAL, 0);
	fd = openat(
	        directory->fd, DIRECTORY_PARTIAL, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		(void)store_fault(&store->directory, errno, error);
		return -1;
	}
	rc = mdb_env_copyfd2(store->env, fd, 0);
	if (rc == 0 && fsync(fd) != 0)
		rc = errno;
	(void)close(fd);
	if (rc == 0 && renameat(directory->fd, DIRECTORY_PARTIAL, directory->fd, DIRECTORY_FRESH) != 0)
		rc = errno;
	if (rc == 0)
		return 0;
	(void)unlinkat(directory->fd, DIRECTORY_PARTIAL, 0);
	(void)store_fault(&store->directory, rc, error);
	return -1;
}

bool store_put_back(struct store *store, struct directory *found, bool *moved, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	char aside[128] = "";

	*moved = !directory_stands(directory);
	if (*moved) {
		if (directory_open(found, directory->path, error) != 0)
			return false;
		if (found->format != 0 && found->format != RECORD_FORMAT) {
			ft_fail(error, FT_E_STORE,
			        "%.100s leads to a store of format %" PRIu32 " now, which is left as it is",
			        directory->path, found->format);
			directory_close(found, false);
			return false;
		}
		directory = found;
	}
	/* All that may fail before the copy, which is large, and its place last. */
	if (directory_renew(directory, &store->directory, RECORD_FORMAT, error) != 0 ||
	        copy_file(store, directory, error) != 0)
		goto failed;
	if (directory_put_in(directory, "replaced", aside, sizeof(aside), error) != 0) {
		/* Where nothing has the name any more, it is the copy that the next start must find. */
		if (faccessat(directory->fd, DIRECTORY_DATA, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			(void)unlinkat(directory->fd, DIRECTORY_FRESH, 0);
		goto failed;
	}
	store_log_later(store, 3,
	        "%s/" DIRECTORY_DATA
	        " was removed or replaced while the daemon runs: it was put back, with all "
	        "that was acknowledged%s%s; stop the daemon before its state is touched",
	        directory->path, aside[0] != '\0' ? "; what stood in its place is " : "", aside);
	return true;
failed:
	if (*moved)
		directory_close(found, false);
	return false;
}
