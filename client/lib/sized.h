/* Copies structures that begin with their size across the boundary to programs built against another release.
 */
#ifndef FLYTUNE_CLIENT_SIZED_H
#define FLYTUNE_CLIENT_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* What the caller's structure is, by its own word; 0: there is none. */
static inline size_t sized_length(const void *structure)
{
	size_t size;

	if (structure == NULL)
		return 0;
	memcpy(&size, structure, sizeof size);
	return size;
}

/* Reads a caller's structure, zero where it is older and ends early. False if its size was never set, or it is NULL. */
static inline bool sized_in(void *ours, size_t size, const void *theirs)
{
	size_t given = sized_length(theirs);

	if (given < sizeof size)
		return false;
	memset(ours, 0, size);
	memcpy(ours, theirs, given < size ? given : size);
	memcpy(ours, &size, sizeof size);
	return true;
}

/* Fills in a caller's structure as far as it reaches, its size left as it is. */
static inline bool sized_out(void *theirs, const void *ours, size_t size)
{
	size_t given = sized_length(theirs);

	if (given < sizeof size)
		return false;
	if (given > size)
		memset((char *)theirs + size, 0, given - size);
	memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size,
	        (given < size ? given : size) - sizeof size);
	return true;
}

#endif
