/* The store: everything that flytuned must still know after a crash, in one LMDB environment.
 *
 * Threads. Reads happen on the loop thread, in a read transaction that store_begin renews and store_end
 * resets, so that none is open while the loop sleeps. Writes are batches, handed to one writer thread, which
 * commits all that wait in one transaction, in the order of submission; the commit's fsync never blocks the
 * loop. A batch's `done` is called on the loop thread after its commit returned: only then may anything be
 * acknowledged. What it changed is published before reads see it.
 *
 * Answers and generations. An answer record holds pin, winner and import of one problem on one device. Each
 * batch that changes an answer takes a new generation; the record as it was at each generation is kept as
 * history.
 *
 * Damage. Every value carries a checksum; a damaged one is counted, logged once and read as absent. */
#ifndef FLYTUNE_DAEMON_STORE_H
#define FLYTUNE_DAEMON_STORE_H

#include <uv.h>

#include "daemon/store/answer.h"
#include "daemon/store/trials.h"

struct store;

/* What a store keeps and when it gives up; tests use smaller ones. */
struct store_limits {
	uint64_t history_ns; /* an answer that was replaced is kept until a daemon has run this long since */
	uint32_t history_rows;    /* and at least so many of each problem */
	uint32_t collect_commits; /* a step of collection after so many commits */
	uint32_t collect_rows;    /* looked at in one step */
	uint32_t stale_percent; /* of the map: trials of identities that are no device's now are collected */
	uint32_t
	        refuse_percent; /* of the map: new jobs, trials and imports are refused, single answers are not */
	uint32_t probe_ms; /* after the first write that fails; the pause doubles from attempt to attempt */
	uint32_t probe_most_ms; /* and grows no longer than this */
	uint64_t always_bytes;  /* a store up to this size is checked at every start */
	uint64_t check_bytes;   /* after a run that did not end in peace: a store up to this size is always
	                            checked, a larger one if a signal such as SIGBUS ended the run, or at the
	                            second such run in a row */
};
extern const struct store_limits store_limits_usual;

struct store_options {
	const char *directory;             /* made if missing, mode 0700 */
	uint64_t map_bytes;                /* reserved address space; 0: 16 GiB */
	const struct store_limits *limits; /* NULL: store_limits_usual */
	void (*log)(
	        void *data, int level, const char *message); /* syslog levels: 3 error, 4 warning, 6 info */
	void *log_data;
	/* A commit that changes answers is published once it is durable, before any read sees it: `publish` for every answer
	 * that it changed (key NULL: any may have changed), then `published` with the generation that reads come to see. On
	 * the writer's thread or the loop's, whichever is at hand first, with the store's lock held: no call of the store is
	 * allowed. May be NULL, both. */
	void (*publish)(void *data, const struct store_key *key);
	void (*published)(void *data, uint64_t generation);
	/* The same once more on the loop thread, when reads see it, before any `done` of the commit. May be NULL. */
	void (*changed)(void *data, const struct store_key *key);
	/* LMDB came upon damage. Only a new store_open checks and rescues; what is submitted until then may fail. Once. May be
	 * NULL. */
	void (*broken)(void *data);
	void (*mended)(void *data); /* writes that failed go through again. May be NULL. */
	/* store_open checks or rescues what may take long: about once a second, for as long as that goes on. May be NULL. */
	void (*waits)(void *data);
	void *changed_data;
};

/* Takes the directory's lock, checks what is there, opens or creates. Errors are for people: not writable, in
 * use (with the holder's pid), a network file system, written by a newer flytune or another LMDB (left as it
 * is). A store that is damaged is moved aside with the date, what can be repaired is kept, and `log` says how
 * much. */
int store_open(
        struct store **store, uv_loop_t *loop, const struct store_options *options, struct ft_error *error);
/* Commits what was submitted, stops the thread, calls every `done`, closes handles; `closed` last. The loop
 * must run. */
void store_close(struct store *store, void (*closed)(void *data), void *data);
/* Has the store look, soon, whether its files still stand where their names lead; what was taken away is put back. Each
 * commit looks by itself before it is acknowledged. On the loop thread. */
void store_look(struct store *store);
/* Async-signal-safe, for a handler of SIGBUS, SIGSEGV, SIGILL, SIGFPE or SIGABRT that then lets the process
 * die: the next start checks the store before it trusts it. */
void store_mark_signal(const struct store *store, int signal);

/* ---- facts, any time on the loop thread ---- */

const char *store_uuid(const struct store *store);
/* Of the last commit that reads can see; between store_begin and store_end, of the answers read there. The
 * first one is 1. */
uint64_t store_generation(const struct store *store);
uint64_t store_history_floor(const struct store *store); /* answers before this generation are collected */

struct store_facts {
	uint64_t bytes, limit; /* used, and the map's size */
	uint64_t answers;      /* problems with an answer record */
	uint64_t damaged;      /* since start */
	uint64_t commits;
	uint64_t stuck_ns; /* for which the writer has been at the same group; 0: it is not */
	char degraded
	        [FT_REASON_SIZE]; /* why writes fail now, "" if they do not: after one that did not fit, until
	                                  one at least as large did */
};
void store_facts(struct store *store, struct store_facts *facts);

/* Small ids for long names, dense from 1; the same text always gets the same id, durable before anything that
 * uses it. */
int store_intern(
        struct store *store, enum store_name kind, const char *text, uint32_t *id, struct ft_error *error);
/* The text of an id, NULL if unknown; lives as long as the store. */
const char *store_name_text(struct store *store, enum store_name kind, uint32_t id);

/* ---- reads, on the loop thread between begin and end ---- */

/* May be nested. Fails while the store is being opened anew after an error of the disk. */
int store_begin(struct store *store, struct ft_error *error);
void store_end(struct store *store);
/* Whether nothing was published since store_begin, so that what is read is still so. What `publish` changed before this
 * said yes, it changed before store_begin. */
bool store_is_latest(const struct store *store);

/* 1 found, 0 not, -1 error. The answer now, and as it was at a generation: from the history floor to
 * store_generation, else, or where a damaged record hides what was, FT_E_GENERATION. */
int store_get_answer(struct store *store, const struct store_key *key, struct store_answer *answer,
        struct ft_error *error);
int store_get_answer_at(struct store *store, const struct store_key *key, uint64_t generation,
        struct store_answer *answer, struct ft_error *error);
/* Visits up to `most` answers of the same problem but for the scale field, with low <= scale field <= high, nearest to
 * key->problem.scale field first (least |log ratio|, ties to the smaller), leaving that value itself out, until
 * `visit` returns false. `generation` 0: as they are now. */
int store_near_answers(struct store *store, const struct store_key *key, uint64_t low, uint64_t high,
        unsigned most, uint64_t generation,
        bool (*visit)(void *data, uint64_t scale, const struct store_answer *answer), void *data,
        struct ft_error *error);
/* Where a walk over all answers goes on; all zero: at the first. */
struct store_place {
	uint32_t length;
	uint8_t at[32];
};
/* Visits the answers as they were at a generation (0: as they are now), one after the other in an order of
 * the store's own, until `visit` returns false or `most` records were looked at. `place` is moved on; its
 * length is 0 again past the last. Those that damage hides are left out, and counted in *hidden. */
int store_each_answer(struct store *store, uint64_t generation, unsigned most, struct store_place *place,
        bool (*visit)(void *data, const struct store_key *key, const struct store_answer *answer), void *data,
        uint64_t *hidden, struct ft_error *error);
/* A fresh set, to be freed; *trials NULL if there is none. */
int store_get_trials(struct store *store, const struct store_key *key, uint32_t identity,
        struct trials **trials, struct ft_error *error);
/* Every job record, in the order of ids, until `visit` returns false. job->answer is a view that dies with
 * the call. */
int store_each_job(struct store *store, bool (*visit)(void *data, const struct ft_job *job), void *data,
        struct ft_error *error);
uint64_t store_next_job(struct store *store); /* a new id, never given before, even across crashes */
/* What was kept under a short name (see store_batch_note): 1 found, 0 not, -1 error. */
int store_get_note(struct store *store, const char *name, struct ft_writer *value, struct ft_error *error);
/* The identity that a device had at a generation (0: now). Before one was set it is the first, since nothing was answered
 * under another; 0 if none ever was. */
uint32_t store_device_identity(struct store *store, uint32_t device, uint64_t generation);

/* ---- writes ---- */

struct store_batch; /* what is committed together; arguments are copied in */

#define STORE_THIS UINT64_MAX /* the generation of a commit, before it has one */

struct store_batch *store_batch_new(struct store *store); /* NULL when out of memory */
void store_batch_drop(struct store_batch *batch);         /* instead of submitting it */
int store_batch_trials(struct store_batch *batch, const struct store_key *key, uint32_t identity,
        const struct trials *trials);
/* Puts or replaces it. Where its answer is of generation STORE_THIS it is stored as of that of the commit. */
int store_batch_job(struct store_batch *batch, const struct ft_job *job);
int store_batch_drop_job(struct store_batch *batch, uint64_t job);
/* These change answers. Each replaces its slot; `set` false empties it. `problem` is whole. */
int store_batch_pin(struct store_batch *batch, const struct store_key *key, const struct ft_problem *problem,
        const struct store_pin *pin);
int store_batch_winner(struct store_batch *batch, const struct store_key *key,
        const struct ft_problem *problem, const struct store_winner *winner);
int store_batch_import(struct store_batch *batch, const struct store_key *key,
        const struct ft_problem *problem, const struct store_import *import);
int store_batch_forget(
        struct store_batch *batch, const struct store_key *key); /* the three slots, and all its trials */
/* The identity that a device has from now on; takes a generation only if it differs. */
int store_batch_identity(struct store_batch *batch, uint32_t device, uint32_t identity);
/* Small facts of the daemon's own, by name: what a runner said in its last hello. */
int store_batch_note(struct store_batch *batch, const char *name, const void *value, size_t length);

/* Hands the batch over, whatever happens. `done` (may be NULL) gets the generation of what the batch changed,
 * or, where it changed no answer, that of reads now; or an error when nothing of the batch was kept (a full disk, a full
 * map). If writes fail for want of room, later batches are tried anew. */
typedef void (*store_done)(void *data, uint64_t generation, const struct ft_error *error);
void store_submit(struct store_batch *batch, store_done done, void *data);

#endif
