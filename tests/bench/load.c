/* A client that asks over a Unix socket as fast as it is answered, the same for flytuned, for the floors and for Redis.
 *
 *   load socket=PATH speak=flytune|lines|redis questions=FILE [clients=1] [pipeline=1] [seconds=1] [cpu=1]
 *
 * The file holds questions as they go over the wire, each behind its length (4 bytes, the machine's order), and behind
 * it the length of its answer (0: learnt in a first pass). One client with a pipeline of 1 blocks in send and recv;
 * otherwise one thread waits for all by epoll. Prints JSON: `rate` in answers a second, and times of a round trip. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/inbox.h"
#include "proto/messages.h"
#include "tests/bench/bench.h"

struct question {
	const uint8_t *data;
	uint32_t length;
	uint32_t answer;
};

struct peer {
	int fd;
	uint64_t random;
	uint64_t sent_at;
	size_t owed; /* bytes of answers that are still to come */
};

static struct question *question;
static size_t questions;
static size_t per_question = 1; /* answers in one reply */

static void read_questions(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = need(malloc(64 << 20));
	size_t length, at = 0;

	if (file == NULL)
		die(path);
	length = fread(data, 1, 64 << 20, file);
	fclose(file);
	question = need(calloc(1 << 20, sizeof(*question)));
	while (at + 8 <= length) {
		struct question *next = &question[questions++];

		memcpy(&next->length, data + at, 4);
		memcpy(&next->answer, data + at + 4, 4);
		next->data = data + at + 8;
		at += 8 + next->length;
	}
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die(path);
	return fd;
}

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

/* Waits for exactly so many bytes: one question is out at a time, so no more can come. */
static void receive(int fd, uint8_t *room, size_t length)
{
	while (length > 0) {
		ssize_t got = recv(fd, room, length < (1 << 20) ? length : 1 << 20, 0);

		if (got <= 0)
			die("recv");
		length -= (size_t)got;
	}
}

/* One whole MessagePack message, and its length. */
static uint32_t receive_message(int fd)
{
	struct ft_inbox inbox;
	struct ft_view message;
	struct ft_envelope envelope;
	struct ft_error error;
	uint8_t *room;
	size_t size;
	int whole;

	ft_inbox_init(&inbox, &ft_bounds_large);
	while ((whole = ft_inbox_next(&inbox, &message, &error)) == 0) {
		ssize_t got;

		if (ft_inbox_room(&inbox, &room, &size, &error) != 0)
			die("memory");
		got = recv(fd, room, size, 0);
		if (got <= 0)
			die("recv");
		ft_inbox_received(&inbox, (size_t)got);
	}
	if (whole < 0 || ft_open_envelope(message, &envelope, &error) != 0)
		die(error.message);
	if (envelope.error.data != NULL) {
		ft_read_failure(envelope.error, &error);
		die(error.message);
	}
	whole = (int)message.length;
	ft_inbox_free(&inbox);
	return (uint32_t)whole;
}

static void greet(int fd)
{
	struct ft_hello_request hello = {.min = 1, .max = 1, .name = "bench"};
	struct ft_writer writer;
	uint8_t room[256];

	ft_writer_init_fixed(&writer, room, sizeof(room));
	ft_begin_request(&writer, 1, "hello");
	ft_encode(&writer, &ft_hello_request_message, &hello);
	send_all(fd, room, writer.length);
	(void)receive_message(fd);
}

static uint32_t learn(int fd, const char *speak, const struct question *one)
{
	uint8_t room[4096];
	ssize_t got;

	send_all(fd, one->data, one->length);
	if (strcmp(speak, "flytune") == 0)
		return receive_message(fd);
	/* Others answer in one piece. */
	got = recv(fd, room, sizeof(room), 0);
	if (got <= 0)
		die("recv");
	return (uint32_t)got;
}

static uint64_t one_by_one(int fd, uint64_t until, struct samples *samples)
{
	uint64_t random = 88172645463325252ULL + (uint64_t)getpid();
	uint8_t *room = need(malloc(1 << 20));
	uint64_t answers = 0, now = now_ns();

	while (now < until) {
		const struct question *one = &question[next_random(&random) % questions];
		uint64_t began = now;

		send_all(fd, one->data, one->length);
		receive(fd, room, one->answer);
		now = now_ns();
		samples_add(samples, now - began);
		answers++;
	}
	free(room);
	return answers;
}

static void ask_many(struct peer *peer, size_t pipeline)
{
	static uint8_t room[1 << 20];
	size_t length = 0;

	for (size_t i = 0; i < pipeline; i++) {
		const struct question *one = &question[next_random(&peer->random) % questions];

		memcpy(room + length, one->data, one->length);
		length += one->length;
		peer->owed += one->answer;
	}
	peer->sent_at = now_ns();
	send_all(peer->fd, room, length);
}

static uint64_t all_at_once(const char *path, const char *speak, size_t clients, size_t pipeline,
        uint64_t seconds_ns, struct samples *samples, uint64_t *took)
{
	struct peer *peers = need(calloc(clients, sizeof(*peers)));
	uint8_t *room = need(malloc(1 << 20));
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	uint64_t answers = 0, began, until;

	for (size_t i = 0; i < clients; i++) {
		struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = i};

		peers[i] = (struct peer){.fd = connect_to(path), .random = 88172645463325252ULL + i};
		if (strcmp(speak, "flytune") == 0)
			greet(peers[i].fd);
		epoll_ctl(epoll, EPOLL_CTL_ADD, peers[i].fd, &wanted);
	}
	began = now_ns();
	until = began + seconds_ns;
	for (size_t i = 0; i < clients; i++)
		ask_many(&peers[i], pipeline);
	while (now_ns() < until) {
		struct epoll_event ready[64];
		int count = epoll_wait(epoll, ready, 64, 1000);

		for (int i = 0; i < count; i++) {
			struct peer *peer = &peers[ready[i].data.u64];
			ssize_t got = recv(peer->fd, room, 1 << 20, 0);

			if (got <= 0 || (size_t)got > peer->owed)
				die("recv");
			peer->owed -= (size_t)got;
			if (peer->owed > 0)
				continue;
			samples_add(samples, now_ns() - peer->sent_at);
			answers += pipeline;
			ask_many(peer, pipeline);
		}
	}
	*took = now_ns() - began;
	for (size_t i = 0; i < clients; i++)
		close(peers[i].fd);
	free(peers);
	free(room);
	return answers;
}

int main(int argc, char **argv)
{
	const char *path = argument(argc, argv, "socket", "");
	const char *speak = argument(argc, argv, "speak", "flytune");
	size_t clients = (size_t)number(argc, argv, "clients", 1);
	size_t pipeline = (size_t)number(argc, argv, "pipeline", 1);
	uint64_t seconds_ns = (uint64_t)(strtod(argument(argc, argv, "seconds", "1"), NULL) * 1e9);
	struct samples samples;
	uint64_t answers, took;
	int fd;

	stay_on(number(argc, argv, "cpu", 1));
	per_question = (size_t)number(argc, argv, "each", 1);
	read_questions(argument(argc, argv, "questions", ""));
	samples_init(&samples, 4 << 20);
	fd = connect_to(path);
	if (strcmp(speak, "flytune") == 0)
		greet(fd);
	for (size_t i = 0; i < questions; i++) {
		if (question[i].answer == 0)
			question[i].answer = learn(fd, speak, &question[i]);
	}
	if (clients == 1 && pipeline == 1) {
		uint64_t began = now_ns();

		answers = one_by_one(fd, began + seconds_ns, &samples);
		took = now_ns() - began;
	} else {
		answers = all_at_once(path, speak, clients, pipeline, seconds_ns, &samples, &took);
	}
	printf("{\"rate\":%.1f,\"question\":%u,\"answer\":%u,",
	        (double)(answers * per_question) * 1e9 / (double)took, question[0].length,
	        question[0].answer);
	samples_print(&samples);
	printf("}\n");
	return 0;
}
