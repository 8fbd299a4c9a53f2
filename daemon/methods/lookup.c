#include "daemon/methods/lookup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

enum { ENCODED_MAX = 4096, TIMED_EACH = 16, UNCOUNTED_MAX = 15 };

static int refuse_generation(const struct ft_lookup_request *request, struct ft_error *error)
{
	const struct ft_error why = *error;

	return ft_fail(error, FT_E_GENERATION, "the answers of generation %s cannot be had: %.150s",
	        request->generation, why.message);
}

int lookups_answer(struct lookups *lookups, const struct ft_lookup_request *request,
        struct lookup_basis *basis, bool *known, struct ft_error *error)
{
	uint64_t generation = 0;
	uint32_t stripe;
	bool readable;

	*known = true;
	readable = *known = context_read(lookups->context, error) == 0;
	/* A named generation never falls back. */
	if (request->generation[0] != '\0' && !readable)
		return refuse_generation(request, error);
	if (request->generation[0] != '\0' &&
	        lookup_token(lookups->context->store, request->generation, &generation, error) != 0)
		return -1;
	if (target_admit(&lookups->target, lookups->context->devices, request->kernel, request->device,
	            &request->problem, error) != 0)
		return -1;
	/* What a device is decides the default: until it was probed, the answers that will stand are not known. */
	if (generation != 0 && lookups->target.device->state == DEVICE_PROBING) {
		lookups->too_early = true;
		return ft_fail(error, FT_E_GENERATION, "the device %s is still to be heard",
		        lookups->target.device->shown.id);
	}
	if (!readable ||
	        lookup_answer(lookups->context->store, &lookups->target, generation, &lookups->answer, basis,
	                error) != 0) {
		if (generation != 0)
			return strcmp(error->code, FT_E_STORE) != 0 ? -1 : refuse_generation(request, error);
		/* Nobody shall keep it: version and stripe stay zero. */
		if (lookup_without_store(
		            lookups->context->store, &lookups->target, &lookups->answer, basis, error) != 0)
			return -1;
		*known = false;
		return 0;
	}
	/* The word first: if it was changed by a commit that the answer does not know of, that is noticed now, and nobody
	 * keeps the answer. */
	stripe = board_stripe(&lookups->target.key);
	lookups->answer.version = board_version(lookups->context->board, stripe);
	if (!store_is_latest(lookups->context->store))
		lookups->answer.version = 0;
	lookups->answer.stripe = lookups->answer.version == 0 ? 0 : stripe + 1;
	return 0;
}

/* The reply that stands, counted as asked. Where the table of misses is too small for all that is asked, problems take
 * each other's places in turn: one that lost its own is looked up in full, to be counted with what it was asked
 * meanwhile, but not each time. NULL if it is to be; *uncounted is how often it was asked beside that. */
static const struct reply *find_kept(
        struct lookups *lookups, struct ft_view question, uint64_t hash, uint64_t now_ns, uint64_t *uncounted)
{
	struct reply *reply = replies_find(&lookups->replies, lookups->context->board, question, hash);

	*uncounted = 0;
	if (reply == NULL)
		return NULL;
	if (reply->miss.serial != 0 && !misses_again(&lookups->misses, reply->miss, now_ns)) {
		if (reply->uncounted == UNCOUNTED_MAX) {
			*uncounted = reply->uncounted;
			return NULL;
		}
		reply->uncounted++;
	}
	lookups->by_source[reply->source]++;
	return reply;
}

static bool answer_kept(struct lookups *lookups, struct ft_view question, uint64_t hash, uint64_t now_ns,
        uint64_t *uncounted, struct ft_writer *writer)
{
	/* Read before the word that stands: the answer is one of that generation. */
	uint64_t generation = board_generation(lookups->context->board);
	const struct reply *reply = find_kept(lookups, question, hash, now_ns, uncounted);

	if (reply == NULL)
		return false;
	lookups->batch_count++;
	reply_write(reply, generation, writer);
	return true;
}

static void keep(struct lookups *lookups, struct ft_view question, uint64_t hash, struct ft_view encoded,
        enum lookup_source source, struct miss_place miss)
{
	struct reply *reply;

	if (lookups->answer.stripe == 0)
		return;
	reply = replies_keep(&lookups->replies, question, hash, encoded);
	if (reply == NULL)
		return;
	reply->stripe = (uint32_t)(lookups->answer.stripe - 1);
	reply->version = lookups->answer.version;
	reply->source = (uint8_t)source;
	reply->miss = miss;
	reply->uncounted = 0;
}

/* False if it is not the same to be counted as asked: then it is looked up again each time. */
static bool count_miss(struct lookups *lookups, const struct ft_lookup_request *request, bool stale,
        uint64_t more, uint64_t now_ns, struct miss_place *place)
{
	uint64_t repeats = request->repeats > UINT64_MAX - more ? UINT64_MAX : request->repeats + more;
	uint64_t asked = misses_count(&lookups->misses, &lookups->target, repeats, now_ns, place);

	/* What is stale comes back by itself; it is only noted how much it is wanted. */
	if (stale)
		background_want(lookups->context->background, &lookups->target, CANDIDATE_UPGRADE, asked);
	else if (request->tune_on_miss)
		background_want(lookups->context->background, &lookups->target, CANDIDATE_MISS, asked);
	else
		return place->serial != 0;
	return false;
}

/* Writes the answer to a lookup's params, and gives its weight in a turn; or fails having written nothing, with 0. */
static unsigned answer(struct lookups *lookups, struct ft_view question, uint64_t now_ns,
        struct ft_writer *writer, struct ft_error *error)
{
	uint64_t hash = replies_hash(question);
	struct ft_lookup_request request;
	struct lookup_basis basis;
	struct miss_place miss = {0};
	bool again = true;
	uint64_t uncounted;
	bool known;
	uint8_t room[ENCODED_MAX];
	struct ft_writer encoded;

	/* The first of a batch: what is kept needs no read of the store, and is timed all the same. */
	if (lookups->batch_count == 0)
		lookups->batch_began_ns = ft_monotonic_ns();
	if (answer_kept(lookups, question, hash, now_ns, &uncounted, writer))
		return 1;
	if (ft_decode(&ft_lookup_request_message, question, &request, error) != 0 ||
	        lookups_answer(lookups, &request, &basis, &known, error) != 0) {
		lookups->refused += !lookups->too_early;
		return 0;
	}
	lookups->by_source[basis.source]++;
	lookups->batch_count++;
	/* One that names a generation asks about the past; and without a device there is nothing to tune. */
	if (basis.source >= LOOKUP_NEAREST && request.generation[0] == '\0' &&
	        lookups->target.key.device != 0)
		again = count_miss(lookups, &request, basis.stale, uncounted, now_ns, &miss);
	ft_writer_init_fixed(&encoded, room, sizeof(room));
	ft_encode(&encoded, &ft_answer_message, &lookups->answer);
	if (!ft_writer_ok(&encoded)) {
		ft_encode(writer, &ft_answer_message, &lookups->answer);
		return SESSION_LOOKED_UP;
	}
	ft_write_raw(writer, room, encoded.length);
	/* Not what does more than ask, nor what is not asked again. */
	if (again && request.generation[0] == '\0' && !request.tune_on_miss && request.repeats == 0)
		keep(lookups, question, hash, (struct ft_view){room, encoded.length}, basis.source, miss);
	return SESSION_LOOKED_UP;
}

/* Of the loop, in milliseconds' steps: it costs nothing to ask. */
static uint64_t loop_ns(const struct session *session)
{
	return uv_now(session->poll.loop) * 1000000;
}

/* Of a message that could not be answered yet, the only case in which a lookup waits. */
static void ask_again_later(struct lookups *lookups, struct session *session,
        const struct ft_envelope *envelope, method_call *call)
{
	struct ft_error error;

	lookups->too_early = false;
	if (parked_add(lookups->parked, session, envelope, call, lookups, &error) != 0)
		session_fail(session, envelope->id, &error);
}

void method_lookup(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct lookups *lookups = group;
	struct ft_writer *writer = &session->out;
	size_t began = writer->length;
	struct ft_error error;
	unsigned weight;

	ft_begin_response(writer, envelope->id);
	weight = answer(lookups, envelope->body, loop_ns(session), writer, &error);
	session->weight += weight;
	if (weight > 0) {
		session_appended(session);
		return;
	}
	session->weight += SESSION_LOOKED_UP;
	writer->length = began;
	if (lookups->too_early)
		ask_again_later(lookups, session, envelope, method_lookup);
	else
		session_fail(session, envelope->id, &error);
}

/* A request's head as clients write it: [0, id, "lookup", and then params to the end. */
static bool open_lookup(struct ft_view bytes, uint32_t *id, struct ft_view *params)
{
	static const uint8_t name[] = {0xa6, 'l', 'o', 'o', 'k', 'u', 'p'};
	enum { SHORTEST = 2 + 1 + sizeof(name) + 1, LONGEST_HEAD = 2 + 5 + sizeof(name) };
	const uint8_t *at = bytes.data + 2;
	unsigned wide;

	if (bytes.length < SHORTEST || bytes.length > LONGEST_HEAD + REPLY_ROOM || bytes.data[0] != 0x94 ||
	        bytes.data[1] != 0x00)
		return false;
	wide = *at <= 0x7f ? 0 : *at == 0xcc ? 1 : *at == 0xcd ? 2 : *at == 0xce ? 4 : UINT_MAX;
	if (wide > 4 || bytes.length < SHORTEST + wide)
		return false;
	*id = wide == 0 ? *at : 0;
	for (unsigned i = 1; i <= wide; i++)
		*id = *id << 8 | at[i];
	at += 1 + wide;
	if (memcmp(at, name, sizeof(name)) != 0)
		return false;
	at += sizeof(name);
	*params = (struct ft_view){at, bytes.length - (size_t)(at - bytes.data)};
	return true;
}

/* That the bytes are those of a question which was taken apart before shows that they are one message, and whole. */
bool lookups_at_once(struct lookups *lookups, struct session *session, struct ft_view bytes)
{
	uint64_t generation = board_generation(lookups->context->board);
	const struct reply *reply;
	struct ft_view question;
	uint64_t began_ns = 0;
	uint64_t uncounted;
	uint32_t id;

	if (!session->greeted || session->level < ACCESS_MEMBER || !open_lookup(bytes, &id, &question))
		return false;
	devices_look(lookups->context->devices);
	/* A look at the clock costs as much as the rest. */
	if (lookups->timed_ns == 0 || lookups->untimed + 1 >= TIMED_EACH)
		began_ns = ft_monotonic_ns();
	reply = find_kept(lookups, question, replies_hash(question), loop_ns(session), &uncounted);
	if (reply == NULL)
		return false;
	reply_respond(reply, id, generation, &session->out);
	lookups->untimed++; /* but counted */
	if (began_ns != 0) {
		lookups->timed_ns = ft_monotonic_ns() - began_ns;
		lookups_add_untimed(lookups);
	}
	return true;
}

/* Gives its weight. */
static inline unsigned answer_one_of_many(
        struct lookups *lookups, struct ft_view question, uint64_t now_ns, struct ft_writer *writer)
{
	size_t began = writer->length;
	struct ft_error error;
	unsigned weight = answer(lookups, question, now_ns, writer, &error);

	if (weight > 0)
		return weight;
	writer->length = began;
	ft_write_map(writer, 1);
	ft_write_text(writer, "error");
	ft_write_error(writer, &error);
	return SESSION_LOOKED_UP;
}

/* The list of lookups. Mostly it is all that there is, up to the end: then it need not be walked to be found. */
static int find_lookups(struct ft_view body, struct ft_cursor *lookups, struct ft_error *error)
{
	static const char name[] = "lookups";
	struct ft_lookup_many_request request;
	const char *text;
	size_t length;
	uint32_t pairs;

	*lookups = ft_cursor_of(body.data, body.length);
	if (ft_read_map(lookups, &pairs) && pairs == 1 && ft_read_text(lookups, &text, &length) &&
	        length == sizeof(name) - 1 && memcmp(text, name, length) == 0 &&
	        ft_peek(lookups) == FT_KIND_ARRAY)
		return 0;
	if (ft_decode(&ft_lookup_many_request_message, body, &request, error) != 0)
		return -1;
	*lookups = ft_cursor_of(request.lookups.data, request.lookups.length);
	return 0;
}

/* A list of lookups that takes more than one turn. */
struct many {
	struct work work;
	struct lookups *lookups;
	struct ft_envelope envelope;
	struct ft_cursor left;
	uint32_t count; /* that are left */
};

/* Answers some. True if none is left, or one came too early. */
static bool answer_some(struct lookups *lookups, struct session *session, struct ft_cursor *left,
        uint32_t *count, struct ft_writer *writer)
{
	uint64_t now_ns = loop_ns(session);
	struct ft_view question;

	while (*count > 0 && ft_read_view(left, &question)) {
		unsigned weight = answer_one_of_many(lookups, question, now_ns, writer);

		(*count)--;
		if (lookups->too_early || *count == 0)
			break;
		if (session_spent(session, weight))
			return false;
	}
	return true;
}

static bool answer_more(struct work *work, struct session *session)
{
	struct many *many = (struct many *)work;

	if (!answer_some(many->lookups, session, &many->left, &many->count, &work->answer))
		return false;
	if (many->lookups->too_early) {
		ft_writer_reset(&work->answer);
		ask_again_later(many->lookups, session, &many->envelope, method_lookup_many);
	}
	return true;
}

/* What is written of the answer so far goes with the work, since others may be given before it is whole. */
static void answer_later(struct lookups *lookups, struct session *session, const struct ft_envelope *envelope,
        struct ft_cursor left, uint32_t count, size_t began)
{
	struct many *many = calloc(1, sizeof(*many));
	struct ft_writer *writer = &session->out;
	struct ft_error error;

	if (many == NULL) {
		writer->length = began;
		(void)ft_fail(&error, FT_E_MEMORY, "no memory for the answers");
		session_fail(session, envelope->id, &error);
		return;
	}
	many->work.step = answer_more;
	many->work.id = envelope->id;
	many->work.bytes = sizeof(*many);
	ft_writer_init_growing(&many->work.answer, ft_bounds_large.bytes);
	ft_write_raw(&many->work.answer, writer->data + began, writer->length - began);
	writer->length = began;
	many->lookups = lookups;
	many->envelope = *envelope;
	many->left = left;
	many->count = count;
	session_begin(session, &many->work);
}

void method_lookup_many(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct lookups *lookups = group;
	struct ft_writer *writer = &session->out;
	struct ft_cursor cursor;
	struct ft_error error;
	size_t began = writer->length;
	uint32_t count = 0;
	char value[32];

	if (find_lookups(envelope->body, &cursor, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	if (!ft_read_array(&cursor, &count) || count == 0 || count > FT_LOOKUPS_MAX) {
		(void)snprintf(value, sizeof(value), "%u of them", count);
		(void)ft_fail_field(&error, FT_E_BAD_VALUE, "lookups", value, "a list of 1 to 1,024");
		session_fail(session, envelope->id, &error);
		return;
	}
	/* As ft_lookup_many_reply, without a copy between. */
	ft_begin_response(writer, envelope->id);
	ft_write_map(writer, 1);
	ft_write_text(writer, "answers");
	ft_write_array(writer, count);
	if (!answer_some(lookups, session, &cursor, &count, writer)) {
		answer_later(lookups, session, envelope, cursor, count, began);
		return;
	}
	if (lookups->too_early) {
		writer->length = began;
		ask_again_later(lookups, session, envelope, method_lookup_many);
		return;
	}
	session_appended(session);
}

void lookups_add_untimed(struct lookups *lookups)
{
	histogram_add(&lookups->latency, lookups->timed_ns, lookups->untimed);
	lookups->untimed = 0;
}

void lookups_batch_end(struct lookups *lookups)
{
	/* Two looks at the clock a batch, not two a lookup. */
	if (lookups->batch_count > 0)
		histogram_add(&lookups->latency,
		        (ft_monotonic_ns() - lookups->batch_began_ns) / lookups->batch_count,
		        lookups->batch_count);
	lookups->batch_count = 0;
}

int lookups_init(
        struct lookups *lookups, struct context *context, struct parked *parked, struct ft_error *error)
{
	lookups->context = context;
	lookups->parked = parked;
	return replies_init(&lookups->replies, error) != 0 || misses_init(&lookups->misses, error) != 0 ? -1
	                                                                                                : 0;
}

void lookups_free(struct lookups *lookups)
{
	misses_free(&lookups->misses);
	replies_free(&lookups->replies);
}
