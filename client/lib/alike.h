/* Copies what a message and a public structure both have under the same names, by the message's own list in
 * proto/messages.h: a member that the structure lacks does not compile. Problems, configs and lists are left to the caller,
 * since the public ones look otherwise. */
#ifndef FLYTUNE_CLIENT_ALIKE_H
#define FLYTUNE_CLIENT_ALIKE_H

#include <stdio.h>

/* From `from` to `to`, both pointers: FT_MISS(COPY_ALIKE); */
#define COPY_ALIKE(type, name, size, required) COPY_ALIKE_##type(name)
#define COPY_ALIKE_TEXT(name) snprintf(to->name, sizeof to->name, "%s", from->name);
#define COPY_ALIKE_BOOL(name) to->name = from->name != 0;
#define COPY_ALIKE_INT(name) to->name = from->name;
#define COPY_ALIKE_UINT(name) to->name = from->name;
#define COPY_ALIKE_REAL(name) to->name = from->name;
#define COPY_ALIKE_PROBLEM(name)
#define COPY_ALIKE_CONFIG(name)
#define COPY_ALIKE_RAW(name)

#endif
