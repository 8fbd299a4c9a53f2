/* Asks for the configs of a model's shapes, as an inference engine does when it loads one.
 *
 * 	cc lookup.c $(pkg-config --cflags --libs flytune-client) -o lookup && ./lookup 4096 8192
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <flytune/client.h>
#include <flytune/rmsnorm.h>

static void print(int64_t m, int64_t n, const struct flytune_answer *answer)
{
	printf("%6" PRId64 " x %-6" PRId64 " %-8s %-9s", m, n, answer->device,
	        flytune_source_word(answer->source));
	for (uint32_t i = 0; i < answer->knob_count; i++)
		printf(" %s=%" PRId64, answer->knob[i].name, answer->knob[i].value);
	/* Whatever became of the daemon, there is a config to launch with. */
	printf("%s\n", (answer->flags & FLYTUNE_ANSWER_AWAY) != 0 ? "  (flytuned is away)" : "");
}

static int ask(flytune_client *client, int64_t m, int64_t n)
{
	struct flytune_rmsnorm shape;
	struct flytune_answer answer;
	struct flytune_error error;
	flytune_problem *problem;
	enum flytune_result code;

	flytune_rmsnorm_init(&shape);
	shape.m = m;
	shape.n = n;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, &error);
	if (problem == NULL) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	flytune_answer_init(&answer);
	code = flytune_lookup(client, problem, NULL, &answer, &error);
	flytune_problem_free(problem);
	if (code != FLYTUNE_OK) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	print(m, n, &answer);
	return 0;
}

int main(int count, char **words)
{
	static const int64_t batches[] = {1, 16, 128, 4096};
	struct flytune_options options;
	struct flytune_error error;
	flytune_client *client;
	int status = 0;

	flytune_options_init(&options);
	options.name = "lookup example";
	options.tune_on_miss = 1; /* what is not known is swept later, when the device is idle */
	client = flytune_open(&options, &error);
	if (client == NULL) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	for (int i = 1; i < count && status == 0; i++) {
		for (size_t k = 0; k < sizeof batches / sizeof *batches && status == 0; k++)
			status = ask(client, batches[k], strtoll(words[i], NULL, 10));
	}
	flytune_close(client);
	return status;
}
