#include "kernels/runner/host_lock.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bytes of the file. */
enum { WORK_WAITS, GATE, ROOM };

static bool set(const struct ft_host_lock *lock, short type, off_t byte)
{
	struct flock flock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(lock->descriptor, F_OFD_SETLK, &flock) == 0;
}

static void go(struct ft_host_lock *lock, enum ft_host_lock_state state)
{
	assert(ft_host_lock_may_go(lock->state, state));
	lock->state = state;
}

void ft_host_lock_open(struct ft_host_lock *lock, const char *folder)
{
	char path[512];
	int length = snprintf(path, sizeof(path), "%s/.host-lock", folder ? folder : "");

	*lock = (struct ft_host_lock){.descriptor = -1};
	if (folder && folder[0] && length < (int)sizeof(path))
		lock->descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
}

bool ft_host_lock_try(struct ft_host_lock *lock, enum ft_host_use use)
{
	const bool alone = use == FT_HOST_TIMED;

	if (lock->descriptor < 0 || use == FT_HOST_UNUSED)
		return true;
	if (lock->state == FT_HOST_LOCK_OUT) {
		if (!set(lock, alone ? F_WRLCK : F_RDLCK, WORK_WAITS))
			return false;
		if (alone) /* no work waits at this moment: what comes now waits at the gate */
			(void)set(lock, F_UNLCK, WORK_WAITS);
		go(lock, FT_HOST_LOCK_ASKS);
	}
	if (lock->state == FT_HOST_LOCK_ASKS) {
		if (!set(lock, F_WRLCK, GATE))
			return false;
		go(lock, FT_HOST_LOCK_NEXT);
	}
	if (lock->state == FT_HOST_LOCK_NEXT) {
		if (!set(lock, alone ? F_WRLCK : F_RDLCK, ROOM))
			return false;
		(void)set(lock, F_UNLCK, GATE);
		(void)set(lock, F_UNLCK, WORK_WAITS);
		go(lock, FT_HOST_LOCK_IN);
	}
	return true;
}

void ft_host_lock_leave(struct ft_host_lock *lock)
{
	if (lock->descriptor < 0 || lock->state == FT_HOST_LOCK_OUT)
		return;
	for (int byte = WORK_WAITS; byte <= ROOM; byte++)
		(void)set(lock, F_UNLCK, byte);
	go(lock, FT_HOST_LOCK_OUT);
}

void ft_host_lock_close(struct ft_host_lock *lock)
{
	if (lock->descriptor >= 0)
		close(lock->descriptor);
	lock->descriptor = -1;
}
