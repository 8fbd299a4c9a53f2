/* Takes messages out of a stream of bytes and decodes them, as a daemon does with a client's or a runner's.
 */
#ifndef FLYTUNE_TESTS_FUZZ_MESSAGES_H
#define FLYTUNE_TESTS_FUZZ_MESSAGES_H

#include <string.h>

#include "proto/inbox.h"
#include "proto/messages.h"
#include "tests/fuzz/target.h"

/* A message that decodes must encode, and what was encoded must decode to the same again. */
static inline void message_there_and_back(const struct ft_message *message, struct ft_view body)
{
	void *first = calloc(1, message->size);
	void *second = calloc(1, message->size);
	struct ft_error error;
	memset(&error, 0, sizeof(error));
	MUST(first != NULL && second != NULL);
	if (ft_decode(message, body, first, &error) == 0) {
		struct ft_writer writer;
		struct ft_writer again;
		ft_writer_init_growing(&writer, 64 << 20);
		ft_writer_init_growing(&again, 64 << 20);
		ft_encode(&writer, message, first);
		MUST(ft_writer_ok(&writer));
		struct ft_view made = {.data = writer.data, .length = writer.length};
		MUST(ft_decode(message, made, second, &error) == 0);
		ft_encode(&again, message, second);
		MUST(again.length == writer.length && memcmp(again.data, writer.data, again.length) == 0);
		ft_writer_free(&writer);
		ft_writer_free(&again);
	} else {
		MUST(error.code[0] != '\0' && error.message[0] != '\0');
	}
	free(first);
	free(second);
}

/* Calls `handle` for each message that `data` holds, arriving in pieces; stops where the framing breaks. */
static inline void message_stream(const uint8_t *data, size_t size, size_t piece,
        const struct ft_bounds *bounds, void (*handle)(const struct ft_envelope *envelope))
{
	struct ft_inbox inbox;
	struct ft_error error;
	int next = 0;
	ft_inbox_init(&inbox, bounds);
	for (size_t sent = 0; sent < size && next == 0;) {
		uint8_t *room = NULL;
		size_t length = 0;
		MUST(ft_inbox_room(&inbox, &room, &length, &error) == 0);
		length = length < piece ? length : piece;
		length = length < size - sent ? length : size - sent;
		memcpy(room, data + sent, length);
		ft_inbox_received(&inbox, length);
		sent += length;
		struct ft_view message;
		while ((next = ft_inbox_next(&inbox, &message, &error)) == 1) {
			struct ft_envelope envelope;
			if (ft_open_envelope(message, &envelope, &error) != 0) {
				MUST(strcmp(error.code, FT_E_BAD_FRAME) == 0);
				continue;
			}
			handle(&envelope);
		}
	}
	ft_inbox_free(&inbox);
}

#endif
