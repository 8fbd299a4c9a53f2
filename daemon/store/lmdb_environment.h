/* LMDB, as the store uses it: its errors in words that help, how the environment is opened, and the records that say what
 * the store is. */
#ifndef FLYTUNE_DAEMON_STORE_LMDB_ENVIRONMENT_H
#define FLYTUNE_DAEMON_STORE_LMDB_ENVIRONMENT_H

#include <lmdb.h>

#include "daemon/store/directory.h"
#include "daemon/store/record.h"

/* Where lines for people go; syslog levels: 3 error, 4 warning, 6 info. */
struct store_log {
	void (*call)(void *data, int level, const char *message); /* may be NULL */
	void *data;
};
void store_log(const struct store_log *log, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

enum fault {
	FAULT_NONE,
	FAULT_BATCH,       /* this batch cannot be kept, others can */
	FAULT_ROOM,        /* disk or map full, or not to be written: later batches are tried anew */
	FAULT_GONE,        /* the data file has lost its name: it must be put back */
	FAULT_ENVIRONMENT, /* it must be closed and opened again */
};
/* Says what `code` (of LMDB, or an errno) means, and fills `error` in words that help. What hints at damage
 * has the store checked at the next start. */
enum fault store_fault(struct directory *directory, int code, struct ft_error *error);

uint64_t store_free_bytes(const struct directory *directory); /* of its disk */

/* `path` is the directory itself or one in it. */
int store_environment_open(MDB_env **env, MDB_dbi *dbi, struct directory *directory, const char *path,
        uint64_t map_bytes, bool *cleared, struct ft_error *error);
/* Seals the value and puts it; ENOMEM if it could not be written whole. */
int store_put_sealed(
        MDB_txn *txn, MDB_dbi dbi, const struct record_key *key, struct ft_writer *value, unsigned flags);
int store_read_meta(MDB_txn *txn, MDB_dbi dbi, struct record_meta *meta);
int store_put_meta(MDB_txn *txn, MDB_dbi dbi, const struct record_meta *meta);
uint64_t store_used_bytes(MDB_txn *txn, MDB_dbi dbi);
/* The identity that a device has now; 0 if none was set. */
int store_read_identity(MDB_txn *txn, MDB_dbi dbi, uint32_t device, uint32_t *identity);
int store_new_uuid(char *uuid, struct ft_error *error);

static inline MDB_val store_value(const void *data, size_t length)
{
	/* LMDB's type is not const, but neither mdb_get nor mdb_put writes through it. */
	union {
		const void *from;
		void *to;
	} pointer = {.from = data};

	return (MDB_val){.mv_size = length, .mv_data = pointer.to};
}

#endif
