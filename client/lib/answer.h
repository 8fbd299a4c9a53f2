/* Makes the public answer out of the daemon's. */
#ifndef FLYTUNE_CLIENT_ANSWER_H
#define FLYTUNE_CLIENT_ANSWER_H

#include "client/lib/handle.h"

/* FLYTUNE_SOURCE_UNKNOWN for a word of a newer daemon. */
enum flytune_source answer_source(const char *word);
/* Shows the knobs of a config. Fails when out of memory. */
int answer_knobs(const struct ft_config *config, struct flytune_knob knob[FLYTUNE_KNOBS_MAX], uint32_t *count,
        struct ft_error *error);
/* And adds a caller's knobs to a config. */
int answer_config(
        const struct flytune_knob *knob, size_t count, struct ft_config *config, struct ft_error *error);

/* A caller's room for a config that is a document. */
struct answer_room {
	char *room;
	size_t size; /* 0: there is none */
};

/* From a message's `answer`, under the store that the connection serves; with how long it stands, unless `terms` is
 * NULL. */
int answer_read(struct ft_view data, const struct connection *connection, struct flytune_answer *answer,
        const struct answer_room *document, struct cache_terms *terms, struct ft_error *error);

#endif
