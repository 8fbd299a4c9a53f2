/* Reads jobs and events off the wire into their public form. */
#ifndef FLYTUNE_CLIENT_JOB_H
#define FLYTUNE_CLIENT_JOB_H

#include "client/lib/handle.h"

enum flytune_state job_state(const char *word);
/* `store` gave it its number. */
void job_show(const struct ft_job *job, const char *store, struct flytune_job *shown);
/* What names a job of this problem, as flytune_tune gives it. */
void job_name(struct flytune_job *job, const flytune_problem *problem, uint64_t number, const char *store);
/* The request for a job that a caller named; NULL: for all. False if the size is not set. */
bool job_request(const struct flytune_job *named, struct ft_job_request *request);

#endif
