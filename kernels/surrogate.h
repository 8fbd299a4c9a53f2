/* A surrogate: what is expected of the members of a space that were not tried, from those that were.
 *
 * A Gaussian process over the value indices of the knobs. Two members correlate by a product over the knobs in which they
 * differ; each knob's part falls with the distance between its two values in the knob's list, at a rate that is fitted to
 * what was seen, and in part with the mere fact that they differ, so that knobs without an order fit as well. It gives each
 * member of a pool a mean and a variance, and keeps both up to date as members are tried, one row of a factorisation each:
 * what was worked out before is not worked out again. kernels/search.h uses it, and says where it comes from. */
#ifndef FLYTUNE_KERNELS_SURROGATE_H
#define FLYTUNE_KERNELS_SURROGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FT_SURROGATE_SEEN_MAX = 512,  /* members that it reasons from */
	FT_SURROGATE_POOL_MAX = 4096, /* members that it speaks of */
	FT_SURROGATE_FIT_MAX = 192,   /* members that the rates are fitted to */
	FT_SURROGATE_KNOBS_MAX = 16,
};

struct ft_surrogate;

/* `row` has `count` times `knobs` value indices and is copied. NULL when out of memory. What is allocated here is all:
 * 11 MiB, and for each member 4 bytes and 2 a knob. */
struct ft_surrogate *ft_surrogate_new(const uint16_t *row, size_t count, size_t knobs);
void ft_surrogate_free(struct ft_surrogate *surrogate);

/* Fits the rates to the values of `count` members, at most FT_SURROGATE_FIT_MAX, from where they were, and forgets what was
 * seen and the pool. Any scale of values will do, logarithms of times fit best. */
void ft_surrogate_fit(
        struct ft_surrogate *surrogate, const uint32_t *member, const double *value, size_t count);

/* Sees one more member, of which a value may be known later. There must be room. */
void ft_surrogate_see(struct ft_surrogate *surrogate, uint32_t member);
size_t ft_surrogate_seen(const struct ft_surrogate *surrogate);
uint32_t ft_surrogate_seen_at(const struct ft_surrogate *surrogate, size_t at);

/* The values of those seen, in their order: NAN where it is not known yet, which is then taken to be as expected. The first must
 * be known. Works out the means. */
void ft_surrogate_value(struct ft_surrogate *surrogate, const double *value);

/* The mean of any members, slower than that of the pool: `mean` has one for every member of the space. */
void ft_surrogate_mean_of_all(struct ft_surrogate *surrogate, float *mean);

/* Of which members it speaks from now on. */
void ft_surrogate_set_pool(struct ft_surrogate *surrogate, const uint32_t *member, size_t count);
size_t ft_surrogate_pool(const struct ft_surrogate *surrogate, const uint32_t **member);
/* By the pool's order. The variance is to be multiplied by the scale, in squared units of the values. */
const float *ft_surrogate_mean(const struct ft_surrogate *surrogate);
const float *ft_surrogate_variance(const struct ft_surrogate *surrogate);
double ft_surrogate_scale(const struct ft_surrogate *surrogate);

/* The distance between two members: over all knobs, the part of the knob's list that lies between their values. */
double ft_surrogate_distance(const struct ft_surrogate *surrogate, uint32_t a, uint32_t b);
/* How many knobs differ. */
size_t ft_surrogate_differ(const struct ft_surrogate *surrogate, uint32_t a, uint32_t b);

/* The multiplications done so far, but for single ones: what a step costs, on any machine. */
uint64_t ft_surrogate_work(const struct ft_surrogate *surrogate);

#endif
