/* Checks a store's data file, and rescues what can be read of one that is damaged. Both happen in a child
 * process, whose death costs nothing but the answer; the child calls only what reads pages, never LMDB.
 *
 * Call while the process has one thread and the environment is not open. */
#ifndef FLYTUNE_DAEMON_SALVAGE_H
#define FLYTUNE_DAEMON_SALVAGE_H

#include "daemon/directory.h"

enum { SALVAGE_KINDS = 8 };

struct salvage_check {
	bool sound;                   /* the structure; single values may be damaged */
	uint64_t records;             /* whose checksums hold */
	uint64_t damaged;             /* whose do not */
	uint64_t kind[SALVAGE_KINDS]; /* sound records, in the order of salvage_kinds */
	char reason[200];             /* why it is not sound */
};
extern const char salvage_kinds[SALVAGE_KINDS];

/* In this process. */
int salvage_check(int fd, struct salvage_check *check, struct ft_error *error);
/* The same in a child; one that dies is a store that is not sound. */
int salvage_check_in_child(int fd, struct salvage_check *check, struct ft_error *error);

struct salvage_result {
	uint64_t kept;
	uint64_t lost; /* pages and entries that could not be read, and values that were damaged */
	uint64_t kind[SALVAGE_KINDS]; /* kept */
	char aside[128];              /* the name that the damaged file has now */
};
/* Builds a new store from what is readable in the directory's data file, and puts it in that one's place in
 * one step; the damaged file stays beside it under a name with the date. Works without a data file. */
int salvage_rebuild(struct directory *directory, uint64_t map_bytes, struct salvage_result *result,
        struct ft_error *error);

#endif
