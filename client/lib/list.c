#include "client/lib/list.h"

#include <stdlib.h>

int list_read(struct ft_view data, size_t size, int (*read)(struct ft_view, void *element, struct ft_error *),
        void **array, size_t *count, struct ft_error *error)
{
	struct ft_cursor cursor = ft_cursor_of(data.data, data.length);
	uint32_t elements;
	char *made;

	*array = NULL;
	*count = 0;
	if (!ft_read_array(&cursor, &elements))
		return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent something else than a list");
	if (elements == 0)
		return 0;
	/* The reader's bounds have seen to it that there are no more elements than bytes. */
	made = calloc(elements, size);
	if (made == NULL)
		return ft_fail(error, FT_E_MEMORY, "out of memory");
	for (uint32_t i = 0; i < elements; i++) {
		struct ft_view element;

		if (!ft_read_view(&cursor, &element)) {
			free(made);
			return ft_fail(error, FT_E_BAD_FRAME, "flytuned sent a list that ends early");
		}
		if (read(element, made + i * size, error) != 0) {
			free(made);
			return -1;
		}
	}
	*array = made;
	*count = elements;
	return 0;
}
