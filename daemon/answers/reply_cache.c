#include "daemon/answers/reply_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { REPLIES = REPLIES_SETS * REPLIES_WAYS };

static const size_t reply_bytes = (size_t)REPLIES * sizeof(struct reply);
static const size_t table_bytes = (size_t)REPLIES * (sizeof(struct reply) + sizeof(struct reply_place));

int replies_init(struct replies *replies, struct ft_error *error)
{
	uint8_t *memory = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	*replies = (struct replies){.reply = NULL};
	if (memory == MAP_FAILED)
		return ft_fail_errno(error, errno, "no memory for the table of replies");
	/* One question must not cost two megabytes. */
	(void)madvise(memory, table_bytes, MADV_NOHUGEPAGE);
	replies->reply = (struct reply *)(void *)memory;
	replies->set = (struct reply_place(*)[REPLIES_WAYS])(void *)(memory + reply_bytes);
	return 0;
}

void replies_free(struct replies *replies)
{
	if (replies->reply != NULL)
		(void)munmap(replies->reply, table_bytes);
	replies->reply = NULL;
}

uint64_t replies_hash(struct ft_view question)
{
	uint64_t hash = XXH3_64bits(question.data, question.length);

	return hash != 0 ? hash : 1;
}

static struct reply *reply_at(const struct replies *replies, const struct reply_place *place)
{
	return &replies->reply[place->reply - 1];
}

static bool is_of(const struct replies *replies, const struct reply_place *place, struct ft_view question,
        uint64_t hash)
{
	const struct reply *reply;

	if (place->hash != hash)
		return false;
	reply = reply_at(replies, place);
	return reply->question == question.length &&
	        memcmp(reply->bytes, question.data, question.length) == 0;
}

/* All that will be read of it, at once: it was last read some other question ago. */
static void fetch(const struct reply *reply)
{
	for (size_t at = 0; at < REPLY_SIZE; at += 64)
		__builtin_prefetch((const uint8_t *)reply + at);
}

struct reply *replies_find(
        const struct replies *replies, const struct board *board, struct ft_view question, uint64_t hash)
{
	struct reply_place *set = replies->set[hash % REPLIES_SETS];

	for (int way = 0; way < REPLIES_WAYS; way++) {
		struct reply *reply;

		if (set[way].hash != hash)
			continue;
		reply = reply_at(replies, &set[way]);
		fetch(reply);
		if (!is_of(replies, &set[way], question, hash))
			continue;
		if (board_version(board, reply->stripe) != reply->version)
			return NULL;
		set[way].used = true;
		return reply;
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

void reply_respond(const struct reply *reply, uint32_t id, uint64_t generation, struct ft_writer *writer)
{
	const uint8_t *answer = reply->bytes + reply->question;

	ft_write_response_around(writer, id, (struct ft_view){answer, reply->before}, generation,
	        (struct ft_view){answer + reply->before, reply->after});
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

/* A place of its own, a free one, or the first that was not asked for since the last one made room. */
static struct reply_place *choose(
        const struct replies *replies, struct reply_place *set, struct ft_view question, uint64_t hash)
{
	struct reply_place *place = NULL;

	for (int way = 0; way < REPLIES_WAYS; way++) {
		if (set[way].hash == 0 || is_of(replies, &set[way], question, hash))
			return &set[way];
	}
	for (int way = 0; way < REPLIES_WAYS && place == NULL; way++) {
		if (!set[way].used)
			place = &set[way];
		set[way].used = false;
	}
	return place != NULL ? place : &set[hash / REPLIES_SETS % REPLIES_WAYS];
}

struct reply *replies_keep(
        struct replies *replies, struct ft_view question, uint64_t hash, struct ft_view answer)
{
	struct reply_place *place;
	struct reply *reply;
	size_t start, end;

	if (question.length > REPLY_ROOM || answer.length > REPLY_ROOM - question.length ||
	        !find_generation(answer, &start, &end))
		return NULL;
	place = choose(replies, replies->set[hash % REPLIES_SETS], question, hash);
	if (place->reply == 0)
		place->reply = ++replies->count;
	place->hash = hash;
	place->used = false;
	reply = reply_at(replies, place);
	reply->question = (uint16_t)question.length;
	reply->before = (uint16_t)start;
	reply->after = (uint16_t)(answer.length - end);
	memcpy(reply->bytes, question.data, question.length);
	memcpy(reply->bytes + question.length, answer.data, start);
	memcpy(reply->bytes + question.length + start, answer.data + end, reply->after);
	return reply;
}
