/* `flytunectl kernel` works on a kernel folder where it lies, without a daemon: kernel_new.c writes one, kernel_try.c tunes its kernel, kernel_check.c
 * looks for what is wrong with one, with problems of kernel_spread.c and by the compiler of kernel_compile.c, and kernel_report.c
 * prints what was found. */
#ifndef FLYTUNE_CTL_COMMANDS_KERNEL_H
#define FLYTUNE_CTL_COMMANDS_KERNEL_H

#include "client/ctl/ctl.h"
#include "kernels/folder/folder.h"

/* ---- problems to try a kernel with ---- */

enum { SPREAD_MAX = 200 };

/* Bounds, usual sizes and choices of all fields: every combination, or, where they are too many, always the same ones. */
struct spread {
	struct ft_problem *problem; /* whole, and taken by the folder's checks */
	uint32_t count;
	uint32_t refused; /* that the checks did not take */
};

/* -1 and an error if an expression of a check fails, of `culprit` then, or if memory is short. */
int spread_make(struct spread *spread, const struct ft_folder *folder, struct ft_problem *culprit,
        struct ft_error *error);
void spread_free(struct spread *spread);

/* ---- what the compiler says ---- */

/* Compiles the source for a CPU, with the default of the problem, and the reference. `say` gets the first error of each that does not
 * compile. -1 and an error if nothing can be compiled. */
int kernel_compile(const struct ft_folder *folder, const struct ft_problem *problem,
        void (*say)(void *data, const char *before, const struct ft_error *error), void *data,
        struct ft_error *error);

/* ---- what is found ---- */

enum { FINDINGS_MAX = 64, DEVICES_MAX = 3, SUBJECT_SIZE = 128 };

enum finding_level { FINDING_ERROR, FINDING_WARNING, FINDING_NOTE, FINDING_LEVELS };

struct finding {
	enum finding_level level;
	const char *device;               /* a kind; NULL: it is not of one */
	const struct ft_problem *problem; /* the first that shows it; NULL: none is needed */
	uint32_t problems;                /* that show it */
	char subject[SUBJECT_SIZE];       /* two of one subject are one */
	char message[400];
};

/* What a kind of device came to. */
struct checked_device {
	const char *kind;
	uint32_t problems;              /* whose space was counted */
	uint64_t least, most;           /* configs of one */
	const struct ft_problem *of[2]; /* which these are of, in the spread */
	struct ft_folder_count count;   /* of all problems together */
};

struct report {
	const char *path;
	struct ft_folder *folder; /* NULL: it cannot be read */
	bool is_trusted;          /* nobody else may write to it */
	bool is_compiled;         /* its source for a CPU and the reference were */
	struct spread spread;
	struct ft_problem culprit; /* of a check that fails; a finding may point to it */
	uint32_t findings, left;   /* that there was no room for */
	struct finding finding[FINDINGS_MAX];
	uint32_t level[FINDING_LEVELS]; /* how many of each */
	uint32_t devices;
	struct checked_device device[DEVICES_MAX];
};

/* Looks for all that is wrong with a folder. NULL if memory is short. */
struct report *report_make(const char *path);
void report_free(struct report *report);
/* CTL_FAILED if there are errors. */
enum ctl_exit report_tell(const struct ctl *ctl, const struct report *report);
void report_print(const struct report *report);
void report_print_json(const struct report *report);

/* ---- the commands ---- */

/* Each gets the words behind its own, at least one; the first of them is no option. */
enum ctl_exit kernel_new(struct ctl *ctl, int count, char **words);
enum ctl_exit kernel_check(struct ctl *ctl, int count, char **words);
enum ctl_exit kernel_try(struct ctl *ctl, int count, char **words);

#endif
