/* A program that uses the library as others would, driven by a test: for each line "M" on standard input it
 * looks up rmsnorm of M × 4096 bf16 and prints "SOURCE FLAGS NANOSECONDS REASON". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <flytune/rmsnorm.h>

enum { TIMEOUT_MS = 5000 }; /* harness.ASKER_S: longer than a busy machine keeps a daemon from answering */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int ask(flytune_client *client, long m)
{
	struct flytune_rmsnorm shape;
	struct flytune_answer answer;
	struct flytune_error error;
	flytune_problem *problem;
	enum flytune_result code;
	uint64_t began;

	flytune_rmsnorm_init(&shape);
	shape.m = m;
	shape.n = 4096;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, &error);
	if (!problem) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	flytune_answer_init(&answer);
	began = now_ns();
	code = flytune_lookup(client, problem, NULL, &answer, &error);
	if (code == FLYTUNE_OK)
		printf("%s %u %" PRIu64 " %s\n", flytune_source_word(answer.source), answer.flags,
		        now_ns() - began, answer.reason);
	else
		printf("%s 0 %" PRIu64 " %s\n", error.word, now_ns() - began, error.message);
	flytune_problem_free(problem);
	return fflush(stdout) ? 1 : 0;
}

int main(void)
{
	struct flytune_options options;
	struct flytune_error error;
	flytune_client *client;
	char line[32];
	int status = 0;

	flytune_options_init(&options);
	options.lookup_timeout_ms = TIMEOUT_MS;
	client = flytune_open(&options, &error);
	if (!client) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	while (status == 0 && fgets(line, sizeof line, stdin))
		status = ask(client, strtol(line, NULL, 10));
	flytune_close(client);
	return status;
}
