/* A program that never rests: it asks the daemon for one thing after another through the library until its standard
 * input ends, and prints "." after each ten calls. What it was refused it prints as "failed METHOD WORD: MESSAGE", and at
 * the end "done CALLS AWAY", AWAY being the lookups that the library had to answer by itself. */
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

enum { PATIENT_MS = 60000 }; /* that the next daemon is slow to start is no reason to go on without it */

struct busy {
	flytune_client *client;
	uint64_t calls, away;
	struct flytune_answer answer; /* of the last lookup */
};

static void told(
        struct busy *busy, const char *method, enum flytune_result code, const struct flytune_error *error)
{
	busy->calls++;
	if (code != FLYTUNE_OK)
		printf("failed %s %s: %s\n", method, error->word, error->message);
}

static void look_up(struct busy *busy, const flytune_problem *problem)
{
	struct flytune_error error;
	enum flytune_result code;

	flytune_answer_init(&busy->answer);
	code = flytune_lookup(busy->client, problem, NULL, &busy->answer, &error);
	if (code == FLYTUNE_OK && (busy->answer.flags & FLYTUNE_ANSWER_AWAY) != 0)
		busy->away++;
	told(busy, "lookup", code, &error);
}

static void change(struct busy *busy, const flytune_problem *problem, unsigned turn)
{
	struct flytune_error error;

	if (turn % 2 == 0)
		told(busy, "pin",
		        flytune_pin(busy->client, problem, NULL, busy->answer.knob, busy->answer.knob_count,
		                NULL, &error),
		        &error);
	else
		told(busy, "unpin", flytune_unpin(busy->client, problem, NULL, NULL, &error), &error);
}

static void tune(struct busy *busy, const flytune_problem *problem)
{
	struct flytune_error error;
	struct flytune_job job;

	flytune_job_init(&job);
	told(busy, "tune", flytune_tune(busy->client, problem, NULL, &job, NULL, &error), &error);
	if (job.job != 0)
		told(busy, "wait",
		        flytune_wait(busy->client, &job, FLYTUNE_FOREVER, NULL, NULL, NULL, &error), &error);
}

static void ask_how_it_is(struct busy *busy)
{
	struct flytune_status_info status;
	struct flytune_error error;

	flytune_status_info_init(&status);
	told(busy, "status", flytune_status(busy->client, &status, NULL, &error), &error);
}

static bool enough(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	struct busy busy = {0};
	struct flytune_options options;
	struct flytune_rmsnorm shape;
	struct flytune_error error;
	long self = argc > 1 ? strtol(argv[1], NULL, 10) : 0;

	flytune_options_init(&options);
	options.lookup_timeout_ms = options.call_timeout_ms = PATIENT_MS;
	busy.client = flytune_open(&options, &error);
	if (busy.client == NULL) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	for (unsigned turn = 0; !enough(); turn++) {
		flytune_problem *problem;

		flytune_rmsnorm_init(&shape);
		shape.m = 1 + turn % 1000; /* not what was just asked: that is answered from memory */
		shape.n = 1024 + 8 * self;
		shape.dtype = "bf16";
		problem = flytune_problem_rmsnorm(&shape, &error);
		if (problem == NULL) {
			fprintf(stderr, "%s\n", error.message);
			return 1;
		}
		look_up(&busy, problem);
		if (turn % 4 == 1)
			change(&busy, problem, turn / 4);
		if (turn % 16 == 2)
			tune(&busy, problem);
		if (turn % 8 == 3)
			ask_how_it_is(&busy);
		flytune_problem_free(problem);
		if (turn % 10 == 0)
			puts(".");
		fflush(stdout);
	}
	printf("done %" PRIu64 " %" PRIu64 "\n", busy.calls, busy.away);
	flytune_close(busy.client);
	return 0;
}
