/* A client that looks up all the time while its daemon dies and another takes its place.
 *
 *   successor socket=PATH [cpu=1]
 *
 * Prints "here" once it has an answer, "away" with the first that is marked so, and "back NS" with the first that is not
 * again, NS being nanoseconds of the Unix epoch at its end: so that whoever kills and starts daemons can set it beside
 * their readiness. Ends, with status 1, when an answer tells anything but what the first did; else with its standard
 * input. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <flytune/rmsnorm.h>

#include "tests/bench/bench.h"

static uint64_t epoch_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void refused(const struct flytune_error *error)
{
	fprintf(stderr, "successor: %s\n", error->message);
	exit(1);
}

static bool same(const struct flytune_answer *a, const struct flytune_answer *b)
{
	return a->source == b->source && a->knob_count == b->knob_count &&
	        memcmp(a->knob, b->knob, a->knob_count * sizeof(a->knob[0])) == 0;
}

static bool ended(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	struct flytune_options options;
	struct flytune_rmsnorm shape;
	struct flytune_answer first, answer;
	struct flytune_error error;
	flytune_problem *problem;
	flytune_client *client;
	bool away = false;

	setvbuf(stdout, NULL, _IOLBF, 0);
	flytune_options_init(&options);
	options.socket = argument(argc, argv, "socket", "");
	options.generation = "";
	options.autotune = FLYTUNE_AUTOTUNE_USUAL;
	client = flytune_open(&options, &error);
	flytune_rmsnorm_init(&shape);
	shape.m = 7;
	shape.n = 1024;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, &error);
	if (client == NULL || problem == NULL)
		refused(&error);
	stay_on(number(argc, argv, "cpu", 1));
	flytune_answer_init(&first);
	flytune_answer_init(&answer);
	if (flytune_lookup(client, problem, NULL, &first, &error) != FLYTUNE_OK)
		refused(&error);
	if (first.flags != 0) {
		fprintf(stderr, "successor: no daemon answers: %s\n", first.reason);
		return 1;
	}
	printf("here\n");
	for (uint64_t i = 0; i % 65536 != 0 || !ended(); i++) {
		if (flytune_lookup(client, problem, NULL, &answer, &error) != FLYTUNE_OK)
			refused(&error);
		if (!same(&first, &answer)) {
			fprintf(stderr, "successor: %s, flags %u: %s\n", flytune_source_word(answer.source),
			        answer.flags, answer.reason);
			return 1;
		}
		if (away == ((answer.flags & FLYTUNE_ANSWER_AWAY) != 0))
			continue;
		away = !away;
		if (away)
			printf("away\n");
		else
			printf("back %llu\n", (unsigned long long)epoch_ns());
	}
	flytune_problem_free(problem);
	flytune_close(client);
	return 0;
}
