/* The client library in many threads and after forks. */
#include "client_case.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void a_child_makes_a_connection_of_its_own(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	pid_t child;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 1, &answer, NULL), FLYTUNE_OK);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = 0;

		for (int64_t m = 1000; m < 1100; m++) {
			if (look_up(client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
			        flytune_answer_get(&answer, "M", -2) != m)
				wrong = 1;
		}
		flytune_close(client);
		end_child(wrong);
	}
	for (int64_t m = 2; m < 100; m++) {
		assert_int_equal(look_up(client, m, &answer, NULL), FLYTUNE_OK);
		assert_served(&answer, m);
	}
	await_child(child);
	assert_int_equal(look_up(client, 101, &answer, NULL), FLYTUNE_OK);
	assert_served(&answer, 101);
	assert_int_equal(atomic_load(&fake.accepted), 2);
	flytune_close(client);
}

static void a_child_that_no_handler_knows_of_makes_its_own_as_well(void **state)
{
	flytune_client *client;
	struct flytune_answer answer;
	pid_t child;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* it has to see a fork to follow it */
#endif
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	assert_int_equal(look_up(client, 1, &answer, NULL), FLYTUNE_OK);
	child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = look_up(client, 1000, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
		        flytune_answer_get(&answer, "M", -2) != 1000;

		flytune_close(client);
		end_child(wrong);
	}
	await_child(child);
	assert_int_equal(look_up(client, 2, &answer, NULL), FLYTUNE_OK);
	assert_served(&answer, 2);
	assert_int_equal(atomic_load(&fake.accepted), 2);
	flytune_close(client);
}

static void threads_get_their_own_answers_over_a_bounded_pool(void **state)
{
	enum { THREADS = 16 };
	struct asker asker[THREADS];
	flytune_client *client;

	(void)state;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] = (struct asker){.client = client, .first = 1 + i * 1000, .count = 300};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	assert_true(atomic_load(&fake.accepted) <= 8);
	flytune_close(client);
}

/* What forks here is the library's state. An allocator that does not get over a fork in the middle of an allocation (that
 * of AddressSanitizer in gcc 12 leaves the child its locks, held) would hang the child whatever the library does. So the
 * daemon is a process of its own, and the threads, once they are warm, allocate nothing. */
enum { STEADY_THREADS = 4, STEADY_PROBLEMS = 100, STEADY_FORKS = 20, MEETING = 900000 };

struct steady {
	flytune_client *client;
	flytune_problem *meeting, *problem[STEADY_PROBLEMS];
	int64_t first;
	atomic_int *warm;
	atomic_bool *stop;
	int wrong;
	pthread_t thread;
};

/* Lookups that meet here are on a connection each: later there is one for every thread. */
static enum fake_act meet(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	struct fake *daemon = session->fake;

	(void)data;
	if (strcmp(request->method, "lookup") != 0 || fake_m(request) < MEETING)
		return FAKE_USUAL;
	pthread_mutex_lock(&daemon->lock);
	daemon->at_gate++;
	pthread_cond_broadcast(&daemon->changed);
	while (daemon->at_gate < STEADY_THREADS)
		pthread_cond_wait(&daemon->changed, &daemon->lock);
	pthread_mutex_unlock(&daemon->lock);
	return FAKE_USUAL;
}

/* The fake daemon in a process of its own, which serves until it is killed. */
static pid_t listen_elsewhere(void)
{
	int ready[2];
	char byte;
	pid_t daemon;

	assert_int_equal(pipe(ready), 0);
	daemon = fork();
	assert_true(daemon >= 0);
	if (daemon == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		fake_listen(&fake);
		if (write(ready[1], "r", 1) != 1)
			end_child(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return daemon;
}

#ifdef __SANITIZE_ADDRESS__
/* Of the sanitizer's <sanitizer/allocator_interface.h>, which gcc does not install everywhere. */
int __sanitizer_install_malloc_and_free_hooks(
        void (*on_malloc)(const volatile void *, size_t), void (*on_free)(const volatile void *));

static _Thread_local bool is_warm;
static atomic_int allocated;

static void count_free(const volatile void *memory)
{
	(void)memory;
	if (is_warm)
		atomic_fetch_add(&allocated, 1);
}

static void count_malloc(const volatile void *memory, size_t size)
{
	(void)size;
	count_free(memory);
}
#endif

static void ask_steadily(struct steady *steady, const flytune_problem *problem, int64_t m)
{
	struct flytune_answer answer;

	flytune_answer_init(&answer);
	if (flytune_lookup(steady->client, problem, NULL, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
	        flytune_answer_get(&answer, "M", -2) != m)
		steady->wrong++;
}

static void *be_steady(void *data)
{
	struct steady *steady = data;

	ask_steadily(steady, steady->meeting, MEETING + steady->first);
	for (int i = 0; i < STEADY_PROBLEMS; i++)
		ask_steadily(steady, steady->problem[i], steady->first + i);
	atomic_fetch_add(steady->warm, 1);
#ifdef __SANITIZE_ADDRESS__
	is_warm = true;
#endif
	while (!atomic_load(steady->stop)) {
		for (int i = 0; i < STEADY_PROBLEMS; i++)
			ask_steadily(steady, steady->problem[i], steady->first + i);
	}
	return NULL;
}

static void a_fork_while_threads_ask_leaves_both_sides_whole(void **state)
{
	struct steady steady[STEADY_THREADS];
	struct flytune_answer answer;
	atomic_bool stop = false;
	atomic_int warm = 0;
	flytune_client *client;
	pid_t daemon;

	(void)state;
	fake.hook = meet;
	daemon = listen_elsewhere();
	client = open_client(PATIENT_MS);
#ifdef __SANITIZE_ADDRESS__
	assert_true(__sanitizer_install_malloc_and_free_hooks(count_malloc, count_free) > 0);
#endif
	for (int i = 0; i < STEADY_THREADS; i++) {
		steady[i] = (struct steady){
		        .client = client, .first = 1 + i * 1000, .warm = &warm, .stop = &stop};
		steady[i].meeting = rmsnorm(MEETING + steady[i].first);
		for (int k = 0; k < STEADY_PROBLEMS; k++)
			steady[i].problem[k] = rmsnorm(steady[i].first + k);
		assert_int_equal(pthread_create(&steady[i].thread, NULL, be_steady, &steady[i]), 0);
	}
	while (atomic_load(&warm) < STEADY_THREADS)
		poll(NULL, 0, 1);
	for (int i = 0; i < STEADY_FORKS; i++) {
		pid_t child = fork();

		assert_true(child >= 0);
		if (child == 0) {
			int wrong = 0;

			for (int64_t m = 100000; m < 100020; m++) {
				if (look_up(client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
				        flytune_answer_get(&answer, "M", -2) != m)
					wrong = 1;
			}
			flytune_close(client);
			end_child(wrong);
		}
		await_child(child);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < STEADY_THREADS; i++) {
		pthread_join(steady[i].thread, NULL);
		assert_int_equal(steady[i].wrong, 0);
		flytune_problem_free(steady[i].meeting);
		for (int k = 0; k < STEADY_PROBLEMS; k++)
			flytune_problem_free(steady[i].problem[k]);
	}
#ifdef __SANITIZE_ADDRESS__
	assert_int_equal(atomic_load(&allocated), 0);
#endif
	flytune_close(client);
	kill(daemon, SIGKILL);
	assert_int_equal(waitpid(daemon, NULL, 0), daemon);
	unlink(fake.path);
}

static enum fake_act hold_1(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	return be_late(session, request, data);
}

static void a_slow_call_does_not_hold_the_others_up(void **state)
{
	struct asker slow, quick;
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = hold_1;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	slow = (struct asker){.client = client, .first = 1, .count = 1};
	quick = (struct asker){.client = client, .first = 1000, .count = 100};
	assert_int_equal(pthread_create(&slow.thread, NULL, ask_many, &slow), 0);
	fake_await_arrivals(&fake, 1);
	began = clock_now();
	ask_many(&quick);
	assert_int_equal(quick.wrong, 0);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	fake_open_gate(&fake);
	pthread_join(slow.thread, NULL);
	assert_int_equal(slow.wrong, 0);
	flytune_close(client);
}

static enum fake_act hold_all(struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup") == 0 && fake_m(request) < 1000)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static void a_pool_that_is_all_in_use_does_not_outlast_the_deadline(void **state)
{
	enum { THREADS = 8 };
	struct flytune_lookup_options options;
	struct flytune_answer answer;
	struct asker asker[THREADS];
	flytune_problem *problem = rmsnorm(1000);
	flytune_client *client;
	uint64_t began;

	(void)state;
	fake.hook = hold_all;
	fake_listen(&fake);
	client = open_client(PATIENT_MS);
	for (int i = 0; i < THREADS; i++) {
		asker[i] = (struct asker){.client = client, .first = 1 + i, .count = 1};
		assert_int_equal(pthread_create(&asker[i].thread, NULL, ask_many, &asker[i]), 0);
	}
	fake_await_arrivals(&fake, THREADS);
	flytune_lookup_options_init(&options);
	options.timeout_ms = SHORT_MS;
	flytune_answer_init(&answer);
	began = clock_now();
	assert_int_equal(flytune_lookup(client, problem, &options, &answer, NULL), FLYTUNE_OK);
	assert_true(clock_now() - began < PATIENT_MS / 2 * CLOCK_MS);
	assert_alone(&answer);
	fake_open_gate(&fake);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(asker[i].thread, NULL);
		assert_int_equal(asker[i].wrong, 0);
	}
	flytune_problem_free(problem);
	flytune_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        ROW(a_child_makes_a_connection_of_its_own),
	        ROW(a_child_that_no_handler_knows_of_makes_its_own_as_well),
	        ROW(threads_get_their_own_answers_over_a_bounded_pool),
	        ROW(a_fork_while_threads_ask_leaves_both_sides_whole),
	        ROW(a_slow_call_does_not_hold_the_others_up),
	        ROW(a_pool_that_is_all_in_use_does_not_outlast_the_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
