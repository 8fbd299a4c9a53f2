#include "client/ctl/json.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/format.h"

enum { REAL_DIGITS = 12 };

json_t *json_us(uint64_t ps)
{
	return ps == 0 ? json_null() : json_real((double)ps / 1e6);
}

json_t *json_text(const char *text)
{
	return *text == '\0' ? json_null() : json_string(text);
}

static json_t *json_date(uint64_t at_ns)
{
	char text[FORMAT_SIZE];

	return json_text(format_date(at_ns, text));
}

static json_t *json_count(uint64_t number)
{
	return json_integer((json_int_t)number);
}

json_t *json_config(const struct flytune_knob *knob, uint32_t count)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < count; i++)
		json_object_set_new(object, knob[i].name, json_integer(knob[i].value));
	return object;
}

json_t *json_problem(const flytune_problem *problem)
{
	json_t *object = json_object();
	struct flytune_field field;

	for (size_t i = 0; flytune_problem_field(problem, i, &field); i++)
		json_object_set_new(object, field.name,
		        field.text != NULL ? json_string(field.text) : json_integer(field.number));
	return object;
}

json_t *json_values(const struct flytune_value *value, uint32_t count)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < count; i++)
		json_object_set_new(object, value[i].name,
		        value[i].text[0] != '\0' ? json_string(value[i].text)
		                                 : json_integer(value[i].number));
	return object;
}

json_t *json_answer(const flytune_problem *problem, const struct flytune_answer *answer)
{
	json_t *object = json_object();
	char token[128] = "";

	if (answer->store[0] != '\0')
		snprintf(token, sizeof token, "%s:%llu", answer->store,
		        (unsigned long long)answer->generation);
	json_object_set_new(object, "kernel", json_string(flytune_problem_kernel(problem)));
	json_object_set_new(object, "problem", json_problem(problem));
	json_object_set_new(object, "device", json_text(answer->device));
	json_object_set_new(object, "config", json_config(answer->knob, answer->knob_count));
	json_object_set_new(object, "source", json_string(flytune_source_word(answer->source)));
	json_object_set_new(object, "reason", json_string(answer->reason));
	json_object_set_new(object, "generation", json_count(answer->generation));
	json_object_set_new(object, "token", json_text(token));
	json_object_set_new(object, "identity", json_text(answer->identity));
	json_object_set_new(object, "time_us", json_us(answer->time_ns * 1000));
	json_object_set_new(object, "default_time_us", json_us(answer->default_time_ns * 1000));
	json_object_set_new(object, "tuned_at", json_date(answer->tuned_at_ns));
	if (answer->source == FLYTUNE_SOURCE_NEAREST)
		json_object_set_new(object, "tuned_m", json_count(answer->tuned_m));
	if (answer->source == FLYTUNE_SOURCE_DEFAULT)
		json_object_set_new(object, "revision", json_count(answer->revision));
	json_object_set_new(object, "daemon_away", json_boolean(answer->flags & FLYTUNE_ANSWER_AWAY));
	if ((answer->flags & FLYTUNE_ANSWER_UNSWEPT) != 0)
		json_object_set_new(object, "unswept", json_true());
	return object;
}

json_t *json_job(const struct flytune_job *job)
{
	json_t *object = json_object();

	json_object_set_new(object, "job", json_count(job->job));
	json_object_set_new(object, "state", json_string(flytune_state_word(job->state)));
	json_object_set_new(object, "stage", json_text(job->stage));
	json_object_set_new(object, "kernel", json_string(job->kernel));
	json_object_set_new(object, "problem", json_values(job->field, job->field_count));
	json_object_set_new(object, "device", json_text(job->device));
	json_object_set_new(object, "reason", json_string(job->reason));
	json_object_set_new(object, "priority", json_integer(job->priority));
	json_object_set_new(object, "owner", json_count(job->owner));
	json_object_set_new(object, "created_at", json_date(job->created_at_ns));
	json_object_set_new(object, "started_at", json_date(job->started_at_ns));
	json_object_set_new(object, "ended_at", json_date(job->ended_at_ns));
	json_object_set_new(object, "sweep_s", json_real((double)job->sweep_ns / 1e9));
	json_object_set_new(object, "trials", json_count(job->trials));
	json_object_set_new(object, "settled", json_count(job->settled));
	json_object_set_new(object, "rounds", json_count(job->rounds));
	json_object_set_new(object, "waiters", json_count(job->waiters));
	json_object_set_new(object, "restarts", json_count(job->restarts));
	json_object_set_new(object, "cause", json_string(job->cause));
	return object;
}

json_t *json_trial(const struct flytune_trial *trial)
{
	json_t *object = json_object();

	json_object_set_new(object, "config", json_config(trial->knob, trial->knob_count));
	json_object_set_new(object, "status", json_string(trial->status));
	json_object_set_new(object, "time_us", json_us(trial->time_ps));
	json_object_set_new(
	        object, "ci_us", trial->time_ps == 0 ? json_null() : json_real((double)trial->ci_ps / 1e6));
	json_object_set_new(object, "code", json_text(trial->code));
	json_object_set_new(object, "registers", json_count(trial->registers));
	json_object_set_new(object, "spills", json_count(trial->spills));
	json_object_set_new(object, "reason", json_string(trial->reason));
	json_object_set_new(object, "default", json_boolean(trial->is_default));
	json_object_set_new(object, "winner", json_boolean(trial->is_winner));
	json_object_set_new(object, "tied", json_boolean(trial->tied));
	json_object_set_new(object, "rounds", json_count(trial->rounds));
	json_object_set_new(object, "dropped_round",
	        trial->dropped_round == 0 ? json_null() : json_count(trial->dropped_round));
	json_object_set_new(object, "build_ms", json_real((double)trial->build_ns / 1e6));
	json_object_set_new(object, "error", json_real(trial->error));
	if (trial->same_as_count > 0)
		json_object_set_new(object, "same_as", json_config(trial->same_as, trial->same_as_count));
	return object;
}

json_t *json_device(const struct flytune_device *device)
{
	json_t *object = json_object();

	json_object_set_new(object, "id", json_string(device->id));
	json_object_set_new(object, "kind", json_string(device->kind));
	json_object_set_new(object, "state", json_string(device->state));
	json_object_set_new(object, "name", json_text(device->name));
	json_object_set_new(object, "arch", json_text(device->arch));
	json_object_set_new(object, "pci", json_text(device->pci));
	json_object_set_new(object, "units", json_count(device->units));
	json_object_set_new(object, "memory", json_count(device->memory));
	json_object_set_new(object, "identity", json_text(device->identity));
	json_object_set_new(object, "identity_text", json_text(device->identity_text));
	json_object_set_new(object, "runner", json_text(device->runner));
	json_object_set_new(
	        object, "runner_pid", device->runner_pid == 0 ? json_null() : json_count(device->runner_pid));
	json_object_set_new(object, "reason", json_string(device->reason));
	return object;
}

json_t *json_devices(const flytune_device_list *devices)
{
	json_t *array = json_array();
	struct flytune_device device;

	flytune_device_init(&device);
	for (size_t i = 0; flytune_device_list_get(devices, i, &device); i++)
		json_array_append_new(array, json_device(&device));
	return array;
}

json_t *json_event(const struct flytune_event *event)
{
	json_t *object = json_object();

	json_object_set_new(object, "job", json_count(event->job));
	json_object_set_new(object, "event", json_string(event->event));
	if (event->state != FLYTUNE_STATE_UNKNOWN)
		json_object_set_new(object, "state", json_string(flytune_state_word(event->state)));
	if (event->stage[0] != '\0')
		json_object_set_new(object, "stage", json_string(event->stage));
	json_object_set_new(object, "trials", json_count(event->trials));
	json_object_set_new(object, "settled", json_count(event->settled));
	json_object_set_new(object, "round", json_count(event->round));
	if (event->knob_count > 0) {
		json_object_set_new(object, "config", json_config(event->knob, event->knob_count));
		json_object_set_new(object, "status", json_text(event->status));
		json_object_set_new(object, "time_us", json_us(event->time_ps));
		json_object_set_new(object, "ci_us",
		        event->time_ps == 0 ? json_null() : json_real((double)event->ci_ps / 1e6));
	}
	json_object_set_new(object, "reason", json_string(event->reason));
	return object;
}

static int print(json_t *value, size_t flags)
{
	int failed;

	if (value == NULL) {
		fputs("flytunectl: out of memory\n", stderr);
		return -1;
	}
	failed = json_dumpf(value, stdout, flags | JSON_REAL_PRECISION(REAL_DIGITS));
	fputs("\n", stdout);
	json_decref(value);
	return failed;
}

int json_print(json_t *value)
{
	return print(value, JSON_INDENT(2));
}

int json_print_line(json_t *value)
{
	return print(value, JSON_COMPACT);
}

void json_print_error(const struct flytune_error *error)
{
	json_print(json_pack("{s:{s:s, s:s, s:s, s:s, s:s}}", "error", "code", error->word, "message",
	        error->message, "field", error->field, "value", error->value, "bound", error->bound));
}
