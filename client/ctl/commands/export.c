/* flytunectl export */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/output/answers.h"
#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/file.h"
#include "client/ctl/output/json.h"

static int add_row(void *data, const struct flytune_row *row)
{
	return answers_add(data, row);
}

/* What is to be written, and of which moment it is. */
struct exported {
	struct answers answers;
	struct flytune_export_info info;
};

static int write_answers(void *data, FILE *file)
{
	struct exported *exported = data;

	return answers_write(&exported->answers, &exported->info, file);
}

static void print_json(const struct exported *exported, const char *path)
{
	struct document json = {0};

	document_object(&json, NULL);
	document_text(&json, "file", path);
	document_count(&json, "answers", exported->answers.count);
	document_count(&json, "generation", exported->info.generation);
	document_text(&json, "store", exported->info.store);
	document_end(&json);
	document_print(&json);
}

static enum ctl_exit write_out(const struct ctl *ctl, struct exported *exported, const char *path)
{
	char problem[FILE_PROBLEM_SIZE];

	if (strcmp(path, "-") == 0) {
		if (write_answers(exported, stdout) != 0 && !ferror(stdout))
			return ctl_short();
		return CTL_DONE;
	}
	if (!file_write(path, write_answers, exported, problem))
		return ctl_refused("%s", problem);
	if (ctl->json)
		print_json(exported, path);
	else
		printf("%zu answer%s written to %s\n", exported->answers.count,
		        exported->answers.count == 1 ? "" : "s", path);
	return CTL_DONE;
}

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	struct exported exported = {0};
	struct flytune_error error;
	enum ctl_exit status;
	enum flytune_result code;

	for (int i = 0; i < count; i++) {
		if (i > 0 || (words[i][0] == '-' && words[i][1] != '\0'))
			return stray_word(&command_export, words[i]);
	}
	if (count == 0 || words[0][0] == '\0')
		return ctl_usage(
		        &command_export, "export needs the name of a file, or - for standard output");
	flytune_export_info_init(&exported.info);
	code = flytune_export(ctl->client, add_row, &exported.answers, &exported.info, &error);
	if (code == FLYTUNE_E_CANCELLED)
		status = ctl_short();
	else if (code != FLYTUNE_OK)
		status = ctl_fail(ctl, &error);
	else
		status = write_out(ctl, &exported, words[0]);
	if (code == FLYTUNE_OK && exported.info.hidden > 0)
		fprintf(stderr, "flytunectl: %" PRIu64 " damaged answers are left out\n",
		        exported.info.hidden);
	answers_free(&exported.answers);
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
