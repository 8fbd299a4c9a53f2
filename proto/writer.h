/* Writes MessagePack into a buffer: the caller's, of a fixed size and never allocating, or one that grows.
 *
 * A writer that runs out of room, or of memory, becomes `failed` and drops what follows; the caller checks
 * once, at the end, with ft_writer_ok. The packing itself is msgpack-c's. */
#ifndef FLYTUNE_PROTO_WRITER_H
#define FLYTUNE_PROTO_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/value.h"

struct ft_writer {
	uint8_t *data;
	size_t length;
	size_t capacity;
	size_t limit; /* a growing writer fails past this */
	bool grows;
	bool failed;
};

void ft_writer_init_fixed(struct ft_writer *writer, void *data, size_t capacity);
/* Grows with the heap up to `limit` bytes; release with ft_writer_free. */
void ft_writer_init_growing(struct ft_writer *writer, size_t limit);
void ft_writer_free(struct ft_writer *writer);
void ft_writer_reset(struct ft_writer *writer); /* empty again, keeps the memory */
bool ft_writer_ok(const struct ft_writer *writer);

/* Room for so many bytes behind what is written, for the caller to fill and to add to `length`; NULL if there is none. */
uint8_t *ft_write_room(struct ft_writer *writer, size_t length);
void ft_write_map(struct ft_writer *writer, uint32_t pairs);
void ft_write_array(struct ft_writer *writer, uint32_t elements);
/* An array whose number of elements is told when they are written: gives where it stands, for ft_write_count. */
size_t ft_write_open_array(struct ft_writer *writer);
void ft_write_count(struct ft_writer *writer, size_t at, uint32_t elements);
void ft_write_nil(struct ft_writer *writer);
void ft_write_bool(struct ft_writer *writer, bool value);
void ft_write_int(struct ft_writer *writer, int64_t value);
void ft_write_uint(struct ft_writer *writer, uint64_t value);
void ft_write_real(struct ft_writer *writer, double value); /* nil for NaN and infinities */
void ft_write_text(struct ft_writer *writer, const char *text);
void ft_write_text_n(struct ft_writer *writer, const char *text, size_t length);
void ft_write_bytes(struct ft_writer *writer, const void *data, size_t length);
void ft_write_raw(
        struct ft_writer *writer, const void *message, size_t length); /* MessagePack made elsewhere */
void ft_write_problem(struct ft_writer *writer, const struct ft_problem *problem); /* a map */
void ft_write_config(
        struct ft_writer *writer, const struct ft_config *config); /* a map, or a text: a document */

#endif
