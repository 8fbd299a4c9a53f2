#include "daemon/host/priority.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <linux/sched/types.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	WANTED = -10,
	NICE_ZERO = 20, /* RLIMIT_NICE counts from the other end */
	RESET_ON_FORK = 1,
};

static int renice(int nice)
{
	struct sched_attr attributes = {
	        .size = sizeof(attributes),
	        .sched_policy = SCHED_NORMAL,
	        .sched_flags = RESET_ON_FORK,
	        .sched_nice = nice,
	};

	return (int)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Where the kernel makes a group of each session, nice values count inside of it only, and the runners have sessions of
 * their own. A session that is shared with others is none of ours to raise. */
static void raise_session(int nice)
{
	char text[16];
	int descriptor;

	if (getsid(0) != getpid())
		return;
	descriptor = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (descriptor < 0)
		return;
	(void)snprintf(text, sizeof(text), "%d", nice);
	(void)!write(descriptor, text, strlen(text));
	(void)close(descriptor);
}

int priority_raise(void)
{
	struct rlimit limit;
	int nice = WANTED;

	if (getpriority(PRIO_PROCESS, 0) != 0)
		return getpriority(PRIO_PROCESS, 0);
	if (renice(nice) != 0) {
		if (getrlimit(RLIMIT_NICE, &limit) != 0 || limit.rlim_cur <= NICE_ZERO)
			return 0;
		nice = limit.rlim_cur < NICE_ZERO - WANTED ? NICE_ZERO - (int)limit.rlim_cur : WANTED;
		if (renice(nice) != 0)
			return 0;
	}
	raise_session(nice);
	return nice;
}
