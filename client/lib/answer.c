#include "client/lib/answer.h"

#include <stdio.h>
#include <string.h>

#include "client/lib/words.h"

#include <flytune/admin.h>

static const struct {
	const char *word;
	int rank;
} sources[] = {
        [FLYTUNE_SOURCE_UNKNOWN] = {"unknown", 0},
        [FLYTUNE_SOURCE_PINNED] = {"pinned", 7},
        [FLYTUNE_SOURCE_TUNED] = {"tuned", 6},
        [FLYTUNE_SOURCE_IMPORTED] = {"imported", 4},
        [FLYTUNE_SOURCE_NEAREST] = {"nearest", 2},
        [FLYTUNE_SOURCE_DEFAULT] = {"default", 1},
        [FLYTUNE_SOURCE_FLEET] = {"fleet", 5},
        [FLYTUNE_SOURCE_RECORDED] = {"recorded", 3},
};

enum { SOURCE_COUNT = sizeof sources / sizeof *sources };

const char *flytune_source_word(enum flytune_source source)
{
	return (size_t)source < SOURCE_COUNT ? sources[source].word : "unknown";
}

int flytune_source_rank(enum flytune_source source)
{
	return (size_t)source < SOURCE_COUNT ? sources[source].rank : 0;
}

enum flytune_source answer_source(const char *word)
{
	for (size_t i = 1; i < SOURCE_COUNT; i++) {
		if (strcmp(sources[i].word, word) == 0)
			return (enum flytune_source)i;
	}
	return FLYTUNE_SOURCE_UNKNOWN;
}

int64_t flytune_answer_get(const struct flytune_answer *answer, const char *knob, int64_t otherwise)
{
	if (answer == NULL || knob == NULL)
		return otherwise;
	for (uint32_t i = 0; i < answer->knob_count && i < FLYTUNE_KNOBS_MAX; i++) {
		if (strcmp(answer->knob[i].name, knob) == 0)
			return answer->knob[i].word == NULL ? answer->knob[i].value : otherwise;
	}
	return otherwise;
}

const char *flytune_answer_word(const struct flytune_answer *answer, const char *knob)
{
	if (answer == NULL || knob == NULL)
		return NULL;
	for (uint32_t i = 0; i < answer->knob_count && i < FLYTUNE_KNOBS_MAX; i++) {
		if (strcmp(answer->knob[i].name, knob) == 0)
			return answer->knob[i].word;
	}
	return NULL;
}

int answer_knobs(const struct ft_config *config, struct flytune_knob knob[FLYTUNE_KNOBS_MAX], uint32_t *count,
        struct ft_error *error)
{
	for (uint32_t i = 0; i < config->count; i++) {
		const struct ft_knob_value *own = &config->knob[i];

		/* Names end early: equal answers are to be equal bytes. */
		memset(knob[i].name, 0, sizeof knob[i].name);
		memcpy(knob[i].name, own->name, strlen(own->name));
		knob[i].value = own->value;
		knob[i].word = own->word[0] != '\0' ? words_keep(own->word) : NULL;
		if (knob[i].word == NULL && own->word[0] != '\0')
			return ft_fail(error, FT_E_MEMORY, "no room for the word of a knob");
	}
	*count = config->count;
	return 0;
}

int answer_config(
        const struct flytune_knob *knob, size_t count, struct ft_config *config, struct ft_error *error)
{
	for (size_t i = 0; i < count; i++) {
		/* A caller's name need not end where it should. */
		if (memchr(knob[i].name, '\0', sizeof knob[i].name) == NULL)
			return ft_fail(error, FT_E_BAD_VALUE, "knob number %zu has no name under %d bytes",
			        i + 1, FLYTUNE_NAME_SIZE);
		if (ft_config_find(config, knob[i].name) != NULL)
			return ft_fail_field(
			        error, FT_E_BAD_REQUEST, knob[i].name, "given twice", "given once");
		if ((knob[i].word != NULL ? ft_config_set_word(config, knob[i].name, knob[i].word, error)
		                          : ft_config_set(config, knob[i].name, knob[i].value, error)) != 0)
			return -1;
	}
	return 0;
}

int answer_read(struct ft_view data, const struct connection *connection, struct flytune_answer *answer,
        const struct answer_room *document, struct cache_terms *terms, struct ft_error *error)
{
	struct ft_answer read;
	double default_time_ns;

	if (ft_decode(&ft_answer_message, data, &read, error) != 0)
		return -1;
	memset(answer, 0, sizeof *answer);
	answer->size = sizeof *answer;
	answer->source = answer_source(read.source);
	snprintf(answer->reason, sizeof answer->reason, "%s", read.reason);
	snprintf(answer->device, sizeof answer->device, "%s", read.device);
	snprintf(answer->store, sizeof answer->store, "%s", connection->hello.store);
	snprintf(answer->identity, sizeof answer->identity, "%s", read.identity);
	answer->generation = read.generation;
	answer->time_ns = read.time_ns;
	answer->gain_ppm = read.gain_ppm;
	default_time_ns = (double)read.time_ns * (double)read.gain_ppm / 1e6 + 0.5;
	answer->default_time_ns = default_time_ns < 0x1p63 ? (uint64_t)default_time_ns : UINT64_MAX;
	answer->gain_least_ppm = read.gain_least_ppm;
	answer->seen_ppm = read.seen_ppm;
	answer->order_class = read.order_class;
	answer->unsettled = read.unsettled;
	answer->tuned_at_ns = read.tuned_at_ns;
	answer->tuned_scale = read.tuned_scale;
	answer->revision = read.revision;
	answer->document_length = read.config.document_length;
	if (answer_knobs(&read.config, answer->knob, &answer->knob_count, error) != 0)
		return -1;
	if (document != NULL && document->size > 0) {
		size_t length = read.config.document_length < document->size ? read.config.document_length
		                                                             : document->size - 1;

		if (length > 0)
			memcpy(document->room, read.config.document, length);
		document->room[length] = '\0';
	}
	if (terms != NULL) {
		bool of_board = read.stripe > 0 && read.stripe <= FT_BOARD_STRIPES;

		*terms = (struct cache_terms){
		        .serial = of_board ? connection->board : 0,
		        .stripe = of_board ? (uint32_t)(read.stripe - 1) : 0,
		        .version = read.version,
		};
	}
	return 0;
}
