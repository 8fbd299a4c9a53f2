/* Pinning, freeing and forgetting answers; pausing and resuming the queue. */
#include <stdio.h>
#include <string.h>

#include "client/lib/alike.h"
#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/handle.h"
#include "client/lib/outcome.h"
#include "client/lib/problem.h"
#include "client/lib/sized.h"

static int read_change(void *change, const struct client_reply *reply, struct ft_error *error)
{
	struct flytune_change *to = change;
	struct ft_change_reply changed, *from = &changed;

	if (ft_decode(&ft_change_reply_message, reply->body, &changed, error) != 0)
		return -1;
	flytune_change_init(to);
	FT_CHANGE_REPLY(COPY_ALIKE);
	return 0;
}

static enum flytune_result change_answer(flytune_client *client, const char *method,
        struct ft_change_request *request, const flytune_problem *problem, const char *device,
        struct flytune_change *change, struct flytune_error *out)
{
	UNCANCELLED;
	struct flytune_change read;
	struct ft_error error;
	enum flytune_result code;

	REQUIRE(problem, out);
	if (change != NULL && sized_length(change) < sizeof change->size)
		return outcome_unsized(out, "flytune_change");
	if (client_device(client, device, request->device, &error) != 0)
		return outcome(out, &error);
	memcpy(request->kernel, problem->about->kernel, sizeof request->kernel);
	problem_given(problem, &request->problem);
	code = client_ask(client, method, &ft_change_request_message, request, read_change, &read, out);
	if (code == FLYTUNE_OK && change != NULL)
		sized_out(change, &read, sizeof read);
	return code;
}

enum flytune_result flytune_pin(flytune_client *client, const flytune_problem *problem, const char *device,
        const struct flytune_knob *knobs, size_t count, struct flytune_change *change,
        struct flytune_error *out)
{
	struct ft_change_request request = {0};
	struct ft_error error;

	if (count > 0)
		REQUIRE(knobs, out);
	if (answer_config(knobs, count, &request.config, &error) != 0)
		return outcome(out, &error);
	return change_answer(client, "pin", &request, problem, device, change, out);
}

enum flytune_result flytune_unpin(flytune_client *client, const flytune_problem *problem, const char *device,
        struct flytune_change *change, struct flytune_error *out)
{
	struct ft_change_request request = {0};

	return change_answer(client, "unpin", &request, problem, device, change, out);
}

enum flytune_result flytune_forget(flytune_client *client, const flytune_problem *problem, const char *device,
        struct flytune_change *change, struct flytune_error *out)
{
	struct ft_change_request request = {0};

	return change_answer(client, "forget", &request, problem, device, change, out);
}

static enum flytune_result set_paused(flytune_client *client, const char *method, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_empty request = {0};

	return client_ask(client, method, &ft_empty_message, &request, NULL, NULL, out);
}

enum flytune_result flytune_pause(flytune_client *client, struct flytune_error *out)
{
	return set_paused(client, "pause", out);
}

enum flytune_result flytune_resume(flytune_client *client, struct flytune_error *out)
{
	return set_paused(client, "resume", out);
}
