#include "daemon/jobs/candidate.h"

#include <stdlib.h>
#include <string.h>

/* Of the list: [LIST_VERSION, [[cause, kernel, device, asked, problem], ...]]. */
enum { LIST_VERSION = 1, LIST_FIELDS = 5 };

const char *const candidate_cause_words[CANDIDATE_CAUSES] = {
        [CANDIDATE_MISS] = "miss",
        [CANDIDATE_BUSY] = "busy",
        [CANDIDATE_GROWN] = "grown",
        [CANDIDATE_UPGRADE] = "upgrade",
};

static int more_asked_first(const void *a, const void *b)
{
	const struct candidate *left = *(const struct candidate *const *)a;
	const struct candidate *right = *(const struct candidate *const *)b;

	if (left->asked != right->asked)
		return left->asked > right->asked ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

static void write_candidate(struct ft_writer *writer, const struct candidate *candidate)
{
	ft_write_array(writer, LIST_FIELDS);
	ft_write_text(writer, candidate_cause_words[candidate->cause]);
	ft_write_text(writer, candidate->kernel);
	ft_write_text(writer, candidate->device);
	ft_write_uint(writer, candidate->asked);
	ft_write_problem(writer, &candidate->problem);
}

int candidates_write(struct ft_writer *writer, const struct candidate *candidate, uint32_t count,
        const struct candidate *more, uint32_t more_count)
{
	const struct candidate **sorted = calloc((size_t)count + more_count + 1, sizeof(struct candidate *));
	uint32_t listed = 0;

	if (sorted == NULL)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		if (candidate[i].pause.length_ns == 0)
			sorted[listed++] = &candidate[i];
	}
	for (uint32_t i = 0; i < more_count; i++)
		sorted[listed++] = &more[i];
	qsort(sorted, listed, sizeof(struct candidate *), more_asked_first);
	if (listed > CANDIDATES_LISTED)
		listed = CANDIDATES_LISTED;
	ft_write_array(writer, 2);
	ft_write_uint(writer, LIST_VERSION);
	ft_write_array(writer, listed);
	for (uint32_t i = 0; i < listed; i++)
		write_candidate(writer, sorted[i]);
	free(sorted);
	return ft_writer_ok(writer) ? 0 : -1;
}

static bool read_candidate(struct ft_cursor *cursor, struct candidate *candidate)
{
	char cause[FT_NAME_SIZE];
	uint32_t fields;

	*candidate = (struct candidate){.cause = CANDIDATE_CAUSES};
	if (!ft_read_array(cursor, &fields) || fields != LIST_FIELDS ||
	        !ft_read_text_into(cursor, cause, sizeof(cause)) ||
	        !ft_read_text_into(cursor, candidate->kernel, sizeof(candidate->kernel)) ||
	        !ft_read_text_into(cursor, candidate->device, sizeof(candidate->device)) ||
	        !ft_read_uint(cursor, &candidate->asked) ||
	        ft_read_problem(cursor, &candidate->problem, NULL) != 0)
		return false;
	for (int i = 0; i < CANDIDATE_CAUSES; i++) {
		if (strcmp(cause, candidate_cause_words[i]) == 0)
			candidate->cause = (enum candidate_cause)i;
	}
	return candidate->cause != CANDIDATE_CAUSES;
}

uint32_t candidates_read(struct ft_view list, struct candidate **candidate)
{
	struct ft_cursor cursor = ft_cursor_of(list.data, list.length);
	uint64_t version;
	uint32_t two;
	uint32_t listed;
	uint32_t count = 0;

	*candidate = NULL;
	if (!ft_read_array(&cursor, &two) || two != 2 || !ft_read_uint(&cursor, &version) ||
	        version != LIST_VERSION || !ft_read_array(&cursor, &listed))
		return 0;
	if (listed > CANDIDATES_LISTED)
		listed = CANDIDATES_LISTED;
	*candidate = calloc(listed + 1, sizeof(**candidate));
	while (*candidate != NULL && count < listed && read_candidate(&cursor, &(*candidate)[count])) {
		(*candidate)[count].number = count;
		count++;
	}
	return count;
}
