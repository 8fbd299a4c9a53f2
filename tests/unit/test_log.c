/* The log's lines, when nobody reads them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/host/log.h"
#include "tests/unit/check.h"

enum { READ_MAX = 1 << 20 };

struct stream {
	int reader, was; /* standard error, meanwhile */
	struct log log;
	unsigned waits;
	char *text;
	size_t length;
};

static void note_wait(void *data)
{
	struct stream *stream = data;

	stream->waits++;
}

static void begin(struct stream *stream, bool as_socket)
{
	int ends[2];

	*stream = (struct stream){.was = dup(STDERR_FILENO), .text = calloc(1, READ_MAX)};
	assert_non_null(stream->text);
	assert_int_equal(as_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
	/* The end that is written to is the second one. */
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	stream->reader = ends[0];
	assert_int_equal(fcntl(stream->reader, F_SETFL, O_NONBLOCK), 0);
	assert_true(log_init(&stream->log, LOG_LEVEL_INFO, note_wait, stream));
}

static void end(struct stream *stream)
{
	log_free(&stream->log);
	assert_int_equal(dup2(stream->was, STDERR_FILENO), STDERR_FILENO);
	close(stream->was);
	close(stream->reader);
	free(stream->text);
}

static void read_all(struct stream *stream)
{
	ssize_t got;

	while ((got = read(stream->reader, stream->text + stream->length, READ_MAX - 1 - stream->length)) > 0)
		stream->length += (size_t)got;
	assert_true(got < 0 && errno == EAGAIN);
}

static void log_many(struct stream *stream, unsigned from, unsigned until)
{
	for (unsigned i = from; i < until; i++)
		log_line(&stream->log, LOG_LEVEL_INFO,
		        "line=%u of some length, so that fewer of them are needed", i);
}

/* Every line is there in its order, or among those that are said to be lost. */
static void check_lines(const struct stream *stream, unsigned wrote)
{
	unsigned next = 0, lost = 0;

	for (char *line = stream->text, *stop; *line != '\0'; line = stop + 1) {
		const char *at;
		unsigned number;

		stop = strchr(line, '\n');
		assert_non_null(stop);
		*stop = '\0';
		at = strstr(line, "line=");
		if (at != NULL) {
			number = (unsigned)strtoul(at + 5, NULL, 10);
			assert_int_equal(number, next);
			next++;
			continue;
		}
		assert_non_null(strstr(line, " messages lost"));
		assert_non_null(strstr(line, "warning: "));
		number = (unsigned)strtoul(strstr(line, "warning: ") + 9, NULL, 10);
		assert_true(number > 0);
		lost += number;
		next += number;
	}
	assert_true(lost > 0);
	assert_int_equal(next, wrote);
}

static void nobody_reads(bool as_socket)
{
	struct stream stream;

	begin(&stream, as_socket);
	log_many(&stream, 0, 10);
	assert_int_equal(stream.waits, 0);
	assert_true(log_flush(&stream.log));
	/* More than any pipe or socket takes: had one of them to be waited for, this would not end. */
	log_many(&stream, 10, 20000);
	assert_int_equal(stream.waits, 1);
	assert_false(log_flush(&stream.log));
	read_all(&stream);
	while (!log_flush(&stream.log))
		read_all(&stream);
	log_many(&stream, 20000, 20010);
	assert_int_equal(stream.waits, 1);
	read_all(&stream);
	check_lines(&stream, 20010);
	end(&stream);
}

static void a_pipe_that_nobody_reads_stops_nothing(void **state)
{
	(void)state;
	nobody_reads(false);
}

static void a_socket_that_nobody_reads_stops_nothing(void **state)
{
	(void)state;
	nobody_reads(true);
}

static void a_reader_that_left_costs_its_lines_only(void **state)
{
	struct stream stream;
	void (*before)(int) = signal(SIGPIPE, SIG_IGN);

	(void)state;
	begin(&stream, false);
	close(stream.reader);
	log_many(&stream, 0, 10);
	assert_true(log_flush(&stream.log));
	assert_int_equal(stream.waits, 0);
	stream.reader = dup(STDERR_FILENO);
	end(&stream);
	(void)signal(SIGPIPE, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_pipe_that_nobody_reads_stops_nothing),
	        cmocka_unit_test(a_socket_that_nobody_reads_stops_nothing),
	        cmocka_unit_test(a_reader_that_left_costs_its_lines_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
