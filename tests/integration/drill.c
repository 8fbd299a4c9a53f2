/* A program that uses the library hard, driven by tests.
 *
 *   drill visible ROUNDS CONFIG...  pins one config after the other while another thread spins on lookups; a line
 *                                   "ROUND NANOSECONDS" each, from the acknowledgement to the first sight
 *   drill fork COUNT                parent and child look up COUNT imported problems each, at once
 *   drill threads COUNT             COUNT short-lived threads, a few lookups each
 *   drill fresh COUNT               lookups of problems that nobody asked for before, by eight threads
 *   drill connects COUNT            clients that are opened, used once and closed
 *   drill cancel COUNT              COUNT threads that look up without rest are cancelled, each at some moment
 *   drill cancel-at-once COUNT      the same with cancellation of the asynchronous type
 *
 * Each ends with a line "key=value …", and a status other than 0 if an answer was wrong. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void die(const char *what, const struct flytune_error *error)
{
	fprintf(stderr, "drill: %s: %s\n", what, error != NULL ? error->message : "unexpected");
	exit(1);
}

enum {
	PATIENT_MS = 60000
}; /* so that a machine on which the daemon has to wait for its turn changes nothing */

static flytune_client *open_client(void)
{
	struct flytune_options options;
	struct flytune_error error;
	flytune_client *client;

	flytune_options_init(&options);
	options.lookup_timeout_ms = options.call_timeout_ms = PATIENT_MS;
	client = flytune_open(&options, &error);

	if (client == NULL)
		die("open", &error);
	return client;
}

static flytune_problem *rmsnorm(int64_t m, int64_t n)
{
	struct flytune_rmsnorm shape;
	struct flytune_error error;
	flytune_problem *problem;

	flytune_rmsnorm_init(&shape);
	shape.m = m;
	shape.n = n;
	shape.dtype = "bf16";
	problem = flytune_problem_rmsnorm(&shape, &error);
	if (problem == NULL)
		die("problem", &error);
	return problem;
}

static void look_up(flytune_client *client, int64_t m, int64_t n, struct flytune_answer *answer)
{
	flytune_problem *problem = rmsnorm(m, n);
	struct flytune_error error;

	flytune_answer_init(answer);
	if (flytune_lookup(client, problem, NULL, answer, &error) != FLYTUNE_OK)
		die("lookup", &error);
	flytune_problem_free(problem);
}

static long number_of(const char *word)
{
	long number = word == NULL ? 0 : strtol(word, NULL, 10);

	if (number <= 0) {
		fprintf(stderr, "drill: a count is missing\n");
		exit(2);
	}
	return number;
}

/* ---- visible ---- */

enum { CONFIGS_MAX = 16, CONFIGS_MIN = 4 };

struct config {
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
	size_t count;
};

static struct {
	struct config config[CONFIGS_MAX];
	uint64_t configs;
	_Atomic uint64_t acked;   /* the last change that was acknowledged */
	_Atomic uint64_t seen;    /* the last that was looked up */
	_Atomic uint64_t seen_at; /* when first */
	atomic_bool done;
	uint64_t lookups, kept, alone, wrong;
} visible;

static void read_config(char *text, struct config *config)
{
	char *rest = text;

	for (char *part; (part = strsep(&rest, ",")) != NULL && config->count < FLYTUNE_KNOBS_MAX;) {
		struct flytune_knob *knob = &config->knob[config->count++];
		char *equals = strchr(part, '=');

		if (equals == NULL) {
			fprintf(stderr, "drill: %s is no config\n", text);
			exit(2);
		}
		snprintf(knob->name, sizeof knob->name, "%.*s", (int)(equals - part), part);
		knob->value = strtol(equals + 1, NULL, 10);
	}
}

/* Which config it is; -1: none of them. */
static int64_t config_of(const struct flytune_answer *answer)
{
	for (uint64_t i = 0; i < visible.configs; i++) {
		const struct config *config = &visible.config[i];
		bool same = answer->knob_count == config->count;

		for (size_t k = 0; k < config->count && same; k++)
			same = flytune_answer_get(answer, config->knob[k].name, -1) == config->knob[k].value;
		if (same)
			return (int64_t)i;
	}
	return -1;
}

/* One answer, to a question that was put when `before` was acknowledged, and given when `after` was. */
static void judge(const struct flytune_answer *answer, uint64_t before, uint64_t after)
{
	uint64_t last = atomic_load(&visible.seen);
	uint64_t change;
	int64_t which;

	if (answer->source == FLYTUNE_SOURCE_DEFAULT && (answer->flags & FLYTUNE_ANSWER_AWAY) != 0) {
		visible.alone++; /* what was known was taken back, and nobody says what there is instead */
		return;
	}
	which = answer->source == FLYTUNE_SOURCE_PINNED ? config_of(answer) : -1;
	/* The first change from the last one on that makes this answer. */
	change = last + ((uint64_t)which + visible.configs - last % visible.configs) % visible.configs;
	/* While its daemon is away it keeps what it has seen, until it looks for a successor, which may have taken up the
	 * next change meanwhile. */
	if ((answer->flags & FLYTUNE_ANSWER_AWAY) != 0 && change == last)
		return;
	if (which < 0 || change < before || change > after + 1) {
		if (visible.wrong++ < 10)
			fprintf(stderr,
			        "drill: source %s flags %" PRIu32 " config %" PRId64 " after change %" PRIu64
			        " was seen; acknowledged were %" PRIu64 " to %" PRIu64 " (%s)\n",
			        flytune_source_word(answer->source), answer->flags, which, last, before,
			        after, answer->reason);
		return;
	}
	if (change != last) {
		atomic_store(&visible.seen_at, now_ns());
		atomic_store(&visible.seen, change);
	}
}

static void *spin(void *data)
{
	flytune_client *client = open_client();
	flytune_problem *problem = data;
	struct flytune_answer answer;
	struct flytune_error error;

	flytune_answer_init(&answer);
	while (!atomic_load(&visible.done)) {
		uint64_t before = atomic_load(&visible.acked);

		if (flytune_lookup(client, problem, NULL, &answer, &error) != FLYTUNE_OK)
			die("lookup", &error);
		visible.lookups++;
		visible.kept += (answer.flags & FLYTUNE_ANSWER_KEPT) != 0;
		judge(&answer, before, atomic_load(&visible.acked));
	}
	flytune_close(client);
	return NULL;
}

/* Until it is acknowledged; gives how often it was not. */
static uint64_t pin(flytune_client *client, const flytune_problem *problem, uint64_t round)
{
	const struct config *config = &visible.config[round % visible.configs];
	struct flytune_error error;
	uint64_t failures = 0;

	while (flytune_pin(client, problem, NULL, config->knob, config->count, NULL, &error) != FLYTUNE_OK) {
		if (error.code == FLYTUNE_E_BAD_VALUE || error.code == FLYTUNE_E_DENIED)
			die("pin", &error);
		failures++;
		poll(NULL, 0, 1);
	}
	return failures;
}

static int run_visible(long rounds, char **configs, int count)
{
	flytune_client *client = open_client();
	flytune_problem *problem = rmsnorm(64, 4096);
	uint64_t failures = 0;
	pthread_t spinner;

	if (count < CONFIGS_MIN || count > CONFIGS_MAX) {
		fprintf(stderr, "drill: %d configs; it takes %d to %d\n", count, CONFIGS_MIN, CONFIGS_MAX);
		return 2;
	}
	for (int i = 0; i < count; i++)
		read_config(configs[i], &visible.config[i]);
	visible.configs = (uint64_t)count;
	pin(client, problem, 0);
	if (pthread_create(&spinner, NULL, spin, problem) != 0)
		return 1;
	for (uint64_t round = 1; round <= (uint64_t)rounds; round++) {
		uint64_t acked_at, seen_at;

		failures += pin(client, problem, round);
		acked_at = now_ns();
		atomic_store(&visible.acked, round);
		while (atomic_load(&visible.seen) < round && !atomic_load(&visible.done))
			poll(NULL, 0, 0);
		seen_at = atomic_load(&visible.seen_at);
		printf("%" PRIu64 " %" PRIu64 "\n", round, seen_at > acked_at ? seen_at - acked_at : 0);
		fflush(stdout);
	}
	atomic_store(&visible.done, true);
	pthread_join(spinner, NULL);
	printf("lookups=%" PRIu64 " kept=%" PRIu64 " alone=%" PRIu64 " failures=%" PRIu64 " wrong=%" PRIu64
	       "\n",
	        visible.lookups, visible.kept, visible.alone, failures, visible.wrong);
	flytune_problem_free(problem);
	flytune_close(client);
	return visible.wrong == 0 ? 0 : 1;
}

/* ---- fork ---- */

/* Problem i was imported with a time of i µs. */
static int check_own(flytune_client *client, long first, long count)
{
	struct flytune_answer answer;
	long wrong = 0;

	for (long i = first; i < first + count; i++) {
		look_up(client, 64, i, &answer);
		if (answer.source != FLYTUNE_SOURCE_IMPORTED || answer.time_ns != (uint64_t)i * 1000) {
			if (wrong++ < 10)
				fprintf(stderr, "drill: problem %ld got %s, %" PRIu64 " ns (%s)\n", i,
				        flytune_source_word(answer.source), answer.time_ns, answer.reason);
		}
	}
	return wrong == 0 ? 0 : 1;
}

static int run_fork(long count)
{
	flytune_client *client = open_client();
	int status = 1;
	pid_t child;

	/* Connected, and with something kept. */
	if (check_own(client, 1, 10) != 0)
		return 1;
	child = fork();
	if (child == 0) {
		int failed = check_own(client, 1, 10) | check_own(client, count + 1, count);

		flytune_close(client);
		exit(failed);
	}
	if (check_own(client, 1, count) != 0 || waitpid(child, &status, 0) != child || status != 0)
		return 1;
	printf("lookups=%ld\n", 2 * count);
	flytune_close(client);
	return 0;
}

/* ---- what must stay flat ---- */

/* Memory of this process's own, in kB. */
static long memory_kb(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];
	long total = 0;

	while (status != NULL && fgets(line, sizeof line, status)) {
		if (strncmp(line, "RssAnon:", 8) == 0 || strncmp(line, "RssShmem:", 9) == 0)
			total += strtol(strchr(line, ':') + 1, NULL, 10);
	}
	if (status != NULL)
		fclose(status);
	return total;
}

static int descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void *ask_briefly(void *data)
{
	struct flytune_answer answer;

	for (int64_t i = 0; i < 3; i++)
		look_up(data, 1 + (int64_t)(now_ns() % 100), 4096, &answer);
	return NULL;
}

/* Does `turn` so often, and says what memory and descriptors were half-way, and at the end. */
static int stay_flat(long count, void (*turn)(flytune_client *client, long number))
{
	flytune_client *client = open_client();
	long memory = 0;
	int open_ones = 0;

	for (long number = 1; number <= count; number++) {
		turn(client, number);
		if (number == (count + 1) / 2) {
			memory = memory_kb();
			open_ones = descriptors();
			printf("warm\n");
			fflush(stdout);
		}
	}
	printf("kb_warm=%ld kb=%ld descriptors_warm=%d descriptors=%d\n", memory, memory_kb(), open_ones,
	        descriptors());
	flytune_close(client);
	return 0;
}

enum { AT_ONCE = 8 };

static void start_threads(flytune_client *client, long number)
{
	pthread_t thread[AT_ONCE];

	(void)number;
	for (int i = 0; i < AT_ONCE; i++) {
		if (pthread_create(&thread[i], NULL, ask_briefly, client) != 0)
			exit(1);
	}
	for (int i = 0; i < AT_ONCE; i++)
		pthread_join(thread[i], NULL);
}

static struct {
	flytune_client *client;
	long first, last; /* values of m that this half asks for */
	atomic_long next;
} fresh;

static void *ask_afresh(void *data)
{
	struct flytune_answer answer;
	long m;

	(void)data;
	while ((m = atomic_fetch_add(&fresh.next, 1)) <= fresh.last) {
		look_up(fresh.client, m, 1024, &answer);
		if (answer.flags != 0)
			exit(1);
	}
	return NULL;
}

/* Half of them: one that waits does not keep the others from asking. */
static void ask_half(flytune_client *client, long half)
{
	long each = fresh.last - fresh.first + 1;
	pthread_t thread[AT_ONCE];

	fresh.client = client;
	fresh.first = 1 + (half - 1) * each;
	fresh.last = half * each;
	atomic_store(&fresh.next, fresh.first);
	for (int i = 0; i < AT_ONCE; i++) {
		if (pthread_create(&thread[i], NULL, ask_afresh, NULL) != 0)
			exit(1);
	}
	for (int i = 0; i < AT_ONCE; i++)
		pthread_join(thread[i], NULL);
}

static int run_fresh(long count)
{
	fresh.first = 1;
	fresh.last = (count + 1) / 2;
	return stay_flat(2, ask_half);
}

static void connect_anew(flytune_client *client, long number)
{
	flytune_client *another = open_client();
	struct flytune_answer answer;

	(void)client;
	look_up(another, 1 + number % 100, 4096, &answer);
	if (answer.flags != 0)
		exit(1);
	flytune_close(another);
}

/* More than are kept, so that the daemon is asked. */
enum { CANCEL_PROBLEMS = 4096 };

static struct {
	flytune_client *client;
	flytune_problem *problem[CANCEL_PROBLEMS];
	bool at_once;
	uint64_t slowest_ns; /* lookup after a cancellation */
} cancelled;

static void *ask_until_cancelled(void *data)
{
	struct flytune_answer answer;
	int before;

	(void)data;
	flytune_answer_init(&answer);
	(void)pthread_setcanceltype(
	        cancelled.at_once ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &before);
	for (unsigned i = 0;; i++) {
		(void)flytune_lookup(
		        cancelled.client, cancelled.problem[i % CANCEL_PROBLEMS], NULL, &answer, NULL);
		if (!cancelled.at_once) {
#ifdef __SANITIZE_ADDRESS__
			/* A cancelled thread leaves without a return, and AddressSanitizer would find the red zones of
			 * this frame where its own end of the thread puts its variables. */
			__asan_handle_no_return();
#endif
			pthread_testcancel();
		}
	}
	return NULL;
}

static void cancel_one(long number)
{
	struct timespec moment = {.tv_nsec = 1000 * (number * 7919 % 400)};
	struct flytune_answer answer;
	pthread_t thread;
	uint64_t took;

	if (pthread_create(&thread, NULL, ask_until_cancelled, NULL) != 0)
		die("pthread_create", NULL);
	nanosleep(&moment, NULL);
	if (pthread_cancel(thread) != 0 || pthread_join(thread, NULL) != 0)
		die("pthread_cancel", NULL);
	took = now_ns();
	look_up(cancelled.client, 1 + number % CANCEL_PROBLEMS, 4096, &answer);
	took = now_ns() - took;
	if ((answer.flags & FLYTUNE_ANSWER_AWAY) != 0)
		die(answer.reason, NULL);
	if (took > cancelled.slowest_ns)
		cancelled.slowest_ns = took;
}

static int run_cancel(long count, bool at_once)
{
	cancelled.client = open_client();
	cancelled.at_once = at_once;
	for (int i = 0; i < CANCEL_PROBLEMS; i++)
		cancelled.problem[i] = rmsnorm(1 + i, 2048);
	for (long number = 0; number < count; number++)
		cancel_one(number);
	printf("cancelled=%ld slowest_ns=%" PRIu64 "\n", count, cancelled.slowest_ns);
	for (int i = 0; i < CANCEL_PROBLEMS; i++)
		flytune_problem_free(cancelled.problem[i]);
	flytune_close(cancelled.client);
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	long number = number_of(count > 2 ? words[2] : NULL);

	/* No test waits for ever. */
	alarm(1800);
	if (strcmp(what, "visible") == 0)
		return run_visible(number, words + 3, count - 3);
	if (strcmp(what, "fork") == 0)
		return run_fork(number);
	if (strcmp(what, "threads") == 0)
		return stay_flat((number + 7) / 8, start_threads);
	if (strcmp(what, "fresh") == 0)
		return run_fresh(number);
	if (strcmp(what, "cancel") == 0 || strcmp(what, "cancel-at-once") == 0)
		return run_cancel(number, what[strlen("cancel")] != '\0');
	if (strcmp(what, "connects") == 0)
		return stay_flat(number, connect_anew);
	fprintf(stderr, "drill: %s is unknown\n", what);
	return 2;
}
