/* The floors that flytuned is held against: servers that do the least that can be done over a Unix socket.
 *
 *   floor kind=blocking socket=PATH answer=BYTES     one client; read, write, nothing else
 *   floor kind=libuv socket=PATH answer=BYTES        a bare libuv server
 *
 * Each question, of whatever length (they come whole: one is out at a time), is answered with so many bytes, or with the
 * number of bytes that its own last four say, where answer is 0. */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "tests/bench/bench.h"

static uint8_t answer[1 << 16];
static size_t answer_length;

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 128) != 0)
		die(path);
	return fd;
}

static size_t length_for(const uint8_t *data, size_t length)
{
	uint32_t wanted;

	if (answer_length != 0 || length < 4)
		return answer_length;
	memcpy(&wanted, data + length - 4, 4);
	return wanted < sizeof(answer) ? wanted : sizeof(answer);
}

static void serve_blocking(const char *path)
{
	static uint8_t room[1 << 16];
	int listener = listen_at(path);

	for (;;) {
		int fd = accept(listener, NULL, NULL);
		ssize_t got;

		while ((got = read(fd, room, sizeof(room))) > 0) {
			size_t length = length_for(room, (size_t)got);

			if (write(fd, answer, length) != (ssize_t)length)
				break;
		}
		close(fd);
	}
}

/* ---- libuv ---- */

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	static char room[1 << 16];

	(void)handle;
	(void)suggested;
	*buffer = uv_buf_init(room, sizeof(room));
}

static void free_handle(uv_handle_t *handle)
{
	free(handle);
}

static void received(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
	uv_buf_t reply;

	if (got < 0) {
		uv_close((uv_handle_t *)stream, free_handle);
		return;
	}
	reply = uv_buf_init((char *)answer, (unsigned)length_for((uint8_t *)buffer->base, (size_t)got));
	(void)uv_try_write(stream, &reply, 1);
}

static void connected(uv_stream_t *listener, int status)
{
	uv_pipe_t *pipe = need(calloc(1, sizeof(*pipe)));

	if (status != 0)
		exit(1);
	uv_pipe_init(listener->loop, pipe, 0);
	if (uv_accept(listener, (uv_stream_t *)pipe) != 0 ||
	        uv_read_start((uv_stream_t *)pipe, give_room, received) != 0)
		exit(1);
}

static void serve_libuv(const char *path)
{
	uv_loop_t *loop = uv_default_loop();
	uv_pipe_t listener;

	uv_pipe_init(loop, &listener, 0);
	if (uv_pipe_open(&listener, listen_at(path)) != 0 ||
	        uv_listen((uv_stream_t *)&listener, 128, connected) != 0)
		exit(1);
	uv_run(loop, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
	const char *path = argument(argc, argv, "socket", "");

	stay_on(number(argc, argv, "cpu", 0));
	answer_length = (size_t)number(argc, argv, "answer", 0);
	if (strcmp(argument(argc, argv, "kind", ""), "libuv") == 0)
		serve_libuv(path);
	else
		serve_blocking(path);
	return 0;
}
