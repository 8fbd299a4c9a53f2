/* What an operator's tool needs beside flytune/client.h, whose rules hold here as well: jobs, trials, pins, misses,
 * export and import, devices, the daemon's state. Of the same library.
 *
 * Lists are snapshots: made by a call, read by any thread, yours to free with the list's _free. _count is their length;
 * _get returns 1 and fills in the structure, whose size you set, or returns 0 if there is no such element. */
#ifndef FLYTUNE_ADMIN_H
#define FLYTUNE_ADMIN_H

#include <flytune/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- words and fields */

/* "bad_value" for FLYTUNE_E_BAD_VALUE; "other" for a number that it does not know. */
FLYTUNE_API const char *flytune_result_word(enum flytune_result code);

/* "queued" for FLYTUNE_STATE_QUEUED, and so on; "unknown" for a number that it does not know. */
FLYTUNE_API const char *flytune_state_word(enum flytune_state state);

/* The higher, the sooner it is served: 1 for the default; 0 for a number that it does not know. */
FLYTUNE_API int flytune_source_rank(enum flytune_source source);

/* A problem's kernel; lives as long as the problem. */
FLYTUNE_API const char *flytune_problem_kernel(const flytune_problem *problem);

/* A problem's fields, in the schema's order and with its defaults filled in where this library knows the kernel.
 * Returns 1 and fills in `field`, whose texts live as long as the problem; 0 past the last one. */
FLYTUNE_API int flytune_problem_field(
        const flytune_problem *problem, size_t index, struct flytune_field *field);

/* ---------------------------------------------------------------- jobs */

/* Something that happened to a job. The library makes it; it may grow at its end. */
struct flytune_event {
	size_t size;
	uint64_t job;   /* its number */
	char event[16]; /* queued, started, stage, trial, round, restarted, ended, missed */
	enum flytune_state state;
	char stage[16];
	uint64_t trials, settled; /* as in a job */
	uint64_t round;           /* the last one measured */
	char status[16];          /* of a trial: as in flytune_trial */
	uint64_t time_ps;         /* of a trial */
	uint64_t ci_ps;           /* half the width of its 95 % confidence interval */
	char reason[FLYTUNE_REASON_SIZE];
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX]; /* of a trial: the config that was settled */
	uint64_t space;                              /* as in a job */
};

/* Reports the events of one job, or of all (NULL), on a connection of its own, until `events` returns non-zero
 * (FLYTUNE_OK then), the time is over, or the daemon goes away. Before the first event it is called with one
 * whose name is "watching": from then on nothing is missed. */
FLYTUNE_API enum flytune_result flytune_watch(flytune_client *client, const struct flytune_job *job,
        int64_t timeout_ms, flytune_event_fn events, void *data, struct flytune_error *error);

/* Ends a job, for everybody who waits for it; what was measured stays. It is for the job's owner and administrators:
 * others get FLYTUNE_E_DENIED, and stop waiting by not calling flytune_wait. Returns once the job has ended; of one that
 * was over before it is no error, and flytune_jobs tells how it ended. */
FLYTUNE_API enum flytune_result flytune_cancel(
        flytune_client *client, const struct flytune_job *job, struct flytune_error *error);

typedef struct flytune_job_list flytune_job_list;

/* One job, or all that are remembered (NULL), oldest first. */
FLYTUNE_API enum flytune_result flytune_jobs(flytune_client *client, const struct flytune_job *job,
        flytune_job_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_job_list_count(const flytune_job_list *list);
FLYTUNE_API int flytune_job_list_get(const flytune_job_list *list, size_t index, struct flytune_job *job);
FLYTUNE_API void flytune_job_list_free(flytune_job_list *list);

/* ---------------------------------------------------------------- trials */

/* One config on one problem and device, and what was learned of it. */
struct flytune_trial {
	size_t size;
	char status[16]; /* ok, wrong, failed, timeout, same_code_as, pruned, waiting, suspect */
	int is_default, is_winner;
	int tied;               /* within the band of the best */
	uint64_t time_ps;       /* median over the rounds */
	uint64_t ci_ps;         /* half the width of its 95 % confidence interval */
	uint64_t rounds;        /* measured */
	uint64_t dropped_round; /* rounds seen when it was dropped; 0: it was not */
	uint64_t registers;     /* of a thread */
	uint64_t spills;        /* of registers to memory */
	uint64_t build_ns;
	double error;                 /* largest relative error seen when it was verified */
	char code[FLYTUNE_HASH_SIZE]; /* hash of the machine code */
	char reason[FLYTUNE_REASON_SIZE];
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
	uint32_t same_as_count; /* same_code_as: the config that was timed in its stead */
	struct flytune_knob same_as[FLYTUNE_KNOBS_MAX];
	/* Its time relative to the best's, from the rounds that both were measured in, with a 99.5 %
	 * confidence interval; 0: not known. Unlike the medians these can be compared between trials that were
	 * dropped at different times. */
	double ratio, ratio_low, ratio_high;
};
FLYTUNE_DEFINE_INIT(flytune_trial);

/* What holds for all trials of a problem. */
struct flytune_trials_info {
	size_t size;
	char device[FLYTUNE_DEVICE_SIZE];
	char identity[FLYTUNE_HASH_SIZE];
	uint64_t rounds;                  /* measured */
	uint64_t seed;                    /* of the inputs and of the order in the rounds */
	int conclusive;                   /* the race ended because it was settled */
	char method[FLYTUNE_REASON_SIZE]; /* how it was measured, in the runner's words */
	char reason[FLYTUNE_REASON_SIZE]; /* why the winner won */
	uint64_t sweep_ns;                /* spent sweeping this problem, over all its sweeps */
	uint64_t band_ppm; /* configs within this of the best are tied with it: 5,000 is 0.5 % */
	/* The default's time over the winner's, by the rounds that both were in; and at least, with 99.5 % confidence. */
	uint64_t gain_ppm, gain_least_ppm;
	uint64_t seen_ppm; /* of the space, what was tried */
	uint64_t space;    /* its members that can win, tried or not; 0: not known */
};
FLYTUNE_DEFINE_INIT(flytune_trials_info);

typedef struct flytune_trial_list flytune_trial_list;

/* All that is known of a problem's configs on a device (NULL: the client's). _info returns 1 as _get does. */
FLYTUNE_API enum flytune_result flytune_trials(flytune_client *client, const flytune_problem *problem,
        const char *device, flytune_trial_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_trial_list_count(const flytune_trial_list *list);
FLYTUNE_API int flytune_trial_list_get(
        const flytune_trial_list *list, size_t index, struct flytune_trial *trial);
FLYTUNE_API int flytune_trial_list_info(const flytune_trial_list *list, struct flytune_trials_info *info);
FLYTUNE_API void flytune_trial_list_free(flytune_trial_list *list);

#define FLYTUNE_KNOB_VALUES_MAX 32

/* What one knob did for a problem, as its trials show. */
struct flytune_effect {
	size_t size;
	char name[FLYTUNE_NAME_SIZE];
	int changes_bits; /* it can change a result's bits */
	int timed;        /* at least two of its values were timed: `loss` says something */
	/* What the worst choice costs with all else at its best: the best time with that value relative to the
	 * best of all, less 1. */
	double loss;
	double loss_least;   /* what it costs at least, by the 99.5 % confidence interval */
	double default_loss; /* the same with the default's value; 0 as well if nothing with it was timed */
	uint64_t pairs;      /* pairs of built configs that differ in this knob alone */
	uint64_t same_pairs; /* of these, pairs whose machine code is the same */
	struct flytune_knob winner_knob, default_knob; /* the knob as the winner and the default have it */
	uint32_t value_count; /* values that any trial has, ascending, words by the alphabet */
	struct flytune_knob value[FLYTUNE_KNOB_VALUES_MAX];
	double ratio
	        [FLYTUNE_KNOB_VALUES_MAX]; /* the best time with that value to the best of all; 0: none was timed */
};
FLYTUNE_DEFINE_INIT(flytune_effect);

/* The effect of knob number `index`, in the order of the schema; 0 past the last one. */
FLYTUNE_API int flytune_trial_list_effect(
        const flytune_trial_list *list, size_t index, struct flytune_effect *effect);

/* ---------------------------------------------------------------- control */

/* What a change of an answer gave. With the store, its generation makes a token under which the answers of
 * this very moment can be had. */
struct flytune_change {
	size_t size;
	uint64_t generation;
	char store[FLYTUNE_STORE_SIZE]; /* UUID */
	int was_set;                    /* there was something to replace or to take away */
};
FLYTUNE_DEFINE_INIT(flytune_change);

/* These are for administrators; others get FLYTUNE_E_DENIED, with the group that they lack. They return once the change
 * is durable: every lookup from then on sees it. `device` NULL is the client's; `change` may be NULL. */

/* Decides a problem's config by hand. All knobs must be given, and the config be in the problem's space. */
FLYTUNE_API enum flytune_result flytune_pin(flytune_client *client, const flytune_problem *problem,
        const char *device, const struct flytune_knob *knobs, size_t count, struct flytune_change *change,
        struct flytune_error *error);
/* Takes a pin away: what was known before serves again. */
FLYTUNE_API enum flytune_result flytune_unpin(flytune_client *client, const flytune_problem *problem,
        const char *device, struct flytune_change *change, struct flytune_error *error);
/* Forgets pin, winner, import and trials. */
FLYTUNE_API enum flytune_result flytune_forget(flytune_client *client, const flytune_problem *problem,
        const char *device, struct flytune_change *change, struct flytune_error *error);
/* Stops the queue, and returns once nothing runs; what ran keeps what it measured and waits. A pause outlives a restart
 * of the daemon. */
FLYTUNE_API enum flytune_result flytune_pause(flytune_client *client, struct flytune_error *error);
FLYTUNE_API enum flytune_result flytune_resume(flytune_client *client, struct flytune_error *error);

/* A problem that was looked up and has no result of its own. */
struct flytune_miss {
	size_t size;
	uint64_t count; /* of lookups, those counted that clients answered by themselves */
	uint64_t first_ago_ns, last_ago_ns;
	char kernel[FLYTUNE_KERNEL_SIZE];
	char device[FLYTUNE_DEVICE_SIZE];
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX];
};
FLYTUNE_DEFINE_INIT(flytune_miss);

/* What holds for all misses. */
struct flytune_misses_info {
	size_t size;
	uint64_t asked;     /* lookups that missed, since the daemon's start */
	uint64_t forgotten; /* problems that the daemon had no place for */
};
FLYTUNE_DEFINE_INIT(flytune_misses_info);

typedef struct flytune_miss_list flytune_miss_list;

/* Misses since the daemon's start, the most asked first; at most `most` of them, 0: all that are kept. _info returns 1
 * as _get does. */
FLYTUNE_API enum flytune_result flytune_misses(
        flytune_client *client, size_t most, flytune_miss_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_miss_list_count(const flytune_miss_list *list);
FLYTUNE_API int flytune_miss_list_get(const flytune_miss_list *list, size_t index, struct flytune_miss *miss);
FLYTUNE_API int flytune_miss_list_info(const flytune_miss_list *list, struct flytune_misses_info *info);
FLYTUNE_API void flytune_miss_list_free(flytune_miss_list *list);

/* ---------------------------------------------------------------- export and import */

/* An answer as it travels from store to store. flytunectl keeps such rows in files; a program may keep them
 * elsewhere. */
struct flytune_row {
	size_t size;
	char kernel[FLYTUNE_KERNEL_SIZE];
	char device[2048]; /* the identity of the device: all that decides its speed */
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX]; /* of the problem */
	uint32_t knob_count;                            /* 0 and no document: the row only pins */
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
	const char *document; /* of a config that is one; NULL: it has knobs. Lives as long as the row */
	char identity[2048];  /* compiler, driver and source under which it was measured */
	char origin[64];      /* UUID of the store that measured it */
	uint64_t time_ps, default_time_ps, tuned_at_ns;
	uint32_t pin_count; /* 0 and no document: the problem is not pinned */
	struct flytune_knob pin[FLYTUNE_KNOBS_MAX];
	const char *pin_document;
	uint64_t pinned_at_ns;
	uint64_t gain_least_ppm, seen_ppm, order_class; /* as in an answer */
	int unsettled;
};
FLYTUNE_DEFINE_INIT(flytune_row);

/* What an export was of. */
struct flytune_export_info {
	size_t size;
	char store[FLYTUNE_STORE_SIZE]; /* UUID */
	uint64_t generation;
	uint64_t hidden; /* answers that are damaged, and were left out */
};
FLYTUNE_DEFINE_INIT(flytune_export_info);

/* Called for each row; `row` dies with the call. Returns 0 to go on; anything else ends the export with
 * FLYTUNE_E_CANCELLED. */
typedef int (*flytune_row_fn)(void *data, const struct flytune_row *row);

/* Gives every answer of the daemon, in no useful order, all as of one generation: the client's, else the one at
 * the start of the call. `info` may be NULL. */
FLYTUNE_API enum flytune_result flytune_export(flytune_client *client, flytune_row_fn rows, void *data,
        struct flytune_export_info *info, struct flytune_error *error);

/* An import: rows are checked by the daemon as they are added, and nothing is changed before the commit. For
 * administrators, and for one thread. */
typedef struct flytune_import flytune_import;

/* How an import stands. */
struct flytune_import_report {
	size_t size;
	uint64_t rows;                  /* added */
	uint64_t usable;                /* of these, those that serve on this host */
	uint64_t kept;                  /* of these, those now in the store; after a commit */
	uint64_t notes;                 /* rows of which there is something to be said */
	uint64_t generation;            /* after a commit */
	char store[FLYTUNE_STORE_SIZE]; /* after a commit: with the generation, a token */
};
FLYTUNE_DEFINE_INIT(flytune_import_report);

/* What is to be said of a row that was taken. */
struct flytune_import_note {
	size_t size;
	uint64_t row;   /* the first that was added is 1 */
	char field[16]; /* that differs: kernel, device, config, pin, identity */
	int usable;     /* it serves here all the same */
	char reason[FLYTUNE_REASON_SIZE];
};
FLYTUNE_DEFINE_INIT(flytune_import_note);

/* The client must outlive the import. */
FLYTUNE_API enum flytune_result flytune_import_begin(
        flytune_client *client, flytune_import **import, struct flytune_error *error);
/* Adds a row. Rows go to the daemon in lots, so that a refusal may come with a later one: error.message
 * numbers the row. After a failure, nothing of the import can be used. */
FLYTUNE_API enum flytune_result flytune_import_add(
        flytune_import *import, const struct flytune_row *row, struct flytune_error *error);
/* Has all rows checked and changes nothing. `report` may be NULL. */
FLYTUNE_API enum flytune_result flytune_import_check(
        flytune_import *import, struct flytune_import_report *report, struct flytune_error *error);
/* Applies all rows. Up to 16,384 are applied together or not at all; of more, error.message says how many
 * were. `report` may be NULL. */
FLYTUNE_API enum flytune_result flytune_import_commit(
        flytune_import *import, struct flytune_import_report *report, struct flytune_error *error);
/* The first thousand notes so far. 1 and a note, or 0 past the last. */
FLYTUNE_API int flytune_import_get_note(
        const flytune_import *import, size_t index, struct flytune_import_note *note);
/* Drops what was not committed. */
FLYTUNE_API void flytune_import_free(flytune_import *import);

/* ---------------------------------------------------------------- kernels */

/* A kernel that the daemon serves, or a folder that makes none. */
struct flytune_kernel {
	size_t size;
	char name[FLYTUNE_KERNEL_SIZE];
	char state
	        [16]; /* serving; kept: its folder is broken, and the last good copy serves; refused: it is not served */
	char origin[16]; /* built-in, folder, runner: only a runner has it */
	char path[512];  /* of the folder, or of the runner's program; "" if it is built in */
	char reason[FLYTUNE_REASON_SIZE]; /* what is wrong with the folder */
	char help[128];
	char kinds[64];                    /* of device that it is for, parted by blanks: "cuda cpu" */
	char devices[FLYTUNE_REASON_SIZE]; /* ids of those that run it here, parted by blanks */
	char scale
	        [FLYTUNE_NAME_SIZE]; /* the field along which what is tuned serves its neighbours; "": none */
	uint32_t field_count, knob_count;
};
FLYTUNE_DEFINE_INIT(flytune_kernel);

#define FLYTUNE_CHOICES_MAX 8

/* A field of its problems. */
struct flytune_kernel_field {
	size_t size;
	char name[FLYTUNE_NAME_SIZE];
	char help[128];
	int is_text;
	int64_t min, max;      /* of a number */
	uint32_t choice_count; /* of a text */
	char choice[FLYTUNE_CHOICES_MAX][FLYTUNE_TEXT_SIZE];
	char same_as[FLYTUNE_NAME_SIZE]; /* left out, it is as that field; "": as no other */
	int has_default;                 /* left out, it is one of the next two */
	int64_t default_number;
	char default_text[FLYTUNE_TEXT_SIZE];
};
FLYTUNE_DEFINE_INIT(flytune_kernel_field);

/* A knob of its configs. */
struct flytune_kernel_knob {
	size_t size;
	char name[FLYTUNE_NAME_SIZE];
	char help[128];
	char kinds[64];   /* of device that have it with these values, as in flytune_kernel */
	int changes_bits; /* it can change a result's bits */
	uint32_t value_count;
	struct flytune_knob value[FLYTUNE_KNOB_VALUES_MAX];
};
FLYTUNE_DEFINE_INIT(flytune_kernel_knob);

typedef struct flytune_kernel_list flytune_kernel_list;

/* All kernels, built-in ones first, or those of that name: none is no error. _get_field and _get_knob give number `index` of kernel
 * number `kernel`, in the order of its schema, as _get does. */
FLYTUNE_API enum flytune_result flytune_kernels(
        flytune_client *client, const char *name, flytune_kernel_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_kernel_list_count(const flytune_kernel_list *list);
FLYTUNE_API int flytune_kernel_list_get(
        const flytune_kernel_list *list, size_t index, struct flytune_kernel *kernel);
FLYTUNE_API int flytune_kernel_list_get_field(
        const flytune_kernel_list *list, size_t kernel, size_t index, struct flytune_kernel_field *field);
FLYTUNE_API int flytune_kernel_list_get_knob(
        const flytune_kernel_list *list, size_t kernel, size_t index, struct flytune_kernel_knob *knob);
FLYTUNE_API void flytune_kernel_list_free(flytune_kernel_list *list);

/* ---------------------------------------------------------------- devices and status */

/* A device that the daemon tunes for. */
struct flytune_device {
	size_t size;
	char id[FLYTUNE_DEVICE_SIZE]; /* that calls take: "cpu:0", "hip:1" */
	char kind[16];                /* cpu, hip, cuda */
	char state[16];               /* ready, probing, absent, failed */
	char name[128];               /* for people */
	char arch[64];                /* "x86-64-v3", "sm_90", "gfx90a:sramecc+:xnack-" */
	char pci[16];                 /* address, in lower case; calls take it as well; "" of a CPU */
	uint64_t units;               /* compute units, multiprocessors, or usable cores */
	uint64_t memory;              /* bytes */
	char identity
	        [FLYTUNE_HASH_SIZE]; /* of identity_text: compiler, driver and all else that results depend on */
	char identity_text[1024];
	char runner[128];                 /* the program that measures on it */
	uint64_t runner_pid;              /* while one runs */
	char reason[FLYTUNE_REASON_SIZE]; /* why it is not ready */
	char holder[16];                  /* who has it: sweep, check, background, load; "": nobody */
	uint64_t job;                     /* of the holder; 0: it has none */
};
FLYTUNE_DEFINE_INIT(flytune_device);

typedef struct flytune_device_list flytune_device_list;

FLYTUNE_API enum flytune_result flytune_devices(
        flytune_client *client, flytune_device_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_device_list_count(const flytune_device_list *list);
FLYTUNE_API int flytune_device_list_get(
        const flytune_device_list *list, size_t index, struct flytune_device *device);
FLYTUNE_API void flytune_device_list_free(flytune_device_list *list);

/* Room for sources to come. */
enum { FLYTUNE_SOURCES_MAX = 16 };

/* The state of the daemon. */
struct flytune_status_info {
	size_t size;
	char server[64];   /* "flytuned 0.2.0" */
	uint64_t protocol; /* version that is spoken */
	uint64_t pid;
	uint64_t uptime_ns;
	char store[FLYTUNE_STORE_SIZE]; /* UUID */
	uint64_t generation;
	char state_dir[256];
	uint64_t store_bytes, store_limit; /* used, and that it may grow to */
	uint64_t answers;                  /* problems with an answer of their own */
	uint64_t damaged;                  /* records found damaged since the daemon's start */
	uint64_t sessions;                 /* connections */
	uint64_t jobs_queued, jobs_running;
	uint64_t runner_restarts;
	int paused;
	char degraded[FLYTUNE_REASON_SIZE];    /* what does not work, and why; "" if all does */
	uint64_t lookups[FLYTUNE_SOURCES_MAX]; /* since the daemon's start, by enum flytune_source */
	char access[FLYTUNE_REASON_SIZE];      /* who may do what, in words */
	char background[64];                   /* what background work is doing; "": there is none */
	uint64_t background_waiting;           /* problems to be swept in the background */
	uint64_t background_dropped;           /* such that had no room, since the daemon's start */
	int stale_known;                       /* the daemon has counted the stale ones; else ask again */
	uint64_t stale;                        /* answers tuned under an identity that is none of today's */
	uint64_t misses;                       /* lookups without a result of their own, since the start */
	char config[256];                      /* the configuration file that the daemon read; "" if none */
	uint64_t sessions_limit;      /* connections that the daemon serves at once; 0: it does not say */
	uint64_t user_sessions_limit; /* of these, of one user who is no administrator */
	uint64_t sessions_refused;    /* that were one too many, since the daemon's start */
	uint64_t busiest_user;        /* the uid that has most of them */
	uint64_t busiest_sessions;    /* and how many */
};
FLYTUNE_DEFINE_INIT(flytune_status_info);

/* Asks the daemon for a sign of life, by connecting if need be. Lookups need no such call. Fails with why the
 * daemon is away; after a failure, at once and with the same reason until its pause is over. */
FLYTUNE_API enum flytune_result flytune_ping(flytune_client *client, struct flytune_error *error);

/* `devices` may be NULL; else it takes a list, yours to free. */
FLYTUNE_API enum flytune_result flytune_status(flytune_client *client, struct flytune_status_info *status,
        flytune_device_list **devices, struct flytune_error *error);

/* The daemon's figures in the Prometheus text format, with a NUL behind, yours to free with flytune_text_free. `length`
 * may be NULL. */
FLYTUNE_API enum flytune_result flytune_metrics(
        flytune_client *client, char **page, size_t *length, struct flytune_error *error);
FLYTUNE_API void flytune_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
