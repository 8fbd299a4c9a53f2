/* libflytune-client: ask flytuned which kernel configuration is best for a problem on this host's device.
 *
 * In short:
 *
 * 	struct flytune_error error;
 * 	flytune_client *client = flytune_open(NULL, &error);
 * 	struct flytune_rmsnorm shape;
 * 	flytune_rmsnorm_init(&shape);
 * 	shape.m = 64;
 * 	shape.n = 4096;
 * 	shape.dtype = "bf16";
 * 	flytune_problem *problem = flytune_problem_rmsnorm(&shape, &error);
 * 	struct flytune_answer answer;
 * 	flytune_answer_init(&answer);
 * 	if (flytune_lookup(client, problem, NULL, &answer, &error) == FLYTUNE_OK)
 * 		threads = flytune_answer_get(&answer, "BLOCK_THREADS", 256);
 * 	flytune_problem_free(problem);
 * 	flytune_close(client);
 *
 * Glossary. A *problem* is what you have, as named fields of a kernel's schema (m, n, dtype, …). A *config*
 * is a list of named integers, the *knobs*. A *sweep* times the configs of one problem; a *job* is a request
 * for one. *Away* means: the daemon cannot be reached, does not answer in time, or cannot serve.
 *
 * What the library promises to the program that it lives in:
 *  - A lookup never waits for a search (but see FLYTUNE_AUTOTUNE below), and no call waits past its deadline.
 *  - A lookup of what this client asked before, on the same device, is answered from memory as long as the answer is
 * what the daemon would say now: without a system call, a lock or an allocation, in any number of threads. The
 * daemon tells what changed by memory that it shares, so a new winner, a pin or a forget is seen by the next call.
 *  - While the daemon is away a lookup still succeeds: with what this client already knows, else with the
 * analytic default, by the same rule that the daemon uses; the answer is marked. A daemon that is away is
 * tried again by one caller at a time: within 0.1 s where nobody listens on its socket, and where it does not serve
 * after a pause that grows from 0.1 s to 5 s; meanwhile lookups cost no wait.
 *  - A restart of the daemon loses no call: one that it did not answer before it went, be it the first, which it did not
 * even greet, is asked of the next, for up to 5 s. (What such a call changes does no harm when it is done twice.)
 *  - It starts no threads and no processes, touches no signal and no global setting, never prints, never ends
 * the process, raises no SIGPIPE. Descriptors are close-on-exec and above 2.
 *  - The environment is read in flytune_open and nowhere else.
 *  - Threads: every function may be called by several threads at once, also on one client or problem, except
 * that nothing may be in use while it is closed or freed.
 *  - pthread_cancel: a thread is cancelled before or after a call of this library, never within one, its callbacks
 * included, whatever its cancellation type; to end a wait early, let its callback say so. Afterwards all is as after any
 * other call. Callbacks return: they do not leave by pthread_exit, longjmp or an exception.
 *  - fork: a client goes on working in a child, which makes connections of its own and leaves the parent's
 * alone.
 *  - Structures that you allocate begin with their size (set by the _init functions), so that they can grow
 *    without breaking programs that are built already. Those without a size never change.
 *
 * Environment, read once by flytune_open, but in a program that has rights which its caller lacks (set-uid, set-gid, file
 * capabilities: secure_getenv(3)), where it is as if none of it were set:
 *  - FLYTUNE_SOCKET: the daemon's socket, if options.socket is NULL. Else /run/flytuned/flytuned.sock.
 *  - FLYTUNE_GENERATION: a token "UUID:COUNTER", if options.generation is NULL. Every lookup then gets the
 * answer of that moment, so that all processes of a run agree, or fails with FLYTUNE_E_GENERATION; it never
 * falls back.
 *  - FLYTUNE_AUTOTUNE=1: a lookup first runs the full sweep, once a problem and client, and waits for it up
 * to options.autotune_timeout_ms. FLYTUNE_AUTOTUNE=0: analytic defaults only, and the daemon is never asked.
 *
 * A config is known to be best for flytune's own device code. For another kernel of the same structure it is
 * a good first guess.
 */
#ifndef FLYTUNE_CLIENT_H
#define FLYTUNE_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLYTUNE_API __attribute__((visibility("default")))
#else
#define FLYTUNE_API
#endif

/* The version of this header. */
#define FLYTUNE_VERSION_MAJOR 0
#define FLYTUNE_VERSION_MINOR 1

enum {
	FLYTUNE_NAME_SIZE = 32,   /* of a kernel's, field's or knob's name, with its NUL */
	FLYTUNE_FIELDS_MAX = 16,  /* fields of a problem */
	FLYTUNE_KNOBS_MAX = 16,   /* knobs of a config */
	FLYTUNE_DEVICE_SIZE = 32, /* of a device's id: "cpu:0", "hip:1", "0000:c1:00.0" */
	FLYTUNE_REASON_SIZE = 512
};

/* The version of the library that is loaded: "0.1.0". */
FLYTUNE_API const char *flytune_version(void);

/* ---------------------------------------------------------------- errors */

/* What functions return. Numbers are never reused; new ones may come. */
enum flytune_code {
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

/* What went wrong. Every function that can fail takes one, or NULL; it is filled in on failure and left alone
 * on success. */
struct flytune_error {
	enum flytune_code code;
	char word[32];     /* the code as a word: "bad_value" */
	char message[320]; /* for people: names the field, the value and the bound */
	char field[48];    /* "" unless one field is at fault */
	char value[64];    /* what was refused, cut to fit */
	char bound[64];    /* what would have been accepted */
};

/* "bad_value" for FLYTUNE_E_BAD_VALUE; "other" for a number that it does not know. */
FLYTUNE_API const char *flytune_code_word(enum flytune_code code);

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

/* Told when the daemon goes away and when it is back, from within a call, in that call's thread, with no lock
 * held. */
typedef void (*flytune_log_fn)(void *data, enum flytune_log_level level, const char *message);

struct flytune_options {
	size_t size;
	const char *socket;     /* NULL: FLYTUNE_SOCKET, else the usual place; under 108 bytes */
	const char *name;       /* of your program, for the daemon's log; NULL: the library's */
	const char *generation; /* NULL: FLYTUNE_GENERATION; "": none, whatever the environment says */
	const char *device;     /* for calls that name none; NULL: the daemon's choice */
	enum flytune_autotune autotune; /* with a generation, FLYTUNE_AUTOTUNE_FORCE is an error */
	int tune_on_miss;               /* not 0: lookups ask for a sweep, later, of what is not known */
	int64_t lookup_timeout_ms;      /* of a lookup; 0: 1,000 */
	int64_t call_timeout_ms;        /* of other calls that do not wait for a job; 0: 10,000 */
	int64_t autotune_timeout_ms;    /* that a lookup waits for its forced sweep; 0: 60,000 */
	uint32_t cache_entries;         /* answers kept, at least: 2 KiB each; 0: 1,024, at most 131,072 */
	flytune_log_fn log;             /* NULL: silence */
	void *log_data;
};

static inline void flytune_options_init(struct flytune_options *options)
{
	memset(options, 0, sizeof *options);
	options->size = sizeof *options;
}

/* Makes a client; does not connect. `options` may be NULL, and is copied, texts included. NULL on failure:
 * out of memory, an option or environment variable that makes no sense. That the daemon is away is no
 * failure. */
FLYTUNE_API flytune_client *flytune_open(const struct flytune_options *options, struct flytune_error *error);

/* Closes the client's connections and frees it. NULL is fine. Jobs go on. Problems and lists outlive it. */
FLYTUNE_API void flytune_close(flytune_client *client);

/* Asks the daemon for a sign of life, by connecting if need be. Lookups need no such call. Fails with why the
 * daemon is away; after a failure, at once and with the same reason until its pause is over. */
FLYTUNE_API enum flytune_code flytune_ping(flytune_client *client, struct flytune_error *error);

/* ---------------------------------------------------------------- problems */

/* A problem: a kernel's name and field values. Immutable, hashed once, usable with any client. */
typedef struct flytune_problem flytune_problem;

struct flytune_field {
	const char *name;
	const char *text; /* NULL: the value is `number` */
	int64_t number;
};

/* Makes a problem from `count` fields, in any order; texts are copied. Fields at their default may be left
 * out. Fails when out of memory, and on names or texts that no kernel can have. Whether this kernel takes
 * these values is said by the call that uses the problem, since the daemon may know more kernels and fields
 * than this library.
 */
FLYTUNE_API flytune_problem *flytune_problem_new(
        const char *kernel, const struct flytune_field *fields, size_t count, struct flytune_error *error);

/* rmsnorm over m rows of n elements: y = x * rsqrt(mean(x*x) + 1e-5) * weight. */
struct flytune_rmsnorm {
	size_t size;
	int64_t m;                /* rows, 1 or more */
	int64_t n;                /* elements of a row, 1 to 1,048,576 */
	const char *dtype;        /* "f32", "f16", "bf16" */
	const char *weight_dtype; /* as dtype, or "f32"; NULL: as dtype */
	int64_t row_stride;       /* elements between the starts of two rows, n or more; 0: n */
};

static inline void flytune_rmsnorm_init(struct flytune_rmsnorm *shape)
{
	memset(shape, 0, sizeof *shape);
	shape->size = sizeof *shape;
}

/* As flytune_problem_new, for rmsnorm. */
FLYTUNE_API flytune_problem *flytune_problem_rmsnorm(
        const struct flytune_rmsnorm *shape, struct flytune_error *error);

/* Frees it once no call uses it any more. NULL is fine. */
FLYTUNE_API void flytune_problem_free(flytune_problem *problem);

/* The kernel's name; lives as long as the problem. */
FLYTUNE_API const char *flytune_problem_kernel(const flytune_problem *problem);

/* The fields, in the schema's order and with its defaults filled in where this library knows the kernel.
 * Returns 1 and fills in `field`, whose texts live as long as the problem; 0 past the last one. */
FLYTUNE_API int flytune_problem_field(
        const flytune_problem *problem, size_t index, struct flytune_field *field);

/* ---------------------------------------------------------------- lookups */

/* Where an answer comes from, best first. */
enum flytune_source {
	FLYTUNE_SOURCE_UNKNOWN = 0,
	FLYTUNE_SOURCE_PINNED = 1,   /* an operator's override */
	FLYTUNE_SOURCE_TUNED = 2,    /* the winner of a sweep of this very problem */
	FLYTUNE_SOURCE_IMPORTED = 3, /* from an artifact for this problem and device */
	FLYTUNE_SOURCE_NEAREST = 4,  /* a winner for near by along the kernel's scale field: tuned_scale */
	FLYTUNE_SOURCE_DEFAULT = 5   /* the analytic default */
};

/* "tuned" for FLYTUNE_SOURCE_TUNED, and so on. */
FLYTUNE_API const char *flytune_source_word(enum flytune_source source);

enum {
	/* The daemon did not give this answer; `reason` says why where the answer is the default. */
	FLYTUNE_ANSWER_AWAY = 1,
	/* Given before by the daemon to this client, kept since; it stands. */
	FLYTUNE_ANSWER_KEPT = 2,
	/* The forced sweep did not end in time (it goes on), or could not be run. */
	FLYTUNE_ANSWER_UNSWEPT = 4
};

struct flytune_knob {
	char name[FLYTUNE_NAME_SIZE];
	int64_t value;
};

struct flytune_answer {
	size_t size;
	uint32_t flags; /* FLYTUNE_ANSWER_… */
	enum flytune_source source;
	char reason[64]; /* why this source: "no result yet", "probing", "daemon_away", … */
	char device[FLYTUNE_DEVICE_SIZE]; /* which the config is for; "" while none is known */
	char store[40];                   /* UUID of the store; with the generation it makes a token */
	char identity[40];                /* under which it was measured; "" for a default */
	uint64_t generation;              /* of the store now: this is its answer */
	uint64_t time_ns;                 /* of the config; 0: not measured */
	uint64_t default_time_ns;         /* of the default, by the rounds that both were in; 0: not known */
	uint64_t tuned_at_ns;             /* since the Unix epoch; 0: not measured */
	uint64_t tuned_scale; /* FLYTUNE_SOURCE_NEAREST: the scale field's value whose winner this is */
	uint64_t revision;    /* of the default's rule */
	/* default_time_ns over time_ns is the gain. It is at least that, in millionths, with 99.5 % confidence; 0: not known. */
	uint64_t gain_least_ppm;
	int unsettled; /* the race ended before it was settled: the gain is as far as is known */
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
};

static inline void flytune_answer_init(struct flytune_answer *answer)
{
	answer->size = sizeof *answer;
	answer->flags = 0;
	answer->source = FLYTUNE_SOURCE_UNKNOWN;
	answer->knob_count = 0;
}

/* A knob's value, or `otherwise` if the config has no such knob. */
FLYTUNE_API int64_t flytune_answer_get(
        const struct flytune_answer *answer, const char *knob, int64_t otherwise);

struct flytune_lookup_options {
	size_t size;
	const char *device; /* NULL: the client's */
	int64_t timeout_ms; /* 0: the client's */
};

static inline void flytune_lookup_options_init(struct flytune_lookup_options *options)
{
	memset(options, 0, sizeof *options);
	options->size = sizeof *options;
}

/* The best config known for a problem. `options` may be NULL. Fails on a problem or device that is refused,
 * when this user may not ask (FLYTUNE_E_DENIED), when the named generation cannot be had, when the daemon is away and this library does not know the kernel,
 * and when out of memory. */
FLYTUNE_API enum flytune_code flytune_lookup(flytune_client *client, const flytune_problem *problem,
        const struct flytune_lookup_options *options, struct flytune_answer *answer,
        struct flytune_error *error);

#define FLYTUNE_LOOKUPS_MAX 65536

/* Looks up `count` problems, FLYTUNE_LOOKUPS_MAX at most: a model's whole list of shapes. Each is answered as by
 * flytune_lookup, from memory and into memory as well; those for which the daemon has to be asked travel together,
 * 1,024 in one message and its answer. The time-out is one for the whole list, and so is the wait for forced sweeps.
 *
 * `problems` and `answers` are arrays of `count`; each answer is set up with flytune_answer_init, and answer i is that
 * of problem i. `errors` is NULL or an array of `count`: errors[i].code is FLYTUNE_OK, or why problem i has no answer.
 *
 * FLYTUNE_OK when all are answered. Else the code and `error` of the first that is not; the others are answered all the
 * same, and those that are not have the source FLYTUNE_SOURCE_UNKNOWN. A call that makes no sense (too many, a size that
 * is not set, a device's id too long) fails before anything is looked up. */
FLYTUNE_API enum flytune_code flytune_lookup_many(flytune_client *client, flytune_problem *const *problems,
        size_t count, const struct flytune_lookup_options *options, struct flytune_answer *answers,
        struct flytune_error *errors, struct flytune_error *error);

/* ---------------------------------------------------------------- subscriptions */

/* A wish to hear when answers change, for a program with an event loop: instead of looking up again and again. It has a
 * connection of its own, and descriptors; it never waits. */
typedef struct flytune_subscription flytune_subscription;

#define FLYTUNE_SUBSCRIBED_MAX 4096

/* Tells of the answer to problem `index` of a subscription: its first, and each later one that differs in anything but
 * its generation. `answer` is what a lookup of that moment gets from the daemon; it is NULL, and `error` is not, where a
 * lookup is refused. Both die with the call. It may use the client and the subscription, but not end either. */
typedef void (*flytune_answer_fn)(
        void *data, size_t index, const struct flytune_answer *answer, const struct flytune_error *error);

/* Subscribes to the answers of `count` problems, FLYTUNE_SUBSCRIBED_MAX at most, on a device (NULL: the client's). Does
 * not connect: flytune_dispatch does, and calls `changed`. The problems may be freed afterwards. With a generation the
 * answers are those of that moment, and each is told once; under FLYTUNE_AUTOTUNE=0 the daemon is never asked, and so
 * nothing is ever told. Fails on a problem that this library knows to be refused, when there is no memory, and when
 * there are no descriptors: it takes three.
 *
 * No change is lost, only states in between: however late flytune_dispatch is called, and across restarts of the
 * daemon, what is told last is the answer that holds. In a forked child a subscription is one of the child's own: its
 * descriptor is a different one under the same number, and every answer is told anew. */
FLYTUNE_API enum flytune_code flytune_subscribe(flytune_client *client, flytune_problem *const *problems,
        size_t count, const char *device, flytune_answer_fn changed, void *data,
        flytune_subscription **subscription, struct flytune_error *error);

/* The descriptor to watch for being readable, level-triggered, by poll, epoll or what stands on them: flytune_dispatch
 * has something to do then. The same for the life of the subscription, through connections that come and go. Not to be
 * read, changed or closed. */
FLYTUNE_API int flytune_subscription_fd(const flytune_subscription *subscription);

/* Does what there is to do, without waiting: connects, asks, calls `changed` in this thread, with no lock held. To be
 * called when the descriptor is readable; at other times it does no harm. FLYTUNE_OK, or why the daemon cannot be heard
 * just now (FLYTUNE_E_AWAY, FLYTUNE_E_DENIED, FLYTUNE_E_BUSY, …): the subscription stands, and tries again by itself,
 * whenever the descriptor says so. If another thread is in it, that one looks once more, and this one returns at
 * once: calls of one subscription never overlap. */
FLYTUNE_API enum flytune_code flytune_dispatch(
        flytune_subscription *subscription, struct flytune_error *error);

/* Ends a subscription, and closes its descriptors; before flytune_close of its client, and not from its own callback.
 * NULL is fine. */
FLYTUNE_API void flytune_unsubscribe(flytune_subscription *subscription);

/* ---------------------------------------------------------------- jobs */

enum flytune_state {
	FLYTUNE_STATE_UNKNOWN = 0,
	FLYTUNE_STATE_QUEUED = 1,
	FLYTUNE_STATE_RUNNING = 2,
	FLYTUNE_STATE_DONE = 3,
	FLYTUNE_STATE_FAILED = 4,
	FLYTUNE_STATE_CANCELLED = 5
};

/* "queued" for FLYTUNE_STATE_QUEUED, and so on. */
FLYTUNE_API const char *flytune_state_word(enum flytune_state state);

struct flytune_value {
	char name[FLYTUNE_NAME_SIZE];
	char text[32]; /* "": the value is `number` */
	int64_t number;
};

/* A job, and what the calls below take to know which one is meant. Its number alone says little, since another store
 * gives the same ones: where `store` is set, a daemon that has another store refuses the call with
 * FLYTUNE_E_UNKNOWN_JOB. Of a number that a person told, set `job` and nothing else: it is a job of whatever store the
 * daemon has. */
struct flytune_job {
	size_t size;
	uint64_t job; /* its number; 0: none */
	enum flytune_state state;
	char stage[16]; /* while running: start, build, verify, measure, wait, confirm */
	char kernel[FLYTUNE_NAME_SIZE];
	char device[FLYTUNE_DEVICE_SIZE];
	char reason[FLYTUNE_REASON_SIZE];
	int32_t priority;
	uint32_t owner; /* user id */
	uint64_t created_at_ns, started_at_ns, ended_at_ns;
	uint64_t sweep_ns; /* time that this job's sweep ran, over all its starts */
	uint64_t trials;   /* configs that are tried */
	uint64_t settled;  /* of these, those that nothing more is to be learned of */
	uint64_t rounds;
	uint64_t waiters;
	uint64_t restarts; /* times that a runner had to be started again */
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX]; /* of the problem */
	/* Why there is this job: user, check; or, in the background: miss (a lookup found nothing), upgrade (its result
	 * is stale), grown (some of the space is new), busy (it was measured beside something else). */
	char cause[16];
	char store[40];     /* UUID of the store that gave it its number; "": not known */
	uint64_t waited_ns; /* beside sweep_ns, for others who used the device */
};

static inline void flytune_job_init(struct flytune_job *job)
{
	memset(job, 0, sizeof *job);
	job->size = sizeof *job;
}

struct flytune_tune_options {
	size_t size;
	const char *device; /* NULL: the client's */
	int force;          /* not 0: sweep again although there is a winner */
	int32_t priority;   /* -100 to 100, higher first */
	int64_t budget_ms;  /* from the runner's start to the decision, all included; 0: the daemon's */
	int check; /* not 0: time the winner beside the default, and sweep again only if it no longer holds */
};

static inline void flytune_tune_options_init(struct flytune_tune_options *options)
{
	memset(options, 0, sizeof *options);
	options->size = sizeof *options;
}

/* Asks for a sweep and returns once that is durable, without waiting for it. `job` is filled in with number, store and
 * problem, for flytune_wait and the others; many who ask for the same problem share one. Its number is 0 if there is a
 * winner already; then `answer`, unless NULL, is filled in. */
FLYTUNE_API enum flytune_code flytune_tune(flytune_client *client, const flytune_problem *problem,
        const struct flytune_tune_options *options, struct flytune_job *job, struct flytune_answer *answer,
        struct flytune_error *error);

/* Something that happened to a job. The library makes it; it may grow at its end. */
struct flytune_event {
	size_t size;
	uint64_t job;
	char event[16]; /* queued, started, stage, trial, round, restarted, ended, missed */
	enum flytune_state state;
	char stage[16];
	uint64_t trials, settled, round;
	char status[16];  /* of a trial: as in flytune_trial */
	uint64_t time_ps; /* of a trial, picoseconds; 0: not measured */
	uint64_t ci_ps;   /* half the width of its 95 % confidence interval */
	char reason[FLYTUNE_REASON_SIZE];
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX]; /* of a trial: the config that was settled */
};

/* Called in the waiting thread for each event; `event` dies with the call. Returns 0 to go on; anything else
 * ends the wait with FLYTUNE_E_CANCELLED and leaves the job alone. It may use the client. */
typedef int (*flytune_event_fn)(void *data, const struct flytune_event *event);

/* No deadline: for flytune_wait and flytune_watch. */
#define FLYTUNE_FOREVER ((int64_t)-1)

/* Waits for a job to end, on a connection of its own. If the daemon goes away the wait goes on when it is
 * back, if that takes no more than 10 s. FLYTUNE_OK means that the job ended: `job` is filled in, job->state says how,
 * and `answer` (may be NULL) is filled in if it is FLYTUNE_STATE_DONE. `events` (may be NULL) is called meanwhile. After
 * FLYTUNE_E_TIMEOUT the job goes on. FLYTUNE_E_UNKNOWN_JOB where the daemon knows no such job, has another store than
 * `job` says, or has another problem under its number. */
FLYTUNE_API enum flytune_code flytune_wait(flytune_client *client, struct flytune_job *job,
        int64_t timeout_ms, flytune_event_fn events, void *data, struct flytune_answer *answer,
        struct flytune_error *error);

/* Reports the events of one job, or of all (NULL), on a connection of its own, until `events` returns non-zero
 * (FLYTUNE_OK then), the time is over, or the daemon goes away. Before the first event it is called with one
 * whose name is "watching": from then on nothing is missed. */
FLYTUNE_API enum flytune_code flytune_watch(flytune_client *client, const struct flytune_job *job,
        int64_t timeout_ms, flytune_event_fn events, void *data, struct flytune_error *error);

/* Ends a job, for everybody who waits for it; what was measured stays. It is for the job's owner and administrators:
 * others get FLYTUNE_E_DENIED, and stop waiting by not calling flytune_wait. Returns once the job has ended; of one that
 * was over before it is no error, and flytune_jobs tells how it ended. */
FLYTUNE_API enum flytune_code flytune_cancel(
        flytune_client *client, const struct flytune_job *job, struct flytune_error *error);

/* Lists are snapshots: made by a call, read by any thread, freed by you. _get returns 1 and fills in the
 * structure, whose size you set; 0 if there is no such element. */

typedef struct flytune_job_list flytune_job_list;

/* One job, or all that are remembered (NULL), oldest first. */
FLYTUNE_API enum flytune_code flytune_jobs(flytune_client *client, const struct flytune_job *job,
        flytune_job_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_job_list_count(const flytune_job_list *list);
FLYTUNE_API int flytune_job_list_get(const flytune_job_list *list, size_t index, struct flytune_job *job);
FLYTUNE_API void flytune_job_list_free(flytune_job_list *list);

/* ---------------------------------------------------------------- trials */

struct flytune_trial {
	size_t size;
	char status[16]; /* ok, wrong, failed, timeout, same_code_as, pruned, waiting */
	int is_default, is_winner;
	int tied;               /* within the band of the best */
	uint64_t time_ps;       /* median over the rounds, picoseconds; 0: not measured */
	uint64_t ci_ps;         /* half the width of its 95 % confidence interval */
	uint64_t rounds;        /* measured */
	uint64_t dropped_round; /* rounds seen when it was dropped; 0: it was not */
	uint64_t registers, spills, build_ns;
	double error;  /* largest relative error seen when it was verified */
	char code[40]; /* hash of the machine code */
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

static inline void flytune_trial_init(struct flytune_trial *trial)
{
	memset(trial, 0, sizeof *trial);
	trial->size = sizeof *trial;
}

struct flytune_trials_info {
	size_t size;
	char device[FLYTUNE_DEVICE_SIZE];
	char identity[40];
	uint64_t rounds, seed;
	int conclusive;
	char method[FLYTUNE_REASON_SIZE]; /* how it was measured, in the runner's words */
	char reason[FLYTUNE_REASON_SIZE]; /* why the winner won */
	uint64_t sweep_ns;                /* spent sweeping this problem, over all its sweeps */
	uint64_t band_ppm; /* configs within this of the best are tied with it: 5,000 is 0.5 % */
	/* The default's time over the winner's by the rounds that both were in, and at least, in millionths; 0: not known. */
	uint64_t gain_ppm, gain_least_ppm;
};

static inline void flytune_trials_info_init(struct flytune_trials_info *info)
{
	memset(info, 0, sizeof *info);
	info->size = sizeof *info;
}

typedef struct flytune_trial_list flytune_trial_list;

/* All that is known of a problem's configs on a device (NULL: the client's). */
FLYTUNE_API enum flytune_code flytune_trials(flytune_client *client, const flytune_problem *problem,
        const char *device, flytune_trial_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_trial_list_count(const flytune_trial_list *list);
FLYTUNE_API int flytune_trial_list_get(
        const flytune_trial_list *list, size_t index, struct flytune_trial *trial);
FLYTUNE_API void flytune_trial_list_info(const flytune_trial_list *list, struct flytune_trials_info *info);
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
	int64_t winner_value, default_value;
	uint32_t value_count; /* values that any trial has, ascending */
	int64_t value[FLYTUNE_KNOB_VALUES_MAX];
	double ratio
	        [FLYTUNE_KNOB_VALUES_MAX]; /* the best time with that value to the best of all; 0: none was timed */
};

static inline void flytune_effect_init(struct flytune_effect *effect)
{
	memset(effect, 0, sizeof *effect);
	effect->size = sizeof *effect;
}

/* The effect of knob number `index`, in the order of the schema; 0 past the last one. */
FLYTUNE_API int flytune_trial_list_effect(
        const flytune_trial_list *list, size_t index, struct flytune_effect *effect);

/* ---------------------------------------------------------------- code */

/* The winner's code object: load it with the driver (hipModuleLoadData, cuModuleLoadData), get the function
 * `symbol`, and launch it with a grid of flytune_code_blocks(…, m) blocks of `block` threads. No compiler is
 * needed. It serves every m of its n, dtype, weight_dtype; y and x have the same row_stride, given at the
 * launch. */
typedef struct flytune_code_object flytune_code_object;

struct flytune_code_info {
	size_t size;
	char device[FLYTUNE_DEVICE_SIZE];
	char identity[40];
	char hash[40];           /* of the machine code and its launch: as in flytune_trial */
	char symbol[64];         /* the kernel's name in the object */
	char target[64];         /* "sm_90", "amdgcn-amd-amdhsa--gfx90a" */
	char builder[192];       /* the compiler */
	uint64_t object_version; /* of AMD's format; 0 on NVIDIA */
	uint32_t block;          /* threads of a block */
	uint32_t rows;           /* that a block takes at once */
	uint32_t blocks_max;     /* of a grid: blocks walk on over the rest */
	uint32_t dynamic_shared; /* bytes to launch with */
	char arguments[192];     /* "y: pointer, x: pointer, weight: pointer, m: int64, …", in order */
	uint64_t max_threads, registers, spills, shared, wave;
	uint32_t knob_count;
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX]; /* the config */
};

static inline void flytune_code_info_init(struct flytune_code_info *info)
{
	memset(info, 0, sizeof *info);
	info->size = sizeof *info;
}

/* The code of the config that won the sweep of this problem on a device (NULL: the client's). Fails with
 * FLYTUNE_E_UNAVAILABLE if it was not tuned, or if its code is no longer kept. */
FLYTUNE_API enum flytune_code flytune_code(flytune_client *client, const flytune_problem *problem,
        const char *device, flytune_code_object **object, struct flytune_error *error);
/* The object's bytes; they live as long as it does, and are aligned to 16. */
FLYTUNE_API const void *flytune_code_data(const flytune_code_object *object, size_t *length);
FLYTUNE_API void flytune_code_describe(const flytune_code_object *object, struct flytune_code_info *info);
FLYTUNE_API void flytune_code_free(flytune_code_object *object);

/* Blocks of the grid for m rows. */
static inline uint32_t flytune_code_blocks(const struct flytune_code_info *info, int64_t m)
{
	uint64_t rows = info->rows > 0 ? info->rows : 1;
	uint64_t blocks = m > 0 ? ((uint64_t)m + rows - 1) / rows : 1;

	return blocks < info->blocks_max ? (uint32_t)blocks : info->blocks_max;
}

/* ---------------------------------------------------------------- control */

/* What a change of an answer gave. With the store, its generation makes a token under which the answers of
 * this very moment can be had. */
struct flytune_change {
	size_t size;
	uint64_t generation;
	char store[40]; /* UUID */
	int was_set;    /* there was something to replace or to take away */
};

static inline void flytune_change_init(struct flytune_change *change)
{
	memset(change, 0, sizeof *change);
	change->size = sizeof *change;
}

/* These are for administrators; others get FLYTUNE_E_DENIED, with the group that they lack. They return once
 * the change is durable: every lookup from then on sees it. `device` NULL is the client's; `change` may be
 * NULL. */

/* Decides a problem's config by hand. All knobs must be given, and the config be in the problem's space. */
FLYTUNE_API enum flytune_code flytune_pin(flytune_client *client, const flytune_problem *problem,
        const char *device, const struct flytune_knob *knobs, size_t count, struct flytune_change *change,
        struct flytune_error *error);
/* Takes a pin away: what was known before serves again. */
FLYTUNE_API enum flytune_code flytune_unpin(flytune_client *client, const flytune_problem *problem,
        const char *device, struct flytune_change *change, struct flytune_error *error);
/* Forgets pin, winner, import and trials. */
FLYTUNE_API enum flytune_code flytune_forget(flytune_client *client, const flytune_problem *problem,
        const char *device, struct flytune_change *change, struct flytune_error *error);
/* Stops the queue, and returns once nothing runs; what ran keeps what it measured and waits. It outlives a
 * restart of the daemon. */
FLYTUNE_API enum flytune_code flytune_pause(flytune_client *client, struct flytune_error *error);
FLYTUNE_API enum flytune_code flytune_resume(flytune_client *client, struct flytune_error *error);

/* A problem that was looked up and has no result of its own. */
struct flytune_miss {
	size_t size;
	uint64_t count; /* of lookups, those counted that clients answered by themselves */
	uint64_t first_ago_ns, last_ago_ns;
	char kernel[FLYTUNE_NAME_SIZE];
	char device[FLYTUNE_DEVICE_SIZE];
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX];
};

static inline void flytune_miss_init(struct flytune_miss *miss)
{
	memset(miss, 0, sizeof *miss);
	miss->size = sizeof *miss;
}

struct flytune_misses_info {
	size_t size;
	uint64_t asked;     /* lookups that missed, since the daemon's start */
	uint64_t forgotten; /* problems that the daemon had no place for */
};

static inline void flytune_misses_info_init(struct flytune_misses_info *info)
{
	memset(info, 0, sizeof *info);
	info->size = sizeof *info;
}

typedef struct flytune_miss_list flytune_miss_list;

/* Misses since the daemon's start, the most asked first; at most `most` of them, 0: all that are kept. */
FLYTUNE_API enum flytune_code flytune_misses(
        flytune_client *client, size_t most, flytune_miss_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_miss_list_count(const flytune_miss_list *list);
FLYTUNE_API int flytune_miss_list_get(const flytune_miss_list *list, size_t index, struct flytune_miss *miss);
FLYTUNE_API void flytune_miss_list_info(const flytune_miss_list *list, struct flytune_misses_info *info);
FLYTUNE_API void flytune_miss_list_free(flytune_miss_list *list);

/* ---------------------------------------------------------------- export and import */

/* An answer as it travels from store to store. flytunectl keeps such rows in files; a program may keep them
 * elsewhere. */
struct flytune_row {
	size_t size;
	char kernel[FLYTUNE_NAME_SIZE];
	char device[2048]; /* the identity of the device: all that decides its speed */
	uint32_t field_count;
	struct flytune_value field[FLYTUNE_FIELDS_MAX]; /* of the problem */
	uint32_t knob_count;                            /* 0: the row only pins */
	struct flytune_knob knob[FLYTUNE_KNOBS_MAX];
	char identity[2048]; /* compiler, driver and source under which it was measured */
	char origin[64];     /* UUID of the store that measured it */
	uint64_t time_ps, default_time_ps, tuned_at_ns;
	uint32_t pin_count; /* 0: the problem is not pinned */
	struct flytune_knob pin[FLYTUNE_KNOBS_MAX];
	uint64_t pinned_at_ns;
	uint64_t gain_least_ppm; /* as in an answer */
	int unsettled;
};

static inline void flytune_row_init(struct flytune_row *row)
{
	memset(row, 0, sizeof *row);
	row->size = sizeof *row;
}

struct flytune_export_info {
	size_t size;
	char store[40]; /* UUID */
	uint64_t generation;
	uint64_t hidden; /* answers that are damaged, and were left out */
};

static inline void flytune_export_info_init(struct flytune_export_info *info)
{
	memset(info, 0, sizeof *info);
	info->size = sizeof *info;
}

/* Called for each row; `row` dies with the call. Returns 0 to go on; anything else ends the export with
 * FLYTUNE_E_CANCELLED. */
typedef int (*flytune_row_fn)(void *data, const struct flytune_row *row);

/* Gives every answer of the daemon, in no useful order, all as of one generation: the client's, else the one at
 * the start of the call. `info` may be NULL. */
FLYTUNE_API enum flytune_code flytune_export(flytune_client *client, flytune_row_fn rows, void *data,
        struct flytune_export_info *info, struct flytune_error *error);

/* An import: rows are checked by the daemon as they are added, and nothing is changed before the commit. For
 * administrators, and for one thread. */
typedef struct flytune_import flytune_import;

struct flytune_import_report {
	size_t size;
	uint64_t rows;       /* added */
	uint64_t usable;     /* of these, those that serve on this host */
	uint64_t kept;       /* of these, those now in the store; after a commit */
	uint64_t notes;      /* rows of which there is something to be said */
	uint64_t generation; /* after a commit */
	char store[40];
};

static inline void flytune_import_report_init(struct flytune_import_report *report)
{
	memset(report, 0, sizeof *report);
	report->size = sizeof *report;
}

/* What is to be said of a row that was taken. */
struct flytune_import_note {
	size_t size;
	uint64_t row;   /* the first that was added is 1 */
	char field[16]; /* that differs: kernel, device, config, pin, identity */
	int usable;     /* it serves here all the same */
	char reason[FLYTUNE_REASON_SIZE];
};

static inline void flytune_import_note_init(struct flytune_import_note *note)
{
	memset(note, 0, sizeof *note);
	note->size = sizeof *note;
}

FLYTUNE_API enum flytune_code flytune_import_begin(
        flytune_client *client, flytune_import **import, struct flytune_error *error);
/* Adds a row. Rows go to the daemon in lots, so that a refusal may come with a later one: error.message
 * numbers the row. After a failure, nothing of the import can be used. */
FLYTUNE_API enum flytune_code flytune_import_add(
        flytune_import *import, const struct flytune_row *row, struct flytune_error *error);
/* Has all rows checked and changes nothing. `report` may be NULL. */
FLYTUNE_API enum flytune_code flytune_import_check(
        flytune_import *import, struct flytune_import_report *report, struct flytune_error *error);
/* Applies all rows. Up to 16,384 are applied together or not at all; of more, error.message says how many
 * were. `report` may be NULL. */
FLYTUNE_API enum flytune_code flytune_import_commit(
        flytune_import *import, struct flytune_import_report *report, struct flytune_error *error);
/* The first thousand notes so far. 1 and a note, or 0 past the last. */
FLYTUNE_API int flytune_import_get_note(
        const flytune_import *import, size_t index, struct flytune_import_note *note);
/* Drops what was not committed. NULL is fine. */
FLYTUNE_API void flytune_import_free(flytune_import *import);

/* ---------------------------------------------------------------- devices and status */

struct flytune_device {
	size_t size;
	char id[FLYTUNE_DEVICE_SIZE];
	char kind[16];  /* cpu, hip, cuda */
	char state[16]; /* ready, probing, absent, failed */
	char name[128]; /* for people */
	char arch[64];
	char pci[16];
	uint64_t units; /* compute units, multiprocessors, or usable cores */
	uint64_t memory;
	char identity[40];
	char identity_text[1024];
	char runner[128];
	uint64_t runner_pid; /* while one runs */
	char reason[FLYTUNE_REASON_SIZE];
};

static inline void flytune_device_init(struct flytune_device *device)
{
	memset(device, 0, sizeof *device);
	device->size = sizeof *device;
}

typedef struct flytune_device_list flytune_device_list;

FLYTUNE_API enum flytune_code flytune_devices(
        flytune_client *client, flytune_device_list **list, struct flytune_error *error);
FLYTUNE_API size_t flytune_device_list_count(const flytune_device_list *list);
FLYTUNE_API int flytune_device_list_get(
        const flytune_device_list *list, size_t index, struct flytune_device *device);
FLYTUNE_API void flytune_device_list_free(flytune_device_list *list);

struct flytune_status {
	size_t size;
	char server[64]; /* "flytuned 0.1.0" */
	uint64_t protocol;
	uint64_t pid;
	uint64_t uptime_ns;
	char store[40]; /* UUID */
	uint64_t generation;
	char state_dir[256];
	uint64_t store_bytes, store_limit;
	uint64_t answers; /* problems with an answer of their own */
	uint64_t damaged; /* records found damaged since the daemon's start */
	uint64_t sessions;
	uint64_t jobs_queued, jobs_running;
	uint64_t runner_restarts;
	int paused;
	char degraded[FLYTUNE_REASON_SIZE]; /* what does not work, and why; "" if all does */
	/* Lookups since the daemon's start, by source. */
	uint64_t pinned, tuned, imported, nearest, standard;
	char access[FLYTUNE_REASON_SIZE]; /* who may do what, in words */
	char background[64];              /* what background work is doing; "": there is none */
	uint64_t background_waiting;      /* problems to be swept in the background */
	uint64_t background_dropped;      /* such that had no room, since the daemon's start */
	int stale_known;                  /* the daemon has counted the stale ones; else ask again */
	uint64_t stale;                   /* answers tuned under an identity that is none of today's */
	uint64_t misses;                  /* lookups without a result of their own, since the start */
	char config[256];                 /* the configuration file that the daemon read; "" if none */
	uint64_t sessions_limit;          /* connections that the daemon serves at once; 0: it does not say */
	uint64_t user_sessions_limit;     /* of these, of one user who is no administrator */
	uint64_t sessions_refused;        /* that were one too many, since the daemon's start */
	uint64_t busiest_user;            /* the uid that has most of them */
	uint64_t busiest_sessions;        /* and how many */
};

static inline void flytune_status_init(struct flytune_status *status)
{
	memset(status, 0, sizeof *status);
	status->size = sizeof *status;
}

/* `devices` may be NULL; else it is a list to be freed. */
FLYTUNE_API enum flytune_code flytune_status(flytune_client *client, struct flytune_status *status,
        flytune_device_list **devices, struct flytune_error *error);

/* The daemon's figures in the Prometheus text format, terminated, to be released with flytune_text_free.
 * `length` may be NULL. */
FLYTUNE_API enum flytune_code flytune_metrics(
        flytune_client *client, char **page, size_t *length, struct flytune_error *error);
/* NULL is fine. */
FLYTUNE_API void flytune_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
