#include "fake_daemon.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void fake_init(struct fake *fake)
{
	unsetenv("FLYTUNE_SOCKET");
	unsetenv("FLYTUNE_GENERATION");
	unsetenv("FLYTUNE_AUTOTUNE");
	memset(fake, 0, sizeof *fake);
	fake->board_fd = -1;
	snprintf(fake->directory, sizeof fake->directory, "/tmp/ft.XXXXXX");
	assert_non_null(mkdtemp(fake->directory));
	snprintf(fake->path, sizeof fake->path, "%s/s", fake->directory);
	pthread_mutex_init(&fake->lock, NULL);
	pthread_cond_init(&fake->changed, NULL);
}

flytune_client *fake_client(const struct fake *fake, struct flytune_options *options)
{
	struct flytune_error error = {0};
	flytune_client *client;

	options->socket = fake->path;
	client = flytune_open(options, &error);
	if (client == NULL)
		fail_msg("%s", error.message);
	return client;
}

static void forget_board(struct fake *fake)
{
	if (fake->board != NULL)
		munmap(fake->board, sizeof *fake->board);
	if (fake->board_fd >= 0)
		close(fake->board_fd);
	fake->board = NULL;
	fake->board_fd = -1;
}

void fake_free(struct fake *fake)
{
	fake_stop(fake);
	forget_board(fake);
	unlink(fake->path);
	rmdir(fake->directory);
	pthread_cond_destroy(&fake->changed);
	pthread_mutex_destroy(&fake->lock);
}

void fake_board(struct fake *fake, enum fake_flaw flaw)
{
	size_t size = sizeof *fake->board;
	int seals = F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL | F_SEAL_SHRINK;
	void *memory;

	forget_board(fake);
	fake->board_fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fake->board_fd >= 0);
	if (flaw == FAKE_SHORT)
		size -= 8;
	if (flaw == FAKE_LONG)
		size += 1;
	assert_int_equal(ftruncate(fake->board_fd, (off_t)size), 0);
	if (flaw != FAKE_HOLES)
		assert_int_equal(posix_fallocate(fake->board_fd, 0, (off_t)size), 0);
	memory = mmap(NULL, sizeof *fake->board, PROT_READ | PROT_WRITE, MAP_SHARED, fake->board_fd, 0);
	assert_true(memory != MAP_FAILED);
	fake->board = memory;
	/* Not the whole struct: its holes shall stay holes. */
	fake->board->magic = ft_board_magic;
	fake->board->layout = FT_BOARD_LAYOUT;
	fake->board->stripes = FT_BOARD_STRIPES;
	fake->board->owner_offset = 8;
	if (flaw == FAKE_GARBAGE)
		memset(fake->board, 0x5a, sizeof *fake->board / 2);
	if (flaw == FAKE_FAR_OWNER)
		fake->board->owner_offset = 0x7ffffffc;
	fake->board->lock[8] = 1;
	atomic_store(&fake->board->word[0], 1);
	if (flaw == FAKE_SHRINKABLE)
		seals &= ~F_SEAL_SHRINK;
	if (flaw != FAKE_UNSEALED)
		assert_int_equal(fcntl(fake->board_fd, F_ADD_SEALS, seals), 0);
}

void fake_board_changes(struct fake *fake)
{
	atomic_fetch_add(&fake->board->word[0], 1);
}

void fake_board_dies(struct fake *fake)
{
	/* As the kernel does it. */
	atomic_fetch_or((_Atomic uint32_t *)(void *)(fake->board->lock + 8), FT_BOARD_OWNER_DIED);
}

/* The reply to hello, with the descriptor of the board. */
static void send_board(struct fake_session *session, const struct ft_writer *writer)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.space = {0}};
	struct iovec part = {writer->data, writer->length};
	struct msghdr packet = {.msg_iov = &part,
	        .msg_iovlen = 1,
	        .msg_control = control.space,
	        .msg_controllen = sizeof control.space};
	struct cmsghdr *header = CMSG_FIRSTHDR(&packet);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &session->fake->board_fd, sizeof(int));
	assert_int_equal(sendmsg(session->fd, &packet, MSG_NOSIGNAL), writer->length);
}

void fake_wait_gate(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	fake->at_gate++;
	pthread_cond_broadcast(&fake->changed);
	while (!fake->gate)
		pthread_cond_wait(&fake->changed, &fake->lock);
	fake->at_gate--;
	pthread_mutex_unlock(&fake->lock);
}

void fake_open_gate(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	fake->gate = true;
	pthread_cond_broadcast(&fake->changed);
	pthread_mutex_unlock(&fake->lock);
}

void fake_await_arrivals(struct fake *fake, int count)
{
	pthread_mutex_lock(&fake->lock);
	while (fake->at_gate < count)
		pthread_cond_wait(&fake->changed, &fake->lock);
	pthread_mutex_unlock(&fake->lock);
}

void fake_send(struct fake_session *session, const struct ft_writer *writer)
{
	size_t sent = 0;

	while (sent < writer->length) {
		ssize_t count = send(session->fd, writer->data + sent, writer->length - sent, MSG_NOSIGNAL);

		if (count <= 0)
			return;
		sent += (size_t)count;
	}
}

void fake_reply(struct fake_session *session, uint64_t id, const struct ft_message *message, const void *body)
{
	struct ft_writer writer;

	ft_writer_init_growing(&writer, 9 << 20);
	ft_begin_response(&writer, id);
	ft_encode(&writer, message, body);
	fake_send(session, &writer);
	ft_writer_free(&writer);
}

void fake_refuse(struct fake_session *session, uint64_t id, const char *code, const char *field)
{
	struct ft_writer writer;
	struct ft_error error;

	ft_fail_field(&error, code, field, "this", "that");
	ft_writer_init_growing(&writer, 1 << 20);
	ft_write_failure(&writer, id, &error);
	fake_send(session, &writer);
	ft_writer_free(&writer);
}

int64_t fake_m(const struct ft_envelope *request)
{
	struct ft_lookup_request lookup;
	const struct ft_field *m;

	if (ft_decode(&ft_lookup_request_message, request->body, &lookup, NULL) != 0)
		return -1;
	m = ft_problem_find(&lookup.problem, "m");
	return m == NULL ? -1 : m->number;
}

void fake_answer(const struct ft_problem *problem, const char *generation, struct ft_answer *answer)
{
	const struct ft_field *m = ft_problem_find(problem, "m");

	memset(answer, 0, sizeof *answer);
	snprintf(answer->kernel, sizeof answer->kernel, "rmsnorm");
	answer->problem = *problem;
	snprintf(answer->device, sizeof answer->device, "cpu:0");
	snprintf(answer->source, sizeof answer->source, "tuned");
	snprintf(answer->reason, sizeof answer->reason, "%s", generation);
	answer->generation = 7;
	answer->time_ns = 81200;
	answer->gain_ppm = 1169951;
	answer->tuned_at_ns = UINT64_C(1700000000000000000);
	ft_config_set(&answer->config, "M", m == NULL ? -1 : m->number, NULL);
	ft_config_set(&answer->config, "waves_per_eu", 0, NULL);
}

/* The answer to one lookup's params; or an error. */
static int make_answer(
        struct fake *fake, struct ft_view params, struct ft_answer *answer, struct ft_error *error)
{
	struct ft_lookup_request lookup;

	atomic_fetch_add(&fake->lookups, 1);
	if (ft_decode(&ft_lookup_request_message, params, &lookup, error) != 0)
		return -1;
	if (lookup.repeats != 0)
		atomic_store(&fake->repeats, lookup.repeats);
	fake_answer(&lookup.problem, lookup.generation, answer);
	if (fake->board_fd >= 0) {
		answer->stripe = 1;
		answer->version = atomic_load(&fake->board->word[0]);
	}
	if (answer->config.knob[0].value == FAKE_M_MISS)
		snprintf(answer->source, sizeof answer->source, "default");
	if (answer->config.knob[0].value == FAKE_M_REFUSED)
		return ft_fail_field(error, FT_E_BAD_VALUE, "m", "this", "another");
	if (answer->config.knob[0].value == FAKE_M_UNAVAILABLE)
		return ft_fail(error, FT_E_UNAVAILABLE, "not just now");
	return 0;
}

static void answer_lookup(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_answer answer;
	struct ft_error error;

	if (make_answer(session->fake, request->body, &answer, &error) != 0)
		fake_refuse(session, request->id, error.code, error.field);
	else
		fake_reply(session, request->id, &ft_answer_message, &answer);
}

static void answer_many(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_lookup_many_request many;
	struct ft_lookup_many_reply reply;
	struct ft_answer answer;
	struct ft_cursor cursor;
	struct ft_writer writer;
	struct ft_error error;
	struct ft_view params;
	uint32_t count = 0;

	atomic_fetch_add(&session->fake->many, 1);
	assert_int_equal(ft_decode(&ft_lookup_many_request_message, request->body, &many, NULL), 0);
	cursor = ft_cursor_of(many.lookups.data, many.lookups.length);
	assert_true(ft_read_array(&cursor, &count));
	assert_in_range(count, 1, FT_LOOKUPS_MAX);
	ft_writer_init_growing(&writer, 8 << 20);
	ft_write_array(&writer, count);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(ft_read_view(&cursor, &params));
		if (make_answer(session->fake, params, &answer, &error) != 0) {
			ft_write_map(&writer, 1);
			ft_write_text(&writer, "error");
			ft_write_error(&writer, &error);
		} else {
			ft_encode(&writer, &ft_answer_message, &answer);
		}
	}
	reply.answers = (struct ft_view){writer.data, writer.length};
	fake_reply(session, request->id, &ft_lookup_many_reply_message, &reply);
	ft_writer_free(&writer);
}

void fake_tell(struct fake_session *session, uint64_t place, uint64_t mark)
{
	struct ft_answer_notice news = {.place = place, .digest = mark};
	struct ft_writer writer, encoded;
	struct ft_answer answer;

	fake_answer(&(struct ft_problem){0}, "", &answer);
	ft_config_set(&answer.config, "M", (int64_t)mark, NULL);
	ft_writer_init_growing(&encoded, 1 << 20);
	ft_encode(&encoded, &ft_answer_message, &answer);
	news.answer = (struct ft_view){encoded.data, encoded.length};
	ft_writer_init_growing(&writer, 1 << 20);
	ft_begin_notice(&writer, "answer");
	ft_encode(&writer, &ft_answer_notice_message, &news);
	fake_send(session, &writer);
	ft_writer_free(&writer);
	ft_writer_free(&encoded);
}

void fake_tell_all(struct fake *fake, uint64_t place, uint64_t mark)
{
	for (int i = 0; i < atomic_load(&fake->sessions); i++) {
		if (place <= atomic_load(&fake->session[i]->places))
			fake_tell(fake->session[i], place, mark);
	}
}

/* At first the mark of a place is its number. */
static void answer_subscribe(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_subscribe_request asked;
	struct ft_subscribe_reply reply = {.first = atomic_load(&session->places) + 1};
	struct ft_cursor lookups, seen;
	uint32_t count = 0, known = 0;

	assert_int_equal(ft_decode(&ft_subscribe_request_message, request->body, &asked, NULL), 0);
	lookups = ft_cursor_of(asked.lookups.data, asked.lookups.length);
	seen = ft_cursor_of(asked.seen.data, asked.seen.length);
	assert_true(ft_read_array(&lookups, &count) && ft_read_array(&seen, &known));
	assert_in_range(count, 1, FT_LOOKUPS_MAX);
	assert_int_equal(known, count);
	reply.count = count;
	fake_reply(session, request->id, &ft_subscribe_reply_message, &reply);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t digest = 0;

		assert_true(ft_read_uint(&seen, &digest));
		if (digest == 0)
			fake_tell(session, reply.first + i, reply.first + i);
	}
	atomic_fetch_add(&session->places, count);
	atomic_fetch_add(&session->fake->subscribes, 1);
}

/* Whole, as flytune_tune names it. */
static void fill_job(struct ft_job *job, uint64_t number, const char *state)
{
	memset(job, 0, sizeof *job);
	job->job = number;
	snprintf(job->kernel, sizeof job->kernel, "rmsnorm");
	ft_problem_set_number(
	        &job->problems, "m", number < FAKE_JOBS ? 64 : (int64_t)(number - FAKE_JOBS), NULL);
	ft_problem_set_number(&job->problems, "n", 4096, NULL);
	ft_problem_set_number(&job->problems, "row_stride", 4096, NULL);
	ft_problem_set_text(&job->problems, "weight_dtype", "bf16", NULL);
	ft_problem_set_text(&job->problems, "dtype", "bf16", NULL);
	snprintf(job->device, sizeof job->device, "cpu:0");
	snprintf(job->state, sizeof job->state, "%s", state);
	job->trials = 12;
	job->settled = 4;
	job->sweep_ns = 1500000000;
}

static void answer_tune(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_tune_request tune;
	struct ft_tune_reply reply = {0};
	struct ft_writer writer;
	struct ft_answer answer;

	atomic_fetch_add(&session->fake->tunes, 1);
	ft_decode(&ft_tune_request_message, request->body, &tune, NULL);
	ft_writer_init_growing(&writer, 1 << 20);
	if (tune.force) {
		const struct ft_field *m = ft_problem_find(&tune.problem, "m");

		reply.job = FAKE_JOBS + (uint64_t)(m != NULL ? m->number : 0);
	} else {
		fake_answer(&tune.problem, "", &answer);
		ft_encode(&writer, &ft_answer_message, &answer);
		reply.answer = (struct ft_view){writer.data, writer.length};
	}
	fake_reply(session, request->id, &ft_tune_reply_message, &reply);
	ft_writer_free(&writer);
}

static void answer_watch(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_empty empty = {.ok = true};
	struct ft_event event = {.job = 42,
	        .event = "trial",
	        .status = "ok",
	        .trials = 12,
	        .settled = 5,
	        .time_ps = 81200000,
	        .ci_ps = 400000};
	struct ft_writer writer;

	fake_reply(session, request->id, &ft_empty_message, &empty);
	ft_config_set(&event.config, "BLOCK_THREADS", 256, NULL);
	ft_writer_init_growing(&writer, 1 << 20);
	ft_begin_notice(&writer, "news"); /* which the library does not know */
	ft_encode(&writer, &ft_empty_message, &empty);
	ft_begin_notice(&writer, "event");
	ft_encode(&writer, &ft_event_message, &event);
	fake_send(session, &writer);
	ft_writer_free(&writer);
}

static void answer_wait(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_job job;
	struct ft_answer answer;
	struct ft_writer writer;
	struct ft_job_request asked;

	atomic_fetch_add(&session->fake->waits, 1);
	assert_int_equal(ft_decode(&ft_job_request_message, request->body, &asked, NULL), 0);
	fill_job(&job, asked.job, "done");
	fake_answer(&job.problems, "", &answer);
	ft_writer_init_growing(&writer, 1 << 20);
	ft_encode(&writer, &ft_answer_message, &answer);
	job.answer = (struct ft_view){writer.data, writer.length};
	fake_reply(session, request->id, &ft_job_message, &job);
	ft_writer_free(&writer);
}

/* A list of `count` equal elements. */
static struct ft_view list_of(
        struct ft_writer *writer, uint32_t count, const struct ft_message *message, const void *body)
{
	ft_writer_init_growing(writer, 1 << 20);
	ft_write_array(writer, count);
	for (uint32_t i = 0; i < count; i++)
		ft_encode(writer, message, body);
	return (struct ft_view){writer->data, writer->length};
}

static void answer_jobs(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_job job;
	struct ft_jobs_reply reply;
	struct ft_writer writer;

	fill_job(&job, 42, "running");
	reply.jobs = list_of(&writer, 3, &ft_job_message, &job);
	fake_reply(session, request->id, &ft_jobs_reply_message, &reply);
	ft_writer_free(&writer);
}

static void answer_trials(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_trial trial = {
	        .status = "same_code_as", .is_default = true, .time_ps = 81200000, .ci_ps = 400000};
	struct ft_trials_reply reply = {
	        .kernel = "rmsnorm", .device = "cpu:0", .rounds = 9, .conclusive = true};
	struct ft_writer writer;

	ft_config_set(&trial.config, "BLOCK_THREADS", 256, NULL);
	ft_config_set(&trial.same_as, "BLOCK_THREADS", 512, NULL);
	ft_problem_set_number(&reply.problem, "m", 64, NULL);
	reply.trials = list_of(&writer, 12, &ft_trial_message, &trial);
	fake_reply(session, request->id, &ft_trials_reply_message, &reply);
	ft_writer_free(&writer);
}

static void answer_status(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_device_state device = {.id = "cpu:0", .kind = "cpu", .state = "ready", .units = 2};
	struct ft_status_reply status = {.server = "fake",
	        .protocol = FT_PROTOCOL_MAX,
	        .pid = 1,
	        .store = FAKE_STORE,
	        .generation = 7,
	        .state_dir = "/state",
	        .answers = 3};
	struct ft_devices_reply devices;
	struct ft_writer list, counts;

	ft_writer_init_growing(&counts, 1 << 20);
	ft_write_map(&counts, 2);
	ft_write_text(&counts, "tuned");
	ft_write_uint(&counts, 5);
	ft_write_text(&counts, "conjured");
	ft_write_uint(&counts, 6);
	status.lookups = (struct ft_view){counts.data, counts.length};
	status.devices = devices.devices = list_of(&list, 1, &ft_device_state_message, &device);
	if (strcmp(request->method, "status") == 0)
		fake_reply(session, request->id, &ft_status_reply_message, &status);
	else
		fake_reply(session, request->id, &ft_devices_reply_message, &devices);
	ft_writer_free(&list);
	ft_writer_free(&counts);
}

static void answer_hello(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_hello_reply hello = {
	        .protocol = FT_PROTOCOL_MAX, .server = "fake", .store = FAKE_STORE, .generation = 7};

	struct ft_hello_request asked;
	struct ft_writer writer;

	atomic_fetch_add(&session->fake->hellos, 1);
	assert_int_equal(ft_decode(&ft_hello_request_message, request->body, &asked, NULL), 0);
	if (asked.board && session->fake->board_fd >= 0) {
		hello.descriptors = 1;
		ft_writer_init_growing(&writer, 1 << 20);
		ft_begin_response(&writer, request->id);
		ft_encode(&writer, &ft_hello_reply_message, &hello);
		send_board(session, &writer);
		ft_writer_free(&writer);
		return;
	}
	fake_reply(session, request->id, &ft_hello_reply_message, &hello);
}

static void answer_empty(struct fake_session *session, const struct ft_envelope *request)
{
	struct ft_empty empty = {.ok = true};

	fake_reply(session, request->id, &ft_empty_message, &empty);
}

static void answer(struct fake_session *session, const struct ft_envelope *request)
{
	static const struct {
		const char *method;
		void (*answer)(struct fake_session *, const struct ft_envelope *);
	} methods[] = {
	        {"hello", answer_hello},
	        {"lookup", answer_lookup},
	        {"lookup_many", answer_many},
	        {"subscribe", answer_subscribe},
	        {"tune", answer_tune},
	        {"watch", answer_watch},
	        {"wait", answer_wait},
	        {"jobs", answer_jobs},
	        {"trials", answer_trials},
	        {"status", answer_status},
	        {"devices", answer_status},
	        {"cancel", answer_empty},
	        {"import_begin", answer_empty},
	};

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strcmp(request->method, methods[i].method) == 0) {
			methods[i].answer(session, request);
			return;
		}
	}
	fake_refuse(session, request->id, FT_E_UNKNOWN_METHOD, "method");
}

static int next_request(struct fake_session *session, struct ft_envelope *request)
{
	struct ft_view message;
	struct ft_error error;
	uint8_t *data;
	size_t size;
	ssize_t count;

	for (;;) {
		int whole = ft_inbox_next(&session->inbox, &message, &error);

		if (whole > 0)
			return ft_open_envelope(message, request, &error);
		if (whole < 0 || ft_inbox_room(&session->inbox, &data, &size, &error) != 0)
			return -1;
		count = recv(session->fd, data, size, 0);
		if (count <= 0)
			return -1;
		ft_inbox_received(&session->inbox, (size_t)count);
	}
}

static void *serve(void *data)
{
	struct fake_session *session = data;
	struct ft_envelope request;
	enum fake_act act = FAKE_USUAL;

	while (act != FAKE_CLOSE && next_request(session, &request) == 0) {
		fake_hook hook = atomic_load(&session->fake->hook);

		act = hook == NULL ? FAKE_USUAL : hook(session, &request, session->fake->data);
		if (act == FAKE_USUAL)
			answer(session, &request);
	}
	shutdown(session->fd, SHUT_RDWR);
	return NULL;
}

static void *accept_all(void *data)
{
	struct fake *fake = data;
	int fd;

	while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 &&
	        fake->sessions < FAKE_CONNECTIONS_MAX) {
		struct fake_session *session = calloc(1, sizeof *session);

		assert_non_null(session);
		session->fake = fake;
		session->fd = fd;
		ft_inbox_init(&session->inbox, &ft_bounds_request);
		fake->session[atomic_load(&fake->sessions)] = session;
		atomic_fetch_add(&fake->sessions, 1);
		atomic_fetch_add(&fake->accepted, 1);
		assert_int_equal(pthread_create(&session->thread, NULL, serve, session), 0);
	}
	return NULL;
}

void fake_listen(struct fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, fake->path, sizeof fake->path);
	fake->gate = false;
	fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fake->listener >= 0);
	assert_int_equal(bind(fake->listener, (const struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fake->listener, 128), 0);
	assert_int_equal(pthread_create(&fake->acceptor, NULL, accept_all, fake), 0);
	fake->running = true;
}

void fake_stop(struct fake *fake)
{
	if (!fake->running)
		return;
	shutdown(fake->listener, SHUT_RDWR);
	pthread_join(fake->acceptor, NULL);
	close(fake->listener);
	unlink(fake->path);
	fake_open_gate(fake);
	for (int i = 0; i < fake->sessions; i++) {
		struct fake_session *session = fake->session[i];

		shutdown(session->fd, SHUT_RDWR);
		pthread_join(session->thread, NULL);
		close(session->fd);
		ft_inbox_free(&session->inbox);
		free(session);
	}
	fake->sessions = 0;
	fake->running = false;
}
