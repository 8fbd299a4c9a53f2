#include "client/ctl/output/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/error.h"

enum { READ_FIRST = 1 << 16, LINKS_MAX = 40 };

static const size_t device_max = (size_t)512 << 20; /* a file or a pipe ends, /dev/zero does not */

static bool complain(char problem[FILE_PROBLEM_SIZE], const char *what, const char *path)
{
	snprintf(problem, FILE_PROBLEM_SIZE, "cannot %s %.400s: %s", what, path,
	        strerror(errno != 0 ? errno : EIO));
	return false;
}

/* ---- reading ---- */

static char *read_all(FILE *file, size_t *length)
{
	size_t capacity = READ_FIRST;
	char *text = malloc(capacity);
	struct stat facts;
	bool ends = fstat(fileno(file), &facts) == 0 && !S_ISCHR(facts.st_mode);

	*length = 0;
	while (text != NULL) {
		char *grown;

		*length += fread(text + *length, 1, capacity - *length, file);
		if (ferror(file))
			break;
		if (*length < capacity)
			return text;
		if (!ends && capacity >= device_max) {
			errno = EFBIG;
			break;
		}
		grown = realloc(text, capacity * 2);
		if (grown == NULL)
			break;
		text = grown;
		capacity *= 2;
	}
	free(text);
	return NULL;
}

char *file_read(const char *path, size_t *length, char problem[FILE_PROBLEM_SIZE])
{
	bool is_input = strcmp(path, "-") == 0;
	FILE *file = is_input ? stdin : fopen(path, "re");
	char *text = NULL;

	errno = file != NULL ? 0 : errno;
	if (file != NULL)
		text = read_all(file, length);
	if (text == NULL)
		complain(problem, "read", is_input ? "standard input" : path);
	if (file != NULL && !is_input)
		(void)fclose(file);
	return text;
}

/* ---- writing ---- */

/* Into what is there already and is no file: a pipe, a terminal, /dev/null. Putting a file in its place would take it away
 * from everybody else. */
static bool write_into(
        const char *path, int (*write)(void *data, FILE *file), void *data, char problem[FILE_PROBLEM_SIZE])
{
	FILE *file = fopen(path, "we");
	bool written;

	if (file == NULL)
		return complain(problem, "write", path);
	errno = 0;
	written = write(data, file) == 0 && fflush(file) == 0;
	if (!written)
		complain(problem, "write", path);
	if (fclose(file) != 0 && written)
		return complain(problem, "write", path);
	return written;
}

/* All of it, down to the disk; the descriptor is closed. */
static bool fill(int descriptor, const char *path, int (*write)(void *data, FILE *file), void *data,
        char problem[FILE_PROBLEM_SIZE])
{
	FILE *file = fdopen(descriptor, "w");
	bool written;

	if (file == NULL) {
		complain(problem, "write", path);
		close(descriptor);
		return false;
	}
	errno = 0;
	written = write(data, file) == 0 && fflush(file) == 0 && fsync(descriptor) == 0;
	if (!written)
		complain(problem, "write", path);
	if (fclose(file) != 0 && written)
		return complain(problem, "write", path);
	return written;
}

/* Whoever had the file has it still, with the rights that it had; a new one is what the umask leaves. Who may not give it
 * away has it as his own. */
static bool give_rights(int descriptor, const char *path)
{
	struct stat facts;
	mode_t mask = umask(0);

	umask(mask);
	if (stat(path, &facts) != 0)
		return fchmod(descriptor, 0666 & ~mask) == 0;
	if (fchown(descriptor, facts.st_uid, facts.st_gid) != 0 && errno != EPERM)
		return false;
	return fchmod(descriptor, facts.st_mode & 0777) == 0;
}

/* Beside the file, so that it can take its place in one step: nobody ever sees a half. */
static bool replace(
        const char *path, int (*write)(void *data, FILE *file), void *data, char problem[FILE_PROBLEM_SIZE])
{
	size_t size = strlen(path) + 16;
	char *beside = malloc(size);
	int descriptor;
	bool written;

	if (beside == NULL)
		return complain(problem, "write", path);
	snprintf(beside, size, "%s.XXXXXX", path);
	descriptor = mkostemp(beside, O_CLOEXEC);
	if (descriptor < 0) {
		free(beside);
		return complain(problem, "make a file beside", path);
	}
	if (!give_rights(descriptor, path)) {
		written = complain(problem, "write", beside);
		close(descriptor);
	} else {
		written = fill(descriptor, beside, write, data, problem);
	}
	if (written && rename(beside, path) != 0)
		written = complain(problem, "replace", path);
	if (!written)
		unlink(beside);
	free(beside);
	return written;
}

/* Where a path leads, link by link, whether or not something is there. NULL without memory or end. */
static char *follow_links(const char *path)
{
	char *at = strdup(path);
	char target[PATH_MAX];

	for (int links = 0; at != NULL; links++) {
		ssize_t length = readlink(at, target, sizeof target);
		const char *slash = strrchr(at, '/');
		size_t kept;
		char *next;

		if (length < 0)
			return at;
		if (links == LINKS_MAX || length == sizeof target) {
			free(at);
			errno = links == LINKS_MAX ? ELOOP : ENAMETOOLONG;
			return NULL;
		}
		kept = target[0] != '/' && slash != NULL ? (size_t)(slash - at) + 1 : 0;
		next = malloc(kept + (size_t)length + 1);
		if (next != NULL) {
			memcpy(next, at, kept);
			memcpy(next + kept, target, (size_t)length);
			next[kept + (size_t)length] = '\0';
		}
		free(at);
		at = next;
	}
	return NULL;
}

bool file_write(
        const char *path, int (*write)(void *data, FILE *file), void *data, char problem[FILE_PROBLEM_SIZE])
{
	struct stat facts;
	bool written;
	char *real;

	if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
		return write_into(path, write, data, problem);
	/* A link stays one, and what it leads to is replaced or made. */
	real = follow_links(path);
	if (real == NULL)
		return complain(problem, "write", path);
	written = replace(real, write, data, problem);
	free(real);
	return written;
}

/* ---- JSON ---- */

static bool is_short;

/* The parser goes on without a byte that it has no room for. */
static void *allocate(size_t size)
{
	void *memory = malloc(size);

	is_short = is_short || memory == NULL;
	return memory;
}

json_t *file_parse(const char *text, size_t length, json_error_t *fault)
{
	json_t *root;

	is_short = false;
	json_set_alloc_funcs(allocate, free);
	root = json_loadb(text, length, JSON_REJECT_DUPLICATES, fault);
	if (!is_short)
		return root;
	json_decref(root);
	*fault = (json_error_t){.text = "out of memory"};
	return NULL;
}

json_t *file_read_json(const char *path, char problem[FILE_PROBLEM_SIZE])
{
	size_t length;
	char *text = file_read(path, &length, problem);
	json_error_t fault;
	json_t *root;

	if (text == NULL)
		return NULL;
	root = file_parse(text, length, &fault);
	free(text);
	if (root == NULL && fault.line == 0)
		snprintf(problem, FILE_PROBLEM_SIZE, "%.160s: %s", path, fault.text);
	else if (root == NULL)
		snprintf(problem, FILE_PROBLEM_SIZE, "%.160s: it is no JSON: line %d, column %d: %s", path,
		        fault.line, fault.column, fault.text);
	if (root == NULL)
		ft_make_plain(problem); /* it quotes the file */
	return root;
}
