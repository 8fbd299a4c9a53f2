/* How the store's keys and values are laid out, byte by byte. Pure functions; STORE.md says the same in
 * prose.
 *
 * Every value is: a version byte, a body, and an 8-byte checksum over both and the key, so that a value found
 * under another key is as damaged as one with a flipped bit. */
#ifndef FLYTUNE_DAEMON_RECORD_H
#define FLYTUNE_DAEMON_RECORD_H

#include "daemon/store/answer.h"
#include "daemon/store/trials.h"

enum {
	RECORD_FORMAT = 2,  /* of the whole store: kinds, keys, and what they mean */
	RECORD_VERSION = 1, /* of a value's body */
	RECORD_CHECKSUM_SIZE = 8,

	RECORD_KEY_MAX = 256,
	RECORD_PROBLEM_SIZE = 33, /* kind, kernel, device, hash, scale field */
	RECORD_STEM_SIZE = 25,    /* of these, all before the scale field */
	RECORD_HISTORY_SIZE = RECORD_PROBLEM_SIZE + 8,
	RECORD_TRIALS_SIZE = RECORD_PROBLEM_SIZE + 4,
	RECORD_IDENTITY_SIZE = 13,
	RECORD_NOTE_NAME_MAX = RECORD_KEY_MAX - 1,

	RECORD_TRIALS_LIMIT = 16 << 20, /* bytes of any one value */
	RECORD_CHUNK = 256,             /* trials of one record, where there may be thousands */
};

/* The first byte of a key. */
enum record_kind {
	RECORD_ANSWER = 'A',
	RECORD_HISTORY = 'H',
	RECORD_IDENTITY = 'I', /* of a device, since a generation */
	RECORD_JOB = 'J',
	RECORD_META = 'M', /* two copies, 0 and 1 */
	RECORD_NAME = 'N',
	RECORD_NOTE = 'O',
	RECORD_TRIALS = 'T',
};

struct record_key {
	size_t length;
	uint8_t data[RECORD_KEY_MAX];
};

void record_key_meta(struct record_key *key, unsigned copy);
void record_key_name(struct record_key *key, enum store_name kind, uint32_t id);
void record_key_problem(struct record_key *key, enum record_kind kind, const struct store_key *problem);
/* What a key of a problem (answers, history, trials) is about; false if it is none. */
bool record_key_read_problem(const uint8_t *data, size_t length, struct store_key *problem);
void record_key_history(struct record_key *key, const struct store_key *problem, uint64_t generation);
/* Chunk 0 is the record with all that is no trial; the others, counted from 1, have no more than theirs. */
void record_key_trials(
        struct record_key *key, const struct store_key *problem, uint32_t identity, uint32_t chunk);
void record_key_identity(struct record_key *key, uint32_t device, uint64_t generation);
void record_key_job(struct record_key *key, uint64_t job);
/* -1 if the name is empty or too long. */
int record_key_note(struct record_key *key, const char *name);

uint32_t record_get_u32(const uint8_t *at);
uint64_t record_get_u64(const uint8_t *at);
void record_put_u64(uint8_t *at, uint64_t value);

uint64_t record_hash(const void *data, size_t length); /* XXH3, 64 bits */

/* ---- values ---- */

/* Starts a value in an empty writer; the body follows, then the seal. */
void record_start(struct ft_writer *writer);
void record_seal(struct ft_writer *writer, const void *key, size_t key_length);
/* Seals a value of `length` bytes, its seal among them, that was changed since. */
void record_seal_again(uint8_t *value, size_t length, const void *key, size_t key_length);
/* The body, or false if the checksum does not hold or the version is not ours. */
bool record_open(const void *key, size_t key_length, const void *value, size_t length, struct ft_view *body);

/* What the store knows about itself. */
struct record_meta {
	uint64_t format;
	char uuid[FT_UUID_SIZE];
	uint64_t generation;
	uint64_t floor;   /* least generation that can be asked for */
	uint64_t answers; /* records of each kind, so that none must be walked to be counted */
	uint64_t history;
	uint64_t next_job;   /* no id from here on was ever given out */
	uint64_t identities; /* raised with every identity record */
};
void record_write_meta(struct ft_writer *writer, const struct record_meta *meta);
bool record_read_meta(struct ft_view body, struct record_meta *meta);
bool record_same_meta(
        const struct record_meta *a, const struct record_meta *b); /* but for the constant parts */

/* An answer, in the parts that the writer replaces one by one. */
struct record_answer {
	uint64_t generation;
	struct ft_view problem, pin, winner, import; /* MessagePack; a slot that is empty is nil */
};
void record_write_answer(struct ft_writer *writer, const struct record_answer *answer);
bool record_split_answer(struct ft_view body, struct record_answer *answer);
bool record_slot_empty(struct ft_view slot);
bool record_read_answer(struct ft_view body, struct store_answer *answer);

void record_write_problem(struct ft_writer *writer, const struct ft_problem *problem);
void record_write_pin(struct ft_writer *writer, const struct store_pin *pin);
void record_write_winner(struct ft_writer *writer, const struct store_winner *winner);
void record_write_import(struct ft_writer *writer, const struct store_import *import);

/* An answer that was: good for the generations from its key's to `until`, that one left out. */
struct record_history {
	uint64_t until;     /* 0: no answer stood here, and none may have come since */
	uint64_t ended_ns;  /* when that was, in the store's own time */
	struct ft_view was; /* an answer's body; data NULL if there was none */
};
void record_write_history(struct ft_writer *writer, const struct record_history *history);
bool record_read_history(struct ft_view body, struct record_history *history);

/* Parts of values that more than one record has. */
bool record_read_problem(struct ft_cursor *cursor, struct ft_problem *problem);
void record_write_knob(struct ft_writer *writer, const struct ft_knob_value *knob);
bool record_read_knob(struct ft_cursor *cursor, struct ft_knob_value *knob);
bool record_read_u32(struct ft_cursor *cursor, uint32_t *value);

/* NULL when out of memory (then *sound stays true) or when the body makes no sense. */
void record_write_trials(struct ft_writer *writer, const struct trials *trials);
struct trials *record_read_trials(struct ft_view body, bool *sound);
/* How many records a set takes, the first among them, and one of the others. */
uint32_t record_chunks(const struct trials *trials);
void record_write_chunk(struct ft_writer *writer, const struct trials *trials, uint32_t chunk);
/* Of those that the first record counts. */
bool record_read_chunk(struct ft_view body, struct trials *trials, uint32_t chunk);
/* Whether indices in them are of trials that there are. */
bool record_sound_trials(const struct trials *trials);

#endif
