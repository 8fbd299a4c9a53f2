#include "daemon/host/check.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct checking {
	const struct settings *settings;
	void (*tell)(void *data, const struct ft_error *fault);
	void *data;
	unsigned faults;
};

static void blame(
        struct checking *checking, const char *section, const char *key, const char *value, const char *bound)
{
	struct ft_error fault;
	char name[64];

	(void)snprintf(name, sizeof(name), "%s.%s", section, key);
	(void)ft_fail_field(&fault, FT_E_BAD_VALUE, name, value, bound);
	checking->faults++;
	checking->tell(checking->data, &fault);
}

static bool is_directory(const char *path)
{
	struct stat facts;

	return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Of the directory that holds it; "." if it has no slash. */
static bool stands_in_directory(const char *path)
{
	char parent[512];
	char *slash;

	(void)snprintf(parent, sizeof(parent), "%s", path);
	for (size_t end = strlen(parent); end > 1 && parent[end - 1] == '/'; end--)
		parent[end - 1] = '\0';
	slash = strrchr(parent, '/');
	if (slash == NULL)
		return true;
	slash[slash == parent] = '\0'; /* the root keeps its own */
	return is_directory(parent);
}

static void check_state_directory(struct checking *checking)
{
	const char *path = checking->settings->state_dir;
	struct stat facts;

	if (!settings_given(checking->settings, "daemon", "state_dir"))
		return;
	if (stat(path, &facts) == 0 && !S_ISDIR(facts.st_mode))
		blame(checking, "daemon", "state_dir", path, "a directory");
	else if (!is_directory(path) && !stands_in_directory(path))
		blame(checking, "daemon", "state_dir", path, "in a directory that is there");
	else if (is_directory(path) && faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
		blame(checking, "daemon", "state_dir", path,
		        errno == EROFS ? "on a file system that can be written"
		                       : "a directory that this user may write");
}

static void check_parent(struct checking *checking, const char *section, const char *key, const char *path)
{
	if (settings_given(checking->settings, section, key) && !stands_in_directory(path))
		blame(checking, section, key, path, "in a directory that is there");
}

static void check_group(struct checking *checking, const char *key, const char *name)
{
	if (settings_given(checking->settings, "daemon", key) && getgrnam(name) == NULL)
		blame(checking, "daemon", key, name, "a group of this host");
}

/* One that was not set counts only where its kind of device was named. */
static void check_runner(struct checking *checking, int kind)
{
	const struct settings *settings = checking->settings;
	const char *path = settings->runner[kind];
	struct stat facts;

	if (!settings_wants_kind(settings, settings_kinds[kind]) ||
	        (settings->device_count == 0 && !settings_given(settings, "runner", settings_kinds[kind])))
		return;
	if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode) || access(path, X_OK) != 0)
		blame(checking, "runner", settings_kinds[kind], path, "a program that can be run");
}

unsigned check_host(
        const struct settings *settings, void (*tell)(void *data, const struct ft_error *fault), void *data)
{
	struct checking checking = {.settings = settings, .tell = tell, .data = data};

	check_parent(&checking, "daemon", "socket", settings->socket);
	check_state_directory(&checking);
	check_group(&checking, "group", settings->group);
	check_group(&checking, "admin_group", settings->admin_group);
	endgrent();
	for (int kind = 0; kind < SETTINGS_KINDS; kind++)
		check_runner(&checking, kind);
	return checking.faults;
}

static void print_fault(void *data, const struct ft_error *fault)
{
	(void)fprintf(stderr, "flytuned: %s%s\n", (const char *)data, fault->message);
}

unsigned check_print(const struct settings *settings)
{
	char place[sizeof(settings->config) + 4] = "";
	unsigned faults;

	if (settings->config[0] != '\0')
		(void)snprintf(place, sizeof(place), "%s: ", settings->config);
	faults = check_host(settings, print_fault, place);
	if (faults == 0)
		(void)printf("%s: no fault found\n",
		        settings->config[0] != '\0' ? settings->config : "no configuration file");
	return faults;
}
