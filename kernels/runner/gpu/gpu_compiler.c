#include "kernels/runner/gpu/gpu_compiler.h"

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

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/runner/backend.h"
#include "kernels/runner/gpu/hip.h"
#include "kernels/runner/gpu/pipe_io.h"
#include "proto/clock.h"

enum {
	ANSWER_MAX = 64 << 20,
	WORDS_MAX = 1 << 16,     /* bytes of options */
	QUESTION_MAX = 32 << 20, /* of all texts */
	INCLUDES_MAX = 64,
	PIPE_BYTES = 1 << 20, /* a question that fits into its pipe is not waited for */
	MAGIC = 0x66740002,
	WORKERS_MAX = 16
};

/* Behind it come texts, each with its NUL: the options, the source's name and itself, then each include's name and itself. */
struct question {
	uint32_t magic;
	uint32_t options, includes;
	uint32_t size; /* of all texts */
};

struct answer {
	uint32_t magic;
	uint32_t failed;
	uint64_t code_size;
	uint64_t log_size; /* with its NUL */
	uint64_t build_ns;
};

struct work {
	struct work *next;
	void *tag;
	char target[64];
	const struct ft_gpu_source *source;
	struct question question;
	size_t options_size;
	char text[]; /* the options */
};

struct worker {
	pid_t pid; /* 0: not started */
	int to, from, words;
	struct work *busy;
};

struct gpu_pool {
	unsigned workers;
	struct worker worker[GPU_WORKERS_MAX];
	struct work *first, **last;
};

void gpu_clear_environment(void)
{
	static const char *const names[] = {"HIPRTC_COMPILE_OPTIONS_APPEND", "HIPRTC_LINK_OPTIONS_APPEND",
	        "AMD_COMGR_DRIVER_OPTIONS_APPEND", "AMD_COMGR_CACHE_DIR", "AMD_COMGR_SAVE_TEMPS",
	        "GPU_ENABLE_WGP_MODE", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS",
	        "CUDA_FORCE_PTX_JIT", "CUDA_CACHE_PATH"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unsetenv(names[i]);
	/* A cache behind the compiler's back would make build times false, and grow where nobody looks. */
	setenv("AMD_COMGR_CACHE", "0", 1);
	setenv("CUDA_CACHE_DISABLE", "1", 1);
	/* All of a program's code is loaded when it is first timed otherwise. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

/* ---- the helper process ---- */

static int reply(int descriptor, const struct answer *answer, const void *code, const char *log)
{
	return pipe_write_all(descriptor, answer, sizeof *answer) < 0 ||
	                (answer->code_size && pipe_write_all(descriptor, code, answer->code_size) < 0) ||
	                (answer->log_size && pipe_write_all(descriptor, log, answer->log_size) < 0)
	        ? -1
	        : 0;
}

/* The next of the texts; "" behind the last. */
static const char *next_text(const char **text, const char *end)
{
	const char *this = *text < end ? *text : "";

	*text += *text < end ? strlen(*text) + 1 : 0;
	return this;
}

static int compile(
        int descriptor, const struct hip_rtc *rtc, const struct question *question, const char *text)
{
	struct answer answer = {.magic = MAGIC, .failed = 1};
	const char *option[GPU_OPTIONS_MAX], *include_name[INCLUDES_MAX], *include[INCLUDES_MAX];
	const char *const end = text + question->size;
	hip_program program = NULL;
	uint64_t begin = ft_monotonic_ns();
	char *log = NULL, *code = NULL;
	hip_error failed;
	size_t size;
	int sent;

	for (uint32_t i = 0; i < question->options; i++)
		option[i] = next_text(&text, end);
	const char *name = next_text(&text, end), *source = next_text(&text, end);

	for (uint32_t i = 0; i < question->includes; i++) {
		include_name[i] = next_text(&text, end);
		include[i] = next_text(&text, end);
	}
	failed = rtc->CreateProgram(&program, source, name, (int)question->includes, include, include_name);
	if (!failed)
		failed = rtc->CompileProgram(program, (int)question->options, option);
	if (program && rtc->GetProgramLogSize(program, &size) == 0 && size > 0 && (log = malloc(size + 1))) {
		if (rtc->GetProgramLog(program, log))
			log[0] = '\0';
		log[size] = '\0';
	}
	if (!failed && !(failed = rtc->GetCodeSize(program, &size)) && (code = malloc(size + 1)) &&
	        !(failed = rtc->GetCode(program, code))) {
		answer.code_size = size;
		answer.failed = 0;
	} else if (!log || !log[0]) {
		free(log);
		log = strdup(failed ? rtc->GetErrorString(failed) : "out of memory");
	}
	answer.log_size = log ? strlen(log) + 1 : 0;
	answer.build_ns = ft_monotonic_ns() - begin;
	sent = reply(descriptor, &answer, code, log);
	if (program)
		rtc->DestroyProgram(&program);
	free(code);
	free(log);
	return sent;
}

int gpu_worker_main(void)
{
	struct question question;
	char *text = NULL;
	struct hip_rtc rtc;
	struct ft_error error;
	int out = dup(STDOUT_FILENO), ignored;
	bool loaded;

	/* What a compiler prints must not land among the answers. */
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return 1;
	gpu_clear_environment();
	loaded = hip_rtc_load(&rtc, &error) == 0;
	if (loaded && rtc.Wake)
		rtc.Wake(&ignored);
	while (pipe_read_all(STDIN_FILENO, &question, sizeof question) == 0) {
		free(text);
		if (question.magic != MAGIC || question.size > QUESTION_MAX ||
		        question.options > GPU_OPTIONS_MAX || question.includes > INCLUDES_MAX ||
		        !(text = calloc(1, (size_t)question.size + 1)) ||
		        pipe_read_all(STDIN_FILENO, text, question.size) < 0)
			return 1;
		if (!loaded) {
			struct answer answer = {
			        .magic = MAGIC, .failed = 1, .log_size = strlen(error.message) + 1};

			if (reply(out, &answer, NULL, error.message) < 0)
				return 1;
		} else if (compile(out, &rtc, &question, text) < 0) {
			return 1;
		}
	}
	return 0;
}

/* ---- the pool ---- */

int gpu_pool_open(struct gpu_pool **pool, unsigned workers, struct ft_error *error)
{
	struct ft_allowance allowance;

	if (!workers) {
		ft_allowance_read("", &allowance);
		workers = ft_allowance_units(&allowance) < WORKERS_MAX
		        ? (unsigned)ft_allowance_units(&allowance)
		        : WORKERS_MAX;
	}
	*pool = calloc(1, sizeof **pool);
	if (!*pool)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	(*pool)->workers = workers;
	(*pool)->last = &(*pool)->first;
	return 0;
}

static void end_worker(struct worker *worker, int *status)
{
	kill(worker->pid, SIGKILL);
	while (waitpid(worker->pid, status, 0) < 0 && errno == EINTR)
		;
	close(worker->to);
	close(worker->from);
	close(worker->words);
	free(worker->busy);
	memset(worker, 0, sizeof *worker);
}

void gpu_pool_drop(struct gpu_pool *pool)
{
	int status;

	for (unsigned i = 0; i < pool->workers; i++)
		if (pool->worker[i].busy)
			end_worker(&pool->worker[i], &status);
	while (pool->first) {
		struct work *next = pool->first->next;

		free(pool->first);
		pool->first = next;
	}
	pool->last = &pool->first;
}

void gpu_pool_close(struct gpu_pool *pool)
{
	int status;

	if (!pool)
		return;
	gpu_pool_drop(pool);
	for (unsigned i = 0; i < pool->workers; i++)
		if (pool->worker[i].pid)
			end_worker(&pool->worker[i], &status);
	free(pool);
}

/* Between fork and exec: nothing but what is safe there. */
static void become_worker(int in, int out, int words, pid_t parent)
{
	char word[] = GPU_WORKER_WORD, name[] = "flytune-runner";
	char *arguments[] = {name, word, NULL};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || dup2(in, STDIN_FILENO) < 0 ||
	        dup2(out, STDOUT_FILENO) < 0 || dup2(words, STDERR_FILENO) < 0)
		_exit(127);
	syscall(SYS_close_range, 3, ~0u, 0);
	execv("/proc/self/exe", arguments);
	_exit(127);
}

static int start_worker(struct worker *worker, struct ft_error *error)
{
	int to[2] = {-1, -1}, from[2] = {-1, -1}, words;
	pid_t parent = getpid(), pid;

	words = memfd_create("words of a compiler", MFD_CLOEXEC);
	if (words < 0 || pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) {
		ft_fail_errno(error, errno, "cannot make pipes for a helper process");
		goto failed;
	}
	pid = fork();
	if (pid == 0)
		become_worker(to[0], from[1], words, parent);
	if (pid < 0) {
		ft_fail_errno(error, errno, "cannot start a helper process");
		goto failed;
	}
	close(to[0]);
	close(from[1]);
	(void)fcntl(to[1], F_SETPIPE_SZ, PIPE_BYTES); /* as large as it may be, else as it is */
	*worker = (struct worker){.pid = pid, .to = to[1], .from = from[0], .words = words};
	return 0;
failed:
	for (int i = 0; i < 2; i++) {
		if (to[i] >= 0)
			close(to[i]);
		if (from[i] >= 0)
			close(from[i]);
	}
	if (words >= 0)
		close(words);
	return -1;
}

int gpu_pool_submit(struct gpu_pool *pool, void *tag, const struct ft_gpu_source *source, const char *target,
        const char *const *option, unsigned options, struct ft_error *error)
{
	size_t size = 0, all = strlen(source->name) + 1 + strlen(source->text) + 1;
	struct work *work;
	char *at;

	for (unsigned i = 0; i < options; i++)
		size += strlen(option[i]) + 1;
	for (uint32_t i = 0; i < source->include_count; i++)
		all += strlen(source->include_name[i]) + 1 + strlen(source->include[i]) + 1;
	if (options > GPU_OPTIONS_MAX || size > WORDS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "too many options for a compiler");
	if (source->include_count > INCLUDES_MAX || size + all > QUESTION_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "the sources are too large for a compiler");
	work = calloc(1, sizeof *work + size);
	if (!work)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	work->tag = tag;
	snprintf(work->target, sizeof work->target, "%s", target);
	work->source = source;
	work->options_size = size;
	work->question = (struct question){MAGIC, options, source->include_count, (uint32_t)(size + all)};
	at = work->text;
	for (unsigned i = 0; i < options; i++)
		at = stpcpy(at, option[i]) + 1;
	*pool->last = work;
	pool->last = &work->next;
	return 0;
}

static int send_text(int descriptor, const char *text)
{
	return pipe_write_all(descriptor, text, strlen(text) + 1);
}

static int ask(int descriptor, const struct work *work)
{
	const struct ft_gpu_source *source = work->source;

	if (pipe_write_all(descriptor, &work->question, sizeof work->question) < 0 ||
	        pipe_write_all(descriptor, work->text, work->options_size) < 0 ||
	        send_text(descriptor, source->name) < 0 || send_text(descriptor, source->text) < 0)
		return -1;
	for (uint32_t i = 0; i < source->include_count; i++)
		if (send_text(descriptor, source->include_name[i]) < 0 ||
		        send_text(descriptor, source->include[i]) < 0)
			return -1;
	return 0;
}

/* Gives every idle worker something to do. Fails only if nothing is being done and nothing can be started. */
static int hand_out(struct gpu_pool *pool, struct ft_error *error)
{
	bool any = false;

	for (unsigned i = 0; i < pool->workers; i++)
		any |= pool->worker[i].busy != NULL;
	for (unsigned i = 0; i < pool->workers && pool->first; i++) {
		struct worker *worker = &pool->worker[i];
		struct work *work = pool->first;

		if (worker->busy)
			continue;
		if (!worker->pid && start_worker(worker, error) < 0)
			return any ? 0 : -1;
		pool->first = work->next;
		if (!pool->first)
			pool->last = &pool->first;
		worker->busy = work;
		any = true;
		/* If it is dead by now, reading from it will say so. */
		(void)ask(worker->to, work);
	}
	return 0;
}

/* The last line that a dead process said, or how it died. */
static void explain(const struct worker *worker, int status, const char *target, struct ft_error *error)
{
	char words[512] = "", *line;
	off_t end = lseek(worker->words, 0, SEEK_END);
	off_t from = end > (off_t)sizeof words - 1 ? end - ((off_t)sizeof words - 1) : 0;
	ssize_t got = pread(worker->words, words, sizeof words - 1, from);

	words[got > 0 ? got : 0] = '\0';
	while ((line = strrchr(words, '\n')) && line[1] == '\0')
		*line = '\0';
	line = strrchr(words, '\n');
	line = line ? line + 1 : words;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
		ft_fail(error, FT_E_UNAVAILABLE,
		        "this compiler does not know %s, or gave up: it aborted%s%.120s", target,
		        line[0] ? ", saying: " : "", line);
	else if (WIFSIGNALED(status))
		ft_fail(error, FT_E_UNAVAILABLE, "the compiler was ended by signal %d%s%.120s",
		        WTERMSIG(status), line[0] ? ", saying: " : "", line);
	else
		ft_fail(error, FT_E_UNAVAILABLE, "the compiler's process ended with status %d%s%.120s",
		        WEXITSTATUS(status), line[0] ? ", saying: " : "", line);
}

static bool receive(const struct worker *worker, struct gpu_compiled *compiled)
{
	struct answer answer;

	if (pipe_read_all(worker->from, &answer, sizeof answer) < 0 || answer.magic != MAGIC ||
	        answer.code_size > ANSWER_MAX || answer.log_size > ANSWER_MAX)
		return false;
	compiled->data = malloc(answer.code_size + 1);
	compiled->log = calloc(1, answer.log_size + 1);
	if (!compiled->data || !compiled->log ||
	        pipe_read_all(worker->from, compiled->data, answer.code_size) < 0 ||
	        pipe_read_all(worker->from, compiled->log, answer.log_size) < 0)
		return false;
	compiled->size = answer.code_size;
	compiled->failed = answer.failed;
	compiled->build_ns = answer.build_ns;
	return true;
}

/* The first line of a log that tells of an error, else its first line. */
static void say_log(const char *log, struct ft_error *error)
{
	const char *line = strstr(log, "error");

	while (line && line > log && line[-1] != '\n')
		line--;
	if (!line)
		line = log;
	ft_fail(error, FT_E_UNAVAILABLE, "it does not compile: %.*s", (int)strcspn(line, "\n"), line);
}

/* Whether one of them has something to say by then; -1 is an error. */
static int wait_for_any(struct pollfd *wait, unsigned count, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = ft_monotonic_ns();
		uint64_t left_ms = until_ns > now ? (until_ns - now) / 1000000 + 1 : 0;
		int got = poll(wait, count, until_ns == 0 ? -1 : left_ms > INT_MAX ? INT_MAX : (int)left_ms);

		if (got >= 0 || errno != EINTR)
			return got;
	}
}

int gpu_pool_wait(
        struct gpu_pool *pool, uint64_t until_ns, struct gpu_compiled *compiled, struct ft_error *error)
{
	struct pollfd wait[GPU_WORKERS_MAX];
	struct worker *worker = NULL;
	unsigned waiting = 0;
	int status = 0, got;

	memset(compiled, 0, sizeof *compiled);
	if (hand_out(pool, error) < 0)
		return -1;
	for (unsigned i = 0; i < pool->workers; i++)
		if (pool->worker[i].busy)
			wait[waiting++] = (struct pollfd){.fd = pool->worker[i].from, .events = POLLIN};
	if (waiting == 0)
		return 0;
	got = wait_for_any(wait, waiting, until_ns);
	if (got < 0)
		return ft_fail_errno(error, errno, "cannot wait for the helper processes");
	if (got == 0)
		return FT_BACKEND_ENDED;
	for (unsigned w = 0; w < waiting && !worker; w++)
		for (unsigned i = 0; wait[w].revents && i < pool->workers; i++)
			if (pool->worker[i].busy && pool->worker[i].from == wait[w].fd)
				worker = &pool->worker[i];
	if (!worker)
		return ft_fail(error, FT_E_SYSTEM, "poll told of nothing");
	compiled->tag = worker->busy->tag;
	if (receive(worker, compiled)) {
		if (compiled->failed)
			say_log(compiled->log, &compiled->error);
		free(worker->busy);
		worker->busy = NULL;
	} else {
		char target[sizeof worker->busy->target];
		struct worker dead = *worker;

		memcpy(target, worker->busy->target, sizeof target);
		free(compiled->data);
		free(compiled->log);
		compiled->data = NULL;
		compiled->log = NULL;
		compiled->failed = true;
		dead.words = dup(worker->words);
		end_worker(worker, &status);
		explain(&dead, status, target, &compiled->error);
		close(dead.words);
	}
	/* The next piece of work is under way while the caller looks at this one. */
	hand_out(pool, NULL);
	return 1;
}
