/* All jobs, by id: as a list, and as an array to find one in. */
#ifndef FLYTUNE_DAEMON_JOB_TABLE_H
#define FLYTUNE_DAEMON_JOB_TABLE_H

#include "daemon/jobs/job.h"

struct job_table {
	struct job *first;
	struct job **by_id; /* the same */
	uint32_t room;      /* of by_id */
	uint32_t active, ended;
};

/* Where a job of this id is, or would be: ids only grow, so that the end is the place of a new one. */
uint32_t job_table_index(const struct job_table *table, uint64_t id);
struct job *job_table_find(const struct job_table *table, uint64_t id);
/* False for want of memory. */
bool job_table_append(struct job_table *table, struct job *job);
void job_table_remove(struct job_table *table, struct job *job);
/* And all jobs with it. */
void job_table_free(struct job_table *table);

#endif
