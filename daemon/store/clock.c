/* The store's own time. */
#include "daemon/store/internal.h"
#include "proto/clock.h"

#define CLOCK_NOTE "clock"

uint64_t store_clock(const struct store *store)
{
	return store->clock_base + ft_monotonic_ns() - store->clock_since;
}

int store_read_clock(MDB_txn *txn, struct store *store)
{
	struct record_key key;
	struct ft_cursor reader;
	struct ft_view body;
	MDB_val at, value;
	int rc;

	record_key_note(&key, CLOCK_NOTE);
	at = store_value(key.data, key.length);
	rc = mdb_get(txn, store->dbi, &at, &value);
	store->clock_since = ft_monotonic_ns();
	/* It begins anywhere; where it began with the time of day, what earlier daemons wrote has its place in it. */
	store->clock_base = ft_wall_ns();
	if (rc == 0 && record_open(key.data, key.length, value.mv_data, value.mv_size, &body)) {
		reader = ft_cursor_of(body.data, body.length);
		(void)ft_read_uint(&reader, &store->clock_base);
	}
	return rc == MDB_NOTFOUND ? 0 : rc;
}

int store_put_clock(MDB_txn *txn, const struct store *store)
{
	uint8_t buffer[64];
	struct ft_writer writer;
	struct record_key key;

	record_key_note(&key, CLOCK_NOTE);
	ft_writer_init_fixed(&writer, buffer, sizeof(buffer));
	record_start(&writer);
	ft_write_uint(&writer, store_clock(store));
	return store_put_sealed(txn, store->dbi, &key, &writer, 0);
}
