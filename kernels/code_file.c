#include "kernels/code_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAGIC_LENGTH = sizeof FT_CODE_MAGIC - 1, ABOUT_MAX = 4096 };

void ft_hash_text(const void *data, size_t size, char text[FT_HASH_SIZE])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
	for (size_t i = 0; i < sizeof canonical.digest; i++)
		snprintf(text + 2 * i, 3, "%02x", canonical.digest[i]);
}

static enum ft_code_found read_whole(int descriptor, uint8_t **data, size_t *size)
{
	struct stat facts;
	size_t at = 0;

	if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size <= MAGIC_LENGTH ||
	        facts.st_size > FT_CODE_BYTES_MAX + ABOUT_MAX)
		return FT_CODE_DAMAGED;
	*size = (size_t)facts.st_size;
	*data = malloc(*size);
	if (!*data)
		return FT_CODE_NO_MEMORY;
	while (at < *size) {
		ssize_t got = read(descriptor, *data + at, *size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return FT_CODE_DAMAGED;
		at += (size_t)got;
	}
	return FT_CODE_WHOLE;
}

static bool take_apart(struct ft_code_file *file, size_t size)
{
	struct ft_cursor cursor = ft_cursor_of(file->data + MAGIC_LENGTH, size - MAGIC_LENGTH);
	char sum[FT_HASH_SIZE];

	if (memcmp(file->data, FT_CODE_MAGIC, MAGIC_LENGTH) != 0 || !ft_read_view(&cursor, &file->about) ||
	        ft_decode(&ft_code_about_message, file->about, &file->known, NULL) != 0)
		return false;
	file->object = (struct ft_view){cursor.at, (size_t)(cursor.end - cursor.at)};
	ft_hash_text(file->object.data, file->object.length, sum);
	return file->object.length > 0 && file->known.size == file->object.length &&
	        strcmp(sum, file->known.checksum) == 0;
}

enum ft_code_found ft_code_file_read(const char *path, struct ft_code_file *file)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	enum ft_code_found found;
	size_t size = 0;

	if (descriptor < 0)
		return FT_CODE_ABSENT;
	file->data = NULL;
	found = read_whole(descriptor, &file->data, &size);
	(void)close(descriptor);
	if (found == FT_CODE_WHOLE && !take_apart(file, size))
		found = FT_CODE_DAMAGED;
	if (found != FT_CODE_WHOLE)
		free(file->data);
	return found;
}
