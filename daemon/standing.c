/* Whether the data file is still what its name leads to, and putting it back where it is not: what was acknowledged must be
 * found by the next start, which knows nothing but the name. On the writer's thread.
 *
 * A file whose name was taken away is whole for as long as it is open. It is copied to where it belongs, in a directory made
 * anew if need be; nothing that others put in its place is lost either. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store_internal.h"

#define FRESH_NAME DIRECTORY_DATA ".new"

void store_know_file(struct store *store)
{
	mdb_filehandle_t fd;
	struct stat info = {0};

	if (mdb_env_get_fd(store->env, &fd) == 0)
		(void)fstat(fd, &info);
	store->data_device = info.st_dev;
	store->data_inode = info.st_ino;
}

bool store_stands(const struct store *store, struct ft_error *error)
{
	char path[PATH_MAX + 16];
	struct stat named;

	(void)snprintf(path, sizeof(path), "%s/" DIRECTORY_DATA, store->directory.path);
	/* The open file has its number for as long as it is open, so that no other can have it. */
	if (lstat(path, &named) == 0 && named.st_dev == store->data_device &&
	        named.st_ino == store->data_inode)
		return true;
	(void)ft_fail(error, FT_E_STORE, "%s was removed or replaced while the daemon runs", path);
	return false;
}

/* Gives what is open a file of its own again, under its name in `directory`; what has that name there is kept aside. */
static int copy_file(struct store *store, const struct directory *directory, char *aside, size_t size,
        struct ft_error *error)
{
	int rc, fd;

	(void)unlinkat(directory->fd, FRESH_NAME, 0);
	fd = openat(directory->fd, FRESH_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		(void)store_fault(&store->directory, errno, error);
		return -1;
	}
	rc = mdb_env_copyfd2(store->env, fd, 0);
	if (rc == 0 && fsync(fd) != 0)
		rc = errno;
	(void)close(fd);
	if (rc != 0) {
		(void)unlinkat(directory->fd, FRESH_NAME, 0);
		(void)store_fault(&store->directory, rc, error);
		return -1;
	}
	if (directory_keep_aside(directory, "replaced", aside, size, error) != 0)
		return -1;
	if (renameat(directory->fd, FRESH_NAME, directory->fd, DIRECTORY_DATA) != 0 ||
	        fsync(directory->fd) != 0)
		return ft_fail_errno(error, errno, "the store cannot be put back in %s", directory->path);
	return 0;
}

bool store_put_back(struct store *store, struct directory *found, bool *moved, struct ft_error *error)
{
	struct directory *directory = &store->directory;
	char aside[128] = "";

	*moved = !directory_stands(directory);
	if (*moved) {
		if (directory_open(found, directory->path, error) != 0)
			return false;
		directory = found;
	}
	if (copy_file(store, directory, aside, sizeof(aside), error) != 0 ||
	        directory_renew(directory, RECORD_FORMAT, error) != 0) {
		if (*moved)
			directory_close(found, false);
		return false;
	}
	store_log_later(store, 3,
	        "%s/" DIRECTORY_DATA
	        " was removed or replaced while the daemon runs: it was put back, with all "
	        "that was acknowledged%s%s; stop the daemon before its state is touched",
	        directory->path, aside[0] != '\0' ? "; what stood in its place is " : "", aside);
	return true;
}
