#include "daemon/host/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_SIZE = 1024, LIMIT_MS = 10000, BACKLOG = 32 << 10 };

static const char *const level_words[] = {
        [LOG_LEVEL_ERROR] = "error",
        [LOG_LEVEL_WARNING] = "warning",
        [LOG_LEVEL_NOTICE] = "notice",
        [LOG_LEVEL_INFO] = "info",
        [LOG_LEVEL_DEBUG] = "debug",
};

/* The variable says which stream is the journal's: a shell may hand it on, and standard error be a terminal or a file. */
static bool is_journal(void)
{
	const char *stream = secure_getenv("JOURNAL_STREAM");
	struct stat facts;
	char own[64];

	if (stream == NULL || fstat(STDERR_FILENO, &facts) != 0)
		return false;
	(void)snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)facts.st_dev,
	        (unsigned long long)facts.st_ino);
	return strcmp(stream, own) == 0;
}

/* One line stays one line, whatever a peer put into a message. */
static size_t format_line(const struct log *log, int level, char *text, char *line, size_t size)
{
	struct timespec now;
	struct tm parts;
	char stamp[32] = "";

	for (char *at = text; *at != '\0'; at++) {
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	}
	if (log->journal)
		return (size_t)snprintf(line, size, "<%d>%s\n", level, text);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &parts) != NULL)
		(void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
	return (size_t)snprintf(
	        line, size, "%s.%03ldZ %s: %s\n", stamp, now.tv_nsec / 1000000, level_words[level], text);
}

/* Lines in the order in which they came, and how many more there were than room. */
struct log_backlog {
	void (*waits)(void *data);
	void *data;
	int descriptor;
	bool socket;
	uint64_t lost;
	size_t length;
	char text[BACKLOG];
};

/* A pipe is opened anew, since those who share its other end would be made not to wait as well. */
static void open_backlog(struct log_backlog *backlog)
{
	struct stat facts;

	backlog->descriptor = STDERR_FILENO;
	if (fstat(STDERR_FILENO, &facts) != 0)
		return;
	backlog->socket = S_ISSOCK(facts.st_mode);
	if (S_ISFIFO(facts.st_mode)) {
		int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);

		if (own >= 0)
			backlog->descriptor = own;
	}
}

bool log_init(struct log *log, int level, void (*waits)(void *data), void *data)
{
	log->level = level;
	log->journal = is_journal();
	log->backlog = calloc(1, sizeof(*log->backlog));
	if (log->backlog == NULL)
		return false;
	log->backlog->waits = waits;
	log->backlog->data = data;
	open_backlog(log->backlog);
	return true;
}

void log_free(struct log *log)
{
	if (log->backlog == NULL)
		return;
	(void)log_flush(log);
	if (log->backlog->descriptor != STDERR_FILENO)
		(void)close(log->backlog->descriptor);
	free(log->backlog);
	log->backlog = NULL;
}

/* How much of it was written; all of it where no writing will ever help. */
static size_t write_some(const struct log_backlog *backlog, const char *text, size_t length)
{
	struct pollfd place = {.fd = backlog->descriptor, .events = POLLOUT};
	ssize_t written;

	/* So much fits into a pipe or a terminal that has room at all, even if it could be waited for. */
	if (length > PIPE_BUF)
		length = PIPE_BUF;
	if (poll(&place, 1, 0) == 0)
		return 0;
	written = backlog->socket ? send(backlog->descriptor, text, length, MSG_DONTWAIT | MSG_NOSIGNAL)
	                          : write(backlog->descriptor, text, length);
	if (written < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : length;
	return (size_t)written;
}

static void write_backlog(struct log_backlog *backlog)
{
	size_t done = 0;

	while (done < backlog->length) {
		size_t written = write_some(backlog, backlog->text + done, backlog->length - done);

		if (written == 0)
			break;
		done += written;
	}
	backlog->length -= done;
	memmove(backlog->text, backlog->text + done, backlog->length);
}

static bool keep(struct log_backlog *backlog, const char *line, size_t length)
{
	if (length > sizeof(backlog->text) - backlog->length)
		return false;
	memcpy(backlog->text + backlog->length, line, length);
	backlog->length += length;
	return true;
}

/* Where they would stand. */
static void tell_of_lost(const struct log *log)
{
	struct log_backlog *backlog = log->backlog;
	char text[64], line[TEXT_SIZE];
	size_t length;

	(void)snprintf(text, sizeof(text), "%llu messages lost: nobody read the log",
	        (unsigned long long)backlog->lost);
	length = format_line(log, LOG_LEVEL_WARNING, text, line, sizeof(line));
	if (keep(backlog, line, length))
		backlog->lost = 0;
}

bool log_flush(const struct log *log)
{
	struct log_backlog *backlog = log->backlog;

	if (backlog == NULL)
		return true;
	write_backlog(backlog);
	if (backlog->lost > 0) {
		tell_of_lost(log);
		write_backlog(backlog);
	}
	return backlog->length == 0 && backlog->lost == 0;
}

int log_level_parse(const char *word)
{
	for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
		if (strcmp(word, level_words[level]) == 0)
			return level;
	}
	return -1;
}

static void write_line(const struct log *log, int level, char *text)
{
	struct log_backlog *backlog = log->backlog;
	char line[TEXT_SIZE + 200];
	size_t length = format_line(log, level, text, line, sizeof(line));
	size_t written = 0;
	bool waited;

	if (backlog == NULL)
		return;
	waited = !log_flush(log);
	/* One write, so that lines of several processes do not mix. */
	if (!waited)
		written = write_some(backlog, line, length);
	if (written == length)
		return;
	if (backlog->lost > 0 || !keep(backlog, line + written, length - written))
		backlog->lost++;
	if (!waited && backlog->waits != NULL)
		backlog->waits(backlog->data);
}

void log_line(const struct log *log, int level, const char *format, ...)
{
	char text[TEXT_SIZE];
	va_list arguments;

	if (level > log->level)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	write_line(log, level, text);
}

void log_limited(const struct log *log, struct log_limit *limit, int level, const char *format, ...)
{
	char text[TEXT_SIZE];
	struct timespec now;
	uint64_t now_ms;
	va_list arguments;
	int length;

	if (level > log->level)
		return;
	(void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	if (limit->until_ms > now_ms) {
		limit->held++;
		return;
	}
	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (limit->held > 0 && length > 0 && (size_t)length < sizeof(text))
		(void)snprintf(text + length, sizeof(text) - (size_t)length, " (and %llu more like it)",
		        (unsigned long long)limit->held);
	limit->until_ms = now_ms + LIMIT_MS;
	limit->held = 0;
	write_line(log, level, text);
}
