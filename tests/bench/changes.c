/* From a commit to its visibility: one thread pins and unpins a problem, another looks it up all the time.
 *
 *   changes socket=PATH [changes=1000] [cpu=0] [reader=1]
 *
 * The changer goes on once the reader has seen a change, so at most one is under way at a time. `after` is the time from
 * the return of the pin or unpin to the end of the first lookup that told it, 0 if it was told before that: the change
 * is published before it is acknowledged. `whole` is the time from the request of the change to that lookup.
 * `stale` counts lookups that began after a change had returned and told what was before it; `back` those that told
 * what was before after one had told the change. Prints JSON. */
#include <pthread.h>
#include <stdatomic.h>

#include <flytune/client.h>

#include "tests/bench/bench.h"

struct watch {
	flytune_client *client;
	flytune_problem *problem;
	long cpu;
	_Atomic uint64_t begun, returned; /* changes */
	_Atomic uint64_t seen;            /* changes that the reader knows of */
	_Atomic uint64_t seen_at;
	_Atomic bool end;
	uint64_t lookups, asked, stale, back;
};

static void refused(const struct flytune_error *error)
{
	fprintf(stderr, "changes: %s\n", error->message);
	exit(1);
}

static bool pinned_now(struct watch *watch)
{
	struct flytune_answer answer;
	struct flytune_error error;

	flytune_answer_init(&answer);
	if (flytune_lookup(watch->client, watch->problem, NULL, &answer, &error) != FLYTUNE_OK)
		refused(&error);
	watch->lookups++;
	watch->asked += (answer.flags & FLYTUNE_ANSWER_KEPT) == 0;
	return answer.source == FLYTUNE_SOURCE_PINNED;
}

/* Odd changes pin, even ones unpin. */
static void *keep_looking(void *data)
{
	struct watch *watch = data;
	uint64_t seen = 0;

	stay_on(watch->cpu);
	while (!atomic_load_explicit(&watch->end, memory_order_relaxed)) {
		uint64_t returned = atomic_load(&watch->returned);
		bool pinned = pinned_now(watch);
		uint64_t now = now_ns();
		uint64_t begun = atomic_load(&watch->begun);

		if (pinned == (seen % 2 == 1)) {
			watch->stale += returned > seen;
			continue;
		}
		if (begun == seen) {
			watch->back++;
			continue;
		}
		atomic_store(&watch->seen_at, now);
		atomic_store(&watch->seen, ++seen);
	}
	return NULL;
}

static void change(
        flytune_client *client, const struct watch *watch, bool pin, const struct flytune_answer *answer)
{
	struct flytune_error error;
	enum flytune_code code = pin ? flytune_pin(client, watch->problem, answer->device, answer->knob,
	                                       answer->knob_count, NULL, &error)
	                             : flytune_unpin(client, watch->problem, answer->device, NULL, &error);

	if (code != FLYTUNE_OK)
		refused(&error);
}

static flytune_client *open_client(const char *path)
{
	struct flytune_options options;
	struct flytune_error error;
	flytune_client *client;

	flytune_options_init(&options);
	options.socket = path;
	options.generation = "";
	options.autotune = FLYTUNE_AUTOTUNE_USUAL;
	client = flytune_open(&options, &error);
	if (client == NULL)
		refused(&error);
	return client;
}

int main(int argc, char **argv)
{
	const char *path = argument(argc, argv, "socket", "");
	uint64_t changes = (uint64_t)number(argc, argv, "changes", 1000);
	struct watch watch = {.client = open_client(path), .cpu = number(argc, argv, "reader", 1)};
	flytune_client *client = open_client(path);
	struct samples after, whole;
	struct flytune_rmsnorm shape;
	struct flytune_answer answer;
	struct flytune_error error;
	uint64_t before_return = 0;
	pthread_t reader;

	flytune_rmsnorm_init(&shape);
	shape.m = 7;
	shape.n = 1024;
	shape.dtype = "bf16";
	watch.problem = flytune_problem_rmsnorm(&shape, &error);
	if (watch.problem == NULL)
		refused(&error);
	flytune_answer_init(&answer);
	if (flytune_lookup(client, watch.problem, NULL, &answer, &error) != FLYTUNE_OK)
		refused(&error);
	if (answer.source != FLYTUNE_SOURCE_TUNED) {
		fprintf(stderr, "changes: the problem is %s, not tuned\n",
		        flytune_source_word(answer.source));
		return 1;
	}
	stay_on(number(argc, argv, "cpu", 0));
	samples_init(&after, changes);
	samples_init(&whole, changes);
	if (pthread_create(&reader, NULL, keep_looking, &watch) != 0)
		die("pthread_create");
	for (uint64_t i = 1; i <= changes; i++) {
		uint64_t began = now_ns(), returned, seen_at;

		atomic_store(&watch.begun, i);
		change(client, &watch, i % 2 == 1, &answer);
		returned = now_ns();
		atomic_store(&watch.returned, i);
		while (atomic_load(&watch.seen) < i)
			sched_yield();
		seen_at = atomic_load(&watch.seen_at);
		before_return += seen_at <= returned;
		samples_add(&after, seen_at > returned ? seen_at - returned : 0);
		samples_add(&whole, seen_at - began);
	}
	atomic_store(&watch.end, true);
	pthread_join(reader, NULL);
	samples_sort(after.ns, after.count);
	samples_sort(whole.ns, whole.count);
	printf("{\"lookups\":%llu,\"asked\":%llu,\"stale\":%llu,\"back\":%llu,\"before_return\":%llu,"
	       "\"after\":{",
	        (unsigned long long)watch.lookups, (unsigned long long)watch.asked,
	        (unsigned long long)watch.stale, (unsigned long long)watch.back,
	        (unsigned long long)before_return);
	samples_print(after.ns, after.count);
	printf("},\"whole\":{");
	samples_print(whole.ns, whole.count);
	printf("}}\n");
	flytune_problem_free(watch.problem);
	flytune_close(client);
	flytune_close(watch.client);
	return 0;
}
