/* What stands in a state directory, learned before LMDB, which trusts it, opens the file; and its rescue.
 *
 * Call while the process has one thread and the environment is not open. */
#ifndef FLYTUNE_DAEMON_STARTUP_CHECK_H
#define FLYTUNE_DAEMON_STARTUP_CHECK_H

#include "daemon/store/lmdb_environment.h"
#include "daemon/store/repair/repair.h"

struct startup {
	struct directory *directory;
	uint64_t map_bytes;
	uint64_t always_bytes, check_bytes; /* as struct store_limits has them */
	struct repair_waits waits;
	struct store_log log;
};

enum found { FOUND_NOTHING, FOUND_STORE, FOUND_DAMAGE };

/* Everything that can be known before LMDB opens the file; `reason` says what is damaged. Fails on what is not to be touched: a
 * store of another format, or one that cannot be read. */
int startup_check(
        const struct startup *startup, enum found *found, char *reason, size_t size, struct ft_error *error);
/* Moves what is damaged aside and begins a new store with what can be read of it. */
int startup_rebuild(const struct startup *startup, const char *reason, struct ft_error *error);

/* `flytuned --check-store DIR`: walks everything in this process, which may die of it. 0 if all is sound;
 * *report counts records, and what was damaged, for people. */
int store_check(const char *directory, char *report, size_t size, struct ft_error *error);

#endif
