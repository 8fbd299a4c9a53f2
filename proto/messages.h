/* Every message of both roads: client to daemon, and daemon to runner. proto/PROTOCOL.md tells their meaning.
 *
 * All integers named _ns are nanoseconds and _ps picoseconds; the ones named _at_ns are since the Unix epoch.
 * Lists are RAW arrays whose elements are messages named in the comment. */
#ifndef FLYTUNE_PROTO_MESSAGES_H
#define FLYTUNE_PROTO_MESSAGES_H

#include "proto/codec.h"

enum {
	FT_PROTOCOL_MIN = 2, /* of the client road */
	FT_PROTOCOL_MAX = 2,
	FT_RUNNER_PROTOCOL_MIN = 2,
	FT_RUNNER_PROTOCOL_MAX = 2,
	FT_DEVICE_ID_SIZE = 32, /* "cpu:0", "cuda:1", "0000:c1:00.0" */
	FT_HASH_SIZE = 33,      /* 128 bits in hexadecimal, with the NUL */
	FT_UUID_SIZE = 37,
	FT_TOKEN_SIZE = 64, /* "UUID:COUNTER" */
	FT_REASON_SIZE = 512,
	FT_IDENTITY_SIZE = 1024,
	FT_LOOKUPS_MAX = 1024,         /* in one lookup_many or subscribe */
	FT_SUBSCRIBED_MAX = 4096,      /* answers that one connection subscribes to */
	FT_IDENTITY_WHOLE_SIZE = 2048, /* a runner's identity and a kernel's source together */
	FT_SPACE_MAX = 512,     /* configs of a problem's space that is tried whole; and that race at once */
	FT_MEMBERS_MAX = 65536, /* of any space */
	FT_TRIES_MAX = 4096,    /* of these, what is tried of one that is larger */
	FT_ROUNDS_MAX = 256,    /* rounds kept for one problem */
	FT_SAMPLE_LEAST_PS = 1000, /* no launch takes less; a sample below is nonsense */
};

/* ---------------------------------------------------------------- client road */

#define FT_HELLO_REQUEST(F)                                                \
	F(UINT, min, 0, FT_REQUIRED)                                       \
	F(UINT, max, 0, FT_REQUIRED)                                       \
	F(TEXT, name, 64, FT_OPTIONAL) /* "flytunectl/0.2", for the log */ \
	F(BOOL, board, 0, FT_OPTIONAL) /* wants the descriptor of the board: proto/board.h */
FT_DECLARE_MESSAGE(hello_request, FT_HELLO_REQUEST)

#define FT_HELLO_REPLY(F)                                       \
	F(UINT, protocol, 0, FT_REQUIRED)                       \
	F(TEXT, server, 64, FT_REQUIRED) /* "flytuned 0.2.0" */ \
	F(TEXT, store, FT_UUID_SIZE, FT_REQUIRED)               \
	F(UINT, generation, 0, FT_REQUIRED)                     \
	F(UINT, descriptors, 0, FT_OPTIONAL) /* 1: the board's travels with the first byte of this reply */
FT_DECLARE_MESSAGE(hello_reply, FT_HELLO_REPLY)

#define FT_LOOKUP_REQUEST(F)                            \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)    \
	F(PROBLEM, problem, 0, FT_REQUIRED)             \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL) \
	F(TEXT, generation, FT_TOKEN_SIZE, FT_OPTIONAL) \
	F(BOOL, tune_on_miss, 0, FT_OPTIONAL)           \
	F(UINT, repeats, 0, FT_OPTIONAL) /* times the caller answered this by itself since it last asked */
FT_DECLARE_MESSAGE(lookup_request, FT_LOOKUP_REQUEST)

#define FT_ANSWER(F)                                                                                         \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                         \
	F(PROBLEM, problem, 0, FT_REQUIRED)             /* whole: every field of the schema */               \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL) /* absent while no device is known yet */            \
	F(CONFIG, config, 0, FT_REQUIRED)                                                                    \
	F(TEXT, source, 16, FT_REQUIRED) /* pinned, tuned, fleet, imported, recorded, nearest, default */    \
	F(TEXT, reason, 64, FT_OPTIONAL) /* why this source: "no result yet", "probing", "stale", … */     \
	F(UINT, generation, 0, FT_REQUIRED)                                                                  \
	F(TEXT, identity, FT_HASH_SIZE, FT_OPTIONAL) /* under which the answer was measured */               \
	F(UINT, time_ns, 0, FT_OPTIONAL)                                                                     \
	F(UINT, gain_ppm, 0,                                                                                 \
	        FT_OPTIONAL) /* the default's time over this one's, in millionths; 0: not known */           \
	F(UINT, gain_least_ppm, 0, FT_OPTIONAL) /* its lower bound */                                        \
	F(UINT, seen_ppm, 0, FT_OPTIONAL)       /* of the space, what was tried; 0: not known */             \
	F(UINT, order_class, 0, FT_OPTIONAL)    /* configs of one class give the same bits; 0: of none */    \
	F(BOOL, unsettled, 0, FT_OPTIONAL)      /* the race ended before it was settled */                   \
	F(UINT, tuned_at_ns, 0, FT_OPTIONAL)                                                                 \
	F(UINT, tuned_scale, 0, FT_OPTIONAL) /* nearest: the scale field's value that was tuned */           \
	F(UINT, revision, 0, FT_OPTIONAL)    /* of the default's rule */                                     \
	F(UINT, stripe, 0, FT_OPTIONAL)  /* of the board, counted from 1; absent: do not keep this answer */ \
	F(UINT, version, 0, FT_OPTIONAL) /* the stripe's word while this answer holds */
FT_DECLARE_MESSAGE(answer, FT_ANSWER)

#define FT_LOOKUP_MANY_REQUEST(F) F(RAW, lookups, 0, FT_REQUIRED) /* lookup_request, FT_LOOKUPS_MAX at most */
FT_DECLARE_MESSAGE(lookup_many_request, FT_LOOKUP_MANY_REQUEST)

#define FT_LOOKUP_MANY_REPLY(F) \
	F(RAW, answers, 0, FT_REQUIRED) /* answer or lookup_failure, in the same order */
FT_DECLARE_MESSAGE(lookup_many_reply, FT_LOOKUP_MANY_REPLY)

#define FT_LOOKUP_FAILURE(F) F(RAW, error, 0, FT_OPTIONAL) /* as in a response; no answer has such a member */
FT_DECLARE_MESSAGE(lookup_failure, FT_LOOKUP_FAILURE)

#define FT_SUBSCRIBE_REQUEST(F)                                                      \
	F(RAW, lookups, 0, FT_REQUIRED) /* lookup_request, FT_LOOKUPS_MAX at most */ \
	F(RAW, seen, 0, FT_OPTIONAL)    /* uint: the digest of each that is known; 0: none */
FT_DECLARE_MESSAGE(subscribe_request, FT_SUBSCRIBE_REQUEST)

#define FT_SUBSCRIBE_REPLY(F)                                                                         \
	F(UINT, first, 0, FT_REQUIRED) /* place of the first of these; the connection's first is 1 */ \
	F(UINT, count, 0, FT_REQUIRED)
FT_DECLARE_MESSAGE(subscribe_reply, FT_SUBSCRIBE_REPLY)

/* The notice "answer", to those who subscribed. */
#define FT_ANSWER_NOTICE(F)                                                                   \
	F(UINT, place, 0, FT_REQUIRED)                                                        \
	F(UINT, digest, 0, FT_REQUIRED) /* of all that it says but the generation; never 0 */ \
	F(RAW, answer, 0, FT_OPTIONAL)  /* answer */                                          \
	F(RAW, error, 0, FT_OPTIONAL)   /* else, as in a response */
FT_DECLARE_MESSAGE(answer_notice, FT_ANSWER_NOTICE)

#define FT_TUNE_REQUEST(F)                                                                                   \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                         \
	F(PROBLEM, problem, 0, FT_REQUIRED)                                                                  \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL)                                                      \
	F(BOOL, force, 0, FT_OPTIONAL) /* sweep again although there is a winner */                          \
	F(BOOL, check, 0,                                                                                    \
	        FT_OPTIONAL) /* time the winner beside the default, and sweep again if it no longer holds */ \
	F(INT, priority, 0, FT_OPTIONAL) /* -100 to 100, higher first */                                     \
	F(UINT, budget_ns, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(tune_request, FT_TUNE_REQUEST)

#define FT_TUNE_REPLY(F)                                                               \
	F(UINT, job, 0, FT_OPTIONAL)    /* absent if nothing had to be done */         \
	F(BOOL, joined, 0, FT_OPTIONAL) /* a job for this problem was there already */ \
	F(RAW, answer, 0, FT_OPTIONAL)  /* answer, if nothing had to be done */
FT_DECLARE_MESSAGE(tune_reply, FT_TUNE_REPLY)

#define FT_JOB_REQUEST(F)                                                                                 \
	F(UINT, job, 0, FT_OPTIONAL) /* wait, cancel, jobs, watch; absent: all, where that makes sense */ \
	F(TEXT, store, FT_UUID_SIZE, FT_OPTIONAL) /* that gave the job its number; any other is refused */
FT_DECLARE_MESSAGE(job_request, FT_JOB_REQUEST)

#define FT_JOB(F)                                                                                         \
	F(UINT, job, 0, FT_REQUIRED)                                                                      \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                      \
	F(PROBLEMS, problems, 0, FT_REQUIRED) /* a list; one, so far */                                   \
	F(TEXT, device, FT_DEVICE_ID_SIZE,                                                                \
	        FT_REQUIRED)            /* where it runs or ran; while queued, where it may */            \
	F(BOOL, named, 0, FT_OPTIONAL)  /* the device was: no equal one runs it */                        \
	F(TEXT, state, 16, FT_REQUIRED) /* queued, running, done, failed, cancelled */                    \
	F(TEXT, stage, 16, FT_OPTIONAL) /* while running: start, build, verify, measure, wait, confirm */ \
	F(INT, priority, 0, FT_OPTIONAL)                                                                  \
	F(BOOL, force, 0, FT_OPTIONAL)                                                                    \
	F(BOOL, begun, 0, FT_OPTIONAL) /* with force: the times from before it were let go */             \
	F(BOOL, check, 0, FT_OPTIONAL)                                                                    \
	F(TEXT, cause, 16, FT_OPTIONAL) /* of background work: miss, upgrade, grown, busy */              \
	F(BOOL, subset, 0, FT_OPTIONAL) /* only those that were best before are tried */                  \
	F(UINT, budget_ns, 0, FT_OPTIONAL)                                                                \
	F(UINT, owner, 0, FT_OPTIONAL) /* user id */                                                      \
	F(UINT, created_at_ns, 0, FT_OPTIONAL)                                                            \
	F(UINT, started_at_ns, 0, FT_OPTIONAL)                                                            \
	F(UINT, ended_at_ns, 0, FT_OPTIONAL)                                                              \
	F(UINT, sweep_ns, 0, FT_OPTIONAL)  /* time that this job's sweep ran, over all its starts */      \
	F(UINT, waited_ns, 0, FT_OPTIONAL) /* besides, for others who used the device */                  \
	F(UINT, trials, 0, FT_OPTIONAL)    /* members of the space that are tried */                      \
	F(UINT, space, 0, FT_OPTIONAL)     /* members that there are, where not all are tried */          \
	F(UINT, settled, 0, FT_OPTIONAL)   /* of these, dropped or out or decided */                      \
	F(UINT, rounds, 0, FT_OPTIONAL)                                                                   \
	F(UINT, waiters, 0, FT_OPTIONAL)                                                                  \
	F(UINT, restarts, 0, FT_OPTIONAL) /* times a runner had to be started again */                    \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)                                                      \
	F(RAW, answer, 0, FT_OPTIONAL) /* answer, once done */
FT_DECLARE_MESSAGE(job, FT_JOB)

#define FT_JOBS_REPLY(F) F(RAW, jobs, 0, FT_REQUIRED) /* job */
FT_DECLARE_MESSAGE(jobs_reply, FT_JOBS_REPLY)

/* The notice "event", to those who asked to watch. */
#define FT_EVENT(F)                                                                                          \
	F(UINT, job, 0, FT_REQUIRED)                                                                         \
	F(TEXT, event, 16, FT_REQUIRED) /* queued, started, stage, trial, round, restarted, ended, missed */ \
	F(TEXT, state, 16, FT_OPTIONAL)                                                                      \
	F(TEXT, stage, 16, FT_OPTIONAL)                                                                      \
	F(UINT, trials, 0, FT_OPTIONAL)                                                                      \
	F(UINT, space, 0, FT_OPTIONAL)                                                                       \
	F(UINT, settled, 0, FT_OPTIONAL)                                                                     \
	F(UINT, round, 0, FT_OPTIONAL)                                                                       \
	F(CONFIG, config, 0, FT_OPTIONAL) /* of a trial event: a config that was settled */                  \
	F(TEXT, status, 16, FT_OPTIONAL)                                                                     \
	F(UINT, time_ps, 0, FT_OPTIONAL)                                                                     \
	F(UINT, ci_ps, 0, FT_OPTIONAL)                                                                       \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(event, FT_EVENT)

#define FT_TRIALS_REQUEST(F)                         \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED) \
	F(PROBLEM, problem, 0, FT_REQUIRED)          \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(trials_request, FT_TRIALS_REQUEST)

#define FT_TRIAL(F)                                                                                        \
	F(CONFIG, config, 0, FT_REQUIRED)                                                                  \
	F(TEXT, status, 16, FT_REQUIRED) /* …, waiting, suspect: see admin.h */                          \
	F(BOOL, is_default, 0, FT_OPTIONAL)                                                                \
	F(BOOL, is_winner, 0, FT_OPTIONAL)                                                                 \
	F(BOOL, tied, 0, FT_OPTIONAL)    /* within the band of the best */                                 \
	F(UINT, time_ps, 0, FT_OPTIONAL) /* median over the rounds */                                      \
	F(UINT, ci_ps, 0, FT_OPTIONAL)   /* half the width of its 95 % confidence interval */              \
	F(UINT, rounds, 0, FT_OPTIONAL)                                                                    \
	F(UINT, dropped_round, 0, FT_OPTIONAL) /* rounds seen when it was dropped */                       \
	F(TEXT, code, FT_HASH_SIZE, FT_OPTIONAL)                                                           \
	F(CONFIG, same_as, 0, FT_OPTIONAL) /* same_code_as: the trial that was timed in its stead */       \
	F(UINT, registers, 0, FT_OPTIONAL)                                                                 \
	F(UINT, spills, 0, FT_OPTIONAL)                                                                    \
	F(UINT, build_ns, 0, FT_OPTIONAL)                                                                  \
	F(REAL, error, 0, FT_OPTIONAL)     /* largest relative error seen when verified */                 \
	F(REAL, ratio, 0, FT_OPTIONAL)     /* its time to the best's, from the rounds that both were in */ \
	F(REAL, ratio_low, 0, FT_OPTIONAL) /* the ratio's 99.5 % confidence interval */                    \
	F(REAL, ratio_high, 0, FT_OPTIONAL)                                                                \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(trial, FT_TRIAL)

#define FT_TRIALS_REPLY(F)                                                                               \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                     \
	F(PROBLEM, problem, 0, FT_REQUIRED)                                                              \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)                                                  \
	F(TEXT, identity, FT_HASH_SIZE, FT_OPTIONAL)                                                     \
	F(UINT, rounds, 0, FT_OPTIONAL)                                                                  \
	F(UINT, seed, 0, FT_OPTIONAL)                                                                    \
	F(BOOL, conclusive, 0, FT_OPTIONAL)                                                              \
	F(TEXT, method, FT_REASON_SIZE, FT_OPTIONAL) /* how it was measured, in the runner's words */    \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL) /* why the winner won */                            \
	F(UINT, sweep_ns, 0, FT_OPTIONAL)            /* time spent sweeping, over all sweeps of it */    \
	F(UINT, band_ppm, 0, FT_OPTIONAL)            /* configs this close to the best are tied */       \
	F(UINT, gain_ppm, 0,                                                                             \
	        FT_OPTIONAL) /* the default's time over the winner's, by the rounds that both were in */ \
	F(UINT, gain_least_ppm, 0, FT_OPTIONAL)                                                          \
	F(UINT, seen_ppm, 0, FT_OPTIONAL) /* of the space, what was tried */                             \
	F(UINT, space, 0, FT_OPTIONAL)    /* members that can win, tried or not */                       \
	F(RAW, knobs, 0, FT_OPTIONAL)     /* schema_knob */                                              \
	F(RAW, trials, 0, FT_REQUIRED)    /* trial */
FT_DECLARE_MESSAGE(trials_reply, FT_TRIALS_REPLY)

#define FT_CODE_REQUEST(F)                           \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED) \
	F(PROBLEM, problem, 0, FT_REQUIRED)          \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(code_request, FT_CODE_REQUEST)

#define FT_CODE_REPLY(F)                                     \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)         \
	F(PROBLEM, problem, 0, FT_REQUIRED)                  \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)      \
	F(CONFIG, config, 0, FT_REQUIRED) /* the winner's */ \
	F(TEXT, identity, FT_HASH_SIZE, FT_OPTIONAL)         \
	F(RAW, about, 0, FT_REQUIRED)    /* code_about */    \
	F(BYTES, object, 0, FT_REQUIRED) /* the code object, as a driver loads it */
FT_DECLARE_MESSAGE(code_reply, FT_CODE_REPLY)

/* What a code object is, and how what is in it is launched. A runner that keeps code writes it before the
 * object in the file, too: PROTOCOL.md, "Kept code". */
#define FT_CODE_ABOUT(F)                                                                                    \
	F(TEXT, hash, FT_HASH_SIZE, FT_REQUIRED) /* of the machine code and its launch: the file's name */  \
	F(TEXT, target, 64, FT_REQUIRED)         /* "sm_90", "amdgcn-amd-amdhsa--gfx90a" */                 \
	F(TEXT, builder, 192, FT_OPTIONAL)       /* the compiler */                                         \
	F(UINT, version, 0, FT_OPTIONAL)         /* of the code object's format; 0 on NVIDIA */             \
	F(RAW, steps, 0, FT_REQUIRED) /* code_step: 1 to FT_CODE_STEPS_MAX, launched one after the other */ \
	F(UINT, max_threads, 0, FT_OPTIONAL) /* of a block, as the compiler was told */                     \
	F(UINT, registers, 0, FT_OPTIONAL)   /* a thread */                                                 \
	F(UINT, spills, 0, FT_OPTIONAL)                                                                     \
	F(UINT, shared, 0, FT_OPTIONAL) /* bytes a block, of its own */                                     \
	F(UINT, local, 0, FT_OPTIONAL)  /* bytes a thread */                                                \
	F(UINT, wave, 0, FT_OPTIONAL)                                                                       \
	F(UINT, build_ns, 0, FT_OPTIONAL)                                                                   \
	F(UINT, size, 0, FT_REQUIRED)                /* bytes of the object */                              \
	F(TEXT, checksum, FT_HASH_SIZE, FT_REQUIRED) /* XXH3 of these, 128 bits */
FT_DECLARE_MESSAGE(code_about, FT_CODE_ABOUT)

/* One launch. */
#define FT_CODE_STEP(F)                                                                                 \
	F(TEXT, symbol, 64, FT_REQUIRED)        /* the function's name in the object */                 \
	F(UINT, block, 0, FT_REQUIRED)          /* threads of a block */                                \
	F(UINT, rows, 0, FT_REQUIRED)           /* that a block takes at once */                        \
	F(UINT, blocks_max, 0, FT_REQUIRED)     /* grid: blocks for all rows, but no more than these */ \
	F(UINT, dynamic_shared, 0, FT_OPTIONAL) /* bytes to launch with */                              \
	F(TEXT, arguments, 192, FT_REQUIRED)    /* "y: pointer, …, eps: float", in order */
FT_DECLARE_MESSAGE(code_step, FT_CODE_STEP)

enum { FT_CODE_BYTES_MAX = 32 << 20 /* of an object: a reply must hold it */, FT_CODE_STEPS_MAX = 4 };
#define FT_CODE_MAGIC "flytune code 3\n" /* a file of kept code begins with it */

/* One device as the daemon knows it. `status` and `devices` list them. */
#define FT_DEVICE_STATE(F)                                                                                   \
	F(TEXT, id, FT_DEVICE_ID_SIZE, FT_REQUIRED)                                                          \
	F(TEXT, kind, 16, FT_REQUIRED)                                                                       \
	F(TEXT, state, 16, FT_REQUIRED) /* ready, probing, absent, failed */                                 \
	F(TEXT, name, 128, FT_OPTIONAL)                                                                      \
	F(TEXT, arch, 64, FT_OPTIONAL)                                                                       \
	F(TEXT, pci, 16, FT_OPTIONAL)                                                                        \
	F(UINT, units, 0, FT_OPTIONAL)                                                                       \
	F(UINT, memory, 0, FT_OPTIONAL)                                                                      \
	F(TEXT, identity, FT_HASH_SIZE, FT_OPTIONAL)                                                         \
	F(TEXT, identity_text, FT_IDENTITY_SIZE, FT_OPTIONAL)                                                \
	F(TEXT, runner, 128, FT_OPTIONAL)                                                                    \
	F(UINT, runner_pid, 0, FT_OPTIONAL) /* while one runs */                                             \
	F(TEXT, holder, 16, FT_OPTIONAL)    /* who has it: sweep, check, background, load; absent: nobody */ \
	F(UINT, job, 0, FT_OPTIONAL)        /* that it is held for */                                        \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(device_state, FT_DEVICE_STATE)

#define FT_DEVICES_REPLY(F) F(RAW, devices, 0, FT_REQUIRED) /* device_state */
FT_DECLARE_MESSAGE(devices_reply, FT_DEVICES_REPLY)

#define FT_STATUS_REPLY(F)                                                                                 \
	F(TEXT, server, 64, FT_REQUIRED)                                                                   \
	F(UINT, protocol, 0, FT_REQUIRED)                                                                  \
	F(UINT, pid, 0, FT_REQUIRED)                                                                       \
	F(UINT, uptime_ns, 0, FT_REQUIRED)                                                                 \
	F(TEXT, store, FT_UUID_SIZE, FT_REQUIRED)                                                          \
	F(UINT, generation, 0, FT_REQUIRED)                                                                \
	F(TEXT, state_dir, 256, FT_REQUIRED)                                                               \
	F(UINT, store_bytes, 0, FT_REQUIRED)                                                               \
	F(UINT, store_limit, 0, FT_REQUIRED)                                                               \
	F(UINT, answers, 0, FT_REQUIRED) /* problems with an answer of their own */                        \
	F(UINT, damaged, 0, FT_REQUIRED) /* records found damaged since the start */                       \
	F(UINT, sessions, 0, FT_REQUIRED)                                                                  \
	F(UINT, jobs_queued, 0, FT_REQUIRED)                                                               \
	F(UINT, jobs_running, 0, FT_REQUIRED)                                                              \
	F(BOOL, paused, 0, FT_REQUIRED)                                                                    \
	F(RAW, lookups, 0, FT_REQUIRED) /* a map: source to count */                                       \
	F(UINT, runner_restarts, 0, FT_REQUIRED)                                                           \
	F(TEXT, degraded, FT_REASON_SIZE, FT_OPTIONAL) /* what does not work, and why */                   \
	F(TEXT, access, FT_REASON_SIZE, FT_OPTIONAL)   /* who may do what, in words */                     \
	F(UINT, stale, 0, FT_OPTIONAL)       /* answers tuned under an identity that is none of today's */ \
	F(BOOL, stale_known, 0, FT_OPTIONAL) /* they were counted */                                       \
	F(UINT, misses, 0, FT_OPTIONAL)      /* lookups without a result of their own, since the start */  \
	F(TEXT, config, 256, FT_OPTIONAL)    /* the configuration file that was read */                    \
	F(UINT, background_waiting, 0, FT_OPTIONAL) /* problems to be swept in the background */           \
	F(UINT, background_dropped, 0, FT_OPTIONAL) /* such that had no room, since the start */           \
	F(TEXT, background, 64, FT_OPTIONAL)        /* what that work is doing */                          \
	F(UINT, sessions_limit, 0, FT_OPTIONAL)                                                            \
	F(UINT, sessions_refused, 0, FT_OPTIONAL) /* since the start */                                    \
	F(UINT, user_sessions_limit, 0, FT_OPTIONAL)                                                       \
	F(UINT, busiest_user, 0, FT_OPTIONAL) /* who has most of them */                                   \
	F(UINT, busiest_sessions, 0, FT_OPTIONAL)                                                          \
	F(RAW, devices, 0, FT_REQUIRED) /* device_state */
FT_DECLARE_MESSAGE(status_reply, FT_STATUS_REPLY)

/* What an operator changes: `pin` takes all of it, `unpin` and `forget` no config. */
#define FT_CHANGE_REQUEST(F)                            \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)    \
	F(PROBLEM, problem, 0, FT_REQUIRED)             \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_OPTIONAL) \
	F(CONFIG, config, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(change_request, FT_CHANGE_REQUEST)

#define FT_CHANGE_REPLY(F)                        \
	F(UINT, generation, 0, FT_REQUIRED)       \
	F(TEXT, store, FT_UUID_SIZE, FT_REQUIRED) \
	F(BOOL, was_set, 0, FT_OPTIONAL) /* there was something to be replaced or taken away */
FT_DECLARE_MESSAGE(change_reply, FT_CHANGE_REPLY)

#define FT_MISSES_REQUEST(F) F(UINT, most, 0, FT_OPTIONAL) /* entries to list; 0: all */
FT_DECLARE_MESSAGE(misses_request, FT_MISSES_REQUEST)

#define FT_MISS(F)                                             \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)           \
	F(PROBLEM, problem, 0, FT_REQUIRED)                    \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)        \
	F(UINT, count, 0, FT_REQUIRED)                         \
	F(UINT, first_ago_ns, 0, FT_OPTIONAL) /* since then */ \
	F(UINT, last_ago_ns, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(miss, FT_MISS)

#define FT_MISSES_REPLY(F)                                                            \
	F(RAW, misses, 0, FT_REQUIRED)     /* miss, most asked first */               \
	F(UINT, asked, 0, FT_OPTIONAL)     /* lookups that missed, since the start */ \
	F(UINT, forgotten, 0, FT_OPTIONAL) /* problems that the table had no place for */
FT_DECLARE_MESSAGE(misses_reply, FT_MISSES_REPLY)

#define FT_KERNELS_REQUEST(F) F(TEXT, kernel, FT_KERNEL_SIZE, FT_OPTIONAL) /* absent: all */
FT_DECLARE_MESSAGE(kernels_request, FT_KERNELS_REQUEST)

#define FT_KERNELS_REPLY(F) F(RAW, kernels, 0, FT_REQUIRED) /* kernel_state */
FT_DECLARE_MESSAGE(kernels_reply, FT_KERNELS_REPLY)

/* A kernel that is served, or a folder that makes none. */
#define FT_KERNEL_STATE(F)                                                                                   \
	F(TEXT, name, FT_KERNEL_SIZE, FT_REQUIRED)                                                           \
	F(TEXT, state, 16, FT_REQUIRED)  /* serving; kept, the last good copy of a broken folder; refused */ \
	F(TEXT, origin, 16, FT_REQUIRED) /* built-in, folder, runner */                                      \
	F(TEXT, path, 512, FT_OPTIONAL)  /* of the folder, or of the runner's program */                     \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL) /* what is wrong with the folder */                     \
	F(TEXT, help, 128, FT_OPTIONAL)                                                                      \
	F(TEXT, devices, FT_REASON_SIZE, FT_OPTIONAL) /* ids of those that run it, parted by blanks */       \
	F(TEXT, scale, FT_NAME_SIZE, FT_OPTIONAL)     /* as in runner_kernel */                              \
	F(RAW, fields, 0, FT_REQUIRED)                /* schema_field */                                     \
	F(RAW, kinds, 0, FT_REQUIRED)                 /* kernel_kind */
FT_DECLARE_MESSAGE(kernel_state, FT_KERNEL_STATE)

/* A kind of device that a kernel is for. */
#define FT_KERNEL_KIND(F)              \
	F(TEXT, kind, 16, FT_REQUIRED) \
	F(RAW, knobs, 0, FT_REQUIRED) /* schema_knob */
FT_DECLARE_MESSAGE(kernel_kind, FT_KERNEL_KIND)

#define FT_PAUSE_REPLY(F) F(BOOL, paused, 0, FT_OPTIONAL) /* of pause and resume */
FT_DECLARE_MESSAGE(pause_reply, FT_PAUSE_REPLY)

/* An answer as it travels from store to store. */
#define FT_ROW(F)                                                                                           \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                        \
	F(PROBLEM, problem, 0, FT_REQUIRED)                                                                 \
	F(TEXT, device, FT_IDENTITY_WHOLE_SIZE, FT_REQUIRED) /* its identity: all that decides its speed */ \
	F(CONFIG, config, 0, FT_OPTIONAL)                    /* absent in a row that only pins */           \
	F(TEXT, identity, FT_IDENTITY_WHOLE_SIZE, FT_OPTIONAL) /* under which it was measured */            \
	F(TEXT, origin, 64, FT_OPTIONAL)                       /* the UUID of the store that measured it */ \
	F(UINT, time_ps, 0, FT_OPTIONAL)                                                                    \
	F(UINT, default_time_ps, 0,                                                                         \
	        FT_OPTIONAL) /* by the rounds that both were in: over time_ps, the gain */                  \
	F(UINT, gain_least_ppm, 0, FT_OPTIONAL)                                                             \
	F(UINT, seen_ppm, 0, FT_OPTIONAL)                                                                   \
	F(UINT, order_class, 0, FT_OPTIONAL)                                                                \
	F(BOOL, unsettled, 0, FT_OPTIONAL)                                                                  \
	F(UINT, tuned_at_ns, 0, FT_OPTIONAL)                                                                \
	F(CONFIG, pin, 0, FT_OPTIONAL)                                                                      \
	F(UINT, pinned_at_ns, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(row, FT_ROW)

#define FT_EXPORT_REQUEST(F)                                                                        \
	F(TEXT, generation, FT_TOKEN_SIZE, FT_OPTIONAL) /* absent: now; as the first reply tells */ \
	F(BYTES, place, 0, FT_OPTIONAL)                 /* of the reply before; absent: from the start */
FT_DECLARE_MESSAGE(export_request, FT_EXPORT_REQUEST)

#define FT_EXPORT_REPLY(F)                                                         \
	F(RAW, rows, 0, FT_REQUIRED)    /* row */                                  \
	F(BYTES, place, 0, FT_OPTIONAL) /* where to go on; absent: that was all */ \
	F(UINT, generation, 0, FT_REQUIRED)                                        \
	F(TEXT, store, FT_UUID_SIZE, FT_REQUIRED)                                  \
	F(UINT, hidden, 0, FT_OPTIONAL) /* answers that are damaged, and left out */
FT_DECLARE_MESSAGE(export_reply, FT_EXPORT_REPLY)

#define FT_IMPORT_REQUEST(F) F(RAW, rows, 0, FT_REQUIRED) /* row; of import_rows */
FT_DECLARE_MESSAGE(import_request, FT_IMPORT_REQUEST)

/* What is to be said of a row that is taken. */
#define FT_IMPORT_NOTE(F)                                                                    \
	F(UINT, row, 0, FT_REQUIRED)    /* the first of all is 1 */                          \
	F(TEXT, field, 16, FT_REQUIRED) /* that differs: kernel, device, config, identity */ \
	F(BOOL, usable, 0, FT_OPTIONAL) /* it serves here all the same */                    \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(import_note, FT_IMPORT_NOTE)

#define FT_IMPORT_REPLY(F)                                                                   \
	F(UINT, rows, 0, FT_REQUIRED)   /* since import_begin */                             \
	F(UINT, usable, 0, FT_REQUIRED) /* of these, on this host */                         \
	F(UINT, kept, 0, FT_OPTIONAL)   /* of these, put into the store; of import_commit */ \
	F(RAW, notes, 0, FT_OPTIONAL)   /* import_note; of import_rows */                    \
	F(UINT, generation, 0, FT_OPTIONAL)                                                  \
	F(TEXT, store, FT_UUID_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(import_reply, FT_IMPORT_REPLY)

#define FT_METRICS_REPLY(F) F(BYTES, page, 0, FT_REQUIRED) /* Prometheus text format */
FT_DECLARE_MESSAGE(metrics_reply, FT_METRICS_REPLY)

/* An act that replies nothing. */
#define FT_EMPTY(F) F(BOOL, ok, 0, FT_OPTIONAL)
FT_DECLARE_MESSAGE(empty, FT_EMPTY)

/* ---------------------------------------------------------------- runner road */

#define FT_RUNNER_HELLO_REQUEST(F)                                                              \
	F(UINT, min, 0, FT_REQUIRED)                                                            \
	F(UINT, max, 0, FT_REQUIRED)                                                            \
	F(TEXT, code_dir, 256,                                                                  \
	        FT_OPTIONAL) /* where built code objects are kept by hash; absent: keep none */ \
	F(UINT, memory_cap, 0,                                                                  \
	        FT_OPTIONAL) /* bytes of device memory that a sweep may take; 0: the runner's own */
FT_DECLARE_MESSAGE(runner_hello_request, FT_RUNNER_HELLO_REQUEST)

#define FT_RUNNER_HELLO_REPLY(F)                                                                            \
	F(UINT, protocol, 0, FT_REQUIRED)                                                                   \
	F(TEXT, runner, 128, FT_REQUIRED)                /* "flytune-runner-cpu 0.2.0" */                   \
	F(TEXT, identity, FT_IDENTITY_SIZE, FT_REQUIRED) /* compiler, runtime, driver, timing: "a=b c=d" */ \
	F(RAW, files, 0, FT_OPTIONAL)   /* paths whose change means that this hello may no longer hold */   \
	F(RAW, devices, 0, FT_REQUIRED) /* runner_device */                                                 \
	F(RAW, kernels, 0, FT_REQUIRED) /* runner_kernel */                                                 \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)     /* why there is no device, if there is none */     \
	F(TEXT, unconfined, FT_REASON_SIZE, FT_OPTIONAL) /* what it cannot keep kernel folders' code from */
FT_DECLARE_MESSAGE(runner_hello_reply, FT_RUNNER_HELLO_REPLY)

#define FT_RUNNER_DEVICE(F)                                                                              \
	F(TEXT, id, FT_DEVICE_ID_SIZE, FT_REQUIRED) /* "cpu:0" */                                        \
	F(TEXT, kind, 16, FT_REQUIRED)              /* cpu, hip, cuda */                                 \
	F(TEXT, name, 128, FT_REQUIRED)             /* for people */                                     \
	F(TEXT, arch, 64, FT_REQUIRED)              /* "x86-64-v4", "gfx90a:sramecc+:xnack-", "sm_90" */ \
	F(TEXT, identity, FT_IDENTITY_SIZE,                                                              \
	        FT_REQUIRED) /* all that decides its speed: "arch=… units=… …" */                  \
	F(TEXT, pci, 16, FT_OPTIONAL)                                                                    \
	F(UINT, units, 0, FT_REQUIRED)  /* compute units, multiprocessors, or usable cores */            \
	F(UINT, wave, 0, FT_OPTIONAL)   /* lanes of a wave; 0 on a CPU */                                \
	F(UINT, memory, 0, FT_REQUIRED) /* bytes */                                                      \
	F(UINT, cache, 0, FT_REQUIRED)  /* bytes of the last-level cache */                              \
	/* What bounds a launch on a GPU; 0: not known, and on a CPU. */                                 \
	F(UINT, shared_block, 0, FT_OPTIONAL)  /* bytes of shared memory that a block may have */        \
	F(UINT, threads_block, 0, FT_OPTIONAL) /* threads of a block */                                  \
	F(UINT, registers, 0, FT_OPTIONAL)     /* of a block, 32 bits wide */
FT_DECLARE_MESSAGE(runner_device, FT_RUNNER_DEVICE)

#define FT_RUNNER_KERNEL(F)                                                                    \
	F(TEXT, name, FT_KERNEL_SIZE, FT_REQUIRED)                                             \
	F(UINT, revision, 0, FT_REQUIRED)          /* of schema, space and default */          \
	F(TEXT, source, FT_HASH_SIZE, FT_REQUIRED) /* hash of the device source as compiled */ \
	F(TEXT, scale, FT_NAME_SIZE, FT_OPTIONAL)  /* the field that `nearest` walks along */  \
	F(RAW, fields, 0, FT_REQUIRED)             /* schema_field */                          \
	F(RAW, knobs, 0, FT_REQUIRED)              /* schema_knob */                           \
	F(CONFIG, fallback, 0, FT_OPTIONAL)        /* the default where only a runner knows the rule */
FT_DECLARE_MESSAGE(runner_kernel, FT_RUNNER_KERNEL)

#define FT_SCHEMA_FIELD(F)                                                                  \
	F(TEXT, name, FT_NAME_SIZE, FT_REQUIRED)                                            \
	F(TEXT, type, 8, FT_REQUIRED) /* int or text */                                     \
	F(INT, min, 0, FT_OPTIONAL)                                                         \
	F(INT, max, 0, FT_OPTIONAL)                                                         \
	F(RAW, choices, 0, FT_OPTIONAL)             /* texts */                             \
	F(TEXT, same_as, FT_NAME_SIZE, FT_OPTIONAL) /* its default is that field's value */ \
	F(BOOL, has_default, 0, FT_OPTIONAL)                                                \
	F(INT, default_number, 0, FT_OPTIONAL)                                              \
	F(TEXT, default_text, FT_TEXT_SIZE, FT_OPTIONAL)                                    \
	F(TEXT, help, 128, FT_OPTIONAL)
FT_DECLARE_MESSAGE(schema_field, FT_SCHEMA_FIELD)

#define FT_SCHEMA_KNOB(F)                                               \
	F(TEXT, name, FT_NAME_SIZE, FT_REQUIRED)                        \
	F(RAW, values, 0, FT_REQUIRED) /* all integers, or all words */ \
	F(BOOL, changes_bits, 0, FT_OPTIONAL)                           \
	F(TEXT, help, 128, FT_OPTIONAL)
FT_DECLARE_MESSAGE(schema_knob, FT_SCHEMA_KNOB)

#define FT_SPACE_REQUEST(F)                          \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED) \
	F(PROBLEM, problem, 0, FT_REQUIRED)          \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)
FT_DECLARE_MESSAGE(space_request, FT_SPACE_REQUEST)

#define FT_SPACE_REPLY(F)                                                                                 \
	F(RAW, members, 0, FT_REQUIRED) /* space_member, in the order of the deciding rule: less of the \
	                                     machine first */ \
	F(UINT, default_index, 0, FT_REQUIRED) /* index of the default config, never pruned */            \
	F(UINT, unlisted, 0, FT_OPTIONAL)      /* the default alone is listed, of so many that can win */
FT_DECLARE_MESSAGE(space_reply, FT_SPACE_REPLY)

#define FT_SPACE_MEMBER(F)                \
	F(CONFIG, config, 0, FT_REQUIRED) \
	F(TEXT, pruned, FT_REASON_SIZE, FT_OPTIONAL) /* why it cannot win */
FT_DECLARE_MESSAGE(space_member, FT_SPACE_MEMBER)

#define FT_SWEEP_REQUEST(F)                                                                                 \
	F(UINT, job, 0, FT_REQUIRED)                                                                        \
	F(TEXT, kernel, FT_KERNEL_SIZE, FT_REQUIRED)                                                        \
	F(PROBLEM, problem, 0, FT_REQUIRED)                                                                 \
	F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)                                                     \
	F(RAW, members, 0, FT_REQUIRED)        /* sweep_member: the space, with what is known */            \
	F(UINT, default_index, 0, FT_REQUIRED) /* index of the default config */                            \
	F(UINT, rounds, 0, FT_OPTIONAL) /* rounds already measured; new ones are numbered on from here */   \
	F(UINT, seed, 0, FT_REQUIRED)                                                                       \
	F(UINT, budget_ns, 0, FT_REQUIRED)                                                                  \
	F(UINT, band_ppm, 0, FT_REQUIRED)                                                                   \
	F(UINT, min_rounds, 0, FT_REQUIRED)                                                                 \
	F(UINT, max_rounds, 0, FT_REQUIRED)                                                                 \
	F(BOOL, hasty, 0, FT_OPTIONAL)    /* its rounds may all lie in one moment */                        \
	F(UINT, unlisted, 0, FT_OPTIONAL) /* as in the space's reply: the members are those tried so far */ \
	F(BOOL, search, 0, FT_OPTIONAL)   /* more members are to be looked for first */
FT_DECLARE_MESSAGE(sweep_request, FT_SWEEP_REQUEST)

#define FT_SWEEP_MEMBER(F)                                                                                  \
	F(CONFIG, config, 0, FT_REQUIRED)                                                                   \
	F(TEXT, status, 16,                                                                                 \
	        FT_OPTIONAL) /* a verdict that stands: wrong, failed, timeout, same_code_as, pruned */      \
	F(TEXT, code, FT_HASH_SIZE, FT_OPTIONAL) /* built before */                                         \
	F(UINT, same_as, 0, FT_OPTIONAL)         /* same_code_as: index of the member timed in its stead */ \
	F(BOOL, verified, 0, FT_OPTIONAL)        /* before timing */                                        \
	F(BOOL, dropped, 0, FT_OPTIONAL)         /* by the decision, in an earlier round */                 \
	F(BOOL, served, 0, FT_OPTIONAL)          /* it is the winner that is stored now */                  \
	F(UINT, place, 0, FT_OPTIONAL)           /* in the space, of which not all are listed */            \
	F(UINT, look_ps, 0, FT_OPTIONAL)         /* what it took when it was looked at */                   \
	F(RAW, samples, 0, FT_OPTIONAL) /* picoseconds, one a round so far; 0: not measured in that round */
FT_DECLARE_MESSAGE(sweep_member, FT_SWEEP_MEMBER)

#define FT_SWEEP_REPLY(F)                                                                                \
	F(TEXT, outcome, 16, FT_REQUIRED) /* decided, cancelled, no_winner, no_time */                   \
	F(UINT, winner, 0, FT_OPTIONAL)                                                                  \
	F(UINT, rounds, 0, FT_OPTIONAL)                                                                  \
	F(BOOL, conclusive, 0, FT_OPTIONAL)                                                              \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)                                                     \
	F(TEXT, method, FT_REASON_SIZE, FT_OPTIONAL) /* how it was measured, for the report */           \
	F(TEXT, interference, 192, FT_OPTIONAL)      /* what disturbed it, and what was done about it */ \
	F(UINT, needs_ns, 0, FT_OPTIONAL) /* no_time: what the default alone takes of a budget, about */
FT_DECLARE_MESSAGE(sweep_reply, FT_SWEEP_REPLY)

#define FT_LOAD_REQUEST(F) F(TEXT, device, FT_DEVICE_ID_SIZE, FT_REQUIRED)
FT_DECLARE_MESSAGE(load_request, FT_LOAD_REQUEST)

#define FT_LOAD_REPLY(F)                                                                       \
	F(BOOL, known, 0, FT_OPTIONAL)   /* false: the system has no figure for this device */ \
	F(UINT, percent, 0, FT_OPTIONAL) /* of it that others use, 0 to 100 */
FT_DECLARE_MESSAGE(load_reply, FT_LOAD_REPLY)

#define FT_CANCEL_NOTICE(F) F(UINT, job, 0, FT_REQUIRED)
FT_DECLARE_MESSAGE(cancel_notice, FT_CANCEL_NOTICE)

/* The notice "event" of a runner. `trial` is an index into the sweep's members. */
#define FT_RUNNER_EVENT(F)                                                                                  \
	F(UINT, job, 0, FT_REQUIRED)                                                                        \
	F(TEXT, event, 16, FT_REQUIRED) /* stage, begin, built, same_code, verified, out, round, dropped, \
	                                   member, looked, race */ \
	F(TEXT, stage, 16, FT_OPTIONAL) /* stage and begin: start, build, verify, measure, wait, confirm */ \
	F(UINT, trial, 0, FT_REQUIRED)                                                                      \
	F(TEXT, code, FT_HASH_SIZE, FT_OPTIONAL) /* built */                                                \
	F(BOOL, cached, 0, FT_OPTIONAL)          /* built: it was there already */                          \
	F(UINT, registers, 0, FT_OPTIONAL)       /* built */                                                \
	F(UINT, spills, 0, FT_OPTIONAL)          /* built */                                                \
	F(UINT, build_ns, 0, FT_OPTIONAL)        /* built */                                                \
	F(UINT, other, 0, FT_OPTIONAL)           /* same_code: the member timed in its stead */             \
	F(REAL, error, 0, FT_OPTIONAL)           /* verified: largest relative error */                     \
	F(TEXT, status, 16, FT_OPTIONAL)         /* out: wrong, failed or pruned */                         \
	F(UINT, round, 0, FT_OPTIONAL)           /* round, dropped */                                       \
	F(RAW, samples, 0, FT_OPTIONAL)    /* round: [index, picoseconds] a config measured in it; race: \
	                                            the indices of all that race */  \
	F(UINT, disturbed, 0, FT_OPTIONAL) /* round: samples that something else on the device disturbed */ \
	F(CONFIG, config, 0, FT_OPTIONAL)  /* member: one more, `trial` is its index */                     \
	F(UINT, place, 0, FT_OPTIONAL)     /* member: in the space */                                       \
	F(UINT, look_ps, 0, FT_OPTIONAL)   /* looked: what it took, for now */                              \
	F(TEXT, reason, FT_REASON_SIZE, FT_OPTIONAL)
FT_DECLARE_MESSAGE(runner_event, FT_RUNNER_EVENT)

#endif
