/* Lists in order of arrival, of whatever has a node in it; anything leaves the one that it is in at once, wherever it
 * stands. Both start as zeros. */
#ifndef FLYTUNE_DAEMON_LIST_H
#define FLYTUNE_DAEMON_LIST_H

#include <stddef.h>

struct list {
	struct node *first, *last;
};

struct node {
	struct node *next, *previous;
	struct list *list; /* NULL: it is in none */
	void *data;        /* whose it is */
};

/* At the end; of one that is in none. */
static inline void list_add(struct list *list, struct node *node)
{
	node->list = list;
	node->next = NULL;
	node->previous = list->last;
	if (list->last != NULL)
		list->last->next = node;
	else
		list->first = node;
	list->last = node;
}

/* Nothing where it is in none. */
static inline void list_leave(struct node *node)
{
	struct list *list = node->list;

	if (list == NULL)
		return;
	if (node->previous != NULL)
		node->previous->next = node->next;
	else
		list->first = node->next;
	if (node->next != NULL)
		node->next->previous = node->previous;
	else
		list->last = node->previous;
	node->list = NULL;
}

#endif
