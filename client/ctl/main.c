/* flytunectl: asks and steers flytuned from the command line. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/arguments.h"
#include "client/ctl/ctl.h"
#include "client/ctl/output/json.h"
#include "client/ctl/output/output.h"
#include "proto/value.h"

static const struct command *const commands[] = {
        &command_status,
        &command_devices,
        &command_lookup,
        &command_list,
        &command_tune,
        &command_trials,
        &command_explain,
        &command_check,
        &command_code,
        &command_jobs,
        &command_cancel,
        &command_watch,
        &command_misses,
        &command_pin,
        &command_unpin,
        &command_forget,
        &command_pause,
        &command_resume,
        &command_export,
        &command_import,
        &command_kernel,
        &command_kernels,
        &command_metrics,
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };
enum { ANSWER_MS = 10000 }; /* that the daemon may take to answer */

static struct ctl ctl;

static void print_general_options(void)
{
	puts("Options for every command:\n"
	     "  --socket PATH       the daemon's socket; else $FLYTUNE_SOCKET, else "
	     "/run/flytuned/flytuned.sock\n"
	     "  --json              print one JSON object instead of text\n"
	     "  --generation TOKEN  answer as of that moment: UUID:COUNTER; else $FLYTUNE_GENERATION\n"
	     "  --help              this, or what COMMAND takes\n"
	     "  --version           the version");
}

static void print_help(void)
{
	puts("Usage: flytunectl [OPTION]... COMMAND [WORD]...\n"
	     "Asks flytuned for the best kernel configurations of this host, and has it find them.\n");
	puts("Commands:");
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		printf("  %-9s %s\n", commands[i]->name, commands[i]->help);
	puts("");
	print_general_options();
	puts("\nExit status: 0 done, 1 failed, 2 usage or a refused value, 3 the daemon cannot be reached\n"
	     "or does not answer within 10 s, 4 the job failed or was cancelled.");
}

static void print_command_help(const struct command *command, const char *kernel)
{
	printf("Usage: flytunectl [OPTION]... %s%s%s\n%s.\n\n", command->name,
	        *command->words == '\0' ? "" : " ", command->words, command->help);
	if (command->explain != NULL) {
		command->explain();
		puts("");
	}
	if (command->takes_kernel)
		kernels_explain(&ctl, kernel);
	print_general_options();
}

static enum ctl_exit exit_of(enum flytune_result code)
{
	switch (code) {
	case FLYTUNE_E_AWAY:
	case FLYTUNE_E_TIMEOUT:
		return CTL_AWAY;
	case FLYTUNE_E_BAD_VALUE:
	case FLYTUNE_E_BAD_REQUEST:
	case FLYTUNE_E_UNKNOWN_KERNEL:
	case FLYTUNE_E_UNKNOWN_FIELD:
	case FLYTUNE_E_UNKNOWN_KNOB:
	case FLYTUNE_E_UNKNOWN_DEVICE:
		return CTL_USAGE;
	default:
		return CTL_FAILED;
	}
}

static void say(const struct flytune_error *error)
{
	struct document json = {.style = ctl.json_lines ? DOCUMENT_DENSE : DOCUMENT_PRETTY};

	fprintf(stderr, "flytunectl: %s\n", error->message);
	if (!ctl.json)
		return;
	document_object(&json, NULL);
	json_error(&json, "error", error);
	document_end(&json);
	document_print(&json);
}

enum ctl_exit ctl_fail(const struct ctl *asker, const struct flytune_error *error)
{
	(void)asker;
	say(error);
	return exit_of(error->code);
}

static void say_own(const char *word, const char *format, va_list arguments)
        __attribute__((format(printf, 2, 0)));

static void say_own(const char *word, const char *format, va_list arguments)
{
	struct flytune_error error = {0};

	snprintf(error.word, sizeof error.word, "%s", word);
	vsnprintf(error.message, sizeof error.message, format, arguments);
	ft_make_plain(error.message);
	say(&error);
}

enum ctl_exit ctl_usage(const struct command *command, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_own("usage", format, arguments);
	va_end(arguments);
	if (command == NULL)
		fputs("Try 'flytunectl --help'.\n", stderr);
	else
		fprintf(stderr, "Try 'flytunectl %s --help'.\n", command->name);
	return CTL_USAGE;
}

enum ctl_exit ctl_refused(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_own("system", format, arguments);
	va_end(arguments);
	return CTL_FAILED;
}

enum ctl_exit ctl_short(void)
{
	output_short();
	return CTL_FAILED;
}

static enum ctl_exit finish(enum ctl_exit status)
{
	return output_end() || status != CTL_DONE ? status : CTL_FAILED;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	}
	return NULL;
}

static enum ctl_exit run_on(const struct command *command, int count, char **words)
{
	const char *device = NULL;
	struct own_options own = {.device = &device};
	struct problems problems;
	enum ctl_exit status =
	        problems_read(&ctl, command, count, words, &own, command->takes_lists, &problems);

	if (status != CTL_DONE)
		return status;
	status = command->run_on(&ctl, &problems, device);
	problems_free(&problems);
	return status;
}

void ctl_client_options(const struct ctl *asker, struct flytune_options *options)
{
	flytune_options_init(options);
	options->socket = asker->socket;
	options->generation = asker->generation;
	options->name = "flytunectl/" FLYTUNE_VERSION;
	options->lookup_timeout_ms = ANSWER_MS;
}

static enum ctl_exit run(const struct command *command, int count, char **words)
{
	struct flytune_options options;
	struct flytune_error error;
	enum ctl_exit status;

	ctl_client_options(&ctl, &options);
	ctl.client = flytune_open(&options, &error);
	if (ctl.client == NULL)
		return ctl_fail(&ctl, &error);
	status = command->run != NULL ? command->run(&ctl, count, words) : run_on(command, count, words);
	flytune_close(ctl.client);
	return status;
}

static enum ctl_exit run_words(int count, char **words)
{
	struct general general = {0};
	const struct command *command;
	const char *names[COMMAND_COUNT], *meant;
	char problem[128] = "";
	bool taken = general_take(&general, &count, words, problem, sizeof problem);

	ctl.json = general.json;
	ctl.socket = general.socket;
	ctl.generation = general.generation;
	if (!taken)
		return ctl_usage(NULL, "%s", problem);
	if (general.version) {
		puts("flytunectl " FLYTUNE_VERSION);
		return CTL_DONE;
	}
	if (count == 0) {
		if (!general.help)
			return ctl_usage(NULL, "no command is given");
		print_help();
		return CTL_DONE;
	}
	if (words[0][0] == '-')
		return ctl_usage(NULL, "there is no option %s, or it must follow a command", words[0]);
	command = find_command(words[0]);
	if (command == NULL) {
		for (size_t i = 0; i < COMMAND_COUNT; i++)
			names[i] = commands[i]->name;
		meant = ft_meant_word(words[0], names, COMMAND_COUNT);
		return ctl_usage(NULL, "there is no command '%s'%s%s%s", words[0],
		        meant != NULL ? "; did you mean " : "", meant != NULL ? meant : "",
		        meant != NULL ? "?" : "");
	}
	if (general.help) {
		print_command_help(command, count > 1 ? words[1] : NULL);
		return CTL_DONE;
	}
	ctl.json_lines = command->is_stream;
	return run(command, count - 1, words + 1);
}

int main(int count, char **words)
{
	output_begin();
	/* A reader that went away shows as a failed write. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* the write says so */
	/* The general options may stand anywhere; what is left are the command and its own words. */
	return finish(run_words(count - 1, words + 1));
}
