/* The log: lines on standard error, "level message key=value …", as the journal or a terminal wants them.
 *
 * Nobody waits for who reads it: lines that cannot be written at once are kept, up to a bound, and above that counted. Of one
 * thread. */
#ifndef FLYTUNE_DAEMON_LOG_H
#define FLYTUNE_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Levels are syslog's, so that the journal files them right. */
enum {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7
};

struct log {
	int level;    /* lines above this level are left out */
	bool journal; /* standard error is the journal: it adds the time itself and reads a "<level>" prefix
	               */
	struct log_backlog *backlog;
};

/* Of one cause that peers can bring about as often as they like: after a line the next ones are counted for a
 * while, and the count stands in the line that follows. Starts as zeros. */
struct log_limit {
	uint64_t until_ms;
	uint64_t held;
};

/* `waits` is called when the first line could not be written: log_flush is to be called now and then, until it says that
 * nothing waits any more. False without memory: then nothing is ever logged. */
bool log_init(struct log *log, int level, void (*waits)(void *data), void *data);
/* What still waits is lost. */
void log_free(struct log *log);
/* True if nothing waits any more. */
bool log_flush(const struct log *log);
/* -1 if `word` is none of error, warning, notice, info, debug. */
int log_level_parse(const char *word);
void log_line(const struct log *log, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
void log_limited(const struct log *log, struct log_limit *limit, int level, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

#endif
