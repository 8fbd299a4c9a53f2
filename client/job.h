/* Reads jobs and events off the wire into their public form. */
#ifndef FLYTUNE_CLIENT_JOB_H
#define FLYTUNE_CLIENT_JOB_H

#include "client/handle.h"

enum flytune_state job_state(const char *word);
void job_show(const struct ft_job *job, struct flytune_job *shown);

#endif
