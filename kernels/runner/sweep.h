/* A sweep: the trials of one problem on one backend, from build to a confirmed winner. Knows no wire. */
#ifndef FLYTUNE_KERNELS_RUNNER_SWEEP_H
#define FLYTUNE_KERNELS_RUNNER_SWEEP_H

#include "kernels/decide.h"
#include "kernels/runner/backend.h"

/* One config and what is known of it, before and after. */
struct ft_sweep_trial {
	struct ft_config config;
	bool out;         /* wrong, failed, pruned, or the same code as another */
	bool dropped;     /* by the decision */
	bool verified;    /* before timing */
	bool confirmed;   /* after it */
	bool served;      /* what is answered now: if it is tied with the winner it may stay so */
	bool aside;       /* of an unlisted space: it was looked at, and does not race */
	uint32_t place;   /* in such a space */
	uint64_t look_ps; /* what it took when it was looked at; 0: it was not */
	double error;     /* the largest relative one in its last verification; 0: none in this process */
	uint64_t audited; /* launches whose outputs were looked at; 0: not yet */
	char code[FT_HASH_SIZE]; /* "" until it was built, be it in an earlier run of this sweep */
	char status[16];         /* as in ft_runner_event, once out */
	char reason[FT_REASON_SIZE];
	uint64_t *sample_ps; /* FT_ROUNDS_MAX, one a round; NULL until measured */
};

struct ft_sweep {
	uint64_t job;
	const struct ft_kernel *kernel;
	struct ft_problem problem; /* whole and checked */
	size_t device;
	uint64_t seed;
	uint64_t budget_ns;
	uint64_t memory_cap;
	const char *code_dir;
	struct ft_host_lock *host_lock; /* NULL: there is none */
	struct ft_rule rule;
	bool hasty;    /* its rounds may all lie in one moment */
	size_t rounds; /* measured so far, over all runs */
	size_t default_index;
	uint64_t
	        unlisted; /* members of a space that is too large to be tried whole; 0: the trials are all of it */
	bool search;      /* of such a one: more are to be looked for, as many as there is room for */
	size_t count, room;
	struct ft_sweep_trial *trial;
	struct ft_standing *standing; /* of the last decision */
};

/* Who hears how it goes. Called from the thread that sweeps. */
struct ft_sweep_listener {
	void *context;
	void (*event)(void *context, const struct ft_runner_event *event);
	bool (*cancelled)(void *context);
	/* Around each sample, which no event announces since it may take less time than one. */
	void (*measure_begins)(void *context, size_t trial);
	void (*measure_ends)(void *context);
};

/* Makes `count` trials in a sweep that is zeroed but for, maybe, its room for more; -1 when out of memory. */
int ft_sweep_init(struct ft_sweep *sweep, size_t count, struct ft_error *error);
void ft_sweep_free(struct ft_sweep *sweep);
/* The samples of a trial, made on first use; NULL when out of memory. */
uint64_t *ft_sweep_samples(struct ft_sweep *sweep, size_t index);

/* Runs to the end and fills `reply`. 0; -1 if the sweep could not go on; FT_BACKEND_LOST if this process
 * can't. */
int ft_sweep_run(struct ft_sweep *sweep, struct ft_backend *backend, const struct ft_sweep_listener *listener,
        struct ft_sweep_reply *reply, struct ft_error *error);

#endif
