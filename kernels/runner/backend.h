/* A backend: what one kind of device does for the device-independent runner (runner.h). One a program.
 *
 * The runner drives a sweep as: prepare; build_start for every member that may still win, the default first, build_wait until
 * all are in, verifying each as it comes as long as the budget bears it; warm; one measure of each that is thrown away; rounds of
 * measure; verify the finalists again, audit the winner; finish. Where verifying takes long the default is warmed up for and measured once before
 * the others are verified. Calls come from one thread, though the runner has another that watches
 * the socket. A backend never talks to the daemon, never decides, and need not guard against its own crash or
 * hang: the runner tells the daemon which config was on the device, from a signal handler or its watching
 * thread. Processes that a backend starts must not inherit descriptor 3 and must die with it
 * (PR_SET_PDEATHSIG). */
#ifndef FLYTUNE_KERNELS_RUNNER_BACKEND_H
#define FLYTUNE_KERNELS_RUNNER_BACKEND_H

#include "kernels/kernel.h"
#include "kernels/runner/host_lock.h"

/* Returned by verify or measure in place of -1 when nothing more can run in this process (a sticky device
 * error): the config is out with that error, and the runner exits with this status for the daemon to start
 * another. */
enum { FT_BACKEND_LOST = -2, FT_RUNNER_EXIT_LOST = 3 };

/* Returned by prepare, build_wait or verify when `deadline_ns` passed before it was through. */
enum { FT_BACKEND_ENDED = -3 };

struct ft_folder;

struct ft_built {
	size_t index; /* which member */
	bool failed;  /* then `error` says why; else the rest is filled in */
	/* Hash of the machine code and of all that a launch of it is given (threads, grid, rows a task): two
	 * configs with the same hash do exactly the same work, so only one of them is timed. */
	char code[FT_HASH_SIZE];
	bool cached;
	uint64_t registers, spills; /* a thread; 0 on a CPU */
	uint64_t build_ns;
	struct ft_error error;
};

struct ft_backend_device {
	struct ft_runner_device shown; /* as the hello tells it */
	struct ft_traits traits;
};

struct ft_backend_sweep {
	const struct ft_kernel *kernel;
	const struct ft_problem *problem; /* whole and checked */
	size_t device;                    /* index into the devices of the hello */
	uint64_t seed;
	uint64_t memory_cap;  /* bytes; 0: the backend's own bound */
	const char *code_dir; /* NULL: keep no code */
	size_t count;
	size_t room; /* of a backend that takes them late: there may be so many, each there when its build is started; 0: no more */
	const struct ft_config *config;
	size_t default_index; /* index of the default */
};

/* What the system says of the time since it was asked last. */
struct ft_interference {
	bool disturbed;  /* what was measured meanwhile was disturbed */
	char reason[96]; /* in plain words, for the report; "": nothing is to be said */
};

enum { FT_FOLDERS_MAX = 64 };

struct ft_backend {
	const char *kind; /* "cpu" */
	/* What a sweep does to the host. FT_HOST_WORKED: prepare, builds and the verifications between leave alone what is timed on
	 * it; FT_HOST_TIMED: rounds, and what sizes them, are measured beside no such work. */
	enum ft_host_use host;
	bool takes_late; /* configs that come after prepare: spaces that are too large to be tried whole are searched */

	/* Finds devices without disturbing them (no context on a GPU). No device is no failure: `reason` says
	 * why. */
	int (*open)(struct ft_backend *self, struct ft_error *error);
	void (*close)(struct ft_backend *self);
	size_t device_count;
	struct ft_backend_device *device;
	char reason[FT_REASON_SIZE];
	char identity[FT_IDENTITY_SIZE]; /* compiler, runtime, driver, way of timing */
	const char *const *files;        /* whose change makes the hello stale; ends with NULL */
	/* Hash of a kernel's device source as compiled; "" of one that it can not run. */
	void (*source)(struct ft_backend *self, const char *kernel, char hash[FT_HASH_SIZE]);
	/* From now on it has that folder's kernel, too; the folder outlives it. After open. NULL: it runs none such. */
	int (*adopt)(struct ft_backend *self, const struct ft_folder *folder, struct ft_error *error);
	struct ft_folder *folder[FT_FOLDERS_MAX]; /* that it has; the runner's */
	size_t folder_count;
	char unconfined
	        [FT_REASON_SIZE]; /* the runner's: what their code is not kept from; "": nothing that matters */

	/* How much of a device others use now, in percent, without disturbing it. False where the system has no
	 * figure. May take a tenth of a second. NULL: never known. */
	bool (*load)(struct ft_backend *self, size_t device, unsigned *percent);
	/* Between the rounds of a sweep; takes no more than a millisecond. NULL: nothing is known. */
	void (*interference)(struct ft_backend *self, struct ft_interference *interference);
	/* The first rounds of a race are spread over at least so long, for what disturbs a device may last longer than
	 * a few rounds do. 0: not at all. */
	uint64_t spread_ns;
	unsigned vain; /* the sweep's: waits for quiet that found none, one after another */

	/* Set before each call: what takes long gives up then, monotonic, within some milliseconds or one launch. 0: never. */
	uint64_t deadline_ns;
	/* Set early in prepare: about how long that, and verifying one config, take for this problem. 0: not known. */
	uint64_t prepare_ns, verify_ns;

	/* One sweep at a time. Buffers, the float64 reference, random inputs from the seed. */
	int (*prepare)(struct ft_backend *self, const struct ft_backend_sweep *sweep, struct ft_error *error);
	int (*build_start)(struct ft_backend *self, size_t index, struct ft_error *error);
	/* Waits for one build that was started: 1 and it, 0 if none is pending, -1 if builds cannot go on at
	 * all, or FT_BACKEND_ENDED. Builds begin in the order in which they were started. */
	int (*build_wait)(struct ft_backend *self, struct ft_built *built, struct ft_error *error);
	/* Whole output against the reference, with guards. 0 and the largest relative error; 1 if it is
	 * wrong, with `error` saying where and how; -1 if it could not be run; FT_BACKEND_LOST or FT_BACKEND_ENDED. A config that
	 * wrote into its input or weight is wrong, and they are as before again: no config is judged by what
	 * another did, in verification or when it was timed. */
	int (*verify)(struct ft_backend *self, size_t index, double *largest, struct ft_error *error);
	/* At least so many launches of one that was verified, run as timed ones are, the whole output of each compared with what is
	 * known to be right; `checked` gets how many. Results as of verify. NULL: there is no such thing. */
	int (*audit)(struct ft_backend *self, size_t index, uint64_t launches, uint64_t *checked,
	        struct ft_error *error);
	/* Brings the device to a steady state and sizes the batches; called before the first round. What it looks at besides
	 * it leaves by the deadline. */
	int (*warm)(struct ft_backend *self, struct ft_error *error);
	/* One more part of a sample of one config; 0 in `sample_ps` while there are more to come. Parts of others
	 * are measured in between, so that all samples of a round see the same interference. When it is whole:
	 * picoseconds a launch, caches cold as stated in `method`. The first sample of each config in a sweep is
	 * thrown away, so it may size that config's batch and be no more than a sign. 0, -1 or FT_BACKEND_LOST. */
	int (*measure)(struct ft_backend *self, size_t index, uint64_t *sample_ps, struct ft_error *error);
	void (*finish)(struct ft_backend *self);
	uint64_t disturbed;          /* samples so far that something else on the device disturbed */
	char method[FT_REASON_SIZE]; /* how it measures this sweep, for the report; set by warm */
};

#endif
