/* The state directory: who holds it, and what was left there by the last run.
 *
 * Locked for the daemon's life, whose number stands in `lock`.
 *
 * Files. `initialised`: there was a store here, of this format; so an empty or missing data file is damage and no
 * new start. `open`: there while a daemon runs; left behind, it says that the last one did not end in peace.
 */
#ifndef FLYTUNE_DAEMON_DIRECTORY_H
#define FLYTUNE_DAEMON_DIRECTORY_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

#define DIRECTORY_DATA "data.mdb"
#define DIRECTORY_LMDB_LOCK "lock.mdb"
/* What is to take the data file's place: whole, since it gets this name only then; and what is not yet. */
#define DIRECTORY_FRESH DIRECTORY_DATA ".new"
#define DIRECTORY_PARTIAL DIRECTORY_DATA ".partial"
#define DIRECTORY_SEAL "sealed"

struct directory {
	char path[PATH_MAX];
	int fd;   /* of the directory, and its lock */
	int lock; /* the file of that name, locked where that could be had; -1: it could not */
	int open; /* the marker, held so that a signal handler can write to it: it stays the same number */

	bool initialised;
	uint32_t format;  /* of the store, if it is initialised */
	uint32_t unclean; /* runs before this one that did not end in peace, in a row */
	int signal;       /* that killed the last one, if it could still say so; or one of these: */
#define DIRECTORY_DAMAGE_AGAIN 98
#define DIRECTORY_DAMAGE 99
	bool overlay; /* the file system forgets with its container */
	bool exposed; /* others than its owner may write to it */

	atomic_bool doubt; /* an error says that the store must be checked at the next start */
};

/* Makes the directory if it is missing, and takes the lock. Refuses network file systems. */
int directory_open(struct directory *directory, const char *path, struct ft_error *error);
/* As directory_open, but makes and changes nothing. */
int directory_look(struct directory *directory, const char *path, struct ft_error *error);
/* Durably says that a store is here now. */
int directory_initialise(struct directory *directory, uint32_t format, struct ft_error *error);
/* Says that a daemon runs; `unclean` runs came before it. What the last clean end said of the data file goes. */
int directory_mark_open(struct directory *directory, uint32_t unclean, struct ft_error *error);
/* Whether its path still leads to it. */
bool directory_stands(const struct directory *directory);
/* Whether the files that stand here while a daemon has the directory do. */
bool directory_marked(const struct directory *directory);
/* Makes them anew where they are gone, with what the run that `like` is of has to say. */
int directory_renew(
        struct directory *directory, const struct directory *like, uint32_t format, struct ft_error *error);
/* Goes on in `found`, which was renewed like this one and is no more: the descriptors keep their numbers, so that other
 * threads and a signal handler may use them meanwhile. */
void directory_adopt(struct directory *directory, struct directory *found);
/* Moves a file, if it is there, to a name with this word and the date, which `aside` gets; else "". */
int directory_move_aside(const struct directory *directory, const char *name, const char *word, char *aside,
        size_t size, struct ft_error *error);
/* Puts DIRECTORY_FRESH in the data file's place, which is moved aside. A process that dies in between leaves the fresh one,
 * which the next start puts there. */
int directory_put_in(const struct directory *directory, const char *word, char *aside, size_t size,
        struct ft_error *error);
/* Async-signal-safe. */
void directory_mark_signal(const struct directory *directory, int signal);
/* Has the store checked at the next start, however this run ends. From any thread. */
void directory_doubt(struct directory *directory);
void directory_close(struct directory *directory, bool clean);

#endif
