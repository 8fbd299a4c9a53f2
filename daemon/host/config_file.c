#include "daemon/host/config_file.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct reading {
	config_file_set set;
	void *data;
	const char *path;
	FILE *file;
	unsigned line;
	bool failed;
	struct ft_error *error;
};

/* The first fault stands. */
static void blame(struct reading *reading, const struct ft_error *fault)
{
	if (reading->failed)
		return;
	reading->failed = true;
	(void)ft_fail(reading->error, fault->code[0] != '\0' ? fault->code : FT_E_BAD_VALUE,
	        "%.200s:%u: %.100s", reading->path, reading->line, fault->message);
}

static int take(void *user, const char *section, const char *key, const char *value)
{
	struct reading *reading = user;
	struct ft_error fault = {0};

	if (!reading->failed && reading->set(reading->data, section, key, value, &fault) != 0)
		blame(reading, &fault);
	return reading->failed ? 0 : 1;
}

/* inih neither gives lines to its handler nor notices one that it had to cut. */
static char *next_line(char *text, int size, void *stream)
{
	struct reading *reading = stream;
	struct ft_error fault = {0};
	size_t length;
	bool whole;

	if (reading->failed)
		return NULL;
	/* So that the last NUL is the one that ends what was read, and an earlier one shows. */
	memset(text, '\n', (size_t)size);
	if (fgets(text, size, reading->file) == NULL)
		return NULL;
	reading->line++;
	length = strlen(text);
	whole = length > 0 && (text[length - 1] == '\n' || feof(reading->file));
	if (!whole || memrchr(text, '\0', (size_t)size) != text + length) {
		(void)ft_fail(
		        &fault, FT_E_BAD_VALUE, "the line is longer than %d bytes, or has a NUL", size - 2);
		blame(reading, &fault);
		return NULL;
	}
	/* A line that begins with a space goes on the one before, for inih: nothing here needs that, and
	 * what was meant as a key would be lost in a value. */
	if ((text[0] == ' ' || text[0] == '\t') && text[strspn(text, " \t\r\n")] != '\0')
		memmove(text, text + strspn(text, " \t"), strlen(text + strspn(text, " \t")) + 1);
	return text;
}

int config_file_read(const char **path, config_file_set set, void *data, struct ft_error *error)
{
	struct reading reading = {.set = set, .data = data, .error = error};
	struct ft_error fault = {0};
	int line;

	reading.path = *path != NULL ? *path : FLYTUNE_CONFIG;
	reading.file = fopen(reading.path, "re");
	if (reading.file == NULL) {
		if (*path == NULL && errno == ENOENT)
			return 0;
		return ft_fail_errno(error, errno, "cannot read configuration %s", reading.path);
	}
	line = ini_parse_stream(next_line, &reading, take, &reading);
	if (!reading.failed && ferror(reading.file)) {
		(void)ft_fail_errno(&fault, errno != 0 ? errno : EIO, "cannot be read");
		blame(&reading, &fault);
	} else if (line > 0 && (!reading.failed || (unsigned)line < reading.line)) {
		/* inih reads on after a line that it does not understand, which may have been a section. */
		reading.failed = false;
		reading.line = (unsigned)line;
		(void)ft_fail(&fault, FT_E_BAD_VALUE, "neither [SECTION] nor KEY = VALUE");
		blame(&reading, &fault);
	} else if (!reading.failed && line != 0) {
		(void)ft_fail(&fault, FT_E_MEMORY, "no memory to read it");
		blame(&reading, &fault);
	}
	(void)fclose(reading.file);
	if (reading.failed)
		return -1;
	*path = reading.path;
	return 0;
}
