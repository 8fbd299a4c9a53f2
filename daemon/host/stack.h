/* A stack that is large enough, whatever limit the daemon was started under (`ulimit -s`). */
#ifndef FLYTUNE_DAEMON_STACK_H
#define FLYTUNE_DAEMON_STACK_H

#include <pthread.h>
#include <stddef.h>

/* Of the loop and of the writer's thread: libuv alone takes 12 KB for what epoll reports, the decision 20. */
extern const size_t stack_bytes;

/* Calls `run` on the thread that it is called on: as it is where the limit can be raised to that, else on memory of its
 * own. Gives what `run` gives. Once, and at the start. */
int stack_run(int (*run)(int argc, char **argv), int argc, char **argv);

#endif
