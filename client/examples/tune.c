/* Has one problem swept, shows how it goes, and prints the winner.
 *
 * 	cc tune.c $(pkg-config --cflags --libs flytune-client) -o tune && ./tune 64 4096
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <flytune/admin.h>
#include <flytune/client.h>
#include <flytune/rmsnorm.h>

static int on_event(void *data, const struct flytune_event *event)
{
	(void)data;
	if (strcmp(event->event, "trial") == 0)
		printf("%" PRIu64 " of %" PRIu64 ": %s, %.1f us\n", event->settled, event->trials,
		        event->status, (double)event->time_ps / 1e6);
	return 0;
}

static enum flytune_result tune(flytune_client *client, const flytune_problem *problem,
        struct flytune_answer *answer, struct flytune_error *error)
{
	struct flytune_job job;
	enum flytune_result code;

	flytune_job_init(&job);
	code = flytune_tune(client, problem, NULL, &job, answer, error);
	/* Job 0: there is a winner already, and the answer has it. */
	if (code != FLYTUNE_OK || job.job == 0)
		return code;
	code = flytune_wait(client, &job, FLYTUNE_FOREVER, on_event, NULL, answer, error);
	if (code == FLYTUNE_OK && job.state != FLYTUNE_STATE_DONE)
		printf("the job ended as %s: %s\n", flytune_state_word(job.state), job.reason);
	return code;
}

int main(int count, char **words)
{
	struct flytune_rmsnorm shape;
	struct flytune_answer answer;
	struct flytune_error error;
	flytune_client *client = flytune_open(NULL, &error);
	flytune_problem *problem = NULL;
	enum flytune_result code = FLYTUNE_E_OTHER;

	flytune_rmsnorm_init(&shape);
	shape.m = count > 1 ? strtoll(words[1], NULL, 10) : 64;
	shape.n = count > 2 ? strtoll(words[2], NULL, 10) : 4096;
	shape.dtype = "bf16";
	if (client != NULL)
		problem = flytune_problem_rmsnorm(&shape, &error);
	flytune_answer_init(&answer);
	if (problem != NULL)
		code = tune(client, problem, &answer, &error);
	if (code != FLYTUNE_OK)
		fprintf(stderr, "%s\n", error.message);
	for (uint32_t i = 0; i < answer.knob_count; i++)
		printf("%s=%" PRId64 "\n", answer.knob[i].name, answer.knob[i].value);
	flytune_problem_free(problem);
	flytune_close(client);
	return code == FLYTUNE_OK ? 0 : 1;
}
