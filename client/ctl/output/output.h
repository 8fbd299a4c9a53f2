/* Whether what is printed is whole. Whoever falls short of it says so here, and it decides how the program ends: no
 * caller has to pass it on. */
#ifndef FLYTUNE_CTL_OUTPUT_H
#define FLYTUNE_CTL_OUTPUT_H

#include <stdbool.h>

/* Before anything is opened: a descriptor of 0 to 2 that is closed would be given to the daemon's socket. What is
 * written to it then still fails. */
void output_begin(void);
/* Something cannot be shown for want of memory: says that, once. */
void output_short(void);
/* Flushes standard output. False if it, or anything printed before, could not be written. */
bool output_flush(void);
/* The same, and says why. False also if anything was short of memory. */
bool output_end(void);

#endif
