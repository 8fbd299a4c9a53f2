/* Checks a store's data file, and rescues what can be read of one that is damaged. Both happen in a child
 * process, whose death costs nothing but the answer; the child calls only what reads pages, never LMDB.
 *
 * Call while the process has one thread and the environment is not open. */
#ifndef FLYTUNE_DAEMON_REPAIR_H
#define FLYTUNE_DAEMON_REPAIR_H

#include "daemon/store/directory.h"
#include "daemon/store/repair/lmdb_file.h"

enum { REPAIR_KINDS = 8 };

struct repair_check {
	bool sound;                  /* the structure; single values may be damaged */
	uint64_t records;            /* whose checksums hold */
	uint64_t damaged;            /* whose do not */
	uint64_t kind[REPAIR_KINDS]; /* sound records, in the order of repair_kinds */
	char reason[200];            /* why it is not sound */
};
extern const char repair_kinds[REPAIR_KINDS];

/* The header as it was at the last end in peace, kept beside the data file: a copy with a checksum, of what LMDB trusts and
 * keeps none for. */
struct seal {
	uint64_t size; /* of the data file */
	uint32_t page_size;
	uint8_t header[PAGES_HEADER_SIZE];
};
/* Says of the data file how it is now; after the environment was closed. Failing costs a check at the next start. */
void seal_write(const struct directory *directory);

/* Called about once a second while a child is waited for; no more once it has said nothing for ten minutes. */
struct repair_waits {
	void (*call)(void *data); /* may be NULL */
	void *data;
};

/* In this process; under the seal's header, unless it is NULL. */
int repair_check(int fd, const struct seal *seal, struct repair_check *check, struct ft_error *error);
/* The same in a child; one that dies is a store that is not sound. */
int repair_check_in_child(int fd, const struct seal *seal, const struct repair_waits *waits,
        struct repair_check *check, struct ft_error *error);

struct repair_result {
	uint64_t kept;
	uint64_t lost; /* pages and entries that could not be read, and values that were damaged */
	uint64_t kind[REPAIR_KINDS]; /* kept */
	char aside[128];             /* the name that the damaged file has now */
};
/* Builds a new store from what is readable in the directory's data file, and puts it in that one's place in
 * one step; the damaged file stays beside it under a name with the date. Works without a data file. */
int repair_rebuild(struct directory *directory, uint64_t map_bytes, const struct repair_waits *waits,
        struct repair_result *result, struct ft_error *error);

#endif
