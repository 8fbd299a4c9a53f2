/* The public headers as a C++ program uses them: compiled with every warning, linked with the shared library,
 * run. */
#include <flytune/admin.h>
#include <flytune/rmsnorm.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace
{
int count_events(void *data, const flytune_event *)
{
	++*static_cast<int *>(data);
	return 0;
}

void note_answer(void *data, size_t, const flytune_answer *, const flytune_error *)
{
	++*static_cast<int *>(data);
}

bool check(bool holds, const char *what)
{
	if (!holds)
		std::fprintf(stderr, "not so: %s\n", what);
	return holds;
}
} // namespace

int main()
{
	flytune_options options;
	flytune_options_init(&options);
	options.socket = "/nonexistent/flytuned.sock";
	flytune_error error;
	flytune_client *client = flytune_open(&options, &error);
	if (client == nullptr)
		return 1;

	flytune_rmsnorm shape;
	flytune_rmsnorm_init(&shape);
	shape.m = 64;
	shape.n = 4096;
	shape.dtype = "bf16";
	flytune_problem *problem = flytune_problem_rmsnorm(&shape, &error);
	flytune_lookup_options how;
	flytune_lookup_options_init(&how);
	how.device = "cuda:0";
	flytune_answer answer;
	flytune_answer_init(&answer);
	bool fine = check(flytune_lookup(client, problem, &how, &answer, &error) == FLYTUNE_OK,
	                    "a lookup never fails") &&
	        check(answer.source == FLYTUNE_SOURCE_DEFAULT, "nobody is there") &&
	        check((answer.flags & FLYTUNE_ANSWER_AWAY) != 0, "and it says so") &&
	        check(flytune_answer_get(&answer, "BLOCK_THREADS", -1) > 0, "a GPU's config has a block") &&
	        check(std::string(answer.device) == "cuda:0", "for the device that was named");

	flytune_problem *problems[] = {problem, problem};
	flytune_answer answers[2];
	for (flytune_answer &each : answers)
		flytune_answer_init(&each);
	fine = check(flytune_lookup_many(client, problems, 2, &how, answers, nullptr, &error) == FLYTUNE_OK,
	               "nor does one of a list") &&
	        check(answers[1].source == FLYTUNE_SOURCE_DEFAULT, "each has an answer") && fine;

	flytune_status_info status;
	flytune_status_info_init(&status);
	const flytune_result away = flytune_status(client, &status, nullptr, &error);
	fine = check(away == FLYTUNE_E_AWAY, "nobody tells of himself") && fine;

	int events = 0;
	flytune_job job;
	flytune_job_init(&job);
	fine = check(flytune_watch(client, &job, 10, count_events, &events, &error) == FLYTUNE_E_AWAY,
	               "nothing to watch") &&
	        check(std::strcmp(flytune_result_word(error.code), "daemon_away") == 0, "codes have words") &&
	        fine;

	int answers_told = 0;
	flytune_subscription *subscription = nullptr;
	fine = check(flytune_subscribe(client, problems, 2, nullptr, note_answer, &answers_told,
	                     &subscription, &error) == FLYTUNE_OK,
	               "nobody need be there to subscribe") &&
	        check(flytune_subscription_fd(subscription) > 2, "it has a descriptor") &&
	        check(flytune_dispatch(subscription, &error) == FLYTUNE_E_AWAY, "nobody tells") &&
	        check(answers_told == 0, "so nothing is told") && fine;
	flytune_unsubscribe(subscription);

	flytune_problem_free(problem);
	flytune_close(client);
	return fine && events == 0 ? 0 : 1;
}
