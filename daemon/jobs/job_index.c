#include "daemon/jobs/job_index.h"

#include <stdlib.h>
#include <string.h>

uint32_t job_index_place(const struct job_index *table, uint64_t id)
{
	uint32_t low = 0, high = table->active + table->ended;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (table->by_id[middle]->info.job < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool job_index_append(struct job_index *table, struct job *job)
{
	uint32_t count = table->active + table->ended;

	if (count == table->room) {
		uint32_t room = table->room > 0 ? 2 * table->room : 64;
		struct job **grown = realloc(table->by_id, room * sizeof(struct job *));

		if (grown == NULL)
			return false;
		table->by_id = grown;
		table->room = room;
	}
	if (count > 0)
		table->by_id[count - 1]->next = job;
	else
		table->first = job;
	table->by_id[count] = job;
	if (job->state == JOB_OVER)
		table->ended++;
	else
		table->active++;
	return true;
}

void job_index_remove(struct job_index *table, struct job *job)
{
	uint32_t index = job_index_place(table, job->info.job);
	uint32_t behind = table->active + table->ended - index - 1;

	if (index > 0)
		table->by_id[index - 1]->next = job->next;
	else
		table->first = job->next;
	memmove(table->by_id + index, table->by_id + index + 1, behind * sizeof(struct job *));
	if (job->state == JOB_OVER)
		table->ended--;
	else
		table->active--;
}

struct job *job_index_find(const struct job_index *table, uint64_t id)
{
	uint32_t index = job_index_place(table, id);

	return index < table->active + table->ended && table->by_id[index]->info.job == id
	        ? table->by_id[index]
	        : NULL;
}

void job_index_free(struct job_index *table)
{
	while (table->first != NULL) {
		struct job *job = table->first;

		table->first = job->next;
		job_free(job);
	}
	free(table->by_id);
	table->by_id = NULL;
}
