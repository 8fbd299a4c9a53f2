/* Tables for people: columns as wide as their widest cell, counted in characters and not in bytes. */
#ifndef FLYTUNE_CTL_TABLE_H
#define FLYTUNE_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLE_CELL_SIZE = 256 };

struct table {
	const char *const *head; /* a column's title; one that begins with '>' is aligned to the right */
	size_t columns;
	char (*cell)[TABLE_CELL_SIZE];
	size_t cells, capacity;
	bool failed; /* for want of memory: it is not printed */
};

/* `head` NULL: no titles, all columns to the left. */
void table_init(struct table *table, const char *const *head, size_t columns);
/* Adds the next cell, row by row. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number; nothing for 0. */
void table_count(struct table *table, uint64_t number);
/* A row of two, where the second is not empty: for lists of facts. */
void table_fact(struct table *table, const char *name, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Prints it to standard output, columns that are empty throughout left out, and frees it: whole or, when memory is short,
 * not at all, which output.h notes. */
void table_print(struct table *table);

#endif
