/* What the files of the devices share.
 *
 *   device.c      devices and their runners: asked, settled, doubted, found
 *   worker.c      what works a device: its runner, and who has it
 *   hello.c       what a runner says of its devices, checked and taken over
 *   hello_note.c  a hello as it is kept, and whether it still holds */
#ifndef FLYTUNE_DAEMON_DEVICES_INTERNAL_H
#define FLYTUNE_DAEMON_DEVICES_INTERNAL_H

#include "daemon/devices/device.h"

enum { FILE_PATH_SIZE = 256 }; /* of a file that a hello depends on */

/* ---- device.c ---- */

void device_hash_text(const char *text, char hash[FT_HASH_SIZE]);

/* ---- hello.c ---- */

/* On to another state; the move is checked. */
void device_go(struct device *device, enum device_state next);
/* It is replaced, and freed once nobody uses it. */
void device_retire(struct device *device);
void devices_drop(struct devices *devices, const struct runner_slot *slot);
int hello_read(struct ft_view reply, struct ft_runner_hello_reply *hello, struct ft_error *error);
/* Replaces the devices of a kind by what its runner says; a hello that makes no sense changes nothing. With a batch,
 * also records it. */
int devices_adopt(struct runner_slot *slot, const struct ft_runner_hello_reply *hello,
        struct store_batch *batch, struct ft_error *error);
/* A device to compute defaults for, until its runner was probed or where it has none. */
int devices_add_stand_in(struct runner_slot *slot, enum device_state state, struct ft_error *error);

/* A hash of what a hello says of one device, and of all that its kernels depend on; 0 if it is not there. */
uint64_t hello_of_device(const struct ft_runner_hello_reply *hello, const char *id);

/* ---- worker.c ---- */

struct worker *worker_new(
        struct runner_slot *slot, const struct runner_events *events, struct ft_error *error);
/* That of a device of this id; made if it is not there. */
struct worker *worker_of(struct runner_slot *slot, const char *id, struct ft_error *error);
/* Whether a runner of the kind runs, or is on its way to or from there. */
bool slot_runs(const struct runner_slot *slot);
void slot_kill_runners(struct runner_slot *slot, const char *why);
/* Once their runners are off. */
void workers_close(struct devices *devices);

/* ---- hello_note.c ---- */

/* Size and time of a file, the content of a pseudo file (which has no such times), what is in a folder, "absent" if it
 * is not there. */
void hello_stamp_file(const char *path, char stamp[STAMP_SIZE]);
/* All but files: the environment and, for the CPU, the machine and what the process may use of it. Whatever is inherited by
 * the runner holds for it as for the daemon. */
void hello_facts(const struct runner_slot *slot, char stamp[STAMP_SIZE]);
/* The machine itself does not change under a process. */
uint64_t hello_fixed_facts(void);
/* A runner is being started: the facts under which it is. Of its worker. */
void hello_note_begins(void *data);
void hello_note_name(const struct runner_slot *slot, char name[64]);
/* The note is [hello, facts, [[path, stamp], …]]: the program itself first, then the files that the hello names, which were
 * checked. Without memory it is empty and holds never. */
void hello_write_note(const struct worker *worker, struct ft_view reply,
        const struct ft_runner_hello_reply *hello, struct ft_writer *note);
/* The hello in a note; empty if there is none. */
struct ft_view hello_of_note(const struct ft_writer *note);
/* Whether a note's hello still holds. While clients are served, drivers are not asked; and what a running runner has
 * loaded stays as it was, whatever became of the files. */
bool hello_note_holds(const struct runner_slot *slot, const struct ft_writer *note, bool serving);

#endif
