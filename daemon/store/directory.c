#include "daemon/store/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "daemon/host/lock.h"
#include "daemon/store/record.h"

#define LOCK_NAME "lock"
#define INITIALISED_NAME "initialised"
#define OPEN_NAME "open"

#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xFF534D42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xFE534D42
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef CEPH_SUPER_MAGIC
#define CEPH_SUPER_MAGIC 0x00c36400
#endif
#define LUSTRE_MAGIC 0x0BD00BD0

static const struct {
	uint32_t magic;
	const char *name;
} refused[] = {
        {NFS_SUPER_MAGIC, "NFS"},
        {SMB_SUPER_MAGIC, "SMB"},
        {CIFS_SUPER_MAGIC, "CIFS"},
        {SMB2_SUPER_MAGIC, "SMB"},
        {V9FS_MAGIC, "9p"},
        {FUSE_SUPER_MAGIC, "FUSE"},
        {CEPH_SUPER_MAGIC, "Ceph"},
        {LUSTRE_MAGIC, "Lustre"},
        {AFS_SUPER_MAGIC, "AFS"},
        {CODA_SUPER_MAGIC, "Coda"},
};

static int check_file_system(struct directory *directory, struct ft_error *error)
{
	struct statfs info;
	struct stat mode;

	if (fstatfs(directory->fd, &info) != 0)
		return ft_fail_errno(error, errno,
		        "the file system of the state directory %s cannot be examined", directory->path);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		if ((uint32_t)info.f_type == refused[i].magic)
			return ft_fail(error, FT_E_STORE,
			        "the state directory %s is on %s, where a memory-mapped store is not safe; "
			        "choose a local file system",
			        directory->path, refused[i].name);
	}
	directory->overlay = (uint32_t)info.f_type == OVERLAYFS_SUPER_MAGIC;
	directory->exposed = fstat(directory->fd, &mode) == 0 && (mode.st_mode & (S_IWGRP | S_IWOTH)) != 0;
	return 0;
}

static int refuse_access(const struct directory *directory, int number, struct ft_error *error)
{
	return ft_fail_errno(error, number, "the state directory %s cannot be written by user %u",
	        directory->path, (unsigned)geteuid());
}

/* Reads a small file whole, as text; "" if it is not there. */
static void read_small(int directory, const char *name, char *text, size_t size)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t length = 0;

	text[0] = '\0';
	if (fd < 0)
		return;
	length = read(fd, text, size - 1);
	text[length > 0 ? length : 0] = '\0';
	close(fd);
}

/* The number after `word`, or `otherwise`. */
static uint32_t read_number(const char *text, const char *word, uint32_t otherwise)
{
	const char *at = strstr(text, word);
	char *end;
	unsigned long value;

	if (at == NULL)
		return otherwise;
	at += strlen(word);
	value = strtoul(at, &end, 10);
	return end != at && value <= UINT32_MAX ? (uint32_t)value : otherwise;
}

/* On the directory itself, which no name in it can be removed from under. `lock` only says whose it is. */
static int take_lock(const struct directory *directory, struct ft_error *error)
{
	uint32_t holder;

	if (flock(directory->fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return ft_fail_errno(
		        error, errno, "the state directory %s cannot be locked", directory->path);
	holder = lock_holder(directory->fd, LOCK_NAME);
	if (lock_inherit(directory->fd, holder))
		return 0;
	if (holder == 0)
		return ft_fail(error, FT_E_STORE, "the state directory %s is in use by another process",
		        directory->path);
	return ft_fail(error, FT_E_STORE, "the state directory %s is in use by process %u", directory->path,
	        (unsigned)holder);
}

/* Where it can be had: a daemon that knew only this lock is kept out, and keeps out. */
static int sign_lock(struct directory *directory, struct ft_error *error)
{
	uint32_t holder;

	if (directory->lock >= 0 && lock_stands(directory->lock, directory->fd, LOCK_NAME))
		return 0;
	if (directory->lock >= 0)
		(void)close(directory->lock);
	directory->lock = lock_take(directory->fd, LOCK_NAME, O_RDWR | O_CREAT, &holder);
	if (directory->lock < 0 && errno == EWOULDBLOCK)
		return ft_fail(error, FT_E_STORE, "the state directory %s is in use by process %u",
		        directory->path, (unsigned)holder);
	if (directory->lock >= 0)
		lock_sign(directory->lock);
	return 0;
}

static void read_markers(struct directory *directory)
{
	char text[128];

	read_small(directory->fd, INITIALISED_NAME, text, sizeof(text));
	directory->initialised = faccessat(directory->fd, INITIALISED_NAME, F_OK, 0) == 0;
	/* A marker that a power cut left empty is from a store of ours; the store itself knows its format. */
	directory->format = read_number(text, "format ", 0);
	if (faccessat(directory->fd, OPEN_NAME, F_OK, 0) == 0) {
		read_small(directory->fd, OPEN_NAME, text, sizeof(text));
		directory->signal = (int)read_number(text, "signal ", 0);
		directory->unclean = read_number(text, "unclean ", 0) + 1;
	}
}

static int start(struct directory *directory, const char *path, struct ft_error *error)
{
	memset(directory, 0, sizeof(*directory));
	directory->fd = directory->lock = directory->open = -1;
	if ((size_t)snprintf(directory->path, sizeof(directory->path), "%s", path) >=
	        sizeof(directory->path) - NAME_MAX - 2)
		return ft_fail(error, FT_E_STORE, "the path of the state directory is too long");
	return 0;
}

int directory_open(struct directory *directory, const char *path, struct ft_error *error)
{
	if (start(directory, path, error) != 0)
		return -1;
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return ft_fail_errno(error, errno, "the state directory %s cannot be made", path);
	directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory->fd < 0) {
		ft_fail_errno(error, errno, "the state directory %s cannot be opened", path);
		goto failed;
	}
	if (check_file_system(directory, error) != 0 || take_lock(directory, error) != 0)
		goto failed;
	/* Tried here, so that the error is about the directory and not about some file in it. */
	if (faccessat(directory->fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
		refuse_access(directory, errno, error);
		goto failed;
	}
	/* A store that will be refused is left as it is to the last byte. */
	read_markers(directory);
	if ((directory->format == 0 || directory->format == RECORD_FORMAT) &&
	        sign_lock(directory, error) != 0)
		goto failed;
	return 0;
failed:
	directory_close(directory, false);
	return -1;
}

int directory_look(struct directory *directory, const char *path, struct ft_error *error)
{
	if (start(directory, path, error) != 0)
		return -1;
	directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory->fd < 0)
		return ft_fail_errno(error, errno, "the state directory %s cannot be opened", path);
	if (take_lock(directory, error) != 0) {
		directory_close(directory, false);
		return -1;
	}
	read_markers(directory);
	return 0;
}

/* The directory's own name must outlive a power cut, too: it may be as new as what is in it. */
static int sync_name(const struct directory *directory)
{
	int parent = openat(directory->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (parent < 0)
		return syncfs(directory->fd); /* it may not be read: then all of it */
	rc = fsync(parent);
	(void)close(parent);
	return rc;
}

int directory_initialise(struct directory *directory, uint32_t format, struct ft_error *error)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "flytune store, format %u\n", (unsigned)format);
	int fd = openat(
	        directory->fd, INITIALISED_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return refuse_access(directory, errno, error);
	if (write(fd, text, (size_t)length) != length || fsync(fd) != 0 || fsync(directory->fd) != 0 ||
	        sync_name(directory) != 0) {
		ft_fail_errno(error, errno, "the state directory %s cannot be written", directory->path);
		close(fd);
		return -1;
	}
	close(fd);
	directory->initialised = true;
	directory->format = format;
	return 0;
}

/* What the marker has to say of damage. */
static int mark_of(const struct directory *directory)
{
	if (!atomic_load(&directory->doubt))
		return 0;
	/* A second time in a row: the check has found nothing, and what it cannot see is there all the same. */
	return directory->signal >= DIRECTORY_DAMAGE_AGAIN ? DIRECTORY_DAMAGE_AGAIN : DIRECTORY_DAMAGE;
}

/* Its descriptor. */
static int make_marker(int directory, int mark, uint32_t unclean)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "signal %02d\nunclean %u\n", mark, (unsigned)unclean);
	int fd = openat(directory, OPEN_NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	/* Not synced: it matters after a death of the process, not of the machine. A write that fails for
	 * want of room leaves an empty marker, which says the same. */
	if (fd >= 0 && pwrite(fd, text, (size_t)length, 0) < 0)
		return fd;
	return fd;
}

int directory_mark_open(struct directory *directory, uint32_t unclean, struct ft_error *error)
{
	directory->open = make_marker(directory->fd, 0, unclean);
	if (directory->open < 0)
		return refuse_access(directory, errno, error);
	(void)unlinkat(directory->fd, DIRECTORY_SEAL, 0); /* from now on it says nothing */
	return 0;
}

bool directory_stands(const struct directory *directory)
{
	struct stat held;

	return fstat(directory->fd, &held) == 0 &&
	        name_leads(AT_FDCWD, directory->path, 0, held.st_dev, held.st_ino) == NAME_LEADS_THERE;
}

bool directory_marked(const struct directory *directory)
{
	return lock_stands(directory->open, directory->fd, OPEN_NAME) &&
	        faccessat(directory->fd, INITIALISED_NAME, F_OK, 0) == 0;
}

int directory_renew(
        struct directory *directory, const struct directory *like, uint32_t format, struct ft_error *error)
{
	if (sign_lock(directory, error) != 0)
		return -1;
	if (directory->open < 0 || !lock_stands(directory->open, directory->fd, OPEN_NAME)) {
		int fd = make_marker(directory->fd, mark_of(like), like->unclean);

		if (fd < 0)
			return refuse_access(directory, errno, error);
		if (directory->open < 0) {
			directory->open = fd;
		} else {
			(void)dup3(fd, directory->open, O_CLOEXEC);
			(void)close(fd);
			directory_mark_signal(directory, mark_of(directory)); /* it may have come just now */
		}
	}
	return directory_initialise(directory, format, error);
}

void directory_adopt(struct directory *directory, struct directory *found)
{
	if (!atomic_load(&directory->doubt))
		(void)unlinkat(directory->fd, OPEN_NAME, 0);
	(void)dup3(found->open, directory->open, O_CLOEXEC);
	(void)dup3(found->fd, directory->fd, O_CLOEXEC);
	directory_close(&(struct directory){.fd = -1, .lock = directory->lock, .open = -1}, false);
	directory->lock = found->lock;
	found->lock = -1;
	directory_close(found, false);
	if (atomic_load(&directory->doubt)) /* it may have come just now */
		directory_mark_signal(directory, mark_of(directory));
	directory->initialised = true;
}

int directory_move_aside(const struct directory *directory, const char *name, const char *word, char *aside,
        size_t size, struct ft_error *error)
{
	time_t now = time(NULL);
	struct tm when;
	char stamp[32];

	aside[0] = '\0';
	if (faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	gmtime_r(&now, &when);
	strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &when);
	for (int i = 0; i < 1000; i++) {
		if (i == 0)
			snprintf(aside, size, DIRECTORY_DATA ".%s-%s", word, stamp);
		else
			snprintf(aside, size, DIRECTORY_DATA ".%s-%s-%d", word, stamp, i);
		if (faccessat(directory->fd, aside, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		/* Not a second name: the kernel gives none to a file of another user. */
		if (renameat(directory->fd, name, directory->fd, aside) == 0)
			return 0;
		break;
	}
	return ft_fail_errno(
	        error, errno, "%s in %s cannot be moved aside as %s", name, directory->path, aside);
}

int directory_put_in(
        const struct directory *directory, const char *word, char *aside, size_t size, struct ft_error *error)
{
	int failure;

	aside[0] = '\0';
	/* The fresh one's name is durable before the other's goes. */
	if (fsync(directory->fd) != 0)
		goto failed;
	if (directory_move_aside(directory, DIRECTORY_DATA, word, aside, size, error) != 0)
		return -1;
	if (renameat(directory->fd, DIRECTORY_FRESH, directory->fd, DIRECTORY_DATA) != 0)
		goto failed;
	if (fsync(directory->fd) == 0)
		return 0;
	failure = errno;
	(void)renameat(directory->fd, DIRECTORY_DATA, directory->fd, DIRECTORY_FRESH);
	errno = failure;
failed:
	return ft_fail_errno(error, errno, "the store cannot be put in its place in %s", directory->path);
}

void directory_mark_signal(const struct directory *directory, int signal)
{
	char text[] = "signal 00\n";

	text[7] = (char)('0' + signal / 10 % 10);
	text[8] = (char)('0' + signal % 10);
	if (directory->open >= 0 && pwrite(directory->open, text, sizeof(text) - 1, 0) < 0)
		return; /* nothing else can be done from a signal handler */
}

void directory_doubt(struct directory *directory)
{
	if (!atomic_exchange(&directory->doubt, true))
		directory_mark_signal(directory, mark_of(directory));
}

void directory_close(struct directory *directory, bool clean)
{
	if (directory->open >= 0) {
		if (clean && !atomic_load(&directory->doubt))
			unlinkat(directory->fd, OPEN_NAME, 0);
		close(directory->open);
	}
	if (directory->lock >= 0)
		close(directory->lock);
	if (directory->fd >= 0)
		close(directory->fd);
	directory->fd = directory->lock = directory->open = -1;
}
