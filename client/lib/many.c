/* The lookup of a list of problems: what is not kept is asked for in messages of many lookups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/answer.h"
#include "client/lib/away.h"
#include "client/lib/cancel.h"
#include "client/lib/lookup.h"
#include "client/lib/outcome.h"
#include "client/lib/sized.h"

enum {
	MESSAGE_BYTES = (1 << 20) - 4096, /* of lookups, that the daemon still takes in one message */
};

/* A place of the list that the daemon has to be asked for. */
struct asked {
	uint32_t place;
	uint32_t repeats; /* that ride along */
	struct lookup_sweep sweep;
	bool swept;
};

struct many {
	flytune_client *client;
	flytune_problem *const *problem;
	const char *device;
	char *answers; /* the caller's, `stride` bytes each */
	size_t stride;
	struct flytune_error *errors; /* the caller's, or NULL */
	struct flytune_error *out;    /* takes the first failure; may be NULL */
	enum flytune_result code;     /* of the first failure */
	uint64_t deadline;
	struct asked *asked;
	size_t count; /* of asked */
};

/* ---- what the caller gets ---- */

static struct flytune_answer *answer_of(const struct many *many, size_t place)
{
	return (struct flytune_answer *)(void *)(many->answers + place * many->stride);
}

static void answered(const struct many *many, const struct asked *asked, struct lookup *lookup)
{
	if (!asked->swept)
		lookup->answer.flags |= FLYTUNE_ANSWER_UNSWEPT;
	sized_out(answer_of(many, asked->place), &lookup->answer, sizeof lookup->answer);
}

static void failed(struct many *many, const struct asked *asked, const struct ft_error *error)
{
	struct flytune_answer none = {0};

	sized_out(answer_of(many, asked->place), &none, sizeof none);
	if (many->errors != NULL)
		outcome(&many->errors[asked->place], error);
	if (many->code == FLYTUNE_OK)
		many->code = outcome(many->out, error);
}

static void conclude(struct many *many, const struct asked *asked, struct lookup *lookup, int result,
        struct ft_error *error)
{
	if (result == 0)
		answered(many, asked, lookup);
	else
		failed(many, asked, error);
}

static void lookup_of(const struct many *many, const struct asked *asked, struct lookup *lookup)
{
	lookup->client = many->client;
	lookup->key = cache_key(many->problem[asked->place], many->device);
	lookup->deadline = many->deadline;
	lookup->document = NULL;
	lookup->swept = asked->swept && many->client->autotune == FLYTUNE_AUTOTUNE_FORCE;
	lookup->answer.flags = 0;
}

/* ---- one message ---- */

/* Those of one message that the daemon did not answer. `heard`: it counted their repeats. */
static void answer_alone(
        struct many *many, struct asked *first, size_t count, bool heard, const struct ft_error *why)
{
	struct lookup lookup;

	for (size_t i = 0; i < count; i++) {
		struct ft_error error = *why;

		lookup_of(many, &first[i], &lookup);
		if (!heard)
			lookup_unheard(&lookup, first[i].repeats);
		if (outcome_is_callers(why))
			failed(many, &first[i], why);
		else
			conclude(many, &first[i], &lookup,
			        away_answer(lookup.client, &lookup.key, &lookup.answer, &error), &error);
	}
}

/* A daemon that does not know of lists. */
static void answer_one_by_one(struct many *many, struct asked *first, size_t count)
{
	struct ft_error error;
	struct lookup lookup;

	for (size_t i = 0; i < count; i++) {
		lookup_of(many, &first[i], &lookup);
		lookup_unheard(&lookup, first[i].repeats);
		conclude(many, &first[i], &lookup, lookup_ask(&lookup, &error), &error);
	}
}

/* One element of the reply. Fails if it is neither an answer nor an error. */
static int take_answer(struct many *many, const struct connection *connection, struct ft_view data,
        const struct asked *asked, struct ft_error *error)
{
	struct ft_lookup_failure failure;
	struct cache_terms terms;
	struct ft_error refusal;
	struct lookup lookup;

	lookup_of(many, asked, &lookup);
	if (ft_decode(&ft_lookup_failure_message, data, &failure, error) != 0)
		return -1;
	if (failure.error.data != NULL) {
		ft_read_failure(failure.error, &refusal);
		if (outcome_is_callers(&refusal))
			failed(many, asked, &refusal);
		else
			conclude(many, asked, &lookup,
			        away_answer(lookup.client, &lookup.key, &lookup.answer, &refusal), &refusal);
		return 0;
	}
	if (answer_read(data, connection, &lookup.answer, NULL, &terms, error) != 0)
		return -1;
	lookup_keep(&lookup, &terms);
	answered(many, asked, &lookup);
	return 0;
}

/* How many elements could be taken, one after the other. */
static size_t take_answers(struct many *many, const struct connection *connection, struct ft_view body,
        const struct asked *first, size_t count, struct ft_error *error)
{
	struct ft_lookup_many_reply reply;
	struct ft_cursor cursor;
	struct ft_view data;
	uint32_t elements;
	size_t taken = 0;

	if (ft_decode(&ft_lookup_many_reply_message, body, &reply, error) != 0)
		return 0;
	cursor = ft_cursor_of(reply.answers.data, reply.answers.length);
	if (!ft_read_array(&cursor, &elements) || elements != count)
		return 0;
	while (taken < count && ft_read_view(&cursor, &data) &&
	        take_answer(many, connection, data, &first[taken], error) == 0)
		taken++;
	return taken;
}

static void ask_message(struct many *many, struct ft_view lookups, struct asked *first, size_t count)
{
	struct ft_lookup_many_request request = {.lookups = lookups};
	struct connection *connection;
	struct ft_envelope reply;
	struct ft_error error;
	enum call_result result;
	size_t taken;

	result = client_call(many->client, "lookup_many", &ft_lookup_many_request_message, &request,
	        many->deadline, many->client->token[0] != '\0', &connection, &reply, &error);
	if (result == CALL_REFUSED && outcome_code(error.code) == FLYTUNE_E_UNKNOWN_METHOD) {
		answer_one_by_one(many, first, count);
		return;
	}
	if (result != CALL_DONE) {
		answer_alone(many, first, count, false, &error);
		return;
	}
	taken = take_answers(many, connection, reply.body, first, count, &error);
	if (taken == count) {
		client_give(many->client, connection);
		return;
	}
	ft_fail(&error, FT_E_BAD_FRAME, "flytuned gave answers that this library cannot read");
	client_drop(many->client, connection, &error);
	answer_alone(many, first + taken, count - taken, true, &error);
}

/* Writes lookups until a message is full. */
static size_t write_lookups(struct many *many, struct asked *first, size_t count, struct ft_writer *writer)
{
	struct ft_lookup_request request;
	struct lookup lookup;
	size_t written = 0;

	ft_writer_reset(writer);
	/* The header of an array of so many; how many there are is put in at the end. */
	ft_write_array(writer, FT_LOOKUPS_MAX);
	while (written < count && written < FT_LOOKUPS_MAX) {
		size_t began = writer->length;

		lookup_of(many, &first[written], &lookup);
		lookup_prepare(&lookup, &request);
		first[written].repeats = (uint32_t)request.repeats;
		ft_encode(writer, &ft_lookup_request_message, &request);
		if (ft_writer_ok(writer) && writer->length > MESSAGE_BYTES && written > 0) {
			lookup_unheard(&lookup, first[written].repeats);
			writer->length = began;
			break;
		}
		written++;
	}
	if (ft_writer_ok(writer)) {
		writer->data[1] = (uint8_t)(written >> 8);
		writer->data[2] = (uint8_t)written;
	}
	return written;
}

static void ask_all(struct many *many)
{
	struct ft_writer writer;
	struct ft_error error;

	/* More than a message may have, so that the lookup that is one too many still fits. */
	ft_writer_init_growing(&writer, (size_t)2 * MESSAGE_BYTES);
	for (size_t done = 0, count; done < many->count; done += count) {
		count = write_lookups(many, many->asked + done, many->count - done, &writer);
		if (ft_writer_ok(&writer)) {
			ask_message(many, (struct ft_view){writer.data, writer.length}, many->asked + done,
			        count);
		} else {
			ft_fail(&error, FT_E_MEMORY, "out of memory");
			answer_alone(many, many->asked + done, count, false, &error);
		}
	}
	ft_writer_free(&writer);
}

/* ---- the list ---- */

/* All are queued before the first is waited for, so that the daemon can order them; the wait is one for all. */
static void sweep_all(struct many *many)
{
	uint64_t deadline = clock_after(many->client->autotune_timeout_ms);
	struct lookup lookup;

	for (size_t i = 0; i < many->count; i++) {
		lookup_of(many, &many->asked[i], &lookup);
		lookup_sweep_begin(&lookup, &many->asked[i].sweep);
	}
	for (size_t i = 0; i < many->count; i++) {
		lookup_of(many, &many->asked[i], &lookup);
		many->asked[i].swept = lookup_sweep_end(&lookup, &many->asked[i].sweep, deadline);
	}
}

static void answer_defaults(struct many *many)
{
	struct ft_error error;
	struct lookup lookup;
	int result;

	for (size_t i = 0; i < many->count; i++) {
		lookup_of(many, &many->asked[i], &lookup);
		result = away_default(many->client, lookup.key.problem, lookup.key.device, "autotune is off",
		        &lookup.answer, &error);
		lookup.answer.flags = 0;
		conclude(many, &many->asked[i], &lookup, result, &error);
	}
}

/* Answers what can be answered at once, and gives a list of the rest, many->count long, to be freed; NULL if there is no
 * rest, or no memory for it. */
static struct asked *look_at_once(struct many *many, size_t count)
{
	struct asked *rest = NULL;

	for (size_t i = 0; i < count; i++) {
		struct cache_key key = cache_key(many->problem[i], many->device);

		if (many->errors != NULL)
			memset(&many->errors[i], 0, sizeof many->errors[i]);
		if (many->client->autotune != FLYTUNE_AUTOTUNE_NEVER &&
		        lookup_at_once(many->client, &key, answer_of(many, i)))
			continue;
		many->count++;
		if (rest == NULL)
			rest = calloc(count - i, sizeof *rest);
		if (rest == NULL)
			return NULL;
		rest[many->count - 1] = (struct asked){.place = (uint32_t)i, .swept = true};
	}
	return rest;
}

static int check_list(size_t count, const struct many *many, struct ft_error *error)
{
	char value[24], bound[24];

	if (count > FLYTUNE_LOOKUPS_MAX) {
		snprintf(value, sizeof value, "%zu", count);
		snprintf(bound, sizeof bound, "at most %d", FLYTUNE_LOOKUPS_MAX);
		return ft_fail_field(error, FT_E_BAD_VALUE, "count", value, bound);
	}
	for (size_t i = 0; i < count; i++) {
		if (many->problem[i] == NULL) {
			snprintf(value, sizeof value, "problems[%zu]", i);
			return ft_fail_field(error, FT_E_BAD_VALUE, value, "NULL", "given");
		}
		if (many->stride < sizeof(size_t) || sized_length(answer_of(many, i)) != many->stride)
			return ft_fail(error, FT_E_BAD_REQUEST,
			        "the size of answer %zu is not set, or not that of the first: call "
			        "flytune_answer_init for each",
			        i);
	}
	return 0;
}

enum flytune_result flytune_lookup_many(flytune_client *client, flytune_problem *const *problems,
        size_t count, const struct flytune_lookup_options *given, struct flytune_answer *answers,
        struct flytune_error *errors, struct flytune_error *out)
{
	UNCANCELLED;
	struct many many = {.client = client,
	        .problem = problems,
	        .answers = (char *)answers,
	        .errors = errors,
	        .out = out};
	struct flytune_lookup_options options = {0};
	char named[FT_DEVICE_ID_SIZE];
	struct ft_error error;
	struct asked *asked;

	REQUIRE(client, out);
	if (count == 0)
		return FLYTUNE_OK;
	REQUIRE(problems, out);
	REQUIRE(answers, out);
	many.device = client->device;
	many.stride = sized_length(answers);
	if (check_list(count, &many, &error) != 0)
		return outcome(out, &error);
	if (given != NULL && !sized_in(&options, sizeof options, given))
		return outcome_unsized(out, "flytune_lookup_options");
	if (options.device != NULL) {
		if (client_device(client, options.device, named, &error) != 0)
			return outcome(out, &error);
		many.device = named;
	}
	asked = look_at_once(&many, count);
	if (many.count == 0)
		return FLYTUNE_OK;
	if (asked == NULL) {
		ft_fail(&error, FT_E_MEMORY, "out of memory");
		return outcome(out, &error);
	}
	many.asked = asked;
	client_enter(client);
	if (client->autotune == FLYTUNE_AUTOTUNE_NEVER) {
		answer_defaults(&many);
	} else {
		if (client->autotune == FLYTUNE_AUTOTUNE_FORCE)
			sweep_all(&many);
		many.deadline =
		        clock_after(options.timeout_ms > 0 ? options.timeout_ms : client->lookup_timeout_ms);
		ask_all(&many);
	}
	free(asked);
	return many.code;
}
