/* A lock file: held with flock by one process, whose number stands in it.
 *
 * flock, since a lock of that kind holds between containers, does not fall when another descriptor of the file is closed,
 * and dies with its process. */
#ifndef FLYTUNE_DAEMON_LOCK_H
#define FLYTUNE_DAEMON_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens `name`, relative to `directory` as for openat, with these flags, and locks it. Gives its descriptor; or -1 with errno:
 * EWOULDBLOCK if another process holds it, whose number is then in `holder`, 0 if it does not say. */
int lock_take(int directory, const char *name, int flags, uint32_t *holder);
/* Takes a lock that its holder left behind: a process that is killed between the fork and the start of a child leaves it, for a
 * moment, to that child. True if it could be had so; false with EWOULDBLOCK if the holder lives, or the lock stays held. */
bool lock_inherit(int lock, uint32_t holder);
/* Whether a name, with flags as for fstatat, leads to this file, which is open, so that no other can have its number. */
enum name_leads { NAME_LEADS_THERE, NAME_LEADS_ELSEWHERE, NAME_LEADS_UNKNOWN /* errno says why */ };
enum name_leads name_leads(int directory, const char *name, int flags, dev_t device, ino_t inode);
/* Whether `lock` is still the file that the name leads to. */
bool lock_stands(int lock, int directory, const char *name);
/* Who signed it, 0 if nobody did. Waits a moment for one who has just taken the lock. */
uint32_t lock_holder(int directory, const char *name);
/* Writes this process's number into it. That it cannot be written keeps nobody from holding it. */
void lock_sign(int lock);
/* Takes the file away, and lets go. Who opened it before sees that it is gone, and makes it anew. */
void lock_remove(int lock, int directory, const char *name);

#endif
