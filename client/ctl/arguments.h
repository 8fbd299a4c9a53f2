/* Takes the words of the command line apart: general options, a command's own, and the fields of a problem,
 * which are options named by the kernel's schema. */
#ifndef FLYTUNE_CTL_ARGUMENTS_H
#define FLYTUNE_CTL_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "client/ctl/ctl.h"
#include "kernels/kernel.h"

struct general {
	const char *socket, *generation;
	bool json, help, version;
};

/* Takes the general options out of `words`, wherever they stand, and lets the rest move up. False with what
 * is wrong in `problem`. The generation is checked, that of the environment as well. */
bool general_take(struct general *general, int *count, char **words, char *problem, size_t size);

/* A command's own options; NULL members are those that the command does not have. */
struct own_options {
	const char **device;
	const char **config;
	const char **out; /* a file to write */
	bool *force, *no_wait;
	int64_t *priority; /* -100 to 100 */
	int64_t *budget_s; /* above 0 */
	/* Of all problems, which no word names then, and are refused here if they are bad; NULL: a word does. */
	const struct ft_kernel *kernel;
};

/* The problems that the words describe: the cross product of the fields' values where a command takes lists.
 */
struct problems {
	flytune_problem **problem;
	size_t count;
};

/* Reads KERNEL and options, in any order. On anything but CTL_DONE it has said why. */
enum ctl_exit problems_read(const struct ctl *ctl, const struct command *command, int count, char **words,
        const struct own_options *own, bool lists, struct problems *problems);
void problems_free(struct problems *problems);

/* Reads "KNOB=VALUE,KNOB=VALUE". On anything but CTL_DONE it has said why. */
enum ctl_exit config_read_words(const struct command *command, const char *text,
        struct flytune_knob knobs[FLYTUNE_KNOBS_MAX], size_t *count);

/* Whether the command, or flytunectl itself, has an option of that name, however it is written: --no_wait. */
bool is_option_of(const struct command *command, const char *word);

/* A word that a command has no use for: an option that there is not, or one word too many. */
enum ctl_exit stray_word(const struct command *command, const char *word);

/* A job's number. False unless it is a whole positive number. */
bool job_number_read(const char *word, uint64_t *number);

/* That a word is none. */
enum ctl_exit refuse_number(const struct command *command, const char *what, const char *word);

#endif
