/* Preloaded into a daemon. LIVES_SIGNAL: the number of a signal that comes between two of its lives. LIVES_STOPS: its first
 * child stops before it does anything. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

typedef int close_call(void *loop);
typedef pid_t fork_call(void);

int uv_loop_close(void *loop);
int uv_loop_close(void *loop)
{
	union {
		void *object;
		close_call *call;
	} real = {.object = dlsym(RTLD_NEXT, "uv_loop_close")};
	const char *number = getenv("LIVES_SIGNAL");

	if (number != NULL)
		(void)kill(getpid(), (int)strtol(number, NULL, 10));
	return real.call(loop);
}

pid_t fork(void)
{
	union {
		void *object;
		fork_call *call;
	} real = {.object = dlsym(RTLD_NEXT, "fork")};
	pid_t child = real.call();

	if (child == 0 && getenv("LIVES_STOPS") != NULL)
		(void)raise(SIGSTOP);
	(void)unsetenv("LIVES_STOPS");
	return child;
}
