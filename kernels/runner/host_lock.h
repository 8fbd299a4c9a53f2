/* The host's lock: what loads its processors, such as compilers for a GPU, and what is timed on them leave each other alone. Those
 * who work share it, who times has it alone, and neither starves the other: who waits to time keeps new work out, and whoever
 * waited meanwhile goes before the next that is timed.
 *
 * It is three bytes of a file, locked by its open file description: whatever becomes of a process, its lock goes with it. */
#ifndef FLYTUNE_KERNELS_RUNNER_HOST_LOCK_H
#define FLYTUNE_KERNELS_RUNNER_HOST_LOCK_H

#include <stdbool.h>

enum ft_host_use {
	FT_HOST_UNUSED,
	FT_HOST_WORKED, /* what is prepared and built loads it */
	FT_HOST_TIMED   /* it is what rounds are measured on */
};

enum ft_host_lock_state {
	FT_HOST_LOCK_OUT,
	FT_HOST_LOCK_ASKS, /* work that waits says so */
	FT_HOST_LOCK_NEXT, /* nobody who comes later gets in before it */
	FT_HOST_LOCK_IN,
	FT_HOST_LOCK_STATES
};

static inline bool ft_host_lock_may_go(enum ft_host_lock_state from, enum ft_host_lock_state to)
{
	/* One step on, or out from wherever it is. */
	return to == FT_HOST_LOCK_OUT || (int)to == (int)from + 1;
}

struct ft_host_lock {
	int descriptor; /* -1: there is none, and nothing excludes anything */
	enum ft_host_lock_state state;
};

/* In this folder, which all runners of a daemon are given. Where no file can be had there is no lock. */
void ft_host_lock_open(struct ft_host_lock *lock, const char *folder);
/* Goes as far as it can without waiting; whether it is in. Called again and again with the same use. */
bool ft_host_lock_try(struct ft_host_lock *lock, enum ft_host_use use);
/* Out, wherever it stands. */
void ft_host_lock_leave(struct ft_host_lock *lock);
void ft_host_lock_close(struct ft_host_lock *lock);

#endif
