/* The methods that look up: one problem, or many in one message. */
#ifndef FLYTUNE_DAEMON_METHODS_LOOKUP_H
#define FLYTUNE_DAEMON_METHODS_LOOKUP_H

#include "daemon/answers/lookup.h"
#include "daemon/answers/miss.h"
#include "daemon/answers/reply_cache.h"
#include "daemon/host/histogram.h"
#include "daemon/methods/parked.h"

struct lookups {
	struct context *context;
	struct parked *parked;
	struct misses misses;
	struct replies replies;
	uint64_t by_source[LOOKUP_SOURCES];
	uint64_t refused;         /* ended in an error */
	struct histogram latency; /* see lookups_add_untimed */
	uint64_t timed_ns;        /* of the last one answered at once that was timed: one in some */
	uint32_t untimed;         /* ones like it that are still to be added */
	uint64_t batch_began_ns;  /* monotonic; of this batch of requests, once it has a lookup */
	uint32_t batch_count;
	bool too_early;          /* one that names a generation found its device not probed yet */
	struct ft_answer answer; /* of the one being answered: large, so not on the stack of each */
	struct target target;
};

method_call method_lookup, method_lookup_many;

int lookups_init(
        struct lookups *lookups, struct context *context, struct parked *parked, struct ft_error *error);
void lookups_free(struct lookups *lookups);
/* All that one read brought. True if it was one lookup whose answer is known: `out` has that then, as after the method and
 * lookups_batch_end. */
bool lookups_at_once(struct lookups *lookups, struct session *session, struct ft_view bytes);
void lookups_batch_end(struct lookups *lookups);
/* Before `latency` is read. */
void lookups_add_untimed(struct lookups *lookups);

/* Answers one into lookups->answer, about lookups->target. *known is false if the store cannot be asked just now: then it
 * is what is served meanwhile, or fails for that. */
int lookups_answer(struct lookups *lookups, const struct ft_lookup_request *request,
        struct lookup_basis *basis, bool *known, struct ft_error *error);

#endif
