#include "daemon/replies.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const size_t table_bytes = (size_t)REPLIES_SETS * REPLIES_WAYS * sizeof(struct reply);

int replies_init(struct replies *replies, struct ft_error *error)
{
	void *memory = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	replies->set = NULL;
	if (memory == MAP_FAILED)
		return ft_fail_errno(error, errno, "no memory for the table of replies");
	/* One question must not cost two megabytes. */
	(void)madvise(memory, table_bytes, MADV_NOHUGEPAGE);
	replies->set = memory;
	return 0;
}

void replies_free(struct replies *replies)
{
	if (replies->set != NULL)
		(void)munmap(replies->set, table_bytes);
	replies->set = NULL;
}

uint64_t replies_hash(struct ft_view question)
{
	uint64_t hash = XXH3_64bits(question.data, question.length);

	return hash != 0 ? hash : 1;
}

static bool is_of(const struct reply *reply, struct ft_view question, uint64_t hash)
{
	return reply->hash == hash && reply->question == question.length &&
	        memcmp(reply->bytes, question.data, question.length) == 0;
}

struct reply *replies_find(
        const struct replies *replies, const struct board *board, struct ft_view question, uint64_t hash)
{
	struct reply *set = replies->set[hash % REPLIES_SETS];

	for (int way = 0; way < REPLIES_WAYS; way++) {
		if (!is_of(&set[way], question, hash))
			continue;
		if (board_version(board, set[way].stripe) != set[way].version)
			return NULL;
		set[way].used = true;
		return &set[way];
	}
	return NULL;
}

void reply_write(const struct reply *reply, uint64_t generation, struct ft_writer *writer)
{
	const uint8_t *answer = reply->bytes + reply->question;

	ft_write_raw(writer, answer, reply->before);
	ft_write_uint(writer, generation);
	ft_write_raw(writer, answer + reply->before, reply->after);
}

/* Where the value of the generation stands in an encoded answer. */
static bool find_generation(struct ft_view answer, size_t *start, size_t *end)
{
	static const char name[] = "generation";
	struct ft_cursor cursor = ft_cursor_of(answer.data, answer.length);
	uint32_t pairs;

	if (!ft_read_map(&cursor, &pairs))
		return false;
	for (uint32_t i = 0; i < pairs; i++) {
		struct ft_view value;
		const char *text;
		size_t length;
		bool found;

		if (!ft_read_text(&cursor, &text, &length))
			return false;
		found = length == sizeof(name) - 1 && memcmp(text, name, length) == 0;
		*start = (size_t)(cursor.at - answer.data);
		if (!ft_read_view(&cursor, &value))
			return false;
		*end = (size_t)(cursor.at - answer.data);
		if (found)
			return true;
	}
	return false;
}

struct reply *replies_keep(
        struct replies *replies, struct ft_view question, uint64_t hash, struct ft_view answer)
{
	struct reply *set = replies->set[hash % REPLIES_SETS];
	struct reply *place = NULL;
	size_t start, end;

	if (question.length > REPLY_ROOM || answer.length > REPLY_ROOM - question.length ||
	        !find_generation(answer, &start, &end))
		return NULL;
	for (int way = 0; way < REPLIES_WAYS && place == NULL; way++) {
		if (set[way].hash == 0 || is_of(&set[way], question, hash))
			place = &set[way];
	}
	/* The first that was not asked for since the last one made room. */
	for (int way = 0; way < REPLIES_WAYS && place == NULL; way++) {
		if (!set[way].used)
			place = &set[way];
		set[way].used = false;
	}
	if (place == NULL)
		place = &set[hash / REPLIES_SETS % REPLIES_WAYS];
	place->hash = hash;
	place->question = (uint16_t)question.length;
	place->before = (uint16_t)start;
	place->after = (uint16_t)(answer.length - end);
	place->used = false;
	memcpy(place->bytes, question.data, question.length);
	memcpy(place->bytes + question.length, answer.data, start);
	memcpy(place->bytes + question.length + start, answer.data + end, place->after);
	return place;
}
