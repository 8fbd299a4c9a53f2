#include "kernels/runner/cpu/cc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/runner/backend.h"
#include "proto/clock.h"

enum { WORDS_MAX = 1 << 16 /* bytes of what a compiler says that are looked at */ };

struct work {
	struct work *next;
	size_t tag;
	char *argument[CC_ARGUMENTS_MAX + 2]; /* the program first, NULL last */
	char where[];
};

struct process {
	pid_t pid; /* 0: none */
	int handle;
	int words; /* what it says */
	uint64_t began_ns;
	struct work *work;
};

struct cc {
	unsigned processes;
	struct process process[CC_PROCESSES_MAX];
	struct work *first, **last;
};

struct cc *cc_new(unsigned processes)
{
	struct cc *cc = calloc(1, sizeof(*cc));
	if (!cc)
		return NULL;
	cc->processes = processes < 1 ? 1 : processes < CC_PROCESSES_MAX ? processes : CC_PROCESSES_MAX;
	cc->last = &cc->first;
	return cc;
}

static void free_work(struct work *work)
{
	for (size_t i = 0; work && work->argument[i]; i++)
		free(work->argument[i]);
	free(work);
}

/* ---- one process ---- */

/* Between fork and exec: nothing but what is safe there. */
static void become_compiler(const struct work *work, int words, pid_t parent, char *const *environment)
{
	sigset_t none;
	int nothing = open("/dev/null", O_RDONLY);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || nothing < 0 ||
	        dup2(nothing, STDIN_FILENO) < 0 || dup2(words, STDOUT_FILENO) < 0 ||
	        dup2(words, STDERR_FILENO) < 0 || chdir(work->where) < 0)
		_exit(127);
	/* Its own processes end with it: they lead a group of theirs. */
	(void)setpgid(0, 0);
	syscall(SYS_close_range, 3, ~0u, 0);
	execvpe(work->argument[0], work->argument, environment);
	_exit(errno == ENOENT ? 126 : 127);
}

static const char *search_path(void)
{
	const char *known = secure_getenv("PATH");
	return known ? known : "/usr/local/bin:/usr/bin:/bin";
}

static int start(struct process *process, struct work *work, struct ft_error *error)
{
	char path[4096], folder[4096], home[4096], locale[] = "LC_ALL=C", uncached[] = "CCACHE_DISABLE=1";
	char *environment[] = {path, locale, uncached, NULL, NULL, NULL};
	const char *temporary = secure_getenv("TMPDIR");
	const pid_t parent = getpid();
	snprintf(path, sizeof(path), "PATH=%s", search_path());
	if (temporary) {
		snprintf(folder, sizeof(folder), "TMPDIR=%s", temporary);
		environment[3] = folder;
		/* A compiler that is behind a cache looks for a home, though it is to keep nothing there, and the user's may be
		 * out of its reach. */
		snprintf(home, sizeof(home), "HOME=%s", temporary);
		environment[4] = home;
	}
	int words = memfd_create("words of a compiler", MFD_CLOEXEC);
	if (words < 0)
		return ft_fail_errno(error, errno, "cannot keep what a compiler says");
	pid_t pid = fork();
	if (pid == 0)
		become_compiler(work, words, parent, environment);
	int handle = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (handle < 0) {
		ft_fail_errno(error, errno, "cannot start a compiler");
		if (pid > 0) {
			kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
		}
		close(words);
		return -1;
	}
	*process = (struct process){
	        .pid = pid, .handle = handle, .words = words, .began_ns = ft_monotonic_ns(), .work = work};
	return 0;
}

static int reap(struct process *process)
{
	int status = 0;
	while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(process->handle);
	return status;
}

/* The first line that names an error, else the first. */
static void say_words(const char *words, int status, struct ft_error *error)
{
	const char *line = strstr(words, "error:");
	if (!line)
		line = strstr(words, "Error:"); /* the assembler's */
	while (line && line > words && line[-1] != '\n')
		line--;
	if (!line)
		line = words;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
		ft_fail(error, FT_E_UNAVAILABLE, "there is no C compiler: no cc in PATH");
	else if (WIFSIGNALED(status))
		ft_fail(error, FT_E_UNAVAILABLE, "the C compiler was ended by signal %d", WTERMSIG(status));
	else
		ft_fail(error, FT_E_UNAVAILABLE, "it does not compile: %.*s", (int)strcspn(line, "\n"),
		        line[0] ? line : "the compiler does not say why");
}

/* What one said that is dead, and its end. */
static void finish(struct process *process, struct cc_done *done)
{
	const int status = reap(process);
	char *words = malloc(WORDS_MAX);
	ssize_t got = words ? pread(process->words, words, WORDS_MAX - 1, 0) : -1;
	*done = (struct cc_done){
	        .tag = process->work->tag, .build_ns = ft_monotonic_ns() - process->began_ns};
	done->failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	if (words)
		words[got > 0 ? got : 0] = '\0';
	if (done->failed)
		say_words(words ? words : "", status, &done->error);
	free(words);
	close(process->words);
	free_work(process->work);
	*process = (struct process){0};
}

/* ---- all of them ---- */

void cc_drop(struct cc *cc)
{
	for (unsigned i = 0; i < cc->processes; i++) {
		struct process *process = &cc->process[i];
		if (process->pid == 0)
			continue;
		(void)kill(-process->pid, SIGKILL);
		(void)kill(process->pid, SIGKILL);
		(void)reap(process);
		close(process->words);
		free_work(process->work);
		*process = (struct process){0};
	}
	while (cc->first) {
		struct work *next = cc->first->next;
		free_work(cc->first);
		cc->first = next;
	}
	cc->last = &cc->first;
}

void cc_free(struct cc *cc)
{
	if (cc)
		cc_drop(cc);
	free(cc);
}

int cc_submit(struct cc *cc, size_t tag, const char *where, const char *const *argument, size_t arguments,
        struct ft_error *error)
{
	if (arguments > CC_ARGUMENTS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "%zu arguments for a compiler, at most %d", arguments,
		        CC_ARGUMENTS_MAX);
	struct work *work = calloc(1, sizeof(*work) + strlen(where) + 1);
	bool missing = !work;
	for (size_t i = 0; work && i <= arguments && !missing; i++) {
		work->argument[i] = strdup(i == 0 ? "cc" : argument[i - 1]);
		missing = !work->argument[i];
	}
	if (missing) {
		free_work(work);
		return ft_fail(error, FT_E_MEMORY, "no memory for a compiler's arguments");
	}
	memcpy(work->where, where, strlen(where) + 1);
	work->tag = tag;
	*cc->last = work;
	cc->last = &work->next;
	return 0;
}

/* Fails only if nothing is being done and nothing can be started. */
static int start_some(struct cc *cc, struct ft_error *error)
{
	bool any = false;
	for (unsigned i = 0; i < cc->processes; i++)
		any = any || cc->process[i].pid != 0;
	for (unsigned i = 0; i < cc->processes && cc->first; i++) {
		struct work *work = cc->first;
		if (cc->process[i].pid != 0)
			continue;
		if (start(&cc->process[i], work, error) < 0)
			return any ? 0 : -1;
		cc->first = work->next;
		if (!cc->first)
			cc->last = &cc->first;
		any = true;
	}
	return 0;
}

/* As poll() does, until a time that is monotonic. */
static int poll_until(struct pollfd *wait, unsigned count, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = ft_monotonic_ns();
		uint64_t left_ms = until_ns > now ? (until_ns - now) / 1000000 + 1 : 0;
		int got = poll(wait, count, until_ns == 0 ? -1 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);
		if (got >= 0 || errno != EINTR)
			return got;
	}
}

int cc_wait(struct cc *cc, uint64_t until_ns, struct cc_done *done, struct ft_error *error)
{
	struct pollfd wait[CC_PROCESSES_MAX];
	struct process *of[CC_PROCESSES_MAX];
	unsigned waiting = 0;
	if (start_some(cc, error) < 0)
		return -1;
	for (unsigned i = 0; i < cc->processes; i++) {
		if (cc->process[i].pid == 0)
			continue;
		of[waiting] = &cc->process[i];
		wait[waiting++] = (struct pollfd){.fd = cc->process[i].handle, .events = POLLIN};
	}
	if (waiting == 0)
		return 0;
	int got = poll_until(wait, waiting, until_ns);
	if (got < 0)
		return ft_fail_errno(error, errno, "cannot wait for the compilers");
	if (got == 0)
		return FT_BACKEND_ENDED;
	for (unsigned i = 0; i < waiting; i++) {
		if (wait[i].revents == 0)
			continue;
		finish(of[i], done);
		/* The next piece of work is under way while the caller looks at this one. */
		(void)start_some(cc, NULL);
		return 1;
	}
	return ft_fail(error, FT_E_SYSTEM, "poll reported nothing");
}

void cc_find(char *path, size_t size)
{
	char folders[4096], one[4096 + sizeof("/cc")], *rest = folders;
	path[0] = '\0';
	snprintf(folders, sizeof(folders), "%s", search_path());
	for (const char *folder; (folder = strsep(&rest, ":")) != NULL && path[0] == '\0';) {
		snprintf(one, sizeof(one), "%s/cc", folder);
		char *real = access(one, X_OK) == 0 ? realpath(one, NULL) : NULL;
		if (real)
			snprintf(path, size, "%s", real);
		free(real);
	}
}

int cc_version(char *text, size_t size, struct ft_error *error)
{
	const char *argument[] = {"--version"};
	struct process process = {0};
	struct cc_done done;
	struct cc *cc = cc_new(1);
	int code = cc ? cc_submit(cc, 0, "/", argument, 1, error) : ft_fail(error, FT_E_MEMORY, "no memory");
	text[0] = '\0';
	if (code == 0 && start(&process, cc->first, error) == 0) {
		cc->first = NULL; /* the process has it */
		cc->last = &cc->first;
		int words = dup(process.words);
		finish(&process, &done);
		ssize_t got = words < 0 ? -1 : pread(words, text, size - 1, 0);
		text[got > 0 ? got : 0] = '\0';
		text[strcspn(text, "\n")] = '\0';
		if (words >= 0)
			close(words);
		code = done.failed || text[0] == '\0' ? -1 : 0;
		if (code < 0 && error)
			*error = done.error;
	} else {
		code = -1;
	}
	cc_free(cc);
	return code;
}
