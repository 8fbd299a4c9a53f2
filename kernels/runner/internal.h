/* A sweep in one process, shared by the files that it is made of: sweep.c (from start to answer), sweep_members.c (who is in
 * the race), sweep_search.c (which members are tried of a space that is too large), sweep_build.c, sweep_race.c and sweep_confirm.c
 * (its stages, in this order), sweep_budget.c (its time).
 *
 * What takes long returns 0, -1 with its error, FT_BACKEND_LOST, or one of enum run_result. */
#ifndef FLYTUNE_KERNELS_RUNNER_INTERNAL_H
#define FLYTUNE_KERNELS_RUNNER_INTERNAL_H

#include "kernels/runner/sweep.h"

enum run_result {
	RUN_CANCELLED = 1,
	RUN_ENDED = 2,  /* the budget is spent */
	RUN_NO_TIME = 3 /* before anybody could win in it */
};

/* How far the device and the race are. */
enum run_pace { RUN_COLD, RUN_WARMED, RUN_RACING };

/* How far a member is in this process. */
enum member_state {
	MEMBER_NEW,
	MEMBER_BUILDING,
	MEMBER_BUILT,
	MEMBER_SAMPLED, /* once at least, thrown away or not */
};

enum {
	/* Of the winner that are looked at. One that is wrong in 1 of 200 is found by so many in 99 of 100 sweeps, one that is
	 * wrong in 1 of 50 always. Of problems that move many bytes, fewer for the same time. */
	AUDIT_LAUNCHES = 1000,
	AUDIT_LEAST = 16,
	AUDIT_COST = 3, /* launches' times, for one */
};
static const uint64_t pause_first_ns = 50000000;

struct run {
	struct ft_sweep *sweep;
	struct ft_backend *backend;
	const struct ft_sweep_listener *listener;
	uint64_t start_ns;
	uint64_t deadline_ns; /* the budget's end; moves on while others are waited for */
	uint64_t prepare_ns;  /* that it took; 0: not over yet */
	uint64_t verify_ns;   /* a config; guessed at first, 0: not known */
	size_t verified;      /* that it was measured on */
	uint64_t sample_ns;   /* of the default, with all that goes with it; 0: not known */
	uint64_t reserve_ns;  /* for the launches of the winner that are looked at */
	uint64_t spread_ns;   /* of the first rounds */
	uint64_t launch_ns;   /* of the fastest, in the last round */
	enum run_pace pace;
	bool rejected;        /* a winner was found wrong after the race */
	size_t fresh;         /* rounds measured in this run */
	uint64_t began_ns;    /* the first of them */
	uint64_t patience_ns; /* left for waiting */
	uint64_t pause_ns;    /* of the next wait */
	uint64_t waited_ns;
	bool disturbed; /* the last round was disturbed */
	/* The last that was to be said of it. */
	char interference[sizeof(((struct ft_interference *)0)->reason)];
	size_t *order;             /* of a round */
	uint64_t *sample;          /* of the round at hand */
	enum member_state *member; /* of each trial */
	bool revived;              /* some that were dropped race again, and may have to be built */
	struct ft_config *config;  /* of each trial, as the backend reads them */
	uint64_t look_end_ns;      /* while it looks for members: when that ends; else 0 */
	struct ft_contender *contender;
	size_t *racing; /* which trial each contender is */
	struct ft_standing *standing;
	struct ft_writer writer;
};

/* ---- sweep_members.c ---- */

struct ft_runner_event run_event(const struct run *run, const char *word, size_t trial);
void run_tell(struct run *run, const struct ft_runner_event *event);
void run_tell_stage(struct run *run, const char *stage);
void run_tell_begin(struct run *run, const char *stage, size_t trial);
bool run_cancelled(const struct run *run);

bool run_can_win(const struct ft_sweep_trial *trial);
/* The default is timed beside the survivors after a restart, so that what they gain is known in fresh rounds. */
bool run_is_measured(const struct run *run, size_t index);
/* To be built. */
bool run_is_wanted(const struct run *run, size_t index);
bool run_is_built(const struct run *run, size_t index);
void run_decide(struct run *run, bool ended, struct ft_decision *decision);
/* As the last decision says, and takes those back that it revived. */
void run_drop_the_worse(struct run *run);
void run_put_out(struct run *run, size_t index, const char *status, const char *reason);
/* The process is about to end: this names whose doing it is. */
int run_lose(struct run *run, const char *stage, size_t index);
/* What the backend said of a config that is out now. */
int run_reject(struct run *run, const char *stage, size_t index, int result, const struct ft_error *error);

/* ---- sweep_build.c ---- */

/* Builds and verifies all that are wanted, as far as the budget goes: whoever was not reached is not verified. */
int run_build_all(struct run *run, struct ft_error *error);
/* 0, FT_BACKEND_LOST or RUN_ENDED. A wrong or failed config is out. */
int run_verify(struct run *run, const char *stage, size_t index, uint64_t until_ns);

/* ---- sweep_search.c ---- */

/* Of an unlisted space: looks for members, and chooses who races. */
int run_search(struct run *run, struct ft_error *error);

/* ---- sweep_race.c ---- */

/* The first sample of a config is thrown away, and announced. */
int run_sample_first(struct run *run, size_t index);
/* One part of a sample: 0 in `sample_ps` until it is whole, and where the config is out. */
int run_measure(struct run *run, size_t index, uint64_t *sample_ps);
/* Clocks, batches, first touches. */
int run_warm(struct run *run, struct ft_error *error);

/* Rounds until the decision falls. After a restart nothing is decided before min_rounds fresh rounds, unless
 * the old ones decide already. */
int run_race(struct run *run, struct ft_decision *decision, struct ft_error *error);
/* Where verifying all would take a good part of the budget, how many there is time for depends on what a sample takes. */
int run_time_the_default_first(struct run *run);

/* ---- sweep_confirm.c ---- */

/* The winner first, then the stored one if it is tied with it, then the others that are, as long as there is time. */
int run_confirm(struct run *run, size_t winner);

/* ---- sweep_budget.c ---- */

/* When measuring has to end, for the winner to be verified once more in the budget. */
uint64_t run_race_end_ns(const struct run *run);
/* What is left is for the winner to be looked at. */
bool run_over_budget(const struct run *run);
/* When the last verification has to end. */
uint64_t run_last_end_ns(const struct run *run);
/* How long it takes to verify the winner after the timing; an audit begins with two whole checks. */
uint64_t run_verify_again_ns(const struct run *run);
bool run_audits_at_any_rate(const struct run *run);
/* How many launches of the winner are looked at. */
uint64_t run_audit_launches(const struct run *run);
/* How long that takes, by the round at hand. */
void run_set_reserve(struct run *run);
/* Before a round: not all of the first ones in the same moment, nor any while others use the device. */
int run_keep_pace(struct run *run, struct ft_error *error);
/* Has the host's lock, where the backend uses the host so; `stage` is told again after a wait. */
int run_take_host(struct run *run, enum ft_host_use use, const char *stage);
void run_leave_host(const struct run *run);
/* After one, of so many samples. */
void run_look_at_interference(struct run *run, size_t measured, uint64_t *disturbed);

#endif
