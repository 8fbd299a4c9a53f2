/* A write that changes nothing, to learn whether writing works again: as large as what failed.
 *
 * A result of 300 KB was tried 30 times on a disk too full for it: with a smaller probe the store turned writable and back 61
 * times, for watchers, the log and what is tried again then; with this one not once. Only LMDB can say whether it fits, since
 * its own free pages count. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/store/internal.h"

enum { REHEARSAL_PIECE = 64 * 1024 };

static void rehearsal_key(struct record_key *key, uint32_t piece)
{
	char name[32];

	snprintf(name, sizeof(name), "rehearsal:%" PRIu32, piece);
	record_key_note(key, name);
}

/* Notes of so many bytes in all. */
static int put_rehearsal(struct store *store, MDB_txn *txn, uint64_t bytes)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && (uint64_t)i * REHEARSAL_PIECE < bytes; i++) {
		uint64_t left = bytes - (uint64_t)i * REHEARSAL_PIECE;
		struct record_key key;
		struct ft_writer value;

		rehearsal_key(&key, i);
		ft_writer_init_growing(&value, RECORD_TRIALS_LIMIT);
		record_start(&value);
		for (uint64_t byte = 0; byte < left && byte < REHEARSAL_PIECE; byte++)
			ft_write_nil(&value);
		rc = store_put_sealed(txn, store->dbi, &key, &value, 0);
		ft_writer_free(&value);
	}
	return rc;
}

int store_clear_rehearsal(struct store *store)
{
	MDB_txn *txn = NULL;
	int rc = mdb_txn_begin(store->env, NULL, 0, &txn);
	uint32_t cleared = 0;

	if (rc != 0)
		return rc;
	while (rc == 0) {
		struct record_key key;
		MDB_val at;

		rehearsal_key(&key, cleared);
		at = store_value(key.data, key.length);
		rc = mdb_del(txn, store->dbi, &at, NULL);
		cleared += rc == 0;
	}
	if (rc == MDB_NOTFOUND && cleared > 0)
		return mdb_txn_commit(txn);
	mdb_txn_abort(txn);
	return rc == MDB_NOTFOUND ? 0 : rc;
}

int store_rehearse(struct store *store, uint64_t bytes)
{
	struct record_meta meta;
	MDB_txn *txn = NULL;
	int rc = mdb_txn_begin(store->env, NULL, 0, &txn);

	if (rc != 0)
		return rc;
	rc = store_read_meta(txn, store->dbi, &meta);
	if (rc == 0)
		rc = store_put_meta(txn, store->dbi, &meta);
	if (rc == 0)
		rc = put_rehearsal(store, txn, bytes);
	if (rc != 0) {
		mdb_txn_abort(txn);
		return rc;
	}
	rc = mdb_txn_commit(txn);
	return rc == 0 ? store_clear_rehearsal(store) : rc;
}
