/* All jobs, by id: as a list, and as an array to find one in. */
#ifndef FLYTUNE_DAEMON_JOB_INDEX_H
#define FLYTUNE_DAEMON_JOB_INDEX_H

#include "daemon/jobs/job.h"

struct job_index {
	struct job *first;
	struct job **by_id; /* the same */
	uint32_t room;      /* of by_id */
	uint32_t active, ended;
};

/* Where a job of this id is, or would be: ids only grow, so that the end is the place of a new one. */
uint32_t job_index_place(const struct job_index *table, uint64_t id);
struct job *job_index_find(const struct job_index *table, uint64_t id);
/* False for want of memory. */
bool job_index_append(struct job_index *table, struct job *job);
void job_index_remove(struct job_index *table, struct job *job);
/* And all jobs with it. */
void job_index_free(struct job_index *table);

#endif
