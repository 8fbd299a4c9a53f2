#include "daemon/devices/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/devices/kernels.h"
#include "daemon/host/bug.h"
#include "daemon/host/ready.h"
#include "daemon/host/timer.h"

extern char **environ;

enum { RUNNER_SOCKET = 3, ENVIRONMENT_MAX = 64, ARGUMENTS_MAX = 2 * KERNELS_MAX + 4 };

/* What a runner inherits of the environment: what finds its libraries and chooses its devices, and nothing
 * that would change code behind the command line's back. */
static const char *const inherited[] = {
        "PATH=",
        "HOME=",
        "TMPDIR=",
        "LD_LIBRARY_PATH=",
        "ROCM_PATH=",
        "HIP_VISIBLE_DEVICES=",
        "ROCR_VISIBLE_DEVICES=",
        "GPU_DEVICE_ORDINAL=",
        "CUDA_VISIBLE_DEVICES=",
        "CUDA_DEVICE_ORDER=",
        "ASAN_OPTIONS=",
        "UBSAN_OPTIONS=",
        "TSAN_OPTIONS=",
        "LSAN_OPTIONS=",
        "FLYTUNE_",
};

static const char *const fixed[] = {
        "LC_ALL=C",
        "CUDA_CACHE_DISABLE=1", /* hidden caches falsify build times and fill disks */
        "AMD_COMGR_CACHE=0",
};

const char *runner_cause_word(enum runner_cause cause)
{
	switch (cause) {
	case RUNNER_ASKED:
		return "released";
	case RUNNER_DIED:
		return "died";
	case RUNNER_LATE:
		return "late";
	case RUNNER_PROTOCOL_ERROR:
		return "nonsense";
	case RUNNER_UNSTARTED:
		break;
	}
	return "unstarted";
}

/* It goes there in any case: what a process does is not ours to choose. */
static void go(struct runner *runner, enum runner_state next)
{
	(void)bug_unless(runner->log, runner_may_go(runner->state, next),
	        "a runner that %s cannot be one that %s", runner_state_word(runner->state),
	        runner_state_word(next));
	runner->state = next;
}

static void deadline_passed(void *data);

int runner_init(struct runner *runner, uv_loop_t *loop, const struct log *log,
        const struct settings *settings, const char *kind, const char *path,
        const struct runner_events *events, void *data, struct ft_error *error)
{
	int status;

	*runner = (struct runner){
	        .loop = loop,
	        .log = log,
	        .settings = settings,
	        .kind = kind,
	        .path = path,
	        .events = events,
	        .data = data,
	};
	(void)snprintf(runner->code_dir, sizeof(runner->code_dir), "%s/code", settings->state_dir);
	status = deadline_init(&runner->deadline, loop, deadline_passed, runner);
	if (status == 0)
		status = uv_timer_init(loop, &runner->idle);
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	runner->idle.data = runner;
	return 0;
}

static void stop_timers(struct runner *runner)
{
	deadline_stop(&runner->deadline);
	(void)uv_timer_stop(&runner->idle);
}

static void blame(struct runner *runner, enum runner_cause cause, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void blame(struct runner *runner, enum runner_cause cause, const char *format, ...)
{
	char text[256];
	va_list arguments;

	if (runner->blamed)
		return; /* the first cause is the cause */
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	runner->blamed = true;
	runner->cause = cause;
	(void)ft_fail(&runner->why, cause == RUNNER_UNSTARTED ? FT_E_UNAVAILABLE : FT_E_RUNNER, "%s", text);
}

static void maybe_gone(struct runner *runner)
{
	enum runner_cause cause = runner->cause;
	struct ft_error why = runner->why;

	if (runner->open > 0 || !runner->reaped || runner->state == RUNNER_OFF)
		return;
	go(runner, RUNNER_OFF);
	runner->reply = NULL;
	stop_timers(runner);
	ft_inbox_free(&runner->inbox);
	log_line(runner->log, cause == RUNNER_ASKED ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING,
	        "runner gone kind=%s cause=%s: %s", runner->kind, runner_cause_word(cause), why.message);
	runner->events->gone(runner->data, cause, &why);
}

static void handle_closed(uv_handle_t *handle)
{
	struct runner *runner = handle->data;

	runner->open--;
	maybe_gone(runner);
}

static void close_pipe(struct runner *runner)
{
	if (!uv_is_closing((uv_handle_t *)&runner->pipe))
		uv_close((uv_handle_t *)&runner->pipe, handle_closed);
}

static void kill_group(struct runner *runner)
{
	if (runner->reaped || runner->process.pid <= 0)
		return;
	/* Its helpers are in its process group; the group is gone already if it never got to make one. */
	(void)uv_kill(-runner->process.pid, SIGKILL);
	(void)uv_process_kill(&runner->process, SIGKILL);
}

void runner_kill(struct runner *runner, enum runner_cause cause, const char *format, ...)
{
	char text[256];
	va_list arguments;

	if (runner->state == RUNNER_OFF)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	blame(runner, cause, "%s", text);
	go(runner, RUNNER_ENDING);
	stop_timers(runner);
	kill_group(runner);
	close_pipe(runner);
}

static void deadline_passed(void *data)
{
	struct runner *runner = data;

	if (runner->cancelling)
		runner_kill(runner, RUNNER_LATE, "it was told to cancel its sweep, and did not within %.3g s",
		        (double)runner->settings->deadline_ns[STAGE_STOP] / 1e9);
	else if (runner->stage == STAGE_STOP)
		runner_kill(runner, RUNNER_DIED, "it closed its socket and did not end within %.3g s",
		        (double)runner->settings->deadline_ns[STAGE_STOP] / 1e9);
	else
		runner_kill(runner, RUNNER_LATE, "it did not answer within %.3g s (stage %s)",
		        (double)runner->settings->deadline_ns[runner->stage] / 1e9,
		        settings_stage_word(runner->stage));
}

void runner_expect(struct runner *runner, enum settings_stage stage)
{
	runner->stage = stage;
	runner->cancelling = false;
	(void)uv_timer_stop(&runner->idle);
	deadline_start(&runner->deadline, timer_ms(runner->settings->deadline_ns[stage]));
}

static void idle_over(uv_timer_t *timer)
{
	runner_release(timer->data);
}

void runner_rest(struct runner *runner)
{
	if (runner->state != RUNNER_READY)
		return;
	deadline_stop(&runner->deadline);
	timer_start(&runner->idle, idle_over, timer_ms(runner->settings->runner_idle_ns));
}

void runner_release(struct runner *runner)
{
	if (runner->state == RUNNER_OFF || runner->state == RUNNER_ENDING)
		return;
	blame(runner, RUNNER_ASKED, "it was let go");
	go(runner, RUNNER_ENDING);
	runner_expect(runner, STAGE_STOP);
	close_pipe(runner); /* a runner ends when its socket does */
}

/* ---- what it says ---- */

static void take_message(struct runner *runner, struct ft_view message)
{
	struct ft_envelope envelope;
	struct ft_error error;

	if (ft_open_envelope(message, &envelope, &error) != 0) {
		runner_kill(runner, RUNNER_PROTOCOL_ERROR, "it sent no valid message: %s", error.message);
		return;
	}
	if (envelope.type == FT_NOTICE) {
		struct ft_runner_event event;

		if (strcmp(envelope.method, "event") != 0)
			return; /* a later version may say more */
		if (ft_decode(&ft_runner_event_message, envelope.body, &event, &error) != 0) {
			runner_kill(runner, RUNNER_PROTOCOL_ERROR, "it sent a bad event: %s", error.message);
			return;
		}
		runner->events->event(runner->data, &event);
		return;
	}
	if (envelope.type != FT_RESPONSE || envelope.id != runner->last_id || runner->reply == NULL) {
		runner_kill(runner, RUNNER_PROTOCOL_ERROR, "it answered a question that nobody asked");
		return;
	}
	runner_reply reply = runner->reply;

	runner->reply = NULL;
	stop_timers(runner);
	if (envelope.error.data != NULL) {
		struct ft_error failure;

		ft_read_failure(envelope.error, &failure);
		reply(runner->reply_data, (struct ft_view){0}, &failure);
	} else {
		reply(runner->reply_data, envelope.body, NULL);
	}
}

static void take_messages(struct runner *runner)
{
	struct ft_view message;
	struct ft_error error;
	int found;

	while (runner->state == RUNNER_STARTING || runner->state == RUNNER_READY) {
		found = ft_inbox_next(&runner->inbox, &message, &error);
		if (found < 0)
			runner_kill(
			        runner, RUNNER_PROTOCOL_ERROR, "it sent broken framing: %s", error.message);
		if (found <= 0)
			return;
		take_message(runner, message);
	}
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct runner *runner = handle->data;
	uint8_t *room;
	size_t size;

	(void)suggested;
	*buffer = uv_buf_init(NULL, 0);
	if (ft_inbox_room(&runner->inbox, &room, &size, NULL) == 0)
		*buffer = uv_buf_init((char *)room, (unsigned)(size > 1 << 20 ? 1 << 20 : size));
}

static void received(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
	struct runner *runner = stream->data;

	(void)buffer;
	if (length > 0) {
		ft_inbox_received(&runner->inbox, (size_t)length);
		take_messages(runner);
	} else if (length == UV_EOF || length == UV_ECONNRESET) {
		if (runner->state == RUNNER_ENDING)
			return;
		/* Most often it is dying: its exit says more than this end does, and is waited for under a
		 * deadline. A runner that only closed its socket is killed past it. (Reset is what the kernel calls
		 * the end of one that had not read all it was sent.) */
		(void)uv_read_stop(stream);
		go(runner, RUNNER_ENDING);
		runner_expect(runner, STAGE_STOP);
	} else if (length < 0) {
		runner_kill(runner, RUNNER_DIED, "its socket failed: %s", uv_strerror((int)length));
	}
}

/* What it said before it died counts, whoever else still holds its socket open. */
static void drain(struct runner *runner)
{
	uv_os_fd_t descriptor;
	uint8_t *room;
	size_t size;
	ssize_t length;

	if (uv_is_closing((uv_handle_t *)&runner->pipe) ||
	        uv_fileno((uv_handle_t *)&runner->pipe, &descriptor) != 0)
		return;
	while (ft_inbox_room(&runner->inbox, &room, &size, NULL) == 0) {
		length = recv(descriptor, room, size, MSG_DONTWAIT);
		if (length <= 0)
			return;
		ft_inbox_received(&runner->inbox, (size_t)length);
		take_messages(runner);
		if (runner->state != RUNNER_STARTING && runner->state != RUNNER_READY)
			return;
	}
}

static void exited(uv_process_t *process, int64_t status, int signal_number)
{
	struct runner *runner = process->data;

	drain(runner);
	if (signal_number == SIGKILL)
		blame(runner, RUNNER_DIED,
		        "it was killed (signal 9): by the kernel when memory ran out, or by hand");
	else if (signal_number != 0)
		blame(runner, RUNNER_DIED, "it died of signal %d (%s)", signal_number,
		        strsignal(signal_number));
	else
		blame(runner, RUNNER_DIED, "it ended with status %d", (int)status);
	/* Helpers that outlived it must not keep the device. */
	(void)uv_kill(-process->pid, SIGKILL);
	runner->reaped = true;
	go(runner, RUNNER_ENDING);
	uv_close((uv_handle_t *)process, handle_closed);
	close_pipe(runner);
}

/* ---- what it is sent ---- */

struct outgoing {
	uv_write_t request;
	struct ft_writer writer;
};

static void outgoing_free(struct outgoing *outgoing)
{
	ft_writer_free(&outgoing->writer);
	free(outgoing);
}

static void written(uv_write_t *request, int status)
{
	struct runner *runner = request->handle->data;

	outgoing_free(request->data);
	if (status >= 0 || (runner->state != RUNNER_STARTING && runner->state != RUNNER_READY))
		return;
	/* Of one that ended its last words and its exit say more; they are on their way. */
	if (status == UV_EPIPE || status == UV_ECONNRESET)
		runner_expect(runner, STAGE_STOP);
	else
		runner_kill(runner, RUNNER_DIED, "cannot write to it: %s", uv_strerror(status));
}

static void send_message(struct runner *runner, struct outgoing *outgoing)
{
	uv_buf_t buffer;
	int status;

	if (!ft_writer_ok(&outgoing->writer)) {
		outgoing_free(outgoing);
		runner_kill(runner, RUNNER_UNSTARTED, "no memory for a message to it");
		return;
	}
	buffer = uv_buf_init((char *)outgoing->writer.data, (unsigned)outgoing->writer.length);
	outgoing->request.data = outgoing;
	status = uv_write(&outgoing->request, (uv_stream_t *)&runner->pipe, &buffer, 1, written);
	if (status != 0) {
		outgoing_free(outgoing);
		runner_kill(runner, RUNNER_DIED, "cannot write to it: %s", uv_strerror(status));
	}
}

static struct outgoing *outgoing_new(struct runner *runner)
{
	struct outgoing *outgoing = calloc(1, sizeof(*outgoing));

	if (outgoing == NULL)
		runner_kill(runner, RUNNER_UNSTARTED, "no memory for a message to it");
	else
		ft_writer_init_growing(&outgoing->writer, ft_bounds_large.bytes);
	return outgoing;
}

void runner_ask(struct runner *runner, const char *method, const struct ft_message *message, const void *body,
        enum settings_stage stage, runner_reply reply, void *data)
{
	struct outgoing *outgoing;

	if (runner->state != RUNNER_READY && runner->state != RUNNER_STARTING)
		return; /* `gone` is on its way */
	outgoing = outgoing_new(runner);
	if (outgoing == NULL)
		return;
	ft_begin_request(&outgoing->writer, ++runner->last_id, method);
	ft_encode(&outgoing->writer, message, body);
	runner->reply = reply;
	runner->reply_data = data;
	runner_expect(runner, stage);
	send_message(runner, outgoing);
}

void runner_tell(
        struct runner *runner, const char *method, const struct ft_message *message, const void *body)
{
	struct outgoing *outgoing;

	if (runner->state != RUNNER_READY)
		return;
	outgoing = outgoing_new(runner);
	if (outgoing == NULL)
		return;
	ft_begin_notice(&outgoing->writer, method);
	ft_encode(&outgoing->writer, message, body);
	send_message(runner, outgoing);
}

void runner_cancel(struct runner *runner, uint64_t job)
{
	struct ft_cancel_notice notice = {.job = job};

	if (runner->state != RUNNER_READY)
		return;
	runner_tell(runner, "cancel", &ft_cancel_notice_message, &notice);
	runner_expect(runner, STAGE_STOP);
	runner->cancelling = true;
}

/* ---- start ---- */

static void said_hello(void *data, struct ft_view reply, const struct ft_error *failure)
{
	struct runner *runner = data;

	if (failure != NULL) {
		runner_kill(runner, RUNNER_UNSTARTED, "it refused hello: %s", failure->message);
		return;
	}
	go(runner, RUNNER_READY);
	runner->events->hello(runner->data, reply);
}

static void say_hello(struct runner *runner)
{
	struct ft_runner_hello_request hello = {
	        .min = FT_RUNNER_PROTOCOL_MIN,
	        .max = FT_RUNNER_PROTOCOL_MAX,
	        .memory_cap = runner->settings->memory_cap,
	};

	if (strlen(runner->code_dir) < sizeof(hello.code_dir))
		(void)snprintf(hello.code_dir, sizeof(hello.code_dir), "%s", runner->code_dir);
	runner_ask(
	        runner, "hello", &ft_runner_hello_request_message, &hello, STAGE_HELLO, said_hello, runner);
}

/* When memory runs out, the kernel is to take the runner, whose work can be done again, and not the daemon. Its
 * helpers inherit it. Raising it needs no privilege; where it fails the kernel chooses by itself. */
static void offer_to_the_kernel(const struct runner *runner)
{
	enum { RAISED_BY = 500, MOST = 1000 };
	char path[64];
	char text[16];
	int descriptor = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
	ssize_t length = descriptor >= 0 ? read(descriptor, text, sizeof(text) - 1) : 0;
	long score;

	if (descriptor >= 0)
		(void)close(descriptor);
	text[length > 0 ? length : 0] = '\0';
	score = strtol(text, NULL, 10) + RAISED_BY;
	(void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", runner->process.pid);
	(void)snprintf(text, sizeof(text), "%ld", score < MOST ? score : MOST);
	descriptor = open(path, O_WRONLY | O_CLOEXEC);
	if (descriptor < 0)
		return;
	(void)!write(descriptor, text, strlen(text));
	(void)close(descriptor);
}

static void choose_environment(char **chosen)
{
	size_t count = 0;

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		chosen[count++] = (char *)(uintptr_t)fixed[i];
	/* Of a caller whose rights are not ours, a runner gets nothing either. */
	for (char **entry = environ;
	        getauxval(AT_SECURE) == 0 && *entry != NULL && count < ENVIRONMENT_MAX - 1; entry++) {
		for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++) {
			if (strncmp(*entry, inherited[i], strlen(inherited[i])) == 0) {
				chosen[count++] = *entry;
				break;
			}
		}
	}
	chosen[count] = NULL;
}

/* Whatever the order. */
uint64_t runner_environment(void)
{
	char *chosen[ENVIRONMENT_MAX];
	uint64_t sum = 0;

	choose_environment(chosen);
	for (char **entry = chosen; *entry != NULL; entry++)
		sum += XXH3_64bits(*entry, strlen(*entry));
	return sum;
}

/* The kernels of folders that it is to have, confined. */
static void choose_arguments(const struct runner *runner, char **chosen)
{
	static char confine[] = "--confine";
	size_t count = 0;

	chosen[count++] = (char *)(uintptr_t)runner->path;
	if (runner->kernels->count > 0) {
		chosen[count++] = confine;
		chosen[count++] = (char *)(uintptr_t)runner->code_dir;
	}
	for (uint32_t i = 0; i < runner->kernels->count; i++) {
		static char flag[] = "--kernel";

		chosen[count++] = flag;
		chosen[count++] = (char *)(uintptr_t)runner->kernels->installed[i].copy;
	}
	chosen[count] = NULL;
}

void runner_start(struct runner *runner)
{
	char *arguments[ARGUMENTS_MAX];
	char *environment[ENVIRONMENT_MAX];
	uv_stdio_container_t stdio[RUNNER_SOCKET + 1] = {
	        {.flags = UV_IGNORE},
	        {.flags = UV_INHERIT_FD, .data.fd = 2},
	        {.flags = UV_INHERIT_FD, .data.fd = 2},
	        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
	                .data.stream = (uv_stream_t *)&runner->pipe},
	};
	uv_process_options_t options = {
	        .exit_cb = exited,
	        .file = runner->path,
	        .args = arguments,
	        .env = environment,
	        .flags = UV_PROCESS_DETACHED, /* a process group of its own, that can be killed whole */
	        .stdio_count = RUNNER_SOCKET + 1,
	        .stdio = stdio,
	};
	int status;

	if (runner->state != RUNNER_OFF)
		return;
	go(runner, RUNNER_STARTING);
	runner->blamed = false;
	runner->reaped = false;
	runner->reply = NULL;
	runner->starts++;
	ft_inbox_init(&runner->inbox, &ft_bounds_large);
	(void)uv_pipe_init(runner->loop, &runner->pipe, 0);
	runner->pipe.data = runner;
	runner->process = (uv_process_t){.data = runner};
	runner->open = 2;
	choose_arguments(runner, arguments);
	choose_environment(environment);
	runner->events->starts(runner->data);
	status = uv_spawn(runner->loop, &runner->process, &options);
	if (status != 0) {
		blame(runner, RUNNER_UNSTARTED, "cannot start %s: %s", runner->path, uv_strerror(status));
		runner->reaped = true;
		go(runner, RUNNER_ENDING);
		uv_close((uv_handle_t *)&runner->process, handle_closed);
		close_pipe(runner);
		return;
	}
	/* The daemon raised its own limit for its clients; a runner gets back what the daemon was given. */
	if (runner->settings->descriptors.rlim_cur > 0)
		(void)prlimit(runner->process.pid, RLIMIT_NOFILE, &runner->settings->descriptors, NULL);
	/* The loop's right to go first (priority.h) is none of theirs. */
	(void)prlimit(runner->process.pid, RLIMIT_NICE, &(struct rlimit){0, 0}, NULL);
	offer_to_the_kernel(runner);
	log_line(runner->log, LOG_LEVEL_DEBUG, "runner started kind=%s pid=%d path=%s", runner->kind,
	        runner->process.pid, runner->path);
	status = uv_read_start((uv_stream_t *)&runner->pipe, give_room, received);
	if (status == 0)
		status = poll_ensure((uv_handle_t *)&runner->pipe);
	if (status != 0) {
		runner_kill(runner, RUNNER_UNSTARTED, "cannot read from it: %s", uv_strerror(status));
		return;
	}
	say_hello(runner);
}

static void deadline_closed(uv_handle_t *handle)
{
	struct runner *runner = ((struct deadline *)handle->data)->data;

	runner->closed(runner->data);
}

static void idle_closed(uv_handle_t *handle)
{
	struct runner *runner = handle->data;

	uv_close((uv_handle_t *)&runner->deadline.timer, deadline_closed);
}

void runner_close(struct runner *runner, void (*closed)(void *data))
{
	runner->closed = closed;
	uv_close((uv_handle_t *)&runner->idle, idle_closed);
}

uint64_t runner_pid(const struct runner *runner)
{
	return runner->state != RUNNER_OFF && !runner->reaped ? (uint64_t)runner->process.pid : 0;
}
