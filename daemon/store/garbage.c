/* Collection: rows of history that are old and many, and, when the store is filling up, trials of identities
 * that no device has now. A step at a time, after commits, so that none takes long.
 *
 * A row that goes raises the history floor to where its successor begins, in the same transaction: what can
 * still be asked for is never missing a row. */
#include <stdlib.h>
#include <string.h>

#include "daemon/store/internal.h"

enum { CURRENT_MAX = 256 };

struct step {
	struct store *store;
	MDB_txn *txn;
	struct record_meta meta;
	struct record_key *doomed; /* at most limits.collect_rows */
	uint32_t count;
};

static void doom(struct step *step, const void *key, size_t length)
{
	struct record_key *at = &step->doomed[step->count++];

	at->length = length;
	memcpy(at->data, key, length);
}

static bool same_problem(const struct record_key *a, const MDB_val *b)
{
	return a->length >= RECORD_PROBLEM_SIZE && memcmp(a->data, b->mv_data, RECORD_PROBLEM_SIZE) == 0;
}

/* A tombstone: "nothing stood here". No row at all means that too, so it may go as soon as no older row would
 * show through, which the next row shows. */
enum row_fate { ROW_STAYS, ROW_GOES, ROW_GOES_IF_LAST };

static enum row_fate judge_row(struct step *step, const MDB_val *key, const MDB_val *value, uint32_t rank)
{
	const struct store_limits *limits = &step->store->limits;
	uint64_t now = store_clock(step->store);
	uint64_t end;
	struct record_history row;
	struct ft_view body;

	if (!record_open(key->mv_data, key->mv_size, value->mv_data, value->mv_size, &body) ||
	        !record_read_history(body, &row)) {
		/* Its end is not known; the row before it, one newer, begins there or later. */
		if (rank == 0 || rank < limits->history_rows)
			return ROW_STAYS;
		end = ~record_get_u64(step->store->collect_at.data + RECORD_PROBLEM_SIZE);
	} else {
		if (row.ended_ns > now || now - row.ended_ns < limits->history_ns)
			return ROW_STAYS;
		if (row.was.data == NULL)
			return ROW_GOES_IF_LAST;
		if (rank < limits->history_rows)
			return ROW_STAYS;
		end = row.until;
	}
	if (end > step->meta.floor)
		step->meta.floor = end;
	return ROW_GOES;
}

/* Stands the cursor on the first record behind `at`, or on the first of the kind. */
static int seek_behind(
        MDB_cursor *cursor, struct record_key *at, enum record_kind kind, MDB_val *key, MDB_val *value)
{
	int rc;

	if (at->length == 0) {
		at->data[0] = (uint8_t)kind;
		*key = store_value(at->data, 1);
	} else {
		*key = store_value(at->data, at->length);
	}
	rc = mdb_cursor_get(cursor, key, value, MDB_SET_RANGE);
	if (rc == 0 && at->length > 0 && key->mv_size == at->length &&
	        memcmp(key->mv_data, at->data, at->length) == 0)
		rc = mdb_cursor_get(cursor, key, value, MDB_NEXT);
	return rc;
}

static void remember_place(struct record_key *at, const MDB_val *key)
{
	at->length = key->mv_size;
	memcpy(at->data, key->mv_data, key->mv_size);
}

static int look_at_history(struct step *step)
{
	struct store *store = step->store;
	struct record_key *place = &store->collect_at;
	MDB_cursor *cursor;
	MDB_val key, value;
	bool waits = false; /* the row at `place` goes if the next one is of another problem */
	uint32_t looked = 0;
	int rc = mdb_cursor_open(step->txn, store->dbi, &cursor);

	if (rc != 0)
		return rc;
	rc = seek_behind(cursor, place, RECORD_HISTORY, &key, &value);
	for (; rc == 0 && looked < store->limits.collect_rows;
	        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT), looked++) {
		bool same;
		enum row_fate fate;

		if (key.mv_size != RECORD_HISTORY_SIZE || *(const uint8_t *)key.mv_data != RECORD_HISTORY) {
			rc = MDB_NOTFOUND;
			break;
		}
		same = same_problem(place, &key);
		if (waits && !same)
			doom(step, place->data, place->length);
		store->collect_rank = same ? store->collect_rank + 1 : 0;
		fate = judge_row(step, &key, &value, store->collect_rank);
		if (fate == ROW_GOES)
			doom(step, key.mv_data, key.mv_size);
		waits = fate == ROW_GOES_IF_LAST;
		remember_place(place, &key);
	}
	if (rc == MDB_NOTFOUND) {
		if (waits)
			doom(step, place->data, place->length);
		place->length = 0;
		store->collect_rank = 0;
		rc = 0;
	}
	mdb_cursor_close(cursor);
	return rc;
}

/* What some device has as its identity now; the identity of a trial alone does not say whose it was. More of them than
 * there is room for: *complete is false, and no trial can be called stale. */
struct current {
	uint32_t count;
	uint32_t identity[CURRENT_MAX];
};

static bool is_current(const struct current *current, uint32_t identity)
{
	for (uint32_t i = 0; i < current->count; i++) {
		if (current->identity[i] == identity)
			return true;
	}
	return false;
}

static int find_current(struct step *step, struct current *current, bool *complete)
{
	static const uint8_t first[1] = {RECORD_IDENTITY};
	MDB_val key = store_value(first, sizeof(first));
	MDB_val value;
	MDB_cursor *cursor;
	uint32_t last = 0; /* device; ids begin at 1 */
	int rc = mdb_cursor_open(step->txn, step->store->dbi, &cursor);

	*complete = true;
	if (rc != 0)
		return rc;
	rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
	for (; rc == 0; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
		const uint8_t *bytes = key.mv_data;
		uint32_t device, identity;

		if (key.mv_size != RECORD_IDENTITY_SIZE || bytes[0] != RECORD_IDENTITY)
			break;
		device = record_get_u32(bytes + 1);
		if (device == last)
			continue; /* of a device the newest stands first */
		last = device;
		rc = store_read_identity(step->txn, step->store->dbi, device, &identity);
		if (rc != 0)
			break;
		*complete = identity != 0 && current->count < CURRENT_MAX;
		if (!*complete)
			break;
		if (!is_current(current, identity))
			current->identity[current->count++] = identity;
	}
	mdb_cursor_close(cursor);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static int look_at_trials(struct step *step)
{
	struct store *store = step->store;
	struct record_key *place = &store->stale_at;
	struct current current = {0};
	MDB_cursor *cursor;
	MDB_val key, value;
	uint32_t looked = 0;
	bool complete;
	int rc = find_current(step, &current, &complete);

	if (rc != 0 || !complete || current.count == 0)
		return rc;
	rc = mdb_cursor_open(step->txn, store->dbi, &cursor);
	if (rc != 0)
		return rc;
	rc = seek_behind(cursor, place, RECORD_TRIALS, &key, &value);
	for (; rc == 0 && looked < store->limits.collect_rows;
	        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT), looked++) {
		const uint8_t *bytes = key.mv_data;

		if (key.mv_size < RECORD_TRIALS_SIZE || bytes[0] != RECORD_TRIALS) {
			rc = MDB_NOTFOUND;
			break;
		}
		if (!is_current(&current, record_get_u32(bytes + RECORD_PROBLEM_SIZE)))
			doom(step, bytes, key.mv_size);
		remember_place(place, &key);
	}
	if (rc == MDB_NOTFOUND) {
		place->length = 0;
		rc = 0;
	}
	mdb_cursor_close(cursor);
	return rc;
}

static int delete_doomed(struct step *step, uint64_t *counter)
{
	for (uint32_t i = 0; i < step->count; i++) {
		MDB_val key = store_value(step->doomed[i].data, step->doomed[i].length);
		int rc = mdb_del(step->txn, step->store->dbi, &key, NULL);

		if (rc != 0 && rc != MDB_NOTFOUND)
			return rc;
		if (counter != NULL && rc == 0 && *counter > 0)
			(*counter)--;
	}
	step->count = 0;
	return 0;
}

void store_collect(struct store *store)
{
	struct step step = {.store = store};
	struct record_meta before;
	bool nothing = true;
	int rc;

	if (store->limits.collect_rows == 0)
		return;
	/* A row may doom the one before it and itself. */
	step.doomed = malloc(((size_t)store->limits.collect_rows + 1) * sizeof(*step.doomed));
	if (step.doomed == NULL)
		return;
	rc = mdb_txn_begin(store->env, NULL, 0, &step.txn);
	if (rc != 0)
		goto done;
	rc = store_read_meta(step.txn, store->dbi, &step.meta);
	before = step.meta;
	if (rc == 0 && step.meta.history > 0) {
		rc = look_at_history(&step);
		nothing = step.count == 0;
		if (rc == 0)
			rc = delete_doomed(&step, &step.meta.history);
	}
	store->filling = rc == 0 &&
	        store_used_bytes(step.txn, store->dbi) >=
	                store->map_bytes / 100 * store->limits.stale_percent;
	if (store->filling) {
		rc = look_at_trials(&step);
		nothing = nothing && step.count == 0;
		if (rc == 0)
			rc = delete_doomed(&step, NULL);
	}
	if (rc == 0 && !record_same_meta(&before, &step.meta))
		rc = store_put_meta(step.txn, store->dbi, &step.meta);
	/* An error here is left for the next commit to meet, which has somebody to report it to. */
	if (rc != 0 || nothing)
		mdb_txn_abort(step.txn);
	else
		mdb_txn_commit(step.txn);
done:
	free(step.doomed);
}
