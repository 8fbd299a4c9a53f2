/* Fills a folder of a test's own, and takes it away. */
#ifndef FLYTUNE_TESTS_FOLDER_HELP_H
#define FLYTUNE_TESTS_FOLDER_HELP_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/check.h"

static inline int folder_remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
	(void)about;
	(void)type;
	(void)where;
	return remove(path);
}

static inline int folder_remove(const char *path)
{
	return nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file, and makes the folders that lead to it. */
static inline void folder_put(const char *root, const char *text, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static inline void folder_put(const char *root, const char *text, const char *format, ...)
{
	char path[512];
	va_list arguments;
	FILE *file;
	int length = snprintf(path, sizeof path, "%s/", root);

	va_start(arguments, format);
	vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
	va_end(arguments);
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

#endif
