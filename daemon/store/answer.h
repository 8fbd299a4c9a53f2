/* What the store keeps of an answer: pin, winner and import of one problem on one device, and the key that it is under. */
#ifndef FLYTUNE_DAEMON_STORE_ANSWER_H
#define FLYTUNE_DAEMON_STORE_ANSWER_H

#include "kernels/kernel.h"

/* Long names that keys hold as numbers. */
enum store_name { STORE_KERNEL, STORE_DEVICE, STORE_IDENTITY };

struct store_key {
	uint32_t kernel;
	uint32_t device;
	struct ft_problem_key problem;
};

static inline bool store_key_equal(const struct store_key *a, const struct store_key *b)
{
	return a->kernel == b->kernel && a->device == b->device && a->problem.scale == b->problem.scale &&
	        memcmp(a->problem.hash, b->problem.hash, sizeof(a->problem.hash)) == 0;
}

struct store_pin {
	bool set;
	struct ft_config config;
	uint32_t user;
	uint64_t at_ns;
};

struct store_winner {
	bool set;
	struct ft_config config;
	uint32_t identity; /* served as tuned only while it is the device's */
	uint32_t rule_revision;
	uint64_t space_hash; /* of the configs it was chosen from */
	/* That of the default follows from the rounds that both were in: their ratio is the gain. 0: it was in none. */
	uint64_t time_ps, default_time_ps;
	uint64_t gain_least_ppm; /* of the gain, with 99.5 % confidence, in millionths; 0: not known */
	uint64_t seen_ppm;       /* of the space, what was tried, in millionths; 0: not known */
	uint64_t order_class;    /* configs of one class give the same bits; 0: of none */
	uint64_t tuned_at_ns;
	bool conclusive;
	bool busy; /* measured while something else used the device */
	uint64_t job;
};

struct store_import {
	bool set;
	struct ft_config config;
	char origin[64];
	char identity[FT_IDENTITY_SIZE]; /* under which it was measured, there */
	uint64_t time_ps, default_time_ps, gain_least_ppm, seen_ppm, order_class; /* as in a winner */
	bool unsettled;
	uint64_t at_ns;
};

struct store_answer {
	struct ft_problem problem; /* whole; compare it, the key has only a hash */
	uint64_t generation;       /* of its last change */
	struct store_pin pin;
	struct store_winner winner;
	struct store_import import;
};

#endif
