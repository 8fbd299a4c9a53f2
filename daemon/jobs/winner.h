/* The winner: which of a sweep's configs is the one to be served, decided from its samples by the rule that the runner races
 * with (kernels/decide.h). */
#ifndef FLYTUNE_DAEMON_WINNER_H
#define FLYTUNE_DAEMON_WINNER_H

#include "daemon/answers/target.h"

/* Decides from the samples of a sweep's trials; `standing` has room for `members`. */
void trials_decide(const struct trials *trials, uint32_t members, uint32_t band_ppm, bool ended, bool final,
        struct ft_standing *standing, struct ft_decision *decision);
/* How many were tried, and of how many: what is pruned does not count. */
uint64_t trials_seen(const struct trials *trials, uint32_t members, uint64_t *space);
/* The same in millionths. */
uint64_t trials_seen_ppm(const struct trials *trials, uint32_t members);
/* What `winner` gains over the default, and at least, in millionths: 1,200,000 is a default that takes 20 % longer. 0: not known. */
void trials_gain(const struct trials *trials, uint32_t members, uint32_t band_ppm, uint32_t winner,
        uint64_t *gain_ppm, uint64_t *least_ppm);
/* Fills in the times of a winner and its gain. */
void trials_time_winner(const struct trials *trials, uint32_t members, uint32_t band_ppm, uint32_t index,
        uint64_t time_ps, struct store_winner *winner);
/* Makes a winner of what a sweep has decided; the one that is served gives way only to one that is better. Its space and job
 * are the caller's to fill in. -1 when out of memory. */
int winner_choose(struct store_winner *winner, struct store *store, const struct target *target,
        struct trials *trials, uint32_t band_ppm);
/* How many of the first `members` are tried at all, and how many of these are settled. */
void trials_progress(const struct trials *trials, uint32_t members, uint64_t *tried, uint64_t *settled);

#endif
