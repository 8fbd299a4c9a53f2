/* Compiles C in processes of their own, by the system's compiler: `cc`, as PATH has it.
 *
 * Used from one thread. What the compiler gets of the environment is PATH, TMPDIR, which is its HOME, too, and a plain locale: no
 * variable adds options, or folders to search. */
#ifndef FLYTUNE_KERNELS_RUNNER_CPU_CC_H
#define FLYTUNE_KERNELS_RUNNER_CPU_CC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum { CC_ARGUMENTS_MAX = 64, CC_PROCESSES_MAX = 16 };

struct cc;

struct cc_done {
	size_t tag; /* of cc_submit */
	bool failed;
	struct ft_error
	        error; /* "it does not compile: FILE:LINE: ...", the first error that the compiler names */
	uint64_t build_ns;
};

/* At most so many processes at a time, at least one. */
struct cc *cc_new(unsigned processes); /* NULL: no memory */
/* Ends what is being compiled, too. */
void cc_free(struct cc *cc);
/* Where the program is, links followed; "": there is none. */
void cc_find(char *path, size_t size);
/* The first line of `cc --version`. -1 and an error if there is none. */
int cc_version(char *text, size_t size, struct ft_error *error);

/* Queues one: `argument` are those of the compiler, run in the folder `where`. Keeps copies. */
int cc_submit(struct cc *cc, size_t tag, const char *where, const char *const *argument, size_t arguments,
        struct ft_error *error);
/* Waits for one: 1 and it, 0 if nothing is pending, -1 if no process can be started, FT_BACKEND_ENDED when `until_ns` has come,
 * monotonic; 0: never. */
int cc_wait(struct cc *cc, uint64_t until_ns, struct cc_done *done, struct ft_error *error);
/* Ends what is being compiled, and forgets what waits. */
void cc_drop(struct cc *cc);

#endif
