#include "daemon/methods/subscription.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/host/timer.h"

struct place {
	uint64_t digest; /* of the answer that was sent last, 0: none */
	uint32_t length;
	uint8_t question[]; /* the params of a lookup */
};

/* Where a place stood on the board when it was sent last; apart, since a change has all of them looked at. */
struct standing {
	uint64_t version; /* 0: it is to be sent */
	uint32_t stripe;
	uint32_t anything; /* subscriptions->anything: one whose key is not known has only that */
};

static const uint32_t unplaced = UINT32_MAX;

struct subscriber {
	struct session *session;
	struct subscriber *next, *previous;
	uint32_t count, capacity;
	struct place **place;
	struct standing *standing;
	uint32_t at; /* places before it were looked at since the last change */
	bool again;  /* to be looked at from the start then, for changes that came meanwhile */
};

/* ---- notices ---- */

static uint64_t digest_of(const struct ft_writer *encoded)
{
	uint64_t digest = XXH3_64bits(encoded->data, encoded->length);

	return digest != 0 ? digest : 1;
}

/* Encodes what is to be said of a place, and gives its digest, which leaves out what does not belong to the answer. */
static uint64_t answer_place(struct subscriptions *subscriptions, const struct place *place,
        struct standing *standing, const char **member, bool *known, struct ft_writer *said)
{
	struct lookups *lookups = subscriptions->lookups;
	struct ft_lookup_request request;
	struct lookup_basis basis;
	struct ft_error error;
	uint64_t generation, digest;

	if (ft_decode(&ft_lookup_request_message, (struct ft_view){place->question, place->length}, &request,
	            &error) != 0 ||
	        lookups_answer(lookups, &request, &basis, known, &error) != 0) {
		standing->stripe = unplaced;
		if (lookups->too_early) { /* it becomes due when the device was probed */
			lookups->too_early = false;
			return place->digest;
		}
		*member = "error";
		ft_write_error(said, &error);
		return digest_of(said);
	}
	/* The word from before the answer: what changes from now on makes it another one. */
	standing->stripe = board_stripe(&lookups->target.key);
	standing->version = lookups->answer.version;
	*member = "answer";
	generation = lookups->answer.generation;
	lookups->answer.generation = 0;
	lookups->answer.stripe = lookups->answer.version = 0;
	ft_encode(said, &ft_answer_message, &lookups->answer);
	digest = digest_of(said);
	lookups->answer.generation = generation;
	ft_writer_reset(said);
	ft_encode(said, &ft_answer_message, &lookups->answer);
	return digest;
}

/* False if the store cannot be asked now, or there is no memory. */
static bool tell_place(struct subscriptions *subscriptions, struct subscriber *subscriber, uint32_t index)
{
	struct place *place = subscriber->place[index];
	struct standing *standing = &subscriber->standing[index];
	struct ft_writer *out = &subscriber->session->out;
	const char *member = NULL;
	struct ft_writer *said = &subscriptions->said;
	bool known = true;
	uint64_t digest;

	ft_writer_reset(said);
	standing->version = 1; /* of an error there is no word to compare */
	standing->anything = subscriptions->anything;
	digest = answer_place(subscriptions, place, standing, &member, &known, said);
	if (!known || !ft_writer_ok(said))
		return false;
	if (digest == place->digest)
		return true;
	place->digest = digest;
	/* As ft_answer_notice, without a copy between. */
	ft_begin_notice(out, "answer");
	ft_write_map(out, 3);
	ft_write_text(out, "place");
	ft_write_uint(out, index + 1);
	ft_write_text(out, "digest");
	ft_write_uint(out, digest);
	ft_write_text(out, member);
	ft_write_raw(out, said->data, said->length);
	subscriptions->told++;
	return true;
}

static bool stands(const struct subscriptions *subscriptions, const struct standing *standing)
{
	if (standing->version == 0 || standing->anything != subscriptions->anything)
		return false;
	return standing->stripe == unplaced ||
	        standing->version == board_version(subscriptions->context->board, standing->stripe);
}

/* All look at their places once more. After a change by many, once. */
static void look_again(struct subscriptions *subscriptions)
{
	if (subscriptions->woken)
		return;
	subscriptions->woken = true;
	for (struct subscriber *each = subscriptions->first; each != NULL; each = each->next) {
		each->again = true;
		each->session->due = true;
		session_wake(each->session);
	}
}

static void store_may_be_back(uv_timer_t *timer)
{
	look_again(timer->data);
}

bool subscriptions_tell(struct subscriptions *subscriptions, struct session *session)
{
	struct subscriber *subscriber = session->subscriber;

	if (subscriber == NULL || subscriptions->context->stopping)
		return false;
	subscriptions->woken = false;
	while (subscriber->at < subscriber->count || subscriber->again) {
		if (subscriber->at == subscriber->count) {
			subscriber->at = 0;
			subscriber->again = false;
		}
		if (stands(subscriptions, &subscriber->standing[subscriber->at])) {
			subscriber->at++;
			continue;
		}
		if (uv_is_active((uv_handle_t *)&subscriptions->later))
			return false;
		if (!tell_place(subscriptions, subscriber, subscriber->at)) {
			subscriber->standing[subscriber->at].version = 0;
			timer_start(&subscriptions->later, store_may_be_back, SUBSCRIPTIONS_LATER_MS);
			return false;
		}
		subscriber->at++;
		if (session_spent(session, SESSION_HEAVY) || session->out.length >= SESSION_TOLD)
			break;
	}
	return subscriber->at < subscriber->count || subscriber->again;
}

void subscriptions_changed(struct subscriptions *subscriptions, const struct store_key *key)
{
	/* Which answers it is, they find out by themselves. */
	subscriptions->anything += key == NULL;
	look_again(subscriptions);
}

/* ---- coming and going ---- */

static size_t size_of(const struct place *place)
{
	return sizeof(*place) + sizeof(struct place *) + sizeof(struct standing) + place->length;
}

static int check_room(const struct subscriptions *subscriptions, const struct session *session,
        uint32_t count, size_t bytes, struct ft_error *error)
{
	const struct subscriber *subscriber = session->subscriber;
	const struct user *user = session->turn.user;

	if ((subscriber != NULL ? subscriber->count : 0) + count > FT_SUBSCRIBED_MAX)
		return ft_fail(
		        error, FT_E_BUSY, "a connection subscribes to at most %d answers", FT_SUBSCRIBED_MAX);
	if (session->level != ACCESS_ADMIN &&
	        (user->places + count > SUBSCRIPTIONS_MAX / 2 ||
	                user->places_bytes + bytes > SUBSCRIPTIONS_BYTES_MAX / 2))
		return ft_fail(error, FT_E_BUSY,
		        "user %u subscribes to %u answers, and may to %d of all, in half of the memory for "
		        "them",
		        session->user, user->places, SUBSCRIPTIONS_MAX / 2);
	if (subscriptions->count + count > SUBSCRIPTIONS_MAX ||
	        subscriptions->bytes + bytes > SUBSCRIPTIONS_BYTES_MAX)
		return ft_fail(error, FT_E_BUSY, "the daemon has %u subscriptions, and room for no more",
		        subscriptions->count);
	return 0;
}

static struct place *new_place(
        struct subscriptions *subscriptions, struct ft_view question, uint64_t seen, struct ft_error *error)
{
	struct ft_lookup_request request;
	struct ft_writer *said = &subscriptions->said;
	struct place *place;

	if (ft_decode(&ft_lookup_request_message, question, &request, error) != 0)
		return NULL;
	/* Written anew: what is not of a lookup is not kept. */
	request.repeats = 0;
	request.tune_on_miss = false;
	ft_writer_reset(said);
	ft_encode(said, &ft_lookup_request_message, &request);
	place = ft_writer_ok(said) ? calloc(1, sizeof(*place) + said->length) : NULL;
	if (place == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
		return NULL;
	}
	place->digest = seen;
	place->length = (uint32_t)said->length;
	memcpy(place->question, said->data, said->length);
	return place;
}

static struct subscriber *subscriber_of(struct subscriptions *subscriptions, struct session *session)
{
	struct subscriber *subscriber = session->subscriber;

	if (subscriber != NULL)
		return subscriber;
	subscriber = calloc(1, sizeof(*subscriber));
	if (subscriber == NULL)
		return NULL;
	subscriber->session = session;
	subscriber->next = subscriptions->first;
	if (subscriptions->first != NULL)
		subscriptions->first->previous = subscriber;
	subscriptions->first = subscriber;
	session->subscriber = subscriber;
	session->subscribed = true;
	return subscriber;
}

static bool make_room(struct subscriber *subscriber, uint32_t count)
{
	uint32_t capacity = subscriber->capacity > 0 ? subscriber->capacity : 16;
	struct place **places;
	struct standing *standings;

	while (capacity < subscriber->count + count)
		capacity *= 2;
	if (capacity == subscriber->capacity)
		return true;
	places = realloc(subscriber->place, capacity * sizeof(struct place *));
	if (places != NULL)
		subscriber->place = places;
	standings = realloc(subscriber->standing, capacity * sizeof(*standings));
	if (standings != NULL)
		subscriber->standing = standings;
	if (places == NULL || standings == NULL)
		return false;
	subscriber->capacity = capacity;
	return true;
}

/* A list of lookups on its way to become places, some in each turn. */
struct adding {
	struct work work;
	struct subscriptions *subscriptions;
	struct ft_cursor lookups, digests;
	uint32_t listed;
	bool seen; /* digests were given */
	uint32_t read;
	size_t bytes;          /* of the places */
	struct place *place[]; /* that nobody knows of yet */
};

static void drop_adding(struct work *work)
{
	struct adding *adding = (struct adding *)work;

	for (uint32_t i = 0; i < adding->read; i++)
		free(adding->place[i]);
	free(adding);
}

static int read_place(struct adding *adding, struct ft_error *error)
{
	struct ft_view question;
	uint64_t seen = 0;
	struct place *place;

	if (!ft_read_view(&adding->lookups, &question))
		return ft_fail_field(error, FT_E_BAD_VALUE, "lookups", "something else", "a list of maps");
	if (adding->seen && !ft_read_uint(&adding->digests, &seen))
		return ft_fail_field(error, FT_E_BAD_VALUE, "seen", "something else", "a list of numbers");
	place = new_place(adding->subscriptions, question, seen, error);
	if (place == NULL)
		return -1;
	adding->place[adding->read++] = place;
	adding->bytes += size_of(place);
	return 0;
}

/* All of them at once, so that who is refused has none of the list. */
static int keep_places(struct adding *adding, struct session *session, struct ft_error *error)
{
	struct subscriptions *subscriptions = adding->subscriptions;
	struct subscriber *subscriber;

	if (check_room(subscriptions, session, adding->read, adding->bytes, error) != 0)
		return -1;
	subscriber = subscriber_of(subscriptions, session);
	if (subscriber == NULL || !make_room(subscriber, adding->read))
		return ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
	for (uint32_t i = 0; i < adding->read; i++) {
		subscriber->standing[subscriber->count] = (struct standing){.stripe = unplaced};
		subscriber->place[subscriber->count++] = adding->place[i];
	}
	subscriptions->count += adding->read;
	subscriptions->bytes += adding->bytes;
	session->turn.user->places += adding->read;
	session->turn.user->places_bytes += adding->bytes;
	adding->read = 0;
	session->due = true;
	context_keeps(subscriptions->context, session);
	return 0;
}

static bool add_places(struct work *work, struct session *session)
{
	struct adding *adding = (struct adding *)work;
	struct ft_subscribe_reply reply = {.count = adding->listed};
	struct ft_error error;

	while (adding->read < adding->listed) {
		if (read_place(adding, &error) != 0)
			goto fail;
		work->bytes = sizeof(*adding) + adding->listed * sizeof(struct place *) + adding->bytes;
		if (session_spent(session, SESSION_HEAVY / 4))
			return false;
	}
	if (keep_places(adding, session, &error) != 0)
		goto fail;
	reply.first = session->subscriber->count - adding->listed + 1;
	ft_begin_response(&work->answer, work->id);
	ft_encode(&work->answer, &ft_subscribe_reply_message, &reply);
	return true;
fail:
	ft_write_failure(&work->answer, work->id, &error);
	return true;
}

static int read_lists(const struct ft_subscribe_request *request, struct adding **adding,
        const struct context *context, struct ft_error *error)
{
	struct ft_cursor lookups = ft_cursor_of(request->lookups.data, request->lookups.length);
	struct ft_cursor digests = ft_cursor_of(request->seen.data, request->seen.length);
	uint32_t listed = 0;
	uint32_t known = 0;
	char value[32];

	if (context->stopping)
		return ft_fail(error, FT_E_STOPPING, "the daemon is stopping");
	if (!ft_read_array(&lookups, &listed) || listed == 0 || listed > FT_LOOKUPS_MAX) {
		(void)snprintf(value, sizeof(value), "%u of them", listed);
		return ft_fail_field(error, FT_E_BAD_VALUE, "lookups", value, "a list of 1 to 1,024");
	}
	if (request->seen.data != NULL && (!ft_read_array(&digests, &known) || known != listed))
		return ft_fail_field(error, FT_E_BAD_VALUE, "seen", "a list of another length",
		        "a number for each of the lookups");
	*adding = calloc(1, sizeof(**adding) + listed * sizeof(struct place *));
	if (*adding == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
	(*adding)->lookups = lookups;
	(*adding)->digests = digests;
	(*adding)->listed = listed;
	(*adding)->seen = known > 0;
	return 0;
}

void subscriptions_left(struct subscriptions *subscriptions, struct session *session)
{
	struct subscriber *subscriber = session->subscriber;

	if (subscriber == NULL)
		return;
	session->subscriber = NULL;
	if (subscriber->previous != NULL)
		subscriber->previous->next = subscriber->next;
	else
		subscriptions->first = subscriber->next;
	if (subscriber->next != NULL)
		subscriber->next->previous = subscriber->previous;
	for (uint32_t i = 0; i < subscriber->count; i++) {
		subscriptions->bytes -= size_of(subscriber->place[i]);
		session->turn.user->places_bytes -= size_of(subscriber->place[i]);
		free(subscriber->place[i]);
	}
	subscriptions->count -= subscriber->count;
	session->turn.user->places -= subscriber->count;
	free(subscriber->place);
	free(subscriber->standing);
	free(subscriber);
}

/* ---- the method ---- */

void method_subscribe(void *group, struct session *session, const struct ft_envelope *envelope)
{
	struct subscriptions *subscriptions = group;
	struct ft_subscribe_request request;
	struct adding *adding = NULL;
	struct ft_error error;

	if (ft_decode(&ft_subscribe_request_message, envelope->body, &request, &error) != 0 ||
	        read_lists(&request, &adding, subscriptions->context, &error) != 0) {
		session_fail(session, envelope->id, &error);
		return;
	}
	adding->work.step = add_places;
	adding->work.free = drop_adding;
	ft_writer_init_growing(&adding->work.answer, ft_bounds_request.bytes);
	adding->subscriptions = subscriptions;
	adding->work.id = envelope->id;
	session_begin(session, &adding->work);
}

/* ---- life ---- */

int subscriptions_init(struct subscriptions *subscriptions, struct context *context, struct lookups *lookups,
        struct ft_error *error)
{
	int status;

	*subscriptions = (struct subscriptions){.context = context, .lookups = lookups};
	ft_writer_init_growing(&subscriptions->said, ft_bounds_request.bytes);
	status = uv_timer_init(context->server->loop, &subscriptions->later);
	subscriptions->later.data = subscriptions;
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	return 0;
}

void subscriptions_stop(struct subscriptions *subscriptions)
{
	if (subscriptions->context == NULL)
		return;
	uv_close((uv_handle_t *)&subscriptions->later, NULL);
}

void subscriptions_free(struct subscriptions *subscriptions)
{
	ft_writer_free(&subscriptions->said);
}
