/* flytunectl export */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/answers.h"
#include "client/ctl/ctl.h"
#include "client/ctl/json.h"

static int add_row(void *data, const struct flytune_row *row)
{
	return answers_add(data, row);
}

static enum ctl_exit complain(const char *what, const char *path)
{
	fprintf(stderr, "flytunectl: %s %s: %s\n", what, path, strerror(errno));
	return CTL_FAILED;
}

/* Into what is there already and is no file: a pipe, a terminal, /dev/null. Putting a file in its place would take it away
 * from everybody else. */
static enum ctl_exit write_into(
        struct answers *answers, const struct flytune_export_info *info, const char *path)
{
	FILE *file = fopen(path, "we");
	int failed;

	if (file == NULL)
		return complain("cannot write", path);
	errno = 0;
	failed = answers_write(answers, info, file) != 0 || fflush(file) != 0;
	errno = failed && errno == 0 ? ENOMEM : errno;
	if (failed) {
		enum ctl_exit status = complain("cannot write", path);

		(void)fclose(file);
		return status;
	}
	return fclose(file) == 0 ? CTL_DONE : complain("cannot write", path);
}

/* Beside the file, so that it can take its place in one step: nobody ever sees a half. */
static enum ctl_exit replace_file(
        struct answers *answers, const struct flytune_export_info *info, const char *path)
{
	size_t size = strlen(path) + 16;
	char *beside = malloc(size);
	enum ctl_exit status = CTL_DONE;
	mode_t mask = umask(0);
	int descriptor = -1;
	FILE *file = NULL;

	umask(mask);
	if (beside == NULL) {
		errno = ENOMEM;
		return complain("cannot write", path);
	}
	snprintf(beside, size, "%s.XXXXXX", path);
	descriptor = mkostemp(beside, O_CLOEXEC);
	if (descriptor < 0) {
		status = complain("cannot make a file beside", path);
		free(beside);
		return status;
	}
	if (fchmod(descriptor, 0666 & ~mask) == 0)
		file = fdopen(descriptor, "w");
	if (file == NULL) {
		status = complain("cannot write", beside);
		close(descriptor);
	} else {
		errno = 0;
		if (answers_write(answers, info, file) != 0 || fflush(file) != 0 || fsync(descriptor) != 0) {
			errno = errno == 0 ? ENOMEM : errno;
			status = complain("cannot write", beside);
		}
		if (fclose(file) != 0 && status == CTL_DONE)
			status = complain("cannot write", beside);
	}
	if (status == CTL_DONE && rename(beside, path) != 0)
		status = complain("cannot replace", path);
	if (status != CTL_DONE)
		unlink(beside);
	free(beside);
	return status;
}

static enum ctl_exit write_file(
        struct answers *answers, const struct flytune_export_info *info, const char *path)
{
	struct stat facts;
	enum ctl_exit status;
	char *real;

	if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
		return write_into(answers, info, path);
	/* A link stays one, and what it leads to is replaced. */
	real = realpath(path, NULL);
	status = replace_file(answers, info, real != NULL ? real : path);
	free(real);
	return status;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct flytune_export_info info;
	struct answers answers = {0};
	struct flytune_error error;
	enum ctl_exit status;
	enum flytune_code code;

	if (count != 1)
		return ctl_usage(
		        &command_export, "export needs the name of one file, or - for standard output");
	flytune_export_info_init(&info);
	code = flytune_export(ctl->client, add_row, &answers, &info, &error);
	if (code == FLYTUNE_E_CANCELLED) {
		fputs("flytunectl: out of memory\n", stderr);
		status = CTL_FAILED;
	} else if (code != FLYTUNE_OK) {
		status = ctl_fail(ctl, &error);
	} else if (strcmp(words[0], "-") == 0) {
		status = answers_write(&answers, &info, stdout) == 0 ? CTL_DONE : CTL_FAILED;
	} else {
		status = write_file(&answers, &info, words[0]);
		if (status == CTL_DONE && ctl->json)
			json_print(json_pack("{s:s, s:I, s:I, s:s}", "file", words[0], "answers",
			        (json_int_t)answers.count, "generation", (json_int_t)info.generation, "store",
			        info.store));
		else if (status == CTL_DONE)
			printf("%zu answer%s written to %s\n", answers.count, answers.count == 1 ? "" : "s",
			        words[0]);
	}
	if (code == FLYTUNE_OK && info.hidden > 0)
		fprintf(stderr, "flytunectl: %" PRIu64 " damaged answers are left out\n", info.hidden);
	answers_free(&answers);
	return status;
}

static void explain(void)
{
	puts("Writes what is known, sorted, one problem a line, with device, identity and origin of each: to "
	     "be\n"
	     "reviewed and committed, and imported elsewhere. The file is replaced in one step. With\n"
	     "--generation: as of that moment. EXPORT.md, in the documentation, describes the format.");
}

const struct command command_export = {
        .name = "export",
        .words = "FILE",
        .help = "Write all answers to a file",
        .run = run,
        .explain = explain,
};
