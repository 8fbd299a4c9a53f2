/* Replies: encoded answers, kept for when the very same question comes again.
 *
 * A table of a fixed size, found by the bytes of a lookup's params, so that a repeated question is not even decoded. An
 * answer stands while its stripe's word on the board does (proto/board.h). The generation that an answer gives is the
 * store's at the time of asking, so it is left out of what is kept. Replies lie one behind the other in the order in which
 * they first came, so that few questions take little memory and are near each other; nothing is allocated on a
 * lookup's way. */
#ifndef FLYTUNE_DAEMON_REPLY_CACHE_H
#define FLYTUNE_DAEMON_REPLY_CACHE_H

#include "daemon/answers/board.h"
#include "daemon/answers/miss.h"
#include "proto/writer.h"

enum {
	REPLIES_WAYS = 4,
	REPLIES_SETS = 2048,
	REPLY_SIZE = 512,
	REPLY_ROOM = REPLY_SIZE - 28, /* for question and answer; what is larger is not kept */
};

struct reply {
	uint64_t version;
	uint32_t stripe;
	struct miss_place miss; /* where it is counted, if it is none that was tuned */
	uint16_t question;      /* bytes */
	uint16_t before;        /* of the answer up to the value of its generation */
	uint16_t after;         /* and from behind it */
	uint8_t source;         /* enum lookup_source */
	uint8_t uncounted; /* times it was given since its place among the misses went to another problem */
	uint8_t bytes[REPLY_ROOM];
};

_Static_assert(sizeof(struct reply) == REPLY_SIZE, "a reply fills its place");

/* Where the reply to a question is; a set of them fills a line of the cache. */
struct reply_place {
	uint64_t hash;  /* of the question; 0: free */
	uint32_t reply; /* counted from 1; 0: never used */
	bool used;      /* since its set last had to make room */
};

_Static_assert(sizeof(struct reply_place) * REPLIES_WAYS == 64, "a set fills a line");

struct replies {
	struct reply *reply;
	struct reply_place (*set)[REPLIES_WAYS];
	uint32_t count; /* replies in use; each place keeps the one that it got first */
};

int replies_init(struct replies *replies, struct ft_error *error);
void replies_free(struct replies *replies);
uint64_t replies_hash(struct ft_view question);
/* NULL if there is none that stands. It lives until the next is kept. */
struct reply *replies_find(
        const struct replies *replies, const struct board *board, struct ft_view question, uint64_t hash);
/* Appends the answer, as of a generation. */
void reply_write(const struct reply *reply, uint64_t generation, struct ft_writer *writer);
/* Appends a whole response of that, to the request of that id. */
void reply_respond(const struct reply *reply, uint32_t id, uint64_t generation, struct ft_writer *writer);
/* Keeps an encoded answer; NULL if it is too large. The caller fills in what is not of its encoding. */
struct reply *replies_keep(
        struct replies *replies, struct ft_view question, uint64_t hash, struct ft_view answer);

#endif
