/* What a test's script says the runner is to do; tests/runner/README.md has its words. */
#ifndef FLYTUNE_TESTS_RUNNER_SCRIPT_H
#define FLYTUNE_TESTS_RUNNER_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel.h"

enum { RULES_MAX = 64, ARGUMENT_SIZE = 256 };

struct rule {
	char step[16];
	long which; /* trial or round; -1: any */
	bool once;  /* fires once in the life of the script, restarts included */
	unsigned line;
	char action[16];
	char argument[ARGUMENT_SIZE];
};

struct script {
	const char *path;
	char on[FT_DEVICE_ID_SIZE]; /* the device that this runner sweeps; "": none yet */
	/* What is read, from here on: */
	char identity[FT_IDENTITY_SIZE];
	char device_identity[FT_IDENTITY_SIZE];
	char kind[16];
	uint32_t devices; /* equal ones; 1 unless said */
	char log[ARGUMENT_SIZE];
	char depends[ARGUMENT_SIZE]; /* a path that the hello names beside the script; "": none */
	uint32_t space;              /* members kept; 0: all */
	uint32_t same;               /* members from this one on have the code of the one before; 0: none */
	long best;                   /* the fastest member; -1: the last but the default */
	long wrong;                  /* a member whose output is wrong; -1: none */
	long load;                   /* percent of the device that others use; -1: not known */
	long disturbed;              /* percent of samples that they disturb */
	bool problems;               /* the log names the problem in each line about one */
	uint64_t pace_ns;
	uint64_t time_ps[FT_SPACE_MAX]; /* 0: by the formula */
	unsigned line;                  /* that is read */
	size_t rule_count;
	struct rule rule[RULES_MAX];
};

/* Ends the program with a complaint: a script that is wrong is the test's fault, not the daemon's. */
_Noreturn void stop_with(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A whole number, or the end of the program. */
long script_number(const char *text);
/* Reads the script at script->path (NULL: there is none). Again for each sweep, so that a test may change its mind while
 * the runner is up. */
void script_read(struct script *script);

#endif
