/* The search: which members of a space too large to be tried whole are tried, and in which order.
 *
 * It is asked for a member to try, and told what came of it. Several may be asked for before any is told, since what is tried
 * together is raced together; what was known before is told before the first is asked for. It reads no clock and no file, and
 * for a seed, a space and the same calls in the same order it gives the same members on one machine.
 *
 * How it goes about it:
 *
 * 1. The default, if there is one.
 * 2. Members that fill the space evenly, until enough of them are told: each is the one farthest from all tried so far among
 *    some that are drawn at random. (Maximin designs: Johnson, Moore and Ylvisaker, 1990; by candidates: Mitchell, 1991.)
 * 3. Members from which most is to be gained. A Gaussian process over the knobs (kernels/surrogate.h) says of each member
 *    what logarithm of its time is expected, and how surely; the next is the one whose expected improvement on the best is
 *    the largest. (Jones, Schonlau and Welch, "Efficient Global Optimization", 1998. For kernels: Willemsen, van Nieuwpoort and
 *    van Werkhoven, "Bayesian Optimization for auto-tuning GPU kernels", 2021, from Kernel Tuner.) Members asked for and not yet told
 *    count as what is expected of them. (The "kriging believer": Ginsbourger, Le Riche and Carraro, 2010.)
 * 4. Each third time, instead, a neighbour of one of the best few, which differs from it in one knob: the one of which the
 *    least time is expected. A surrogate smooths, and the best kernel is often alone among slow ones.
 *
 * A member that failed counts as slow as the slowest. There is one setting for all spaces, and nothing to choose. What a step
 * costs is bounded whatever was tried: the surrogate reasons from at most 512 members, the best among them, and speaks of at most
 * 4,096, those of which most is expected and some drawn at random. tests/bench/search shows what it reaches on recorded spaces. */
#ifndef FLYTUNE_KERNELS_SEARCH_H
#define FLYTUNE_KERNELS_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum {
	FT_SEARCH_MEMBERS_MAX = 65536,
	FT_SEARCH_TRIES_MAX = 4096,
	FT_SEARCH_KNOBS_MAX = 16,
};

#define FT_SEARCH_NONE SIZE_MAX /* nothing is left to try */

struct ft_search_space {
	const uint16_t *row;  /* `count` times `knobs`: a member's values, as indices into each knob's list */
	size_t count;         /* at most FT_SEARCH_MEMBERS_MAX */
	size_t knobs;         /* at most FT_SEARCH_KNOBS_MAX */
	size_t default_index; /* any from `count` up: there is no default */
};

struct ft_search;

/* Copies the space. `tries` is how many members are tried at the most, those that are told beforehand among them; above
 * FT_SEARCH_TRIES_MAX it is that. NULL with the error filled in where a bound is passed or memory is out: what is allocated here
 * is all. Not thread-safe: one thread at a time uses a search. */
struct ft_search *ft_search_new(
        const struct ft_search_space *space, size_t tries, uint64_t seed, struct ft_error *error);
void ft_search_free(struct ft_search *search);

/* The index of the next member to try, which is never given again, or FT_SEARCH_NONE: all are tried, or as many as may be. */
size_t ft_search_next(struct ft_search *search);

/* What came of a member, in picoseconds, or 0: it failed. It need not have been asked for: it is then not given any more. Told
 * again, the later counts. False, and nothing is changed: there is no such member, or no more may be tried. */
bool ft_search_tell(struct ft_search *search, size_t index, uint64_t time_ps);

/* How many were given or told. */
size_t ft_search_tried(const struct ft_search *search);

/* The multiplications done so far, but for single ones: what a step costs, on any machine. */
uint64_t ft_search_work(const struct ft_search *search);

#endif
