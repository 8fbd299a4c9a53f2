#include "kernels/runner/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/decide.h"
#include "kernels/folder/folder.h"
#include "kernels/runner/folders.h"
#include "kernels/runner/sample_watch.h"
#include "kernels/runner/sweep.h"
#include "proto/clock.h"
#include "proto/inbox.h"

enum {
	EXIT_BROKEN = 1,
	EXIT_USAGE = 2,
	KILLABLE = 800, /* of 1,000: the first to go when memory runs out, long before the daemon */
};

static const uint64_t quiet_most_ns = 1000000000; /* a sweep gives a sign of life at least this often */
static const size_t reply_limit = (size_t)16 << 20;

enum server_state {
	SERVER_NEW, /* hello is still to come */
	SERVER_IDLE,
	SERVER_SWEEPING,
	SERVER_CANCELLED, /* sweeping still, but not for long */
	SERVER_LOST,      /* the backend can do no more in this process */
};

struct server {
	enum server_state state;
	int descriptor;
	struct ft_backend *backend;
	struct ft_inbox inbox;
	struct ft_writer writer;
	char code_dir[256];
	struct ft_host_lock host_lock; /* in that folder */
	uint64_t memory_cap;
	uint64_t job;     /* while sweeping */
	uint64_t told_ns; /* when the last event went out */
	struct sample_watch watch;
};

/* ---- the socket ---- */

/* Sends what the writer holds. A daemon that is gone wants nothing more of this process. */
static void flush(struct server *server)
{
	bool sent = ft_writer_ok(&server->writer) &&
	        sample_watch_send(&server->watch, server->writer.data, server->writer.length);
	ft_writer_reset(&server->writer);
	if (!sent)
		_exit(EXIT_SUCCESS);
}

static void reply(struct server *server, uint64_t id, const struct ft_message *message, const void *body)
{
	ft_writer_reset(&server->writer);
	ft_begin_response(&server->writer, id);
	ft_encode(&server->writer, message, body);
	if (!ft_writer_ok(&server->writer)) {
		struct ft_error failure;
		ft_fail(&failure, FT_E_MEMORY, "no memory for a reply");
		ft_writer_reset(&server->writer);
		ft_write_failure(&server->writer, id, &failure);
	}
	flush(server);
}

static void fail(struct server *server, uint64_t id, const struct ft_error *failure)
{
	ft_writer_reset(&server->writer);
	ft_write_failure(&server->writer, id, failure);
	flush(server);
}

/* ---- hello and space ---- */

static void write_list(struct ft_writer *writer, const struct ft_backend *backend)
{
	ft_write_array(writer, (uint32_t)backend->device_count);
	for (size_t i = 0; i < backend->device_count; i++)
		ft_encode(writer, &ft_runner_device_message, &backend->device[i].shown);
}

static void write_files(struct ft_writer *writer, const struct ft_backend *backend)
{
	uint32_t count = 0;
	while (backend->files && backend->files[count])
		count++;
	ft_write_array(writer, count);
	for (uint32_t i = 0; i < count; i++)
		ft_write_text(writer, backend->files[i]);
}

/* Of those that are built in and those of folders, number `index`; NULL: there are no more. */
static const struct ft_kernel *kernel_at(const struct ft_backend *backend, size_t index)
{
	size_t built_in = 0;
	while (ft_kernels[built_in])
		built_in++;
	if (index < built_in)
		return ft_kernels[index];
	index -= built_in;
	return index < backend->folder_count ? ft_folder_kernel(backend->folder[index]) : NULL;
}

static void write_kernels(struct ft_writer *writer, struct ft_backend *backend)
{
	char source[FT_HASH_SIZE] = "";
	const struct ft_kernel *kernel;
	uint32_t count = 0;
	for (size_t i = 0; (kernel = kernel_at(backend, i)) != NULL; i++) {
		backend->source(backend, kernel->name, source);
		count += source[0] != '\0';
	}
	ft_write_array(writer, count);
	for (size_t i = 0; (kernel = kernel_at(backend, i)) != NULL; i++) {
		backend->source(backend, kernel->name, source);
		if (source[0] != '\0')
			ft_schema_write(writer, kernel->schema(kernel, backend->kind), source, NULL);
	}
}

static void hello(struct server *server, uint64_t id, struct ft_view body)
{
	struct ft_backend *backend = server->backend;
	struct ft_runner_hello_request request;
	struct ft_error error;
	if (ft_decode(&ft_runner_hello_request_message, body, &request, &error) < 0) {
		fail(server, id, &error);
		return;
	}
	if (request.min > FT_RUNNER_PROTOCOL_MAX || request.max < FT_RUNNER_PROTOCOL_MIN) {
		ft_fail(&error, FT_E_PROTOCOL,
		        "this runner speaks protocol %d to %d, the daemon %llu to %llu",
		        FT_RUNNER_PROTOCOL_MIN, FT_RUNNER_PROTOCOL_MAX, (unsigned long long)request.min,
		        (unsigned long long)request.max);
		fail(server, id, &error);
		return;
	}
	snprintf(server->code_dir, sizeof(server->code_dir), "%s", request.code_dir);
	server->memory_cap = request.memory_cap;
	if (server->state == SERVER_NEW)
		server->state = SERVER_IDLE;

	struct ft_writer list[3];
	for (size_t i = 0; i < 3; i++)
		ft_writer_init_growing(&list[i], reply_limit);
	write_files(&list[0], backend);
	write_list(&list[1], backend);
	write_kernels(&list[2], backend);
	struct ft_runner_hello_reply answer = {
	        .protocol = request.max < FT_RUNNER_PROTOCOL_MAX ? request.max : FT_RUNNER_PROTOCOL_MAX,
	        .files = {list[0].data, list[0].length},
	        .devices = {list[1].data, list[1].length},
	        .kernels = {list[2].data, list[2].length},
	};
	snprintf(
	        answer.runner, sizeof(answer.runner), "flytune-runner-%s %s", backend->kind, FLYTUNE_VERSION);
	snprintf(answer.identity, sizeof(answer.identity), "%s", backend->identity);
	if (backend->device_count == 0)
		snprintf(answer.reason, sizeof(answer.reason), "%s", backend->reason);
	snprintf(answer.unconfined, sizeof(answer.unconfined), "%s", backend->unconfined);
	if (ft_writer_ok(&list[0]) && ft_writer_ok(&list[1]) && ft_writer_ok(&list[2])) {
		reply(server, id, &ft_runner_hello_reply_message, &answer);
	} else {
		ft_fail(&error, FT_E_MEMORY, "no memory for a hello");
		fail(server, id, &error);
	}
	for (size_t i = 0; i < 3; i++)
		ft_writer_free(&list[i]);
}

static int find_device(
        const struct ft_backend *backend, const char *id, size_t *index, struct ft_error *error)
{
	for (size_t i = 0; i < backend->device_count; i++) {
		if (strcmp(backend->device[i].shown.id, id) == 0) {
			*index = i;
			return 0;
		}
	}
	ft_fail_field(error, FT_E_UNKNOWN_DEVICE, "device", id, NULL);
	return -1;
}

/* The kernel, the device and the problem of a request, believed in nothing. */
static int admit(const struct ft_backend *backend, const char *kernel_name, const char *device,
        const struct ft_problem *given, const struct ft_kernel **kernel, size_t *index,
        struct ft_problem *whole, struct ft_error *error)
{
	for (size_t i = 0; (*kernel = kernel_at(backend, i)) != NULL; i++) {
		if (strcmp((*kernel)->name, kernel_name) == 0)
			break;
	}
	if (!*kernel)
		return ft_fail_field(error, FT_E_UNKNOWN_KERNEL, "kernel", kernel_name, NULL);
	if (find_device(backend, device, index, error) < 0)
		return -1;
	return ft_problem_admit(*kernel, (*kernel)->schema(*kernel, backend->kind), given, whole, error);
}

static void space(struct server *server, uint64_t id, struct ft_view body)
{
	struct ft_space_request *request = calloc(1, sizeof(*request));
	struct ft_space *members = calloc(1, sizeof(*members));
	struct ft_writer list;
	struct ft_error error;
	const struct ft_kernel *kernel;
	struct ft_problem problem;
	size_t device;

	ft_writer_init_growing(&list, reply_limit);
	if (!request || !members) {
		ft_fail(&error, FT_E_MEMORY, "no memory for a space");
		goto failed;
	}
	if (ft_decode(&ft_space_request_message, body, request, &error) < 0 ||
	        admit(server->backend, request->kernel, request->device, &request->problem, &kernel, &device,
	                &problem, &error) < 0 ||
	        kernel->space(kernel, &problem, &server->backend->device[device].traits, members, &error) < 0)
		goto failed;
	if (members->unlisted && !server->backend->takes_late) {
		ft_fail(&error, FT_E_BAD_VALUE, "this runner tries a space whole, of %d configs at the most",
		        FT_SPACE_MAX);
		goto failed;
	}
	ft_write_array(&list, members->count);
	for (uint32_t i = 0; i < members->count; i++) {
		struct ft_space_member member = {.config = members->config[i]};
		snprintf(member.pruned, sizeof(member.pruned), "%s", members->pruned[i]);
		ft_encode(&list, &ft_space_member_message, &member);
	}
	if (!ft_writer_ok(&list)) {
		ft_fail(&error, FT_E_MEMORY, "no memory for a space");
		goto failed;
	}
	struct ft_space_reply answer = {.members = {list.data, list.length},
	        .default_index = members->default_index,
	        .unlisted = members->unlisted};
	reply(server, id, &ft_space_reply_message, &answer);
	goto out;
failed:
	fail(server, id, &error);
out:
	ft_writer_free(&list);
	free(members);
	free(request);
}

/* ---- sweep ---- */

static int serve_waiting(struct server *server);

static void on_event(void *context, const struct ft_runner_event *event)
{
	struct server *server = context;
	server->told_ns = ft_monotonic_ns();
	ft_writer_reset(&server->writer);
	ft_begin_notice(&server->writer, "event");
	ft_encode(&server->writer, &ft_runner_event_message, event);
	flush(server);
}

/* Takes in what the daemon said meanwhile. */
static bool on_cancelled(void *context)
{
	struct server *server = context;
	if (serve_waiting(server) < 0)
		_exit(EXIT_BROKEN);
	return server->state == SERVER_CANCELLED;
}

static void on_measure_begins(void *context, size_t trial)
{
	struct server *server = context;
	/* Where samples are slow a notice costs nothing, and a long round still shows that it lives. */
	if (ft_monotonic_ns() - server->told_ns > quiet_most_ns) {
		struct ft_runner_event event = {
		        .job = server->job, .trial = trial, .event = "begin", .stage = "measure"};
		on_event(server, &event);
	}
	sample_watch_begins(&server->watch, trial);
}

static void on_measure_ends(void *context)
{
	struct server *server = context;
	sample_watch_ends(&server->watch);
}

static int read_samples(struct ft_sweep *sweep, size_t index, struct ft_view list, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(list.data, list.length);
	uint32_t count;
	if (!list.data)
		return 0;
	if (!ft_read_array(&cursor, &count) || count > FT_ROUNDS_MAX)
		return ft_fail(
		        error, FT_E_BAD_REQUEST, "samples must be a list of at most %d", FT_ROUNDS_MAX);
	uint64_t *samples = ft_sweep_samples(sweep, index);
	if (!samples)
		return ft_fail(error, FT_E_MEMORY, "no memory for samples");
	for (uint32_t i = 0; i < count; i++) {
		if (!ft_read_uint(&cursor, &samples[i]))
			return ft_fail(error, FT_E_BAD_REQUEST, "a sample must be a number of picoseconds");
	}
	return 0;
}

static int read_member(struct ft_sweep *sweep, size_t index, struct ft_cursor *cursor,
        const struct ft_schema *schema, struct ft_sweep_member *member, struct ft_error *error)
{
	struct ft_sweep_trial *trial = &sweep->trial[index];
	struct ft_view view;
	if (!ft_read_view(cursor, &view))
		return ft_fail(error, FT_E_BAD_REQUEST, "the list of members is cut short");
	if (ft_decode(&ft_sweep_member_message, view, member, error) < 0 ||
	        ft_schema_check_config(schema, &member->config, &trial->config, error) < 0)
		return -1;
	trial->out = member->status[0] != '\0';
	trial->dropped = member->dropped;
	trial->verified = member->verified;
	trial->served = member->served;
	trial->place = member->place < UINT32_MAX ? (uint32_t)member->place : UINT32_MAX;
	trial->look_ps = member->look_ps;
	memcpy(trial->status, member->status, sizeof(trial->status));
	memcpy(trial->code, member->code, sizeof(trial->code));
	if (read_samples(sweep, index, member->samples, error) < 0)
		return -1;
	trial->aside =
	        sweep->unlisted && trial->dropped && !trial->sample_ps && index != sweep->default_index;
	return 0;
}

static int read_sweep(struct server *server, const struct ft_sweep_request *request, struct ft_sweep *sweep,
        struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(request->members.data, request->members.length);
	uint32_t count;
	if (admit(server->backend, request->kernel, request->device, &request->problem, &sweep->kernel,
	            &sweep->device, &sweep->problem, error) < 0)
		return -1;
	const uint32_t most = request->unlisted ? FT_TRIES_MAX : FT_SPACE_MAX;
	if (!ft_read_array(&cursor, &count) || count == 0 || count > most)
		return ft_fail(error, FT_E_BAD_REQUEST, "a sweep has 1 to %u members", most);
	if (request->unlisted && (!sweep->kernel->members || !server->backend->takes_late))
		return ft_fail(error, FT_E_BAD_REQUEST, "this runner is to be told all members");
	if (request->default_index >= count)
		return ft_fail(error, FT_E_BAD_REQUEST, "the default must be one of the members");
	if (request->rounds > FT_ROUNDS_MAX || request->band_ppm > 1000000 ||
	        request->min_rounds > FT_ROUNDS_MAX || request->max_rounds > FT_ROUNDS_MAX)
		return ft_fail(error, FT_E_BAD_VALUE,
		        "rounds must be at most %d, and the band at most 1,000,000 ppm", FT_ROUNDS_MAX);
	sweep->job = request->job;
	sweep->seed = request->seed;
	sweep->budget_ns = request->budget_ns;
	sweep->memory_cap = server->memory_cap;
	sweep->code_dir = server->code_dir[0] ? server->code_dir : NULL;
	ft_host_lock_open(&server->host_lock, sweep->code_dir);
	sweep->host_lock = &server->host_lock;
	sweep->rule = (struct ft_rule){.band_ppm = (uint32_t)request->band_ppm,
	        .min_rounds = (uint32_t)request->min_rounds,
	        .max_rounds = (uint32_t)request->max_rounds};
	sweep->hasty = request->hasty;
	sweep->rounds = request->rounds;
	sweep->default_index = request->default_index;
	sweep->unlisted = request->unlisted;
	sweep->search = request->unlisted && request->search;
	sweep->room = sweep->search ? most : count;
	if (ft_sweep_init(sweep, count, error) < 0)
		return -1;

	struct ft_sweep_member *member = calloc(1, sizeof(*member));
	int result = 0;
	if (!member)
		return ft_fail(error, FT_E_MEMORY, "no memory for a sweep");
	const struct ft_schema *schema = sweep->kernel->schema(sweep->kernel, server->backend->kind);
	for (uint32_t i = 0; i < sweep->count && result == 0; i++)
		result = read_member(sweep, i, &cursor, schema, member, error);
	free(member);
	return result;
}

static void run_sweep(struct server *server, uint64_t id, struct ft_view body)
{
	struct ft_sweep_request *request = calloc(1, sizeof(*request));
	struct ft_sweep *sweep = calloc(1, sizeof(*sweep));
	struct ft_sweep_reply answer;
	struct ft_error error;
	int result = -1;

	if (!request || !sweep) {
		ft_fail(&error, FT_E_MEMORY, "no memory for a sweep");
		goto out;
	}
	if (ft_decode(&ft_sweep_request_message, body, request, &error) < 0 ||
	        read_sweep(server, request, sweep, &error) < 0)
		goto out;
	server->job = sweep->job;
	server->told_ns = ft_monotonic_ns();
	if (sample_watch_start(&server->watch, sweep->job, sweep->room, &error) < 0)
		goto out;
	struct ft_sweep_listener listener = {
	        .context = server,
	        .event = on_event,
	        .cancelled = on_cancelled,
	        .measure_begins = on_measure_begins,
	        .measure_ends = on_measure_ends,
	};
	server->state = SERVER_SWEEPING;
	result = ft_sweep_run(sweep, server->backend, &listener, &answer, &error);
	server->state = result == FT_BACKEND_LOST ? SERVER_LOST : SERVER_IDLE;
	sample_watch_stop(&server->watch);
out:
	if (result < 0 && server->state != SERVER_LOST)
		fail(server, id, &error);
	else if (result >= 0)
		reply(server, id, &ft_sweep_reply_message, &answer);
	ft_host_lock_close(&server->host_lock);
	if (sweep)
		ft_sweep_free(sweep);
	free(sweep);
	free(request);
}

static void cancel(struct server *server, struct ft_view body)
{
	struct ft_cancel_notice notice;
	if (ft_decode(&ft_cancel_notice_message, body, &notice, NULL) == 0 &&
	        server->state == SERVER_SWEEPING && notice.job == server->job)
		server->state = SERVER_CANCELLED;
}

/* ---- load ---- */

static void load(struct server *server, uint64_t id, struct ft_view body)
{
	struct ft_backend *backend = server->backend;
	struct ft_load_request request;
	struct ft_load_reply answer = {0};
	struct ft_error error;
	unsigned percent = 0;

	if (ft_decode(&ft_load_request_message, body, &request, &error) < 0) {
		fail(server, id, &error);
		return;
	}
	/* While a sweep runs its own work would be in the figure. */
	for (size_t i = 0; i < backend->device_count && backend->load && server->state == SERVER_IDLE; i++) {
		if (strcmp(backend->device[i].shown.id, request.device) == 0)
			answer.known = backend->load(backend, i, &percent);
	}
	answer.percent = percent > 100 ? 100 : percent;
	reply(server, id, &ft_load_reply_message, &answer);
}

/* ---- requests ---- */

static int take(struct server *server, struct ft_view message)
{
	struct ft_envelope envelope;
	struct ft_error error;
	if (ft_open_envelope(message, &envelope, &error) < 0) {
		fail(server, 0, &error);
		return -1;
	}
	if (envelope.type == FT_NOTICE) {
		if (strcmp(envelope.method, "cancel") == 0)
			cancel(server, envelope.body);
		return 0;
	}
	if (envelope.type == FT_RESPONSE)
		return 0; /* this runner asks nothing */
	if (strcmp(envelope.method, "hello") == 0) {
		hello(server, envelope.id, envelope.body);
	} else if (server->state == SERVER_NEW) {
		ft_fail(&error, FT_E_PROTOCOL, "hello must come first");
		fail(server, envelope.id, &error);
	} else if (strcmp(envelope.method, "space") == 0) {
		space(server, envelope.id, envelope.body);
	} else if (strcmp(envelope.method, "load") == 0) {
		load(server, envelope.id, envelope.body);
	} else if (strcmp(envelope.method, "sweep") == 0 && server->state != SERVER_IDLE) {
		ft_fail(&error, FT_E_BUSY, "a sweep is running");
		fail(server, envelope.id, &error);
	} else if (strcmp(envelope.method, "sweep") == 0) {
		run_sweep(server, envelope.id, envelope.body);
	} else {
		ft_fail(&error, FT_E_UNKNOWN_METHOD, "no method is called %s", envelope.method);
		fail(server, envelope.id, &error);
	}
	return 0;
}

/* Deals with the whole messages at hand. -1 when the framing is broken. */
static int take_all(struct server *server)
{
	struct ft_view message;
	struct ft_error error;
	int got = 0;
	while (server->state != SERVER_LOST && (got = ft_inbox_next(&server->inbox, &message, &error)) > 0) {
		if (take(server, message) < 0)
			return -1;
	}
	if (got < 0)
		fail(server, 0, &error);
	return got;
}

/* 1 when something came, 0 if nothing is there, -1 at the end. */
static int receive(struct server *server)
{
	uint8_t *room;
	size_t size;
	if (ft_inbox_room(&server->inbox, &room, &size, NULL) < 0)
		return -1;
	ssize_t got = recv(server->descriptor, room, size, MSG_DONTWAIT);
	if (got > 0) {
		ft_inbox_received(&server->inbox, (size_t)got);
		return 1;
	}
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	return -1;
}

/* In the middle of a sweep: never waits, and does not come back from the end. -1 when the framing is broken.
 */
static int serve_waiting(struct server *server)
{
	for (;;) {
		int got = receive(server);
		if (got < 0)
			_exit(EXIT_SUCCESS);
		if (got == 0)
			return 0;
		if (take_all(server) < 0)
			return -1;
	}
}

int ft_runner_serve(int descriptor, struct ft_backend *backend)
{
	struct server server = {
	        .descriptor = descriptor,
	        .backend = backend,
	        .host_lock = {.descriptor = -1},
	        .watch = SAMPLE_WATCH(descriptor),
	};
	int status = EXIT_SUCCESS;
	ft_inbox_init(&server.inbox, &ft_bounds_large);
	ft_writer_init_growing(&server.writer, reply_limit);
	for (;;) {
		struct pollfd waiting = {.fd = descriptor, .events = POLLIN};
		if (poll(&waiting, 1, -1) < 0 && errno != EINTR) {
			status = EXIT_BROKEN;
			break;
		}
		int got = receive(&server);
		if (got < 0)
			break;
		if (got > 0 && take_all(&server) < 0) {
			status = EXIT_BROKEN;
			break;
		}
		if (server.state == SERVER_LOST) {
			status = FT_RUNNER_EXIT_LOST;
			break;
		}
	}
	ft_writer_free(&server.writer);
	ft_inbox_free(&server.inbox);
	return status;
}

/* ---- main ---- */

static bool is_socket(int descriptor)
{
	struct stat about;
	return fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode);
}

/* Dies with the daemon, and before it when memory runs out. */
static bool tie_to_parent(void)
{
	pid_t parent = getppid();
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		return false;
	int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (file >= 0) {
		char text[16];
		int length = snprintf(text, sizeof(text), "%d", KILLABLE);
		ssize_t written = write(file, text, (size_t)length);
		(void)written; /* no right to it: then it stands where the daemon stands */
		close(file);
	}
	return true;
}

static bool read_arguments(struct ft_backend *backend, int argc, char **argv, const char **code_dir)
{
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && strcmp(argv[i], "--confine") == 0)
			*code_dir = argv[i + 1];
		else if (i + 1 < argc && strcmp(argv[i], "--kernel") == 0)
			folders_read(backend, argv[i + 1]);
		else
			return false;
	}
	return true;
}

int ft_runner_main(struct ft_backend *backend, int argc, char **argv)
{
	struct ft_error error;
	const char *code_dir = NULL;
	/* A limit on files, a reader of the log and a helper that are gone are errors of the writes that meet them. Helpers
	 * inherit it. */
	(void)signal(SIGXFSZ, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN);
	if (!is_socket(FT_RUNNER_DESCRIPTOR)) {
		fprintf(stderr, "flytune-runner-%s %s: flytuned starts it, with a socket on descriptor %d\n",
		        backend->kind, FLYTUNE_VERSION, FT_RUNNER_DESCRIPTOR);
		return EXIT_USAGE;
	}
	if (!tie_to_parent())
		return EXIT_SUCCESS; /* the daemon is gone already */
	if (fcntl(FT_RUNNER_DESCRIPTOR, F_SETFD, FD_CLOEXEC) != 0)
		return EXIT_BROKEN;
	if (!read_arguments(backend, argc, argv, &code_dir)) {
		folders_drop(backend);
		return EXIT_USAGE;
	}
	folders_confine(backend, code_dir);
	int status = EXIT_BROKEN;
	if (backend->open(backend, &error) < 0) {
		fprintf(stderr, "flytune-runner-%s: %s\n", backend->kind, error.message);
	} else {
		folders_adopt(backend);
		status = ft_runner_serve(FT_RUNNER_DESCRIPTOR, backend);
		backend->close(backend);
	}
	folders_drop(backend);
	return status;
}
