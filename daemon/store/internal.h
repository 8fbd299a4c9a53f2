/* What the files of the store share: the parts of struct store, and which thread may touch which.
 *
 *   store.c        opens and closes, facts, what the loop thread does when the writer reports
 *   clock.c        the store's own time
 *   interned_names.c  texts that keys hold as numbers, on the loop thread
 *   reads.c        lookups, on the loop thread
 *   neighbours.c   answers near a problem, on the loop thread
 *   batch.c        batches, on the loop thread, until they are submitted
 *   writer.c       the writer thread: commits, failures, opening anew
 *   changes.c      what a batch changes, inside its transaction
 *   rehearsal.c    a write that changes nothing
 *   data_file.c    the data file's name, on the writer thread: whether it leads there, and putting it back
 *   garbage.c      old history and stale trials, on the writer thread
 *
 * Two threads. Members below are grouped by who may touch them; what both touch stands under `lock`. The
 * environment is opened by the loop thread in store_open and closed by it at the end; in between only the
 * writer replaces it (and the directory, if that was replaced), and only after the loop thread has dropped its read transaction and set `parked`. */
#ifndef FLYTUNE_DAEMON_STORE_INTERNAL_H
#define FLYTUNE_DAEMON_STORE_INTERNAL_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "daemon/store/lmdb_environment.h"
#include "daemon/store/repair/repair.h"
#include "daemon/store/store.h"

enum { STORE_NAME_KINDS = 3, STORE_DAMAGED_SEEN = 256, STORE_JOB_IDS = 64 };

enum op_kind {
	OP_PUT,  /* a sealed value */
	OP_GROW, /* the same, refused when the store is nearly full */
	OP_JOB,  /* the same, refused then if it is new */
	OP_DELETE,
	OP_SLOT, /* of an answer */
	OP_FORGET,
	OP_IDENTITY, /* of a device */
	OP_RESERVE,  /* job ids below `number` */
};

enum slot { SLOT_PIN, SLOT_WINNER, SLOT_IMPORT };

struct op {
	struct op *next;
	enum op_kind kind;
	enum slot slot;
	uint32_t device, identity;
	uint64_t number; /* of a job, or the bound of ids */
	size_t key_length, value_length, problem_length;
	size_t stamp;    /* of a job: where in the value its answer's generation is to be; 0: it has none */
	uint8_t bytes[]; /* key, value, problem */
};

struct store_batch {
	struct store *store;
	struct store_batch *next;
	struct op *first, **end;
	size_t count;
	bool answers, grows; /* has ops that change answers; that need room */
	store_done done;
	void *data;

	/* set by the writer */
	uint64_t generation; /* taken for its changes, 0 if there were none */
	uint64_t told;       /* the one that `done` gets; what a job was stamped with, if one was */
	bool failed;
	struct ft_error error;
};

struct store_line {
	struct store_line *next;
	int level;
	char text[];
};

struct store_name_record {
	struct store_name_record *next;
	struct record_key key;
	size_t length;
	uint8_t value[];
};

struct store_names {
	uint32_t count;    /* highest id */
	uint32_t capacity; /* of text, which has id 1 at index 0; a power of two */
	char **text;       /* NULL where the record was damaged */
	uint32_t *index;   /* ids by the hash of their text, with twice the room */
};

struct store_identity {
	uint32_t device, identity;
	uint64_t generation; /* since when */
};

/* A commit under way. From the moment it returns until it is published the loop thread may come to see it: then it
 * publishes it itself, rather than wait for the writer to get a processor. */
struct publication {
	size_t txn; /* 0: none */
	const struct store_batch *first, *end;
	uint64_t generation;
	bool done;
};

/* What was logged of writes that fail; times are monotonic. */
struct trouble {
	uint64_t next_ns; /* nothing more is said before */
	uint64_t ended_ns;
	uint32_t pause_s;
	bool told, told_opened; /* since it began: that it is so; that the store was opened anew */
};

struct store {
	/* constant after opening */
	uv_loop_t *loop;
	struct directory directory;
	struct store_limits limits;
	uint64_t map_bytes;
	struct store_log log;
	void (*publish)(void *data, const struct store_key *key);
	void (*published)(void *data, uint64_t generation);
	void (*changed)(void *data, const struct store_key *key);
	void (*broken)(void *data);
	void (*mended)(void *data);
	void *changed_data;
	struct repair_waits waits;
	MDB_dbi dbi; /* the same number in every environment */
	pthread_t thread;
	uint64_t clock_base, clock_since; /* what store_clock was, at which monotonic time */

	/* the loop thread's */
	uv_async_t async;
	MDB_txn *reader;
	unsigned begun;
	size_t reader_at;           /* the transaction that `seen` is from */
	uint64_t publications_seen; /* before the snapshot was taken */
	struct record_meta seen;
	uint64_t bytes; /* used */
	struct store_names names[STORE_NAME_KINDS];
	struct store_identity *identity; /* by device, the newest first */
	size_t identity_count;
	uint64_t identity_version; /* seen.identities when they were read */
	uint64_t next_job, job_bound;
	bool reserving;
	uint64_t damaged_seen[STORE_DAMAGED_SEEN]; /* hashes of keys that were logged */
	uint64_t damaged;
	bool told_broken;
	bool was_degraded; /* when the writer last reported */
	bool thread_runs;
	void (*closed)(void *data);
	void *closed_data;

	/* the writer's, and the loop thread's while `parked` is unset */
	MDB_env *env;

	/* the writer's */
	uint64_t data_device, data_inode;    /* the data file that is open */
	struct store_name_record *unwritten; /* names that no commit has kept yet */
	uint32_t since_collection;
	bool filling;                           /* so full that a step of collection follows every commit */
	struct record_key collect_at, stale_at; /* where the next step goes on */
	uint32_t collect_rank;
	uint64_t unfit;         /* bytes of the largest write that did not fit; 0 once one as large did */
	uint64_t free_then;     /* bytes that the disk had free when it last did not */
	uint64_t next_probe_ns; /* monotonic */
	uint32_t probe_pause_ms;
	uint64_t next_put_back_ns; /* monotonic; a copy of all is not made for each that asks */
	uint32_t put_back_pause_ms;
	struct ft_error put_back_failed;
	struct trouble trouble;

	pthread_mutex_t lock;
	pthread_cond_t wake; /* of the writer */
	struct store_batch *waiting, **waiting_end;
	struct store_batch *finished, **finished_end;
	struct store_name_record *new_names, **new_names_end;
	struct store_line *lines, **lines_end;
	struct publication publication;
	bool reopened; /* the environment; what a commit that failed left in it is not known */
	bool stop, stopped;
	bool sound;         /* when it stopped: open, and no fault open */
	bool look;          /* whether the files still stand */
	bool park;          /* the writer wants to close the environment */
	uint64_t final_job; /* ids from here on were never given out; set with stop */
	uint64_t commits;
	uint64_t busy_since_ns; /* monotonic: the writer took up a group, and has not put it down; 0: none */
	char degraded[FT_REASON_SIZE];

	struct store_batch *reported; /* finished ones that are still to be handed over; the loop thread's */
	atomic_bool parked;           /* set by the loop thread, cleared by the writer */
	/* Counted up before anything of a publication is reported. */
	_Atomic uint64_t publications;
};

/* ---- names ---- */

/* Reads all of them, in a read transaction. */
int store_load_names(struct store *store, struct ft_error *error);
void store_forget_names(struct store *store);
/* Those that no commit has kept as well. */
void store_free_names(struct store *store);

/* ---- shared ---- */

/* Of the writer, which leaves it to the loop thread. */
void store_log_later(struct store *store, int level, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* The store's own time: nanoseconds for which daemons have served it, from a beginning that means nothing. What grows old
 * does so in this time, not in the time of day, which is set forth and back by others. It stands still while no daemon runs,
 * and a crash may take back what went by since the last change of an answer: then things stay young a little longer. */
uint64_t store_clock(const struct store *store);
int store_read_clock(MDB_txn *txn, struct store *store);
int store_put_clock(MDB_txn *txn, const struct store *store);

/* store.c: calls for every answer that a batch changed. */
void store_each_change(const struct store *store, const struct store_batch *batch,
        void (*call)(void *data, const struct store_key *key));

/* reads.c: the snapshot that the loop thread reads moves on to the last commit. */
int store_refresh(struct store *store, struct ft_error *error);
void store_drop_reader(struct store *store);
void store_note_damage(struct store *store, const void *key, size_t length);
/* Damage that a read comes upon is reported as that of a commit is. */
void store_read_failed(struct store *store, int rc, struct ft_error *error);
/* 1 found, 0 not, -1 error; *damaged: it may be there, and cannot be read. */
int store_find_answer(struct store *store, const struct store_key *key, struct store_answer *answer,
        bool *damaged, struct ft_error *error);
int store_check_generation(const struct store *store, uint64_t generation, struct ft_error *error);
int store_find_answer_at(struct store *store, const struct store_key *key, uint64_t generation,
        struct store_answer *answer, struct ft_error *error);

/* batch.c */
void store_batch_free(struct store_batch *batch);
int store_batch_reserve(struct store_batch *batch, uint64_t bound);

/* writer.c */
/* With the lock held: publishes the commit under way, unless that is done. */
void store_publish(struct store *store);
int store_start_writer(struct store *store, struct ft_error *error);

/* changes.c */
/* A transaction of the writer. */
struct change {
	struct store *store;
	MDB_txn *txn;
	struct record_meta meta;
};
/* That the batches up to `end` write. */
uint64_t store_bytes_of(const struct store_batch *batch, const struct store_batch *end);
/* A batch that is refused is marked as failed, and that is no error. */
int store_apply_batch(struct change *change, struct store_batch *batch);

/* rehearsal.c */
/* Takes them away, those that a crash left as well. */
int store_clear_rehearsal(struct store *store);
/* Writes so many bytes and the meta page, and takes them away again. 0, or an error of LMDB. */
int store_rehearse(struct store *store, uint64_t bytes);

/* data_file.c: remembers the file that is open; says whether its name leads to it (FAULT_ROOM: that is not known); and puts it
 * back. Then the environment must be opened anew, in `found` if it moved. */
void store_know_file(struct store *store);
enum fault store_stands(const struct store *store, struct ft_error *error);
bool store_put_back(struct store *store, struct directory *found, bool *moved, struct ft_error *error);

/* garbage.c: one step; a fault is left for the next commit to meet. */
void store_collect(struct store *store);

#endif
