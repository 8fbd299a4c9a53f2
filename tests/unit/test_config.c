/* Settings: the file, the flags over it, and the file that is their reference. */
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/host/settings.h"
#include "daemon/host/log.h"

static char path[] = "/tmp/test_config.XXXXXX";

static void write_config_n(const char *text, size_t length)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

static void write_config(const char *text)
{
	write_config_n(text, strlen(text));
}

static int read_config(const char *text, struct settings *settings, struct ft_error *error)
{
	write_config(text);
	settings_init(settings);
	return settings_read(settings, path, error);
}

static void assert_refused(const char *text, const char *where, const char *what)
{
	struct settings settings;
	struct ft_error error = {0};
	char place[128];

	(void)snprintf(place, sizeof(place), "%s:%s:", path, where);
	assert_int_equal(read_config(text, &settings, &error), -1);
	if (strstr(error.message, place) == NULL || strstr(error.message, what) == NULL)
		fail_msg("\"%s\" says neither %s nor %s", error.message, place, what);
}

/* Every byte is set by settings_init, those between the members too. */
static bool same(const struct settings *left, const struct settings *right)
{
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c) */
	return memcmp(left, right, sizeof(*left)) == 0;
}

static void values_are_taken_from_their_sections(void **state)
{
	struct settings settings;
	struct ft_error error;

	(void)state;
	assert_int_equal(read_config("# a remark\n"
	                             "[daemon]\n"
	                             "socket = /tmp/a socket ; and a remark\n"
	                             "state_dir=/tmp/state\r\n"
	                             "  max_clients = 17\n"
	                             "log_level: debug\n"
	                             "[devices]\n"
	                             "device = cpu, cuda:1\n"
	                             "[deadline]\n"
	                             "build = 2.5\n"
	                             "[queue]\n"
	                             "jobs_per_user = 0\n",
	                         &settings, &error),
	        0);
	assert_string_equal(settings.socket, "/tmp/a socket");
	assert_string_equal(settings.state_dir, "/tmp/state");
	assert_int_equal(settings.clients_max, 17);
	assert_int_equal(settings.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(settings.device_count, 2);
	assert_string_equal(settings.device[1], "cuda:1");
	assert_int_equal(settings.deadline_ns[STAGE_BUILD], 2500000000);
	assert_int_equal(settings.jobs_per_user, 0);
	assert_string_equal(settings.config, path);
}

static void faults_are_named_with_file_and_line(void **state)
{
	char line[400];

	(void)state;
	assert_refused("[daemon]\n\ncolour = red\n", "3", "colour");
	assert_refused("[daemons]\nsocket = /x\n", "2", "daemons");
	assert_refused("[store]\nsocket = /x\n", "2", "[daemon]");
	assert_refused("socket = /x\n", "1", "socket");
	assert_refused("[daemon]\nmax_clients = many\n", "2", "max_clients is many");
	assert_refused("[daemon]\nmax_clients = 0\nsocket = /x\n", "2", "from 1 to");
	assert_refused("[daemon]\nmax_clients = 99999999999999999999\n", "2", "max_clients");
	assert_refused("[daemon]\nmax_clients =\n", "2", "max_clients");
	assert_refused("[daemon]\nmax_clients = -5\n", "2", "max_clients");
	assert_refused("[daemon]\nlog_level = loud\n", "2", "loud");
	assert_refused("[daemon]\nsocket =\n", "2", "socket");
	assert_refused("[devices]\ndevice = cpu, abacus\n", "2", "abacus");
	assert_refused("[devices]\ndevice =\n", "2", "device");
	assert_refused("[devices]\ndevice = cuda:-1\n", "2", "-1");
	assert_refused("[queue]\nbudget = nan\n", "2", "nan");
	assert_refused("[queue]\nbudget = 1e9\n", "2", "86400");
	assert_refused("[daemon]\nsocket = /x\n\nsocket = /x\n", "4", "given twice");
	assert_refused("[daemon\nsocket = /x\n", "1", "SECTION");
	assert_refused("[daemon]\njust words\n", "2", "KEY = VALUE");
	/* A path of a socket has 107 bytes. */
	(void)snprintf(line, sizeof(line), "[daemon]\nsocket = /%0120d\n", 0);
	assert_refused(line, "2", "107");
	(void)snprintf(line, sizeof(line), "[daemon]\nsocket = /x\nstate_dir = /%0300d\n", 0);
	assert_refused(line, "3", "longer");
}

static void a_nul_in_the_file_is_refused_and_not_the_end_of_a_line(void **state)
{
	static const struct {
		const char *text;
		size_t length;
		const char *line;
	} cases[] = {
#define NUL_CASE(text, line) {text, sizeof(text) - 1, line}
	        NUL_CASE("[daemon]\nsocket = /x\0y\nlog_level = debug\n", ":2:"),
	        NUL_CASE("[daemon]\n\0socket = /x\n", ":2:"),
	        NUL_CASE("\0", ":1:"),
	        NUL_CASE("\0\0\0\n", ":1:"),
	        NUL_CASE("[daemon]\nsocket = /x\0", ":2:"),
	        NUL_CASE("[daemon]\nsocket = /x\n\0", ":3:"),
	        NUL_CASE("[daemon]\nsocket = /x\0\n", ":2:"),
#undef NUL_CASE
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct settings settings;
		struct ft_error error = {0};

		write_config_n(cases[i].text, cases[i].length);
		settings_init(&settings);
		assert_int_equal(settings_read(&settings, path, &error), -1);
		assert_non_null(strstr(error.message, cases[i].line));
		assert_non_null(strstr(error.message, "NUL"));
	}
}

static void a_file_without_an_end_is_refused(void **state)
{
	struct settings settings;
	struct ft_error error = {0};

	(void)state;
	settings_init(&settings);
	assert_int_equal(settings_read(&settings, "/dev/zero", &error), -1);
	assert_non_null(strstr(error.message, "/dev/zero:1:"));
}

static void a_fault_steers_no_terminal(void **state)
{
	(void)state;
	assert_refused("[daemon]\n\033[2J = 1\n", "2", "unknown key ?[2J");
	assert_refused("[\033]0;x\007]\na = 1\n", "2", "?");
}

static void a_file_that_was_named_must_be_there(void **state)
{
	struct settings settings;
	struct ft_error error = {0};

	(void)state;
	settings_init(&settings);
	assert_int_equal(settings_read(&settings, "/no/such/file", &error), -1);
	assert_non_null(strstr(error.message, "/no/such/file"));
	assert_int_equal(settings_read(&settings, "/tmp", &error), -1);
}

/* A command line; @ stands for the file. */
static enum settings_outcome parse(struct settings *settings, const char *line, struct ft_error *error)
{
	char name[] = "flytuned";
	char copy[256];
	char *words[16] = {name};
	char *rest = copy;
	int count = 1;

	(void)snprintf(copy, sizeof(copy), "%s", line);
	for (char *word; (word = strsep(&rest, " ")) != NULL;)
		words[count++] = strcmp(word, "@") == 0 ? path : word;
	return settings_parse(settings, count, words, error);
}

static void flags_win_over_the_file(void **state)
{
	struct settings settings;
	struct ft_error error;

	(void)state;
	write_config("[queue]\nbudget = 5\n[daemon]\nmax_clients = 9\n[devices]\ndevice = hip cuda\n"
	             "[deadline]\nbuild = 4\nverify = 6\n");
	assert_int_equal(parse(&settings, "--budget 7 --config @ --device cpu --deadline build=3", &error),
	        SETTINGS_RUN);
	assert_int_equal(settings.budget_ns, 7000000000);
	assert_int_equal(settings.clients_max, 9);
	assert_int_equal(settings.device_count, 1);
	assert_string_equal(settings.device[0], "cpu");
	assert_int_equal(settings.deadline_ns[STAGE_BUILD], 3000000000);
	assert_int_equal(settings.deadline_ns[STAGE_VERIFY], 6000000000);
}

static void checking_the_configuration_reads_file_and_flags(void **state)
{
	struct settings settings;
	struct ft_error error;

	(void)state;
	write_config("[queue]\nbudget = 5\n");
	assert_int_equal(
	        parse(&settings, "--check-config --config @ --budget 7", &error), SETTINGS_CHECK_CONFIG);
	assert_int_equal(parse(&settings, "--check-config --config @ --budget soon", &error), SETTINGS_BAD);
	assert_non_null(strstr(error.message, "--budget is soon"));
	write_config("[queue]\nbudgets = 5\n");
	assert_int_equal(parse(&settings, "--check-config --config @", &error), SETTINGS_BAD);
	assert_non_null(strstr(error.message, ":2:"));
}

static void a_reload_takes_what_can_change_and_names_the_rest(void **state)
{
	struct settings now, fresh;
	struct ft_error error;
	char rest[256];

	(void)state;
	settings_init(&now);
	assert_int_equal(
	        read_config("[daemon]\nlog_level = debug\nsocket = /elsewhere\n[devices]\ndevice = cpu\n"
	                    "[queue]\njobs_per_user = 3\n[runner]\nidle = 1\n",
	                &fresh, &error),
	        0);
	settings_reload(&now, &fresh, rest, sizeof(rest));
	assert_string_equal(rest, "daemon.socket, devices.device");
	assert_int_equal(now.log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(now.jobs_per_user, 3);
	assert_int_equal(now.runner_idle_ns, 1000000000);
	assert_string_equal(now.socket, "/run/flytuned/flytuned.sock");
	assert_int_equal(now.device_count, 0);
	/* Back again. */
	settings_init(&fresh);
	settings_reload(&now, &fresh, rest, sizeof(rest));
	assert_string_equal(rest, "");
	assert_true(same(&now, &fresh));
}

/* The example as it is installed, with every setting that is a remark made one. */
static char *read_example(bool settings)
{
	static char text[16384];
	char from[512];
	char line[512];
	FILE *file;

	(void)snprintf(from, sizeof(from), "%s/daemon/flytuned.conf", getenv("FLYTUNE_BUILD"));
	file = fopen(from, "r");
	assert_non_null(file);
	text[0] = '\0';
	while (fgets(line, sizeof(line), file) != NULL) {
		bool setting =
		        line[0] == '#' && line[1] >= 'a' && line[1] <= 'z' && strstr(line, " =") != NULL;
		/* It has none unless one is set. */
		bool none = strncmp(line, "#file =\n", 8) == 0;

		(void)strncat(text, settings && setting && !none ? line + 1 : line,
		        sizeof(text) - strlen(text) - 1);
	}
	(void)fclose(file);
	return text;
}

static void the_example_changes_nothing(void **state)
{
	struct settings settings, usual;
	struct ft_error error;

	(void)state;
	settings_init(&usual);
	if (read_config(read_example(false), &settings, &error) != 0)
		fail_msg("%s", error.message);
	memset(settings.config, 0, sizeof(settings.config));
	assert_true(same(&settings, &usual));
}

static void every_default_of_the_example_is_the_built_in_one(void **state)
{
	struct settings settings, usual;
	struct ft_error error;

	(void)state;
	settings_init(&usual);
	if (read_config(read_example(true), &settings, &error) != 0)
		fail_msg("%s", error.message);
	memset(settings.config, 0, sizeof(settings.config));
	settings.given = 0;
	assert_true(same(&settings, &usual));
}

static void every_setting_stands_in_the_example_in_its_section(void **state)
{
	const char *text = read_example(false);
	const char *section;
	const char *key;

	(void)state;
	for (size_t i = 0; (key = settings_name(i, &section)) != NULL; i++) {
		char head[64];
		char line[64];
		const char *begin;
		const char *end;
		const char *found;

		(void)snprintf(head, sizeof(head), "\n[%s]\n", section);
		(void)snprintf(line, sizeof(line), "\n#%s =", key);
		begin = strstr(text, head);
		if (begin == NULL) {
			fail_msg("there is no section %s", section);
			return;
		}
		begin += strlen(head) - 1; /* at the newline that ends the head */
		end = strstr(begin, "\n[");
		found = strstr(begin, line);
		if (found == NULL || (end != NULL && found > end))
			fail_msg("%s does not stand in [%s]", key, section);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(values_are_taken_from_their_sections),
	        cmocka_unit_test(faults_are_named_with_file_and_line),
	        cmocka_unit_test(a_nul_in_the_file_is_refused_and_not_the_end_of_a_line),
	        cmocka_unit_test(a_file_without_an_end_is_refused),
	        cmocka_unit_test(a_fault_steers_no_terminal),
	        cmocka_unit_test(a_file_that_was_named_must_be_there),
	        cmocka_unit_test(flags_win_over_the_file),
	        cmocka_unit_test(checking_the_configuration_reads_file_and_flags),
	        cmocka_unit_test(a_reload_takes_what_can_change_and_names_the_rest),
	        cmocka_unit_test(the_example_changes_nothing),
	        cmocka_unit_test(every_default_of_the_example_is_the_built_in_one),
	        cmocka_unit_test(every_setting_stands_in_the_example_in_its_section),
	};
	int descriptor = mkstemp(path);
	int failed;

	if (descriptor < 0)
		return 1;
	(void)close(descriptor);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(path);
	return failed;
}
