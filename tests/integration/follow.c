/* A program that subscribes, driven by a test: follows rmsnorm of each M on its command line × 4096 bf16.
 *
 * Prints "PLACE SOURCE KNOB=VALUE…" or "PLACE error WORD" for each answer that it is told of, and "status WORD" when what
 * flytune_dispatch returns changes; in a child, "child " before each. Takes from standard input: "hold" and "go" (does not
 * dispatch meanwhile), "ping" (prints "pong"), "fork". */
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

enum { PLACES_MAX = 4096 };

struct follower {
	const char *who;
	enum flytune_result status;
	bool held, child;
};

static void on_answer(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error)
{
	const struct follower *follower = data;

	printf("%s%zu ", follower->who, index);
	if (answer == NULL) {
		printf("error %s\n", error->word);
		return;
	}
	printf("%s", flytune_source_word(answer->source));
	for (uint32_t i = 0; i < answer->knob_count; i++)
		printf(" %s=%" PRId64, answer->knob[i].name, answer->knob[i].value);
	printf("\n");
}

static void obey(struct follower *follower, const char *word)
{
	pid_t child;

	if (strcmp(word, "hold\n") == 0 || strcmp(word, "go\n") == 0)
		follower->held = strcmp(word, "hold\n") == 0;
	if (strcmp(word, "ping\n") == 0)
		printf("%spong\n", follower->who);
	if (strcmp(word, "fork\n") == 0) {
		fflush(stdout);
		child = fork();
		if (child == 0) {
			follower->child = true;
			follower->who = "child ";
		}
	}
}

/* One line, read byte by byte: what follows it may be for after a fork. False at the end. */
static bool read_word(char *word, size_t size)
{
	size_t length = 0;

	while (length + 1 < size && read(STDIN_FILENO, word + length, 1) == 1) {
		if (word[length++] == '\n') {
			word[length] = '\0';
			return true;
		}
	}
	return false;
}

static void follow(struct follower *follower, flytune_subscription *subscription)
{
	char word[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		/* The words are the parent's; their end is for both. */
		struct pollfd watched[] = {
		        {follower->held ? -1 : flytune_subscription_fd(subscription), POLLIN, 0},
		        {STDIN_FILENO, follower->child ? 0 : POLLIN, 0},
		};
		enum flytune_result status;

		if (poll(watched, 2, -1) < 0)
			return;
		if (watched[0].revents != 0) {
			status = flytune_dispatch(subscription, NULL);
			if (status != follower->status)
				printf("%sstatus %s\n", follower->who, flytune_result_word(status));
			follower->status = status;
		}
		if (watched[1].revents == 0)
			continue;
		if (follower->child || !read_word(word, sizeof word))
			return;
		obey(follower, word);
	}
}

int main(int count, char **words)
{
	static flytune_problem *problem[PLACES_MAX];
	struct follower follower = {.who = ""};
	struct flytune_error error;
	flytune_client *client = flytune_open(NULL, &error);
	flytune_subscription *subscription;
	struct flytune_rmsnorm shape;
	size_t places = 0;

	flytune_rmsnorm_init(&shape);
	shape.n = 4096;
	shape.dtype = "bf16";
	for (int i = 1; i < count && places < PLACES_MAX; i++) {
		shape.m = strtol(words[i], NULL, 10);
		problem[places++] = flytune_problem_rmsnorm(&shape, NULL);
	}
	alarm(1800);
	if (client == NULL ||
	        flytune_subscribe(client, problem, places, NULL, on_answer, &follower, &subscription,
	                &error) != FLYTUNE_OK) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	for (size_t i = 0; i < places; i++)
		flytune_problem_free(problem[i]);
	follow(&follower, subscription);
	flytune_unsubscribe(subscription);
	flytune_close(client);
	return 0;
}
