/* What the operator asked for: the command line over the defaults. */
#ifndef FLYTUNE_DAEMON_OPTIONS_H
#define FLYTUNE_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "proto/messages.h"

enum { OPTIONS_DEVICES_MAX = 16, OPTIONS_KINDS = 3 };

/* The kinds of devices, in the order in which a lookup without a device takes them. */
extern const char *const options_kinds[OPTIONS_KINDS]; /* hip, cuda, cpu */

/* What a runner may be slow at. Each event of a runner starts the clock of its stage anew. */
enum options_stage {
	STAGE_HELLO,
	STAGE_SPACE,
	STAGE_START,
	STAGE_BUILD,
	STAGE_VERIFY,
	STAGE_MEASURE,
	STAGE_STOP,
	STAGES
};

struct options {
	char socket[108];
	char state_dir[256];
	uint32_t device_count;                               /* 0: auto */
	char device[OPTIONS_DEVICES_MAX][FT_DEVICE_ID_SIZE]; /* "cpu", "cuda:1" */
	char runner[OPTIONS_KINDS][256];                     /* program of each kind */
	uint64_t runner_idle_ns; /* without work for so long, a runner is let go */
	uint64_t deadline_ns[STAGES];
	uint64_t budget_ns; /* of measuring one problem */
	uint32_t band_ppm;
	uint64_t memory_cap; /* of a device, 0: the runner's own bound */
	uint64_t map_bytes;
	uint32_t clients_max;
	int log_level;
	struct rlimit descriptors; /* RLIMIT_NOFILE as it was given to the daemon; zero: unknown */
};

enum options_outcome { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_CHECK_STORE, OPTIONS_BAD };

/* OPTIONS_DONE: --help or --version was answered on standard output. OPTIONS_CHECK_STORE: check state_dir's
 * store. */
enum options_outcome options_parse(struct options *options, int argc, char **argv, struct ft_error *error);
/* -1 if there is no such kind. */
int options_kind(const char *word);
const char *options_stage_word(enum options_stage stage);
/* Whether the operator wants this device, "cuda:1". */
bool options_wants(const struct options *options, const char *device_id);
bool options_wants_kind(const struct options *options, const char *kind);

#endif
