#include "client/ctl/output/json.h"

#include <stdio.h>

#include "client/ctl/output/format.h"

void json_us(struct document *json, const char *name, uint64_t ps)
{
	if (ps == 0)
		document_null(json, name);
	else
		document_real(json, name, (double)ps / 1e6);
}

void json_text(struct document *json, const char *name, const char *text)
{
	if (*text == '\0')
		document_null(json, name);
	else
		document_text(json, name, text);
}

void json_date(struct document *json, const char *name, uint64_t at_ns)
{
	char text[FORMAT_SIZE];

	json_text(json, name, format_date(at_ns, text));
}

void json_knob(struct document *json, const char *name, const struct flytune_knob *knob)
{
	if (knob->word != NULL)
		document_text(json, name, knob->word);
	else
		document_integer(json, name, knob->value);
}

void json_config(struct document *json, const char *name, const struct flytune_knob *knob, uint32_t count)
{
	document_object(json, name);
	for (uint32_t i = 0; i < count; i++)
		json_knob(json, knob[i].name, &knob[i]);
	document_end(json);
}

void json_problem(struct document *json, const char *name, const flytune_problem *problem)
{
	struct flytune_field field;

	document_object(json, name);
	for (size_t i = 0; flytune_problem_field(problem, i, &field); i++) {
		if (field.text != NULL)
			document_text(json, field.name, field.text);
		else
			document_integer(json, field.name, field.number);
	}
	document_end(json);
}

void json_values(struct document *json, const char *name, const struct flytune_value *value, uint32_t count)
{
	document_object(json, name);
	for (uint32_t i = 0; i < count; i++) {
		if (value[i].text[0] != '\0')
			document_text(json, value[i].name, value[i].text);
		else
			document_integer(json, value[i].name, value[i].number);
	}
	document_end(json);
}

void json_share(struct document *json, const char *name, uint64_t ppm)
{
	if (ppm != 0)
		document_real(json, name, (double)ppm / 1e6);
	else
		document_null(json, name);
}

void json_gain(struct document *json, uint64_t time, uint64_t default_time, uint64_t least_ppm, int unsettled)
{
	bool known = time != 0 && default_time != 0;

	if (known)
		document_real(json, "gain", (double)default_time / (double)time);
	else
		document_null(json, "gain");
	json_share(json, "gain_least", known ? least_ppm : 0);
	document_bool(json, "unsettled", unsettled != 0);
}

/* A number that there is only under a condition; else null. */
static void count_if(struct document *json, const char *name, bool is_there, uint64_t number)
{
	if (is_there)
		document_count(json, name, number);
	else
		document_null(json, name);
}

void json_answer_members(
        struct document *json, const flytune_problem *problem, const struct flytune_answer *answer)
{
	char token[128] = "";

	if (answer->store[0] != '\0')
		snprintf(token, sizeof token, "%s:%llu", answer->store,
		        (unsigned long long)answer->generation);
	document_text(json, "kernel", flytune_problem_kernel(problem));
	json_problem(json, "problem", problem);
	json_text(json, "device", answer->device);
	json_config(json, "config", answer->knob, answer->knob_count);
	document_text(json, "source", flytune_source_word(answer->source));
	document_text(json, "reason", answer->reason);
	document_count(json, "generation", answer->generation);
	json_text(json, "token", token);
	json_text(json, "identity", answer->identity);
	json_us(json, "time_us", answer->time_ns * 1000);
	json_us(json, "default_time_us", answer->default_time_ns * 1000);
	json_gain(json, 1000000, answer->gain_ppm, answer->gain_least_ppm, answer->unsettled);
	json_share(json, "seen", answer->seen_ppm);
	count_if(json, "order_class", answer->order_class != 0, answer->order_class);
	json_date(json, "tuned_at", answer->tuned_at_ns);
	count_if(json, "tuned_scale", answer->source == FLYTUNE_SOURCE_NEAREST, answer->tuned_scale);
	count_if(json, "revision", answer->source == FLYTUNE_SOURCE_DEFAULT, answer->revision);
	document_bool(json, "daemon_away", (answer->flags & FLYTUNE_ANSWER_AWAY) != 0);
	document_bool(json, "unswept", (answer->flags & FLYTUNE_ANSWER_UNSWEPT) != 0);
}

void json_no_answer_members(
        struct document *json, const flytune_problem *problem, const char *device, const char *reason)
{
	static const char *const unknown[] = {"config", "source", "generation", "token", "identity",
	        "time_us", "default_time_us", "gain", "gain_least", "unsettled", "seen", "order_class",
	        "tuned_at", "tuned_scale", "revision", "daemon_away", "unswept"};

	document_text(json, "kernel", flytune_problem_kernel(problem));
	json_problem(json, "problem", problem);
	json_text(json, "device", device);
	document_text(json, "reason", reason);
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		document_null(json, unknown[i]);
}

void json_job(struct document *json, const char *name, const struct flytune_job *job)
{
	document_object(json, name);
	document_count(json, "job", job->job);
	document_text(json, "state", flytune_state_word(job->state));
	json_text(json, "stage", job->stage);
	document_text(json, "kernel", job->kernel);
	document_array(json, "problems");
	json_values(json, NULL, job->field, job->field_count);
	document_end(json);
	json_text(json, "device", job->device);
	document_text(json, "reason", job->reason);
	document_integer(json, "priority", job->priority);
	document_count(json, "owner", job->owner);
	json_date(json, "created_at", job->created_at_ns);
	json_date(json, "started_at", job->started_at_ns);
	json_date(json, "ended_at", job->ended_at_ns);
	document_real(json, "sweep_s", (double)job->sweep_ns / 1e9);
	document_count(json, "trials", job->trials);
	count_if(json, "space", job->space != 0, job->space);
	document_count(json, "settled", job->settled);
	document_count(json, "rounds", job->rounds);
	document_count(json, "waiters", job->waiters);
	document_count(json, "restarts", job->restarts);
	document_text(json, "cause", job->cause);
	document_end(json);
}

static void config_if(
        struct document *json, const char *name, const struct flytune_knob *knob, uint32_t count)
{
	if (count > 0)
		json_config(json, name, knob, count);
	else
		document_null(json, name);
}

static void spread(struct document *json, uint64_t time_ps, uint64_t ci_ps)
{
	json_us(json, "time_us", time_ps);
	if (time_ps == 0)
		document_null(json, "ci_us");
	else
		document_real(json, "ci_us", (double)ci_ps / 1e6);
}

void json_trial(struct document *json, const char *name, const struct flytune_trial *trial)
{
	document_object(json, name);
	json_config(json, "config", trial->knob, trial->knob_count);
	document_text(json, "status", trial->status);
	spread(json, trial->time_ps, trial->ci_ps);
	json_text(json, "code", trial->code);
	document_count(json, "registers", trial->registers);
	document_count(json, "spills", trial->spills);
	document_text(json, "reason", trial->reason);
	document_bool(json, "default", trial->is_default);
	document_bool(json, "winner", trial->is_winner);
	document_bool(json, "tied", trial->tied);
	document_count(json, "rounds", trial->rounds);
	count_if(json, "dropped_round", trial->dropped_round != 0, trial->dropped_round);
	document_real(json, "build_ms", (double)trial->build_ns / 1e6);
	document_real(json, "error", trial->error);
	config_if(json, "same_as", trial->same_as, trial->same_as_count);
	document_end(json);
}

static void json_device(struct document *json, const struct flytune_device *device)
{
	document_object(json, NULL);
	document_text(json, "id", device->id);
	document_text(json, "kind", device->kind);
	document_text(json, "state", device->state);
	json_text(json, "name", device->name);
	json_text(json, "arch", device->arch);
	json_text(json, "pci", device->pci);
	document_count(json, "units", device->units);
	document_count(json, "memory", device->memory);
	json_text(json, "identity", device->identity);
	json_text(json, "identity_text", device->identity_text);
	json_text(json, "runner", device->runner);
	count_if(json, "runner_pid", device->runner_pid != 0, device->runner_pid);
	json_text(json, "holder", device->holder);
	count_if(json, "job", device->job != 0, device->job);
	document_text(json, "reason", device->reason);
	document_end(json);
}

void json_devices(struct document *json, const char *name, const flytune_device_list *devices)
{
	struct flytune_device device;

	flytune_device_init(&device);
	document_array(json, name);
	for (size_t i = 0; flytune_device_list_get(devices, i, &device); i++)
		json_device(json, &device);
	document_end(json);
}

void json_event(struct document *json, const char *name, const struct flytune_event *event)
{
	document_object(json, name);
	document_count(json, "job", event->job);
	document_text(json, "event", event->event);
	json_text(
	        json, "state", event->state != FLYTUNE_STATE_UNKNOWN ? flytune_state_word(event->state) : "");
	json_text(json, "stage", event->stage);
	document_count(json, "trials", event->trials);
	count_if(json, "space", event->space != 0, event->space);
	document_count(json, "settled", event->settled);
	document_count(json, "round", event->round);
	config_if(json, "config", event->knob, event->knob_count);
	json_text(json, "status", event->status);
	spread(json, event->time_ps, event->ci_ps);
	document_text(json, "reason", event->reason);
	document_end(json);
}

void json_error(struct document *json, const char *name, const struct flytune_error *error)
{
	document_object(json, name);
	document_text(json, "code", error->word);
	document_text(json, "message", error->message);
	document_text(json, "field", error->field);
	document_text(json, "value", error->value);
	document_text(json, "bound", error->bound);
	document_end(json);
}
