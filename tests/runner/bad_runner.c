/* A runner for tests: honest and deterministic by default, and misbehaving where its script says so.
 *
 * It measures nothing: times come from the script or from a formula, so that a sweep takes milliseconds and a
 * test knows its winner. What the script may say stands in tests/runner/README.md. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/decide.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "proto/inbox.h"
#include "proto/messages.h"
#include "tests/runner/script.h"

static const char device_arch[] = "made-up";
enum { DEVICE_UNITS = 4, DEVICE_CACHE = 1 << 20 };
enum { MESSAGE_LIMIT = 8 << 20 };

struct runner {
	int socket;
	int log;
	struct script script;
	struct ft_inbox inbox;
	bool cancelled;
	uint64_t job;
	int repeat;           /* how often the next message is sent */
	bool hold;            /* the next message waits for the one after it */
	bool foreign;         /* the next message names a job or an id that nobody asked for */
	char lie[32];         /* what the next message lies about */
	struct ft_writer out; /* the message being written */
	struct ft_writer held;
	struct ft_space space;
	char whose[FT_DEVICE_ID_SIZE + FT_PROBLEM_TEXT_SIZE +
	        2]; /* " DEVICE PROBLEM" for the log's lines, or less */
	size_t count;
	size_t last; /* member that could win when the sweep began, but for the default */
	uint32_t default_index;
	uint32_t rounds;
	uint32_t known; /* of them, from earlier sweeps */
	struct ft_rule rule;
	struct member {
		struct ft_config config;
		bool out, dropped, verified, built, served;
		uint64_t sample_ps[FT_ROUNDS_MAX];
	} member[FT_SPACE_MAX];
};

static void pause_ns(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

/* What it did, a line each, for tests that count; written before the daemon can know of it. */
static void note(struct runner *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct runner *self, const char *format, ...)
{
	char text[1024];
	va_list list;
	int length;

	if (self->log < 0)
		return;
	va_start(list, format);
	length = vsnprintf(text, sizeof text - 1, format, list);
	va_end(list);
	if (length < 0)
		return;
	if ((size_t)length > sizeof text - 2)
		length = (int)sizeof text - 2;
	text[length++] = '\n';
	if (write(self->log, text, (size_t)length) != length)
		stop_with("cannot write the log: %s", strerror(errno));
}

/* What the daemon let it inherit: descriptors, and the names in its environment. */
static void note_inherited(struct runner *self)
{
	char open_ones[256] = "";
	extern char **environ;

	for (int fd = 0; fd < 256; fd++) {
		size_t length = strlen(open_ones);

		if (fd != self->log && fcntl(fd, F_GETFD) >= 0)
			snprintf(open_ones + length, sizeof open_ones - length, " %d", fd);
	}
	note(self, "descriptors%s", open_ones);
	for (char **entry = environ; *entry; entry++)
		note(self, "environment %.*s", (int)strcspn(*entry, "="), *entry);
}

/* ---- sending ---- */

static void send_bytes(struct runner *self, const uint8_t *data, size_t length)
{
	while (length) {
		ssize_t sent = send(self->socket, data, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			exit(0); /* the daemon has left */
		data += sent;
		length -= (size_t)sent;
	}
}

/* Sends the message in `out`, as the rules that fired would have it. */
static void send_message(struct runner *self)
{
	if (!ft_writer_ok(&self->out))
		stop_with("a message did not fit");
	if (self->hold) {
		self->hold = false;
		ft_writer_reset(&self->held);
		ft_write_raw(&self->held, self->out.data, self->out.length);
		return;
	}
	for (; self->repeat > 0; self->repeat--)
		send_bytes(self, self->out.data, self->out.length);
	self->repeat = 1;
	if (self->held.length) {
		send_bytes(self, self->held.data, self->held.length);
		ft_writer_reset(&self->held);
	}
}

static void send_event(struct runner *self, struct ft_runner_event *event)
{
	event->job = self->foreign ? self->job + 1000 : self->job;
	self->foreign = false;
	ft_writer_reset(&self->out);
	ft_begin_notice(&self->out, "event");
	ft_encode(&self->out, &ft_runner_event_message, event);
	send_message(self);
}

static void send_reply(struct runner *self, uint64_t id, const struct ft_message *message, const void *body)
{
	ft_writer_reset(&self->out);
	ft_begin_response(&self->out, self->foreign ? id + 1000 : id);
	self->foreign = false;
	ft_encode(&self->out, message, body);
	send_message(self);
}

/* ---- misbehaving ---- */

static int signal_number(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} known[] = {
	        {"SEGV", SIGSEGV}, {"KILL", SIGKILL}, {"ABRT", SIGABRT}, {"BUS", SIGBUS}, {"TERM", SIGTERM}};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].number;
	stop_with("the script names the signal %s, which is unknown", name);
}

static _Noreturn void hang(void)
{
	for (;;)
		pause();
}

/* Says that it has arrived, and waits to be let on: PATH.in is written, PATH.out read; both are FIFOs. */
static void pass_gate(const char *path)
{
	char name[ARGUMENT_SIZE + 8], byte = '.';
	int gate;

	snprintf(name, sizeof name, "%s.in", path);
	gate = open(name, O_WRONLY | O_CLOEXEC);
	if (gate < 0 || write(gate, &byte, 1) != 1)
		stop_with("the gate %s cannot be written: %s", name, strerror(errno));
	close(gate);
	snprintf(name, sizeof name, "%s.out", path);
	gate = open(name, O_RDONLY | O_CLOEXEC);
	if (gate < 0 || read(gate, &byte, 1) < 0)
		stop_with("the gate %s cannot be read: %s", name, strerror(errno));
	close(gate);
}

/* The child keeps the socket open; `away`, in a session of its own, so that no signal to the group finds it.
 */
static void leave_child(bool away)
{
	pid_t child = fork();

	if (child < 0)
		stop_with("cannot fork: %s", strerror(errno));
	if (child == 0) {
		if (away)
			setsid();
		/* Ends by itself, so that a test that fails leaves nothing behind. */
		alarm(120);
		hang();
	}
	_exit(7);
}

static void flood(struct runner *self)
{
	struct ft_runner_event event = {.event = "stage", .stage = "measure"};

	for (int i = 0; i < 2000000; i++)
		send_event(self, &event);
}

static void send_rubbish(struct runner *self)
{
	uint8_t bytes[256];

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(0xc1 ^ (i * 37));
	send_bytes(self, bytes, sizeof bytes);
}

static void send_half(struct runner *self)
{
	struct ft_runner_event event = {.event = "stage", .stage = "measure", .job = self->job};

	ft_writer_reset(&self->out);
	ft_begin_notice(&self->out, "event");
	ft_encode(&self->out, &ft_runner_event_message, &event);
	send_bytes(self, self->out.data, self->out.length / 2);
	hang();
}

/* True the first time in the life of the script: the mark is a file beside it. */
static bool first_time(const struct script *script, unsigned line)
{
	char name[1024];
	int mark;

	snprintf(name, sizeof name, "%s.fired.%u", script->path, line);
	mark = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (mark < 0)
		return false;
	close(mark);
	return true;
}

static void act(struct runner *self, const struct rule *rule)
{
	const char *action = rule->action;

	note(self, "act %s %s", rule->step, action);
	if (strcmp(action, "exit") == 0)
		_exit((int)script_number(rule->argument));
	else if (strcmp(action, "signal") == 0)
		kill(getpid(), signal_number(rule->argument));
	else if (strcmp(action, "hang") == 0)
		hang();
	else if (strcmp(action, "stop") == 0)
		raise(SIGSTOP);
	else if (strcmp(action, "late") == 0)
		pause_ns((uint64_t)script_number(rule->argument) * 1000000);
	else if (strcmp(action, "gate") == 0)
		pass_gate(rule->argument);
	else if (strcmp(action, "twice") == 0)
		self->repeat = 2;
	else if (strcmp(action, "order") == 0)
		self->hold = true;
	else if (strcmp(action, "unknown") == 0)
		self->foreign = true;
	else if (strcmp(action, "rubbish") == 0)
		send_rubbish(self);
	else if (strcmp(action, "half") == 0)
		send_half(self);
	else if (strcmp(action, "fork") == 0)
		leave_child(strcmp(rule->argument, "away") == 0);
	else if (strcmp(action, "flood") == 0)
		flood(self);
	else if (strcmp(action, "lie") == 0)
		snprintf(self->lie, sizeof self->lie, "%.31s", rule->argument);
	else
		stop_with("the script has the action %s, which is unknown", action);
}

static void reach(struct runner *self, const char *step, long which)
{
	const struct script *script = &self->script;

	for (size_t i = 0; i < script->rule_count; i++) {
		const struct rule *rule = &script->rule[i];

		if (strcmp(rule->step, step) != 0 || (rule->which >= 0 && rule->which != which))
			continue;
		if (!rule->once || first_time(script, rule->line))
			act(self, rule);
	}
}

/* Whether the message about to be sent should lie so; a lie is told once. */
static bool lies(struct runner *self, const char *what)
{
	if (strcmp(self->lie, what) != 0)
		return false;
	self->lie[0] = '\0';
	return true;
}

/* ---- receiving ---- */

/* 1 and a message, 0 when `wait` is false and none is there. Does not return when the daemon has left. */
static int receive(struct runner *self, bool wait, struct ft_envelope *envelope)
{
	struct ft_view message;
	struct ft_error error;

	for (;;) {
		int found = ft_inbox_next(&self->inbox, &message, &error);
		uint8_t *room;
		size_t size;
		ssize_t got;

		if (found < 0)
			stop_with("the daemon broke the framing: %s", error.message);
		if (found > 0) {
			if (ft_open_envelope(message, envelope, &error))
				stop_with("the daemon sent what is no message: %s", error.message);
			return 1;
		}
		if (ft_inbox_room(&self->inbox, &room, &size, &error))
			stop_with("%s", error.message);
		got = recv(self->socket, room, size, wait ? 0 : MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (got <= 0)
			exit(0);
		ft_inbox_received(&self->inbox, (size_t)got);
	}
}

static bool cancelled(struct runner *self)
{
	struct ft_envelope envelope;

	while (receive(self, false, &envelope)) {
		struct ft_cancel_notice notice;

		if (envelope.type != FT_NOTICE || strcmp(envelope.method, "cancel") != 0)
			stop_with("the daemon sent %s in the middle of a sweep", envelope.method);
		if (ft_decode(&ft_cancel_notice_message, envelope.body, &notice, NULL) == 0 &&
		        notice.job == self->job) {
			note(self, "cancel");
			self->cancelled = true;
		}
	}
	return self->cancelled;
}

/* ---- what an honest runner answers ---- */

static void answer_hello(struct runner *self, const struct ft_envelope *request)
{
	const struct script *script = &self->script;
	struct ft_runner_hello_reply reply = {.protocol = FT_RUNNER_PROTOCOL_MAX, .runner = "bad_runner 1"};
	struct ft_runner_device device = {
	        .name = "Made-up processor", .units = DEVICE_UNITS, .memory = 1 << 30, .cache = DEVICE_CACHE};
	struct ft_writer devices, kernels, files;

	note(self, "hello %ld", (long)getpid());
	reach(self, "hello", -1);
	ft_writer_init_growing(&devices, MESSAGE_LIMIT);
	ft_writer_init_growing(&kernels, MESSAGE_LIMIT);
	ft_writer_init_growing(&files, MESSAGE_LIMIT);
	snprintf(reply.identity, sizeof reply.identity, "%s", script->identity);
	if (lies(self, "version"))
		reply.protocol = FT_RUNNER_PROTOCOL_MAX + 7;
	snprintf(device.arch, sizeof device.arch, "%s", device_arch);
	snprintf(device.kind, sizeof device.kind, "%s", script->kind);
	snprintf(device.identity, sizeof device.identity, "%s", script->device_identity);
	if (lies(self, "nodevice")) {
		ft_write_array(&devices, 0);
		snprintf(reply.reason, sizeof reply.reason, "the script says that there is none");
	} else {
		ft_write_array(&devices, script->devices);
		for (uint32_t i = 0; i < script->devices; i++) {
			snprintf(device.id, sizeof device.id, "%s:%u", script->kind, i);
			ft_encode(&devices, &ft_runner_device_message, &device);
		}
	}
	if (lies(self, "nokernel")) {
		ft_write_array(&kernels, 0);
	} else {
		ft_write_array(&kernels, 1);
		ft_schema_write(&kernels, ft_kernel_rmsnorm.schema(&ft_kernel_rmsnorm, script->kind),
		        "0123456789abcdef0123456789abcdef", NULL);
	}
	uint32_t more = lies(self, "files") ? 64 : 0;
	ft_write_array(&files, more + (script->path != NULL) + (script->depends[0] != '\0'));
	for (uint32_t i = 0; i < more; i++)
		ft_write_text(&files, "/nowhere");
	if (script->path)
		ft_write_text(&files, script->path);
	if (script->depends[0] != '\0')
		ft_write_text(&files, script->depends);
	reply.devices = (struct ft_view){devices.data, devices.length};
	reply.kernels = (struct ft_view){kernels.data, kernels.length};
	reply.files = (struct ft_view){files.data, files.length};
	send_reply(self, request->id, &ft_runner_hello_reply_message, &reply);
	ft_writer_free(&devices);
	ft_writer_free(&kernels);
	ft_writer_free(&files);
}

static void fail_request(struct runner *self, const struct ft_envelope *request, const struct ft_error *error)
{
	ft_writer_reset(&self->out);
	ft_write_failure(&self->out, request->id, error);
	send_message(self);
}

/* As its hello tells them: the daemon works the space out from those. */
static struct ft_traits traits_of(const struct script *script)
{
	struct ft_traits traits = {.units = DEVICE_UNITS, .cache = DEVICE_CACHE};

	snprintf(traits.kind, sizeof traits.kind, "%s", script->kind);
	snprintf(traits.arch, sizeof traits.arch, "%s", device_arch);
	return traits;
}

static void answer_space(struct runner *self, const struct ft_envelope *request)
{
	struct ft_space_request asked;
	struct ft_space_reply reply = {0};
	struct ft_traits traits;
	struct ft_writer members;
	struct ft_error error;
	uint32_t kept = 0;

	if (ft_decode(&ft_space_request_message, request->body, &asked, &error)) {
		fail_request(self, request, &error);
		return;
	}
	snprintf(self->script.on, sizeof self->script.on, "%s", asked.device);
	script_read(&self->script);
	note(self, "space");
	reach(self, "space", -1);
	traits = traits_of(&self->script);
	if (ft_kernel_rmsnorm.space(&ft_kernel_rmsnorm, &asked.problem, &traits, &self->space, &error)) {
		fail_request(self, request, &error);
		return;
	}
	/* Only what is tried, so that a script can count on its numbers. A smaller space keeps its default,
	 * whatever its place. */
	for (uint32_t i = 0; i < self->space.count; i++) {
		bool left = self->space.pruned[i][0] || (self->script.space && kept >= self->script.space);

		if (left && i != self->space.default_index)
			continue;
		if (i == self->space.default_index)
			reply.default_index = kept;
		self->space.config[kept] = self->space.config[i];
		kept++;
	}
	ft_writer_init_growing(&members, MESSAGE_LIMIT);
	ft_write_array(&members, kept);
	for (uint32_t i = 0; i < kept; i++) {
		struct ft_space_member member = {.config = self->space.config[i]};

		ft_encode(&members, &ft_space_member_message, &member);
	}
	if (lies(self, "default_index"))
		reply.default_index = kept + 3;
	reply.members = (struct ft_view){members.data, members.length};
	send_reply(self, request->id, &ft_space_reply_message, &reply);
	ft_writer_free(&members);
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* 100 µs for the fastest, 3 % more for each step away from it, and noise of 0.1 % either way. */
static uint64_t sample_of(const struct runner *self, size_t index, uint32_t round)
{
	const struct script *script = &self->script;
	size_t best = script->best >= 0 ? (size_t)script->best : self->last;
	size_t away = index > best ? index - best : best - index;
	uint64_t ps = script->time_ps[index] ? script->time_ps[index] : 100000000 + away * 3000000;

	return ps - ps / 1000 + mix((uint64_t)index << 32 | round) % (ps / 500 + 1);
}

static void send_stage(struct runner *self, const char *stage)
{
	struct ft_runner_event event = {.event = "stage"};

	snprintf(event.stage, sizeof event.stage, "%s", stage);
	send_event(self, &event);
}

static void send_begin(struct runner *self, const char *stage, size_t index)
{
	struct ft_runner_event event = {.event = "begin", .trial = index};

	snprintf(event.stage, sizeof event.stage, "%s", stage);
	send_event(self, &event);
}

static const char *name_of(const struct runner *self, size_t index)
{
	static char text[FT_CONFIG_TEXT_SIZE];

	ft_config_format(&self->member[index].config, ',', text, sizeof text);
	return text;
}

static void build_one(struct runner *self, size_t index)
{
	struct ft_runner_event event = {.event = "built", .trial = index, .build_ns = 1000};
	size_t like = self->script.same && index >= self->script.same ? self->script.same - 1 : index;

	send_begin(self, "build", index);
	note(self, "build %s%s", name_of(self, index), self->whose);
	reach(self, "build", (long)index);
	if (lies(self, "fail")) {
		struct ft_runner_event out = {
		        .event = "out", .trial = index, .status = "failed", .reason = "does not compile"};

		self->member[index].out = true;
		send_event(self, &out);
		return;
	}
	snprintf(event.code, sizeof event.code, "%016" PRIx64 "%016" PRIx64, mix(like), mix(like + 1000));
	if (lies(self, "code"))
		snprintf(event.code, sizeof event.code, "../../etc/passwd");
	if (lies(self, "trial"))
		event.trial = self->count + 5;
	if (lies(self, "event"))
		snprintf(event.event, sizeof event.event, "transcended");
	self->member[index].built = true;
	send_event(self, &event);
	if (like != index) {
		struct ft_runner_event same = {.event = "same_code", .trial = index, .other = like};

		self->member[index].out = true;
		send_event(self, &same);
	}
}

static void verify_one(struct runner *self, size_t index)
{
	struct ft_runner_event event = {.event = "verified", .trial = index, .error = 1e-3};

	send_begin(self, "verify", index);
	note(self, "verify %s%s", name_of(self, index), self->whose);
	reach(self, "verify", (long)index);
	if ((long)index == self->script.wrong || lies(self, "wrong")) {
		struct ft_runner_event out = {.event = "out",
		        .trial = index,
		        .status = "wrong",
		        .reason = "row 0 column 0 is 2, not 1"};

		self->member[index].out = true;
		send_event(self, &out);
		return;
	}
	self->member[index].verified = true;
	if (!lies(self, "unverified"))
		send_event(self, &event);
}

/* As the real one does: after a restart the default is timed beside the others for a while, though it is dropped. */
static bool is_measured(const struct runner *self, size_t index)
{
	const struct member *member = &self->member[index];

	return !member->out &&
	        (!member->dropped ||
	                (index == self->default_index && self->known > 0 &&
	                        self->rounds - self->known < self->rule.min_rounds));
}

static void measure_round(struct runner *self)
{
	struct ft_runner_event event = {.event = "round", .round = self->rounds};
	struct ft_writer samples;
	uint32_t alive = 0, given = 0;

	for (size_t i = 0; i < self->count; i++) {
		struct member *member = &self->member[i];

		if (!is_measured(self, i))
			continue;
		send_begin(self, "measure", i);
		reach(self, "measure", (long)i);
		member->sample_ps[self->rounds] = sample_of(self, i, self->rounds);
		alive++;
	}
	note(self, "round %" PRIu32 " %" PRIu32 "%s", self->rounds, alive, self->whose);
	if (self->script.pace_ns)
		pause_ns(self->script.pace_ns);
	reach(self, "round", (long)self->rounds);
	ft_writer_init_growing(&samples, MESSAGE_LIMIT);
	ft_write_array(&samples, alive);
	for (size_t i = 0; i < self->count && given < alive; i++) {
		uint64_t index = i, ps = self->member[i].sample_ps[self->rounds];

		if (!is_measured(self, i))
			continue;
		given++;
		if (lies(self, "index"))
			index = self->count + 5;
		else if (lies(self, "huge"))
			ps = UINT64_MAX;
		else if (lies(self, "zero"))
			ps = 0;
		else if (lies(self, "tiny"))
			ps = 1;
		ft_write_array(&samples, 2);
		ft_write_uint(&samples, index);
		if (lies(self, "negative"))
			ft_write_int(&samples, -5);
		else if (lies(self, "text"))
			ft_write_text(&samples, "fast");
		else
			ft_write_uint(&samples, ps);
	}
	if (lies(self, "round"))
		event.round = self->rounds + 1000000;
	event.samples = (struct ft_view){samples.data, samples.length};
	event.disturbed = alive * (uint64_t)self->script.disturbed / 100;
	send_event(self, &event);
	ft_writer_free(&samples);
	self->rounds++;
}

static void decide(struct runner *self, struct ft_standing *standing, struct ft_decision *decision)
{
	static struct ft_contender contender[FT_SPACE_MAX];

	for (size_t i = 0; i < self->count; i++)
		contender[i] = (struct ft_contender){
		        self->member[i].out, self->member[i].dropped, self->member[i].sample_ps};
	ft_decide(&self->rule, contender, self->count, self->default_index, self->rounds, false, standing,
	        decision);
}

static void race(struct runner *self, struct ft_sweep_reply *reply)
{
	static struct ft_standing standing[FT_SPACE_MAX];
	struct ft_decision decision;

	for (;;) {
		if (cancelled(self)) {
			snprintf(reply->outcome, sizeof reply->outcome, "cancelled");
			return;
		}
		decide(self, standing, &decision);
		if (decision.verdict != FT_VERDICT_MEASURE)
			break;
		for (size_t i = 0; i < self->count; i++) {
			struct ft_runner_event event = {
			        .event = "dropped", .trial = i, .round = self->rounds};

			if (!standing[i].drop || self->member[i].out || self->member[i].dropped)
				continue;
			self->member[i].dropped = true;
			note(self, "drop %s%s", name_of(self, i), self->whose);
			reach(self, "dropped", (long)i);
			send_event(self, &event);
		}
		if (self->rounds >= FT_ROUNDS_MAX)
			stop_with("the race does not end");
		measure_round(self);
	}
	if (decision.verdict == FT_VERDICT_NONE) {
		snprintf(reply->outcome, sizeof reply->outcome, "no_winner");
		snprintf(reply->reason, sizeof reply->reason, "%s", decision.reason);
		return;
	}
	send_stage(self, "confirm");
	for (size_t i = 0; i < self->count; i++) {
		struct ft_runner_event event = {.event = "confirmed", .trial = i};

		if (i != decision.winner && !(self->member[i].served && standing[i].tied))
			continue;
		send_begin(self, "confirm", i);
		reach(self, "confirm", (long)i);
		if (!lies(self, "unconfirmed"))
			send_event(self, &event);
	}
	snprintf(reply->outcome, sizeof reply->outcome, "decided");
	snprintf(reply->reason, sizeof reply->reason, "%s", decision.reason);
	reply->winner = decision.winner;
	reply->conclusive = decision.conclusive;
}

/* What is already known of a member, as the daemon tells it. */
static void learn_member(struct runner *self, size_t index, const struct ft_sweep_member *known)
{
	struct member *member = &self->member[index];
	struct ft_cursor cursor = ft_cursor_of(known->samples.data, known->samples.length);
	uint32_t rounds = 0;

	*member = (struct member){.config = known->config};
	member->out = *known->status != '\0';
	member->dropped = known->dropped;
	member->served = known->served;
	member->verified = known->verified;
	member->built = *known->code != '\0';
	if (known->samples.data && !ft_read_array(&cursor, &rounds))
		stop_with("samples of member %zu are no array", index);
	for (uint32_t i = 0; i < rounds && i < FT_ROUNDS_MAX; i++)
		if (!ft_read_uint(&cursor, &member->sample_ps[i]))
			stop_with("samples of member %zu are no integers", index);
}

static void learn(struct runner *self, const struct ft_sweep_request *asked)
{
	struct ft_cursor cursor = ft_cursor_of(asked->members.data, asked->members.length);
	struct ft_error error;
	uint32_t count;

	if (!ft_read_array(&cursor, &count) || count == 0 || count > FT_SPACE_MAX)
		stop_with("the members are no array, or too many");
	for (uint32_t i = 0; i < count; i++) {
		struct ft_sweep_member known;
		struct ft_view view;

		if (!ft_read_view(&cursor, &view) ||
		        ft_decode(&ft_sweep_member_message, view, &known, &error))
			stop_with("member %u cannot be read", i);
		learn_member(self, i, &known);
	}
	self->count = count;
	self->last = 0;
	for (uint32_t i = 0; i < count; i++)
		if (!self->member[i].out && i != asked->default_index)
			self->last = i;
	self->default_index = (uint32_t)asked->default_index;
	self->rounds = self->known = (uint32_t)asked->rounds;
	self->job = asked->job;
	self->rule = (struct ft_rule){
	        (uint32_t)asked->band_ppm, (uint32_t)asked->min_rounds, (uint32_t)asked->max_rounds};
	if (self->rounds > FT_ROUNDS_MAX)
		stop_with("the daemon has %u rounds", self->rounds);
}

static void name_problem(struct runner *self, const struct ft_problem *problem)
{
	size_t length = 0;

	self->whose[0] = '\0';
	if (self->script.devices > 1)
		length = (size_t)snprintf(self->whose, sizeof self->whose, " %s", self->script.on);
	if (!self->script.problems)
		return;
	self->whose[length++] = ' ';
	ft_problem_format(problem, ',', self->whose + length, sizeof self->whose - length);
}

static void answer_sweep(struct runner *self, const struct ft_envelope *request)
{
	struct ft_sweep_request asked;
	struct ft_sweep_reply reply = {.method = "made up by a formula"};
	struct ft_error error;
	uint64_t id = request->id;

	if (ft_decode(&ft_sweep_request_message, request->body, &asked, &error)) {
		fail_request(self, request, &error);
		return;
	}
	learn(self, &asked);
	self->cancelled = false;
	name_problem(self, &asked.problem);
	note(self, "sweep %" PRIu64 " %" PRIu32 "%s", self->job, self->rounds, self->whose);
	reach(self, "sweep", -1);
	send_stage(self, "build");
	for (size_t i = 0; i < self->count && !cancelled(self); i++) {
		if (!self->member[i].out && !self->member[i].built)
			build_one(self, i);
		if (!self->member[i].out && !self->member[i].dropped && !self->member[i].verified)
			verify_one(self, i);
	}
	send_stage(self, "measure");
	race(self, &reply);
	reply.rounds = self->rounds;
	note(self, "reply %s%s", reply.outcome, self->whose);
	reach(self, "reply", -1);
	if (lies(self, "winner")) {
		/* The slowest of all, whatever was measured. */
		for (size_t i = 0; i < self->count; i++)
			if (sample_of(self, i, 0) > sample_of(self, reply.winner, 0))
				reply.winner = i;
	}
	if (lies(self, "nobody"))
		reply.winner = self->count + 5;
	if (lies(self, "outcome"))
		snprintf(reply.outcome, sizeof reply.outcome, "splendid");
	send_reply(self, id, &ft_sweep_reply_message, &reply);
}

static void answer_load(struct runner *self, const struct ft_envelope *request)
{
	struct ft_load_reply reply = {0};

	script_read(&self->script); /* what others do changes meanwhile */
	reply.known = self->script.load >= 0;
	reply.percent = reply.known ? (uint64_t)self->script.load : 0;
	note(self, "load %ld", self->script.load);
	reach(self, "load", -1);
	send_reply(self, request->id, &ft_load_reply_message, &reply);
}

static void serve(struct runner *self)
{
	struct ft_envelope envelope;
	struct ft_error error;

	while (receive(self, true, &envelope)) {
		if (envelope.type == FT_NOTICE)
			continue; /* a cancel that came after the reply */
		if (envelope.type != FT_REQUEST)
			stop_with("the daemon answered what nobody asked");
		if (strcmp(envelope.method, "hello") == 0) {
			answer_hello(self, &envelope);
		} else if (strcmp(envelope.method, "space") == 0) {
			answer_space(self, &envelope);
		} else if (strcmp(envelope.method, "load") == 0) {
			answer_load(self, &envelope);
		} else if (strcmp(envelope.method, "sweep") == 0) {
			answer_sweep(self, &envelope);
		} else {
			ft_fail(&error, FT_E_UNKNOWN_METHOD, "%s is no method of a runner", envelope.method);
			fail_request(self, &envelope, &error);
		}
	}
}

/* The daemon's socket is the first descriptor past the standard ones, or standard input. */
static int find_socket(void)
{
	struct stat facts;

	if (fstat(3, &facts) == 0 && S_ISSOCK(facts.st_mode))
		return 3;
	if (fstat(0, &facts) == 0 && S_ISSOCK(facts.st_mode))
		return 0;
	stop_with("no descriptor is a socket; the daemon starts this program");
}

int main(int argc, char **argv)
{
	struct runner *self = calloc(1, sizeof *self);

	if (!self)
		return 70;
	/* To die of a signal as a plain program does, whatever a sanitizer makes of it. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	signal(SIGABRT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	self->script.path = getenv("FLYTUNE_BAD_RUNNER");
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "--script") == 0)
			self->script.path = argv[i + 1];
	script_read(&self->script);
	self->socket = find_socket();
	self->repeat = 1;
	self->log = -1;
	if (*self->script.log) {
		self->log = open(self->script.log, O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0644);
		if (self->log < 0)
			stop_with("cannot open %s: %s", self->script.log, strerror(errno));
	}
	note_inherited(self);
	ft_writer_init_growing(&self->out, MESSAGE_LIMIT);
	ft_writer_init_growing(&self->held, MESSAGE_LIMIT);
	ft_inbox_init(&self->inbox, &ft_bounds_large);
	serve(self);
	free(self);
	return 0;
}
