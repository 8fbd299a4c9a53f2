/* Lookups that the client library answers from its own memory, beside a plain hash probe.
 *
 *   repeat socket=PATH [problems=1000] [n=1024] [threads=1] [rounds=10] [ms=20]     times, alternating
 *   repeat socket=PATH mode=calls [problems=1000] [threads=1] [calls=1000000]          counts system calls
 *   repeat socket=PATH mode=run|ask [problems=1000] [calls=…]                          so many, and no more
 *
 * Problem i is rmsnorm of m = 1 + i, n, bf16. All were looked up once before anything is timed or counted.
 * The probe is what any program would write for itself: open addressing, the hash made beforehand, the whole key
 * compared, as many bytes as the library compares, one acquire load of a version word; `probe` gives a pointer to the
 * answer, `probe_copy` copies as many bytes out as the library gives, and `probe_hash` makes the hash each time besides,
 * as a program does that keeps no problems. Threads ask for the same problems in the same order, so all find the caches
 * as warm.
 *
 * Calls are counted by a seccomp filter: every call but the report's own write traps. mode=ask keeps next to nothing, so
 * that every lookup goes over the socket. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <flytune/rmsnorm.h>

#include "tests/bench/bench.h"

enum { ORDER = 1 << 14, CHECK_EVERY = 64, THREADS_MAX = 64, SLOTS_PER = 4, KEY_BYTES = 88, VERSIONS = 4096 };

enum work { WORK_PROBE, WORK_PROBE_COPY, WORK_PROBE_HASH, WORK_LOOKUP, WORKS, WORK_WAIT, WORK_END };

static const char *const work_names[WORKS] = {"probe", "probe_copy", "probe_hash", "lookup"};

struct slot {
	uint64_t hash; /* 0: empty */
	uint64_t version;
	uint32_t stripe;
	char key[KEY_BYTES];
	struct flytune_answer answer;
};

struct key {
	uint64_t hash;
	char bytes[KEY_BYTES];
};

struct worker {
	pthread_t thread;
	unsigned index;
	_Alignas(64) _Atomic uint64_t calls;
	uint64_t unlike; /* answers that were not kept, or not found */
};

static flytune_client *client;
static flytune_problem **problems;
static size_t problem_count;
static long row_length; /* n of all problems */
static struct key *keys;
static struct slot *slots;
static size_t slot_mask;
static _Atomic uint64_t versions[VERSIONS];
static uint32_t order[ORDER];
static size_t copied; /* bytes of an answer with its knobs */
static struct worker workers[THREADS_MAX];
static _Atomic int work = WORK_WAIT;
static _Atomic unsigned arrived;
static _Atomic uint64_t trapped;
static uint64_t sealed_calls;

/* ---- the probe ---- */

static inline const struct slot *find(const struct key *key, uint64_t hash)
{
	for (size_t at = hash & slot_mask; slots[at].hash != 0; at = (at + 1) & slot_mask) {
		const struct slot *slot = &slots[at];

		if (slot->hash == hash && memcmp(slot->key, key->bytes, KEY_BYTES) == 0)
			return atomic_load_explicit(&versions[slot->stripe], memory_order_acquire) ==
			                slot->version
			        ? slot
			        : NULL;
	}
	return NULL;
}

static inline bool give(const struct slot *slot, struct flytune_answer *answer)
{
	if (slot == NULL)
		return false;
	memcpy(answer, &slot->answer, copied);
	return true;
}

static __attribute__((noinline)) const struct slot *probe(const struct key *key)
{
	return find(key, key->hash);
}

static __attribute__((noinline)) bool probe_copy(const struct key *key, struct flytune_answer *answer)
{
	return give(find(key, key->hash), answer);
}

static __attribute__((noinline)) bool probe_hash(const struct key *key, struct flytune_answer *answer)
{
	return give(find(key, XXH3_64bits(key->bytes, sizeof(key->bytes))), answer);
}

static void put(size_t index, const struct flytune_answer *answer)
{
	struct key *key = &keys[index];
	size_t at;

	snprintf(key->bytes, sizeof(key->bytes), "rmsnorm m=%zu n=%ld dtype=bf16 weight_dtype=bf16",
	        1 + index, row_length);
	key->hash = XXH3_64bits(key->bytes, sizeof(key->bytes));
	for (at = key->hash & slot_mask; slots[at].hash != 0; at = (at + 1) & slot_mask) {
	}
	slots[at] = (struct slot){
	        .hash = key->hash, .stripe = (uint32_t)(key->hash >> 32) % VERSIONS, .answer = *answer};
	memcpy(slots[at].key, key->bytes, sizeof(key->bytes));
}

/* ---- the library ---- */

static void refused(const struct flytune_error *error)
{
	fprintf(stderr, "repeat: %s\n", error->message);
	exit(1);
}

static void make_problems(void)
{
	problems = need(calloc(problem_count, sizeof(flytune_problem *)));
	for (size_t i = 0; i < problem_count; i++) {
		struct flytune_rmsnorm shape;
		struct flytune_error error;

		flytune_rmsnorm_init(&shape);
		shape.m = 1 + (int64_t)i;
		shape.n = row_length;
		shape.dtype = "bf16";
		problems[i] = flytune_problem_rmsnorm(&shape, &error);
		if (problems[i] == NULL)
			refused(&error);
	}
}

static void look_up_all(struct flytune_answer *answer)
{
	for (size_t i = 0; i < problem_count; i++) {
		struct flytune_error error;

		flytune_answer_init(answer);
		if (flytune_lookup(client, problems[i], NULL, answer, &error) != FLYTUNE_OK)
			refused(&error);
		if ((answer->flags & FLYTUNE_ANSWER_AWAY) != 0) {
			fprintf(stderr, "repeat: %s\n", answer->reason);
			exit(1);
		}
		if (slots != NULL)
			put(i, answer);
	}
}

static void prepare(const char *path, uint32_t kept)
{
	struct flytune_options options;
	struct flytune_answer answer;
	struct flytune_error error;
	uint64_t random = 88172645463325252ULL;
	size_t size = 2, count = problem_count;

	flytune_options_init(&options);
	options.socket = path;
	options.generation = "";
	options.autotune = FLYTUNE_AUTOTUNE_USUAL;
	options.cache_entries = kept;
	client = flytune_open(&options, &error);
	if (client == NULL)
		refused(&error);
	make_problems();
	while (size < SLOTS_PER * problem_count)
		size *= 2;
	slot_mask = size - 1;
	keys = need(calloc(size, sizeof(*keys)));
	slots = need(calloc(size, sizeof(*slots)));
	flytune_answer_init(&answer);
	look_up_all(&answer);
	copied = offsetof(struct flytune_answer, knob) + answer.knob_count * sizeof(answer.knob[0]);
	for (size_t i = 0; i < ORDER; i++)
		order[i] = (uint32_t)(next_random(&random) % count);
}

/* ---- threads ---- */

static bool do_one(enum work what, uint32_t index, struct flytune_answer *answer)
{
	switch (what) {
	case WORK_PROBE:
		return probe(&keys[index]) != NULL;
	case WORK_PROBE_COPY:
		return probe_copy(&keys[index], answer);
	case WORK_PROBE_HASH:
		return probe_hash(&keys[index], answer);
	default:
		return flytune_lookup(client, problems[index], NULL, answer, NULL) == FLYTUNE_OK &&
		        (answer->flags & FLYTUNE_ANSWER_KEPT) != 0;
	}
}

static void *work_timed(void *data)
{
	struct worker *worker = data;
	struct flytune_answer answer;
	uint32_t at = worker->index * 1000;
	int what;

	flytune_answer_init(&answer);
	while ((what = atomic_load_explicit(&work, memory_order_acquire)) != WORK_END) {
		if (what == WORK_WAIT) {
			sched_yield();
			continue;
		}
		for (int i = 0; i < CHECK_EVERY; i++)
			worker->unlike += !do_one((enum work)what, order[at++ % ORDER], &answer);
		atomic_fetch_add_explicit(&worker->calls, CHECK_EVERY, memory_order_relaxed);
	}
	return NULL;
}

static void *work_sealed(void *data)
{
	struct worker *worker = data;
	struct flytune_answer answer;
	uint32_t at = worker->index * 1000;

	flytune_answer_init(&answer);
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&work) == WORK_WAIT) {
	}
	for (uint64_t i = 0; i < sealed_calls; i++)
		worker->unlike += !do_one(WORK_LOOKUP, order[at++ % ORDER], &answer);
	atomic_fetch_sub(&arrived, 1);
	/* To end a thread is a call, too. */
	while (atomic_load(&work) != WORK_END) {
	}
	return NULL;
}

static void start(unsigned threads, void *(*run)(void *))
{
	for (unsigned i = 0; i < threads; i++) {
		workers[i].index = i;
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
			die("pthread_create");
	}
}

static uint64_t unlike(unsigned threads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < threads; i++)
		sum += workers[i].unlike;
	return sum;
}

static uint64_t calls_so_far(unsigned threads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < threads; i++)
		sum += atomic_load_explicit(&workers[i].calls, memory_order_relaxed);
	return sum;
}

static void rest(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	(void)nanosleep(&time, NULL);
}

/* Nanoseconds of a core for each call. */
static double time_work(enum work what, unsigned threads, unsigned cores, long ms)
{
	uint64_t began, before;

	atomic_store(&work, what);
	rest(1 + ms / 10);
	before = calls_so_far(threads);
	began = now_ns();
	rest(ms);
	before = calls_so_far(threads) - before;
	began = now_ns() - began;
	atomic_store(&work, WORK_WAIT);
	rest(1);
	return before == 0 ? 0 : (double)began * (threads < cores ? threads : cores) / (double)before;
}

static void time_all(unsigned threads, int rounds, long ms)
{
	cpu_set_t set;
	unsigned cores = 1;
	double *ns = need(calloc((size_t)rounds * WORKS, sizeof(*ns)));

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cores = (unsigned)CPU_COUNT(&set);
	start(threads, work_timed);
	for (int i = 0; i < rounds * WORKS; i++)
		ns[i] = time_work((enum work)((i + i / WORKS) % WORKS), threads, cores, ms);
	atomic_store(&work, WORK_END);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	printf("{\"threads\":%u,\"cores\":%u,\"copied\":%zu,\"unlike\":%llu", threads, cores, copied,
	        (unsigned long long)unlike(threads));
	for (int what = 0; what < WORKS; what++) {
		printf(",\"%s\":[", work_names[what]);
		for (int i = 0, n = 0; i < rounds * WORKS; i++) {
			if ((i + i / WORKS) % WORKS == what)
				printf("%s%.2f", n++ > 0 ? "," : "", ns[i]);
		}
		printf("]");
	}
	printf("}\n");
	free(ns);
}

/* ---- counting system calls ---- */

static void on_trap(int number)
{
	(void)number;
	atomic_fetch_add(&trapped, 1);
}

static void seal(void)
{
	/* Allowed are: to end, to return from the handler, and to write to standard output, which is the report. */
	static struct sock_filter filter[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 5, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 2),
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, STDOUT_FILENO, 1, 0),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
	struct sigaction action = {.sa_handler = on_trap};

	if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
		die("seccomp");
}

static void count_calls(unsigned threads, uint64_t calls)
{
	uint64_t during, lookups = calls * threads;
	char report[200];
	int length;

	sealed_calls = calls;
	start(threads, work_sealed);
	while (atomic_load(&arrived) < threads) {
	}
	seal();
	atomic_store(&work, WORK_LOOKUP);
	while (atomic_load(&arrived) > 0) {
	}
	during = atomic_load(&trapped);
	/* That it does count. */
	(void)syscall(SYS_getppid);
	length = snprintf(report, sizeof(report),
	        "{\"threads\":%u,\"lookups\":%llu,\"unlike\":%llu,\"calls\":%llu,\"one_more\":%llu}\n",
	        threads, (unsigned long long)lookups, (unsigned long long)unlike(threads),
	        (unsigned long long)during, (unsigned long long)atomic_load(&trapped));
	if (write(1, report, (size_t)length) != length)
		_exit(1);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *mode = argument(argc, argv, "mode", "time");
	const char *path = argument(argc, argv, "socket", "");
	unsigned threads = (unsigned)number(argc, argv, "threads", 1);
	uint64_t calls = (uint64_t)number(argc, argv, "calls", 1000000);

	problem_count = (size_t)number(argc, argv, "problems", 1000);
	row_length = number(argc, argv, "n", 1024);
	if (threads < 1 || threads > THREADS_MAX || problem_count < 1) {
		errno = EINVAL;
		die("threads or problems");
	}
	prepare(path, strcmp(mode, "ask") == 0 ? 1 : (uint32_t)problem_count * 2);
	if (strcmp(mode, "calls") == 0) {
		count_calls(threads, calls);
	} else if (strcmp(mode, "time") == 0) {
		time_all(threads, (int)number(argc, argv, "rounds", 10), number(argc, argv, "ms", 20));
	} else {
		struct flytune_answer answer;
		uint64_t kept = 0;

		flytune_answer_init(&answer);
		for (uint64_t i = 0; i < calls; i++)
			kept += do_one(WORK_LOOKUP, (uint32_t)(i % problem_count), &answer);
		printf("{\"lookups\":%llu,\"kept\":%llu}\n", (unsigned long long)calls,
		        (unsigned long long)kept);
	}
	flytune_close(client);
	return 0;
}
