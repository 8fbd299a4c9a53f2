/* The bytes of a folder: kernel.json, the files that it names, and what they include by quotes. Nothing is followed out of the
 * folder, and nothing is read that is not a regular file of a bounded size. */
#include "kernels/folder/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/code_file.h"

static int check_trust(const struct stat *about, const char *name, const struct ft_folder_trust *trust,
        struct ft_error *error)
{
	if (trust == NULL || !trust->wanted)
		return 0;
	if (about->st_uid != 0 && about->st_uid != trust->owner)
		return ft_fail(error, FT_E_DENIED, "%s belongs to user %u; it must belong to root or user %u",
		        name, (unsigned)about->st_uid, (unsigned)trust->owner);
	if ((about->st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return ft_fail(error, FT_E_DENIED,
		        "%s has mode %04o: its group or others may write to it; only its owner may", name,
		        (unsigned)about->st_mode & 07777);
	return 0;
}

int files_open(const char *path, const struct ft_folder_trust *trust, struct ft_error *error)
{
	const bool is_trusted = trust != NULL && trust->wanted;
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_trusted ? O_NOFOLLOW : 0));
	struct stat about;

	if (directory < 0 && is_trusted && (errno == ELOOP || errno == ENOTDIR) && lstat(path, &about) == 0 &&
	        S_ISLNK(about.st_mode))
		return ft_fail(error, FT_E_DENIED, "%s is a link; it must be the folder itself", path);
	if (directory < 0)
		return ft_fail_errno(error, errno, "cannot open the folder %s", path);
	if (fstat(directory, &about) < 0)
		ft_fail_errno(error, errno, "cannot look at the folder %s", path);
	else if (check_trust(&about, path, trust, error) == 0)
		return directory;
	(void)close(directory);
	return -1;
}

/* ---- one file ---- */

static int read_whole(int file, const char *name, size_t length, char *text, struct ft_error *error)
{
	size_t had = 0;

	/* One byte more, which must not be there. */
	while (had <= length) {
		ssize_t got = read(file, text + had, length + 1 - had);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return ft_fail_errno(error, errno, "cannot read %s", name);
		if (got == 0)
			break;
		had += (size_t)got;
	}
	if (had != length)
		return ft_fail(error, FT_E_UNAVAILABLE, "%s changed while it was read", name);
	text[length] = '\0';
	return 0;
}

/* Takes `text`, also if it fails. */
static int add_file(
        struct ft_folder *folder, const char *name, char *text, size_t length, struct ft_error *error)
{
	struct ft_folder_file *file = &folder->file[folder->file_count];
	size_t total = length;

	for (uint32_t i = 0; i < folder->file_count; i++)
		total += folder->file[i].length;
	if (folder->file_count == FT_FOLDER_FILES_MAX || total > FT_FOLDER_TOTAL_MAX) {
		free(text);
		return ft_fail(error, FT_E_BAD_VALUE,
		        "%s: a folder has %d files of %d bytes in all at the most", name, FT_FOLDER_FILES_MAX,
		        FT_FOLDER_TOTAL_MAX);
	}
	ft_text_copy(file->name, sizeof(file->name), name);
	file->text = text;
	file->length = length;
	folder->file_count++;
	return 0;
}

/* `by` says what names it. */
static int read_file(struct ft_folder *folder, int directory, const char *name, const char *by, size_t most,
        const struct ft_folder_trust *trust, struct ft_error *error)
{
	int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat about;
	char *text = NULL;
	int result = -1;

	if (file < 0 && errno == ELOOP)
		return ft_fail(
		        error, FT_E_DENIED, "%s is a link; it must be a file of the folder itself", name);
	if (file < 0 && errno == ENOENT)
		return ft_fail(error, FT_E_BAD_VALUE, "%s: %s is not in the folder", by, name);
	if (file < 0)
		return ft_fail_errno(error, errno, "cannot open %s", name);
	if (fstat(file, &about) < 0)
		ft_fail_errno(error, errno, "cannot look at %s", name);
	else if (!S_ISREG(about.st_mode))
		ft_fail(error, FT_E_DENIED, "%s is no regular file", name);
	else if (about.st_size > (off_t)most)
		ft_fail(error, FT_E_BAD_VALUE, "%s has %lld bytes; it may have %zu at the most", name,
		        (long long)about.st_size, most);
	else if (check_trust(&about, name, trust, error) == 0)
		result = 0;
	if (result == 0) {
		text = malloc((size_t)about.st_size + 1);
		result = text == NULL ? ft_fail(error, FT_E_MEMORY, "no memory for %s", name)
		                      : read_whole(file, name, (size_t)about.st_size, text, error);
	}
	if (result == 0)
		result = add_file(folder, name, text, (size_t)about.st_size, error);
	else
		free(text);
	(void)close(file);
	return result;
}

int files_read_document(
        struct ft_folder *folder, int directory, const struct ft_folder_trust *trust, struct ft_error *error)
{
	return read_file(
	        folder, directory, "kernel.json", "no kernel folder", FT_FOLDER_JSON_MAX, trust, error);
}

int files_add_document(struct ft_folder *folder, const char *text, size_t length, struct ft_error *error)
{
	char *copy;

	if (length > FT_FOLDER_JSON_MAX)
		return ft_fail(error, FT_E_BAD_VALUE, "kernel.json has %zu bytes; it may have %d at the most",
		        length, FT_FOLDER_JSON_MAX);
	copy = malloc(length + 1);
	if (copy == NULL)
		return ft_fail(error, FT_E_MEMORY, "no memory for kernel.json");
	memcpy(copy, text, length);
	copy[length] = '\0';
	return add_file(folder, "kernel.json", copy, length, error);
}

void files_free(struct ft_folder *folder)
{
	for (uint32_t i = 0; i < folder->file_count; i++)
		free((char *)(uintptr_t)folder->file[i].text);
	folder->file_count = 0;
}

/* ---- those that are named ---- */

static int want(struct ft_folder *folder, int directory, const char *name, const char *by,
        const struct ft_folder_trust *trust, uint32_t *at, struct ft_error *error)
{
	for (*at = 0; *at < folder->file_count; ++*at) {
		if (strcmp(folder->file[*at].name, name) == 0)
			return 0;
	}
	return read_file(folder, directory, name, by, FT_FOLDER_FILE_MAX, trust, error);
}

/* The text between the quotes of an include, and its length; NULL if the line is none of that kind. */
static const char *quoted(const char *line, const char *end, size_t *length)
{
	static const char word[] = "include";
	const char *last;

	for (int i = 0; i < 3; i++) {
		while (line < end && (*line == ' ' || *line == '\t'))
			line++;
		if (i == 0 && (line == end || *line++ != '#'))
			return NULL;
		if (i == 1 &&
		        ((size_t)(end - line) < sizeof(word) || memcmp(line, word, sizeof(word) - 1) != 0))
			return NULL;
		if (i == 1)
			line += sizeof(word) - 1;
	}
	if (line == end || *line++ != '"')
		return NULL;
	last = memchr(line, '"', (size_t)(end - line));
	*length = last != NULL ? (size_t)(last - line) : 0;
	return last != NULL ? line : NULL;
}

static int read_includes(struct ft_folder *folder, int directory, uint32_t at,
        const struct ft_folder_trust *trust, struct ft_error *error)
{
	const struct ft_folder_file *file = &folder->file[at];
	const char *line = file->text, *last = file->text + file->length;

	for (int number = 1; line < last; number++) {
		const char *end = memchr(line, '\n', (size_t)(last - line)), *found;
		char name[FT_KERNEL_SIZE], by[FT_KERNEL_SIZE + 16];
		uint32_t included;
		size_t length;

		if (end == NULL)
			end = last;
		found = quoted(line, end, &length);
		line = end + 1;
		if (found == NULL)
			continue;
		snprintf(by, sizeof(by), "%s:%d", file->name, number);
		if (length == 0 || length >= sizeof(name) || memchr(found, '/', length) != NULL ||
		        memchr(found, '\0', length) != NULL)
			return ft_fail(error, FT_E_DENIED,
			        "%s: \"%.*s\" is no file of the folder; what is the toolchain's is included "
			        "by <>",
			        by, (int)(length < 64 ? length : 64), found);
		memcpy(name, found, length);
		name[length] = '\0';
		if (want(folder, directory, name, by, trust, &included, error) < 0)
			return -1;
		folder->includes[at] |= UINT32_C(1) << included;
	}
	return 0;
}

int files_read_sources(
        struct ft_folder *folder, int directory, const struct ft_folder_trust *trust, struct ft_error *error)
{
	uint32_t at;

	for (int kind = 0; kind < KINDS; kind++) {
		const char *file = folder->target[kind].source.file;
		char by[64];

		snprintf(by, sizeof(by), "kernel.json: sources.%s.file", kind_names[kind]);
		if (file != NULL && want(folder, directory, file, by, trust, &at, error) < 0)
			return -1;
	}
	if (folder->reference_file != NULL &&
	        want(folder, directory, folder->reference_file, "kernel.json: reference.file", trust, &at,
	                error) < 0)
		return -1;
	/* The list grows as more are found. */
	for (at = 1; at < folder->file_count; at++) {
		if (read_includes(folder, directory, at, trust, error) < 0)
			return -1;
	}
	return 0;
}

const struct ft_folder_file *ft_folder_files(const struct ft_folder *folder, uint32_t *count)
{
	*count = folder->file_count;
	return folder->file;
}

/* ---- hashes ---- */

const char *ft_folder_hash(const struct ft_folder *folder)
{
	return folder->hash;
}

/* The files that one leads to, itself among them. */
static uint32_t reached(const struct ft_folder *folder, const char *name)
{
	uint32_t files = 0, before;

	for (uint32_t i = 0; name != NULL && i < folder->file_count; i++)
		files |= (uint32_t)(strcmp(folder->file[i].name, name) == 0) << i;
	do {
		before = files;
		for (uint32_t i = 0; i < folder->file_count; i++)
			files |= (before >> i & 1) != 0 ? folder->includes[i] : 0;
	} while (files != before);
	return files;
}

void files_hash(struct ft_folder *folder)
{
	struct part {
		char name[FT_KERNEL_SIZE];
		XXH128_canonical_t content;
	} part[FT_FOLDER_FILES_MAX], chosen[FT_FOLDER_FILES_MAX];
	const uint32_t always = 1 | reached(folder, folder->reference_file); /* kernel.json is the first */

	memset(part, 0, sizeof(part));
	for (uint32_t i = 0; i < folder->file_count; i++) {
		memcpy(part[i].name, folder->file[i].name, sizeof(part[i].name));
		XXH128_canonicalFromHash(
		        &part[i].content, XXH3_128bits(folder->file[i].text, folder->file[i].length));
	}
	ft_hash_text(part, folder->file_count * sizeof(part[0]), folder->hash);
	for (int kind = 0; kind < KINDS; kind++) {
		struct ft_folder_source *source = &folder->target[kind].source;
		const uint32_t files = always | reached(folder, source->file);
		uint32_t count = 0;

		for (uint32_t i = 0; i < folder->file_count; i++) {
			if ((files >> i & 1) != 0)
				chosen[count++] = part[i];
		}
		if (source->file != NULL)
			ft_hash_text(chosen, count * sizeof(chosen[0]), source->hash);
		/* Of all that makes schema, space and default; integers that travel as JSON have 63 bits. */
		folder->schema[kind].revision =
		        XXH3_64bits(folder->file[0].text, folder->file[0].length) & INT64_MAX;
	}
}
