/* Priority: the loop's thread before those that only compute, where the system lets it.
 *
 * A lookup takes microseconds, and its client waits for it. Beside a process that computes on the same core a thread of
 * the same priority may wait for milliseconds, until that one's slice is over. */
#ifndef FLYTUNE_DAEMON_PRIORITY_H
#define FLYTUNE_DAEMON_PRIORITY_H

/* Raises the calling thread as far as this process may (RLIMIT_NICE, capabilities), unless it was started with a priority
 * other than the usual one. Its children, and threads that are started later, have the usual one. Gives the nice value that
 * the thread has then. */
int priority_raise(void);

#endif
