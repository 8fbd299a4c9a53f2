/* flytunectl kernel */
#include "client/ctl/commands/kernel.h"

#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"

static const struct {
	const char *verb, *what;
	enum ctl_exit (*run)(struct ctl *ctl, int count, char **words);
	bool takes_more; /* words than one */
} verbs[] = {{"new", "the name of a kernel", kernel_new, false}, {"check", "a folder", kernel_check, false},
        {"try", "a folder", kernel_try, true}};

enum { VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static enum ctl_exit run(struct ctl *ctl, int count, char **words)
{
	const char *names[VERBS], *meant;

	if (count == 0)
		return ctl_usage(&command_kernel, "kernel needs new, check or try");
	for (size_t i = 0; i < VERBS; i++) {
		names[i] = verbs[i].verb;
		if (strcmp(words[0], verbs[i].verb) != 0)
			continue;
		if (count == 1 || *words[1] == '\0')
			return ctl_usage(&command_kernel, "kernel %s needs %s", verbs[i].verb, verbs[i].what);
		for (int k = 1; k < (verbs[i].takes_more ? 2 : count); k++) {
			if ((words[k][0] == '-' && words[k][1] != '\0') || k > 1)
				return stray_word(&command_kernel, words[k]);
		}
		return verbs[i].run(ctl, count - 1, words + 1);
	}
	if (words[0][0] == '-')
		return stray_word(&command_kernel, words[0]);
	meant = ft_meant_word(words[0], names, VERBS);
	return ctl_usage(&command_kernel, "there is no kernel %s: it is new, check or try%s%s%s", words[0],
	        meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "", meant != NULL ? "?" : "");
}

static void explain(void)
{
	puts("A kernel folder has a file kernel.json, which says what a kernel computes, what may be tried\n"
	     "and how it is launched, its sources, and a reference. The daemon is not needed.\n\n"
	     "  new NAME           write a folder NAME that works as it stands and explains itself\n"
	     "  check DIR          say what is wrong with a folder, how many configs its problems have, and\n"
	     "                     which rules leave out how many. Exits 1 if there are errors.\n"
	     "  try DIR            find the best config of problems of its kernel, here and now, by a "
	     "daemon\n"
	     "                     of its own that goes with all that it had. Fields take lists. Options:\n"
	     "    --device ID        cpu:0, cuda:1; else the first GPU that it has a source for, else the "
	     "CPU\n"
	     "    --budget SECONDS   of sweeping, a problem, all included; else 30\n\n"
	     "From nothing to a kernel that is tried:\n"
	     "  flytunectl kernel new my_kernel\n"
	     "  flytunectl kernel check my_kernel\n"
	     "  flytunectl kernel try my_kernel --m 256 --n 1024");
}

const struct command command_kernel = {
        .name = "kernel",
        .words = "new NAME | check DIR | try DIR --FIELD VALUE[,VALUE]... [OPTION]...",
        .help = "Make a kernel folder, say what is wrong with one, or tune its kernel where it lies",
        .run = run,
        .explain = explain,
};
