/* The record of trials.
 *
 * Rewritten at every round of a sweep, hence packed: knob names stand once for all, samples are numbers of
 * 7 bits a byte. */
#include "daemon/store/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of an unlisted space there is more: its size and whether it raced, and of each trial its place and its look. */
enum {
	TRIALS_ELEMENTS = 12,
	TRIALS_UNLISTED = 2,
	TRIAL_ELEMENTS = 12,
	TRIAL_UNLISTED = 2,
	TRIAL_NAMES_MAX = 256,
};
enum { TRIAL_VERIFIED = 1, TRIAL_DROPPED = 2, TRIAL_STRUCK = 4 };

/* The trials of a chunk. */
static uint32_t chunk_begin(const struct trials *trials, uint32_t chunk)
{
	return trials->unlisted > 0 ? chunk * RECORD_CHUNK : 0;
}

static uint32_t chunk_end(const struct trials *trials, uint32_t chunk)
{
	const uint32_t end = (chunk + 1) * RECORD_CHUNK;

	return trials->unlisted > 0 && end < trials->count ? end : trials->count;
}

uint32_t record_chunks(const struct trials *trials)
{
	return trials->unlisted > 0 && trials->count > 0 ? (trials->count - 1) / RECORD_CHUNK + 1 : 1;
}

struct knob_names {
	uint32_t count;
	bool in_order; /* every config's knobs have the first names, in this order */
	const char *name[TRIAL_NAMES_MAX];
};

/* `likely` is where to look first. */
static uint32_t find_knob_name(const struct knob_names *names, const char *name, uint32_t likely)
{
	uint32_t i = 0;

	if (likely < names->count && strcmp(names->name[likely], name) == 0)
		return likely;
	while (i < names->count && strcmp(names->name[i], name) != 0)
		i++;
	return i;
}

static bool collect_knob_names(const struct trials *trials, struct knob_names *names)
{
	const uint32_t end = chunk_end(trials, 0); /* knobs of those behind are the same */

	names->count = 0;
	names->in_order = true;
	for (uint32_t i = 0; i < end; i++) {
		const struct ft_config *config = &trials->trial[i].config;

		for (uint32_t k = 0; k < config->count; k++) {
			uint32_t at = find_knob_name(names, config->knob[k].name, k);

			if (at == TRIAL_NAMES_MAX)
				return false;
			if (at == names->count)
				names->name[names->count++] = config->knob[k].name;
			names->in_order = names->in_order && at == k;
		}
	}
	return true;
}

static void write_samples(struct ft_writer *writer, const uint64_t *sample, uint32_t rounds)
{
	uint8_t packed[FT_ROUNDS_MAX * 10];
	size_t length = 0;

	if (sample == NULL) {
		ft_write_nil(writer);
		return;
	}
	while (rounds > 0 && sample[rounds - 1] == 0)
		rounds--;
	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t rest = sample[i];

		for (; rest >= 0x80; rest >>= 7)
			packed[length++] = (uint8_t)(rest | 0x80);
		packed[length++] = (uint8_t)rest;
	}
	ft_write_bytes(writer, packed, length);
}

static bool unpack_samples(const uint8_t *packed, size_t length, uint64_t *sample)
{
	uint32_t round = 0;
	unsigned shift = 0;
	uint64_t value = 0;

	for (size_t i = 0; i < length; i++) {
		if (round == FT_ROUNDS_MAX || shift > 63)
			return false;
		value |= (uint64_t)(packed[i] & 0x7f) << shift;
		shift += 7;
		if ((packed[i] & 0x80) == 0) {
			sample[round++] = value;
			value = 0;
			shift = 0;
		}
	}
	return shift == 0;
}

static void write_trial(struct ft_writer *writer, const struct trial *trial, const struct knob_names *names,
        uint32_t rounds, bool unlisted)
{
	ft_write_array(writer, TRIAL_ELEMENTS + (unlisted ? TRIAL_UNLISTED : 0));
	ft_write_array(writer, 2 * trial->config.count);
	for (uint32_t k = 0; k < trial->config.count; k++) {
		ft_write_uint(
		        writer, names->in_order ? k : find_knob_name(names, trial->config.knob[k].name, k));
		record_write_knob(writer, &trial->config.knob[k]);
	}
	ft_write_uint(writer, trial->status);
	ft_write_uint(writer,
	        (trial->verified ? TRIAL_VERIFIED : 0u) | (trial->dropped ? TRIAL_DROPPED : 0u) |
	                (trial->struck ? TRIAL_STRUCK : 0u));
	ft_write_uint(writer, trial->dropped_round);
	ft_write_uint(writer, trial->same_as);
	ft_write_text(writer, trial->code);
	ft_write_uint(writer, trial->registers);
	ft_write_uint(writer, trial->spills);
	ft_write_uint(writer, trial->build_ns);
	if (isfinite(trial->error))
		ft_write_real(writer, trial->error);
	else
		ft_write_nil(writer); /* the reader takes finite numbers only */
	ft_write_text(writer, trial->reason);
	write_samples(writer, trial->sample_ps, rounds);
	if (!unlisted)
		return;
	ft_write_uint(writer, trial->place);
	ft_write_uint(writer, trial->look_ps);
}

static void write_names(struct ft_writer *writer, const struct knob_names *names)
{
	ft_write_array(writer, names->count);
	for (uint32_t i = 0; i < names->count; i++)
		ft_write_text(writer, names->name[i]);
}

static void write_some(
        struct ft_writer *writer, const struct trials *trials, const struct knob_names *names, uint32_t chunk)
{
	const uint32_t rounds = trials->rounds < FT_ROUNDS_MAX ? trials->rounds : FT_ROUNDS_MAX;

	for (uint32_t i = chunk_begin(trials, chunk); i < chunk_end(trials, chunk); i++)
		write_trial(writer, &trials->trial[i], names, rounds, trials->unlisted > 0);
}

void record_write_chunk(struct ft_writer *writer, const struct trials *trials, uint32_t chunk)
{
	struct knob_names names;

	if (!collect_knob_names(trials, &names)) {
		writer->failed = true;
		return;
	}
	write_names(writer, &names);
	ft_write_array(writer, chunk_end(trials, chunk) - chunk_begin(trials, chunk));
	write_some(writer, trials, &names, chunk);
}

void record_write_trials(struct ft_writer *writer, const struct trials *trials)
{
	struct knob_names names;

	if (!collect_knob_names(trials, &names)) {
		writer->failed = true;
		return;
	}
	ft_write_array(writer, TRIALS_ELEMENTS + (trials->unlisted > 0 ? TRIALS_UNLISTED : 0));
	ft_write_text(writer, trials->kernel);
	record_write_problem(writer, &trials->problem);
	ft_write_uint(writer, trials->seed);
	ft_write_uint(writer, trials->rounds);
	ft_write_uint(writer, trials->default_index);
	ft_write_int(writer, trials->winner);
	ft_write_bool(writer, trials->conclusive);
	ft_write_uint(writer, trials->sweep_ns);
	ft_write_text(writer, trials->method);
	ft_write_text(writer, trials->reason);
	write_names(writer, &names);
	if (trials->unlisted == 0) {
		ft_write_array(writer, trials->count);
		write_some(writer, trials, &names, 0);
		return;
	}
	ft_write_uint(writer, trials->unlisted);
	ft_write_bool(writer, trials->raced);
	ft_write_uint(writer, trials->count); /* in all of its records */
	write_some(writer, trials, &names, 0);
}

struct name_table {
	uint32_t count;
	char name[TRIAL_NAMES_MAX][FT_NAME_SIZE];
};

static bool read_name_table(struct ft_cursor *cursor, struct name_table *names)
{
	if (!ft_read_array(cursor, &names->count) || names->count > TRIAL_NAMES_MAX)
		return false;
	for (uint32_t i = 0; i < names->count; i++)
		if (!ft_read_text_into(cursor, names->name[i], FT_NAME_SIZE))
			return false;
	return true;
}

static bool read_indexed_config(
        struct ft_cursor *cursor, const struct name_table *names, struct ft_config *config)
{
	uint32_t elements;

	if (!ft_read_array(cursor, &elements) || elements % 2 != 0 || elements / 2 > FT_KNOBS_MAX)
		return false;
	ft_config_clear(config);
	config->count = elements / 2;
	for (uint32_t k = 0; k < config->count; k++) {
		uint32_t at;

		if (!record_read_u32(cursor, &at) || at >= names->count ||
		        !record_read_knob(cursor, &config->knob[k]))
			return false;
		memcpy(config->knob[k].name, names->name[at], FT_NAME_SIZE);
	}
	return true;
}

/* Returns whether the trial made sense; *memory turns false when it did and there was none left. */
static bool read_trial(struct ft_cursor *cursor, const struct name_table *names, struct trials *trials,
        uint32_t index, bool *memory)
{
	struct trial *trial = &trials->trial[index];
	uint32_t elements, status, flags;
	const uint8_t *packed;
	size_t length;

	const uint32_t wanted = TRIAL_ELEMENTS + (trials->unlisted > 0 ? TRIAL_UNLISTED : 0);

	if (!ft_read_array(cursor, &elements) || elements != wanted ||
	        !read_indexed_config(cursor, names, &trial->config) || !record_read_u32(cursor, &status) ||
	        status > TRIAL_SUSPECT || !record_read_u32(cursor, &flags) ||
	        !record_read_u32(cursor, &trial->dropped_round) ||
	        !record_read_u32(cursor, &trial->same_as) ||
	        !ft_read_text_into(cursor, trial->code, sizeof(trial->code)) ||
	        !ft_read_uint(cursor, &trial->registers) || !ft_read_uint(cursor, &trial->spills) ||
	        !ft_read_uint(cursor, &trial->build_ns))
		return false;
	trial->status = (enum trial_status)status;
	trial->verified = (flags & TRIAL_VERIFIED) != 0;
	trial->dropped = (flags & TRIAL_DROPPED) != 0;
	trial->struck = (flags & TRIAL_STRUCK) != 0;
	if (ft_read_nil(cursor))
		trial->error = INFINITY;
	else if (!ft_read_real(cursor, &trial->error))
		return false;
	if (!ft_read_text_into(cursor, trial->reason, sizeof(trial->reason)))
		return false;
	if (!ft_read_nil(cursor)) {
		if (!ft_read_bytes(cursor, &packed, &length))
			return false;
		if (trials_samples(trials, index) == NULL) {
			*memory = false;
			return true;
		}
		if (!unpack_samples(packed, length, trial->sample_ps))
			return false;
	}
	return trials->unlisted == 0 ||
	        (record_read_u32(cursor, &trial->place) && ft_read_uint(cursor, &trial->look_ps));
}

/* The trials of one chunk, of which there is room for all. */
static bool read_some(struct ft_cursor *cursor, const struct name_table *names, struct trials *trials,
        uint32_t chunk, bool *memory)
{
	for (uint32_t i = chunk_begin(trials, chunk); i < chunk_end(trials, chunk) && *memory; i++) {
		if (!read_trial(cursor, names, trials, i, memory))
			return false;
	}
	return true;
}

bool record_read_chunk(struct ft_view body, struct trials *trials, uint32_t chunk)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	struct name_table names;
	bool memory = true;
	uint32_t count;

	return read_name_table(&cursor, &names) && ft_read_array(&cursor, &count) &&
	        count == chunk_end(trials, chunk) - chunk_begin(trials, chunk) &&
	        read_some(&cursor, &names, trials, chunk, &memory) && memory;
}

bool record_sound_trials(const struct trials *trials)
{
	bool sound = (trials->winner < 0 || (uint32_t)trials->winner < trials->count) &&
	        (trials->count == 0 || trials->default_index < trials->count);

	for (uint32_t i = 0; sound && i < trials->count; i++)
		sound = trials->trial[i].same_as < trials->count;
	return sound;
}

static bool read_trials_head(struct ft_cursor *cursor, struct trials *trials, bool *unlisted)
{
	uint32_t elements;
	int64_t winner;

	if (!ft_read_array(cursor, &elements) ||
	        (elements != TRIALS_ELEMENTS && elements != TRIALS_ELEMENTS + TRIALS_UNLISTED) ||
	        !ft_read_text_into(cursor, trials->kernel, sizeof(trials->kernel)) ||
	        !record_read_problem(cursor, &trials->problem) || !ft_read_uint(cursor, &trials->seed) ||
	        !record_read_u32(cursor, &trials->rounds) ||
	        !record_read_u32(cursor, &trials->default_index) || !ft_read_int(cursor, &winner) ||
	        winner < -1 || winner > INT32_MAX || !ft_read_bool(cursor, &trials->conclusive) ||
	        !ft_read_uint(cursor, &trials->sweep_ns) ||
	        !ft_read_text_into(cursor, trials->method, sizeof(trials->method)) ||
	        !ft_read_text_into(cursor, trials->reason, sizeof(trials->reason)))
		return false;
	trials->winner = (int32_t)winner;
	*unlisted = elements != TRIALS_ELEMENTS;
	return true;
}

/* How many trials there are, in this record or in all. */
static bool read_count(struct ft_cursor *cursor, struct trials *trials, bool unlisted, uint32_t *count)
{
	if (!unlisted)
		return ft_read_array(cursor, count);
	return ft_read_uint(cursor, &trials->unlisted) && trials->unlisted > 0 &&
	        ft_read_bool(cursor, &trials->raced) && record_read_u32(cursor, count) &&
	        *count <= FT_TRIES_MAX;
}

struct trials *record_read_trials(struct ft_view body, bool *sound)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	struct trials *trials = trials_new(0);
	struct name_table names;
	uint32_t count;
	bool memory = true, unlisted;

	*sound = true;
	if (trials == NULL)
		return NULL;
	/* Each trial takes more than a byte, so the count cannot ask for more memory than the body justifies, or a bound.
	 */
	if (!read_trials_head(&cursor, trials, &unlisted) || !read_name_table(&cursor, &names) ||
	        !read_count(&cursor, trials, unlisted, &count) || (!unlisted && count > body.length)) {
		*sound = false;
		goto failed;
	}
	if (count > 0) {
		trials->trial = calloc(count, sizeof(*trials->trial));
		if (trials->trial == NULL)
			goto failed;
	}
	trials->count = count;
	*sound = read_some(&cursor, &names, trials, 0, &memory);
	/* Indices are used without further checks by whoever reads the set. */
	if (*sound && memory && record_chunks(trials) == 1)
		*sound = record_sound_trials(trials);
	if (!*sound || !memory)
		goto failed;
	return trials;
failed:
	trials_free(trials);
	return NULL;
}
