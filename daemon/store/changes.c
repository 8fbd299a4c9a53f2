/* What a batch changes, inside the writer's transaction. */
#include <errno.h>
#include <string.h>

#include "daemon/store/internal.h"

static uint64_t take_generation(struct change *change, struct store_batch *batch)
{
	if (batch->generation == 0)
		batch->generation = ++change->meta.generation;
	return batch->generation;
}

static int put_sealed(
        struct change *change, const struct record_key *key, struct ft_writer *value, unsigned flags)
{
	int rc = store_put_sealed(change->txn, change->store->dbi, key, value, flags);

	if (rc == MDB_KEYEXIST) {
		MDB_val at = store_value(key->data, key->length);
		MDB_val data = store_value(value->data, value->length);

		rc = mdb_put(change->txn, change->store->dbi, &at, &data, 0);
		return rc == 0 ? MDB_KEYEXIST : rc;
	}
	return rc;
}

static int put_history(
        struct change *change, const uint8_t *answer_key, uint64_t since, uint64_t until, struct ft_view was)
{
	struct record_history row = {.until = until, .ended_ns = store_clock(change->store), .was = was};
	struct record_key key;
	struct ft_writer value;
	int rc;

	key.length = RECORD_HISTORY_SIZE;
	memcpy(key.data, answer_key, RECORD_PROBLEM_SIZE);
	key.data[0] = RECORD_HISTORY;
	record_put_u64(key.data + RECORD_PROBLEM_SIZE, ~since);
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_start(&value);
	record_write_history(&value, &row);
	rc = put_sealed(change, &key, &value, MDB_NOOVERWRITE);
	ft_writer_free(&value);
	if (rc == 0)
		change->meta.history++;
	return rc == MDB_KEYEXIST ? 0 : rc;
}

/* The answer under an op's key, copied into `copy` since LMDB's own memory moves with the next put. *exists
 * is true also for a damaged one. */
static int load_answer(struct change *change, const struct op *op, struct ft_writer *copy,
        struct record_answer *answer, bool *exists, bool *sound)
{
	MDB_val at = store_value(op->bytes, op->key_length);
	MDB_val value;
	struct ft_view body;
	int rc = mdb_get(change->txn, change->store->dbi, &at, &value);

	*exists = rc == 0;
	*sound = false;
	if (rc == MDB_NOTFOUND)
		return 0;
	if (rc != 0)
		return rc;
	if (!record_open(op->bytes, op->key_length, value.mv_data, value.mv_size, &body))
		return 0;
	ft_write_raw(copy, body.data, body.length);
	if (!ft_writer_ok(copy))
		return ENOMEM;
	*sound = record_split_answer((struct ft_view){copy->data, copy->length}, answer);
	return 0;
}

static bool same_bytes(struct ft_view a, struct ft_view b)
{
	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

/* Puts `next` in the place of what stood there, which becomes history. */
static int replace_answer(struct change *change, struct store_batch *batch, const struct op *op,
        const struct record_answer *was, struct ft_view was_body, bool exists, struct record_answer *next)
{
	uint64_t generation = take_generation(change, batch);
	bool empty = record_slot_empty(next->pin) && record_slot_empty(next->winner) &&
	        record_slot_empty(next->import);
	MDB_val at = store_value(op->bytes, op->key_length);
	struct record_key key;
	struct ft_writer value;
	int rc = 0;

	/* A batch's own steps are no history. */
	if (was != NULL && was->generation != generation)
		rc = put_history(change, op->bytes, was->generation, generation, was_body);
	if (rc != 0)
		return rc;
	if (empty) {
		if (!exists)
			return 0;
		rc = put_history(change, op->bytes, generation, 0, (struct ft_view){NULL, 0});
		if (rc == 0)
			rc = mdb_del(change->txn, change->store->dbi, &at, NULL);
		change->meta.answers -= rc == 0 && change->meta.answers > 0;
		return rc;
	}
	next->generation = generation;
	key.length = op->key_length;
	memcpy(key.data, op->bytes, op->key_length);
	ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
	record_start(&value);
	record_write_answer(&value, next);
	rc = put_sealed(change, &key, &value, 0);
	ft_writer_free(&value);
	change->meta.answers += rc == 0 && !exists;
	return rc;
}

static int apply_answer(struct change *change, struct store_batch *batch, const struct op *op)
{
	static const uint8_t nil = 0xc0;
	const struct ft_view empty = {&nil, 1};
	const struct ft_view value = {op->bytes + op->key_length, op->value_length};
	const struct ft_view problem = {op->bytes + op->key_length + op->value_length, op->problem_length};
	struct record_answer was, next;
	struct ft_writer copy;
	bool exists, sound, changes;
	int rc;

	ft_writer_init_growing(&copy, RECORD_TRIALS_LIMIT);
	rc = load_answer(change, op, &copy, &was, &exists, &sound);
	if (rc != 0)
		goto done;
	next = sound ? was : (struct record_answer){0, problem, empty, empty, empty};
	changes = exists && !sound;
	if (op->kind == OP_FORGET) {
		changes = exists;
		next.pin = next.winner = next.import = empty;
	} else {
		struct ft_view *slot = op->slot == SLOT_PIN ? &next.pin
		        : op->slot == SLOT_WINNER           ? &next.winner
		                                            : &next.import;

		changes = changes || !same_bytes(*slot, value);
		*slot = value;
		next.problem = problem;
	}
	if (changes)
		rc = replace_answer(change, batch, op, sound ? &was : NULL,
		        (struct ft_view){copy.data, copy.length}, exists, &next);
done:
	ft_writer_free(&copy);
	return rc;
}

/* All trials of a problem, whatever their identity. */
static int forget_trials(struct change *change, const uint8_t *answer_key)
{
	uint8_t stem[RECORD_PROBLEM_SIZE];
	MDB_cursor *cursor;
	MDB_val at, value;
	int rc = mdb_cursor_open(change->txn, change->store->dbi, &cursor);

	if (rc != 0)
		return rc;
	memcpy(stem, answer_key, sizeof(stem));
	stem[0] = RECORD_TRIALS;
	at = store_value(stem, sizeof(stem));
	rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	while (rc == 0 && at.mv_size >= RECORD_TRIALS_SIZE && memcmp(at.mv_data, stem, sizeof(stem)) == 0) {
		rc = mdb_cursor_del(cursor, 0);
		if (rc != 0)
			break;
		at = store_value(stem, sizeof(stem));
		rc = mdb_cursor_get(cursor, &at, &value, MDB_SET_RANGE);
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int apply_identity(struct change *change, struct store_batch *batch, const struct op *op)
{
	struct record_key key;
	struct ft_writer value;
	uint8_t buffer[64];
	uint32_t now = 0;
	int rc = store_read_identity(change->txn, change->store->dbi, op->device, &now);

	if (rc != 0 || now == op->identity)
		return rc;
	record_key_identity(&key, op->device, take_generation(change, batch));
	ft_writer_init_fixed(&value, buffer, sizeof(buffer));
	record_start(&value);
	ft_write_uint(&value, op->identity);
	rc = put_sealed(change, &key, &value, 0);
	change->meta.identities += rc == 0;
	return rc;
}

/* A job's answer says in which generation it became one, which is known only now. */
static void stamp_job(const struct change *change, struct store_batch *batch, struct op *op)
{
	if (op->stamp == 0)
		return;
	batch->told = batch->generation != 0 ? batch->generation : change->meta.generation;
	record_put_u64(op->bytes + op->key_length + op->stamp, batch->told);
	record_seal_again(op->bytes + op->key_length, op->value_length, op->bytes, op->key_length);
}

static int apply_op(struct change *change, struct store_batch *batch, struct op *op)
{
	MDB_val at = store_value(op->bytes, op->key_length);
	MDB_val value = store_value(op->bytes + op->key_length, op->value_length);
	MDB_val now;
	int rc = 0;

	switch (op->kind) {
	case OP_JOB:
		if (op->number >= change->meta.next_job)
			change->meta.next_job = op->number + 1;
		stamp_job(change, batch, op);
		return mdb_put(change->txn, change->store->dbi, &at, &value, 0);
	case OP_GROW:
		/* Of trials in many records, few differ from what is there. */
		if (mdb_get(change->txn, change->store->dbi, &at, &now) == 0 &&
		        now.mv_size == value.mv_size && memcmp(now.mv_data, value.mv_data, now.mv_size) == 0)
			return 0;
		/* fall through */
	case OP_PUT:
		return mdb_put(change->txn, change->store->dbi, &at, &value, 0);
	case OP_DELETE:
		rc = mdb_del(change->txn, change->store->dbi, &at, NULL);
		return rc == MDB_NOTFOUND ? 0 : rc;
	case OP_SLOT:
		return apply_answer(change, batch, op);
	case OP_FORGET:
		rc = apply_answer(change, batch, op);
		return rc != 0 ? rc : forget_trials(change, op->bytes);
	case OP_IDENTITY:
		return apply_identity(change, batch, op);
	case OP_RESERVE:
		if (op->number > change->meta.next_job)
			change->meta.next_job = op->number;
		return 0;
	}
	return 0;
}

/* ---- whole batches ---- */

uint64_t store_bytes_of(const struct store_batch *batch, const struct store_batch *end)
{
	uint64_t bytes = 0;

	for (; batch != end; batch = batch->next) {
		for (const struct op *op = batch->first; op != NULL; op = op->next)
			bytes += op->key_length + op->value_length + op->problem_length;
	}
	return bytes;
}

/* How much the batch brings of what is no longer taken when the store is nearly full, 0 for none. Answers still are,
 * unless they come in crowds: single ones are small, and an operator must be able to change them. */
static uint64_t needs_room(struct change *change, const struct store_batch *batch)
{
	enum { CROWD = 64 };
	uint64_t bytes;

	if (!batch->grows && !batch->answers)
		return 0;
	bytes = store_bytes_of(batch, batch->next);
	if (batch->answers)
		return batch->count > CROWD ? bytes : 0;
	for (const struct op *op = batch->first; op != NULL; op = op->next) {
		MDB_val at = store_value(op->bytes, op->key_length);
		MDB_val value;

		if (op->kind == OP_GROW ||
		        (op->kind == OP_JOB &&
		                mdb_get(change->txn, change->store->dbi, &at, &value) == MDB_NOTFOUND))
			return bytes;
	}
	return 0;
}

int store_apply_batch(struct change *change, struct store_batch *batch)
{
	const struct store *store = change->store;
	uint64_t most = store->map_bytes / 100 * store->limits.refuse_percent;
	uint64_t brings = needs_room(change, batch);

	batch->generation = 0;
	batch->failed = false;
	if (brings > 0 && store_used_bytes(change->txn, store->dbi) + brings >= most) {
		batch->failed = true;
		ft_fail(&batch->error, FT_E_STORE,
		        "the store would be more than %u %% full: new jobs, trials and imports are refused",
		        (unsigned)store->limits.refuse_percent);
		return 0;
	}
	for (struct op *op = batch->first; op != NULL; op = op->next) {
		int rc = apply_op(change, batch, op);

		if (rc != 0)
			return rc;
	}
	return 0;
}
