/* Reads a message's list into an array of one's own. */
#ifndef FLYTUNE_CLIENT_LIST_H
#define FLYTUNE_CLIENT_LIST_H

#include "client/lib/handle.h"

/* `read` turns one element into the next `size` bytes of a fresh array, to be released with free. *array is
 * NULL when there are none. */
int list_read(struct ft_view data, size_t size, int (*read)(struct ft_view, void *element, struct ft_error *),
        void **array, size_t *count, struct ft_error *error);

#endif
