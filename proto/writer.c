#include "proto/writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

static bool grow(struct ft_writer *writer, size_t needed)
{
	if (!writer->grows || needed > writer->limit)
		return false;
	size_t capacity = writer->capacity > 0 ? writer->capacity : 256;
	while (capacity < needed)
		capacity *= 2;
	if (capacity > writer->limit)
		capacity = writer->limit;
	uint8_t *data = realloc(writer->data, capacity);
	if (data == NULL)
		return false;
	writer->data = data;
	writer->capacity = capacity;
	return true;
}

static bool make_room(struct ft_writer *writer, size_t length)
{
	if (!writer->failed && length <= SIZE_MAX - writer->length && grow(writer, writer->length + length))
		return true;
	writer->failed = true;
	return false;
}

/* msgpack_packer_write. Inlined into each ft_write function, where the length is often a constant. */
static inline __attribute__((always_inline)) int append(void *data, const char *bytes, size_t length)
{
	struct ft_writer *writer = data;
	if ((writer->failed || length > writer->capacity - writer->length) && !make_room(writer, length))
		return -1;
	if (length > 0)
		memcpy(writer->data + writer->length, bytes, length);
	writer->length += length;
	return 0;
}

static inline msgpack_packer packer_of(struct ft_writer *writer)
{
	msgpack_packer packer = {.data = writer, .callback = append};
	return packer;
}

void ft_writer_init_fixed(struct ft_writer *writer, void *data, size_t capacity)
{
	*writer = (struct ft_writer){.data = data, .capacity = capacity};
}

void ft_writer_init_growing(struct ft_writer *writer, size_t limit)
{
	*writer = (struct ft_writer){.limit = limit, .grows = true};
}

void ft_writer_free(struct ft_writer *writer)
{
	if (writer->grows)
		free(writer->data);
	memset(writer, 0, sizeof(*writer));
}

void ft_writer_reset(struct ft_writer *writer)
{
	writer->length = 0;
	writer->failed = false;
}

bool ft_writer_ok(const struct ft_writer *writer)
{
	return !writer->failed;
}

uint8_t *ft_write_room(struct ft_writer *writer, size_t length)
{
	if ((writer->failed || length > writer->capacity - writer->length) && !make_room(writer, length))
		return NULL;
	return writer->data + writer->length;
}

void ft_write_map(struct ft_writer *writer, uint32_t pairs)
{
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_map(&packer, pairs);
}

void ft_write_array(struct ft_writer *writer, uint32_t elements)
{
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_array(&packer, elements);
}

size_t ft_write_open_array(struct ft_writer *writer)
{
	static const uint8_t room[5] = {0xdd}; /* the widest header there is, for any number */

	ft_write_raw(writer, room, sizeof(room));
	return writer->length - sizeof(room);
}

void ft_write_count(struct ft_writer *writer, size_t at, uint32_t elements)
{
	if (writer->failed)
		return;
	for (unsigned i = 0; i < 4; i++)
		writer->data[at + 1 + i] = (uint8_t)(elements >> (24 - 8 * i));
}

void ft_write_nil(struct ft_writer *writer)
{
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_nil(&packer);
}

void ft_write_bool(struct ft_writer *writer, bool value)
{
	msgpack_packer packer = packer_of(writer);
	if (value)
		msgpack_pack_true(&packer);
	else
		msgpack_pack_false(&packer);
}

void ft_write_int(struct ft_writer *writer, int64_t value)
{
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_int64(&packer, value);
}

void ft_write_uint(struct ft_writer *writer, uint64_t value)
{
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_uint64(&packer, value);
}

void ft_write_real(struct ft_writer *writer, double value)
{
	msgpack_packer packer = packer_of(writer);
	/* A reader refuses NaN and infinities: one stray figure must not cost the whole message. */
	if (isfinite(value))
		msgpack_pack_double(&packer, value);
	else
		msgpack_pack_nil(&packer);
}

void ft_write_text(struct ft_writer *writer, const char *text)
{
	ft_write_text_n(writer, text, strlen(text));
}

void ft_write_text_n(struct ft_writer *writer, const char *text, size_t length)
{
	if (length > UINT32_MAX) {
		writer->failed = true;
		return;
	}
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_str(&packer, length);
	append(writer, text, length);
}

void ft_write_bytes(struct ft_writer *writer, const void *data, size_t length)
{
	if (length > UINT32_MAX) {
		writer->failed = true;
		return;
	}
	msgpack_packer packer = packer_of(writer);
	msgpack_pack_bin(&packer, length);
	append(writer, data, length);
}

void ft_write_raw(struct ft_writer *writer, const void *message, size_t length)
{
	append(writer, message, length);
}

void ft_write_problem(struct ft_writer *writer, const struct ft_problem *problem)
{
	ft_write_map(writer, problem->count);
	for (uint32_t i = 0; i < problem->count; i++) {
		const struct ft_field *field = &problem->field[i];
		ft_write_text(writer, field->name);
		if (field->is_text)
			ft_write_text(writer, field->text);
		else
			ft_write_int(writer, field->number);
	}
}

void ft_write_config(struct ft_writer *writer, const struct ft_config *config)
{
	if (config->document_length > 0) {
		ft_write_text_n(writer, config->document, config->document_length);
		return;
	}
	ft_write_map(writer, config->count);
	for (uint32_t i = 0; i < config->count; i++) {
		ft_write_text(writer, config->knob[i].name);
		if (config->knob[i].word[0] != '\0')
			ft_write_text(writer, config->knob[i].word);
		else
			ft_write_int(writer, config->knob[i].value);
	}
}
