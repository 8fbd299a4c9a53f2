/* The instruction sets that inner loops are compiled for, and which of them this CPU has.
 *
 * A file of inner loops is compiled once for each set, the compiler's -march deciding what its vectors are, with
 * FT_ROWS_SET and FT_ROWS_ISA for what differs: FT_ROWS(name) is a name of its own in each. */
#ifndef FLYTUNE_KERNELS_ISA_H
#define FLYTUNE_KERNELS_ISA_H

#include <stddef.h>

enum ft_isa { FT_ISA_BASE, FT_ISA_V3, FT_ISA_V4, FT_ISAS };

/* Those that are compiled in and that this CPU has, the best first; returns how many, 1 at the least. */
size_t ft_isa_usable(enum ft_isa isa[FT_ISAS]);
const char *ft_isa_name(enum ft_isa isa); /* "x86-64-v4", "portable" */

#define FT_ROWS_JOIN(name, set) name##_##set
#define FT_ROWS_OF(name, set) FT_ROWS_JOIN(name, set)
#define FT_ROWS(name) FT_ROWS_OF(name, FT_ROWS_SET)

#endif
