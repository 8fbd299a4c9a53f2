/* flytunectl kernel try: a kernel is tuned where its folder lies, by a daemon that is started for that alone.
 *
 * All that it has is in a folder of its own, in one of this user's that is locked: attempts of one user take turns. This process
 * waits for a child that tunes, or for a signal, then ends the daemon and takes the folder away. If it is killed itself, child and
 * daemon die with it, and the next attempt takes away what is left. */
#include "client/ctl/commands/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/arguments.h"
#include "client/ctl/commands/tune.h"
#include "client/ctl/output/output.h"

enum {
	PLACE_SIZE = 100, /* leaves room for a socket's name */
	PATH_SIZE = 256,
	LISTENER = 3, /* as the daemon takes it over */
	ARGUMENTS_MAX = 24,
	OPEN_FILES = 16,    /* while a folder is removed */
	END_S = 10,         /* that the daemon has to end */
	ANSWER_MS = 600000, /* that it has to begin: it may have to wait for a device */
};

struct attempt {
	struct ctl *ctl;
	const struct ft_folder *folder;
	const char *device; /* NULL: any that there is a source for */
	char base[PLACE_SIZE], place[PLACE_SIZE];
	int lock;     /* of base */
	int listener; /* until the daemon has it */
	pid_t self, daemon, child;
	sigset_t before, watched;
};

static const char *const kinds[] = {"cpu", "cuda", "hip"};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* What problems are read for: `kernel` itself has other words. */
static const struct command command_try = {.name = "kernel try",
        .words = "DIR --FIELD VALUE[,VALUE]... [OPTION]...",
        .options = "device budget"};

static const char *inside(const struct attempt *attempt, const char *name, char path[PATH_SIZE])
{
	snprintf(path, PATH_SIZE, "%s/%s", attempt->place, name);
	return path;
}

/* ---- its folder ---- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about;
	(void)kind;
	/* The base itself goes last, by whoever holds its lock. */
	if (at->level > 0)
		(void)remove(path);
	return 0;
}

static bool is_own(const struct attempt *attempt)
{
	struct stat open_one, named;

	return fstat(attempt->lock, &open_one) == 0 && lstat(attempt->base, &named) == 0 &&
	        open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

static enum ctl_exit open_base(struct attempt *attempt)
{
	struct stat about;

	if (mkdir(attempt->base, 0700) != 0 && errno != EEXIST)
		return ctl_refused("cannot make the folder %s: %s", attempt->base, strerror(errno));
	attempt->lock = open(attempt->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (attempt->lock < 0)
		return errno == ENOENT
		        ? CTL_DONE
		        : ctl_refused("cannot open the folder %s: %s", attempt->base, strerror(errno));
	if (fstat(attempt->lock, &about) == 0 && about.st_uid == geteuid() && (about.st_mode & 077) == 0)
		return CTL_DONE;
	return ctl_refused("the folder %s must be this user's, and nobody else's to enter", attempt->base);
}

/* Whoever had it before may have taken it away meanwhile. */
static enum ctl_exit take_turn(struct attempt *attempt)
{
	const char *where = secure_getenv("TMPDIR");
	enum ctl_exit status;

	if (where == NULL || where[0] != '/' || strlen(where) > PLACE_SIZE - 40)
		where = "/tmp";
	snprintf(attempt->base, sizeof attempt->base, "%.60s/flytune-try-%u", where, (unsigned)geteuid());
	for (;;) {
		status = open_base(attempt);
		if (status != CTL_DONE)
			return status;
		if (attempt->lock < 0)
			continue;
		if (flock(attempt->lock, LOCK_EX | LOCK_NB) != 0) {
			fputs("flytunectl: waits for another `kernel try` of this user to end\n", stderr);
			if (flock(attempt->lock, LOCK_EX) != 0)
				return ctl_refused(
				        "cannot lock the folder %s: %s", attempt->base, strerror(errno));
		}
		if (is_own(attempt))
			break;
		close(attempt->lock);
	}
	/* Of one that was killed. */
	(void)nftw(attempt->base, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
	return CTL_DONE;
}

static void take_away(struct attempt *attempt)
{
	if (attempt->lock < 0)
		return;
	(void)nftw(attempt->base, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
	(void)rmdir(attempt->base);
	close(attempt->lock);
}

/* As it was when it was checked, under the name that a daemon knows it by. */
static bool copy_folder(const struct attempt *attempt)
{
	const char *name = ft_folder_kernel(attempt->folder)->name;
	char path[PATH_SIZE], kernel[PATH_SIZE];

	snprintf(kernel, sizeof kernel, "%s/kernels/%s", attempt->place, name);
	return mkdir(inside(attempt, "kernels", path), 0700) == 0 && mkdir(kernel, 0700) == 0 &&
	        ft_folder_write(attempt->folder, kernel, NULL) == 0;
}

static bool listen_inside(struct attempt *attempt)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char path[PATH_SIZE];

	snprintf(address.sun_path, sizeof address.sun_path, "%.100s", inside(attempt, "sock", path));
	attempt->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return attempt->listener >= 0 &&
	        bind(attempt->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
	        listen(attempt->listener, SOMAXCONN) == 0;
}

static enum ctl_exit make_place(struct attempt *attempt)
{
	const char *what = "a folder for the attempt";

	snprintf(attempt->place, sizeof attempt->place, "%.80s/XXXXXX", attempt->base);
	if (mkdtemp(attempt->place) != NULL) {
		what = "a copy of the kernel";
		if (copy_folder(attempt)) {
			what = "a socket";
			if (listen_inside(attempt))
				return CTL_DONE;
		}
	}
	return ctl_refused("cannot make %s in %s: %s", what, attempt->base, strerror(errno));
}

/* ---- the daemon ---- */

/* Beside this program where both are installed, in the next folder in a build tree. */
static enum ctl_exit find_daemon(char path[PATH_MAX])
{
	static const char *const places[] = {"flytuned", "../daemon/flytuned"};
	char self[PATH_MAX - 32];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	self[length > 0 ? length : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash != NULL)
		*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(path, PATH_MAX, "%s/%s", self, places[i]);
		if (slash != NULL && access(path, X_OK) == 0)
			return CTL_DONE;
	}
	return ctl_refused("there is no flytuned beside flytunectl, in %s", self);
}

static bool is_kind(const char *device, const char *kind)
{
	const size_t length = strlen(kind);

	return strncmp(device, kind, length) == 0 && (device[length] == ':' || device[length] == '\0');
}

/* No other is asked than those that the folder has a source for, and of these only the one that is wanted. */
static size_t add_devices(const struct attempt *attempt, const char **argument)
{
	bool named = false;
	size_t count = 0;

	for (int i = 0; i < KINDS && attempt->device != NULL; i++)
		named = named || is_kind(attempt->device, kinds[i]);
	for (int i = 0; i < KINDS; i++) {
		if (ft_folder_source(attempt->folder, kinds[i]) == NULL ||
		        (named && !is_kind(attempt->device, kinds[i])))
			continue;
		argument[count++] = "--device";
		argument[count++] = kinds[i];
	}
	return count;
}

static enum ctl_exit check_device(const struct attempt *attempt)
{
	struct flytune_error error = {.code = FLYTUNE_E_UNKNOWN_DEVICE, .field = "device"};
	const char *unused[2 * KINDS];
	size_t length = 0;

	if (add_devices(attempt, unused) > 0)
		return CTL_DONE;
	for (int i = 0; i < KINDS; i++) {
		if (ft_folder_source(attempt->folder, kinds[i]) != NULL)
			length += (size_t)snprintf(error.bound + length, sizeof error.bound - length, "%s%s",
			        length > 0 ? ", " : "", kinds[i]);
	}
	snprintf(error.word, sizeof error.word, "%s", flytune_result_word(error.code));
	snprintf(error.value, sizeof error.value, "%s", attempt->device);
	snprintf(error.message, sizeof error.message,
	        "device is %.40s; it must be of a kind that the folder has a source for: %s", attempt->device,
	        error.bound);
	return ctl_fail(attempt->ctl, &error);
}

/* Between fork and the end of a child: it dies when this process does. */
static void become_child(const struct attempt *attempt)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != attempt->self)
		_exit(CTL_FAILED);
	(void)sigprocmask(SIG_SETMASK, &attempt->before, NULL);
}

static void run_daemon(const struct attempt *attempt, const char *program)
{
	char socket[PATH_SIZE], state[PATH_SIZE], kernels[PATH_SIZE], log[PATH_SIZE], number[16];
	const char *argument[ARGUMENTS_MAX] = {program, "--config", "/dev/null", "--socket",
	        inside(attempt, "sock", socket), "--state-dir", inside(attempt, "state", state), "--kernels",
	        inside(attempt, "kernels", kernels), "--background", "off", "--log-level", "warning"};
	size_t count = 13;
	int nothing, to;

	become_child(attempt);
	(void)setpgid(0, 0); /* ^C is for this program, which ends it */
	nothing = open("/dev/null", O_RDONLY);
	to = open(inside(attempt, "log", log), O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (nothing < 0 || to < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0 ||
	        dup2(to, STDERR_FILENO) < 0)
		_exit(CTL_FAILED);
	/* One that has that number already is not duplicated. */
	if (attempt->listener == LISTENER ? fcntl(LISTENER, F_SETFD, 0) != 0
	                                  : dup2(attempt->listener, LISTENER) < 0)
		_exit(CTL_FAILED);
	for (int other = LISTENER + 1; other <= nothing || other <= to; other++)
		(void)close(other);
	count += add_devices(attempt, argument + count);
	argument[count] = NULL;
	snprintf(number, sizeof number, "%d", (int)getpid());
	(void)setenv("LISTEN_PID", number, 1);
	(void)setenv("LISTEN_FDS", "1", 1);
	(void)setenv(
	        "TMPDIR", attempt->place, 1); /* where compilers work: what they leave goes with the rest */
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	execv(program, (char **)(uintptr_t)argument);
	fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
	_exit(CTL_FAILED);
}

static void end_daemon(const struct attempt *attempt)
{
	const struct timespec patience = {.tv_sec = END_S};

	(void)kill(attempt->daemon, SIGTERM);
	while (waitpid(attempt->daemon, NULL, WNOHANG) == 0) {
		if (sigtimedwait(&attempt->watched, NULL, &patience) == SIGCHLD)
			continue;
		/* It does not end, or there is a second ^C. */
		(void)kill(attempt->daemon, SIGKILL);
		(void)waitpid(attempt->daemon, NULL, 0);
		return;
	}
}

/* Why it is away. */
static void tell_log(const struct attempt *attempt)
{
	char path[PATH_SIZE], line[512];
	FILE *log = fopen(inside(attempt, "log", path), "re");

	while (log != NULL && fgets(line, sizeof line, log) != NULL)
		fprintf(stderr, "flytuned: %s", line);
	if (log != NULL)
		(void)fclose(log);
}

/* ---- tuning ---- */

static enum ctl_exit tune(const struct attempt *attempt, const struct problems *problems, int64_t budget_s)
{
	struct flytune_tune_options options;
	struct flytune_options reach;
	struct flytune_error error;
	struct ctl ctl = *attempt->ctl;
	char socket[PATH_SIZE];
	enum ctl_exit status;

	/* Nothing of the environment's is meant for it. */
	ctl.socket = inside(attempt, "sock", socket);
	ctl.generation = "";
	ctl_client_options(&ctl, &reach);
	reach.call_timeout_ms = ANSWER_MS;
	ctl.client = flytune_open(&reach, &error);
	if (ctl.client == NULL)
		return ctl_fail(&ctl, &error);
	flytune_tune_options_init(&options);
	options.device = attempt->device;
	options.budget_ms = budget_s * 1000;
	status = tune_problems(&ctl, problems, &options, true, true);
	if (!ctl.json && status == CTL_DONE)
		puts("\nNothing of this is kept: it is served once the folder is installed.");
	flytune_close(ctl.client);
	return status;
}

/* What ^C and the like do is done here, once for all: those that whoever started this ignores stay ignored. */
static void watch_signals(struct attempt *attempt)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
	struct sigaction action;

	(void)signal(SIGCHLD, SIG_DFL);
	(void)sigemptyset(&attempt->watched);
	(void)sigaddset(&attempt->watched, SIGCHLD);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			(void)sigaddset(&attempt->watched, numbers[i]);
	}
	(void)sigprocmask(SIG_BLOCK, &attempt->watched, &attempt->before);
}

/* Until the child has ended; gives how, and the signal that this process got meanwhile, else 0. */
static int await_child(const struct attempt *attempt, int *signalled)
{
	int how = 0;

	*signalled = 0;
	while (waitpid(attempt->child, &how, WNOHANG) == 0) {
		int number = sigwaitinfo(&attempt->watched, NULL);

		if (number <= 0 || number == SIGCHLD)
			continue;
		*signalled = number;
		(void)kill(attempt->child, number);
		(void)kill(attempt->child, SIGCONT);
	}
	return how;
}

static enum ctl_exit run(struct attempt *attempt, const char *program, const struct problems *problems,
        int64_t budget_s, int *signalled)
{
	enum ctl_exit status;
	int how;

	attempt->self = getpid();
	attempt->daemon = fork();
	if (attempt->daemon == 0)
		run_daemon(attempt, program);
	close(attempt->listener);
	if (attempt->daemon < 0)
		return ctl_refused("cannot start %s: %s", program, strerror(errno));
	(void)output_flush();
	attempt->child = fork();
	if (attempt->child == 0) {
		become_child(attempt);
		status = tune(attempt, problems, budget_s);
		_exit((int)(output_end() || status != CTL_DONE ? status : CTL_FAILED));
	}
	if (attempt->child < 0) {
		status = ctl_refused("cannot start a process: %s", strerror(errno));
	} else {
		how = await_child(attempt, signalled);
		status = WIFEXITED(how) ? (enum ctl_exit)WEXITSTATUS(how) : CTL_FAILED;
		if (!WIFEXITED(how) && *signalled == 0)
			status = ctl_refused("what tuned was ended by signal %d", WTERMSIG(how));
	}
	end_daemon(attempt);
	if (status == CTL_AWAY && *signalled == 0)
		tell_log(attempt);
	return status;
}

static enum ctl_exit begin(struct attempt *attempt, const struct problems *problems, int64_t budget_s)
{
	char program[PATH_MAX];
	int signalled = 0;
	enum ctl_exit status = find_daemon(program);

	if (status == CTL_DONE)
		status = take_turn(attempt);
	if (status == CTL_DONE) {
		watch_signals(attempt);
		status = make_place(attempt);
		if (status == CTL_DONE)
			status = run(attempt, program, problems, budget_s, &signalled);
		take_away(attempt);
		(void)sigprocmask(SIG_SETMASK, &attempt->before, NULL);
		if (signalled != 0)
			(void)raise(signalled);
	}
	return status;
}

enum ctl_exit kernel_try(struct ctl *ctl, int count, char **words)
{
	struct attempt attempt = {.ctl = ctl, .lock = -1, .listener = -1};
	int64_t budget_s = 0;
	struct own_options own = {.device = &attempt.device, .budget_s = &budget_s};
	struct problems problems = {0};
	struct report *report = report_make(words[0]);
	enum ctl_exit status;

	if (report == NULL)
		return ctl_short();
	if (report->level[FINDING_ERROR] > 0) {
		status = report_tell(ctl, report);
		report_free(report);
		return status;
	}
	attempt.folder = report->folder;
	own.kernel = ft_folder_kernel(report->folder);
	status = problems_read(ctl, &command_try, count - 1, words + 1, &own, true, &problems);
	if (status == CTL_DONE)
		status = check_device(&attempt);
	if (status == CTL_DONE)
		status = begin(&attempt, &problems, budget_s);
	problems_free(&problems);
	report_free(report);
	return status;
}
