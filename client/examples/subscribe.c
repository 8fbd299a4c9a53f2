/* Follows the configs of a model's shapes while they change, in an event loop of its own.
 *
 * 	cc subscribe.c $(pkg-config --cflags --libs flytune-client) -o subscribe && ./subscribe 4096 8192
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <flytune/client.h>
#include <flytune/rmsnorm.h>

enum { SHAPES_MAX = 64 };

static const int64_t batch = 128;

/* An engine would take the config over for its next launch. */
static void changed(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error)
{
	const int64_t *n = (const int64_t *)data;

	if (answer == NULL) {
		printf("%" PRId64 " x %" PRId64 ": %s\n", batch, n[index], error->message);
		return;
	}
	printf("%" PRId64 " x %" PRId64 ": %s", batch, n[index], flytune_source_word(answer->source));
	for (uint32_t i = 0; i < answer->knob_count; i++)
		printf(" %s=%" PRId64, answer->knob[i].name, answer->knob[i].value);
	printf("\n");
	fflush(stdout);
}

static flytune_problem *shape_of(int64_t n, struct flytune_error *error)
{
	struct flytune_rmsnorm shape;

	flytune_rmsnorm_init(&shape);
	shape.m = batch;
	shape.n = n;
	shape.dtype = "bf16";
	return flytune_problem_rmsnorm(&shape, error);
}

static int follow(flytune_subscription *subscription)
{
	struct pollfd watched = {flytune_subscription_fd(subscription), POLLIN, 0};
	struct flytune_error error;

	while (poll(&watched, 1, -1) >= 0) {
		/* It goes on by itself: this is for people. */
		if (flytune_dispatch(subscription, &error) != FLYTUNE_OK)
			fprintf(stderr, "%s\n", error.message);
	}
	return 1;
}

int main(int count, char **words)
{
	flytune_problem *problem[SHAPES_MAX];
	int64_t n[SHAPES_MAX];
	flytune_subscription *subscription = NULL;
	struct flytune_error error;
	flytune_client *client = flytune_open(NULL, &error);
	size_t shapes = 0;
	int status = 1;

	for (int i = 1; client != NULL && i < count && shapes < SHAPES_MAX; i++) {
		n[shapes] = strtoll(words[i], NULL, 10);
		problem[shapes] = shape_of(n[shapes], &error);
		if (problem[shapes] == NULL)
			break;
		shapes++;
	}
	if (client != NULL && shapes + 1 == (size_t)count &&
	        flytune_subscribe(client, problem, shapes, NULL, changed, n, &subscription, &error) ==
	                FLYTUNE_OK)
		status = follow(subscription);
	else
		fprintf(stderr, "%s\n", error.message);
	flytune_unsubscribe(subscription);
	while (shapes > 0)
		flytune_problem_free(problem[--shapes]);
	flytune_close(client);
	return status;
}
