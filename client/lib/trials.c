#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/alike.h"
#include "client/lib/answer.h"
#include "client/lib/cancel.h"
#include "client/lib/effect.h"
#include "client/lib/list.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

struct flytune_trial_list {
	struct flytune_trials_info info;
	struct flytune_trial *trial;
	size_t count;
	struct flytune_effect *effect;
	size_t effects;
};

static int read_trial(struct ft_view data, void *element, struct ft_error *error)
{
	struct flytune_trial *to = element;
	struct ft_trial trial, *from = &trial;

	if (ft_decode(&ft_trial_message, data, &trial, error) != 0)
		return -1;
	flytune_trial_init(to);
	FT_TRIAL(COPY_ALIKE);
	return answer_knobs(&trial.config, to->knob, &to->knob_count, error) != 0 ||
	                answer_knobs(&trial.same_as, to->same_as, &to->same_as_count, error) != 0
	        ? -1
	        : 0;
}

static int read_knob(struct ft_view data, void *element, struct ft_error *error)
{
	struct flytune_effect *effect = element;
	struct ft_schema_knob knob;

	if (ft_decode(&ft_schema_knob_message, data, &knob, error) != 0)
		return -1;
	flytune_effect_init(effect);
	snprintf(effect->name, sizeof effect->name, "%s", knob.name);
	effect->changes_bits = knob.changes_bits;
	return 0;
}

static int fill(flytune_trial_list *list, struct ft_view body, struct ft_error *error)
{
	struct ft_trials_reply reply;
	void *array = NULL;

	if (ft_decode(&ft_trials_reply_message, body, &reply, error) != 0 ||
	        list_read(reply.trials, sizeof *list->trial, read_trial, &array, &list->count, error) != 0)
		return -1;
	list->trial = array;
	array = NULL;
	if (reply.knobs.data != NULL &&
	        list_read(reply.knobs, sizeof *list->effect, read_knob, &array, &list->effects, error) != 0) {
		free(list->trial);
		list->trial = NULL;
		return -1;
	}
	list->effect = array;
	for (size_t i = 0; i < list->effects; i++)
		effect_measure(&list->effect[i], list->trial, list->count);
	flytune_trials_info_init(&list->info);
	snprintf(list->info.device, sizeof list->info.device, "%s", reply.device);
	snprintf(list->info.identity, sizeof list->info.identity, "%s", reply.identity);
	snprintf(list->info.method, sizeof list->info.method, "%s", reply.method);
	list->info.rounds = reply.rounds;
	list->info.seed = reply.seed;
	list->info.conclusive = reply.conclusive;
	list->info.sweep_ns = reply.sweep_ns;
	list->info.band_ppm = reply.band_ppm;
	list->info.gain_ppm = reply.gain_ppm;
	list->info.gain_least_ppm = reply.gain_least_ppm;
	list->info.seen_ppm = reply.seen_ppm;
	list->info.space = reply.space;
	snprintf(list->info.reason, sizeof list->info.reason, "%s", reply.reason);
	return 0;
}

static int read_trials(void *to, const struct client_reply *reply, struct ft_error *error)
{
	flytune_trial_list **list = to;
	flytune_trial_list *made = calloc(1, sizeof *made);

	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	if (fill(made, reply->body, error) != 0) {
		free(made);
		return -1;
	}
	*list = made;
	return 0;
}

enum flytune_result flytune_trials(flytune_client *client, const flytune_problem *problem, const char *device,
        flytune_trial_list **list, struct flytune_error *out)
{
	UNCANCELLED;
	struct ft_trials_request request = {0};
	struct ft_error error;

	REQUIRE(problem, out);
	REQUIRE(list, out);
	if (client_device(client, device, request.device, &error) != 0)
		return outcome(out, &error);
	memcpy(request.kernel, problem->about->kernel, sizeof request.kernel);
	problem_given(problem, &request.problem);
	return client_ask(client, "trials", &ft_trials_request_message, &request, read_trials, list, out);
}

size_t flytune_trial_list_count(const flytune_trial_list *list)
{
	return list != NULL ? list->count : 0;
}

int flytune_trial_list_get(const flytune_trial_list *list, size_t index, struct flytune_trial *trial)
{
	return list != NULL && index < list->count &&
	        sized_out(trial, &list->trial[index], sizeof list->trial[index]);
}

int flytune_trial_list_info(const flytune_trial_list *list, struct flytune_trials_info *info)
{
	return list != NULL && sized_out(info, &list->info, sizeof list->info);
}

int flytune_trial_list_effect(const flytune_trial_list *list, size_t index, struct flytune_effect *effect)
{
	return list != NULL && index < list->effects &&
	        sized_out(effect, &list->effect[index], sizeof list->effect[index]);
}

void flytune_trial_list_free(flytune_trial_list *list)
{
	UNCANCELLED;

	if (list != NULL) {
		free(list->trial);
		free(list->effect);
	}
	free(list);
}
