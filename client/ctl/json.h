/* What --json prints: answers, jobs, trials and errors as JSON objects. Times are microseconds.
 *
 * Functions give a new reference, NULL when out of memory. */
#ifndef FLYTUNE_CTL_JSON_H
#define FLYTUNE_CTL_JSON_H

#include <jansson.h>

#include <flytune/client.h>

json_t *json_config(const struct flytune_knob *knob, uint32_t count);
json_t *json_problem(const flytune_problem *problem);
json_t *json_values(const struct flytune_value *value, uint32_t count);
json_t *json_answer(const flytune_problem *problem, const struct flytune_answer *answer);
json_t *json_job(const struct flytune_job *job);
json_t *json_trial(const struct flytune_trial *trial);
json_t *json_device(const struct flytune_device *device);
json_t *json_devices(const flytune_device_list *devices);
json_t *json_event(const struct flytune_event *event);

/* A number of microseconds; null for 0. */
json_t *json_us(uint64_t ps);
/* A text; null for "". */
json_t *json_text(const char *text);

/* Prints a value, takes the reference. 0, or -1 when out of memory. */
int json_print(json_t *value);
/* The same on one line, for streams of objects. */
int json_print_line(json_t *value);
void json_print_error(const struct flytune_error *error);

#endif
