#include "daemon/host/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/flytune-lock.XXXXXX";

/* A process that takes the lock, leaves its descriptor to a child that lives on, and is gone. Gives the child. */
static pid_t leave_lock(const char *name)
{
	int way[2];
	pid_t holder, child = 0;

	assert_int_equal(pipe(way), 0);
	holder = fork();
	if (holder == 0) {
		uint32_t other;
		int lock = lock_take(AT_FDCWD, name, O_RDWR | O_CREAT, &other);

		lock_sign(lock);
		child = fork();
		if (child == 0) {
			(void)close(way[0]);
			(void)close(way[1]);
			for (;;)
				(void)pause();
		}
		_exit(lock < 0 || write(way[1], &child, sizeof(child)) != sizeof(child));
	}
	assert_int_equal(read(way[0], &child, sizeof(child)), sizeof(child));
	(void)close(way[0]);
	(void)close(way[1]);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	return child;
}

static bool has_open(pid_t process, const char *name)
{
	for (int fd = 3; fd < 64; fd++) {
		char link[64], path[256];
		ssize_t length;

		(void)snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)process, fd);
		length = readlink(link, path, sizeof(path) - 1);
		path[length > 0 ? length : 0] = '\0';
		if (strcmp(path, name) == 0)
			return true;
	}
	return false;
}

/* The child ends only when this process has the file open, and so is about to meet the lock. */
static void a_lock_that_a_dead_holder_left_to_its_child_is_waited_for(void **state)
{
	char name[64];
	uint32_t holder;
	pid_t child, tester = getpid(), ender;
	int lock;

	(void)state;
	(void)snprintf(name, sizeof(name), "%s/left", folder);
	child = leave_lock(name);
	ender = fork();
	if (ender == 0) {
		const struct timespec moment = {.tv_nsec = 1000000};

		while (!has_open(tester, name) && getppid() == tester)
			(void)nanosleep(&moment, NULL);
		_exit(kill(child, SIGKILL) != 0);
	}
	lock = lock_take(AT_FDCWD, name, O_RDWR | O_CREAT, &holder);
	assert_true(lock >= 0);
	assert_int_equal(waitpid(ender, NULL, 0), ender);
	lock_remove(lock, AT_FDCWD, name);
}

static void a_lock_of_one_who_lives_is_refused_at_once(void **state)
{
	char name[64];
	uint32_t holder;
	int lock;

	(void)state;
	(void)snprintf(name, sizeof(name), "%s/held", folder);
	lock = lock_take(AT_FDCWD, name, O_RDWR | O_CREAT, &holder);
	assert_true(lock >= 0);
	lock_sign(lock);
	assert_int_equal(lock_take(AT_FDCWD, name, O_RDWR | O_CREAT, &holder), -1);
	assert_int_equal(errno, EWOULDBLOCK);
	assert_int_equal(holder, getpid());
	lock_remove(lock, AT_FDCWD, name);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_lock_that_a_dead_holder_left_to_its_child_is_waited_for),
	        cmocka_unit_test(a_lock_of_one_who_lives_is_refused_at_once),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
