/* The bytes that came from one peer and are not yet dealt with; gives out whole messages.
 *
 * Used by daemon sessions, runners and the client library alike. Starts small, grows to the bound of a
 * message, shrinks back when it is empty. */
#ifndef FLYTUNE_PROTO_INBOX_H
#define FLYTUNE_PROTO_INBOX_H

#include "proto/reader.h"

struct ft_inbox {
	uint8_t *data;
	size_t capacity;
	size_t start;  /* where the message being scanned begins */
	size_t length; /* end of the bytes received, from data */
	struct ft_scan scan;
	struct ft_bounds bounds;
};

/* Memory that inboxes of one thread lend each other: whoever is at work has it, those at rest have none. */
struct ft_inbox_spare {
	uint8_t *data; /* NULL: lent, or never made */
	size_t capacity;
};

void ft_inbox_init(struct ft_inbox *inbox, const struct ft_bounds *bounds);
void ft_inbox_free(struct ft_inbox *inbox);
/* Room to receive into: at least one byte. Fails when out of memory. Views of earlier messages die here. */
int ft_inbox_room(struct ft_inbox *inbox, uint8_t **data, size_t *size, struct ft_error *error);
void ft_inbox_received(struct ft_inbox *inbox, size_t size);
/* 1 and the next whole message, valid until ft_inbox_room or ft_inbox_next is called again; 0 if there is
 * none yet; -1 if the framing is broken. */
int ft_inbox_next(struct ft_inbox *inbox, struct ft_view *message, struct ft_error *error);
bool ft_inbox_idle(const struct ft_inbox *inbox); /* no part of a message is waiting */
/* An inbox without memory of its own takes the spare's; and gives it back, if nothing waits in it. */
void ft_inbox_borrow(struct ft_inbox *inbox, struct ft_inbox_spare *spare);
void ft_inbox_return(struct ft_inbox *inbox, struct ft_inbox_spare *spare);
void ft_inbox_spare_free(struct ft_inbox_spare *spare);

#endif
