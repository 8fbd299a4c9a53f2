/* One user who wants all of the daemon: many connections, each of which sends as much as is taken.
 *
 *   attack socket=PATH how=pipeline|deaf|half|reconnect [connections=1000] [cpu=1] [first=FILE] [repeat=FILE] [each=1]
 *
 * Each connection says hello, sends what is in `first` once, and then `repeat` over and over: `pipeline` reads the answers
 * and throws them away, with `each` copies of `repeat` unanswered at most (0: no bound); `deaf` reads nothing; `half`
 * sends `repeat`, which is to be half a message, hangs up and comes again; `reconnect` hangs up after hello. Says "ready"
 * once all are connected and `first` is sent, goes on until its standard input ends, and then prints how many bytes were
 * sent and taken, and how many connections made. A connection that the daemon ends is made anew. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/messages.h"
#include "tests/bench/bench.h"

enum { ROOM = 1 << 20, EVENTS = 64 };

enum how { PIPELINE, DEAF, HALF, RECONNECT };

struct bytes {
	uint8_t *data;
	size_t length;
};

struct peer {
	int fd;
	size_t first;            /* bytes of hello and `first` that are sent */
	size_t repeat;           /* of the copy of `repeat` that is under way */
	uint64_t sent, answered; /* copies of `repeat`, by what was read of answers of equal length */
	bool writes;
};

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static enum how how;
static struct bytes first, repeat;
static struct peer *peers;
static size_t connections, up;
static uint64_t each, sent, taken, made;
static int all;
static uint8_t room[ROOM];

static struct bytes read_file(const char *path, const struct bytes *before)
{
	struct bytes bytes = {.length = before != NULL ? before->length : 0};
	FILE *file = path[0] != '\0' ? fopen(path, "rb") : NULL;
	size_t length = 0;

	if (path[0] != '\0' && file == NULL)
		die(path);
	if (file != NULL && fseek(file, 0, SEEK_END) == 0)
		length = (size_t)ftell(file);
	bytes.data = need(malloc(bytes.length + length + 1));
	if (before != NULL)
		memcpy(bytes.data, before->data, before->length);
	if (file != NULL) {
		rewind(file);
		if (fread(bytes.data + bytes.length, 1, length, file) != length)
			die(path);
		fclose(file);
	}
	bytes.length += length;
	return bytes;
}

static struct bytes hello(void)
{
	struct ft_hello_request request = {.min = FT_PROTOCOL_MIN, .max = FT_PROTOCOL_MAX, .name = "attack"};
	struct bytes bytes = {.data = need(malloc(256))};
	struct ft_writer writer;

	ft_writer_init_fixed(&writer, bytes.data, 256);
	ft_begin_request(&writer, 1, "hello");
	ft_encode(&writer, &ft_hello_request_message, &request);
	bytes.length = writer.length;
	return bytes;
}

static void begin(struct peer *peer)
{
	struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT, .data.ptr = peer};

	*peer = (struct peer){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .writes = true};
	/* It waits for its place in the queue of those who come. */
	if (peer->fd < 0 || connect(peer->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die(address.sun_path);
	if (fcntl(peer->fd, F_SETFL, O_NONBLOCK) != 0 ||
	        epoll_ctl(all, EPOLL_CTL_ADD, peer->fd, &wanted) != 0)
		die("epoll_ctl");
	made++;
}

static void again(struct peer *peer)
{
	close(peer->fd);
	begin(peer);
}

/* False if no more is taken for now. */
static bool send_some(struct peer *peer, const struct bytes *bytes, size_t *at)
{
	ssize_t got = send(peer->fd, bytes->data + *at, bytes->length - *at, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (got < 0)
		return false;
	*at += (size_t)got;
	sent += (uint64_t)got;
	return *at == bytes->length;
}

static bool may_send(const struct peer *peer)
{
	return repeat.length > 0 && (each == 0 || peer->sent - peer->answered < each);
}

static void want(struct peer *peer, bool writes)
{
	struct epoll_event wanted = {
	        .events = (how == DEAF ? 0 : EPOLLIN) | (writes ? EPOLLOUT : 0), .data.ptr = peer};

	if (peer->writes != writes && epoll_ctl(all, EPOLL_CTL_MOD, peer->fd, &wanted) != 0)
		die("epoll_ctl");
	peer->writes = writes;
}

static void write_more(struct peer *peer)
{
	if (peer->first < first.length) {
		if (!send_some(peer, &first, &peer->first))
			return;
		up += up < connections;
	}
	if (how == RECONNECT) {
		again(peer);
		return;
	}
	for (int i = 0; i < 16 && may_send(peer); i++) {
		if (!send_some(peer, &repeat, &peer->repeat))
			return;
		peer->repeat = 0;
		peer->sent++;
		if (how == HALF) {
			again(peer);
			return;
		}
	}
	want(peer, may_send(peer));
}

static void read_some(struct peer *peer)
{
	ssize_t got = recv(peer->fd, room, sizeof(room), MSG_DONTWAIT);

	if (got == 0 || (got < 0 && errno != EAGAIN)) {
		again(peer);
		return;
	}
	taken += got > 0 ? (uint64_t)got : 0;
	/* Of a bound of 1, whatever comes is the answer. */
	peer->answered = peer->sent;
	want(peer, peer->first < first.length || may_send(peer));
}

int main(int argc, char **argv)
{
	static const char *const words[] = {"pipeline", "deaf", "half", "reconnect"};
	const char *said = argument(argc, argv, "how", "pipeline");
	struct pollfd stop = {.fd = STDIN_FILENO, .events = POLLIN};
	struct bytes greeting = hello();
	bool ready = false;

	stay_on(number(argc, argv, "cpu", 1));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", argument(argc, argv, "socket", ""));
	for (how = PIPELINE; how < RECONNECT && strcmp(words[how], said) != 0;)
		how++;
	connections = (size_t)number(argc, argv, "connections", 1000);
	each = (uint64_t)number(argc, argv, "each", 0);
	first = read_file(argument(argc, argv, "first", ""), &greeting);
	repeat = read_file(argument(argc, argv, "repeat", ""), NULL);
	peers = need(calloc(connections, sizeof(*peers)));
	all = epoll_create1(EPOLL_CLOEXEC);
	for (size_t i = 0; i < connections; i++)
		begin(&peers[i]);
	while (poll(&stop, 1, 0) == 0) {
		struct epoll_event events[EVENTS];
		int count = epoll_wait(all, events, EVENTS, 100);

		for (int i = 0; i < count; i++) {
			struct peer *peer = events[i].data.ptr;

			if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
				read_some(peer);
			if ((events[i].events & EPOLLOUT) != 0)
				write_more(peer);
		}
		if (!ready && up == connections) {
			printf("ready\n");
			fflush(stdout);
			ready = true;
		}
	}
	printf("{\"sent\":%llu,\"taken\":%llu,\"made\":%llu}\n", (unsigned long long)sent,
	        (unsigned long long)taken, (unsigned long long)made);
	return 0;
}
