/* The process as whoever started it left it, made fit to serve. */
#ifndef FLYTUNE_DAEMON_PROCESS_H
#define FLYTUNE_DAEMON_PROCESS_H

#include <stdbool.h>
#include <sys/resource.h>

/* The signals that are watched for. */
enum { PROCESS_SIGNALS = 3 };
extern const int process_signals[PROCESS_SIGNALS];
/* Between two lives nobody watches, and they would end the process: they wait then. */
void process_hold_signals(bool hold);

/* systemd's usual soft limit of 1,024 descriptors leaves nothing beside a thousand clients. `given` is what it was; zero:
 * unknown. */
void process_raise_descriptors(struct rlimit *given);
/* A descriptor that is closed at the start would be given to the store or a socket, and log lines written into it. -1 with
 * errno. */
int process_open_standard(void);
/* Whoever started the daemon may have blocked signals, or ignored those of children: no runner's end would be noticed then,
 * and no SIGTERM. Runners begin with nothing blocked or ignored, by libuv. */
void process_reset_signals(void);
/* Has a fatal signal call `mark`, which leaves word for the next start and must be async-signal-safe, before the process dies of
 * it; with a line for people. */
void process_watch_faults(void (*mark)(int number));

#endif
