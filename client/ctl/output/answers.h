/* The file of an export, as client/EXPORT.md describes it: rows of answers as JSON, one a line, in a fixed
 * order. */
#ifndef FLYTUNE_CTL_ANSWERS_H
#define FLYTUNE_CTL_ANSWERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include <flytune/admin.h>

enum { ANSWERS_VERSION = 1, ANSWERS_HASH_SIZE = 33, ANSWERS_TEXT_SIZE = 2048 };

/* Long texts that many rows share stand in a table of their own, under their hash. */
struct answers_text {
	char hash[ANSWERS_HASH_SIZE];
	char *text;
};

struct answers_texts {
	struct answers_text *list;
	size_t count, capacity;
};

struct answers_line {
	char *order; /* lines are sorted by it */
	char *json;
};

/* What is to be written. */
struct answers {
	struct answers_texts devices, identities;
	struct answers_line *line;
	size_t count, capacity;
};

/* 0, or -1 when out of memory. */
int answers_add(struct answers *answers, const struct flytune_row *row);
/* Sorts and writes all. 0, or -1 with errno when out of memory or when the file cannot be written. */
int answers_write(struct answers *answers, const struct flytune_export_info *info, FILE *file);
void answers_free(struct answers *answers);

/* Reads a file's text and calls `take` for each row, in the file's order; `number` of the first is 1. Stops
 * where it returns false. Everything but the rows is checked before the first. False with *error set if the
 * file is none, or a row has a fault that shows without the daemon. */
bool answers_read(const char *text, size_t length,
        bool (*take)(void *data, size_t number, const struct flytune_row *row, struct flytune_error *error),
        void *data, struct flytune_error *error);

#endif
