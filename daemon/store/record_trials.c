/* The record of trials.
 *
 * Rewritten at every round of a sweep, hence packed: knob names stand once for all, samples are numbers of
 * 7 bits a byte. */
#include "daemon/store/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS_ELEMENTS = 12, TRIAL_ELEMENTS = 12, TRIAL_NAMES_MAX = 256 };
enum { TRIAL_VERIFIED = 1, TRIAL_DROPPED = 2, TRIAL_STRUCK = 4 };

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
	names->count = 0;
	names->in_order = true;
	for (uint32_t i = 0; i < trials->count; i++) {
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

static void write_trial(
        struct ft_writer *writer, const struct trial *trial, const struct knob_names *names, uint32_t rounds)
{
	ft_write_array(writer, TRIAL_ELEMENTS);
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
}

void record_write_trials(struct ft_writer *writer, const struct trials *trials)
{
	uint32_t rounds = trials->rounds < FT_ROUNDS_MAX ? trials->rounds : FT_ROUNDS_MAX;
	struct knob_names names;

	if (!collect_knob_names(trials, &names)) {
		writer->failed = true;
		return;
	}
	ft_write_array(writer, TRIALS_ELEMENTS);
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
	ft_write_array(writer, names.count);
	for (uint32_t i = 0; i < names.count; i++)
		ft_write_text(writer, names.name[i]);
	ft_write_array(writer, trials->count);
	for (uint32_t i = 0; i < trials->count; i++)
		write_trial(writer, &trials->trial[i], &names, rounds);
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

	if (!ft_read_array(cursor, &elements) || elements != TRIAL_ELEMENTS ||
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
	if (ft_read_nil(cursor))
		return true;
	if (!ft_read_bytes(cursor, &packed, &length))
		return false;
	if (trials_samples(trials, index) == NULL) {
		*memory = false;
		return true;
	}
	return unpack_samples(packed, length, trial->sample_ps);
}

static bool read_trials_head(struct ft_cursor *cursor, struct trials *trials)
{
	uint32_t elements;
	int64_t winner;

	if (!ft_read_array(cursor, &elements) || elements != TRIALS_ELEMENTS ||
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
	return true;
}

struct trials *record_read_trials(struct ft_view body, bool *sound)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	struct trials *trials = trials_new(0);
	struct name_table names;
	uint32_t count;
	bool memory = true;

	*sound = true;
	if (trials == NULL)
		return NULL;
	/* Each trial takes more than a byte, so the count cannot ask for more memory than the body justifies.
	 */
	if (!read_trials_head(&cursor, trials) || !read_name_table(&cursor, &names) ||
	        !ft_read_array(&cursor, &count) || count > body.length) {
		*sound = false;
		goto failed;
	}
	if (count > 0) {
		trials->trial = calloc(count, sizeof(*trials->trial));
		if (trials->trial == NULL)
			goto failed;
	}
	trials->count = count;
	for (uint32_t i = 0; i < count; i++) {
		*sound = read_trial(&cursor, &names, trials, i, &memory);
		if (!*sound || !memory)
			goto failed;
	}
	/* Indices are used without further checks by whoever reads the set. */
	*sound = (trials->winner < 0 || (uint32_t)trials->winner < count) &&
	        (count == 0 || trials->default_index < count);
	for (uint32_t i = 0; *sound && i < count; i++)
		*sound = trials->trial[i].same_as < count;
	if (!*sound)
		goto failed;
	return trials;
failed:
	trials_free(trials);
	return NULL;
}
