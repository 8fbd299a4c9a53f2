/* libflytune-client: ask flytuned which kernel configuration is best for a problem on this host's device.
 *
 * This header is all that an engine needs; flytune/admin.h is for operators' tools, and flytune/rmsnorm.h makes
 * problems of one built-in kernel from its own numbers. All are of one library. flytune-client(3) shows a program.
 *
 * Words. A *problem* is what you have, as named fields of a kernel's schema; its *scale field* is the number that
 * varies from call to call (m). A *config* is a list of named integers and words, the *knobs*; of a kernel of others it may
 * be one JSON document instead. A *sweep* times the configs of one problem, a *job* is a request for one. *Away*: the
 * daemon cannot be reached, is late, or cannot serve.
 *
 * What holds for all of it, and flytune-client(3) says more of:
 *  - A lookup never waits for a search (but under FLYTUNE_AUTOTUNE=1), and no call waits past its deadline.
 *  - What was asked before is answered from memory while it is what the daemon would say now: without a system call, a
 *    lock or an allocation. A new winner, a pin or a forget is seen by the next call.
 *  - While the daemon is away a lookup still succeeds, with what is known or the analytic default, and is marked.
 *  - No threads, processes, signals, output or global settings; descriptors are close-on-exec and above 2. The
 *    environment (FLYTUNE_SOCKET, FLYTUNE_GENERATION, FLYTUNE_AUTOTUNE) is read in flytune_open alone, and not in a
 *    program with rights which its caller lacks: secure_getenv(3).
 *  - Any function may be called by several threads at once, also on one client or problem, and in a child after fork;
 *    nothing may be in use while it is freed. A thread that is cancelled in a call ends it first. Callbacks return.
 *  - NULL for what must be given is FLYTUNE_E_BAD_VALUE, with error.field its name; functions without a code return 0,
 *    -1 or NULL then. What is freed may be NULL.
 *  - Structures that you allocate begin with their size, set by their _init function, so that they can grow under
 *    programs built before. Those without one never change. Texts in them end with a NUL.
 *  - _ns are nanoseconds, _ps picoseconds, _ms milliseconds, _ppm millionths, _at_ns nanoseconds since the Unix epoch;
 *    what is not known is 0 or "".
 */
#ifndef FLYTUNE_CLIENT_H
#define FLYTUNE_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLYTUNE_API __attribute__((visibility("default")))

/* The version of this header, and that of the library that is loaded: "0.2.0". */
#define FLYTUNE_VERSION_MAJOR 0
#define FLYTUNE_VERSION_MINOR 2
FLYTUNE_API const char *flytune_version(void);

/* Sizes count the NUL. */
enum {
	FLYTUNE_NAME_SIZE = 32,       /* of a field's or knob's name */
	FLYTUNE_KERNEL_SIZE = 64,     /* of a kernel's name */
	FLYTUNE_TEXT_SIZE = 129,      /* of a field's text */
	FLYTUNE_FIELDS_MAX = 32,      /* fields of a problem */
	FLYTUNE_KNOBS_MAX = 16,       /* knobs of a config */
	FLYTUNE_DOCUMENT_SIZE = 4097, /* of a config that is a document */
	FLYTUNE_DEVICE_SIZE = 32,     /* of a device's id: "cpu:0", "hip:1", "0000:c1:00.0" */
	FLYTUNE_STORE_SIZE = 40,      /* of a store's UUID */
	FLYTUNE_HASH_SIZE = 40,       /* of a hash, in hexadecimal: of machine code, of an identity */
	FLYTUNE_REASON_SIZE = 512,
	FLYTUNE_LOOKUPS_MAX = 65536,   /* problems of a call of flytune_lookup_many */
	FLYTUNE_SUBSCRIBED_MAX = 4096, /* problems of a subscription */
	FLYTUNE_FOREVER = -1           /* as a time-out: no deadline */
};

/* Defines `NAME_init(struct NAME *)`, to be called before a structure is first used: the size set, all else zero. */
#define FLYTUNE_DEFINE_INIT(name)                              \
	static inline void name##_init(struct name *structure) \
	{                                                      \
		if (structure == NULL)                         \
			return;                                \
		memset(structure, 0, sizeof *structure);       \
		structure->size = sizeof *structure;           \
	}                                                      \
	struct name

/* ---------------------------------------------------------------- errors */
/* What functions return. Numbers are never reused; new ones may come. */
enum flytune_result {
	FLYTUNE_OK = 0,
	FLYTUNE_E_BAD_VALUE = 1, /* a value is outside its bounds: error.field, .value and .bound say which */
	FLYTUNE_E_BAD_REQUEST = 2,
	FLYTUNE_E_UNKNOWN_KERNEL = 3,
	FLYTUNE_E_UNKNOWN_FIELD = 4,
	FLYTUNE_E_UNKNOWN_KNOB = 5,
	FLYTUNE_E_UNKNOWN_DEVICE = 6,
	FLYTUNE_E_UNKNOWN_JOB = 7,
	FLYTUNE_E_UNKNOWN_METHOD = 8, /* the daemon is older than this library */
	FLYTUNE_E_PROTOCOL = 9,       /* no protocol version in common */
	FLYTUNE_E_BAD_FRAME = 10,     /* one side could not read the other */
	FLYTUNE_E_BUSY = 11,          /* too many clients, a full queue, a quota */
	FLYTUNE_E_DENIED = 12,        /* error.message says what is missing */
	FLYTUNE_E_UNAVAILABLE = 13,   /* the daemon, a device or the store cannot do this now */
	FLYTUNE_E_AWAY = 14,          /* nobody answers */
	FLYTUNE_E_TIMEOUT = 15,
	FLYTUNE_E_GENERATION = 16, /* the answers of the generation that was named cannot be had */
	FLYTUNE_E_CANCELLED = 17,  /* a callback of yours said stop */
	FLYTUNE_E_RUNNER = 18,
	FLYTUNE_E_STORE = 19,
	FLYTUNE_E_SYSTEM = 20,
	FLYTUNE_E_MEMORY = 21,
	FLYTUNE_E_OTHER = 99 /* a code that this library does not know: see error.word */
};

/* What went wrong. What can fail takes one, or NULL; it is filled in on failure and left alone on success. */
struct flytune_error {
	enum flytune_result code;
	char word[32];     /* the code as a word, which stays the same for ever: "bad_value" */
	char message[320]; /* for people: names the field, the value and the bound */
	char field[48];    /* "" unless one field is at fault */
	char value[64];    /* what was refused, cut to fit */
	char bound[64];    /* what would have been accepted */
};

/* ---------------------------------------------------------------- client */
/* A handle on the daemon. Cheap to make; a program needs one. */
typedef struct flytune_client flytune_client;

enum flytune_autotune {
	FLYTUNE_AUTOTUNE_ENVIRONMENT = 0, /* as FLYTUNE_AUTOTUNE says; unset: FLYTUNE_AUTOTUNE_USUAL */
	FLYTUNE_AUTOTUNE_USUAL = 1,       /* a lookup answers with what is known */
	FLYTUNE_AUTOTUNE_FORCE = 2,       /* as FLYTUNE_AUTOTUNE=1 */
	FLYTUNE_AUTOTUNE_NEVER = 3        /* as FLYTUNE_AUTOTUNE=0 */
};

enum flytune_log_level { FLYTUNE_LOG_WARNING = 4, FLYTUNE_LOG_INFO = 6 };
typedef void (*flytune_log_fn)(void *data, enum flytune_log_level level, const char *message);

/* A device is named by its id, as `flytunectl devices` lists them ("cpu:0", "hip:1"), or by its PCI address. For the
 * HIP or CUDA device that a program uses, say what hipDeviceGetPCIBusId or cuDeviceGetPCIBusId writes ("0000:C1:00.0";
 * letters of either case), as the example launch.c does: a program's ordinals depend on HIP_VISIBLE_DEVICES,
 * CUDA_VISIBLE_DEVICES and its container, and are not the numbers in flytune's ids. */
struct flytune_options {
	size_t size;
	const char *socket;     /* NULL: FLYTUNE_SOCKET, else the usual place; under 108 bytes */
	const char *name;       /* of your program, for the daemon's log; NULL: the library's */
	const char *generation; /* NULL: FLYTUNE_GENERATION; "": none, whatever the environment says */
	const char *device;     /* for calls that name none; NULL: the daemon's first GPU, else its CPU */
	enum flytune_autotune autotune; /* with a generation, FLYTUNE_AUTOTUNE_FORCE is an error */
	int tune_on_miss;               /* not 0: lookups ask for a sweep, later, of what is not known */
	int64_t lookup_timeout_ms;      /* of a lookup; 0: 1,000 */
	int64_t call_timeout_ms;        /* of other calls that do not wait for a job; 0: 10,000 */
	int64_t autotune_timeout_ms;    /* that a lookup waits for its forced sweep; 0: 60,000 */
	uint32_t cache_entries;         /* answers kept, at least: 3 KiB each; 0: 1,024, at most 131,072 */
	flytune_log_fn log; /* of the daemon's going and coming; within a call, no lock held; NULL: silence */
	void *log_data;
};
FLYTUNE_DEFINE_INIT(flytune_options);

/* Makes a client; does not connect. `options` may be NULL, and is copied, texts included. NULL on failure: out of
 * memory, an option or environment variable that makes no sense. That the daemon is away is no failure. */
FLYTUNE_API flytune_client *flytune_open(const struct flytune_options *options, struct flytune_error *error);
/* Closes its connections and frees it. Jobs go on. Problems and lists outlive it; subscriptions do not. */
FLYTUNE_API void flytune_close(flytune_client *client);

/* ---------------------------------------------------------------- problems */
/* A problem: a kernel's name and field values. Immutable, hashed once, usable with any client. */
typedef struct flytune_problem flytune_problem;

struct flytune_field {
	const char *name;
	const char *text; /* NULL: the value is `number` */
	int64_t number;
};

/* Makes a problem from `count` fields, in any order; texts are copied. Fields at their default may be left out. NULL
 * when out of memory, and on names or texts that no kernel can have. Whether this kernel takes these values is said by
 * the call that uses the problem: the daemon may know more kernels and fields than this library. */
FLYTUNE_API flytune_problem *flytune_problem_new(
        const char *kernel, const struct flytune_field *fields, size_t count, struct flytune_error *error);
FLYTUNE_API void flytune_problem_free(flytune_problem *problem);

/* ---------------------------------------------------------------- lookups */
/* Where an answer comes from. New ones may come, at the end: flytune_source_rank (admin.h) orders them, not their numbers. */
enum flytune_source {
	FLYTUNE_SOURCE_UNKNOWN = 0,
	FLYTUNE_SOURCE_PINNED = 1,   /* an operator's override */
	FLYTUNE_SOURCE_TUNED = 2,    /* the winner of a sweep of this very problem */
	FLYTUNE_SOURCE_IMPORTED = 3, /* from an artifact for this problem and device */
	FLYTUNE_SOURCE_NEAREST = 4,  /* the winner at answer.tuned_scale, no more than 2 times away */
	FLYTUNE_SOURCE_DEFAULT = 5,  /* the analytic default */
	FLYTUNE_SOURCE_FLEET = 6,    /* a signed winner of another host; none yet */
	FLYTUNE_SOURCE_RECORDED = 7  /* what a client measured itself; none yet */
};
/* "tuned" for FLYTUNE_SOURCE_TUNED, and so on; "unknown" for a number that it does not know. */
FLYTUNE_API const char *flytune_source_word(enum flytune_source source);

enum {
	FLYTUNE_ANSWER_AWAY = 1,   /* not given by the daemon; where it is the default, `reason` says why */
	FLYTUNE_ANSWER_KEPT = 2,   /* given before by the daemon to this client, kept since; it stands */
	FLYTUNE_ANSWER_UNSWEPT = 4 /* the forced sweep did not end in time and goes on, or could not be run */
};

struct flytune_knob {
	char name[FLYTUNE_NAME_SIZE];
	const char *word; /* NULL: it is `value`. One that the library gives is never freed */
	int64_t value;
};

struct flytune_answer {
	size_t size;
	uint32_t flags; /* FLYTUNE_ANSWER_… */
	enum flytune_source source;
	char reason[64]; /* why this source: "no result yet", "probing", "daemon_away", … */
	char device[FLYTUNE_DEVICE_SIZE]; /* which the config is for; "" while none is known */
	char store[FLYTUNE_STORE_SIZE];   /* with the generation it makes a token */
	char identity[FLYTUNE_HASH_SIZE]; /* under which it was measured; "" for a default */
	uint64_t generation;              /* of the store now: this is its answer */
	uint64_t time_ns;                 /* of the config; 0: not measured */
	uint64_t default_time_ns;         /* of the default: time_ns times the gain; 0: not known */
	uint64_t tuned_at_ns;
	uint64_t tuned_scale; /* FLYTUNE_SOURCE_NEAREST: the scale field's value whose winner this is */
	uint64_t revision;    /* of the default's rule */
	uint64_t gain_ppm, gain_least_ppm; /* the default's time over its own; at least, 99.5 % sure */
	uint64_t seen_ppm;                 /* of the space, what was tried */
	uint64_t order_class;     /* configs of one class give the same bits whatever the scale; 0: of none */
	int unsettled;            /* the race ended before it was settled: the gain is as far as is known */
	uint32_t document_length; /* bytes of a config that is a document, which has no knobs */
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
};
FLYTUNE_DEFINE_INIT(flytune_answer);

/* A knob's value, or `otherwise` if the config has no such knob or it is a word; and a knob's word, or NULL. */
FLYTUNE_API int64_t flytune_answer_get(
        const struct flytune_answer *answer, const char *knob, int64_t otherwise);
FLYTUNE_API const char *flytune_answer_word(const struct flytune_answer *answer, const char *knob);

struct flytune_lookup_options {
	size_t size;
	const char *device;   /* NULL: the client's */
	int64_t timeout_ms;   /* 0: the client's */
	char *document;       /* room of yours for a config that is a document; NULL: it is not wanted */
	size_t document_size; /* of the room: FLYTUNE_DOCUMENT_SIZE holds any, what does not fit is cut */
};
FLYTUNE_DEFINE_INIT(flytune_lookup_options);

/* The best config known for a problem. `options` may be NULL. Fails on a problem or device that is refused, when this
 * user may not ask (FLYTUNE_E_DENIED), when the named generation cannot be had, when the daemon is away and this
 * library does not know the kernel, and when out of memory. */
FLYTUNE_API enum flytune_result flytune_lookup(flytune_client *client, const flytune_problem *problem,
        const struct flytune_lookup_options *options, struct flytune_answer *answer,
        struct flytune_error *error);

/* Looks up `count` problems as by flytune_lookup: a model's whole list of shapes. Those for which the daemon has to be
 * asked travel together; the time-outs are for the whole list, and documents are not given. `answers` is an array of
 * `count`, each set up with flytune_answer_init; `errors` is NULL or one: errors[i].code is FLYTUNE_OK, or why problem i
 * has no answer, its source then FLYTUNE_SOURCE_UNKNOWN. FLYTUNE_OK when all are, else `error` of the first that has none. */
FLYTUNE_API enum flytune_result flytune_lookup_many(flytune_client *client, flytune_problem *const *problems,
        size_t count, const struct flytune_lookup_options *options, struct flytune_answer *answers,
        struct flytune_error *errors, struct flytune_error *error);

/* ---------------------------------------------------------------- subscriptions */
/* Says when answers change, for a program with an event loop. Its connection and descriptors are its own. */
typedef struct flytune_subscription flytune_subscription;

/* Reports the answer to problem `index`: its first, and each later one that differs in anything but its generation.
 * `answer` is what a lookup of that moment gets from the daemon, NULL where that is refused with `error`. Both die with
 * the call. It may use the client and the subscription, but not end either. */
typedef void (*flytune_answer_fn)(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error);

/* Subscribes to the answers of `count` problems on a device (NULL: the client's). Does not connect: flytune_dispatch
 * does, and calls `changed`. The problems may be freed afterwards. With a generation each answer is reported once,
 * under FLYTUNE_AUTOTUNE=0 none. Fails on a problem that this library refuses, without memory, without descriptors (3).
 *
 * No change is lost, only states in between: however late flytune_dispatch is called, and across restarts of the
 * daemon, what is reported last is the answer that holds. A forked child has a subscription of its own, with another
 * descriptor under the same number, and every answer is reported anew. */
FLYTUNE_API enum flytune_result flytune_subscribe(flytune_client *client, flytune_problem *const *problems,
        size_t count, const char *device, flytune_answer_fn changed, void *data,
        flytune_subscription **subscription, struct flytune_error *error);

/* The descriptor to watch for being readable, level-triggered (poll, epoll): flytune_dispatch has something to do then.
 * The same for the life of the subscription. Not to be read, changed or closed. */
FLYTUNE_API int flytune_subscription_fd(const flytune_subscription *subscription);

/* Does what there is to do, without waiting: connects, asks, calls `changed` in this thread, with no lock held. To be
 * called when the descriptor is readable; else it does no harm. FLYTUNE_OK, or why the daemon cannot be heard just now:
 * it tries again whenever the descriptor says so. Calls of one subscription never overlap: if another thread is in it,
 * that one looks once more, and this one returns. */
FLYTUNE_API enum flytune_result flytune_dispatch(
        flytune_subscription *subscription, struct flytune_error *error);

/* Ends a subscription, and closes its descriptors; before flytune_close of its client, not from its own callback. */
FLYTUNE_API void flytune_unsubscribe(flytune_subscription *subscription);

/* ---------------------------------------------------------------- tuning */
enum flytune_state {
	FLYTUNE_STATE_UNKNOWN = 0,
	FLYTUNE_STATE_QUEUED = 1,
	FLYTUNE_STATE_RUNNING = 2,
	FLYTUNE_STATE_DONE = 3,
	FLYTUNE_STATE_FAILED = 4,
	FLYTUNE_STATE_CANCELLED = 5
};

struct flytune_value { /* a field of a problem, as structures hold it */
	char name[FLYTUNE_NAME_SIZE];
	char text[FLYTUNE_TEXT_SIZE]; /* "": the value is `number` */
	int64_t number;
};

/* A job, and what names one to a call. Another store gives the same numbers: where `store` is set, a daemon with another
 * store refuses the call with FLYTUNE_E_UNKNOWN_JOB. Of a number that a person typed, set `job` and nothing else. */
struct flytune_job {
	size_t size;
	uint64_t job;                   /* its number; 0: none */
	char store[FLYTUNE_STORE_SIZE]; /* that gave it its number; "": not known */
	enum flytune_state state;
	uint32_t owner;   /* user id */
	int32_t priority; /* -100 to 100 */
	char cause[16];   /* user, check; in the background: miss, upgrade (of a stale result), grown, busy */
	char stage[16];   /* while running: start, build, verify, measure, wait, confirm */
	char device[FLYTUNE_DEVICE_SIZE];
	char reason[FLYTUNE_REASON_SIZE]; /* why it failed, or waits */
	uint64_t created_at_ns, started_at_ns, ended_at_ns;
	uint64_t sweep_ns, waited_ns; /* that its sweep ran, over all its starts; and waited for the device */
	uint64_t trials, settled; /* configs that are tried; those that nothing more is to be learned of */
	uint64_t rounds, waiters, restarts; /* of measuring; clients that wait for it; of its runner */
	char kernel[FLYTUNE_KERNEL_SIZE];
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX]; /* of its problem; of the first, if it has several */
	uint64_t space; /* configs that there are, where not all are tried; else 0 */
};
FLYTUNE_DEFINE_INIT(flytune_job);

struct flytune_tune_options {
	size_t size;
	const char *device; /* NULL: the client's */
	int force;          /* not 0: sweep again although there is a winner */
	int check; /* not 0: time winner and default, and sweep again only if the winner no longer holds */
	int32_t priority;  /* -100 to 100, higher first */
	int64_t budget_ms; /* from the runner's start to the decision, all included; 0: the daemon's */
};
FLYTUNE_DEFINE_INIT(flytune_tune_options);

/* Asks for a sweep and returns once that is durable, without waiting for it. `options` may be NULL. Many who ask for the
 * same problem share one `job`. Its number is 0 if there is a winner already; then `answer`, unless NULL, is filled in. */
FLYTUNE_API enum flytune_result flytune_tune(flytune_client *client, const flytune_problem *problem,
        const struct flytune_tune_options *options, struct flytune_job *job, struct flytune_answer *answer,
        struct flytune_error *error);

/* Called in the waiting thread for each event of a job (flytune/admin.h), which dies with the call. Returns 0 to go on;
 * anything else ends the wait with FLYTUNE_E_CANCELLED and leaves the job alone. It may use the client. */
struct flytune_event;
typedef int (*flytune_event_fn)(void *data, const struct flytune_event *event);

/* Waits for a job to end, on a connection of its own; if the daemon goes away, for up to 10 s until it is back.
 * FLYTUNE_OK: the job ended, job->state says how, and `answer`, unless NULL, is filled in if it is FLYTUNE_STATE_DONE.
 * `events` (may be NULL) is called meanwhile. After FLYTUNE_E_TIMEOUT the job goes on. FLYTUNE_E_UNKNOWN_JOB: the daemon
 * knows no such job, has another store, or another problem under its number. */
FLYTUNE_API enum flytune_result flytune_wait(flytune_client *client, struct flytune_job *job,
        int64_t timeout_ms, flytune_event_fn events, void *data, struct flytune_answer *answer,
        struct flytune_error *error);

/* ---------------------------------------------------------------- code */
/* The winner's code object, for which a config is known to be best; for another kernel of the same structure it is a
 * good guess. Load it with the driver (hipModuleLoadData, cuModuleLoadData), then launch its steps one after the other:
 * the function `symbol`, in a grid of flytune_code_blocks blocks of `block` threads. It is built for all fields of its
 * problem but those that are arguments of a launch, the scale field among them. */
typedef struct flytune_code_object flytune_code_object;

struct flytune_code_info {
	size_t size;
	char device[FLYTUNE_DEVICE_SIZE];
	char identity[FLYTUNE_HASH_SIZE], hash[FLYTUNE_HASH_SIZE]; /* hash: as in flytune_trial */
	char target[64];                                           /* "sm_90", "amdgcn-amd-amdhsa--gfx90a" */
	char builder[192];                                         /* the compiler */
	uint64_t object_version;                                   /* of AMD's format; 0 on NVIDIA */
	uint64_t max_threads, registers, spills, shared, wave;
	uint32_t step_count, knob_count;             /* 1 to 4 steps */
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX]; /* the config */
};
FLYTUNE_DEFINE_INIT(flytune_code_info);

struct flytune_code_step {
	size_t size;
	char symbol[64];      /* the function's name in the object */
	char arguments[192];  /* in order: "y: pointer, x: pointer, weight: pointer, m: int64, …" */
	uint32_t block, rows; /* threads of a block; of the scale field, what it takes at once */
	uint32_t blocks_max, dynamic_shared; /* of a grid, blocks walk on; bytes to launch with */
};
FLYTUNE_DEFINE_INIT(flytune_code_step);

/* The code of the sweep's winner on a device (NULL: the client's), yours to free. FLYTUNE_E_UNAVAILABLE: none is kept. */
FLYTUNE_API enum flytune_result flytune_code(flytune_client *client, const flytune_problem *problem,
        const char *device, flytune_code_object **object, struct flytune_error *error);
/* The object's bytes; they live as long as it does, and are aligned to 16. `length` may be NULL. */
FLYTUNE_API const void *flytune_code_data(const flytune_code_object *object, size_t *length);
/* 1 and the structure, whose size you set, filled in; 0 where there is no such step. */
FLYTUNE_API int flytune_code_describe(const flytune_code_object *object, struct flytune_code_info *info);
FLYTUNE_API int flytune_code_get_step(
        const flytune_code_object *object, size_t index, struct flytune_code_step *step);
FLYTUNE_API void flytune_code_free(flytune_code_object *object);
/* Blocks of a step's grid for a value of the scale field. */
FLYTUNE_API uint32_t flytune_code_blocks(const struct flytune_code_step *step, int64_t scale);

#ifdef __cplusplus
}
#endif

#endif
