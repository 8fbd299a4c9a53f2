#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_SIZE = 1024, LIMIT_MS = 10000 };

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
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat facts;
	char own[64];

	if (stream == NULL || fstat(STDERR_FILENO, &facts) != 0)
		return false;
	(void)snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)facts.st_dev,
	        (unsigned long long)facts.st_ino);
	return strcmp(stream, own) == 0;
}

void log_init(struct log *log, int level)
{
	log->level = level;
	log->journal = is_journal();
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
	char line[TEXT_SIZE + 200];
	int length;

	/* One line stays one line, whatever a peer put into a message. */
	for (char *at = text; *at != '\0'; at++) {
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	}
	if (log->journal) {
		length = snprintf(line, sizeof(line), "<%d>%s\n", level, text);
	} else {
		struct timespec now;
		struct tm parts;
		char stamp[32] = "";

		(void)clock_gettime(CLOCK_REALTIME, &now);
		if (gmtime_r(&now.tv_sec, &parts) != NULL)
			(void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
		length = snprintf(line, sizeof(line), "%s.%03ldZ %s: %s\n", stamp, now.tv_nsec / 1000000,
		        level_words[level], text);
	}
	/* One write, so that lines of several processes do not mix; nothing can be done where it fails. */
	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		return;
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
