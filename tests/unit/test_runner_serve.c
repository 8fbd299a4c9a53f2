/* The runner's language and its race, over a socket, with a backend whose times and faults are made up. */
#include "tests/unit/check.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/runner/runner.h"
#include "proto/inbox.h"

enum { MEMBERS = 6, PATIENCE_MS = 120000, ROUNDS_SEEN = 256 };

/* What the backend does to one config. */
struct script {
	uint64_t time_ps;
	const char *code; /* NULL: its own */
	bool fails_build;
	bool wrong;
	bool wrong_later;  /* from the second verification on */
	int fails_measure; /* at that measure, counted from 1; 0: never */
	int hangs;
	int crashes;
	int loses;
};

/* Shared with the child that the runner runs in. */
struct calls {
	int builds[MEMBERS];
	int verifications[MEMBERS];
	int measures[MEMBERS];
	int finishes;
};

struct fake {
	struct ft_backend backend;
	struct ft_backend_device device;
	const struct script *script;
	struct calls *calls;
	size_t next;
	bool started[MEMBERS];
	uint64_t noise;
};

static int fake_open(struct ft_backend *self, struct ft_error *error)
{
	(void)self;
	(void)error;
	return 0;
}

static void fake_close(struct ft_backend *self)
{
	(void)self;
}

static void fake_source(struct ft_backend *self, const char *kernel, char hash[FT_HASH_SIZE])
{
	(void)self;
	(void)kernel;
	snprintf(hash, FT_HASH_SIZE, "%032x", 1);
}

static int fake_prepare(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error)
{
	struct fake *fake = (struct fake *)self;
	fake->next = 0;
	memset(fake->started, 0, sizeof(fake->started));
	return sweep->count == MEMBERS ? 0 : ft_fail(error, FT_E_UNAVAILABLE, "another count than scripted");
}

static int fake_build_start(struct ft_backend *self, size_t index, struct ft_error *error)
{
	struct fake *fake = (struct fake *)self;
	(void)error;
	fake->calls->builds[index]++;
	fake->started[index] = true;
	return 0;
}

static int fake_build_wait(struct ft_backend *self, struct ft_built *built, struct ft_error *error)
{
	struct fake *fake = (struct fake *)self;
	(void)error;
	/* From the last to the first: nothing may hang on the order. */
	for (size_t i = MEMBERS; i > 0; i--) {
		size_t index = i - 1;
		if (!fake->started[index])
			continue;
		fake->started[index] = false;
		*built = (struct ft_built){.index = index, .build_ns = 1000, .registers = 32};
		if (fake->script[index].fails_build) {
			built->failed = true;
			ft_fail(&built->error, FT_E_RUNNER, "no such instruction");
			return 1;
		}
		if (fake->script[index].code)
			snprintf(built->code, sizeof(built->code), "%s", fake->script[index].code);
		else
			snprintf(built->code, sizeof(built->code), "%032zx", index + 100);
		built->cached = true;
		return 1;
	}
	return 0;
}

static int fake_verify(struct ft_backend *self, size_t index, double *largest, struct ft_error *error)
{
	struct fake *fake = (struct fake *)self;
	fake->calls->verifications[index]++;
	*largest = 0.001;
	if (fake->script[index].wrong ||
	        (fake->script[index].wrong_later && fake->calls->verifications[index] > 1)) {
		ft_fail(error, FT_E_BAD_VALUE, "row 1 is wrong");
		return 1;
	}
	return 0;
}

static int fake_warm(struct ft_backend *self, struct ft_error *error)
{
	(void)error;
	snprintf(self->method, sizeof(self->method), "made up");
	return 0;
}

static int fake_measure(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error)
{
	struct fake *fake = (struct fake *)self;
	const struct script *script = &fake->script[index];
	int number = ++fake->calls->measures[index];
	if (number == script->fails_measure)
		return ft_fail(error, FT_E_RUNNER, "launch refused");
	if (number == script->hangs) {
		for (;;)
			pause();
	}
	if (number == script->crashes)
		raise(SIGSEGV);
	if (number == script->loses) {
		ft_fail(error, FT_E_RUNNER, "illegal address");
		return FT_BACKEND_LOST;
	}
	/* A thousandth up or down. */
	*sample_ps = script->time_ps + check_random(&fake->noise) % (script->time_ps / 500 + 1);
	return 0;
}

static void fake_finish(struct ft_backend *self)
{
	((struct fake *)self)->calls->finishes++;
}

static void fake_init(struct fake *fake, const struct script *script, struct calls *calls)
{
	*fake = (struct fake){
	        .backend =
	                {
	                        .kind = "cpu",
	                        .open = fake_open,
	                        .close = fake_close,
	                        .source = fake_source,
	                        .prepare = fake_prepare,
	                        .build_start = fake_build_start,
	                        .build_wait = fake_build_wait,
	                        .verify = fake_verify,
	                        .warm = fake_warm,
	                        .measure = fake_measure,
	                        .finish = fake_finish,
	                        .identity = "made=up",
	                },
	        .script = script,
	        .calls = calls,
	};
	fake->device = (struct ft_backend_device){.shown = {.id = "cpu:0",
	                                                  .kind = "cpu",
	                                                  .name = "Fake",
	                                                  .arch = "none",
	                                                  .identity = "made=up",
	                                                  .units = 2},
	        .traits = {.kind = "cpu", .arch = "none", .units = 2, .cache = 1 << 20}};
	fake->backend.device = &fake->device;
	fake->backend.device_count = 1;
}

/* ---- the daemon's side ---- */

struct link {
	int descriptor;
	pid_t child;
	struct ft_inbox inbox;
	struct calls *calls;
	uint64_t id;
};

static void link_open(struct link *link, const struct script *script)
{
	int pair[2] = {-1, -1};
	*link = (struct link){.descriptor = -1};
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	link->calls =
	        mmap(NULL, sizeof(*link->calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(link->calls, MAP_FAILED);
	link->child = fork();
	assert_true(link->child >= 0);
	if (link->child == 0) {
		struct fake fake;
		close(pair[0]);
		fake_init(&fake, script, link->calls);
		_exit(ft_runner_serve(pair[1], &fake.backend));
	}
	close(pair[1]);
	link->descriptor = pair[0];
	ft_inbox_init(&link->inbox, &ft_bounds_large);
}

/* The child's wait status. */
static int link_close(struct link *link)
{
	int status = 0;
	if (link->descriptor >= 0)
		close(link->descriptor);
	ft_inbox_free(&link->inbox);
	alarm(PATIENCE_MS / 1000);
	assert_int_equal(waitpid(link->child, &status, 0), link->child);
	alarm(0);
	munmap(link->calls, sizeof(*link->calls));
	return status;
}

static void send_bytes(struct link *link, const void *data, size_t length)
{
	assert_int_equal(send(link->descriptor, data, length, MSG_NOSIGNAL), length);
}

static void ask(struct link *link, const char *method, const struct ft_message *message, const void *body)
{
	struct ft_writer writer;
	ft_writer_init_growing(&writer, 1 << 20);
	ft_begin_request(&writer, ++link->id, method);
	ft_encode(&writer, message, body);
	assert_true(ft_writer_ok(&writer));
	send_bytes(link, writer.data, writer.length);
	ft_writer_free(&writer);
}

/* False at the end of the socket. Views live until the next call. */
static bool hear(struct link *link, struct ft_envelope *envelope)
{
	struct ft_view message;
	struct ft_error error;
	*envelope = (struct ft_envelope){0};
	for (;;) {
		int got = ft_inbox_next(&link->inbox, &message, &error);
		assert_true(got >= 0);
		if (got > 0) {
			assert_int_equal(ft_open_envelope(message, envelope, &error), 0);
			return true;
		}
		struct pollfd waiting = {.fd = link->descriptor, .events = POLLIN};
		uint8_t *room;
		size_t size;
		assert_int_equal(poll(&waiting, 1, PATIENCE_MS), 1);
		assert_int_equal(ft_inbox_room(&link->inbox, &room, &size, &error), 0);
		ssize_t length = recv(link->descriptor, room, size, 0);
		if (length <= 0)
			return false;
		ft_inbox_received(&link->inbox, (size_t)length);
	}
}

static void expect_failure(struct link *link, const char *code)
{
	struct ft_envelope envelope;
	struct ft_error failure;
	assert_true(hear(link, &envelope));
	assert_int_equal(envelope.type, FT_RESPONSE);
	assert_non_null(envelope.error.data);
	ft_read_failure(envelope.error, &failure);
	assert_string_equal(failure.code, code);
}

static void greet(struct link *link)
{
	struct ft_runner_hello_request hello = {.min = FT_RUNNER_PROTOCOL_MIN, .max = FT_RUNNER_PROTOCOL_MAX};
	struct ft_envelope envelope;
	ask(link, "hello", &ft_runner_hello_request_message, &hello);
	assert_true(hear(link, &envelope));
	assert_null(envelope.error.data);
}

/* What is known of a member before a sweep. */
struct known {
	const char *status;
	bool built, verified, dropped;
	uint64_t sample_ps; /* in each of the rounds so far */
};

static struct ft_problem problem_of(uint64_t m)
{
	struct ft_problem problem = {0};
	ft_problem_set_number(&problem, "m", (int64_t)m, NULL);
	ft_problem_set_number(&problem, "n", 4096, NULL);
	ft_problem_set_text(&problem, "dtype", "bf16", NULL);
	return problem;
}

static struct ft_config config_of(size_t index)
{
	struct ft_problem given = problem_of(64);
	struct ft_problem problem;
	struct ft_traits traits = {.kind = "cpu", .arch = "none", .units = 2, .cache = 1 << 20};
	struct ft_space *space = calloc(1, sizeof(*space));
	assert_non_null(space);
	assert_int_equal(ft_problem_admit(&ft_kernel_rmsnorm,
	                         ft_kernel_rmsnorm.schema(&ft_kernel_rmsnorm, "cpu"), &given, &problem, NULL),
	        0);
	assert_int_equal(ft_kernel_rmsnorm.space(&ft_kernel_rmsnorm, &problem, &traits, space, NULL), 0);
	assert_true(index < space->count);
	struct ft_config config = space->config[index];
	free(space);
	return config;
}

struct candidate {
	const struct known *known; /* MEMBERS, or NULL */
	uint64_t rounds;
	uint64_t budget_ns;
	uint64_t default_index;
};

static void ask_sweep(struct link *link, const struct candidate *candidate)
{
	struct ft_writer members;
	struct ft_writer samples;
	struct ft_sweep_request request = {
	        .job = 7,
	        .kernel = "rmsnorm",
	        .problem = problem_of(64),
	        .device = "cpu:0",
	        .default_index = candidate->default_index,
	        .rounds = candidate->rounds,
	        .seed = 42,
	        .budget_ns = candidate->budget_ns ? candidate->budget_ns : UINT64_C(60000000000),
	        .band_ppm = 5000,
	        .min_rounds = 7,
	        .max_rounds = 60,
	};
	ft_writer_init_growing(&members, 1 << 20);
	ft_writer_init_growing(&samples, 1 << 20);
	ft_write_array(&members, MEMBERS);
	for (size_t i = 0; i < MEMBERS; i++) {
		struct ft_sweep_member member = {.config = config_of(i)};
		const struct known *known = candidate->known ? &candidate->known[i] : NULL;
		ft_writer_reset(&samples);
		if (known && known->status)
			snprintf(member.status, sizeof(member.status), "%s", known->status);
		if (known && known->built)
			snprintf(member.code, sizeof(member.code), "%032zx", i + 100);
		if (known && known->sample_ps) {
			ft_write_array(&samples, (uint32_t)candidate->rounds);
			for (uint64_t round = 0; round < candidate->rounds; round++)
				ft_write_uint(&samples, known->sample_ps + round);
			member.samples = (struct ft_view){samples.data, samples.length};
		}
		member.verified = known && known->verified;
		member.dropped = known && known->dropped;
		ft_encode(&members, &ft_sweep_member_message, &member);
	}
	request.members = (struct ft_view){members.data, members.length};
	ask(link, "sweep", &ft_sweep_request_message, &request);
	ft_writer_free(&members);
	ft_writer_free(&samples);
}

/* What a sweep said. */
struct heard {
	bool ended; /* the socket did, before a reply */
	struct ft_sweep_reply reply;
	int built[MEMBERS], same[MEMBERS], verified[MEMBERS], dropped[MEMBERS];
	int good[MEMBERS]; /* confirmed */
	char out[MEMBERS][16];
	uint64_t other[MEMBERS];
	uint64_t first_round, rounds;
	int sampled[MEMBERS];
	int64_t begun; /* named last by `begin`, -1 once anything else about it, a stage or a round came */
	bool confirmed;
	bool first_verified_late; /* a sample came before a verification */
};

static void take_round(struct heard *heard, const struct ft_runner_event *event)
{
	struct ft_cursor cursor = ft_cursor_of(event->samples.data, event->samples.length);
	uint32_t count = 0;
	if (heard->rounds == 0)
		heard->first_round = event->round;
	assert_int_equal(event->round, heard->first_round + heard->rounds);
	heard->rounds++;
	assert_true(ft_read_array(&cursor, &count));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t two = 0;
		uint64_t index = 0;
		uint64_t sample = 0;
		assert_true(ft_read_array(&cursor, &two) && two == 2 && ft_read_uint(&cursor, &index) &&
		        ft_read_uint(&cursor, &sample));
		assert_true(index < MEMBERS);
		assert_true(sample > 0);
		assert_string_equal(heard->out[index], "");
		heard->sampled[index]++;
	}
	heard->begun = -1;
}

static void take_event(struct heard *heard, const struct ft_runner_event *event)
{
	size_t trial = event->trial;
	assert_int_equal(event->job, 7);
	assert_true(trial < MEMBERS);
	if (strcmp(event->event, "begin") == 0) {
		heard->begun = (int64_t)trial;
		return;
	}
	if (strcmp(event->event, "round") == 0) {
		take_round(heard, event);
	} else if (strcmp(event->event, "stage") == 0) {
		heard->begun = -1;
		heard->confirmed = heard->confirmed || strcmp(event->stage, "confirm") == 0;
	} else if (strcmp(event->event, "built") == 0) {
		heard->built[trial]++;
	} else if (strcmp(event->event, "same_code") == 0) {
		heard->same[trial]++;
		heard->other[trial] = event->other;
	} else if (strcmp(event->event, "verified") == 0) {
		heard->verified[trial]++;
	} else if (strcmp(event->event, "confirmed") == 0) {
		assert_true(heard->confirmed && heard->verified[trial] > 0);
		heard->good[trial]++;
	} else if (strcmp(event->event, "dropped") == 0) {
		heard->dropped[trial]++;
	} else if (strcmp(event->event, "out") == 0) {
		assert_true(event->reason[0] != '\0');
		snprintf(heard->out[trial], sizeof(heard->out[trial]), "%s", event->status);
	} else {
		fail_msg("an event called %s", event->event);
	}
	if (heard->begun == (int64_t)trial)
		heard->begun = -1;
}

static void listen_to(struct link *link, struct heard *heard, bool (*until)(const struct heard *heard))
{
	struct ft_envelope envelope;
	for (;;) {
		if (!hear(link, &envelope)) {
			heard->ended = true;
			return;
		}
		if (envelope.type == FT_RESPONSE) {
			struct ft_error error;
			if (envelope.error.data) {
				ft_read_failure(envelope.error, &error);
				fail_msg("the sweep failed: %s", error.message);
			}
			assert_int_equal(
			        ft_decode(&ft_sweep_reply_message, envelope.body, &heard->reply, &error), 0);
			return;
		}
		struct ft_runner_event event;
		assert_string_equal(envelope.method, "event");
		assert_int_equal(ft_decode(&ft_runner_event_message, envelope.body, &event, NULL), 0);
		take_event(heard, &event);
		if (until && until(heard))
			return;
	}
}

static void sweep(struct link *link, const struct script *script, const struct candidate *candidate,
        struct heard *heard)
{
	*heard = (struct heard){.begun = -1};
	link_open(link, script);
	greet(link);
	ask_sweep(link, candidate);
	listen_to(link, heard, NULL);
}

static const struct script plain[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000}, {.time_ps = 3000000},
        {.time_ps = 6000000}, {.time_ps = 7000000}, {.time_ps = 8000000}};
static const struct candidate usual = {.default_index = 1};

/* ---- tests ---- */

static void hello_must_come_first_and_share_a_version(void **state)
{
	struct link link;
	struct ft_space_request space = {.kernel = "rmsnorm", .problem = problem_of(64), .device = "cpu:0"};
	struct ft_runner_hello_request hello = {.min = FT_RUNNER_PROTOCOL_MAX + 1, .max = 9};
	(void)state;
	link_open(&link, plain);
	ask(&link, "space", &ft_space_request_message, &space);
	expect_failure(&link, FT_E_PROTOCOL);
	ask(&link, "hello", &ft_runner_hello_request_message, &hello);
	expect_failure(&link, FT_E_PROTOCOL);
	greet(&link);
	ask(&link, "nonsense", &ft_space_request_message, &space);
	expect_failure(&link, FT_E_UNKNOWN_METHOD);
	assert_int_equal(link_close(&link), 0);
}

static void hello_tells_devices_identity_and_schema(void **state)
{
	struct link link;
	struct ft_runner_hello_request hello = {.min = 1, .max = FT_RUNNER_PROTOCOL_MAX + 1};
	struct ft_runner_hello_reply reply;
	struct ft_runner_device device;
	struct ft_runner_kernel kernel;
	struct ft_schema schema;
	struct ft_envelope envelope;
	struct ft_view view = {0};
	uint32_t count = 0;
	(void)state;
	link_open(&link, plain);
	ask(&link, "hello", &ft_runner_hello_request_message, &hello);
	assert_true(hear(&link, &envelope));
	assert_null(envelope.error.data);
	assert_int_equal(ft_decode(&ft_runner_hello_reply_message, envelope.body, &reply, NULL), 0);
	assert_int_equal(reply.protocol, FT_RUNNER_PROTOCOL_MAX);
	assert_string_equal(reply.identity, "made=up");
	struct ft_cursor cursor = ft_cursor_of(reply.devices.data, reply.devices.length);
	assert_true(ft_read_array(&cursor, &count) && count == 1 && ft_read_view(&cursor, &view));
	assert_int_equal(ft_decode(&ft_runner_device_message, view, &device, NULL), 0);
	assert_string_equal(device.id, "cpu:0");
	cursor = ft_cursor_of(reply.kernels.data, reply.kernels.length);
	assert_true(ft_read_array(&cursor, &count) && count >= 2);
	for (uint32_t i = 0; i < count; i++) {
		assert_true(ft_read_view(&cursor, &view));
		assert_int_equal(ft_decode(&ft_runner_kernel_message, view, &kernel, NULL), 0);
		assert_int_equal(ft_schema_read(&kernel, &schema, NULL), 0);
		assert_string_equal(schema.kernel, ft_kernels[i]->schema(ft_kernels[i], "cpu")->kernel);
	}
	assert_null(ft_kernels[count]);
	assert_int_equal(link_close(&link), 0);
}

static void a_space_is_answered_and_bad_ones_are_refused_by_field(void **state)
{
	struct link link;
	struct ft_space_request request = {.kernel = "rmsnorm", .problem = problem_of(64), .device = "cpu:0"};
	struct ft_space_reply reply;
	struct ft_envelope envelope;
	uint32_t count = 0;
	(void)state;
	link_open(&link, plain);
	greet(&link);
	ask(&link, "space", &ft_space_request_message, &request);
	assert_true(hear(&link, &envelope));
	assert_int_equal(ft_decode(&ft_space_reply_message, envelope.body, &reply, NULL), 0);
	struct ft_cursor cursor = ft_cursor_of(reply.members.data, reply.members.length);
	assert_true(ft_read_array(&cursor, &count));
	assert_true(count >= 12 && reply.default_index < count);
	request.problem = problem_of(0);
	ask(&link, "space", &ft_space_request_message, &request);
	expect_failure(&link, FT_E_BAD_VALUE);
	request.problem = problem_of(64);
	snprintf(request.device, sizeof(request.device), "cpu:1");
	ask(&link, "space", &ft_space_request_message, &request);
	expect_failure(&link, FT_E_UNKNOWN_DEVICE);
	snprintf(request.kernel, sizeof(request.kernel), "softmax");
	ask(&link, "space", &ft_space_request_message, &request);
	expect_failure(&link, FT_E_UNKNOWN_KERNEL);
	assert_int_equal(link_close(&link), 0);
}

static void broken_framing_is_told_and_ends_the_runner(void **state)
{
	struct link link;
	struct ft_envelope envelope;
	static const uint8_t rubbish[] = {0xc1, 0xc1, 0xc1};
	(void)state;
	link_open(&link, plain);
	send_bytes(&link, rubbish, sizeof(rubbish));
	expect_failure(&link, FT_E_BAD_FRAME);
	assert_false(hear(&link, &envelope));
	int status = link_close(&link);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void a_sweep_request_that_makes_no_sense_is_refused(void **state)
{
	struct link link;
	struct ft_writer members;
	struct ft_sweep_request request = {.job = 7,
	        .kernel = "rmsnorm",
	        .problem = problem_of(64),
	        .device = "cpu:0",
	        .budget_ns = 1,
	        .band_ppm = 5000,
	        .min_rounds = 7,
	        .max_rounds = 60};
	struct ft_sweep_member member = {.config = config_of(0)};
	(void)state;
	link_open(&link, plain);
	greet(&link);
	ft_writer_init_growing(&members, 1 << 20);
	ft_write_array(&members, 2);
	ft_encode(&members, &ft_sweep_member_message, &member);
	member.config.knob[0].value = 77;
	ft_encode(&members, &ft_sweep_member_message, &member);
	request.members = (struct ft_view){members.data, members.length};
	ask(&link, "sweep", &ft_sweep_request_message, &request);
	expect_failure(&link, FT_E_BAD_VALUE);
	request.default_index = 2;
	ask(&link, "sweep", &ft_sweep_request_message, &request);
	expect_failure(&link, FT_E_BAD_REQUEST);
	request.default_index = 0;
	request.max_rounds = 100000;
	ask(&link, "sweep", &ft_sweep_request_message, &request);
	expect_failure(&link, FT_E_BAD_VALUE);
	ft_writer_free(&members);
	assert_int_equal(link_close(&link), 0);
}

static void the_fastest_wins_verified_before_and_after(void **state)
{
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, plain, &usual, &heard);
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 2);
	assert_true(heard.reply.conclusive);
	assert_string_equal(heard.reply.method, "made up");
	assert_int_equal(heard.reply.rounds, heard.rounds);
	assert_int_equal(heard.first_round, 0);
	assert_true(heard.confirmed);
	assert_int_equal(heard.verified[2], 2);
	for (size_t i = 0; i < MEMBERS; i++) {
		assert_int_equal(heard.built[i], 1);
		assert_int_equal(heard.verified[i], i == 2 ? 2 : 1);
		assert_int_equal(heard.good[i], i == 2);
		assert_true(heard.sampled[i] >= 7);
	}
	assert_int_equal(link.calls->finishes, 1);
	assert_int_equal(link_close(&link), 0);
}

static void a_second_sweep_follows_on_the_same_socket(void **state)
{
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, plain, &usual, &heard);
	heard = (struct heard){.begun = -1};
	ask_sweep(&link, &usual);
	listen_to(&link, &heard, NULL);
	assert_int_equal(heard.reply.winner, 2);
	assert_int_equal(link.calls->finishes, 2);
	assert_int_equal(link_close(&link), 0);
}

static void each_fault_costs_its_own_config_only(void **state)
{
	static const struct script faults[MEMBERS] = {{.time_ps = 5000000, .fails_build = true},
	        {.time_ps = 4000000}, {.time_ps = 1000000, .wrong = true},
	        {.time_ps = 1000000, .fails_measure = 1}, {.time_ps = 1000000, .fails_measure = 4},
	        {.time_ps = 3000000}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, faults, &usual, &heard);
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 5);
	assert_string_equal(heard.out[0], "failed");
	assert_string_equal(heard.out[2], "wrong");
	assert_string_equal(heard.out[3], "failed");
	assert_string_equal(heard.out[4], "failed");
	assert_int_equal(link.calls->measures[2], 0);
	assert_int_equal(link_close(&link), 0);
}

static void equal_code_is_timed_once_and_the_default_stands_for_it(void **state)
{
	static const struct script same[MEMBERS] = {{.time_ps = 3000000, .code = "aa"},
	        {.time_ps = 3000000, .code = "aa"}, {.time_ps = 4000000, .code = "bb"},
	        {.time_ps = 4000000, .code = "bb"}, {.time_ps = 4000000, .code = "bb"}, {.time_ps = 5000000}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, same, &usual, &heard);
	assert_int_equal(heard.reply.winner, 1);
	assert_int_equal(heard.same[0], 1);
	assert_int_equal(heard.other[0], 1);
	assert_int_equal(heard.same[1], 0);
	assert_int_equal(heard.same[2], 0);
	assert_int_equal(heard.same[3] + heard.same[4], 2);
	assert_int_equal(link.calls->measures[0] + link.calls->measures[3] + link.calls->measures[4], 0);
	assert_int_equal(link_close(&link), 0);
}

static void a_winner_that_is_wrong_afterwards_loses(void **state)
{
	static const struct script later[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000},
	        {.time_ps = 3000000, .wrong_later = true}, {.time_ps = 6000000}, {.time_ps = 7000000},
	        {.time_ps = 8000000}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, later, &usual, &heard);
	assert_string_equal(heard.out[2], "wrong");
	/* The others were dropped on its account, and are compared anew. */
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 1);
	assert_int_equal(heard.verified[1], 2);
	assert_int_equal(link_close(&link), 0);
}

static void what_was_dropped_for_a_winner_that_fails_is_built_and_races_again(void **state)
{
	/* Only the winner-to-be is built at first: the rest was dropped before the restart. */
	static const struct known known[MEMBERS] = {
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 5000000},
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 4000000},
	        {.built = true, .sample_ps = 3000000},
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 6000000},
	        {.status = "failed"}, {.status = "wrong"}};
	static const struct script fails[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000},
	        {.time_ps = 3000000, .fails_measure = 3}, {.time_ps = 6000000}, {.time_ps = 7000000},
	        {.time_ps = 8000000}};
	static const struct candidate candidate = {.known = known, .rounds = 3, .default_index = 3};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, fails, &candidate, &heard);
	assert_string_equal(heard.out[2], "failed");
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 1);
	assert_true(link.calls->builds[1] == 1 && heard.sampled[1] >= 1);
	assert_int_equal(link_close(&link), 0);
}

static void nobody_wins_where_all_are_wrong(void **state)
{
	static const struct script wrong[MEMBERS] = {{.wrong = true}, {.wrong = true}, {.wrong = true},
	        {.wrong = true}, {.wrong = true}, {.wrong = true}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, wrong, &usual, &heard);
	assert_string_equal(heard.reply.outcome, "no_winner");
	assert_int_equal(heard.rounds, 0);
	assert_int_equal(link_close(&link), 0);
}

static void a_sweep_that_goes_on_repeats_no_build_verification_or_drop(void **state)
{
	/* Three rounds in: too few to decide. */
	static const struct known known[MEMBERS] = {
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 9000000},
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 8000000},
	        {.built = true, .verified = true, .sample_ps = 3000000},
	        {.built = true, .verified = true, .sample_ps = 3500000}, {.status = "failed"},
	        {.built = true}};
	static const struct candidate candidate = {.known = known, .rounds = 3, .default_index = 1};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, plain, &candidate, &heard);
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 2);
	assert_int_equal(heard.first_round, 3);
	assert_true(heard.rounds >= 7);
	for (size_t i = 0; i < MEMBERS; i++)
		assert_int_equal(heard.built[i], 0);
	assert_int_equal(link.calls->builds[0], 0);
	assert_int_equal(link.calls->builds[4], 0);
	assert_int_equal(heard.sampled[0], 0);
	assert_int_equal(heard.sampled[1], 7); /* the default, dropped or not */
	assert_int_equal(heard.sampled[4], 0);
	assert_int_equal(link.calls->verifications[3], 0);
	assert_int_equal(link.calls->verifications[5], 1);
	assert_int_equal(heard.verified[2], 1); /* to confirm */
	assert_int_equal(link_close(&link), 0);
}

static void a_sweep_whose_rounds_decide_already_is_not_measured_again(void **state)
{
	static const struct known known[MEMBERS] = {
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 9000000},
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 8000000},
	        {.built = true, .verified = true, .sample_ps = 3000000},
	        {.built = true, .verified = true, .dropped = true, .sample_ps = 3500000},
	        {.status = "failed"}, {.status = "wrong"}};
	static const struct candidate candidate = {.known = known, .rounds = 20, .default_index = 1};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, plain, &candidate, &heard);
	assert_string_equal(heard.reply.outcome, "decided");
	assert_int_equal(heard.reply.winner, 2);
	assert_int_equal(heard.rounds, 0);
	assert_int_equal(heard.verified[2], 1);
	assert_int_equal(link_close(&link), 0);
}

static void a_budget_that_is_over_before_the_default_was_looked_at_says_what_it_needs(void **state)
{
	static const struct candidate candidate = {.default_index = 1, .budget_ns = 1};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, plain, &candidate, &heard);
	assert_string_equal(heard.reply.outcome, "no_time");
	assert_true(heard.reply.needs_ns > 1);
	assert_int_equal(heard.rounds, 0);
	assert_int_equal(link_close(&link), 0);
}

static bool has_a_round(const struct heard *heard)
{
	return heard->rounds > 0;
}

static const struct script close_race[MEMBERS] = {{.time_ps = 3000000, .wrong_later = true},
        {.time_ps = 3012000}, {.time_ps = 3004000}, {.time_ps = 3006000}, {.time_ps = 3009000},
        {.time_ps = 3015000}};

static void cancel_stops_a_sweep_and_the_runner_goes_on(void **state)
{
	static const struct candidate endless = {.default_index = 1};
	struct ft_cancel_notice other = {.job = 8};
	struct ft_cancel_notice mine = {.job = 7};
	struct link link;
	struct heard heard = {.begun = -1};
	struct ft_writer writer;
	(void)state;
	link_open(&link, close_race);
	greet(&link);
	/* Both wait in the socket before the first sample: the first is for another job. */
	ask_sweep(&link, &endless);
	ft_writer_init_growing(&writer, 1 << 16);
	ft_begin_notice(&writer, "cancel");
	ft_encode(&writer, &ft_cancel_notice_message, &other);
	ft_begin_notice(&writer, "cancel");
	ft_encode(&writer, &ft_cancel_notice_message, &mine);
	send_bytes(&link, writer.data, writer.length);
	ft_writer_free(&writer);
	listen_to(&link, &heard, NULL);
	/* Quick as it is, the sweep may be over before the notice is read. */
	if (heard.rounds < 60 && heard.reply.winner == 0)
		assert_string_equal(heard.reply.outcome, "cancelled");
	greet(&link);
	assert_int_equal(link_close(&link), 0);
}

static void a_request_in_mid_sweep_is_answered(void **state)
{
	static const struct script hanging[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000},
	        {.time_ps = 3000000}, {.time_ps = 6000000}, {.time_ps = 7000000}, {.time_ps = 8000000}};
	struct link link;
	struct ft_envelope envelope;
	bool busy = false;
	bool done = false;
	(void)state;
	link_open(&link, hanging);
	greet(&link);
	ask_sweep(&link, &usual);
	ask_sweep(&link, &usual);
	/* Whether it came in the middle or after the end, each request has one answer. */
	for (int answers = 0; answers < 2;) {
		struct ft_error failure;
		assert_true(hear(&link, &envelope));
		if (envelope.type != FT_RESPONSE)
			continue;
		answers++;
		if (!envelope.error.data) {
			done = true;
			continue;
		}
		ft_read_failure(envelope.error, &failure);
		assert_string_equal(failure.code, FT_E_BUSY);
		busy = true;
	}
	assert_true(done);
	(void)busy;
	assert_int_equal(link_close(&link), 0);
}

static bool has_begun_to_hang(const struct heard *heard)
{
	return heard->begun == 3 && heard->rounds >= 1;
}

static const struct script hangs[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000}, {.time_ps = 3000000},
        {.time_ps = 3000000, .hangs = 4}, {.time_ps = 7000000}, {.time_ps = 8000000}};

static void a_hang_in_mid_race_is_blamed_on_its_config(void **state)
{
	struct link link;
	struct heard heard = {.begun = -1};
	(void)state;
	link_open(&link, hangs);
	greet(&link);
	ask_sweep(&link, &usual);
	listen_to(&link, &heard, has_begun_to_hang);
	assert_false(heard.ended);
	assert_int_equal(heard.begun, 3);
	kill(link.child, SIGKILL);
	assert_true(WIFSIGNALED(link_close(&link)));
}

static void the_end_of_the_socket_ends_even_a_runner_that_hangs(void **state)
{
	struct link link;
	struct heard heard = {.begun = -1};
	(void)state;
	link_open(&link, hangs);
	greet(&link);
	ask_sweep(&link, &usual);
	listen_to(&link, &heard, has_begun_to_hang);
	assert_int_equal(link_close(&link), 0);
}

static void the_end_of_the_socket_ends_a_race(void **state)
{
	struct link link;
	struct heard heard = {.begun = -1};
	(void)state;
	link_open(&link, plain);
	greet(&link);
	ask_sweep(&link, &usual);
	listen_to(&link, &heard, has_a_round);
	assert_int_equal(link_close(&link), 0);
}

static void a_crash_in_mid_race_is_blamed_on_its_config(void **state)
{
	static const struct script crashes[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000},
	        {.time_ps = 3000000}, {.time_ps = 6000000}, {.time_ps = 3000000, .crashes = 3},
	        {.time_ps = 8000000}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, crashes, &usual, &heard);
	assert_true(heard.ended);
	assert_int_equal(heard.begun, 4);
	int status = link_close(&link);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void a_lost_device_is_told_of_and_ends_the_runner(void **state)
{
	static const struct script loses[MEMBERS] = {{.time_ps = 5000000}, {.time_ps = 4000000},
	        {.time_ps = 3000000}, {.time_ps = 6000000}, {.time_ps = 7000000},
	        {.time_ps = 3000000, .loses = 2}};
	struct link link;
	struct heard heard;
	(void)state;
	sweep(&link, loses, &usual, &heard);
	assert_true(heard.ended);
	assert_string_equal(heard.out[5], "failed");
	assert_int_equal(heard.begun, 5);
	int status = link_close(&link);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == FT_RUNNER_EXIT_LOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(hello_must_come_first_and_share_a_version),
	        cmocka_unit_test(hello_tells_devices_identity_and_schema),
	        cmocka_unit_test(a_space_is_answered_and_bad_ones_are_refused_by_field),
	        cmocka_unit_test(broken_framing_is_told_and_ends_the_runner),
	        cmocka_unit_test(a_sweep_request_that_makes_no_sense_is_refused),
	        cmocka_unit_test(the_fastest_wins_verified_before_and_after),
	        cmocka_unit_test(a_second_sweep_follows_on_the_same_socket),
	        cmocka_unit_test(each_fault_costs_its_own_config_only),
	        cmocka_unit_test(equal_code_is_timed_once_and_the_default_stands_for_it),
	        cmocka_unit_test(a_winner_that_is_wrong_afterwards_loses),
	        cmocka_unit_test(what_was_dropped_for_a_winner_that_fails_is_built_and_races_again),
	        cmocka_unit_test(nobody_wins_where_all_are_wrong),
	        cmocka_unit_test(a_sweep_that_goes_on_repeats_no_build_verification_or_drop),
	        cmocka_unit_test(a_sweep_whose_rounds_decide_already_is_not_measured_again),
	        cmocka_unit_test(a_budget_that_is_over_before_the_default_was_looked_at_says_what_it_needs),
	        cmocka_unit_test(cancel_stops_a_sweep_and_the_runner_goes_on),
	        cmocka_unit_test(a_request_in_mid_sweep_is_answered),
	        cmocka_unit_test(a_hang_in_mid_race_is_blamed_on_its_config),
	        cmocka_unit_test(the_end_of_the_socket_ends_even_a_runner_that_hangs),
	        cmocka_unit_test(the_end_of_the_socket_ends_a_race),
	        cmocka_unit_test(a_crash_in_mid_race_is_blamed_on_its_config),
	        cmocka_unit_test(a_lost_device_is_told_of_and_ends_the_runner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
