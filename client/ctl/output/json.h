/* What --json prints: answers, jobs, trials and errors as JSON objects, as JSON.md lists them: no member of one is ever left
 * out. Times are microseconds.
 *
 * Those called _members write into the object that is open, so that more can stand beside them. */
#ifndef FLYTUNE_CTL_JSON_H
#define FLYTUNE_CTL_JSON_H

#include <flytune/admin.h>

#include "client/ctl/output/document.h"

/* An integer or a word. */
void json_knob(struct document *json, const char *name, const struct flytune_knob *knob);
void json_config(struct document *json, const char *name, const struct flytune_knob *knob, uint32_t count);
void json_problem(struct document *json, const char *name, const flytune_problem *problem);
void json_values(struct document *json, const char *name, const struct flytune_value *value, uint32_t count);
/* Millionths as a real number; null where there are none. */
void json_share(struct document *json, const char *name, uint64_t ppm);
/* "gain", the default's time over the answer's, "gain_least" and "unsettled"; null where it is not known. */
void json_gain(
        struct document *json, uint64_t time, uint64_t default_time, uint64_t least_ppm, int unsettled);
void json_answer_members(
        struct document *json, const flytune_problem *problem, const struct flytune_answer *answer);
/* The same members where there is no answer. */
void json_no_answer_members(
        struct document *json, const flytune_problem *problem, const char *device, const char *reason);
void json_job(struct document *json, const char *name, const struct flytune_job *job);
void json_trial(struct document *json, const char *name, const struct flytune_trial *trial);
void json_devices(struct document *json, const char *name, const flytune_device_list *devices);
void json_event(struct document *json, const char *name, const struct flytune_event *event);
void json_error(struct document *json, const char *name, const struct flytune_error *error);

/* A number of microseconds; null for 0. */
void json_us(struct document *json, const char *name, uint64_t ps);
/* A text; null for "". */
void json_text(struct document *json, const char *name, const char *text);
/* A date; null for 0. */
void json_date(struct document *json, const char *name, uint64_t at_ns);

#endif
