/* What every command of flytunectl gets, and how it ends. */
#ifndef FLYTUNE_CTL_CTL_H
#define FLYTUNE_CTL_CTL_H

#include <stdbool.h>

#include <flytune/admin.h>

enum ctl_exit {
	CTL_DONE = 0,
	CTL_FAILED = 1,
	CTL_USAGE = 2,
	CTL_AWAY = 3,       /* the daemon cannot be reached */
	CTL_JOB_FAILED = 4, /* or was cancelled */
};

struct ctl {
	flytune_client *client;
	bool json;
	bool json_lines;        /* each object on a line of its own */
	const char *socket;     /* as given; NULL: the library's choice */
	const char *generation; /* as given; NULL: the environment's */
};

/* What every client of flytunectl is opened with. Whoever waits at a prompt is better served by a late answer than by none: it is
 * granted as long as any other call, where an engine goes on with its default. */
void ctl_client_options(const struct ctl *ctl, struct flytune_options *options);

struct problems;

/* One command. `run` gets the words after the command's name; `run_on`, in its place, what KERNEL, fields and --device come to:
 * one problem, unless fields take lists. */
struct command {
	const char *name;
	const char *words; /* what follows the name, for the usage line */
	const char *help;  /* one line */
	enum ctl_exit (*run)(struct ctl *ctl, int count, char **words);
	enum ctl_exit (*run_on)(struct ctl *ctl, const struct problems *problems, const char *device);
	bool takes_lists;
	void (*explain)(void); /* more of --help; NULL: nothing */
	const char *options;   /* its own, without dashes, parted by blanks; NULL: none */
	bool is_stream;        /* with --json it prints an object a line */
	bool takes_kernel;     /* its first word names one, and --help lists its fields */
};

extern const struct command command_status;
extern const struct command command_devices;
extern const struct command command_jobs;
extern const struct command command_cancel;
extern const struct command command_watch;
extern const struct command command_lookup;
extern const struct command command_list;
extern const struct command command_tune;
extern const struct command command_trials;
extern const struct command command_explain;
extern const struct command command_check;
extern const struct command command_misses;
extern const struct command command_pin;
extern const struct command command_unpin;
extern const struct command command_forget;
extern const struct command command_pause;
extern const struct command command_resume;
extern const struct command command_code;
extern const struct command command_export;
extern const struct command command_import;
extern const struct command command_kernel;
extern const struct command command_kernels;
extern const struct command command_metrics;

/* For --help: prints the fields of a kernel, of all with NULL, as the daemon knows them; while it is away, those of built-in
 * kernels. */
void kernels_explain(const struct ctl *ctl, const char *kernel);

/* Each says what is wrong on standard error, under --json as an object on standard output as well, and gives the status
 * to end with. */
enum ctl_exit ctl_fail(const struct ctl *ctl, const struct flytune_error *error);
/* The words of a command are at fault; NULL: those before it. Says where help is. */
enum ctl_exit ctl_usage(const struct command *command, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* This machine refuses, such as a file. */
enum ctl_exit ctl_refused(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Memory is short. */
enum ctl_exit ctl_short(void);

#endif
