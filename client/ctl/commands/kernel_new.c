/* flytunectl kernel new */
#include "client/ctl/commands/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/output/json.h"
#include "template.h"

/* The name that stands in the texts and file names of client/ctl/template. */
#define TEMPLATE "my_kernel"

static const struct {
	const char *name;
	const char *text;
} files[] = {{"README.md", readme}, {"kernel.json", kernel_json}, {TEMPLATE ".c", cpu_source},
        {TEMPLATE ".cu", gpu_source}, {"reference.c", reference}};

enum { FILES = sizeof(files) / sizeof(files[0]), FILE_NAME_SIZE = FT_KERNEL_SIZE };

/* Writes a text with the name put in the place of the template's. */
static void put(FILE *to, const char *text, const char *name)
{
	const char *at;

	while ((at = strstr(text, TEMPLATE)) != NULL) {
		(void)fwrite(text, 1, (size_t)(at - text), to);
		(void)fputs(name, to);
		text = at + strlen(TEMPLATE);
	}
	(void)fputs(text, to);
}

static const char *file_name(size_t index, const char *name, char text[FILE_NAME_SIZE])
{
	const size_t length = strlen(TEMPLATE);
	const bool is_named = strncmp(files[index].name, TEMPLATE, length) == 0;

	snprintf(text, FILE_NAME_SIZE, "%s%s", is_named ? name : "",
	        files[index].name + (is_named ? length : 0));
	return text;
}

/* 0, or -1 with errno. */
static int write_file(int folder, size_t index, const char *name)
{
	char file[FILE_NAME_SIZE];
	int at = openat(folder, file_name(index, name, file), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	FILE *to = at >= 0 ? fdopen(at, "w") : NULL;
	int failure;

	if (to == NULL) {
		failure = errno;
		if (at >= 0)
			(void)close(at);
		errno = failure;
		return -1;
	}
	put(to, files[index].text, name);
	failure = ferror(to) != 0 ? EIO : 0;
	errno = 0;
	if (fclose(to) != 0)
		failure = errno;
	errno = failure;
	return failure == 0 ? 0 : -1;
}

/* All of them, or none. */
static int write_files(const char *name)
{
	int folder = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t written = 0;
	int failure = folder < 0 ? errno : 0;

	while (failure == 0 && written < FILES) {
		if (write_file(folder, written++, name) < 0)
			failure = errno;
	}
	while (failure != 0 && written > 0) {
		char file[FILE_NAME_SIZE];

		(void)unlinkat(folder, file_name(--written, name, file), 0);
	}
	if (folder >= 0)
		(void)close(folder);
	if (failure != 0)
		(void)rmdir(name);
	errno = failure;
	return failure == 0 ? 0 : -1;
}

static void print_json(const char *name)
{
	struct document json = {0};
	char file[FILE_NAME_SIZE];

	document_object(&json, NULL);
	document_text(&json, "kernel", name);
	document_text(&json, "folder", name);
	document_array(&json, "files");
	for (size_t i = 0; i < FILES; i++)
		document_text(&json, NULL, file_name(i, name, file));
	document_end(&json);
	document_end(&json);
	document_print(&json);
}

enum ctl_exit kernel_new(struct ctl *ctl, int count, char **words)
{
	const char *name = words[0];
	char file[FILE_NAME_SIZE];

	(void)count;
	if (!ft_name_valid(name))
		return ctl_usage(&command_kernel,
		        "the name is %.100s; it must be up to %d letters, digits and _, a letter or _ first",
		        name, FT_NAME_SIZE - 1);
	if (ft_kernel_find(name) != NULL)
		return ctl_usage(&command_kernel, "%s is a built-in kernel: choose another name", name);
	if (strcmp(name, "reference") == 0)
		return ctl_usage(&command_kernel,
		        "reference.c is the file of the reference: choose another name for the kernel");
	if (mkdir(name, 0755) < 0)
		return ctl_refused("cannot make the folder %s: %s", name, strerror(errno));
	if (write_files(name) < 0)
		return ctl_refused("cannot write into the folder %s: %s", name, strerror(errno));
	if (ctl->json) {
		print_json(name);
		return CTL_DONE;
	}
	printf("Wrote a kernel that works into the folder %s:\n", name);
	for (size_t i = 0; i < FILES; i++)
		printf("  %s\n", file_name(i, name, file));
	printf("README.md tells what is in them. Put your kernel in the place of this one, and then:\n"
	       "  flytunectl kernel check %s\n",
	        name);
	return CTL_DONE;
}
