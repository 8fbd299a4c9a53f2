/* A client that asks over Unix sockets as fast as it is answered, the same for flytuned, for the floors and for Redis.
 *
 *   load [clients=1] [rounds=10] [seconds=0.2] [count=0] [cpu=1] target=NAME,SPEAK,PIPELINE,SOCKET,QUESTIONS...
 *
 * Each round asks one target after the other, another one first each time, for so many seconds, or exactly `count` times.
 * SPEAK: `flytune` says hello first; `framed` as well, and finds the ends of answers itself, so that they may be of
 * any length; `plain` says nothing. The file QUESTIONS holds questions as they go over the wire, each behind three
 * numbers of 4 bytes in the machine's order: its length, the length of what answers it, and how many answers that is.
 * A question is chosen by chance, in turn where `count` is given, and then by no two clients.
 *
 * One client blocks in send and recv, as a program does that has to know; more of them wait in epoll, in one thread.
 * Nothing but the length of an answer is looked at. Prints JSON: for each target its rounds, and all of them together,
 * with `rate` in answers a second and the nanoseconds of a round trip. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/inbox.h"
#include "proto/messages.h"
#include "tests/bench/bench.h"

enum { TARGETS_MAX = 8, ROUNDS_MAX = 100, ROOM = 1 << 20, WARM_SHARE = 16 };

struct question {
	const uint8_t *data;
	uint32_t length;
	uint32_t answer; /* bytes */
	uint32_t answers;
};

struct peer {
	int fd;
	uint64_t random;
	uint64_t next;
	uint64_t sent_at;
	size_t owed;    /* bytes of answers that are still to come; messages where they are framed */
	size_t answers; /* that these are */
	struct ft_inbox inbox;
};

struct round {
	size_t first, count; /* of the samples */
	double rate;
};

struct target {
	const char *name;
	const char *socket;
	bool hello, framed;
	size_t pipeline;
	struct question *question;
	size_t questions;
	struct peer *peer;
	int epoll;
	struct samples samples;
	struct round round[ROUNDS_MAX];
};

static struct target targets[TARGETS_MAX];
static size_t target_count;
static size_t clients;
static bool in_turn;
static uint8_t room[ROOM];

/* ---- what is asked ---- */

static void read_questions(struct target *target, const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	size_t length, at = 0, most;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
		die(path);
	length = (size_t)ftell(file);
	rewind(file);
	data = need(malloc(length + 1));
	if (fread(data, 1, length, file) != length)
		die(path);
	fclose(file);
	most = length / 12;
	target->question = need(calloc(most + 1, sizeof(*target->question)));
	while (at + 12 <= length) {
		struct question *next = &target->question[target->questions++];

		memcpy(&next->length, data + at, 4);
		memcpy(&next->answer, data + at + 4, 4);
		memcpy(&next->answers, data + at + 8, 4);
		next->data = data + at + 12;
		at += 12 + next->length;
	}
	if (target->questions == 0 || at != length) {
		errno = EINVAL;
		die(path);
	}
}

static void add_target(char *text)
{
	struct target *target = &targets[target_count++];
	char *part[5];

	for (int i = 0; i < 5; i++) {
		part[i] = strsep(&text, ",");
		if (part[i] == NULL) {
			errno = EINVAL;
			die("target=NAME,SPEAK,PIPELINE,SOCKET,QUESTIONS");
		}
	}
	target->name = part[0];
	target->framed = strcmp(part[1], "framed") == 0;
	target->hello = target->framed || strcmp(part[1], "flytune") == 0;
	target->pipeline = (size_t)strtol(part[2], NULL, 10);
	target->socket = part[3];
	read_questions(target, part[4]);
}

/* ---- one connection ---- */

static void send_all(int fd, const uint8_t *data, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(fd, data, length, MSG_NOSIGNAL);

		if (sent < 0)
			die("send");
		data += sent;
		length -= (size_t)sent;
	}
}

/* Takes what has come; true when nothing is owed any more. */
static bool take_bytes(struct peer *peer)
{
	ssize_t got = recv(peer->fd, room, sizeof(room), 0);

	if (got <= 0 || (size_t)got > peer->owed) {
		errno = got > 0 ? EPROTO : errno;
		die("recv");
	}
	peer->owed -= (size_t)got;
	return peer->owed == 0;
}

static bool take_messages(struct peer *peer)
{
	struct ft_view message;
	struct ft_error error;
	uint8_t *place;
	size_t size;
	ssize_t got;

	if (ft_inbox_room(&peer->inbox, &place, &size, &error) != 0)
		die(error.message);
	got = recv(peer->fd, place, size, 0);
	if (got <= 0)
		die("recv");
	ft_inbox_received(&peer->inbox, (size_t)got);
	while (peer->owed > 0 && ft_inbox_next(&peer->inbox, &message, &error) == 1)
		peer->owed--;
	return peer->owed == 0;
}

static bool take(const struct target *target, struct peer *peer)
{
	return target->framed ? take_messages(peer) : take_bytes(peer);
}

static void ask(const struct target *target, struct peer *peer)
{
	const struct question *one = NULL;
	size_t length = 0;

	peer->answers = 0;
	for (size_t i = 0; i < target->pipeline; i++) {
		uint64_t which = in_turn ? peer->next : next_random(&peer->random);

		peer->next += clients;
		one = &target->question[which % target->questions];
		if (target->pipeline > 1) {
			memcpy(room + length, one->data, one->length);
			length += one->length;
		}
		peer->owed += target->framed ? 1 : one->answer;
		peer->answers += one->answers;
	}
	peer->sent_at = now_ns();
	if (target->pipeline == 1)
		send_all(peer->fd, one->data, one->length);
	else
		send_all(peer->fd, room, length);
}

static void greet(const struct target *target, struct peer *peer)
{
	struct ft_hello_request hello = {.min = FT_PROTOCOL_MIN, .max = FT_PROTOCOL_MAX, .name = "bench"};
	struct ft_writer writer;
	struct ft_view message;
	struct ft_envelope reply;
	struct ft_error error;
	uint8_t request[256];
	int whole;

	ft_writer_init_fixed(&writer, request, sizeof(request));
	ft_begin_request(&writer, 1, "hello");
	ft_encode(&writer, &ft_hello_request_message, &hello);
	send_all(peer->fd, request, writer.length);
	while ((whole = ft_inbox_next(&peer->inbox, &message, &error)) == 0) {
		uint8_t *place;
		size_t size;
		ssize_t got;

		if (ft_inbox_room(&peer->inbox, &place, &size, &error) != 0)
			die(error.message);
		got = recv(peer->fd, place, size, 0);
		if (got <= 0)
			die(target->socket);
		ft_inbox_received(&peer->inbox, (size_t)got);
	}
	if (whole < 0 || ft_open_envelope(message, &reply, &error) != 0 || reply.error.data != NULL) {
		errno = EPROTO;
		die("hello");
	}
}

static void connect_all(struct target *target)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", target->socket);
	target->peer = need(calloc(clients, sizeof(*target->peer)));
	target->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (size_t i = 0; i < clients; i++) {
		struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = i};
		struct peer *peer = &target->peer[i];

		*peer = (struct peer){.random = 88172645463325252ULL + 977 * i, .next = i};
		ft_inbox_init(&peer->inbox, &ft_bounds_large);
		peer->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
			die(target->socket);
		if (target->hello)
			greet(target, peer);
		if (epoll_ctl(target->epoll, EPOLL_CTL_ADD, peer->fd, &wanted) != 0)
			die("epoll_ctl");
	}
}

/* ---- rounds ---- */

/* The clock starts when the first share of a round is over: whoever was asked last had the caches. */
struct meter {
	uint64_t counted_from, until;
	uint64_t count; /* instead of the clock; 0: by the clock */
	uint64_t asked, answers;
};

static bool goes_on(const struct meter *meter, uint64_t now)
{
	return meter->count != 0 ? meter->asked < meter->count : now < meter->until;
}

static void note(struct target *target, struct meter *meter, const struct peer *peer, uint64_t now)
{
	if (peer->sent_at < meter->counted_from)
		return;
	samples_add(&target->samples, now - peer->sent_at);
	meter->answers += peer->answers;
}

static void one_client(struct target *target, struct meter *meter)
{
	struct peer *peer = target->peer;
	uint64_t now = now_ns();

	while (goes_on(meter, now)) {
		ask(target, peer);
		meter->asked++;
		while (!take(target, peer)) {
		}
		now = now_ns();
		note(target, meter, peer, now);
	}
}

static void many_clients(struct target *target, struct meter *meter)
{
	size_t out = 0;

	for (size_t i = 0; i < clients; i++, out++, meter->asked++)
		ask(target, &target->peer[i]);
	while (out > 0) {
		struct epoll_event ready[64];
		int count = epoll_wait(target->epoll, ready, 64, 10000);

		if (count < 0 && errno == EINTR) /* it was stopped for a while */
			continue;
		if (count <= 0)
			die("nothing came");
		for (int i = 0; i < count; i++) {
			struct peer *peer = &target->peer[ready[i].data.u64];
			uint64_t now;

			if (!take(target, peer))
				continue;
			now = now_ns();
			out--;
			if (meter->count != 0 || now < meter->until)
				note(target, meter, peer, now);
			if (!goes_on(meter, now))
				continue;
			ask(target, peer);
			meter->asked++;
			out++;
		}
	}
}

static void run_round(struct target *target, int index, uint64_t length_ns, uint64_t count)
{
	struct round *round = &target->round[index];
	uint64_t began = now_ns(), ended;
	struct meter meter = {.counted_from = count != 0 ? 0 : began + length_ns / WARM_SHARE,
	        .until = began + length_ns,
	        .count = count};

	round->first = target->samples.count;
	if (clients == 1)
		one_client(target, &meter);
	else
		many_clients(target, &meter);
	ended = now_ns();
	if (count == 0 && ended > meter.until && clients > 1)
		ended = meter.until;
	round->count = target->samples.count - round->first;
	round->rate =
	        (double)meter.answers * 1e9 / (double)(ended - (count != 0 ? began : meter.counted_from));
}

static void print_target(struct target *target, int rounds)
{
	uint32_t *ns = target->samples.ns;

	printf("{\"name\":\"%s\",\"question\":%u,\"answer\":%u,\"rounds\":[", target->name,
	        target->question[0].length, target->question[0].answer);
	for (int i = 0; i < rounds; i++) {
		const struct round *round = &target->round[i];

		samples_sort(ns + round->first, round->count);
		printf("%s{\"rate\":%.1f,", i > 0 ? "," : "", round->rate);
		samples_print(ns + round->first, round->count);
		printf("}");
	}
	samples_sort(ns, target->samples.count);
	printf("],\"all\":{");
	samples_print(ns, target->samples.count);
	printf("}}");
}

int main(int argc, char **argv)
{
	uint64_t length_ns = (uint64_t)(strtod(argument(argc, argv, "seconds", "0.2"), NULL) * 1e9);
	uint64_t count = (uint64_t)number(argc, argv, "count", 0);
	int rounds = (int)number(argc, argv, "rounds", 10);

	stay_on(number(argc, argv, "cpu", 1));
	clients = (size_t)number(argc, argv, "clients", 1);
	in_turn = count != 0;
	if (rounds < 1 || rounds > ROUNDS_MAX || clients < 1) {
		errno = EINVAL;
		die("rounds or clients");
	}
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "target=", 7) == 0 && target_count < TARGETS_MAX)
			add_target(argv[i] + 7);
	}
	for (size_t i = 0; i < target_count; i++) {
		samples_init(&targets[i].samples, 4 << 20);
		connect_all(&targets[i]);
	}
	for (int round = 0; round < rounds; round++) {
		for (size_t i = 0; i < target_count; i++)
			run_round(&targets[((size_t)round + i) % target_count], round, length_ns, count);
	}
	printf("[");
	for (size_t i = 0; i < target_count; i++) {
		printf("%s", i > 0 ? "," : "");
		print_target(&targets[i], rounds);
	}
	printf("]\n");
	return 0;
}
