/* The trials of one problem on one device under one identity: what a sweep knows, kept as one packed record.
 */
#ifndef FLYTUNE_DAEMON_TRIALS_H
#define FLYTUNE_DAEMON_TRIALS_H

#include "kernels/decide.h"
#include "proto/messages.h"

enum trial_status {
	TRIAL_WAITING, /* nothing decided against it */
	TRIAL_WRONG,   /* a result was out of bounds, be it once */
	TRIAL_FAILED,
	TRIAL_TIMEOUT,
	TRIAL_SAME_CODE, /* as `same_as` */
	TRIAL_PRUNED,
	TRIAL_SUSPECT, /* a runner ended while it had it, and whether by its fault is not known: not tried for now */
};

enum { TRIAL_NO_PLACE = INT32_MAX };

struct trial {
	struct ft_config config;
	enum trial_status status;
	bool verified; /* right before timing */
	bool dropped;  /* by the decision */
	bool struck;   /* a runner ended while it had it: the next time it is to blame */
	/* After the race that ended last, and many of its launches; not kept with the trials. */
	bool confirmed;
	uint32_t dropped_round;
	uint32_t place;          /* in a space that is not listed, TRIAL_NO_PLACE: not known */
	uint64_t look_ps;        /* what it took when it was looked at; 0: it was not */
	uint32_t same_as;        /* index of the trial timed in its stead */
	char code[FT_HASH_SIZE]; /* "" until built */
	uint64_t registers, spills, build_ns;
	double error;
	char reason[FT_REASON_SIZE];
	uint64_t *sample_ps; /* [FT_ROUNDS_MAX] once measured, else NULL */
};

struct trials {
	char kernel[FT_KERNEL_SIZE];
	struct ft_problem problem; /* whole */
	uint64_t seed;
	uint32_t rounds;        /* measured so far, over all starts */
	uint32_t default_index; /* index of the default */
	int32_t winner;         /* -1: none decided */
	bool conclusive;
	bool busy;         /* something else used the device; not kept with the trials */
	uint64_t sweep_ns; /* time spent sweeping, over all starts */
	/* Of a space that is not listed how many members can win; 0: it is, and the trials are all of it. */
	uint64_t unlisted;
	bool raced; /* of such a one: who races is chosen, nobody is looked for any more */
	char method[FT_REASON_SIZE];
	char reason[FT_REASON_SIZE]; /* of the decision */
	uint32_t count;
	uint32_t room; /* of a set that grows; else 0 */
	struct trial *trial;
};

/* How many of them are of the space: the first ones, what follows is kept from a larger one. */
uint32_t trials_members(const struct trials *trials);
/* One more, all zero but for what is given; NULL when out of memory, or of FT_TRIES_MAX. */
struct trial *trials_add(struct trials *trials, const struct ft_config *config, uint32_t place);

/* Makes an empty set of `count` trials; NULL when out of memory. */
struct trials *trials_new(uint32_t count);
void trials_free(struct trials *trials);
/* The samples of a trial, made on first use; NULL when out of memory. */
uint64_t *trials_samples(struct trials *trials, uint32_t index);
/* -1 if there is none. */
int32_t trials_find(const struct trials *trials, const struct ft_config *config);
const char *trial_status_word(enum trial_status status); /* "waiting", "wrong", "failed", "timeout", … */
int trial_status_parse(const char *word, enum trial_status *status);

#endif
