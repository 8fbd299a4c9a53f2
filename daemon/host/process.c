#include "daemon/host/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

const int process_signals[PROCESS_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

void process_hold_signals(bool hold)
{
	sigset_t held;

	(void)sigemptyset(&held);
	for (size_t i = 0; i < PROCESS_SIGNALS; i++)
		(void)sigaddset(&held, process_signals[i]);
	(void)pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &held, NULL);
}

void process_raise_descriptors(struct rlimit *given)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	*given = limit;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int process_open_standard(void)
{
	int descriptor;

	do {
		descriptor = open("/dev/null", O_RDWR);
	} while (descriptor >= 0 && descriptor <= STDERR_FILENO);
	if (descriptor < 0)
		return -1;
	(void)close(descriptor);
	return 0;
}

void process_reset_signals(void)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGCHLD, SIG_DFL);
}

static void (*volatile fault_marks)(int number);

/* Dies of the signal as if there were no handler. */
static void faulted(int number)
{
	static const char line[] = "flytuned: fatal signal; the store is checked at the next start\n";

	struct pollfd place = {.fd = STDERR_FILENO, .events = POLLOUT};

	fault_marks(number);
	/* Not where it would have to wait. */
	if (poll(&place, 1, 0) == 1)
		(void)!write(STDERR_FILENO, line, sizeof(line) - 1);
	(void)raise(number); /* the handler was reset when it was entered */
}

void process_watch_faults(void (*mark)(int number))
{
	static const int numbers[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT};
	struct sigaction action = {.sa_handler = faulted, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
	struct sigaction before;

	fault_marks = mark;
	(void)sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		/* A sanitizer's own handler says more. */
		if (sigaction(numbers[i], NULL, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 &&
		        before.sa_handler == SIG_DFL)
			(void)sigaction(numbers[i], &action, NULL);
	}
}
