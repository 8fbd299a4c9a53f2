/* Answers of the same problem at other values of the scale field, the nearest first.
 *
 * One walk for each direction, each giving scale field values farther and farther away; of the two next ones the
 * nearer is visited first. With a generation, values come from the history too: an answer may be gone since. */
#include <string.h>

#include "daemon/store/internal.h"

struct walk {
	struct store *store;
	const struct store_key *key;
	bool up;
	uint64_t start; /* the first value of interest */
	uint64_t bound; /* the last one */
	bool ended;
	uint64_t scale;     /* the next value, unless ended */
	MDB_cursor *answer; /* stands on the next answer, unless answer_ended */
	MDB_cursor *history;
	bool answer_ended, history_ended;
	uint64_t answer_scale, history_scale;
};

/* Reads where the cursor stands; ends the stream when that is no longer the same problem or past the bound.
 */
static void take_place(const struct walk *walk, int rc, enum record_kind kind, const MDB_val *at,
        uint64_t *scale, bool *ended)
{
	struct record_key stem;

	record_key_problem(&stem, kind, walk->key);
	*ended = rc != 0 || at->mv_size < RECORD_PROBLEM_SIZE ||
	        memcmp(at->mv_data, stem.data, RECORD_STEM_SIZE) != 0;
	if (*ended)
		return;
	*scale = record_get_u64((const uint8_t *)at->mv_data + RECORD_STEM_SIZE);
	*ended = walk->up ? *scale > walk->bound : *scale < walk->bound;
}

/* Stands on the first key at or above `from` (up), or the last one below it (down). */
static int seek(MDB_cursor *cursor, const struct record_key *from, bool up, MDB_val *at)
{
	MDB_val value;
	int rc;

	*at = store_value(from->data, from->length);
	rc = mdb_cursor_get(cursor, at, &value, MDB_SET_RANGE);
	if (up)
		return rc;
	if (rc == MDB_NOTFOUND)
		return mdb_cursor_get(cursor, at, &value, MDB_LAST);
	return rc == 0 ? mdb_cursor_get(cursor, at, &value, MDB_PREV) : rc;
}

/* Where a cursor must be sought to stand on `scale field` or the next value in the walk's direction. False if
 * there can be none. */
static bool place_of(const struct walk *walk, enum record_kind kind, uint64_t scale, struct record_key *from)
{
	struct store_key key = *walk->key;

	key.problem.scale = walk->up ? scale : scale + 1;
	record_key_problem(from, kind, &key);
	return walk->up || scale != UINT64_MAX;
}

/* The history's value at `scale field` or the next one; all of a value's rows are one. */
static int seek_history(struct walk *walk, uint64_t scale)
{
	struct record_key from;
	MDB_val at;
	int rc;

	walk->history_ended = true;
	if (!place_of(walk, RECORD_HISTORY, scale, &from))
		return 0;
	rc = seek(walk->history, &from, walk->up, &at);
	take_place(walk, rc, RECORD_HISTORY, &at, &walk->history_scale, &walk->history_ended);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

static void choose_next(struct walk *walk)
{
	walk->ended = walk->answer_ended && walk->history_ended;
	if (walk->answer_ended)
		walk->scale = walk->history_scale;
	else if (walk->history_ended)
		walk->scale = walk->answer_scale;
	else if (walk->up)
		walk->scale =
		        walk->answer_scale < walk->history_scale ? walk->answer_scale : walk->history_scale;
	else
		walk->scale =
		        walk->answer_scale > walk->history_scale ? walk->answer_scale : walk->history_scale;
}

static int start_walk(struct walk *walk, uint64_t generation)
{
	struct store *store = walk->store;
	struct record_key from;
	MDB_val at;
	int rc;

	walk->answer_ended = walk->history_ended = walk->ended = true;
	if (walk->up ? walk->start > walk->bound : walk->start < walk->bound)
		return 0;
	if (!place_of(walk, RECORD_ANSWER, walk->start, &from))
		return 0;
	rc = mdb_cursor_open(store->reader, store->dbi, &walk->answer);
	if (rc != 0)
		return rc;
	rc = seek(walk->answer, &from, walk->up, &at);
	take_place(walk, rc, RECORD_ANSWER, &at, &walk->answer_scale, &walk->answer_ended);
	if (rc != 0 && rc != MDB_NOTFOUND)
		return rc;
	if (generation != 0) {
		rc = mdb_cursor_open(store->reader, store->dbi, &walk->history);
		if (rc == 0)
			rc = seek_history(walk, walk->start);
		if (rc != 0)
			return rc;
	}
	choose_next(walk);
	return 0;
}

static int advance(struct walk *walk)
{
	uint64_t passed = walk->scale;
	MDB_val at, value;
	int rc = 0;

	if (!walk->history_ended && walk->history_scale == passed) {
		if (passed == walk->bound)
			walk->history_ended = true;
		else
			rc = seek_history(walk, walk->up ? passed + 1 : passed - 1);
	}
	if (rc == 0 && !walk->answer_ended && walk->answer_scale == passed) {
		rc = mdb_cursor_get(walk->answer, &at, &value, walk->up ? MDB_NEXT : MDB_PREV);
		take_place(walk, rc, RECORD_ANSWER, &at, &walk->answer_scale, &walk->answer_ended);
		if (rc == MDB_NOTFOUND)
			rc = 0;
	}
	choose_next(walk);
	return rc;
}

static void end_walk(struct walk *walk)
{
	if (walk->answer != NULL)
		mdb_cursor_close(walk->answer);
	if (walk->history != NULL)
		mdb_cursor_close(walk->history);
}

/* Whether `below` is as near to `scale field` as `above` is, or nearer: scale field/below <= above/scale field, in integers.
 */
static bool below_first(uint64_t below, uint64_t above, uint64_t scale)
{
	__extension__ typedef unsigned __int128 wide;

	return (wide)scale * scale <= (wide)below * above;
}

static int visit_near(struct walk *down, struct walk *up, unsigned most, uint64_t generation,
        bool (*visit)(void *data, uint64_t scale, const struct store_answer *answer), void *data,
        struct ft_error *error)
{
	struct store *store = down->store;
	struct store_key key = *down->key;
	struct store_answer answer;

	while (most > 0 && (!down->ended || !up->ended)) {
		struct walk *next;
		bool damaged = false;
		int found, rc;

		if (down->ended)
			next = up;
		else if (up->ended)
			next = down;
		else
			next = below_first(down->scale, up->scale, key.problem.scale) ? down : up;
		struct store_key at = key;
		at.problem.scale = next->scale;
		found = generation == 0 ? store_find_answer(store, &at, &answer, &damaged, error)
		                        : store_find_answer_at(store, &at, generation, &answer, error);
		if (found < 0)
			return -1;
		if (found == 1) {
			most--;
			if (!visit(data, next->scale, &answer))
				return 0;
		}
		rc = advance(next);
		if (rc != 0) {
			store_read_failed(store, rc, error);
			return -1;
		}
	}
	return 0;
}

int store_near_answers(struct store *store, const struct store_key *key, uint64_t low, uint64_t high,
        unsigned most, uint64_t generation,
        bool (*visit)(void *data, uint64_t scale, const struct store_answer *answer), void *data,
        struct ft_error *error)
{
	uint64_t scale = key->problem.scale;
	struct walk down = {.store = store, .key = key, .up = false, .bound = low};
	struct walk up = {.store = store, .key = key, .up = true, .bound = high};
	int rc = 0, outcome = -1;

	if (store->reader == NULL)
		return ft_fail(error, FT_E_STORE, "the store is being opened again after an error");
	if (generation != 0 && store_check_generation(store, generation, error) != 0)
		return -1;
	down.ended = up.ended = true;
	if (scale > 0) {
		down.start = scale - 1 < high ? scale - 1 : high;
		rc = start_walk(&down, generation);
	}
	if (rc == 0 && scale < UINT64_MAX) {
		up.start = scale + 1 > low ? scale + 1 : low;
		rc = start_walk(&up, generation);
	}
	if (rc != 0)
		store_read_failed(store, rc, error);
	else
		outcome = visit_near(&down, &up, most, generation, visit, data, error);
	end_walk(&down);
	end_walk(&up);
	return outcome;
}
