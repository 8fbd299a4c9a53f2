/* What the operator asked for: the command line over the configuration file over the defaults.
 *
 * One table of settings serves both: a setting has a section and a key in the file, and a flag. */
#ifndef FLYTUNE_DAEMON_SETTINGS_H
#define FLYTUNE_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/messages.h"

enum { SETTINGS_DEVICES_MAX = 16, SETTINGS_KINDS = 3 };

/* The kinds of devices, in the order in which a lookup without a device takes them. */
extern const char *const settings_kinds[SETTINGS_KINDS]; /* hip, cuda, cpu */

/* What a runner may be slow at. Each event of a runner starts the clock of its stage anew. */
enum settings_stage {
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
enum settings_background { SETTINGS_BACKGROUND_OFF, SETTINGS_BACKGROUND_IDLE, SETTINGS_BACKGROUND_ALWAYS };

struct settings {
	char config[256]; /* the file that was read; "": none */
	char socket[108];
	char state_dir[256];
	char group[32];                                       /* whose members may look up and tune */
	char admin_group[32];                                 /* and pin, forget, import, pause */
	uint32_t device_count;                                /* 0: auto */
	char device[SETTINGS_DEVICES_MAX][FT_DEVICE_ID_SIZE]; /* "cpu", "cuda:1" */
	char runner[SETTINGS_KINDS][256];                     /* program of each kind */
	char kernels[256];       /* where the operator's kernels are, a folder each */
	uint64_t runner_idle_ns; /* without work for so long, a runner is let go */
	uint64_t deadline_ns[STAGES];
	uint64_t budget_ns; /* of sweeping one problem, from the runner's start to the decision */
	enum settings_background background;
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

enum settings_outcome {
	SETTINGS_RUN,
	SETTINGS_DONE,
	SETTINGS_CHECK_STORE,
	SETTINGS_CHECK_CONFIG,
	SETTINGS_BAD
};

/* SETTINGS_DONE: --help or --version was answered on standard output. SETTINGS_CHECK_STORE: check state_dir's
 * store. SETTINGS_CHECK_CONFIG: file and flags were read, and are sound. */
enum settings_outcome settings_parse(
        struct settings *settings, int argc, char **argv, struct ft_error *error);
void settings_init(struct settings *settings); /* the defaults */
/* Reads a configuration file over what `settings` holds; NULL: the usual file, if it is there. Errors name file and line. */
int settings_read(struct settings *settings, const char *path, struct ft_error *error);
/* Sets one setting by its name in the file, once. Errors name the key. */
int settings_set(struct settings *settings, const char *section, const char *key, const char *value,
        struct ft_error *error);
/* Whether a file or a flag set it. */
bool settings_given(const struct settings *settings, const char *section, const char *key);
/* Takes over what can change while the daemon runs. `rest` names what cannot and differs, "" if nothing does.
 */
void settings_reload(struct settings *settings, const struct settings *fresh, char *rest, size_t size);
/* For the reference's test: the name of each setting, NULL past the last one. */
const char *settings_name(size_t index, const char **section);

/* "cuda:1" is of kind "cuda". */
static inline bool settings_id_is_of(const char *id, const char *kind)
{
	size_t length = strlen(kind);

	return strncmp(id, kind, length) == 0 && id[length] == ':';
}

/* -1 if there is no such kind. */
int settings_kind(const char *word);
const char *settings_stage_word(enum settings_stage stage);
/* Whether the operator wants this device, "cuda:1". */
bool settings_wants(const struct settings *settings, const char *device_id);
bool settings_wants_kind(const struct settings *settings, const char *kind);

#endif
