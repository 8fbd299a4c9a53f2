/* A folder's bytes written elsewhere, and such a copy taken away. */
#include "kernels/folder/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

enum { OPEN_FILES = 16 /* while a folder is removed */ };

int ft_folder_write_file(
        const char *path, const char *name, const char *text, size_t length, struct ft_error *error)
{
	char whole_path[1024];
	FILE *to;
	bool whole;
	int file;

	if (snprintf(whole_path, sizeof(whole_path), "%s/%s", path, name) >= (int)sizeof(whole_path)) {
		errno = ENAMETOOLONG;
		return ft_fail_errno(error, errno, "cannot write %s", name);
	}
	file = open(whole_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	to = file >= 0 ? fdopen(file, "w") : NULL;
	if (to == NULL) {
		const int why = errno;

		if (file >= 0)
			(void)close(file);
		errno = why;
		return ft_fail_errno(error, why, "cannot write %s", whole_path);
	}
	whole = fwrite(text, 1, length, to) == length;
	if (fclose(to) != 0 || !whole)
		return ft_fail_errno(error, errno, "cannot write %s", whole_path);
	return 0;
}

int ft_folder_write(const struct ft_folder *folder, const char *path, struct ft_error *error)
{
	uint32_t count;
	const struct ft_folder_file *file = ft_folder_files(folder, &count);

	for (uint32_t i = 0; i < count; i++) {
		if (ft_folder_write_file(path, file[i].name, file[i].text, file[i].length, error) < 0)
			return -1;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
	(void)about;
	(void)kind;
	(void)at;
	return remove(path);
}

void ft_folder_remove(const char *path)
{
	(void)nftw(path, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}
