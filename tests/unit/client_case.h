/* What tests of the client's calls share: a client against the fake daemon, and what an answer must be. */
#ifndef FLYTUNE_TESTS_CLIENT_CASE_H
#define FLYTUNE_TESTS_CLIENT_CASE_H

#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/clock.h"
#include <flytune/client.h>
#include "client_help.h"
#include "fake_case.h"

enum { SHORT_MS = 50, WAIT_MS = 500, PATIENT_MS = 30000 };

/* `timeout_ms` of everything but forced sweeps. */
static inline flytune_client *open_client(int64_t timeout_ms)
{
	struct flytune_options options;

	flytune_options_init(&options);
	options.lookup_timeout_ms = timeout_ms;
	options.call_timeout_ms = timeout_ms;
	return fake_client(&fake, &options);
}

static inline enum flytune_result look_up(
        flytune_client *client, int64_t m, struct flytune_answer *answer, struct flytune_error *error)
{
	flytune_problem *problem = rmsnorm(m);
	enum flytune_result code;

	flytune_answer_init(answer);
	code = flytune_lookup(client, problem, NULL, answer, error);
	flytune_problem_free(problem);
	return code;
}

/* What the fake daemon says, and nothing else. */
static inline void assert_served(const struct flytune_answer *answer, int64_t m)
{
	assert_int_equal(answer->source, FLYTUNE_SOURCE_TUNED);
	assert_int_equal(answer->flags, 0);
	assert_int_equal(flytune_answer_get(answer, "M", -2), m);
}

static inline void assert_alone(const struct flytune_answer *answer)
{
	assert_int_equal(answer->source, FLYTUNE_SOURCE_DEFAULT);
	assert_int_equal(answer->flags, FLYTUNE_ANSWER_AWAY);
	assert_true(answer->knob_count > 0);
	assert_int_equal(answer->revision, 1);
	assert_string_not_equal(answer->reason, "");
}

/* Asks until the daemon answers again: what the breaker's pause allows. */
static inline void await_daemon(flytune_client *client, int64_t m, struct flytune_answer *answer)
{
	uint64_t deadline = clock_after(PATIENT_MS);

	do {
		assert_true(clock_now() < deadline);
		poll(NULL, 0, 2);
		assert_int_equal(look_up(client, m, answer, NULL), FLYTUNE_OK);
	} while ((answer->flags & FLYTUNE_ANSWER_AWAY) != 0);
}

/* A thread that looks up, and counts what is not as it must be. */
struct asker {
	flytune_client *client;
	pthread_t thread;
	int64_t first;
	int count;
	atomic_bool *stop; /* NULL: after `count` lookups */
	int wrong;
};

static inline void *ask_many(void *data)
{
	struct asker *asker = data;
	struct flytune_answer answer;

	for (int i = 0; asker->stop == NULL ? i < asker->count : !atomic_load(asker->stop); i++) {
		int64_t m = asker->first + i % asker->count;

		if (look_up(asker->client, m, &answer, NULL) != FLYTUNE_OK || answer.flags != 0 ||
		        flytune_answer_get(&answer, "M", -2) != m)
			asker->wrong++;
	}
	return NULL;
}

/* Ends a child without the parent's clean-up. */
static inline void end_child(int status)
{
	_exit(status);
}

static inline void await_child(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static inline enum fake_act be_late(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)data;
	if (strcmp(request->method, "lookup") == 0 && fake_m(request) == 1)
		fake_wait_gate(session->fake);
	return FAKE_USUAL;
}

static inline enum fake_act hold_wait(
        struct fake_session *session, const struct ft_envelope *request, void *data)
{
	(void)session;
	(void)data;
	return strcmp(request->method, "wait") == 0 ? FAKE_DONE : FAKE_USUAL;
}

#endif
