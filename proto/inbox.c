#include "proto/inbox.h"

#include <stdlib.h>
#include <string.h>

enum {
	INITIAL = 16 * 1024, /* pages that were never filled cost nothing */
	KEPT = 64 * 1024,    /* an empty inbox larger than this gives memory back */
	LEAST_ROOM = 512,    /* below it a read would be hardly worth its system call */
};

void ft_inbox_init(struct ft_inbox *inbox, const struct ft_bounds *bounds)
{
	memset(inbox, 0, sizeof(*inbox));
	inbox->bounds = *bounds;
	ft_scan_init(&inbox->scan, bounds);
}

void ft_inbox_free(struct ft_inbox *inbox)
{
	free(inbox->data);
	inbox->data = NULL;
	inbox->capacity = 0;
	inbox->start = 0;
	inbox->length = 0;
	ft_scan_init(&inbox->scan, &inbox->bounds);
}

static void shrink(struct ft_inbox *inbox)
{
	free(inbox->data);
	inbox->data = NULL;
	inbox->capacity = 0;
	inbox->start = 0;
	inbox->length = 0;
}

int ft_inbox_room(struct ft_inbox *inbox, uint8_t **data, size_t *size, struct ft_error *error)
{
	/* After this move the message begins at 0 until it is whole, so no byte is moved twice. */
	if (inbox->start > 0) {
		inbox->length -= inbox->start;
		memmove(inbox->data, inbox->data + inbox->start, inbox->length);
		inbox->start = 0;
	}
	size_t free_bytes = inbox->capacity - inbox->length;
	if (free_bytes < LEAST_ROOM) {
		size_t most = inbox->bounds.bytes > INITIAL ? inbox->bounds.bytes : INITIAL;
		size_t capacity = inbox->capacity > 0 ? inbox->capacity * 2 : INITIAL;
		if (capacity > most)
			capacity = most;
		if (capacity > inbox->capacity) {
			uint8_t *grown = realloc(inbox->data, capacity);
			if (grown != NULL) {
				inbox->data = grown;
				inbox->capacity = capacity;
			} else if (free_bytes == 0) {
				return ft_fail(
				        error, FT_E_MEMORY, "no memory for a message of %zu bytes", capacity);
			}
		}
	}
	if (inbox->length == inbox->capacity)
		return ft_fail(error, FT_E_UNAVAILABLE, "%zu bytes wait to be read", inbox->length);
	*data = inbox->data + inbox->length;
	*size = inbox->capacity - inbox->length;
	return 0;
}

void ft_inbox_received(struct ft_inbox *inbox, size_t size)
{
	inbox->length += size;
}

int ft_inbox_next(struct ft_inbox *inbox, struct ft_view *message, struct ft_error *error)
{
	if (inbox->start == inbox->length) {
		if (inbox->capacity > KEPT)
			shrink(inbox);
		return 0;
	}
	const uint8_t *begin = inbox->data + inbox->start;
	int whole = ft_scan_walk(&inbox->scan, begin, inbox->length - inbox->start, error);
	if (whole != 1)
		return whole;
	*message = (struct ft_view){.data = begin, .length = inbox->scan.offset};
	inbox->start += inbox->scan.offset;
	ft_scan_init(&inbox->scan, &inbox->bounds);
	return 1;
}

bool ft_inbox_idle(const struct ft_inbox *inbox)
{
	return inbox->start == inbox->length;
}

void ft_inbox_borrow(struct ft_inbox *inbox, struct ft_inbox_spare *spare)
{
	if (inbox->data != NULL || spare->data == NULL)
		return;
	inbox->data = spare->data;
	inbox->capacity = spare->capacity;
	*spare = (struct ft_inbox_spare){0};
}

void ft_inbox_return(struct ft_inbox *inbox, struct ft_inbox_spare *spare)
{
	if (inbox->data == NULL || inbox->start != inbox->length)
		return;
	if (spare->data != NULL || inbox->capacity > KEPT) {
		shrink(inbox);
		return;
	}
	*spare = (struct ft_inbox_spare){.data = inbox->data, .capacity = inbox->capacity};
	inbox->data = NULL;
	inbox->capacity = 0;
	inbox->start = inbox->length = 0;
}

void ft_inbox_spare_free(struct ft_inbox_spare *spare)
{
	free(spare->data);
	*spare = (struct ft_inbox_spare){0};
}
