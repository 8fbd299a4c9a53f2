/* Candidates: problems to be swept when nobody needs their device, and the list of them that outlives the daemon. */
#ifndef FLYTUNE_DAEMON_CANDIDATE_H
#define FLYTUNE_DAEMON_CANDIDATE_H

#include "daemon/answers/target.h"
#include "daemon/jobs/backoff.h"

enum candidate_cause {
	CANDIDATE_MISS,
	CANDIDATE_BUSY,    /* measured while something else used the device */
	CANDIDATE_GROWN,   /* chosen from a part of today's space */
	CANDIDATE_UPGRADE, /* tuned under another compiler, driver or kernel source */
	CANDIDATE_CAUSES
};

extern const char *const candidate_cause_words[CANDIDATE_CAUSES];

struct candidate {
	struct store_key key; /* of today's devices; all zero in one that was read */
	char kernel[FT_KERNEL_SIZE];
	char device[FT_DEVICE_ID_SIZE];
	struct ft_problem problem;
	enum candidate_cause cause;
	uint64_t asked;       /* how often */
	uint32_t number;      /* in the order of their coming */
	bool away;            /* its device was not here when it was looked at last */
	struct backoff pause; /* since its sweep failed; one that is paused is kept, but not in a list */
};

/* As many as a list has at the most: the most asked. */
enum { CANDIDATES_LISTED = 1024 };

/* Writes a list of `count` candidates that stand at two places; the writer grows. -1 when out of memory. */
int candidates_write(struct ft_writer *writer, const struct candidate *candidate, uint32_t count,
        const struct candidate *more, uint32_t more_count);
/* Reads a list into a fresh array, the caller's to free, NULL where there is none; how many. Of a damaged list what
 * stands before the damage, of one that a later version wrote nothing. */
uint32_t candidates_read(struct ft_view list, struct candidate **candidate);

#endif
