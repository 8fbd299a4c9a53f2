/* From a commit to its visibility: one thread pins and unpins a problem, another looks it up all the time.
 *
 *   changes socket=PATH daemon=PID [changes=1000] [cpu=0] [reader=1]
 *
 * The changer sleeps until the reader has seen a change, so at most one is under way at a time. `after` is the time from
 * the return of the pin or unpin to the end of the first lookup that told it, 0 if it was told before that: the change
 * is published before it is acknowledged. `whole` is the time from the request of the change to that lookup.
 * `waited` is the control: for how long of `after` the kernel kept the reader, or the daemon's loop that it asked, waiting
 * for a core, by its own account of them (schedstat); `net` is `after` without it. `worst` lists the five longest with both
 * waits.
 * `stale` counts lookups that began after a change had returned and told what was before it; `back` those that told
 * what was before after one had told the change. Prints JSON. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

#include "tests/bench/bench.h"

enum { WORST = 5 };

/* A change, and what its being seen waited for. */
struct change {
	uint64_t after, whole, reader_waited, daemon_waited;
};

struct watch {
	flytune_client *client;
	flytune_problem *problem;
	long cpu;
	int news;                         /* an eventfd: a change was seen */
	_Atomic long tid;                 /* of the reader, 0 before it runs */
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
	atomic_store(&watch->tid, syscall(SYS_gettid));
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
		if (eventfd_write(watch->news, 1) != 0)
			die("eventfd");
	}
	return NULL;
}

/* ---- the control ---- */

static int open_waits(long pid, long tid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/task/%ld/schedstat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

/* Nanoseconds that a thread has waited for a core since it began. */
static uint64_t waited(int fd)
{
	char text[128];
	ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
	char *second;

	if (length <= 0)
		die("schedstat");
	text[length] = '\0';
	second = strchr(text, ' ');
	return second == NULL ? 0 : strtoull(second, NULL, 10);
}

/* ---- the changes ---- */

static void change(
        flytune_client *client, const struct watch *watch, bool pin, const struct flytune_answer *answer)
{
	struct flytune_error error;
	enum flytune_result code = pin ? flytune_pin(client, watch->problem, answer->device, answer->knob,
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

static flytune_problem *make_problem(void)
{
	struct flytune_rmsnorm shape;
	struct flytune_error error;
	flytune_problem *problem;

	flytune_rmsnorm_init(&shape);
	shape.m = 7;
	shape.n = 1024;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, &error);
	if (problem == NULL)
		refused(&error);
	return problem;
}

static void make_changes(struct watch *watch, flytune_client *client, const struct flytune_answer *answer,
        long daemon, struct change *change_of, uint64_t changes)
{
	int reader = open_waits(getpid(), atomic_load(&watch->tid)), loop = open_waits(daemon, daemon);

	for (uint64_t i = 1; i <= changes; i++) {
		struct change *one = &change_of[i - 1];
		uint64_t began = now_ns(), returned, seen_at;
		eventfd_t news;

		atomic_store(&watch->begun, i);
		change(client, watch, i % 2 == 1, answer);
		returned = now_ns();
		atomic_store(&watch->returned, i);
		one->reader_waited = waited(reader);
		one->daemon_waited = waited(loop);
		if (eventfd_read(watch->news, &news) != 0)
			die("eventfd");
		one->reader_waited = waited(reader) - one->reader_waited;
		one->daemon_waited = waited(loop) - one->daemon_waited;
		seen_at = atomic_load(&watch->seen_at);
		one->after = seen_at > returned ? seen_at - returned : 0;
		one->whole = seen_at - began;
	}
	close(reader);
	close(loop);
}

static uint64_t control(const struct change *change)
{
	uint64_t waits = change->reader_waited + change->daemon_waited;

	return waits < change->after ? waits : change->after;
}

static int longer(const void *a, const void *b)
{
	const struct change *left = a, *right = b;

	return left->after > right->after ? -1 : left->after < right->after;
}

static void print_spread(const char *name, struct samples *samples)
{
	samples_sort(samples->ns, samples->count);
	printf(",\"%s\":{", name);
	samples_print(samples->ns, samples->count);
	printf("}");
}

static void report(const struct watch *watch, struct change *change_of, uint64_t changes)
{
	struct samples after, whole, waits, net;
	uint64_t before_return = 0;

	samples_init(&after, changes);
	samples_init(&whole, changes);
	samples_init(&waits, changes);
	samples_init(&net, changes);
	for (uint64_t i = 0; i < changes; i++) {
		const struct change *one = &change_of[i];

		before_return += one->after == 0;
		samples_add(&after, one->after);
		samples_add(&whole, one->whole);
		samples_add(&waits, control(one));
		samples_add(&net, one->after - control(one));
	}
	printf("{\"lookups\":%llu,\"asked\":%llu,\"stale\":%llu,\"back\":%llu,\"before_return\":%llu",
	        (unsigned long long)watch->lookups, (unsigned long long)watch->asked,
	        (unsigned long long)watch->stale, (unsigned long long)watch->back,
	        (unsigned long long)before_return);
	print_spread("after", &after);
	print_spread("whole", &whole);
	print_spread("waited", &waits);
	print_spread("net", &net);
	qsort(change_of, changes, sizeof(*change_of), longer);
	printf(",\"worst\":[");
	for (uint64_t i = 0; i < changes && i < WORST; i++)
		printf("%s[%llu,%llu,%llu]", i > 0 ? "," : "", (unsigned long long)change_of[i].after,
		        (unsigned long long)change_of[i].reader_waited,
		        (unsigned long long)change_of[i].daemon_waited);
	printf("]}\n");
}

int main(int argc, char **argv)
{
	const char *path = argument(argc, argv, "socket", "");
	uint64_t changes = (uint64_t)number(argc, argv, "changes", 1000);
	struct watch watch = {.client = open_client(path),
	        .cpu = number(argc, argv, "reader", 1),
	        .problem = make_problem(),
	        .news = eventfd(0, EFD_CLOEXEC)};
	flytune_client *client = open_client(path);
	struct change *change_of;
	struct flytune_answer answer;
	struct flytune_error error;
	pthread_t reader;

	if (watch.news < 0)
		die("eventfd");
	flytune_answer_init(&answer);
	if (flytune_lookup(client, watch.problem, NULL, &answer, &error) != FLYTUNE_OK)
		refused(&error);
	if (answer.source != FLYTUNE_SOURCE_TUNED) {
		fprintf(stderr, "changes: the problem is %s, not tuned\n",
		        flytune_source_word(answer.source));
		return 1;
	}
	change_of = need(calloc(changes, sizeof(*change_of)));
	stay_on(number(argc, argv, "cpu", 0));
	if (pthread_create(&reader, NULL, keep_looking, &watch) != 0)
		die("pthread_create");
	while (atomic_load(&watch.tid) == 0)
		sched_yield();
	make_changes(&watch, client, &answer, number(argc, argv, "daemon", 0), change_of, changes);
	atomic_store(&watch.end, true);
	pthread_join(reader, NULL);
	report(&watch, change_of, changes);
	free(change_of);
	flytune_problem_free(watch.problem);
	flytune_close(client);
	flytune_close(watch.client);
	return 0;
}
