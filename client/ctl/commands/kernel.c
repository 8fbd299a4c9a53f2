/* flytunectl kernel */
#include "client/ctl/commands/kernel.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"

static const struct {
	const char *verb, *what;
	enum ctl_exit (*run)(const struct ctl *ctl, const char *word);
} verbs[] = {{"new", "the name of a kernel", kernel_new}, {"check", "a folder", kernel_check}};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *names[VERBS], *meant;

	if (count == 0)
		return ctl_usage(&command_kernel, "kernel needs new or check");
	for (int i = 0; i < count; i++) {
		if (words[i][0] == '-' && words[i][1] != '\0')
			return stray_word(&command_kernel, words[i]);
	}
	for (size_t i = 0; i < VERBS; i++) {
		names[i] = verbs[i].verb;
		if (strcmp(words[0], verbs[i].verb) != 0)
			continue;
		if (count == 1 || *words[1] == '\0')
			return ctl_usage(&command_kernel, "kernel %s needs %s", verbs[i].verb, verbs[i].what);
		if (count > 2)
			return stray_word(&command_kernel, words[2]);
		return verbs[i].run(ctl, words[1]);
	}
	meant = ft_meant_word(words[0], names, VERBS);
	return ctl_usage(&command_kernel, "there is no kernel %s: it is new or check%s%s%s", words[0],
	        meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "", meant != NULL ? "?" : "");
}

static void explain(void)
{
	puts("A kernel folder has a file kernel.json, which says what a kernel computes, what may be tried\n"
	     "and how it is launched, its sources, and a reference. No daemon is needed.\n\n"
	     "  new NAME           write a folder NAME that works as it stands and explains itself\n"
	     "  check DIR          say what is wrong with a folder, how many configs its problems have, and\n"
	     "                     which rules leave out how many. Exits 1 if there are errors.");
}

const struct command command_kernel = {
        .name = "kernel",
        .words = "new NAME | check DIR",
        .help = "Make a kernel folder, or say what is wrong with one",
        .run = run,
        .explain = explain,
};
