#include "daemon/store/record.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- sealing ---- */

uint64_t record_hash(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
}

static uint64_t checksum(const void *key, size_t key_length, const void *value, size_t length)
{
	uint64_t place = XXH3_64bits(key, key_length);

	/* Rotated, so that a record whose value equals its key does not come to zero. */
	return (place << 32 | place >> 32) ^ XXH3_64bits(value, length);
}

void record_start(struct ft_writer *writer)
{
	const uint8_t version = RECORD_VERSION;

	ft_write_raw(writer, &version, 1);
}

void record_seal(struct ft_writer *writer, const void *key, size_t key_length)
{
	uint8_t sum[RECORD_CHECKSUM_SIZE];

	if (!ft_writer_ok(writer))
		return;
	record_put_u64(sum, checksum(key, key_length, writer->data, writer->length));
	ft_write_raw(writer, sum, sizeof(sum));
}

void record_seal_again(uint8_t *value, size_t length, const void *key, size_t key_length)
{
	length -= RECORD_CHECKSUM_SIZE;
	record_put_u64(value + length, checksum(key, key_length, value, length));
}

bool record_open(const void *key, size_t key_length, const void *value, size_t length, struct ft_view *body)
{
	const uint8_t *bytes = value;

	if (length < 1 + RECORD_CHECKSUM_SIZE)
		return false;
	length -= RECORD_CHECKSUM_SIZE;
	if (record_get_u64(bytes + length) != checksum(key, key_length, bytes, length))
		return false;
	if (bytes[0] != RECORD_VERSION)
		return false;
	body->data = bytes + 1;
	body->length = length - 1;
	return true;
}

/* ---- meta ---- */

enum { META_ELEMENTS = 8 };

void record_write_meta(struct ft_writer *writer, const struct record_meta *meta)
{
	ft_write_array(writer, META_ELEMENTS);
	ft_write_uint(writer, meta->format);
	ft_write_text(writer, meta->uuid);
	ft_write_uint(writer, meta->generation);
	ft_write_uint(writer, meta->floor);
	ft_write_uint(writer, meta->answers);
	ft_write_uint(writer, meta->history);
	ft_write_uint(writer, meta->next_job);
	ft_write_uint(writer, meta->identities);
}

bool record_read_meta(struct ft_view body, struct record_meta *meta)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	uint32_t elements;

	memset(meta, 0, sizeof(*meta));
	if (!ft_read_array(&cursor, &elements) || elements < 1 || !ft_read_uint(&cursor, &meta->format))
		return false;
	/* What follows the format number is only known for our own format. */
	if (meta->format != RECORD_FORMAT)
		return true;
	return elements == META_ELEMENTS && ft_read_text_into(&cursor, meta->uuid, sizeof(meta->uuid)) &&
	        ft_read_uint(&cursor, &meta->generation) && ft_read_uint(&cursor, &meta->floor) &&
	        ft_read_uint(&cursor, &meta->answers) && ft_read_uint(&cursor, &meta->history) &&
	        ft_read_uint(&cursor, &meta->next_job) && ft_read_uint(&cursor, &meta->identities);
}

bool record_same_meta(const struct record_meta *a, const struct record_meta *b)
{
	return a->generation == b->generation && a->floor == b->floor && a->answers == b->answers &&
	        a->history == b->history && a->next_job == b->next_job && a->identities == b->identities;
}

/* ---- problems and configs: flat lists of name and value; a config that is a document is a text ---- */

void record_write_problem(struct ft_writer *writer, const struct ft_problem *problem)
{
	ft_write_array(writer, 2 * problem->count);
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];

		ft_write_text(writer, field->name);
		if (field->is_text)
			ft_write_text(writer, field->text);
		else
			ft_write_int(writer, field->number);
	}
}

/* Lookups spend their time here: what nearly every value is, short, is read without a call. What was written
 * by us and has a sound checksum needs no check for NULs. */
static inline bool take_text(struct ft_cursor *cursor, char *text, size_t size)
{
	size_t length;

	if (cursor->at == cursor->end || (*cursor->at & 0xe0) != 0xa0)
		return ft_read_text_into(cursor, text, size);
	length = *cursor->at & 0x1f;
	if (length >= size || length >= (size_t)(cursor->end - cursor->at))
		return false;
	memcpy(text, cursor->at + 1, length);
	text[length] = '\0';
	cursor->at += 1 + length;
	return true;
}

static inline bool take_int(struct ft_cursor *cursor, int64_t *value)
{
	if (cursor->at == cursor->end || *cursor->at > 0x7f)
		return ft_read_int(cursor, value);
	*value = *cursor->at++;
	return true;
}

static inline bool take_uint(struct ft_cursor *cursor, uint64_t *value)
{
	const uint8_t *at = cursor->at;
	size_t left = (size_t)(cursor->end - at);

	if (left > 0 && *at <= 0x7f) {
		*value = *at;
		cursor->at++;
	} else if (left >= 5 && *at == 0xce) {
		*value = record_get_u32(at + 1);
		cursor->at += 5;
	} else if (left >= 9 && *at == 0xcf) {
		*value = record_get_u64(at + 1);
		cursor->at += 9;
	} else {
		return ft_read_uint(cursor, value);
	}
	return true;
}

static inline bool take_array(struct ft_cursor *cursor, uint32_t *elements)
{
	if (cursor->at == cursor->end || (*cursor->at & 0xf0) != 0x90)
		return ft_read_array(cursor, elements);
	*elements = *cursor->at++ & 0x0f;
	return true;
}

bool record_read_problem(struct ft_cursor *cursor, struct ft_problem *problem)
{
	uint32_t elements;

	if (!take_array(cursor, &elements) || elements % 2 != 0 || elements / 2 > FT_FIELDS_MAX)
		return false;
	problem->count = elements / 2;
	for (uint32_t i = 0; i < problem->count; i++) {
		struct ft_field *field = &problem->field[i];

		if (!take_text(cursor, field->name, sizeof(field->name)) || cursor->at == cursor->end)
			return false;
		field->is_text = (*cursor->at & 0xe0) == 0xa0 || *cursor->at == 0xd9;
		field->number = 0;
		field->text[0] = '\0';
		if (field->is_text ? !take_text(cursor, field->text, sizeof(field->text))
		                   : !take_int(cursor, &field->number))
			return false;
	}
	return true;
}

void record_write_knob(struct ft_writer *writer, const struct ft_knob_value *knob)
{
	if (knob->word[0] != '\0')
		ft_write_text(writer, knob->word);
	else
		ft_write_int(writer, knob->value);
}

bool record_read_knob(struct ft_cursor *cursor, struct ft_knob_value *knob)
{
	knob->value = 0;
	knob->word[0] = '\0';
	return cursor->at != cursor->end && (*cursor->at & 0xe0) == 0xa0
	        ? take_text(cursor, knob->word, sizeof(knob->word))
	        : take_int(cursor, &knob->value);
}

static void write_config(struct ft_writer *writer, const struct ft_config *config)
{
	if (config->document_length > 0) {
		ft_write_text_n(writer, config->document, config->document_length);
		return;
	}
	ft_write_array(writer, 2 * config->count);
	for (uint32_t i = 0; i < config->count; i++) {
		ft_write_text(writer, config->knob[i].name);
		record_write_knob(writer, &config->knob[i]);
	}
}

static bool read_config(struct ft_cursor *cursor, struct ft_config *config)
{
	uint32_t elements;
	size_t length;

	ft_config_clear(config);
	if (ft_peek(cursor) == FT_KIND_TEXT) {
		if (!ft_read_text(cursor, &config->document, &length) || length == 0 ||
		        length > FT_DOCUMENT_MAX)
			return false;
		config->document_length = (uint32_t)length;
		return true;
	}
	if (!take_array(cursor, &elements) || elements % 2 != 0 || elements / 2 > FT_KNOBS_MAX)
		return false;
	config->count = elements / 2;
	for (uint32_t i = 0; i < config->count; i++) {
		struct ft_knob_value *knob = &config->knob[i];

		if (!take_text(cursor, knob->name, sizeof(knob->name)) || !record_read_knob(cursor, knob))
			return false;
	}
	return true;
}

bool record_read_u32(struct ft_cursor *cursor, uint32_t *value)
{
	struct ft_cursor before = *cursor;
	uint64_t wide;

	if (!take_uint(cursor, &wide) || wide > UINT32_MAX) {
		*cursor = before;
		return false;
	}
	*value = (uint32_t)wide;
	return true;
}

/* ---- answers ---- */

enum {
	ANSWER_ELEMENTS = 5,
	PIN_ELEMENTS = 3,
	WINNER_ELEMENTS = 13,
	IMPORT_ELEMENTS = 10,
};

void record_write_pin(struct ft_writer *writer, const struct store_pin *pin)
{
	if (!pin->set) {
		ft_write_nil(writer);
		return;
	}
	ft_write_array(writer, PIN_ELEMENTS);
	write_config(writer, &pin->config);
	ft_write_uint(writer, pin->user);
	ft_write_uint(writer, pin->at_ns);
}

static bool read_pin(struct ft_cursor *cursor, struct store_pin *pin)
{
	uint32_t elements;

	pin->set = !ft_read_nil(cursor);
	if (!pin->set)
		return true;
	return take_array(cursor, &elements) && elements == PIN_ELEMENTS &&
	        read_config(cursor, &pin->config) && record_read_u32(cursor, &pin->user) &&
	        take_uint(cursor, &pin->at_ns);
}

void record_write_winner(struct ft_writer *writer, const struct store_winner *winner)
{
	if (!winner->set) {
		ft_write_nil(writer);
		return;
	}
	ft_write_array(writer, WINNER_ELEMENTS);
	write_config(writer, &winner->config);
	ft_write_uint(writer, winner->identity);
	ft_write_uint(writer, winner->rule_revision);
	ft_write_uint(writer, winner->space_hash);
	ft_write_uint(writer, winner->time_ps);
	ft_write_uint(writer, winner->default_time_ps);
	ft_write_uint(writer, winner->tuned_at_ns);
	ft_write_bool(writer, winner->conclusive);
	ft_write_uint(writer, winner->job);
	ft_write_bool(writer, winner->busy);
	ft_write_uint(writer, winner->gain_least_ppm);
	ft_write_uint(writer, winner->seen_ppm);
	ft_write_uint(writer, winner->order_class);
}

static bool read_winner(struct ft_cursor *cursor, struct store_winner *winner)
{
	uint32_t elements;

	winner->set = !ft_read_nil(cursor);
	if (!winner->set)
		return true;
	return take_array(cursor, &elements) && elements == WINNER_ELEMENTS &&
	        read_config(cursor, &winner->config) && record_read_u32(cursor, &winner->identity) &&
	        record_read_u32(cursor, &winner->rule_revision) && take_uint(cursor, &winner->space_hash) &&
	        take_uint(cursor, &winner->time_ps) && take_uint(cursor, &winner->default_time_ps) &&
	        take_uint(cursor, &winner->tuned_at_ns) && ft_read_bool(cursor, &winner->conclusive) &&
	        take_uint(cursor, &winner->job) && ft_read_bool(cursor, &winner->busy) &&
	        take_uint(cursor, &winner->gain_least_ppm) && take_uint(cursor, &winner->seen_ppm) &&
	        take_uint(cursor, &winner->order_class);
}

void record_write_import(struct ft_writer *writer, const struct store_import *import)
{
	if (!import->set) {
		ft_write_nil(writer);
		return;
	}
	ft_write_array(writer, IMPORT_ELEMENTS);
	write_config(writer, &import->config);
	ft_write_text(writer, import->origin);
	ft_write_text(writer, import->identity);
	ft_write_uint(writer, import->time_ps);
	ft_write_uint(writer, import->default_time_ps);
	ft_write_uint(writer, import->at_ns);
	ft_write_uint(writer, import->gain_least_ppm);
	ft_write_bool(writer, import->unsettled);
	ft_write_uint(writer, import->seen_ppm);
	ft_write_uint(writer, import->order_class);
}

static bool read_import(struct ft_cursor *cursor, struct store_import *import)
{
	uint32_t elements;

	import->set = !ft_read_nil(cursor);
	if (!import->set)
		return true;
	return take_array(cursor, &elements) && elements == IMPORT_ELEMENTS &&
	        read_config(cursor, &import->config) &&
	        ft_read_text_into(cursor, import->origin, sizeof(import->origin)) &&
	        ft_read_text_into(cursor, import->identity, sizeof(import->identity)) &&
	        take_uint(cursor, &import->time_ps) && take_uint(cursor, &import->default_time_ps) &&
	        take_uint(cursor, &import->at_ns) && take_uint(cursor, &import->gain_least_ppm) &&
	        ft_read_bool(cursor, &import->unsettled) && take_uint(cursor, &import->seen_ppm) &&
	        take_uint(cursor, &import->order_class);
}

void record_write_answer(struct ft_writer *writer, const struct record_answer *answer)
{
	ft_write_array(writer, ANSWER_ELEMENTS);
	ft_write_uint(writer, answer->generation);
	ft_write_raw(writer, answer->problem.data, answer->problem.length);
	ft_write_raw(writer, answer->pin.data, answer->pin.length);
	ft_write_raw(writer, answer->winner.data, answer->winner.length);
	ft_write_raw(writer, answer->import.data, answer->import.length);
}

bool record_split_answer(struct ft_view body, struct record_answer *answer)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	uint32_t elements;

	return ft_read_array(&cursor, &elements) && elements == ANSWER_ELEMENTS &&
	        ft_read_uint(&cursor, &answer->generation) && ft_read_view(&cursor, &answer->problem) &&
	        ft_read_view(&cursor, &answer->pin) && ft_read_view(&cursor, &answer->winner) &&
	        ft_read_view(&cursor, &answer->import);
}

bool record_slot_empty(struct ft_view slot)
{
	struct ft_cursor cursor = ft_cursor_of(slot.data, slot.length);

	return ft_peek(&cursor) == FT_KIND_NIL;
}

bool record_read_answer(struct ft_view body, struct store_answer *answer)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	uint32_t elements;

	return take_array(&cursor, &elements) && elements == ANSWER_ELEMENTS &&
	        take_uint(&cursor, &answer->generation) && record_read_problem(&cursor, &answer->problem) &&
	        read_pin(&cursor, &answer->pin) && read_winner(&cursor, &answer->winner) &&
	        read_import(&cursor, &answer->import);
}

/* ---- history ---- */

enum { HISTORY_ELEMENTS = 3 };

void record_write_history(struct ft_writer *writer, const struct record_history *history)
{
	ft_write_array(writer, HISTORY_ELEMENTS);
	ft_write_uint(writer, history->until);
	ft_write_uint(writer, history->ended_ns);
	if (history->was.data == NULL)
		ft_write_nil(writer);
	else
		ft_write_raw(writer, history->was.data, history->was.length);
}

bool record_read_history(struct ft_view body, struct record_history *history)
{
	struct ft_cursor cursor = ft_cursor_of(body.data, body.length);
	uint32_t elements;

	memset(history, 0, sizeof(*history));
	return ft_read_array(&cursor, &elements) && elements == HISTORY_ELEMENTS &&
	        ft_read_uint(&cursor, &history->until) && ft_read_uint(&cursor, &history->ended_ns) &&
	        (ft_read_nil(&cursor) || ft_read_view(&cursor, &history->was));
}
