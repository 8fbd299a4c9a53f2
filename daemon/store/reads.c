/* Reads, on the loop thread, in one read transaction that is renewed and reset. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/internal.h"

void store_read_failed(struct store *store, int rc, struct ft_error *error)
{
	(void)store_fault(&store->directory, rc, error);
	if (store->thread_runs && atomic_load(&store->directory.doubt))
		uv_async_send(&store->async);
}

/* ---- the snapshot ---- */

static int load_identities(struct store *store)
{
	static const uint8_t start[1] = {RECORD_IDENTITY};
	MDB_cursor *cursor;
	MDB_val key = store_value(start, sizeof(start));
	MDB_val value;
	struct store_identity *list = NULL;
	size_t count = 0, capacity = 0;
	int rc = mdb_cursor_open(store->reader, store->dbi, &cursor);

	if (rc != 0)
		return rc;
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
		const uint8_t *bytes = key.mv_data;
		struct ft_view body;
		struct ft_cursor reader;
		uint64_t identity;

		if (key.mv_size != 13 || bytes[0] != RECORD_IDENTITY)
			break;
		if (!record_open(key.mv_data, key.mv_size, value.mv_data, value.mv_size, &body) ||
		        (reader = ft_cursor_of(body.data, body.length), !ft_read_uint(&reader, &identity)) ||
		        identity > UINT32_MAX) {
			store_note_damage(store, key.mv_data, key.mv_size);
			continue;
		}
		if (count == capacity) {
			size_t more = capacity == 0 ? 16 : 2 * capacity;
			struct store_identity *grown = realloc(list, more * sizeof(*list));

			if (grown == NULL) {
				free(list);
				mdb_cursor_close(cursor);
				return ENOMEM;
			}
			list = grown;
			capacity = more;
		}
		/* Key order is device, then the newest first. */
		list[count++] = (struct store_identity){
		        .device = record_get_u32(bytes + 1),
		        .identity = (uint32_t)identity,
		        .generation = ~record_get_u64(bytes + 5),
		};
	}
	mdb_cursor_close(cursor);
	if (rc != 0 && rc != MDB_NOTFOUND) {
		free(list);
		return rc;
	}
	free(store->identity);
	store->identity = list;
	store->identity_count = count;
	store->identity_version = store->seen.identities;
	return 0;
}

/* What goes with the snapshot, read when it has moved on. */
static int load_snapshot(struct store *store)
{
	struct record_meta meta;
	int rc = store_read_meta(store->reader, store->dbi, &meta);

	if (rc != 0)
		return rc;
	store->seen = meta;
	store->bytes = store_used_bytes(store->reader, store->dbi);
	if (store->identity_version != meta.identities) {
		rc = load_identities(store);
		if (rc != 0)
			return rc;
	}
	store->reader_at = mdb_txn_id(store->reader);
	return 0;
}

void store_drop_reader(struct store *store)
{
	if (store->reader != NULL)
		mdb_txn_abort(store->reader);
	store->reader = NULL;
	store->reader_at = SIZE_MAX;
}

/* Before anything is read of a commit, it is published. */
static void publish_seen(struct store *store)
{
	pthread_mutex_lock(&store->lock);
	if (store->publication.txn != 0 && store->publication.txn <= mdb_txn_id(store->reader)) {
		store_publish(store);
		store->publications_seen = atomic_load_explicit(&store->publications, memory_order_relaxed);
	}
	pthread_mutex_unlock(&store->lock);
}

bool store_is_latest(const struct store *store)
{
	return atomic_load_explicit(&store->publications, memory_order_acquire) == store->publications_seen;
}

int store_begin(struct store *store, struct ft_error *error)
{
	int rc;

	if (store->begun > 0 && store->reader != NULL) {
		store->begun++;
		return 0;
	}
	if (atomic_load_explicit(&store->parked, memory_order_acquire))
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	store->publications_seen = atomic_load_explicit(&store->publications, memory_order_acquire);
	if (store->reader == NULL)
		rc = mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader);
	else
		rc = mdb_txn_renew(store->reader);
	if (rc == 0 && mdb_txn_id(store->reader) != store->reader_at) {
		publish_seen(store);
		rc = load_snapshot(store);
	}
	if (rc != 0) {
		store_drop_reader(store);
		store_read_failed(store, rc, error);
		return -1;
	}
	store->begun++;
	return 0;
}

void store_end(struct store *store)
{
	if (store->begun == 0 || --store->begun > 0 || store->reader == NULL)
		return;
	mdb_txn_reset(store->reader);
}

int store_refresh(struct store *store, struct ft_error *error)
{
	unsigned begun = store->begun;

	/* Nothing that was read points into the snapshot, so it may move on under an outer store_begin. */
	if (begun > 0 && store->reader != NULL)
		mdb_txn_reset(store->reader);
	store->begun = 0;
	if (store_begin(store, error) != 0)
		return -1;
	if (begun == 0)
		store_end(store);
	else
		store->begun = begun;
	return 0;
}

/* ---- damage ---- */

void store_note_damage(struct store *store, const void *key, size_t length)
{
	uint64_t hash = record_hash(key, length) | 1;
	uint64_t *seen = &store->damaged_seen[hash / 2 % STORE_DAMAGED_SEEN];
	const uint8_t *bytes = key;
	char text[2 * 48 + 1] = "";

	if (*seen == hash)
		return;
	*seen = hash;
	store->damaged++;
	for (size_t i = 0; i < length && i < 48; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	store_log(
	        &store->log, 4, "a damaged record of the store is left out: kind %c, key %s", bytes[0], text);
}

/* 1 and a sound body, 0 if there is none (or it is damaged: then *damaged), -1 on an error. */
static int get_body(struct store *store, const struct record_key *key, struct ft_view *body, bool *damaged,
        struct ft_error *error)
{
	MDB_val at = store_value(key->data, key->length);
	MDB_val value;
	int rc;

	if (store->reader == NULL)
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	rc = mdb_get(store->reader, store->dbi, &at, &value);
	if (rc == MDB_NOTFOUND)
		return 0;
	if (rc != 0) {
		store_read_failed(store, rc, error);
		return -1;
	}
	if (record_open(key->data, key->length, value.mv_data, value.mv_size, body))
		return 1;
	store_note_damage(store, key->data, key->length);
	*damaged = true;
	return 0;
}

/* ---- answers ---- */

int store_find_answer(struct store *store, const struct store_key *key, struct store_answer *answer,
        bool *damaged, struct ft_error *error)
{
	struct record_key at;
	struct ft_view body;
	int found;

	record_key_problem(&at, RECORD_ANSWER, key);
	found = get_body(store, &at, &body, damaged, error);
	if (found != 1)
		return found;
	if (record_read_answer(body, answer))
		return 1;
	store_note_damage(store, at.data, at.length);
	*damaged = true;
	return 0;
}

int store_get_answer(
        struct store *store, const struct store_key *key, struct store_answer *answer, struct ft_error *error)
{
	bool damaged = false;

	return store_find_answer(store, key, answer, &damaged, error);
}

static int refuse_generation(struct ft_error *error, uint64_t generation, const char *why)
{
	return ft_fail(error, FT_E_GENERATION, "the answer of generation %" PRIu64 " %s", generation, why);
}

int store_check_generation(const struct store *store, uint64_t generation, struct ft_error *error)
{
	if (generation < store->seen.floor)
		return ft_fail(error, FT_E_GENERATION,
		        "generation %" PRIu64 " was collected; the oldest kept is %" PRIu64, generation,
		        store->seen.floor);
	if (generation > store->seen.generation)
		return ft_fail(error, FT_E_GENERATION,
		        "generation %" PRIu64 " has not come yet; the newest is %" PRIu64, generation,
		        store->seen.generation);
	return 0;
}

/* The newest row of history that is no newer than `generation`. */
static int get_history(struct store *store, const struct store_key *key, uint64_t generation,
        struct store_answer *answer, struct ft_error *error)
{
	struct record_key at;
	struct record_history row;
	struct ft_view body;
	MDB_cursor *cursor;
	MDB_val found, value;
	int rc = mdb_cursor_open(store->reader, store->dbi, &cursor);

	if (rc == 0) {
		record_key_history(&at, key, generation);
		found = store_value(at.data, at.length);
		rc = mdb_cursor_get(cursor, &found, &value, MDB_SET_RANGE);
		mdb_cursor_close(cursor);
	}
	if (rc == MDB_NOTFOUND ||
	        (rc == 0 &&
	                (found.mv_size != RECORD_HISTORY_SIZE ||
	                        memcmp(found.mv_data, at.data, RECORD_PROBLEM_SIZE) != 0)))
		return 0;
	if (rc != 0) {
		store_read_failed(store, rc, error);
		return -1;
	}
	if (!record_open(found.mv_data, found.mv_size, value.mv_data, value.mv_size, &body) ||
	        !record_read_history(body, &row) ||
	        (row.was.data != NULL && !record_read_answer(row.was, answer))) {
		store_note_damage(store, found.mv_data, found.mv_size);
		return refuse_generation(error, generation, "is damaged");
	}
	if (row.was.data == NULL)
		return 0;
	/* What stood between this row's end and the next record was damaged when it was replaced. */
	if (row.until <= generation)
		return refuse_generation(error, generation, "was damaged");
	return 1;
}

int store_find_answer_at(struct store *store, const struct store_key *key, uint64_t generation,
        struct store_answer *answer, struct ft_error *error)
{
	bool damaged = false;
	int found = store_find_answer(store, key, answer, &damaged, error);

	if (found < 0 || (found == 1 && answer->generation <= generation))
		return found;
	if (damaged)
		return refuse_generation(error, generation, "may be the one that is damaged");
	return get_history(store, key, generation, answer, error);
}

int store_get_answer_at(struct store *store, const struct store_key *key, uint64_t generation,
        struct store_answer *answer, struct ft_error *error)
{
	if (store->reader == NULL)
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	if (store_check_generation(store, generation, error) != 0)
		return -1;
	return store_find_answer_at(store, key, generation, answer, error);
}

/* ---- all answers ----
 *
 * Two walks side by side, over answers and over history: an answer of an earlier generation may be gone. */

enum { PLACE_SIZE = RECORD_PROBLEM_SIZE - 1 };

/* The first problem behind `place` that has a record of this kind. */
static int next_problem(MDB_cursor *cursor, enum record_kind kind, const struct store_place *place,
        uint8_t found[PLACE_SIZE], bool *ended)
{
	/* Behind all keys of the place's own problem, with whatever follows it. */
	uint8_t from[RECORD_HISTORY_SIZE + 1];
	size_t length = 1;
	MDB_val at, value;
	int rc;

	from[0] = (uint8_t)kind;
	if (place->length > 0) {
		memcpy(from + 1, place->at, PLACE_SIZE);
		memset(from + RECORD_PROBLEM_SIZE, 0xff, sizeof(from) - RECORD_PROBLEM_SIZE);
		length = sizeof(from);
	}
	at = store_value(from, length);
	rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	*ended = rc == MDB_NOTFOUND ||
	        (rc == 0 &&
	                (at.mv_size < RECORD_PROBLEM_SIZE || *(const uint8_t *)at.mv_data != (uint8_t)kind));
	if (rc == 0 && !*ended)
		memcpy(found, (const uint8_t *)at.mv_data + 1, PLACE_SIZE);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static void key_of_place(const uint8_t *at, struct store_key *key)
{
	key->kernel = record_get_u32(at);
	key->device = record_get_u32(at + 4);
	memcpy(key->problem.hash, at + 8, sizeof(key->problem.hash));
	key->problem.scale = record_get_u64(at + 8 + sizeof(key->problem.hash));
}

static int walk_answers(struct store *store, MDB_cursor *answers, MDB_cursor *history, uint64_t generation,
        unsigned most, struct store_place *place,
        bool (*visit)(void *data, const struct store_key *key, const struct store_answer *answer), void *data,
        uint64_t *hidden, struct ft_error *error)
{
	uint8_t answer_at[PLACE_SIZE], history_at[PLACE_SIZE];
	struct store_answer answer;
	struct store_key key;

	for (; most > 0; most--) {
		bool answers_ended, history_ended = true, damaged = false;
		int rc = next_problem(answers, RECORD_ANSWER, place, answer_at, &answers_ended);
		int found;

		if (rc == 0 && history != NULL)
			rc = next_problem(history, RECORD_HISTORY, place, history_at, &history_ended);
		if (rc != 0) {
			store_read_failed(store, rc, error);
			return -1;
		}
		if (answers_ended && history_ended) {
			place->length = 0;
			return 0;
		}
		place->length = PLACE_SIZE;
		if (answers_ended || (!history_ended && memcmp(history_at, answer_at, PLACE_SIZE) < 0))
			memcpy(place->at, history_at, PLACE_SIZE);
		else
			memcpy(place->at, answer_at, PLACE_SIZE);
		key_of_place(place->at, &key);
		found = generation == 0 ? store_find_answer(store, &key, &answer, &damaged, error)
		                        : store_find_answer_at(store, &key, generation, &answer, error);
		if (found < 0 && strcmp(error->code, FT_E_GENERATION) != 0)
			return -1;
		*hidden += found < 0 || damaged;
		if (found == 1 && !visit(data, &key, &answer))
			return 0;
	}
	return 0;
}

int store_each_answer(struct store *store, uint64_t generation, unsigned most, struct store_place *place,
        bool (*visit)(void *data, const struct store_key *key, const struct store_answer *answer), void *data,
        uint64_t *hidden, struct ft_error *error)
{
	MDB_cursor *answers = NULL, *history = NULL;
	struct ft_error fault;
	int rc, outcome = -1;

	*hidden = 0;
	if (error == NULL)
		error = &fault;
	if (store->reader == NULL)
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	if (place->length != 0 && place->length != PLACE_SIZE)
		return ft_fail(error, FT_E_BAD_VALUE, "the place to go on from is none");
	if (generation != 0 && store_check_generation(store, generation, error) != 0)
		return -1;
	rc = mdb_cursor_open(store->reader, store->dbi, &answers);
	if (rc == 0 && generation != 0)
		rc = mdb_cursor_open(store->reader, store->dbi, &history);
	if (rc != 0)
		store_read_failed(store, rc, error);
	else
		outcome = walk_answers(
		        store, answers, history, generation, most, place, visit, data, hidden, error);
	if (answers != NULL)
		mdb_cursor_close(answers);
	if (history != NULL)
		mdb_cursor_close(history);
	return outcome;
}

/* ---- trials, jobs, notes ---- */

/* All that the first record does not have; where one is missing or damaged the set is as good as none. */
static int get_chunks(struct store *store, const struct store_key *key, uint32_t identity,
        struct trials **trials, struct ft_error *error)
{
	const uint32_t chunks = record_chunks(*trials);
	bool sound = true, damaged = false;
	struct record_key at;
	int found = 1;

	record_key_trials(&at, key, identity, 0);
	for (uint32_t chunk = 1; chunk < chunks && sound && found == 1; chunk++) {
		struct ft_view body;

		record_key_trials(&at, key, identity, chunk);
		found = get_body(store, &at, &body, &damaged, error);
		sound = found == 1 && record_read_chunk(body, *trials, chunk);
	}
	if (sound && record_sound_trials(*trials))
		return 0;
	trials_free(*trials);
	*trials = NULL;
	if (found == 1)
		store_note_damage(store, at.data, at.length);
	return found < 0 ? -1 : 0;
}

int store_get_trials(struct store *store, const struct store_key *key, uint32_t identity,
        struct trials **trials, struct ft_error *error)
{
	struct record_key at;
	struct ft_view body;
	bool damaged = false, sound = true;
	int found;

	*trials = NULL;
	record_key_trials(&at, key, identity, 0);
	found = get_body(store, &at, &body, &damaged, error);
	if (found != 1)
		return found;
	*trials = record_read_trials(body, &sound);
	if (*trials != NULL && record_chunks(*trials) > 1)
		return get_chunks(store, key, identity, trials, error);
	if (*trials != NULL)
		return 0;
	if (sound)
		return ft_fail(error, FT_E_MEMORY, "there is not enough memory to read trials");
	store_note_damage(store, at.data, at.length);
	return 0;
}

int store_each_job(struct store *store, bool (*visit)(void *data, const struct ft_job *job), void *data,
        struct ft_error *error)
{
	static const uint8_t start[1] = {RECORD_JOB};
	MDB_cursor *cursor;
	MDB_val key = store_value(start, sizeof(start));
	MDB_val value;
	bool more = true;
	int rc;

	if (store->reader == NULL)
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	rc = mdb_cursor_open(store->reader, store->dbi, &cursor);
	if (rc != 0) {
		store_read_failed(store, rc, error);
		return -1;
	}
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	for (; rc == 0 && more; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
		struct ft_job job;
		struct ft_view body;

		if (key.mv_size < 1 || *(const uint8_t *)key.mv_data != RECORD_JOB)
			break;
		if (record_open(key.mv_data, key.mv_size, value.mv_data, value.mv_size, &body) &&
		        ft_decode(&ft_job_message, body, &job, NULL) == 0)
			more = visit(data, &job);
		else
			store_note_damage(store, key.mv_data, key.mv_size);
	}
	mdb_cursor_close(cursor);
	if (rc != 0 && rc != MDB_NOTFOUND) {
		store_read_failed(store, rc, error);
		return -1;
	}
	return 0;
}

int store_get_note(struct store *store, const char *name, struct ft_writer *value, struct ft_error *error)
{
	struct record_key at;
	struct ft_view body;
	bool damaged = false;
	int found;

	if (record_key_note(&at, name) != 0)
		return 0;
	found = get_body(store, &at, &body, &damaged, error);
	if (found != 1)
		return found;
	ft_write_raw(value, body.data, body.length);
	if (!ft_writer_ok(value))
		return ft_fail(error, FT_E_MEMORY, "there is no room to read the note %s", name);
	return 1;
}

uint32_t store_device_identity(struct store *store, uint32_t device, uint64_t generation)
{
	uint32_t first = 0;

	if (generation == 0)
		generation = UINT64_MAX;
	for (size_t i = 0; i < store->identity_count; i++) {
		const struct store_identity *entry = &store->identity[i];

		/* Of a device the newest stands first. */
		if (entry->device != device)
			continue;
		if (entry->generation <= generation)
			return entry->identity;
		first = entry->identity;
	}
	return first;
}
