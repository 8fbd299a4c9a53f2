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

struct directory {
	char path[PATH_MAX];
	int fd;   /* of the directory, and its lock */
	int open; /* the marker, held so that a signal handler can write to it */

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
/* Says that a daemon runs; `unclean` runs came before it. */
int directory_mark_open(struct directory *directory, uint32_t unclean, struct ft_error *error);
/* Whether its path still leads to it. */
bool directory_stands(const struct directory *directory);
/* Makes anew the files that stand here while a daemon has the directory; whoever took it away took them as well. */
int directory_renew(struct directory *directory, uint32_t format, struct ft_error *error);
/* Gives the data file, if there is one, a second name with this word and the date, so that another can replace it in one
 * step. */
int directory_keep_aside(const struct directory *directory, const char *word, char *aside, size_t size,
        struct ft_error *error);
/* Async-signal-safe. */
void directory_mark_signal(const struct directory *directory, int signal);
/* Has the store checked at the next start, however this run ends. From any thread. */
void directory_doubt(struct directory *directory);
void directory_close(struct directory *directory, bool clean);

#endif
