/* Files that commands read and write. What failed stands in `problem`, a sentence for people. */
#ifndef FLYTUNE_CTL_FILE_H
#define FLYTUNE_CTL_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { FILE_PROBLEM_SIZE = 512 };

/* A file's whole text, for the caller to free; of standard input for "-". NULL if it cannot be had. */
char *file_read(const char *path, size_t *length, char problem[FILE_PROBLEM_SIZE]);
/* Has `write` fill a file, which is there whole or stays what it was; `write` returns 0, or -1 with errno. What is no
 * file, such as a pipe, is written into. */
bool file_write(
        const char *path, int (*write)(void *data, FILE *file), void *data, char problem[FILE_PROBLEM_SIZE]);
/* The value that a text is: NULL if it is no JSON, which names a member twice, or if memory is short. */
json_t *file_parse(const char *text, size_t length, json_error_t *fault);
/* The value that a file is; NULL, too, if it cannot be read. */
json_t *file_read_json(const char *path, char problem[FILE_PROBLEM_SIZE]);

#endif
