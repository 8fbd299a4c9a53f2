/* Takes away a folder that a test filled. */
#ifndef FLYTUNE_TESTS_FOLDER_HELP_H
#define FLYTUNE_TESTS_FOLDER_HELP_H

#include <ftw.h>
#include <stdio.h>

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

#endif
