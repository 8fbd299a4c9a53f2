#include "daemon/subscription.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/methods.h"
#include "daemon/timer.h"

static const uint32_t unplaced = UINT32_MAX;

enum {
	TURN = 16,   /* places of one subscriber, before it is another's turn */
	STEP = 64,   /* places, before the loop looks at its sockets again */
	ROOM = 8192, /* more than an answer or an error takes */
};

struct place {
	struct subscriber *subscriber;
	struct place *next, **link; /* of its stripe */
	struct place *next_due;
	uint64_t digest; /* of what was told last, 0: nothing */
	uint32_t number;
	uint32_t stripe; /* unplaced: its key is not known, so that only a change of anything concerns it */
	bool is_due;
	uint16_t length;
	uint8_t question[]; /* the params of a lookup */
};

struct subscriber {
	struct session *session;
	struct subscriber *next, *previous;
	struct subscriber *next_due;
	bool is_due; /* stands in the list */
	uint32_t count, capacity;
	struct place **place;
	struct place *due, **due_end;
};

/* ---- who is due ---- */

static void await_turn(struct subscriptions *subscriptions, struct subscriber *subscriber)
{
	if (subscriber->is_due || subscriber->due == NULL)
		return;
	subscriber->is_due = true;
	subscriber->next_due = NULL;
	*subscriptions->due_end = subscriber;
	subscriptions->due_end = &subscriber->next_due;
}

static struct subscriber *take_turn(struct subscriptions *subscriptions)
{
	struct subscriber *subscriber = subscriptions->due;

	subscriptions->due = subscriber->next_due;
	if (subscriptions->due == NULL)
		subscriptions->due_end = &subscriptions->due;
	subscriber->is_due = false;
	return subscriber;
}

static void work(uv_idle_t *handle);

static void make_due(struct subscriptions *subscriptions, struct place *place)
{
	struct subscriber *subscriber = place->subscriber;

	if (place->is_due)
		return;
	place->is_due = true;
	place->next_due = NULL;
	*subscriber->due_end = place;
	subscriber->due_end = &place->next_due;
	await_turn(subscriptions, subscriber);
}

static void wake(struct subscriptions *subscriptions)
{
	if (subscriptions->due != NULL && !subscriptions->stopped &&
	        !uv_is_active((uv_handle_t *)&subscriptions->later))
		(void)uv_idle_start(&subscriptions->worker, work);
}

static void look_again(uv_timer_t *timer)
{
	wake(timer->data);
}

/* ---- places and stripes ---- */

static void unplace(struct place *place)
{
	if (place->stripe == unplaced)
		return;
	*place->link = place->next;
	if (place->next != NULL)
		place->next->link = place->link;
	place->stripe = unplaced;
}

static void put_in_stripe(struct subscriptions *subscriptions, struct place *place, uint32_t stripe)
{
	struct place **head = &subscriptions->stripe[stripe];

	if (place->stripe == stripe)
		return;
	unplace(place);
	place->stripe = stripe;
	place->next = *head;
	place->link = head;
	if (*head != NULL)
		(*head)->link = &place->next;
	*head = place;
}

/* ---- telling ---- */

static uint64_t digest_of(const struct ft_writer *encoded)
{
	uint64_t digest = XXH3_64bits(encoded->data, encoded->length);

	return digest != 0 ? digest : 1;
}

/* Encodes what is to be said of a place, and gives its digest, which leaves out what does not belong to the answer. */
static uint64_t answer_place(struct subscriptions *subscriptions, struct place *place, const char **member,
        bool *known, struct ft_writer *said)
{
	struct requests *requests = subscriptions->requests;
	struct ft_lookup_request request;
	enum lookup_source source = LOOKUP_DEFAULT;
	struct ft_error error;
	uint64_t generation, digest;

	if (ft_decode(&ft_lookup_request_message, (struct ft_view){place->question, place->length}, &request,
	            &error) != 0 ||
	        requests_look_up(requests, &request, &source, known, &error) != 0) {
		unplace(place);
		if (requests->too_early) { /* it becomes due when the device was heard */
			requests->too_early = false;
			return place->digest;
		}
		*member = "error";
		ft_write_error(said, &error);
		return digest_of(said);
	}
	put_in_stripe(subscriptions, place, board_stripe(&requests->subject.key));
	*member = "answer";
	generation = requests->answer.generation;
	requests->answer.generation = 0;
	requests->answer.stripe = requests->answer.version = 0;
	ft_encode(said, &ft_answer_message, &requests->answer);
	digest = digest_of(said);
	requests->answer.generation = generation;
	ft_writer_reset(said);
	ft_encode(said, &ft_answer_message, &requests->answer);
	return digest;
}

/* False if the store cannot be asked now. */
static bool tell_place(struct subscriptions *subscriptions, struct place *place)
{
	struct session *session = place->subscriber->session;
	const char *member = NULL;
	uint8_t room[ROOM];
	struct ft_writer said;
	bool known = true;
	uint64_t digest;

	ft_writer_init_fixed(&said, room, sizeof(room));
	digest = answer_place(subscriptions, place, &member, &known, &said);
	if (!known)
		return false;
	if (digest == place->digest || !ft_writer_ok(&said))
		return true;
	place->digest = digest;
	/* As ft_answer_notice, without a copy between. */
	ft_begin_notice(&session->out, "answer");
	ft_write_map(&session->out, 3);
	ft_write_text(&session->out, "place");
	ft_write_uint(&session->out, place->number);
	ft_write_text(&session->out, "digest");
	ft_write_uint(&session->out, digest);
	ft_write_text(&session->out, member);
	ft_write_raw(&session->out, said.data, said.length);
	subscriptions->told++;
	return true;
}

/* Some of a subscriber's places; gives how many, or -1 if the store cannot be asked. */
static int tell_some(struct subscriptions *subscriptions, struct subscriber *subscriber)
{
	int done = 0;

	while (subscriber->due != NULL && done < TURN) {
		struct place *place = subscriber->due;

		/* Before it is answered: what changes from now on makes it due again. */
		subscriber->due = place->next_due;
		if (subscriber->due == NULL)
			subscriber->due_end = &subscriber->due;
		place->is_due = false;
		if (!tell_place(subscriptions, place)) {
			make_due(subscriptions, place);
			return -1;
		}
		done++;
	}
	return done;
}

static void work(uv_idle_t *handle)
{
	struct subscriptions *subscriptions = handle->data;
	int done = 0;

	while (subscriptions->due != NULL && done < STEP) {
		struct subscriber *subscriber = take_turn(subscriptions);
		struct session *session = subscriber->session;
		int some;

		/* It comes back when what it is owed is written. */
		if (!session_may_be_told(session))
			continue;
		some = tell_some(subscriptions, subscriber);
		session_appended(session);
		if (some < 0) {
			await_turn(subscriptions, subscriber);
			timer_start(&subscriptions->later, look_again, SUBSCRIPTIONS_LATER_MS);
			break;
		}
		done += some;
		await_turn(subscriptions, subscriber);
	}
	requests_batch_end(subscriptions->requests);
	if (subscriptions->due == NULL || uv_is_active((uv_handle_t *)&subscriptions->later))
		(void)uv_idle_stop(handle);
}

void subscriptions_changed(struct subscriptions *subscriptions, const struct store_key *key)
{
	if (subscriptions->count == 0)
		return;
	if (key != NULL) {
		for (struct place *place = subscriptions->stripe[board_stripe(key)]; place != NULL;
		        place = place->next)
			make_due(subscriptions, place);
	} else {
		for (struct subscriber *each = subscriptions->first; each != NULL; each = each->next) {
			for (uint32_t i = 0; i < each->count; i++)
				make_due(subscriptions, each->place[i]);
		}
	}
	wake(subscriptions);
}

void subscriptions_emptied(struct subscriptions *subscriptions, struct session *session)
{
	await_turn(subscriptions, session->subscriber);
	wake(subscriptions);
}

/* ---- coming and going ---- */

static uint32_t places_of_user(const struct subscriptions *subscriptions, uint32_t user)
{
	uint32_t count = 0;

	for (const struct subscriber *each = subscriptions->first; each != NULL; each = each->next)
		count += each->session->user == user ? each->count : 0;
	return count;
}

static int check_room(const struct subscriptions *subscriptions, const struct session *session,
        uint32_t count, size_t bytes, struct ft_error *error)
{
	const struct subscriber *subscriber = session->subscriber;

	if ((subscriber != NULL ? subscriber->count : 0) + count > FT_SUBSCRIBED_MAX)
		return ft_fail(
		        error, FT_E_BUSY, "a connection subscribes to at most %d answers", FT_SUBSCRIBED_MAX);
	if (session->level != ACCESS_ADMIN &&
	        places_of_user(subscriptions, session->user) + count > SUBSCRIPTIONS_MAX / 2)
		return ft_fail(error, FT_E_BUSY, "user %u subscribes to %u answers, and may to %d",
		        session->user, places_of_user(subscriptions, session->user), SUBSCRIPTIONS_MAX / 2);
	if (subscriptions->count + count > SUBSCRIPTIONS_MAX ||
	        subscriptions->bytes + bytes > SUBSCRIPTIONS_BYTES_MAX)
		return ft_fail(error, FT_E_BUSY, "the daemon has %u subscriptions, and room for no more",
		        subscriptions->count);
	return 0;
}

static struct place *new_place(struct ft_view question, uint64_t seen, struct ft_error *error)
{
	struct ft_lookup_request request;
	uint8_t room[ROOM];
	struct ft_writer writer;
	struct place *place;

	if (ft_decode(&ft_lookup_request_message, question, &request, error) != 0)
		return NULL;
	/* Written anew: what is not of a lookup is not kept. */
	request.repeats = 0;
	request.tune_on_miss = false;
	ft_writer_init_fixed(&writer, room, sizeof(room));
	ft_encode(&writer, &ft_lookup_request_message, &request);
	place = ft_writer_ok(&writer) ? calloc(1, sizeof(*place) + writer.length) : NULL;
	if (place == NULL) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
		return NULL;
	}
	place->stripe = unplaced;
	place->digest = seen;
	place->length = (uint16_t)writer.length;
	memcpy(place->question, room, writer.length);
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
	subscriber->due_end = &subscriber->due;
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
	struct place **grown;

	while (capacity < subscriber->count + count)
		capacity *= 2;
	if (capacity == subscriber->capacity)
		return true;
	grown = realloc(subscriber->place, capacity * sizeof(struct place *));
	if (grown == NULL)
		return false;
	subscriber->place = grown;
	subscriber->capacity = capacity;
	return true;
}

static size_t size_of(const struct place *place)
{
	return sizeof(*place) + sizeof(struct place *) + place->length;
}

/* Reads the list into places that nobody knows of yet. */
static int read_places(const struct ft_subscribe_request *request, struct place **places, uint32_t *count,
        size_t *bytes, struct ft_error *error)
{
	struct ft_cursor lookups = ft_cursor_of(request->lookups.data, request->lookups.length);
	struct ft_cursor digests = ft_cursor_of(request->seen.data, request->seen.length);
	uint32_t listed = 0;
	uint32_t known = 0;
	char value[32];

	*count = 0;
	*bytes = 0;
	if (!ft_read_array(&lookups, &listed) || listed == 0 || listed > FT_LOOKUPS_MAX) {
		(void)snprintf(value, sizeof(value), "%u of them", listed);
		return ft_fail_field(error, FT_E_BAD_VALUE, "lookups", value, "a list of 1 to 1,024");
	}
	if (request->seen.data != NULL && (!ft_read_array(&digests, &known) || known != listed))
		return ft_fail_field(error, FT_E_BAD_VALUE, "seen", "a list of another length",
		        "a number for each of the lookups");
	for (uint32_t i = 0; i < listed; i++) {
		struct ft_view question;
		uint64_t seen = 0;

		if (!ft_read_view(&lookups, &question) || (known > 0 && !ft_read_uint(&digests, &seen)))
			return ft_fail_field(
			        error, FT_E_BAD_VALUE, "seen", "something else", "a list of numbers");
		places[i] = new_place(question, seen, error);
		if (places[i] == NULL)
			return -1;
		*bytes += size_of(places[i]);
		*count = i + 1;
	}
	return 0;
}

int subscriptions_add(struct subscriptions *subscriptions, struct session *session,
        const struct ft_subscribe_request *request, uint64_t *first, uint64_t *count, struct ft_error *error)
{
	struct place **places = calloc(FT_LOOKUPS_MAX, sizeof(struct place *));
	struct subscriber *subscriber = NULL;
	uint32_t read = 0;
	size_t bytes = 0;

	if (places == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
	if (subscriptions->stopped) {
		(void)ft_fail(error, FT_E_STOPPING, "the daemon is stopping");
		goto fail;
	}
	if (read_places(request, places, &read, &bytes, error) != 0 ||
	        check_room(subscriptions, session, read, bytes, error) != 0)
		goto fail;
	subscriber = subscriber_of(subscriptions, session);
	if (subscriber == NULL || !make_room(subscriber, read)) {
		(void)ft_fail(error, FT_E_MEMORY, "no memory for a subscription");
		goto fail;
	}
	*first = subscriber->count + 1;
	*count = read;
	for (uint32_t i = 0; i < read; i++) {
		places[i]->subscriber = subscriber;
		places[i]->number = subscriber->count + 1;
		subscriber->place[subscriber->count++] = places[i];
		make_due(subscriptions, places[i]);
	}
	subscriptions->count += read;
	subscriptions->bytes += bytes;
	free(places);
	wake(subscriptions);
	return 0;
fail:
	for (uint32_t i = 0; i < read; i++)
		free(places[i]);
	free(places);
	return -1;
}

static void leave_turn(struct subscriptions *subscriptions, struct subscriber *subscriber)
{
	struct subscriber **link = &subscriptions->due;

	if (!subscriber->is_due)
		return;
	while (*link != subscriber)
		link = &(*link)->next_due;
	*link = subscriber->next_due;
	if (*link == NULL)
		subscriptions->due_end = link;
}

void subscriptions_left(struct subscriptions *subscriptions, struct session *session)
{
	struct subscriber *subscriber = session->subscriber;

	if (subscriber == NULL)
		return;
	session->subscriber = NULL;
	leave_turn(subscriptions, subscriber);
	if (subscriber->previous != NULL)
		subscriber->previous->next = subscriber->next;
	else
		subscriptions->first = subscriber->next;
	if (subscriber->next != NULL)
		subscriber->next->previous = subscriber->previous;
	for (uint32_t i = 0; i < subscriber->count; i++) {
		unplace(subscriber->place[i]);
		subscriptions->bytes -= size_of(subscriber->place[i]);
		free(subscriber->place[i]);
	}
	subscriptions->count -= subscriber->count;
	free(subscriber->place);
	free(subscriber);
}

/* ---- the method ---- */

void method_subscribe(struct requests *requests, struct session *session, const struct ft_envelope *envelope)
{
	struct ft_subscribe_request request;
	struct ft_subscribe_reply reply;
	struct ft_error error;

	if (ft_decode(&ft_subscribe_request_message, envelope->body, &request, &error) == 0 &&
	        subscriptions_add(&requests->subscriptions, session, &request, &reply.first, &reply.count,
	                &error) == 0) {
		requests_keeps(requests, session);
		session_reply(session, envelope->id, &ft_subscribe_reply_message, &reply);
	} else {
		session_fail(session, envelope->id, &error);
	}
}

/* ---- life ---- */

int subscriptions_init(struct subscriptions *subscriptions, struct requests *requests, uv_loop_t *loop,
        struct ft_error *error)
{
	int status;

	*subscriptions = (struct subscriptions){.requests = requests};
	subscriptions->due_end = &subscriptions->due;
	(void)uv_idle_init(loop, &subscriptions->worker);
	subscriptions->worker.data = subscriptions;
	status = uv_timer_init(loop, &subscriptions->later);
	subscriptions->later.data = subscriptions;
	if (status != 0)
		return ft_fail(error, FT_E_SYSTEM, "cannot make a timer: %s", uv_strerror(status));
	return 0;
}

void subscriptions_stop(struct subscriptions *subscriptions)
{
	if (subscriptions->requests == NULL)
		return;
	subscriptions->stopped = true;
	uv_close((uv_handle_t *)&subscriptions->worker, NULL);
	uv_close((uv_handle_t *)&subscriptions->later, NULL);
}
