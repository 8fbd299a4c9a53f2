#include "daemon/host/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	REMOVED_TRIES = 1000, /* each meets another process that ended just then */
	SIGNED_TRIES = 100, /* a millisecond each: between its lock and its signature a process is not long */
	LEFT_TRIES = 200,   /* ten milliseconds each: nor is a child between its fork and its program */
};

/* Whose number stands in it. */
static uint32_t read_holder(int lock)
{
	const struct timespec moment = {.tv_nsec = 1000000};
	char text[32];

	for (int i = 0; i < SIGNED_TRIES; i++) {
		ssize_t length = pread(lock, text, sizeof(text) - 1, 0);
		unsigned long number;

		text[length > 0 ? length : 0] = '\0';
		number = strtoul(text, NULL, 10);
		if (number > 0 && number <= UINT32_MAX)
			return (uint32_t)number;
		(void)nanosleep(&moment, NULL);
	}
	return 0;
}

uint32_t lock_holder(int directory, const char *name)
{
	int lock = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint32_t holder = lock >= 0 ? read_holder(lock) : 0;

	if (lock >= 0)
		(void)close(lock);
	return holder;
}

bool lock_inherit(int lock, uint32_t holder)
{
	const struct timespec moment = {.tv_nsec = 10000000};

	for (int i = 0; i < LEFT_TRIES && holder != 0 && kill((pid_t)holder, 0) != 0 && errno == ESRCH; i++) {
		if (flock(lock, LOCK_EX | LOCK_NB) == 0)
			return true;
		(void)nanosleep(&moment, NULL);
	}
	errno = EWOULDBLOCK;
	return false;
}

enum name_leads name_leads(int directory, const char *name, int flags, dev_t device, ino_t inode)
{
	struct stat named;

	if (fstatat(directory, name, &named, flags) != 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? NAME_LEADS_ELSEWHERE
		                                                             : NAME_LEADS_UNKNOWN;
	return named.st_dev == device && named.st_ino == inode ? NAME_LEADS_THERE : NAME_LEADS_ELSEWHERE;
}

bool lock_stands(int lock, int directory, const char *name)
{
	struct stat held;

	return fstat(lock, &held) == 0 &&
	        name_leads(directory, name, AT_SYMLINK_NOFOLLOW, held.st_dev, held.st_ino) ==
	        NAME_LEADS_THERE;
}

int lock_take(int directory, const char *name, int flags, uint32_t *holder)
{
	*holder = 0;
	for (int tries = 0; tries < REMOVED_TRIES; tries++) {
		int lock = openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		int failure;
		bool taken;

		if (lock < 0)
			return -1;
		taken = flock(lock, LOCK_EX | LOCK_NB) == 0;
		if (!taken && errno == EWOULDBLOCK) {
			*holder = read_holder(lock);
			taken = lock_inherit(lock, *holder);
		}
		if (taken && lock_stands(lock, directory, name))
			return lock;
		failure = errno;
		(void)close(lock);
		if (taken)
			continue;
		errno = failure;
		return -1;
	}
	errno = ESTALE; /* a file system that knows its files by changing numbers */
	return -1;
}

void lock_sign(int lock)
{
	char number[32];
	int length = snprintf(number, sizeof(number), "%ld\n", (long)getpid());

	if (ftruncate(lock, 0) != 0 || pwrite(lock, number, (size_t)length, 0) < 0)
		return; /* it only names the holder; a full disk must not keep a daemon from answering */
}

void lock_remove(int lock, int directory, const char *name)
{
	(void)unlinkat(directory, name, 0);
	(void)close(lock);
}
