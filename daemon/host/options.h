/* What the operator asked for: the command line over the configuration file over the defaults.
 *
 * One table of settings serves both: a setting has a section and a key in the file, and a flag. */
#ifndef FLYTUNE_DAEMON_OPTIONS_H
#define FLYTUNE_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
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

/* When work that nobody waits for is done. */
enum options_background { OPTIONS_BACKGROUND_OFF, OPTIONS_BACKGROUND_IDLE, OPTIONS_BACKGROUND_ALWAYS };

struct options {
	char config[256]; /* the file that was read; "": none */
	char socket[108];
	char state_dir[256];
	char group[32];                                      /* whose members may look up and tune */
	char admin_group[32];                                /* and pin, forget, import, pause */
	uint32_t device_count;                               /* 0: auto */
	char device[OPTIONS_DEVICES_MAX][FT_DEVICE_ID_SIZE]; /* "cpu", "cuda:1" */
	char runner[OPTIONS_KINDS][256];                     /* program of each kind */
	uint64_t runner_idle_ns; /* without work for so long, a runner is let go */
	uint64_t deadline_ns[STAGES];
	uint64_t budget_ns; /* of sweeping one problem, from the runner's start to the decision */
	enum options_background background;
	uint64_t background_queue;   /* problems that may wait */
	uint64_t background_load;    /* percent of a device that others may use meanwhile */
	uint64_t background_wait_ns; /* before a busy device is looked at again */
	uint32_t band_ppm;
	uint64_t memory_cap; /* of a device, 0: the runner's own bound */
	uint64_t map_bytes;
	uint64_t history_days;    /* replaced answers are kept so long */
	uint64_t history_answers; /* and at least so many of each problem */
	uint64_t clients_max;
	uint64_t clients_per_user;
	uint64_t jobs_per_user; /* queued or running; 0: no bound */
	int log_level;
	uint64_t given;            /* a bit for each setting that a file or a flag set */
	struct rlimit descriptors; /* RLIMIT_NOFILE as it was given to the daemon; zero: unknown */
};

enum options_outcome { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_CHECK_STORE, OPTIONS_CHECK_CONFIG, OPTIONS_BAD };

/* OPTIONS_DONE: --help or --version was answered on standard output. OPTIONS_CHECK_STORE: check state_dir's
 * store. OPTIONS_CHECK_CONFIG: file and flags were read, and are sound. */
enum options_outcome options_parse(struct options *options, int argc, char **argv, struct ft_error *error);
void options_init(struct options *options); /* the defaults */
/* Reads a configuration file over what `options` holds; NULL: the usual file, if it is there. Errors name file and line. */
int options_read(struct options *options, const char *path, struct ft_error *error);
/* Sets one setting by its name in the file, once. Errors name the key. */
int options_set(struct options *options, const char *section, const char *key, const char *value,
        struct ft_error *error);
/* Whether a file or a flag set it. */
bool options_given(const struct options *options, const char *section, const char *key);
/* Takes over what can change while the daemon runs. `rest` names what cannot and differs, "" if nothing does.
 */
void options_reload(struct options *options, const struct options *fresh, char *rest, size_t size);
/* For the reference's test: the name of each setting, NULL past the last one. */
const char *options_name(size_t index, const char **section);

/* "cuda:1" is of kind "cuda". */
static inline bool options_id_is_of(const char *id, const char *kind)
{
	size_t length = strlen(kind);

	return strncmp(id, kind, length) == 0 && id[length] == ':';
}

/* -1 if there is no such kind. */
int options_kind(const char *word);
const char *options_stage_word(enum options_stage stage);
/* Whether the operator wants this device, "cuda:1". */
bool options_wants(const struct options *options, const char *device_id);
bool options_wants_kind(const struct options *options, const char *kind);

#endif
