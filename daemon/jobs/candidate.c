#include "daemon/jobs/candidate.h"

#include <stdlib.h>
#include <string.h>

/* Of the list: [LIST_VERSION, [[cause, kernel, device, asked, problem], ...]]. */
enum { LIST_VERSION = 1, LIST_FIELDS = 5 };

const char *const wish_cause_words[WISH_CAUSES] = {
        [WISH_MISS] = "miss",
        [WISH_BUSY] = "busy",
        [WISH_GROWN] = "grown",
        [WISH_UPGRADE] = "upgrade",
};

static int more_asked_first(const void *a, const void *b)
{
	const struct wish *left = *(const struct wish *const *)a;
	const struct wish *right = *(const struct wish *const *)b;

	if (left->asked != right->asked)
		return left->asked > right->asked ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number;
}

static void write_wish(struct ft_writer *writer, const struct wish *wish)
{
	ft_write_array(writer, LIST_FIELDS);
	ft_write_text(writer, wish_cause_words[wish->cause]);
	ft_write_text(writer, wish->kernel);
	ft_write_text(writer, wish->device);
	ft_write_uint(writer, wish->asked);
	ft_write_problem(writer, &wish->problem);
}

int wishes_write(struct ft_writer *writer, const struct wish *wish, uint32_t count, const struct wish *more,
        uint32_t more_count)
{
	const struct wish **sorted = calloc((size_t)count + more_count + 1, sizeof(struct wish *));
	uint32_t listed = 0;

	if (sorted == NULL)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		if (wish[i].pause.length_ns == 0)
			sorted[listed++] = &wish[i];
	}
	for (uint32_t i = 0; i < more_count; i++)
		sorted[listed++] = &more[i];
	qsort(sorted, listed, sizeof(struct wish *), more_asked_first);
	if (listed > WISHES_LISTED)
		listed = WISHES_LISTED;
	ft_write_array(writer, 2);
	ft_write_uint(writer, LIST_VERSION);
	ft_write_array(writer, listed);
	for (uint32_t i = 0; i < listed; i++)
		write_wish(writer, sorted[i]);
	free(sorted);
	return ft_writer_ok(writer) ? 0 : -1;
}

static bool read_wish(struct ft_cursor *cursor, struct wish *wish)
{
	char cause[FT_NAME_SIZE];
	uint32_t fields;

	*wish = (struct wish){.cause = WISH_CAUSES};
	if (!ft_read_array(cursor, &fields) || fields != LIST_FIELDS ||
	        !ft_read_text_into(cursor, cause, sizeof(cause)) ||
	        !ft_read_text_into(cursor, wish->kernel, sizeof(wish->kernel)) ||
	        !ft_read_text_into(cursor, wish->device, sizeof(wish->device)) ||
	        !ft_read_uint(cursor, &wish->asked) || ft_read_problem(cursor, &wish->problem, NULL) != 0)
		return false;
	for (int i = 0; i < WISH_CAUSES; i++) {
		if (strcmp(cause, wish_cause_words[i]) == 0)
			wish->cause = (enum wish_cause)i;
	}
	return wish->cause != WISH_CAUSES;
}

uint32_t wishes_read(struct ft_view list, struct wish **wish)
{
	struct ft_cursor cursor = ft_cursor_of(list.data, list.length);
	uint64_t version;
	uint32_t two;
	uint32_t listed;
	uint32_t count = 0;

	*wish = NULL;
	if (!ft_read_array(&cursor, &two) || two != 2 || !ft_read_uint(&cursor, &version) ||
	        version != LIST_VERSION || !ft_read_array(&cursor, &listed))
		return 0;
	if (listed > WISHES_LISTED)
		listed = WISHES_LISTED;
	*wish = calloc(listed + 1, sizeof(**wish));
	while (*wish != NULL && count < listed && read_wish(&cursor, &(*wish)[count])) {
		(*wish)[count].number = count;
		count++;
	}
	return count;
}
